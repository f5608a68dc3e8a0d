"""What is to be expected of rows with gaps, in discrete and continuous columns."""

from math import prod

import numpy as np

from skprivbn.bayesian_network._expected_counts import expected_counts
from skprivbn.bayesian_network._gaussian import gaussian_log_density
from skprivbn.bayesian_network._inference import evidence_groups, log_evidence

#: rows, each with all its completions, that are looked at together
_CHUNK = 1 << 18


def expected_statistics(network, codes, values):
    """Return expected counts and moments of all families: the E-step of EM.

    Every row is completed in all ways by states of the discrete parents of continuous
    nodes that it lacks. Each completion has a probability; given it, numbers are
    Gaussian, and tell nothing about the other discrete nodes.

    Parameters
    ----------
    network : ConditionalGaussianBayesianNetwork
    codes : ndarray of int of shape (n_rows, n_discrete)
        Negative where missing.
    values : ndarray of float of shape (n_rows, n_continuous)
        NaN where missing.

    Returns
    -------
    counts : list of ndarray
        Of the discrete nodes, shaped like their tables.
    moments : list of ndarray
        Of the continuous nodes: an axis for each discrete parent, then the products of
        1, the continuous parents and the node with each other.
    log_likelihood : float
        Of all rows that are possible.
    n_impossible : int
        Rows that count nowhere.
    """
    inference = network._inference
    parents = sorted({v for above in inference.above for v in above})
    counts = [np.zeros(table.shape) for table in inference.tables]
    moments = [
        np.zeros(
            (*(inference.sizes[v] for v in above), 2 + len(beside), 2 + len(beside))
        )
        for above, beside in zip(inference.above, inference.beside)
    ]
    log_likelihood, n_impossible = 0.0, 0
    step = max(1, _CHUNK // prod(inference.sizes[v] for v in parents))
    for start in range(0, len(codes), step):
        rows = slice(start, start + step)
        owner, filled = _complete(codes[rows], parents, inference.sizes)
        numbers = values[rows][owner]
        log_joint = _log_probabilities(inference, filled)
        densities, means, lefts, group = _regress(inference, parents, filled, numbers)
        shares, known = _shares(log_joint + densities, owner)
        log_likelihood += known[np.isfinite(known)].sum()
        n_impossible += int(np.isneginf(known).sum())
        if counts:
            found, *_ = expected_counts(
                inference.tables, inference.families, inference.sizes, filled, shares
            )
            for table, more in zip(counts, found):
                table += more
        for j, table in enumerate(moments):
            _add_moments(table, inference, j, filled, means, shares, lefts, group)
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


def _log_probabilities(inference, codes):
    """Return the log-probability of what is known of the discrete nodes."""
    found = np.zeros(len(codes))
    if inference.sizes:
        for hidden, rows in evidence_groups(codes):
            found[rows] = log_evidence(
                inference.tables,
                inference.families,
                inference.sizes,
                inference.discrete_graph,
                codes[rows],
                hidden,
            )
    return found


def _regress(inference, parents, codes, values):
    """Complete the numbers of rows, given all discrete parents.

    Returns
    -------
    densities : ndarray of shape (n_rows,)
        Log-densities of the numbers that are there.
    means : ndarray of shape (n_rows, n_continuous)
    lefts : ndarray of shape (n_groups, n_continuous, n_continuous)
        Covariances of what is missing, of rows alike.
    group : ndarray of int of shape (n_rows,)
    """
    alike = np.hstack([codes[:, parents], np.isnan(values)])
    kinds, group = np.unique(alike, axis=0, return_inverse=True)
    group = group.ravel()
    densities, means = np.zeros(len(values)), values.copy()
    lefts = np.zeros((len(kinds), values.shape[1], values.shape[1]))
    for g, kind in enumerate(kinds):
        mean, covariance = inference._joint(dict(zip(parents, kind)))
        lost = np.flatnonzero(kind[len(parents) :])
        seen = np.flatnonzero(kind[len(parents) :] == 0)
        rows = np.flatnonzero(group == g)
        there = values[np.ix_(rows, seen)]
        block = covariance[np.ix_(seen, seen)]
        across = covariance[np.ix_(seen, lost)]
        if len(seen):
            densities[rows] = gaussian_log_density(there, mean[seen], block)
        if len(lost):
            gain = np.linalg.solve(block, across)
            means[np.ix_(rows, lost)] = mean[lost] + (there - mean[seen]) @ gain
            left = covariance[np.ix_(lost, lost)] - across.T @ gain
            lefts[g][np.ix_(lost, lost)] = left
    return densities, means, lefts, group


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
