"""How it is hidden: sums that nobody may see the parts of, and sealed channels.

A backend adds the parties' vectors. Who may read the sum, and who would have to
collude to read more, differs:

=========================  =====================  ==================================
Backend                    Sums are read by       More is read by
=========================  =====================  ==================================
:class:`MaskingBackend`    the parties            coordinator and all parties but one;
                                                  with more than 32 parties, and more
                                                  than a share that is chosen
:class:`CKKSBackend`       the parties            coordinator and one party
:class:`PaillierBackend`   the parties            coordinator and one party
:class:`PlaintextBackend`  coordinator, parties   the coordinator alone
=========================  =====================  ==================================

:class:`OTBackend` does not add vectors: it lets two parties count, in shares, the
records that have one property here and another there. :class:`PaillierBackend` does
both.
"""

from skprivbn.crypto._base import (
    AdditiveBackend,
    HiddenVector,
    PartyContext,
    SumSession,
)
from skprivbn.crypto._ckks import CKKSBackend
from skprivbn.crypto._masking import MaskingBackend
from skprivbn.crypto._numbers import (
    RangeError,
    limbs_from_bytes,
    limbs_to_bytes,
    subtract_limbs,
    sum_limbs,
)
from skprivbn.crypto._paillier import PaillierBackend
from skprivbn.crypto._registry import (
    BACKENDS,
    RENAMED,
    PlaintextBackend,
    resolve_backend,
)

__all__ = [
    "BACKENDS",
    "AdditiveBackend",
    "CKKSBackend",
    "HiddenVector",
    "MaskingBackend",
    "OTBackend",
    "PaillierBackend",
    "PartyContext",
    "PlaintextBackend",
    "RangeError",
    "SumSession",
    "limbs_from_bytes",
    "limbs_to_bytes",
    "resolve_backend",
    "subtract_limbs",
    "sum_limbs",
]


def __getattr__(name):
    if name == "OTBackend":  # what computes on shares is heavy, and rarely needed
        from skprivbn.crypto.shares import OTBackend

        return OTBackend
    if name in RENAMED:
        # an AttributeError would lose the words in `from skprivbn.crypto import ...`
        raise ImportError(f"{name} is now {RENAMED[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
