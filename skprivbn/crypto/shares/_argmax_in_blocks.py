"""The argmax of more than two parties, on shared bits, in few rounds.

A round is one AND deep. So lists are cut into blocks of a few numbers, all numbers of a
block are compared with each other at a time, and the best of the blocks once more.
What is opened is the block of the winner, then its place in the block.
"""

import numpy as np

from skprivbn.crypto.shares._circuits import (
    add_all,
    is_greater,
    sign_of_sum,
    undefeated,
)
from skprivbn.crypto.shares._conversation import together
from skprivbn.crypto.shares._gmw import (
    AndCounter,
    SharedBits,
    make_triples,
    open_bits,
)
from skprivbn.crypto.shares._hash import to_bits

#: numbers of which each is compared with each
_BLOCK = 8


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
    """

    def __init__(self, group, sizes, width):
        self._group, self._width = tuple(group), width
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
        signs = _without_messages(self._duels(engines[0], shares))
        values = _without_messages(self._sums(engines[1], shares))
        _without_messages(self._marks(engines[2], signs, values))
        noted = [engine.n_products for engine in engines]
        triples = yield from make_triples(
            talk, links, self._group, np.concatenate(noted)
        )
        ends = np.cumsum([len(of_engine) for of_engine in noted])
        self._triples = np.split(triples, ends[:-1], axis=1)

    def open(self, talk, shares):
        """Return the winner of every list, given own shares of the numbers."""
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
        marks = yield from self._marks(engine, found["duels"], found["sums"])
        wanted = self._levels[-1]
        for blocks, of_level in zip([*self._levels[-2::-1], None], reversed(marks)):
            bits = of_level[np.concatenate(wanted)]
            bits = yield from open_bits(talk, group, bits)
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
        """Mark the best number of each block, for every level."""
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
        return marks


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
    found += [block[np.stack(np.triu_indices(len(block), 1))] for block in blocks]
    return np.concatenate(found, axis=1)


def _without_messages(circuit):
    """Result of a circuit under an engine that has nobody to talk to."""
    try:
        next(circuit)
    except StopIteration as stop:
        return stop.value
    raise ValueError("the engine waits for messages")
