"""An exact sampler for negative binomials with a fractional shape.

A party's share of distributed Laplace noise is a difference of two negative binomial
(Polya) variables of shape 1 / H. OpenDP has no sampler for them, and floating-point
samplers have holes, so this one inverts the distribution function in integers:

- lower and upper bounds of the distribution function come from an integer recurrence
  that always rounds down, or always up. The two constants in it, exp(-decay) and
  (1 - exp(-decay))^(1/H), are enclosed by MPFR's directed rounding;
- a uniform number is drawn from the operating system, its first 64 bits at once. When
  they lie clear of all bounds, they decide the outcome, whatever bits would follow.
  Otherwise (once in about 2^64 / table length draws) more bits are drawn and the bounds
  are computed with more digits until they decide.

So the result is distributed exactly as the inverse distribution function of a uniform
real number. A draw is one search in a sorted table: its time tells next to nothing.
"""

import os
import secrets
from fractions import Fraction
from functools import lru_cache

import gmpy2
import numpy as np
from gmpy2 import mpq, mpz

__all__ = ["PolyaSampler"]

#: entries of the largest table: beyond, building it takes too long
MAX_ENTRIES = 2**22


class PolyaSampler:
    """Draws from P(k) = Gamma(k + 1/H) / (k! Gamma(1/H)) p^k (1 - p)^(1/H).

    Parameters
    ----------
    decay : Fraction
        p = exp(-decay).
    n_shares : int
        H: the sum of H draws is geometric.
    prefix_bits : int, default=64
        Bits drawn at first; fewer only to test the slow path.
    """

    def __init__(self, decay, n_shares, prefix_bits=64):
        self.decay, self.n_shares = Fraction(decay), n_shares
        self.prefix_bits = prefix_bits
        if 45 / self.decay > MAX_ENTRIES:
            raise ValueError(
                f"distributed Laplace noise of scale {float(1 / self.decay):g} is too "
                f"wide for the exact sampler (at most {MAX_ENTRIES / 45:.0f}). Use a "
                "larger epsilon, coarser counts, or delta > 0 (Gaussian noise)."
            )
        lower, upper = [], []
        for low, high in self._bounds(prefix_bits):
            if high >> prefix_bits:  # the rest of the tail is for the slow path
                break
            lower.append(int(low))
            upper.append(int(high))
        self._lower = np.array(lower, dtype=np.uint64)
        self._upper = np.array(upper, dtype=np.uint64)

    def sample(self, size):
        """Return `size` independent draws as int64."""
        prefix = np.frombuffer(os.urandom(8 * size), dtype="<u8")
        prefix = prefix >> np.uint64(64 - self.prefix_bits)
        # the first entry whose lower bound lies above every completion of the prefix
        draws = np.searchsorted(self._lower, prefix, side="right")
        # ... and whose predecessor's upper bound lies below every completion
        before = np.concatenate([[np.uint64(0)], self._upper])
        decided = (draws < self._lower.size) & (before[draws] <= prefix)
        draws = draws.astype(np.int64)
        for i in np.flatnonzero(~decided):
            draws[i] = self._decide(int(prefix[i]))
        return draws

    def _decide(self, prefix):
        bits = self.prefix_bits
        while True:
            prefix, bits = (prefix << 64) | secrets.randbits(64), bits + 64
            before = 0
            for k, (low, high) in enumerate(self._bounds(bits)):
                if low > prefix:
                    if before <= prefix:
                        return k
                    break  # an upper bound is in the way: more bits
                if high >> bits:
                    break
                before = high

    def _bounds(self, bits):
        """Yield integers below and above 2^bits P(X <= k), for k = 0, 1, ..."""
        guard = 64
        precision = bits + guard
        p_low, p_high, start_low, start_high = _constants(
            self.decay, self.n_shares, precision
        )
        share = self.n_shares
        term_low, term_high = start_low, start_high
        sum_low, sum_high = mpz(0), mpz(0)
        k = 0
        while True:
            sum_low += term_low
            sum_high += term_high
            yield sum_low >> guard, -((-sum_high) >> guard)
            numerator = share * k + 1
            denominator = mpz(share * (k + 1)) << precision
            term_low = gmpy2.f_div(term_low * p_low * numerator, denominator)
            term_high = gmpy2.c_div(term_high * p_high * numerator, denominator)
            k += 1


def _constants(decay, n_shares, precision):
    """Enclose exp(-decay) and (1 - exp(-decay))^(1/H), in units of 2^-precision."""
    exact = mpq(decay.numerator, decay.denominator)
    bounds = []
    for toward, away in (
        (gmpy2.RoundDown, gmpy2.RoundUp),
        (gmpy2.RoundUp, gmpy2.RoundDown),
    ):
        # -decay rounded toward the wanted side; both functions of p are monotone
        with _rounding(toward, precision):
            p = gmpy2.exp(gmpy2.mpfr(-exact))
        with _rounding(away, precision):
            minus_q = gmpy2.expm1(gmpy2.mpfr(-exact))
        with _rounding(toward, precision):
            start = gmpy2.rootn(-minus_q, n_shares)
        whole = gmpy2.floor if toward == gmpy2.RoundDown else gmpy2.ceil
        with _rounding(toward, precision):
            bounds.append(
                [mpz(whole(gmpy2.mul_2exp(value, precision))) for value in (p, start)]
            )
    (p_low, start_low), (p_high, start_high) = bounds
    return p_low, p_high, start_low, start_high


def _rounding(mode, precision):
    return gmpy2.context(gmpy2.get_context(), precision=precision + 64, round=mode)


@lru_cache(maxsize=16)
def polya_sampler(decay, n_shares):
    """Return a sampler, kept for the next call with the same parameters."""
    return PolyaSampler(decay, n_shares)
