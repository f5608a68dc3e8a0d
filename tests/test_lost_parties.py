"""A party lost in the middle of a fit leaves nothing half-fitted, in any estimator."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from skprivbn.datasets import load_asia, make_linear_sem, make_var_sem
from skprivbn.exceptions import PartyError
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixed_model import PrivateGLMMClassifier
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedPCA,
    FederatedStandardScaler,
)
from skprivbn.structure import (
    CollectiveBayesianNetwork,
    FederatedDynotears,
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    PrivateK2StructureLearner,
    VotingStructureLearner,
)
from tests.federation.hostile import Dropping, Relay

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
        PrivateGLMMClassifier(max_iter=3),
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
def test_nothing_is_half_fitted(case):
    estimator, X, arguments = clone(case[0]), *case[1:]
    with Relay().carrying() as relay:
        fit(estimator, X, arguments)
    before, n_rounds = fitted(estimator), relay.n_rounds
    for moment in {n_rounds // 3, 2 * n_rounds // 3, n_rounds - 1}:
        new = clone(estimator)
        with Dropping(moment).carrying(), pytest.raises(PartyError):
            fit(new, X, arguments)
        assert fitted(new) == {}
        with Dropping(moment).carrying(), pytest.raises(PartyError):
            fit(estimator, X, arguments)
        after = fitted(estimator)
        assert after.keys() == before.keys()
        assert all(after[name] is value for name, value in before.items())
