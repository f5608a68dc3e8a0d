"""A network from rows at several parties: one program, which every party runs."""

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from itertools import combinations_with_replacement
from math import prod
from typing import Any, Literal

import numpy as np

from skprivbn.bayesian_network._base import check_found, check_parents, check_states
from skprivbn.bayesian_network._dag import check_dag, graph_of
from skprivbn.bayesian_network._labels import MISSING, encode, sorted_states
from skprivbn.federation import (
    COUNTS,
    CountsAt,
    Me,
    PartyRefusal,
    RowWeights,
    Sum,
    Terms,
    converse,
    program,
)
from skprivbn.federation._cells import in_steps
from skprivbn.federation.gate import (
    FEW_VALUES,
    N_PARTITIONS,
    check_shares,
    count_values,
    kish,
    marks_of_values,
    rows_by_group,
)
from skprivbn.federation.program import refuse_malformed
from skprivbn.programs._columns import check_labels, tell_all
from skprivbn.structure._edge_rules import EdgeRules
from skprivbn.structure._search import MAX_REPEATS
from skprivbn.structure._site_effects import own_likelihoods
from skprivbn.structure._tables import RowCounts, most_cells, sets_in
from skprivbn.structure.rows._mixed import (
    FamiliesEM,
    Scale,
    configuration_moments,
    configurations,
)
from skprivbn.structure.rows._search import learning
from skprivbn.utils._linalg import symmetric
from skprivbn.utils._memoise import asking_others
from skprivbn.utils._validation import missing_entries, to_numbers

#: more sets of columns than these are counted, not named, in the ledger
_LISTED = 500


@dataclass(frozen=True)
class RowNetworkTerms(Terms):
    """What a network is learnt from, and how it is searched for.

    Parameters
    ----------
    names : list of str
        Names of the columns.
    states : list of (list or None)
        Labels of every column; None where parties are to tell theirs. Continuous
        columns have one that does not matter.
    continuous : list of int
        Positions of continuous columns.
    max_parents : int
        A table has at most one variable more.
    min_cell_count : int
        Parties tell their counts in steps of it: fewer rows count as none.
    missing : {"error", "skip", "em"}
        Whether entries may be missing. Rows are left out of tables that need them;
        probabilities may then be learnt by EM.
    known : list of list of int or None
        Parents of every column, if they are given.
    allowed, required : ndarray of bool of shape (n_columns, n_columns)
        Edges that the graph may have, and those that it must have.
    ordering : list of int
        All columns, for "k2".
    method, criterion : str
    equivalent_sample_size : float
    tabu_length, n_restarts, n_bootstrap : int
    seed : int
        Of restarts and of bootstrap samples.
    alpha : float
        Pseudo-count of every cell.
    max_iter : int
        Most steps of EM.
    tol : float
        Where EM stops.
    site_effects : {"mechanisms"} or None
        Whether probabilities given the parents may differ by site.
    """

    names: list[str]
    states: list[list[Any] | None]
    continuous: list[int]
    max_parents: int
    min_cell_count: int
    missing: Literal["error", "skip", "em"]
    known: list[list[int]] | None
    allowed: np.ndarray
    required: np.ndarray
    ordering: list[int]
    method: Literal["hill_climbing", "ges", "k2"] = "hill_climbing"
    criterion: Literal["k2", "stirling", "wright_yang", "bdeu", "bic"] = "bic"
    equivalent_sample_size: float = 10.0
    tabu_length: int = 0
    n_restarts: int = 0
    n_bootstrap: int = 0
    seed: int = 0
    alpha: float = 1.0
    max_iter: int = 0
    tol: float = 0.0
    site_effects: Literal["mechanisms"] | None = None

    def check(self):
        """Refuse names, labels and graphs that are none."""
        n_columns = len(self.names)
        if len(set(self.names)) != n_columns:
            raise ValueError("names: a column is named twice")
        if len(self.states) != n_columns:
            raise ValueError("states: one list for each column")
        if not set(self.continuous) <= set(range(n_columns)):
            raise ValueError("continuous: positions of columns")
        if any(self.states[v] != [0] for v in self.continuous):
            raise ValueError("states: those of continuous columns do not matter")
        for name, labels in zip(self.names, self.states):
            if labels is not None:
                check_states(name, labels)
        if self.max_parents < 0 or self.min_cell_count < 0:
            raise ValueError("max_parents, min_cell_count: at least 0")
        if self.missing == "em" and self.min_cell_count > 1:
            raise ValueError(
                "missing='em' adds up fractions of rows, which cannot be compared with "
                f"min_cell_count={self.min_cell_count} (the estimator's or that of the "
                "strictest site): use missing='skip', a FederatedSimpleImputer, or "
                "min_cell_count=1"
            )
        if not 0 <= self.alpha < np.inf:
            raise ValueError("alpha: a number of at least 0")
        if not 0 < self.equivalent_sample_size < np.inf:
            raise ValueError("equivalent_sample_size: a positive number")
        self._check_graphs(n_columns)
        for name in ("tabu_length", "n_restarts", "n_bootstrap"):
            if not 0 <= getattr(self, name) <= MAX_REPEATS:
                raise ValueError(f"{name}: between 0 and {MAX_REPEATS}")
        if not 0 <= self.seed < 2**32:
            raise ValueError("seed: an integer of 32 bits")

    def _check_graphs(self, n_columns):
        EdgeRules(self.allowed, self.required, self.max_parents).check(self.names)
        if sorted(self.ordering) != list(range(n_columns)):
            raise ValueError("ordering: every column once")
        discrete = [v for v in range(n_columns) if v not in self.continuous]
        if self.site_effects is not None:
            self._check_mechanisms()
        if self.continuous and self.criterion != "bic":
            raise ValueError(
                f"continuous columns need criterion='bic', got {self.criterion!r}"
            )
        if self.continuous and self.method == "ges":
            raise ValueError(
                "method='ges' is not available with continuous columns, which restrict "
                "the directions of edges: use 'hill_climbing' or 'k2'"
            )
        if self.allowed[np.ix_(self.continuous, discrete)].any():
            raise ValueError("allowed: a continuous parent of a discrete column")
        if self.known is not None:
            self._check_known(n_columns, discrete)

    def _check_mechanisms(self):
        for holds, wanted in (
            (self.criterion == "bic", "criterion='bic'"),
            (self.method != "ges", "method='hill_climbing' or 'k2'"),
            (not self.continuous, "discrete columns only"),
            # samples of rows would count a person alike in all tables of a sample
            (not self.n_bootstrap, "n_bootstrap=0"),
        ):
            if not holds:
                raise ValueError(f"site_effects='mechanisms' needs {wanted}")

    def _check_known(self, n_columns, discrete):
        if len(self.known) != n_columns:
            raise ValueError("known: parents of every column")
        for child, found in enumerate(self.known):
            check_parents(child, found, range(n_columns))
            if len(found) > self.max_parents:
                raise ValueError("known: more parents than max_parents")
            if child in discrete and not set(found) <= set(discrete):
                raise ValueError(
                    f"structure= gives the discrete column {self.names[child]!r} a "
                    "continuous parent, which conditional Gaussian networks do not have"
                )
        check_dag(graph_of(self.known), self.names)

    @property
    def has_directions(self):
        """Whether all directions of edges mean something."""
        free = ~np.eye(len(self.names), dtype=bool)
        limited = self.required.any() or (self.allowed != free).any()
        told = self.continuous or self.method == "k2" or self.site_effects
        return bool(limited or told)


@program(RowNetworkTerms)
def network_of_rows(me: Me) -> Generator[Any, Any, dict]:
    """Labels and sizes; tables that the search needs; parameters of the families."""
    terms = me.terms
    if terms.missing == "em" and me.min_cell_count > 1:
        raise PartyRefusal("small-cells", "EM adds up fractions of rows")
    rows, problem = yield from reading_rows(me)
    if rows is None:
        return {"problem": problem}
    known = tuple(rows.n_states), rows.sums, rows.max_cells, len(me.roster)
    found = yield from asking_others(learning(terms, *known), rows.answering)
    if "problem" not in found:
        rows.check_families(found["parents"])
    found = found | {"states": rows.states, "n_samples": rows.n_samples}
    if terms.missing == "em" and "problem" not in found:
        found |= yield from expectation_maximisation(rows, terms, found["parents"])
    return found


def reading_rows(me):
    """Learn labels and units of columns, and read own rows by them.

    Parameters
    ----------
    me : Me
        With :class:`RowNetworkTerms`.

    Returns
    -------
    rows : OwnRows or None
    problem : str
        Why there are none.
    """
    terms, states = me.terms, me.terms.states
    if None in states:
        mine = tell_all(me, _own_labels(me))
        told = yield from converse(mine, "labels of columns", "public")
        states = _common_states(terms, told)
    if [] in states:
        return None, _without_values(terms.names[states.index([])])
    rows = OwnRows(me, states)
    sums = yield Sum(
        Scale.sums(rows.values),
        "number of rows; counts, sums, absolute sums of continuous columns",
        CountsAt(slice(1 + len(terms.continuous))),
    )
    rows.scale(sums)
    return rows, ""


def expectation_maximisation(rows, terms, parents):
    """Learn probabilities of a known graph from rows with gaps.

    Parameters
    ----------
    rows : object
        Own `codes` and scaled `values`.
    terms : RowNetworkTerms
    parents : list of list of int

    Returns
    -------
    found : dict
        Parameters of the families, `n_iter` and `converged`.
    """
    em = FamiliesEM(parents, rows.n_states, terms.continuous)
    try:
        em.check()
    except ValueError as error:
        return {"problem": str(error)}
    own = em.complete_counts(rows.codes, rows.values)
    weights = partial(em.weigh, own, rows.values)
    total = yield Sum(own, "sums over complete rows, family by family", weights)
    n_iter, before, converged = 0, -np.inf, False
    while n_iter < terms.max_iter and not converged:
        model = em.maximise(total, terms.alpha)
        own = em.expected(*model, rows.codes, rows.values)
        what = "expected sums and log-likelihood, each iteration"
        total = yield Sum(own, what, partial(em.weigh, own, rows.values))
        now = total[-2] / rows.n_samples
        # pseudo-counts may let it fall, too
        converged = bool(abs(now - before) < terms.tol)
        n_iter, before = n_iter + 1, now
    rows.check_families(parents, em.moments(total))
    cpts, lines = em.maximise(total, terms.alpha)
    found = enumerate(zip(em.beside, lines))
    lines = [list(rows.units.restore(j, others, *line)) for j, (others, line) in found]
    return {"cpts": cpts, "lines": lines, "n_iter": n_iter, "converged": converged}


class OwnRows:
    """Own rows as codes and numbers, and what is counted of them.

    Parameters
    ----------
    me : Me
    states : list of list
        Labels of all columns.
    """

    def __init__(self, me, states):
        X, terms = _own_rows(me), me.terms
        self.me, self.terms, self.states = me, terms, states
        labels = dict(zip(terms.names, states))
        rest = [v for v in range(len(states)) if v not in terms.continuous]
        self.codes = np.zeros(X.shape, dtype=np.intp)
        with refuse_malformed("invalid-data"):
            if rest:
                discrete = [terms.names[v] for v in rest]
                self.codes[:, rest] = encode(X[:, rest], discrete, labels)
            self.values = to_numbers(X[:, terms.continuous])
            if np.isinf(self.values).any():
                raise ValueError("infinite numbers")
        lacks = (self.codes == MISSING).any(axis=0)
        lacks[terms.continuous] = np.isnan(self.values).any(axis=0)
        if lacks.any() and terms.missing == "error":
            raise PartyRefusal("gaps", columns=np.flatnonzero(lacks).tolist())
        self.n_states = [len(labels[name]) for name in terms.names]
        self.tables = RowCounts(self.codes, self.n_states)
        self._totals = {}

    def scale(self, sums):
        """Bring numbers to units that all parties have in common."""
        self.sums, self.n_samples = sums, int(round(sums[0]))
        self.max_cells = most_cells(self.me, self.n_samples)
        self.units = Scale.from_sums(sums, self.values.shape[1])
        self.values = self.units.apply(self.values)

    def answering(self, question):
        """Add up what a search asks for, over all parties."""
        asked = question.asked
        if question.kind == "tables":
            what = "contingency tables of the search"
            return (yield Sum(self.count(asked), what, COUNTS))
        if question.kind == "likelihoods":
            own, weights = own_likelihoods(self.count, self.n_states, asked)
            what = "log-likelihoods of each site's own tables"
            return (yield Sum(own, what, weights))
        moments, weights = self.moments(asked)
        what = "sums and products of numbers, by configuration"
        total = yield Sum(moments, what, weights)
        sizes = [prod(self.n_states[v] for v in given) for given in asked]
        parts = np.split(total, np.cumsum(sizes) * (len(total) // sum(sizes)))
        for given, size, part in zip(asked, sizes, parts):
            self._totals[given] = part.reshape(size, -1)
        return total

    def check_families(self, parents, tables=None):
        """Refuse a network if one row is nearly all that parents leave of a column.

        Parameters
        ----------
        parents : list of list of int
        tables : list of ndarray, default=None
            Of :meth:`FamiliesEM.moments`, if it was learnt by EM.
        """
        numbers = self.terms.continuous if not self.me.is_simulated else ()
        for child in numbers:
            given = tuple(v for v in parents[child] if v not in numbers)
            family = [*(v for v in parents[child] if v in numbers), child]
            places = [numbers.index(v) for v in family]
            values = self.values
            if tables is None:  # of rows that have all numbers
                given, chosen = tuple(sorted(given)), [0, *(1 + v for v in places)]
                moments = symmetric(self._totals[given])[:, chosen][..., chosen]
            else:
                values, moments = values[:, places], tables[places[-1]]
                moments = moments.reshape(-1, *moments.shape[-2:])
            there, cells, _ = configurations(self.codes, values, self.n_states, given)
            values, columns = (
                self.values[there][:, places],
                [(v, *given) for v in family],
            )
            for cell in np.unique(cells):
                (n, *sums), products = moments[cell][0], moments[cell][1:, 1:]
                own = values[cells == cell] - np.divide(sums, n)
                products = products - np.outer(sums, sums) / n
                check_shares(self.me, [own], products, columns)

    def count(self, asked):
        """Count tables; small counts of this party as none, others in steps."""
        return in_steps(self.tables.count(asked), self.terms.min_cell_count)

    def moments(self, asked):
        """Sum up continuous columns by configurations; return how many rows count."""
        parts, counted = [], []
        for given in asked:
            part = configuration_moments(self.codes, self.values, self.n_states, given)
            counted.append(part[..., 0].ravel())
            if self.me.is_simulated:
                part[part[..., 0] < self.terms.min_cell_count] = 0.0
            parts.append(part.ravel())

        def weigh():
            cells, sides = zip(*map(self._count_values, asked))
            cells = np.concatenate([self._left_out(), *cells])
            total, sides = np.concatenate(counted), np.hstack(sides)
            return RowWeights(total, None, cells, self._columns_of(asked), sides)

        return np.concatenate(parts), weigh

    def _columns_of(self, asked):
        """Say which columns each number is about: blocks, cells, then sides."""
        numbers, sizes = self.terms.continuous, self.n_states
        blocks, cells, sides = [], [*numbers * 2, *[*range(len(sizes))] * 2], []
        pairs = list(combinations_with_replacement(numbers, 2))
        for given in asked:
            size = prod(sizes[v] for v in given)
            blocks += [tuple(given)] * size
            cells += np.repeat(numbers * 2 * N_PARTITIONS, size).tolist()
            cells += [v for v in given for _ in range(sizes[v])]
            about = [(v,) for v in numbers] * 2 + pairs
            sides += [(*v, *given) for v in about for _ in range(size)]
        return (*blocks, *cells, *sides)

    def _left_out(self):
        """Count rows that lack an entry: sums with and without them differ by these.

        The first sums are over all rows that have a number; others over those that
        have all numbers, and over those of them that have all given columns.
        """
        gaps, unknown = np.isnan(self.values), self.codes == MISSING
        lacks = gaps.any(axis=1)
        left_out = gaps, lacks[:, None] & ~gaps, unknown, unknown & ~lacks[:, None]
        return np.concatenate([rows.sum(axis=0) for rows in left_out])

    def _count_values(self, given):
        """Count the rows of few values, and those beside the means of columns.

        Sums of zeros and ones are counts, though their column is called continuous.
        """
        there, cells, size = configurations(
            self.codes, self.values, self.n_states, given
        )
        # which are about the means of all parties
        values = self.values[there]
        # and the squares and products of these, of which a row may be nearly all
        left, right = np.triu_indices(values.shape[1])
        products = np.abs(values[:, left] * values[:, right])
        sides = rows_by_group(np.hstack([values, -values, products]), cells, size)
        few = np.flatnonzero(count_values(values) <= FEW_VALUES)
        marks = np.zeros((len(values), 2 * N_PARTITIONS, values.shape[1]))
        marks[..., few] = marks_of_values(values[:, few])
        marks = marks.reshape(len(values), 2 * N_PARTITIONS * values.shape[1])
        counts = [kish(rows_by_group(marks, cells, size))]
        # of rows that lack one of several given columns, sums tell by the others
        lacking = ~there & ~np.isnan(self.values).any(axis=1)
        for v in given:
            codes = self.codes[lacking & (self.codes[:, v] >= 0), v]
            counts.append(np.bincount(codes, minlength=self.n_states[v]))
        return np.concatenate(counts), sides


def _own_rows(me):
    X = np.asarray(me.block["X"])
    if X.ndim != 2 or X.shape[1] != len(me.terms.names):
        raise PartyRefusal("invalid-data")
    return X


def own_columns(me):
    """Return the positions of columns of which a party has any value."""
    return np.flatnonzero(~missing_entries(_own_rows(me)).all(axis=0)).tolist()


def _own_labels(me):
    """Return the labels of columns that nobody has declared."""
    found = []
    columns = zip(me.terms.names, me.terms.states, _own_rows(me).T)
    for i, (name, declared, column) in enumerate(columns):
        labels = ()
        if declared is None:
            labels = sorted_states(column)
            check_labels(me, [(i, column.tolist())])
        with refuse_malformed("invalid-data"):
            found.append(check_found(name, labels) if labels else [])
    return found


def _common_states(terms, told):
    """Return the labels of every column, of all parties where they are not declared."""
    states = []
    for v, (name, declared) in enumerate(zip(terms.names, terms.states)):
        if declared is not None:
            states.append(declared)
            continue
        with refuse_malformed():
            found = [x for labels in told.values() for x in labels[v]]
            labels = list(sorted_states(np.array(found, dtype=object)))
            states.append(list(check_states(name, labels)) if labels else [])
    return states


def _without_values(name):
    return (
        f"column {name!r} has no value at any party: leave it out, or declare its "
        "states"
    )


def list_tables(ledger, terms, tables, moments):
    """Say in the ledger which tables parties read.

    Parameters
    ----------
    ledger : Ledger
    terms : RowNetworkTerms
    tables : list of ndarray of int
        Columns of each table, as :attr:`~skprivbn.structure._tables.Asked.runs`.
    moments : list of list of int
        Those that moments are given.
    """
    tables = sets_in(tables)
    asked = [" x ".join(terms.names[v] for v in key) for key in tables]
    what = "; ".join(asked)
    if len(asked) > _LISTED:
        sizes = sorted(Counter(map(len, tables)).items())
        what = ", ".join(f"{n} of {size} columns" for size, n in sizes)
        what += ", listed in tables_"
    if asked:
        ledger.note(f"tables that the parties added up: {what}")
    if moments:
        given = [" x ".join(terms.names[v] for v in key) for key in moments]
        ledger.note(
            "configurations for which continuous columns were summed up: "
            + "; ".join(found or "all rows" for found in given)
        )
    if terms.min_cell_count > 1:
        ledger.note(
            f"every party tells its counts in steps of {terms.min_cell_count}, rounded "
            "down; tables that overlap tell other counts within such a step"
        )
    if terms.min_cell_count > 1 and moments:
        ledger.note(
            "count, sums and products of continuous columns are told as they are, of "
            f"none or at least {terms.min_cell_count} rows of a party"
        )
