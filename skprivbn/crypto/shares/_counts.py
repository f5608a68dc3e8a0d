"""Shares of how many records have one configuration here and another one there.

Each holder of columns knows, for every record, which of its own configurations the
record has. The count of a joint configuration is the sum over records of a product of
indicators, one per holder, and ends as additive shares among the holders.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from skprivbn.crypto.shares._products import (
    multiply_by_my_bits,
    multiply_by_their_bits,
)
from skprivbn.crypto.shares._tree_counts import tree_counts

__all__ = ["Indicators", "JointTable", "joint_counts"]

_CHUNK_BYTES = 1 << 22


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


def joint_counts(talk, links, tables, n_samples, dtype):
    """Share the counts of all combinations of holders' columns, by transfers.

    Two holders use trees of masks, for all tables together. More work record by
    record: the first holder's indicators are multiplied by the second's bits, the
    shared products by the third's, and so on; the last products are added up. Safe as
    long as one holder does not collude.

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
    of_pairs = iter((yield from tree_counts(talk, links, pairs, n_samples, dtype)))
    shares = []
    for table in tables:
        if len(table.holders) == 2:
            shares.append(next(of_pairs))
        else:
            count = _count_records(talk, links, table, n_samples, dtype)
            shares.append((yield from count))
    return shares


def _count_records(talk, links, table, n_samples, dtype):
    """Share the counts of more than two holders, some records at a time."""
    holders, n_columns = table.holders, table.n_columns
    mine, n_cells = holders.index(talk.name), prod(n_columns)
    total = np.zeros(n_cells, dtype=dtype)
    # 48: the transfer's row and masks of one product, beside its numbers
    per_record = n_cells * np.dtype(dtype).itemsize + 48 * prod(n_columns[1:])
    step = max(1, _CHUNK_BYTES // max(1, per_record))
    for start in range(0, n_samples if n_cells else 0, step):
        own = table.indicators.columns(slice(start, start + step), dtype)
        share = own if mine == 0 else None
        for position in range(1, len(holders)):
            width = prod(n_columns[:position])
            if mine < position:
                products = yield from multiply_by_their_bits(
                    talk, links, holders[position], n_columns[position], share
                )
            elif mine == position:
                none = np.zeros((len(own), width), dtype=dtype)
                products = yield from multiply_by_my_bits(
                    talk, links, holders[:position], own.astype(bool), none
                )
            else:
                continue
            # (columns, records, earlier) to (records, earlier x columns)
            share = products.transpose(1, 2, 0).reshape(len(own), -1)
        total += share.sum(axis=0, dtype=dtype)
    return total.reshape(n_columns)
