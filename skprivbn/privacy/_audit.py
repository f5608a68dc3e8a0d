"""Does a mechanism keep its promise? An attack that can only prove it wrong."""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import beta

__all__ = ["audit_epsilon"]


def audit_epsilon(
    releases: ArrayLike,
    neighbour_releases: ArrayLike,
    delta: float = 0.0,
    confidence: float = 0.999,
) -> float:
    """Return an epsilon that the mechanism provably exceeds, by attacking its releases.

    An attacker sees one number per release (for instance a log-likelihood ratio) and
    guesses from which of two neighbouring data sets it came. The first half of the
    releases chooses the attacker's guess "at least t" or "at most t", the second half
    measures it, with Clopper-Pearson bounds on both error rates.

    Parameters
    ----------
    releases, neighbour_releases : array-like of shape (n_releases,)
        What independent runs gave on the two data sets, as one number each.
    delta : float, default=0.0
        The delta that the mechanism claims.
    confidence : float, default=0.999
        A sound mechanism's epsilon is exceeded by chance with probability at most
        1 - `confidence`.

    Returns
    -------
    float
        Lower confidence bound of epsilon; zero if nothing was found. A value above
        the claimed epsilon means that the mechanism is broken; a value below proves
        nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.privacy import add_discrete_laplace, audit_epsilon
    >>> zeros = np.zeros(2000, dtype=int)
    >>> a = add_discrete_laplace(zeros, 1, epsilon=1.0)
    >>> b = add_discrete_laplace(zeros + 1, 1, epsilon=1.0)
    >>> audit_epsilon(a, b, confidence=1 - 1e-9) <= 1.0
    True
    """
    first = np.asarray(releases, dtype=float)
    second = np.asarray(neighbour_releases, dtype=float)
    train = first[: first.size // 2], second[: second.size // 2]
    test = first[first.size // 2 :], second[second.size // 2 :]
    # two directions are tested, each by two bounds: share the error among them
    alpha = (1 - confidence) / 4
    bounds = [0.0]
    for one, other in (0, 1), (1, 0):
        sign, threshold = _best_guess(train[one], train[other], delta)
        hits = np.count_nonzero(sign * test[one] >= sign * threshold)
        misses = np.count_nonzero(sign * test[other] >= sign * threshold)
        likely = _lower(hits, test[one].size, alpha)
        unlikely = 1 - _lower(test[other].size - misses, test[other].size, alpha)
        if likely > delta and unlikely > 0:
            bounds.append(math.log((likely - delta) / unlikely))
    return max(bounds)


def _best_guess(one, other, delta):
    """The one-sided guess with the largest bound on the training half."""
    best = -math.inf, 1, 0.0
    for sign in (1, -1):
        a, b = np.sort(sign * one), np.sort(sign * other)
        thresholds = np.unique(np.concatenate([a, b]))
        hits = a.size - np.searchsorted(a, thresholds, side="left")
        misses = b.size - np.searchsorted(b, thresholds, side="left")
        likely = beta.ppf(0.01, np.maximum(hits, 0.5), a.size - hits + 1)
        unlikely = beta.ppf(0.99, misses + 1, np.maximum(b.size - misses, 0.5))
        gain = np.log(np.maximum(likely - delta, 1e-300)) - np.log(unlikely)
        i = int(np.argmax(gain))
        best = max(best, (float(gain[i]), sign, float(sign * thresholds[i])))
    return best[1:]


def _lower(successes, trials, alpha):
    """Clopper-Pearson lower bound of a probability."""
    if successes == 0:
        return 0.0
    return float(beta.ppf(alpha, successes, trials - successes + 1))
