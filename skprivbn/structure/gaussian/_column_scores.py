"""The Gaussian log-likelihood of records whose columns several parties hold.

Under a public network, the residual of a node is a sum of parts, one per party, that
are linear in the party's own columns. Squares of parts are computed alone. Products of
the parts of two parties end as shares, by oblivious transfers, as cross-products do in
learning. Only the sum over all nodes and records is opened.
"""

from collections.abc import Generator
from itertools import combinations
from typing import Any

import numpy as np

from skprivbn.crypto.shares._products import (
    multiply_by_my_bits,
    multiply_by_their_bits,
)
from skprivbn.federation import Me, PartyRefusal, program
from skprivbn.federation._models import rebuild_model
from skprivbn.programs._columns import (
    RING,
    ScoreTerms,
    find_records,
    open_score,
    own_columns,
    start_talk,
)
from skprivbn.structure.gaussian._columns import bit_weights, to_bits

#: fixed point of parts: units of 2**-16 standard deviations of the node's noise
FRACTION_BITS, BITS = 16, 32
#: the sum of squared residuals, and what is added to it, have to be smaller
MAX_SUM = 2.0**61

#: numbers per batch of transfers
_BATCH = 1024


#: half of the unit of a square
UNIT = 2.0 ** (-2 * FRACTION_BITS - 1)


@program(ScoreTerms)
def score_gaussian_columns(me: Me) -> Generator[Any, Any, dict]:
    """Score the records that all parties have under a public Gaussian network."""
    talk, X = start_talk(me), np.asarray(me.numbers())
    if X.ndim != 2 or X.shape[1] != len(own_columns(me)):
        raise PartyRefusal("invalid-data")
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

    return (yield from open_score(me, talk, len(parts), share, UNIT))


def _parts_of_residuals(me, network, X):
    """Own parts of all residuals, centred so that those of two do not cancel."""
    own = own_columns(me)
    effects = np.eye(len(network.nodes)) - network.weights
    centred = X - network.mean[own]
    parts = centred @ effects[own] / np.sqrt(network.variances)
    integers = np.rint(parts * 2.0**FRACTION_BITS)
    # the largest sum of squares of all residuals, should those of all be alike
    most = len(me.roster) ** 2 * np.sum(integers**2)
    if not (np.abs(integers) < 2.0 ** (BITS - 1)).all() or not most < MAX_SUM:
        raise PartyRefusal("out-of-range")
    return integers.astype(np.int64)


def _products(me, network, parts, talk, links, pair):
    """Share of the sum of products of two parties' parts of the same residuals."""
    one, other = pair
    effects = np.eye(len(network.nodes)) - network.weights
    owners = np.array(me.terms.owners)
    both = [(effects[owners == name] != 0).any(axis=0) for name in (one, other)]
    numbers = parts[:, both[0] & both[1]].reshape(-1, 1)
    total = np.zeros(1, dtype=RING)
    for start in range(0, len(numbers), _BATCH):
        own = numbers[start : start + _BATCH]
        if me.name == one:
            bits, nothing = to_bits(own, BITS), np.zeros(own.shape, dtype=RING)
            shares = yield from multiply_by_my_bits(talk, links, [other], bits, nothing)
        else:
            shares = yield from multiply_by_their_bits(
                talk, links, one, BITS, own.astype(RING)
            )
        summed = shares.sum(axis=(1, 2), dtype=RING)
        total += (summed * bit_weights(BITS)).sum(dtype=RING)
    return total


def _constant(me, network, n_records):
    """What the normalisation of the own columns' nodes adds, in the ring."""
    variances = network.variances[own_columns(me)]
    logarithms = -0.5 * np.sum(np.log(2.0 * np.pi * variances))
    constant = np.rint(n_records * logarithms / UNIT)
    if not np.abs(constant) * len(me.roster) < MAX_SUM:
        raise PartyRefusal("out-of-range")
    return np.array([constant], dtype=np.int64).astype(RING)
