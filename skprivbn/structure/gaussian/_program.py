"""Moments for a network: those of rows, and those of functions of single columns.

Section 4 of Ng and Zhang: what linear Gaussian structure learning needs to know of the
rows. Exactly, or with noise in one release.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, Literal

import numpy as np

from skprivbn.federation import Me, PartyRefusal, RowWeights, Sum, program, row_blocks
from skprivbn.federation._rows import sum_over_rows
from skprivbn.federation.gate import are_few, check_shares, rows_of_sizes
from skprivbn.privacy._options import words_of_noise
from skprivbn.programs import Moments, MomentsTerms, moments
from skprivbn.programs._moments import read_moments
from skprivbn.programs._noisy_moments import report_moments
from skprivbn.structure._edge_rules import EdgeRules
from skprivbn.structure._learnt import refuse_constant, warn_if_few_rows
from skprivbn.structure._site_effects import ROWS_PER_NUMBER, comparing_mechanisms
from skprivbn.structure.gaussian._lingam import causal_order, normality, shapes
from skprivbn.structure.gaussian._scores import (
    N_FUNCTIONS,
    edge_penalty,
    effective_rows,
    expand,
    noise_on_correlations,
)
from skprivbn.utils import column_names
from skprivbn.utils._linalg import symmetric, upper

#: partial correlation that a network's edge may well have
WEAK = 0.3
#: p value up to which a column is taken not to be normal
NOT_NORMAL = 0.001


@dataclass(frozen=True)
class NetworkMomentsTerms(MomentsTerms):
    """Which moments are summed, and rules of a search of which parties do a part.

    Parameters
    ----------
    basis : str or None
        Basis functions of single columns, whose moments are added, too.
    order : {"none", "if not normal", "always"}
        Whether to look for an order of the columns by DirectLiNGAM: where columns are
        not normal, which is tested first, or whatever they are.
    allowed, required : ndarray of bool of shape (n_features, n_features) or None
        Edges that the graph may have, and those that it must have; None for any.
    max_parents : int or None
        Of families whose mechanisms may differ by site; None compares none.
    second, bounds, gaps, weighted, centre, epsilon, delta, min_honest, protects :
        As of :class:`~skprivbn.programs.MomentsTerms`.
    """

    basis: str | None = None
    order: Literal["none", "if not normal", "always"] = "none"
    allowed: np.ndarray | None = None
    required: np.ndarray | None = None
    max_parents: int | None = None

    def check(self) -> None:
        """Refuse rules that no graph can keep, and mechanisms with noise."""
        super().check()
        if self.allowed is not None:
            self.rules(len(self.allowed)).check()
        if self.max_parents is not None and self.max_parents < 0:
            raise ValueError("max_parents must be at least 0")
        if self.max_parents is not None and self.epsilon is not None:
            raise ValueError("epsilon: no noise is calibrated for likelihoods of sites")

    def rules(self, n_features: int, max_parents: int | None = None) -> EdgeRules:
        """Return which edges a graph may and must have."""
        if self.allowed is None or self.required is None:
            return EdgeRules.free(n_features, max_parents)
        if len(self.allowed) != n_features:
            raise ValueError("allowed: yes or no for every pair of columns")
        most = n_features if max_parents is None else max_parents
        return EdgeRules(self.allowed, self.required, most)


@program(NetworkMomentsTerms)
def network_moments(me: Me) -> Generator[Any, Any, dict]:
    """Add moments of rows, then what else a search needs to know of their columns."""
    terms, fewest = me.terms, ROWS_PER_NUMBER * ((me.terms.max_parents or 0) + 2)
    if terms.max_parents is not None and len(me.numbers()) < fewest:
        raise PartyRefusal("too-few-rows", "too few rows for mechanisms of their own")
    found = yield from moments(me)
    if terms.epsilon is not None or not np.all(np.diag(found["covariance"]) > 0):
        return found
    if terms.max_parents is not None:
        return found | (yield from comparing_mechanisms(me, found))
    if terms.order != "none":
        return found | (yield from _find_order(me, found))
    if terms.basis is None:
        return found
    n, mean, variances = found["n_rows"][0], found["mean"], np.diag(found["covariance"])
    rows = me.numbers()
    check_few_values(rows, me.min_rows)
    scale = np.sqrt(variances)
    own = _sums_of_functions(rows, mean, scale, terms)

    weigh = partial(_weigh, rows, lambda X: expand((X - mean) / scale, terms.basis))
    total = yield Sum(own, "sums and products of basis functions", weigh)
    means, products = np.split(total / n, [N_FUNCTIONS * len(mean)])
    about = own[: len(means)] / max(len(rows), 1)
    if terms.centre == "pooled":
        products, about = products - upper(np.outer(means, means)), means
    blocks = (expand((X - mean) / scale, terms.basis) - about for X in row_blocks(rows))
    columns = np.repeat(np.arange(len(mean)), N_FUNCTIONS).tolist()
    check_shares(me, blocks, n * symmetric(products), columns)
    return found | {"functions": products}


def _find_order(me, found):
    """Test whether columns are normal; if most are not, order them."""
    n, mean, covariance = found["n_rows"][0], found["mean"], found["covariance"]
    rows, scale = me.numbers(), np.sqrt(np.diag(covariance))
    if me.terms.centre == "party":  # levels that differ are no sign of a shape
        mean = sum_over_rows(rows, lambda X: X.sum(axis=0)) / max(len(rows), 1)
        found = found | {"mean": mean}
    own = sum_over_rows(rows, lambda X: shapes((X - mean) / scale).sum(axis=0))

    weigh = partial(_weigh, rows, lambda X: shapes((X - mean) / scale))
    total = yield Sum(own, "sums of two functions of each column", weigh)
    normal = normality(total, n)
    learnt = {"normality": normal}
    few_normal = np.sum(normal > NOT_NORMAL) <= len(normal) / 4
    if me.terms.order == "always" or few_normal:
        before = me.terms.rules(len(mean)).before
        learnt["order"] = yield from causal_order(rows, found, before)
    return learnt


def _weigh(rows, functions):
    """Return how much rows count in sums of functions of them."""

    def add(X):
        return rows_of_sizes(functions(X), np.ones(len(X)))

    return RowWeights(*sum_over_rows(rows, add))


def _sums_of_functions(rows, mean, scale, terms):
    """Return sums and products of the basis functions, about zero or the own mean."""

    def add(function):
        def apply(rows):
            return function(expand((rows - mean) / scale, terms.basis))

        return sum_over_rows(rows, apply)

    sums = add(lambda Z: Z.sum(axis=0))
    about = sums / max(len(rows), 1) if terms.centre == "party" else 0.0
    return np.append(sums, add(lambda Z: upper((Z - about).T @ (Z - about))))


def learn_moments(estimator, partition, terms) -> tuple[Moments, dict]:
    """Add moments, and make them such that searches can take them, whatever the noise.

    Parameters
    ----------
    estimator : PrivateEstimator
        Being fitted; a noisy release is reported in it.
    partition : HorizontalPartition or RemoteRows
    terms : NetworkMomentsTerms

    Returns
    -------
    moments : Moments
        With noise, of at least two rows with a positive definite covariance.
    found : dict
        What the program returned.
    """
    found = estimator._run_charged(partition, network_moments, terms, "moments")
    if terms.epsilon is None:
        known = read_moments(found, terms, partition.n_parties)
        variances, where = np.diag(known.covariance), "over all parties' rows"
        refuse_constant(column_names(estimator), known.mean, variances, where)
        warn_if_few_rows(known.n_rows, len(known.mean))
    else:
        known = read_noisy(found, terms, partition.n_parties)
        report_moments(estimator, known, terms, partition.n_parties)
    return known, found


def read_noisy(found: dict, terms: NetworkMomentsTerms, n_parties: int) -> Moments:
    """Return moments of a noisy release that searches can take, whatever the noise.

    Parameters
    ----------
    found, terms, n_parties :
        As of :func:`~skprivbn.programs._moments.read_moments`.

    Returns
    -------
    moments : Moments
    """
    known = read_moments(found, terms, n_parties, floor=1e-4)
    # noise alone would make eigenvalues of about the square root times its size
    spread = np.mean(np.diag(known.covariance) / known.noise**2)
    drowned = known.warnings or words_of_noise(np.sqrt(len(known.mean)), spread)
    known = replace(known, n_rows=max(known.n_rows, 2.0))
    return replace(known, warnings=(*drowned, *words_of_hidden_edges(known)))


def weakest_edge(moments: Moments) -> float:
    """Return the least partial correlation of an edge that stands out of the noise.

    Parameters
    ----------
    moments : Moments

    Returns
    -------
    correlation : float
    """
    # what an edge has to gain, and twice what a correlation gains in a row
    penalty = edge_penalty(moments.n_rows, len(moments.mean))
    return float(np.sqrt(-np.expm1(-2 * penalty / effective_rows(moments))))


def drop_drowned_edges(adjacency: np.ndarray, moments: Moments) -> np.ndarray:
    """Drop the weakest parents, one by one, that noise alone could make.

    Parameters
    ----------
    adjacency : ndarray of bool of shape (n_features, n_features)
    moments : Moments
        Noisy.

    Returns
    -------
    adjacency : ndarray of bool of shape (n_features, n_features)
        Every edge has a partial correlation of at least :func:`weakest_edge`, given
        the other parents.
    """
    kept, least = adjacency.copy(), weakest_edge(moments) ** 2
    for child in range(len(kept)):
        while len(parents := np.flatnonzero(kept[:, child])):
            family = [*parents, child]
            K = np.linalg.inv(moments.covariance[np.ix_(family, family)])
            squares = K[:-1, -1] ** 2 / (np.diag(K)[:-1] * K[-1, -1])
            if squares.min() >= least:
                break
            kept[parents[np.argmin(squares)], child] = False
    return kept


def words_of_hidden_edges(moments: Moments) -> tuple[str, ...]:
    """Return a warning if edges must be strong to stand out, with the rows they need.

    Of noisy moments and the public scale of the noise: it costs no budget.
    """
    n_rows, noise = moments.n_rows, noise_on_correlations(moments)
    penalty, weakest = edge_penalty(n_rows, len(moments.mean)), weakest_edge(moments)
    if weakest <= WEAK:
        return ()
    if weakest > 0.9:  # eigenvalues are those of the noise and say nothing of rows
        needed = "many times the rows"
    else:
        # sampling error falls by the root of the rows, noise by the rows
        wanted = -2 * penalty / np.log1p(-(WEAK**2))
        noisy = 4 * wanted * (noise * n_rows) ** 2
        n_needed = (wanted + np.sqrt(wanted**2 + noisy)) / 2
        needed = f"about {float(f'{n_needed:.1g}'):,.0f} rows"
    return (
        "privacy noise hides edges between columns whose partial correlation is below "
        f"{weakest:.2f}: {needed} would show {WEAK} at this epsilon; tighter bounds or "
        "fewer columns help, too",
    )


def check_few_values(X, min_rows):
    """Refuse small cells that follow from sums of powers, and of products of powers.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_columns) or RowSource
    min_rows : int
        Fewest rows that a number may be about.
    """
    # products of two functions of a column have powers up to twice the largest
    most, most_of_pairs = 2 * N_FUNCTIONS + 1, N_FUNCTIONS + 1
    codes = []
    for column in range(X.shape[1] if min_rows > 1 else 0):
        values = np.concatenate([block[:, column] for block in row_blocks(X)])
        labels, places = np.unique(values, return_inverse=True)
        if len(labels) <= most:
            codes.append((len(labels), places))
    tables = [np.bincount(places) for _, places in codes]
    pairs = combinations([c for c in codes if c[0] <= most_of_pairs], 2)
    tables += [np.bincount(one * n + other) for (_, one), (n, other) in pairs]
    if any(are_few(table, min_rows).any() for table in tables):
        raise PartyRefusal("too-detailed")
