"""Noise on numbers that nobody knows: every party adds its own to its share.

What is opened then, a number or the place of the largest, has the noise of all parties;
whoever takes part can subtract only its own. How much noise is enough, and against how
many that collude, is for the caller to say.
"""

import numpy as np

from skprivbn.crypto.shares._gmw import open_numbers, refresh_numbers


def add_noise(shares, noise):
    """Return own shares modulo 2^64 of numbers with one's own noise, integers, added.

    For numbers that go on into :class:`SharedArgmax` or a lookup. Before they are
    opened themselves, shares have to be made anew: :func:`open_noisy_numbers`.
    """
    if shares.dtype != np.uint64:
        raise TypeError("noise needs shares modulo 2^64")
    return shares + np.asarray(noise, dtype=np.int64).astype(np.uint64)


def open_noisy_numbers(talk, group, shares, noise):
    """Tell the group the sum of additive shares and of everybody's noise.

    Parameters
    ----------
    talk : Conversation
    group : sequence of str
    shares : ndarray of uint64
        Own shares modulo 2^64.
    noise : ndarray of int64
        Own noise, of the same shape.

    Returns
    -------
    numbers : ndarray of int64
    """
    # A share may be a whole count, or nothing but noise: opened as it is, the parties'
    # noise could be told apart and taken away.
    shares = yield from refresh_numbers(talk, group, add_noise(shares, noise))
    return (yield from open_numbers(talk, group, shares)).astype(np.int64)
