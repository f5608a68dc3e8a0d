"""Candidates of a search, and three ways to choose the best without telling too much.

:class:`NoisyRanking` and :class:`NoisyMax` have `bounds`, `rho` (cost as zCDP, if any)
and `release`, which takes the candidates' exact sums and gives the winner's index and
columns for ``cv_results_``. :func:`best_of_trials` is cheap for large grids: a trial
draws a candidate, fits it on some rows and scores it on the others, with noise. Only
the best of all trials is released. If each of them is epsilon-differentially private,
their number follows the logarithmic distribution, and neither it nor a losing trial is
told, the best one is 2 epsilon-differentially private, however many there are.

References
----------
J. Liu, K. Talwar (2019). Private selection from private candidates. STOC.
N. Papernot, T. Steinke (2022). Hyperparameter tuning with Renyi differential privacy.
ICLR. (Its truncated negative binomial distribution with eta = 0.)
"""

import math
import secrets
import warnings

import numpy as np
from scipy.optimize import brentq
from sklearn.base import clone

from skprivbn.privacy._accountant import PrivacyAccountant
from skprivbn.privacy._composition import PrivacyCost
from skprivbn.privacy._mechanisms import add_discrete_laplace
from skprivbn.privacy._scores import STEPS
from skprivbn.utils import warn_leak

#: the best of random trials costs this times what one trial costs
PRICE = 2.0


def make_candidate(estimator, parameters, accountant):
    """Clone and set parameters; steps without an accountant get the common one."""
    candidate = clone(estimator).set_params(**clone(parameters, safe=False))
    if accountant is not None:
        uncounted = {
            name: accountant
            for name, value in candidate.get_params().items()
            if name.split("__")[-1] == "accountant" and value is None
        }
        candidate.set_params(**uncounted)
    return candidate


def find_accountant(estimator, accountant, candidates):
    """The one accountant that search, estimator and candidates share, or None."""
    found = [] if accountant is None else [accountant]
    values = [*estimator.get_params().values()]
    for candidate in candidates:
        values.extend(candidate.values())
    for value in values:
        if isinstance(value, PrivacyAccountant) and all(value is not a for a in found):
            found.append(value)
    if len(found) > 1:
        raise ValueError(
            "the search, its estimator and param_grid count on different accountants, "
            "so nobody would know the total; give all the same one, or only the search"
        )
    return found[0] if found else None


def cost_of_fit(estimator):
    """Return what a fit, or all steps of a pipeline, spent; infinity if none says."""
    if hasattr(estimator, "privacy_spent_"):
        spent = estimator.privacy_spent_
        return PrivacyCost(*spent, getattr(spent, "unit", None))
    steps = [step for _, step in getattr(estimator, "steps", [])]
    costs = [cost_of_fit(step) for step in steps if step not in (None, "passthrough")]
    if not costs:
        return PrivacyCost(math.inf)
    return sum_of_costs(costs)


def sum_of_costs(costs):
    """Add epsilons and deltas; of one unit, if all are."""
    units = {cost.unit for cost in costs if cost.epsilon > 0}
    unit = units.pop() if len(units) == 1 else None
    return PrivacyCost(*map(math.fsum, zip(*costs)), unit)


def warn_of_exact_fits(estimator, accountant):
    """Warn of fits that state no cost; an accountant with a limit refuses them."""
    name = type(estimator).__name__
    if accountant is not None:
        accountant.spend(math.inf, what=f"fits of {name} without a stated cost")
    warn_leak(
        f"{name} does not say what its fit costs (privacy_spent_), so its fits are "
        "taken to be exact: the choice among candidates is noisy, but the fitted "
        "models still tell about their rows"
    )


def parameter_table(candidates):
    """Return the ``params`` and ``param_*`` columns of ``cv_results_``."""
    table = {}
    for name in sorted({name for candidate in candidates for name in candidate}):
        column = np.ma.masked_all(len(candidates), dtype=object)
        for i, candidate in enumerate(candidates):
            if name in candidate:
                column[i] = candidate[name]
        table[f"param_{name}"] = column
    return table | {"params": candidates}


class NoisyRanking:
    """Release every candidate's score with noise; rank by the noisy sums."""

    def __init__(self, scores):
        self.scores, self.bounds = scores, scores.bounds
        self.rho = scores.mechanism.rho

    def release(self, totals, weight):
        means, stds, sums = self.scores.release(totals, weight)
        order = np.argsort(-sums, kind="stable")
        rank = np.empty(sums.size, dtype=np.int32)
        rank[order] = np.arange(1, sums.size + 1)
        return int(order[0]), {
            "mean_test_score": means,
            "std_test_score": stds,
            "rank_test_score": rank,
        }


class NoisyMax:
    """Release only which candidate's noisy sum is the largest."""

    rho = None

    def __init__(self, epsilon, bounds, max_weight):
        self.epsilon, self.bounds, self.max_weight = epsilon, bounds, max_weight

    def release(self, totals, weight):
        # one row moves one sum up and another down, each by half of the steps: the
        # winner's lead changes by twice that, whatever the number of candidates
        lead = self.max_weight * STEPS
        best = int(np.argmax(add_discrete_laplace(totals, lead, self.epsilon)))
        rank = np.full(len(totals), 2, dtype=np.int32)
        rank[best] = 1
        return best, {"rank_test_score": rank}


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
    >>> from skprivbn.privacy._selection import stop_probability
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
