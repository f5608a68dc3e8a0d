"""The secure argmax against numpy's, and what it sends."""

import numpy as np
import pytest

from skprivbn.crypto.shares import Conversation
from skprivbn.crypto.shares import _argmax as argmax
from skprivbn.crypto.shares import _argmax as argmax_in_blocks
from tests.crypto.shares._sides import flatten, run_sides, shared_argmax, split


def plain_argmax(values, sizes):
    ends = np.cumsum(sizes)
    return [int(values[end - size : end].argmax()) for size, end in zip(sizes, ends)]


@pytest.mark.parametrize("n_parties", [2, 3, 4])
@pytest.mark.parametrize("width", [2, 7, 41, 63])
def test_equals_numpy(n_parties, width):
    rng = np.random.default_rng(width)
    sizes = [1, 2, 3, 8, 13, 1, 20]
    values = rng.integers(-(2 ** (width - 1)), 2 ** (width - 1) - 1, sum(sizes))
    values[6:9] = 2 ** (width - 1) - 1  # equal largest numbers: the first one wins
    shares = split(rng, values, n_parties)

    def side(talk, links, i):
        return shared_argmax(talk, links, shares[i], sizes, width)

    for winners in run_sides(side, n_parties):
        assert winners.tolist() == plain_argmax(values, sizes)


@pytest.mark.parametrize("n_parties", [2, 3])
def test_many_batches(monkeypatch, n_parties):
    monkeypatch.setattr(argmax, "_BATCH", 5)
    rng = np.random.default_rng(0)
    sizes = [3, 2, 1, 9, 1, 1, 4]
    values = rng.integers(-100, 100, sum(sizes))
    shares, transcript = split(rng, values, n_parties), []

    def side(talk, links, i):
        return shared_argmax(talk, links, shares[i], sizes, 9)

    for winners in run_sides(side, n_parties, transcript=transcript):
        assert winners.tolist() == plain_argmax(values, sizes)
    if n_parties == 2:
        messages = [m for _, _, payload in transcript for m in payload["messages"]]
        circuits = [m["inputs"] for m in messages if isinstance(m, dict)]
        assert [inputs.shape[1] for inputs in circuits] == [5, 1, 9, 2, 4]


@pytest.mark.parametrize("block", [2, 3, 8])
def test_blocks_in_any_number_of_levels(monkeypatch, block):
    monkeypatch.setattr(argmax_in_blocks, "_BLOCK", block)
    rng = np.random.default_rng(block)
    sizes = [*range(1, 12), 40]
    values = rng.integers(-3, 3, sum(sizes))  # many are equal: the first one wins
    shares = split(rng, values, 3)

    def side(talk, links, i):
        return shared_argmax(talk, links, shares[i], sizes, 4)

    for winners in run_sides(side, 3):
        assert winners.tolist() == plain_argmax(values, sizes)


@pytest.mark.parametrize("n_parties", [1, 2, 3])
@pytest.mark.parametrize("block", [2, 8])
def test_winners_that_stay_shared(monkeypatch, block, n_parties):
    monkeypatch.setattr(argmax_in_blocks, "_BLOCK", block)
    monkeypatch.setattr(argmax, "_BATCH", 60)
    rng = np.random.default_rng(block)
    sizes = [*range(1, 12), 40]
    values = rng.integers(-3, 3, sum(sizes))
    shares = split(rng, values, n_parties)

    def side(talk, links, i):
        found = argmax.SharedArgmax(talk.roster, sizes, 4, opens=False)
        yield from found.prepare(talk, links)
        return (yield from found.open(talk, links, shares[i]))

    marks = np.bitwise_xor.reduce(run_sides(side, n_parties))
    starts = np.cumsum([0, *sizes[:-1]])
    assert (
        np.flatnonzero(marks).tolist()
        == (starts + plain_argmax(values, sizes)).tolist()
    )


def opened_bits(values):
    """Bits that three parties open last, and what they say, for one long list."""
    opened, open_ = [], argmax_in_blocks.open_bits
    shares = split(np.random.default_rng(0), values, 3)

    def spy(talk, group, bits):
        found = yield from open_(talk, group, bits)
        opened.append(found)
        return found

    def side(talk, links, i):
        return shared_argmax(talk, links, shares[i], [len(values)], 10)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argmax_in_blocks, "open_bits", spy)
        run_sides(side, 3)
    return {tuple(bits.tolist()) for bits in opened}


def test_only_the_winner_is_opened():
    # its block among eight, and its place among three
    values = np.arange(21)
    values[[9, 17]] = 500, 499
    expected = {(0, 0, 0, 1, 0, 0, 0, 0), (1, 0, 0)}
    assert (
        opened_bits(values)
        == opened_bits(values[::-1][::-1] * (values > 400))
        == (expected)
    )


def test_long_lists_take_few_rounds():
    n_rounds = {}
    for size in (8, 37):
        said = []

        def side(talk, links, i, size=size):
            shares = np.zeros(size, dtype=np.uint64)
            return shared_argmax(talk, links, shares, [size], 36)

        run_sides(side, 3, transcript=said)
        n_rounds[size] = sum(sender == "alice" for sender, *_ in said) / 2
    # triples 2; sign of a sum of three 8, duels 3, opening 1; then the choice of the
    # best of blocks 1, comparison 7, duels 2, opening 1
    assert n_rounds == {8: 14, 37: 25}


def test_numbers_must_leave_a_bit_for_differences():
    with pytest.raises(ValueError, match="machine word"):
        next(shared_argmax(Conversation("a", "ab", b""), {}, None, [2], 64))


def test_message_sizes_depend_on_the_shape_only():
    sizes = []
    for values in (np.zeros(9), np.arange(9)):
        transcript, shares = [], split(np.random.default_rng(0), values, 2)

        def side(talk, links, i, shares=shares):
            return shared_argmax(talk, links, shares[i], [4, 5], 20)

        run_sides(side, transcript=transcript)
        sizes.append([(s, r, len(flatten(p))) for s, r, p in transcript])
    assert sizes[0] == sizes[1]
