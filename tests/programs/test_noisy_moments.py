"""Intervals of private fits: as wide as fits differ, and free of charge."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.mixture._gaussian_steps import covariance_shape
from skprivbn.preprocessing import FederatedPCA, FederatedStandardScaler
from skprivbn.privacy import PrivacyAccountant
from skprivbn.programs._noisy_moments import bootstrap_interval, normal_interval
from skprivbn.structure import FederatedGaussianBayesianNetwork

ACCOUNTANT = PrivacyAccountant(np.inf, 0.5)
BOX = {"bounds": (-6.0, 6.0), "delta": 1e-6, "accountant": ACCOUNTANT}
RNG = np.random.default_rng(0)


def covers(intervals, truth):
    return (intervals[..., 0] <= truth) & (truth <= intervals[..., 1])


def rows(n=2000):
    first = RNG.normal(size=n)
    return np.column_stack([first + 1, 0.8 * first + RNG.normal(size=n)])


MEAN, COVARIANCE = [1.0, 0.0], np.array([[1.0, 0.8], [0.8, 1.64]])


def test_intervals_of_moments_cover_the_truth_in_nineteen_of_twenty_fits():
    inside = []
    for _ in range(80):
        found = FederatedPCA(epsilon=0.5, **BOX).fit(rows()).conf_int()
        inside.append(covers(found["mean_"], MEAN).mean())
        inside.append(covers(found["covariance_"], COVARIANCE).mean())
    assert 0.9 < np.mean(inside) < 0.99


def test_intervals_that_leave_the_noise_out_cover_much_less():
    """The twin: standard errors of sampling alone."""
    inside = []
    for _ in range(40):
        pca = FederatedPCA(epsilon=0.2, **BOX).fit(rows())
        exact = pca.set_params(epsilon=None).conf_int()
        inside.append(covers(exact["covariance_"], COVARIANCE).mean())
    assert np.mean(inside) < 0.7


def test_exact_intervals_are_those_of_the_textbook():
    X, party = rows(), np.arange(2000) % 3
    found = FederatedStandardScaler().fit(X, party=party).conf_int(level=0.9)
    error = X.std(axis=0) / np.sqrt(2000)
    expected = X.mean(axis=0)[:, None] + 1.6448536 * error[:, None] * [-1, 1]
    assert_allclose(found["mean_"], expected, rtol=1e-6)
    means = FederatedStandardScaler(with_std=False).fit(X, party=party)
    with pytest.raises(ValueError, match="needs with_std=True"):
        means.conf_int()
    with pytest.raises(ValueError, match="level must be"):
        normal_interval(0.0, 1.0, 95)


def test_weights_of_a_network_vary_as_their_intervals_say():
    learner = FederatedGaussianBayesianNetwork(
        "equal_variance", epsilon=2.0, threshold=0.1, **BOX
    )
    weights = [learner.fit(rows(5000)).network_.weights[0, 1] for _ in range(120)]
    found = learner.conf_int(n_bootstrap=200, random_state=0)
    assert not found["weights"][1].any()  # no edge, no doubt
    width = np.ptp(found["weights"][0, 1])
    # a standard deviation of 120 is off by 6 %
    assert_allclose(width / (2 * 1.96), np.std(weights), rtol=0.4)


def test_intervals_of_marginals_cost_nothing_and_grow_with_the_noise():
    accountant = PrivacyAccountant(6.0)
    first = RNG.integers(2, size=3000)
    X = np.column_stack([first, first ^ (RNG.random(3000) < 0.2)])
    widths = []
    for epsilon in (5.0, 0.02):
        learner = DPCGMLearner(
            [(0, 1)], states=[2, 2], epsilon=epsilon, accountant=accountant
        ).fit(X)
        spent, options = accountant.history, {"n_bootstrap": 15, "random_state": 0}
        found = learner.conf_int((0, 1), **options)
        assert np.all((found[..., 0] <= found[..., 1]) & (found >= 0) & (found <= 1))
        given = learner.conf_int("x1", {"x0": 0}, **options)
        assert covers(given, learner.network_.query("x1", {"x0": 0})).all()
        assert accountant.history == spent
        widths.append(np.ptp(found, axis=-1).mean())
    assert widths[1] > 1.5 * widths[0]


CENTRES = np.array([[-3.0, -3.0], [3.0, 0.0]])


def fitted_mixture(**options):
    """Fit two far components of 3,000 rows of three parties."""
    X = CENTRES[RNG.integers(2, size=3000)] + RNG.normal(size=(3000, 2))
    options = {"epsilon": 2.0, "random_state": 0, **BOX} | options
    return PPEMGaussianMixture(2, **options).fit(X, party=np.arange(3000) % 3)


def test_parameters_of_a_mixture_are_covered_in_nineteen_of_twenty_fits():
    inside = []
    for _ in range(30):
        mixture = fitted_mixture()
        found = mixture.conf_int(n_bootstrap=10, random_state=0)
        order = np.argsort(mixture.means_[:, 0])
        inside.append(covers(found["weights_"][order], [0.5, 0.5]).mean())
        inside.append(covers(found["means_"][order], CENTRES).mean())
        inside.append(covers(found["covariances_"], np.eye(2)).mean())
    assert 0.9 < np.mean(inside) < 0.99


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_intervals_of_a_mixture_cost_nothing_and_grow_with_the_noise(kind, delta):
    accountant, widths = PrivacyAccountant(20.0, 0.5), []
    for epsilon in (10.0, 0.5):
        mixture = fitted_mixture(
            covariance_type=kind, delta=delta, epsilon=epsilon, accountant=accountant
        )
        spent, options = accountant.history, {"n_bootstrap": 8, "random_state": 0}
        found = mixture.conf_int(**options)
        assert found["weights_"].shape == (2, 2)
        assert found["means_"].shape == (2, 2, 2)
        assert found["covariances_"].shape == (*covariance_shape(kind, 2, 2), 2)
        again = mixture.conf_int(**options)
        assert all(np.array_equal(found[name], again[name]) for name in found)
        assert accountant.history == spent
        widths.append(np.ptp(found["means_"], axis=-1).mean())
    assert widths[1] > 1.5 * widths[0]


def test_mixtures_without_noise_or_with_gaps_have_no_intervals():
    with pytest.raises(ValueError, match="missing='em'"):
        fitted_mixture(missing="em").conf_int()
    mixture = fitted_mixture()
    mixture.set_params(epsilon=None, delta=0.0, bounds=None)
    with pytest.raises(ValueError, match="needs a fit with epsilon"):
        mixture.fit(rows(), party=np.arange(2000) % 3).conf_int()


def test_a_bootstrap_takes_its_bias_off():
    drawn = np.random.default_rng(1).normal(3.5, 0.1, size=(4000, 1))
    low, high = bootstrap_interval([3.0], drawn, 0.95)[0]
    assert_allclose([low, high], 2.5 + 0.196 * np.array([-1, 1]), atol=0.02)
