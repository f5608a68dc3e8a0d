"""Candidates of a search: made, charged to one accountant, listed."""

import math

import numpy as np
from sklearn.base import clone

from skprivbn.privacy._accountant import PrivacyAccountant
from skprivbn.privacy._composition import PrivacyCost
from skprivbn.utils import warn_leak


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
