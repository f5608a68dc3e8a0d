"""What the rounds of linear ADMM give away: two attacks, shown in the gallery, too.

The first needs one party's message in the clear, as the paper sends it. The second
needs only the sums over parties of many rounds, which every party reads.
"""

import numpy as np
from scipy.optimize import least_squares


def covariance_from_message(proposal, consensus, dual, rho):
    """Solve equation (8) for the party's covariance.

    Parameters
    ----------
    proposal : ndarray of shape (d, d)
        What the party sent, ``B_k + beta_k / rho2``.
    consensus : ndarray of shape (d, d)
        The consensus it was sent before.
    dual : ndarray of shape (d, d)
        Its multipliers, zero in the first round and known to whoever follows the run.
    rho : float
        The penalty of the round.

    Returns
    -------
    ndarray of shape (d, d)
        Its cross-products over the total number of rows.
    """
    B = proposal - dual / rho
    right = rho * consensus - dual - rho * B
    return np.linalg.solve((B - np.eye(len(B))).T, right.T).T


def covariances_from_sums(
    sums, consensus, rhos, n_parties, *, n_starts=10, random_state=0
):
    """Find the parties' covariances that explain the sums of all rounds.

    Parameters
    ----------
    sums : ndarray of shape (n_rounds, d, d)
        Sum over parties of ``B_k + beta_k / rho2`` of every round.
    consensus : ndarray of shape (n_rounds + 1, d, d)
        The consensus before the first round and after every round.
    rhos : ndarray of shape (n_rounds,)
        The penalties.
    n_parties : int
        Number of parties.
    n_starts : int, default=10
        Least squares problems tried, from random starts.
    random_state : int, default=0
        Seed of the starts.

    Returns
    -------
    covariances : ndarray of shape (n_parties, d, d)
        In an order that the sums cannot tell.
    misfit : float
        Largest difference between explained and observed sums.
    """
    d = sums.shape[1]
    upper = np.triu_indices(d)
    size = len(upper[0])
    rng = np.random.default_rng(random_state)

    def factors(x):
        F = np.zeros((n_parties, d, d))
        F[:, upper[0], upper[1]] = x.reshape(n_parties, size)
        return F

    def explained(x):
        F = factors(x)
        S = np.swapaxes(F, 1, 2) @ F
        dual, total = np.zeros_like(S), []
        for before, after, rho in zip(consensus, consensus[1:], rhos):
            B = np.linalg.solve(S + rho * np.eye(d), rho * before - dual + S)
            total.append((B + dual / rho).sum(axis=0))
            dual = dual + rho * (B - after)
        return np.array(total)

    best, misfit = None, np.inf
    for _ in range(n_starts):
        start = rng.standard_normal(n_parties * size)
        solved = least_squares(
            lambda x: (explained(x) - sums).ravel(),
            start,
            xtol=1e-15,
            ftol=1e-15,
            gtol=1e-15,
            max_nfev=300,
        )
        error = np.abs(solved.fun).max()
        if error < misfit:
            best, misfit = factors(solved.x), error
        if misfit < 1e-9:
            break
    return np.swapaxes(best, 1, 2) @ best, float(misfit)
