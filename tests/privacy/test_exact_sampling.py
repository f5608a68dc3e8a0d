import math
from fractions import Fraction

import numpy as np
import pytest
from mpmath import exp, log, mp, mpf
from scipy import stats

from skprivbn.privacy._exact_sampling import (
    LogarithmicSampler,
    TableSampler,
    WidePolyaSampler,
    decide,
    poisson_bounds,
    polya_bounds,
)

DECAYS = [Fraction(3), Fraction(1), Fraction(1, 40)]


def fit(draws, distribution):
    """Chi-square test on cells of at least 20 expected draws."""
    pmf = distribution.pmf(np.arange(2000))
    last = np.flatnonzero(pmf * len(draws) > 20)[-1]
    expected = np.append(pmf[:last], 1 - pmf[:last].sum()) * len(draws)
    observed = np.bincount(np.minimum(draws, last), minlength=last + 1)
    used = expected > 0
    assert not observed[~used].any()
    return stats.chisquare(observed[used], expected[used]).pvalue


def polya(decay, n_shares):
    return stats.nbinom(1 / n_shares, -math.expm1(-decay))


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("n_shares", [1, 2, 7])
@pytest.mark.parametrize("wide", [False, True])
def test_polya_draws_have_their_distribution(decay, n_shares, wide):
    if wide:
        sampler = WidePolyaSampler(decay, n_shares)
    else:
        sampler = TableSampler(polya_bounds(decay, n_shares))
    assert fit(sampler.sample(50_000), polya(decay, n_shares)) > 1e-9


@pytest.mark.parametrize("prefix_bits", [1, 3, 8])
def test_draws_that_need_more_bits_have_the_same_distribution(prefix_bits):
    # with few bits at first, many draws take the slow path
    sampler = TableSampler(polya_bounds(Fraction(1, 3), 4), prefix_bits)
    assert fit(sampler.sample(3000), polya(1 / 3, 4)) > 1e-9


@pytest.mark.parametrize("decay", [Fraction(2), Fraction(1, 2), Fraction(1, 50)])
@pytest.mark.parametrize("margin", [LogarithmicSampler.MARGIN, 0.2])
def test_logarithmic_draws_have_their_distribution(decay, margin):
    # a wide margin sends many comparisons to the exact path
    size = 50_000 if margin < 0.1 else 2000
    draws = LogarithmicSampler(decay, margin).sample(size)
    assert fit(draws, stats.logser(math.exp(-decay))) > 1e-9


def test_the_fit_test_catches_another_shape():
    draws = TableSampler(polya_bounds(Fraction(1, 3), 4)).sample(50_000)
    assert fit(draws, polya(1 / 3, 5)) < 1e-9


@pytest.mark.parametrize("n_shares", [1, 3, 10])
@pytest.mark.parametrize("decay", [Fraction(5), Fraction(0.1), Fraction(1, 10**6)])
def test_bounds_enclose_the_distribution_function(decay, n_shares):
    mp.dps = 80
    p = exp(-mpf(decay.numerator) / decay.denominator)
    shape = mpf(1) / n_shares
    mean = -shape * log(1 - p)
    for bounds, ratio in (
        (polya_bounds, lambda k: p * (k + shape) / (k + 1)),
        (poisson_bounds, lambda k: mean / (k + 1)),
    ):
        term, total = (1 - p) ** shape, mpf(0)
        enclosures = bounds(decay, n_shares)(64)
        for k in range(40):
            total += term
            term *= ratio(k)
            low, high = next(enclosures)
            assert int(low) <= total * mpf(2) ** 64 <= int(high)
            assert high - low <= 2


def test_a_bit_is_decided_by_as_many_bits_as_it_takes():
    third = lambda bits: (2**bits // 3, 2**bits // 3 + 1)  # noqa: E731
    prefix = 2**64 // 3  # the first 64 bits of a third itself: open
    outcomes = [decide(prefix, third) for _ in range(3000)]
    # given the prefix, the rest is below a third of the last cell
    assert stats.binomtest(sum(outcomes), 3000, 1 / 3).pvalue > 1e-9
    assert decide(prefix - 1, third)
    assert not decide(prefix + 1, third)
