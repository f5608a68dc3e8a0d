"""How much rows count in sums over all of them, and over clusters."""

import numpy as np

from skprivbn.federation import RowWeights
from skprivbn.federation.gate import rows_by_group

# Weights of wild steps are no larger than that, in typical weights.
_LARGEST = 2.0**16


def weigh(columns, groups=()):
    """Return how much rows count in sums over all of them and over groups of them.

    Parameters
    ----------
    columns : list of (ndarray of shape (n_rows,), float)
        Weights, and what they are about on the average: squares of much smaller ones
        would be lost in the fixed point of the sums, those of larger ones too large.
    groups : iterable of (ndarray of int of shape (n_rows,), ndarray of bool)
        Group of each row, and for all groups whether sums over them are opened.

    Returns
    -------
    weights : RowWeights
    """
    totals, squares, groups = [], [], list(groups)
    for weights, typical in columns:
        weights = np.minimum(np.abs(weights) / (typical or 1.0), _LARGEST)
        for sums, values in ((totals, weights), (squares, weights**2)):
            sums.append([values.sum()])
            for group, opened in groups:
                sums.append(np.bincount(group, values, len(opened))[opened])
    return RowWeights(np.concatenate(totals), np.concatenate(squares))


def joined(*weights):
    """Return the weights of several parts of a vector together."""
    parts = [part for part in weights if part is not None]
    *pieces, columns = zip(*parts)
    blocks, cells = [], []
    for part, about in zip(parts, columns):
        n_blocks, n_cells = len(part.total), len(part.cells)
        about = (*about, *[None] * (n_blocks + n_cells - len(about)))
        blocks, cells = [*blocks, *about[:n_blocks]], [*cells, *about[n_blocks:]]
    return RowWeights(*map(np.concatenate, pieces), (*blocks, *cells))


def count_by_group(deviations, weights, groups):
    """Return how many rows are on each side of a centre, group by group.

    Parameters
    ----------
    deviations : ndarray of shape (n_rows, n_columns)
    weights : ndarray of shape (n_rows,)
    groups : iterable of (ndarray of int of shape (n_rows,), ndarray of bool)
        As of :func:`weigh`.

    Returns
    -------
    n_rows : ndarray of shape (n_cells,)
    """
    weighted, found = deviations * weights[:, np.newaxis], [np.zeros(0)]
    sides = np.hstack([weighted, -weighted])
    for group, opened in groups:
        counted = rows_by_group(sides, group, len(opened)).reshape(-1, len(opened))
        found.append(counted[:, opened].ravel())
    return np.concatenate(found)
