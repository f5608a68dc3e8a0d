"""Sums under pairwise masks that cancel: exact and nearly free."""

import hashlib
from collections.abc import Generator, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from skprivbn.crypto._base import (
    AdditiveBackend,
    HiddenVector,
    PartyContext,
    SumSession,
    number_type,
)
from skprivbn.crypto._derive import KeyStream, expand
from skprivbn.crypto._numbers import (
    add_limbs,
    limbs_from_bytes,
    limbs_to_bytes,
    pack_limbs,
    pack_shortest,
    subtract_limbs,
    sum_limbs,
    unpack_limbs,
    unpack_shortest,
    wrap_limbs,
)
from skprivbn.exceptions import ProtocolError
from skprivbn.utils._sklearn import Interval

_SIGNED_WORDS = "; every party adds the signed vectors of all by itself"
# Masks are added in batches that stay in the processor's cache.
_BATCH_BYTES = 2**19
# Of so few, each is a batch.
_FEW = 4
# On the wire, integers are as long as their sums may be: see FixedPoint.
_FLOAT_BYTES, _INTEGER_BYTES = 14, 8


class MaskingBackend(AdditiveBackend):
    """Hide vectors under masks that cancel in the sum over all parties.

    Every two parties derive a fresh mask for every sum from a key they share; one
    adds it, the other subtracts it. Numbers are 112-bit fixed point with 56
    fractional bits, integers have 64 bits, so sums are exact and independent of the
    order. The coordinator learns the sum.

    Parameters
    ----------
    recovery : bool, default=False
        Survive the loss of parties in the middle of a sum, by double masking and
        secret sharing [1]_, at the price of five messages per sum instead of one.
        If False a missing party ends the session.
    threshold : int, default=None
        With `recovery`, the number of parties that must stay, more than two thirds
        of all. None is the smallest such number.
    signed : bool, default=False
        Every party gets the masked vectors of all, signed before any was shown, and
        adds them by itself: no total can be made up, not even by the coordinator with
        some of the parties. Two rounds more per sum, and a party receives as many
        vectors as there are parties.

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
        "signed": ["boolean"],
    }

    def __init__(
        self,
        recovery: bool = False,
        threshold: int | None = None,
        signed: bool = False,
    ) -> None:
        self.recovery = recovery
        self.threshold = threshold
        self.signed = signed

    def validate(self) -> None:
        """Raise ValueError unless the parameters fit together."""
        super().validate()
        if self.threshold is not None and not self.recovery:
            raise ValueError("threshold is for recovery=True only")
        if self.signed and self.recovery:
            raise ValueError("signed=True needs all parties: use recovery=False")

    def n_needed(self, n_parties: int) -> int:
        """Return how many parties must stay: with `recovery`, the threshold."""
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
        # Imported here because they build upon this module.
        from skprivbn.crypto._recovery import RecoverySession
        from skprivbn.crypto._signed import SignedMaskingSession

        self.validate()
        if self.recovery:
            return RecoverySession(context, self)
        if self.signed:
            return SignedMaskingSession(context, self)
        return MaskingSession(context, self)
        yield  # makes this a generator, as every backend's setup is

    def setup_for_parties(self, context: PartyContext) -> Generator[Any, Any, Any]:
        """Derive mask keys, and a cover of the sum that all parties know."""
        from skprivbn.crypto._recovery import CoveredRecoverySession
        from skprivbn.crypto._signed import SignedPartyMaskingSession

        self.validate()
        if self.recovery:
            return CoveredRecoverySession(context, self)
        if self.signed:
            return SignedPartyMaskingSession(context, self)
        return PartyMaskingSession(context, self)
        yield

    def setup_for_all(self, context: PartyContext) -> Generator[Any, Any, Any]:
        """Derive mask keys, without a cover."""
        return self.setup(context)

    def combine(
        self, said: dict[str, dict], roster: Sequence[str]
    ) -> Generator[dict[str, dict], dict[str, dict], HiddenVector]:
        """Coordinator's side of one sum."""
        if self.recovery:
            from skprivbn.crypto._recovery import combine_recoverable

            return combine_recoverable(self, said, roster)
        if self.signed:
            from skprivbn.crypto._signed import combine_signed

            return combine_signed(said)
        return super().combine(said, roster)

    def mask_keys(self, context: PartyContext) -> dict[str, bytes]:
        """Return the key that masks in common with each other party come from."""
        return {
            peer: context.pair_key(peer, b"masking")
            for peer in context.roster
            if peer != context.name
        }

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
        if self.signed:
            from skprivbn.crypto._signed import signed_sum

            return signed_sum(self, federation, operation, payload)
        return super().secure_sum(federation, operation, payload)

    def open_integers(self, total: HiddenVector, n_integers: int) -> np.ndarray:
        """Read the sum."""
        if self.signed:
            total = replace(total, parts=add_masked([total.parts]))
        return open_total(total, n_integers)

    def publish(self, total: HiddenVector) -> tuple[np.ndarray, HiddenVector]:
        """Read a sum, and write it as short as it is, now that it is no secret."""
        if self.signed:
            return super().publish(total)
        limbs = open_masked(total, total.length + self.ring.n_digits)
        values = self.numbers.decode(limbs[:, : total.length], number_type(total.key))
        return values, pack_total(total, limbs)

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
        if self.signed:
            hidden_by += _SIGNED_WORDS
        return {
            "sum_known_to": "the coordinator, and whoever it tells",
            "hidden_by": hidden_by,
            "broken_by": f"the coordinator together with {n_colluders} of the "
            f"{n_parties} parties",
            "precision": "every value rounded to a multiple of 2**-56, then exact; "
            f"sums up to {self.max_sum():.3g}; integers exact",
        }


class PartyMaskingBackend(AdditiveBackend):
    """Hide vectors under masks that cancel, and the sum from the coordinator.

    As :class:`MaskingBackend`, but the first party also adds a mask that all parties
    know: the coordinator adds up what looks like noise, and the parties take the last
    mask off. Exact, and nearly free. Even a coordinator that has all parties but two
    on its side reads no vector of these two, whereas the key of
    :class:`CKKSBackend` or :class:`PaillierBackend` is with every party.

    Parameters
    ----------
    signed : bool, default=False
        Every party adds the signed vectors of all by itself, as with
        :class:`MaskingBackend`.

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
    _parameter_constraints = {"signed": ["boolean"]}

    def __init__(self, signed: bool = False) -> None:
        self.signed = signed

    def setup(self, context: PartyContext) -> Generator[Any, Any, Any]:
        """Derive mask keys from the pair keys; needs no message of its own."""
        from skprivbn.crypto._signed import SignedPartyMaskingSession

        self.validate()
        if self.signed:
            return SignedPartyMaskingSession(context, self)
        return PartyMaskingSession(context, self)
        yield  # makes this a generator, as every backend's setup is

    def secure_sum(
        self, federation: Any, operation: str, payload: dict | None = None
    ) -> HiddenVector:
        """Coordinator's side of one sum."""
        if self.signed:
            from skprivbn.crypto._signed import signed_sum

            return signed_sum(self, federation, operation, payload)
        return super().secure_sum(federation, operation, payload)

    def combine(
        self, said: dict[str, dict], roster: Sequence[str]
    ) -> Generator[dict[str, dict], dict[str, dict], HiddenVector]:
        """Coordinator's side of one sum."""
        if self.signed:
            from skprivbn.crypto._signed import combine_signed

            return combine_signed(said)
        return super().combine(said, roster)

    mask_keys = MaskingBackend.mask_keys

    def add_parts(self, columns: list[list[bytes]]) -> list[bytes]:
        """Add masked vectors; all masks cancel but the one that parties know."""
        return add_masked(columns)

    def describe(self, roster: Sequence[str]) -> dict:
        """Return plain words on who sees what, and the precision."""
        n_parties = len(roster)
        return {
            "sum_known_to": "all parties; not the coordinator",
            "hidden_by": "pairwise masks, fresh for every sum, and one known to all "
            f"parties{_SIGNED_WORDS if self.signed else ''}",
            "broken_by": f"the coordinator together with {max(n_parties - 1, 0)} of "
            f"the {n_parties} parties; any party can tell the coordinator the sum",
            "precision": "every value rounded to a multiple of 2**-56, then exact; "
            f"sums up to {self.max_sum():.3g}; integers exact",
        }


def signs(backend):
    """Tell whether parties add signed vectors by themselves with this backend."""
    return getattr(backend, "signed", False)


def exact_sums_next_to(backend, coordinator_reads):
    """Return masks for exact sums beside those of a backend, of the same strength.

    Parameters
    ----------
    backend : AdditiveBackend or None
    coordinator_reads : bool
        Whether the coordinator may read the exact sums.

    Returns
    -------
    backend : AdditiveBackend
    """
    # Imported here because it builds upon this module.
    from skprivbn.crypto._sparse import SparseMaskingBackend, SparsePartyMaskingBackend

    if isinstance(backend, SparseMaskingBackend):
        return SparsePartyMaskingBackend(backend.max_colluders)
    masks = MaskingBackend if coordinator_reads else PartyMaskingBackend
    return masks(signed=signs(backend))


def add_masked(columns):
    """Add masked vectors, each in one part."""
    (column,) = columns
    n_bytes, tail = column[0][:1], 16 * _n_tail()
    if (
        n_bytes not in (bytes([_FLOAT_BYTES]), bytes([_INTEGER_BYTES]))
        or any(part[:1] != n_bytes for part in column)
        or len({len(part) for part in column}) != 1
        or (len(column[0]) - 1 - tail) % n_bytes[0]
    ):
        raise ProtocolError("a masked vector is longer or shorter than it says")
    values = sum_limbs([part[1:-tail] for part in column], n_bytes[0])
    tails = sum_limbs([part[-tail:] for part in column])
    return [write_limbs(values, tails, n_bytes[0])]


class MaskingSession(SumSession):
    """A party's side: its mask keys."""

    kind = "masked"

    def __init__(self, context, backend):
        super().__init__(context, backend)
        places = {name: place for place, name in enumerate(self._roster)}
        # the one that comes first adds the mask, the other subtracts it
        self._masks = [
            (
                KeyStream(expand(key, self._binding, KeyStream.KEY_BYTES)),
                places[self._name] < places[peer],
            )
            for peer, key in backend.mask_keys(context).items()
        ]

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
        piece = self._cover_stream.piece(number, key, 16 * n_integers)
        return limbs_from_bytes(piece)

    def hide_integers(self, integers, number, key):
        """Mask integers; the first party covers the sum of all as well."""
        if self._name == self._roster[0]:
            integers = integers.copy()
            add_limbs(integers, self._cover(number, key, integers.shape[1]))
        return super().hide_integers(integers, number, key)

    def reveal_integers(self, total, n_integers):
        """Take the cover off."""
        integers = open_masked(total, n_integers)
        subtract_limbs(integers, self._cover(total.round, total.key, n_integers))
        wrap_limbs(integers[:, : total.length], bytes_of_value(total.key))
        return integers


def sum_of_masks(streams, number, name, n_values):
    """Add the masks of one sum from several streams; yields totals of batches."""
    n_bytes = 16 * n_values
    if len(streams) <= _FEW:
        for stream in streams:
            yield limbs_from_bytes(stream.piece(number, name, n_bytes))
        return
    batch = max(1, _BATCH_BYTES // n_bytes)
    for start in range(0, len(streams), batch):
        chosen = streams[start : start + batch]
        yield sum_limbs([stream.piece(number, name, n_bytes) for stream in chosen])


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
    limbs = np.concatenate([integers, check_limbs(key, 1)], axis=1)
    for change, added in ((add_limbs, True), (subtract_limbs, False)):
        streams = [stream for stream, adds in masks if adds is added]
        for total in sum_of_masks(streams, number, key, limbs.shape[1]):
            change(limbs, total)
    n_values = limbs.shape[1] - _n_tail()
    return write_limbs(limbs[:, :n_values], limbs[:, n_values:], bytes_of_value(key))


def check_limbs(key, n_parties):
    """Return what the check values of `n_parties` add up to, as one column.

    They tell the coordinator of accidents; parties have tags.
    """
    value = int.from_bytes(hashlib.sha256(b"check" + key).digest()[:16], "little")
    return limbs_from_bytes((n_parties * value % 2**128).to_bytes(16, "little"))


def _n_tail():
    """Return how many integers of 16 bytes come after the values: tag, check value."""
    return AdditiveBackend.ring.n_digits + 1


def bytes_of_value(key):
    """Return in how many bytes a value of a sum is masked."""
    return _INTEGER_BYTES if number_type(key) == np.int64 else _FLOAT_BYTES


def write_limbs(values, tail, n_bytes):
    """Write a masked vector, or a sum of some: the size of a value comes first.

    Masks are of 128 bits. Since these wrap around as fewer do, bits that values do not
    have need not be sent.
    """
    return bytes([n_bytes]) + pack_limbs(values, n_bytes) + limbs_to_bytes(tail)


def read_limbs(hidden):
    """Return the limbs of a masked vector as received: values, tag and check value."""
    n_bytes, n_tail = bytes_of_value(hidden.key), _n_tail()
    if hidden.kind != "masked" or len(hidden.parts) != 1:
        raise ProtocolError("not a masked vector")
    part, end = memoryview(hidden.parts[0]), 1 + n_bytes * hidden.length
    if len(part) != end + 16 * n_tail or part[0] != n_bytes:
        raise ProtocolError("a masked vector is longer or shorter than it says")
    limbs = np.empty((2, hidden.length + n_tail), dtype=np.uint64)
    limbs[:, : hidden.length] = unpack_limbs(part[1:end], n_bytes)
    limbs[:, hidden.length :] = limbs_from_bytes(part[end:])
    return limbs


def open_masked(total, n_integers):
    """Check that the masks of all parties have cancelled, and return the integers."""
    limbs = read_limbs(total)
    if not np.array_equal(limbs[:, n_integers:], check_limbs(total.key, total.addends)):
        raise ProtocolError(
            "the masks do not cancel: a party is missing or out of step, or a message "
            "was damaged"
        )
    return limbs[:, :n_integers]


def pack_total(total, limbs):
    """Write the integers of an opened sum in fewer bytes, without the check value.

    Bytes are left out that all of them have as zeros, or as copies of their signs. So
    the length tells the size of the largest, which the coordinator knows.
    """
    values, tag = limbs[:, : total.length], limbs[:, total.length :]
    data, n_bytes, shift = pack_shortest(values)
    part = bytes([n_bytes, shift]) + data + limbs_to_bytes(tag)
    return replace(total, parts=[part])


def open_total(total, n_integers):
    """Return the integers of a sum that is no secret any more, packed or not."""
    (part,) = total.parts
    n_tag = 16 * (n_integers - total.length)
    n_bytes, shift = (*part[:2], 0, 0)[:2]
    end = 2 + n_bytes * total.length
    if len(part) != end + n_tag or not 1 <= n_bytes <= 16 or shift > 63:
        return open_masked(total, n_integers)
    limbs = np.empty((2, n_integers), dtype=np.uint64)
    limbs[:, : total.length] = unpack_shortest(part[2:end], n_bytes, shift)
    limbs[:, total.length :] = limbs_from_bytes(part[end:])
    return limbs
