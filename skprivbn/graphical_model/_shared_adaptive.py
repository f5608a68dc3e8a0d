"""Choosing tables in rounds when several holders share the rows and trust no curator.

Every holder counts its own rows, adds its share of the noise and hides the result: of
tables and of distances alike. Distances of a holder's tables to the model add up to
more than that of all rows, by what holders differ from each other: rows that are spread
unevenly look like dependence, which costs accuracy, never privacy.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from skprivbn.federation import Me, Noisy, PartyRefusal, program
from skprivbn.graphical_model._adaptive import (
    AdaptiveBudget,
    adaptive_rounds,
    distances,
)
from skprivbn.graphical_model._counting import resolve_cliques
from skprivbn.graphical_model._layout import TableLayout
from skprivbn.graphical_model._release import (
    MAX_CELLS,
    CountingTerms,
    row_counter,
)
from skprivbn.utils._memoise import memoise_steps


@dataclass(frozen=True)
class AdaptiveTerms(CountingTerms):
    """Terms of tables that are chosen in rounds.

    Parameters
    ----------
    max_states : int
        Bound on the largest table of the models that tables are compared with.
    workload : list of list of int
        Sets of columns whose tables matter; none if all do.
    workload_weights : list of float
        How much each of them matters.
    """

    max_states: int
    workload: list[list[int]]
    workload_weights: list[float]

    def check(self):
        """Refuse a workload of columns that are not there."""
        super().check()
        check_workload(self)

    def memory(self, n_features):
        """Return the largest table of a model."""
        return 0, sum(self.sizes) + self.max_states

    @property
    def budget(self):
        """How the noise is shared by all releases."""
        per_record = self.contribution.per_clique
        return AdaptiveBudget(self.epsilon, self.delta, len(self.nodes), per_record)

    def mechanism(self):
        """Return the noise that one curator would add."""
        return self.budget.noise


def check_workload(terms):
    """Refuse a workload of columns that are not there.

    Parameters
    ----------
    terms : AdaptiveTerms or ColumnTablesTerms
    """
    if terms.workload:
        resolve_cliques(terms.workload, terms.nodes)
    if len(terms.workload) != len(terms.workload_weights):
        raise ValueError("workload_weights: one for each set of columns")
    if not all(0 <= weight < np.inf for weight in terms.workload_weights):
        raise ValueError("workload_weights: finite and not negative")
    if terms.max_states < 1:
        raise ValueError("max_states: at least 1")


@program(AdaptiveTerms)
def adaptive_tables(me: Me) -> Generator[Any, Any, dict]:
    """One-way tables; then, in rounds, distances to a model and the tables it misses.

    Whatever is asked next, a person changes as many numbers by as much.
    """
    terms, budget, count = me.terms, me.terms.budget, row_counter(me)
    noise = terms.noise(len(terms.nodes), len(me.roster))
    rounds, answer = shared_rounds(terms, len(me.roster), len(me.roster)), None
    while True:
        try:
            question = rounds.send(answer)
        except StopIteration as stop:
            return stop.value
        layout = TableLayout(question.cliques, terms.sizes)
        if layout.n_parameters > MAX_CELLS:
            raise PartyRefusal("too-large")
        counts, part = count(layout), budget.part(noise, question)
        one_way, distance, table = budget.units
        if question.kind == "one_way":
            answer = yield Noisy(
                one_way * counts, part, "contingency tables of all columns, with noise"
            )
        elif question.kind == "distances":
            told = distances(layout.split(counts), question.expected)
            answer = yield Noisy(
                distance * told, part, "distances of tables to a model's, with noise"
            )
        else:
            answer = yield Noisy(
                table * counts, part, "tables that the model misses, with noise"
            )


@memoise_steps
def shared_rounds(terms, n_parties, n_holders):
    """Ask as :func:`adaptive_rounds` does; return what it found as plain data.

    Parameters
    ----------
    terms : AdaptiveTerms or ColumnTablesTerms
    n_parties : int
        Who add noise.
    n_holders : int
        Whose distances are added up.
    """
    noise = terms.noise(len(terms.nodes), n_parties)
    workload = dict(zip(map(tuple, terms.workload), terms.workload_weights))
    measured, missed = yield from adaptive_rounds(
        terms.sizes,
        terms.budget,
        noise,
        terms.max_states,
        record=terms.contribution.unit,
        rescale=terms.missing == "skip",
        workload=workload or None,
        n_holders=n_holders,
    )
    return {
        "cliques": [list(clique) for clique in measured.counts],
        "counts": [np.asarray(table) for table in measured.counts.values()],
        "units": list(measured.units.values()),
        "missed": [[*clique] for clique in missed],
        "shares": list(missed.values()),
    }
