import numpy as np
import pytest
from sklearn.base import clone

from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedPCA,
    FederatedStandardScaler,
)
from skprivbn.privacy import PrivacyAccountant, PrivateSearchCV, audit_estimator
from skprivbn.privacy import _search as search_module
from skprivbn.privacy._scores import clipped_sum
from skprivbn.privacy._selection import cost_of_fit
from skprivbn.structure import FederatedGaussianBayesianNetwork, FederatedNotearsADMM
from tests.privacy.toys import NoisyHistogram

# a sound estimator is blamed once in a billion runs
SURE = 1 - 1e-9
ROWS = np.zeros((20, 1), dtype=int)
ONE_MORE = np.append(ROWS, [[3]], axis=0)


class TenthOfTheNoise(NoisyHistogram):
    """A broken twin: its noise is for ten times the epsilon that it claims."""

    def fit(self, X, y=None):
        claimed, self.epsilon = self.epsilon, 10 * self.epsilon
        super().fit(X)
        self.epsilon = claimed
        return self


class RefusesThrees(NoisyHistogram):
    """Another: one row makes its fit fail."""

    def fit(self, X, y=None):
        if np.any(X == 3):
            raise ValueError("what is a three?")
        return super().fit(X)


def histogram(model):
    return model.log_probabilities_


def test_a_sound_estimator_passes_and_a_broken_one_is_caught():
    options = {"n_trials": 400, "statistic": histogram}
    found = audit_estimator(
        NoisyHistogram(), ROWS, ONE_MORE, confidence=SURE, **options
    )
    assert found.epsilon <= 1.0
    assert found.n_failed == (0, 0)
    # four probabilities, all of them together, and whether the fit raises
    assert len(found.bounds) == 6
    found = audit_estimator(
        TenthOfTheNoise(), ROWS, ONE_MORE, confidence=0.9, **options
    )
    assert found.epsilon > 1.0


def test_an_error_is_a_release():
    found = audit_estimator(RefusesThrees(), ROWS, ONE_MORE, n_trials=100)
    assert found.n_failed == (0, 100)
    assert found.bounds["fit raises"] > 1.0


def test_audits_charge_nobody():
    accountant = PrivacyAccountant(epsilon=1.0)
    model = NoisyHistogram(accountant=accountant)
    found = audit_estimator(model, ROWS, ONE_MORE, n_trials=4)
    assert found.n_trials == 4 and accountant.history == ()


class ManyNoisyCounts(NoisyHistogram):
    """Claims for one of its counts what holds for each, and not for all."""

    def fit(self, X, y=None):
        noise = np.random.default_rng().laplace(0, 1 / self.epsilon, 20)
        self.counts_ = np.count_nonzero(X == 3) + noise
        return self


def test_many_numbers_tell_more_together():
    found = audit_estimator(ManyNoisyCounts(), ROWS, ONE_MORE, n_trials=400)
    together = found.bounds.pop("all numbers together")
    assert together > 1.0 >= max(found.bounds.values())


def test_many_numbers_share_the_error():
    rng = np.random.default_rng(0)
    found = audit_estimator(
        NoisyHistogram(),
        ROWS,
        ROWS,
        statistic=lambda model: rng.normal(size=100),
        n_trials=100,
        confidence=0.95,
    )
    assert found.epsilon == 0.0


def count_failures_as_worst(estimator, data, split, bounds, scoring):
    """What the search did with a fit that fails: the finding, reintroduced."""
    X, _, weights, _ = data
    train, test = split
    try:
        estimator.fit(X[train])
    except ValueError:
        lowest = np.full(len(test), bounds[0])
        return clipped_sum(lowest, bounds, weights[test]), (estimator.epsilon, 0.0)
    scores = scoring(estimator, X[test], None)
    return clipped_sum(scores, bounds, weights[test]), cost_of_fit(estimator)


def test_a_failing_row_in_the_sum_of_scores_is_caught(monkeypatch):
    monkeypatch.setattr(search_module, "_fit_and_sum", count_failures_as_worst)
    search = PrivateSearchCV(
        RefusesThrees(epsilon=0.1),
        {"prior": [1.0]},
        (-1.0, 1.0),
        epsilon=0.3,
        cv=0.5,
        scoring=lambda model, X, y: np.ones(len(X)),
        refit=False,
    )
    found = audit_estimator(
        search,
        np.zeros((200, 1), dtype=int),
        np.append(np.zeros((200, 1), dtype=int), [[3]], axis=0),
        statistic=lambda model: model.best_score_,
        n_trials=300,
        confidence=0.9,
    )
    assert found.epsilon > 0.4


LOW = np.full((10, 2), -1.0)
BOUNDS = {"epsilon": 1.0, "bounds": (-1.0, 1.0)}
PRIVATE = [
    (FederatedStandardScaler(**BOUNDS), 2000),
    (FederatedPCA(**BOUNDS), 2000),
    (FederatedKBinsDiscretizer(3, **BOUNDS), 1000),
    (FederatedGaussianBayesianNetwork(**BOUNDS), 100),
    (FederatedNotearsADMM(max_iter=3, **BOUNDS), 200),
    (PPEMGaussianMixture(2, max_iter=2, backend="masking", **BOUNDS), 100),
]


def edges_too(model):
    """Return the numbers of a model, also those of edges, which may be fewer."""
    if not hasattr(model, "bin_edges_"):
        arrays = [v for v in vars(model).values() if isinstance(v, np.ndarray)]
        numbers = [a for a in arrays if a.dtype.kind == "f"]
    else:
        numbers = [edges[[0, 1, -2, -1]] for edges in model.bin_edges_]
    return np.concatenate([np.ravel(values) for values in numbers])


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.0, 1e-3])
@pytest.mark.parametrize(
    "estimator, n_trials", PRIVATE, ids=lambda value: type(value).__name__
)
@pytest.mark.parametrize("row", [[1.0, 1.0], [np.nan, np.inf]], ids=["far", "strange"])
def test_no_private_estimator_exceeds_its_claim(estimator, n_trials, row, delta):
    found = audit_estimator(
        clone(estimator).set_params(delta=delta),
        LOW,
        np.append(LOW, [row], axis=0),
        statistic=edges_too,
        n_trials=n_trials,
        delta=delta,
        confidence=SURE,
    )
    assert found.n_failed == (0, 0)
    assert found.epsilon <= 1.0


@pytest.mark.slow
def test_no_random_field_exceeds_its_claim():
    rows = np.zeros((10, 2), dtype=int)
    found = audit_estimator(
        DPCGMLearner(
            "chain", states=[2, 2], epsilon=1.0, method_params={"max_iter": 50}
        ),
        rows,
        np.append(rows, [[1, 1]], axis=0),
        statistic=lambda model: np.concatenate(
            [np.ravel(table) for table in model.noisy_tables_.values()]
        ),
        n_trials=500,
        confidence=SURE,
    )
    assert found.n_failed == (0, 0)
    assert found.epsilon <= 1.0
