"""Which rows go to the centre, and with which weights.

Rows that are unlikely at every site tell most about links between sites, and least
about how often things happen: outside the selected set the inclusion probability is
zero, which no weight repairs. ``"random"`` rows have equal probabilities; ``"mixed"``
takes unlikely rows with certainty and some of the others at random, with the inverse
of their probability as weight.
"""

import hashlib

import numpy as np

SELECTIONS = ("low_likelihood", "mixed", "random")


def n_lowest(selection, n_rows):
    """Return how many of the rows to send are chosen for their low likelihood."""
    return {"low_likelihood": n_rows, "mixed": n_rows // 2, "random": 0}[selection]


def priorities(keys, seed):
    """Put records in a random order that depends on their keys only.

    Sites that know the same keys agree on it, wherever their files hold the records.

    Parameters
    ----------
    keys : sequence of str
    seed : bytes

    Returns
    -------
    rank : ndarray of int
        Position of every record.
    """
    digests = [hashlib.sha256(seed + key.encode()).digest() for key in keys]
    order = sorted(range(len(digests)), key=digests.__getitem__)
    rank = np.empty(len(digests), dtype=np.int64)
    rank[order] = np.arange(len(digests))
    return rank


def lowest_rows(log_likelihood, rank, n_rows):
    """Mark the `n_rows` least likely rows; among equals the first in rank."""
    chosen = np.zeros(len(rank), dtype=bool)
    chosen[np.lexsort((rank, log_likelihood))[:n_rows]] = True
    return chosen


def unlikely_rows(log_likelihood, n_std):
    """Mark rows whose likelihood is below its mean plus `n_std` standard deviations."""
    # a common factor changes neither side of the comparison, and avoids underflow
    likelihood = np.exp(log_likelihood - log_likelihood.max())
    return likelihood < likelihood.mean() + n_std * likelihood.std()


def draw_rows(rank, taken, n_rows):
    """Return the `n_rows` rows first in rank that are not taken, ascending."""
    rest = np.flatnonzero(~taken)
    return np.sort(rest[np.argsort(rank[rest])[:n_rows]])


def common_lowest(offer, n_samples, n_rows):
    """Find the rows that are among the least likely at every site.

    Parameters
    ----------
    offer : callable
        From a number of rows to the mark of those that every site counts among so
        many of its least likely ones; a generator, of rounds, that returns it.
    n_samples : int
    n_rows : int
        How many rows to find.

    Returns
    -------
    chosen : ndarray of bool, shape (n_samples,)
        The smallest such set that holds at least `n_rows` rows.
    """
    low, high, chosen = n_rows, n_samples, None
    while low < high:
        middle = (low + high) // 2
        offered = yield from offer(middle)
        if offered.sum() >= n_rows:
            high, chosen = middle, offered
        else:
            low = middle + 1
    return (yield from offer(high)) if chosen is None else chosen


def row_weights(n_samples, n_unlikely, n_random):
    """Return weights of unlikely rows, then of random ones.

    Inverse inclusion probabilities, scaled to add up to the effective sample size
    (Kish, 1965), which is what a score's penalty and a prior count compare with.

    Parameters
    ----------
    n_samples : int
        Rows that each site has.
    n_unlikely, n_random : int
        Rows sent.

    Returns
    -------
    weights : ndarray of shape (n_unlikely + n_random,)
    """
    weights = np.ones(n_unlikely + n_random)
    if n_random and n_unlikely:
        weights[n_unlikely:] = (n_samples - n_unlikely) / n_random
        weights *= weights.sum() / (weights**2).sum()
    return weights
