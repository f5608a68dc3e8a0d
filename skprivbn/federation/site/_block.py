"""The rows of a question: read as the site file says, then taken through its steps."""

import hashlib
from functools import partial

import numpy as np

from skprivbn.federation._cells import is_small
from skprivbn.federation._models import rebuild_model
from skprivbn.federation._rows import RowSource, map_rows, sum_over_rows
from skprivbn.federation._wire import encode
from skprivbn.federation.program import PartyRefusal
from skprivbn.federation.site._rules import MAX_PER_ROW, check_size, is_foreign
from skprivbn.federation.site._small_cells import check_cells, check_values
from skprivbn.privacy._options import apply_step

#: bits that are kept of a step's result, from the largest number it adds up
KEPT_BITS = 46


def rebuild_steps(steps, n_features):
    """Return the fitted transformers of a session and the features that come out."""
    made, most = [], max(MAX_PER_ROW, n_features)
    for step in steps:
        made.append(rebuild_model(step, n_features))
        n_features = len(made[-1].get_feature_names_out())
        check_size(n_features, most)
    return made, n_features


def _transform(X, step, is_noisy):
    """Return rows after a step.

    Steps are the coordinator's: they can be such that one row overflows. To refuse
    then, or for a row that is no number, would answer without noise.
    """

    def transform(rows):
        try:
            rows = np.asarray(rows, dtype=np.float64)
            if is_noisy:
                return apply_step(step, rows)
            return _rounded(step, rows, step.transform(rows))
        except (TypeError, ValueError):
            raise PartyRefusal("invalid-data") from None

    return map_rows(X, transform, step.get_feature_names_out())


def _rounded(step, rows, made):
    """Round what a step makes of rows, all to the same digit.

    Of large numbers that cancel, floating point leaves nothing of the small one beside
    them, but where they happen to be zero: a filter that finds one patient.
    """
    if not hasattr(step, "_summands"):
        return made
    largest = np.nanmax(step._summands(rows), axis=0, initial=2.0**-900)
    grid = np.exp2(np.ceil(np.log2(largest)) - KEPT_BITS)
    return np.where(np.isfinite(grid), np.round(made / grid) * grid, made)


def digest_of_fill(question, n_steps, values):
    """Return what identifies the values with which gaps of columns are filled.

    Parameters
    ----------
    question : Question
    n_steps : int
        How many of its steps come before.
    values : list
        One for each column.

    Returns
    -------
    digest : str
    """
    steps, columns = question.agreement.data["steps"][:n_steps], question.columns
    values = np.asarray(values).tolist()
    asked = [question.dataset.account, columns, steps, values]
    return hashlib.sha256(encode({"fill": asked})).hexdigest()


def fills_of_result(question, result):
    """Yield what identifies the fills that a result of this site tells.

    Parameters
    ----------
    question : Question
    result : object
        Means, medians or most frequent values of columns are told by some programs.
    """
    told = result if isinstance(result, dict) else {}
    for name in ("mean", "winners", "quantiles"):
        values, n_features = told.get(name), question.n_features
        if isinstance(values, np.ndarray) and values.shape == (n_features, 1):
            values = values[:, 0]  # of medians, there is one for each column
        values = values.tolist() if isinstance(values, np.ndarray) else values
        is_row = isinstance(values, list) and len(values) == n_features
        if is_row and all(isinstance(x, str | int | float | None) for x in values):
            yield digest_of_fill(question, len(question.steps), values)


def prepare_rows(question, block, is_known=lambda digest: False):
    """Return rows after all steps, none of which may set few of them apart.

    Parameters
    ----------
    question : Question
    block : dict
        Of :func:`read_block`.
    is_known : callable
        Tells of a digest whether this site has helped to find such a fill.

    Returns
    -------
    X : ndarray or RowSource
    """
    X, steps = block["X"], question.steps
    names, is_grouped = question.columns, np.zeros(X.shape[1], dtype=bool)
    summed, few = question.summed_columns, question.dataset.min_cell_count
    if question.is_exact and (steps or not question.agreement.data["finite"]):
        _check_filled(X, question)
    for i, step in enumerate(steps):
        before, X = X, _transform(X, step, question.noise is not None)
        is_grouped = np.full(X.shape[1], getattr(step, "_cuts_rows", False))
        names = [f"{name} after steps" for name in step.get_feature_names_out()]
        if summed and hasattr(step, "_sets_apart"):
            _check_apart(step._sets_apart, before, few)
            fill = getattr(step, "statistics_", None)
            if fill is not None and not is_known(digest_of_fill(question, i, fill)):
                _check_made_up(step._sets_apart, before, X, few, names)
    if summed and is_foreign(question.program):
        _check_all(X, block, few, names)
    if summed:
        weights = block.get("sample_weight", np.ones(len(X)))
        check_values(X, weights, summed, is_grouped, few, names)
    if summed and question.terms.fills_gaps():
        _check_apart(np.isnan, X, few)
    if steps and question.agreement.data["finite"]:
        X = map_rows(X, _refuse_gaps)
    return X


def _check_all(X, block, min_cell_count, names):
    """Refuse if few rows share a value of a column, of what goes with it, or both.

    Nobody knows how much rows count in the sums of a protocol that is not this
    package's: it may say that all count alike.
    """
    roles = sorted({"y", "offset", "sample_weight"} & set(block))
    codes = [np.unique(block[role], return_inverse=True)[1] for role in roles]
    values = np.column_stack([np.asarray(X), *codes]).astype(np.float64)
    is_grouped = np.zeros(values.shape[1], dtype=bool)
    columns, names = range(values.shape[1]), [*names, *roles]
    check_cells(values, columns, is_grouped, min_cell_count, names)


def _check_filled(X, question):
    """Refuse a column that few rows here have, or none: its sums are other sites'."""
    n_filled = sum_over_rows(X, lambda rows: np.sum(~np.isnan(rows), axis=0))
    if not question.steps:
        n_filled = n_filled[question.terms.filled_columns(len(n_filled))]
    if np.any(n_filled < question.dataset.min_rows):
        why = f"{n_filled.min()} rows have a value of a column: fewer than min_rows"
        raise PartyRefusal("too-few-rows", why)


def _check_apart(mark, X, min_cell_count):
    """Refuse if few rows have an entry in the place of which a number is made up.

    Two sums, with different numbers in their place, differ by what is known of them.
    """
    marked = sum_over_rows(X, lambda rows: mark(np.asarray(rows)).sum(axis=0))
    if np.any(is_small(marked, min_cell_count)):
        why = f"fewer than {min_cell_count} rows (min_cell_count) lack an entry"
        raise PartyRefusal("too-detailed", why)


def _check_made_up(mark, before, after, min_cell_count, names):
    """Refuse if few rows share a gap and a value, or two gaps, that are filled.

    Nobody knows where the fill comes from: with another one, sums of products differ
    by what is known of the rows with a gap.
    """
    marks = mark(np.asarray(before))
    both = np.column_stack([np.asarray(after), marks]).astype(np.float64)
    is_grouped = np.zeros(both.shape[1], dtype=bool)
    names = [*names, *(f"gaps of column {i}" for i in range(marks.shape[1]))]
    check_cells(both, range(both.shape[1]), is_grouped, min_cell_count, names)


def _refuse_gaps(rows):
    known = np.isfinite(rows)
    if not known.all():
        why = "entries are missing or infinite: see site-policy --check"
        raise PartyRefusal("gaps", why, np.flatnonzero(~known.all(axis=0)).tolist())
    return rows


def effective_rows(block):
    """Return how many rows a block is about, given how much each counts.

    A column of weights that are nearly all nothing is a filter. Kish's number of rows
    is that of equal weights with the same variance of a mean.

    Parameters
    ----------
    block : dict

    Returns
    -------
    n_rows : float
    """
    weights = block.get("sample_weight")
    if weights is None:
        return float(len(block["X"]))
    try:
        weights = np.abs(np.asarray(weights, dtype=np.float64))
    except ValueError:
        raise PartyRefusal("invalid-data") from None
    largest = weights.max(initial=0.0)
    if not 0 < largest < np.inf:
        return 0.0
    # no square of a weight overflows
    weights = weights / largest
    return float(weights.sum() ** 2 / np.sum(weights**2))


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
