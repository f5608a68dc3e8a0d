"""The Gaussian log-likelihood of records whose columns several parties hold.

Under a public network, the residual of a node is a sum of parts, one per party, that
are linear in the party's own columns. Squares of parts are computed alone. Products of
the parts of two parties end as shares, by oblivious transfers, as cross-products do in
learning. Only the sum over all nodes and records is opened.
"""

from itertools import combinations

import numpy as np

from skprivbn.crypto.shares._products import (
    multiply_by_my_bits,
    multiply_by_their_bits,
)
from skprivbn.federation import PartyRefusal
from skprivbn.federation._models import rebuild_model
from skprivbn.protocols._columns import RING, SharedScoreParty
from skprivbn.structure.gaussian._columns_protocol import bit_weights, to_bits

#: fixed point of parts: units of 2**-16 standard deviations of the node's noise
FRACTION_BITS, BITS = 16, 32
#: the sum of squared residuals, and what is added to it, have to be smaller
MAX_SUM = 2.0**61

#: numbers per batch of transfers
_BATCH = 1024


class GaussianColumnScoreParty(SharedScoreParty):
    """A holder of columns whose records are scored under a Gaussian network."""

    #: half of the unit of a square
    unit = 2.0 ** (-2 * FRACTION_BITS - 1)

    def prepare(self):
        """Make the network; refuse columns that are not finite numbers."""
        terms, X = self.terms, self.finite_numbers()
        if X.ndim != 2 or X.shape[1] != len(self.variables):
            raise PartyRefusal("invalid-data")
        model = rebuild_model(terms.model, len(terms.owners))
        self.network = model.network_
        if not terms.has_keys:
            self._make_parts(X)

    def keep(self, records):
        """Keep the records that all parties have."""
        self._make_parts(self.block["X"][records].astype(np.float64))

    def _make_parts(self, X):
        """Own parts of all residuals, centred so that those of two do not cancel."""
        network = self.network
        effects = np.eye(len(network.nodes)) - network.weights
        centred = X - network.mean[self.variables]
        parts = centred @ effects[self.variables] / np.sqrt(network.variances)
        integers = np.rint(parts * 2.0**FRACTION_BITS)
        # the largest sum of squares of all residuals, should those of all be alike
        most = len(self.context.roster) ** 2 * np.sum(integers**2)
        if not (np.abs(integers) < 2.0 ** (BITS - 1)).all() or not most < MAX_SUM:
            raise PartyRefusal("out-of-range")
        self.parts = integers.astype(np.int64)

    def count_records(self):
        """Return how many records are left after aligning."""
        return len(self.parts)

    def share_parts(self, talk, links):
        """Return own shares of minus the sum of squares, and of what is constant."""
        # arrays of one number: NumPy warns when scalars wrap around, as they do here
        squares = np.array([np.sum(self.parts**2)]).astype(RING)
        for one, other in combinations(self.context.roster, 2):
            if self.name in (one, other):
                share = yield from self._products(talk, links, one, other)
                squares += 2 * share
        return np.append(self._constant() - squares, RING.type(0))

    def _products(self, talk, links, one, other):
        """Share of the sum of products of two parties' parts of the same residuals."""
        effects = np.eye(len(self.network.nodes)) - self.network.weights
        owners = np.array(self.terms.owners)
        both = [(effects[owners == name] != 0).any(axis=0) for name in (one, other)]
        numbers = self.parts[:, both[0] & both[1]].reshape(-1, 1)
        total = np.zeros(1, dtype=RING)
        for start in range(0, len(numbers), _BATCH):
            own = numbers[start : start + _BATCH]
            if self.name == one:
                bits, nothing = to_bits(own, BITS), np.zeros(own.shape, dtype=RING)
                shares = yield from multiply_by_my_bits(
                    talk, links, [other], bits, nothing
                )
            else:
                shares = yield from multiply_by_their_bits(
                    talk, links, one, BITS, own.astype(RING)
                )
            summed = shares.sum(axis=(1, 2), dtype=RING)
            total += (summed * bit_weights(BITS)).sum(dtype=RING)
        return total

    def _constant(self):
        """What the normalisation of the own columns' nodes adds, in the ring."""
        variances = self.network.variances[self.variables]
        logarithms = -0.5 * np.sum(np.log(2.0 * np.pi * variances))
        constant = np.rint(len(self.parts) * logarithms / self.unit)
        if not np.abs(constant) * len(self.context.roster) < MAX_SUM:
            raise PartyRefusal("out-of-range")
        return np.array([constant], dtype=np.int64).astype(RING)
