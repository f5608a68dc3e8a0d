"""What users give, checked before anybody is asked anything."""

from collections.abc import Mapping
from numbers import Integral, Real
from types import SimpleNamespace

import numpy as np

from skprivbn.bayesian_network._base import check_found, known_states
from skprivbn.bayesian_network._labels import encode, sorted_states
from skprivbn.graphical_model._release import gap_rule
from skprivbn.partition import HorizontalPartition, VerticalPartition
from skprivbn.structure._edge_rules import EDGE_PARAMS, parents_in, position
from skprivbn.utils import warn_user
from skprivbn.utils._sklearn import Interval, settings_in
from skprivbn.utils._validation import MANY_NUMBERS, as_seen, to_numbers

#: what `states` says of a column of numbers
NUMBERS = "continuous"

_COUNT = [Interval(Integral, 0, None, closed="left")]
_POSITIVE = [Interval(Real, 0, None, closed="neither")]

#: settings of `search_params`, and what they are if nobody says otherwise
SEARCH_PARAMS: dict = {
    "ordering": (["array-like", None], None),
    **EDGE_PARAMS,
    "equivalent_sample_size": (_POSITIVE, 10.0),
    "tabu_length": (_COUNT, 0),
    "n_restarts": (_COUNT, 0),
    "n_bootstrap": (_COUNT, 0),
}
#: those of `count_params`
COUNT_PARAMS: dict = {
    "alpha": ([Interval(Real, 0, None, closed="left")], 1.0),
    "min_cell_count": (_COUNT, 0),
    "max_iter": ([Interval(Integral, 1, None, closed="left")], 100),
    "tol": ([Interval(Real, 0, None, closed="left")], 1e-5),
}


def read_settings(estimator):
    """Return what ``search_params=`` and ``count_params=`` say, and the rest."""
    groups = {"search_params": SEARCH_PARAMS, "count_params": COUNT_PARAMS}
    found = [settings_in(g, getattr(estimator, g), k) for g, k in groups.items()]
    return SimpleNamespace(**found[0], **found[1])


def check_options(estimator, settings, continuous):
    """Raise if some options do not go together."""
    if estimator.epsilon is not None:
        for name, plain in (
            ("min_cell_count", settings.min_cell_count <= 1),
            ("states='continuous'", not continuous),
            ("n_bootstrap", settings.n_bootstrap == 0),
            ("site_effects", estimator.site_effects is None),
            ("missing='em'", estimator.missing != "em"),
            ("missing='error'", estimator.missing != "error"),
        ):
            if not plain:
                raise ValueError(f"{name} is not available with epsilon")
    inconsistent = (
        estimator.epsilon is not None
        or gap_rule(estimator) != "error"
        or settings.min_cell_count > 1
        or settings.n_bootstrap > 0
    )
    if inconsistent and (settings.tabu_length or settings.n_restarts):
        raise ValueError(
            "tabu_length and n_restarts are not available with missing=, "
            "min_cell_count=, n_bootstrap= or epsilon=: they compare scores of whole "
            "graphs, which must come from exact tables of the same rows"
        )
    if settings.n_bootstrap and estimator.structure is not None:
        raise ValueError(
            "structure= fixes all edges, so that n_bootstrap= has no confidence to "
            "estimate: leave one of them out"
        )


def split_states(states, names):
    """Return the states of discrete columns that are given, and which are continuous.

    Parameters
    ----------
    states : mapping, sequence or None
        As users give them: labels, their number, or "continuous".
    names : list of str

    Returns
    -------
    states : mapping, sequence or None
        Without continuous columns, of which one state is as good as another.
    continuous : list of int
    """
    given = states if isinstance(states, Mapping) else dict(zip(names, states or ()))
    numbers = [name for name, s in given.items() if isinstance(s, str) and s == NUMBERS]
    if not numbers:
        return states, []
    continuous = sorted(position(name, names, "states") for name in numbers)
    return {name: given[name] for name in given if name not in numbers}, continuous


def declared_states(states, partition, names, continuous):
    """Return the labels that are known before the data, of every column."""
    states = as_seen(states, names, partition)
    if isinstance(states, Mapping):
        # parties that differ about a column matter only where nothing is given
        is_given = len(states) + len(continuous) == len(names)
        categories = {} if is_given else partition.categories
        rest = {name: categories.get(name) for name in names}
        states = rest | states | {names[v]: None for v in continuous}
    declared = known_states(states, names, partition.categories)
    declared = declared or [None] * len(names)
    return [[0] if v in continuous else d for v, d in enumerate(declared)]


def known_parents(structure, settings, names):
    """Return the parents that are given, if they are."""
    if structure is None:
        return None
    for option in ("required_edges", "forbidden_edges", "tiers", "ordering"):
        if getattr(settings, option) is not None:
            raise ValueError(f"structure= has all edges: leave out {option}=")
    return parents_in(structure, names)


def check_values(partition, names, declared, continuous):
    """Say what is wrong with rows at hand; remote parties only refuse."""
    if not isinstance(partition, HorizontalPartition | VerticalPartition):
        return
    places = range(len(names))
    for party, block in partition._blocks.items():
        if isinstance(partition, VerticalPartition):
            held = partition.columns[party]
            places = [partition.feature_names.index(name) for name in held]
        for v, column in zip(places, block["X"].T):
            name, labels = names[v], declared[v]
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
            f"states= declares column {name!r} as continuous, but some of its entries "
            "are not finite numbers"
        )


def warn_of_numbers(names, declared, found):
    """Warn of columns whose undeclared labels look like measurements or like typos."""
    for name, given, labels in zip(names, declared, found):
        if given is not None:
            continue
        is_text = [isinstance(label, str) for label in labels]
        if any(is_text) and not all(is_text):
            warn_user(
                f"column {name!r} mixes numbers and text, such as "
                f"{labels[is_text.index(False)]!r} and {labels[is_text.index(True)]!r}:"
                " each is a category of its own; clean the column, or give its labels "
                "in states="
            )
        elif len(labels) > MANY_NUMBERS and not any(is_text):
            warn_user(
                f"column {name!r} holds numbers, and each of its {len(labels)} values "
                f"is taken as a category: give states={{{name!r}: {NUMBERS!r}}}, or "
                "cut it into bins first with FederatedKBinsDiscretizer"
            )
