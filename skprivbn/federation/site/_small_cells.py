"""Counts in disguise: what sums tell of columns that have few values.

The gate counts the rows on each side of a mean, over all parties. With the mean of
squares, three values are told apart, and bins are the choice of whoever asks: bounds
around one patient make a count of one. So a site looks at its own rows, too.
"""

import numpy as np

from skprivbn.federation._rows import paired_blocks, row_blocks
from skprivbn.federation.program import PartyRefusal

#: values that means and squares tell apart
FEW_VALUES = 3
#: rows that are looked at first: most columns of numbers have more values among them
_FIRST = 100
#: marks of rows that are held at once: 16 MB
_MARKS = 1 << 22


def check_cells(X, columns, is_grouped, min_cell_count, names):
    """Refuse rows if few of them share one of few values.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_columns) or RowSource
    columns : iterable of int
        Which of them are looked at.
    is_grouped : ndarray of bool of shape (n_columns,)
        Columns of categories or bins, all of whose values count. Those of others do, if
        there are at most three.
    min_cell_count : int
        How many rows, or none, have to share a value, or two values of two columns.
    names : list of str
        Of the columns, for the log of the site.
    """
    counts = _count_values(X, columns, is_grouped)
    for column, numbers in counts.items():
        _check(np.array(list(numbers.values())), min_cell_count, names[column])
    few = {
        column: list(numbers)
        for column, numbers in counts.items()
        # a value of all rows makes no cells of others smaller
        if len(numbers) <= FEW_VALUES and len(X) not in numbers.values()
    }
    if len(few) > 1:
        _check_pairs(X, few, min_cell_count, names)


def check_values(X, weights, columns, is_grouped, min_cell_count, names):
    """Refuse rows if few of them share one of three values, or a bin.

    Parameters
    ----------
    X, columns, is_grouped, min_cell_count, names :
        As of :func:`check_cells`. The gate counts the rows of one of two values.
    weights : ndarray of shape (n_rows,)
        Rows without a weight do not count.
    """
    for column, numbers in _count_values(X, columns, is_grouped, weights).items():
        if len(numbers) >= FEW_VALUES or is_grouped[column]:
            _check(np.array(list(numbers.values())), min_cell_count, names[column])


def _check(numbers, min_cell_count, name):
    if np.any((numbers > 0) & (numbers < min_cell_count)):
        why = f"fewer than {min_cell_count} rows (min_cell_count) share a value of "
        raise PartyRefusal("too-detailed", why + name)


def _count_values(X, columns, is_grouped, weights=None):
    """Return how many rows have each value, of columns that have few."""
    counts = {column: {} for column in columns}
    weights = np.ones(len(X)) if weights is None else np.asarray(weights)
    for block, w in paired_blocks(X, weights):
        block = block[w != 0]
        for column in list(counts):
            for rows in (block[:_FIRST, column], block[_FIRST:, column]):
                values, numbers = np.unique(rows[~np.isnan(rows)], return_counts=True)
                for value, number in zip(values.tolist(), numbers.tolist()):
                    counts[column][value] = counts[column].get(value, 0) + number
                if len(counts[column]) > FEW_VALUES and not is_grouped[column]:
                    del counts[column]
                    break
        if not counts:
            break
    return counts


def _check_pairs(X, few, min_cell_count, names):
    """Refuse if few rows share two values of two columns that have few each.

    Every cell is counted by itself: what is left of others may be gaps.
    """
    columns = np.repeat(list(few), [len(values) for values in few.values()])
    values = np.concatenate(list(few.values()))
    # large counts need not be exact
    both = np.zeros((len(columns), len(columns)), dtype=np.float32)
    n_rows = max(1, _MARKS // len(columns))
    for block in row_blocks(X):
        for start in range(0, len(block), n_rows):
            rows = block[start : start + n_rows, columns]
            marks = (rows == values).astype(np.float32)
            both += marks.T @ marks
    named = ", ".join(names[column] for column in few)
    _check(both[columns[:, None] != columns], min_cell_count, f"two of {named}")
