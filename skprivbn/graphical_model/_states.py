"""Which states every column may take: a public fact."""

from skprivbn.bayesian_network._checks import check_states, per_node
from skprivbn.bayesian_network._labels import sorted_states
from skprivbn.utils import warn_leak

__all__ = [
    "check_column_states",
    "null_codes",
    "public_states",
    "states_from_data",
]


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


def public_states(states, nodes, partition):
    """Return the states that are known without the rows, or None.

    Parameters
    ----------
    states : mapping, sequence or None
        What the user gives.
    nodes : sequence of str
    partition : HorizontalPartition or RemoteRows
        Its categories are taken if the user gives nothing.

    Returns
    -------
    states : dict of str to tuple, or None
    """
    if states is None and set(nodes) <= set(partition.categories):
        warn_leak(
            "the categories of the columns are taken to be public. Those that pandas "
            "makes of the values that occur (astype('category')) are not: which values "
            "occur is then released exactly, outside the privacy guarantee. Pass "
            "states= with the publicly known states"
        )
        states = partition.categories
    return None if states is None else check_column_states(states, nodes)


def states_from_data(X, nodes):
    """Read the states off the data, which is not private, and say so."""
    warn_leak(
        "the states of the columns are read off the data: which values occur is "
        "released exactly, outside the privacy guarantee. Pass states= with the "
        "publicly known states"
    )
    states = {node: sorted_states(X[:, j]) for j, node in enumerate(nodes)}
    for node, labels in states.items():
        if not labels:
            raise ValueError(f"column {node!r} has no value; pass states=")
    return check_column_states(states, nodes)


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
