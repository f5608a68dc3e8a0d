"""Who says what: parties, the coordinator's view of them, messages and the ledger."""

from skprivbn.federation._ledger import (
    KINDS,
    Ledger,
    LedgerEntry,
    LedgerTable,
    Note,
    declare_noise,
)
from skprivbn.federation._models import (
    check_like,
    check_received,
    check_received_bounds,
)
from skprivbn.federation._rows import map_rows, row_blocks, sum_over_rows
from skprivbn.federation._session import HostPolicy
from skprivbn.federation._terms import NoisyTerms, Terms
from skprivbn.federation._wire import decode, encode
from skprivbn.federation.coordinator import Coordinator, InProcessFederation
from skprivbn.federation.program import (
    ALL_ROWS,
    COUNTS,
    CountsAt,
    Hear,
    Me,
    Noisy,
    PartyRefusal,
    Program,
    Release,
    RowWeights,
    Sum,
    Tell,
    TooFewRows,
    converse,
    program,
)
from skprivbn.federation.runner import Runner

__all__ = [
    "ALL_ROWS",
    "COUNTS",
    "KINDS",
    "Coordinator",
    "CountsAt",
    "FlareFederation",
    "Hear",
    "HostPolicy",
    "InProcessFederation",
    "Ledger",
    "LedgerEntry",
    "LedgerTable",
    "Me",
    "Noisy",
    "NoisyTerms",
    "Note",
    "PartyRefusal",
    "Program",
    "Release",
    "RowWeights",
    "Runner",
    "Sum",
    "Tell",
    "Terms",
    "TooFewRows",
    "check_like",
    "check_received",
    "check_received_bounds",
    "converse",
    "declare_noise",
    "decode",
    "encode",
    "map_rows",
    "program",
    "row_blocks",
    "sum_over_rows",
]


def __getattr__(name):
    # the engine's side reads certificates and site files: heavy, and rarely needed
    if name == "FlareFederation":
        from skprivbn.federation.flare import FlareFederation

        return FlareFederation
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
