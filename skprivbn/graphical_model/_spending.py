"""What a fit of a random field costs."""

import numpy as np

from skprivbn.privacy import PrivacyCost
from skprivbn.privacy._options import charge, charge_exact
from skprivbn.privacy._uncounted import UncountedFitsMixin
from skprivbn.utils import warn_leak

__all__ = ["SpendingMixin"]


class SpendingMixin(UncountedFitsMixin):
    """Charges fits of estimators with `epsilon`, `delta` and `accountant`."""

    def _spend(self, rho, what, states, noise=None):
        """Charge this fit to the accountant, before the rows are looked at.

        Without public states it tells exactly which values occur.
        """
        if states is None:
            charge_exact(self, "states of the columns, which states= would declare")
        spent = charge(self, what, noise, rho=rho)
        return spent if states is not None else PrivacyCost(np.inf, 0.0)

    def _announce_exact_release(self):
        warn_leak("epsilon=None learns from exact tables, without any privacy")
        charge(self, "contingency tables")
        return PrivacyCost(np.inf, 0.0)
