"""Where the rows of a dataset are: a CSV file, a Parquet file, a query to a database.

Tables are read in blocks. Few rows become an array; many stay where they are, or in a
file without a name if they would have to be parsed again each time.
"""

import codecs
import csv
import gzip
import hashlib
import json
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from importlib import import_module
from pathlib import Path

import numpy as np

from skprivbn.exceptions import PartitionError
from skprivbn.federation._rows import RowSource, open_parquet, rows_per_block
from skprivbn.federation.site._cells import parse_cells
from skprivbn.federation.site._entries import is_list_of_text, read_entry

#: numbers up to which rows are kept in memory: 64 MB
IN_MEMORY = 1 << 23
#: what people also keep tables in
_NO_TEXT = (".xlsx", ".xls", ".ods", ".sav", ".dta", ".sas7bdat", ".rds", ".feather")
#: their cursors send all rows at once, unless they have a name
_NAMED_CURSORS = ("psycopg", "psycopg2")
#: arguments of connections that say who reads, and not what
_LOGIN = ("user", "password", "passwd")


class Table(ABC):
    """Rows of a dataset, wherever they are.

    Parameters
    ----------
    kinds : dict of str to str or list of str
        What each declared column holds.
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
    """

    name: str
    place: str
    old_state: Path
    query: str | None = None
    #: what a row is called in messages
    row_word = "row"

    def __init__(self, kinds: dict, missing: tuple = ()) -> None:
        self.kinds, self.missing = kinds, missing

    @abstractmethod
    def fingerprint(self) -> str:
        """Identify the present content."""

    @abstractmethod
    def cells(self, columns: list[str]) -> Iterator[tuple]:
        """Read some columns in blocks.

        Yields
        ------
        numbers : sequence of int
            Of the rows, for messages.
        cells : list of sequence
            Of each column.
        """

    def n_rows(self) -> int | None:
        """Return the number of rows if it is known without reading them."""
        return None

    def values(self, columns: list[str]) -> Iterator[dict]:
        """Read some columns in blocks, as numbers and keys.

        Yields
        ------
        values : dict of str to ndarray
            Numbers, text (keys), or positions in the list of categories. Missing
            entries are NaN.
        """
        for numbers, cells in self.cells(columns):
            yield {
                name: self.parse(name, numbers, column)
                for name, column in zip(columns, cells)
            }

    def parse(self, name: str, numbers: Sequence[int], cells: Sequence) -> np.ndarray:
        """Return the values of cells of one column.

        Parameters
        ----------
        name : str
        numbers : sequence of int
            Of the rows.
        cells : sequence

        Returns
        -------
        values : ndarray
        """

        def where(i):
            return f"{self.name}, {self.row_word} {numbers[i]}, column {name!r}"

        return parse_cells(cells, self.kinds[name], self.missing, where)

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
        spool, found = _Spool(self.old_state.parent), []
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
    folder : Path
        With room for the file, which has no name there and ends with this process.
    """

    def __init__(self, folder):
        self.folder, self.file = folder, None
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
            return np.concatenate(self.blocks)

        def read():
            for place, dtype, shape in self.blocks:
                self.file.seek(place)
                yield np.fromfile(self.file, dtype, np.prod(shape)).reshape(shape)

        self.file.flush()
        return RowSource(read, self.n_rows, columns)


class _FileTable(Table):
    """Rows of one file."""

    def __init__(self, path, kinds, missing=()):
        super().__init__(kinds, missing)
        self.path, self.name = path, str(path)
        self.old_state = path.resolve()
        self.place = str(self.old_state)

    def _check_exists(self):
        if not self.path.is_file():
            raise ValueError(
                f"there is no file {self.path.absolute()}; a path that does not begin "
                "with / is one from the folder of the site file"
            )

    def fingerprint(self):
        now = self.path.stat()
        # as long as nobody writes to the file, its hash need not be computed again
        return _hash_file(
            self.path, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns
        )


@lru_cache(maxsize=64)
def _hash_file(path, *state):
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


class CsvTable(_FileTable):
    """A CSV file with a header, possibly compressed (``.csv.gz``).

    Parameters
    ----------
    path, kinds, missing :
        As in :class:`Table`.
    separator, decimal, encoding : str
        What stands between cells and before decimals, and how text is written.
    """

    row_word = "line"

    def __init__(
        self,
        path,
        kinds,
        missing=(),
        separator=",",
        decimal=".",
        encoding="utf-8-sig",
    ):
        super().__init__(path, kinds, missing)
        self.separator, self.decimal, self.encoding = separator, decimal, encoding

    def cells(self, columns):
        """Read lines; each must have as many cells as the header."""
        self._check_exists()
        opener = gzip.open if self.path.suffix == ".gz" else open
        with opener(self.path, "rt", encoding=self.encoding, newline="") as handle:
            # a quote that is never closed would make one cell of all that follows
            reader = csv.reader(handle, delimiter=self.separator, strict=True)
            try:
                yield from self._blocks(reader, columns)
            except UnicodeError as error:
                how = self.encoding.removesuffix("-sig")
                raise ValueError(
                    f"{self.name}, after line {reader.line_num}: no text in {how} "
                    f"({error.reason}). Save it as UTF-8, or say how it is written, "
                    'such as csv = {encoding = "cp1252"}'
                ) from None
            except csv.Error as error:
                where = f"{self.name}, line {reader.line_num}"
                raise ValueError(f"{where}: {error}") from None

    def _blocks(self, reader, columns):
        header = next(reader, None)
        if not header:
            raise ValueError(f"{self.name} is empty: it needs a line of names")
        self._check_columns(header, columns)
        places = [header.index(name) for name in columns]
        n_rows, numbers, rows = 0, [], []
        for row in reader:
            if not row and len(header) > 1:  # a blank line
                continue
            if len(row) != len(header):
                # a separator within a cell moves all cells behind it
                raise ValueError(
                    f"{self.name}, line {reader.line_num}: {len(row)} cells, and "
                    f"there are {len(header)} columns"
                )
            numbers.append(reader.line_num)
            rows.append([row[place] for place in places])
            if len(rows) == rows_per_block(len(columns)):
                yield numbers, self._side_by_side(rows, columns)
                n_rows, numbers, rows = n_rows + len(rows), [], []
        if not n_rows + len(rows):
            raise ValueError(f"{self.name} has no rows, only a line of names")
        if rows:
            yield numbers, self._side_by_side(rows, columns)

    def _side_by_side(self, rows, columns):
        cells = list(zip(*rows))
        if self.decimal != ".":
            for i, name in enumerate(columns):
                if self.kinds[name] == "float":
                    cells[i] = list(map(self._with_point, cells[i]))
        return cells

    def _with_point(self, cell):
        if "." in cell:  # between thousands: nobody should guess what it means
            return f"{cell} with decimal {self.decimal!r}"
        return cell.replace(self.decimal, ".")

    def _check_columns(self, header, columns):
        other = next((mark for mark in ";\t|," if mark in "".join(header)), None)
        if len(header) == 1 < len(columns) and other:
            raise ValueError(
                f"{self.name} has one column, {header[0]!r}: are cells separated by "
                f"{other!r}? Say csv = {{separator = {json.dumps(other)}}}"
            )
        super()._check_columns(header, columns)


class ParquetTable(_FileTable):
    """A Parquet file; needs pyarrow."""

    def n_rows(self):
        """Read the number of rows off the end of the file."""
        self._check_exists()
        with open_parquet(self.path) as file:
            return file.metadata.num_rows

    def cells(self, columns):
        """Read some rows of some columns at a time."""
        self._check_exists()
        with open_parquet(self.path) as file:
            self._check_columns(file.schema_arrow.names, columns)
            if not file.metadata.num_rows:
                raise ValueError(f"{self.name} has no rows")
            first, size = 1, rows_per_block(len(columns))
            for batch in file.iter_batches(size, columns=columns):
                cells = [
                    _plain_column(batch.column(name), self.kinds[name])
                    for name in columns
                ]
                yield range(first, first + len(batch)), cells
                first += len(batch)


def _plain_column(column, kind):
    """Return numbers as an array, anything else as Python's objects."""
    is_number = str(column.type).startswith(("int", "uint", "half", "float", "double"))
    # whole numbers with gaps become others in an array: 1.0 is no key or category
    if is_number and kind in ("float", "int"):
        return column.to_numpy(zero_copy_only=False)
    return column.to_pylist()


class SqlTable(Table):
    """What a query to a database returns.

    Parameters
    ----------
    driver : module
        Of Python's database interface (PEP 249), such as ``sqlite3`` or ``psycopg2``.
    connect : dict
        Arguments of its ``connect``.
    query : str
        Written by the people at the site; no coordinator adds anything to it.
    folder : Path
        That the path of a file of SQLite starts from.
    kinds, missing :
        As in :class:`Table`.
    """

    def __init__(self, driver, connect, query, folder, kinds, missing=()):
        super().__init__(kinds, missing)
        self.driver, self.connect, self.query = driver, dict(connect), query
        if driver.__name__ == "sqlite3":
            path = folder / self.connect.get("database", "")
            self.connect["database"] = str(path)
            self.old_state = path.resolve()
            self.place = str(self.old_state)
        else:
            place = json.dumps([driver.__name__, self.connect], sort_keys=True)
            number = hashlib.sha256(place.encode()).hexdigest()[:16]
            self.old_state = folder / f"{driver.__name__}-{number}"
            kept = {k: v for k, v in self.connect.items() if k not in _LOGIN}
            self.place = json.dumps([driver.__name__, kept], sort_keys=True)
        self.name = f"the query to {driver.__name__}"

    def fingerprint(self):
        """Add up hashes of all rows: a database returns them in any order."""
        total = 0
        for _, rows in self._batches():
            for row in rows:
                digest = hashlib.blake2b(repr(tuple(row)).encode(), digest_size=32)
                total += int.from_bytes(digest.digest())
        return f"{total % 2**256:064x}"

    def cells(self, columns):
        """Read as many rows at a time as fit into a block."""
        first = 1
        for header, rows in self._batches():
            self._check_columns(header, columns)
            places = [header.index(name) for name in columns]
            taken = list(zip(*rows))
            yield range(first, first + len(rows)), [taken[place] for place in places]
            first += len(rows)
        if first == 1:
            raise ValueError(f"{self.name} returns no rows")

    def _batches(self):
        """Yield names of columns and rows, as the query returns them."""
        if self.driver.__name__ == "sqlite3" and not self.old_state.exists():
            raise ValueError(f"there is no database {self.connect['database']}")
        try:
            with closing(self.driver.connect(**self.connect)) as connection:
                named = self.driver.__name__ in _NAMED_CURSORS
                cursor = connection.cursor(*["skprivbn"] * named)
                cursor.execute(self.query)
                while rows := cursor.fetchmany(rows_per_block(len(self.kinds))):
                    yield [column[0] for column in cursor.description], rows
        except self.driver.Error as error:
            raise ValueError(f"{self.name} failed: {error}") from error


def find_table(entry: dict, kinds: dict, folder: Path, where: str) -> Table:
    """Return the table that an entry of a site file declares.

    Parameters
    ----------
    entry : dict
        With ``path``, or ``sql``, and perhaps ``missing`` and ``csv``.
    kinds : dict of str to str or list of str
        What each column holds.
    folder : Path
        That relative paths start from.
    where : str
        For messages.

    Returns
    -------
    table : Table
    """
    texts = [], is_list_of_text, 'a list of texts, such as ["NA", "-9"]'
    missing = tuple(read_entry(entry, "missing", texts, where))
    if ("path" in entry) == ("sql" in entry):
        raise PartitionError(f"{where}: missing entries: path of a file, or sql")
    if "sql" in entry:
        return _find_query(entry["sql"], kinds, missing, folder, where)
    text = "", lambda value: isinstance(value, str), "text"
    path = folder / read_entry(entry, "path", text, where)
    if path.suffix.lower() in _NO_TEXT:
        raise PartitionError(
            f"{where}: {path} is no CSV file: save it as one, in UTF-8"
        )
    if path.suffix in (".parquet", ".pq"):
        if "csv" in entry:
            raise PartitionError(f"{where}: csv says how CSV files are written")
        return ParquetTable(path, kinds, missing)
    return CsvTable(path, kinds, missing, **_csv_options(entry, where))


def _csv_options(entry, where):
    """Return how a CSV file is written, as far as it is not the usual."""
    options = entry.get("csv", {})
    known = {"separator", "decimal", "encoding"}
    if not isinstance(options, dict) or not options.keys() <= known:
        raise PartitionError(
            f'{where}: csv must be a table such as {{separator = ";", decimal = ",", '
            f'encoding = "cp1252"}}, got {options!r}'
        )
    mark = (
        ".",
        lambda value: isinstance(value, str) and len(value) == 1,
        "one character",
    )
    for key in ("separator", "decimal"):
        read_entry(options, key, mark, f"{where}: csv")
    if options.get("separator", ",") == options.get("decimal", "."):
        raise PartitionError(f"{where}: csv: separator and decimal must differ")
    encoding = options.get("encoding", "utf-8")
    try:
        encoding = codecs.lookup(encoding).name
    except (LookupError, TypeError):
        raise PartitionError(
            f"{where}: csv: encoding must be one that Python knows, such as "
            f'"cp1252", got {encoding!r}'
        ) from None
    # with or without a mark of the order of bytes
    return options | {"encoding": "utf-8-sig" if encoding == "utf-8" else encoding}


def _find_query(sql, kinds, missing, folder, where):
    types = {"driver": str, "connect": dict, "query": str}
    if not isinstance(sql, dict) or {k: type(v) for k, v in sql.items()} != types:
        raise PartitionError(
            f'{where}: sql must be a table such as {{driver = "sqlite3", connect = '
            f'{{database = "icu.db"}}, query = "SELECT ..."}}, got {sql!r}'
        )
    try:
        driver = import_module(sql["driver"])
    except ImportError:
        driver = None
    if not hasattr(driver, "connect") or not hasattr(driver, "Error"):
        raise PartitionError(
            f"{where}: {sql['driver']!r} is no driver of a database (PEP 249) that is "
            "installed here"
        )
    return SqlTable(driver, sql["connect"], sql["query"], folder, kinds, missing)
