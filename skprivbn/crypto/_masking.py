"""Sums under pairwise masks that cancel: exact and nearly free.

Parties derive a fresh mask for every sum from a key that two of them share; one adds
it, the other subtracts it. The first party adds one more, the cover, which all parties
know: so the coordinator adds up what looks like noise.

Up to :data:`ALL_PAIRS` parties, every two have masks in common. Of more, each has them
with some: they stand on a circle, in an order that a hash of everybody's fresh, signed
session key decides, and share masks with their nearest neighbours on both sides (Bell
et al. [1], with the graph of Harary that they use). The coordinator and its accomplices
read nothing but the sum over all other parties as long as these hang together when the
accomplices are taken out of the graph.

They fall apart if there are two gaps, each of as many accomplices in a row as a party
has neighbours on one side. With m accomplices among n parties in random order, any two
of the n - m gaps are that long, of k/2 each, with the chance

    m (m - 1) ... (m - k + 1) / ((n - 1) (n - 2) ... (n - k)),

so that k is found from this, times the number of pairs of gaps.

Nobody chooses the order, but an accomplice that waits for the keys of all others can
try keys of its own until it likes what comes out. So the chance is not the usual 2^-40
but 2^-100: whoever tries 2^60 keys has 2^-40. Parties that were shown different keys
have different masks in common: what is hidden is so for every order that was told.

[1] "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead". CCS '20.
"""

import hashlib
from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import lru_cache
from math import comb, log2
from numbers import Integral, Real
from typing import Any

import numpy as np

from skprivbn.crypto._base import (
    AdditiveBackend,
    HiddenVector,
    PartyContext,
    SumSession,
    number_type,
)
from skprivbn.crypto._derive import KeyStream, join_fields
from skprivbn.crypto._numbers import (
    add_limbs,
    decode_fixed_point,
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

#: of so many parties or fewer, every two have masks in common
ALL_PAIRS = 32
SECURITY_BITS = 100
#: a site lets others choose no smaller share of parties that may collude
TRUSTED_SHARE = 0.5
#: parties that make the key of all, where there are more than `ALL_PAIRS`
N_KEY_MAKERS = 3
# Masks are added in batches that stay in the processor's cache.
_BATCH_BYTES = 2**19
# On the wire, integers are as long as their sums may be: see `_numbers`.
_FLOAT_BYTES, _INTEGER_BYTES = 14, 8
# Integers of 16 bytes that come after the values: tag and check value.
_N_TAIL = AdditiveBackend.ring.n_digits + 1


class MaskingBackend(AdditiveBackend):
    """Hide vectors under masks that cancel in the sum over all parties.

    Every two parties, or with many parties every two neighbours, derive a fresh mask
    for every sum from a key they share; one adds it, the other subtracts it. A mask
    that all parties know hides the sum from the coordinator. Numbers are 112-bit fixed
    point with 56 fractional bits, integers have 64 bits, so sums are exact and
    independent of the order.

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
    max_colluders : float, default=0.5
        With more than 32 parties and without `recovery`, a party shares masks with
        some random parties only [2]_, about a hundred of a thousand. If no larger share
        of the parties than this helps the coordinator, the chance that anything but
        sums over all others can be read in a session is at most 2\\ :sup:`-100` for
        every set of keys that they try. None is masks between every two parties,
        however many there are.

    See Also
    --------
    CKKSBackend : Homomorphic encryption; one party that colludes reads everything.

    References
    ----------
    .. [1] K. Bonawitz et al. (2017). "Practical Secure Aggregation for
       Privacy-Preserving Machine Learning". CCS '17.
    .. [2] J. Bell et al. (2020). "Secure Single-Server Aggregation with
       (Poly)Logarithmic Overhead". CCS '20.

    Examples
    --------
    >>> from skprivbn.crypto import MaskingBackend
    >>> MaskingBackend().describe(["north", "south", "west"])["broken_by"]
    'the coordinator together with 2 of the 3 parties'
    >>> phones = [f"phone {i}" for i in range(1000)]
    >>> MaskingBackend().describe(phones)["broken_by"]
    'the coordinator together with more than 500 of the 1000 parties'
    """

    name = "masking"
    kind = "masked"

    _parameter_constraints = {
        "recovery": ["boolean"],
        "threshold": [Interval(Integral, 1, None, closed="left"), None],
        "signed": ["boolean"],
        "max_colluders": [Interval(Real, 0, 1, closed="neither"), None],
    }

    def __init__(
        self,
        recovery: bool = False,
        threshold: int | None = None,
        signed: bool = False,
        max_colluders: float | None = 0.5,
    ) -> None:
        self.recovery = recovery
        self.threshold = threshold
        self.signed = signed
        self.max_colluders = max_colluders

    def validate(self) -> None:
        """Raise ValueError unless the parameters fit together."""
        super().validate()
        if self.threshold is not None and not self.recovery:
            raise ValueError("threshold is for recovery=True only")
        if self.signed and self.recovery:
            raise ValueError("signed=True needs all parties: use recovery=False")

    def preset_name(self) -> str | None:
        """Name the parameters, unless they trust most parties not to collude."""
        if self.max_colluders is None:
            return "all-pairs"
        return self.name if self.max_colluders >= TRUSTED_SHARE else None

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

    def n_neighbours(self, n_parties: int) -> int:
        """Return with how many others a party has masks in common.

        Parameters
        ----------
        n_parties : int

        Returns
        -------
        k : int
        """
        if self.max_colluders is None or self.recovery or n_parties <= ALL_PAIRS:
            return max(n_parties - 1, 0)
        return n_neighbours(n_parties, self.max_colluders)

    def key_makers(self, roster: Sequence[str]) -> Sequence[str]:
        """Return the parties that make the key of all: some, if there are many."""
        if self.n_neighbours(len(roster)) < len(roster) - 1:
            return roster[:N_KEY_MAKERS]
        return roster

    def mask_keys(self, context: PartyContext, binding: bytes) -> dict[str, bytes]:
        """Return the keys of masks in common with others, bound to who these are.

        Parameters
        ----------
        context : PartyContext
        binding : bytes
            Of the sums, for which these keys are.

        Returns
        -------
        keys : dict of str to bytes
        """
        purpose = b"masking " + context.keys_hash + binding
        peers = find_neighbours(context, self.n_neighbours(len(context.roster)))
        return {peer: context.pair_key(peer, purpose) for peer in peers}

    def masks_for_all(self) -> AdditiveBackend:
        """Return these masks, which are set up without a cover."""
        return self

    def setup(
        self, context: PartyContext, covered: bool = True
    ) -> Generator[Any, Any, Any]:
        """Derive mask keys from the pair keys; needs no message of its own.

        Parameters
        ----------
        context : PartyContext
        covered : bool, default=True
            Whether a mask that all parties know hides sums from the coordinator.

        Returns
        -------
        sums : SumSession
        """
        self.validate()
        # Imported here because they build upon this module.
        if self.recovery:
            from skprivbn.crypto._masking_rounds import RecoverySession

            return RecoverySession(context, self, covered)
        if self.signed:
            from skprivbn.crypto._masking_rounds import SignedMaskingSession

            return SignedMaskingSession(context, self, covered)
        return MaskingSession(context, self, covered)
        yield  # makes this a generator, as every backend's setup is

    def combine(
        self, said: dict[str, dict], roster: Sequence[str]
    ) -> Generator[dict[str, dict], dict[str, dict], HiddenVector]:
        """Coordinator's side of one sum."""
        if self.recovery:
            from skprivbn.crypto._masking_rounds import combine_recoverable

            return combine_recoverable(self, said, roster)
        if self.signed:
            from skprivbn.crypto._masking_rounds import combine_signed

            return combine_signed(said)
        return super().combine(said, roster)

    def add_parts(self, columns: list[list[bytes]]) -> list[bytes]:
        """Add masked vectors; the masks cancel if all parties are there."""
        return add_masked(columns)

    def publish(self, total: HiddenVector) -> tuple[np.ndarray, HiddenVector]:
        """Read a sum without a cover, and write it as short as it is from now on.

        Parameters
        ----------
        total : HiddenVector

        Returns
        -------
        values : ndarray of shape (n_values,)
        total : HiddenVector
            As it travels to the parties.
        """
        added = replace(total, parts=add_masked([total.parts]))
        limbs = open_masked(added, total.length + self.ring.n_digits)
        values = decode_fixed_point(limbs[:, : total.length], number_type(total.key))
        return values, total if self.signed else pack_total(total, limbs)

    def describe(self, roster: Sequence[str]) -> dict:
        """Return plain words on who sees what, and the precision."""
        n_parties, k = len(roster), self.n_neighbours(len(roster))
        colluders = str(max(n_parties - 1, 0))
        hidden_by = "pairwise masks, fresh for every sum, and one known to all parties"
        if self.recovery:
            threshold = self.n_needed(n_parties)
            colluders = str(min(2 * threshold - n_parties, n_parties - 1))
            hidden_by += (
                f"; up to {n_parties - threshold} parties may be lost in a sum, which "
                "is then over the others"
            )
        elif k < n_parties - 1:
            n_colluders = int(self.max_colluders * n_parties)  # type: ignore[operator]
            colluders = f"more than {n_colluders}"
            hidden_by = (
                f"masks in common with {k} random parties, fresh for every sum, and "
                f"one known to all parties; that {n_colluders} parties and the "
                f"coordinator read more has a chance of 2**-{SECURITY_BITS} for every "
                "set of keys that they try"
            )
        if self.signed:
            hidden_by += "; every party adds the signed vectors of all by itself"
        return {
            "sum_known_to": "all parties; the coordinator reads results",
            "hidden_by": hidden_by,
            "broken_by": f"the coordinator together with {colluders} of the "
            f"{n_parties} parties",
            "precision": "every value rounded to a multiple of 2**-56, then exact; "
            f"sums up to {self.max_sum():.3g}; integers exact",
        }


@lru_cache
def n_neighbours(
    n_parties: int, share: float, security_bits: float = SECURITY_BITS
) -> int:
    """Return how many neighbours keep the others together, whoever is taken out.

    Parameters
    ----------
    n_parties : int
    share : float
        Of the parties that may be taken out: they help the coordinator.
    security_bits : float
        The chance that the others fall apart is two to the minus so many, at most.

    Returns
    -------
    k : int
        Even, or all other parties if they are not more.

    Examples
    --------
    >>> from skprivbn.crypto._masking import n_neighbours
    >>> n_neighbours(1000, 0.5), n_neighbours(10_000, 0.5), n_neighbours(100, 0.5)
    (108, 124, 52)
    >>> n_neighbours(1000, 1 / 3, security_bits=40)
    36
    """
    n_out = int(share * n_parties)
    n_gaps = n_parties - n_out
    chance = log2(max(1, comb(n_gaps, 2)))
    for k in range(n_parties - 1):
        if k % 2 == 0 and k > 0 and (k > n_out or chance <= -security_bits):
            return k
        if k < n_out:
            chance += log2((n_out - k) / (n_parties - 1 - k))
    return n_parties - 1


def find_neighbours(context: PartyContext, k: int) -> list[str]:
    """Return with whom a party has masks in common.

    Parameters
    ----------
    context : PartyContext
    k : int
        How many these are.

    Returns
    -------
    names : list of str
    """
    roster, n_parties = tuple(context.roster), len(context.roster)
    if k >= n_parties - 1:
        return [name for name in roster if name != context.name]
    circle, places = _circle(roster, context.keys_hash)
    mine = places[context.name]
    steps = [*range(-k // 2, 0), *range(1, k // 2 + 1)]
    return [circle[(mine + step) % n_parties] for step in steps]


# public, and the same at all parties, of which many may be simulated
@lru_cache(maxsize=4)
def _circle(roster, keys_hash):
    """Return the parties in their order on the circle, and the place of each."""

    def place(name):
        fields = join_fields("place on the circle", keys_hash, name)
        return hashlib.sha256(fields).digest()

    circle = tuple(sorted(roster, key=place))
    return circle, _places(circle)


@lru_cache(maxsize=8)
def _places(names):
    return {name: place for place, name in enumerate(names)}


class MaskingSession(SumSession):
    """A party's side: its mask keys.

    Parameters
    ----------
    context : PartyContext
    backend : MaskingBackend
    covered : bool, default=True
        Whether masks that all parties know hide sums from the coordinator.
    """

    kind = "masked"

    def __init__(self, context, backend, covered=True):
        super().__init__(context, backend)
        self._masks = self._make_masks(context)
        names = self._covered_by() if covered else ()
        self._covers = {
            name: self._group.stream("cover", self._binding, name) for name in names
        }

    def _make_masks(self, context):
        """Return where masks come from, and whether this party adds them."""
        places = _places(self._roster)
        mine = places[self._name]
        # the one that comes first adds the mask, the other subtracts it
        return [
            (KeyStream(key), mine < places[peer])
            for peer, key in self._backend.mask_keys(context, self._binding).items()
        ]

    def _covered_by(self):
        """Name the parties that add a mask which all parties know."""
        return self._roster[:1]

    def hide_integers(self, integers, number, key):
        """Mask integers and a check value; who covers the sum does that as well."""
        n_integers = integers.shape[1]
        limbs = np.concatenate([integers, check_limbs(key, 1)], axis=1)
        if self._name in self._covers:
            cover = self._covers[self._name].piece(number, key, 16 * n_integers)
            add_limbs(limbs[:, :n_integers], limbs_from_bytes(cover))
        for change, added in ((add_limbs, True), (subtract_limbs, False)):
            streams = [stream for stream, adds in self._masks if adds is added]
            for total in sum_of_masks(streams, number, key, limbs.shape[1]):
                change(limbs, total)
        values, tail = limbs[:, :-_N_TAIL], limbs[:, -_N_TAIL:]
        return [write_limbs(values, tail, bytes_of_value(key))]

    def reveal_integers(self, total, n_integers):
        """Take the covers off; without any the sum is no secret."""
        if not self._covers:
            return open_total(total, n_integers)
        integers = open_masked(total, n_integers)
        counted = set(self.counted)
        streams = [cover for name, cover in self._covers.items() if name in counted]
        for covers in sum_of_masks(streams, total.round, total.key, n_integers):
            subtract_limbs(integers, covers)
        wrap_limbs(integers[:, : total.length], bytes_of_value(total.key))
        return integers


def add_masked(columns):
    """Add masked vectors, each in one part."""
    (column,) = columns
    n_bytes, tail = column[0][:1], 16 * _N_TAIL
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


def sum_of_masks(streams, number, name, n_values):
    """Add the masks of one sum from several streams; yields totals of batches."""
    n_bytes = 16 * n_values
    batch = max(1, _BATCH_BYTES // n_bytes)
    for start in range(0, len(streams), batch):
        chosen = streams[start : start + batch]
        yield sum_limbs(KeyStream.pieces(chosen, number, name, n_bytes))


def check_limbs(key, n_parties):
    """Return what the check values of `n_parties` add up to, as one column.

    They tell the coordinator of accidents; parties have tags.
    """
    value = int.from_bytes(hashlib.sha256(b"check" + key).digest()[:16], "little")
    return limbs_from_bytes((n_parties * value % 2**128).to_bytes(16, "little"))


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
    n_bytes, n_tail = bytes_of_value(hidden.key), _N_TAIL
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
