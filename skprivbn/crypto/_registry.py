"""Backends by name."""

from typing import Any

from sklearn.base import clone

from skprivbn.crypto._base import AdditiveBackend
from skprivbn.crypto._ckks import CKKSBackend
from skprivbn.crypto._masking import MaskingBackend
from skprivbn.crypto._paillier import PaillierBackend
from skprivbn.crypto._plaintext import PlaintextBackend

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
