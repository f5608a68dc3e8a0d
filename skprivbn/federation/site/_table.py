"""Tables of a site: what their columns are declared to hold, and rows in blocks.

Few rows become an array; many stay where they are, or in a file without a name if they
would have to be parsed again each time.
"""

import math
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from skprivbn.exceptions import PartitionError
from skprivbn.federation._rows import RowSource
from skprivbn.utils import import_optional
from skprivbn.utils._validation import float_or_nan

#: numbers up to which rows are kept in memory: 64 MB
IN_MEMORY = 1 << 23
#: how the values of a column are given
_KINDS = ("float", "int", "key")
#: what people often write where nothing is known
OFTEN_MISSING = {"na", "n/a", "nan", "null", "none", "-", ".", "?"}


class CellError(ValueError):
    """A cell does not hold what its column is declared to hold.

    The message names file, row and column, and quotes the cell: it is for the people
    at the site.
    """


@dataclass(frozen=True)
class Column:
    """A column of a dataset, as its site file declares it.

    Parameters
    ----------
    kind : {"float", "int", "key"} or list of str
        What it holds; a list is that of its categories.
    source : str, default=None
        Its name in the file or query; None is the name that the study uses.
    recoded : dict of str to str, default={}
        The category that each of these cells stands for; ``""`` is a gap.
    """

    kind: str | list[str]
    source: str | None = None
    recoded: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_entry(cls, entry: Any, where: str) -> Self:
        """Read the entry of a site file.

        Parameters
        ----------
        entry : str, list of str or dict
            A kind, or ``{kind = ..., from = ..., map = {...}}``.
        where : str
            For messages.

        Returns
        -------
        column : Column
        """
        table = entry if isinstance(entry, dict) else {"kind": entry}
        if not {"kind"} <= table.keys() <= {"kind", "from", "map"}:
            raise PartitionError(
                f"{where} must be a table such as {{kind = "
                '["no", "yes"], from = "Diabetes", map = {nein = "no", ja = "yes"}}, '
                f"got {entry!r}"
            )
        kind, source = table["kind"], table.get("from")
        if kind not in _KINDS and not _are_labels(kind):
            raise PartitionError(
                f"{where} must be one of {list(_KINDS)} or a list "
                f'of different categories, as text such as ["0", "1"], got {kind!r} '
                "(dates: bring them as numbers, such as days)"
            )
        if not isinstance(source, str | None):
            raise PartitionError(
                f"{where}: from must be the name of a column of the source, got "
                f"{source!r}"
            )
        recoded = table.get("map", {})
        known = {"", *kind} if isinstance(kind, list) else set()
        if not isinstance(recoded, dict) or not all(
            isinstance(label, str) and label in known for label in recoded.values()
        ):
            raise PartitionError(
                f"{where}: map must be a table of cells and the categories that they "
                f'stand for, of {kind!r}, or "" for a gap, got {recoded!r}'
            )
        return cls(kind, source, recoded)

    @property
    def entry(self) -> Any:
        """Its declaration, as plain data."""
        entry: dict[str, Any] = {"kind": self.kind}
        if self.source is not None:
            entry["from"] = self.source
        if self.recoded:
            entry["map"] = self.recoded
        return entry if len(entry) > 1 else self.kind

    @cached_property
    def codes(self) -> dict[str, int]:
        """Position of the category of each cell."""
        codes = {label: code for code, label in enumerate(self.kind)}
        told = {cell: codes[label] for cell, label in self.recoded.items() if label}
        return codes | told

    def gaps(self, missing: Sequence[str]) -> set[str]:
        """Return the texts that stand for nothing in this column."""
        return {"", *missing, *(c for c, label in self.recoded.items() if not label)}


def _are_labels(kind):
    is_text = isinstance(kind, list) and all(isinstance(label, str) for label in kind)
    return is_text and len(set(kind)) == len(kind) > 0


def parse_cells(
    cells: Any,
    column: Column,
    missing: tuple[str, ...],
    where: Callable[[int], str],
) -> np.ndarray:
    """Return the values of cells of one column.

    Parameters
    ----------
    cells : pyarrow.Array, sequence or ndarray
        Text, Python's objects, or numbers.
    column : Column
    missing : tuple of str
        Cells that stand for nothing, beside empty ones and None.
    where : callable
        From the position of a cell to its file, row and column.

    Returns
    -------
    values : ndarray
        Floats, integers, text, or positions in the list of categories. With missing
        entries, which are NaN, these are floats.
    """
    texts, numbers = (
        column.gaps(missing),
        set(filter(math.isfinite, map(float_or_nan, missing))),
    )
    nothing = {None, *texts, *numbers}
    values = _parse(cells, column, texts, nothing, where)
    if numbers and column.kind in ("float", "int"):
        # "-9" stands for nothing, and so do "-9.0" and "-09"
        return _from_numbers(values, column.kind, nothing)
    return values


def _parse(cells, column, texts, nothing, where):
    """Return the values of cells of one column; some may still be missing numbers."""
    if hasattr(cells, "to_pylist"):
        try:
            return _from_arrow(cells, column, texts, nothing)
        except (ArithmeticError, KeyError, NotImplementedError, ValueError):
            # the reader of single cells takes more, and names the one it refuses
            cells = cells.to_pylist()
    kind, (read, word) = column.kind, _reader(column)
    try:
        if kind in ("float", "int") and isinstance(cells, np.ndarray):
            return _from_numbers(cells, kind, nothing)
        return _from_objects(cells, kind, read, nothing)
    except (ArithmeticError, KeyError, TypeError, ValueError):
        pass
    cells = cells.tolist() if isinstance(cells, np.ndarray) else cells
    for i, cell in enumerate(cells):
        try:
            _from_objects([cell], kind, read, nothing)
        except OverflowError:
            raise CellError(f"{where(i)}: {cell!r} is too large") from None
        except (ArithmeticError, KeyError, TypeError, ValueError):
            raise CellError(
                f"{where(i)}: {cell!r} is not {word}{_hint(cell, kind)}"
            ) from None
    raise CellError(f"{where(0)}: numbers are too large")


def _from_arrow(cells, column, texts, nothing):
    """Return the values of a column of Arrow; raise if single cells must be read."""
    pa = import_optional("pyarrow", "a column of Arrow")
    compute = import_optional("pyarrow.compute", "a column of Arrow")
    kind = column.kind
    if isinstance(kind, list):
        return _codes(cells, column, nothing)
    is_number = pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type)
    if is_number and kind != "key":
        return _from_numbers(cells.to_numpy(zero_copy_only=False), kind, nothing)
    if not (pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type)):
        raise NotImplementedError(f"{cells.type} as {kind}")
    gaps = compute.is_in(cells, pa.array(sorted(texts), cells.type))
    if kind == "key":
        cells = compute.if_else(gaps, "", cells).fill_null("")
        return cells.to_numpy(zero_copy_only=False).astype(str)
    if compute.any(gaps).as_py():
        cells = compute.if_else(gaps, pa.scalar(None, cells.type), cells)
    if kind == "float":
        return cells.cast(pa.float64()).to_numpy(zero_copy_only=False)
    if compute.any(compute.match_substring(cells, "x", ignore_case=True)).as_py():
        raise ValueError("hexadecimal digits are no whole number here")
    return cells.cast(pa.int64()).to_numpy(zero_copy_only=False)


def _codes(cells, column, nothing):
    """Return positions of categories, looked up once for each different cell."""
    cells = cells.dictionary_encode()
    unknown = len(column.codes)
    codes = [
        np.nan if _is_nothing(label, nothing) else column.codes.get(str(label), unknown)
        for label in cells.dictionary.to_pylist()
    ]
    places = cells.indices.fill_null(len(codes)).to_numpy()
    counts = np.bincount(places, minlength=len(codes) + 1)
    codes = np.array([*codes, np.nan])
    if np.any(counts[codes == unknown]):
        raise KeyError("a cell is no category")
    has_gaps = np.any(counts[np.isnan(codes)])
    return (codes if has_gaps else np.nan_to_num(codes).astype(np.int64))[places]


def _hint(cell, kind):
    """Return what to do about a cell that is often found."""
    if not isinstance(cell, str):
        return ""
    if cell.strip().lower() in {*OFTEN_MISSING, "missing", "unknown"}:
        return f'; if it stands for nothing, say missing = ["{cell}"]'
    if kind == "float" and cell.count(",") == 1:
        return '; if decimals follow a comma, say csv = {decimal = ","}'
    if isinstance(kind, list) and cell.strip().lower() in map(str.lower, kind):
        return " (spaces and capital letters count)"
    return ""


def _reader(column):
    kind = column.kind
    if isinstance(kind, list):
        words = f"one of the categories {kind}" + ", nor in map" * bool(column.recoded)
        return (lambda cell: column.codes[str(cell)]), words
    return {
        "float": (float, "a number"),
        "int": (_whole, "a whole number"),
        "key": (str, "a key"),
    }[kind]


def _whole(cell):
    if isinstance(cell, str):
        # as pandas writes whole numbers of a column with gaps: 127.0
        digits, _, zeros = cell.strip().partition(".")
        cell = cell if zeros.strip("0") else digits
    number = int(cell)
    if not isinstance(cell, str) and number != cell:
        raise ValueError("not whole")
    return number


def _from_objects(cells, kind, read, nothing):
    if kind == "key":
        texts = ["" if _is_nothing(c, nothing) else str(c) for c in cells]
        return np.array(texts, dtype=str)
    if kind == "float" and nothing.isdisjoint(cells):
        return np.array(list(map(float, cells)))
    values = [np.nan if _is_nothing(c, nothing) else read(c) for c in cells]
    whole = kind != "float" and not any(isinstance(v, float) for v in values)
    return np.array(values, dtype=np.int64 if whole else np.float64)


def _is_nothing(cell, nothing):
    # NaN, as databases and frames have it, is not equal to itself
    return cell in nothing or cell != cell


def _from_numbers(cells, kind, nothing):
    """Do the same for an array of numbers."""
    absent = np.isin(cells, [n for n in nothing if isinstance(n, float)])
    if kind == "int" and cells.dtype.kind == "f":
        if np.any(np.isfinite(cells) & (cells != np.rint(cells))):
            raise ValueError("not whole")
        absent |= np.isnan(cells)
    if kind == "int" and not absent.any():
        if np.any(np.abs(cells) >= 2.0**63):
            raise ValueError("too large")
        return cells.astype(np.int64)
    return np.where(absent, np.nan, cells.astype(np.float64))


class Table(ABC):
    """Rows of a dataset, wherever they are.

    Parameters
    ----------
    columns : dict of str to Column
        By the names that a study uses.
    missing : sequence of str
        Cells that stand for nothing, beside empty ones, nulls and NaN.

    Attributes
    ----------
    name : str
        For messages to the people at the site.
    place : str
        Where the rows are. Datasets of one place are about the same people.
    old_state : Path
        What releases up to 0.2 kept spent budget and numbers of fits beside.
    query : str or None
        To a database, which has rows of many kinds; None for files.
    room : Path or None
        Folder for a file without a name; None is that of temporary files.
    """

    name: str
    place: str
    old_state: Path
    query: str | None = None
    room: Path | None = None
    #: what a row is called in messages
    row_word = "row"

    def __init__(self, columns: dict[str, Column], missing: tuple = ()) -> None:
        self.columns, self.missing = columns, missing

    @property
    def declared(self) -> dict:
        """Declarations of the columns, as plain data."""
        return {name: column.entry for name, column in self.columns.items()}

    def with_columns(self, declared: dict) -> Self:
        """Return the same rows, of which other columns are declared."""
        other = copy(self)
        other.columns = {
            name: Column.from_entry(entry, name) for name, entry in declared.items()
        }
        return other

    @abstractmethod
    def fingerprint(self) -> str:
        """Identify the present content."""

    @abstractmethod
    def cells(self, names: list[str]) -> Iterator[list]:
        """Read columns of the source in blocks.

        Parameters
        ----------
        names : list of str
            At least one, by the names that the source uses.

        Yields
        ------
        cells : list of pyarrow.Array or sequence
            Of each column.
        """

    def row_number(self, position: int) -> int:
        """Return the number by which people find a row, given how many are before."""
        return position + 1

    def n_rows(self) -> int | None:
        """Return the number of rows if it is known without reading them."""
        return None

    def blocks(self, columns: list[str]) -> Iterator[tuple[int, list]]:
        """Read some declared columns in blocks.

        Yields
        ------
        first : int
            How many rows were read before.
        cells : list of pyarrow.Array or sequence
            Of each column.
        """
        first, found = 0, [self.columns[name].source or name for name in columns]
        unique = list(dict.fromkeys(found))
        for cells in self.cells(unique) if columns else ():
            yield first, [cells[unique.index(name)] for name in found]
            first += len(cells[0])

    def values(self, columns: list[str]) -> Iterator[dict]:
        """Read some declared columns in blocks, as numbers and keys.

        Yields
        ------
        values : dict of str to ndarray
            Numbers, text (keys), or positions in the list of categories. Missing
            entries are NaN.
        """
        for first, cells in self.blocks(columns):
            yield {
                name: self.parse(name, first, column)
                for name, column in zip(columns, cells)
            }

    def parse(self, name: str, first: int, cells: Any) -> np.ndarray:
        """Return the values of cells of one declared column.

        Parameters
        ----------
        name : str
        first : int
            How many rows are before these.
        cells : pyarrow.Array or sequence

        Returns
        -------
        values : ndarray
        """

        def where(i):
            number = self.row_number(first + i)
            source = self.columns[name].source or name
            return f"{self.name}, {self.row_word} {number}, column {source!r}"

        return parse_cells(cells, self.columns[name], self.missing, where)

    def read(self, columns: list[str]) -> dict:
        """Return the values of some columns, in memory.

        Parameters
        ----------
        columns : list of str

        Returns
        -------
        values : dict of str to ndarray
        """
        blocks = list(self.values(columns))
        return {name: np.concatenate([b[name] for b in blocks]) for name in columns}

    def read_rows(self, columns: list[str], beside: list[str]) -> tuple:
        """Return rows, in memory if they are few, and values beside them.

        Parameters
        ----------
        columns : list of str
            Which make up the rows, in this order.
        beside : list of str
            Whose values are wanted in memory.

        Returns
        -------
        X : ndarray or RowSource
        values : dict of str to ndarray
        """
        n_rows = self.n_rows()
        if n_rows is not None and n_rows * len(columns) > IN_MEMORY:
            X = RowSource(lambda: self._stacked(columns), n_rows, columns)
            return X, self.read(beside) if beside else {}
        spool, found = _Spool(self.room), []
        for values in self.values(list(dict.fromkeys([*columns, *beside]))):
            spool.add(_side_by_side(values, columns))
            found.append({name: values[name] for name in beside})
        return spool.rows(columns), {
            name: np.concatenate([values[name] for values in found]) for name in beside
        }

    def _stacked(self, columns):
        for values in self.values(columns):
            yield _side_by_side(values, columns)

    def _check_columns(self, header, columns):
        lacking = [name for name in columns if name not in header]
        twice = [name for name in columns if header.count(name) > 1]
        if lacking or twice:
            what = f"no column {lacking[0]!r}" if lacking else f"two {twice[0]!r}"
            raise ValueError(
                f"{self.name} has {what}; its columns are {header} (spaces and capital "
                "letters count)"
            )

    def __str__(self):
        return self.name


def _side_by_side(values, columns):
    """Return some columns of a block as a table, of which there may be none."""
    n_rows = max(map(len, values.values()), default=0)
    return np.column_stack([np.empty((n_rows, 0)), *(values[name] for name in columns)])


class _Spool:
    """Collects blocks of rows; too many go to a file that nobody else can open.

    Parameters
    ----------
    folder : Path or None
        With room for the file, which has no name there and ends with this process.
    """

    def __init__(self, folder):
        self.folder = folder if folder is not None and folder.is_dir() else None
        self.file = None
        self.blocks, self.n_rows, self.size = [], 0, 0

    def add(self, block):
        self.n_rows += len(block)
        self.size += block.size
        if self.file is not None:
            block = self._write(block)
        elif self.size > IN_MEMORY:
            self.file = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115
            self.blocks, block = list(map(self._write, self.blocks)), self._write(block)
        self.blocks.append(block)

    def _write(self, block):
        place = self.file.tell()
        self.file.write(np.ascontiguousarray(block).data)
        return place, block.dtype, block.shape

    def rows(self, columns):
        if self.file is None:
            return np.concatenate([np.empty((0, len(columns))), *self.blocks])

        def read():
            for place, dtype, shape in self.blocks:
                self.file.seek(place)
                yield np.fromfile(self.file, dtype, np.prod(shape)).reshape(shape)

        self.file.flush()
        return RowSource(read, self.n_rows, columns)
