"""What a fit costs, and saying so when nobody adds it up."""

from weakref import WeakKeyDictionary

import numpy as np

from skprivbn.privacy import PrivacyCost, check_accountant
from skprivbn.utils import warn_leak

__all__ = ["SpendingMixin"]

#: uncounted fits of an estimator; its clones have the same list. Not an attribute:
#: scikit-learn wants clones to have parameters only, and pickles need not know.
_uncounted = WeakKeyDictionary()


class SpendingMixin:
    """Charges fits of estimators with `epsilon`, `delta` and `accountant`."""

    def __sklearn_clone__(self):
        copy = super().__sklearn_clone__()
        # Searches fit clones, each once: only together do they spend too much.
        _uncounted[copy] = _uncounted.setdefault(self, [])
        return copy

    def _spend(self, rho, what):
        """Charge this fit to the accountant, before the rows are looked at."""
        if self.accountant is None:
            fits = _uncounted.setdefault(self, [])
            fits.append(float(self.epsilon))
            # Once: every fit of a search resets Python's memory of what was said.
            if len(fits) == 2:
                warn_leak(
                    "this is the second fit of the same estimator, or of its clones, "
                    "without an accountant: on the same rows every fit spends its "
                    f"epsilon again, {sum(fits):.3g} so far, and nothing adds up what "
                    "it and further fits spend. Pass "
                    "accountant=PrivacyAccountant(epsilon=...), which limits it"
                )
        accountant = check_accountant(self.accountant, self.epsilon, self.delta, rho)
        accountant.spend(self.epsilon, self.delta, rho, what)
        return PrivacyCost(float(self.epsilon), float(self.delta))

    def _announce_exact_release(self):
        warn_leak("epsilon=None learns from exact tables, without any privacy")
        if self.accountant is not None:
            self.accountant.spend(np.inf, what="exact contingency tables")
        return PrivacyCost(np.inf, 0.0)
