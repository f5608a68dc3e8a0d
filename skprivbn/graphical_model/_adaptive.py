"""Tables chosen in rounds: those that the model of earlier tables misses most.

One-way tables come first. Then, in every round, distances between the model so far and
the tables of many sets of columns are released with noise; the tables are chosen whose
distance exceeds most what their own noise would add; they are released, and the model
is fitted to all tables so far.

Distances and tables are integers that one person changes by a known amount, whatever
was released before: so all releases together are one noisy vector, with one noise.
This needs no curator, since both are sums over holders; and Gaussian noise is
calibrated by its exact delta. Releasing distances instead of the name of the largest
costs little, as tables are chosen by the dozen.

References
----------
R. McKenna, B. Mullins, D. Sheldon, G. Miklau (2022). AIM: an adaptive and iterative
mechanism for differentially private synthetic data. VLDB.
"""

from dataclasses import dataclass, field
from itertools import combinations
from math import comb, prod
from typing import Any, NamedTuple

import numpy as np

from skprivbn.graphical_model._counting import norms
from skprivbn.graphical_model._elimination import elimination_order
from skprivbn.graphical_model._estimation import empirical_bayes, refine
from skprivbn.graphical_model._layout import NoisyTables, TableLayout
from skprivbn.privacy import CountMechanism

# The numbers below started from a study on the eight columns of Adult that the
# benchmark reports, and were settled on samples of the networks child and insurance and
# on other columns of Adult (with `income`, which both have). Five rounds were tried on
# the benchmark's data, too, before they were settled.

#: rounds with a small budget, which many releases would leave nothing of, and otherwise
FEW_ROUNDS, MANY_ROUNDS = 3, 5
#: shares of the budget for one-way tables and for distances; other tables get the rest
ONE_WAY_SHARE, DISTANCE_SHARE = 0.1, 0.15
#: a table's distance competes after this share of the noise it would bring is taken off
PENALTY = 0.1
#: most distances of pairs (per column) and of triples in a round after the first
PAIRS_PER_COLUMN, MAX_TRIPLES = 5, 80
#: counts per record in tables of several columns; the others follow from the shares
TABLE_UNIT = 64
#: model probabilities are told as integers over this
PROBABILITY_UNIT = 2**20
#: what is compared, in records or shares of them, is rounded to so many digits: every
#: party chooses by itself, and the last bits of a model differ between processors
_SCORE_DIGITS, _SHARE_DIGITS = 3, 9


@dataclass(frozen=True)
class AdaptiveBudget:
    """One noise for all releases, whose counts are multiplied to share the budget.

    Parameters
    ----------
    epsilon, delta : float
        Guarantee of all releases together.
    n_columns : int
        Number of columns.
    per_record : int, default=1
        Most that one person adds to one table.
    n_changed : int, default=1
        Cells of a table in which neighbours differ: 2 if one record is exchanged for
        another. Half the distance of the table to a model changes by 1 either way.
    """

    epsilon: float
    delta: float
    n_columns: int
    per_record: int = 1
    n_changed: int = 1

    @property
    def n_rounds(self):
        """Rounds after the one-way tables."""
        if self.n_columns == 1:
            return 0
        exact = self.epsilon is None
        return MANY_ROUNDS if exact or self.epsilon >= 1 and self.delta else FEW_ROUNDS

    @property
    def n_tables(self):
        """Tables of each round."""
        return min(self.n_columns, comb(self.n_columns, 2))

    def n_pairs(self, number):
        """Pairs whose distances are told in a round."""
        pairs = comb(self.n_columns, 2)
        return pairs if number == 0 else min(pairs, PAIRS_PER_COLUMN * self.n_columns)

    def n_triples(self, number):
        """Triples whose distances are told in a round.

        None in the first, which finds out which columns depend on each other; and none
        under pure epsilon, where every distance costs as much as the first.
        """
        if number == 0 or self.delta == 0:
            return 0
        return min(comb(self.n_columns, 3), MAX_TRIPLES)

    def n_distances(self, number):
        """Distances that are told in a round."""
        return self.n_pairs(number) + self.n_triples(number)

    @property
    def _numbers(self):
        """How many cells of one column, distances, and other cells a person changes."""
        n_distances = sum(map(self.n_distances, range(self.n_rounds)))
        n_tables = self.n_rounds * self.n_tables
        return np.array(
            [self.n_changed * self.n_columns, n_distances, self.n_changed * n_tables]
        )

    @property
    def units(self):
        """Counts per record: in one-way tables, distances and other tables."""
        if self.n_rounds == 0:
            return (TABLE_UNIT,) * 3
        rest = 1 - ONE_WAY_SHARE - DISTANCE_SHARE
        shares = np.array([ONE_WAY_SHARE, DISTANCE_SHARE, rest])
        order = 1 if self.delta == 0 else 2
        relative = (shares / self._numbers) ** (1 / order)
        units = np.rint(TABLE_UNIT * relative / relative[-1])
        return tuple(int(unit) for unit in np.maximum(units, 1))

    @property
    def noise(self):
        """Noise of one curator."""
        changes = self.per_record * np.repeat(self.units, self._numbers)
        return CountMechanism.for_budget(self.epsilon, self.delta, *norms(changes))

    def part(self, noise, question):
        """Return the noise of one release, with what it costs.

        Parameters
        ----------
        noise : DistributedNoise
            Of all releases.
        question : Question

        Returns
        -------
        noise : DistributedNoise
        """
        which = ("one_way", "distances", "chosen").index(question.kind)
        n_changed = (
            self.n_changed * self.n_columns,
            self.n_distances(question.number),
            self.n_changed * self.n_tables,
        )[which]
        return noise.part(*norms([self.per_record * self.units[which]] * n_changed))


def distances(tables, expected):
    """Half the L1 distance of each table to the one that a model expects, rounded down.

    The model's table is scaled to the total of the counted one. Counts that one person
    adds, A in all, move a table by A away from the model at most and its scaled
    expectation by as much, and so half the distance by at most A.

    Parameters
    ----------
    tables : list of ndarray of int
        Counts.
    expected : list of ndarray of int
        Non-negative weights of the cells, of any sum.

    Returns
    -------
    distances : ndarray of int64 of shape (n_tables,)
    """
    found = np.zeros(len(tables), dtype=np.int64)
    for number, (table, weights) in enumerate(zip(tables, expected)):
        total, whole = int(table.sum()), max(int(weights.sum()), 1)
        if 4 * total * whole >= 2**63:  # Python's integers have no largest one
            table, weights = table.astype(object), weights.astype(object)
        gap = np.abs(table * whole - total * weights).sum()
        found[number] = int(gap) // (2 * whole)
    return found


@dataclass
class MeasuredTables:
    """Tables released so far; several releases of one table are added up.

    Parameters
    ----------
    sizes : sequence of int
        Number of states of each column.
    std : float
        Standard deviation of the noise on every released count.
    kind : {"laplace", "gaussian", "none"}
        Its distribution.
    record : int, default=1
        Counts per record before they are multiplied.
    """

    sizes: tuple
    std: float
    kind: str
    record: int = 1
    counts: dict = field(default_factory=dict)
    units: dict = field(default_factory=dict)

    def add(self, cliques, counts, unit):
        """Take note of a release.

        Weighted by the unit, which is inverse to the noise, sums of releases are the
        best estimate of the table.
        """
        tables = TableLayout(cliques, self.sizes).split(counts)
        for clique, table in zip(cliques, tables):
            self.counts[clique] = self.counts.get(clique, 0) + unit * table
            self.units[clique] = self.units.get(clique, 0) + unit**2 * self.record

    def tables(self, layout=None):
        """Return everything so far, in records."""
        layout = layout or TableLayout(list(self.counts), self.sizes)
        units = np.array([self.units[c] for c in layout.cliques])
        values = [self.counts[c] / u for c, u in zip(layout.cliques, units)]
        std = self.std / np.sqrt(units * self.record)
        return NoisyTables(layout, layout.flatten(values), std, self.kind)


def choose_tables(scores, n_tables, measured, sizes, max_states):
    """Choose the tables with the highest scores whose model stays small.

    Tables of one round share at most one column, as long as there are enough of them:
    what one of them tells of a pair, the other need not.

    Parameters
    ----------
    scores : dict of tuple of int to float
        Of the candidates.
    n_tables : int
        How many to choose, at most.
    measured : list of tuple of int
        Cliques of the model so far.
    sizes : sequence of int
        Number of states of each column.
    max_states : int
        Bound on the largest table of exact inference.

    Returns
    -------
    chosen : list of tuple of int
    """
    chosen = []
    ranked = sorted(scores, key=scores.get, reverse=True)
    for most_shared in (1, len(sizes)):
        for clique in ranked:
            if len(chosen) == n_tables:
                return chosen
            shared = [len(set(clique) & set(other)) for other in chosen]
            if clique in chosen or max(shared, default=0) > most_shared:
                continue
            model = [*measured, *chosen, clique]
            if elimination_order(model, sizes)[1] <= max_states:
                chosen.append(clique)
    return chosen


class Question(NamedTuple):
    """What is released next.

    Attributes
    ----------
    kind : {"one_way", "distances", "chosen"}
        Tables of all columns, distances of tables to a model, or tables.
    cliques : list of tuple of int
    expected : list of ndarray of int64, default=()
        For distances: what the model expects, in units.
    number : int, default=0
        Of the round.
    """

    kind: str
    cliques: list
    expected: Any = ()
    number: int = 0


def adaptive_rounds(
    sizes,
    budget,
    noise,
    max_states,
    *,
    record=1,
    rescale=False,
    workload=None,
    n_holders=1,
):
    """Ask for one-way tables, then in rounds for distances and chosen tables.

    What is asked next depends on the noisy answers alone.

    Parameters
    ----------
    sizes : sequence of int
        Number of states of each column.
    budget : AdaptiveBudget
    noise : CountMechanism or DistributedNoise or None
        What answers have.
    max_states : int
        Bound on the largest table of exact inference.
    record : int, default=1
        Counts per record.
    rescale : bool, default=False
        Whether tables lack different rows, and so differ in their totals.
    workload : dict of tuple of int to float, default=None
        Sets of columns whose tables matter, and how much. None: all the same.
    n_holders : int, default=1
        Whose distances are added up.

    Yields
    ------
    question : Question
        To be answered by noisy integers, in the units of the budget.

    Returns
    -------
    measured : MeasuredTables
    missed : dict of tuple of int to float
        Total variation between the model and tables when they were last looked at, as
        far as noise lets it be known: at least the noise's standard deviation.
    """
    std, kind = (0.0, "none") if noise is None else (noise.std, noise.kind)
    one_way, distance, table = budget.units
    measured = MeasuredTables(tuple(sizes), std, kind, record)
    missed, dependence = {}, {}
    singles = [(i,) for i in range(len(sizes))]
    measured.add(singles, (yield Question("one_way", singles)), one_way)
    tables = measured.tables()
    tables = tables.rescaled() if rescale else tables
    theta, prior_variance = empirical_bayes(tables), 1.0
    for number in range(budget.n_rounds):
        n_records, cell_std = tables.n_records(), std / (table * record)
        most_cells = _most_cells(n_records, cell_std, max_states)
        dependence = dependence or dict(missed)
        candidates = _most_missed(2, budget.n_pairs(number), missed, sizes, max_states)
        candidates += _most_missed(
            3, budget.n_triples(number), dependence, sizes, most_cells
        )
        candidates = [
            clique
            for clique in candidates
            if elimination_order([*tables.layout.cliques, clique], sizes)[1]
            <= max_states
        ]
        if not candidates:
            break
        model = tables.layout.query(theta, candidates, max_states)
        expected = [np.rint(p * PROBABILITY_UNIT).astype(np.int64) for p in model]
        told = yield Question("distances", candidates, expected, number)
        scores = {}
        for clique, p, half in zip(candidates, model, told / (distance * record)):
            chance = np.sqrt(2 / np.pi * n_records) * np.sqrt(np.maximum(p, 0)).sum()
            # each of several holders' tables is off by chance of its own
            several = (np.sqrt(n_holders) - 1) * chance
            gap = 2 * half - several - chance
            missed[clique] = float(np.clip((half - several / 2) / n_records, 0, 1))
            added = PENALTY * np.sqrt(2 / np.pi) * cell_std * p.size
            score = _weight(clique, workload) * (gap - added)
            scores[clique] = round(score, _SCORE_DIGITS)
        chosen = choose_tables(
            scores, budget.n_tables, tables.layout.cliques, sizes, max_states
        )
        measured.add(chosen, (yield Question("chosen", chosen, (), number)), table)
        known = dict(zip(tables.layout.cliques, tables.layout.split(theta)))
        tables = measured.tables()
        tables = tables.rescaled() if rescale else tables
        shapes = zip(tables.layout.cliques, tables.layout.shapes)
        theta = np.concatenate(
            [np.ravel(known.get(clique, np.zeros(shape))) for clique, shape in shapes]
        )
        if number + 1 < budget.n_rounds:
            # a prior variance that has collapsed would hold new potentials at zero
            theta, prior_variance, _ = refine(
                tables, theta, max(prior_variance, 0.05), 25
            )
    # a distance that was told as zero, or less, is not known to be zero
    known = std / (distance * record * tables.n_records())
    return measured, {clique: max(share, known) for clique, share in missed.items()}


def measure_adaptively(holders, *arguments, **options):
    """Ask holders whatever :func:`adaptive_rounds` asks.

    Parameters
    ----------
    holders : object
        ``one_way()``, ``distances(cliques, expected)`` and ``chosen(cliques)`` return
        noisy integers in the units of the budget; ``n_holders`` is their number.
    *arguments, **options
        Of :func:`adaptive_rounds`.

    Returns
    -------
    measured, missed :
        As of :func:`adaptive_rounds`.
    """
    rounds = adaptive_rounds(*arguments, n_holders=holders.n_holders, **options)
    answer = None
    while True:
        try:
            question = rounds.send(answer)
        except StopIteration as stop:
            return stop.value
        asked = {
            "one_way": (),
            "distances": (question.cliques, question.expected),
            "chosen": (question.cliques,),
        }[question.kind]
        answer = getattr(holders, question.kind)(*asked)


def _most_cells(n_records, cell_std, max_states):
    """Cells of the largest triple that could win, all its records being misplaced."""
    noise_per_cell = PENALTY * np.sqrt(2 / np.pi) * cell_std
    return min(max_states, 2 * n_records / max(noise_per_cell, 1e-9))


def _most_missed(order, n_sets, missed, sizes, most_cells):
    """Sets of columns whose pairs were missed most, without too large tables."""
    if n_sets == 0:
        return []
    sets = [
        columns
        for columns in combinations(range(len(sizes)), order)
        if prod(sizes[i] for i in columns) <= most_cells
    ]
    shares = {
        columns: sum(missed.get(pair, 0.0) for pair in combinations(columns, 2))
        for columns in sets
    }
    sets.sort(key=lambda columns: -round(shares[columns], _SHARE_DIGITS))
    return sets[:n_sets]


def _weight(clique, workload):
    if workload is None:
        return 1.0
    return sum(w * len(set(clique) & set(table)) for table, w in workload.items())
