"""Rows of a site as a session gets them: read, checked, and after its steps."""

import hashlib
from functools import partial

import numpy as np

from skprivbn.federation._models import SomeColumns
from skprivbn.federation._rows import RowSource, map_rows
from skprivbn.federation._wire import decode, encode
from skprivbn.federation.program import PartyRefusal
from skprivbn.privacy._options import apply_step

#: parts of results that fitted transformers are made of
_MADE_OF = (
    "mean",
    "covariance",
    "n_rows",
    "winners",
    "quantiles",
    "categories",
    "rare",
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
    """Return the parts of a result that fitted transformers are made of, in bytes.

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
    hides rows whatever the steps; a score is one number, of a model that anybody may
    make up.

    Parameters
    ----------
    question : Question
    results_of : callable
        From a digest of rows to the results that the site has found of these.
    """
    names, kinds = question.columns, question.dataset.columns
    # rows have the numbers of declared labels
    codes = {c: list(range(len(k))) for c, k in kinds.items() if isinstance(k, list)}
    if not question.is_exact or question.terms.models():
        return
    for i, step in enumerate(question.steps):
        labels = [codes.get(name) for name in names]
        chosen = [step.chosen] if isinstance(step, SomeColumns) else []
        found = map(decode, results_of(digest_of_rows(question, i, chosen)))
        if not step._is_declared(labels) and not any(map(step._was_found, found)):
            why = f"step {i + 1} was not fitted to these columns with this site"
            raise PartyRefusal("unknown-step", why)
        names = step.get_feature_names_out(names).tolist()


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
        try:
            rows = np.asarray(rows, dtype=np.float64)
            return apply_step(step, rows) if is_noisy else step.transform(rows)
        except (TypeError, ValueError):
            raise PartyRefusal("invalid-data") from None

    return map_rows(X, transform, step.get_feature_names_out())


def _refuse_gaps(rows):
    known = np.isfinite(rows)
    if not known.all():
        why = "entries are missing or infinite: see site-policy --check"
        raise PartyRefusal("gaps", why, np.flatnonzero(~known.all(axis=0)).tolist())
    return rows


def _read_on(source):
    """Read rows in blocks; what is wrong with them is the site's to know."""
    try:
        yield from source.blocks()
    except (OSError, ValueError):
        raise PartyRefusal("invalid-data") from None


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
    try:
        X, values = dataset.read_rows(columns, set(aligned.values()))
    except (OSError, ValueError, KeyError, IndexError, EOFError):
        # A parser's message quotes the cell it stumbled over: it must not travel on.
        raise PartyRefusal("invalid-data") from None

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
