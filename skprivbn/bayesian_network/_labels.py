"""Labels in a user's table, the codes 0, 1, ... of these, and tables of counts."""

from math import prod

import numpy as np

from skprivbn.utils._validation import MISSING as MISSING
from skprivbn.utils._validation import is_missing as is_missing
from skprivbn.utils._validation import read_labels


def feature_names(X):
    """Return the column names of a data frame, or None for anything else."""
    columns = getattr(X, "columns", None)
    if columns is None or not all(isinstance(name, str) for name in columns):
        return None
    return list(columns)


def check_columns(X, nodes):
    """Return X as a 2-d array whose columns are the given nodes, in this order."""
    names = feature_names(X)
    if names is not None and names != list(nodes):
        if sorted(names) == sorted(nodes):
            raise ValueError(
                "X has the nodes of the network as columns, but in another order; "
                "pass X[list(network.nodes)]"
            )
        unknown = [name for name in names if name not in nodes]
        absent = [name for name in nodes if name not in names]
        raise ValueError(
            "the columns of X are not the nodes of the network: "
            f"unknown {unknown[:5]}, absent {absent[:5]}"
        )
    # A nested list of strings and NaN would otherwise become the strings "nan".
    array = np.asarray(X) if hasattr(X, "__array__") else np.asarray(X, dtype=object)
    if array.ndim != 2:
        raise ValueError(
            f"expected a 2-d table with one column per node, got {array.ndim}-d input; "
            "reshape a single row with X.reshape(1, -1)"
        )
    if array.shape[1] != len(nodes):
        raise ValueError(
            f"X has {array.shape[1]} columns, but the network has {len(nodes)} nodes"
        )
    return array


def encode(X, nodes, states, strict=True):
    """Return the codes of a table of labels.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_nodes)
        Labels; None and NaN are missing.
    nodes : sequence of str
        Names of the columns.
    states : mapping of str to tuple
        Labels of every node, in the order of their codes.
    strict : bool, default=True
        Whether a label that is no state is an error; otherwise it is missing, unless
        it looks the same as text: how a row is read must not depend on others.

    Returns
    -------
    codes : ndarray of int, shape (n_samples, n_nodes)
        -1 where a label is missing.
    """
    # column by column, as tables are counted
    columns = np.ascontiguousarray(check_columns(X, nodes).T)
    codes = np.empty(columns.shape, dtype=np.intp)
    for code, column, node in zip(codes, columns, nodes):
        code[:] = read_labels(column, states[node], node, strict)
    return codes.T


def label_dtype(states):
    """Return the plainest dtype that holds every label: bool, int, float or object."""
    kinds = {type(label) for labels in states.values() for label in labels}
    if kinds <= {bool}:
        return np.dtype(bool)
    if kinds <= {int}:
        return np.dtype(np.int64)
    if kinds <= {int, float}:
        return np.dtype(np.float64)
    return np.dtype(object)


def decode(codes, nodes, states):
    """Return the labels of a table of codes, none of them missing."""
    table = np.empty(codes.shape, dtype=label_dtype(states))
    for j, node in enumerate(nodes):
        labels = np.empty(len(states[node]), dtype=table.dtype)
        labels[:] = states[node]
        table[:, j] = labels[codes[:, j]]
    return table


def sorted_states(column):
    """Return the distinct labels of a column in ascending order, without missing."""
    labels = {label for label in set(column.tolist()) if not is_missing(label)}
    if not labels:
        return ()
    try:
        return tuple(sorted(labels))
    except TypeError:
        return tuple(sorted(labels, key=lambda label: (str(type(label)), str(label))))


def count_rows(codes, variables, n_states, weights=None):
    """Count the joint configurations of some variables.

    Parameters
    ----------
    codes : ndarray of int, shape (n_samples, n_variables)
    variables : sequence of int
        Columns, one axis each.
    n_states : sequence of int
        Number of states of every column.
    weights : ndarray of shape (n_samples,), default=None
        Few different values: each is counted in integers, so that the order of the
        rows does not matter, not even in the last digit.

    Returns
    -------
    counts : ndarray
        Integers without weights.
    """
    shape = tuple(n_states[v] for v in variables)
    cells = np.zeros(len(codes), dtype=np.int64)
    for v in variables:
        cells = cells * n_states[v] + codes[:, v]
    if weights is None:
        return np.bincount(cells, minlength=prod(shape)).reshape(shape)
    counts = np.zeros(prod(shape))
    for weight in np.unique(weights):
        rows = cells[weights == weight]
        counts += weight * np.bincount(rows, minlength=prod(shape))
    return counts.reshape(shape)


def smoothed(counts, alpha):
    """Return probabilities along the last axis; without any count they are uniform.

    Parameters
    ----------
    counts : ndarray
        Not negative.
    alpha : float
        Pseudo-count added to every cell.

    Returns
    -------
    probabilities : ndarray
    """
    counts = counts + alpha
    total = counts.sum(axis=-1, keepdims=True)
    uniform = np.full_like(counts, 1 / counts.shape[-1])
    return np.divide(counts, total, out=uniform, where=total > 0)
