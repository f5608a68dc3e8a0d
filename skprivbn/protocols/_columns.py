"""Parties that hold different columns about the same records."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import log2
from typing import Any

import numpy as np

from skprivbn.crypto._paillier import KEY_SIZES
from skprivbn.crypto._psi import MAX_PART_BYTES, align_records
from skprivbn.crypto._registry import named_parameters
from skprivbn.crypto.shares import (
    Conversation,
    open_links,
    refresh_numbers,
    resolve_count_backend,
)
from skprivbn.exceptions import PartitionError
from skprivbn.federation import Party, PartyRefusal, Terms, operation
from skprivbn.federation._models import model_memory
from skprivbn.protocols._models import SCORED_MODEL

#: shares of scores add up modulo 2**64
RING = np.dtype(np.uint64)


@dataclass(frozen=True)
class ColumnsTerms(Terms):
    """Who holds which column.

    Parameters
    ----------
    owners : list of str
        The party that holds each column.
    has_keys : bool
        Whether records are aligned by keys; the first operation is then `align`.
    """

    owners: list[str]
    has_keys: bool

    def joins_columns(self) -> bool:
        """Tell that parties hold different columns."""
        return True

    def message_bytes(self, operation: str, n_features: int, n_parties: int) -> int:
        """Return more for conversations, whose messages have parts of all records."""
        if operation == "align":
            return n_parties**2 * MAX_PART_BYTES
        return 1 << 30


class ColumnsParty(Party):
    """A holder of some of the columns; its terms are :class:`ColumnsTerms`."""

    @cached_property
    def variables(self):
        """Numbers of the own columns among all."""
        owners = self.terms.owners
        return [v for v, owner in enumerate(owners) if owner == self.name]

    def talk(self):
        """Return this party's end of a conversation with all others."""
        session = self.context.session + self.context.roster_hash
        return Conversation(self.name, self.context.roster, session)

    @abstractmethod
    def keep(self, records):
        """Keep some of the own records, given by position, in this order."""

    @operation(
        peers="which of its own records the others have too, and their numbers of "
        "records",
        peers_kind="public",
    )
    def align(self):
        """Keep the records that all parties have, in an order that tells nothing."""
        try:
            records = yield from align_records(
                self.talk(), self.block["keys"], self._check_sizes
            )
        except ValueError:
            raise PartyRefusal("invalid-data") from None
        if len(records) < max(1, self.min_rows):
            raise PartyRefusal("too-few-rows")
        self.keep(records)

    def _check_sizes(self, n_keys):
        """Refuse a peer with so few keys that it would be told of single persons."""
        if min(n_keys.values()) < max(1, self.min_rows):
            raise PartyRefusal("too-few-rows")


@dataclass(frozen=True)
class CountBackend:
    """How two holders share a count, in a form that travels.

    Parameters
    ----------
    name : {"ot", "paillier"}
    parameters : dict
        Hyper-parameters.
    """

    name: str
    parameters: dict[str, Any]

    @classmethod
    def of(cls, backend):
        """Describe a backend that a user gave, by name or as an object."""
        return cls(**named_parameters(resolve_count_backend(backend)))

    def make(self):
        """Return the backend; a ValueError if there is none such."""
        return resolve_count_backend(self.name, **self.parameters)

    @property
    def is_weak(self):
        """Whether its keys can be broken, or are unusual."""
        size = self.parameters.get("key_size", KEY_SIZES[0])
        weak = bool(self.parameters.get("insecure_test_key", False))
        return weak or size not in KEY_SIZES


def describe_shares(ledger, backend, n_calls):
    """Say in the ledger what hides shares of counts, and from whom.

    Parameters
    ----------
    ledger : Ledger
    backend : OTBackend or PaillierCounts
    n_calls : int
        Hash calls of the first party.
    """
    ledger.note(backend.describe(), "technique", named_parameters(backend))
    ledger.note(
        f"{n_calls} hash calls of the first party: security of about "
        f"{128 - log2(max(n_calls, 1)):.0f} bits",
        "strength",
    )
    ledger.note(
        "semi-honest security: parties follow the protocol; all of them but one may "
        "pool what they see",
        "coalition",
    )


def note_values_only(ledger):
    """Say in the ledger whom noise hides where the number of records is public."""
    ledger.note(
        "epsilon is about the values of a record: whoever holds a column knows the "
        "number of records, and of each record its own values",
        "epsilon",
    )


@dataclass(frozen=True)
class ScoreTerms(ColumnsTerms):
    """Columns, and the public model under which their records are scored.

    Parameters
    ----------
    model : dict
        From ``describe_model``.
    """

    model: dict[str, Any]

    def models(self):
        """Return the one model."""
        return [self.model]

    def n_parameters(self, n_features):
        """Return the one score."""
        return 1

    def memory(self, n_features):
        """Return what the model needs, of all columns."""
        return model_memory(self.model, len(self.owners))


class SharedScoreParty(ColumnsParty):
    """A holder of columns whose records are scored under a public model.

    The parties share the log-likelihood of all records, in multiples of `unit`, and
    how many records are impossible. Only these two sums are opened.
    """

    terms = ScoreTerms
    unit: float

    @abstractmethod
    def count_records(self):
        """Return how many of the own records are scored."""

    @abstractmethod
    def share_parts(self, talk, links):
        """Return own shares of both sums; a part of a conversation."""

    def schedule(self):
        """Align, say how many records there are, share the score, add."""
        if self.terms.has_keys:
            yield "align"
        yield "n_records"
        yield "share_score"
        yield "score"

    @operation(tells="its number of records", answers={"n_records": int})
    def n_records(self):
        """Tell how many records are left after aligning."""
        return {"n_records": self.count_records()}

    @operation(peers="shares of the log-likelihood of all records")
    def share_score(self):
        """Compute shares of the score with the peers."""
        talk = self.talk()
        links = yield from open_links(talk)
        parts = yield from self.share_parts(talk, links)
        # halves of shares are added up below, with carries that must not tell what
        # one party has computed alone
        self.total = yield from refresh_numbers(talk, talk.roster, parts)
        yield from talk.finish()

    @operation(tells="its shares of the log-likelihood of all records", exact=True)
    def score(self):
        """Tell the shares of both sums, in halves that can be added as integers."""
        halves = [self.total >> np.uint64(32), self.total & np.uint64(2**32 - 1)]
        return self.hide(np.concatenate(halves).astype(np.int64))


def sum_shared_scores(federation, unit):
    """Open the log-likelihood of all records: the coordinator's side.

    Parameters
    ----------
    federation : Federation
        Of a :class:`SharedScoreParty`.
    unit : float
        Of the party class.

    Returns
    -------
    total : float
        Minus infinity if a record is impossible.
    n_records : int
    """
    if federation.terms.has_keys:
        federation.converse("align")
    replies = federation.call("n_records")
    numbers = {name: reply["n_records"] for name, reply in replies.items()}
    n_records, *others = set(numbers.values())
    if others:
        raise PartitionError(f"parties hold different numbers of records: {numbers}")
    federation.converse("share_score")
    halves = federation.secure_sum("score").astype(np.int64).view(RING)
    total, n_impossible = (halves[:2] << np.uint64(32)) + halves[2:]
    federation.ledger.note(SCORED_MODEL)
    if n_impossible:
        return -np.inf, n_records
    return float(total.view(np.int64)) * unit, n_records
