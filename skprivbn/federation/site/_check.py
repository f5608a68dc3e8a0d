"""Reads a dataset as a fit would, for the people at its site, before anybody fits."""

import numpy as np

from skprivbn.federation.site._cells import CellError

__all__ = ["check_data"]


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
        Missing and infinite values, which most exact fits refuse.
    """
    table, columns = dataset.source, list(dataset.columns)
    bad, gaps, n_rows = {}, {name: _Gaps() for name in columns}, 0
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
        for name, found in gaps.items()
        if found.n
    ]
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
