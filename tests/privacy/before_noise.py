"""What is computed of rows before noise is added, and what neighbours really cost.

Everything here goes through :func:`watch_fit`, the one place that knows where noise
enters a fit: a rewrite of the protocols has to replace that function only.
"""

import warnings

import numpy as np

from skprivbn.privacy import _options
from tests.privacy.watching import Attack, cost_of


def watch_fit(estimator, X, beside=None, *, answers=None, n_parties=1):
    """Fit, and return what noise was added to.

    Parameters
    ----------
    estimator : estimator
        Is cloned.
    X : array-like
    beside : dict, default=None
        Further arguments of ``fit``.
    answers : Watch, default=None
        A fit whose noisy answers are repeated. Without it noise is drawn.
    n_parties : int, default=1

    Returns
    -------
    watch : Watch
        ``opened`` are the numbers, without noise if answers are repeated; ``model`` is
        the fitted clone.
    """
    _options._uncounted.clear()  # whether a fit is the second is no news
    _options._said.clear()
    again = () if answers is None else (answers.opened, answers.chosen)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Attack(estimator, [(X, beside or {})], n_parties).fit(0, *again)


def numbers_before_noise(estimator, X, beside=None, **options):
    """Return all integers that noise is added to, in one vector.

    Answers of a fit on the same rows are repeated unless others are given.
    """
    options.setdefault(
        "answers",
        watch_fit(estimator, X, beside, n_parties=options.get("n_parties", 1)),
    )
    watch = watch_fit(estimator, X, beside, **options)
    return np.concatenate([np.ravel(opened) for opened in watch.opened])


def exact_cost(estimator, *worlds, n_parties=1):
    """Return the epsilon that telling two data sets apart really costs.

    Exactly, from the numbers without noise: infinite if only one of the fits ends.

    Parameters
    ----------
    estimator : estimator
        With Laplace noise.
    *worlds : two tuples (X, beside)
    n_parties : int, default=1

    Returns
    -------
    epsilon : float
    """
    ends = []
    for X, beside in worlds:
        try:
            ends.append(watch_fit(estimator, X, beside, n_parties=n_parties))
        except Exception:
            ends.append(None)
    if None in ends:
        return 0.0 if ends == [None, None] else np.inf
    answers = ends[0]
    watches = [
        watch_fit(estimator, X, beside, answers=answers, n_parties=n_parties)
        for X, beside in worlds
    ]
    return cost_of(*watches)
