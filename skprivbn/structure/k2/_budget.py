"""What private K2 spends its budget on, decided before a record is read.

The number of records is known to whoever holds a column. So neighbours are tables in
which one record has other values, not one more record: it leaves a cell of every table
and enters another.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skprivbn.privacy import (
    CountMechanism,
    PrivacyAccountant,
    PrivacyCost,
    distribute,
    zcdp_epsilon,
)
from skprivbn.privacy._composition import zcdp_budget
from skprivbn.privacy._distributed import ChoiceNoise

#: parts of the budget for tables of single columns, choices of parents, final tables
_PARTS = {True: (0.1, 0.5, 0.4), False: (0.0, 0.5, 0.5)}


@dataclass(frozen=True)
class K2Budget:
    """A budget cut into the noise of tables and of choices.

    Parameters
    ----------
    epsilon, delta : float
        Guarantee of the whole. Without delta the parts add up by epsilon, and tables
        have Laplace noise; else they add up as zCDP, and tables have Gaussian noise.
    n_columns, n_choices : int
        Tables, and choices of a parent or of none, of a search.
    needs_margins, fit_parameters : bool
        Whether tables of single columns are released first, and those of all families
        in the end.
    n_parties, min_honest : int
        All parties, and those that are trusted to add their share of the tables' noise.

    Attributes
    ----------
    margins, tables : DistributedNoise or None
    choices : ChoiceNoise or None
    rho : float or None
        Cost of the whole as zCDP; None without delta.
    """

    epsilon: float
    delta: float
    n_columns: int
    n_choices: int
    needs_margins: bool
    fit_parameters: bool
    n_parties: int
    min_honest: int

    def __post_init__(self) -> None:
        # raises what is wrong with the numbers
        mechanism = CountMechanism.for_budget(self.epsilon)
        distribute(mechanism, self.n_parties, self.min_honest)
        if self.delta != 0:
            zcdp_budget(self.epsilon, self.delta)

    @cached_property
    def _fractions(self):
        """Parts of what is released; the others' parts go to these."""
        wanted = self.needs_margins, self.n_choices > 0, self.fit_parameters
        parts = np.multiply(_PARTS[self.needs_margins], wanted)
        return parts / parts.sum() if parts.any() else parts

    @cached_property
    def _zcdp(self):
        return None if self.delta == 0 else zcdp_budget(self.epsilon, self.delta)

    @cached_property
    def margins(self):
        return self._of_tables(self._fractions[0])

    @cached_property
    def tables(self):
        return self._of_tables(self._fractions[2])

    def _of_tables(self, fraction):
        if fraction == 0:
            return None
        changed = 2 * self.n_columns
        if self._zcdp is None:
            mechanism = CountMechanism.for_budget(
                float(fraction * self.epsilon), l1_sensitivity=changed
            )
        else:
            rho, l2 = fraction * self._zcdp, math.sqrt(changed)
            mechanism = CountMechanism(
                "gaussian",
                zcdp_epsilon(rho, self.delta),
                self.delta,
                l2 / math.sqrt(2 * rho),
                l2,
            )
        return distribute(mechanism, self.n_parties, self.min_honest)

    @cached_property
    def choices(self):
        fraction = self._fractions[1]
        if fraction == 0:
            return None
        numbers = self.n_choices, self.n_parties
        if self._zcdp is None:
            return ChoiceNoise.for_budget(float(fraction * self.epsilon), *numbers)
        rho = float(fraction * self._zcdp)
        return ChoiceNoise.for_zcdp(rho, self.delta, *numbers)

    @property
    def rho(self) -> float | None:
        """Cost of the whole as zCDP; None without delta."""
        return self._zcdp

    def spend(self, accountant: PrivacyAccountant, what: str = "") -> PrivacyCost:
        """Charge one fit to an accountant; call it before touching data."""
        return accountant.spend(self.epsilon, self.delta, self.rho, what)

    def epsilon_with_colluders(self) -> np.ndarray:
        """Return epsilon for 0, 1, ..., `n_parties` colluding parties.

        One honest party's noise hides scores as well as all of them; that of tables is
        made for `min_honest`.
        """
        honest = np.arange(self.n_parties, 0, -1)
        if self._zcdp is None:
            extra = sum(
                noise.epsilon_with_colluders()[:-1] - noise.epsilon
                for noise in (self.margins, self.tables)
                if noise is not None
            )
            known = self.epsilon + extra * np.ones(len(honest))
        else:
            less = np.maximum(self.min_honest / honest, 1.0) - 1
            tables = (self._fractions[0] + self._fractions[2]) * self._zcdp
            known = [zcdp_epsilon(self._zcdp + tables * x, self.delta) for x in less]
            known = np.where(less > 0, known, self.epsilon)
        return np.append(known, math.inf)
