"""How large the numbers are, without anybody telling: votes for powers of two.

Secure sums have a limited range, and nobody may say how large a party's values are.
So each party votes, per feature, for the power of two that bounds its own values; the
votes are summed securely, and the highest one that somebody voted for bounds all.
"""

import math
from dataclasses import dataclass

import numpy as np

from skprivbn.crypto import resolve_backend


@dataclass(frozen=True)
class Ballot:
    """Powers of two to vote for: 2**lowest, 2**(lowest + step), ...

    Parameters
    ----------
    lowest, step, n_choices : int
    """

    lowest: int
    step: int
    n_choices: int

    def votes(self, largest):
        """Return one vote per value, for the smallest power above it.

        Parameters
        ----------
        largest : ndarray of shape (n_values,)
            Non-negative values.

        Returns
        -------
        votes : ndarray of int64 of shape (n_values * n_choices,)

        Examples
        --------
        >>> import numpy as np
        >>> Ballot(lowest=0, step=4, n_choices=3).votes(np.array([0.1, 200.0]))
        array([1, 0, 0, 0, 0, 1])
        """
        _, exponents = np.frexp(largest)
        choices = np.ceil((exponents - self.lowest) / self.step).astype(int)
        choices = np.where(largest == 0, 0, np.maximum(choices, 0))
        if np.any(choices >= self.n_choices):
            raise OverflowError("a value is beyond the powers of two to vote for")
        votes = np.zeros((len(largest), self.n_choices), dtype=np.int64)
        votes[np.arange(len(largest)), choices] = 1
        return votes.ravel()

    def bounds(self, total):
        """Return the highest power that got a vote, per value.

        Parameters
        ----------
        total : ndarray of shape (n_values * n_choices,)
            Sum of the parties' votes.

        Returns
        -------
        bounds : ndarray of shape (n_values,)
        """
        voted = total.reshape(-1, self.n_choices) > 0
        highest = self.n_choices - 1 - np.argmax(voted[:, ::-1], axis=1)
        return np.exp2(self.lowest + self.step * highest.astype(float))


#: for the values themselves
MAGNITUDES = Ballot(lowest=-128, step=4, n_choices=65)
#: for distances from the centre, in units of the magnitude; less is rounding error
DISTANCES = Ballot(lowest=-54, step=2, n_choices=29)

# Moments of order one per row must stay below the backend's limit although a single
# party may hold nearly all rows, and although rows may lie far from their component.
_HEADROOM = 32
# Largest error of a sum, in units of the number of rows, with which EM can converge.
_MAX_ERROR = 1e-6


def sum_unit(max_sum, n_parties, n_rows):
    """Return the power of two by which moments are multiplied before a secure sum.

    Parameters
    ----------
    max_sum : float
        Largest value that the backend can add.
    n_parties, n_rows : int
        Over which moments are summed.

    Returns
    -------
    unit : float

    Examples
    --------
    >>> sum_unit(2.0**21, n_parties=8, n_rows=8192)
    1.0
    """
    if math.isinf(max_sum):
        return 1.0
    return 2.0 ** math.floor(math.log2(max_sum / (_HEADROOM * n_parties * n_rows)))


def check_precision(backend, n_parties):
    """Return the backend, or raise ValueError if its sums are too coarse for EM.

    Parameters
    ----------
    backend : str or AdditiveBackend
    n_parties : int

    Returns
    -------
    backend : AdditiveBackend
    """
    backend = resolve_backend(backend)
    if hasattr(backend, "error_bound"):
        one_per_row = backend.max_sum() / (_HEADROOM * n_parties)
        error = backend.error_bound(n_parties) / one_per_row
        if error > _MAX_ERROR:
            raise ValueError(
                f"{backend} adds with a relative error of {error:.1g} over "
                f"{n_parties} parties, too much for EM ({_MAX_ERROR:g}): increase "
                "coeff_mod_bit_sizes"
            )
    return backend
