"""Programs: what every party runs on its own rows, and the rounds that they yield.

A program is a generator function. Each ``yield`` is a round; its answer is the same at
all parties, or sealed between two of them. Nothing else reaches a program from outside.

========================  ====================================  =======================
a program yields          the other parties do                  it gets
========================  ====================================  =======================
``Sum(vector, ...)``      hide theirs; the coordinator adds     the total, verified,
                          what it cannot read                   which parties read
``Release(vector, ...)``  the same                              nothing: the researcher
                                                                reads the total
``Noisy(counts, ...)``    the same, with shares of the noise    the noisy total, which
                                                                everybody reads
``Tell({peer: ...}, .)``  messages sealed between two parties   ``{peer: payload}``
``Hear(check, ...)``      hear the same                         the researcher's choice
``return value``          compare what they verified            the researcher reads it
========================  ====================================  =======================
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cache, update_wrapper
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from skprivbn.exceptions import PartyError
from skprivbn.federation._rows import map_rows, sum_over_rows
from skprivbn.federation._terms import Terms
from skprivbn.privacy import DistributedNoise
from skprivbn.privacy._persons import rows_of_person
from skprivbn.utils._memoise import asking_others
from skprivbn.utils._validation import read_numbers


class PartyRefusal(Exception):
    """Raised inside a party: only the public code leaves it.

    Parameters
    ----------
    code : str
        One of ``PartyError.REASONS``.
    why : str, default=""
        For the party's own log of errors.
    columns : iterable of int or str, default=()
        Columns concerned, which are disclosed: positions in X, or names of other
        values per row, such as "y".
    words : str, default=""
        Message of a person at the party to the researcher, which is disclosed.
    """

    def __init__(
        self,
        code: str,
        why: str = "",
        columns: Iterable[int | str] = (),
        words: str = "",
    ) -> None:
        if code not in PartyError.REASONS:
            raise ValueError(f"{code!r} is not one of {list(PartyError.REASONS)}")
        self.code, self.columns, self.words = code, tuple(columns), words
        super().__init__(code)
        if why:
            self.add_note(why)


def require(is_met: Any, code: str = "refused", why: str = "") -> None:
    """Refuse to go on unless a condition is met.

    Parameters
    ----------
    is_met : bool
    code, why : str
        As of :class:`PartyRefusal`.
    """
    if not is_met:
        raise PartyRefusal(code, why)


#: errors in reading what somebody else wrote: a message, a file, a cell
_MALFORMED = (ArithmeticError, AttributeError, EOFError, LookupError, OSError)
_MALFORMED += (TypeError, ValueError)


@contextmanager
def refuse_malformed(code: str = "refused") -> Iterator[None]:
    """Turn errors in reading a message, a file or a cell into a refusal.

    Parameters
    ----------
    code : str, default="refused"
        As of :class:`PartyRefusal`.
    """
    try:
        yield
    except _MALFORMED as error:
        raise PartyRefusal(code, str(error)) from None


class TooFewRows(PartyRefusal):
    """A sum over fewer rows than the strictest party allows.

    Raised in the programs of all parties alike, since all know the same verified
    counts. A program may stop, step back or suppress; otherwise the fit is refused.

    Parameters
    ----------
    what : str
        The sum.
    blocks : ndarray of bool of shape (n_blocks,)
        Which blocks of numbers have too few rows.
    columns : iterable of int or str, default=()
        Which columns these belong to.
    """

    def __init__(
        self, what: str, blocks: np.ndarray, columns: Iterable[int | str] = ()
    ) -> None:
        n_few, n_blocks = np.count_nonzero(blocks), len(blocks)
        why = (
            f"{what}: {n_few} of {n_blocks} blocks are about fewer rows than min_rows "
            "or, where they are counts, min_cell_count"
        )
        super().__init__("too-few-rows", why, columns)
        self.what, self.blocks = what, blocks


class Weighing(Enum):
    """How much rows count in a sum, where no weights need to be computed."""

    #: every number is a sum over all own rows
    ALL_ROWS = "all rows"
    #: each number is itself a count of rows, as in a contingency table
    COUNTS = "counts"


ALL_ROWS, COUNTS = Weighing


class CountsAt(NamedTuple):
    """Positions of numbers of rows in the vector of a sum, one for each block.

    Attributes
    ----------
    positions : slice or ndarray of int
    """

    positions: slice | np.ndarray


class RowWeights(NamedTuple):
    """Weights of rows in each block of a sum: totals, and totals of squares.

    Both are added over blocks of rows and parties. Their ratio, the squared total over
    the total of squares, is the effective number of rows of a block (Kish).

    Attributes
    ----------
    total : ndarray of shape (n_blocks,)
    squares : ndarray of shape (n_blocks,) or None
        None where weights are zeros and ones, so that they are the same.
    cells : ndarray of shape (n_cells,), default=()
        Counts that a sum discloses, such as the rows with one of two values of a
        column: compared with the smallest count of a table instead of the fewest rows.
    columns : tuple of (int, str or tuple of these), default=()
        Column of X, or other values per row, of each block, cell and side, for
        refusals.
    sides : ndarray of shape (2, n_sides), default=()
        Like cells, for weights that vary: their sums, and those of their squares, in
        any unit. One row may be nearly all of a sum.
    """

    total: np.ndarray
    squares: np.ndarray | None = None
    cells: np.ndarray = np.zeros(0)
    columns: tuple = ()
    sides: np.ndarray = np.zeros((2, 0))

    @classmethod
    def of(cls, weights: ArrayLike) -> Self:
        """Sum up the weights with which rows enter each block.

        Parameters
        ----------
        weights : array-like of shape (n_rows,) or (n_rows, n_blocks)
            Of any sign, such as residuals: their sizes count.

        Returns
        -------
        weights : RowWeights
        """
        weights = np.abs(np.asarray(weights, dtype=np.float64))
        columns = weights[:, np.newaxis] if weights.ndim < 2 else weights
        squares = np.einsum("ij,ij->j", columns, columns)
        return cls(columns.sum(axis=0), squares)


@dataclass(frozen=True, eq=False)
class Sum:
    """One secure sum over all parties, which every party verifies and reads.

    Parameters
    ----------
    vector : array-like
        Floats, or integers, which are summed exactly. The total has one dimension.
    what : str
        Description for the ledger, at most ten words; a constant of the program.
    weights : RowWeights, CountsAt, ALL_ROWS, COUNTS or callable
        How many rows each number is about: ``ALL_ROWS``; ``COUNTS`` if each number is
        itself a count; or the weights of rows, such as ``RowWeights.of(mask)``, also as
        a function, called where a party has a limit. Nobody reads a sum over too few
        rows: it raises :class:`TooFewRows` in the program.
    new_keys : bool, default=False
        Whether parties make new keys for it.
    """

    vector: Any
    what: str
    weights: RowWeights | CountsAt | Weighing | Callable[[], RowWeights]
    new_keys: bool = False


class Release(Sum):
    """A sum that parties disclose to the researcher, if it has enough rows.

    Parameters
    ----------
    vector, what, weights, new_keys :
        As of :class:`Sum`.
    """


@dataclass(frozen=True, eq=False)
class Noisy:
    """A sum of integers to which every party adds its share of noise; all read it.

    Parameters
    ----------
    counts : ndarray of int
    noise : DistributedNoise
        Such as ``me.terms.noise(n_features, len(me.roster))``.
    what : str
        Description for the ledger.
    """

    counts: np.ndarray
    noise: DistributedNoise
    what: str


@dataclass(frozen=True, eq=False)
class Tell:
    """Messages to peers, each sealed for one of them.

    A party gets messages as soon as there are some for it, and an empty dict once
    nobody has anything to say.

    Parameters
    ----------
    messages : dict of str to object
        For some peers, or for none, to wait for theirs.
    what : str
        Description for the ledger.
    kind : str, default="share"
        Kind of the messages in the ledger.
    waits : bool, default=True
        Whether messages of peers are expected.
    """

    messages: dict[str, Any]
    what: str
    kind: str = "share"
    waits: bool = True


def converse(
    steps: Generator[dict, Any, Any], what: str, kind: str = "share", waits: bool = True
) -> Generator[Tell, dict, Any]:
    """Exchange sealed messages with peers until a generator returns.

    Parameters
    ----------
    steps : generator
        Yields ``{peer: payload}`` whenever it has to wait, and is sent the same.
    what, kind : str
        As of :class:`Tell`.
    waits : bool, default=True
        As of :class:`Tell`.

    Returns
    -------
    result : object
        What `steps` returns.

    Examples
    --------
    >>> from skprivbn.federation import converse
    >>> def hello():
    ...     received = yield {"south": "hello"}
    ...     return received["south"]
    >>> rounds = converse(hello(), "a greeting")
    >>> next(rounds).messages
    {'south': 'hello'}
    """

    def tell(messages):
        return (yield Tell(messages, what, kind, waits))

    return (yield from asking_others(steps, tell))


@dataclass(frozen=True, eq=False)
class Hear:
    """A choice of the researcher, the same for all parties.

    Parameters
    ----------
    check : callable
        Takes the choice; returns what the program gets, or raises ValueError.
    what : str
    """

    check: Callable[[Any], Any]
    what: str


@dataclass(eq=False, repr=False)
class Me:
    """A party as its program sees it: rows, public parameters, names; no keys.

    Parameters
    ----------
    block : dict of str to array
        The party's data: ``"X"``, and ``"y"`` or others that were given to ``fit``. A
        `y` that a site declares as categories is text there, as in a data frame.
    terms : Terms
        Public parameters, the same at every party.
    name : str
    roster : tuple of str
        Names of all parties, in order.
    min_rows : int, default=1
        Fewest rows of a sum that the strictest party allows.
    is_simulated : bool, default=False
        Whether one person runs all parties: weights of rows may then have a public
        seed.
    keep : callable, default=None
        Stores a result at the party; such programs disclose nothing.
    session : bytes, default=b""
        Unique public identifier of the session and its agreement.
    min_cell_count : int, default=0
        Smallest count that the strictest party discloses.
    own_min_rows : int, default=1
        Fewest rows of a sum that this party allows.
    hold_records : callable, default=None
        Notes which own records an answer is about, and refuses some.

    Examples
    --------
    >>> from skprivbn.federation import Me, Terms
    >>> me = Me({"X": [[1.0], [2.0]]}, Terms(), "south", ("north", "south", "west"))
    >>> me.peers, me.n_rows
    (('north', 'west'), 2)
    """

    block: dict[str, Any]
    terms: Any
    name: str
    roster: tuple[str, ...]
    min_rows: int = 1
    is_simulated: bool = False
    keep: Any = None
    session: bytes = b""
    min_cell_count: int = 0
    own_min_rows: int = 1
    hold_records: Any = None

    @property
    def peers(self) -> tuple[str, ...]:
        """Names of the other parties, in roster order."""
        return tuple(name for name in self.roster if name != self.name)

    @property
    def n_rows(self) -> int:
        """Number of own rows."""
        return min((len(values) for values in self.block.values()), default=0)

    def numbers(self, *, gaps: bool = False, bounds: np.ndarray | None = None) -> Any:
        """Return the own rows as floats, in memory or to be read in blocks.

        Entries that are no finite numbers are refused, at the latest when they are
        read, and so is a column with gaps in which hardly any own row has a value.
        Under noise such entries are missing instead: a refusal would reveal a row. Not
        to be changed in place.

        Parameters
        ----------
        gaps : bool, default=False
            Whether entries may be missing; under noise, the middle of the bounds stands
            for them otherwise.
        bounds : ndarray of shape (2, n_features), default=None
            Public bounds, to which values are clipped; needed under noise.

        Returns
        -------
        X : ndarray or RowSource
            For :func:`~skprivbn.federation.row_blocks`.
        """
        strict = not self.terms.has_noise()
        if not strict and bounds is None:
            raise TypeError("epsilon needs clipped rows: me.numbers(bounds=...)")

        def read(X):
            with refuse_malformed("invalid-data"):
                return read_numbers(X, gaps=gaps, bounds=bounds, strict=strict)

        rows = map_rows(self.block["X"], read)
        if gaps and strict and self.own_min_rows > 1 and not self.is_simulated:
            self._check_filled(rows)
        return rows

    def _check_filled(self, rows):
        """Refuse a column that few own rows have: its sums would be other parties'."""
        n_filled = sum_over_rows(rows, lambda rows: np.sum(~np.isnan(rows), axis=0))
        few = np.flatnonzero(n_filled < self.own_min_rows)
        if few.size:
            why = "fewer own rows than min_rows have a value"
            raise PartyRefusal("too-few-rows", why, few.tolist())

    def rows_of_person(self) -> np.ndarray | None:
        """Return for each own row how many rows its person has, if noise hides persons.

        Returns
        -------
        n_rows : ndarray of int of shape (n_rows,) or None
            0 where nobody knows who it is. None if the terms protect rows.
        """
        if self.terms.protects != "individuals":
            return None
        require("individual" in self.block, "invalid-data")
        return rows_of_person(self.block["individual"])


class Round(NamedTuple):
    """A round that a program may have.

    Attributes
    ----------
    kind : {"Sum", "Release", "Noisy", "Tell", "Hear"}
    what : str
    """

    kind: str
    what: str


class Program:
    """A protocol: a generator function and the class of its terms.

    Made by :func:`program`.

    Parameters
    ----------
    function : callable
        Takes :class:`Me`.
    terms : type
        Subclass of :class:`Terms`.
    """

    __module__: str
    __name__: str
    __qualname__: str

    def __init__(self, function: Callable, terms: type[Terms]) -> None:
        if not inspect.isgeneratorfunction(inspect.unwrap(function)):
            raise TypeError(f"{function.__name__} has no yield: a program has rounds")
        update_wrapper(self, function)
        self.function, self.terms = function, terms

    def __call__(self, me: Me) -> Generator[Any, Any, Any]:
        """Run the program on a party's own rows."""
        return self.function(me)

    @property
    def path(self) -> str:
        """By which sites know the program."""
        return f"{self.__module__}:{self.__qualname__}"

    def rounds(self, *, noisy: bool | None = None) -> list[Round]:
        """List what the program may open, without running it.

        Parameters
        ----------
        noisy : bool, default=None
            Of sessions with noise, where exact sums have no place, or of those without.

        Returns
        -------
        rounds : list of Round
            As they stand in its text and that of the programs it is made of.
        """
        found = dict.fromkeys(_rounds_of(self.function, set()))
        left_out = {None: (), True: ("Sum", "Release"), False: ("Noisy",)}[noisy]
        return [one for one in found if one.kind not in left_out]

    def __reduce__(self):
        return self.__qualname__

    def __repr__(self):
        return f"<program {self.path}>"


def program(terms: type[Terms]) -> Callable[[Callable], Program]:
    """Mark a generator function as a protocol that parties run.

    Parameters
    ----------
    terms : type
        Subclass of :class:`Terms`: the public parameters.

    Returns
    -------
    decorator : callable

    Examples
    --------
    >>> from skprivbn.federation import ALL_ROWS, Sum, Terms, program
    >>> @program(Terms)
    ... def total(me):
    ...     return (yield Sum(me.numbers().sum(axis=0), "sums of columns", ALL_ROWS))
    >>> total.terms.__name__
    'Terms'
    """
    if not (isinstance(terms, type) and issubclass(terms, Terms)):
        raise TypeError("write @program(Terms), with the class of its parameters")
    own = vars(terms)
    if own.get("__annotations__") and "__dataclass_params__" not in own:
        raise TypeError(f"write @dataclass(frozen=True) above class {terms.__name__}")
    return lambda function: Program(function, terms)


#: what a program calls to make a round, and how rounds are called
_KINDS: dict[Any, str] = {
    kind: kind.__name__ for kind in (Sum, Release, Noisy, Tell, Hear)
}
_KINDS[converse] = Tell.__name__


@cache
def _calls(function):
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _rounds_of(function: Any, seen: set) -> Iterator[Round]:
    """Yield the rounds in the text of a function and of those that it yields from."""
    function = inspect.unwrap(function)
    if function in seen or not inspect.isfunction(function):
        return
    seen.add(function)
    try:
        calls = _calls(function)
    except (OSError, SyntaxError):  # typed at a prompt
        return
    known = function.__globals__
    for node in calls:
        called = _resolve(node.func, known)
        if called in _KINDS:
            yield Round(_KINDS[called], _what_of(node, called, known))
        elif inspect.isgeneratorfunction(getattr(called, "function", called)):
            yield from _rounds_of(getattr(called, "function", called), seen)


def _resolve(node, known):
    """Return what a name, or an attribute of a module, stands for."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        return getattr(_resolve(node.value, known), node.attr, None)
    return None


def _what_of(call, kind, known):
    """Return the words of a round, a constant of its program or its module."""
    place = list(inspect.signature(kind).parameters).index("what")
    named = {word.arg: word.value for word in call.keywords}
    words = named.get("what", call.args[place] if len(call.args) > place else None)
    if isinstance(words, ast.Name):
        return known.get(words.id, "(said by the program)")
    return words.value if isinstance(words, ast.Constant) else "(said by the program)"
