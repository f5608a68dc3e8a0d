"""What users give, checked before anybody is asked anything."""

import numpy as np

from skprivbn.bayesian_network._checks import check_parents, per_node
from skprivbn.bayesian_network._labels import encode, is_missing
from skprivbn.partition import HorizontalPartition
from skprivbn.structure.k2._base import check_found


def known_parents(estimator, names, continuous):
    """Return the parents that are given, if they are."""
    if estimator.structure is None:
        return None
    for option in ("required_edges", "forbidden_edges", "tiers", "ordering"):
        if getattr(estimator, option) is not None:
            raise ValueError(f"structure= has all edges: leave out {option}=")
    given = per_node(estimator.structure, names, "structure", default=())
    place = {name: v for v, name in enumerate(names)}
    known = {
        place[node]: [place[u] for u in check_parents(node, parents, names)]
        for node, parents in given.items()
    }
    for v, parents in known.items():
        if v not in continuous and set(parents) & set(continuous):
            raise ValueError(
                f"structure= gives the discrete column {names[v]!r} a continuous "
                "parent, which conditional Gaussian networks do not have"
            )
    return known


def check_values(partition, names, declared, continuous, n_bootstrap=0):
    """Say what is wrong with rows at hand; remote parties only refuse."""
    if not isinstance(partition, HorizontalPartition):
        return
    for party, block in partition._blocks.items():
        if n_bootstrap and len(block["X"]) <= n_bootstrap:
            raise ValueError(
                f"party {party!r} has {len(block['X'])} rows, which as many samples "
                f"could expose: lower n_bootstrap={n_bootstrap}"
            )
        for v, (name, labels, column) in enumerate(zip(names, declared, block["X"].T)):
            if v in continuous:
                check_numbers(name, column)
            elif labels is None:
                check_found(name, {x for x in column.tolist() if not is_missing(x)})
            else:
                encode(column[:, None], [name], {name: labels})


def check_numbers(name, column):
    """Raise unless a continuous column holds finite numbers."""
    try:
        finite = np.isfinite(column.astype(np.float64)).all()
    except (TypeError, ValueError):
        finite = False
    if not finite:
        raise ValueError(
            f"column {name!r} is said to be continuous and holds what is no finite "
            "number"
        )
