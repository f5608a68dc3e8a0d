"""Where the rows of a dataset are: in a file, or what a query to a database returns."""

import codecs
import hashlib
import json
from contextlib import closing
from importlib import import_module
from pathlib import Path

from skprivbn.exceptions import PartitionError
from skprivbn.federation._rows import rows_per_block
from skprivbn.federation.site._cells import Column
from skprivbn.federation.site._entries import is_list_of_text, read_entry
from skprivbn.federation.site._files import CsvTable, ParquetTable
from skprivbn.federation.site._table import Table

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
    return SqlTable(driver, sql["connect"], sql["query"], folder, columns, missing)
