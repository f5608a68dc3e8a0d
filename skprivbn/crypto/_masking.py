"""Sums under pairwise masks that cancel: exact and nearly free."""

import hashlib
from collections.abc import Generator, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from skprivbn.crypto._base import (
    AdditiveBackend,
    HiddenVector,
    PartyContext,
    SumSession,
)
from skprivbn.crypto._derive import expand, join_fields, session_binding
from skprivbn.crypto._numbers import (
    add_limbs,
    check_range,
    check_vector,
    decode_fixed_point,
    encode_fixed_point,
    limbs_from_bytes,
    limbs_to_bytes,
    subtract_limbs,
    sum_limbs,
)
from skprivbn.exceptions import ProtocolError
from skprivbn.utils._sklearn import Interval

__all__ = ["MaskingBackend"]

MAX_SUM = 2**63
_NUMBER_TYPES = (np.dtype(np.float64), np.dtype(np.int64))
# Masks are added in batches that stay in the processor's cache.
_BATCH_BYTES = 2**19

# How many mask sets each context has started. A second set under the same pair keys
# (new keys on request, or exact sums next to the usual ones) must not repeat masks.
_mask_sets = WeakKeyDictionary()


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
            return RecoverySession(context, self.n_needed(len(context.roster)))
        return MaskingSession(context)
        yield  # makes this a generator, as every backend's setup is

    def add(self, hidden: list[HiddenVector]) -> HiddenVector:
        """Add masked vectors; the masks cancel if all parties are there."""
        first, *others = hidden
        for other in others:
            first.check_same_sum(other)
        total = sum_limbs([limbs_to_bytes(read_limbs(h)) for h in hidden])
        return replace(
            first,
            parts=[limbs_to_bytes(total)],
            addends=sum(h.addends for h in hidden),
        )

    def secure_sum(
        self, federation: Any, operation: str, payload: dict | None = None
    ) -> HiddenVector:
        """Coordinator's side of one sum."""
        if self.recovery:
            from skprivbn.crypto._recovery import recoverable_sum

            return recoverable_sum(self, federation, operation, payload)
        return super().secure_sum(federation, operation, payload)

    def open(self, total: HiddenVector) -> np.ndarray:
        """Read the sum."""
        return open_total(total)

    def max_sum(self) -> float:
        """Return the largest absolute value that a sum may have."""
        return float(MAX_SUM)

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
            f"sums up to {MAX_SUM:.3g}; integers exact",
        }


class MaskingSession(SumSession):
    """A party's side: its mask keys, and the number of the next sum."""

    kind = "masked"

    def __init__(self, context):
        self._n_parties = len(context.roster)
        self._binding = mask_set_binding(context)
        own = context.roster.index(context.name)
        self._masks = [
            (self._stream(context, peer), own < index)
            for index, peer in enumerate(context.roster)
            if index != own
        ]
        self._round = 0

    def _stream(self, context, peer):
        key = context.pair_key(peer, b"masking")
        return MaskStream(expand(key, self._binding, MaskStream.KEY_BYTES))

    def hide(self, vector, operation):
        """Mask a vector; the party counts the rounds, nobody tells it."""
        vector = check_summand(vector, self._n_parties)
        # Counted before anything leaves: masks are never used for two vectors.
        self._round += 1
        info = mask_info(
            self._binding, self._round, operation, vector.size, vector.dtype
        )
        return mask(vector, self._round, info, self._masks)

    def reveal(self, total):
        """Read a sum, which is no secret any more."""
        if total.addends != self._n_parties:
            raise ProtocolError(
                f"the sum is over {total.addends} of {self._n_parties} parties"
            )
        return open_total(total)

    def __reduce__(self):
        raise TypeError("a sum session holds keys and cannot be pickled")


def mask_set_binding(context):
    """Digest of session, roster, parameters and the number of the mask set."""
    number = _mask_sets.get(context, 0)
    _mask_sets[context] = number + 1
    fields = join_fields("mask set", session_binding(context), number)
    return hashlib.sha256(fields).digest()


def check_summand(vector, n_parties):
    """Return the vector checked for type and range."""
    vector = check_vector(vector)
    check_range(vector, n_parties, MAX_SUM, "rescale the data")
    return vector


def mask_info(binding, number, operation, length, dtype):
    """Everything that a mask is bound to: no two sums share one."""
    return join_fields("mask", binding, number, operation, length, dtype.str)


class MaskStream:
    """The masks of one key, which two parties share or one keeps to itself.

    A mask is a piece of the AES-256-CTR key stream. The counter starts with the number
    of the sum, which a key never sees twice, so no two pieces overlap; next comes a
    digest of all that the mask is bound to, under a key, so that nobody else can find
    two sums with the same digest. The last 32 bits count.

    Parameters
    ----------
    key : bytes of length 64
        Fresh and uniform.
    """

    KEY_BYTES = 64

    def __init__(self, key):
        self._digest_key = key[32:]
        cipher = Cipher(algorithms.AES(key[:32]), modes.CTR(bytes(16)))
        self._stream = cipher.encryptor()

    def mask(self, number, name, zeros):
        """Return the mask of a sum as the bytes of limbs.

        Parameters
        ----------
        number : int
            Of the sum.
        name : bytes
            What else the mask is bound to.
        zeros : bytes
            As long as the mask is to be, 16 bytes for every value.

        Returns
        -------
        mask : bytes
        """
        digest = hashlib.blake2b(name, key=self._digest_key, digest_size=8).digest()
        self._stream.reset_nonce(number.to_bytes(4, "big") + digest + bytes(4))
        return self._stream.update(zeros)


def sum_of_masks(streams, number, name, n_values):
    """Add the masks of one sum from several streams; yields totals of batches."""
    zeros = bytes(16 * n_values)
    batch = max(1, _BATCH_BYTES // len(zeros))
    for start in range(0, len(streams), batch):
        some = streams[start : start + batch]
        yield sum_limbs([stream.mask(number, name, zeros) for stream in some])


def mask(vector, number, info, masks):
    """Encode a vector with its check value and add (or subtract) masks.

    Parameters
    ----------
    vector : ndarray
    number : int
        Of the round.
    info : bytes
        What the masks are bound to. Its digest names the sum in the message, and is
        all that it takes, next to the number and a key, to make the mask again.
    masks : list of (MaskStream, bool)
        Where masks come from, and whether this party adds or subtracts them.

    Returns
    -------
    hidden : HiddenVector
    """
    key = _number_type_code(vector.dtype) + hashlib.sha256(info).digest()
    limbs = np.hstack([encode_fixed_point(vector), check_limbs(key, 1)])
    for change, added in ((add_limbs, True), (subtract_limbs, False)):
        streams = [stream for stream, adds in masks if adds is added]
        for total in sum_of_masks(streams, number, key, limbs.shape[1]):
            change(limbs, total)
    return HiddenVector("masked", vector.size, number, key, [limbs_to_bytes(limbs)])


def check_limbs(key, n_parties):
    """Return what the check values of `n_parties` add up to, as one column."""
    value = int.from_bytes(hashlib.sha256(b"check" + key).digest()[:16], "little")
    total = n_parties * value % 2**128
    return np.array([[total % 2**64], [total >> 64]], dtype=np.uint64)


def read_limbs(hidden):
    """Return the (2, length + 1) limbs of a masked vector as received."""
    if hidden.kind != "masked" or len(hidden.parts) != 1:
        raise ProtocolError("not a masked vector")
    if len(hidden.parts[0]) != 16 * (hidden.length + 1):
        raise ProtocolError("a masked vector is longer or shorter than it says")
    return limbs_from_bytes(hidden.parts[0])


def open_total(total):
    """Check that all masks have cancelled, and decode."""
    limbs = read_limbs(total)
    dtype = number_type(total.key)
    if not np.array_equal(limbs[:, -1:], check_limbs(total.key, total.addends)):
        raise ProtocolError(
            "the masks do not cancel: a party is missing or out of step, or a message "
            "was damaged"
        )
    return decode_fixed_point(limbs[:, :-1], dtype)


def _number_type_code(dtype):
    return bytes([_NUMBER_TYPES.index(dtype)])


def number_type(key):
    if len(key) != 33 or key[0] >= len(_NUMBER_TYPES):
        raise ProtocolError("not a masked vector")
    return _NUMBER_TYPES[key[0]]
