"""Rows of a dataset, wherever they are, read in blocks.

Few rows become an array; many stay where they are, or in a file without a name if they
would have to be parsed again each time.
"""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any, Self

import numpy as np

from skprivbn.federation._rows import RowSource
from skprivbn.federation.site._cells import Column, parse_cells

#: numbers up to which rows are kept in memory: 64 MB
IN_MEMORY = 1 << 23


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
