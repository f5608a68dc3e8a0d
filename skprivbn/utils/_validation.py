"""The one door of tables: what users give, and how parties read their blocks.

scikit-learn's validation, with a word on which column is incomplete; what stands for a
missing value; numbers between bounds, labels as codes.

Strictly, what does not belong into a table is an error. Where noise is to hide rows, an
error would tell that there is such a row: then nothing raises, and how a row is read
depends on that row alone.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, validate_data

from skprivbn.utils._sklearn import _check_feature_names_in

MISSING = -1
#: a column with more distinct numbers is hardly one of labels
MANY_NUMBERS = 30


def keep_types(X: Any) -> Any:
    """Return a table in which text stays text, and numbers stay numbers.

    numpy makes text of all numbers in nested lists if one entry is text, and complex
    numbers, which scikit-learn refuses, if one is complex: one row would then change
    how all others are read, which no noise for one row hides. scikit-learn
    makes numbers of all columns of a dataframe, categories of text included, beside
    booleans and pandas' own types of numbers. Both stay what they are as objects.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)

    Returns
    -------
    X : array-like of shape (n_samples, n_features)
        Other tables as they are.
    """
    refuse_dates(X)
    if isinstance(X, list | tuple) and np.asarray(X).dtype.kind in "SUc":
        return np.array(X, dtype=object)
    if not (hasattr(X, "columns") and hasattr(X, "dtypes") and hasattr(X, "astype")):
        return X
    kinds = [
        (getattr(dtype, "kind", "O"), isinstance(dtype, np.dtype)) for dtype in X.dtypes
    ]
    is_text = [kind not in "biuf" for kind, _ in kinds]
    is_odd = [kind in "bc" or (kind in "iuf" and not own) for kind, own in kinds]
    return X.astype(object) if any(is_text) and any(is_odd) else X


def refuse_dates(X: Any) -> None:
    """Name the columns of a table that are declared as dates or durations.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
    """
    dtypes = getattr(X, "dtypes", None)
    if hasattr(X, "columns") and dtypes is not None:
        dates = [name for name, dtype in zip(X.columns, dtypes) if _is_date(dtype)]
        if dates:
            raise ValueError(
                f"columns {dates} are dates: make numbers, such as days since "
                "admission, or leave them out"
            )
    elif isinstance(X, np.ndarray) and _is_date(X.dtype):
        raise ValueError("X holds dates: make numbers, such as days since admission")


def _is_date(dtype):
    if hasattr(dtype, "is_temporal"):  # polars
        return dtype.is_temporal()
    return getattr(dtype, "kind", "O") in "Mm"


def without_columns(X: Any) -> Any:
    """Return a frame without columns, which scikit-learn refuses, as an array."""
    if hasattr(X, "columns") and hasattr(X, "dtypes") and len(X.columns) == 0:
        return np.empty((len(X), 0))
    return X


def validate_table(
    estimator: Any, X: Any, *, ensure_all_finite: bool | str = True, **options: Any
) -> np.ndarray:
    """Return `X` as scikit-learn's ``validate_data`` does.

    Where entries are missing, the message names the columns. It does not advise to
    impute them in one table, which the parties do not have.

    Parameters
    ----------
    estimator : estimator
    X : array-like of shape (n_samples, n_features)
    ensure_all_finite : bool or "allow-nan", default=True
        False takes every entry, also what is no number where floats are wanted.
    **options
        Of ``validate_data``.

    Returns
    -------
    X : ndarray
    """
    dtype = options.get("dtype", "numeric")
    refuse_dates(X)
    X = without_columns(X)
    if dtype is None:
        X = keep_types(X)
    if ensure_all_finite is False and wants_floats(dtype):
        numbers, reset = numbers_or_gaps(X), options.pop("reset", True)
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        return check_array(
            numbers, estimator=estimator, ensure_all_finite=False, **options
        )
    with refuse_text(X, getattr(X, "columns", None)):
        X = validate_data(estimator, X, ensure_all_finite=False, **options)
    refuse_missing(
        X,
        _check_feature_names_in(estimator),
        ensure_all_finite,
        otherwise=other_ways(estimator),
    )
    return X


def check_block(
    rows: Any,
    names: Sequence,
    *,
    dtype: Any = "numeric",
    ensure_all_finite: bool | str = True,
    holder: str = "",
    otherwise: str = "",
    **checks: Any,
) -> np.ndarray:
    """Return columns that somebody holds, of the wanted type, or name what is wrong.

    Parameters
    ----------
    rows : array-like of shape (n_samples, n_features)
    names : sequence of str
        Of the columns.
    dtype, ensure_all_finite, **checks :
        As in :func:`validate_table`.
    holder, otherwise : str, default=""
        As in :func:`refuse_missing`.

    Returns
    -------
    rows : ndarray
    """
    if ensure_all_finite is False and wants_floats(dtype):
        rows = numbers_or_gaps(rows)
    with refuse_text(rows, names, holder):
        rows = check_array(rows, dtype=dtype, ensure_all_finite=False, **checks)
    refuse_missing(rows, names, ensure_all_finite, holder, otherwise)
    return rows


def wants_floats(dtype: Any) -> bool:
    """Tell whether every type that an estimator accepts is a floating-point type."""
    kinds = dtype if isinstance(dtype, list | tuple) else [dtype]
    return all(
        kind not in (None, "numeric") and np.issubdtype(kind, np.floating)
        for kind in kinds
    )


def numbers_or_gaps(X: Any) -> Any:
    """Return a table of numbers, in which what is no number is missing.

    For rows that noise is to hide: an error would tell that there is such an entry.
    Dates, and categories none of which is a number, are declared; they stay, for others
    to refuse.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)

    Returns
    -------
    X : array-like of shape (n_samples, n_features)
        Tables of numbers only as they are.
    """
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        kinds = [_kind_of_numbers(dtype) for dtype in X.dtypes]
        if None in kinds or set(kinds) <= set("biuf"):
            return X
    elif isinstance(X, list | tuple | np.ndarray):
        dtype = np.asarray(X).dtype
        is_declared = dtype.kind in "Mm" and isinstance(X, np.ndarray)
        if is_declared or (dtype.kind in "biuf" and dtype.itemsize <= 8):
            return X
    else:
        return X
    table = np.array(X, dtype=object)
    with np.errstate(all="ignore"):
        return np.frompyfunc(float_or_nan, 1, 1)(table).astype(np.float64)


def _kind_of_numbers(dtype):
    """Return numpy's kind of a column, "O" if not known, None if it has no numbers."""
    labels = declared_labels(dtype)
    if labels and all(math.isnan(float_or_nan(label)) for label in labels):
        return None
    if hasattr(dtype, "is_numeric"):  # polars
        return "f" if dtype.is_numeric() else "O"
    kind = getattr(dtype, "kind", "O")
    return None if kind in "Mm" else kind


@contextmanager
def refuse_text(
    X: Any, names: Sequence | None = None, holder: str = ""
) -> Iterator[None]:
    """Name the columns where numpy only says that it cannot make a number of text.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        What is checked inside.
    names : sequence, default=None
        Of the columns.
    holder : str, default=""
        Party that holds the rows.

    Yields
    ------
    None
    """
    try:
        yield
    except ValueError as error:
        if "could not convert string to float" not in str(error):
            raise
        table = np.asarray(X, dtype=object)
        text = np.frompyfunc(_is_text, 1, 1)(table).astype(bool)
        if names is None:
            names = [f"x{i}" for i in range(table.shape[-1])]
        which = "it" if text.any(axis=0).sum() == 1 else "them"
        raise ValueError(
            f"X has text in {_columns(text, names)}{_of_party(holder)}, where numbers "
            f"are needed: leave {which} out, or make numbers of labels, as all parties "
            "together can with skprivbn.preprocessing.FederatedOneHotEncoder"
            "(columns=...)"
        ) from error


def _is_text(value):
    try:
        float(value)
    except ValueError:
        return True
    except TypeError:
        return False
    return False


def refuse_missing(
    X: np.ndarray,
    names: Sequence[str],
    ensure_all_finite: bool | str = True,
    holder: str = "",
    otherwise: str = "",
) -> None:
    """Raise if entries are missing or infinite, and name their columns.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    names : sequence of str
        Of the columns.
    ensure_all_finite : bool or "allow-nan", default=True
        As in scikit-learn: False allows everything.
    holder : str, default=""
        Whose table it is, for the message.
    otherwise : str, default=""
        What else can be done, from :func:`other_ways`.
    """
    if ensure_all_finite is False or X.dtype.kind not in "fO":
        return
    missing = missing_entries(X)
    infinite = np.isinf(X) if X.dtype.kind == "f" else np.zeros_like(missing)
    where = _of_party(holder)
    if ensure_all_finite != "allow-nan" and missing.any():
        raise ValueError(
            f"X contains NaN in {_columns(missing, names)}{where}: leave out (dropna) "
            f"or complete these rows{otherwise}"
        )
    if infinite.any():
        raise ValueError(
            f"X contains infinity or a value too large for {X.dtype!r} in "
            f"{_columns(infinite, names)}{where}"
        )


def other_ways(estimator: Any, *, of_rows: bool = True) -> str:
    """Say what else can be done about gaps: by the estimator, or by holders of rows."""
    constraints, words = getattr(estimator, "_parameter_constraints", {}), ""
    of_rows = of_rows and getattr(estimator, "parties", None) is None
    known, plain = constraints.get("missing"), {"auto", "error"}
    known = known[0].options if known and estimator.missing in plain else set()
    if known and (of_rows or "em" not in known):  # EM is for rows only
        options = sorted(known - plain)
        words = f", or you set missing={' or '.join(map(repr, options))}"
    if not of_rows:
        return f"{words}; without keys=, all parties leave out the same rows"
    return (
        f"{words}; all parties together can with "
        "skprivbn.preprocessing.FederatedSimpleImputer"
    )


def _of_party(holder):
    return f" of party {holder!r}" if holder else ""


def _columns(wrong, names):
    """Return the names of columns with wrong entries, at most five."""
    found = [str(name) for name, is_wrong in zip(names, wrong.any(axis=0)) if is_wrong]
    if len(found) == 1:
        return f"column {found[0]!r}"
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return f"columns {found[:5]}{more}"


def is_missing(value: Any) -> bool:
    """Whether a value stands for an unknown one: None, NaN, pandas' NA or NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(value != value)


def missing_entries(X: np.ndarray) -> np.ndarray:
    """Mark the entries of a table that stand for unknown ones."""
    if X.dtype.kind == "f":
        return np.isnan(X)
    if X.dtype.kind != "O":
        return np.zeros(X.shape, dtype=bool)
    with suppress(TypeError):  # what is not hashable is looked at one by one
        if not any(map(is_missing, set(X.ravel(order="K").tolist()))):
            return np.zeros(X.shape, dtype=bool)
    return np.frompyfunc(is_missing, 1, 1)(X).astype(bool)


def float_or_nan(value: Any) -> float:
    """Return a value as a number, and NaN for what is none."""
    if isinstance(value, complex | np.complexfloating):
        # float() drops half of numpy's, and warns
        return float(value.real) if value.imag == 0 else math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def label_text(label: Any) -> str | None:
    """Return a label as text: the same of 1, 1.0, "1" and "1.0"; None of what has none.

    One odd cell of a file makes text of all numbers in its column.
    """
    if is_missing(label) or not isinstance(label, str | int | float | np.generic):
        return None
    if isinstance(label, np.floating):
        label = float(label)  # as in an array: by itself, float32 has fewer digits
    try:
        text = str(label)
    except ValueError:  # too many digits
        return None
    number = float_or_nan(text)
    if number.is_integer() and abs(number) < 2**53:
        return str(int(number))
    return str(number) if abs(number) < 2**53 else text


def texts_of(labels: Sequence) -> dict[str, int]:
    """Return the positions of labels by their text; of those alike, the first."""
    texts: dict[str, int] = {}
    for code, label in enumerate(labels):
        text = label_text(label)
        if text is not None:
            texts.setdefault(text, code)
    return texts


def to_numbers(columns: np.ndarray) -> np.ndarray:
    """Return columns as floats, NaN where a value is missing."""
    if columns.dtype == object:
        columns = np.where(missing_entries(columns), np.nan, columns)
    return columns.astype(np.float64)


def column_types(X: Any) -> dict[str, Any]:
    """Return the types of the columns of a pandas dataframe, by name, if X is one."""
    if type(X).__module__.split(".")[0] != "pandas" or not hasattr(X, "columns"):
        return {}
    return dict(zip(map(str, X.columns), X.dtypes))


def declared_categories(X: Any) -> list[list | None]:
    """Return the labels that each column of a dataframe may hold, if it says so.

    Parameters
    ----------
    X : array-like or dataframe
        Columns of pandas' categories and of polars' Enum declare their labels, and so
        do booleans.

    Returns
    -------
    categories : list of (list or None)
        Empty for arrays; None for columns that declare nothing.
    """
    return [declared_labels(dtype) for dtype in dtypes_of(X)]


def as_seen(states: Any, names: Sequence[str], partition: Any) -> Any:
    """Return labels that a user gives as the rows show them.

    Rows at sites show the position of a label in the list that the sites declare.

    Parameters
    ----------
    states : mapping, sequence or None
        Labels of columns, by name or one list for each of `names`.
    names : sequence of str
    partition : HorizontalPartition, VerticalPartition, RemoteRows or RemoteColumns

    Returns
    -------
    states : mapping, sequence or None
    """
    texts = getattr(partition, "texts", {})
    if isinstance(states, Mapping):
        return {
            name: _positions(name, s, texts.get(name)) for name, s in states.items()
        }
    if states is None or len(states) != len(names):
        return states
    return [_positions(name, s, texts.get(name)) for name, s in zip(names, states)]


def _positions(name, labels, declared):
    if declared is None or labels is None or isinstance(labels, str | Integral):
        return labels
    unknown = [v for v in labels if isinstance(v, str) and v not in declared]
    if unknown:
        raise ValueError(
            f"column {name!r} has no categories {unknown} at the sites, which declare "
            f"{declared}"
        )
    return [declared.index(v) if isinstance(v, str) else v for v in labels]


def dtypes_of(X: Any) -> list:
    """Return the types of a dataframe's columns; none for arrays."""
    return list(X.dtypes) if hasattr(X, "columns") and hasattr(X, "dtypes") else []


def declared_labels(dtype: Any) -> list | None:
    """Return the labels that a type of a column declares, if it does."""
    # a polars Categorical grows with the data: what it has seen, it does not declare
    if type(dtype).__name__ == "CategoricalDtype":
        return dtype.categories.tolist()
    if type(dtype).__name__ == "Enum":
        return dtype.categories.to_list()
    if getattr(dtype, "kind", None) == "b" or type(dtype).__name__ == "Boolean":
        return [False, True]
    return None


def read_numbers(X, *, gaps=False, bounds=None, strict=True):
    """Return numbers in double precision.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
    gaps : bool, default=False
        Whether NaN stays; otherwise it is an error, or the middle of the bounds.
    bounds : ndarray of shape (2, n_features), default=None
        Public, values are clipped to them.
    strict : bool, default=True
        Whether other entries than finite numbers are an error; otherwise they are
        missing, and infinite ones are clipped.

    Returns
    -------
    X : ndarray of float64 of shape (n_samples, n_features)
        `X` itself where nothing had to be changed.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.utils._validation import read_numbers
    >>> X, bounds = [[5.0], ["no"], [0.5]], np.array([[0.0], [2.0]])
    >>> read_numbers(X, bounds=bounds, strict=False).ravel()
    array([2. , 1. , 0.5])
    >>> read_numbers([[np.nan]])
    Traceback (most recent call last):
        ...
    ValueError: rows must be finite numbers
    """
    X = np.asarray(X if strict else numbers_or_gaps(X))
    if strict:
        unfit = np.isinf if gaps else lambda X: ~np.isfinite(X)
        if X.dtype.kind not in "fiu" or np.any(unfit(X)):
            raise ValueError("rows must be finite numbers")
    X = X.astype(np.float64, copy=False)
    if bounds is None:
        return X
    low, high = bounds
    if not gaps and not strict:
        X = np.where(np.isnan(X), low / 2 + high / 2, X)
    return np.clip(X, low, high)


def read_labels(column, labels, name, strict=True):
    """Return the codes 0, 1, ... of a column of labels.

    Parameters
    ----------
    column : ndarray of shape (n_samples,)
        None and NaN are missing.
    labels : sequence
        In the order of their codes.
    name : str
        Of the column, for errors.
    strict : bool, default=True
        Whether other labels are an error; otherwise they are missing, unless they look
        the same as text: how a row is read must not depend on others.

    Returns
    -------
    codes : ndarray of int of shape (n_samples,)
        -1 where a label is missing.
    """
    if _are_codes(column, labels):
        return column.astype(np.intp)
    sortable = _same_kind_array(labels, column.dtype.kind)
    if sortable is None:
        return _look_up(column, labels, name, strict)
    order = np.argsort(sortable)
    place = np.searchsorted(sortable[order], column)
    codes = order[np.minimum(place, len(order) - 1)]
    wrong = np.flatnonzero(sortable[codes] != column)
    codes[wrong] = _look_up(column[wrong], labels, name, strict)
    return codes


def _are_codes(column, labels):
    """Tell whether all values are integers that stand for themselves."""
    if column.dtype.kind not in "iu" or not len(column):
        return False
    in_order = all(label == code for code, label in enumerate(labels))
    return in_order and column.min() >= 0 and column.max() < len(labels)


def _same_kind_array(labels, kind):
    """Return the labels as an array that compares quickly with the column, or None."""
    if kind in "biuf" and all(isinstance(label, int | float) for label in labels):
        return np.array(labels)
    if kind == "U" and all(isinstance(label, str) for label in labels):
        return np.array(labels)
    return None


def _look_up(column, labels, name, strict):
    table = {label: code for code, label in enumerate(labels)}
    values = column.tolist()
    with suppress(TypeError):  # None for what is no label, or a list, or the like
        return np.fromiter(map(table.get, values), dtype=np.intp, count=len(values))
    try:
        codes = list(map(table.get, values))
    except TypeError:
        codes = [table.get(v) if _is_hashable(v) else None for v in values]
    alike = {} if strict else texts_of(labels)
    for i in (i for i, code in enumerate(codes) if code is None):
        if strict and not is_missing(values[i]):
            raise ValueError(
                f"column {name!r} holds {values[i]!r}, which is not one of its states "
                f"{list(labels)}: declare all that are possible when the network is "
                "learnt, with states= or as categories of a dataframe"
            )
        codes[i] = alike.get(label_text(values[i]), MISSING)
    return np.array(codes, dtype=np.intp)


def _is_hashable(value):
    try:
        hash(value)
    except TypeError:
        return False
    return True
