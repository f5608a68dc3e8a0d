"""Before anybody fits: a draft of the site file, checks of its state and data."""

import csv
import json
import math
import os
import re
import sqlite3
from collections import Counter

import numpy as np

from skprivbn.exceptions import PartitionError
from skprivbn.federation._models import OURS, PROTOCOLS, announced
from skprivbn.federation._rows import open_parquet
from skprivbn.federation.gate import FEW_VALUES
from skprivbn.federation.site._account import look_at_account
from skprivbn.federation.site._entries import ENTRIES
from skprivbn.federation.site._sources import find_table
from skprivbn.federation.site._table import OFTEN_MISSING, CellError, Column
from skprivbn.utils._validation import float_or_nan


def check_state(dataset):
    """Say what keeps a site from writing down what it is asked.

    Parameters
    ----------
    dataset : Dataset

    Returns
    -------
    problems : list of str
    """
    folder = dataset.state
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        return [
            f"dataset {dataset.name}: what is asked and spent is kept in "
            f"{dataset.state}, "
            "where this user may not write: every question would be refused"
        ]
    try:
        _, problem = look_at_account(dataset)
    except (OSError, ValueError, sqlite3.Error) as error:
        return [f"dataset {dataset.name}: {error}"]
    return [] if problem is None else [problem]


def check_data(dataset):
    """Say what is wrong with the data that a site file declares.

    Parameters
    ----------
    dataset : Dataset

    Returns
    -------
    problems : list of str
        What keeps the site from taking part: the data cannot be read, rows are too few,
        cells do not hold what their column is declared to hold (the first of each).
    notes : list of str
        Missing and infinite values, which most exact fits refuse, and categories, or
        one of two or three numbers, of so few rows that exact sums of them are refused
        unless other sites have more.
    """
    table, columns = dataset.source, list(dataset.columns)
    bad, gaps, n_rows = {}, {}, 0
    kinds = {name: kind for name, kind in dataset.columns.items() if kind != "key"}
    counts = {name: Counter() for name in kinds}
    try:
        for first, cells in table.blocks(columns):
            n_rows = first + len(cells[0])
            for name, column in zip(columns, cells):
                try:
                    values = table.parse(name, first, column)
                except CellError as error:
                    bad.setdefault(name, str(error))
                else:
                    is_gap = _find_gaps(values)
                    if is_gap.any():
                        n, at = gaps.get(name, (0, first + int(np.argmax(is_gap))))
                        gaps[name] = n + np.count_nonzero(is_gap), at
                    if name in counts:
                        counts[name].update(_count(values))
                        is_few = len(counts[name]) <= FEW_VALUES
                        if not is_few and type(kinds[name]) is not list:
                            del counts[name]
    except (EOFError, ImportError, OSError, ValueError) as error:
        return [f"dataset {dataset.name} cannot be read: {error}"], []
    problems = [f"dataset {dataset.name}: {text}" for text in bad.values()]
    if n_rows < dataset.min_rows:
        problems.append(
            f"dataset {dataset.name} has {n_rows} rows, fewer than min_rows = "
            f"{dataset.min_rows}"
        )
    notes = [
        f"dataset {dataset.name}, column {name!r}: {n} of {n_rows} values are "
        f"missing or infinite, first in {table.row_word} "
        f"{table.row_number(at)}; estimators that take no gaps refuse this "
        "column until an imputer has filled them"
        for name, (n, at) in sorted(gaps.items(), key=lambda gap: columns.index(gap[0]))
    ]
    if not dataset.max_exact_fits and dataset.budget is None:
        notes.append(
            f"dataset {dataset.name}: nothing may be asked, as there is neither "
            "max_exact_numbers nor a budget"
        )
    for name, found in counts.items():
        rare = [value for value, n in found.items() if n < dataset.min_cell_count]
        if type(kinds[name]) is list:
            rare = [kinds[name][int(code)] for code in sorted(rare)]
        if rare:
            notes.append(
                f"dataset {dataset.name}, column {name!r}: fewer than "
                f"{dataset.min_cell_count} rows (min_cell_count) are {rare}; if all "
                "sites together have so few, exact sums of this column are refused"
            )
    return problems, notes


def _find_gaps(values):
    """Mark values that are missing, or no finite numbers."""
    return values == "" if values.dtype.kind == "U" else ~np.isfinite(values)


def _count(values):
    """Return how many rows have each number."""
    found, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    return dict(zip(found.tolist(), counts.tolist()))


#: different values up to which a column is taken for one of categories
MAX_CATEGORIES = 12
#: different texts above which a column is taken for one of keys
MANY = 10_000
#: bytes of a CSV file that are looked at to see how it is written
_SAMPLE = 1 << 16
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d\d?([./])\d\d?\1\d\d")


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
        Budget. The draft refuses exact answers until a person permits them.

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
        "# Exact answers are refused. To permit them to trusted researchers, write",
        "# max_exact_numbers = 3",
        *_entry("approve", "ask"),
        "",
        "# Columns that are not listed are invisible to others. Researchers read the",
        "# names of columns and categories.",
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
    return not math.isnan(float_or_nan(text))


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
            if not text or text.lower() in OFTEN_MISSING:
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
        gaps = ""
        if self.n_gaps:
            gaps = f"; {self.n_gaps} of {self.n_rows} rows have no value"
        n_values = len(self.values)
        if 0 < n_values <= MAX_CATEGORIES and (self.is_whole or not self.is_number):
            kind, words = sorted(self.values), "categories"
            if self.is_whole:
                words += '; write "int" if they are counts'
        elif self.is_number:
            kind = "int" if self.is_whole and not self.n_gaps else "float"
            words = "numbers"
            if kind == "int" and n_values == self.n_rows:
                words += ', another one in each row: "key" if they number persons'
        elif self.values and all(map(_DATE.match, self.values)):
            return [f"# {key}: dates{gaps}; not declared: make numbers, such as days"]
        elif n_values > min(self.n_rows // 2, MANY):
            kind, words = "key", "keys, of persons or records"
        else:
            words = f"text with {n_values} different values: not declared"
            return [f"# {key}: {words}{gaps}"]
        declared = json.dumps(kind, ensure_ascii=False)
        return [f"{key} = {declared}  # {words}{gaps}"]
