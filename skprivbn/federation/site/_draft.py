"""Drafts a site file from a look at the data, for a person to read and correct."""

import csv
import json

import numpy as np

from skprivbn.exceptions import PartitionError
from skprivbn.federation._models import OURS, PROTOCOLS, announced
from skprivbn.federation._rows import open_parquet
from skprivbn.federation.site._cells import Column
from skprivbn.federation.site._explained import ENTRIES
from skprivbn.federation.site._sources import find_table

#: different values up to which a column is taken for one of categories
MAX_CATEGORIES = 12
#: different texts above which a column is taken for one of keys
MANY = 10_000
#: bytes of a CSV file that are looked at to see how it is written
_SAMPLE = 1 << 16
_OFTEN_MISSING = {"na", "n/a", "nan", "null", "none", "-", ".", "?"}


def draft_site_file(path, folder, peers, name="data", epsilon=1.0):
    """Return a commented site file for the rows of a file.

    Parameters
    ----------
    path : str
        Of a CSV or Parquet file, from the folder of the site file.
    folder : Path
        Of the site file.
    peers : list of str
        All sites of the study.
    name : str, default="data"
        Of the dataset.
    epsilon : float, default=1.0
        Budget. Nothing may be told without noise until a person says so.

    Returns
    -------
    text : str
    """
    entry, header = _look_at_file(path, folder)
    columns = dict.fromkeys(header, Column("key"))
    table = find_table(entry, columns, folder, f"dataset {name!r}")
    looks = {column: _Look() for column in header}
    for values in table.values(header):
        for column in header:
            looks[column].add(values[column])
    missing = sorted({text for look in looks.values() for text in look.missing})
    lines = [
        "# A draft: read every line and correct it, then run site-policy --check.",
        "",
        *_entry("min_parties", max(len(peers), 2)),
        *_entry("peers", peers),
        "",
        f"[datasets.{json.dumps(name)}]",
        *_entry("path", path),
        *([f"csv = {_table(entry['csv'])}"] if entry.get("csv") else []),
        *(_entry("missing", missing) if missing else []),
        *_entry("version", "1"),
        *_entry("min_rows", 20),
        *_entry("estimators", sorted(announced(PROTOCOLS, OURS))),
        f"# {ENTRIES['budget']}",
        f"budget = {{epsilon = {epsilon:g}, delta = 1e-6}}",
        "# Without noise nothing is told. To allow it: max_exact_numbers = 3",
        *_entry("approve", "ask"),
        "",
        "# Columns that are not listed do not exist for anybody else. Names of columns",
        "# and categories are told to researchers.",
        f"[datasets.{json.dumps(name)}.columns]",
    ]
    for column, look in looks.items():
        lines += look.lines(column)
    return "\n".join(lines) + "\n"


def _entry(key, value):
    return [f"# {ENTRIES[key]}", f"{key} = {json.dumps(value, ensure_ascii=False)}"]


def _table(options):
    return "{" + ", ".join(f"{k} = {json.dumps(v)}" for k, v in options.items()) + "}"


def _look_at_file(path, folder):
    """Return the entries that say where rows are, and the names of columns."""
    place = folder / path
    if not place.is_file():
        raise PartitionError(f"there is no file {place.absolute()}")
    if place.suffix in (".parquet", ".pq"):
        with open_parquet(place) as file:
            return {"path": path}, file.schema_arrow.names
    options = {}
    try:
        with open(place, encoding="utf-8-sig", newline="") as handle:
            sample = handle.read(_SAMPLE)
    except UnicodeDecodeError:
        options["encoding"] = "cp1252"
        with open(place, encoding="cp1252", newline="") as handle:
            sample = handle.read(_SAMPLE)
    first, _, second = sample.partition("\n")
    separator = max(",;\t|", key=first.count)
    if separator != ",":
        options["separator"] = separator
    cells = second.replace("\r", "").replace("\n", separator).split(separator)
    if any("," in cell and _is_number(cell.replace(",", ".", 1)) for cell in cells):
        options["decimal"] = ","
    header = next(csv.reader([first.rstrip("\r")], delimiter=separator))
    return {"path": path} | ({"csv": options} if options else {}), header


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


class _Look:
    """What was seen of a column: how many rows, gaps, different values, numbers."""

    def __init__(self):
        self.n_rows = self.n_gaps = 0
        self.values, self.missing = set(), set()
        self.is_number = self.is_whole = True

    def add(self, cells):
        self.n_rows += len(cells)
        found, counts = np.unique(cells, return_counts=True)
        for text, count in zip(found.tolist(), counts.tolist()):
            if not text or text.lower() in _OFTEN_MISSING:
                self.n_gaps += count
                self.missing |= {text} - {""}
                continue
            number = text.replace(",", ".", 1)
            self.is_number &= _is_number(number)
            self.is_whole &= self.is_number and float(number).is_integer()
            if len(self.values) <= MANY:
                self.values.add(text)

    def lines(self, column):
        """Return the declaration of the column, with what was seen as a comment."""
        key = json.dumps(column, ensure_ascii=False)
        gaps = f"; {self.n_gaps} of {self.n_rows} rows lack it" * bool(self.n_gaps)
        n_values = len(self.values)
        if 0 < n_values <= MAX_CATEGORIES and (self.is_whole or not self.is_number):
            kind, words = sorted(self.values), "categories"
        elif self.is_number:
            kind = "int" if self.is_whole and not self.n_gaps else "float"
            words = "numbers"
        elif n_values > min(self.n_rows // 2, MANY):
            kind, words = "key", "keys, of persons or records"
        else:
            words = f"text with {n_values} different values: not declared"
            return [f"# {key}: {words}{gaps}"]
        declared = json.dumps(kind, ensure_ascii=False)
        return [f"{key} = {declared}  # {words}{gaps}"]
