"""Exact inference in conditional Gaussian networks.

Given the discrete parents of all continuous nodes, the continuous nodes are jointly
Gaussian. Their configurations, as far as they are not observed, are gone through one
by one; all other discrete nodes are eliminated. Means and variances that come out are
those of mixtures of Gaussians, exactly; their shapes are not kept.
"""

from functools import cached_property

import numpy as np
from scipy.special import logsumexp

from skprivbn.bayesian_network._dag import topological_order
from skprivbn.bayesian_network._gaussian import gaussian_log_density
from skprivbn.bayesian_network._inference import (
    calibrate,
    conditional_factor,
    eliminate,
    log_evidence,
    min_fill_order,
)

#: configurations of hidden discrete parents that are gone through
MAX_CONFIGURATIONS = 1 << 14


class MixedInference:
    """Answers about rows that miss the same entries.

    Parameters
    ----------
    network : ConditionalGaussianBayesianNetwork
    """

    def __init__(self, network):
        tables = network._discrete
        names = () if tables is None else tables.nodes
        self.tables = [] if tables is None else tables._tables
        self.families = [] if tables is None else tables._families
        self.sizes = [] if tables is None else tables._sizes
        empty = np.zeros((0, 0), dtype=bool)
        self.discrete_graph = empty if tables is None else tables.adjacency_matrix
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
        graph = np.zeros((len(self.beside),) * 2, dtype=bool)
        for j, parents in enumerate(self.beside):
            graph[parents, j] = True
        return topological_order(graph)

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
            total = densities[:, 0]
            if self.sizes:
                total = total + log_evidence(
                    self.tables,
                    self.families,
                    self.sizes,
                    self.discrete_graph,
                    codes,
                    hidden,
                )
            return total
        factors = self._factors(codes, hidden)
        rest = min_fill_order([s for s, _ in factors], hidden - set(interface))
        table, log_scale = eliminate(factors, rest, interface)
        table = np.broadcast_to(table.reshape(len(table), -1), densities.shape)
        with np.errstate(divide="ignore"):
            return logsumexp(densities + np.log(table), axis=1) + log_scale

    def _complete(self, codes, values):
        total = np.zeros(len(codes))
        with np.errstate(divide="ignore"):
            for table, family in zip(self.tables, self.families):
                total += np.log(table[tuple(codes[:, v] for v in family)])
        for j in range(values.shape[1]):
            mean, variance = self.regression(j, codes, values)
            square = (values[:, j] - mean) ** 2 / variance
            total -= 0.5 * (square + np.log(2 * np.pi * variance))
        return total

    def posteriors(self, codes, values):
        """Return tables of discrete nodes, means and variances of continuous ones."""
        densities, moments, hidden, interface = self._explore(codes, values)
        tables = []
        largest = densities.max(axis=1, keepdims=True)
        weights = np.exp(densities - largest)
        found, shares = {}, np.ones_like(weights)
        if hidden:
            factors = self._factors(codes, hidden)
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

    def _factors(self, codes, hidden):
        """Return the tables of families with a hidden member, evidence filled in."""
        return [
            conditional_factor(table, family, codes, hidden)
            for table, family in zip(self.tables, self.families)
        ]

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
        seen = np.flatnonzero(~np.isnan(values[0]))
        lost = np.flatnonzero(np.isnan(values[0]))
        d = values.shape[1]
        densities = np.zeros((len(codes), n_configurations))
        means = np.zeros((len(codes), n_configurations, d))
        variances = np.zeros_like(means)
        means[:, :, seen] = values[:, None, seen]
        known = [v for v in parents if v not in hidden]
        groups, which = np.unique(codes[:, known], axis=0, return_inverse=True)
        for g, group in enumerate(groups):
            rows = np.flatnonzero(which.ravel() == g)
            filled = dict(zip(known, group))
            for h, configuration in enumerate(np.ndindex(*shape)):
                mean, covariance = self._joint(
                    filled | dict(zip(interface, configuration))
                )
                block = covariance[np.ix_(seen, seen)]
                if len(seen):
                    densities[rows, h] = gaussian_log_density(
                        values[np.ix_(rows, seen)], mean[seen], block
                    )
                if len(lost):
                    gain = np.linalg.solve(block, covariance[np.ix_(seen, lost)])
                    shift = values[np.ix_(rows, seen)] - mean[seen]
                    means[np.ix_(rows, [h], lost)] = (mean[lost] + shift @ gain)[
                        :, None
                    ]
                    left = covariance[np.ix_(lost, lost)] - (
                        covariance[np.ix_(lost, seen)] @ gain
                    )
                    variances[np.ix_(rows, [h], lost)] = np.diag(left)
        return densities, (means, variances), hidden, interface
