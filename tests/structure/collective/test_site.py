"""Which rows are sent, against definitions written out."""

from itertools import combinations

import numpy as np
import pytest

from skprivbn.structure.collective._site import (
    common_lowest,
    draw_rows,
    lowest_rows,
    priorities,
    row_weights,
    unlikely_rows,
)


def test_priorities_follow_the_keys_not_the_places():
    keys = [f"patient {i}" for i in range(50)]
    order = np.random.default_rng(0).permutation(50)
    rank = priorities(keys, b"seed")
    again = priorities([keys[i] for i in order], b"seed")
    np.testing.assert_array_equal(again, rank[order])
    assert sorted(rank) == list(range(50))
    assert (priorities(keys, b"another") != rank).any()


def test_the_lowest_rows_with_ties_by_rank():
    likelihood = np.array([-1.0, -3.0, -2.0, -2.0, -2.0])
    rank = np.array([0, 4, 3, 1, 2])
    chosen = lowest_rows(likelihood, rank, 3)
    np.testing.assert_array_equal(np.flatnonzero(chosen), [1, 3, 4])


@pytest.mark.parametrize("shift", [0, -5000])
@pytest.mark.parametrize("n_std", [-0.5, 0.0, 0.7])
def test_the_threshold_is_the_papers(n_std, shift):
    likelihood = np.random.default_rng(0).uniform(0.01, 1, size=200)
    expected = likelihood < likelihood.mean() + n_std * likelihood.std()
    assert 0 < expected.sum() < 200
    chosen = unlikely_rows(np.log(likelihood) + shift, n_std)
    np.testing.assert_array_equal(chosen, expected)


@pytest.mark.parametrize("n_rows", [1, 7, 30, 60])
def test_the_smallest_common_set_that_is_large_enough(n_rows):
    rng = np.random.default_rng(n_rows)
    orders = [rng.permutation(60) for _ in range(3)]

    def offer(m):
        return np.all([order < m for order in orders], axis=0)

    sizes = [int(offer(m).sum()) for m in range(61)]
    expected = offer(next(m for m, size in enumerate(sizes) if size >= n_rows))

    def asked(m):
        yield m
        return offer(m)

    search = common_lowest(asked, 60, n_rows)
    with pytest.raises(StopIteration) as found:
        while True:
            next(search)
    np.testing.assert_array_equal(found.value.value, expected)


def test_drawn_rows_are_not_among_those_taken():
    rank = priorities([str(i) for i in range(20)], b"")
    taken = np.arange(20) < 8
    drawn = draw_rows(rank, taken, 5)
    assert (np.diff(drawn) > 0).all() and not taken[drawn].any()
    assert rank[drawn].max() < np.delete(rank, [*drawn, *np.flatnonzero(taken)]).min()


def test_weights_make_a_mixed_sample_unbiased():
    """The average over all samples is the mean over all rows, exactly."""
    values = np.array([9.0, 7.0, 1.0, 2.0, 3.0, 10.0])
    weights = row_weights(6, 2, 2)
    means = [
        np.average(values[[0, 1, *drawn]], weights=weights)
        for drawn in combinations(range(2, 6), 2)
    ]
    assert np.mean(means) == pytest.approx(values.mean())


def test_weights_add_up_to_the_effective_sample_size():
    np.testing.assert_array_equal(row_weights(100, 0, 10), np.ones(10))
    np.testing.assert_array_equal(row_weights(100, 10, 0), np.ones(10))
    np.testing.assert_allclose(row_weights(100, 40, 60), np.ones(100))
    weights = row_weights(1000, 50, 50)
    assert weights.sum() == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    assert 50 < weights.sum() < 100
