"""A party lost in the middle of a fit leaves nothing half-fitted, in any estimator."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from skprivbn.bayesian_network import CollectiveBayesianNetwork
from skprivbn.datasets import load_asia, make_linear_sem, make_var_sem
from skprivbn.exceptions import PartyError
from skprivbn.federation import InProcessFederation
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixed_model import PrivateGLMM
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedPCA,
    FederatedStandardScaler,
)
from skprivbn.structure import (
    FederatedDynotears,
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    PrivateK2StructureLearner,
    VotingStructureLearner,
)

ROWS, _ = make_linear_sem(60, 3, random_state=0)
PARTY = np.arange(60) % 3
TIMES, SERIES, _, _ = make_var_sem(30, 3, n_series=3, random_state=0)
ASIA = load_asia()
CODES = ASIA.encode(ASIA.sample(60, random_state=0))
COLUMNS = {"clinic": [0, 1, 2, 3], "lab": [4, 5, 6, 7]}
OUTCOME = np.arange(60) % 2

CASES = [
    (
        PPEMGaussianMixture(2, max_iter=3, backend="masking", random_state=0),
        ROWS,
        {"party": PARTY},
    ),
    (PPEMGaussianMixture(2, max_iter=3, random_state=0), ROWS, {"party": PARTY}),
    (FederatedNotearsADMM(max_iter=3), ROWS, {"party": PARTY}),
    (FederatedNotearsADMM(max_iter=3, backend="ckks"), ROWS, {"party": PARTY}),
    (FederatedGaussianBayesianNetwork(), ROWS, {"party": PARTY}),
    (FederatedGaussianBayesianNetwork(parties={"a": [0], "b": [1, 2]}), ROWS, {}),
    (VotingStructureLearner(), ROWS, {"party": PARTY}),
    (FederatedDynotears(max_iter=3), TIMES, {"party": SERIES, "series": SERIES}),
    (
        PrivateGLMM(max_iter=3),
        ROWS,
        {"y": OUTCOME, "party": PARTY, "cluster": np.arange(60) // 20},
    ),
    (DPCGMLearner(states=[2] * 8), CODES, {"party": PARTY}),
    (DPCGMLearner("chain", parties=COLUMNS, states=[2] * 8), CODES, {}),
    (PrivateK2StructureLearner(COLUMNS, max_parents=1), CODES, {}),
    (CollectiveBayesianNetwork(COLUMNS), CODES, {}),
    (FederatedStandardScaler(), ROWS, {"party": PARTY}),
    (FederatedPCA(), ROWS, {"party": PARTY}),
    (FederatedKBinsDiscretizer(), ROWS, {"party": PARTY}),
]


def name_of(case):
    estimator, _, arguments = case
    return f"{type(estimator).__name__}-{getattr(estimator, 'backend', '')}"


@pytest.fixture
def losing(monkeypatch):
    """Let a party vanish at an exchange; count the exchanges of a whole fit."""
    exchange = InProcessFederation._exchange
    state = {"count": 0, "fails_at": None}

    def counted(self, requests, timeout):
        replies = exchange(self, requests, timeout)
        if state["count"] == state["fails_at"]:
            replies[next(iter(replies))] = None
        state["count"] += 1
        return replies

    monkeypatch.setattr(InProcessFederation, "_exchange", counted)
    return state


def fitted(estimator):
    """Return what `fit` learnt; scikit-learn sets the input's shape before that."""
    validated = {"n_features_in_", "feature_names_in_"}
    return {
        name: value
        for name, value in vars(estimator).items()
        if name not in validated | estimator.get_params(deep=False).keys()
    }


def fit(estimator, X, arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(X, **arguments)


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_nothing_is_half_fitted(losing, case):
    estimator, X, arguments = clone(case[0]), *case[1:]
    fit(estimator, X, arguments)
    before, n_exchanges = fitted(estimator), losing["count"]
    moments = {n_exchanges // 3, 2 * n_exchanges // 3, n_exchanges - 1}
    for moment in moments:
        losing.update(count=0, fails_at=moment)
        new = clone(estimator)
        with pytest.raises(PartyError):
            fit(new, X, arguments)
        assert fitted(new) == {}
        losing.update(count=0)
        with pytest.raises(PartyError):
            fit(estimator, X, arguments)
        after = fitted(estimator)
        assert after.keys() == before.keys()
        assert all(after[name] is value for name, value in before.items())
