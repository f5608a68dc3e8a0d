"""Which states every column may take: a public fact."""

from collections.abc import Mapping

from skprivbn.bayesian_network._checks import check_states, per_node
from skprivbn.bayesian_network._labels import sorted_states
from skprivbn.exceptions import PartitionError
from skprivbn.graphical_model._bins import bin_labels
from skprivbn.partition import RemoteRows
from skprivbn.utils import warn_leak


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


def public_states(states, nodes, partition, bins):
    """Return the states that are known without the rows, or None.

    Parameters
    ----------
    states : mapping, sequence or None
        What the user gives. A mapping may leave out columns whose categories are
        declared.
    nodes : sequence of str
    partition : HorizontalPartition or RemoteRows
        Its categories are taken for columns that the user gives nothing for.
    bins : dict of str to tuple
        Edges of continuous columns.

    Returns
    -------
    states : dict of str to tuple, or None
    """
    if states is not None and not isinstance(states, Mapping):
        return check_domain(states, bins, nodes)
    given = dict(states or {})
    rest = [node for node in nodes if node not in bins and node not in given]
    # parties that differ about a column matter only where nothing is given
    declared = partition.categories if rest else {}
    unknown = [node for node in rest if node not in declared]
    is_remote = isinstance(partition, RemoteRows)
    if unknown and is_remote:
        raise PartitionError(
            f"the sites do not declare the categories of columns {unknown}: give "
            "states= or bins= for them, or choose other columns"
        )
    if unknown:
        return None if states is None else check_domain(states, bins, nodes)
    if rest and not is_remote:
        warn_leak(
            "the categories of the columns are taken to be public. Those that pandas "
            "makes of the values that occur (astype('category')) are not: which values "
            "occur is then released exactly, outside the privacy guarantee. Pass "
            "states= with the publicly known states"
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
    return check_column_states({**given, **binned}, nodes)


def states_from_data(X, nodes, bins=()):
    """Read states off the data, which is not private, and say so.

    Those of columns with bins are known.
    """
    warn_leak(
        "the states of the columns are read off the data: which values occur is "
        "released exactly, outside the privacy guarantee. Pass states= with the "
        "publicly known states"
    )
    states = {
        node: sorted_states(X[:, j]) for j, node in enumerate(nodes) if node not in bins
    }
    for node, labels in states.items():
        if not labels:
            raise ValueError(f"column {node!r} has no value; pass states=")
    return states


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
