"""Masks in common with some parties only, for rosters of hundreds.

Parties stand on a circle, in an order that a hash of everybody's fresh, signed session
key decides, and share masks with their nearest neighbours on both sides (Bell et al.,
"Secure Single-Server Aggregation with (Poly)Logarithmic Overhead", CCS 2020, with the
graph of Harary that they use). The coordinator and its accomplices read nothing but
the sum over all other parties as long as these hang together when the accomplices are
taken out of the graph.

They fall apart if there are two gaps, each of as many accomplices in a row as a party
has neighbours on one side. With m accomplices among n parties in random order, any two
of the n - m gaps are that long, of k/2 each, with the chance

    m (m - 1) ... (m - k + 1) / ((n - 1) (n - 2) ... (n - k)),

so that k is found from this, times the number of pairs of gaps.

Nobody chooses the order, but an accomplice that waits for the keys of all others can
try keys of its own until it likes what comes out. So the chance is not the usual 2^-40
but 2^-100: whoever tries 2^60 keys has 2^-40. Parties that were shown different keys
have different masks in common: what is hidden is so for every order that was told.
"""

import hashlib
from functools import lru_cache
from math import comb, log2
from numbers import Real
from typing import Any

from skprivbn.crypto._base import PartyContext
from skprivbn.crypto._derive import join_fields
from skprivbn.crypto._masking import MaskingBackend, PartyMaskingBackend
from skprivbn.utils._sklearn import Interval

SECURITY_BITS = 100
#: a site lets others choose no smaller share of parties that may collude
TRUSTED_SHARE = 0.5
#: parties that make the key of all, on behalf of all
N_KEY_MAKERS = 3


@lru_cache
def n_neighbours(
    n_parties: int, share: float, security_bits: float = SECURITY_BITS
) -> int:
    """Return how many neighbours keep the others together, whoever is taken out.

    Parameters
    ----------
    n_parties : int
    share : float
        Of the parties that may be taken out: they help the coordinator, or are lost.
    security_bits : float
        The chance that the others fall apart is two to the minus so many, at most.

    Returns
    -------
    k : int
        Even, or all other parties if they are not more.

    Examples
    --------
    >>> from skprivbn.crypto._sparse import n_neighbours
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


def find_neighbours(context: PartyContext, share: float) -> list[str]:
    """Return with whom a party has masks in common.

    Parameters
    ----------
    context : PartyContext
    share : float
        Of the parties that may help the coordinator.

    Returns
    -------
    names : list of str
    """
    roster = list(context.roster)
    k = n_neighbours(len(roster), share)
    if k >= len(roster) - 1:
        return [name for name in roster if name != context.name]

    def place(name):
        fields = join_fields("place on the circle", context.keys_hash, name)
        return hashlib.sha256(fields).digest()

    circle = sorted(roster, key=place)
    mine = circle.index(context.name)
    steps = [*range(-k // 2, 0), *range(1, k // 2 + 1)]
    return [circle[(mine + step) % len(circle)] for step in steps]


class _Sparse:
    """What both sums have in common: those that the coordinator reads, and others."""

    max_colluders: float

    def preset_name(self) -> str | None:
        """Name the parameters, unless they trust most parties not to collude."""
        return self.name if self.max_colluders >= TRUSTED_SHARE else None  # type: ignore[attr-defined]

    def compared_with(self, context: PartyContext) -> list[str]:
        """Return the neighbours: through them, honest parties hang together."""
        return find_neighbours(context, self.max_colluders)

    def key_makers(self, roster: Any) -> Any:
        """Return the parties that make the key of all: some of them."""
        return roster[:N_KEY_MAKERS]

    def mask_keys(self, context: PartyContext) -> dict[str, bytes]:
        """Return the key in common with each neighbour, bound to the graph."""
        purpose = b"sparse masking " + context.keys_hash
        return {
            peer: context.pair_key(peer, purpose)
            for peer in find_neighbours(context, self.max_colluders)
        }


class SparseMaskingBackend(_Sparse, MaskingBackend):
    """Hide vectors under masks in common with some random parties only [1]_.

    As :class:`MaskingBackend`, for many parties: setting up and hiding take time in
    proportion to the number of neighbours, about a hundred, instead of all. The price
    is an assumption, that no more than a share of the parties help the coordinator.

    Parameters
    ----------
    max_colluders : float, default=0.5
        Largest share of the parties that may help the coordinator. If no more do, the
        chance that anything but sums over all others can be read in a session is at
        most 2\\ :sup:`-100` for every set of keys that they try.

    See Also
    --------
    MaskingBackend : Withstands the coordinator with all parties but two.

    References
    ----------
    .. [1] J. Bell et al. (2020). "Secure Single-Server Aggregation with
       (Poly)Logarithmic Overhead". CCS '20.

    Examples
    --------
    >>> from skprivbn.crypto import SparseMaskingBackend
    >>> roster = [f"phone {i}" for i in range(1000)]
    >>> SparseMaskingBackend().describe(roster)["broken_by"]
    'the coordinator together with more than 500 of the 1000 parties'
    """

    name = "sparse-masking"
    _parameter_constraints = {"max_colluders": [Interval(Real, 0, 1, closed="neither")]}

    def __init__(self, max_colluders: float = 0.5) -> None:
        super().__init__()
        self.max_colluders = max_colluders

    def describe(self, roster: Any) -> dict:
        """Return plain words on who sees what, and the precision."""
        words = super().describe(roster)
        n_parties = len(roster)
        k = n_neighbours(n_parties, self.max_colluders)
        if k >= n_parties - 1:
            return words
        n_colluders = int(self.max_colluders * n_parties)
        return words | {
            "hidden_by": f"masks in common with {k} random parties, fresh for every "
            f"sum; that {n_colluders} parties and the coordinator read more has a "
            f"chance of 2**-{SECURITY_BITS} for every set of keys that they try",
            "broken_by": f"the coordinator together with more than {n_colluders} of "
            f"the {n_parties} parties",
        }


class SparsePartyMaskingBackend(_Sparse, PartyMaskingBackend):
    """The same for sums that only parties may know, next to the others.

    Parameters
    ----------
    max_colluders : float, default=0.5
    """

    name = "sparse-party-masking"
    _parameter_constraints = SparseMaskingBackend._parameter_constraints

    def __init__(self, max_colluders: float = 0.5) -> None:
        super().__init__()
        self.max_colluders = max_colluders
