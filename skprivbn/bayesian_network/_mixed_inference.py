"""Exact inference in conditional Gaussian networks.

Given the discrete parents of all continuous nodes, the continuous nodes are jointly
Gaussian, and tell nothing about the other discrete nodes. So every row is completed by
all states of these parents that it lacks; each completion has a probability, and all
other discrete nodes are eliminated. Means and variances that come out are those of
mixtures of Gaussians, exactly; their shapes are not kept.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skprivbn.bayesian_network._dag import graph_of, topological_order
from skprivbn.bayesian_network._gaussian import gaussian_log_density, normal_log_density
from skprivbn.bayesian_network._inference import Inference, evidence_groups

#: configurations of hidden discrete parents that are gone through
MAX_CONFIGURATIONS = 1 << 14
#: rows, each with all its completions, that are looked at together
_CHUNK = 1 << 18


@dataclass(frozen=True)
class _Completions:
    """Rows with all states of the discrete parents that they lack.

    Attributes
    ----------
    owner : ndarray of int of shape (n_completions,)
        The row that each completion is of.
    codes : ndarray of int of shape (n_completions, n_discrete)
        Negative where other discrete nodes are missing.
    shares : ndarray of shape (n_completions,)
        How likely each completion of a row is; 0 if the row is impossible.
    means : ndarray of shape (n_completions, n_continuous)
        Numbers, and the means of those that are missing.
    kind : ndarray of int of shape (n_completions,)
        The same for completions with equal parents that miss the same numbers.
    lefts : ndarray of shape (n_kinds, n_continuous, n_continuous)
        Covariance of what is missing, by kind.
    """

    owner: np.ndarray
    codes: np.ndarray
    shares: np.ndarray
    means: np.ndarray
    kind: np.ndarray
    lefts: np.ndarray


class MixedInference:
    """Answers about rows with gaps.

    Parameters
    ----------
    network : ConditionalGaussianBayesianNetwork
    """

    def __init__(self, network):
        tables = network._discrete
        names = () if tables is None else tables.nodes
        self.discrete = Inference([], [], []) if tables is None else tables._inference
        self.sizes = self.discrete.sizes
        nodes = network.continuous
        self.above = [
            [names.index(v) for v in network.discrete_parents(n)] for n in nodes
        ]
        self.beside = [
            [nodes.index(v) for v in network.continuous_parents(n)] for n in nodes
        ]
        self.intercepts = [network.intercepts[n] for n in nodes]
        self.weights = [network.weights[n] for n in nodes]
        self.variances = [network.variances[n] for n in nodes]
        self.parents = sorted({v for above in self.above for v in above})

    @cached_property
    def order(self):
        """Continuous nodes, parents before children."""
        return topological_order(graph_of(self.beside))

    def regression(self, j, codes, values):
        """Return mean and variance of a continuous node given all its parents."""
        place = tuple(codes[:, v] for v in self.above[j])
        shape = (len(codes),)
        intercept = np.broadcast_to(self.intercepts[j][place], shape)
        weights = np.broadcast_to(self.weights[j][place], (*shape, len(self.beside[j])))
        mean = intercept + (weights * values[:, self.beside[j]]).sum(axis=1)
        return mean, np.broadcast_to(self.variances[j][place], shape)

    def _joint(self, codes):
        """Return mean and covariance of all continuous nodes for one configuration."""
        d = len(self.beside)
        mean, effects = np.zeros(d), np.zeros((d, d))
        # a node is a sum of its own noise and of its parents'
        scale = np.zeros(d)
        for j in self.order:
            place = tuple(codes[v] for v in self.above[j])
            weights, parents = self.weights[j][place], self.beside[j]
            mean[j] = self.intercepts[j][place] + weights @ mean[parents]
            effects[:, j] = effects[:, parents] @ weights
            effects[j, j] = 1.0
            scale[j] = self.variances[j][place]
        return mean, effects.T @ (scale[:, None] * effects)

    def log_likelihood(self, codes, values):
        """Return the log-density of each row, with what is missing summed out."""
        found = np.zeros(len(codes))
        gaps = (codes < 0).any(axis=1) | np.isnan(values).any(axis=1)
        found[~gaps] = self._of_complete(codes[~gaps], values[~gaps])
        parts = [known for _, known, _ in self._completing(codes[gaps], values[gaps])]
        found[gaps] = np.concatenate([np.empty(0), *parts])
        return found

    def _log_probability(self, codes):
        """Return the log-probability of what is known of the discrete nodes."""
        return (
            self.discrete.log_likelihood(codes) if self.sizes else np.zeros(len(codes))
        )

    def _of_complete(self, codes, values):
        total = self._log_probability(codes)
        for j in range(values.shape[1]):
            mean, variance = self.regression(j, codes, values)
            total += normal_log_density(values[:, j] - mean, variance)
        return total

    def posteriors(self, codes, values):
        """Return tables of discrete nodes, means and variances of continuous ones.

        Tables of hidden nodes are NaN in rows that are impossible.
        """
        tables = [np.zeros((len(codes), size)) for size in self.sizes]
        mean, second = np.zeros_like(values), np.zeros_like(values)
        for rows, known, of in self._completing(codes, values):
            # the one completion of a row that has all parents needs no share
            alone = np.bincount(of.owner)[of.owner] == 1
            shares = np.where(np.isneginf(known)[of.owner], np.nan, of.shares)
            shares = np.where(alone, 1.0, shares)[:, None]
            found = self.discrete.posteriors(of.codes) if self.sizes else []
            for table, part in zip(tables, found):
                weighted = np.where(shares == 0, 0.0, shares * part)
                np.add.at(table[rows], of.owner, weighted)
            variances = np.einsum("kii->ki", of.lefts)[of.kind]
            np.add.at(mean[rows], of.owner, shares * of.means)
            np.add.at(second[rows], of.owner, shares * (variances + of.means**2))
        tables = [table / table.sum(axis=1, keepdims=True) for table in tables]
        return tables, mean, np.maximum(second - mean**2, 0.0)

    def _completing(self, codes, values):
        """Yield a part of the rows, their log-likelihoods and their completions."""
        sizes = np.array(self.sizes, dtype=int)[self.parents]
        lacks = codes[:, self.parents] < 0
        n_configurations = np.where(lacks, sizes, 1).prod(axis=1, dtype=float)
        most = int(n_configurations.max(initial=1))
        if most > MAX_CONFIGURATIONS:
            raise ValueError(
                f"{lacks[n_configurations.argmax()].sum()} discrete parents of "
                f"continuous nodes are missing, with {most} configurations: observe "
                "more of them"
            )
        for start in range(0, len(codes), _CHUNK // most):
            rows = slice(start, start + _CHUNK // most)
            owner, filled = _complete(codes[rows], self.parents, self.sizes)
            numbers = values[rows][owner]
            alike = np.hstack([filled[:, self.parents], np.isnan(numbers)])
            kinds, kind = np.unique(alike, axis=0, return_inverse=True)
            kind = kind.ravel()
            densities, means = np.zeros(len(numbers)), np.zeros_like(numbers)
            lefts = np.zeros((len(kinds), numbers.shape[1], numbers.shape[1]))
            ends = np.cumsum(np.bincount(kind))[:-1]
            of_kind = np.split(np.argsort(kind, kind="stable"), ends)
            for k, (configuration, found) in enumerate(zip(kinds, of_kind)):
                densities[found], means[found], lefts[k] = self._regress(
                    dict(zip(self.parents, configuration)), numbers[found]
                )
            shares, known = _shares(self._log_probability(filled) + densities, owner)
            yield rows, known, _Completions(owner, filled, shares, means, kind, lefts)

    def _regress(self, configuration, values):
        """Complete the numbers of rows that miss the same, given all discrete parents.

        Returns
        -------
        densities : ndarray of shape (n_rows,)
            Log-densities of the numbers that are there.
        means : ndarray of shape (n_rows, n_continuous)
        left : ndarray of shape (n_continuous, n_continuous)
            Covariance of what is missing.
        """
        mean, covariance = self._joint(configuration)
        lost = np.isnan(values[0])
        there, block = values[:, ~lost], covariance[np.ix_(~lost, ~lost)]
        densities, means, left = np.zeros(len(values)), values.copy(), 0 * covariance
        if not lost.all():
            densities = gaussian_log_density(there, mean[~lost], block)
        if lost.any():
            across = covariance[np.ix_(~lost, lost)]
            gain = np.linalg.solve(block, across)
            means[:, lost] = mean[lost] + (there - mean[~lost]) @ gain
            rest = covariance[np.ix_(lost, lost)] - across.T @ gain
            left[np.ix_(lost, lost)] = rest
        return densities, means, left

    def expected_statistics(self, codes, values):
        """Return expected counts and moments of all families: the E-step of EM.

        Parameters
        ----------
        codes : ndarray of int of shape (n_rows, n_discrete)
            Negative where missing.
        values : ndarray of float of shape (n_rows, n_continuous)
            NaN where missing.

        Returns
        -------
        counts : list of ndarray
            Of the discrete nodes, shaped like their tables.
        moments : list of ndarray
            Of the continuous nodes: an axis for each discrete parent, then the products
            of 1, the continuous parents and the node with each other.
        log_likelihood : float
            Of all rows that are possible.
        n_impossible : int
            Rows that count nowhere.
        """
        counts = [np.zeros(table.shape) for table in self.discrete.tables]
        moments = [
            np.zeros((*(self.sizes[v] for v in above), *(2 + len(beside),) * 2))
            for above, beside in zip(self.above, self.beside)
        ]
        log_likelihood, n_impossible = 0.0, 0
        for _, known, completions in self._completing(codes, values):
            log_likelihood += known[np.isfinite(known)].sum()
            n_impossible += int(np.isneginf(known).sum())
            if counts:
                found, *_ = self.discrete.expected_counts(
                    completions.codes, completions.shares
                )
                for table, more in zip(counts, found):
                    table += more
            for j, table in enumerate(moments):
                _add_moments(table, self.above[j], [*self.beside[j], j], completions)
        return counts, moments, log_likelihood, n_impossible


def _complete(codes, parents, sizes):
    """Return rows with all states of parents that they lack, and whose they are."""
    if not parents:
        return np.arange(len(codes)), codes
    owners, filled = [], []
    for hidden, rows in evidence_groups(codes[:, parents]):
        places = [parents[i] for i in sorted(hidden)]
        states = np.array(list(np.ndindex(*(sizes[v] for v in places))), dtype=int)
        complete = np.repeat(codes[rows], len(states), axis=0)
        complete[:, places] = np.tile(states, (len(rows), 1))
        owners.append(np.repeat(rows, len(states)))
        filled.append(complete)
    return np.concatenate(owners), np.concatenate(filled)


def _shares(log_joint, owner):
    """Return how likely each completion of a row is, and the rows' log-likelihoods."""
    largest = np.full(owner.max(initial=-1) + 1, -np.inf)
    np.maximum.at(largest, owner, log_joint)
    possible = np.isfinite(largest)
    weights = np.exp(log_joint - np.where(possible, largest, 0.0)[owner])
    total = np.bincount(owner, weights=weights, minlength=len(largest))
    total = np.where(possible, total, 1.0)
    return weights / total[owner], largest + np.log(total)


def _add_moments(table, above, columns, of):
    """Add what completions say of a continuous node and its continuous parents."""
    design = np.hstack([np.ones((len(of.means), 1)), of.means[:, columns]])
    shape = table.shape[:-2]
    cells = np.zeros(len(of.codes), dtype=np.intp)
    if shape:
        cells = np.ravel_multi_index(tuple(of.codes[:, v] for v in above), shape)
    flat = table.reshape(-1, *table.shape[-2:])
    for a, b in zip(*np.triu_indices(design.shape[1])):
        product = np.bincount(
            cells, weights=of.shares * design[:, a] * design[:, b], minlength=len(flat)
        )
        flat[:, a, b] += product
        if a != b:
            flat[:, b, a] += product
    # completions of one kind are in one cell, and lack the same
    _, first = np.unique(of.kind, return_index=True)
    spread = np.bincount(of.kind, weights=of.shares)[:, None, None]
    left = of.lefts[np.ix_(range(len(of.lefts)), columns, columns)] * spread
    np.add.at(flat[:, 1:, 1:], cells[first], left)
