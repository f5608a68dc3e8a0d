"""Who says what: parties, the coordinator's view of them, messages and the ledger."""

from skprivbn.federation._federation import Federation, InProcessFederation
from skprivbn.federation._host import HostPolicy, PartyHost
from skprivbn.federation._ledger import KINDS, Ledger, LedgerEntry, LedgerTable
from skprivbn.federation._party import Operation, Party, PartyRefusal, operation
from skprivbn.federation._wire import decode, encode

__all__ = [
    "KINDS",
    "Federation",
    "HostPolicy",
    "InProcessFederation",
    "Ledger",
    "LedgerEntry",
    "LedgerTable",
    "Operation",
    "Party",
    "PartyHost",
    "PartyRefusal",
    "decode",
    "encode",
    "operation",
]
