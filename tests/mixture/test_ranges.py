import numpy as np
import pytest

from skprivbn.mixture._ranges import DISTANCES, MAGNITUDES, Ballot, sum_unit


@pytest.mark.parametrize("ballot", [MAGNITUDES, DISTANCES])
def test_the_highest_vote_bounds_every_party(ballot):
    rng = np.random.default_rng(0)
    top = ballot.lowest + ballot.step * (ballot.n_choices - 1)
    parties = [np.exp2(rng.uniform(ballot.lowest, top, size=20)) for _ in range(5)]
    bounds = ballot.bounds(sum(ballot.votes(values) for values in parties))
    largest = np.max(parties, axis=0)
    assert np.all(largest <= bounds)
    assert np.all(bounds <= largest * 2.0 ** (ballot.step + 1))


def test_zero_and_tiny_values_vote_for_the_lowest_power():
    votes = MAGNITUDES.votes(np.array([0.0, 1e-300]))
    np.testing.assert_array_equal(MAGNITUDES.bounds(votes), [2.0**-128] * 2)


def test_too_large_values_are_refused():
    with pytest.raises(OverflowError):
        MAGNITUDES.votes(np.array([1e60]))


def test_votes_do_not_tell_more_than_a_power_of_two():
    ballot = Ballot(lowest=0, step=4, n_choices=8)
    np.testing.assert_array_equal(
        ballot.votes(np.array([17.0])), ballot.votes(np.array([255.0]))
    )


@pytest.mark.parametrize("n_rows", [2, 1000, 10**7])
def test_sums_of_moments_stay_below_the_largest_sum(n_rows):
    unit = sum_unit(2.0**21, n_parties=10, n_rows=n_rows)
    # a party that holds all rows, five standard deviations away
    assert unit * n_rows * 25 * 10 < 2.0**21
    assert unit == 2.0 ** np.rint(np.log2(unit))
    assert sum_unit(np.inf, 10, n_rows) == 1.0
