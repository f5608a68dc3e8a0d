"""Where the rows of a dataset are: in a file, or what a query to a database returns."""

import codecs
import csv
import gzip
import hashlib
import io
import json
from collections import OrderedDict
from contextlib import closing
from functools import lru_cache
from importlib import import_module
from pathlib import Path

import numpy as np

from skprivbn.exceptions import PartitionError
from skprivbn.federation._rows import open_parquet, rows_per_block
from skprivbn.federation._wire import has_types
from skprivbn.federation.site._entries import is_list_of_text, read_entry
from skprivbn.federation.site._table import Column, Table
from skprivbn.utils import import_optional

#: bytes of a CSV file that are read at a time
_CSV_BLOCK = 1 << 22
#: rows of questions that this process remembers: most fits follow one like them
_REMEMBERED = 4
_recent: OrderedDict = OrderedDict()


class _FileTable(Table):
    """Rows of one file."""

    def __init__(self, path, columns, missing=()):
        super().__init__(columns, missing)
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

    def read_rows(self, columns, beside):
        """Return rows that were read before if the file has not changed since."""
        self._check_exists()
        before, beside = self.fingerprint(), sorted(beside)
        asked = self, before, tuple(columns), tuple(beside)
        if asked not in _recent:
            found = super().read_rows(columns, beside)
            if self.fingerprint() != before:
                return found
            for values in (found[0], *found[1].values()):
                if isinstance(values, np.ndarray):
                    values.flags.writeable = False
            _recent[asked] = found
        _recent.move_to_end(asked)
        if len(_recent) > _REMEMBERED:
            _recent.popitem(last=False)
        return _recent[asked]


@lru_cache(maxsize=64)
def _hash_file(path, *state):
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


class CsvTable(_FileTable):
    """A CSV file with a header, possibly compressed (``.csv.gz``).

    pyarrow splits it into cells. Where it stops, or is not installed, Python's own
    reader goes on, which is slower and says in which line something is wrong.

    Parameters
    ----------
    path, columns, missing :
        As in :class:`Table`.
    separator, decimal, encoding : str
        What stands between cells and before decimals, and how text is written.
    """

    row_word = "line"

    def __init__(
        self,
        path,
        columns,
        missing=(),
        separator=",",
        decimal=".",
        encoding="utf-8-sig",
    ):
        super().__init__(path, columns, missing)
        self.separator, self.decimal, self.encoding = separator, decimal, encoding

    def cells(self, names):
        """Read lines; each must have as many cells as the header."""
        self._check_exists()
        header = next(self._lines(), (0, None))[1]
        if not header:
            raise ValueError(f"{self.name} is empty: it needs a line of names")
        self._check_columns(header, names)
        places, n_read = [header.index(name) for name in names], 0
        kinds = {c.source or name: c.kind for name, c in self.columns.items()}
        coded = [isinstance(kinds[name], list) for name in names]
        try:
            for cells in self._read_fast(len(header), places, coded):
                yield cells
                n_read += len(cells[0])
        except (ImportError, UnicodeError, ValueError):
            for cells in self._read_on(places, n_read):
                yield cells
                n_read += len(cells[0])
        if not n_read:
            raise ValueError(f"{self.name} has no rows, only a line of names")

    def _read_fast(self, n_columns, places, coded):
        """Yield columns of text; raise if there is something to look at closely.

        Of categories, Arrow keeps each text once.
        """
        pa = import_optional("pyarrow", f"reading {self.path} fast")
        arrow_csv = import_optional("pyarrow.csv", f"reading {self.path} fast")
        if n_columns == 1:
            raise ValueError("blank lines could be gaps")
        names, chosen = list(map(str, range(n_columns))), list(map(str, places))
        texts, labels = pa.string(), pa.dictionary(pa.int32(), pa.string())
        kinds = [labels if is_coded else texts for is_coded in coded]
        size = rows_per_block(len(places))
        with self._open("rb") as handle:
            text = _Utf8(handle, self.encoding)
            reader = arrow_csv.open_csv(
                pa.PythonFile(text, mode="r"),
                arrow_csv.ReadOptions(
                    use_threads=False,
                    block_size=_CSV_BLOCK,
                    column_names=names,
                    skip_rows_after_names=1,
                ),
                arrow_csv.ParseOptions(
                    delimiter=self.separator, newlines_in_values=True
                ),
                arrow_csv.ConvertOptions(
                    column_types=dict(zip(chosen, kinds)),
                    include_columns=chosen,
                    check_utf8=False,  # has been decoded
                ),
            )
            for batch in reader:
                for start in range(0, len(batch), size):
                    yield batch.slice(start, size).columns
        if text.n_quotes % 2:
            # a quote that is never closed would make one cell of all that follows
            for _ in self._lines():
                pass

    def _read_on(self, places, n_read):
        """Yield columns of text from some row on, as Python's reader has them."""
        rows = []
        for i, (_, row) in enumerate(self._lines()):
            if i <= n_read:
                continue
            rows.append([row[place] for place in places])
            if len(rows) == rows_per_block(len(places)):
                yield list(zip(*rows))
                rows = []
        if rows:
            yield list(zip(*rows))

    def row_number(self, position):
        """Return the line in which a row ends: cells may have several lines."""
        for i, (line, _) in enumerate(self._lines()):
            if i == position + 1:
                return line
        raise ValueError(f"{self.name} has changed")

    def _open(self, mode, **options):
        opener = gzip.open if self.path.suffix == ".gz" else open
        return opener(self.path, mode, **options)

    def _lines(self):
        """Yield the number and the cells of the header and of each row."""
        with self._open("rt", encoding=self.encoding, newline="") as handle:
            reader = csv.reader(handle, delimiter=self.separator, strict=True)
            n_columns = None
            try:
                for row in reader:
                    if n_columns is None:
                        n_columns = len(row)
                    elif not row and n_columns > 1:  # a blank line
                        continue
                    elif len(row) != n_columns:
                        # a separator within a cell moves all cells behind it
                        raise ValueError(
                            f"{self.name}, line {reader.line_num}: {len(row)} cells, "
                            f"and there are {n_columns} columns"
                        )
                    yield reader.line_num, row
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

    def parse(self, name, first, cells):
        """Return the values of cells, whose decimals may follow a comma."""
        if self.decimal != "." and self.columns[name].kind == "float":
            cells = self._with_points(cells)
        return super().parse(name, first, cells)

    def _with_points(self, cells):
        if hasattr(cells, "to_pylist"):
            compute = import_optional("pyarrow.compute", f"reading {self.path} fast")
            if not compute.any(compute.match_substring(cells, ".")).as_py():
                return compute.replace_substring(cells, self.decimal, ".")
            cells = cells.to_pylist()
        return list(map(self._with_point, cells))

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


class _Utf8(io.RawIOBase):
    """Text in any encoding, read as UTF-8, whose quotes are counted."""

    def __init__(self, handle, encoding):
        self._handle = handle
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self.n_quotes = 0

    def readable(self):
        return True

    def read(self, size=-1):
        """Return some text, none at the end."""
        text, is_end = "", False
        while not text and not is_end:
            raw = self._handle.read(size)
            is_end = not raw
            text = self._decoder.decode(raw, final=is_end)
        self.n_quotes += text.count('"')
        return text.encode()


class ParquetTable(_FileTable):
    """A Parquet file; needs pyarrow."""

    def n_rows(self):
        """Read the number of rows off the end of the file."""
        self._check_exists()
        with open_parquet(self.path) as file:
            return file.metadata.num_rows

    def cells(self, names):
        """Read some rows of some columns at a time."""
        self._check_exists()
        labels = [
            column.source or name
            for name, column in self.columns.items()
            if isinstance(column.kind, list)
        ]
        with open_parquet(self.path, labels) as file:
            self._check_columns(file.schema_arrow.names, names)
            if not file.metadata.num_rows:
                raise ValueError(f"{self.name} has no rows")
            for batch in file.iter_batches(rows_per_block(len(names)), columns=names):
                yield [batch.column(name) for name in names]


#: what people also keep tables in
_NO_TEXT = (".xlsx", ".xls", ".ods", ".sav", ".dta", ".sas7bdat", ".rds", ".feather")
#: their cursors send all rows at once, unless they have a name
_NAMED_CURSORS = ("psycopg", "psycopg2")
#: arguments of connections that say who reads, and not what
_LOGIN = ("user", "password", "passwd")


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
    columns, missing :
        As in :class:`Table`.
    """

    def __init__(self, driver, connect, query, folder, columns, missing=()):
        super().__init__(columns, missing)
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

    def cells(self, names):
        """Read as many rows at a time as fit into a block."""
        is_empty = True
        for header, rows in self._batches():
            self._check_columns(header, names)
            taken, is_empty = list(zip(*rows)), False
            yield [taken[header.index(name)] for name in names]
        if is_empty:
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
                while rows := cursor.fetchmany(rows_per_block(len(self.columns))):
                    yield [column[0] for column in cursor.description], rows
        except self.driver.Error as error:
            raise ValueError(f"{self.name} failed: {error}") from error


def find_table(
    entry: dict, columns: dict[str, Column], folder: Path, where: str
) -> Table:
    """Return the table that an entry of a site file declares.

    Parameters
    ----------
    entry : dict
        With ``path``, or ``sql``, and perhaps ``missing`` and ``csv``.
    columns : dict of str to Column
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
        return _find_query(entry["sql"], columns, missing, folder, where)
    text = "", lambda value: isinstance(value, str), "text"
    path = folder / read_entry(entry, "path", text, where)
    if path.suffix.lower() in _NO_TEXT:
        raise PartitionError(
            f"{where}: {path} is no CSV file: save it as one, in UTF-8"
        )
    if path.suffix in (".parquet", ".pq"):
        if "csv" in entry:
            raise PartitionError(f"{where}: csv says how CSV files are written")
        return ParquetTable(path, columns, missing)
    return CsvTable(path, columns, missing, **_csv_options(entry, where))


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


def _find_query(sql, columns, missing, folder, where):
    types = {"driver": str, "connect": dict, "query": str}
    if not has_types(sql, types):
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
    return SqlTable(driver, sql["connect"], sql["query"], folder, columns, missing)
