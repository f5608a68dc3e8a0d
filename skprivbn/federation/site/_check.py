"""What the people at a site want to know before anybody fits: peers, and the data."""

import numpy as np

from skprivbn.federation.site._cells import CellError


def check_peers(site_file, servers):
    """Say what is wrong with the sites that a site file names as peers.

    Parameters
    ----------
    site_file : SiteFile
    servers : set of str
        Names of the servers that the startup kit knows.

    Returns
    -------
    problems : list of str
    """
    problems = [
        f"peers names {name!r}, which is the server: as a site it could make "
        "everybody's key and read what it relays. Sessions with it are refused; take "
        "it out"
        for name in sorted(servers & set(site_file.peers))
    ]
    n_sites = len(set(site_file.peers) - servers)
    if n_sites + 1 < site_file.min_parties:
        problems.append(
            f"min_parties is {site_file.min_parties}, and peers names {n_sites} "
            "sites: no session has so many"
        )
    return problems


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
        Missing and infinite values, which most exact fits refuse, and categories of so
        few rows that exact sums of them are refused.
    """
    table, columns = dataset.source, list(dataset.columns)
    bad, gaps, n_rows = {}, {name: _Gaps() for name in columns}, 0
    labels = {
        name: kind for name, kind in dataset.columns.items() if type(kind) is list
    }
    counts = {name: np.zeros(len(states), int) for name, states in labels.items()}
    try:
        for numbers, cells in table.cells(columns):
            n_rows += len(numbers)
            for name, column in zip(columns, cells):
                try:
                    values = table.parse(name, numbers, column)
                except CellError as error:
                    bad.setdefault(name, str(error))
                else:
                    gaps[name].add(values, numbers)
                    if name in labels:
                        known = values[np.isfinite(values)].astype(int)
                        counts[name] += np.bincount(known, minlength=len(labels[name]))
    except (EOFError, ImportError, OSError, ValueError) as error:
        return [f"dataset {dataset.name} cannot be read: {error}"], []
    problems = [f"dataset {dataset.name}: {text}" for text in bad.values()]
    if n_rows < dataset.min_rows:
        problems.append(
            f"dataset {dataset.name} has {n_rows} rows, fewer than min_rows"
        )
    notes = [
        f"dataset {dataset.name}, column {name!r}: {found.n} of {n_rows} values are "
        f"missing or infinite, first in {table.row_word} {found.first}; most exact "
        "fits of this column are refused"
        + ", also after filling so few"
        * (found.n < dataset.min_cell_count)
        for name, found in gaps.items()
        if found.n
    ]
    for name, states in labels.items():
        found = zip(states, counts[name].tolist())
        rare = [state for state, n in found if 0 < n < dataset.min_cell_count]
        if rare:
            notes.append(
                f"dataset {dataset.name}, column {name!r}: fewer than "
                f"{dataset.min_cell_count} rows (min_cell_count) are {rare}; exact "
                "sums of this column are refused"
            )
    return problems, notes


class _Gaps:
    """Counts values of one column that are no finite numbers."""

    def __init__(self):
        self.n, self.first = 0, None

    def add(self, values, numbers):
        gaps = values == "" if values.dtype.kind == "U" else ~np.isfinite(values)
        if not gaps.any():
            return
        if self.first is None:
            self.first = numbers[int(np.argmax(gaps))]
        self.n += int(np.count_nonzero(gaps))
