"""Who says what: parties, the coordinator's view of them, messages and the ledger."""

from skprivbn.federation._federation import Federation, InProcessFederation
from skprivbn.federation._host import HostPolicy, PartyHost
from skprivbn.federation._ledger import (
    KINDS,
    Ledger,
    LedgerEntry,
    LedgerTable,
    declare_noise,
)
from skprivbn.federation._models import ModelParty
from skprivbn.federation._party import (
    Operation,
    Party,
    PartyRefusal,
    check_noise,
    check_told,
    check_told_bounds,
    operation,
)
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
    "ModelParty",
    "Operation",
    "Party",
    "PartyHost",
    "PartyRefusal",
    "check_noise",
    "check_told",
    "check_told_bounds",
    "declare_noise",
    "decode",
    "encode",
    "operation",
]
