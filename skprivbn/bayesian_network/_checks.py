"""What a network is made of, checked piece by piece with errors that name the node."""

from collections.abc import Mapping
from numbers import Integral

import numpy as np

from skprivbn.bayesian_network._labels import is_missing, sorted_states

# Published networks print seven digits: three times 0.3333333 is meant to be one.
ROW_SUM_TOLERANCE = 1e-6
MAX_STATES = 256


def check_reachable(probabilities):
    """Raise if some row's observed entries have probability zero."""
    impossible = np.isnan(probabilities).any(axis=1)
    if impossible.any():
        raise ValueError(
            f"row {impossible.argmax()} has observed entries of probability zero "
            "under this network, so that nothing can be inferred from them; networks "
            "estimated with alpha > 0 have no such rows"
        )


def per_node(values, nodes, what, default=None):
    """Return a dict from node to value, out of a mapping or an aligned sequence."""
    if isinstance(values, Mapping):
        unknown = [key for key in values if key not in nodes]
        if unknown:
            raise ValueError(f"{what} names {unknown[0]!r}, which is not a node")
        absent = [node for node in nodes if node not in values]
        if absent and default is None:
            raise ValueError(f"{what} lacks node {absent[0]!r}")
        return {node: values.get(node, default) for node in nodes}
    values = list(values)
    if len(values) != len(nodes):
        raise ValueError(
            f"{what} has {len(values)} entries, but there are {len(nodes)} nodes"
        )
    return dict(zip(nodes, values))


def check_states(node, labels):
    """Return a node's labels, or 0, 1, ... if it is their number, as a tuple."""
    if isinstance(labels, Integral):
        labels = range(labels)
    if isinstance(labels, str):
        raise ValueError(
            f"the states of node {node!r} must be a sequence, got {labels!r}"
        )
    labels = tuple(v.item() if isinstance(v, np.generic) else v for v in labels)
    if not labels:
        raise ValueError(f"node {node!r} must have at least one state")
    for label in labels:
        if is_missing(label) or not _can_be_sent(label):
            raise ValueError(
                f"the states of node {node!r} must be strings or numbers (integers of "
                f"64 bits at most), got {label!r}: make text or numbers of the column"
            )
    if len(set(labels)) != len(labels):
        raise ValueError(f"node {node!r} has a state twice: {list(labels)}")
    return labels


def check_found(name, labels):
    """Return the labels of a column in order, whole numbers as integers."""
    labels = sorted_states(np.fromiter(labels, dtype=object))
    if len(labels) > MAX_STATES:
        raise ValueError(
            f"column {name!r} has {len(labels)} different values, more than "
            f"{MAX_STATES}: discretise it first, or declare its states; leave "
            "it out if it numbers the rows"
        )
    for label in labels:
        if isinstance(label, float) and not label.is_integer():
            raise ValueError(
                f"column {name!r} has the non-integer value {label!r}: discretise "
                "continuous columns first, as FederatedKBinsDiscretizer does, declare "
                "its states, or take FederatedBayesianNetwork with "
                f"states={{{name!r}: 'continuous'}}"
            )
    labels = [int(label) if isinstance(label, float) else label for label in labels]
    return list(check_states(name, labels))


def known_states(states, nodes, declared):
    """Return the labels of every node, as far as they are known before the data.

    Parameters
    ----------
    states : mapping, sequence or None
        What the user gives.
    nodes : sequence of str
    declared : mapping of str to list
        Categories that come with the data, used if the user gives nothing.

    Returns
    -------
    states : list of (list or None), or None
        None if nothing is known of a node, or of all.
    """
    if states is None:
        states = {node: declared.get(node) for node in nodes}
    given = per_node(states, nodes, "states", default=None)
    known = [
        None if given[node] is None else list(check_states(node, given[node]))
        for node in nodes
    ]
    return None if all(labels is None for labels in known) else known


def _can_be_sent(label):
    """Whether it is a number or text that messages between parties can hold."""
    if isinstance(label, str):
        # text from broken files may hold half a character
        return label.isascii() or label == label.encode(errors="replace").decode()
    if isinstance(label, int):
        return -(2**63) <= label < 2**63
    return isinstance(label, float)


def check_parents(node, parents, nodes):
    """Return the names of a node's parents as a tuple."""
    if isinstance(parents, str):
        raise ValueError(
            f"the parents of node {node!r} must be a sequence, got {parents!r}"
        )
    parents = tuple(parents)
    for parent in parents:
        if parent not in nodes:
            raise ValueError(f"node {node!r} has parent {parent!r}, which is no node")
    if len(set(parents)) != len(parents):
        raise ValueError(f"node {node!r} has a parent twice: {list(parents)}")
    return parents


def check_cpt(node, cpt, shape):
    """Return a conditional probability table as a read-only array."""
    cpt = np.array(cpt, dtype=float)
    if cpt.shape != tuple(shape):
        raise ValueError(
            f"the table of node {node!r} must have shape {tuple(shape)} (the states of "
            f"its parents, then its own), got {cpt.shape}"
        )
    if not ((cpt >= 0) & (cpt <= 1)).all():
        raise ValueError(f"the table of node {node!r} must hold probabilities")
    off = np.abs(cpt.sum(axis=-1) - 1)
    if off.max() > ROW_SUM_TOLERANCE:
        row = tuple(int(i) for i in np.unravel_index(off.argmax(), off.shape))
        raise ValueError(
            f"the table of node {node!r} must sum to 1 along its last axis, got "
            f"{cpt[row].sum():.8g} at parent states {row}"
        )
    cpt.setflags(write=False)
    return cpt
