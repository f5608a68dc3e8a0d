"""Networks of sites that differ: one mechanism for all sites, or one for each.

A mechanism is how a node depends on its parents: its table, or coefficients, level and
spread of the noise. Every site fits each candidate to its own rows. The parties add up
the log-likelihoods, and compare them with those of one mechanism for all, which follow
from pooled tables or moments. Discrete families are asked for by a search, as tables
are; Gaussian ones are few, and added up at once. The graph is told, beside p values,
and log-likelihoods are not.
"""

from abc import abstractmethod
from collections.abc import Generator
from functools import lru_cache, partial
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
from scipy.stats import chi2

from skprivbn.federation import Me, RowWeights, Sum
from skprivbn.federation._rows import sum_over_rows
from skprivbn.structure._scores import FRACTION_BITS
from skprivbn.structure._search import LocalScores, PairedScores, climbing, complete
from skprivbn.structure._tables import Asked
from skprivbn.structure.gaussian._search import exact_graph, scores_within
from skprivbn.utils._linalg import correlation_of
from skprivbn.utils._memoise import memoise

#: rows that a site needs for each number of its largest mechanism
ROWS_PER_NUMBER = 3
#: of a variable, so that there are few families to compare
MAX_PARENTS = 3
#: variables of which all graphs are compared
MAX_EXACT = 14
#: variance of a residual below which a column is taken to follow from its parents
_LEAST = 1e-12
#: numbers that are worked on at a time
_CHUNK = 1 << 20
#: fractional bits of scores of mechanisms, which are sums of floats
_MECHANISM_BITS = 10


class MechanismScores(LocalScores):
    """BIC of families with one mechanism for all sites, or one for each.

    The better of both is the score of a family. It tells directions that observations
    alone do not: of two causal directions, the right one is that in which fewer
    mechanisms differ.

    Parameters
    ----------
    n_variables : int
    n_rows : float
        Of all sites.
    n_sites : int
    """

    def __init__(self, n_variables, n_rows, n_sites):
        self.n_variables, self.n_rows, self.n_sites = n_variables, n_rows, n_sites

    @abstractmethod
    def likelihoods(self, child, parents, *beside):
        """Return the log-likelihoods of one mechanism and of many, and their size.

        Parameters
        ----------
        child : int
        parents : sequence of int
        *beside
            Of subclasses.

        Returns
        -------
        common : float
            Of one mechanism for all sites.
        own : float
            Of one for each, all sites together.
        n_numbers : int
            That a mechanism has.
        """

    def _both(self, child, parents, *beside):
        """Return the BIC of one mechanism for all, and that of one for each."""
        common, own, n_numbers = self.likelihoods(child, parents, *beside)
        cost = n_numbers / 2 * np.log(self.n_rows)
        return common - cost, own - self.n_sites * cost

    def score(self, child, parents, *beside):
        """Return the better BIC, as an integer: ties are ties on every processor."""
        best = max(self._both(child, parents, *beside))
        return round(best * (1 << _MECHANISM_BITS)) << FRACTION_BITS - _MECHANISM_BITS

    def changes(self, adjacency):
        """Tell which mechanisms differ between sites.

        Parameters
        ----------
        adjacency : ndarray of bool of shape (n_variables, n_variables)

        Returns
        -------
        differs : ndarray of bool of shape (n_variables,)
            Where one for each site has the better BIC.
        p_values : ndarray of shape (n_variables,)
            Of the likelihood-ratio test of one mechanism for all sites.
        """
        differs, p_values = [], []
        for child in range(self.n_variables):
            parents = np.flatnonzero(adjacency[:, child]).tolist()
            one, each = self._both(child, parents)
            differs.append(each > one)
            common, own, n_numbers = self.likelihoods(child, parents)
            freedom = (self.n_sites - 1) * n_numbers
            p_values.append(chi2.sf(2 * (own - common), freedom))
        return np.array(differs), np.array(p_values)


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


def comparing_mechanisms(me: Me, pooled: dict) -> Generator[Any, Any, dict]:
    """Add log-likelihoods of the sites' own mechanisms; search: a part of programs.

    Parameters
    ----------
    me : Me
        With `max_parents` and rules about edges in its terms.
    pooled : dict
        `n_rows`, `mean` and `covariance` of the rows of all sites.

    Returns
    -------
    found : dict
        The `graph`, which mechanisms differ (`differs`), and `p_values`.
    """
    rows = me.numbers()
    known = families(len(pooled["mean"]), me.terms.max_parents)
    # in units of the pooled spread, so that no digits are lost
    scale = np.sqrt(np.diag(pooled["covariance"]))
    mean = sum_over_rows(rows, lambda X: X.sum(axis=0)) / len(rows)
    about = sum_over_rows(rows, lambda X: _products((X - mean) / scale)) / len(rows)
    lines = regressions(about, known)

    def weigh():
        sums = sum_over_rows(
            rows, lambda X: _weigh_residuals((X - mean) / scale, known, lines)
        )
        return RowWeights(*sums)

    own = log_likelihoods(lines, len(rows))
    total = yield Sum(own, "log-likelihoods of mechanisms at each site", weigh)
    found = _best(me.terms, pooled, total, len(me.roster))
    return dict(zip(("graph", "differs", "p_values"), found))


def _products(Z):
    return Z.T @ Z


@memoise
def _best(terms, pooled, own, n_sites):
    """Return the best graph, which mechanisms differ between sites, and p values."""
    scores = GaussianMechanisms(pooled, own, n_sites, terms.max_parents)
    graph = scores.best_graph(terms.rules(scores.n_variables, scores.max_parents))
    return graph, *scores.changes(graph)


@lru_cache(maxsize=8)
def families(n_variables: int, max_parents: int) -> list[np.ndarray]:
    """Return all families, by numbers of parents.

    Parameters
    ----------
    n_variables, max_parents : int

    Returns
    -------
    families : list of ndarray of int of shape (n_families, 1 + n_parents)
        The child first.
    """
    found = []
    for size in range(min(max_parents, n_variables - 1) + 1):
        rows = [
            (child, *parents)
            for child in range(n_variables)
            for parents in combinations(
                [v for v in range(n_variables) if v != child], size
            )
        ]
        found.append(np.array(rows).reshape(-1, 1 + size))
    return found


def regressions(
    covariance: np.ndarray, families: list[np.ndarray]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Regress the child of each family on its parents.

    Parameters
    ----------
    covariance : ndarray of shape (n_variables, n_variables)
    families : list of ndarray of int
        As of :func:`families`.

    Returns
    -------
    lines : list of (ndarray of shape (n_families, n_parents), ndarray)
        Slopes and residual variances, by numbers of parents.
    """
    found = []
    for of_size in families:
        child, parents = of_size[:, 0], of_size[:, 1:]
        gram = covariance[parents[:, :, None], parents[:, None, :]]
        across = covariance[parents, child[:, None]]
        # columns that repeat each other share what they explain
        inverse = np.linalg.pinv(gram, rcond=1e-10, hermitian=True)
        slopes = np.einsum("fij,fj->fi", inverse, across)
        residual = covariance[child, child] - np.sum(across * slopes, axis=1)
        found.append((slopes, residual))
    return found


def log_likelihoods(lines: list, n_rows: float) -> np.ndarray:
    """Return what the rows say for each family, up to a constant.

    Parameters
    ----------
    lines : list
        As of :func:`regressions`.
    n_rows : float

    Returns
    -------
    log_likelihoods : ndarray of shape (n_families,)
        0 for a residual variance of one.
    """
    variances = np.concatenate([variance for _, variance in lines])
    # a column that is constant at a site says no more than any number of digits
    return -n_rows / 2 * np.log(np.maximum(variances, _LEAST))


def _weigh_residuals(Z, families, lines):
    """Return sums of squared residuals of each family in units, and of their squares.

    A row counts in a log-likelihood as much as its squared residual in that of all:
    where a column repeats another but for one row, that row is all of it.
    """
    found = []
    for of_size, (slopes, variances) in zip(families, lines):
        child, parents = of_size[:, 0], of_size[:, 1:]
        sums, step = np.zeros((2, len(of_size))), max(_CHUNK // max(parents.size, 1), 1)
        units = np.where(variances > _LEAST, variances, np.inf)
        for start in range(0, len(Z), step):
            rows = Z[start : start + step]
            explained = np.einsum("nfp,fp->nf", rows[:, parents], slopes)
            weights = (rows[:, child] - explained) ** 2 / units
            sums += [weights.sum(axis=0), np.einsum("nf,nf->f", weights, weights)]
        found.append(sums)
    return np.hstack(found)


class GaussianMechanisms(MechanismScores):
    """BIC of linear Gaussian families with one mechanism for all sites, or one each.

    Parameters
    ----------
    pooled : dict
        `n_rows`, `mean` and `covariance` of the rows of all sites.
    own : ndarray of shape (n_families,)
        Sums over sites of the log-likelihoods of their own mechanisms.
    n_sites : int
    max_parents : int
    """

    def __init__(self, pooled, own, n_sites, max_parents):
        correlation = correlation_of(pooled["covariance"])
        super().__init__(len(correlation), pooled["n_rows"][0], n_sites)
        known = families(self.n_variables, max_parents)
        self.max_parents = len(known) - 1
        common = log_likelihoods(regressions(correlation, known), self.n_rows)
        names = [tuple(family) for of_size in known for family in of_size.tolist()]
        self._known = dict(zip(names, zip(common.tolist(), own.tolist())))

    def likelihoods(self, child, parents):
        """Return both log-likelihoods, and how many numbers a mechanism has."""
        return *self._known[(child, *sorted(parents))], len(parents) + 2

    def fits(self, child, parents):
        """Tell which further parents leave a family that was compared."""
        return np.full(self.n_variables, len(parents) < self.max_parents)

    def best_graph(self, rules):
        """Return the graph with the highest score; of many variables, a high one.

        Parameters
        ----------
        rules : EdgeRules

        Returns
        -------
        adjacency : ndarray of bool of shape (n_variables, n_variables)
        """
        if self.n_variables <= MAX_EXACT:
            scores = partial(scores_within, self._of_subsets, rules)
            return exact_graph(scores, self.n_variables)[0]
        return complete(climbing(self, rules=rules, tabu_length=self.n_variables))[0]

    def _of_subsets(self, child):
        found = np.full(2**self.n_variables, -np.inf)
        for node, *parents in self._known:
            if node == child:
                subset = sum(1 << parent for parent in parents)
                found[subset] = self.score(child, parents)
        return found
