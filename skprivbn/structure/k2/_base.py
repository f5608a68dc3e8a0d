"""What the two K2 learners share: checks of their input, and the fitted network."""

from collections.abc import Mapping
from numbers import Integral, Real

import numpy as np

from skprivbn.structure._learnt import DiscreteNetworkMixin
from skprivbn.structure.k2._scores import CRITERIA
from skprivbn.utils import warn_user
from skprivbn.utils._sklearn import Interval, StrOptions

MAX_CELLS = 1 << 16

SEARCH_CONSTRAINTS = {
    "max_parents": [Interval(Integral, 0, None, closed="left")],
    "ordering": ["array-like", None],
    "criterion": [StrOptions({*CRITERIA, "total_variation"})],
    "equivalent_sample_size": [Interval(Real, 0, None, closed="neither")],
    "states": [Mapping, list, tuple, None],
}


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
    """A network over labels, and who depends on whom in it."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
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
