"""What no accountant adds up: the second fit with epsilon warns, and exact scores."""

import math
from typing import Any, Self
from weakref import WeakKeyDictionary

from skprivbn.utils import warn_leak

#: uncounted fits of an estimator; its clones have the same list. Not an attribute:
#: scikit-learn wants clones to have parameters only, and pickles need not know.
_uncounted: WeakKeyDictionary[Any, list[float]] = WeakKeyDictionary()
#: whether exact scores of an estimator, or of a clone, were pointed out: empty or not
_scored: WeakKeyDictionary[Any, list[bool]] = WeakKeyDictionary()


class UncountedFitsMixin:
    """Lets clones of an estimator remember fits that no accountant counts."""

    def __sklearn_clone__(self) -> Self:
        copy = super().__sklearn_clone__()  # type: ignore[misc]
        # Searches fit clones, each once: only together do they spend too much.
        _uncounted[copy] = _uncounted.setdefault(self, [])
        _scored[copy] = _scored.setdefault(self, [])
        return copy


def note_uncounted_fit(estimator: Any) -> None:
    """Warn at the second fit of an estimator, or of its clones, without accountant.

    Parameters
    ----------
    estimator : estimator
        With `epsilon`.
    """
    fits = _uncounted.setdefault(estimator, [])
    fits.append(float(estimator.epsilon))
    # Once: every fit of a search resets Python's memory of what was said.
    if len(fits) == 2:
        warn_leak(
            "this is the second fit of the same estimator, or of its clones, "
            "without an accountant: on the same rows every fit spends its "
            f"epsilon again, {sum(fits):.3g} so far, and nothing adds up what "
            "it and further fits spend. Pass "
            "accountant=PrivacyAccountant(epsilon=...), which limits it"
        )


def note_exact_score(estimator: Any) -> None:
    """Warn once if an estimator with a limited budget, or a clone, scores exactly.

    Nobody but the user knows whether the rows are private. An accountant with a limit
    says that some are, and that all that is told of them is to be counted.

    Parameters
    ----------
    estimator : estimator
        Fitted.
    """
    if getattr(estimator, "epsilon", None) is None:
        return
    accountant = getattr(estimator, "accountant", None)
    if accountant is None or math.isinf(accountant.epsilon):
        return
    told = _scored.setdefault(estimator, [])
    if not told:
        told.append(True)
        warn_leak(
            "score is an exact function of the rows, which the accountant does not "
            "count. For public rows that is fine; for private ones use "
            "skprivbn.privacy.private_score, and PrivateSearchCV in place of "
            "GridSearchCV"
        )
