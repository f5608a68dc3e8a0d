"""Discrete networks of sites that differ: one table for all sites, or one for each.

Of every set of columns that a search asks for, each site knows the log-likelihoods of
its own tables. The parties add these up beside the tables, and read both.
"""

from math import prod

import numpy as np

from skprivbn.federation import RowWeights
from skprivbn.structure._scores import MechanismScores
from skprivbn.structure._search import PairedScores
from skprivbn.structure._tables import Asked


def families_within(variables):
    """Return every variable given all others, and given all others but one.

    Parameters
    ----------
    variables : sequence of int

    Returns
    -------
    families : list of (int, tuple of int)
    """
    found = []
    for child in variables:
        rest = tuple(v for v in variables if v != child)
        found.append((child, rest))
        found += [(child, tuple(u for u in rest if u != v)) for v in rest]
    return found


def log_likelihood(table, variables, child, parents):
    """Return how likely counts are under their own probabilities.

    Parameters
    ----------
    table : ndarray of int
        One axis for each of the variables.
    variables : sequence of int
    child : int
    parents : sequence of int

    Returns
    -------
    total, squares : float
        Sums over rows of the log-probability of the child, and of its square.
    """
    beside = [i for i, v in enumerate(variables) if v not in (child, *parents)]
    counts = table.sum(axis=tuple(beside), keepdims=True, dtype=float)
    given = counts.sum(axis=list(variables).index(child), keepdims=True)
    logs = np.log(np.where(counts > 0, counts / np.maximum(given, 1.0), 1.0))
    return np.sum(counts * logs), np.sum(counts * logs**2)


def own_likelihoods(count, n_states, asked):
    """Return log-likelihoods of own tables, and how much rows count in them.

    A row counts as much as its own share: where columns follow from each other but for
    one row, that row is nearly all of a log-likelihood.

    Parameters
    ----------
    count : callable
        From sets of variables to their tables, in a row.
    n_states : sequence of int
    asked : list of tuple of int

    Returns
    -------
    numbers : ndarray
    weights : RowWeights
    """
    found = []
    for variables in asked:
        table = count([variables]).reshape([n_states[v] for v in variables])
        families = families_within(variables)
        found += [log_likelihood(table, variables, *family) for family in families]
    totals, squares = np.array(found).T
    return totals, RowWeights(-totals, squares)


class AskedLikelihoods(Asked):
    """Sums over sites of the log-likelihoods of their own tables."""

    kind = "likelihoods"

    def n_numbers(self, variables):
        """Return how many families there are within a set of variables."""
        return len(variables) ** 2

    def asking(self, wanted):
        """Ask for what is not known, by sets in ascending order."""
        return super().asking(tuple(sorted(variables)) for variables in wanted)

    def _keep(self, variables, numbers):
        known = zip(families_within(variables), numbers.tolist())
        self._kept[variables] = dict(known)


class TableMechanisms(PairedScores, MechanismScores):
    """BIC of discrete families with one table for all sites, or one for each.

    Gains are compared on the same table, in case that small cells were left out, or
    rows with gaps.

    Parameters
    ----------
    tables : AskedTables
        Of the rows of all sites.
    n_rows : float
    n_sites : int
    """

    #: a sum over sites has other last digits than one over margins
    tolerance = 1 << 17

    def __init__(self, tables, n_rows, n_sites):
        super().__init__(len(tables.n_states), n_rows, n_sites)
        self.tables, self.own = tables, AskedLikelihoods(tables.n_states)

    def fits(self, child, parents):
        """Tell which further parents leave a table that is not too large."""
        return self.tables.fits([child, *parents])

    def asking(self, asked):
        """Ask for tables, then for the likelihoods of those of each site."""
        wanted = [
            (child, *parents, *more)
            for child, parents, found in asked
            for more in (*((v,) for v in found), ())
        ]
        yield from self.tables.asking(wanted)
        yield from self.own.asking(wanted)

    def likelihoods(self, child, parents, beside=()):
        """Return both log-likelihoods, and how many numbers a mechanism has.

        Those of a smaller family within the table that has another variable, too.
        """
        variables = tuple(sorted((child, *parents, *beside)))
        common, _ = log_likelihood(self.tables(variables), variables, child, parents)
        own = self.own(variables)[child, tuple(sorted(parents))]
        n_states = self.tables.n_states
        return common, own, prod(n_states[v] for v in parents) * (n_states[child] - 1)

    def worth(self, child, parents, v):
        """Return what one more parent gains, compared on the same rows."""
        return self.score(child, [*parents, v]) - self.score(child, parents, [v])
