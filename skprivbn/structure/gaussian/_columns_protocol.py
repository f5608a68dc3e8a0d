"""The covariance of columns that different parties hold, from secure products.

Every party centres and scales its own columns, which needs nobody else, and rounds
them to integers. For two parties, the products of one's bits with the other's numbers
end as shares, by oblivious transfers; weighted by powers of two and added over the
records they are shares of the cross-products. Only their sums are opened.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from skprivbn.crypto.shares import open_links
from skprivbn.crypto.shares._products import (
    multiply_by_my_bits,
    multiply_by_their_bits,
)
from skprivbn.exceptions import PartitionError
from skprivbn.federation import PartyRefusal, operation
from skprivbn.federation.site._small_cells import check_cells
from skprivbn.protocols import Moments
from skprivbn.protocols._columns import ColumnsParty, ColumnsTerms

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


class ColumnMomentsParty(ColumnsParty):
    """A holder of columns."""

    terms = ColumnMomentsTerms

    def prepare(self):
        """Refuse columns that are not finite numbers."""
        X = self.finite_numbers()
        if not self.terms.has_keys:
            self._scale(X)

    def keep(self, records):
        """Keep the records that all parties have."""
        self._scale(self.block["X"][records].astype(np.float64))

    def _scale(self, X):
        """Scale own columns; refuse what does not fit the number format."""
        self.mean, self.scale = X.mean(axis=0), X.std(axis=0)
        if not (self.scale > 1e-6 * np.abs(self.mean)).all() or len(X) < 2:
            raise PartyRefusal("invalid-data")
        self.standard = (X - self.mean) / self.scale
        integers = np.rint(self.standard * 2.0**FRACTION_BITS)
        if np.abs(integers).max() >= 2 ** (BITS - 1):
            raise PartyRefusal("out-of-range")
        self.integers = integers.astype(np.int64)

    def schedule(self):
        """Own moments, the products, their shares."""
        if self.terms.has_keys:
            yield "align"
        yield "summary"
        yield "products"
        yield "shares"

    @operation(
        tells="number of records, and means and covariance of its own columns",
        kind="plaintext aggregate",
        answers={
            "n_rows": int,
            "mean": np.ndarray,
            "scale": np.ndarray,
            "correlation": np.ndarray,
        },
    )
    def summary(self):
        """What it can compute alone, and what the result tells anyway."""
        if self.min_cell_count > 1:  # of the records that all have, there may be few
            names = [f"column {v}" for v in self.variables]
            few = np.zeros(len(names), dtype=bool)
            columns = range(len(names))
            check_cells(self.standard, columns, few, self.min_cell_count, names)
        correlation = self.standard.T @ self.standard / len(self.standard)
        return {
            "n_rows": len(self.standard),
            "mean": self.mean,
            "scale": self.scale,
            "correlation": correlation,
        }

    @operation(peers="hidden choices and masked numbers of oblivious transfers")
    def products(self):
        """Share the cross-products with every other party's columns."""
        talk = self.talk()
        links = yield from open_links(talk)
        self.cross = {}
        for one, other in combinations(self.context.roster, 2):
            if self.name in (one, other):
                share = yield from self._cross_products(talk, links, one, other)
                self.cross[one, other] = share
        yield from talk.finish()

    def _cross_products(self, talk, links, one, other):
        """Shares modulo 2**64 of the products of `one`'s columns with `other`'s."""
        n_one, n_other = (self.terms.owners.count(name) for name in (one, other))
        total = np.zeros((n_one, n_other), dtype=np.uint64)
        weights = bit_weights()[:, None]
        for start in range(0, len(self.integers), _BATCH):
            own = self.integers[start : start + _BATCH]
            if self.name == one:
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

    @operation(
        tells="its shares of cross-products between columns",
        kind="share",
        answers={"shares": list},
    )
    def shares(self):
        """Hand over the shares; only both together tell something."""
        return {
            "shares": [
                {"one": one, "other": other, "share": share}
                for (one, other), share in self.cross.items()
            ]
        }


def collect_column_moments(federation, columns, feature_names):
    """The coordinator's side: ask, let them talk, add shares.

    Parameters
    ----------
    federation : Federation
        Of :class:`ColumnMomentsParty`.
    columns : dict of str to list of str
        Names of every party's columns.
    feature_names : list of str
        All columns in the order of the result.

    Returns
    -------
    Moments
        Of all columns.
    """
    if federation.terms.has_keys:
        federation.converse("align")
    summaries = federation.call("summary")
    n_rows, *others = {summary["n_rows"] for summary in summaries.values()}
    if others:
        # Remote parties' numbers of records are not known before.
        raise PartitionError(
            "parties hold different numbers of records, which are aligned by order: "
            "give keys to align them by"
        )
    federation.converse("products")
    replies = federation.call("shares")
    totals = {}
    for reply in replies.values():
        for entry in reply["shares"]:
            pair = entry["one"], entry["other"]
            totals[pair] = totals.get(pair, np.uint64(0)) + entry["share"]
    federation.ledger.learns("coordinator", "means and covariance of all columns")
    place = {name: i for i, name in enumerate(feature_names)}
    index = {party: [place[c] for c in held] for party, held in columns.items()}
    d = len(feature_names)
    mean, scale, correlation = np.empty(d), np.empty(d), np.empty((d, d))
    for party, summary in summaries.items():
        own = index[party]
        mean[own], scale[own] = summary["mean"], summary["scale"]
        correlation[np.ix_(own, own)] = summary["correlation"]
    for (one, other), total in totals.items():
        block = total.view(np.int64) / (n_rows * 4.0**FRACTION_BITS)
        correlation[np.ix_(index[one], index[other])] = block
        correlation[np.ix_(index[other], index[one])] = block.T
    return Moments(float(n_rows), mean, correlation * np.outer(scale, scale))
