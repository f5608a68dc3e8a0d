"""Steps of programs whose parties hold different columns of the same records.

One conversation runs through such a program: the messages of a peer are read in the
order in which it sent them, so that no party has to wait until all have ended a part.

The log-likelihood of all records is one number. The parties share it, in multiples of a
unit, and how many records are impossible. Only these two sums are opened.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np

from skprivbn.crypto._paillier import KEY_SIZES
from skprivbn.crypto._psi import align_records
from skprivbn.crypto._registry import named_parameters
from skprivbn.crypto.shares import (
    Conversation,
    open_links,
    open_numbers,
    refresh_numbers,
    resolve_count_backend,
)
from skprivbn.exceptions import ProtocolError
from skprivbn.federation import Me, PartyRefusal, Terms, converse
from skprivbn.federation._models import SCORED_MODEL, describe_model
from skprivbn.federation.program import refuse_malformed, require
from skprivbn.partition import check_vertical
from skprivbn.partition._base import refuse_weights
from skprivbn.privacy._options import warn_of_score
from skprivbn.utils._validation import is_missing

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
        Whether records are aligned by keys.
    max_records : int or None
        To this number of keys all lists are filled up; None shows their lengths.
    """

    owners: list[str]
    has_keys: bool
    max_records: int | None

    @property
    def protects(self) -> str:
        """Whom noise hides: the values of a record, since their number is known."""
        return "values"

    def joins_columns(self) -> bool:
        """Tell that parties hold different columns."""
        return True


def column_terms(partition: Any, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return who holds which column, and how records are aligned, for terms.

    Parameters
    ----------
    partition : VerticalPartition or RemoteColumns
    names : sequence of str, default=None
        Columns, in their order; all of them if None.

    Returns
    -------
    fields : dict
        Of :class:`ColumnsTerms`.
    """
    names = partition.feature_names if names is None else names
    return {
        "owners": [partition.owners[name] for name in names],
        "has_keys": partition.has_keys,
        "max_records": partition.max_records,
    }


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


def start_talk(me: Me) -> Conversation:
    """Return this party's end of the conversation with all others."""
    return Conversation(me.name, me.roster, me.session)


def own_columns(me: Me) -> list[int]:
    """Return the numbers of the own columns among all."""
    return [v for v, owner in enumerate(me.terms.owners) if owner == me.name]


def own_table(me: Me) -> np.ndarray:
    """Return the own columns as they are; refuse another number of them."""
    X = np.asarray(me.block["X"])
    require(X.ndim == 2 and X.shape[1] == len(own_columns(me)), "invalid-data")
    return X


def find_records(me: Me, talk: Conversation) -> Generator[Any, Any, np.ndarray]:
    """Find the records that all parties have, in an order that tells nothing.

    Parameters
    ----------
    me : Me
    talk : Conversation

    Returns
    -------
    records : ndarray of int
        Positions of the own records; all of them, if there are no keys.
    """
    if not me.terms.has_keys:
        if not me.is_simulated:  # a partition has compared the numbers of its blocks
            yield from _check_numbers(me, talk)
        return _holding(me, np.arange(me.n_rows))

    def check_sizes(n_keys, code="too-few-rows"):
        # a peer with few keys would be told of single persons
        require(min(n_keys.values()) >= max(1, me.min_rows), code)

    # where the others cannot see it, every party looks at its own list
    check_sizes({me.name: len(me.block["keys"])})
    with refuse_malformed("invalid-data"):
        records = yield from converse(
            align_records(talk, me.block["keys"], check_sizes, me.terms.max_records),
            "which of its records the others have, and how many",
            "membership",
        )
    check_sizes({me.name: len(records)}, "few-common")
    return _holding(me, records)


def _check_numbers(me, talk):
    """Refuse records that do not belong together, before anything is told of them.

    Nor is anything remembered: who has forgotten the keys may ask again with them.
    """
    numbers = yield from converse(
        compare(talk, me.n_rows), "its number of records", "public"
    )
    why = f"parties have {numbers} records"
    are_same = all(type(n) is int and n == me.n_rows for n in numbers.values())
    require(are_same, "not-aligned", why)


def _holding(me, records):
    """Note what the answers are about: those of sites are compared over sessions."""
    if me.hold_records is not None:
        me.hold_records(records)
    return records


def compare(talk: Conversation, value: Any) -> Generator[Any, Any, dict[str, Any]]:
    """Tell all peers something plain; return what everybody told, by name.

    Parameters
    ----------
    talk : Conversation
    value : object

    Returns
    -------
    told : dict of str to object
        In the order of the roster.
    """
    for peer in talk.peers:
        talk.send(peer, value)
    told = {talk.name: value}
    for peer in talk.peers:
        told[peer] = yield from talk.receive(peer)
    return {name: told[name] for name in talk.roster}


def tell_all(me: Me, value: Any) -> Generator[dict, dict, dict[str, Any]]:
    """Tell all parties the same, by :func:`~skprivbn.federation.converse`.

    Parameters
    ----------
    me : Me
    value : object

    Returns
    -------
    told : dict of str to object
        What each party told, in the order of the roster.
    """
    told, messages = {me.name: value}, dict.fromkeys(me.peers, value)
    while len(told) < len(me.roster):
        told |= yield messages
        messages = {}
    return {name: told[name] for name in me.roster}


def finish(talk: Conversation, kind: str = "share") -> Generator[Any, Any, None]:
    """Send what is left to be said, and make sure that nothing was left unread.

    Parameters
    ----------
    talk : Conversation
    kind : str, default="share"
        Of what may be left.
    """
    yield from converse(
        talk.finish(), "last messages of the protocol", kind, waits=False
    )


def hang_up(talk: Conversation, links: dict) -> Generator[Any, Any, int]:
    """End the conversation; return the hash calls of the party with most.

    Parameters
    ----------
    talk : Conversation
    links : dict of str to Link

    Returns
    -------
    n_calls : int
    """
    own = sum(link.n_calls for link in links.values())
    calls = yield from converse(
        compare(talk, own), "its number of hash calls", "public"
    )
    yield from finish(talk, "public")
    if any(type(number) is not int for number in calls.values()):
        raise ProtocolError("a number of hash calls is none")
    return max(calls.values())


def check_table(me: Me, n_cells: int, n_records: int) -> None:
    """Refuse an exact table that is about single records, whoever wants it.

    Parameters
    ----------
    me : Me
    n_cells, n_records : int
    """
    why = f"a table of {n_cells} cells, and there are {n_records} rows"
    require(me.min_rows <= max(1, n_records), "too-few-rows", why)
    require(me.is_simulated or n_cells <= n_records, "too-detailed", why)


def check_labels(me: Me, columns: Iterable[tuple[int, Sequence]]) -> None:
    """Refuse to tell labels that few of the own records have.

    Parameters
    ----------
    me : Me
    columns : iterable of (int, sequence)
        Position of every column, and its labels of all own records.
    """
    for position, labels in columns if me.min_cell_count > 1 else ():
        counts = Counter(labels).items()
        known = [n for label, n in counts if not is_missing(label)]
        fewest = min(known, default=me.min_cell_count)
        why = f"a label of {fewest} rows: fewer than min_cell_count"
        if fewest < me.min_cell_count:
            raise PartyRefusal("too-detailed", why, [position])


def describe_shares(ledger, backend, n_calls):
    """Say in the ledger what hides shares of counts, and from whom.

    Parameters
    ----------
    ledger : Ledger
    backend : OTBackend or PaillierCounts
    n_calls : int
        Most hash calls of a party.
    """
    ledger.note(backend.describe(), "technique", named_parameters(backend))
    ledger.note(
        f"at most {n_calls} hash calls of a party: security of about "
        f"{128 - log2(max(n_calls, 1)):.0f} bits",
        "strength",
    )
    ledger.note(
        "semi-honest security: parties follow the protocol; all of them but one may "
        "pool what they see",
        "coalition",
    )


def note_alignment(ledger, terms):
    """Say in the ledger what comparing keys tells, if it was done.

    Parameters
    ----------
    ledger : Ledger
    terms : ColumnsTerms
    """
    if terms.has_keys:
        what = "which records all of them have"
        ledger.learns("all parties", what, "membership")
        if terms.max_records is None:
            ledger.learns("all parties", "number of keys of each of them", "public")


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


def open_score(
    talk: Conversation, n_records: int, share_parts: Callable, unit: float
) -> Generator[Any, Any, dict]:
    """Share the score of all records, and open it.

    Parameters
    ----------
    talk : Conversation
    n_records : int
        Own number of records, after they were aligned.
    share_parts : callable
        Takes the links to the peers; a part of the conversation that returns own shares
        of the score in units, and of the number of impossible records.
    unit : float

    Returns
    -------
    found : dict
        ``n_samples``, and the ``total``, minus infinity if a record is impossible.
    """
    links = yield from converse(open_links(talk), "keys of oblivious transfers")
    parts = yield from converse(
        share_parts(links), "shares of the log-likelihood of all records"
    )
    # shares of what one party has computed alone would be its own part
    parts = yield from converse(
        refresh_numbers(talk, talk.roster, parts), "random numbers that hide shares"
    )
    total, n_impossible = yield from converse(
        open_numbers(talk, talk.roster, parts), "shares of the score, to be opened"
    )
    yield from finish(talk)
    score = -np.inf if n_impossible else float(total.view(np.int64)) * unit
    return {"n_samples": n_records, "total": score}


def add_column_scores(estimator, X, sample_weight, program):
    """Return the log-likelihood of records of several parties, and their number.

    Only the sum over all records becomes known. It is entered in the estimator's
    ledger.

    Parameters
    ----------
    estimator : estimator
        With a fitted `network_`.
    X : VerticalPartition or RemoteColumns
    sample_weight : None
        Anything else is refused.
    program : Program
        Made of ``open_score``, for this kind of network.

    Returns
    -------
    total : float
        Minus infinity if a record is impossible.
    n_records : int
    """
    refuse_weights(sample_weight)
    partition = check_vertical(estimator, X, reset=False)
    nodes = list(estimator.network_.nodes)
    warn_of_score(estimator)
    model = describe_model(estimator)
    terms = ScoreTerms(**column_terms(partition, nodes), model=model)
    with partition.federate(program, terms) as federation:
        found = federation.run()
    who = "all parties and the coordinator"
    federation.ledger.learns(who, "the log-likelihood of all records")
    note_alignment(federation.ledger, terms)
    federation.ledger.note(SCORED_MODEL)
    estimator.ledger_.append(federation.ledger)
    return found["total"], found["n_samples"]
