"""Sums that nobody can change on their way: tags under a key of all parties.

The parties share a key that the coordinator never sees. For each sum it gives
coefficients and one pad per party. Beside its integers x, party i hides the tag
``<a, x> + r_i``; a total X is accepted only if the sum of the tags is
``<a, X> + sum of r_i``. Since every tag is padded once, not even a coordinator that
knows all integers and tags can make another total pass, but by guessing.

What is checked are the integers as they came off the wire, in a ring so large that two
different vectors of them stay different.
"""

import hmac
import os
import secrets
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any

import numpy as np

from skprivbn.crypto._derive import (
    KeyStream,
    expand,
    extract,
    join_fields,
    session_binding,
)
from skprivbn.exceptions import ProtocolError

_KEY_BYTES = 32
_PAD_BYTES = 32
_PAD_WORD = np.dtype("<u4")
_DIGIT = np.dtype("<u2")
# So many values at a time stay in the processor's cache. Products of 16-bit digits add
# up to 16 + 16 + 13 bits, which a double holds exactly.
_CHUNK = 2**13
# Of so few values, Python's integers are faster than arrays.
_SHORT = 32


class GroupKey:
    """What all parties of a session share and the coordinator does not.

    Beside the key it holds the transcript, a keyed digest of all totals that were
    verified so far, to which the next sum is bound. It works in the process that made
    it only: a copy in a forked one would use pads twice.

    Parameters
    ----------
    key : bytes of length 32
    """

    def __init__(self, key: bytes) -> None:
        self._key: bytes | None = key
        self._transcript = bytes(32)
        self._n_epochs = 0
        self._process = os.getpid()

    def _alive(self) -> bytes:
        if self._key is None:
            raise ProtocolError("the keys of this session were erased")
        if self._process != os.getpid():
            raise ProtocolError("the keys of a session do not work in a forked process")
        return self._key

    @property
    def transcript(self) -> bytes:
        """Digest of the totals verified so far; tells nobody else anything."""
        self._alive()
        return self._transcript

    def next_epoch(self) -> int:
        """Count the sets of sum keys of this session."""
        self._alive()
        self._n_epochs += 1
        return self._n_epochs

    def derive(self, *fields: bytes | str | int) -> bytes:
        """Return a key of its own for what the fields name."""
        return expand(self._alive(), join_fields(*fields))

    def stream(self, *fields: bytes | str | int) -> KeyStream:
        """Return a stream of its own for what the fields name."""
        return KeyStream(self.derive(*fields))

    def add_verified(self, name: bytes, total: bytes) -> None:
        """Enter a verified total into the transcript."""
        fields = join_fields("transcript", self._transcript, name, total)
        self._transcript = hmac.digest(self._alive(), fields, "sha256")

    def erase(self) -> None:
        """Forget the key: after a failure nothing is hidden or read any more."""
        self._key = None

    def __reduce__(self):
        raise TypeError("a group key cannot be pickled")


def agree_on_group_key(
    context: Any, makers: Sequence[str]
) -> Generator[Any, Any, GroupKey]:
    """One party's side of making the group key; messages are sealed between peers.

    Makers contribute random bytes. Everybody tells every maker, and is told by it, with
    a digest of its own that it holds the same key.

    Parameters
    ----------
    context : PartyContext
    makers : sequence of str
        Some parties, or all. It takes as many messages as there are makers times
        parties. An accomplice of the coordinator can give it the key either way.

    Returns
    -------
    group : GroupKey
    """
    others = [name for name in makers if name != context.name]
    contributions, said, heard_by = {}, {}, others
    if context.name in makers:
        contributions[context.name] = mine = secrets.token_bytes(_KEY_BYTES)
        heard_by = [name for name in context.roster if name != context.name]
        said = dict.fromkeys(heard_by, {"contribution": mine})
    if len(context.roster) > 1:
        received = yield said
        contributions |= _read_bytes(received, others, "contribution")
    ordered = [contributions[name] for name in makers]
    key = extract(join_fields(*ordered), salt=session_binding(context))

    def confirmation(name):
        return expand(key, join_fields("confirmation", name))

    if len(context.roster) > 1:
        said = {"confirmation": confirmation(context.name)}
        received = yield dict.fromkeys(heard_by, said)
        for name, digest in _read_bytes(received, heard_by, "confirmation").items():
            if not hmac.compare_digest(digest, confirmation(name)):
                raise ProtocolError("the parties do not hold the same key")
    return GroupKey(expand(key, b"group key"))


def read_only(answer, word, kind=dict):
    """Return the only part of an answer."""
    is_one = type(answer) is dict and answer.keys() == {word}
    if not is_one or type(answer[word]) is not kind:
        raise ProtocolError(f"the answer does not fit what was said: expected {word}")
    return answer[word]


def _read_bytes(received, peers, word):
    """Return what all peers sent, if it is what they should send."""
    told = {name: read_only(said, word, bytes) for name, said in received.items()}
    if told.keys() != set(peers) or {*map(len, told.values())} - {_KEY_BYTES}:
        raise ProtocolError(f"expected the {word} of every party")
    return told


@dataclass(frozen=True)
class TagRing:
    """Where tags are computed, and how they travel: as two digits.

    Parameters
    ----------
    modulus : int
        Two different vectors of integers must not be the same modulo a prime; for a
        power of two it takes as many bits more as coefficients have.
    coefficient_bits : int
    digit_bits : int
        So many bits of a tag are in the first integer, the others in the second.
    """

    modulus: int
    coefficient_bits: int
    digit_bits: int

    #: integers that a tag takes
    n_digits = 2

    def secrets(
        self,
        stream: KeyStream,
        number: int,
        name: bytes,
        length: int,
        parties: Sequence[str],
    ) -> "TagSecrets":
        """Return the coefficients and pads of one sum.

        Parameters
        ----------
        stream : KeyStream
            Of the group.
        number : int
        name : bytes
            What the sum is bound to.
        length : int
            Number of values.
        parties : sequence of str
            All that the sum may be over, in an order that all know.

        Returns
        -------
        secrets : TagSecrets
        """
        n_digits = -(-self.coefficient_bits // 16)
        first = _PAD_BYTES * len(parties)
        piece = stream.piece(number, name, first + length * n_digits * _DIGIT.itemsize)
        digits = np.frombuffer(piece, _DIGIT, offset=first)
        pads = np.frombuffer(piece, _PAD_WORD, first // _PAD_WORD.itemsize)
        pads = pads.reshape(len(parties), -1)
        return TagSecrets(self, digits.reshape(length, n_digits), pads, parties)

    def inner_product(self, digits: np.ndarray, integers: np.ndarray) -> int:
        """Multiply coefficients, given as 16-bit digits, with signed integers.

        Parameters
        ----------
        digits : ndarray of shape (length, n_digits)
        integers : ndarray of uint64 of shape (n_limbs, length)
            In two's complement.

        Returns
        -------
        product : int
            Modulo the modulus.
        """
        n_limbs, length = integers.shape
        if length <= _SHORT and digits.shape[1] % 4 == 0:
            return self._short_product(digits, integers)
        last = (1 << self.coefficient_bits - 16 * (digits.shape[1] - 1)) - 1
        n_digits, n_words = digits.shape[1], 4 * n_limbs
        product = 0
        for start in range(0, length, _CHUNK):
            chunk = slice(start, start + _CHUNK)
            left = digits[chunk].astype(np.float64)
            if last != 0xFFFF:
                left[:, -1] = digits[chunk, -1] & last
            words = np.ascontiguousarray(integers[:, chunk], dtype="<u8")
            right = words.view(_DIGIT).reshape(n_limbs, -1, 4).astype(np.float64)
            # in two's complement, the highest digit has the sign
            right[-1, :, -1] = words.view("<i2")[-1, 3::4]
            sums = np.zeros((n_digits, n_words + n_digits))
            products = np.matmul(left.T, right).transpose(1, 0, 2)
            sums[:, :n_words] = products.reshape(n_digits, n_words)
            # each row, one digit further to the right than the one above
            skewed = sums.reshape(-1)[:-n_digits].reshape(n_digits, -1)
            totals = np.add.reduce(skewed).tolist()
            product += sum(int(total) << 16 * i for i, total in enumerate(totals))
        return product % self.modulus

    def _short_product(self, digits, integers):
        """Multiply few integers, for which arrays take longer to be made than used."""
        last, *others = digits.view("<u8").T[::-1].tolist()
        most = (1 << self.coefficient_bits - 64 * len(others)) - 1
        factors = [word & most for word in last]
        for words in others:
            factors = [factor << 64 | word for factor, word in zip(factors, words)]
        # in two's complement, the highest limb has the sign
        product = sum(map(mul, factors, integers[-1].view(np.int64).tolist()))
        if len(integers) == 2:
            product = (product << 64) + sum(map(mul, factors, integers[0].tolist()))
        return product % self.modulus

    def split(self, tag: int, n_limbs: int) -> np.ndarray:
        """Return the two digits of a tag as limbs."""
        words = tag & (1 << self.digit_bits) - 1, tag >> self.digit_bits
        data = b"".join(word.to_bytes(8 * n_limbs, "little") for word in words)
        return np.frombuffer(data, "<u8").reshape(2, n_limbs).T

    def join(self, digits: np.ndarray) -> int:
        """Return the tag of which these are the digits, or the sum of some."""
        low, high = (
            int.from_bytes(column.astype("<u8").tobytes(), "little", signed=True)
            for column in digits.T
        )
        return (low + (high << self.digit_bits)) % self.modulus


@dataclass(eq=False, repr=False)
class TagSecrets:
    """Coefficients and pads of one sum. They serve one vector and one total.

    Parameters
    ----------
    ring : TagRing
    digits : ndarray of shape (length, n_digits)
        Of the coefficients.
    pads : ndarray of shape (n_parties, n_words)
        Of every party.
    parties : sequence of str
    """

    ring: TagRing
    digits: np.ndarray
    pads: np.ndarray
    parties: Sequence[str]

    def _pads_of(self, parties):
        """Return the sum of the pads of some parties."""
        pads = self.pads
        if len(parties) <= _SHORT:
            own = [pads[self.parties.index(name)].tobytes() for name in parties]
            return sum(int.from_bytes(pad, "little") for pad in own)
        if len(parties) < len(pads):
            chosen = set(parties)
            pads = pads[[name in chosen for name in self.parties]]
        # sums of words of 32 bits have 64
        words = np.add.reduce(pads, dtype=np.uint64).tolist()
        return sum(word << 32 * i for i, word in enumerate(words))

    def tag(self, integers: np.ndarray, party: str) -> np.ndarray:
        """Return the digits that a party hides beside its integers."""
        product = self.ring.inner_product(self.digits, integers)
        tag = (product + self._pads_of([party])) % self.ring.modulus
        return self.ring.split(tag, len(integers))

    def check(self, integers: np.ndarray, digits: np.ndarray, parties: Any) -> None:
        """Raise ProtocolError unless a total is the sum of what the parties hid."""
        product = self.ring.inner_product(self.digits, integers)
        expected = product + self._pads_of(parties)
        if (self.ring.join(digits) - expected) % self.ring.modulus:
            raise ProtocolError("the total is not the sum of what the parties hid")
