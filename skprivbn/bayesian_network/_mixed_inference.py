"""Exact inference in conditional Gaussian networks.

Given the discrete parents of all continuous nodes, the continuous nodes are jointly
Gaussian. Their configurations, as far as they are not observed, are gone through one
by one; all other discrete nodes are eliminated. Means and variances that come out are
those of mixtures of Gaussians, exactly; their shapes are not kept.
"""

from functools import cached_property
from math import prod

import numpy as np
from scipy.special import logsumexp

from skprivbn.bayesian_network._dag import graph_of, topological_order
from skprivbn.bayesian_network._gaussian import gaussian_log_density, normal_log_density
from skprivbn.bayesian_network._inference import (
    Inference,
    calibrate,
    eliminate,
    evidence_groups,
    min_fill_order,
)

#: configurations of hidden discrete parents that are gone through
MAX_CONFIGURATIONS = 1 << 14
#: rows, each with all its completions, that are looked at together
_CHUNK = 1 << 18


class MixedInference:
    """Answers about rows that miss the same entries.

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
        """Return the log-density of rows that miss the same entries."""
        if not (codes < 0).any() and not np.isnan(values).any():
            return self._complete(codes, values)
        densities, _, hidden, interface = self._explore(codes, values)
        if not interface:
            return densities[:, 0] + self._log_probability(codes)
        factors = self.discrete.factors(range(len(self.sizes)), codes, hidden)
        rest = min_fill_order([s for s, _ in factors], hidden - set(interface))
        table, log_scale = eliminate(factors, rest, interface)
        table = np.broadcast_to(table.reshape(len(table), -1), densities.shape)
        with np.errstate(divide="ignore"):
            return logsumexp(densities + np.log(table), axis=1) + log_scale

    def _log_probability(self, codes):
        """Return the log-probability of what is known of the discrete nodes."""
        return (
            self.discrete.log_likelihood(codes) if self.sizes else np.zeros(len(codes))
        )

    def _complete(self, codes, values):
        total = self._log_probability(codes)
        for j in range(values.shape[1]):
            mean, variance = self.regression(j, codes, values)
            total += normal_log_density(values[:, j] - mean, variance)
        return total

    def posteriors(self, codes, values):
        """Return tables of discrete nodes, means and variances of continuous ones."""
        densities, moments, hidden, interface = self._explore(codes, values)
        tables = []
        largest = densities.max(axis=1, keepdims=True)
        weights = np.exp(densities - largest)
        found, shares = {}, np.ones_like(weights)
        if hidden:
            factors = self.discrete.factors(range(len(self.sizes)), codes, hidden)
            if interface:
                shape = [self.sizes[v] for v in interface]
                soft = weights.reshape(len(codes), *shape)
                factors.append((tuple(interface), soft))
            factors = [factor for factor in factors if factor[0]]
            order = min_fill_order([scope for scope, _ in factors], hidden)
            found = calibrate(factors, order)
            if interface:
                rest = [v for v in order if v not in interface]
                joint, _ = eliminate(factors, rest, interface)
                shares = np.broadcast_to(joint.reshape(len(joint), -1), weights.shape)
        for v, size in enumerate(self.sizes):
            if v in hidden:
                tables.append(np.broadcast_to(found[v], (len(codes), size)))
            else:
                tables.append(np.eye(size)[codes[:, v]])
        shares = shares / shares.sum(axis=1, keepdims=True)
        means, variances = moments
        mean = np.einsum("nh,nhj->nj", shares, means)
        second = np.einsum("nh,nhj->nj", shares, variances + means**2)
        return tables, mean, np.maximum(second - mean**2, 0.0)

    def _explore(self, codes, values):
        """Go through the configurations of hidden discrete parents.

        Returns
        -------
        densities : ndarray of shape (n_rows, n_configurations)
            Log-density of what is observed of the continuous nodes.
        moments : pair of ndarray of shape (n_rows, n_configurations, n_continuous)
            Means and variances of continuous nodes given that.
        hidden : set of int
            Discrete nodes that are not observed.
        interface : list of int
            Those of them that are parents of continuous nodes, in ascending order.
        """
        hidden = set(np.flatnonzero(codes[0] < 0).tolist())
        parents = sorted({v for above in self.above for v in above})
        interface = [v for v in parents if v in hidden]
        shape = tuple(self.sizes[v] for v in interface)
        n_configurations = int(np.prod(shape, dtype=object))
        if n_configurations > MAX_CONFIGURATIONS:
            raise ValueError(
                f"{len(interface)} discrete parents of continuous nodes are missing, "
                f"with {n_configurations} configurations: observe more of them"
            )
        densities = np.zeros((len(codes), n_configurations))
        means = np.zeros((*densities.shape, values.shape[1]))
        variances = np.zeros_like(means)
        known = [v for v in parents if v not in hidden]
        groups, which = np.unique(codes[:, known], axis=0, return_inverse=True)
        for g, group in enumerate(groups):
            rows = np.flatnonzero(which.ravel() == g)
            filled = dict(zip(known, group))
            for h, configuration in enumerate(np.ndindex(*shape)):
                densities[rows, h], means[rows, h], left = self._regress(
                    filled | dict(zip(interface, configuration)), values[rows]
                )
                variances[rows, h] = np.diag(left)
        return densities, (means, variances), hidden, interface

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

        Every row is completed in all ways by states of the discrete parents of
        continuous nodes that it lacks. Each completion has a probability; given it,
        numbers are Gaussian, and tell nothing about the other discrete nodes.

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
        parents = sorted({v for above in self.above for v in above})
        counts = [np.zeros(table.shape) for table in self.discrete.tables]
        moments = [
            np.zeros((*(self.sizes[v] for v in above), *(2 + len(beside),) * 2))
            for above, beside in zip(self.above, self.beside)
        ]
        log_likelihood, n_impossible = 0.0, 0
        step = max(1, _CHUNK // prod(self.sizes[v] for v in parents))
        for start in range(0, len(codes), step):
            rows = slice(start, start + step)
            owner, filled = _complete(codes[rows], parents, self.sizes)
            numbers = values[rows][owner]
            alike = np.hstack([filled[:, parents], np.isnan(numbers)])
            kinds, group = np.unique(alike, axis=0, return_inverse=True)
            group = group.ravel()
            densities, means = np.zeros(len(numbers)), np.zeros_like(numbers)
            lefts = np.zeros((len(kinds), numbers.shape[1], numbers.shape[1]))
            for g, kind in enumerate(kinds):
                found = np.flatnonzero(group == g)
                densities[found], means[found], lefts[g] = self._regress(
                    dict(zip(parents, kind)), numbers[found]
                )
            log_joint = self._log_probability(filled) + densities
            shares, known = _shares(log_joint, owner)
            log_likelihood += known[np.isfinite(known)].sum()
            n_impossible += int(np.isneginf(known).sum())
            if counts:
                found, *_ = self.discrete.expected_counts(filled, shares)
                for table, more in zip(counts, found):
                    table += more
            for j, table in enumerate(moments):
                _add_moments(table, self, j, filled, means, shares, lefts, group)
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


def _add_moments(table, inference, j, codes, means, shares, lefts, group):
    """Add what completions say of a continuous node and its continuous parents."""
    columns = [*inference.beside[j], j]
    design = np.hstack([np.ones((len(means), 1)), means[:, columns]])
    shape = table.shape[:-2]
    cells = np.zeros(len(codes), dtype=np.intp)
    if shape:
        cells = np.ravel_multi_index(
            tuple(codes[:, v] for v in inference.above[j]), shape
        )
    flat = table.reshape(-1, *table.shape[-2:])
    for a, b in zip(*np.triu_indices(design.shape[1])):
        product = np.bincount(
            cells, weights=shares * design[:, a] * design[:, b], minlength=len(flat)
        )
        flat[:, a, b] += product
        if a != b:
            flat[:, b, a] += product
    # rows of one group are in one cell, and lack the same
    _, first = np.unique(group, return_index=True)
    spread = np.bincount(group, weights=shares)[:, None, None]
    left = lefts[np.ix_(range(len(lefts)), columns, columns)] * spread
    np.add.at(flat[:, 1:, 1:], cells[first], left)
