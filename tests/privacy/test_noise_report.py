"""What estimators say of their noise: right, and of noisy numbers alone."""

import math
import warnings
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_equal
from sklearn.base import clone

from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import FederatedPCA, FederatedStandardScaler
from skprivbn.privacy import (
    CountMechanism,
    NoiseReport,
    PrivacyAccountant,
    PrivateSearchCV,
    public_delta,
)
from skprivbn.privacy._noise_report import noisy_number, report_noise
from skprivbn.structure import FederatedBayesianNetwork
from tests.estimators import public_estimators
from tests.privacy.test_audit_neighbours import LABELS, NUMBERS, assert_alike
from tests.privacy.toys import mixed_model

ACCOUNTANT = PrivacyAccountant(np.inf, delta=0.1)
RNG = np.random.default_rng(0)
ROWS = np.concatenate([RNG.normal(m, 0.5, (1000, 2)) for m in (-2.0, 0.0, 2.0)])
BOX = {"bounds": (-4.0, 4.0), "accountant": ACCOUNTANT}
CODES = RNG.integers(3, size=(3000, 4)).astype(str)
LABELLED = {"states": [["0", "1", "2"]] * 4, "accountant": ACCOUNTANT}


def said_by(estimator, X, **beside):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        estimator.fit(X, **beside)
    return [str(warning.message) for warning in said]


#: what estimators with epsilon need, if not numbers between bounds
NEEDS = {
    "DPCGMLearner": {"states": LABELLED["states"]},
    "FederatedBayesianNetwork": {"states": LABELLED["states"], "max_parents": 1},
    "PrivateK2StructureLearner": {
        "states": LABELLED["states"],
        "parties": {"a": [0, 1], "b": [2, 3]},
    },
}
PRIVATE = {
    type(estimator).__name__: estimator
    for estimator in public_estimators()
    if "epsilon" in estimator.get_params()
    and not isinstance(estimator, PrivateSearchCV)  # choices, not a release
}
PRIVATE["PrivateGLMMRegressor"] = mixed_model()  # takes its target from the rows


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PRIVATE)
def test_every_estimator_with_epsilon_reports_its_noise(name):
    options = NEEDS.get(name, {"bounds": (-4.0, 4.0)})
    estimator = PRIVATE[name].set_params(epsilon=1.0, accountant=ACCOUNTANT, **options)
    X = CODES[:100] if "states" in options else ROWS
    report = estimator.fit(X).noise_report_
    assert isinstance(report, NoiseReport)
    assert (report.epsilon, report.delta, report.kind) == (1.0, 0.0, "laplace")
    assert report.std > 0
    assert len(report.numbers) > 0
    frame = report.to_frame()
    assert list(frame.columns) == ["what", "value", "std", "share"]
    assert report.numbers[0].what in repr(report)


@pytest.mark.parametrize(
    "name",
    [
        "FederatedFCI",
        "FederatedGaussianBayesianNetwork",
        "FederatedKBinsDiscretizer",
        "FederatedNotearsADMM",
        "FederatedStandardScaler",
        "FederatedPCA",
        "FederatedSimpleImputer",
        "PPEMGaussianMixture",
        "PrivateGLMMRegressor",
    ],
)
def test_a_report_has_every_warning_of_the_noise(name):
    # a clone would not repeat what another clone has said in another test
    estimator = deepcopy(PRIVATE[name]).set_params(epsilon=0.001, **BOX)
    said = [words for words in said_by(estimator, ROWS) if "noise" in words]
    assert said
    assert list(estimator.noise_report_.warnings) == said


def test_an_exact_fit_has_no_report_and_forgets_an_earlier_one():
    scaler = FederatedStandardScaler(epsilon=1.0, **BOX).fit(ROWS)
    assert hasattr(scaler, "noise_report_")
    party = np.arange(len(ROWS)) % 3
    scaler.set_params(epsilon=None, bounds=None).fit(ROWS, party=party)
    assert not hasattr(scaler, "noise_report_")


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_reported_noise_is_that_of_repeated_fits(delta):
    """Of means, variances and the number of rows, in 100 fits of the same rows."""
    scaler = FederatedStandardScaler(epsilon=0.5, delta=delta, **BOX)
    found = []
    for _ in range(100):
        scaler.fit(ROWS)
        found.append([scaler.n_samples_, *scaler.mean_, *scaler.var_])
    stds = [number.std for number in scaler.noise_report_.numbers]
    # a standard deviation of 100 is off by 7 % (Laplace: 11 %)
    assert_allclose(np.std(found, axis=0), stds, rtol=0.4)


def test_reported_noise_on_covariances_is_that_of_repeated_fits():
    X = ROWS @ [[1.0, 0.6], [0.0, 0.5]] + [0.5, -0.7]
    pca = FederatedPCA(epsilon=0.5, delta=1e-6, **BOX)
    found = [pca.fit(X).covariance_ for _ in range(100)]
    numbers = {n.what: n.std for n in pca.noise_report_.numbers}
    stds = [numbers[f"variance of 'x{j}'"] for j in range(2)]
    assert_allclose(np.diag(np.std(found, axis=0)), stds, rtol=0.4)


def test_a_misspelt_state_is_told_of():
    states = [["0", "1", "2"]] * 3 + [["a", "b", "c"]]
    options = {"accountant": ACCOUNTANT, "states": states, "epsilon": 1.0}
    (said,) = [
        words
        for words in said_by(DPCGMLearner("chain", missing="skip", **options), CODES)
        if "declared states" in words
    ]
    assert "rows have declared states in column 'x3': check the spelling" in said
    assert "of 3,0" in said or "of 2,9" in said
    for estimator in (
        DPCGMLearner("chain", **options),
        FederatedBayesianNetwork(max_parents=1, **options),
    ):
        said = said_by(estimator, CODES)
        assert any("within the noise: check the spelling" in words for words in said)
        assert any("spelling" in words for words in estimator.noise_report_.warnings)


def test_states_that_are_spelt_right_are_not_warned_of():
    for missing in ("auto", "skip"):
        learner = DPCGMLearner("chain", epsilon=1.0, missing=missing, **LABELLED)
        assert said_by(learner, CODES) == []


def test_components_within_the_noise_are_told_of_with_the_rows_needed():
    options = {"random_state": 0, **BOX}
    assert said_by(PPEMGaussianMixture(3, epsilon=5.0, **options), ROWS) == []
    mixture = PPEMGaussianMixture(3, epsilon=0.02, delta=1e-6, **options)
    said = " ".join(said_by(mixture, ROWS))
    assert "lie within the noise" in said
    assert "rows needed at this epsilon" in said


def test_delta_is_suggested_where_noise_is_much_and_it_would_help():
    learner = DPCGMLearner("chain", epsilon=0.05, **LABELLED)
    wide = np.repeat(CODES, 8, axis=1)
    learner.set_params(states=[["0", "1", "2"]] * 32, epsilon=0.5)
    (said,) = said_by(learner, wide[:, :32])
    assert said.startswith("delta=1e-06 would cut the noise to ")
    report, std = learner.noise_report_, learner.noise_report_.std
    with_delta = clone(learner).set_params(delta=report.suggested_delta)
    assert said_by(with_delta, wide[:, :32]) == []
    assert_allclose(with_delta.noise_report_.std / std, report.delta_share, rtol=1e-9)


@pytest.mark.parametrize("n_rows", [math.nan, math.inf, -math.inf, -3.0, 0, 1e308])
@pytest.mark.parametrize("left", [0.0, 1e-9, 0.5, 1.0, math.inf, math.nan])
def test_no_noisy_number_makes_a_report_fail(n_rows, left):
    odd = [math.nan, math.inf, -math.inf, -1e308, 5e-324, 0.0]
    numbers = [
        noisy_number("odd", np.float64(v), np.float64(7), s)
        for v in odd
        for s in (None, *odd)
    ]
    scaler, noise = FederatedStandardScaler(epsilon=1.0), CountMechanism.for_budget(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.filterwarnings("ignore", "delta=")
        report_noise(
            scaler,
            noise,
            "rows",
            2.0,
            numbers,
            n_rows=n_rows,
            std_with=lambda delta: 2 * left,
        )
    report = scaler.noise_report_
    assert 0 < report.suggested_delta <= 1e-6
    assert_equal(report.delta_share, left)
    assert len(repr(report).splitlines()) >= 1 + len(numbers)


def test_no_delta_is_suggested_whose_noise_does_not_fit():
    pca, rows = FederatedPCA(epsilon=1e-7, **BOX), np.hstack([ROWS, ROWS])
    # the largest that is ever suggested, and so the least noise
    with pytest.raises(ValueError, match="does not fit"):
        clone(pca).set_params(delta=1e-6).fit(rows)
    assert not any("delta=" in words for words in said_by(pca, rows))
    report = pca.noise_report_
    assert (report.suggested_delta, report.delta_share) == (None, None)


def test_delta_of_a_public_number_of_rows_is_below_a_hundredth_of_its_inverse():
    assert [public_delta(n) for n in (1, 10_000)] == [1e-6, 1e-6]
    assert public_delta(10_001) == 1e-7
    assert public_delta(1_000_000) == 1e-8
    with pytest.raises(ValueError, match="at least 1"):
        public_delta(0)


def test_delta_is_suggested_where_noise_decides_which_tables_are_chosen():
    options = {"epsilon": 0.5, "states": [2] * 8, "accountant": ACCOUNTANT}
    X = RNG.integers(2, size=(20_000, 8))
    learner = DPCGMLearner(**options)
    (words,) = said_by(learner, X)
    assert words.startswith("delta=1e-07 would cut the noise to")
    report = learner.noise_report_
    choice = report.numbers[-1]
    assert choice.what == "largest distance of a table to the model"
    # cells alone, which have little noise, would not say so
    assert report.share < 0.1 < choice.share
    assert said_by(DPCGMLearner(delta=1e-6, **options), X) == []


def test_the_neighbours_look_at_the_report_of_every_estimator():
    """That of K2 in a test of its own, there."""
    looked_at = {type(e) for e in [*NUMBERS.values(), *LABELS.values()]}
    looked_at.add(type(PRIVATE["PrivateK2StructureLearner"]))
    assert {type(e) for e in PRIVATE.values()} == looked_at


class Telltale(FederatedStandardScaler):
    """A twin whose report holds an exact number."""

    def _learn(self, partition):
        super()._learn(partition)
        (block,) = partition._blocks.values()
        self.noise_report_ = replace(self.noise_report_, std=float(len(block["X"])))


def test_an_exact_number_in_a_report_is_found_by_the_neighbours():
    options = {"epsilon": 1.0, "bounds": (-4.0, 4.0)}
    worlds = (ROWS[:12], {}), (ROWS[:13], {})
    assert_alike(FederatedStandardScaler(**options), *worlds)
    with pytest.raises(AssertionError, match="noise_report_"):
        assert_alike(Telltale(**options), *worlds)


class TelltaleIntervals(PPEMGaussianMixture):
    """A twin whose intervals are drawn for the exact number of rows."""

    def _learn(self, partition, progress):
        super()._learn(partition, progress)
        self._exact = sum(partition.n_rows().values())

    def conf_int(self, **options):
        self.n_samples_ = self._exact
        return super().conf_int(**options)


def test_an_exact_number_in_intervals_is_found_by_the_neighbours():
    options = {"epsilon": 1.0, "bounds": (-4.0, 4.0), "max_iter": 2, "random_state": 0}
    worlds = (ROWS[:12], {}), (ROWS[:13], {})
    assert_alike(PPEMGaussianMixture(2, **options), *worlds)
    with pytest.raises(AssertionError, match="intervals"):
        assert_alike(TelltaleIntervals(2, **options), *worlds)


def test_delta_none_follows_from_a_public_number_of_rows():
    scaler = FederatedStandardScaler(epsilon=1.0, delta=None, bounds=(-4.0, 4.0))
    with pytest.raises(ValueError, match="n_max=10_000"):
        scaler.fit(ROWS)
    with pytest.raises(ValueError, match="n_max=10_000"):
        clone(scaler).set_params(accountant=PrivacyAccountant(1.0)).fit(ROWS)
    accountant = PrivacyAccountant(1.0, n_max=200_000)
    scaler.set_params(accountant=accountant).fit(ROWS)
    assert scaler.privacy_spent_ == (1.0, 1e-8) == accountant.spent()
    assert scaler.noise_report_.kind == "gaussian"
    assert PrivacyAccountant(1.0, 1e-3, n_max=10).delta == 1e-3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NEEDS)
def test_delta_none_is_understood_by_estimators_of_tables(name):
    accountant = PrivacyAccountant(9.0, n_max=100)
    options = {"epsilon": 1.0, "delta": None, "accountant": accountant}
    estimator = clone(PRIVATE[name]).set_params(**NEEDS[name], **options)
    assert estimator.fit(CODES[:60]).privacy_spent_.delta == 1e-6
    assert estimator.noise_report_.delta == 1e-6
