"""What the two K2 learners share: checks of their input, and the fitted network."""

from numbers import Integral, Real

import numpy as np

from skprivbn.bayesian_network._checks import check_ordering
from skprivbn.bayesian_network._completion import DiscreteNetworkMixin
from skprivbn.structure._k2_scores import CRITERIA
from skprivbn.utils._sklearn import Interval, StrOptions

__all__ = [
    "SEARCH_CONSTRAINTS",
    "K2NetworkMixin",
    "check_codes",
    "check_declared_states",
    "check_ordering",
    "check_states",
    "check_table_sizes",
]

MAX_CELLS = 1 << 16

SEARCH_CONSTRAINTS = {
    "max_parents": [Interval(Integral, 0, None, closed="left")],
    "ordering": ["array-like", None],
    "criterion": [StrOptions(set(CRITERIA))],
    "equivalent_sample_size": [Interval(Real, 0, None, closed="neither")],
    "n_states": ["array-like", None],
}


def check_codes(X):
    """Return a table as codes 0, 1, ..., or say why it cannot be one."""
    X = np.asarray(X)
    if X.dtype.kind == "O":
        try:
            X = X.astype(float)
        except ValueError:
            raise ValueError(
                "X must hold codes 0, 1, 2, ...; encode labels first, for instance "
                "with OrdinalEncoder"
            ) from None
    if X.dtype.kind not in "biuf":
        raise ValueError(
            f"X must hold codes 0, 1, 2, ..., got dtype {X.dtype}; encode labels "
            "first, for instance with OrdinalEncoder"
        )
    if X.dtype.kind == "f" and not np.isfinite(X).all():
        raise ValueError("X must be complete: it contains NaN or infinity")
    # integers stay as they are: a byte per entry is a lot less than eight
    codes = X if np.can_cast(X.dtype, np.int64) else X.astype(np.int64)
    if X.dtype.kind == "f" and (codes != X).any():
        raise ValueError(
            "X must hold codes 0, 1, 2, ..., but has non-integer values; discretise "
            "continuous columns first"
        )
    if codes.size and codes.min() < 0:
        raise ValueError("Negative values in data: X must hold codes 0, 1, 2, ...")
    return codes


def check_states(codes, n_states, names):
    """Return the number of states of every column: declared, or read off the data."""
    if n_states is None:
        return [int(largest) + 1 for largest in codes.max(axis=0)]
    for name, column, declared in zip(names, codes.T, n_states):
        if column.max() >= declared:
            raise ValueError(
                f"column {name!r} has a code of {column.max()}, but n_states declares "
                f"{declared} states"
            )
    return list(n_states)


def check_declared_states(n_states, n_features):
    """Return a declared ``n_states`` as a list of ints, or None."""
    if n_states is None:
        return None
    declared = np.asarray(n_states)
    if (
        declared.shape != (n_features,)
        or declared.dtype.kind not in "iu"
        or declared.min() < 1
    ):
        raise ValueError(
            f"n_states must give a positive number of states for each of the "
            f"{n_features} columns, got {n_states!r}"
        )
    return declared.tolist()


def check_table_sizes(n_states, ordering, max_parents):
    """Raise if some family could have more cells than is sensible to count."""
    for position, node in enumerate(ordering):
        before = sorted((n_states[v] for v in ordering[:position]), reverse=True)
        n_cells = n_states[node]
        for size in before[:max_parents]:
            n_cells *= size
        if n_cells > MAX_CELLS:
            raise ValueError(
                f"max_parents={max_parents} is too large: a table could have "
                f"{n_cells} cells, more than {MAX_CELLS}; lower max_parents or merge "
                "states"
            )


class K2NetworkMixin(DiscreteNetworkMixin):
    """A network over codes, and who depends on whom in it."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags

    def _set_structure(self, names, parents, ordering):
        """Set the fitted attributes that say who depends on whom."""
        self.ordering_ = [names[v] for v in ordering]
        self.parents_ = {
            name: [names[u] for u in parents[v]] for v, name in enumerate(names)
        }
        self.adjacency_matrix_ = np.zeros((len(names), len(names)), dtype=bool)
        for v, found in parents.items():
            self.adjacency_matrix_[found, v] = True
