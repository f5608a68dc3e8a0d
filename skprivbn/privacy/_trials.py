"""Choosing by a random number of trials that nobody learns: cheap for large grids.

A trial draws a candidate, fits it on some rows and scores it on the others, with noise.
Only the best of all trials is released. If each of them is epsilon-differentially
private, their number follows the logarithmic distribution, and neither it nor a losing
trial is told, the best one is 2 epsilon-differentially private, however many there are.

References
----------
J. Liu, K. Talwar (2019). Private selection from private candidates. STOC.
N. Papernot, T. Steinke (2022). Hyperparameter tuning with Renyi differential privacy.
ICLR. (Its truncated negative binomial distribution with eta = 0.)
"""

import math
import secrets
import warnings

from scipy.optimize import brentq

from skprivbn.privacy._accountant import PrivacyAccountant
from skprivbn.privacy._candidates import cost_of_fit, make_candidate
from skprivbn.privacy._composition import PrivacyCost

#: the choice costs this times what one trial costs
PRICE = 2.0


def stop_probability(mean):
    """Return gamma of the logarithmic distribution of a given mean, at least 1.

    Of ``P(K = k) = (1 - gamma)^k / (k log(1 / gamma))`` for k = 1, 2, ...

    Parameters
    ----------
    mean : float

    Returns
    -------
    gamma : float

    Examples
    --------
    >>> from skprivbn.privacy._trials import stop_probability
    >>> round(stop_probability(10.0), 4)
    0.0269
    """
    if mean <= 1:
        return 1.0

    def excess(log_odds):
        return math.expm1(log_odds) / log_odds - mean

    # with log(1 / gamma) as the unknown, the mean rises from 1
    return math.exp(-brentq(excess, 1e-9, 2 * math.log(mean) + 5, xtol=1e-12))


def draw_n_trials(mean):
    """Draw the number of trials, with the operating system's randomness."""
    gamma = stop_probability(mean)
    if gamma == 1.0:
        return 1
    left = secrets.randbits(64) / 2.0**64 * math.log(1 / gamma)
    k, power = 1, 1 - gamma
    while left >= power / k and power > 1e-18:
        left -= power / k
        k, power = k + 1, power * (1 - gamma)
    return k


def cost_of_trials(estimator, candidates, epsilon):
    """Return what the best of random trials costs, before any is made.

    A person is among the rows of the fit or among those of the score, so that one trial
    costs the larger of both.

    Parameters
    ----------
    estimator : estimator
    candidates : list of dict
    epsilon : float
        Of the score.

    Returns
    -------
    cost : PrivacyCost
        Infinite if the fits are exact.
    """
    fits = [stated_cost(make_candidate(estimator, c, None)) for c in candidates]
    if any(cost.delta > 0 for cost in fits):
        raise ValueError(
            "method='random_trials' needs fits with delta=0: its guarantee is for pure "
            "epsilon"
        )
    return PrivacyCost(PRICE * max(epsilon, *(cost.epsilon for cost in fits)))


def stated_cost(estimator):
    """What a fit is going to cost, by the parameters of the estimator or its steps."""
    steps = [step for _, step in getattr(estimator, "steps", [("", estimator)])]
    steps = [step for step in steps if step not in (None, "passthrough")]
    epsilons = [getattr(step, "epsilon", None) for step in steps]
    deltas = [getattr(step, "delta", 0.0) for step in steps]
    # None is a small one, which the accountant of the fit will say
    delta = math.fsum(1e-6 if delta is None else delta for delta in deltas)
    if None in epsilons:
        return PrivacyCost(math.inf)
    return PrivacyCost(math.fsum(epsilons), delta)


def best_of_trials(estimator, candidates, n_trials, run):
    """Make a random number of trials and return the best.

    Parameters
    ----------
    estimator : estimator
    candidates : list of dict
    n_trials : float
        How many are expected.
    run : callable
        From an estimator to the fitted one and its noisy score.

    Returns
    -------
    index : int
        Of the winner.
    score : float
        Noisy.
    """
    best = None
    for _ in range(draw_n_trials(n_trials)):
        index = secrets.randbelow(len(candidates))
        model = make_candidate(estimator, candidates[index], None)
        counting = [name for name in model.get_params() if name.endswith("accountant")]
        # paid for all at once: what an account, or a warning, tells of a trial tells
        # that there was one; and so would be told by whoever adds up uncounted fits
        model.set_params(**dict.fromkeys(counting, PrivacyAccountant(math.inf)))
        stated = stated_cost(model).epsilon
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, score = run(model)
        if cost_of_fit(model).epsilon > stated * (1 + 1e-9):
            raise ValueError(
                f"{type(estimator).__name__} costs more than its epsilon says: nothing "
                "of its fits may be exact (give states=, bounds=)"
            )
        # those who tie are put in order by chance
        trial = score, secrets.randbits(64), index
        best = trial if best is None else max(best, trial)
    score, _, index = best
    return index, score
