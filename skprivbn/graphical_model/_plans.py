"""Plans: settings of a fit, what it releases at which cost, and asking the holders.

All but the asking is decided before a row is read.
"""

from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral, Real
from types import SimpleNamespace

import numpy as np

from skprivbn.federation import declare_noise
from skprivbn.graphical_model._adaptive import AdaptiveSearch
from skprivbn.graphical_model._release import (
    N_CHANGED,
    ColumnTablesTerms,
    TablesTerms,
    check_rows,
    column_tables,
    declare,
    gap_rule,
    release_tables,
    single_holder_ledger,
)
from skprivbn.graphical_model._searches import GivenTables, PrivateTree
from skprivbn.graphical_model._tables import (
    NoisyTables,
    count_tables,
    resolve_cliques,
    resolve_ties,
)
from skprivbn.partition._base import holds_columns
from skprivbn.privacy import PrivacyCost
from skprivbn.privacy._noise_report import noisy_number, report_noise
from skprivbn.privacy._options import charge, charge_exact, delta_of
from skprivbn.programs._columns import column_terms
from skprivbn.utils import warn_leak
from skprivbn.utils._sklearn import Interval, StrOptions, settings_in

_COUNT = [Interval(Integral, 1, None, closed="left")]
_POSITIVE = [Interval(Real, 0, None, closed="neither")]
_NOT_NEGATIVE = [Interval(Real, 0, None, closed="left")]

# of each setting, constraints and default
_CLIQUES: dict = {
    "stationary": (["boolean"], False),
    "structural_zeros": ([Mapping, None], None),
    "workload": ([list, tuple, Mapping, None], None),
    "max_model_cells": (_COUNT, 2**19),
}
_CONTRIBUTION: dict = {
    "kind": ([StrOptions({"normalize", "clip"}), None], None),
    "max_records": (_COUNT, 1),
    "max_weight": (_COUNT, 1),
    "null_state": ("no_validation", None),
}
_INFERENCE: dict = {
    "inference": ([StrOptions({"auto", "exact", "loopy", "nlbp"})], "auto"),
    "max_cells": (_COUNT, 2**22),
}
_MAX_ITER: dict = {"max_iter": (_COUNT, 2000)}
_METHODS: dict = {
    "auto": _MAX_ITER,
    "cgm": {
        **_MAX_ITER,
        "discrepancy": (_NOT_NEGATIVE, 0.7),
        "tol": (_NOT_NEGATIVE, 1e-6),
        "damping": ([Interval(Real, 0, 1, closed="left"), None], None),
    },
    "naive": {
        **_MAX_ITER,
        "regularization": (_POSITIVE, 1e-4),
        "projection": (["boolean"], True),
    },
    "psgd": {
        "sampling_rate": ([Interval(Real, 0, 1, closed="right")], 0.02),
        "n_steps": (_COUNT, 200),
        "clip": ([*_POSITIVE, None], None),
        "learning_rate": (_POSITIVE, 0.4),
    },
}


def settings_of(learner):
    """Return the settings in ``clique_params``, ``method_params``, ``contribution``.

    Parameters
    ----------
    learner : DPCGMLearner

    Returns
    -------
    settings : SimpleNamespace
        With the default of whatever is not given. `of_method` are those of the method,
        keywords of the function that learns by it.
    """
    contribution, method = learner.contribution, learner.method
    if contribution is None or isinstance(contribution, str):
        contribution = {"kind": contribution}
    words = f"method_params, with method={method!r},"
    options = settings_in(words, learner.method_params, _INFERENCE | _METHODS[method])
    # exact tables are learnt from in one way, whatever the method
    return SimpleNamespace(
        **settings_in("clique_params", learner.clique_params, _CLIQUES),
        **settings_in("contribution", contribution, _CONTRIBUTION),
        **settings_in(words, None, _METHODS["naive"]) | options,
        of_method={name: options[name] for name in _METHODS[method]},
    )


class Gradients(GivenTables):
    """Gradients for given cliques, with noise of their own, and no tables."""

    what = "gradients"

    def noise_of(self, n_parties=None, min_honest=None):
        """Return none: no tables are released."""


def plan_search(learner, by_columns):
    """Return which tables a learner asks for.

    Parameters
    ----------
    learner : DPCGMLearner
        That knows its columns.
    by_columns : bool
        Whether holders have different columns, not rows.

    Returns
    -------
    search : TableSearch
    """
    nodes, cliques, ties = learner._nodes(), learner.cliques, None
    settings, contribution = learner._settings, learner._contribution()
    if cliques in ("aim", "mst"):
        kind = AdaptiveSearch if cliques == "aim" else PrivateTree
    else:
        kind = Gradients if learner.method == "psgd" else GivenTables
        cliques = resolve_cliques(cliques, nodes)
        cliques, ties = resolve_ties(cliques, settings.stationary)
    return kind(
        learner.epsilon,
        delta_of(learner),
        len(nodes),
        per_record=contribution.per_clique,
        n_changed=N_CHANGED if by_columns else 1,
        record=contribution.unit,
        cliques=cliques,
        ties=ties,
        max_model_cells=min(settings.max_model_cells, settings.max_cells),
        workload=_resolve_workload(settings.workload, nodes),
        rescale=learner.missing == "skip",
    )


def report_tables(learner, released, search, noise, n_parties):
    """Set ``noise_report_`` of a learner.

    Parameters
    ----------
    learner : DPCGMLearner
    released : Released
    search : TableSearch
    noise : CountMechanism or DistributedNoise
    n_parties : int or None
        As of :meth:`TableSearch.noise_of`.
    """

    def std_with(delta):
        changed = replace(search, delta=delta)
        return changed.cell_std(changed.noise_of(n_parties, learner.min_honest))

    tables, choice = released.tables, released.choice
    numbers, warnings = noise_on_tables(tables, learner._nodes())
    by_columns = search.n_changed > 1
    report_noise(
        learner,
        noise,
        learner._protects(by_columns),
        search.cell_std(noise),
        numbers if choice is None else [*numbers, choice],
        # of columns, what is no state counts as the first one
        () if by_columns else warnings,
        n_rows=tables.n_records(),
        std_with=std_with,
        decisive=choice,
    )


def noise_on_tables(tables, nodes):
    """Return the noise on released tables, and words about states that hardly occur.

    Parameters
    ----------
    tables : NoisyTables
    nodes : sequence of str

    Returns
    -------
    numbers : list of NoisyNumber
    warnings : list of str
    """
    layout, n_records = tables.layout, tables.n_records()
    numbers = [noisy_number("number of records", n_records, tables.n_records_std)]
    firsts = np.unique(layout.ties, return_index=True)[1]
    for i, std, n_cells in zip(firsts, tables.std, layout.n_cells):
        columns = ", ".join(repr(nodes[v]) for v in layout.cliques[i])
        mean_count = n_records * layout.multiplicity[layout.ties[i]] / n_cells
        numbers.append(noisy_number(f"mean cell of {columns}", mean_count, std))
    return numbers, _rare_states(tables, [layout.cliques[i] for i in firsts], nodes)


def _rare_states(tables, cliques, nodes):
    """Return words about columns whose values are hardly ever declared states."""
    totals, reach = tables.totals, 3 * np.sqrt(tables.totals_variance)
    most = float(totals.max())
    check = "check the spelling of states, and bins"
    if tables.n_records() <= 3 * tables.n_records_std and np.all(totals <= reach):
        return [
            f"about {max(most, 0):,.0f} rows have declared states in all columns of a "
            f"table, which is within the noise: {check}, or take more rows"
        ]
    rare = totals + reach < most / 2
    spelt = {v for clique, few in zip(cliques, rare) if not few for v in clique}
    for v in {v for clique in cliques for v in clique} - spelt:
        total = max(t for t, clique in zip(totals, cliques) if v in clique)
        return [
            f"about {max(total, 0):,.0f} of {most:,.0f} rows have declared states in "
            f"column {nodes[v]!r}: {check}"
        ]
    return []


def read_tables(noisy_tables, std, noise, nodes, make_layout, learner):
    """Check tables that were released before.

    Parameters
    ----------
    noisy_tables : mapping of clique to array-like
        Noisy counts, in records.
    std : float or sequence of float
        Standard deviation of the noise, one for all or one per table.
    noise : {"laplace", "gaussian"}
        Its distribution.
    nodes : sequence of str
        Names of the columns.
    make_layout : callable
        From cliques and ties to a TableLayout.
    learner : DPCGMLearner
        Says which cliques are tied, if it has a stationary field.

    Returns
    -------
    tables : NoisyTables
    """
    measured = resolve_cliques(list(noisy_tables), nodes)
    scopes, ties = measured, np.arange(len(measured))
    if learner._settings.stationary:
        scopes, ties = resolve_ties(resolve_cliques(learner.cliques, nodes), True)
        firsts = [scopes[i] for i in np.unique(ties, return_index=True)[1]]
        if measured != firsts:
            raise ValueError(
                "with stationary=True there must be one table for each of "
                f"{[tuple(nodes[i] for i in first) for first in firsts]}, in this "
                "order: the sum over all cliques tied to it"
            )
    layout = make_layout(scopes, ties)
    values = [np.asarray(table, dtype=float) for table in noisy_tables.values()]
    for clique, table, shape in zip(noisy_tables, values, layout.shapes):
        if table.shape != shape or not np.all(np.isfinite(table)):
            raise ValueError(
                f"the table of clique {clique!r} must be finite, of shape {shape}"
            )
    std = np.broadcast_to(np.asarray(std, dtype=float), len(values)).copy()
    if not np.all(std >= 0):
        raise ValueError("std must not be negative")
    return NoisyTables(layout, layout.flatten(values), std, noise)


def _resolve_workload(workload, nodes):
    """Return {columns: weight} from what a user gives."""
    if workload is None:
        return None
    weights = getattr(workload, "values", lambda: [1.0] * len(workload))()
    scopes = resolve_cliques(list(workload), nodes)
    resolved = dict(zip(scopes, map(float, weights)))
    if not all(0 <= weight < np.inf for weight in resolved.values()):
        raise ValueError("weights in workload must be finite and not negative")
    return resolved


def check_combinations(learner, several, aligned, states):
    """Refuse parameters that cannot be combined, before budget is spent.

    Parameters
    ----------
    learner : DPCGMLearner
        That knows its columns.
    several : bool
        Whether several holders take part.
    aligned : dict
        `individual` and `sample_weight`, None if not given.
    states : dict or None
        Public states, if they are known.
    """
    psgd, settings = learner.method == "psgd", learner._settings
    if psgd and learner.epsilon is None:
        raise ValueError("method='psgd' is noise on gradients: it needs epsilon")
    if psgd and delta_of(learner) == 0:
        raise ValueError("method='psgd' needs delta > 0: its guarantee cannot be pure")
    cliques = learner.cliques if isinstance(learner.cliques, str) else None
    mst, chosen_privately = cliques == "mst", cliques in ("aim", "mst")
    if several and mst:
        raise ValueError(
            "cliques='mst' works for one holder of all rows only: use 'aim', which "
            "chooses privately as well"
        )
    if several and (psgd or learner.epsilon is None):
        what = "method='psgd'" if psgd else "epsilon=None"
        raise ValueError(
            f"{what} works for one holder of all rows only, not with party=, parties= "
            "or a partition"
        )
    given = [name for name, values in aligned.items() if values is not None]
    if psgd and ("sample_weight" in given or chosen_privately):
        raise ValueError(
            "method='psgd' takes given cliques (cliques='chain' or a list) and rows "
            "without weights"
        )
    if psgd and settings.null_state is not None:
        raise ValueError(
            "method='psgd' maximises the likelihood of whole rows, and null_state= "
            "leaves parts of them out: declare structural_zeros instead"
        )
    if psgd and settings.kind == "clip":
        raise ValueError(
            "method='psgd' takes the mean gradient of a person's rows: use "
            "contribution='normalize' with individual="
        )
    if psgd and learner.missing == "skip":
        raise ValueError("method='psgd' needs complete rows, without missing='skip'")
    if learner.missing == "error" and learner.epsilon is not None:
        raise ValueError(
            "missing='error' would tell, without noise, that a row has a gap: with "
            "epsilon use missing='auto', which leaves such rows out, or 'skip'"
        )
    if mst and learner.epsilon is None:
        raise ValueError("cliques='mst' is a private choice; give the cliques")
    if mst and learner.n_features_in_ < 2:
        raise ValueError("cliques='mst' needs at least two columns")
    for name in ("stationary", "structural_zeros"):
        if chosen_privately and getattr(settings, name):
            raise ValueError(
                f"{name}= needs cliques='chain', 'tree' or a list: {cliques!r} chooses "
                "its tables itself"
            )
    if settings.workload is not None and cliques != "aim":
        raise ValueError("workload= is for cliques='aim' only")
    if several and states is None:
        raise ValueError(
            "several holders need states=, the public labels of every column, or "
            "columns of categories, and bins= for columns of numbers: reading the "
            "values of columns would disclose rows"
        )


def check_columns(learner, aligned):
    """Refuse parameters that are not for columns of several holders.

    Parameters
    ----------
    learner : DPCGMLearner
    aligned : dict
        `individual` and `sample_weight`, None if not given.
    """
    settings = learner._settings
    one_record = "every record counts once; bring those of a person into one before"
    refused = {
        "individual=": (aligned["individual"] is not None, one_record),
        "sample_weight=": (aligned["sample_weight"] is not None, one_record),
        "contribution=": (settings.kind is not None, one_record),
        "max_weight=": (settings.max_weight != 1, one_record),
        "null_state=": (
            settings.null_state is not None,
            "whether a record is null elsewhere is nobody's to know",
        ),
        "missing='skip'": (
            learner.missing == "skip",
            "what is missing counts as the first state; give it a state of its own",
        ),
        "stationary=": (settings.stationary, "give every clique its own table"),
        "backend=": (
            learner.backend != "masking",
            "it adds tables of rows; columns are counted by oblivious transfer",
        ),
    }
    for what, (given, reason) in refused.items():
        if given:
            raise ValueError(
                f"{what} is not available for columns of several holders: {reason}"
            )


def charge_fit(learner, search, states, noise, several, by_columns):
    """Charge a fit to the accountant, before the rows are looked at.

    Without public states it tells exactly which values occur.

    Returns
    -------
    spent : PrivacyCost
    """
    if learner.epsilon is None:
        warn_leak("epsilon=None learns from exact tables, without any privacy")
    elif states is None:
        charge_exact(learner, "states of the columns, which states= would declare")
    unit = learner._protects(by_columns)
    # that of noise which several make together, it says itself
    rho = None if several else search.rho
    spent = charge(learner, search.what, noise, rho=rho, unit=unit)
    exact = learner.epsilon is None or states is None
    return PrivacyCost(np.inf, 0.0, unit) if exact else spent


def rows_of(learner, partition, states):
    """Return codes, persons and weights of the rows of one holder."""
    (block,) = partition._blocks.values()
    return check_rows(
        block,
        learner._nodes(),
        states,
        learner._contribution(states),
        gap_rule(learner),
        learner._checked_bins(),
        strict=learner.epsilon is None,
    )


def ask_holders(learner, search, partition, states, noise, several):
    """Send the questions of a search to the holders of rows, or of columns.

    Returns
    -------
    found : dict
    answers : list of ndarray of int64
    ledger : Ledger
    """
    contribution, nodes = learner._contribution(states), list(learner._nodes())
    if not several:
        codes, persons, weight = rows_of(learner, partition, states)

        def count(layout):
            return count_tables(codes, layout, contribution, persons, weight)

        ledger = single_holder_ledger(learner, partition.names, search, noise)
        sizes = [len(labels) for labels in states.values()]
        return *search.alone(count, sizes, noise), ledger
    bins, workload = learner._checked_bins(), search.workload or {}
    fields = {
        "nodes": nodes,
        "states": [list(labels) for labels in states.values()],
        "bins": {node: list(edges) for node, edges in bins.items()},
        "epsilon": learner.epsilon,
        "delta": delta_of(learner),
        "min_honest": learner.min_honest,
        "contribution": contribution,
        "missing": gap_rule(learner),
        "cliques": search.cliques
        if isinstance(search.cliques, str)
        else [list(clique) for clique in search.cliques],
        "ties": [] if search.ties is None else search.ties.tolist(),
        "max_model_cells": search.max_model_cells if learner.cliques == "aim" else 0,
        "workload": [list(columns) for columns in workload],
        "workload_weights": list(workload.values()),
    }
    if holds_columns(partition):
        terms = ColumnTablesTerms(**column_terms(partition, nodes), **fields)
        with partition.federate(column_tables, terms) as federation:
            found = federation.run()
        declare(federation, noise, search.what, found["n_calls"])
        return found, found.get("answers", []), federation.ledger
    terms = TablesTerms(**fields)
    with learner._federate(partition, release_tables, terms) as federation:
        found = federation.run()
    declare_noise(federation.ledger, noise, search.what, terms.protects)
    return found, federation.released, federation.ledger
