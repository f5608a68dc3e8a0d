"""How the costs of several releases add up. Pure functions on plain numbers."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import NamedTuple, Self

import numpy as np

from skprivbn.utils import html_table

#: what neighbouring data sets differ in: a row, all rows of a person, or the values of
#: one record, the number of records being known
UNITS = ("rows", "individuals", "values")


class _Cost(NamedTuple):
    epsilon: float
    delta: float = 0.0


class PrivacyCost(_Cost):
    """An (epsilon, delta) guarantee; infinite epsilon means an exact release.

    A pair of numbers with the unit of privacy.

    Parameters
    ----------
    epsilon : float
        Privacy loss.
    delta : float, default=0.0
        Probability with which the loss may be larger.
    unit : {"rows", "individuals", "values"} or None, default=None
        What neighbouring data sets differ in: one row, added or removed; all rows of
        one person; or the values of one record. None if unknown.
    """

    unit: str | None

    def __new__(
        cls, epsilon: float, delta: float = 0.0, unit: str | None = None
    ) -> Self:
        """Make a cost of its numbers."""
        cost = super().__new__(cls, epsilon, delta)
        cost.unit = unit
        return cost

    def __repr__(self):
        unit = "" if self.unit in (None, "rows") else f", unit={self.unit!r}"
        return f"PrivacyCost(epsilon={self.epsilon}, delta={self.delta}{unit})"

    def _repr_html_(self):
        # an accountant's word: "hides" rows, individuals or values
        cells = [self.unit or "", f"{self.epsilon:g}", f"{self.delta:g}"]
        return html_table(["hides", "epsilon", "delta"], [cells])


@dataclass(frozen=True)
class Spend:
    """One release, with every guarantee that holds for it.

    Parameters
    ----------
    epsilon, delta : float or None, float
        The release is (epsilon, delta)-differentially private. None if only `rho`
        is known.
    rho : float or None
        The release is rho-zCDP as well. A pure release (delta = 0) is
        epsilon^2 / 2 zCDP, which :func:`total_cost` knows by itself.
    what : str
        What was released, in plain words.
    at : str
        When, in ISO format and UTC.
    unit : {"rows", "individuals", "values"} or None
        What neighbours differ in, as of :class:`PrivacyCost`.
    """

    epsilon: float | None = None
    delta: float = 0.0
    rho: float | None = None
    what: str = ""
    at: str = ""
    unit: str | None = None

    def __post_init__(self):
        if self.epsilon is None and self.rho is None:
            raise ValueError("a spend needs epsilon (with delta) or rho")
        if self.unit not in (None, *UNITS):
            raise ValueError(f"unit must be one of {UNITS}, got {self.unit!r}")
        for name, value in (("epsilon", self.epsilon), ("rho", self.rho)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, got {value!r}")
        if not 0 <= self.delta < 1:
            raise ValueError(f"delta must be in [0, 1), got {self.delta!r}")
        if self.epsilon is None and self.delta > 0:
            raise ValueError(
                "delta belongs to epsilon; a spend in rho alone has no delta (it is "
                "converted at the accountant's own delta)"
            )

    @property
    def is_pure(self) -> bool:
        """Whether the guarantee holds without a delta."""
        return self.epsilon is not None and self.delta == 0


def public_delta(n_rows: float) -> float:
    """Return the delta that suits a public bound on the number of rows.

    A power of ten, at most 1e-6 and at most a hundredth of ``1 / n_rows``: delta is
    the probability that noise fails, which must be far below one in a row.

    Parameters
    ----------
    n_rows : float
        Public, not counted in the rows.

    Returns
    -------
    delta : float

    Examples
    --------
    >>> from skprivbn.privacy import public_delta
    >>> public_delta(10_000), public_delta(2_000_000)
    (1e-06, 1e-09)
    """
    if not 1 <= n_rows < math.inf:
        raise ValueError(f"n_rows must be at least 1 and finite, got {n_rows!r}")
    # a hair more digits than rounding errors of the logarithm reach
    exponent = math.ceil(round(math.log10(n_rows * 100), 9))
    return min(float(f"1e-{exponent}"), 1e-6)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the epsilon that rho-zCDP implies at a given delta.

    dp-accounting's conversion of Renyi divergences, at orders around the best one.
    Every order gives a valid bound; the grid only decides how close to the best.

    Parameters
    ----------
    rho : float
        Cost in zero-concentrated differential privacy, not negative.
    delta : float
        Wanted delta.

    Returns
    -------
    float
        Epsilon; infinite if delta is zero.

    Examples
    --------
    >>> from skprivbn.privacy import zcdp_epsilon
    >>> round(zcdp_epsilon(0.03, delta=1e-6), 3)
    1.118
    """
    if rho == 0:
        return 0.0
    if delta <= 0 or math.isinf(rho):
        return math.inf
    from dp_accounting import rdp  # slow to import, and pure budgets never need it

    best = math.sqrt(max(-math.log(delta), 1e-3) / rho)
    orders = 1 + best * np.geomspace(0.2, 5, 1001)
    return float(rdp.compute_epsilon(orders, rho * orders, delta)[0])


@lru_cache(maxsize=256)
def zcdp_budget(epsilon, delta):
    """Largest rho whose zCDP guarantee implies (epsilon, delta)."""
    if not (0 < epsilon < math.inf and 0 < delta < 1):
        raise ValueError(
            "epsilon must be positive and finite, and delta between 0 and 1, got "
            f"epsilon={epsilon!r}, delta={delta!r}"
        )
    low, high = 0.0, epsilon
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        if zcdp_epsilon(middle, delta) > epsilon:
            high = middle
        else:
            low = middle
    return low


def total_cost(spends, delta):
    """Return the smallest known :class:`PrivacyCost` of `spends` together.

    A release with several guarantees may be counted by any of them. Pure releases,
    and releases with both (epsilon, delta) and rho, are each counted either by
    summing epsilon and delta or by summing rho; the best of these four is taken.
    Sums of rho become an epsilon at the delta that the others leave over.

    The bound holds for releases chosen one after the other in view of earlier
    results, with costs that do not themselves depend on earlier results. Where all are
    counted in the same way, by epsilon or by rho, costs may depend on them, too: a
    budget then is a limit on a sum, a filter [1]_.

    Parameters
    ----------
    spends : sequence of Spend
        The releases.
    delta : float
        The delta that may be used in all.

    Returns
    -------
    PrivacyCost
        With infinite epsilon if `delta` is not enough.

    References
    ----------
    .. [1] V. Feldman, T. Zrnic (2021). Individual privacy accounting via a Renyi
       filter. NeurIPS.
    """
    only_rho = [s for s in spends if s.epsilon is None]
    pure = [s for s in spends if s.is_pure]
    both = [s for s in spends if s.delta > 0 and s.rho is not None]
    only_epsilon = [s for s in spends if s.delta > 0 and s.rho is None]

    best = PrivacyCost(math.inf, delta)
    for pure_by_rho in (False, True):
        for both_by_rho in (False, True):
            by_rho = only_rho + pure * pure_by_rho + both * both_by_rho
            by_sum = only_epsilon + pure * (not pure_by_rho) + both * (not both_by_rho)
            cost = _mixed_cost(by_sum, by_rho, delta)
            # strictly less: on a tie the plain sum, which uses no more delta, stays
            if cost.epsilon < best.epsilon:
                best = cost
    return best


def _mixed_cost(by_sum, by_rho, delta):
    epsilon = math.fsum(s.epsilon for s in by_sum)
    used = math.fsum(s.delta for s in by_sum)
    if used > delta * (1 + 1e-12):
        return PrivacyCost(math.inf, delta)
    if not by_rho:
        return PrivacyCost(epsilon, used)
    rho = math.fsum(_rho(s) for s in by_rho)
    return PrivacyCost(epsilon + zcdp_epsilon(rho, delta - used), delta)


def _rho(spend):
    candidates = [] if spend.rho is None else [spend.rho]
    if spend.is_pure:
        candidates.append(spend.epsilon**2 / 2)
    return min(candidates)


def composed_cost(costs: Sequence[PrivacyCost], delta: float) -> PrivacyCost:
    """Return the joint cost of releases whose single costs were fixed beforehand.

    By privacy loss distributions (dp-accounting), of which every (epsilon, delta) has a
    worst one: for many pure releases less than :class:`PrivacyAccountant` counts, which
    has to be right also if later costs depend on earlier results.

    Parameters
    ----------
    costs : sequence of PrivacyCost
        Of single releases, such as ``privacy_spent_``; the releases themselves may
        depend on earlier results.
    delta : float
        Of all together.

    Returns
    -------
    PrivacyCost

    See Also
    --------
    PrivacyAccountant : Counts and refuses.

    Examples
    --------
    >>> from skprivbn.privacy import PrivacyCost, composed_cost
    >>> composed_cost([PrivacyCost(0.1)] * 100, delta=1e-5)
    PrivacyCost(epsilon=4.3..., delta=1e-05)
    """
    spends = [Spend(cost.epsilon, cost.delta) for cost in costs if any(cost)]
    best = total_cost(spends, delta)
    if math.isinf(best.epsilon) or delta == 0 or not spends:
        return best
    from dp_accounting.pld import common, privacy_loss_distribution

    counted = Counter((spend.epsilon, spend.delta) for spend in spends)
    worst = [
        privacy_loss_distribution.from_privacy_parameters(
            common.DifferentialPrivacyParameters(epsilon, own_delta),
            value_discretization_interval=1e-3,
        ).self_compose(times)
        for (epsilon, own_delta), times in counted.items()
    ]
    composed = reduce(lambda one, other: one.compose(other), worst)
    epsilon = float(composed.get_epsilon_for_delta(delta))
    return min(best, PrivacyCost(epsilon, delta), key=lambda cost: cost.epsilon)
