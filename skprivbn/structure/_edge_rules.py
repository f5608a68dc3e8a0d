"""Edge rules: required and forbidden edges, tiers of columns, and orderings."""

from dataclasses import dataclass

import numpy as np

from skprivbn.bayesian_network._base import check_parents, per_node
from skprivbn.bayesian_network._dag import check_dag, closure, is_acyclic
from skprivbn.utils import column_names, warn_user
from skprivbn.utils._sklearn import settings_in

#: what `search_params` says about edges, in every search
EDGE_PARAMS: dict = dict.fromkeys(
    ("required_edges", "forbidden_edges", "tiers"), ([list, tuple, None], None)
)


@dataclass(frozen=True)
class EdgeRules:
    """Which edges a graph may and must have.

    Parameters
    ----------
    allowed, required : ndarray of bool of shape (n_variables, n_variables)
        True at [i, j] for an edge from i to j. Required edges have no cycle and are
        allowed.
    max_parents : int or ndarray of int of shape (n_variables,)
    """

    allowed: np.ndarray
    required: np.ndarray
    max_parents: int | np.ndarray

    @classmethod
    def free(cls, n_variables, max_parents=None):
        """Return rules by which every edge may be there, and none must."""
        return cls(
            ~np.eye(n_variables, dtype=bool),
            np.zeros((n_variables, n_variables), dtype=bool),
            n_variables if max_parents is None else max_parents,
        )

    def check(self, names=None):
        """Raise ValueError for rules that no graph can keep.

        Parameters
        ----------
        names : sequence of str, default=None
            Of the variables; by default positions.
        """
        d = len(self.allowed)
        names = range(d) if names is None else names
        for name in ("allowed", "required"):
            edges = getattr(self, name)
            if edges.shape != (len(names), len(names)) or edges.dtype != bool:
                raise ValueError(f"{name}: yes or no for every pair of columns")
        for i, j in np.argwhere(self.required & ~self.allowed):
            raise ValueError(
                f"required_edges has {names[i]!r} -> {names[j]!r}, which "
                "forbidden_edges or tiers rule out: an edge cannot be both"
            )
        n_required = self.required.sum(axis=0)
        for child in np.flatnonzero(n_required > self.max_parents):
            raise ValueError(
                f"required_edges gives {names[child]!r} {n_required[child]} "
                f"parents, more than max_parents={self.max_parents}: raise it"
            )
        try:
            check_dag(self.required, names)
        except ValueError as error:
            raise ValueError(f"required_edges: {error}") from None

    @property
    def before(self):
        """Which variable has to come before which, in an order of causes first."""
        ahead = self.required | self.allowed & ~self.allowed.T
        # edges that are forbidden in a circle say nothing of an order
        return closure(ahead if is_acyclic(ahead) else self.required)


def read_edge_rules(estimator):
    """Return what ``search_params=`` says about edges, of an estimator being fitted.

    Returns
    -------
    rules : EdgeRules or None
        None where it says nothing.
    """
    given = settings_in("search_params", estimator.search_params, EDGE_PARAMS)
    if not any(given.values()):
        return None
    names = column_names(estimator)
    required, forbidden, tiers = given.values()
    rules = EdgeRules(*edge_rules(names, required, forbidden, tiers), len(names))
    rules.check(names)
    return rules


def edge_rules(names, required=None, forbidden=None, tiers=None):
    """Return which edges a graph may and must have.

    Parameters
    ----------
    names : sequence of str
        Names of the columns.
    required, forbidden : sequence of (parent, child) or None
        By name or position.
    tiers : sequence of sequences or None
        All columns, by name or position: no edge leads to an earlier tier.

    Returns
    -------
    allowed, required : ndarray of bool of shape (n_columns, n_columns)
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
    return may, must


def parents_in(structure, names):
    """Return the positions of every column's parents, as ``structure=`` gives them."""
    given = per_node(structure, names, "structure", default=())
    return [
        [names.index(u) for u in check_parents(node, given[node], names)]
        for node in names
    ]


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


def check_ordering(ordering, names):
    """Return an ordering of names or positions as a list of positions."""
    if ordering is None:
        return list(range(len(names)))
    given = list(ordering)
    unknown = [v for v in given if isinstance(v, str) and v not in names]
    if unknown:
        raise ValueError(f"ordering names {unknown}, which are no columns of X")
    positions = [names.index(v) if isinstance(v, str) else v for v in given]
    if sorted(positions, key=str) != sorted(range(len(names)), key=str):
        raise ValueError(
            f"ordering must list each of the {len(names)} columns once, by name or "
            f"position, got {given}"
        )
    return [int(v) for v in positions]


def warn_of_column_order(ordering, names):
    """Warn that K2 takes the order of columns for that of causes and effects."""
    if ordering is None and len(names) > 1:
        shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        warn_user(
            f"ordering=None takes the columns as they come ({shown}): K2 finds parents "
            "among the columns before each only, and misses the other edges. Pass "
            "ordering= with the names of all columns, causes before effects, or "
            f"ordering=range({len(names)}) if this is their order"
        )
