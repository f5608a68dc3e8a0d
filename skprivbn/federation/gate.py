"""The gate: how many rows an exact sum is about, whatever the protocol.

Beside each vector travel the sums of the weights with which rows enter it, and of
their squares. They add up over parties, so that every party knows, from the verified
total, the effective number of rows of all parties behind each block of numbers.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skprivbn.federation._rows import row_blocks, sum_over_rows
from skprivbn.federation.program import (
    ALL_ROWS,
    COUNTS,
    CountsAt,
    Me,
    PartyRefusal,
    RowWeights,
    TooFewRows,
    Weighing,
)

#: how much rows count in a sum
Weights = RowWeights | CountsAt | Weighing

# Weights travel in this unit; the sum of squares of any weights at all is at least one
# step, so that it is not rounded to "no row".
_UNIT, _STEP = 2.0**14, 2.0**-24
#: a sum and a sum of squares give the counts of a column with so many values
FEW_VALUES = 3
#: random partitions of numbers: one of three values is alone on a side of at least one
#: of them, but for 1 in 10,000 columns
N_PARTITIONS = 32
# Weights of sides may have any unit: sums of their squares travel as two numbers, the
# whole part and the fraction, and are at least 2**-101.
_ABOVE, _BELOW = 2.0**56, 2.0**-45
# Rows in which most columns of numbers show more than three values.
_FIRST = 100
# Tolerances: of rounding, for rows of equal weight; of deviations from the means of
# sites, which differ, for sides.
_SLACK, _NEARLY = 1e-6, 0.5
# Least variance along a combination of standardised columns: less is rounding.
_ROUNDED = 2.0**-40


def with_rows(vector: np.ndarray, weights: Weights, n_rows: int) -> np.ndarray:
    """Append to a vector the sums from which the number of rows behind it follows.

    Parameters
    ----------
    vector : ndarray of shape (n_values,)
    weights : RowWeights, CountsAt, ALL_ROWS or COUNTS
    n_rows : int
        Of this party, all of which count alike with ``ALL_ROWS``.

    Returns
    -------
    vector : ndarray
        Its own numbers first.
    """
    if weights is COUNTS or isinstance(weights, CountsAt):
        return vector
    if weights is ALL_ROWS:
        return np.append(vector, np.asarray(n_rows, dtype=vector.dtype))
    if vector.dtype.kind == "i":
        raise TypeError("integers are summed with ALL_ROWS or COUNTS as their weights")
    if not isinstance(weights, RowWeights):
        raise TypeError(f"weights cannot be {type(weights).__name__}")
    total, squares = weights.total / _UNIT, weights.squares
    told = [vector, weights.cells, total]
    if squares is not None:
        told.append(_at_least(_STEP, total, squares / _UNIT))
    sides, squares = weights.sides
    squares = _at_least(_BELOW / _ABOVE, sides, squares)
    whole = np.floor(squares)
    return np.concatenate([*told, sides, whole / _ABOVE, (squares - whole) / _BELOW])


def _at_least(step, sums, squares):
    """Return sums of squares, at least one step wherever there are weights."""
    return np.where(sums > 0, np.maximum(squares, step), 0.0)


def check_rows(
    total: np.ndarray,
    n_values: int,
    what: str,
    weights: Weights,
    min_rows: int,
    min_cell_count: int = 0,
) -> np.ndarray:
    """Return the numbers of a verified total, unless too few rows are behind some.

    Parameters
    ----------
    total : ndarray
        Sum of what :func:`with_rows` returned, over all parties.
    n_values : int
        Of the vector itself.
    what : str
        The sum, in words.
    weights : RowWeights, CountsAt, ALL_ROWS or COUNTS
        As of the own vector.
    min_rows : int
        Fewest effective rows behind a block; a block without any row may be read.
    min_cell_count : int, default=0
        Smallest count. It has a limit of its own: a count discloses the number of its
        rows, a sum of few rows their values.

    Returns
    -------
    total : ndarray of shape (n_values,)
    """
    rows = effective_rows(total, n_values, weights)
    least = np.full(len(rows), min_cell_count if weights is COUNTS else min_rows, float)
    if isinstance(weights, RowWeights):
        least[weights.total.size :] = min_cell_count
        fewest = _fewest(min_rows, min_cell_count)
        least[weights.total.size + weights.cells.size :] = fewest - _NEARLY
    few = are_few(rows, least)
    if np.any(few):
        about = weights.columns if isinstance(weights, RowWeights) else ()
        columns = _names(c for c, is_few in zip(about, few) if is_few)
        raise TooFewRows(what, few, columns)
    return total[:n_values]


def _names(columns):
    """Return the columns that numbers are about, of which some are about several."""
    several = [c if isinstance(c, tuple) else (c,) for c in columns]
    return sorted(set().union(*several) - {None}, key=str)


def are_few(rows: ArrayLike, least: Any) -> np.ndarray:
    """Tell which numbers of rows are too small to be disclosed; zero may be.

    Parameters
    ----------
    rows : array-like
        Counts, or effective numbers of rows.
    least : int or ndarray of int
        The smallest that may be disclosed.

    Returns
    -------
    few : ndarray of bool

    Examples
    --------
    >>> import numpy as np
    >>> are_few(np.array([0, 1, 4, 5]), 5)
    array([False,  True,  True, False])
    """
    rows = np.asarray(rows)
    return (rows > 0) & (rows < least - _SLACK) & (np.asarray(least) > 1)


def _fewest(min_rows, min_cell_count):
    """Return the fewest rows behind values: two, even where counts of one are shown."""
    return max(min_cell_count, min(min_rows, 2))


def effective_rows(total: np.ndarray, n_values: int, weights: Weights) -> np.ndarray:
    """Return the effective number of rows behind each block of a total.

    Parameters
    ----------
    total, n_values, weights :
        As of :func:`check_rows`.

    Returns
    -------
    n_rows : ndarray of shape (n_blocks + n_cells + n_sides,)
    """
    if weights is COUNTS:
        return np.abs(total[:n_values]).astype(np.float64)
    if isinstance(weights, CountsAt):
        return np.abs(total[:n_values][weights.positions]).astype(np.float64)
    behind = total[n_values:]
    if isinstance(weights, Weighing):
        return behind.astype(np.float64)
    n_blocks, n_cells = len(weights.total), len(weights.cells)
    n_squares = 0 if weights.squares is None else n_blocks
    ends = np.cumsum([n_cells, n_blocks, n_squares])
    cells, rows, squares, sides = np.split(behind, ends)
    rows, squares = rows * _UNIT, squares * _UNIT
    if weights.squares is not None:
        rows = _some_rows(rows, squares)
    sums, above, below = np.split(sides, 3)
    sides = _some_rows(sums, above * _ABOVE + below * _BELOW)
    return np.concatenate([rows, cells, sides])


def _some_rows(sums, squares):
    """Return effective numbers of rows, above zero wherever there are weights."""
    rows = kish(np.stack([sums, squares]))
    return np.where(squares > 0, np.maximum(rows, np.finfo(np.float64).tiny), 0.0)


def rows_beside(deviations: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weigh the rows on each side of a centre by their deviations.

    An outlier may be nearly all of the sum of a column, and the sum of zeros and ones
    is a count. The effective number of rows on each side of the centre shows both: of
    zeros and ones, it is the number of ones, and that of zeros.

    Parameters
    ----------
    deviations : ndarray of shape (n_rows, n_columns)
        From the centre; NaN where a value is missing.
    weights : ndarray of shape (n_rows,)

    Returns
    -------
    sums : ndarray of shape (2, 2 * n_columns)
        Of weights, and of their squares: above the centre, then below. They add up
        over blocks of rows, and over parties as the sides of :class:`RowWeights`;
        :func:`kish` makes numbers of rows of them.

    Examples
    --------
    >>> import numpy as np
    >>> column = np.repeat([[1.0], [0.0]], [8, 92], axis=0)
    >>> kish(rows_beside(column - column.mean(), np.ones(100)))
    array([ 8., 92.])
    """
    return _add_up(np.hstack(_sides(deviations, weights)))


def rows_of_sizes(deviations: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weigh rows by the absolute values of their numbers.

    Parameters
    ----------
    deviations : ndarray of shape (n_rows, n_columns)
        NaN where a value is missing.
    weights : ndarray of shape (n_rows,)

    Returns
    -------
    sums : ndarray of shape (2, n_columns)
        As of :func:`rows_beside`.

    Examples
    --------
    >>> import numpy as np
    >>> column = np.append(np.tile([[1.0], [-1.0]], (50, 1)), [[30.0]], axis=0)
    >>> [kish(rows_of_sizes(column**k, np.ones(101))).round(1).item() for k in (1, 2)]
    [16.9, 1.2]
    """
    return _add_up(sum(_sides(deviations, weights)))


def _add_up(sizes):
    return np.stack([sizes.sum(axis=0), np.einsum("ij,ij->j", sizes, sizes)])


def count_values(rows: Any) -> np.ndarray:
    """Return the number of different values of each column; 4 stands for more than 3.

    Sums of degree two determine the counts of a table with no more cells than sums: the
    number of rows, a sum and a sum of squares those of three values; with a product,
    those of two columns of two values each. Larger tables do not follow from them.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_columns) or RowSource
        NaN where a value is missing.

    Returns
    -------
    n_values : ndarray of int of shape (n_columns,)

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[0, 1, 2.0], [1, 5, 4], [np.nan, 3, 6], [0, 1, 8]])
    >>> count_values(rows).tolist()
    [2, 3, 4]
    """
    found: list[set] = [set() for _ in range(rows.shape[1])]
    for block in row_blocks(rows):
        for values, column in zip(found, block.T, strict=True):
            # most columns of numbers have more values in the first rows
            for part in (column[:_FIRST], column[_FIRST:]):
                if len(values) <= FEW_VALUES:
                    values.update(np.unique(part[~np.isnan(part)]).tolist())
    return np.array([min(len(values), FEW_VALUES + 1) for values in found], dtype=int)


def rows_of_values(
    rows: np.ndarray, weights: np.ndarray, n_values: np.ndarray
) -> np.ndarray:
    """Count the rows with each value of columns that have at most three.

    A party does not know the values of the others. So rows are counted on both sides of
    public random partitions of all numbers: one of three values is alone on its side in
    a quarter of them. Parties read the counts, and can test whether a likely value
    occurs at the others.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_columns)
    weights : ndarray of shape (n_rows,)
    n_values : ndarray of int of shape (n_columns,)
        Of :func:`count_values`, in all rows of which these may be a block.

    Returns
    -------
    sums : ndarray of shape (2, 2 * N_PARTITIONS * n_columns)
        As of :func:`rows_beside`; zero for columns of more values.

    Examples
    --------
    >>> import numpy as np
    >>> stages = np.repeat([[0.0], [1.0], [2.0]], [59, 60, 1], axis=0)
    >>> n_rows = kish(rows_of_values(stages, np.ones(120), count_values(stages)))
    >>> np.unique(n_rows[n_rows > 0]).tolist()
    [1.0, 59.0, 60.0, 61.0, 119.0, 120.0]
    """
    few = np.flatnonzero(n_values <= FEW_VALUES)
    sums = np.zeros((2, 2 * N_PARTITIONS, rows.shape[1]))
    marks = marks_of_values(rows[:, few])
    sums[..., few] = np.einsum("ij,jkl->ikl", np.stack([weights, weights**2]), marks)
    return sums.reshape(2, -1)


def marks_of_values(rows: np.ndarray) -> np.ndarray:
    """Mark rows on both sides of public random partitions of all numbers.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_columns)

    Returns
    -------
    marks : ndarray of bool of shape (n_rows, 2 * N_PARTITIONS, n_columns)
    """
    known = ~np.isnan(rows)
    numbers = np.ascontiguousarray(np.where(known, rows, 0.0) + 0.0)
    bits = scramble(numbers.view(np.uint64))
    sides = [(bits >> np.uint64(k)) & np.uint64(1) for k in range(N_PARTITIONS)]
    marks = [known & (side == value) for side in sides for value in (0, 1)]
    return np.stack(marks, axis=1)


def scramble(bits: np.ndarray) -> np.ndarray:
    """Return random bits that belong to each integer (the finaliser of SplitMix64).

    Parameters
    ----------
    bits : ndarray of uint64

    Returns
    -------
    scrambled : ndarray of uint64
    """
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def rows_by_group(marks: np.ndarray, groups: np.ndarray, n_groups: int) -> np.ndarray:
    """Weigh the rows of each group.

    Parameters
    ----------
    marks : ndarray of shape (n_rows, n_marks)
        Weights, column by column; negative ones count as zero.
    groups : ndarray of int of shape (n_rows,)
    n_groups : int

    Returns
    -------
    sums : ndarray of shape (2, n_marks * n_groups)
        As of :func:`rows_beside`.

    Examples
    --------
    >>> import numpy as np
    >>> kish(rows_by_group(np.ones((5, 1)), np.array([0, 0, 0, 1, 1]), 2))
    array([3., 2.])
    """
    found = [np.zeros((2, 0))]
    for column in np.maximum(marks, 0.0).T:
        sums = [np.bincount(groups, column**power, n_groups) for power in (1, 2)]
        found.append(np.stack(sums))
    return np.hstack(found)


def rows_of_pairs(
    deviations: np.ndarray, weights: np.ndarray, counted: np.ndarray | None = None
) -> np.ndarray:
    """Weigh rows by their products of two columns, squares among them.

    An outlier may be little of the sums of two columns and nearly all of the sum of
    their products. Of two columns of two values, the sum of products determines the
    four cells of their table: there rows are weighed sign by sign, and so where most
    rows have the same value (:func:`centres_of_pairs`).

    Parameters
    ----------
    deviations, weights :
        As of :func:`rows_beside`.
    counted : ndarray of bool of shape (n_columns,), default=None
        Columns that are weighed sign by sign. By default those of two values in these
        rows, which may be a block of all.

    Returns
    -------
    sums : ndarray of shape (2, n_columns * (2 * n_columns - 1))
        Four for each pair, of which three are zero unless it is weighed sign by sign;
        then those of the squares.

    Examples
    --------
    >>> import numpy as np
    >>> columns = np.repeat([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]], [3, 5, 92], axis=0)
    >>> kish(rows_of_pairs(columns - columns.mean(axis=0), np.ones(100))).round()
    array([ 3.,  5.,  0., 92.,  9.,  3.])
    """
    if counted is None:
        counted = count_values(deviations) <= 2
    pairs, by_sign = np.triu_indices(deviations.shape[1], 1), np.outer(counted, counted)
    roots, sums = np.sqrt(weights), []
    for power in (1, 2):
        above, below = (side**power for side in _sides(deviations, roots))
        signs = [a.T @ b for a in (above, below) for b in (above, below)]
        sizes = sum(signs)
        cells = [np.where(by_sign, sign, 0.0)[pairs] for sign in signs]
        cells[0] += np.where(by_sign, 0.0, sizes)[pairs]
        sums.append(np.concatenate([*cells, np.diag(sizes)]))
    return np.stack(sums)


def common_values(rows: Any) -> np.ndarray:
    """Return the value that more than half of the rows have, column by column.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_columns) or RowSource
        NaN where a value is missing.

    Returns
    -------
    values : ndarray of shape (n_columns,)
        NaN where there is no such value.

    Examples
    --------
    >>> common_values(np.array([[0, 1.0], [0, 2], [7, 3]])).tolist()
    [0.0, nan]
    """
    # a value of the majority of all rows has the majority of some block: its median
    medians = [list(map(_middle, block.T)) for block in row_blocks(rows)]
    n_rows = sum_over_rows(rows, lambda rows: np.sum(~np.isnan(rows), axis=0))
    found = np.full(rows.shape[1], np.nan)
    for value in map(np.array, medians):
        n_equal = sum_over_rows(rows, lambda rows: np.sum(rows == value, axis=0))  # noqa: B023
        found = np.where(2 * n_equal > n_rows, value, found)
    return found


def _middle(column):
    """Return the median, as one of the values."""
    known = column[~np.isnan(column)]
    middle = len(known) // 2
    return np.partition(known, middle)[middle] if len(known) else np.nan


def centres_of_pairs(rows: Any, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the centres about which products of columns are weighed.

    That of a column of two values is its mean. That of costs, most of which are zero,
    is zero: only rows with costs in both columns enter the sum of products.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_columns) or RowSource
    mean : ndarray of shape (n_columns,)

    Returns
    -------
    centres : ndarray of shape (n_columns,)
    counted : ndarray of bool of shape (n_columns,)
        For :func:`rows_of_pairs`.
    """
    common, are_two = common_values(rows), count_values(rows) <= 2
    has_centre = ~are_two & ~np.isnan(common)
    return np.where(has_centre, common, mean), are_two | has_centre


def check_cells(rows: np.ndarray, min_rows: int, min_cell_count: int) -> None:
    """Refuse moments of columns that one party holds, if small counts follow from them.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_columns)
    min_rows, min_cell_count : int
        As of :func:`check_rows`.
    """
    mean, ones = rows.mean(axis=0), np.ones(len(rows))
    centres, counted = centres_of_pairs(rows, mean)
    cells = [rows_beside(rows - mean, ones)]
    cells.append(rows_of_pairs(rows - centres, ones, counted))
    cells.append(rows_of_values(rows, ones, count_values(rows)))
    n_rows = kish(np.hstack(cells))
    few = are_few(n_rows, _fewest(min_rows, min_cell_count))
    if few.any():
        raise TooFewRows("moments of own columns", few)


def check_alone(me: Me, rows: np.ndarray, columns: Sequence = ()) -> None:
    """Refuse what is computed of own rows alone, if it tells small counts, or one row.

    Parameters
    ----------
    me : Me
    rows : ndarray of shape (n_rows, n_columns)
    columns : sequence, default=()
        As of :func:`check_shares`.
    """
    check_cells(rows, me.min_rows, me.min_cell_count)
    deviations = rows - rows.mean(axis=0)
    check_shares(me, [deviations], deviations.T @ deviations, columns)


def check_shares(
    me: Me, blocks: Iterable, products: np.ndarray, columns: Sequence = ()
) -> None:
    """Refuse sums of products that one own row dominates along some direction.

    A researcher can combine sums: of two columns that differ in one row only, the
    squared difference is that row's. Along every combination of columns, one row may
    have no larger share of the squares than along a column.

    Parameters
    ----------
    me : Me
    blocks : iterable of ndarray of shape (n_rows, n_columns)
        Rows that products are made of, times the roots of weights.
    products : ndarray of shape (n_columns, n_columns) or (n_columns,)
        Sums over the rows of all parties, verified; or of squares only.
    columns : sequence of (int, str, None or tuple of these), default=()
        Names of columns, for refusals; positions by default.
    """
    if me.is_simulated:
        return
    fewest = _fewest(me.min_rows, me.min_cell_count)
    squares, add = products, np.max
    if products.ndim > 1:
        squares, add = np.diag(products), np.sum
    size = np.sqrt(np.where(squares > 0, squares, 1.0))
    turn = np.diag(1 / size)
    if products.ndim > 1:
        values, vectors = np.linalg.eigh(turn @ products @ turn)
        # less than this is left by rounding
        turn = turn @ vectors / np.sqrt(np.maximum(values, _ROUNDED))
    for rows in blocks:
        along = rows @ turn
        shares = add(along**2, axis=1)
        if np.all(shares**2 * (fewest - _NEARLY) <= 1):
            continue
        parts = np.abs(turn @ along[shares.argmax()]) * size
        named = np.flatnonzero(2 * parts > parts.max()).tolist()
        about = _names(columns[v] if columns else v for v in named)
        why = f"a row is {shares.max():.0%} of squares along {parts.round(3)}"
        raise PartyRefusal("too-few-rows", why, about)


def _sides(deviations, weights):
    """Return the sizes of deviations above zero, and those below."""
    known = np.where(np.isnan(deviations), 0.0, deviations) * weights[:, np.newaxis]
    return np.maximum(known, 0.0), np.maximum(-known, 0.0)


def kish(sums: np.ndarray) -> np.ndarray:
    """Return effective numbers of rows: the square of a sum over the sum of squares.

    Parameters
    ----------
    sums : ndarray of shape (2, n_blocks)
        Of weights, and of their squares.

    Returns
    -------
    n_rows : ndarray of shape (n_blocks,)
        In whatever units weights are; 0 where there are none.

    Examples
    --------
    >>> import numpy as np
    >>> kish(np.array([[10.0, 0.0], [10.0, 0.0]]))
    array([10.,  0.])
    """
    totals, squares = sums
    return np.divide(totals**2, squares, out=np.zeros_like(totals), where=squares > 0)
