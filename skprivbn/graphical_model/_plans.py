"""Which tables a fit releases, what that costs, and asking the holders for them.

All but the asking is decided before a row is read.
"""

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from skprivbn.federation import declare_noise
from skprivbn.graphical_model._adaptive import (
    AdaptiveBudget,
    MeasuredTables,
    measure_adaptively,
)
from skprivbn.graphical_model._column_tables import (
    N_CHANGED,
    ColumnTablesTerms,
    column_tables,
    declare,
)
from skprivbn.graphical_model._counting import (
    resolve_cliques,
    resolve_ties,
    sensitivities,
)
from skprivbn.graphical_model._layout import NoisyTables, check_table_sizes
from skprivbn.graphical_model._psgd import PSGDOptions
from skprivbn.graphical_model._release import (
    OneHolder,
    TablesTerms,
    check_rows,
    gap_rule,
    release_tables,
    single_holder_ledger,
)
from skprivbn.graphical_model._selection import TreeBudget, measure_tree
from skprivbn.graphical_model._shared_adaptive import AdaptiveTerms, adaptive_tables
from skprivbn.graphical_model._shared_tree import (
    SharedTreeBudget,
    TreeTerms,
    noisy_tree,
)
from skprivbn.privacy import CountMechanism, PrivacyCost, distribute
from skprivbn.privacy._options import charge, charge_exact
from skprivbn.utils import warn_leak

#: what holders of rows run
PROGRAMS = (release_tables, noisy_tree, adaptive_tables)


@dataclass(frozen=True)
class Released:
    """What a fit has released, and what learning starts from.

    Parameters
    ----------
    tables : NoisyTables
        In records.
    counts : ndarray of int64 of shape (n_parameters,)
        The integers as released.
    units : ndarray of int of shape (n_tables,)
        How much one record counts in each table of them.
    missed : dict of tuple of int to float
        Shares of records by which a model missed tables that were not released.
    """

    tables: NoisyTables
    counts: np.ndarray
    units: np.ndarray
    missed: dict = field(default_factory=dict)

    @classmethod
    def from_counts(cls, layout, counts, unit, noise):
        """All tables counted in the same unit and with the same noise."""
        std, kind = (0.0, "none") if noise is None else (noise.std, noise.kind)
        n_tables = len(layout.shapes)
        tables = NoisyTables(layout, counts / unit, np.full(n_tables, std / unit), kind)
        return cls(tables, counts, np.full(n_tables, unit))


def plan_release(learner, contribution, n_parties=None, by_columns=False):
    """Return how a learner gets its tables.

    Parameters
    ----------
    learner : DPCGMLearner
        That knows its columns.
    contribution : Contribution
        What one person may add.
    n_parties : int, default=None
        How many holders make the noise together; None for one that makes it alone.
    by_columns : bool, default=False
        Whether they hold different columns, not rows.

    Returns
    -------
    plan : object
        With `noise`, `rho`, `what`; ``check(sizes, make_layout)`` raises what can be
        raised before budget is spent; ``terms(common)`` are those that parties are
        told; ``from_one(holder)`` and ``from_several(federation)`` return what was
        :class:`Released`.
    """
    if learner.method == "psgd":
        kind = Gradients
    elif by_columns:
        adaptive = learner.cliques == "aim"
        kind = AdaptiveColumnTables if adaptive else FixedColumnTables
    elif learner.cliques == "aim":
        kind = AdaptiveTables
    elif learner.cliques == "mst":
        kind = PrivateTree if n_parties is None else SharedTree
    else:
        kind = FixedTables
    return kind(learner, contribution, n_parties)


class Gradients:
    """Noisy gradients for given cliques, and no tables."""

    what, noise, rho = "gradients", None, None

    def __init__(self, learner, contribution, n_parties):
        self.cliques = resolve_cliques(learner.cliques, learner._nodes())
        self.options = PSGDOptions.from_dict(learner.psgd_params or {})

    def check(self, sizes, make_layout):
        self.layout = make_layout(self.cliques)


class FixedTables:
    """Tables of given cliques, all at once."""

    program, what, units = release_tables, "contingency tables of cliques", (1, 1, 1)
    #: cells of a table in which neighbours differ
    n_changed = 1

    def __init__(self, learner, contribution, n_parties):
        self.record = contribution.unit
        self.cliques, self.ties = resolve_ties(
            resolve_cliques(learner.cliques, learner._nodes()), learner.tied
        )
        sensitivity = sensitivities(self.ties, contribution, self.n_changed)
        self.noise, self.rho = _noise(
            learner,
            lambda *budget: CountMechanism.for_budget(*budget, *sensitivity),
            n_parties,
        )

    def check(self, sizes, make_layout):
        self.layout = make_layout(self.cliques, self.ties)

    def terms(self, common):
        return TablesTerms(
            **common,
            cliques=[list(clique) for clique in self.cliques],
            ties=self.ties.tolist(),
        )

    def from_one(self, holder):
        return self._released(holder.tables(self.layout))

    def from_several(self, federation):
        federation.run()
        (counts,) = federation.released
        return self._released(counts)

    def _released(self, counts):
        return Released.from_counts(self.layout, counts, self.record, self.noise)


class FixedColumnTables(FixedTables):
    """The same of columns that different parties hold."""

    n_changed = N_CHANGED

    def terms(self, common):
        return ColumnTablesTerms(
            **common,
            cliques=[list(clique) for clique in self.cliques],
            max_states=1,
            workload=[],
            workload_weights=[],
        )

    def from_several(self, federation):
        found = federation.run()
        declare(federation, self.noise, self.what, found["n_calls"])
        return self._released(found["counts"])


class PrivateTree:
    """One-way tables, and those of a tree that is chosen by report-noisy-max."""

    what, units = "one-way tables, a tree and two-way tables", (1, 1, 1)

    def __init__(self, learner, contribution, n_parties):
        self.max_cells, self.record = learner.max_cells, contribution.unit
        self.budget = TreeBudget(
            learner.epsilon,
            learner.delta,
            len(learner._nodes()),
            contribution.per_clique,
        )
        self.noise, self.rho = self.budget.two_way, self.budget.rho

    def check(self, sizes, make_layout):
        self.sizes, self.make_layout = sizes, make_layout
        check_table_sizes(combinations(range(len(sizes)), 2), sizes, self.max_cells)

    def from_one(self, holder):
        cliques, counts, std = measure_tree(holder.count, self.sizes, self.budget)
        layout, record = self.make_layout(cliques), self.record
        tables = NoisyTables(layout, counts / record, std / record, self.noise.kind)
        return Released(tables, counts, np.full(len(cliques), record))


class SharedTree:
    """Tables of all pairs, then those of a tree that is computed from them."""

    program, what = noisy_tree, "all two-way tables, and those of a tree"

    def __init__(self, learner, contribution, n_parties):
        self.max_cells = learner.max_cells
        self.budget = SharedTreeBudget(
            learner.epsilon,
            learner.delta,
            len(learner._nodes()),
            contribution.per_clique,
            contribution.unit,
        )
        self.noise, self.rho = _noise(learner, lambda *_: self.budget.noise, n_parties)

    check = PrivateTree.check

    def terms(self, common):
        return TreeTerms(**common)

    def from_several(self, federation):
        found = federation.run()
        _, counts = federation.released
        return Released.from_counts(
            self.make_layout([tuple(edge) for edge in found["edges"]]),
            counts,
            self.budget.edge_unit * self.budget.record,
            self.noise,
        )


class AdaptiveTables:
    """One-way tables, then rounds of tables that the model so far misses most."""

    program = adaptive_tables
    what = "one-way tables, distances to a model and chosen tables, in rounds"
    #: cells of a table in which neighbours differ
    n_changed = 1

    def __init__(self, learner, contribution, n_parties):
        nodes = learner._nodes()
        self.record, self.rescale = contribution.unit, learner.missing == "skip"
        self.max_states = min(learner.max_states, learner.max_cells)
        self.workload = _resolve_workload(learner.workload, nodes)
        self.budget = AdaptiveBudget(
            learner.epsilon,
            learner.delta,
            len(nodes),
            contribution.per_clique,
            self.n_changed,
        )
        self.units = self.budget.units
        self.noise, self.rho = _noise(learner, lambda *_: self.budget.noise, n_parties)

    def check(self, sizes, make_layout):
        self.sizes, self.make_layout = sizes, make_layout
        make_layout([(i,) for i in range(len(sizes))])  # may raise

    @property
    def _search(self):
        workload = self.workload or {}
        return {
            "max_states": self.max_states,
            "workload": [list(columns) for columns in workload],
            "workload_weights": list(workload.values()),
        }

    def terms(self, common):
        return AdaptiveTerms(**common, **self._search)

    def from_one(self, holders):
        return self._released(
            *measure_adaptively(
                holders,
                self.sizes,
                self.budget,
                self.noise,
                self.max_states,
                record=self.record,
                rescale=self.rescale,
                workload=self.workload,
            )
        )

    def _released(self, measured, missed):
        tables = measured.tables(self.make_layout(list(measured.counts)))
        cliques = tables.layout.cliques
        return Released(
            tables,
            tables.layout.flatten([measured.counts[c] for c in cliques]),
            np.array([measured.units[c] for c in cliques]),
            {c: share for c, share in missed.items() if c not in measured.counts},
        )

    def from_several(self, federation):
        return self._read(federation.run())

    def _read(self, found):
        cliques = [tuple(clique) for clique in found["cliques"]]
        measured = MeasuredTables(
            tuple(self.sizes),
            self.noise.std,
            self.noise.kind,
            self.record,
            dict(zip(cliques, found["counts"])),
            dict(zip(cliques, found["units"])),
        )
        missed = dict(zip(map(tuple, found["missed"]), found["shares"]))
        return self._released(measured, missed)


class AdaptiveColumnTables(AdaptiveTables):
    """The same of columns that different parties hold."""

    n_changed = N_CHANGED

    def terms(self, common):
        return ColumnTablesTerms(**common, cliques=None, **self._search)

    def from_several(self, federation):
        found = federation.run()
        declare(federation, self.noise, self.what, found["n_calls"])
        return self._read(found)


def _noise(learner, make, n_parties):
    """Noise, of one curator or of parties together, and its rho; none if exact."""
    if learner.epsilon is None:
        return None, None
    noise = make(learner.epsilon, learner.delta)
    if n_parties is not None:
        noise = distribute(noise, n_parties, learner.min_honest)
    return noise, noise.rho


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
    """Refuse what cannot be combined, before anything is spent.

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
    psgd = learner.method == "psgd"
    if psgd and learner.epsilon is None:
        raise ValueError("method='psgd' is noise on gradients: it needs epsilon")
    if psgd and learner.delta == 0:
        raise ValueError("method='psgd' needs delta > 0: its guarantee cannot be pure")
    cliques = learner.cliques if isinstance(learner.cliques, str) else None
    mst, chosen_privately = cliques == "mst", cliques in ("aim", "mst")
    refused = {
        "method='psgd'": psgd,
        "epsilon=None": learner.epsilon is None,
    }
    for what, chosen in refused.items():
        if chosen and several:
            raise ValueError(
                f"{what} works for one holder of all rows only, not with party=, "
                "parties= or a partition"
            )
    given = [name for name, values in aligned.items() if values is not None]
    if psgd and ("sample_weight" in given or learner.tied or chosen_privately):
        raise ValueError(
            "method='psgd' takes fixed, untied cliques (cliques='chain' or a list) and "
            "rows without weights"
        )
    if psgd and learner.contribution == "clip":
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
    for name in ("tied", "structural_zeros"):
        if chosen_privately and getattr(learner, name):
            raise ValueError(
                f"{name}= needs cliques='chain', 'tree' or a list: {cliques!r} chooses "
                "its tables itself"
            )
    if learner.workload is not None and cliques != "aim":
        raise ValueError("workload= is for cliques='aim' only")
    if several and states is None:
        raise ValueError(
            "several holders need states=, the public states of every column, or "
            "categories of all columns: finding out which values occur would need "
            "their rows"
        )


def check_columns(learner, aligned):
    """Refuse what columns of several holders cannot be asked for.

    Parameters
    ----------
    learner : DPCGMLearner
    aligned : dict
        `individual` and `sample_weight`, None if not given.
    """
    one_record = "every record counts once; bring those of a person into one before"
    refused = {
        "individual=": (aligned["individual"] is not None, one_record),
        "sample_weight=": (aligned["sample_weight"] is not None, one_record),
        "contribution=": (learner.contribution is not None, one_record),
        "max_weight=": (learner.max_weight != 1, one_record),
        "null_state=": (
            learner.null_state is not None,
            "whether a record is null elsewhere is nobody's to know",
        ),
        "missing='skip'": (
            learner.missing == "skip",
            "what is missing counts as the first state; give it a state of its own",
        ),
        "tied=": (learner.tied is not None, "give every clique its own table"),
        "cliques='mst'": (
            isinstance(learner.cliques, str) and learner.cliques == "mst",
            "use 'aim', which chooses privately as well",
        ),
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


def charge_fit(learner, what, states, noise=None, rho=None):
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
    spent = charge(learner, what, noise, rho=rho)
    exact = learner.epsilon is None or states is None
    return PrivacyCost(np.inf, 0.0) if exact else spent


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


def ask_holder(learner, plan, partition, states):
    """Ask one holder of all rows for what a plan releases.

    Returns
    -------
    released : Released
    ledger : Ledger
    """
    holder = OneHolder(
        rows_of(learner, partition, states),
        [len(labels) for labels in states.values()],
        learner._contribution(states),
        plan.noise,
        plan.units,
    )
    ledger = single_holder_ledger(learner, partition.names, plan)
    return plan.from_one(holder), ledger


def ask_parties(learner, plan, partition, states):
    """Ask several holders, each of which tells noisy counts of its own rows.

    Returns
    -------
    released : Released
    ledger : Ledger
    """
    bins = learner._checked_bins()
    terms = plan.terms(
        {
            "nodes": list(learner._nodes()),
            "states": [list(labels) for labels in states.values()],
            "bins": {node: list(edges) for node, edges in bins.items()},
            "contribution": learner._contribution(states),
            "missing": gap_rule(learner),
            "epsilon": learner.epsilon,
            "delta": learner.delta,
            "min_honest": learner.min_honest,
        }
    )
    with learner._federate(partition, plan.program, terms) as federation:
        released = plan.from_several(federation)
    declare_noise(federation.ledger, plan.noise, plan.what, terms.protects)
    return released, federation.ledger


def ask_columns(learner, plan, partition, states):
    """Ask holders of different columns, who open what they share with noise.

    Returns
    -------
    released : Released
    ledger : Ledger
    """
    bins, nodes = learner._checked_bins(), list(learner._nodes())
    terms = plan.terms(
        {
            "nodes": nodes,
            "states": [list(labels) for labels in states.values()],
            "bins": {node: list(edges) for node, edges in bins.items()},
            "epsilon": learner.epsilon,
            "delta": learner.delta,
            "min_honest": learner.min_honest,
            "owners": [partition.owners[node] for node in nodes],
            "has_keys": partition.has_keys,
        }
    )
    with partition.federate(column_tables, terms) as federation:
        released = plan.from_several(federation)
    return released, federation.ledger
