"""Shares of (x + 1/2) ln x - x by a series, against the logarithm and the tables."""

import secrets

import numpy as np
import pytest

from skprivbn.crypto.shares import _logarithms as logarithms
from skprivbn.crypto.shares import shared_lookup, shared_stirling
from skprivbn.crypto.shares._logarithms import N_TERMS
from skprivbn.crypto.shares._paillier_counts import PackedCounts
from skprivbn.exceptions import ProtocolError
from skprivbn.structure._scores import score_terms
from tests.crypto.shares._sides import run_sides, split


def stirling(numbers, n_bits, key_size=512):
    shares = split(np.random.default_rng(0), numbers, 2, np.uint32)

    def side(talk, links, i):
        packed = PackedCounts(key_size)
        return (yield from shared_stirling(talk, links, packed, shares[i], n_bits))

    return sum(run_sides(side)).astype(np.int64)


def largest_error(x):
    """As the guide states it: of ln x the series and three roundings, times x + 1/2."""
    return (x + 0.5) * (2.0**-N_TERMS / (N_TERMS + 1) + 2.5 * 2.0**-23)


@pytest.mark.parametrize("n_bits", [1, 2, 5, 9])
def test_results_are_within_the_stated_error(n_bits):
    numbers = np.arange(1 << min(n_bits, 6))
    if n_bits == 9:
        numbers = np.array([64, 95, 96, 127, 128, 191, 192, 255, 256, 383, 384, 511])
    x = np.maximum(numbers, 1.0)
    error = stirling(numbers, n_bits) / 2**24 - ((x + 0.5) * np.log(x) - x)
    assert (np.abs(error) <= largest_error(x)).all()


def test_the_error_is_no_better_than_stated_by_much(monkeypatch):
    # the twin with fewer terms is off by more, so the bound is one
    monkeypatch.setattr(logarithms, "N_TERMS", 6)
    x = np.array([95.0, 383.0])
    error = stirling(x.astype(int), 9) / 2**24 - ((x + 0.5) * np.log(x) - x)
    assert (np.abs(error) > largest_error(x)).all()


def test_series_and_tables_agree():
    n = 255
    numbers = np.array([0, 1, 2, 3, 7, 100, 191, 192, 254, 255])
    tables = score_terms("wright_yang", n, 2, 1).cell[None]
    shares = split(np.random.default_rng(1), numbers, 2, np.uint8)

    def side(talk, links, i):
        which = np.zeros(len(numbers), dtype=int)
        return (
            yield from shared_lookup(talk, links, talk.roster, shares[i], tables, which)
        )

    looked_up = sum(run_sides(side)).astype(np.int64)
    difference = np.abs(looked_up - stirling(numbers, 8)) / 2**24
    assert (difference <= largest_error(np.maximum(numbers, 1)) + 2.0**-25).all()


def test_numbers_and_keys_that_do_not_fit_are_refused():
    with pytest.raises(OverflowError, match="less than 2"):
        stirling(np.array([1]), 22)
    with pytest.raises(OverflowError, match="too short"):
        stirling(np.array([1]), 21, key_size=512)


def test_a_wrong_number_of_ciphertexts_is_refused(monkeypatch):
    honest = logarithms._ask
    monkeypatch.setattr(
        logarithms, "_ask", lambda t, p, k, known: honest(t, p, k, known[:-1])
    )
    with pytest.raises(ProtocolError, match="wrong number of encrypted"):
        stirling(np.array([1, 2]), 4)


def test_what_the_second_party_sees_is_masked(monkeypatch):
    honest = logarithms._ask

    def seen(numbers):
        """Its shares of parts of x, and the sums that it decrypts."""
        found = []

        def spy(talk, peer, packed, known):
            hidden = yield from honest(talk, peer, packed, known)
            found.append(([row[0] for row in known], hidden))
            return hidden

        with monkeypatch.context() as patch:
            patch.setattr(logarithms, "_ask", spy)
            stirling(np.array(numbers), 4)
        (parts, sums), (doubles, products) = found
        return parts, sums, doubles, products

    for values in seen([5] * 8):
        # masks have tens of bits: no two are alike
        assert len(set(values)) == 8

    # the twin without masks sees 1 + d = 5/4, its logarithm, 2 x and the rest
    def no_words(shape, dtype=np.uint64):
        return np.zeros(shape, dtype=dtype)

    monkeypatch.setattr(logarithms, "random_words", no_words)
    monkeypatch.setattr(secrets, "randbelow", lambda n: 1)
    parts, sums, doubles, products = seen([5] * 8)
    assert set(parts) == {20} and set(doubles) == {10}
    assert len(set(sums)) == len(set(products)) == 1


def test_a_limit_large_numbers_under_the_own_key_are_answered(monkeypatch):
    """Who has the key reads the numbers: nothing proves that what it encrypts is small.

    Instead of its share of ln x it encrypts 2^250, which no mask covers, and the answer
    ends with the peer's share of 1 - 2x.
    """
    honest, found = logarithms._ask, []

    def lie(talk, peer, packed, known):
        if len(known[0]) == 2:
            doubles = [row[0] for row in known]
            known = [[0, 1 << 250] for _ in known]
            hidden = yield from honest(talk, peer, packed, known)
            odd = [number >> 250 for number in hidden]
            found.extend(
                (own + of_peer - 1) % 2**64 // 2 for own, of_peer in zip(doubles, odd)
            )
            return hidden
        return (yield from honest(talk, peer, packed, known))

    monkeypatch.setattr(logarithms, "_ask", lie)
    stirling(np.array([5, 0, 11, 7]), 4)
    assert found == [5, 0, 11, 7]
