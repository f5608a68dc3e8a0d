"""Who says what: parties, the coordinator's view of them, messages and the ledger."""

from skprivbn.federation._federation import Federation, InProcessFederation
from skprivbn.federation._host import HostPolicy, PartyHost
from skprivbn.federation._ledger import (
    KINDS,
    Ledger,
    LedgerEntry,
    LedgerTable,
    Note,
    declare_noise,
)
from skprivbn.federation._party import (
    Operation,
    Party,
    PartyRefusal,
    check_like,
    check_received,
    check_received_bounds,
    operation,
)
from skprivbn.federation._rows import map_rows, row_blocks, sum_over_rows
from skprivbn.federation._terms import Terms
from skprivbn.federation._wire import decode, encode
from skprivbn.federation.flare import FlareFederation

__all__ = [
    "KINDS",
    "Federation",
    "FlareFederation",
    "HostPolicy",
    "InProcessFederation",
    "Ledger",
    "LedgerEntry",
    "LedgerTable",
    "Note",
    "Operation",
    "Party",
    "PartyHost",
    "PartyRefusal",
    "Terms",
    "check_like",
    "check_received",
    "check_received_bounds",
    "declare_noise",
    "decode",
    "encode",
    "map_rows",
    "operation",
    "row_blocks",
    "sum_over_rows",
]
