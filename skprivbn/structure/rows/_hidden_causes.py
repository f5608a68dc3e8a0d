"""Hidden causes of discrete and continuous columns: FCI by likelihood-ratio tests.

Parties may have different columns. Those with the same ones are a group, of several
parties: whatever is subtracted from whatever is then a sum over whole groups.
"""

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import xlogy
from scipy.stats import chi2

from skprivbn.federation import Me, converse, program
from skprivbn.programs._columns import tell_all
from skprivbn.structure._edge_rules import EdgeRules
from skprivbn.structure._fci import IndependenceTests, finding_pag
from skprivbn.structure._resampling import Resampled, share_of_marks
from skprivbn.structure.rows._mixed import AskedMoments
from skprivbn.structure.rows._program import RowNetworkTerms, own_columns, reading_rows
from skprivbn.structure.rows._search import tables_for
from skprivbn.utils._memoise import asking_others, memoise_steps


@dataclass(frozen=True)
class IndependenceTerms(RowNetworkTerms):
    """What tests of independence are made of.

    Parameters
    ----------
    significance : float
        Level, up to which p values speak against independence.
    min_parties : int
        Fewest parties that have the same columns, where not all have all.
    max_parents : int
        Most columns that a test is given.
    names, states, continuous, min_cell_count, missing, known, allowed, required, \
            ordering, n_bootstrap, seed :
        As of :class:`~skprivbn.structure.rows._program.RowNetworkTerms`.
    """

    significance: float = 0.01
    min_parties: int = 2

    def _check_graphs(self, n_columns):
        if not 0 < self.significance < 1 or self.missing == "em" or self.known:
            raise ValueError("significance, missing, known: not those of tests")
        EdgeRules(self.allowed, self.required, n_columns).check(self.names)


@program(IndependenceTerms)
def pag_of_rows(me: Me) -> Generator[Any, Any, dict]:
    """Which columns parties have, labels and sizes; sums that tests need."""
    held, sizes = [list(range(len(me.terms.names)))], [len(me.roster)]
    if me.terms.missing == "skip":
        mine = tell_all(me, own_columns(me))
        told = yield from converse(mine, "which columns a party has", "public")
        groups = Counter(map(tuple, told.values()))
        if len(groups) > 1 and min(groups.values()) < me.terms.min_parties:
            return {"problem": _small_group(groups, me.terms)}
        held, sizes = sorted(map(list, groups)), sorted(groups.values())
    rows, problem = yield from reading_rows(me)
    if rows is None:
        return {"problem": problem}
    steps = _learning(me.terms, tuple(rows.n_states), rows.max_cells, held)
    found = yield from asking_others(steps, rows.answering)
    return found | {"n_samples": rows.n_samples, "groups": sizes}


def _small_group(groups, terms):
    few = min(groups, key=lambda columns: (groups[columns], columns))
    names = ", ".join(terms.names[v] for v in few)
    return (
        f"only {groups[few]} of all parties have the columns {names} and no others: at "
        f"least {terms.min_parties} must, as sums with and without them would tell "
        "theirs; leave out a column, or let the party give fewer"
    )


@memoise_steps
def _learning(terms, n_states, max_cells, held):
    """Ask for the sums of tests, and find a partial ancestral graph."""
    tables = tables_for(terms, n_states, max_cells)
    moments = AskedMoments(n_states, len(terms.continuous))
    tests = LikelihoodRatioTests(
        tables, moments, terms.continuous, terms.significance, held
    )
    rules = EdgeRules(terms.allowed, terms.required, len(n_states))
    options = len(n_states), terms.max_parents, rules
    marks, untested = yield from finding_pag(tests, *options)
    found = {
        "marks": marks,
        "untested": np.argwhere(np.triu(untested)),
        "tables": tables.runs,
        "moments": [list(key) for key in moments.asked],
    }
    rng, drawn = np.random.default_rng(terms.seed), []
    for _ in range(terms.n_bootstrap):
        again = yield from finding_pag(tests.resampled(rng), *options)
        drawn.append(again[0])
    if drawn:
        found["mark_confidence"] = share_of_marks(drawn)
    return found


class LikelihoodRatioTests(IndependenceTests):
    """Tests of independence of discrete and continuous columns.

    Continuous columns are taken to be normal, with a mean and a covariance for every
    configuration of the discrete ones. Of discrete columns alone this is G-squared, of
    continuous ones alone the likelihood-ratio test of a partial correlation.

    Parameters
    ----------
    tables : AskedTables
    moments : AskedMoments
    continuous : sequence of int
    significance : float
    held : list of list of int
        Columns of each group of parties.

    References
    ----------
    Andrews, Ramsey, Cooper. Scoring Bayesian networks of mixed variables.
    International Journal of Data Science and Analytics 6, 2018.
    """

    def __init__(self, tables, moments, continuous, significance, held):
        self.tables, self.moments = tables, moments
        self.place = {v: j for j, v in enumerate(continuous)}
        self.significance, self.held = significance, [set(group) for group in held]

    def resampled(self, rng):
        """Return the tests of one bootstrap sample."""
        tables, moments = (Resampled(s, rng) for s in (self.tables, self.moments))
        options = list(self.place), self.significance, self.held
        return LikelihoodRatioTests(tables, moments, *options)

    def _discrete(self, *columns):
        return [v for v in columns if v not in self.place]

    def is_possible(self, columns):
        """Tell whether some parties have all columns, and the table is not too large.

        Rows count in moments if they have all numbers.
        """
        discrete = self._discrete(*columns)
        needed = {*columns, *(self.place if len(discrete) < len(columns) else ())}
        fits = self.tables.n_numbers(discrete) <= self.tables.max_cells
        return fits and any(needed <= group for group in self.held)

    def asking(self, tests):
        """Ask for tables, and for moments by configurations of discrete columns."""
        sets = [(*given, x, y) for x, y, given in tests]
        sets = [columns for columns in sets if self.is_possible(columns)]
        discrete = [self._discrete(*columns) for columns in sets]
        pure = [len(d) == len(c) for d, c in zip(discrete, sets)]
        yield from self.tables.asking(tuple(d) for d, p in zip(discrete, pure) if p)
        mixed = {tuple(sorted(d)) for d, p in zip(discrete, pure) if not p}
        yield from self.moments.asking(sorted(mixed))

    def answer(self, x, y, given):
        """Tell whether columns are independent given others; None if no test does."""
        if not self.is_possible((x, y, *given)):
            return None
        return bool(self.p_value(x, y, given) > self.significance)

    def p_value(self, x, y, given):
        """Return the p value of the likelihood ratio."""
        discrete = sorted(self._discrete(x, y, *given))
        numbers = [self.place[v] for v in given if v in self.place]
        if x in self.place or y in self.place or numbers:
            sums = self.moments(discrete)
        else:
            sums = np.asarray(self.tables(discrete), dtype=float)[..., None, None]
        # whole tables, and those without y, x, and both
        parts, sizes, gain = [], [], 0.0
        for sign, dropped in ((1, ()), (-1, (y,)), (-1, (x,)), (1, (x, y))):
            axes = tuple(discrete.index(v) for v in dropped if v not in self.place)
            part = sums.sum(axis=axes, keepdims=True)
            kept = {x, y} & self.place.keys() - {*dropped}
            chosen = [*numbers, *sorted(self.place[v] for v in kept)]
            gain += sign * _log_likelihood(part, chosen)
            p = len(chosen)
            parts.append(part[..., 0, 0] > 0)
            sizes.append(sign * (1 + p + p * (p + 1) / 2))
        # cells of the whole table that could have rows, given those of the margins
        parts[0] = parts[1] & parts[2]
        freedom = sum(size * part.sum() for size, part in zip(sizes, parts))
        if freedom <= 0:  # too few rows say nothing against independence
            return 1.0
        return chi2.sf(2 * gain, freedom)


def _log_likelihood(sums, numbers):
    """Return the log-likelihood of rows, but for what differences do not have."""
    counts = sums[..., 0, 0]
    total = np.sum(xlogy(counts, counts))
    if not numbers:
        return total
    chosen = [1 + j for j in numbers]
    n = np.maximum(counts, 1.0)[..., None, None]
    mean = sums[..., 0, chosen][..., None, :] / n
    within = sums[..., chosen, :][..., chosen] - n * mean.swapaxes(-1, -2) * mean
    # one more row like those of all configurations, so that few rows have a spread
    overall = within.sum(axis=tuple(range(counts.ndim))) / max(counts.sum(), 1.0)
    spread = (within + overall) / (counts + 1.0)[..., None, None]
    return total - 0.5 * np.sum(counts * np.linalg.slogdet(spread)[1])
