"""Sums under pairwise masks that cancel: exact and nearly free."""

import hashlib
from collections.abc import Generator, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from skprivbn.crypto._base import (
    AdditiveBackend,
    HiddenVector,
    PartyContext,
    SumSession,
)
from skprivbn.crypto._derive import KeyStream, expand
from skprivbn.crypto._numbers import (
    add_limbs,
    limbs_from_bytes,
    limbs_to_bytes,
    subtract_limbs,
    sum_limbs,
)
from skprivbn.exceptions import ProtocolError
from skprivbn.utils._sklearn import Interval

__all__ = ["MaskingBackend", "PartyMaskingBackend"]

# Masks are added in batches that stay in the processor's cache.
_BATCH_BYTES = 2**19


class MaskingBackend(AdditiveBackend):
    """Hide vectors under masks that cancel in the sum over all parties.

    Every two parties derive a fresh mask for every sum from a key they share; one
    adds it, the other subtracts it. Numbers are 128-bit fixed point with 64
    fractional bits, so sums are exact and independent of the order. The coordinator
    learns the sum.

    Parameters
    ----------
    recovery : bool, default=False
        Survive the loss of parties in the middle of a sum, by double masking and
        secret sharing [1]_, at the price of five messages per sum instead of one.
        If False a missing party ends the session.
    threshold : int, default=None
        With `recovery`, the number of parties that must stay, more than two thirds
        of all. None is the smallest such number.

    See Also
    --------
    CKKSBackend : The sum stays with the parties.

    References
    ----------
    .. [1] K. Bonawitz et al. (2017). "Practical Secure Aggregation for
       Privacy-Preserving Machine Learning". CCS '17.

    Examples
    --------
    >>> from skprivbn.crypto import MaskingBackend
    >>> MaskingBackend().describe(["north", "south", "west"])["broken_by"]
    'the coordinator together with 2 of the 3 parties'
    """

    name = "masking"
    kind = "masked"
    sum_known_to = "coordinator"

    _parameter_constraints = {
        "recovery": ["boolean"],
        "threshold": [Interval(Integral, 1, None, closed="left"), None],
    }

    def __init__(self, recovery: bool = False, threshold: int | None = None) -> None:
        self.recovery = recovery
        self.threshold = threshold

    def validate(self) -> None:
        """Raise ValueError unless the parameters fit together."""
        super().validate()
        if self.threshold is not None and not self.recovery:
            raise ValueError("threshold is for recovery=True only")

    def n_needed(self, n_parties: int) -> int:
        """Return how many parties must stay for a sum to be finished.

        Parameters
        ----------
        n_parties : int

        Returns
        -------
        threshold : int
        """
        if not self.recovery:
            return n_parties
        smallest = 2 * n_parties // 3 + 1
        threshold = smallest if self.threshold is None else self.threshold
        if not smallest <= threshold <= n_parties:
            raise ValueError(
                f"threshold={threshold} is not more than two thirds of {n_parties} "
                f"parties and at most all of them: use {smallest} to {n_parties}"
            )
        return threshold

    def setup(self, context: PartyContext) -> Generator[Any, Any, Any]:
        """Derive mask keys from the pair keys; needs no message of its own."""
        # Imported here because the recovery builds upon this module.
        from skprivbn.crypto._recovery import RecoverySession

        self.validate()
        if self.recovery:
            return RecoverySession(context, self)
        return MaskingSession(context, self)
        yield  # makes this a generator, as every backend's setup is

    def add_parts(self, columns: list[list[bytes]]) -> list[bytes]:
        """Add masked vectors; the masks cancel if all parties are there."""
        return add_masked(columns)

    def secure_sum(
        self, federation: Any, operation: str, payload: dict | None = None
    ) -> HiddenVector:
        """Coordinator's side of one sum."""
        if self.recovery:
            from skprivbn.crypto._recovery import recoverable_sum

            return recoverable_sum(self, federation, operation, payload)
        return super().secure_sum(federation, operation, payload)

    def open_integers(self, total: HiddenVector, n_integers: int) -> np.ndarray:
        """Read the sum."""
        return open_total(total, n_integers)

    def describe(self, roster: Sequence[str]) -> dict:
        """Return plain words on who sees what, and the precision."""
        n_parties = len(roster)
        n_colluders = max(n_parties - 1, 0)
        hidden_by = "pairwise masks, fresh for every sum"
        if self.recovery:
            threshold = self.n_needed(n_parties)
            n_colluders = min(2 * threshold - n_parties, n_colluders)
            hidden_by += (
                f"; up to {n_parties - threshold} parties may be lost in a sum, which "
                "is then over the others"
            )
        return {
            "sum_known_to": "the coordinator, and whoever it tells",
            "hidden_by": hidden_by,
            "broken_by": f"the coordinator together with {n_colluders} of the "
            f"{n_parties} parties",
            "precision": "every value rounded to a multiple of 2**-64, then exact; "
            f"sums up to {self.max_sum():.3g}; integers exact",
        }


class PartyMaskingBackend(AdditiveBackend):
    """Hide vectors under masks that cancel, and the sum from the coordinator.

    As :class:`MaskingBackend`, but the first party also adds a mask that all parties
    know: the coordinator adds up what looks like noise, and the parties take the last
    mask off. Exact, and nearly free. Even a coordinator that has all parties but two
    on its side reads no vector of these two, whereas the key of
    :class:`CKKSBackend` or :class:`PaillierBackend` is with every party.

    See Also
    --------
    MaskingBackend : The coordinator reads the sum; parties may be lost on the way.

    Examples
    --------
    >>> from skprivbn.crypto import PartyMaskingBackend
    >>> PartyMaskingBackend().describe(["north", "south"])["sum_known_to"]
    'all parties; not the coordinator'
    """

    name = "party-masking"
    kind = "masked"
    sum_known_to = "parties"
    _parameter_constraints = {}

    def setup(self, context: PartyContext) -> Generator[Any, Any, Any]:
        """Derive mask keys from the pair keys; needs no message of its own."""
        return PartyMaskingSession(context, self)
        yield  # makes this a generator, as every backend's setup is

    def add_parts(self, columns: list[list[bytes]]) -> list[bytes]:
        """Add masked vectors; all masks cancel but the one that parties know."""
        return add_masked(columns)

    def describe(self, roster: Sequence[str]) -> dict:
        """Return plain words on who sees what, and the precision."""
        n_parties = len(roster)
        return {
            "sum_known_to": "all parties; not the coordinator",
            "hidden_by": "pairwise masks, fresh for every sum, and one known to all "
            "parties",
            "broken_by": f"the coordinator together with {max(n_parties - 1, 0)} of "
            f"the {n_parties} parties; any party can tell the coordinator the sum",
            "precision": "every value rounded to a multiple of 2**-64, then exact; "
            f"sums up to {self.max_sum():.3g}; integers exact",
        }


def add_masked(columns):
    """Add vectors of limbs, each in one part."""
    (column,) = columns
    if len({len(part) for part in column}) != 1 or len(column[0]) % 16:
        raise ProtocolError("a masked vector is longer or shorter than it says")
    return [limbs_to_bytes(sum_limbs(column))]


class MaskingSession(SumSession):
    """A party's side: its mask keys."""

    kind = "masked"

    def __init__(self, context, backend):
        super().__init__(context, backend)
        own = self._roster.index(self._name)
        self._masks = [
            (self._mask_stream(context, peer), own < index)
            for index, peer in enumerate(self._roster)
            if index != own
        ]

    def _mask_stream(self, context, peer):
        key = context.pair_key(peer, b"masking")
        return KeyStream(expand(key, self._binding, KeyStream.KEY_BYTES))

    def hide_integers(self, integers, number, key):
        """Add or subtract the mask in common with every other party."""
        return [mask(integers, number, key, self._masks)]

    def reveal_integers(self, total, n_integers):
        """Read a sum, which is no secret any more."""
        return open_total(total, n_integers)


class PartyMaskingSession(MaskingSession):
    """A party's side of sums that the coordinator cannot read."""

    def __init__(self, context, backend):
        super().__init__(context, backend)
        self._cover_stream = self._group.stream("cover", self._binding)

    def _cover(self, number, key, n_integers):
        piece = self._cover_stream.piece(number, key, bytes(16 * n_integers))
        return limbs_from_bytes(piece)

    def hide_integers(self, integers, number, key):
        """Mask integers; the first party covers the sum of all as well."""
        if self._name == self._roster[0]:
            integers = integers.copy()
            add_limbs(integers, self._cover(number, key, integers.shape[1]))
        return super().hide_integers(integers, number, key)

    def reveal_integers(self, total, n_integers):
        """Take the cover off."""
        integers = super().reveal_integers(total, n_integers).copy()
        subtract_limbs(integers, self._cover(total.round, total.key, n_integers))
        return integers


def sum_of_masks(streams, number, name, n_values):
    """Add the masks of one sum from several streams; yields totals of batches."""
    zeros = bytes(16 * n_values)
    batch = max(1, _BATCH_BYTES // len(zeros))
    for start in range(0, len(streams), batch):
        chosen = streams[start : start + batch]
        yield sum_limbs([stream.piece(number, name, zeros) for stream in chosen])


def mask(integers, number, key, masks):
    """Add (or subtract) masks to integers and a check value.

    Parameters
    ----------
    integers : ndarray of shape (2, n_integers)
    number : int
        Of the round.
    key : bytes
        Names the sum in the message, and is all that it takes, next to the number and
        a key, to make the mask again.
    masks : list of (KeyStream, bool)
        Where masks come from, and whether this party adds or subtracts them.

    Returns
    -------
    masked : bytes
    """
    limbs = np.hstack([integers, check_limbs(key, 1)])
    for change, added in ((add_limbs, True), (subtract_limbs, False)):
        streams = [stream for stream, adds in masks if adds is added]
        for total in sum_of_masks(streams, number, key, limbs.shape[1]):
            change(limbs, total)
    return limbs_to_bytes(limbs)


def check_limbs(key, n_parties):
    """Return what the check values of `n_parties` add up to, as one column.

    They tell the coordinator of accidents; parties have tags.
    """
    value = int.from_bytes(hashlib.sha256(b"check" + key).digest()[:16], "little")
    total = n_parties * value % 2**128
    return np.array([[total % 2**64], [total >> 64]], dtype=np.uint64)


def read_limbs(hidden):
    """Return the limbs of a masked vector as received: values, tag and check value."""
    if hidden.kind != "masked" or len(hidden.parts) != 1:
        raise ProtocolError("not a masked vector")
    n_integers = hidden.length + MaskingBackend.ring.n_digits + 1
    if len(hidden.parts[0]) != 16 * n_integers:
        raise ProtocolError("a masked vector is longer or shorter than it says")
    return limbs_from_bytes(hidden.parts[0])


def open_total(total, n_integers):
    """Check that all masks have cancelled, and return the integers."""
    limbs = read_limbs(total)
    if not np.array_equal(limbs[:, n_integers:], check_limbs(total.key, total.addends)):
        raise ProtocolError(
            "the masks do not cancel: a party is missing or out of step, or a message "
            "was damaged"
        )
    return limbs[:, :n_integers]
