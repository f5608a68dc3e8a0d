"""Rows of a site as a session gets them, and predictions that the site keeps."""

import csv
import hashlib
import os
from functools import partial
from pathlib import Path

import numpy as np

from skprivbn.federation._models import SomeColumns, rebuild_model
from skprivbn.federation._rows import RowSource, map_rows
from skprivbn.federation._wire import decode, encode
from skprivbn.federation.program import PartyRefusal, refuse_malformed
from skprivbn.privacy._options import apply_step

#: most files in the folder of results, which people at the site clear
MAX_FILES = 100
#: parts of results that fitted transformers, and networks of columns, are made of
_MADE_OF = (
    "mean",
    "covariance",
    "n_rows",
    "winners",
    "quantiles",
    "categories",
    "rare",
    "states",
    "parents",
    "counts",
    "local_counts",
    "cross_counts",
)


def digest_of_rows(question, n_steps, further=()):
    """Return what identifies the rows of a dataset after some of the steps.

    Parameters
    ----------
    question : Question
    n_steps : int
    further : sequence of dict, default=()
        Steps after these.

    Returns
    -------
    digest : str
    """
    steps, columns = question.agreement.data["steps"][:n_steps], question.columns
    asked = [question.dataset.account, columns, [*steps, *further]]
    return hashlib.sha256(encode({"rows": asked})).hexdigest()


def results_to_keep(result):
    """Return the parts of a result that models to be applied are made of, in bytes.

    Parameters
    ----------
    result : object

    Returns
    -------
    found : bytes or None
    """
    told = result if isinstance(result, dict) else {}
    kept = {name: told[name] for name in _MADE_OF if name in told}
    return encode(kept) if kept else None


def check_steps(question, results_of):
    """Refuse steps that this site has not helped to fit, in front of exact answers.

    Whoever makes up a transformer chooses what sets rows apart: another number in the
    place of a gap, a label that is left out, axes along which one row is alone. Noise
    hides rows whatever the steps. A score of rows is one number, of a model that
    anybody may make up, and the gate looks at it. At a score of columns nobody can
    look: its model may give all weight to one person.

    Parameters
    ----------
    question : Question
    results_of : callable
        From a digest of rows to the results that the site has found of these.
    """
    names, kinds = question.columns, question.dataset.columns
    # rows have the numbers of declared labels
    codes = {c: list(range(len(k))) for c, k in kinds.items() if isinstance(k, list)}
    if not question.is_exact:
        return
    if question.terms.joins_columns():
        check_models(question, results_of)
    if question.terms.models():
        return
    for i, step in enumerate(question.steps):
        labels = [codes.get(name) for name in names]
        chosen = [step.chosen] if isinstance(step, SomeColumns) else []
        found = map(decode, results_of(digest_of_rows(question, i, chosen)))
        is_known = step._is_declared(labels) or any(map(step._was_found, found))
        digest = digest_of_rows(question, i + 1)
        if not is_known and digest not in question.dataset.steps:
            why = f"step {i + 1} was not fitted to these columns with this site, and "
            why += f'is not in the site file: steps = ["{digest}"] would allow it'
            raise PartyRefusal("unknown-step", why)
        names = step.get_feature_names_out(names).tolist()


def check_models(question, results_of):
    """Refuse to score columns under models that this site has not helped to fit.

    Parameters
    ----------
    question, results_of :
        As of :func:`check_steps`.
    """
    listed, n_columns = question.dataset.steps, len(question.terms.owners)
    found = [*map(decode, results_of(digest_of_rows(question, len(question.steps))))]
    for model in question.terms.models():
        digest = hashlib.sha256(encode({"model": model})).hexdigest()
        scored = rebuild_model(model, n_columns)
        if digest not in listed and not any(map(scored._was_found, found)):
            why = "the model was not fitted to these columns with this site, and is "
            why += f'not in the site file: steps = ["{digest}"] would allow it'
            raise PartyRefusal("unknown-step", why)


def prepare_rows(question, block):
    """Return rows after all steps.

    Parameters
    ----------
    question : Question
    block : dict
        Of :func:`read_block`.

    Returns
    -------
    X : ndarray or RowSource
    """
    X, steps = block["X"], question.steps
    for step in steps:
        X = _transform(X, step, question.noise is not None)
    if steps and question.agreement.data["finite"]:
        X = map_rows(X, _refuse_gaps)
    return X


def _transform(X, step, is_noisy):
    """Return rows after a step; with noise, of which none may be refused."""

    def transform(rows):
        with refuse_malformed("invalid-data"):
            rows = np.asarray(rows, dtype=np.float64)
            return apply_step(step, rows) if is_noisy else step.transform(rows)

    return map_rows(X, transform, step.get_feature_names_out())


def _refuse_gaps(rows):
    known = np.isfinite(rows)
    if not known.all():
        why = "entries are missing or infinite: see site-policy --check"
        raise PartyRefusal("gaps", why, np.flatnonzero(~known.all(axis=0)).tolist())
    return rows


def _read_on(source):
    """Read rows in blocks; what is wrong with them is the site's to know."""
    with refuse_malformed("invalid-data"):
        yield from source.blocks()


def read_block(dataset, columns, data):
    """Return a party's block.

    Parameters
    ----------
    dataset : Dataset
    columns : list of str
        Which make up X, in this order.
    data : dict
        The session's description of data.

    Returns
    -------
    block : dict of str to ndarray
        Rows may also be a ``RowSource``, which is read whenever it is used.
    """
    aligned = data["aligned"]
    # a parser's message quotes the cell it stumbled over: only the code travels on
    with refuse_malformed("invalid-data"):
        X, values = dataset.read_rows(columns, set(aligned.values()))

    def check(rows):
        rows = rows.astype(np.float64) if data["float"] else rows
        # one of the steps may fill gaps
        must_be_finite = data["finite"] and not data["steps"]
        return _refuse_gaps(rows) if must_be_finite else rows

    if isinstance(X, RowSource):
        X = RowSource(partial(_read_on, X), len(X), X.columns)
    block = {"X": map_rows(X, check)}
    for key, column in aligned.items():
        block[key] = values[column]
        labels = dataset.columns[column]
        if key == "individual":
            block[key] = _known_persons(values[column])
        elif isinstance(labels, list):
            if block[key].dtype.kind == "f":
                raise PartyRefusal("gaps", f"{column} has empty cells", [key])
            block[key] = np.array(labels)[block[key]]
    return block


def _known_persons(keys):
    """Return who is behind each row, None where the cell is empty.

    Of rows of nobody known, taken for one person's, somebody's would move all others'.
    """
    return np.where(keys == "", None, keys) if keys.dtype.kind == "U" else keys


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
