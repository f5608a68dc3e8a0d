"""A data holder's side of a protocol: its rows, its secrets, the operations it answers.

A protocol subclasses :class:`Party`, marks what may be asked with :func:`operation`
and says in :meth:`Party.schedule` in which order. Everything else a coordinator may
send is refused.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from inspect import getmembers
from math import inf
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike

from skprivbn.crypto import HiddenVector
from skprivbn.crypto._base import PartyContext
from skprivbn.federation._ledger import KINDS
from skprivbn.federation._rows import map_rows
from skprivbn.federation._terms import Terms
from skprivbn.federation.program import PartyRefusal
from skprivbn.privacy._options import check_bounds
from skprivbn.privacy._persons import rows_of_person


@dataclass(frozen=True)
class Operation:
    """What the ledger says about an operation, declared where its messages are made.

    Attributes
    ----------
    tells, kind : str
        What a party's answer carries, in plain words, and its kind. A hidden vector
        travels as its own kind; `kind` is then that of the sum, a plaintext aggregate
        unless said otherwise.
    hears, hears_kind : str
        The same for the request.
    answers : dict of str to type or union of types, or None
        What an answer consists of, if it is not only a hidden vector, which is a dict.
        A party that answers otherwise has failed. None takes whatever comes.
    peers, peers_kind : str
        For conversations: what peers find in the sealed messages they get.
    exact : bool
        The secure sum of the answers is a result: it is summed in integers under
        masks, whatever the backend, and the coordinator may know it. A decryption
        by CKKS key holders must not leave them at full precision.
    parties_only : bool
        The secure sum of the answers is for the parties, whatever the backend: numbers
        of rows, for instance, that they look at before they release anything. Where
        the coordinator reads sums, it is summed under masks of which one is known to
        all parties and stays on.
    """

    tells: str = ""
    kind: str = "public"
    hears: str = ""
    hears_kind: str = "public"
    answers: dict[str, Any] | None = field(default=None, hash=False)
    peers: str = ""
    peers_kind: str = "share"
    exact: bool = False
    parties_only: bool = False

    def __post_init__(self):
        for kind in (self.kind, self.hears_kind, self.peers_kind):
            if kind not in KINDS:
                raise ValueError(f"unknown kind of message {kind!r}")

    def fits(self, payload: object) -> bool:
        """Tell whether an answer has the parts that it must have."""
        return type(payload) is dict and (
            self.answers is None
            or payload.keys() == self.answers.keys()
            and all(
                type(payload[k]) in (get_args(kind) or (kind,))
                for k, kind in self.answers.items()
            )
        )


def operation(tells: str = "", **words: Any) -> Callable:
    """Mark a method of a :class:`Party` as something a coordinator may ask.

    The method takes the entries of the payload as keyword arguments and returns a
    payload (a dict) or None. A method that is a generator is one side of a
    conversation: it yields ``{peer: payload}`` and is sent ``{peer: payload}`` as
    soon as messages for it arrive (an empty dict once nobody has anything to say),
    and keeps its result on the party.

    Parameters
    ----------
    tells : str
        What the answer carries, in plain words, for the ledger.
    **words
        The other attributes of :class:`Operation`.

    Returns
    -------
    decorator : callable
    """

    def mark(method):
        method.operation = Operation(tells, **words)
        return method

    return mark


def check_received(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array that the coordinator sent, if it has the shape it must have.

    NumPy would stretch any other: an array with a row for each of a party's rows, for
    instance, could make all of them vanish from a sum but one.

    Parameters
    ----------
    value : ndarray
    shape : tuple of int

    Returns
    -------
    value : ndarray
    """
    if not isinstance(value, np.ndarray) or value.shape != shape:
        raise PartyRefusal("refused")
    if not np.all(np.isfinite(value)):
        raise PartyRefusal("refused")
    return value


def _finite(X):
    if X.dtype.kind not in "fiu" or not np.all(np.isfinite(X)):
        raise PartyRefusal("invalid-data")
    return X.astype(np.float64)


def _finite_or_missing(X):
    if X.dtype.kind not in "fiu" or np.any(np.isinf(X)):
        raise PartyRefusal("invalid-data")
    return X.astype(np.float64)


def check_received_bounds(bounds: ArrayLike, n_features: int) -> None:
    """Refuse bounds that were received and would make noise hide too little.

    Rows are put on a grid between the bounds. Bounds without a proper width would make
    numbers of some rows that are none, which no noise hides.

    Parameters
    ----------
    bounds : array-like of shape (2, n_features)
    n_features : int
    """
    if np.shape(bounds) != (2, n_features):
        raise PartyRefusal("refused")
    try:
        check_bounds(bounds, n_features)
    except ValueError:
        raise PartyRefusal("refused") from None


def check_like(value: object, mine: dict) -> None:
    """Refuse what a peer sent unless it has the form of what this party sent.

    Parameters
    ----------
    value : object
    mine : dict
        Arrays and numbers.
    """
    if not isinstance(value, dict) or value.keys() != mine.keys():
        raise PartyRefusal("refused")
    for key, own in mine.items():
        if type(value[key]) is not type(own):
            raise PartyRefusal("refused")
        check_received(np.asarray(value[key]), np.shape(own))


class Party:
    """A data holder in one session.

    Parameters
    ----------
    block : dict of str to array
        This party's own data, for instance ``{"X": rows}``.
    terms : Terms
        Public parameters of the protocol, the same at every party.
    context : PartyContext
        Name, roster and pair keys of the session.

    Attributes
    ----------
    terms : type, then Terms
        The class says which terms the protocol has, an instance has those of its
        session.
    min_rows : int
        Fewest rows with which the party's host takes part, set by the host.
    min_cell_count : int
        Smallest count of an exact table that is told, set by the host.
    max_cells_per_row : float
        Most cells of an exact table for each of its rows, set by the host.
    is_simulated : bool
        Whether nobody is there to hide from, set by the host: weights of rows may then
        be drawn by a seed that others know, whose sums can be solved for the rows.
    coordinator_reads : bool
        Whether the coordinator reads sums as soon as they are hidden, set by the host.
    """

    terms: Any = Terms
    min_rows: int = 1
    min_cell_count: int = 0
    max_cells_per_row: float = inf
    is_simulated: bool = False
    coordinator_reads: bool = False

    def __init__(
        self, block: dict[str, ArrayLike], terms: Terms, context: PartyContext
    ) -> None:
        self.block = block
        self.terms = terms
        self.context = context
        self._sums: Any = None
        self._hid_with: Any = None
        self._operation: Any = None
        self._revealed: Any = None
        #: whether totals were verified that peers have not yet said to hold as well
        self.has_news = False
        self.prepare()

    def prepare(self) -> None:
        """Check the block and set up state; called once, before any operation."""

    def schedule(self) -> Generator[Any, Any, Any]:
        """Yield the name of the operation accepted next, or a tuple of choices.

        A generator, advanced after each operation and sent the name of the one that
        was chosen; when it returns, nothing more is accepted. It bounds the rounds.
        New keys of the sums are such a step, too: ``"session.rotate"``.
        A party with one operation, which is asked once, need not define it.
        """
        (only,) = self.operations()
        yield only

    @property
    def name(self) -> str:
        """This party's name."""
        return self.context.name

    @property
    def peers(self) -> tuple[str, ...]:
        """Names of the other parties, in roster order."""
        return tuple(name for name in self.context.roster if name != self.name)

    def finite_numbers(self) -> np.ndarray:
        """Return own table as floats; refuse anything but finite numbers.

        Returns
        -------
        X : ndarray of float of shape (n_rows, n_columns)
        """
        return _finite(np.asarray(self.block["X"]))

    def finite_rows(self, *, allow_nan: bool = False) -> Any:
        """Return own table as floats as it is: in memory, or to be read in blocks.

        Anything but finite numbers is refused, at the latest when it is read.

        Parameters
        ----------
        allow_nan : bool, default=False
            Whether entries may be missing.

        Returns
        -------
        X : ndarray or RowSource
            For :func:`~skprivbn.federation.row_blocks`.
        """
        check = _finite_or_missing if allow_nan else _finite
        return map_rows(self.block["X"], check)

    def rows_of_person(self) -> np.ndarray | None:
        """Return for each own row how many rows its person has, if noise hides persons.

        Returns
        -------
        n_rows : ndarray of int of shape (n_rows,) or None
            0 where nobody knows who it is. None if the terms protect rows.
        """
        if self.terms.protects != "individuals":
            return None
        if "individual" not in self.block:
            raise PartyRefusal("invalid-data")
        return rows_of_person(self.block["individual"])

    def check_table(self, n_cells: int, n_rows: int) -> None:
        """Refuse an exact table that is about single rows, whoever wants it.

        Parameters
        ----------
        n_cells : int
        n_rows : int
            How many rows it counts, after any filter.
        """
        # one row is no limit, and a table of none tells nothing
        if 1 < self.min_rows > n_rows:
            why = f"a table of {n_rows} rows: fewer than min_rows"
            raise PartyRefusal("too-few-rows", why)
        if n_cells > self.max_cells_per_row * n_rows:
            why = f"a table of {n_cells} cells, and there are {n_rows} rows"
            raise PartyRefusal("too-detailed", why)

    def check_labels(self, columns: Iterable[Sequence]) -> None:
        """Refuse to tell labels that few of the own rows have.

        Of a column of numbers, or of several columns read together, they are the rows.

        Parameters
        ----------
        columns : iterable of sequence
            Labels of all own rows. Missing ones are told as little as others.
        """
        for labels in columns if self.min_cell_count > 1 else ():
            counts = Counter(labels)
            rarest = min(counts, key=counts.__getitem__, default=None)
            if counts and counts[rarest] < self.min_cell_count:
                why = f"{counts[rarest]} rows are {rarest!r}: fewer than min_cell_count"
                raise PartyRefusal("too-detailed", why)

    def hide(self, vector: ArrayLike) -> dict:
        """Hide a vector for a secure sum.

        Parameters
        ----------
        vector : array-like
            Floats, or integers, which are summed exactly.

        Returns
        -------
        payload : dict
            What an operation returns, for ``federation.secure_sum``.
        """
        self._hid_with = self._sums
        hidden = self._sums.hide(np.ravel(vector), self._operation)
        return {"vector": hidden.to_payload()}

    def hide_noisy(self, counts: np.ndarray) -> dict:
        """Hide integers with this party's share of the noise that the terms ask for.

        Parameters
        ----------
        counts : ndarray of int

        Returns
        -------
        payload : dict
            What an operation returns, for ``federation.noisy_sum``.
        """
        n_columns, n_parties = np.shape(self.block["X"])[1], len(self.context.roster)
        noise = self.terms.noise(n_columns, n_parties)
        return self.hide(counts + noise.share(counts.shape))

    def reveal(self, total: dict) -> np.ndarray:
        """Read the sum of what all parties hid last, after making sure that it is.

        Numbers in the clear are refused: they could be anything, such as a model made
        to show one row.

        Parameters
        ----------
        total : dict
            What ``federation.secure_sum`` returned, as it arrives.

        Returns
        -------
        vector : ndarray of shape (n_values,)
        """
        if not isinstance(total, dict) or self._hid_with is None:
            raise PartyRefusal("refused")
        vector = self._hid_with.reveal(HiddenVector.from_payload(total))
        self._revealed, self.has_news = total, True
        return vector

    def unsent_sums(self) -> Any:
        """Return the sum session that still has to send a vector, if one has to."""
        return self._hid_with if getattr(self._hid_with, "unsent", False) else None

    def has_revealed(self, total: dict) -> bool:
        """Tell whether this total is the one that was verified last."""
        return total is self._revealed

    def add_among_peers(self, vector: np.ndarray) -> Generator[Any, Any, Any]:
        """Add integer vectors with the peers, so that only they know the sum.

        Part of a conversation, of two rounds: shares that look random, then their
        sums. What the coordinator tells of a sum, it might have made up.

        Parameters
        ----------
        vector : ndarray of int of shape (n_values,)

        Returns
        -------
        total : ndarray of int64 of shape (n_values,)
        """
        mine = np.asarray(vector, dtype=np.int64).view(np.uint64).copy()
        if not self.peers:
            return mine.view(np.int64)
        shares = {
            peer: np.frombuffer(secrets.token_bytes(mine.nbytes), dtype=np.uint64)
            for peer in self.peers
        }

        def add(received):
            if received.keys() != set(self.peers):
                raise PartyRefusal("refused")
            return sum(check_received(r["part"], mine.shape) for r in received.values())

        received = yield {peer: {"part": share} for peer, share in shares.items()}
        mine = mine - sum(shares.values()) + add(received)
        received = yield dict.fromkeys(self.peers, {"part": mine})
        return (mine + add(received)).view(np.int64)

    def expect_sum(self, operation: str, sums: Any) -> None:
        """Choose the sum session that :meth:`hide` and :meth:`reveal` use next.

        `operation` names the sum: parties whose names differ cannot be summed.
        """
        self._operation, self._sums = operation, sums

    @classmethod
    def operations_of(cls, *, noisy: bool) -> dict:
        """Return the operations of sessions with noise, or of those without.

        Parameters
        ----------
        noisy : bool

        Returns
        -------
        operations : dict of str to Operation
            Exact sums have no place beside noise, nor noise beside them.
        """
        return {
            name: words
            for name, words in cls.operations().items()
            if (words.kind == "noisy release") == noisy
            or not (words.exact or words.parties_only or words.kind == "noisy release")
        }

    @classmethod
    @cache
    def operations(cls) -> dict:
        """Return the operations a coordinator may ask, by name."""
        return {
            name: member.operation
            for name, member in getmembers(cls, callable)
            if hasattr(member, "operation")
        }
