"""Counts in disguise: what sums tell of columns that have few values.

The mean of a column of two values is the count of one of them, and with the mean of
squares three values are told apart. Bins are the choice of whoever asks: bounds around
one patient make a count of one. So a site looks at its own rows, as it does at tables.
"""

import numpy as np

from skprivbn.federation._party import PartyRefusal
from skprivbn.federation._rows import RowSource

#: values that means and squares tell apart
FEW_VALUES = 3
#: rows that are looked at first: most columns of numbers have more values among them
_FIRST = 100


def check_cells(X, columns, is_grouped, min_cell_count):
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
    """
    counts = _count_values(X, columns, is_grouped)
    for numbers in counts.values():
        _check(np.array(list(numbers.values())), min_cell_count)
    two = {c: max(numbers) for c, numbers in counts.items() if len(numbers) == 2}
    if len(two) > 1:
        _check_pairs(X, list(two), np.array(list(two.values())), min_cell_count)


def _check(numbers, min_cell_count):
    if np.any((numbers > 0) & (numbers < min_cell_count)):
        raise PartyRefusal("too-detailed")


def _blocks(X):
    return X.blocks() if isinstance(X, RowSource) else [np.asarray(X)]


def _count_values(X, columns, is_grouped):
    """Return how many rows have each value, of columns that have few."""
    counts = {column: {} for column in columns}
    for block in _blocks(X):
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


def _check_pairs(X, columns, upper, min_cell_count):
    """Refuse if few rows share the values of two columns that have two each."""
    n_rows, both = 0, np.zeros((len(columns), len(columns)))
    for block in _blocks(X):
        is_upper = (block[:, columns] == upper).astype(np.float64)
        both += is_upper.T @ is_upper
        n_rows += len(block)
    ones = np.diag(both)
    for cells in (
        both,
        ones[:, None] - both,
        n_rows - ones[:, None] - ones + both,
    ):
        _check(cells[~np.eye(len(columns), dtype=bool)], min_cell_count)
