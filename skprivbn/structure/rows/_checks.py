"""What users give, checked before anybody is asked anything."""

from collections.abc import Mapping
from numbers import Integral

import numpy as np

from skprivbn.bayesian_network._checks import (
    check_found,
    check_parents,
    known_states,
    per_node,
)
from skprivbn.bayesian_network._dag import check_dag
from skprivbn.bayesian_network._labels import encode, sorted_states
from skprivbn.graphical_model._release import gap_rule
from skprivbn.partition import HorizontalPartition
from skprivbn.structure._search import EdgeRules
from skprivbn.utils._sklearn import Interval, fill_params
from skprivbn.utils._validation import to_numbers


def check_options(estimator):
    """Raise if some options do not go together."""
    if estimator.epsilon is not None:
        for name, plain in (
            ("min_cell_count", estimator.min_cell_count <= 1),
            ("continuous", estimator.continuous is None),
            ("n_bootstrap", estimator.n_bootstrap == 0),
            ("missing='em'", estimator.missing != "em"),
            ("missing='error'", estimator.missing != "error"),
        ):
            if not plain:
                raise ValueError(f"{name} is not available with epsilon")
    inconsistent = (
        estimator.epsilon is not None
        or gap_rule(estimator) != "error"
        or estimator.min_cell_count > 1
        or estimator.n_bootstrap > 0
    )
    if inconsistent and any(search_settings(estimator).values()):
        raise ValueError(
            "tabu_length and n_restarts compare whole graphs, which tables of "
            "different rows, or with noise, do not allow: leave them out with "
            "missing=, min_cell_count=, n_bootstrap= or epsilon="
        )
    if estimator.n_bootstrap and estimator.structure is not None:
        raise ValueError("structure= has all edges: leave out n_bootstrap=")
    if estimator.missing == "em" and estimator.min_cell_count > 1:
        raise ValueError(
            "min_cell_count is about counts of rows, and missing='em' adds up "
            "fractions of rows: choose one"
        )


def search_settings(estimator):
    """Return what ``search_params=`` says, and the rest."""
    constraints = dict.fromkeys(
        ("tabu_length", "n_restarts"), [Interval(Integral, 0, None, closed="left")]
    )
    given = estimator.search_params
    defaults = {"tabu_length": 0, "n_restarts": 0}
    return fill_params("search_params", given, constraints, **defaults)


def continuous_columns(estimator, names):
    """Return the positions of continuous columns."""
    found = [] if estimator.continuous is None else list(estimator.continuous)
    places = sorted({position(v, names, "continuous") for v in found})
    if places and estimator.criterion != "bic":
        raise ValueError(
            f"continuous columns need criterion='bic', got {estimator.criterion!r}"
        )
    if places and estimator.method == "ges":
        raise ValueError(
            "method='ges' takes graphs for equal that differ in directions, which "
            "continuous columns limit: use 'hill_climbing' or 'k2'"
        )
    return places


def declared_states(estimator, partition, names, continuous):
    """Return the labels that are known before the data, of every column."""
    states = estimator.states
    if continuous and states is not None:
        if not isinstance(states, Mapping):
            states = dict(zip(names, states))
        states = {name: states.get(name) for name in names}
        states |= {names[v]: None for v in continuous}
    declared = known_states(states, names, partition.categories)
    declared = declared or [None] * len(names)
    return [[0] if v in continuous else d for v, d in enumerate(declared)]


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


def check_values(partition, names, declared, continuous):
    """Say what is wrong with rows at hand; remote parties only refuse."""
    if not isinstance(partition, HorizontalPartition):
        return
    for block in partition._blocks.values():
        for v, (name, labels, column) in enumerate(zip(names, declared, block["X"].T)):
            if v in continuous:
                check_numbers(name, column)
            elif labels is None:
                check_found(name, sorted_states(column))
            else:
                encode(column[:, None], [name], {name: labels})


def check_numbers(name, column):
    """Raise unless a continuous column holds finite numbers, and maybe gaps."""
    try:
        finite = not np.isinf(to_numbers(column)).any()
    except (TypeError, ValueError):
        finite = False
    if not finite:
        raise ValueError(
            f"column {name!r} is said to be continuous and holds what is no finite "
            "number"
        )


def edge_rules(names, max_parents, required=None, forbidden=None, tiers=None):
    """Return the rules that a search keeps.

    Parameters
    ----------
    names : sequence of str
        Names of the columns.
    max_parents : int
    required, forbidden : sequence of (parent, child) or None
        By name or position.
    tiers : sequence of sequences or None
        All columns, by name or position: no edge leads to an earlier tier.

    Returns
    -------
    rules : EdgeRules
    """
    d = len(names)
    must, may = np.zeros((d, d), dtype=bool), ~np.eye(d, dtype=bool)
    for i, j in _pairs(forbidden, names, "forbidden_edges"):
        may[i, j] = False
    if tiers is not None:
        rank = _ranks(tiers, names)
        may &= rank[:, None] <= rank
    for i, j in _pairs(required, names, "required_edges"):
        must[i, j] = True
        if not may[i, j]:
            raise ValueError(
                f"required_edges has {names[i]!r} -> {names[j]!r}, which "
                "forbidden_edges or tiers rule out: an edge cannot be both"
            )
    try:
        check_dag(must, names)
    except ValueError as error:
        raise ValueError(f"required_edges: {error}") from None
    most = np.maximum(max_parents, must.sum(axis=0))
    if (most > max_parents).any():
        child = names[int(most.argmax())]
        raise ValueError(
            f"required_edges gives {child!r} {most.max()} parents, more than "
            f"max_parents={max_parents}: raise it"
        )
    return EdgeRules(may, must, max_parents)


def _pairs(edges, names, what):
    found = []
    for edge in edges or ():
        if isinstance(edge, str) or len(edge) != 2:
            raise ValueError(f"{what} must hold pairs (parent, child), got {edge!r}")
        i, j = (position(v, names, what) for v in edge)
        if i == j:
            raise ValueError(f"{what} joins {names[i]!r} with itself")
        found.append((i, j))
    return found


def _ranks(tiers, names):
    rank = np.full(len(names), -1)
    for number, tier in enumerate(tiers):
        members = [tier] if isinstance(tier, str) else tier
        for v in members:
            place = position(v, names, "tiers")
            if rank[place] >= 0:
                raise ValueError(f"tiers has {names[place]!r} twice")
            rank[place] = number
    if (rank < 0).any():
        lacking = names[int((rank < 0).argmax())]
        raise ValueError(f"tiers must have every column once, {lacking!r} is in none")
    return rank


def position(column, names, what):
    """Return the position of a column that is named, or given by it."""
    if isinstance(column, str) and column in names:
        return list(names).index(column)
    if isinstance(column, int | np.integer) and 0 <= column < len(names):
        return int(column)
    raise ValueError(f"{what} names {column!r}, which is no column of X")
