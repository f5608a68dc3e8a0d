"""Continuous columns: counted by public bins, drawn within them."""

from numbers import Integral

import numpy as np

from skprivbn.utils._validation import float_or_nan, is_missing


def check_bins(bins, nodes):
    """Return {node: edges} from what a user gives.

    Parameters
    ----------
    bins : mapping of str or int to array-like, or None
        Increasing edges of columns, by name or position.
    nodes : sequence of str
        Names of the columns.

    Returns
    -------
    bins : dict of str to tuple
        Edges are integers if all that were given are.
    """
    checked = {}
    for column, edges in (bins or {}).items():
        node = column
        if isinstance(column, Integral) and -len(nodes) <= column < len(nodes):
            node = nodes[column]
        if node not in nodes:
            raise ValueError(
                f"bins names {column!r}, which is no column of X; the columns are "
                f"{list(nodes)}"
            )
        edges = np.asarray(edges)
        if edges.dtype.kind not in "iuf" or edges.ndim != 1 or edges.size < 2:
            raise ValueError(f"bins of column {column!r} must be two or more numbers")
        if not np.all(np.isfinite(edges)) or not np.all(np.diff(edges) > 0):
            raise ValueError(f"bins of column {column!r} must be finite and increasing")
        checked[node] = tuple(edges.tolist())
    return checked


def bin_labels(edges):
    """Labels of bins: their left edges, as floats."""
    return tuple(float(edge) for edge in edges[:-1])


def to_labels(X, nodes, bins, strict=True):
    """Replace numbers in binned columns by the labels of their bins.

    Numbers outside all bins go to the nearest one; missing entries stay missing.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_nodes)
    nodes : sequence of str
    bins : dict of str to sequence of numbers
        Edges.
    strict : bool, default=True
        Whether values that are no numbers are an error; otherwise they are missing.

    Returns
    -------
    X : ndarray of shape (n_samples, n_nodes)
    """
    if not bins:
        return X
    X = np.asarray(X)
    table = X.astype(float if X.dtype.kind in "biuf" else object)
    for node, edges in bins.items():
        place = list(nodes).index(node)
        values = _as_floats(table[:, place], node, strict)
        seen = ~np.isnan(values)
        codes = np.searchsorted(edges, values[seen], side="right") - 1
        labels = np.array(bin_labels(edges))
        values[seen] = labels[np.clip(codes, 0, len(labels) - 1)]
        table[:, place] = values
    return table


def _as_floats(column, node, strict=True):
    if not strict:
        return np.array([float_or_nan(v) for v in column])
    try:
        return np.array([np.nan if is_missing(v) else float(v) for v in column])
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"column {node!r} has bins, but holds values that are no numbers"
        ) from None


def draw_within(labels, edges, rng):
    """Draw numbers uniformly within bins.

    Integers if all edges are, the last edge being part of the last bin.

    Parameters
    ----------
    labels : ndarray of float of shape (n_samples,)
        Left edges.
    edges : sequence of numbers
    rng : RandomState

    Returns
    -------
    values : ndarray of shape (n_samples,)
    """
    edges = np.asarray(edges)
    codes = np.searchsorted(edges, np.asarray(labels, dtype=float))
    low, high = edges[codes], edges[codes + 1]
    if edges.dtype.kind == "f":
        return rng.uniform(low, high)
    last = codes == len(edges) - 2
    return rng.randint(low, high + last)


def fill_in(X, completed, nodes, bins):
    """Keep the numbers that were there; a bin that was filled in becomes its middle.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_nodes)
        With missing entries.
    completed : ndarray of shape (n_samples, n_nodes)
        Labels.
    nodes : sequence of str
    bins : dict of str to sequence of numbers

    Returns
    -------
    X : ndarray of shape (n_samples, n_nodes)
    """
    for node, edges in bins.items():
        place = list(nodes).index(node)
        values = _as_floats(np.asarray(X)[:, place], node)
        codes = np.searchsorted(edges, completed[:, place].astype(float))
        edges = np.asarray(edges, dtype=float)
        middle = (edges[codes] + edges[codes + 1]) / 2
        completed[:, place] = np.where(np.isnan(values), middle, values)
    return completed
