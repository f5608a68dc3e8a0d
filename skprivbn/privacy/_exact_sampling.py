"""Exact samplers for negative binomials with a fractional shape.

A party's share of distributed Laplace noise is a difference of two negative binomial
(Polya) variables of shape 1 / H, P(k) = Gamma(k + 1/H) / (k! Gamma(1/H)) p^k q^(1/H),
with p = exp(-decay) and q = 1 - p. OpenDP has no sampler for them, and floating-point
samplers have holes.

- Narrow noise: the distribution function is tabulated and inverted. Its terms come from
  an integer recurrence that always rounds down, or always up.
- Wide noise: the sum of a Poisson number, of mean -log(q) / H, of variables of the
  logarithmic series p^k / k, which are drawn by rejection.

Both compare random bits with enclosed probabilities. A probability is never a float
here: it is a pair of integers below and above 2^bits times its value, for as many bits
as a comparison needs, from integer arithmetic and MPFR's directed rounding. A uniform
real number is drawn from the operating system, its first 64 bits at once. When they lie
clear of all bounds they decide the outcome, whatever bits would follow; otherwise
(almost never) more bits are drawn and tighter bounds computed until they decide. So
outcomes are distributed exactly as if a uniform real number had been compared with the
real probabilities.
"""

import os
import secrets
from contextlib import contextmanager
from fractions import Fraction
from functools import lru_cache
from itertools import count

import gmpy2
import numpy as np
from gmpy2 import mpfr, mpq, mpz

WORD = 64
#: a table has about 45 entries per unit of scale; beyond this scale it costs seconds
MAX_TABLE_SCALE = 2000
#: beyond, the noise itself does not fit 64-bit counts
MAX_SCALE = 2**40


@lru_cache(maxsize=16)
def polya_sampler(decay, n_shares):
    """Return a sampler, kept for the next call with the same parameters.

    Parameters
    ----------
    decay : Fraction
        p = exp(-decay): the noise has scale 1 / decay.
    n_shares : int
        H: the sum of H draws is geometric.
    """
    scale = 1 / decay
    if scale > MAX_SCALE:
        raise ValueError(
            f"noise of scale {float(scale):g} does not fit 64-bit counts; use a larger "
            "epsilon or coarser counts"
        )
    if scale <= MAX_TABLE_SCALE:
        return TableSampler(polya_bounds(decay, n_shares))
    return WidePolyaSampler(decay, n_shares)


def polya_bounds(decay, n_shares):
    """Enclose the distribution function, as :class:`TableSampler` needs it."""

    def bounds(bits):
        p_low, p_high = enclose(_exp_minus(decay), bits + WORD)

        def ratio(k):
            numerator = n_shares * k + 1
            return p_low * numerator, p_high * numerator, n_shares * (k + 1)

        return _sums(enclose(_root_of_q(decay, n_shares), bits + WORD), ratio, bits)

    return bounds


def poisson_bounds(decay, n_shares):
    """Enclose the Poisson distribution function of mean -log(q) / H."""

    def bounds(bits):
        mean_low, mean_high = enclose(_poisson_mean(decay, n_shares), bits + WORD)

        def ratio(k):
            return mean_low, mean_high, k + 1

        # exp(-mean) is the same root of q
        return _sums(enclose(_root_of_q(decay, n_shares), bits + WORD), ratio, bits)

    return bounds


def _sums(first, ratio, bits):
    """Yield bounds of partial sums, from bounds of the first term and of the ratios."""
    precision = bits + WORD
    low, high = first
    sum_low, sum_high = mpz(0), mpz(0)
    for k in count():
        sum_low += low
        sum_high += high
        yield sum_low >> WORD, -((-sum_high) >> WORD)
        ratio_low, ratio_high, divisor = ratio(k)
        divisor = mpz(divisor) << precision
        low = gmpy2.f_div(low * ratio_low, divisor)
        high = gmpy2.c_div(high * ratio_high, divisor)


class WidePolyaSampler:
    """Negative binomials as Poisson sums of the logarithmic series."""

    def __init__(self, decay, n_shares):
        self._number = TableSampler(poisson_bounds(decay, n_shares))
        self._size = LogarithmicSampler(decay)

    def sample(self, size):
        """Return `size` independent draws as int64."""
        numbers = self._number.sample(size)
        sums = np.concatenate([[0], np.cumsum(self._size.sample(int(numbers.sum())))])
        ends = np.cumsum(numbers)
        return sums[ends] - sums[ends - numbers]


class LogarithmicSampler:
    """Draws k = 1, 2, ... with probability proportional to p^k / k, by rejection.

    Let M = 2^J be the first power of two with M * decay >= 1. A proposal first draws
    g with probability proportional to exp(-g).

    - g = 0: j uniform below J, k uniform in [2^j, 2^(j+1)), accepted with probability
      (2^j / k) exp(-k decay);
    - g > 0: k uniform in [gM, (g+1)M), accepted with probability
      (M / k) exp(g - k decay), and only if j, drawn as before, is zero.

    Either way k is proposed and accepted with probability proportional to p^k / k.
    Floats decide where they are clear; exact arithmetic decides the rest.
    """

    #: floats below are within 1e-13 of the real probabilities
    MARGIN = 1e-12
    #: proposals at a time
    CHUNK = 2**20

    def __init__(self, decay, margin=MARGIN):
        self._decay, self._margin = Fraction(decay), margin
        self._log_block = max(int(1 / self._decay).bit_length(), 1)
        # j is drawn from so many bits; too large ones are rejected
        self._j_bits = (self._log_block - 1).bit_length()
        self._blocks = TableSampler(polya_bounds(Fraction(1), 1))

    def sample(self, size):
        """Return `size` independent draws as int64."""
        parts, missing = [np.empty(0, dtype=np.int64)], size
        while missing > 0:
            accepted = self._propose(min(4 * missing + 16, self.CHUNK))[:missing]
            parts.append(accepted)
            missing -= accepted.size
        return np.concatenate(parts)

    def _propose(self, n):
        g = self._blocks.sample(n)
        j = (random_words(n) & np.uint64(2**self._j_bits - 1)).astype(np.int64)
        keep = np.where(g == 0, j < self._log_block, j == 0)
        g, j = g[keep], j[keep]
        width = np.int64(1) << np.where(g == 0, j, self._log_block)
        start = np.where(g == 0, width, g * width)
        within = random_words(g.size) & (width - 1).astype(np.uint64)
        k = start + within.astype(np.int64)
        uniform = random_words(g.size)
        probability = width / k * np.exp(g - k * float(self._decay))
        distance = probability - np.ldexp(uniform.astype(float), -WORD)
        accept = distance > 0
        for i in np.flatnonzero(np.abs(distance) <= self._margin):
            exact = _scaled_exp(
                mpq(int(width[i]), int(k[i])), int(g[i]) - int(k[i]) * self._decay
            )
            accept[i] = decide(int(uniform[i]), lambda bits, f=exact: enclose(f, bits))
        return k[accept]


# Real numbers for enclose(): each rounds every step toward the wanted side.


def _exp_minus(x):
    return _scaled_exp(mpq(1), -Fraction(x))


def _scaled_exp(factor, exponent):
    exponent = mpq(exponent.numerator, exponent.denominator)

    def number(toward, away):
        with toward():
            return gmpy2.exp(mpfr(exponent)) * factor.numerator / factor.denominator

    return number


def _q(decay):
    minus_decay = mpq(-decay.numerator, decay.denominator)

    def number(toward, away):
        with away():  # the sign turns round what is rounded
            return -gmpy2.expm1(mpfr(minus_decay))

    return number


def _root_of_q(decay, n_shares):
    def number(toward, away):
        q = _q(decay)(toward, away)
        with toward():
            return gmpy2.rootn(q, n_shares)

    return number


def _poisson_mean(decay, n_shares):
    def number(toward, away):
        q = _q(decay)(away, toward)
        with away():
            minus = gmpy2.log(q)
        with toward():
            return -minus / n_shares

    return number


def random_words(size):
    """Return 64-bit words from the operating system."""
    return np.frombuffer(os.urandom(8 * size), dtype="<u8")


def enclose(function, bits):
    """Return integers below and above 2^bits times a real number in [0, 1].

    Parameters
    ----------
    function : callable
        ``function(down, up)`` computes the number in MPFR inside ``with down:`` and
        ``with up:`` blocks, which round toward and away from the wanted side.
    bits : int
        Precision.
    """
    down, up = _rounding(gmpy2.RoundDown, bits), _rounding(gmpy2.RoundUp, bits)
    low, high = function(down, up), function(up, down)
    with down():
        low = mpz(gmpy2.floor(gmpy2.mul_2exp(low, bits)))
    with up():
        high = mpz(gmpy2.ceil(gmpy2.mul_2exp(high, bits)))
    return low, high


def _rounding(mode, bits):
    @contextmanager
    def rounding():
        with gmpy2.context(gmpy2.get_context(), precision=bits + WORD, round=mode):
            yield

    return rounding


def decide(prefix, bounds, bits=WORD):
    """Draw whether a uniform number with these first bits lies below a probability.

    Parameters
    ----------
    prefix : int
        First `bits` bits of the uniform number.
    bounds : callable
        ``bounds(bits)`` encloses the probability in units of 2^-bits.
    bits : int, default=64
        Length of the prefix.
    """
    while True:
        low, high = bounds(bits)
        if prefix < low:
            return True
        if prefix >= high:
            return False
        prefix, bits = (prefix << WORD) | secrets.randbits(WORD), bits + WORD


class TableSampler:
    """Draws from a distribution on 0, 1, 2, ... by inverting its distribution function.

    A draw is one search in a sorted table, so its time tells next to nothing.

    Parameters
    ----------
    bounds : callable
        ``bounds(bits)`` yields, for k = 0, 1, ..., integers below and above 2^bits
        times the probability of at most k.
    prefix_bits : int, default=64
        Bits drawn at first; fewer only to test what happens when they do not decide.
    """

    def __init__(self, bounds, prefix_bits=WORD):
        self._bounds, self._prefix_bits = bounds, prefix_bits
        lower, upper = [], []
        for low, high in bounds(prefix_bits):
            if high >> prefix_bits:  # the rest of the tail is left to _decide
                break
            lower.append(int(low))
            upper.append(int(high))
        self._lower = np.array(lower, dtype=np.uint64)
        self._upper = np.array([0, *upper], dtype=np.uint64)

    def sample(self, size):
        """Return `size` independent draws as int64."""
        prefix = random_words(size) >> np.uint64(WORD - self._prefix_bits)
        # the first entry whose lower bound lies above every completion of the prefix
        draws = np.searchsorted(self._lower, prefix, side="right")
        # ... while its predecessor's upper bound lies below every completion
        decided = (draws < self._lower.size) & (self._upper[draws] <= prefix)
        draws = draws.astype(np.int64)
        for i in np.flatnonzero(~decided):
            draws[i] = self._decide(int(prefix[i]))
        return draws

    def _decide(self, prefix):
        bits = self._prefix_bits
        while True:
            prefix, bits = (prefix << WORD) | secrets.randbits(WORD), bits + WORD
            before = 0
            for k, (low, high) in enumerate(self._bounds(bits)):
                if low > prefix:
                    if before <= prefix:
                        return k
                    break  # an upper bound is in the way: more bits
                if high >> bits:
                    break
                before = high
