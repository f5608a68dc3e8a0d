"""Shares of how many records have one configuration here and another one there.

Each holder of columns knows, for every record, which of its own configurations the
record has. The count of a joint configuration is the sum over records of a product of
indicators, one per holder, and ends as additive shares among the holders.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from skprivbn.crypto.shares._conversation import together
from skprivbn.crypto.shares._ot_extension import branch_links
from skprivbn.crypto.shares._tree_counts import TreeProducts, tree_counts

#: of one table, and of all that are counted at a time
_CHUNK_BYTES = 1 << 22
_TOTAL_BYTES = 1 << 26


class Indicators:
    """One holder's configurations of every record, as one or more one-hot blocks.

    Parameters
    ----------
    blocks : list of (codes, n_columns)
        Column c of a block is 1 where the code is c; other codes have no column.
        `codes` is an array, or a function of a slice of records that computes them.
    """

    def __init__(self, blocks):
        self._blocks = blocks

    def codes(self, rows):
        """Return the blocks of some records: a list of (codes, n_columns)."""
        return [
            (codes(rows) if callable(codes) else codes[rows], n)
            for codes, n in self._blocks
        ]

    def single(self, rows):
        """Return the codes of some records, of a holder with a single block."""
        ((codes, _),) = self.codes(rows)
        return codes

    def columns(self, rows, dtype):
        """Return the indicators of some records: (m, n_columns)."""
        return np.concatenate(
            [codes[:, None] == np.arange(n) for codes, n in self.codes(rows)], axis=1
        ).astype(dtype)


@dataclass(frozen=True)
class JointTable:
    """A table of counts to share, as one of its holders sees it.

    Attributes
    ----------
    holders : sequence of str
        Two or more, this party among them.
    indicators : Indicators
        This party's own.
    n_columns : sequence of int
        Of every holder.
    """

    holders: Sequence
    indicators: Indicators
    n_columns: Sequence


def label_tables(talk, tables):
    """Return {label: table}, with labels that all holders of a table give it."""
    seen, labelled = Counter(), {}
    for table in tables:
        holders = " ".join(str(talk.roster.index(name)) for name in table.holders)
        labelled[f"{holders} {seen[holders]}"] = table
        seen[holders] += 1
    return labelled


def joint_counts(talk, links, tables, n_samples, dtype):
    """Share the counts of all combinations of holders' columns, by transfers.

    Trees of masks serve two holders. With more, the first holder's indicators are
    multiplied by the second's, record by record; of the products, both have shares, and
    with each of them the third has a tree; and so on. The last products are added up.
    Safe as long as one holder does not collude. Tables share rounds, as many as fit
    into memory.

    Parameters
    ----------
    talk, links : Conversation and dict of Link
    tables : list of JointTable
        Those of this party; in an order on which everybody agrees.
    n_samples : int
    dtype : unsigned dtype
        The ring of the shares: modulo two to its number of bits.

    Returns
    -------
    shares : list of ndarray
        Of the shapes `n_columns` of the tables.
    """
    pairs = [table for table in tables if len(table.holders) == 2]
    labelled = label_tables(talk, tables)
    more = {label: table for label, table in labelled.items() if len(table.holders) > 2}
    found = yield from together(
        talk,
        {
            "pairs": lambda branch: tree_counts(branch, links, pairs, n_samples, dtype),
            "more": lambda branch: _count_more(branch, links, more, n_samples, dtype),
        },
    )
    of_pairs = iter(found["pairs"])
    return [
        found["more"][label] if label in more else next(of_pairs) for label in labelled
    ]


def _count_more(talk, links, labelled, n_samples, dtype):
    """Share tables of more than two holders, side by side: {label: shares}."""
    sides, costs = {}, {}
    for label, table in labelled.items():
        peers = [name for name in table.holders if name != talk.name]
        sides[label] = partial(
            _count_records,
            links=branch_links(links, f"counts {label}", peers),
            table=table,
            n_samples=n_samples,
            dtype=dtype,
        )
        per_record = _record_bytes(table.n_columns, dtype)
        costs[label] = min(_CHUNK_BYTES, n_samples * per_record)
    return (yield from together(talk, sides, costs, _TOTAL_BYTES))


def _record_bytes(n_columns, dtype):
    """What a record takes: products before the last, masks, a row for each choice."""
    n_products = prod(n_columns[:-1]) * np.dtype(dtype).itemsize
    n_levels = sum(n.bit_length() for n in n_columns[1:])
    return 3 * n_products + 32 * n_levels * len(n_columns)


def _count_records(talk, links, table, n_samples, dtype):
    """Share the counts of more than two holders, some records at a time."""
    # the first holder may have several blocks; of the rest, few columns come first
    order = sorted(range(1, len(table.holders)), key=lambda i: table.n_columns[i])
    holders = [table.holders[i] for i in (0, *order)]
    n_columns = [table.n_columns[i] for i in (0, *order)]
    mine, n_cells = holders.index(talk.name), prod(n_columns)
    total = np.zeros(n_cells, dtype=dtype)
    step = max(1, _CHUNK_BYTES // max(1, _record_bytes(n_columns, dtype)))
    for start in range(0, n_samples if n_cells else 0, step):
        rows = slice(start, min(n_samples, start + step))

        def products(place, rows=rows):
            """With the holder at a place: its configurations times all before."""
            sizes = prod(n_columns[:place]), n_columns[place]
            last = place == len(holders) - 1
            return TreeProducts(*sizes, rows.stop - rows.start, dtype, last)

        if mine == 0:
            share = table.indicators.columns(rows, dtype)
        else:
            # all choices are known from the start: they leave in one round
            codes, found = table.indicators.single(rows), {}
            for peer in holders[:mine]:
                found[peer] = products(mine)
                found[peer].ask(talk, links[peer], peer, codes)
            share = 0
            for peer, of_peer in found.items():
                share = share + (yield from of_peer.use_answer(talk, links[peer], peer))
        for place in range(mine + 1, len(holders)):
            peer = holders[place]
            answer = products(place).answer(talk, links[peer], peer, share)
            share = yield from answer
        total += share.sum(axis=0, dtype=dtype)
    return total.reshape(n_columns).transpose(np.argsort([0, *order]))
