"""Choices by Gumbel noise: how it is drawn, what it costs, what colluders take away."""

import mpmath
import numpy as np
import pytest
from scipy.stats import chisquare, gumbel_r, kstest

from skprivbn.privacy import _distributed as choices
from skprivbn.privacy._distributed import ChoiceNoise, discrete_gumbel


def test_rounded_down_gumbel_variables():
    noise = discrete_gumbel(np.full((40, 50), 10**12))
    assert noise.shape == (40, 50) and noise.dtype == np.int64
    assert kstest(noise.ravel() / 1e12, gumbel_r.cdf).pvalue > 1e-6
    # of small scales, all integers have their probability
    noise = discrete_gumbel(np.full(4000, 2))
    edges = np.array([-1, 0, 1, 2, 3, 5])
    probabilities = np.diff(gumbel_r.cdf(np.r_[-np.inf, edges / 2, np.inf]))
    counts = np.bincount(np.searchsorted(edges, noise, side="right"), minlength=7)
    assert chisquare(counts, 4000 * probabilities).pvalue > 1e-6


@pytest.mark.parametrize("scale", [1, 10**4, 10**9])
def test_the_first_bits_decide(scale, monkeypatch):
    bits = 0x5DEECE66D1234567
    monkeypatch.setattr(choices.secrets, "randbits", lambda n: bits)
    with mpmath.workprec(600):
        uniform = mpmath.mpf(bits) / 2**64
        expected = int(mpmath.floor(-scale * mpmath.log(-mpmath.log(uniform))))
    assert choices._draw(scale) == expected


def test_more_bits_are_drawn_if_the_first_do_not_decide(monkeypatch):
    # about exp(-1), where the noise passes from -1 to 0
    with mpmath.workprec(600):
        first = int(mpmath.floor(mpmath.exp(-1) * 2**64))
    for then, expected in ((0, -1), (2**64 - 1, 0)):
        words = iter([first, then])
        monkeypatch.setattr(choices.secrets, "randbits", lambda n, w=words: next(w))
        assert choices._draw(1) == expected
    # nothing is larger or smaller than the cut
    for word in (1, 2**64 - 2):
        monkeypatch.setattr(choices.secrets, "randbits", lambda n, w=word: w)
        assert abs(choices._draw(1000)) <= 128_000


def frequencies(scores, noise, known=0, n=2000):
    """How often each candidate wins, with one honest party's noise on top of known."""
    scale = noise.scale(SENSITIVITY)
    noisy = scores + known + noise.share(np.full((n, len(scores)), scale))
    return np.bincount(noisy.argmax(axis=1), minlength=len(scores)) / n


SENSITIVITY = 1000


@pytest.mark.parametrize("known", [0, [700, -300, 0]], ids=["alone", "colluders"])
def test_probabilities_are_those_of_the_exponential_mechanism(known):
    noise = ChoiceNoise.for_budget(1.0, 1, 1)
    scores = np.array([0, 1000, -1000])
    expected = np.exp((scores + known) / noise.scale(SENSITIVITY))
    found = frequencies(scores, noise, np.array(known))
    assert chisquare(2000 * found, 2000 * expected / expected.sum()).pvalue > 1e-6


def test_costs_are_those_of_all_choices():
    noise = ChoiceNoise.for_budget(0.5, 10, 3)
    assert noise.epsilon == 0.5 and noise.epsilon_each == pytest.approx(0.05)
    # at most 2 (1000 + 2) / scale, rounding included
    assert noise.scale(1000) == np.ceil(2 * 1002 / 0.05)
    noise = ChoiceNoise.for_zcdp(0.02, 1e-6, 10, 3)
    assert noise.rho == pytest.approx(0.02)
    assert noise.epsilon_each == pytest.approx(np.sqrt(8 * 0.002))
    with pytest.raises(ValueError, match="epsilon is too small"):
        ChoiceNoise.for_budget(1e-9, 100, 3).scale(1 << 24)


@pytest.mark.parametrize("n_parties", [1, 2, 3])
def test_noise_alone_seldom_beats_the_handicap(n_parties):
    noise = ChoiceNoise.for_budget(1.0, 1, n_parties)
    scale = noise.scale(10**6)
    sums = sum(noise.share(np.full((300, 21), scale)) for _ in range(n_parties))
    assert np.all(np.abs(sums) <= noise.bound(scale))
    wins = sums[:, 1:].max(axis=1) > sums[:, 0] + noise.handicap(scale, 20)
    assert wins.mean() < 0.2
