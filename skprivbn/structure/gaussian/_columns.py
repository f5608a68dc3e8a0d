"""The covariance of columns that different parties hold, from secure products.

Every party centres and scales its own columns, which needs nobody else, and rounds
them to integers. For two parties, the products of one's bits with the other's numbers
end as shares, by oblivious transfers; weighted by powers of two and added over the
records they are shares of the cross-products. Only their sums are opened.
"""

from collections.abc import Generator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from skprivbn.crypto.shares import Conversation, open_links, open_numbers
from skprivbn.crypto.shares._conversation import is_array
from skprivbn.crypto.shares._products import (
    multiply_by_my_bits,
    multiply_by_their_bits,
)
from skprivbn.exceptions import ProtocolError
from skprivbn.federation import Me, PartyRefusal, converse, program
from skprivbn.federation.site._small_cells import check_cells
from skprivbn.programs._columns import (
    ColumnsTerms,
    compare,
    find_records,
    finish,
    own_columns,
    start_talk,
)
from skprivbn.structure._continuous import vary

#: fixed point of scaled columns: units of 2**-13 standard deviations, up to +-16
FRACTION_BITS, BITS = 13, 18

#: records per batch of transfers
_BATCH = 512


def to_bits(integers, n_bits=BITS):
    """Return the two's complement bits of (m, c) integers as (m, c * n_bits)."""
    shifted = integers[:, :, None] >> np.arange(n_bits)
    return (shifted & 1).astype(bool).reshape(len(integers), -1)


def bit_weights(n_bits=BITS):
    """Values of the bits modulo 2**64: the highest one is negative."""
    weights = np.array(1, dtype=np.uint64) << np.arange(n_bits, dtype=np.uint64)
    weights[-1] = 2**64 - 2 ** (n_bits - 1)
    return weights


@dataclass(frozen=True)
class ColumnMomentsTerms(ColumnsTerms):
    """Who holds which column."""

    def n_parameters(self, n_features):
        """Return the moments of all columns."""
        n_columns = len(self.owners)
        return 1 + n_columns + n_columns * (n_columns + 1) // 2


@program(ColumnMomentsTerms)
def column_moments(me: Me) -> Generator[Any, Any, dict]:
    """Tell own moments; share products with the columns of others; open their sums."""
    talk, X = start_talk(me), np.asarray(me.numbers())
    records = yield from find_records(me, talk)
    own = _Standardised(me, X[records])
    told = yield from converse(
        compare(talk, own.summary()),
        "number of records, means and covariance of its own columns",
        "plaintext aggregate",
    )
    summaries = {name: _check_summary(me, name, told[name]) for name in me.roster}
    numbers = {name: summary["n_rows"] for name, summary in summaries.items()}
    if len(set(numbers.values())) > 1:
        return {"numbers": numbers}
    links = yield from converse(open_links(talk), "keys of oblivious transfers")
    shares = yield from converse(
        share_products(me, talk, links, own.integers),
        "hidden choices and masked numbers of oblivious transfers",
    )
    products = yield from converse(
        open_numbers(talk, me.roster, shares), "shares of cross-products of columns"
    )
    yield from finish(talk)
    correlation = products.view(np.int64) / (len(records) * 4.0**FRACTION_BITS)
    mean, scale = np.empty(len(correlation)), np.empty(len(correlation))
    owners = np.array(me.terms.owners)
    for name, summary in summaries.items():
        held = np.flatnonzero(owners == name)
        mean[held], scale[held] = summary["mean"], summary["scale"]
        correlation[np.ix_(held, held)] = summary["correlation"]
    return {
        "numbers": numbers,
        "mean": mean,
        "covariance": correlation * np.outer(scale, scale),
    }


class _Standardised:
    """Own columns, centred and scaled, and as integers.

    Parameters
    ----------
    me : Me
    X : ndarray of shape (n_records, n_columns)
    """

    def __init__(self, me, X):
        self.mean, self.scale = X.mean(axis=0), X.std(axis=0)
        if not vary(self.mean, self.scale**2).all() or len(X) < 2:
            raise PartyRefusal("invalid-data")
        centred = X - self.mean
        # far from zero the mean is rounded, which would move all rows across the grid
        centred -= centred.mean(axis=0)
        self.standard = centred / self.scale
        integers = np.rint(self.standard * 2.0**FRACTION_BITS)
        if np.abs(integers).max() >= 2 ** (BITS - 1):
            raise PartyRefusal("out-of-range")
        self.integers = integers.astype(np.int64)
        if me.min_cell_count > 1:  # of the records that all have, there may be few
            names = [f"column {v}" for v in own_columns(me)]
            few = np.zeros(len(names), dtype=bool)
            columns = range(len(names))
            check_cells(self.standard, columns, few, me.min_cell_count, names)

    def summary(self):
        """Return what it can compute alone, and what the result tells anyway."""
        return {
            "n_rows": len(self.standard),
            "mean": self.mean,
            "scale": self.scale,
            "correlation": self.standard.T @ self.standard / len(self.standard),
        }


def _check_summary(me, name, summary):
    """Return what a party tells of its own columns, or raise that it cannot be."""
    n_columns = me.terms.owners.count(name)
    shapes = {"mean": (n_columns,), "scale": (n_columns,)}
    shapes["correlation"] = n_columns, n_columns
    if type(summary) is not dict or type(summary.get("n_rows")) is not int:
        raise ProtocolError("a peer's summary has no number of records")
    for word, shape in shapes.items():
        if not is_array(summary.get(word), shape, np.float64):
            raise ProtocolError("a peer's summary is not that of its columns")
    return summary


def share_products(
    me: Me, talk: Conversation, links: dict, integers: np.ndarray
) -> Generator[Any, Any, np.ndarray]:
    """Share the products of all columns with those of other parties.

    Parameters
    ----------
    me : Me
    talk : Conversation
    links : dict of str to Link
    integers : ndarray of int64 of shape (n_records, n_own_columns)

    Returns
    -------
    shares : ndarray of uint64 of shape (n_columns, n_columns)
        Own shares modulo 2**64; zeros where this party holds neither column.
    """
    owners = np.array(me.terms.owners)
    shares = np.zeros((len(owners), len(owners)), dtype=np.uint64)
    for one, other in combinations(me.roster, 2):
        if me.name in (one, other):
            block = yield from _cross_products(me, talk, links, integers, one, other)
            rows, columns = (
                np.flatnonzero(owners == one),
                np.flatnonzero(owners == other),
            )
            shares[np.ix_(rows, columns)] = block
            shares[np.ix_(columns, rows)] = block.T
    return shares


def _cross_products(me, talk, links, integers, one, other):
    """Shares modulo 2**64 of the products of `one`'s columns with `other`'s."""
    n_one, n_other = (me.terms.owners.count(name) for name in (one, other))
    total = np.zeros((n_one, n_other), dtype=np.uint64)
    weights = bit_weights()[:, None]
    for start in range(0, len(integers), _BATCH):
        own = integers[start : start + _BATCH]
        if me.name == one:
            nothing = np.zeros((len(own), n_other), dtype=np.uint64)
            parts = yield from multiply_by_my_bits(
                talk, links, [other], to_bits(own), nothing
            )
        else:
            parts = yield from multiply_by_their_bits(
                talk, links, one, n_one * BITS, own.astype(np.uint64)
            )
        summed = parts.sum(axis=1, dtype=np.uint64)
        summed = summed.reshape(n_one, BITS, n_other)
        total += (summed * weights).sum(axis=1, dtype=np.uint64)
    return total
