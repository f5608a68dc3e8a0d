"""The ledger: every message of a fit, and in plain words who learnt what from it."""

import hashlib
import math
from collections import defaultdict
from dataclasses import dataclass, field
from html import escape
from itertools import zip_longest
from textwrap import wrap
from typing import Any, NamedTuple

from skprivbn.privacy import DistributedNoise, zcdp_epsilon
from skprivbn.utils import html_table, import_optional

COORDINATOR = "coordinator"
#: where something comes from that is in no single message
SUMMED, TOGETHER = "sum over parties", "all of it together"
#: kinds that the coordinator carries or adds without being able to read them
_UNREAD = ("ciphertext", "masked")
#: characters of a line of text
WIDTH = 100

#: what a reader of a message of each kind sees, from least to most revealing
KINDS = {
    "public": "public values",
    "sealed": "bytes sealed for another party",
    "ciphertext": "ciphertexts it cannot decrypt",
    "masked": "masked values that look random alone",
    "share": "additive shares that look random alone",
    "noisy release": "values with differentially private noise",
    "plaintext aggregate": "sums over rows, in the clear",
    "membership": "which of its own records the others have",
    "raw rows": "rows of data, in the clear",
}


#: what notes are about, and the words that go before those that have some
TOPICS = {
    "connection": "",
    "hidden by": "hidden by: ",
    "sum known to": "sum known to: ",
    "broken by": "broken by: ",
    "precision": "precision: ",
    "technique": "",
    "strength": "",
    "assumption": "",
    "coalition": "",
    "epsilon": "",
    "colluders": "",
    "lost": "",
    "also": "",
}


@dataclass(frozen=True)
class Note:
    """A fact about a whole session.

    Attributes
    ----------
    text : str
        In plain words.
    topic : str
        One of :data:`TOPICS`.
    value : object
        The same as data.
    """

    text: str
    topic: str = "also"
    value: Any = None

    def __str__(self):
        return TOPICS[self.topic] + self.text


class LedgerEntry(NamedTuple):
    """One message.

    Attributes
    ----------
    sequence : int
        Position in the transcript.
    round : int
        Number of the round trip it belongs to.
    operation, sender, receiver : str
    n_bytes : int
        Size as sent.
    kind : str
        One of :data:`KINDS`.
    tells : str
        Description of the content in plain words.
    """

    sequence: int
    round: int
    operation: str
    sender: str
    receiver: str
    n_bytes: int
    kind: str
    tells: str


class Fact(NamedTuple):
    """Something that a participant can read, in one message or from several.

    Attributes
    ----------
    who, what : str
        In plain words.
    source : str
        Who sent it, in plain words.
    kind : str
        One of :data:`KINDS`.
    epsilon : float or None
        Privacy loss of a noisy release, where that is known.
    n_messages, n_bytes : int or None
        That it was sent in; None for what follows from several together.
    is_total : bool
        Whether it is a sum over all parties.
    """

    who: str
    what: str
    source: str
    kind: str
    epsilon: float | None = None
    n_messages: int | None = None
    n_bytes: int | None = None
    is_total: bool = False


@dataclass(frozen=True)
class NoisyRelease:
    """A release under noise, and its cost.

    Attributes
    ----------
    what : str
        In plain words.
    noise : DistributedNoise, CountMechanism or ChoiceNoise
        On each number, or on scores of which only the best is told.
    protects : {"rows", "individuals", "values"}
        Whom it hides; "values" are those of one row, whose presence is known.
    epsilon, delta, rho : float
        What all of it costs; `rho` is None for Laplace noise.
    """

    what: str
    noise: Any
    protects: str
    epsilon: float
    delta: float
    rho: float | None

    def epsilon_at(self, delta: float) -> float:
        """Return the epsilon that holds at another delta."""
        known = [self.epsilon] if delta >= self.delta else [math.inf]
        if self.rho is not None:
            known.append(zcdp_epsilon(self.rho, delta))
        return min(known)


class LedgerTable:
    """A small table that prints as text and shows as HTML.

    Parameters
    ----------
    columns : list of str
    rows : list of tuple
    in_text : list of str, default=None
        Columns of the printed text; all if None.
    """

    def __init__(
        self, columns: list[str], rows: list[tuple], in_text: list[str] | None = None
    ) -> None:
        self.columns, self.rows = list(columns), [tuple(row) for row in rows]
        self._in_text = [self.columns.index(name) for name in in_text or columns]

    def __len__(self):
        return len(self.rows)

    def __iter__(self):
        return iter(self.rows)

    def __str__(self):
        cells = [
            [str(row[i]) for i in self._in_text] for row in (self.columns, *self.rows)
        ]
        widths = [max(map(len, column)) for column in zip(*cells)]
        while sum(widths) + 2 * len(widths) > WIDTH + 2:
            widths[widths.index(max(widths))] -= 1
        lines = [line for row in cells for line in _wrapped(row, widths)]
        lines.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self):
        return html_table(self.columns, self.rows)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame."""
        pandas = import_optional("pandas", "LedgerTable.to_frame")
        return pandas.DataFrame(self.rows, columns=self.columns)


def _joined(facts, parties):
    """Join what the coordinator gets unread, and what every party learns alike."""
    joined: dict[tuple, Fact] = {}
    for fact in facts:
        who, what = fact.who, fact.what
        if who == COORDINATOR and fact.kind in _UNREAD:
            what = "vectors that it adds and cannot read"
        elif who in parties and _all_learn(fact, facts, parties):
            who = "each party"
        key = (who, what, fact.source, fact.kind, fact.epsilon)
        same = joined.get(key)
        sizes = fact.n_messages, fact.n_bytes
        if same is not None and fact.n_messages is not None:
            sizes = same.n_messages + fact.n_messages, same.n_bytes + fact.n_bytes
        joined[key] = Fact(*key, *sizes, fact.is_total)
    return joined.values()


def _all_learn(fact, facts, parties):
    knowing = {other.who for other in facts if other[1:5] == fact[1:5]}
    return len(parties) > 1 and knowing >= set(parties)


def _wrapped(row, widths):
    """Return the lines of a row whose cells have these widths."""
    parts = [wrap(cell, width) for cell, width in zip(row, widths)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
        for line in zip_longest(*parts, fillvalue="")
    ]


@dataclass
class Ledger:
    """Record of all messages of one fit. Holds sizes and words, never values.

    Attributes
    ----------
    entries : list of LedgerEntry
        Every message, in order.
    parties : tuple of str
        Names of the data holders.
    n_rounds : int
        Number of round trips between the coordinator and the parties.
    releases : list of NoisyRelease
        What was released under noise, with the parameters of the noise.

    Examples
    --------
    >>> from skprivbn.federation import Ledger
    >>> ledger = Ledger(parties=("north", "south"))
    >>> ledger.record("mean", "north", "coordinator", b"...", "public", "the mean")
    >>> print(ledger.who_learns_what())
    who          learns    as
    -----------  --------  -------------
    coordinator  the mean  public values
    """

    parties: tuple = ()
    entries: list = field(default_factory=list)
    n_rounds: int = 0
    releases: list = field(default_factory=list)
    _notes: list = field(default_factory=list)
    _knowledge: list = field(default_factory=list)
    _digest: bytes = hashlib.sha256(b"").digest()

    def record(
        self,
        operation: str,
        sender: str,
        receiver: str,
        message: bytes,
        kind: str,
        tells: str,
    ) -> None:
        """Add one message."""
        if kind == "plaintext":  # as the backend that hides nothing calls it
            kind = "plaintext aggregate"
        if kind not in KINDS:
            raise ValueError(f"unknown kind of message {kind!r}; known: {list(KINDS)}")
        digest = hashlib.sha256(self._digest)
        digest.update(message)
        self._digest = digest.digest()
        place, words = (len(self.entries), self.n_rounds), (operation, sender, receiver)
        self.entries.append(LedgerEntry(*place, *words, len(message), kind, tells))

    def note(self, text: str, topic: str = "also", value: Any = None) -> None:
        """Add a fact about the whole session, once.

        Parameters
        ----------
        text : str
            In plain words.
        topic : str, default="also"
            What it is about: a key of ``TOPICS``.
        value : object, default=None
            What the words are made of.
        """
        if topic not in TOPICS:
            raise ValueError(f"unknown topic {topic!r}; known: {list(TOPICS)}")
        note = Note(text, topic, value)
        if note not in self._notes:
            self._notes.append(note)

    @property
    def notes(self) -> list[str]:
        """What is true of the whole session: who was authenticated how, and so on."""
        return [str(note) for note in self._notes]

    def notes_on(self, *topics: str) -> list[Note]:
        """Return the notes on some topics.

        Parameters
        ----------
        *topics : str

        Returns
        -------
        notes : list of Note
        """
        return [note for note in self._notes if note.topic in topics]

    def learns(
        self,
        who: str,
        what: str,
        kind: str = "plaintext aggregate",
        epsilon: float | None = None,
        is_total: bool = False,
    ) -> None:
        """Add what `who` knows after combining messages, once.

        Parameters
        ----------
        who : str
            A party's name, "coordinator", or a group in words ("all parties").
        what : str
            In plain words.
        kind : str
            One of :data:`KINDS`.
        epsilon : float, default=None
            Privacy loss of a noisy release.
        is_total : bool, default=False
            Whether it is a sum over all parties.
        """
        if kind not in KINDS:
            raise ValueError(f"unknown kind of message {kind!r}; known: {list(KINDS)}")
        source = SUMMED if is_total else TOGETHER
        fact = Fact(who, what, source, kind, epsilon, is_total=is_total)
        if fact not in self._knowledge:
            self._knowledge.append(fact)

    def append(self, other: "Ledger") -> None:
        """Add all that the ledger of a later session holds.

        Parameters
        ----------
        other : Ledger
        """
        self.entries += [
            entry._replace(
                sequence=len(self.entries) + entry.sequence,
                round=self.n_rounds + entry.round,
            )
            for entry in other.entries
        ]
        self.n_rounds += other.n_rounds
        self.parties = tuple(dict.fromkeys([*self.parties, *other.parties]))
        self._digest = hashlib.sha256(self._digest + other._digest).digest()
        self.releases += other.releases
        self._notes += [note for note in other._notes if note not in self._notes]
        self._knowledge += [f for f in other._knowledge if f not in self._knowledge]

    @property
    def transcript_hash(self) -> str:
        """SHA-256 over all messages, as hexadecimal digits."""
        return self._digest.hex()

    @property
    def total_bytes(self) -> int:
        """Bytes of all messages."""
        return sum(entry.n_bytes for entry in self.entries)

    def bytes_by_kind(self) -> dict[str, int]:
        """Return bytes of all messages by kind."""
        totals = defaultdict(int)
        for entry in self.entries:
            totals[entry.kind] += entry.n_bytes
        return dict(totals)

    def facts(self) -> list[Fact]:
        """Return what each participant can read, as data.

        Returns
        -------
        facts : list of Fact
            The coordinator's first.
        """
        groups = {}
        for entry in self.entries:
            if not entry.tells:
                continue
            who = "each party" if entry.receiver in self.parties else entry.receiver
            sender = "each party" if entry.sender in self.parties else entry.sender
            if len(self.parties) == 1 or entry.kind == "sealed":
                who, sender = entry.receiver, entry.sender
            key = (who, entry.tells, entry.kind)
            senders, times, n_bytes = groups.get(key, ((), 0, 0))
            if sender not in senders:
                senders = (*senders, sender)
            groups[key] = (senders, times + 1, n_bytes + entry.n_bytes)
        facts = [
            Fact(who, tells, ", ".join(senders), kind, None, *sizes)
            for (who, tells, kind), (senders, *sizes) in groups.items()
        ]
        facts += self._knowledge
        return sorted(facts, key=lambda fact: (fact.who != COORDINATOR, fact.who))

    def who_learns_what(self) -> LedgerTable:
        """Return a table, in plain words, of what each participant can read.

        Returns
        -------
        table : LedgerTable
            Prints as text, shows as HTML in a notebook, ``to_frame()`` for pandas.
            Vectors that the coordinator adds without reading them are one line.
        """
        rows = []
        for fact in _joined(self.facts(), self.parties):
            loss = "" if fact.epsilon is None else f" (epsilon = {fact.epsilon:g})"
            sizes = [fact.n_messages, fact.n_bytes]
            shown = ["" if size is None else size for size in sizes]
            seen_as = KINDS[fact.kind] + loss
            rows.append((fact.who, fact.what, fact.source, seen_as, *shown))
        columns = ["who", "learns", "from", "as", "times", "bytes"]
        return LedgerTable(columns, rows, in_text=["who", "learns", "as"])

    def to_frame(self) -> Any:
        """Return all messages as a pandas DataFrame."""
        pandas = import_optional("pandas", "Ledger.to_frame")
        return pandas.DataFrame(self.entries, columns=LedgerEntry._fields)

    @property
    def _size(self):
        messages = f"{len(self.entries)} messages in {self.n_rounds} rounds"
        return f"{messages}, {self.total_bytes:,} bytes"

    def __repr__(self):
        n = len(self.parties)
        return f"Ledger({self._size}; {n} part{'ies' if n != 1 else 'y'})"

    def __str__(self):
        lines = [
            f"{self._size}, parties: {', '.join(self.parties)}",
            str(self.who_learns_what()),
            *(f"- {text}" for text in self.notes),
        ]
        return "\n".join(lines)

    def _repr_html_(self):
        notes = "".join(f"<li>{escape(text)}</li>" for text in self.notes)
        return (
            f"<p>{self._size}</p>{self.who_learns_what()._repr_html_()}<ul>{notes}</ul>"
        )


def declare_noise(
    ledger: Ledger,
    noise: DistributedNoise,
    what: str,
    protects: str = "rows",
    who: str = COORDINATOR,
) -> None:
    """Record a release under noise that the parties added jointly.

    Parameters
    ----------
    ledger : Ledger
    noise : DistributedNoise
    what : str
        What was released, in plain words.
    protects : {"rows", "individuals", "values"}, default="rows"
        Whom the noise hides.
    who : str, default="coordinator"
        Who learns it.
    """
    cost = noise.epsilon, noise.delta, noise.rho
    ledger.releases.append(NoisyRelease(what, noise, protects, *cost))
    ledger.learns(who, what, "noisy release", epsilon=noise.epsilon)
    note_colluders(ledger, noise)


def note_colluders(ledger: Ledger, noise: Any) -> None:
    """Note the epsilon that holds against any number of colluding parties.

    Parameters
    ----------
    ledger : Ledger
    noise : DistributedNoise or noise of several releases
        With ``epsilon_with_colluders``.
    """
    epsilons = tuple(noise.epsilon_with_colluders())
    table = ", ".join(f"{epsilon:.3g}" for epsilon in epsilons)
    words = f"epsilon against 0, 1, 2, ... colluding parties: {table}"
    ledger.note(words, "colluders", epsilons)
