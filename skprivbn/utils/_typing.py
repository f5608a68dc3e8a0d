"""Names for what arguments may be."""

from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike


class Partition(Protocol):
    """Data that stay with the parties who hold them."""

    @property
    def n_parties(self) -> int:
        """Number of parties."""

    def n_rows(self) -> Any:
        """Return the number of rows of each party, by name."""

    def federate(self, program: Any, terms: Any, *args: Any, **options: Any) -> Any:
        """Open a federation of the parties."""


TableLike: TypeAlias = ArrayLike | Partition
PerRow: TypeAlias = ArrayLike | None
RandomStateLike: TypeAlias = int | np.random.RandomState | None
# np.average takes less than ArrayLike, and numpy has no public name for that
WeightsLike: TypeAlias = Any
