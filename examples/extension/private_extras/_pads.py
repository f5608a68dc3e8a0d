"""A backend: pads under a key that all parties share and the coordinator does not."""

from skprivbn.crypto import (
    AdditiveBackend,
    SumSession,
    limbs_from_bytes,
    limbs_to_bytes,
    subtract_limbs,
    sum_limbs,
)


class PadsBackend(AdditiveBackend):
    """Add one-time pads; the parties, who know all pads, subtract them from the sum."""

    name = "pads"
    kind = "masked"

    def setup(self, context):
        """Return at once: a session already has a key of all parties."""
        return PadsSession(context, self)
        yield

    def add_parts(self, columns):
        """Add padded vectors; the coordinator's part."""
        return [limbs_to_bytes(sum_limbs(columns[0]))]

    def describe(self, roster):
        """Describe for the ledger who can read what."""
        return {
            "sum_known_to": "all parties",
            "hidden_by": "pads under a key of all parties",
            "broken_by": "the coordinator with any one party",
            "precision": "exact to a multiple of 2**-64",
        }


class PadsSession(SumSession):
    """A party's side. Sums are verified by the base, whatever the backend."""

    kind = "masked"

    def _pad(self, party, number, key, n_integers):
        stream = self._group.stream("pads", self._binding, party)
        return stream.piece(number, key, 16 * n_integers)

    def hide_integers(self, integers, number, key):
        """Add the own pad."""
        pad = self._pad(self._name, number, key, integers.shape[1])
        return [limbs_to_bytes(sum_limbs([limbs_to_bytes(integers), pad]))]

    def reveal_integers(self, total, n_integers):
        """Subtract the pads of all parties from the sum."""
        integers = limbs_from_bytes(total.parts[0]).copy()
        for party in self._roster:
            pad = self._pad(party, total.round, total.key, n_integers)
            subtract_limbs(integers, limbs_from_bytes(pad))
        return integers
