import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

from skprivbn.privacy import (
    CountMechanism,
    PrivacyAccountant,
    add_discrete_gaussian,
    add_discrete_laplace,
    audit_epsilon,
    discrete_gaussian_delta,
    discrete_gaussian_variance,
    discrete_laplace_variance,
    gaussian_epsilon,
    gaussian_sigma,
    laplace_scale,
)
from skprivbn.privacy._mechanisms import _continuous_delta, _sums_of_squares
from tests.privacy.toys import prove_epsilon, suspect_epsilon


def goodness_of_fit(draws, pmf, half_width):
    """Chi-square test of integer draws against a symmetric distribution."""
    cells = np.arange(-half_width, half_width + 1)
    expected = pmf(cells)
    tail = (1 - expected.sum()) / 2
    expected = np.concatenate([[tail], expected, [tail]])
    clipped = np.clip(draws, -half_width - 1, half_width + 1) + half_width + 1
    observed = np.bincount(clipped, minlength=expected.size)
    return stats.chisquare(observed, expected * len(draws)).pvalue


def laplace_pmf(scale):
    return lambda k: math.tanh(0.5 / scale) * np.exp(-np.abs(k) / scale)


def gaussian_pmf(sigma):
    wide = np.arange(-200, 201)
    total = np.exp(-(wide**2) / (2 * sigma**2)).sum()
    return lambda k: np.exp(-(k**2) / (2 * sigma**2)) / total


@pytest.mark.parametrize("epsilon, sensitivity", [(0.5, 1), (1.0, 3), (3.0, 1)])
def test_laplace_noise_has_its_distribution(epsilon, sensitivity):
    scale = laplace_scale(epsilon, sensitivity)
    draws = add_discrete_laplace(np.zeros(20_000, int), sensitivity, epsilon)
    assert goodness_of_fit(draws, laplace_pmf(scale), round(3 * scale)) > 1e-9


@pytest.mark.parametrize("sigma", [0.7, 3.0])
def test_gaussian_noise_has_its_distribution(sigma):
    draws = add_discrete_gaussian(np.zeros(20_000, int), 1, sigma)
    assert goodness_of_fit(draws, gaussian_pmf(sigma), round(2 * sigma)) > 1e-9


def test_the_fit_test_catches_a_scale_that_is_wrong_by_a_sixth():
    draws = add_discrete_laplace(np.zeros(20_000, int), 1, 0.6)
    assert goodness_of_fit(draws, laplace_pmf(2.0), 6) < 1e-9


@pytest.mark.parametrize("scale", [0.2, 1.0, 7.5, 100.0])
def test_laplace_variance(scale):
    k = np.arange(-10_000, 10_001)
    expected = (laplace_pmf(scale)(k) * k**2).sum()
    assert discrete_laplace_variance(scale) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0, 2.99, 3.01, 20.0])
def test_gaussian_variance(sigma):
    k = np.arange(-199, 200)
    expected = (gaussian_pmf(sigma)(k) * k**2).sum()
    assert discrete_gaussian_variance(sigma) == pytest.approx(expected, rel=1e-9)


def test_noise_keeps_shape_type_and_value():
    counts = np.array([[10**15, 3], [0, -7]], dtype=np.int64)
    for noisy in (
        add_discrete_laplace(counts, 1, 50.0),
        add_discrete_gaussian(counts, 1, 0.05),
    ):
        assert noisy.dtype == np.int64
        np.testing.assert_array_equal(noisy, counts)
    assert add_discrete_laplace(5, 1, 1.0).shape == ()
    assert add_discrete_laplace([], 1, 1.0).shape == (0,)
    assert add_discrete_laplace(np.array([True]), 1, 1.0).dtype == np.int64


@pytest.mark.parametrize(
    "attempt, error, message",
    [
        (lambda: add_discrete_laplace([1.0], 1, 1.0), TypeError, "integers only"),
        (lambda: add_discrete_gaussian([1.5], 1, 1.0), TypeError, "integers only"),
        (lambda: add_discrete_laplace([1], 0.5, 1.0), ValueError, "positive integer"),
        (lambda: add_discrete_laplace([1], 1, 0.0), ValueError, "epsilon"),
        (lambda: add_discrete_laplace([1], 1, math.inf), ValueError, "epsilon"),
        (lambda: add_discrete_gaussian([1], 1, -1.0), ValueError, "sigma"),
        (lambda: gaussian_sigma(1.0, 0.0, 1), ValueError, "delta"),
        (lambda: gaussian_sigma(1.0, 1.0, 1), ValueError, "delta"),
        (lambda: gaussian_sigma(1.0, 1e-6, 0.5), ValueError, "at least 1"),
        (lambda: CountMechanism.for_budget(1e-13), ValueError, "too small"),
        (lambda: CountMechanism.for_budget(1e-12, 1e-14, 9999), ValueError, "64-bit"),
        (
            lambda: add_discrete_laplace(np.array([2**63], np.uint64), 1, 1.0),
            OverflowError,
            "64-bit",
        ),
    ],
)
def test_wrong_arguments(attempt, error, message):
    with pytest.raises(error, match=message):
        attempt()


@pytest.mark.parametrize("sigma, change", [(1.5, 1), (4.0, 1), (6.0, 3), (30.0, 5)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.5])
def test_exact_delta_equals_dp_accounting(sigma, change, epsilon):
    oracle = pld.from_discrete_gaussian_mechanism(
        sigma, sensitivity=change, value_discretization_interval=1e-4
    ).get_delta_for_epsilon(epsilon)
    ours = discrete_gaussian_delta(sigma, epsilon, change)
    # the oracle rounds losses up to its grid, so it is a little larger
    assert ours == pytest.approx(oracle, rel=2e-2, abs=1e-14)
    assert ours <= oracle * (1 + 1e-6) + 1e-12


def test_exact_delta_of_several_cells_equals_the_composition_of_one_cell():
    oracle = pld.from_discrete_gaussian_mechanism(
        3.0, value_discretization_interval=1e-4
    ).self_compose(4)
    for epsilon in (0.5, 2.0):
        assert discrete_gaussian_delta(3.0, epsilon, [1, 1, 1, 1]) == pytest.approx(
            oracle.get_delta_for_epsilon(epsilon), rel=1e-2
        )


def test_exact_delta_is_the_definition_on_a_small_lattice():
    # sum over all outcomes of max(0, P - e^epsilon Q), two cells changed by 1 and 2
    sigma, epsilon = 1.3, 0.7
    k = np.arange(-40, 41)
    pmf = gaussian_pmf(sigma)
    p = np.outer(pmf(k), pmf(k))
    q = np.outer(pmf(k - 1), pmf(k - 2))
    expected = np.maximum(p - math.exp(epsilon) * q, 0).sum()
    ours = discrete_gaussian_delta(sigma, epsilon, [1, 2])
    assert ours == pytest.approx(expected, rel=1e-9)


def test_small_deltas_keep_their_digits():
    # 1 - exp(epsilon - loss) on the two largest terms, by hand in high precision
    from mpmath import exp, mp, mpf

    mp.dps = 50
    sigma, epsilon = mpf(2), mpf(6)
    weight = {k: exp(-(mpf(k) ** 2) / (2 * sigma**2)) for k in range(-60, 61)}
    total = sum(weight.values())
    expected = sum(
        weight[k] / total * (1 - exp(epsilon - (k + mpf(1) / 2) / sigma**2))
        for k in range(24, 60)
        if (k + mpf(1) / 2) / sigma**2 > epsilon
    )
    assert expected < 1e-30
    ours = discrete_gaussian_delta(2.0, 6.0)
    assert ours == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize(
    "epsilon, delta, l2",
    [
        (0.1, 1e-6, 1),
        (1.0, 1e-6, 1),
        (5.0, 1e-6, 1),
        (1.0, 1e-9, math.sqrt(2)),
        (4.0, 1e-6, math.sqrt(8)),
        (2.0, 1e-6, 3),
        (0.5, 1e-5, math.sqrt(10)),
        (0.01, 1e-6, 50.0),
        (1.0, 1e-6, 40_000.5),
    ],
)
def test_sigma_is_enough_and_hardly_more(epsilon, delta, l2):
    sigma = gaussian_sigma(epsilon, delta, l2)
    square = math.floor(l2**2 + 1e-9)
    if square <= 16 and sigma < 20:
        worst = max(
            discrete_gaussian_delta(sigma, epsilon, change)
            for change in _sums_of_squares(square)
        )
    else:
        worst = _continuous_delta(sigma, epsilon, l2)
    assert 0.85 * delta < worst <= delta * (1 + 1e-9)
    assert gaussian_epsilon(sigma, delta, l2) == pytest.approx(epsilon, rel=1e-6)


def test_exact_calibration_needs_less_noise_than_zcdp():
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6)
    noise = CountMechanism.for_budget(1.0, 1e-6)
    with pytest.raises(Exception, match="does not allow rho"):
        accountant.spend(rho=noise.rho)
    noise.spend(accountant)
    assert accountant.remaining().epsilon == 0


def test_sums_of_squares():
    assert _sums_of_squares(5) == [(2, 1), (1,) * 5]
    for change in _sums_of_squares(16):
        assert sum(v * v for v in change) == 16
    assert len(_sums_of_squares(16)) == 8


def test_mechanism_for_a_budget():
    laplace = CountMechanism.for_budget(0.5, l1_sensitivity=4, l2_sensitivity=2)
    assert (laplace.kind, laplace.scale, laplace.rho) == ("laplace", 8.0, None)
    gaussian = CountMechanism.for_budget(0.5, 1e-6, 4, 2)
    assert gaussian.scale == gaussian_sigma(0.5, 1e-6, 2)
    assert gaussian.rho == pytest.approx(2 / gaussian.scale**2)
    # without a Euclidean sensitivity the worst case counts
    assert CountMechanism.for_budget(0.5, 1e-6, 4).sensitivity == 4
    for noise in (laplace, gaussian):
        draws = noise.release(np.zeros(4000, int))
        assert draws.std() == pytest.approx(noise.std, rel=0.1)


def releases(noise, n=6000):
    return noise(np.zeros(n, int)), noise(np.ones(n, int))


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_audit_does_not_contradict_laplace(epsilon):
    outcomes = releases(lambda c: add_discrete_laplace(c, 1, epsilon))
    assert prove_epsilon(*outcomes) <= epsilon
    # the attack is strong enough to mean something
    assert suspect_epsilon(*outcomes) > 0.4 * epsilon


def test_audit_does_not_contradict_gaussian():
    sigma = gaussian_sigma(1.0, 1e-2, 1)
    outcomes = releases(lambda c: add_discrete_gaussian(c, 1, sigma))
    assert prove_epsilon(*outcomes, delta=1e-2) <= 1.0


def test_audit_catches_too_little_noise():
    broken = releases(lambda c: add_discrete_laplace(c, 1, 2.0))
    assert suspect_epsilon(*broken) > 1.0
    sigma = gaussian_sigma(1.0, 1e-2, 1) / 3
    broken = releases(lambda c: add_discrete_gaussian(c, 1, sigma))
    assert suspect_epsilon(*broken, delta=1e-2) > 1.0


def test_audit_false_alarms_are_rare():
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(200):
        # randomised response with epsilon = 1, at a confidence of 0.9
        truth = math.e / (1 + math.e)
        a, b = rng.random(400) < truth, rng.random(400) > truth
        alarms += audit_epsilon(a, b, confidence=0.9) > 1.0
    assert alarms <= stats.binom.ppf(1 - 1e-6, 200, 0.1)


def reachable(values, count, scale):
    """Whether numpy's Laplace noise can carry `count` to exactly these floats.

    numpy takes the logarithm of a multiple of 2^-53, so most floats cannot be noise.
    """
    noise = values - count
    nearest = np.rint(np.ldexp(np.exp(-np.abs(noise) / scale), 53))
    uniform = np.ldexp(np.maximum(nearest + np.arange(-8, 9)[:, None], 1), -53)
    forward = count - np.sign(noise) * scale * np.log(uniform)
    return (forward == values).any(axis=0)


def test_float_noise_gives_the_count_away_and_integer_noise_does_not():
    rng = np.random.default_rng(0)
    from_zero = 0 + rng.laplace(scale=10.0, size=2000)
    from_one = 1 + rng.laplace(scale=10.0, size=2000)
    assert reachable(from_zero, 0, 10.0).mean() > 0.99
    # most of the neighbour's releases could not have come from zero: certainty
    assert reachable(from_one, 0, 10.0).mean() < 0.5

    zeros = np.zeros(20_000, int)
    seen_from_zero = set(add_discrete_laplace(zeros, 1, 1.0).tolist())
    from_one, times = np.unique(
        add_discrete_laplace(zeros + 1, 1, 1.0), return_counts=True
    )
    # what is common from one is possible from zero
    assert set(from_one[times > 50].tolist()) <= seen_from_zero
