"""What the people at a site want to know before anybody fits: peers, and the data."""

import os
import sqlite3
from collections import Counter

import numpy as np

from skprivbn.federation.site._account import look_at_account
from skprivbn.federation.site._cells import CellError

#: numbers that means and squares tell apart
FEW_VALUES = 3


def check_peers(site_file, name, servers):
    """Say what is wrong with the sites that a site file names as peers.

    Parameters
    ----------
    site_file : SiteFile
    name : str
        Of the site.
    servers : set of str
        Names of the servers that the startup kit knows.

    Returns
    -------
    problems : list of str
    """
    problems = [
        f"peers names {server!r}, which is the server: as a site it could make "
        "everybody's key and read what it relays. Sessions with it are refused; take "
        "it out"
        for server in sorted(servers & set(site_file.peers))
    ]
    others = sorted(set(site_file.peers) - servers - {name})
    problems += [
        f"dataset {dataset.name}: min_parties is {dataset.min_parties}, and peers "
        f"names {others} beside {name}: no session has so many sites"
        for dataset in site_file.datasets.values()
        if len(others) + 1 < dataset.min_parties
    ]
    return problems


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
    bad, gaps, n_rows = {}, {name: _Gaps() for name in columns}, 0
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
                    gaps[name].add(values, first)
                    if name in counts:
                        counts[name].update(_count(values))
                        is_grouped = type(kinds[name]) is list
                        if not is_grouped and len(counts[name]) > FEW_VALUES:
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
        f"dataset {dataset.name}, column {name!r}: {found.n} of {n_rows} values are "
        f"missing or infinite, first in {table.row_word} "
        f"{table.row_number(found.first)}; estimators that take no gaps refuse this "
        "column until an imputer has filled them"
        for name, found in gaps.items()
        if found.n
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


def _count(values):
    """Return how many rows have each number."""
    found, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    return dict(zip(found.tolist(), counts.tolist()))


class _Gaps:
    """Counts values of one column that are no finite numbers."""

    def __init__(self):
        self.n, self.first = 0, None

    def add(self, values, first):
        gaps = values == "" if values.dtype.kind == "U" else ~np.isfinite(values)
        if not gaps.any():
            return
        if self.first is None:
            self.first = first + int(np.argmax(gaps))
        self.n += int(np.count_nonzero(gaps))
