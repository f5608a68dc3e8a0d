"""Tables chosen in rounds: those that the model of earlier tables misses most.

One-way tables come first. Then, in every round, distances between the model so far and
the tables of many sets of columns are released with noise; the tables are chosen whose
distance exceeds most what their own noise would add; they are released, and the model
is fitted to all tables so far.

Distances and tables are integers that one person changes by a known amount, whatever
was released before: so all releases together are one noisy vector, with one noise.
This needs no curator, since both are sums over holders; and Gaussian noise is
calibrated by its exact delta. Releasing distances instead of the name of the largest
costs little, as tables are chosen by the dozen. Distances of several holders' tables
add up to more than that of all rows, by what holders differ from each other: rows that
are spread unevenly look like dependence, which costs accuracy, never privacy.

References
----------
R. McKenna, B. Mullins, D. Sheldon, G. Miklau (2022). AIM: an adaptive and iterative
mechanism for differentially private synthetic data. VLDB.
"""

from dataclasses import dataclass, field
from itertools import combinations
from math import comb, prod

import numpy as np

from skprivbn.graphical_model._elimination import elimination_order
from skprivbn.graphical_model._estimation import empirical_bayes, refine
from skprivbn.graphical_model._searches import (
    Question,
    Released,
    TableSearch,
    spread_of,
)
from skprivbn.graphical_model._tables import NoisyTables, TableLayout
from skprivbn.privacy._noise_report import noisy_number

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
#: with few rounds, triples are looked at if noise on a distance is at most this share
#: of the records; settled on `fair`, and on 3,000 rows of Adult and randhie
MAX_DISTANCE_NOISE = 0.1
#: counts per record in tables of several columns; the others follow from the shares
TABLE_UNIT = 64
#: model probabilities are told as integers over this
PROBABILITY_UNIT = 2**20
#: what is compared, in records or shares of them, is rounded to so many digits: every
#: party chooses by itself, and the last bits of a model differ between processors
_SCORE_DIGITS, _SHARE_DIGITS = 3, 9


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


def choose_tables(scores, n_tables, measured, sizes, max_model_cells):
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
    max_model_cells : int
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
            if elimination_order(model, sizes)[1] <= max_model_cells:
                chosen.append(clique)
    return chosen


class AdaptiveSearch(TableSearch):
    """One-way tables, then rounds of tables that the model so far misses most."""

    what = "one-way tables, distances to a model and chosen tables, in rounds"

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
    def changes(self):
        """By how much one person changes each of the numbers that it changes."""
        return self.per_record * np.repeat(self.units, self._numbers)

    def check(self, sizes, make_layout, max_cells):
        """Raise what can be raised before budget is spent."""
        make_layout([(i,) for i in range(len(sizes))])

    @property
    def _order(self):
        """Order of the norm that noise is calibrated to."""
        return 1 if self.delta == 0 else 2

    @property
    def units(self):
        """Counts per record: in one-way tables, distances and other tables."""
        if self.n_rounds == 0:
            return (TABLE_UNIT,) * 3
        rest = 1 - ONE_WAY_SHARE - DISTANCE_SHARE
        shares = np.array([ONE_WAY_SHARE, DISTANCE_SHARE, rest])
        relative = (shares / self._numbers) ** (1 / self._order)
        units = np.rint(TABLE_UNIT * relative / relative[-1])
        return tuple(int(unit) for unit in np.maximum(units, 1))

    def cell_std(self, noise):
        """Return the standard deviation of noise on cells of chosen tables."""
        return noise.std / (self.units[-1] * self.record)

    def _tables(self, which, cliques, n_tables):
        unit = self.units[which]
        changes = [self.per_record * unit] * (self.n_changed * n_tables)
        return Question(cliques, unit, changes)

    def one_way(self, cliques):
        """Ask for tables of all columns."""
        return self._tables(0, cliques, self.n_columns)

    def chosen(self, cliques):
        """Ask for the tables of a round."""
        return self._tables(2, cliques, self.n_tables)

    def distances(self, cliques, expected, number):
        """Ask for distances of tables to those that a model expects, in a round.

        Fewer than the budget is for have less noise.
        """
        planned, asked = self.n_distances(number), len(cliques)
        unit = int(self.units[1] * (planned / asked) ** (1 / self._order))
        return Question(cliques, unit, [self.per_record * unit] * asked, expected)

    def asking(self, sizes, noise, n_holders=1):
        """Ask for one-way tables, then in rounds for distances and chosen tables.

        Shares of records by which the model missed tables, when they were last looked
        at, are told as far as noise lets them be known: at least its deviation.
        """
        (std, kind), record = spread_of(noise), self.record
        one_way, distance, table = self.units
        measured = MeasuredTables(tuple(sizes), std, kind, record)
        max_cells = self.max_model_cells
        missed, dependence = {}, {}
        singles = [(i,) for i in range(len(sizes))]
        measured.add(singles, (yield self.one_way(singles)), one_way)
        tables = measured.tables()
        tables = tables.rescaled() if self.rescale else tables
        theta, prior_variance = empirical_bayes(tables), 1.0
        for number in range(self.n_rounds):
            n_records, cell_std = tables.n_records(), std / (table * record)
            most_cells = _most_cells(n_records, cell_std, max_cells)
            dependence = dependence or dict(missed)
            candidates = _most_missed(2, self.n_pairs(number), missed, sizes, max_cells)
            noise_share = std / (distance * record * n_records)
            drowned = noise_share > MAX_DISTANCE_NOISE and self.n_rounds == FEW_ROUNDS
            n_triples = 0 if drowned else self.n_triples(number)
            candidates += _most_missed(3, n_triples, dependence, sizes, most_cells)
            candidates = [
                clique
                for clique in candidates
                if elimination_order([*tables.layout.cliques, clique], sizes)[1]
                <= max_cells
            ]
            if not candidates:
                break
            model = tables.layout.query(theta, candidates, max_cells)
            expected = [np.rint(p * PROBABILITY_UNIT).astype(np.int64) for p in model]
            question = self.distances(candidates, expected, number)
            told = (yield question) / (question.unit * record)
            scores = {}
            for clique, p, half in zip(candidates, model, told):
                chance = np.sqrt(np.maximum(p, 0)).sum()
                chance *= np.sqrt(2 / np.pi * n_records)
                # each of several holders' tables is off by chance of its own
                several = (np.sqrt(n_holders) - 1) * chance
                gap = 2 * half - several - chance
                missed[clique] = float(np.clip((half - several / 2) / n_records, 0, 1))
                added = PENALTY * np.sqrt(2 / np.pi) * cell_std * p.size
                score = _weight(clique, self.workload) * (gap - added)
                scores[clique] = round(score, _SCORE_DIGITS)
            chosen = choose_tables(
                scores, self.n_tables, tables.layout.cliques, sizes, max_cells
            )
            measured.add(chosen, (yield self.chosen(chosen)), table)
            tables = measured.tables()
            tables = tables.rescaled() if self.rescale else tables
            # new tables come after those before
            theta = np.pad(theta, (0, tables.layout.n_parameters - len(theta)))
            if number + 1 < self.n_rounds:
                # a prior variance that has collapsed would hold new potentials at zero
                theta, prior_variance, _ = refine(
                    tables, theta, max(prior_variance, 0.05), 25
                )
        # a distance that was told as zero, or less, is not known to be zero
        known = std / (distance * record * tables.n_records())
        missed = {clique: max(share, known) for clique, share in missed.items()}
        return {
            "cliques": [list(clique) for clique in measured.counts],
            "counts": [np.asarray(table) for table in measured.counts.values()],
            "units": list(measured.units.values()),
            "missed": [list(clique) for clique in missed],
            "shares": list(missed.values()),
        }

    def read(self, found, answers, noise, make_layout):
        """Return what was released."""
        cliques = [tuple(clique) for clique in found["cliques"]]
        layout, missed = make_layout(cliques), map(tuple, found["missed"])
        counts, units = (dict(zip(cliques, found[k])) for k in ("counts", "units"))
        measured = MeasuredTables(
            layout.sizes, *spread_of(noise), self.record, counts, units
        )
        tables, shares, choice = measured.tables(layout), found["shares"], None
        if shares:
            choice = noisy_number(
                "largest distance of a table to the model",
                max(shares) * tables.n_records(),
                measured.std / (self.units[1] * self.record),
            )
        return Released(
            tables,
            layout.flatten(found["counts"]),
            np.array(found["units"]),
            {c: s for c, s in zip(missed, shares) if c not in counts},
            choice,
        )


def _most_cells(n_records, cell_std, max_cells):
    """Cells of the largest triple that could win, all its records being misplaced."""
    noise_per_cell = PENALTY * np.sqrt(2 / np.pi) * cell_std
    return min(max_cells, 2 * n_records / max(noise_per_cell, 1e-9))


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
