"""Public domains: which states every column may take."""

from collections.abc import Mapping

import numpy as np

from skprivbn.bayesian_network._labels import sorted_states
from skprivbn.utils import warn_leak

__all__ = ["check_domain", "domain_from_data", "null_codes"]


def check_domain(domain, nodes):
    """Return {node: labels} from what a user gives.

    Parameters
    ----------
    domain : mapping or sequence
        For each column (by name, or in order) its labels, or their number k for the
        labels 0, ..., k - 1.
    nodes : sequence of str
        Names of the columns.

    Returns
    -------
    states : dict of str to tuple
    """
    if isinstance(domain, Mapping):
        absent = [node for node in nodes if node not in domain]
        unknown = [name for name in domain if name not in nodes]
        if absent or unknown:
            raise ValueError(
                f"domain must give the states of every column: absent {absent[:5]}, "
                f"unknown {unknown[:5]}"
            )
        entries = [domain[node] for node in nodes]
    else:
        entries = list(domain)
        if len(entries) != len(nodes):
            raise ValueError(
                f"domain has {len(entries)} entries for {len(nodes)} columns"
            )
    return {node: _labels(node, entry) for node, entry in zip(nodes, entries)}


def _labels(node, entry):
    if isinstance(entry, int | np.integer):
        entry = range(int(entry))
    labels = tuple(
        label.item() if isinstance(label, np.generic) else label for label in entry
    )
    if not labels:
        raise ValueError(f"domain gives column {node!r} no state")
    if len(set(labels)) != len(labels):
        raise ValueError(f"domain names a state of column {node!r} twice")
    return labels


def domain_from_data(X, nodes):
    """Read the states off the data, which is not private, and say so."""
    warn_leak(
        "the states of the columns are read off the data: which values occur is "
        "released exactly, outside the privacy guarantee. Pass domain= with the "
        "publicly known states"
    )
    states = {node: sorted_states(X[:, j]) for j, node in enumerate(nodes)}
    for node, labels in states.items():
        if not labels:
            raise ValueError(f"column {node!r} has no value; pass domain=")
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
