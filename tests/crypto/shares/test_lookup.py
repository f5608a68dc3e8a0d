"""Lookups on shares against plain indexing."""

import numpy as np
import pytest

from skprivbn.crypto.shares import _lookup as lookup
from skprivbn.crypto.shares._lookup import shared_lookup, shared_one_hot
from tests.crypto.shares._sides import flatten, run_sides, split


@pytest.mark.parametrize("n_parties", [2, 3, 4])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 9])
def test_equals_indexing(n_parties, k):
    rng = np.random.default_rng(k)
    tables = rng.integers(-(2**40), 2**40, (3, 1 << k))
    numbers = np.concatenate([[0, (1 << k) - 1], rng.integers(0, 1 << k, 60)])
    which = rng.integers(0, 3, len(numbers))
    shares = split(rng, numbers, n_parties, np.uint32)

    def side(talk, links, i):
        return shared_lookup(talk, links, talk.roster, shares[i], tables, which)

    values = sum(run_sides(side, n_parties))
    np.testing.assert_array_equal(values.astype(np.int64), tables[which, numbers])


def test_many_chunks(monkeypatch):
    monkeypatch.setattr(lookup, "_VECTOR_BYTES", 1000)
    monkeypatch.setattr(lookup, "_MESSAGE_BYTES", 5000)
    test_equals_indexing(2, 9)


@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_one_hot_vectors(k):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (2, 100, k)).astype(np.uint8)

    def side(talk, links, i):
        return shared_one_hot(talk, links, talk.roster, bits[i])

    one, other = run_sides(side)
    vectors = np.unpackbits(one ^ other, axis=1, bitorder="little", count=1 << k)
    numbers = ((bits[0] ^ bits[1]) << np.arange(k)).sum(axis=1)
    np.testing.assert_array_equal(vectors, np.eye(1 << k)[numbers])


def test_message_sizes_do_not_depend_on_the_numbers():
    tables = np.arange(256)[None] ** 3
    sizes = []
    for fill in (0, 255):
        transcript = []
        shares = np.full((2, 40), fill, dtype=np.uint16)

        def side(talk, links, i, shares=shares):
            which = np.zeros(40, dtype=int)
            return shared_lookup(talk, links, talk.roster, shares[i], tables, which)

        run_sides(side, transcript=transcript)
        sizes.append([(s, r, len(flatten(p))) for s, r, p in transcript])
    assert sizes[0] == sizes[1]


def test_shares_of_the_results_look_uniform():
    tables = np.full((1, 16), 7)
    shares = np.zeros((2, 4000), dtype=np.uint8)

    def side(talk, links, i):
        which = np.zeros(4000, dtype=int)
        return shared_lookup(talk, links, talk.roster, shares[i], tables + 1, which)

    for own in run_sides(side):
        ones = np.unpackbits(own.view(np.uint8)).mean()
        assert abs(ones - 0.5) < 7 * 0.5 / np.sqrt(64 * 4000)


def test_a_table_must_have_a_power_of_two_entries():
    with pytest.raises(ValueError, match="power of two"):
        next(shared_lookup(None, None, (), np.zeros(1), np.zeros((1, 6)), None))
