"""Choosing the best of several candidates together, so that nobody sees a score.

Every party adds Gumbel noise to its own shares of the scores, and only the place of the
largest sum is opened. Whoever knows the noise of all parties but one still faces the
exponential mechanism, with the others' noise as part of the scores: one honest party is
enough.

Scores are integers, and the noise is floor(scale G), drawn exactly. Rounding down moves
the noisy scores by less than 1 each: the probability of a winner is that of the
exponential mechanism up to a factor of exp(1 / scale). A record that changes no score
by more than D then changes the logarithms of these probabilities by numbers that differ
among themselves by at most 2 (D + 2) / scale. So a choice costs epsilon = that, and
epsilon^2 / 8 as zCDP [1]_, [2]_.

References
----------
.. [1] F. McSherry, K. Talwar (2007). Mechanism design via differential privacy. FOCS.
.. [2] M. Cesar, R. Rogers (2021). Bounding, concentrating, and truncating: unifying
   privacy loss composition for data analytics. ALT.
"""

import math
import secrets
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Self

import gmpy2
import numpy as np
from scipy.special import gammainccinv

from skprivbn.privacy._composition import zcdp_epsilon

_WORD = 64
#: noise beyond so many scales, of a probability below 2^-184, is cut off
_LARGEST = 128
#: noisy sums of as many parties as there are have to fit 63 bits
_MAX_SCALE = 1 << 50


def discrete_gumbel(scales):
    """Return floor(scale G) for independent standard Gumbel variables G.

    The first bits of a uniform number U decide, if all numbers that begin with them
    give the same floor(-scale log(-log U)); otherwise more bits are drawn.

    Parameters
    ----------
    scales : array-like of int
        Positive.

    Returns
    -------
    noise : ndarray of int64
        Of the same shape.
    """
    scales = np.asarray(scales)
    noise = [_draw(int(scale)) for scale in scales.ravel()]
    return np.array(noise, dtype=np.int64).reshape(scales.shape)


def _draw(scale):
    prefix = bits = 0
    while True:
        prefix, bits = prefix << _WORD | secrets.randbits(_WORD), bits + _WORD
        if not 0 < prefix < (1 << bits) - 1:
            continue
        down, up = _contexts(bits)
        low = _quantile(prefix, bits, scale, down, up)
        if low == _quantile(prefix + 1, bits, scale, up, down):
            return max(-_LARGEST * scale, min(low, _LARGEST * scale))


@lru_cache(maxsize=8)
def _contexts(bits):
    sides = gmpy2.RoundDown, gmpy2.RoundUp
    return [gmpy2.context(precision=bits + _WORD, round=side) for side in sides]


def _quantile(prefix, bits, scale, toward, away):
    """Floor of -scale log(-log U), every step rounded toward the wanted side."""
    # methods of contexts throughout: operators would round to 53 bits
    uniform = toward.div_2exp(gmpy2.mpfr(prefix, bits + 1), bits)
    logarithm = away.log(toward.minus(toward.log(uniform)))
    return int(toward.floor(toward.mul(toward.minus(logarithm), scale)))


@dataclass(frozen=True)
class ChoiceNoise:
    """Noise of choices that several parties make together.

    Parameters
    ----------
    epsilon, delta : float
        Cost of all choices.
    epsilon_each : float
        Of one choice, without delta.
    n_choices : int
        That are paid for.
    n_parties : int
        Each adds noise that is enough by itself.
    """

    epsilon: float
    delta: float
    epsilon_each: float
    n_choices: int
    n_parties: int

    kind = "gumbel"

    @classmethod
    def for_budget(cls, epsilon: float, n_choices: int, n_parties: int) -> Self:
        """Share epsilon out among the choices."""
        return cls(epsilon, 0.0, epsilon / n_choices, n_choices, n_parties)

    @classmethod
    def for_zcdp(cls, rho: float, delta: float, n_choices: int, n_parties: int) -> Self:
        """Share rho out among the choices."""
        each = math.sqrt(8 * rho / n_choices)
        return cls(zcdp_epsilon(rho, delta), delta, each, n_choices, n_parties)

    @property
    def rho(self) -> float:
        """Cost of all choices as zCDP."""
        return self.n_choices * self.epsilon_each**2 / 8

    def scale(self, sensitivity: int) -> int:
        """Return the scale for integer scores that a record changes by so much."""
        scale = math.ceil(
            Fraction(2 * (int(sensitivity) + 2)) / Fraction(self.epsilon_each)
        )
        if scale * self.n_parties > _MAX_SCALE:
            raise ValueError(
                f"epsilon is too small: {self.n_choices} choices would need noise that "
                "does not fit 64-bit scores"
            )
        return scale

    def share(self, scales: np.ndarray) -> np.ndarray:
        """Return one party's noise, fresh at every call; called by the party."""
        return discrete_gumbel(scales)

    def bound(self, scale: int) -> int:
        """Return the largest absolute value of all parties' noise."""
        return self.n_parties * _LARGEST * scale

    def handicap(self, scale: int, n_candidates: int) -> int:
        """Return by how much the best of some candidates has to win.

        Candidates with nothing to gain then win by their noise about once in ten
        times: the noise has the upper tail of a sum of exponential variables.
        """
        return math.ceil(scale * gammainccinv(self.n_parties, 0.1 / n_candidates))
