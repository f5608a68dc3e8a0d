"""The rows of a question: read as the site file says, then taken through its steps."""

from functools import partial

import numpy as np

from skprivbn.federation._models import rebuild_model
from skprivbn.federation._rows import (
    RowSource,
    map_rows,
    paired_blocks,
    sum_over_rows,
)
from skprivbn.federation.program import PartyRefusal
from skprivbn.federation.site._rules import MAX_PER_ROW, check_size
from skprivbn.federation.site._small_cells import check_cells
from skprivbn.privacy._options import apply_step

#: bits that are kept of a step's result, from the largest number it adds up
KEPT_BITS = 46
#: what goes with the rows into exact sums
_SUMMED_ROLES = {"y", "offset", "sample_weight"}


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


def prepare_rows(question, block):
    """Return rows after all steps, none of which may set few of them apart.

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
    names = question.columns
    kinds = [question.dataset.columns[column] for column in names]
    is_grouped = np.array([isinstance(kind, list) for kind in kinds])
    summed, few = question.summed_columns, question.dataset.min_cell_count
    if question.is_exact and (steps or not question.agreement.data["finite"]):
        _check_filled(X, question)
    for step in steps:
        if summed:
            check_cells(X, range(X.shape[1]), is_grouped, few, names)
        before, X = X, _transform(X, step, question.noise is not None)
        is_grouped = np.full(X.shape[1], getattr(step, "_groups_rows", False))
        names = [f"{name} after steps" for name in step.get_feature_names_out()]
        if summed and hasattr(step, "_sets_apart"):
            _check_apart(step._sets_apart, before, X, is_grouped, few, names)
    if summed:
        _check_summed(X, summed, is_grouped, block, few, names)
    if summed and question.terms.fills_gaps():
        _check_apart(np.isnan, X, X, is_grouped, few, names)
    if steps and question.agreement.data["finite"]:
        X = map_rows(X, _refuse_gaps)
    return X


def _check_summed(X, columns, is_grouped, block, min_cell_count, names):
    """Refuse if few rows share a value of a column, of what goes with it, or both."""
    roles = sorted(_SUMMED_ROLES & set(block))
    if roles:
        codes = [np.unique(block[role], return_inverse=True)[1] for role in roles]
        _check_others(dict(zip(roles, codes)), min_cell_count)
        n_columns = X.shape[1]
        X = _side_by_side(X, np.column_stack(codes).astype(np.float64))
        columns = [*columns, *range(n_columns, X.shape[1])]
        is_grouped = np.append(is_grouped, np.zeros(len(roles), dtype=bool))
    check_cells(X, columns, is_grouped, min_cell_count, [*names, *roles])


def _check_others(codes, min_cell_count):
    """Refuse if all but few rows share a value: sums without it differ by these."""
    for role, values in codes.items():
        if 0 < len(values) - np.bincount(values).max(initial=0) < min_cell_count:
            raise PartyRefusal("too-detailed", f"{role} is the same in nearly all rows")


def _check_filled(X, question):
    """Refuse a column that few rows here have, or none: its sums are other sites'."""
    n_filled = sum_over_rows(X, lambda rows: np.sum(~np.isnan(rows), axis=0))
    if not question.steps:
        n_filled = n_filled[question.terms.filled_columns(len(n_filled))]
    if np.any(n_filled < question.dataset.min_rows):
        why = f"{n_filled.min()} rows have a value of a column: fewer than min_rows"
        raise PartyRefusal("too-few-rows", why)


def _check_apart(mark, before, after, is_grouped, min_cell_count, names):
    """Refuse if few rows have an entry in the place of which a number is made up.

    Two sums, with different numbers in their place, differ by what is known of them.
    """
    marks = map_rows(before, lambda rows: mark(np.asarray(rows)))
    is_grouped = np.append(is_grouped, np.full(before.shape[1], True))
    both = _side_by_side(after, marks)
    names = [*names, *(f"gaps of column {i}" for i in range(before.shape[1]))]
    check_cells(both, range(len(is_grouped)), is_grouped, min_cell_count, names)


def _side_by_side(X, values):
    """Return rows with further columns: in memory, or read as they are."""
    if not isinstance(X, RowSource):
        return np.hstack([X, values])

    def read():
        yield from map(np.hstack, paired_blocks(X, values))

    return RowSource(read, len(X), map(str, range(X.shape[1] + values.shape[1])))


def _refuse_gaps(rows):
    if not np.all(np.isfinite(rows)):
        why = "entries are missing or infinite: see site-policy --check"
        raise PartyRefusal("invalid-data", why)
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
                raise PartyRefusal("invalid-data")
            block[key] = np.array(labels)[block[key]]
    return block


def _known_persons(keys):
    """Return who is behind each row, None where the cell is empty.

    Of rows of nobody known, taken for one person's, somebody's would move all others'.
    """
    return np.where(keys == "", None, keys) if keys.dtype.kind == "U" else keys
