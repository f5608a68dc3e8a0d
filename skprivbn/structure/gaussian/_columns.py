"""Covariance and log-likelihood of columns of several parties, by secure products.

Every party centres and scales its own columns, which needs nobody else, and rounds
them to integers. For two parties, the products of one's bits with the other's numbers
end as shares, by oblivious transfers; weighted by powers of two and added over the
records they are shares of the cross-products. Only their sums are opened.

Under a public network, the residual of a node is a sum of parts, one per party, that
are linear in the party's own columns. Squares of parts are computed alone, products of
the parts of two parties on shares. Only the sum over all nodes and records is opened.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from skprivbn.crypto.shares import (
    Conversation,
    bit_length_dtype,
    open_links,
    open_numbers,
)
from skprivbn.crypto.shares._conversation import is_array
from skprivbn.crypto.shares._ot_extension import (
    multiply_by_my_bits,
    multiply_by_their_bits,
)
from skprivbn.exceptions import ProtocolError
from skprivbn.federation import Me, PartyRefusal, converse, program
from skprivbn.federation._models import rebuild_model
from skprivbn.federation.gate import FEW_VALUES, check_alone, count_values
from skprivbn.federation.program import require
from skprivbn.programs._columns import (
    RING,
    ColumnsTerms,
    ScoreTerms,
    compare,
    find_records,
    finish,
    open_score,
    own_columns,
    start_talk,
)
from skprivbn.programs._shared_tables import ColumnTables
from skprivbn.structure._learnt import vary

#: fixed point of scaled columns: units of 2**-13 standard deviations, up to +-16
FRACTION_BITS, BITS = 13, 18

#: fixed point of parts of residuals: units of 2**-16 standard deviations of the noise
SCORE_FRACTION_BITS, SCORE_BITS = 16, 32
#: half of the unit of a square
UNIT = 2.0 ** (-2 * SCORE_FRACTION_BITS - 1)
#: the sum of squared residuals, and what is added to it, have to be smaller
MAX_SUM = 2.0**61

#: rows per batch of transfers: of records, and of parts of residuals
_BATCH, _BATCH_OF_PARTS = 512, 1024


def to_bits(integers, n_bits):
    """Return the two's complement bits of (m, c) integers as (m, c * n_bits)."""
    shifted = integers[:, :, None] >> np.arange(n_bits)
    return (shifted & 1).astype(bool).reshape(len(integers), -1)


def bit_weights(n_bits):
    """Values of the bits modulo 2**64: the highest one is negative."""
    weights = np.array(1, dtype=np.uint64) << np.arange(n_bits, dtype=np.uint64)
    weights[-1] = 2**64 - 2 ** (n_bits - 1)
    return weights


@dataclass(frozen=True)
class ColumnMomentsTerms(ColumnsTerms):
    """Who holds which column."""


@program(ColumnMomentsTerms)
def column_moments(me: Me) -> Generator[Any, Any, dict]:
    """Tell own moments; share products with the columns of others; open their sums."""
    talk, X = start_talk(me), np.asarray(me.numbers())
    records = yield from find_records(me, talk)
    own = Standardised(me, X[records])
    told = yield from converse(
        compare(talk, own.summary()),
        "number of records, means and covariance of its own columns",
        "plaintext aggregate",
    )
    summaries = {
        name: _check_summary(me, name, told[name], len(records)) for name in me.roster
    }
    links = yield from converse(open_links(talk), "keys of oblivious transfers")
    if me.min_cell_count > 1:
        yield from refuse_small_pairs(me, talk, links, own.standard)
    shared = yield from converse(
        share_products(me, talk, links, me.terms.owners, own.integers, _BATCH),
        "hidden choices and masked numbers of oblivious transfers",
    )
    shares = np.zeros((len(me.terms.owners),) * 2, dtype=RING)
    for (i, j), share in shared.items():
        shares[i, j] = shares[j, i] = share
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
    require(can_be_correlations(correlation), "inconsistent")
    return {
        "n_samples": len(records),
        "mean": mean,
        "covariance": correlation * np.outer(scale, scale),
    }


class Standardised:
    """Own columns, centred and scaled, and as integers.

    Parameters
    ----------
    me : Me
    X : ndarray of shape (n_records, n_columns)
    at : sequence of int, default=()
        Positions among all own columns, if there are others, to name them.
    """

    def __init__(self, me, X, at=()):
        self.mean, self.scale = X.mean(axis=0), X.std(axis=0)
        are_varied = len(X) > 1 and vary(self.mean, self.scale**2).all()
        require(are_varied, "invalid-data")
        centred = X - self.mean
        # far from zero the mean is rounded, which would move all rows across the grid
        centred -= centred.mean(axis=0)
        self.standard = centred / self.scale
        integers = np.rint(self.standard * 2.0**FRACTION_BITS)
        require(np.abs(integers).max() < 2 ** (BITS - 1), "out-of-range")
        self.integers = integers.astype(np.int64)
        # Of the records that all have, there may be few. Nor may a combination of own
        # columns be about one: its products tell others'.
        check_alone(me, self.standard, at)

    def summary(self):
        """Return what it can compute alone, and what the result tells anyway."""
        return {
            "n_rows": len(self.standard),
            "mean": self.mean,
            "scale": self.scale,
            "correlation": self.standard.T @ self.standard / len(self.standard),
        }


def refuse_small_pairs(me, talk, links, own):
    """Refuse products of columns with few values that tell small counts.

    Whether two columns of different parties have some together is found on shares, and
    opened to the two.

    Parameters
    ----------
    me : Me
    talk : Conversation
    links : dict of str to Link
    own : ndarray of shape (n_records, n_own_columns)
    """
    told = yield from converse(
        compare(talk, count_values(own).tolist()),
        "how many values its columns have, if few",
        "public",
    )
    owners, n_states = me.terms.owners, [0] * len(me.terms.owners)
    for name, n_values in told.items():
        held = [v for v, owner in enumerate(owners) if owner == name]
        if type(n_values) is not list or len(n_values) != len(held):
            raise ProtocolError("a peer has other columns than it holds")
        for v, n in zip(held, n_values):
            if type(n) is not int or not 1 <= n <= FEW_VALUES + 1:
                raise ProtocolError("a number of values is none")
            n_states[v] = n
    few = [v for v, n in enumerate(n_states) if n <= FEW_VALUES]
    pairs = [(i, j) for i, j in combinations(few, 2) if owners[i] != owners[j]]
    mine = own_columns(me)
    codes = {
        v: np.unique(column, return_inverse=True)[1]
        for v, column in zip(mine, own.T)
        if v in few
    }
    ring = bit_length_dtype(len(own).bit_length())
    tables = ColumnTables(talk, links, owners, n_states, codes, ring)
    found = yield from converse(
        tables.are_few(pairs, me.min_cell_count),
        "which pairs of columns have small counts",
    )
    about = {v for pair, is_few in zip(pairs, found) if is_few for v in pair}
    if about:
        columns = sorted(mine.index(v) for v in about.intersection(mine))
        why = "columns of few values have small counts with others'"
        raise PartyRefusal("too-few-rows", why, columns)


def _check_summary(me, name, summary, n_records):
    """Return what a party tells of its own columns, or raise that it cannot be."""
    n_columns = me.terms.owners.count(name)
    shapes = {"mean": (n_columns,), "scale": (n_columns,)}
    shapes["correlation"] = n_columns, n_columns
    is_said = type(summary) is dict and type(summary.get("n_rows")) is int
    if not is_said or summary["n_rows"] != n_records:
        raise ProtocolError("a peer's summary is not of the same records")
    for word, shape in shapes.items():
        if not is_array(summary.get(word), shape, np.float64):
            raise ProtocolError("a peer's summary is not that of its columns")
    return summary


def can_be_correlations(correlation):
    """Tell whether no combination of columns has a negative variance.

    A party that multiplies by what is no column of its own is caught, if this is more
    than the rounding to the grid can be. By then it has read the products.
    """
    # an entry is off by 2**-FRACTION_BITS at most, and twice that for good measure
    most = len(correlation) * 2.0 ** (1 - FRACTION_BITS)
    return np.isfinite(correlation).all() and (
        np.linalg.eigvalsh(correlation)[0] >= -most
    )


def share_products(
    me: Me,
    talk: Conversation,
    links: dict,
    owners: Sequence[str],
    own: np.ndarray,
    batch: int,
    added_up: bool = True,
) -> Generator[Any, Any, dict]:
    """Share the products of own columns with those of other parties.

    Parameters
    ----------
    me : Me
    talk : Conversation
    links : dict of str to Link
    owners : sequence of str
        Of all columns.
    own : ndarray of int64 of shape (n_records, n_own_columns)
    batch, added_up :
        As of :func:`cross_products`.

    Returns
    -------
    shares : dict of frozenset of int to ndarray of uint64
        By the two columns: numbers modulo 2**64, of which each record has one, unless
        they are added up.
    """
    holders, shares = np.array(owners, dtype=object), {}
    for pair in combinations(me.roster, 2):
        at = [np.flatnonzero(holders == name) for name in pair]
        sizes = len(at[0]), len(at[1])
        if me.name in pair and all(sizes):
            found = yield from cross_products(
                me, talk, links, pair, own, sizes, BITS, batch, added_up
            )
            for i, j in np.ndindex(sizes):
                shares[frozenset((at[0][i], at[1][j]))] = found[..., i, j]
    return shares


def cross_products(me, talk, links, pair, own, n_columns, n_bits, batch, added_up=True):
    """Share the products of two parties' columns, modulo 2**64.

    Parameters
    ----------
    me : Me
    talk : Conversation
    links : dict of str to Link
    pair : tuple of str
        This party and another, in the order of the roster.
    own : ndarray of int64 of shape (n_rows, n_own)
    n_columns : tuple of int
        Of both.
    n_bits : int
        Of the first party's numbers.
    batch : int
        Rows that are multiplied together.
    added_up : bool, default=True
        Whether only the sum over the rows is wanted.

    Returns
    -------
    shares : ndarray of uint64 of shape `n_columns` or (n_rows, *n_columns)
    """
    one, other = pair
    n_one, n_other = n_columns
    total, weights = np.zeros(n_columns, dtype=RING), bit_weights(n_bits)[:, None]
    of_rows = np.empty((0 if added_up else len(own), *n_columns), dtype=RING)
    for start in range(0, len(own), batch):
        part = own[start : start + batch]
        if me.name == one:
            nothing = np.zeros((len(part), n_other), dtype=RING)
            products = yield from multiply_by_my_bits(
                talk, links, [other], to_bits(part, n_bits), nothing
            )
        else:
            products = yield from multiply_by_their_bits(
                talk, links, one, n_one * n_bits, part.astype(RING)
            )
        if added_up:
            products = products.sum(axis=1, dtype=RING, keepdims=True)
        products = products.reshape(n_one, n_bits, -1, n_other)
        products = (products * weights[..., None]).sum(axis=1, dtype=RING)
        if added_up:
            total += products[:, 0]
        else:
            of_rows[start : start + batch] = products.swapaxes(0, 1)
    return total if added_up else of_rows


@program(ScoreTerms)
def score_gaussian_columns(me: Me) -> Generator[Any, Any, dict]:
    """Score the records that all parties have under a public Gaussian network."""
    talk, X = start_talk(me), np.asarray(me.numbers())
    require(X.ndim == 2 and X.shape[1] == len(own_columns(me)), "invalid-data")
    network = rebuild_model(me.terms.model, len(me.terms.owners)).network_
    records = yield from find_records(me, talk)
    parts = _parts_of_residuals(me, network, X[records])

    def share(links):
        # arrays of one number: NumPy warns when scalars wrap around, as they do here
        squares = np.array([np.sum(parts**2)]).astype(RING)
        for pair in combinations(me.roster, 2):
            if me.name in pair:
                found = yield from _products(me, network, parts, talk, links, pair)
                squares += 2 * found
        constant = _constant(me, network, len(parts))
        return np.append(constant - squares, RING.type(0))

    return (yield from open_score(talk, len(parts), share, UNIT))


def _parts_of_residuals(me, network, X):
    """Own parts of all residuals, centred so that those of two do not cancel."""
    own = own_columns(me)
    effects = np.eye(len(network.nodes)) - network.weights
    centred = X - network.mean[own]
    parts = centred @ effects[own] / np.sqrt(network.variances)
    integers = np.rint(parts * 2.0**SCORE_FRACTION_BITS)
    # the largest sum of squares of all residuals, should those of all be alike
    most = len(me.roster) ** 2 * np.sum(integers**2)
    are_small = (np.abs(integers) < 2.0 ** (SCORE_BITS - 1)).all()
    require(are_small and most < MAX_SUM, "out-of-range")
    return integers.astype(np.int64)


def _products(me, network, parts, talk, links, pair):
    """Share of the sum of products of two parties' parts of the same residuals."""
    effects = np.eye(len(network.nodes)) - network.weights
    owners = np.array(me.terms.owners)
    both = [(effects[owners == name] != 0).any(axis=0) for name in pair]
    numbers = parts[:, both[0] & both[1]].reshape(-1, 1)
    found = yield from cross_products(
        me, talk, links, pair, numbers, (1, 1), SCORE_BITS, _BATCH_OF_PARTS
    )
    return found.ravel()


def _constant(me, network, n_records):
    """What the normalisation of the own columns' nodes adds, in the ring."""
    variances = network.variances[own_columns(me)]
    logarithms = -0.5 * np.sum(np.log(2.0 * np.pi * variances))
    constant = np.rint(n_records * logarithms / UNIT)
    require(np.abs(constant) * len(me.roster) < MAX_SUM, "out-of-range")
    return np.array([constant], dtype=np.int64).astype(RING)
