"""A search's folds and candidates, and three ways to choose the best of these.

Folds are drawn such that one row does not move the others.

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
from collections.abc import Iterator, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.optimize import brentq
from sklearn.base import clone
from sklearn.model_selection import (
    BaseCrossValidator,
    LeaveOneGroupOut,
    LeavePGroupsOut,
    PredefinedSplit,
    check_cv,
)

from skprivbn.privacy._accountant import PrivacyAccountant
from skprivbn.privacy._composition import PrivacyCost
from skprivbn.privacy._exact_sampling import random_words
from skprivbn.privacy._mechanisms import add_discrete_laplace
from skprivbn.privacy._scores import STEPS, entries_alone
from skprivbn.utils import warn_leak
from skprivbn.utils._validation import label_text, texts_of

#: splitters where a row's fold follows from that row alone, but their number from all
_COUNT_GROUPS = (LeaveOneGroupOut, LeavePGroupsOut, PredefinedSplit)


class LeavePublicGroupOut(BaseCrossValidator):
    """Cross-validation with one fold for each of some declared groups.

    As :class:`sklearn.model_selection.LeaveOneGroupOut`, for private rows. There, the
    number of folds reveals whether some person has a group of their own. Here it is the
    number of public labels, whatever the rows.

    Read more in the :ref:`User Guide <privacy_search>`.

    Parameters
    ----------
    labels : array-like of shape (n_splits,)
        The groups, which are public. Rows of other groups are never held out, and all
        folds learn from them. A group may have no rows.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.privacy import LeavePublicGroupOut
    >>> cv = LeavePublicGroupOut(["north", "south", "west"])
    >>> groups = ["north", "south", "north", "elsewhere"]
    >>> for train, test in cv.split(np.zeros((4, 1)), groups=groups):
    ...     print(train, test)
    [1 3] [0 2]
    [0 2 3] [1]
    [0 1 2 3] []
    """

    __metadata_request__split = {"groups": True}

    def __init__(self, labels: Sequence) -> None:
        self.labels = labels

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Return the rows to learn from and those held out, for each group.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Not looked at.
        y : object, default=None
            Not looked at.
        groups : array-like of shape (n_samples,)
            The group of each row. Numbers and texts that look the same are the same.

        Yields
        ------
        train, test : ndarray of int
        """
        if groups is None:
            raise ValueError("LeavePublicGroupOut needs groups=, the group of each row")
        known = self._known()
        # by their text: one label that is text makes text of all numbers in a file
        texts = (label_text(group) for group in entries_alone(groups))
        codes = np.array([known.get(text, -1) for text in texts], dtype=np.intp)
        for code in range(len(known)):
            yield np.flatnonzero(codes != code), np.flatnonzero(codes == code)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of groups, whatever the rows are.

        Parameters
        ----------
        X, y, groups : object, default=None
            Not looked at.

        Returns
        -------
        n_splits : int
        """
        return len(self._known())

    def _known(self):
        labels = list(entries_alone(self.labels))
        known = texts_of(labels)
        if not known or len(known) < len(labels):
            raise ValueError(
                "labels must be those of at least one group, each of them once; got "
                f"{self.labels!r}"
            )
        return known


def private_splits(cv, X, y, persons, **split_params):
    """Return (train, test) indices; every row is tested at most once.

    Adding a row to scikit-learn's KFold moves the boundary of every fold, and so
    moves other rows. With a number, each person draws a fold for all of their rows,
    from the operating system's randomness. A splitter may test a person's rows in
    several folds; none of these then learns from any row of that person.

    Parameters
    ----------
    cv : int, float or splitter
        Number of folds; fraction of rows to hold out once; or a splitter.
    X, y : array-like
        Passed to a splitter.
    persons : ndarray of int of shape (n_samples,)
        Who is behind each row, counted from 0; -1 where nobody knows, which is
        taken for one person.
    **split_params
        Passed to a splitter, for instance `groups`.

    Returns
    -------
    list of (ndarray, ndarray)
    """
    rows = np.arange(len(persons))
    if isinstance(cv, Integral):
        fold = _coins(persons) % np.uint64(cv)
        return [(rows[fold != k], rows[fold == k]) for k in range(cv)]
    if isinstance(cv, Real):
        held_out = _coins(persons) < np.uint64(cv * 2**64)
        return [(rows[~held_out], rows[held_out])]
    splitter = check_cv(cv, y)
    if isinstance(splitter, _COUNT_GROUPS):
        warn_leak(
            f"{type(cv).__name__} counts the groups that the rows have: one person "
            "with a group of their own makes a fold more, which n_splits_, the fits "
            "and their cost tell without noise; declare the groups, with "
            "cv=LeavePublicGroupOut([...]) and groups="
        )
    elif not isinstance(splitter, LeavePublicGroupOut):
        warn_leak(
            f"the folds of {type(cv).__name__} may move other rows when one is "
            "added, which the privacy guarantee does not cover; use cv=5, cv=0.25, "
            "or LeavePublicGroupOut"
        )
    splits = list(splitter.split(X, y, **split_params))
    times_tested = np.zeros(len(rows), dtype=int)
    for _, test in splits:
        times_tested[test] += 1
    if np.any(times_tested > 1):
        raise ValueError(
            "a row is in several test folds, so one row could change the score more "
            "than the noise hides; use a splitter that tests each row at most once"
        )
    return [
        (train[~np.isin(persons[train], persons[test])], test) for train, test in splits
    ]


def _coins(persons):
    """Draw a number for each person, whoever else is there.

    Nobody may be left to learn from: fits with noise take no rows, too. To draw again
    would put a person where others are not.
    """
    numbers = np.unique(persons, return_inverse=True)[1]
    n_persons = int(numbers.max(initial=-1)) + 1
    return random_words(n_persons)[numbers]


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
