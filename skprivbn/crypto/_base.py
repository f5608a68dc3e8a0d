"""What every additive backend offers: hide vectors, add them blindly, reveal the sum.

A backend object holds hyper-parameters only, so that it can be cloned, searched
over and shown. Keys live in the :class:`SumSession` that a party makes at the start
of a session and forgets at its end.

Values become integers here, and every sum is authenticated here: a backend hides, adds
and reads integers, and need not know which of them are values and which a tag.
"""

import hashlib
import struct
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from sklearn.base import BaseEstimator

from skprivbn.crypto._authentication import GroupKey, TagRing, TagSecrets, read_only
from skprivbn.crypto._derive import join_fields, session_binding
from skprivbn.crypto._numbers import (
    FRACTION_BITS,
    MAX_SUM,
    check_vector,
    decode_fixed_point,
    encode_fixed_point,
)
from skprivbn.exceptions import PartyError, ProtocolError
from skprivbn.utils._sklearn import CachedParameterNames, check_parameters

# length, round, addends and checksum of a hidden vector
_NUMBERS = struct.Struct("<IIII")


@dataclass(frozen=True)
class HiddenVector:
    """A hidden vector as a party sends it.

    Parameters
    ----------
    kind : {"ciphertext", "masked", "plaintext"}
        What a reader of the message sees; recorded in the ledger.
    length : int
        Number of values inside. Public.
    round : int
        Number of the secure sum within the session, counted by each party itself.
    key : bytes
        Names the sum: a digest of all it is bound to, after the type of its numbers.
    parts : list of bytes
        The ciphertexts or encoded buffers, of a size that does not depend on the data.
    addends : int
        Number of parties' vectors summed inside: 1 as a party sends it.
    """

    kind: str
    length: int
    round: int
    key: bytes
    parts: list
    addends: int = 1

    def to_payload(self) -> list:
        """Return what the wire format carries: kind, numbers and key, parts."""
        checksum = zlib.crc32(b"".join(self.parts))
        numbers = self.length, self.round, self.addends, checksum
        return [self.kind, _NUMBERS.pack(*numbers) + self.key, *self.parts]

    @property
    def form(self) -> tuple:
        """What vectors of one sum have in common."""
        return self.kind, self.length, self.round, self.key, len(self.parts)

    @classmethod
    def from_payload(cls, payload: list) -> Self:
        """Rebuild from a received list; anything unexpected is a ProtocolError."""
        kinds = list(map(type, payload)) if type(payload) is list else []
        if kinds[:2] != [str, bytes] or {*kinds[2:]} - {bytes}:
            raise ProtocolError("not a hidden vector")
        kind, head, *parts = payload
        if len(head) < _NUMBERS.size:
            raise ProtocolError("not a hidden vector")
        length, number, addends, checksum = _NUMBERS.unpack_from(head)
        if addends < 1:
            raise ProtocolError("a hidden vector of nobody")
        # Against accidents, before anything is parsed; channels authenticate.
        if checksum != zlib.crc32(b"".join(parts)):
            raise ProtocolError("a hidden vector was damaged on its way")
        return cls(kind, length, number, head[_NUMBERS.size :], parts, addends)


_NUMBER_TYPES = (np.dtype(np.float64), np.dtype(np.int64))


def number_type(key):
    """Return the type of the numbers in a sum, from the key of a hidden vector."""
    if len(key) != 33 or key[0] >= len(_NUMBER_TYPES):
        raise ProtocolError("not the key of a hidden vector")
    return _NUMBER_TYPES[key[0]]


def read_vector(reply):
    """Return the hidden vector that a single party answered."""
    vector = HiddenVector.from_payload(reply["vector"])
    if vector.addends != 1:
        raise ProtocolError("not a hidden vector of one party")
    return vector


def read_each(said, read=read_vector, is_strict=True):
    """Return what a function makes of each party's words.

    Who speaks garbage is named, or left out if it is not strict.
    """
    made = {}
    for name, reply in said.items():
        try:
            made[name] = read(reply)
        except (ProtocolError, LookupError, TypeError, ValueError):
            if is_strict:
                raise PartyError(name, "sum", "garbage") from None
    return made


def outvoted(answers):
    """Name the parties that say otherwise than most."""
    (usual, n_usual), *_ = Counter(answers.values()).most_common(1)
    if 2 * n_usual <= len(answers):
        raise ProtocolError("the parties are not in the same round")
    return [name for name, answer in answers.items() if answer != usual]


class PartyContext(Protocol):
    """The session as the backend of one party sees it.

    Attributes: `name` (own), `roster` (names of all parties, in order), `session`
    (random bytes), `roster_hash` (binds roster, estimator and public parameters),
    `keys_hash` (of the session keys of all parties, as this one was shown them),
    `group` (the key that all parties share and the coordinator does not have).
    """

    name: str
    roster: tuple
    session: bytes
    roster_hash: bytes
    keys_hash: bytes
    group: GroupKey

    def pair_key(self, peer: str, purpose: bytes) -> bytes:
        """Return 32 bytes that only this party and `peer` know; same on both sides."""

    def sign(self, message: bytes) -> bytes:
        """Sign with this party's long-term identity."""

    def verify(self, peer: str, message: bytes, signature: bytes) -> None:
        """Raise ProtocolError unless `peer` signed `message`."""


@dataclass
class _Hidden:
    """The last vector that a party hid: what the total must be the sum of."""

    number: int
    key: bytes
    length: int
    tags: TagSecrets
    accepted: bytes | None = None


class SumSession(ABC):
    """A party's side of the secure sums of one session. Holds the secrets.

    A backend of one's own defines :meth:`hide_integers` and :meth:`reveal_integers`.

    Parameters
    ----------
    context : PartyContext
    backend : AdditiveBackend
    """

    #: what a reader of the messages sees; as of the backend
    kind: ClassVar[str] = "ciphertext"

    def __init__(self, context: PartyContext, backend: "AdditiveBackend") -> None:
        self._name, self._roster = context.name, tuple(context.roster)
        self._backend = backend
        self._group = context.group
        # New keys on request, or noisy sums next to the usual ones, are bound to a
        # number of their own: nothing derived here is used twice.
        fields = join_fields(
            "sums", session_binding(context), self._group.next_epoch(), backend.name
        )
        self._binding = hashlib.sha256(fields).digest()
        self._tag_stream = self._group.stream("tags", self._binding)
        self._round = 0
        self._last: _Hidden | None = None

    @abstractmethod
    def hide_integers(self, integers: np.ndarray, number: int, key: bytes) -> list:
        """Hide integers, for the sum with all parties'.

        Parameters
        ----------
        integers : ndarray of uint64 of shape (2, n_integers)
            In two's complement, low limbs first.
        number : int
            Of the sum; never the same twice.
        key : bytes
            Names all that the sum is bound to; the same at all parties.

        Returns
        -------
        parts : list of bytes
        """

    @abstractmethod
    def reveal_integers(self, total: HiddenVector, n_integers: int) -> np.ndarray:
        """Read the sum of the integers that all parties hid; it is checked elsewhere.

        Parameters
        ----------
        total : HiddenVector
        n_integers : int

        Returns
        -------
        integers : ndarray of uint64 of shape (2, n_integers)
        """

    def hide(self, vector: np.ndarray, operation: str) -> HiddenVector:
        """Encode and hide a vector (float64, or int64 which is summed exactly)."""
        vector = check_vector(vector, len(self._roster))
        number = self._next_number()
        fields = join_fields(
            "sum",
            self._binding,
            self._group.transcript,
            number,
            operation,
            vector.size,
            vector.dtype.str,
            repr((FRACTION_BITS, MAX_SUM)),
        )
        type_code = bytes([_NUMBER_TYPES.index(vector.dtype)])
        key = type_code + hashlib.sha256(fields).digest()
        integers = encode_fixed_point(vector)
        tags = self._backend.ring.secrets(
            self._tag_stream, number, key, integers.shape[1], self._roster
        )
        self._last = _Hidden(number, key, vector.size, tags)
        tag = tags.tag(integers, self._name)
        integers = np.concatenate([integers, tag], axis=1)
        parts = self.hide_integers(integers, number, key)
        return HiddenVector(self.kind, vector.size, number, key, parts)

    def reveal(self, total: HiddenVector) -> np.ndarray:
        """Return the sum as float64 (int64 if all parties hid integers).

        It is that of the last vectors hidden, or a ProtocolError, after which this
        session hides and reads nothing any more.
        """
        try:
            integers = self._verified(total)
        except ProtocolError:
            self._group.erase()
            raise
        except Exception as error:
            self._group.erase()
            raise ProtocolError("the total cannot be read") from error
        return decode_fixed_point(integers, number_type(total.key))

    def exchange(
        self, vector: np.ndarray, operation: str
    ) -> Generator[dict, dict, np.ndarray]:
        """Add a vector to those of all parties: this party's side of one sum.

        Yields what is sent to the coordinator, and is sent its answers.

        Parameters
        ----------
        vector : ndarray of shape (n_values,)
        operation : str
            Names the sum: parties whose names differ cannot be summed.

        Returns
        -------
        total : ndarray of shape (n_values,)
            Verified.
        """
        answer = yield {"vector": self.hide(vector, operation).to_payload()}
        return self.read_total(answer)

    def read_total(self, answer: dict) -> np.ndarray:
        """Return the verified total that an answer of the coordinator holds."""
        return self.reveal(HiddenVector.from_payload(read_only(answer, "total", list)))

    @property
    def counted(self) -> tuple[str, ...]:
        """Names of the parties whose vectors must be in the total."""
        return self._roster

    def _next_number(self):
        # Counted before anything leaves; nobody tells a party which sum it is.
        self._round += 1
        return self._round

    def _verified(self, total):
        last, counted = self._last, self.counted
        if last is None or total.round != last.number:
            raise ProtocolError("this party hid nothing in that round, or has gone on")
        if total.key != last.key:
            raise ProtocolError(
                "the sum is under another key, or of another operation or number type"
            )
        if (total.kind, total.length) != (self.kind, last.length):
            raise ProtocolError("the sum is not of the vectors that were hidden")
        if total.addends != len(counted):
            raise ProtocolError(
                f"the sum is over {total.addends} of {len(counted)} parties"
            )
        n_values = last.length
        shape = (2, n_values + self._backend.ring.n_digits)
        integers = self.reveal_integers(total, shape[1])
        if integers.shape != shape or integers.dtype != np.uint64:
            raise ProtocolError("the total has another shape than what was hidden")
        values, tag = integers[:, :n_values], integers[:, n_values:]
        last.tags.check(values, tag, counted)
        digest = hashlib.sha256(np.ascontiguousarray(values)).digest()
        if last.accepted is None:
            last.accepted = digest
            self._group.add_verified(last.key, digest)
        elif digest != last.accepted:
            raise ProtocolError("another total was accepted before")
        return values

    def __reduce__(self):
        raise TypeError("a sum session holds keys and cannot be pickled")


class AdditiveBackend(CachedParameterNames, BaseEstimator, ABC):
    """Base class of backends: parameters of one way to add hidden vectors.

    A backend of one's own defines :meth:`setup`, :meth:`add_parts` and
    :meth:`describe`.
    """

    _parameter_constraints: dict = {}
    #: name accepted in place of an instance, as in ``backend="ckks"``
    name: ClassVar[str]
    #: kind of the hidden vectors, for the ledger
    kind: ClassVar[str]
    #: where tags of sums are computed: here for integers of up to 128 bits
    ring: ClassVar[TagRing] = TagRing(2**192, coefficient_bits=64, digit_bits=96)

    def validate(self) -> None:
        """Raise ValueError unless the hyper-parameters make sense and are safe."""
        check_parameters(self)

    def leaks(self) -> str | None:
        """Say what this backend fails to hide by its very choice; None if nothing.

        Whoever opens a session on the coordinator's side shows the text once, as a
        :class:`~skprivbn.exceptions.PrivacyLeakWarning`.
        """

    def preset_name(self) -> str | None:
        """Name the parameters, if they are some that a site lets others choose.

        Parameters of keys come from the coordinator, who might like them weak, slow or
        unusual. A site takes no others than those with a name; its file may name some.

        Returns
        -------
        name : str or None
        """
        return self.name

    def n_needed(self, n_parties: int) -> int:
        """Return how many of so many parties must stay for a sum to be finished."""
        return n_parties

    def max_sum(self) -> float:
        """Return the largest absolute value that a sum may have."""
        return float(MAX_SUM)

    def key_makers(self, roster: Sequence[str]) -> Sequence[str]:
        """Return the parties that make the key of all, which tags come from.

        Parameters
        ----------
        roster : sequence of str

        Returns
        -------
        makers : sequence of str
            All of them, unless there are too many.
        """
        return roster

    @abstractmethod
    def setup(self, context: PartyContext) -> Generator[Any, Any, Any]:
        """Party's side of the key exchange: a generator that returns a SumSession.

        Yields ``{peer: payload}`` and is sent ``{peer: payload}``, sealed between
        peers. Backends that need no exchange return before the first yield.
        """

    def masks_for_all(self) -> "AdditiveBackend":
        """Return the masks of sums that everybody may read, which are noisy ones."""
        from skprivbn.crypto._masking import MaskingBackend

        return MaskingBackend()

    @abstractmethod
    def add_parts(self, columns: list[list[bytes]]) -> list[bytes]:
        """Add without any key; what the coordinator does.

        Parameters
        ----------
        columns : list of list of bytes
            For each part of the hidden vectors, those of all parties.

        Returns
        -------
        parts : list of bytes
            Of the sum.
        """

    def add(self, hidden: list[HiddenVector]) -> HiddenVector:
        """Add hidden vectors of one sum."""
        first, *others = hidden
        if any(other.form != first.form for other in others):
            raise ProtocolError(
                "hidden vectors of different kind, length, round or key cannot be added"
            )
        if first.kind != self.kind:
            raise ProtocolError(f"{self.name} cannot add {first.kind} vectors")
        parts = self.add_parts(
            [list(parts) for parts in zip(*(h.parts for h in hidden))]
        )
        return replace(first, parts=parts, addends=sum(h.addends for h in hidden))

    def combine(
        self, said: dict[str, dict], roster: Sequence[str]
    ) -> Generator[dict[str, dict], dict[str, dict], HiddenVector]:
        """Coordinator's side of one sum: add what parties hid.

        Yields answers to parties, and is sent what they say to these.

        Parameters
        ----------
        said : dict of str to dict
            What each party said, as of :meth:`SumSession.exchange`.
        roster : sequence of str
            All parties of the session, of which some may be lost.

        Returns
        -------
        total : HiddenVector
        """
        hidden = read_each(said)
        try:
            return self.add(list(hidden.values()))
        except (ProtocolError, ValueError):
            for name in self.find_unlike(hidden):
                raise PartyError(name, "sum", "garbage") from None
            raise
        yield  # makes this a generator, as where a sum takes several rounds

    def find_unlike(self, hidden: dict[str, HiddenVector]) -> list[str]:
        """Name the parties whose vectors cannot be added, or not to most others'.

        Parameters
        ----------
        hidden : dict of str to HiddenVector

        Returns
        -------
        names : list of str
        """
        forms: dict[str, tuple | None] = {}
        for name, vector in hidden.items():
            try:
                self.add_parts([[part] for part in vector.parts])
                forms[name] = *vector.form, *map(len, vector.parts)
            except (ProtocolError, ValueError):
                forms[name] = None
        counts = Counter(form for form in forms.values() if form is not None)
        usual, n_usual = counts.most_common(1)[0] if counts else (None, 0)
        if 2 * n_usual <= len(hidden):
            # nobody can tell who of two is wrong, but for what is no vector at all
            return [name for name, form in forms.items() if form is None]
        return [name for name, form in forms.items() if form != usual]

    @abstractmethod
    def describe(self, roster: Sequence[str]) -> dict:
        """Plain words: {"sum_known_to", "hidden_by", "broken_by", "precision"}."""


class KeyHolderBackend(AdditiveBackend):
    """Base of CKKS and Paillier: all parties hold one secret key, the coordinator none.

    The first party of the roster makes the key and sends it, sealed, to each of the
    others. A wrong key, a missing or repeated party, a mixed-up round or damaged bytes
    decrypt to garbage, which the tag of the sum gives away.
    """

    kind = "ciphertext"

    @abstractmethod
    def _make_key(self):
        """Return a fresh secret key as bytes."""

    @abstractmethod
    def _open_session(self, context, secret):
        """Return the SumSession of one party; ProtocolError if no such key."""

    def setup(self, context: PartyContext) -> Generator[Any, Any, Any]:
        """Make the key (first party) or wait for it; see `AdditiveBackend.setup`."""
        self.validate()
        maker, *others = context.roster
        if context.name == maker:
            secret = self._make_key()
            if others:
                # the length of a serialised key varies by chance by a few bytes
                size = -(-(len(secret) + 1024) // 4096) * 4096
                told = len(secret).to_bytes(8, "little") + secret.ljust(size, b"\0")
                yield dict.fromkeys(others, {"key": told})
        else:
            incoming = yield {}
            while not incoming:
                incoming = yield {}
            told = read_only(read_only(incoming, maker), "key", bytes)
            secret = told[8 : 8 + int.from_bytes(told[:8], "little")]
        return self._open_session(context, secret)

    def _describe(self, roster, precision):
        maker = roster[0]
        return {
            "sum_known_to": "all parties, by one key; the coordinator reads results",
            "hidden_by": f"{self.hidden_by}; {maker} makes the key and sends it to the "
            "other parties over sealed channels",
            "broken_by": "the coordinator together with any one party, so no party may "
            "run on the coordinator's host; not by the coordinator alone, nor by "
            "parties alone",
            "precision": precision,
        }
