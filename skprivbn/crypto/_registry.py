"""Backends by name, among them the one that hides nothing."""

from collections.abc import Generator, Sequence
from typing import Any

from sklearn.base import clone

from skprivbn.crypto._base import AdditiveBackend, PartyContext, SumSession
from skprivbn.crypto._ckks import CKKSBackend
from skprivbn.crypto._masking import MaskingBackend
from skprivbn.crypto._numbers import limbs_from_bytes, limbs_to_bytes, sum_limbs
from skprivbn.crypto._paillier import PaillierBackend
from skprivbn.exceptions import ProtocolError


class PlaintextBackend(AdditiveBackend):
    """Hide nothing: the coordinator reads every party's vector.

    Whoever fits with it gets a :class:`~skprivbn.exceptions.PrivacyLeakWarning`.

    Examples
    --------
    >>> from skprivbn.crypto import PlaintextBackend
    >>> PlaintextBackend().leaks()
    "the plaintext backend hides nothing: the coordinator reads every party's vectors"
    """

    name = "plaintext"
    kind = "plaintext"
    _parameter_constraints = {}

    def leaks(self) -> str | None:
        """Say that nothing is hidden."""
        return (
            "the plaintext backend hides nothing: the coordinator reads every party's "
            "vectors"
        )

    def setup(self, context: PartyContext) -> Generator[Any, Any, Any]:
        """Return the session; there is no key to agree on."""
        return PlaintextSession(context, self)
        yield  # makes this a generator, as every backend's setup is

    def add_parts(self, columns: list[list[bytes]]) -> list[bytes]:
        """Add vectors."""
        (column,) = columns
        for part in column:
            _read(part, len(column[0]) // 16)
        return [limbs_to_bytes(sum_limbs(column))]

    def describe(self, roster: Sequence[str]) -> dict:
        """Return plain words on who sees what, and the precision."""
        return {
            "sum_known_to": "the coordinator, and whoever it tells",
            "hidden_by": "nothing: the coordinator reads every party's vectors",
            "broken_by": "the coordinator alone",
            "precision": "every value rounded to a multiple of 2**-56, then exact; "
            "integers exact",
        }


class PlaintextSession(SumSession):
    """A party's side, which writes integers down as they are."""

    kind = "plaintext"

    def hide_integers(self, integers, number, key):
        """Hide nothing."""
        return [limbs_to_bytes(integers)]

    def reveal_integers(self, total, n_integers):
        """Read the sum."""
        return _read(total.parts[0], n_integers)


def _read(part, n_integers):
    if len(part) != 16 * n_integers:
        raise ProtocolError("a plaintext vector is longer or shorter than it says")
    return limbs_from_bytes(part)


#: name -> class
BACKENDS = {
    backend.name: backend
    for backend in (CKKSBackend, PaillierBackend, MaskingBackend, PlaintextBackend)
}
#: names and classes of release 0.2 -> what to write now
RENAMED = {
    "party-masking": "'masking', whose sums the coordinator does not read any more",
    "sparse-masking": "'masking', which has sparse masks with more than 32 parties",
    "PartyMaskingBackend": "MaskingBackend, whose sums the coordinator does not read",
    "SparseMaskingBackend": "MaskingBackend(max_colluders=0.5), sparse by default "
    "with more than 32 parties",
}


def named_parameters(backend: Any) -> dict[str, Any]:
    """Return what makes a backend again: its name and hyper-parameters, plain data."""
    return {"name": backend.name, "parameters": backend.get_params(deep=False)}


def resolve_backend(
    backend: str | AdditiveBackend, **parameters: Any
) -> AdditiveBackend:
    """Return a valid backend of one's own, given its name or an instance.

    Parameters
    ----------
    backend : str or AdditiveBackend
        ``"ckks"``, ``"paillier"``, ``"masking"``, ``"plaintext"``, or an instance.
    **parameters : dict
        Hyper-parameters to set.

    Returns
    -------
    backend : AdditiveBackend
        A copy, checked.

    Examples
    --------
    >>> from skprivbn.crypto import resolve_backend
    >>> resolve_backend("ckks", preset="fast")
    CKKSBackend(preset='fast')
    """
    names = ", ".join(map(repr, BACKENDS))
    if isinstance(backend, str):
        if backend in RENAMED:
            raise ValueError(f"backend {backend!r} is now {RENAMED[backend]}")
        if backend not in BACKENDS:
            raise ValueError(
                f"unknown backend {backend!r}: choose one of {names}, or give an "
                "instance"
            )
        backend = BACKENDS[backend]()
    elif isinstance(backend, AdditiveBackend):
        backend = clone(backend)
    else:
        raise TypeError(
            f"backend must be one of {names} or an instance such as CKKSBackend(), "
            f"got {backend!r}"
        )
    backend.set_params(**parameters)
    backend.validate()
    return backend
