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
    count_values,
    effective_rows,
    kish,
    rows_beside,
    rows_of_pairs,
    rows_of_values,
    with_rows,
)

LIMIT = 20


def split(n, n_parties):
    """Spread rows over parties, unevenly."""
    cuts = np.sort(np.arange(1, n_parties)) * n // (n_parties + 1)
    return np.diff([0, *cuts, n])


def passes(vectors, n_values, weights, min_rows=LIMIT, min_cell_count=0):
    total = np.sum(vectors, axis=0)
    try:
        limits = min_rows, min_cell_count
        values = check_rows(total, n_values, "a sum", weights, *limits)
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
        assert passes(vectors, 3, COUNTS, 2, LIMIT) is told
        assert passes(vectors, 3, COUNTS, 1000, LIMIT) is told

    def test_cells_beside_a_sum(self, n_rows, told, n_parties):
        weights = [
            RowWeights(np.array([900.0]), None, np.array([n, 0.0]))
            for n in split(n_rows, n_parties)
        ]
        vectors = [with_rows(np.ones(4), w, 5000) for w in weights]
        assert passes(vectors, 4, weights[0], 2, LIMIT) is told

    def test_responsibilities(self, n_rows, told, n_parties):
        """Of two components, one has a share of a half in so many rows."""
        weights = [
            RowWeights.of(np.c_[np.full(n, 0.5), np.full(n, 0.5)])
            for n in split(n_rows, n_parties)
        ]
        vectors = [with_rows(np.ones(2), w, 5000) for w in weights]
        assert passes(vectors, 2, weights[0]) is told

    @pytest.mark.parametrize("place", range(3))
    def test_one_of_three_values(self, n_rows, told, n_parties, place):
        rows = [
            np.repeat(np.roll([0.0, 1.0, 2.0], place), [n, 60, 60])[:, np.newaxis]
            for n in split(n_rows, n_parties)
        ]
        cells = [rows_of_values(x, np.ones(len(x)), count_values(x)) for x in rows]
        weights = [RowWeights(np.array([900.0]), None, kish(c)) for c in cells]
        vectors = [with_rows(np.ones(4), w, 5000) for w in weights]
        assert passes(vectors, 4, weights[0], 2, LIMIT) is told

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
    assert not passes([np.array([-5, 100])], 2, COUNTS, 2, LIMIT)
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


FEW = 5
CELLS = [(FEW - 1, False), (FEW, True), (FEW + 1, True)]


def passes_cells(weights):
    """Tell whether cells of all parties pass, and nothing else is looked at."""
    vectors = [with_rows(np.zeros(2), w, 400) for w in weights]
    try:
        check_rows(np.sum(vectors, axis=0), 2, "a sum", weights[0], 20, FEW)
    except TooFewRows:
        return False
    return True


@pytest.mark.parametrize("n_parties", [1, 2, 3])
@pytest.mark.parametrize("n_ones, told", CELLS)
class TestCells:
    """What is a count is held against the smallest count of a table."""

    @pytest.mark.parametrize("values", [(0, 1), (1, 0), (1e9, 1e9 + 3), (-0.2, 0.1)])
    def test_one_of_two_values(self, n_ones, told, n_parties, values):
        parties = []
        for n in split(n_ones, n_parties):
            column = np.where(np.arange(400) < n, values[1], values[0])[:, np.newaxis]
            sides = rows_beside(column - column.mean(axis=0), np.ones(400))
            parties.append(RowWeights(np.array([400.0]), None, kish(sides)))
        assert passes_cells(parties) is told

    def test_cells_of_two_columns(self, n_ones, told, n_parties):
        parties = []
        for n in split(n_ones, n_parties):
            rows = np.arange(400)
            columns = np.column_stack([rows < 200, (rows < n) | (rows >= 300)])
            deviations = columns - columns.mean(axis=0)
            cells = kish(rows_of_pairs(deviations, np.ones(400)))
            parties.append(RowWeights(np.array([400.0]), None, cells))
        assert passes_cells(parties) is told

    def test_weights_that_few_rows_have(self, n_ones, told, n_parties):
        parties = []
        for n in split(n_ones, n_parties):
            weights = np.where(np.arange(400) < n, 2.0, 0.0)
            cells = kish(rows_beside(np.ones((400, 1)), weights))
            parties.append(RowWeights(np.array([400.0]), None, cells))
        assert passes_cells(parties) is told


@pytest.mark.parametrize("n_parties", [1, 2, 3])
@pytest.mark.parametrize("n_rows, told", BOUNDARY)
def test_responsibilities(n_rows, told, n_parties):
    """Rows that half belong to a component count in full; there are twice as many."""
    weights = []
    for n in split(n_rows, n_parties):
        r = np.zeros((400, 2))
        r[:n, 0] = 0.5
        r[:, 1] = 1 - r[:, 0]
        weights.append(RowWeights.of(r))
    vectors = [with_rows(np.ones(4), w, 400) for w in weights]
    assert passes(vectors, 4, weights[0]) is told


def test_an_outlier_is_one_row_of_its_side():
    column = np.append(np.random.default_rng(0).normal(size=399), 1e6)[:, np.newaxis]
    above, below = kish(rows_beside(column - column.mean(axis=0), np.ones(400)))
    assert above == pytest.approx(1)
    assert below > 300


def test_gaps_are_on_neither_side():
    column = np.array([[np.nan], [1.0], [-1.0], [3.0]])
    np.testing.assert_allclose(kish(rows_beside(column, np.ones(4))), [1.6, 1])


def test_cells_have_no_limit_where_tables_have_none():
    weights = RowWeights(np.array([400.0]), None, np.array([1.0]))
    vector = with_rows(np.ones(1), weights, 400)
    assert check_rows(vector, 1, "a sum", weights, 20, 1) == 1
    with pytest.raises(TooFewRows):
        check_rows(vector, 1, "a sum", weights, 20, 2)


def test_a_refusal_knows_the_columns():
    weights = RowWeights(
        np.array([400.0, 3.0]), None, np.array([9.0, 1.0]), (0, 1, 0, "y")
    )
    with pytest.raises(TooFewRows) as caught:
        check_rows(with_rows(np.ones(1), weights, 400), 1, "a sum", weights, 20, FEW)
    assert caught.value.columns == (1, "y")
    assert caught.value.blocks.tolist() == [False, True, False, True]
