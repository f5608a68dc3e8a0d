"""Shares of joint counts, by transfers and by Paillier, against plain counting."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import chisquare

from skprivbn.crypto.shares import Indicators, JointTable, joint_counts
from skprivbn.crypto.shares import _counts as counts
from skprivbn.crypto.shares import _paillier_counts as packed
from skprivbn.crypto.shares import _tree_counts as trees
from skprivbn.crypto.shares._hash import random_words
from skprivbn.crypto.shares._paillier_counts import PackedCounts, nth_residues
from skprivbn.exceptions import ProtocolError
from tests.crypto.shares._sides import (
    NAMES,
    deal_links,
    flatten,
    messages_of,
    run_sides,
    split,
)


def share(codes, n_columns, dtype, make=lambda: joint_counts, transcript=None):
    """Run the protocol; return every holder's share."""

    def side(talk, links, i):
        own = Indicators([(codes[i], n_columns[i])])
        table = JointTable(talk.roster, own, n_columns)
        (found,) = yield from make()(
            talk, links, [table], len(codes[0]), np.dtype(dtype)
        )
        return found

    return run_sides(side, len(codes), transcript=transcript)


def plain(codes, n_columns):
    table = np.zeros(n_columns, dtype=int)
    for record in zip(*codes):
        if all(0 <= c < n for c, n in zip(record, n_columns)):
            table[record] += 1
    return table


def small_paillier():
    return PackedCounts(512)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("make", [lambda: joint_counts, small_paillier])
def test_two_holders(seed, make):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 60))
    # codes beyond the columns, empty and full configurations
    n_columns = [int(rng.integers(1, 12)), int(rng.integers(1, 9))]
    codes = [rng.integers(0, rng.integers(1, c + 3), n) for c in n_columns]
    shares = share(codes, n_columns, np.uint16, make)
    np.testing.assert_array_equal(sum(shares), plain(codes, n_columns))


def test_a_thousand_tables():
    rng = np.random.default_rng(0)
    tables = []
    for _ in range(1000):
        n, shape = int(rng.integers(1, 30)), rng.integers(1, 4, 2).tolist()
        tables.append((shape, [rng.integers(0, c + 1, n) for c in shape]))

    def side(talk, links, i):
        shares = []
        for shape, codes in tables:
            own = Indicators([(codes[i], shape[i])])
            n = len(codes[0])
            table = JointTable(talk.roster, own, shape)
            shares += yield from joint_counts(
                talk, links, [table], n, np.dtype(np.uint8)
            )
        return shares

    for (shape, codes), one, other in zip(tables, *run_sides(side)):
        np.testing.assert_array_equal(one + other, plain(codes, shape))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32])
def test_all_records_and_none(dtype):
    codes = [np.zeros(200, dtype=int)] * 2
    np.testing.assert_array_equal(sum(share(codes, [2, 2], dtype)), [[200, 0], [0, 0]])


@pytest.mark.parametrize("n_parties", [3, 4])
def test_more_holders(n_parties):
    rng = np.random.default_rng(n_parties)
    n_columns = [2, 3, 2, 2][:n_parties]
    codes = [rng.integers(-1, n, 150) for n in n_columns]
    shares = share(codes, n_columns, np.uint16)
    np.testing.assert_array_equal(sum(shares), plain(codes, n_columns))


@pytest.mark.parametrize("n_parties", [2, 3])
def test_sums_of_shared_numbers_by_configuration(monkeypatch, n_parties):
    """Any party may have shares of a number, configurations, both, or neither."""
    rng = np.random.default_rng(n_parties)
    n, names, n_columns = 70, NAMES[:n_parties], [3, 2, 4][:n_parties]
    held = np.array([[1, 1, 0, 1, 1], [0, 1, 1, 1, 0], [0] * 5], dtype=bool)[:n_parties]
    shares = rng.integers(0, 2**64, (n_parties, n, 5), np.uint64) * held[:, None]
    codes = [rng.integers(c, size=n) for c in n_columns]
    masks = {name: mask for name, mask in zip(names, held) if mask.any()}
    asked = [[], [0], [1], [0, 1], [1, 0], [*range(n_parties)][::-1]]

    def side(talk, links, i):
        numbers = counts.SharedNumbers(masks, shares[i][:, held[i]])
        lists = [
            ([(names[j], n_columns[j]) for j in who], codes[i] if i in who else None)
            for who in asked
        ]
        return (yield from counts.joint_sums(talk, links, numbers, lists))

    monkeypatch.setattr(counts, "_CHUNK_BYTES", 1 << 14)
    found, whole = run_sides(side, n_parties), shares.sum(axis=0, dtype=np.uint64)
    for place, who in enumerate(asked):
        expected = np.zeros((5, *(n_columns[j] for j in who)), dtype=np.uint64)
        for record, row in enumerate(whole):
            expected[(slice(None), *(codes[j][record] for j in who))] += row
        total = sum(of[place] for of in found)
        np.testing.assert_array_equal(total, expected.reshape(5, -1))


def test_many_chunks(monkeypatch):
    monkeypatch.setattr(trees, "_MESSAGE_BYTES", 1000)
    monkeypatch.setattr(trees, "_WORK_BYTES", 500)
    monkeypatch.setattr(packed, "_CHUNK", 16)
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, (2, 100))
    for make in (lambda: joint_counts, small_paillier):
        shares = share(codes, [3, 2], np.uint8, make)
        np.testing.assert_array_equal(sum(shares), plain(codes, [3, 2]))


def share_all(tables, codes, n_states, dtype, transcript=None):
    """Share tables, each given by its holders, at once: {table: every share}."""

    def side(talk, links, i):
        mine = [
            JointTable(
                [NAMES[j] for j in holders],
                Indicators([(codes[i], n_states[i])]),
                [n_states[j] for j in holders],
            )
            for holders in tables
            if i in holders
        ]
        n = len(codes[0])
        return joint_counts(talk, links, mine, n, np.dtype(dtype))

    all_shares = [
        iter(found) for found in run_sides(side, len(codes), transcript=transcript)
    ]
    return [[next(all_shares[j]) for j in holders] for holders in tables]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32])
def test_many_tables_together(monkeypatch, dtype):
    monkeypatch.setattr(trees, "_MESSAGE_BYTES", 2000)
    monkeypatch.setattr(trees, "_ROUND_BYTES", 7000)
    groups = {1: 13, 2: 60, 4: 10**9}
    monkeypatch.setattr(trees, "_largest_group", lambda dtype: groups[dtype.itemsize])
    monkeypatch.setattr(trees, "_WIDEN", 10)
    rng, n_states = np.random.default_rng(0), [2, 3, 4]
    codes = [rng.integers(0, n + 1, 100) for n in n_states]
    # either way, unequally often, and among all three in between
    tables = [(0, 1), (1, 0), (0, 2), (2, 0, 1), (0, 1), (2, 1), (0, 1), (1, 2, 0)]
    found = share_all(tables, codes, n_states, dtype)
    for holders, shares in zip(tables, found):
        expected = plain([codes[j] for j in holders], [n_states[j] for j in holders])
        np.testing.assert_array_equal(sum(shares), expected)


def test_many_tables_take_no_more_rounds_than_one_each_way():
    codes, n_messages = np.zeros((2, 100), dtype=int), []
    for n_tables in (1, 10):
        said = []
        share_all([(0, 1), (1, 0)] * n_tables, codes, [3, 3], np.uint32, said)
        n_messages.append(len(said))
    # choices, answers; twice choices and an answer for the upper bits of shares
    assert n_messages == [8, 8]


def test_tables_of_three_holders_share_rounds():
    codes, n_messages = np.zeros((3, 100), dtype=int), []
    for n_tables in (1, 10):
        said = []
        tables = [(0, 1, 2), (1, 2, 0), (0, 1)] * n_tables
        share_all(tables, codes, [2, 2, 2], np.uint16, said)
        n_messages.append(len(said))
    assert n_messages[0] == n_messages[1]


def test_memory_bounds_what_is_counted_at_a_time(monkeypatch):
    # one table after another, and some records of it, with the same result
    monkeypatch.setattr(counts, "_CHUNK_BYTES", 5000)
    monkeypatch.setattr(counts, "_TOTAL_BYTES", 6000)
    rng = np.random.default_rng(0)
    codes = [rng.integers(0, 3, 60) for _ in range(4)]
    tables = [(0, 1, 2), (3, 2, 1), (0, 1, 3), (2, 1, 0), (0, 1, 2), (3, 0, 1, 2)]
    for holders, shares in zip(tables, share_all(tables, codes, [2] * 4, np.uint8)):
        expected = plain([codes[j] for j in holders], [2] * len(holders))
        np.testing.assert_array_equal(sum(shares), expected)


def test_many_chunks_of_three_holders(monkeypatch):
    monkeypatch.setattr("skprivbn.crypto.shares._counts._CHUNK_BYTES", 1000)
    codes = np.random.default_rng(0).integers(0, 3, (3, 100))
    shares = share(codes, [3, 2, 2], np.uint8)
    np.testing.assert_array_equal(sum(shares), plain(codes, [3, 2, 2]))


@pytest.mark.parametrize("n_columns", [[3, 4], [1, 1], [2, 9]])
def test_groups_of_records_in_a_wide_ring(n_columns):
    # two full groups of 16 bits and a rest, so that counts reach the limit of a group
    n = 2 * 32767 + 5
    rng = np.random.default_rng(0)
    codes = [rng.integers(0, c + 1, n) for c in n_columns]
    if n_columns == [1, 1]:
        codes = [np.zeros(n, dtype=int)] * 2
    expected = np.zeros([c + 1 for c in n_columns], dtype=int)
    np.add.at(expected, tuple(codes), 1)
    total = sum(share(codes, n_columns, np.uint32))
    np.testing.assert_array_equal(total, expected[:-1, :-1])


@pytest.mark.parametrize("n_columns", [1, 2, 3, 6, 15])
def test_one_leaf_of_every_tree_stays_unknown(monkeypatch, n_columns):
    seen, stretch = [], trees._Shape.stretch

    def spy(self, leaves, hash_, own=None):
        seen.append(leaves[: self.n_leaves].copy())
        return stretch(self, leaves, hash_, own)

    monkeypatch.setattr(trees._Shape, "stretch", spy)
    own = np.arange(100) % (n_columns + 1)
    share([np.zeros(100, dtype=int), own], [1, n_columns], np.uint8)
    known = (seen[0] == seen[1]).all(axis=-1)
    expected = np.arange(n_columns + 1)[:, None] != own
    np.testing.assert_array_equal(known, expected)


def widened(numbers, narrow, wide):
    shares = split(np.random.default_rng(0), numbers, 2, narrow)

    def side(talk, links, i):
        return trees._widen(talk, links, talk.roster, shares[i], np.dtype(wide))

    return sum(run_sides(side))


@pytest.mark.parametrize("narrow, wide", [(np.uint8, np.uint16), (np.uint16, "u4")])
def test_widening_is_exact_up_to_half_the_ring(narrow, wide):
    largest = trees._largest_group(np.dtype(narrow))
    numbers = np.repeat([0, 1, largest // 3, largest], 2000)
    np.testing.assert_array_equal(widened(numbers, narrow, wide), numbers)
    # in groups too large for the ring, some shares would widen to the wrong number
    numbers = np.full(2000, largest * 3 // 2)
    assert (widened(numbers, narrow, wide) != numbers).any()


def test_nodes_of_a_level_add_up_to_the_secret():
    link = deal_links(NAMES[:2], b"session")[NAMES[0]][NAMES[1]]
    rows = random_words((4, 10, 2))
    first, sums = rows[0].copy(), rows.copy()
    leaves = trees._grow(sums, link.sender)
    total = np.bitwise_xor.reduce(leaves)
    np.testing.assert_array_equal(total, np.broadcast_to(link.sender.secret, (10, 2)))
    np.testing.assert_array_equal(sums[0], first)
    # and the sum of the left ones is hidden by the row of the transfer
    left = np.bitwise_xor.reduce(leaves[::2])
    np.testing.assert_array_equal(sums[3] ^ rows[3], left)


@pytest.mark.parametrize("make", [lambda: joint_counts, small_paillier])
def test_shares_are_uniform(make):
    codes = [np.arange(30) % 30] * 2
    for own in share(codes, [40, 40], np.uint8, make):
        observed = np.bincount(own.ravel() >> 4, minlength=16)
        assert chisquare(observed).pvalue > 1e-9


def ciphertexts(transcript, sender, width):
    found = []
    for name, _, payload in transcript:
        for message in messages_of(payload):
            if name == sender and isinstance(message, bytes):
                found += [message[i : i + width] for i in range(0, len(message), width)]
    return [int.from_bytes(c, "big") for c in found]


def test_residues_are_what_encryption_needs():
    p, q = 1000003, 1000033
    n = p * q
    phi = (p - 1) * (q - 1)
    drawn = nth_residues(p, q, 50)
    # n-th residues are the elements whose order divides phi
    assert all(pow(int(r), phi, n * n) == 1 for r in drawn)
    assert len(set(drawn)) == 50


def chosen_records_show(transcript, chosen):
    """Whether the key owner can check a guess of the peer's records."""
    n, *records = ciphertexts(transcript, NAMES[0], 128)
    answer, *_ = ciphertexts(transcript, NAMES[1], 128)
    product = 1
    for record, taken in zip(records, chosen):
        product = product * record % n if taken else product
    return answer % n == product


def test_masks_are_freshly_encrypted(monkeypatch):
    codes = np.random.default_rng(0).integers(0, 2, (2, 20))
    said = []
    share(codes, [2, 6], np.uint8, small_paillier, said)
    assert not chosen_records_show(said, codes[1] == 0)

    # the twin that adds its masks without fresh randomness gives its records away
    encrypt = packed.paillier.PaillierPublicKey.raw_encrypt
    monkeypatch.setattr(
        packed.paillier.PaillierPublicKey,
        "raw_encrypt",
        lambda key, m, r_value=1: encrypt(key, m, r_value=1),
    )
    said = []
    share(codes, [2, 6], np.uint8, small_paillier, said)
    assert chosen_records_show(said, codes[1] == 0)


def distance_from_uniform(layout, max_fields):
    """Statistical distance of all masked fields of a session, from counts of zero."""
    # a count moves its mask by at most as much as it is; every total has the fields
    # of all slots
    n_fields = max_fields * layout.n_slots**2
    return n_fields * layout.largest / layout.n_masks


@pytest.mark.parametrize("n_rows", [1, 16])
@pytest.mark.parametrize("n_columns", [1, 16, 40])
@pytest.mark.parametrize("n_samples", [1, 127, 128, 10_000])
def test_masks_are_long_enough(monkeypatch, n_samples, n_columns, n_rows):
    def layout():
        return packed._Layout.fitting(n_samples, n_columns, n_rows, 256, 2048)

    used = layout()
    assert distance_from_uniform(used, 256) < 2.0**-40 * (1 + 1e-9)
    # masked counts stay in their fields, and fields in their plaintext
    assert used.n_masks - 1 + used.largest < 1 << used.field_bits
    assert used.per_plaintext * used.field_bits < 2048
    assert used.largest * used.n_slots >= n_samples
    monkeypatch.setattr(packed, "STATISTICAL_BITS", 38)
    assert distance_from_uniform(layout(), 256) > 2.0**-40


def test_masks_are_drawn_from_all_that_fit(monkeypatch):
    drawn, randbelow = [], packed.secrets.randbelow

    def spy(n):
        drawn.append(n)
        return randbelow(n)

    monkeypatch.setattr(packed.secrets, "randbelow", spy)
    codes = np.zeros((2, 100), dtype=int)
    share(codes, [10, 10], np.uint8, small_paillier)
    layout = packed._Layout.fitting(100, 10, 10, 1 << 20, 512)
    assert drawn.count(layout.n_masks) == 10 * 10 * layout.n_slots**2


def test_two_runs_share_no_ciphertext():
    codes = np.zeros((2, 10), dtype=int)
    seen = []
    for _ in range(2):
        said = []
        share(codes, [1, 1], np.uint8, small_paillier, said)
        seen.append(set(ciphertexts(said, NAMES[0], 128)[1:]))
    assert len(seen[0]) == 10 and not seen[0] & seen[1]


def test_message_sizes_do_not_depend_on_the_records():
    for make in (lambda: joint_counts, small_paillier):
        sizes = []
        for codes in (np.zeros((2, 50), dtype=int), np.arange(100).reshape(2, 50) % 3):
            said = []
            share(codes, [3, 3], np.uint8, make, said)
            sizes.append([len(flatten(payload)) for _, _, payload in said])
        assert sizes[0] == sizes[1]


@pytest.mark.slow
def test_encrypting_in_several_processes():
    codes = np.random.default_rng(0).integers(0, 3, (2, 100))
    shares = share(codes, [3, 3], np.uint8, lambda: PackedCounts(512, n_jobs=2))
    np.testing.assert_array_equal(sum(shares), plain(codes, [3, 3]))


def test_a_wrong_key_is_refused():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, (2, 5))
    sizes = iter([512, 640])
    with pytest.raises(ProtocolError, match="wrong size"):
        share(codes, [2, 2], np.uint8, lambda: PackedCounts(next(sizes)))


def test_growth_is_linear_in_the_records():
    totals = []
    for n in (512, 1024, 1536):
        said = []
        share([np.zeros(n, dtype=int)] * 2, [1, 1], np.uint16, transcript=said)
        totals.append(sum(len(flatten(payload)) for _, _, payload in said))
    steps = [b - a for a, b in pairwise(totals)]
    # 4 bytes of a transfer and 1 of a number; for four groups of records more, their
    # corrections and once a byte of choices for each tree of keys
    assert steps == [512 * 5 + 4 + 32, 512 * 5 + 4]
