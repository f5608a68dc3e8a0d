"""Networks of sites that differ: mechanisms of their own, or one for all.

A mechanism is how a node depends on its parents: coefficients, level and spread of the
noise. Every site fits each candidate to its own rows, and only the sums of the
log-likelihoods over sites are told, beside those of one mechanism for all, which
follow from pooled moments. The better of both, by BIC, is the score of a family. It
tells directions that observations alone do not: of two causal directions, the right
one is that in which fewer mechanisms differ.
"""

from collections.abc import Generator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from scipy.stats import chi2

from skprivbn.federation import ALL_ROWS, Me, PartyRefusal, Sum, program
from skprivbn.federation._rows import sum_over_rows
from skprivbn.programs import MomentsTerms, moments
from skprivbn.structure._search import EdgeRules, LocalScores, climbing, complete
from skprivbn.structure.gaussian._search import exact_graph

#: rows that a site needs for each number of its largest mechanism
ROWS_PER_NUMBER = 3
#: of a variable, so that there are few families to compare
MAX_PARENTS = 3
#: variables of which all graphs are compared
MAX_EXACT = 14


@dataclass(frozen=True)
class SiteEffectsTerms(MomentsTerms):
    """Moments of all rows, and how likely each site's own mechanisms are.

    Parameters
    ----------
    max_parents : int
        Of the families that are compared.
    second, bounds, gaps, weighted, centre, epsilon, delta, min_honest, protects :
        As of :class:`~skprivbn.programs.MomentsTerms`.
    """

    max_parents: int = MAX_PARENTS

    def check(self) -> None:
        """Refuse families without a bound, and noise."""
        super().check()
        if self.max_parents < 0:
            raise ValueError("max_parents must be at least 0")
        if self.epsilon is not None:
            raise ValueError("epsilon: no noise is calibrated for likelihoods of sites")


@program(SiteEffectsTerms)
def site_mechanisms(me: Me) -> Generator[Any, Any, dict]:
    """Add moments of rows, then log-likelihoods of the sites' own mechanisms."""
    found = yield from moments(me)
    rows, most = me.numbers(), me.terms.max_parents
    n_rows, d = rows.shape
    if n_rows < ROWS_PER_NUMBER * (most + 2):
        raise PartyRefusal("too-few-rows", "too few rows for mechanisms of their own")
    # in units of the pooled spread, so that no digits are lost
    scale = np.sqrt(np.diag(found["covariance"]))
    if not np.all(scale > 0):
        return found
    own_mean = sum_over_rows(rows, lambda X: X.sum(axis=0)) / n_rows
    about = sum_over_rows(rows, lambda X: _products((X - own_mean) / scale)) / n_rows
    own = log_likelihoods(about, n_rows, families(d, most))
    total = yield Sum(own, "log-likelihoods of mechanisms at each site", ALL_ROWS)
    return found | {"own": total}


def _products(Z):
    return Z.T @ Z


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


def log_likelihoods(
    covariance: np.ndarray, n_rows: float, families: list[np.ndarray]
) -> np.ndarray:
    """Return what the rows say for each family, up to a constant.

    Parameters
    ----------
    covariance : ndarray of shape (n_variables, n_variables)
    n_rows : float
    families : list of ndarray of int
        As of :func:`families`.

    Returns
    -------
    log_likelihoods : ndarray of shape (n_families,)
        In the order of `families`; 0 for a residual variance of one.
    """
    found = []
    for of_size in families:
        child, parents = of_size[:, 0], of_size[:, 1:]
        residual = covariance[child, child]
        if parents.shape[1]:
            gram = covariance[parents[:, :, None], parents[:, None, :]]
            across = covariance[parents, child[:, None]]
            slopes = np.linalg.solve(gram, across[..., None])[..., 0]
            residual = residual - np.sum(across * slopes, axis=1)
        # a column that is constant at a site says no more than any number of digits
        found.append(-n_rows / 2 * np.log(np.maximum(residual, 1e-12)))
    return np.concatenate(found)


class MechanismScores(LocalScores):
    """BIC of families with one mechanism for all sites, or one for each.

    Parameters
    ----------
    moments : Moments
        Of the rows of all sites.
    own : ndarray of shape (n_families,)
        Sums over sites of the log-likelihoods of their own mechanisms.
    n_sites : int
    max_parents : int, default=3
    """

    def __init__(self, moments, own, n_sites, max_parents=MAX_PARENTS):
        scale = np.sqrt(np.diag(moments.covariance))
        correlation = moments.covariance / np.outer(scale, scale)
        self.n_variables = len(correlation)
        self.n_rows, self.n_sites = moments.n_rows, n_sites
        known = families(self.n_variables, max_parents)
        self.max_parents = len(known) - 1
        common = log_likelihoods(correlation, self.n_rows, known)
        names = [tuple(family) for of_size in known for family in of_size.tolist()]
        self._known = dict(zip(names, zip(common.tolist(), own.tolist())))

    def _both(self, child, parents):
        """Return the BIC of one mechanism for all, and that of one for each."""
        common, own = self._known[(child, *sorted(parents))]
        cost = (len(parents) + 2) / 2 * np.log(self.n_rows)
        return common - cost, own - self.n_sites * cost

    def score(self, child, parents):
        """Return the better BIC."""
        if len(parents) > self.max_parents:
            return -np.inf
        return max(self._both(child, parents))

    def fits(self, child, parents):
        """Tell which further parents leave a family that was compared."""
        return np.full(self.n_variables, len(parents) < self.max_parents)

    def best_graph(self):
        """Return the graph with the highest score; of many variables, a high one.

        Returns
        -------
        adjacency : ndarray of bool of shape (n_variables, n_variables)
        """
        if self.n_variables <= MAX_EXACT:
            return exact_graph(self._of_subsets, self.n_variables)[0]
        rules = EdgeRules.free(self.n_variables, self.max_parents)
        return complete(climbing(self, rules=rules, tabu_length=self.n_variables))[0]

    def _of_subsets(self, child):
        found = np.full(2**self.n_variables, -np.inf)
        for node, *parents in self._known:
            if node == child:
                subset = sum(1 << parent for parent in parents)
                found[subset] = self.score(child, parents)
        return found

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
            common, own = self._known[(child, *parents)]
            freedom = (self.n_sites - 1) * (len(parents) + 2)
            p_values.append(chi2.sf(2 * (own - common), freedom))
        return np.array(differs), np.array(p_values)
