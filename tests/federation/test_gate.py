"""The gate at its boundary: so many rows, over one, two or three parties."""

import numpy as np
import pytest

from skprivbn.federation import (
    ALL_ROWS,
    COUNTS,
    CountsAt,
    RowWeights,
    TooFewRows,
)
from skprivbn.federation.gate import (
    check_rows,
    count_numbers,
    effective_rows,
    with_rows,
)

LIMIT = 20


def split(n, n_parties):
    """Spread rows over parties, unevenly."""
    cuts = np.sort(np.arange(1, n_parties)) * n // (n_parties + 1)
    return np.diff([0, *cuts, n])


def passes(vectors, n_values, weights):
    total = np.sum(vectors, axis=0)
    try:
        values = check_rows(total, n_values, "a sum", weights, LIMIT)
    except TooFewRows:
        return False
    assert len(values) == n_values
    return True


BOUNDARY = [(LIMIT - 1, False), (LIMIT, True), (LIMIT + 1, True)]


@pytest.mark.parametrize("n_parties", [1, 2, 3])
@pytest.mark.parametrize("n_rows, told", BOUNDARY)
class TestBoundary:
    """The limit is on the total of all parties, whoever has how many."""

    @pytest.mark.parametrize("dtype", [float, int])
    def test_all_rows(self, n_rows, told, n_parties, dtype):
        vector = np.ones(2, dtype=dtype)
        vectors = [with_rows(vector, ALL_ROWS, n) for n in split(n_rows, n_parties)]
        assert passes(vectors, 2, ALL_ROWS) is told

    def test_cells_of_a_table(self, n_rows, told, n_parties):
        vectors = [
            with_rows(np.array([n, 0, 1000]), COUNTS, 5000)
            for n in split(n_rows, n_parties)
        ]
        assert passes(vectors, 3, COUNTS) is told

    @pytest.mark.parametrize("size", [1.0, 0.3, 7.0])
    def test_equal_weights(self, n_rows, told, n_parties, size):
        weights = [RowWeights.of(np.full(n, size)) for n in split(n_rows, n_parties)]
        vectors = [with_rows(np.ones(4), w, 5000) for w in weights]
        assert passes(vectors, 4, weights[0]) is told

    def test_zeros_and_ones(self, n_rows, told, n_parties):
        weights = [RowWeights(np.array([n, 900.0])) for n in split(n_rows, n_parties)]
        vectors = [with_rows(np.ones(4), w, 5000) for w in weights]
        assert passes(vectors, 4, weights[0]) is told

    def test_counts_in_the_vector(self, n_rows, told, n_parties):
        weights = CountsAt(slice(0, 1))
        vectors = [
            with_rows(np.array([n, 3.5, 0.1]), weights, 5000)
            for n in split(n_rows, n_parties)
        ]
        assert passes(vectors, 3, weights) is told

    def test_one_block_of_two(self, n_rows, told, n_parties):
        weights = [
            RowWeights.of(np.c_[np.ones(100), np.arange(100) < n])
            for n in split(n_rows, n_parties)
        ]
        vectors = [with_rows(np.ones(4), w, 5000) for w in weights]
        assert passes(vectors, 4, weights[0]) is told


def test_nothing_is_not_too_few():
    weights = RowWeights.of(np.zeros(50))
    assert passes([with_rows(np.zeros(3), weights, 50)], 3, weights)
    assert passes([with_rows(np.zeros(3, dtype=int), COUNTS, 50)], 3, COUNTS)


@pytest.mark.parametrize("size", [1e-3, 1e-9, 1e-30, 1e-300])
def test_a_row_with_hardly_any_weight_is_a_row(size):
    weights = RowWeights.of([size])
    assert not passes([with_rows(np.zeros(3), weights, 50)] * 3, 3, weights)


def test_one_row_that_outweighs_all_others_is_one_row():
    w = np.full(1000, 1e-6)
    w[3] = 1.0
    weights = RowWeights.of(w)
    vector = with_rows(np.zeros(3), weights, 1000)
    assert effective_rows(vector, 3, weights) == pytest.approx([1.0], abs=0.01)
    assert not passes([vector], 3, weights)


def test_negative_counts_and_weights_do_not_hide_rows():
    assert not passes([np.array([-5, 100])], 2, COUNTS)
    residuals = RowWeights.of(np.r_[-np.ones(5), np.ones(5)])
    assert not passes([with_rows(np.zeros(1), residuals, 10)], 1, residuals)


def test_no_limit_is_no_gate():
    total = with_rows(np.ones(2), ALL_ROWS, 1)
    assert check_rows(total, 2, "a sum", ALL_ROWS, 1).tolist() == [1, 1]


def test_other_weights_are_an_error():
    with pytest.raises(TypeError, match="weights"):
        with_rows(np.ones(2), None, 1)


def test_integers_have_counts_for_weights():
    with pytest.raises(TypeError, match="integers"):
        with_rows(np.ones(2, dtype=int), RowWeights.of([1.0]), 1)


def test_numbers_of_a_result_are_counted_however_they_are_told():
    assert count_numbers({"n": 3, "mean": np.float64(0.5)}) == 2
    assert count_numbers({"table": np.zeros((4, 5)), "rows": [[1, 2.5], (3,)]}) == 23
    assert count_numbers({"raw": bytes(33)}) == 5
    assert count_numbers({"converged": True, "how": "halve", "nothing": None}) == 0
    assert count_numbers(None) == 0
