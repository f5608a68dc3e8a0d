"""What columns may hold: states, or numbers in bins and drawn within them."""

from collections.abc import Mapping
from numbers import Integral

import numpy as np

from skprivbn.bayesian_network._base import MAX_STATES, check_states, per_node
from skprivbn.bayesian_network._labels import sorted_states
from skprivbn.exceptions import PartitionError
from skprivbn.partition import RemoteColumns, RemoteRows
from skprivbn.utils import warn_leak
from skprivbn.utils._validation import as_seen, is_missing, read_numbers


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
        return np.array(read_numbers(column, gaps=True, strict=False))
    try:
        return np.array([np.nan if is_missing(v) else float(v) for v in column])
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"column {node!r} has bins, but holds values that are no numbers"
        ) from None


def draw_within(labels, edges, rng, whole=None):
    """Draw numbers uniformly within bins, the last edge being part of the last bin.

    Parameters
    ----------
    labels : ndarray of float of shape (n_samples,)
        Left edges.
    edges : sequence of numbers
    rng : RandomState
    whole : bool, default=None
        Whether to draw integers; None does so if all edges are such. A bin without
        any gives the one below its left edge.

    Returns
    -------
    values : ndarray of shape (n_samples,)
    """
    edges = np.asarray(edges)
    codes = np.searchsorted(edges, np.asarray(labels, dtype=float))
    low, high = edges[codes], edges[codes + 1]
    if whole is None:
        whole = edges.dtype.kind != "f"
    if not whole:
        return rng.uniform(low, high)
    last = codes == len(edges) - 2
    low, high = np.ceil(low).astype(int), np.ceil(high).astype(int)
    high += last & (high == edges[-1])
    low = np.minimum(low, high - 1)
    return rng.randint(low, high)


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


def check_column_states(states, nodes):
    """Return {node: labels} from what a user gives.

    Parameters
    ----------
    states : mapping or sequence
        For each column (by name, or in order) its labels, or their number k for the
        labels 0, ..., k - 1.
    nodes : sequence of str
        Names of the columns.

    Returns
    -------
    states : dict of str to tuple
    """
    states = per_node(states, nodes, "states")
    return {node: check_states(node, labels) for node, labels in states.items()}


def public_states(states, nodes, partition, bins, warn=warn_leak):
    """Return the states that are known without the rows, or None.

    Parameters
    ----------
    states : mapping, sequence or None
        What the user gives. A mapping may leave out columns whose categories are
        declared.
    nodes : sequence of str
    partition : HorizontalPartition, VerticalPartition, RemoteRows or RemoteColumns
        Its categories are taken for columns that the user gives nothing for.
    bins : dict of str to tuple
        Edges of continuous columns.
    warn : callable, default=warn_leak
        Says what is taken to be public.

    Returns
    -------
    states : dict of str to tuple, or None
    """
    states = as_seen(states, nodes, partition)
    if states is not None and not isinstance(states, Mapping):
        return check_domain(states, bins, nodes)
    given = dict(states or {})
    rest = [node for node in nodes if node not in bins and node not in given]
    # parties that differ about a column matter only where nothing is given
    declared = partition.categories if rest else {}
    unknown = [node for node in rest if node not in declared]
    is_remote = isinstance(partition, RemoteRows | RemoteColumns)
    if unknown and is_remote:
        raise PartitionError(
            f"the sites do not declare the categories of columns {unknown}: give "
            "states= or bins= for them, or choose other columns"
        )
    if unknown:
        return None if states is None else check_domain(states, bins, nodes)
    if rest and not is_remote:
        warn(
            "the categories of the columns are taken to be public, and which columns "
            "hold booleans. What pandas makes of the values that occur is not "
            "(astype('category'); a column of objects if one boolean is missing): it "
            "is then released exactly, outside the privacy guarantee. Pass states= "
            "with the publicly known states"
        )
    given |= {node: declared[node] for node in rest}
    return check_domain(given, bins, nodes)


def check_domain(states, bins, nodes):
    """Return {node: labels}; those of binned columns are their bins.

    Parameters
    ----------
    states : mapping, sequence or None
        As in :func:`check_column_states`. A mapping may leave out binned columns, and a
        sequence has None for them.
    bins : dict of str to tuple
        Edges.
    nodes : sequence of str
        Names of the columns.

    Returns
    -------
    states : dict of str to tuple
    """
    binned = {node: bin_labels(edges) for node, edges in bins.items()}
    if states is None or isinstance(states, Mapping):
        given = dict(states or {})
    else:
        given = per_node(states, nodes, "states")
        given = {node: s for node, s in given.items() if s is not None}
    twice = [node for node in binned if node in given]
    if twice:
        raise ValueError(f"column {twice[0]!r} has states= and bins=: give one of them")
    neither = [node for node in nodes if node not in given and node not in binned]
    if neither:
        raise ValueError(
            f"column {neither[0]!r} has neither states= nor bins=: give its labels, or "
            "edges of bins if it holds numbers"
        )
    return check_column_states({**given, **binned}, nodes)


def public_types(types, states, bins):
    """Return the types of columns that do not depend on any row.

    One more row makes floats of integers if it lacks one, or objects of booleans. That
    a column has categories is declared, and `states` say which.

    Parameters
    ----------
    types : dict of str to dtype
        Those of a dataframe.
    states : dict of str to tuple
    bins : dict of str to tuple
        Edges of continuous columns.

    Returns
    -------
    types : dict of str to CategoricalDtype
    """
    return {
        node: type(dtype)(states[node], dtype.ordered)
        for node, dtype in types.items()
        if type(dtype).__name__ == "CategoricalDtype"
        and node in states
        and node not in bins
    }


def states_from_data(X, nodes, bins, warn):
    """Read states off the data, which is not private, and say so by `warn`.

    Those of columns with bins are known. Of a continuous column, every value would be a
    state, and samples would repeat the values of real records.
    """
    states = {
        node: sorted_states(X[:, j]) for j, node in enumerate(nodes) if node not in bins
    }
    for node, labels in states.items():
        if not labels:
            raise ValueError(f"column {node!r} has no value; pass states=")
        fractions = any(isinstance(v, float) and not v.is_integer() for v in labels)
        if len(labels) > MAX_STATES or (fractions and 2 * len(labels) > len(X)):
            raise ValueError(
                f"column {node!r} has {len(labels)} different values in {len(X)} rows, "
                "and each would become a public state: "
                f"pass bins={{{node!r}: edges}} with public edges, discretise the "
                "column first, as FederatedKBinsDiscretizer does, or declare states= "
                f"(more than {MAX_STATES} are not read off the rows)"
            )
    warn(
        "the states of the columns are read off the data: which values occur is "
        "released exactly, outside the privacy guarantee. Pass states= with the "
        "publicly known states"
    )
    return states


def note_states_read_off(ledger):
    """Enter states that no noise hides."""
    told = "which values occur in the columns", "plaintext aggregate"
    ledger.learns("whoever sees the model", *told)


def null_codes(states, null_state):
    """Return the code of each column's null state, -1 for columns without one."""
    if null_state is None:
        return None
    if not any(null_state in labels for labels in states.values()):
        raise ValueError(f"null_state={null_state!r} is a state of no column")
    return tuple(
        labels.index(null_state) if null_state in labels else -1
        for labels in states.values()
    )
