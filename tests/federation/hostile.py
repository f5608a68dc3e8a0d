"""A coordinator that says what no estimator would."""

from dataclasses import replace

from skprivbn.crypto import HiddenVector, MaskingBackend
from skprivbn.crypto._masking import (
    bytes_of_value,
    open_total,
    read_limbs,
    write_limbs,
)
from skprivbn.crypto._numbers import (
    FixedPoint,
    encode_fixed_point,
    limbs_from_bytes,
    limbs_to_bytes,
    pack_shortest,
)
from skprivbn.exceptions import ProtocolError

_BITS = FixedPoint().fraction_bits


def as_integers(values):
    """Return the limbs of values as masks hide them."""
    return encode_fixed_point(values, _BITS)


def changed(payload, **fields):
    """Return a hidden vector, as it travels, with other fields."""
    return replace(HiddenVector.from_payload(payload), **fields).to_payload()


def forge(hidden, change):
    """Change the values of a sum under masks or in the clear, but not its tag.

    Parameters
    ----------
    hidden : HiddenVector
    change : callable
        Changes limbs in place, of the values or of what hides them.

    Returns
    -------
    forged : HiddenVector
    """
    n_values, (part,) = hidden.length, hidden.parts
    if hidden.kind == "plaintext":
        limbs = limbs_from_bytes(part).copy()
        change(limbs[:, :n_values])
        return replace(hidden, parts=[limbs_to_bytes(limbs)])
    n_bytes = bytes_of_value(hidden.key)
    try:  # as vectors add up
        limbs = read_limbs(hidden)
        change(limbs[:, :n_values])
        part = write_limbs(limbs[:, :n_values], limbs[:, n_values:], n_bytes)
    except ProtocolError:  # as an opened sum travels
        limbs = open_total(hidden, n_values + MaskingBackend.ring.n_digits)
        change(limbs[:, :n_values])
        data, n_bytes, shift = pack_shortest(limbs[:, :n_values])
        part = bytes([n_bytes, shift]) + data + limbs_to_bytes(limbs[:, n_values:])
    return replace(hidden, parts=[part])


def other_total(total, values):
    """Return a sum with other values, as anybody can make it who reads the sum.

    Parameters
    ----------
    total : OpenSum
        Under masks.
    values : ndarray of shape (n_values,)

    Returns
    -------
    payload : dict
        What parties are handed in place of the sum.
    """

    def change(limbs):
        limbs[:] = as_integers(values)

    return forge(total.hidden, change).to_payload()


class HostileTerms:
    """Terms whose fields are changed on their way to the parties."""

    def __init__(self, terms, **changes):
        self._terms, self._changes = terms, changes

    def __getattr__(self, name):
        return getattr(self._terms, name)

    def to_payload(self):
        return self._terms.to_payload() | self._changes

    def raised_to(self, limits):
        return self
