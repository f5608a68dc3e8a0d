"""Predictions that a site keeps for itself, in a folder that its site file names."""

import csv
import os
from pathlib import Path

import numpy as np

from skprivbn.federation.program import PartyRefusal

#: most files in the folder of results, which people at the site clear
MAX_FILES = 100


def check_room(folder):
    """Refuse results that the site has no place for.

    Parameters
    ----------
    folder : Path or None
        Of results; None if the site file names none.
    """
    if folder is None:
        raise PartyRefusal("not-allowed")
    folder.mkdir(parents=True, exist_ok=True)
    if sum(1 for _ in folder.glob("*.csv")) >= MAX_FILES:
        raise PartyRefusal("budget-exceeded")


def write_results(path, method, values, features, keys):
    """Write results as a table, a line for each row of the data in their order.

    Parameters
    ----------
    path : Path
    method : str
        Name of the method that made them.
    values : ndarray or list of ndarray
        One number or label per row, one per row and feature, or for each feature one
        per row and state.
    features : list of str
        Names of the features that the model was applied to.
    keys : dict of str to ndarray
        The data's columns of keys, which go first.
    """
    columns = dict(keys) | _columns(method, values, features)
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        raise ValueError("results do not go with the rows")
    written = Path(f"{path}.part")
    # For the owner of the process only, like the data.
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(columns)
        writer.writerows(zip(*(np.asarray(c).tolist() for c in columns.values())))
    os.replace(written, path)


def _columns(method, values, features):
    if isinstance(values, list):
        return {
            f"{name}_{state}": column
            for name, table in zip(features, values, strict=True)
            for state, column in enumerate(np.asarray(table).T)
        }
    values = np.asarray(values)
    if values.dtype.kind not in "fiub":
        # labels, which the model may have from somebody else
        values = np.vectorize(_as_text, otypes=[object])(values)
    if values.ndim == 1:
        return {method: values}
    if method == "predict" and values.shape[1] == len(features):
        return dict(zip(features, values.T))
    return {f"{method}_{i}": column for i, column in enumerate(values.T)}


def _as_text(label):
    """Return a label such that no spreadsheet takes it for a formula."""
    if isinstance(label, str) and len(label) > 1 and label[0] in "=+-@\t\r":
        return f"'{label}"
    return label
