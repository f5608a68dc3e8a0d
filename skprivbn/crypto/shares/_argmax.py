"""Which of several shared numbers is the largest: the index, and nothing else.

Two parties use a garbled circuit (three messages); more use shared bits, in few rounds.
A round is one AND deep. So lists are cut into blocks of a few numbers, all numbers of a
block are compared with each other at a time, and the best of the blocks once more.
What is opened is the block of the winner, then its place in the block; or nothing, and
parties go on with a shared bit for every number, which says whether it is the winner.
"""

from functools import lru_cache

import numpy as np

from skprivbn.crypto.shares._circuits import (
    add,
    add_all,
    evaluate,
    garble,
    index_width,
    is_greater,
    pick_largest,
    sign_of_sum,
    undefeated,
)
from skprivbn.crypto.shares._conversation import together
from skprivbn.crypto.shares._gmw import (
    AndCounter,
    SharedBits,
    make_triples,
    open_bits,
    without_messages,
)
from skprivbn.crypto.shares._hash import to_bits

#: numbers in a garbled circuit or compared by shared bits, unless one list has more
_BATCH = 1 << 11
#: numbers of which each is compared with each
_BLOCK = 8


class SharedArgmax:
    """An argmax whose sizes are known before its numbers.

    Parameters
    ----------
    group : sequence of str
        The parties that hold shares.
    sizes : list of int
    width : int
    opens : bool, default=True
        Whether the winners are opened; otherwise they stay shared.
    """

    def __init__(self, group, sizes, width, opens=True):
        if width > 63:
            raise ValueError("differences of such numbers do not fit in a machine word")
        self._group, self._width, self._opens = tuple(group), width, opens
        self._batches = list(_batches(sizes))
        self._prepared = None

    def prepare(self, talk, links):
        """Make what the first batch needs, while there is something to wait for."""
        if self._in_blocks:
            yield from self._make_blocks(talk, links, 0)

    @property
    def _in_blocks(self):
        return len(self._group) > (2 if self._opens else 1)

    def open(self, talk, links, shares):
        """Return the winners, given own shares of the numbers.

        If they are not opened: own XOR shares of a bit for every number.
        """
        winners = []
        for number, (part, lengths) in enumerate(self._batches):
            own = shares[part]
            if self._in_blocks:
                if number > 0:
                    yield from self._make_blocks(talk, links, number)
                blocks, self._prepared = self._prepared, None
                protocol = blocks.open if self._opens else blocks.mark
                found = yield from protocol(talk, own)
            elif len(self._group) == 2:
                found = yield from _by_garbling(talk, links, own, lengths, self._width)
            else:
                ends = np.cumsum(lengths)
                lists = np.split(own.astype(np.int64), ends[:-1])
                found = np.array([values.argmax() for values in lists])
                if not self._opens:
                    places = found + ends - lengths
                    found = np.isin(np.arange(len(own)), places).astype(np.uint8)
            winners.append(found)
        return np.concatenate(winners)

    def _make_blocks(self, talk, links, number):
        _, lengths = self._batches[number]
        self._prepared = ArgmaxInBlocks(self._group, lengths, self._width, self._opens)
        yield from self._prepared.prepare(talk, links)


def _batches(sizes):
    """Yield lists that go into one circuit: (slice of items, sizes)."""
    start, batch = 0, []
    for size in sizes:
        if batch and sum(batch) + size > _BATCH:
            yield slice(start, start + sum(batch)), batch
            start, batch = start + sum(batch), []
        batch.append(size)
    yield slice(start, start + sum(batch)), batch


def _by_garbling(talk, links, shares, sizes, width):
    """Argmax of two parties."""
    bits = to_bits(shares, width)
    positions = np.concatenate([np.arange(size) for size in sizes])
    index = to_bits(positions.astype(np.uint64), index_width(sizes))

    def circuit(engine, a, b, places):
        values = yield from add(engine, a, b)
        return (yield from pick_largest(engine, values, places, sizes))

    side = _as_garbler if talk.name == talk.roster[0] else _as_evaluator
    winner = yield from side(talk, links, circuit, bits, index)
    return (winner.astype(np.int64) << np.arange(len(winner))[:, None]).sum(axis=0)


def _as_garbler(talk, links, circuit, bits, index):
    shape = yield from garble(talk, links, circuit, bits, index)
    return (yield from talk.receive_array(*talk.peers, shape, np.uint8))


def _as_evaluator(talk, links, circuit, bits, index):
    opened = yield from evaluate(talk, links, circuit, bits, index.shape)
    talk.send(*talk.peers, opened)
    return opened


class ArgmaxInBlocks:
    """Who is compared with whom, which is public, and the triples for it.

    Parameters
    ----------
    group : sequence of str
        The parties that hold shares.
    sizes : list of int
        Length of each list.
    width : int
        Bits of the numbers.
    opens : bool, default=True
        Whether the winners are opened, one level after another.
    """

    def __init__(self, group, sizes, width, opens=True):
        self._group, self._width, self._opens = tuple(group), width, opens
        self._ends = np.cumsum(sizes)
        lists = np.split(np.arange(self._ends[-1]), self._ends[:-1])
        # the blocks of every level, until there is one for each list: numbers of the
        # first level, of each further level blocks of the one before
        self._levels = []
        while not self._levels or len(self._levels[-1]) > len(sizes):
            parts = [np.array_split(x, _n_blocks(len(x))) for x in lists]
            self._levels.append([block for blocks in parts for block in blocks])
            ends = np.cumsum([len(blocks) for blocks in parts])
            lists = np.split(np.arange(ends[-1]), ends[:-1])

    def prepare(self, talk, links):
        """Make a triple for every AND."""
        engines = [AndCounter(len(self._group)) for _ in range(3)]
        shares = np.zeros(self._ends[-1], dtype=np.uint64)
        signs = without_messages(self._duels(engines[0], shares))
        values = without_messages(self._sums(engines[1], shares))
        without_messages(self._marks(engines[2], signs, values))
        noted = [engine.n_products for engine in engines]
        triples = yield from make_triples(
            talk, links, self._group, np.concatenate(noted)
        )
        ends = np.cumsum([len(of_engine) for of_engine in noted])
        self._triples = np.split(triples, ends[:-1], axis=1)

    def mark(self, talk, shares):
        """Return own XOR shares of marks, given own shares of the numbers."""
        # engines that run at a time must not use each other's triples
        of_duels, of_sums, of_marks = self._triples
        group = self._group
        found = yield from together(
            talk,
            {
                "duels": lambda branch: self._duels(
                    SharedBits(branch, group, of_duels), shares
                ),
                "sums": lambda branch: self._sums(
                    SharedBits(branch, group, of_sums), shares
                ),
            },
        )
        engine = SharedBits(talk, group, of_marks)
        return (yield from self._marks(engine, found["duels"], found["sums"]))

    def open(self, talk, shares):
        """Return the winner of every list, given own shares of the numbers."""
        marks = yield from self.mark(talk, shares)
        wanted = self._levels[-1]
        for blocks, of_level in zip([*self._levels[-2::-1], None], reversed(marks)):
            bits = of_level[np.concatenate(wanted)]
            bits = yield from open_bits(talk, self._group, bits)
            ends = np.cumsum([len(block) for block in wanted])
            places = [part.argmax() for part in np.split(bits, ends[:-1])]
            winners = [block[place] for block, place in zip(wanted, places)]
            wanted = blocks and [blocks[winner] for winner in winners]
        return np.array(winners) - np.array([0, *self._ends[:-1]])

    def _duels(self, engine, shares):
        """Whether the later of two numbers is larger, in all blocks."""
        one, other = _pairs(self._levels[0])
        bits = to_bits(shares[one] - shares[other], self._width + 1)
        return (yield from sign_of_sum(engine, engine.inputs(bits)))

    def _sums(self, engine, shares):
        """The numbers as shared bits, if more blocks follow."""
        if len(self._levels) == 1:
            return None
        inputs = engine.inputs(to_bits(shares, self._width))
        return (yield from add_all(engine, inputs))

    def _marks(self, engine, later_wins, values):
        """Mark the best number of each block, for every level; or of each list."""
        pairs = _pairs(self._levels[0])
        marks = [(yield from undefeated(engine, later_wins, pairs, self._ends[-1]))]
        for before, blocks in zip(self._levels, self._levels[1:]):
            all_bits = np.zeros(len(values), dtype=int)
            values = yield from engine.conjunction(marks[-1][None], values, all_bits)
            starts = [block[0] for block in before]
            values = np.bitwise_xor.reduceat(values, starts, axis=1)
            one, other = pairs = _pairs(blocks)
            (wins,) = yield from is_greater(engine, values[:, other], values[:, one])
            marks.append((yield from undefeated(engine, wins, pairs, len(before))))
        if self._opens:
            return marks
        of_lists = marks.pop()
        for blocks in self._levels[-2::-1]:
            # a number is the best of its list if it is of its block, and that block is
            block = np.repeat(np.arange(len(blocks)), [len(b) for b in blocks])
            of_lists = yield from engine.conjunction(
                of_lists[:, None], marks.pop()[:, None], block
            )
            of_lists = of_lists[:, 0]
        return of_lists


def _n_blocks(n):
    """Return into how many blocks a list is cut.

    As many as leave no more levels than the largest blocks would: small blocks on the
    first level, where numbers are still shares, take the fewest ANDs.
    """
    n_levels = 1
    while _BLOCK**n_levels < n:
        n_levels += 1
    return min(_BLOCK ** (n_levels - 1), -(-n // 2))


def _pairs(blocks):
    """All pairs within blocks, the earlier and the later: (2, n_pairs)."""
    found = [np.empty((2, 0), dtype=int)]
    found += [block[_pairs_of(len(block))] for block in blocks]
    return np.concatenate(found, axis=1)


@lru_cache
def _pairs_of(n):
    return np.stack(np.triu_indices(n, 1))
