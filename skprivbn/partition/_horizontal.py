"""Rows that different parties hold."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array
from sklearn.utils.validation import column_or_1d, validate_data

from skprivbn.exceptions import PartitionError
from skprivbn.federation._remote import RemoteRows
from skprivbn.partition._local import LocalPartition
from skprivbn.utils._typing import TableLike

__all__ = ["HorizontalPartition", "check_horizontal"]

#: name of the only party when rows do not say who holds them
ONE_PARTY = "all"


class HorizontalPartition(LocalPartition):
    """Blocks of rows, one per party, over the same features.

    Can be passed as `X` to every estimator that takes ``party=``. It does not turn
    into an array: that would pool what may not be pooled.

    Parameters
    ----------
    blocks : dict of str to array-like of shape (n_rows, n_features)
        The rows of each party.
    feature_names : sequence of str, default=None
        Names of the features.
    **aligned : dict of str to array-like of shape (n_rows,)
        Values that go with the rows of each party, such as `y` or `cluster`.

    Attributes
    ----------
    names : tuple of str
        Names of the parties.
    n_features : int

    Examples
    --------
    >>> from skprivbn.partition import HorizontalPartition
    >>> HorizontalPartition({"north": [[1.0, 2.0]], "south": [[3.0, 4.0], [5.0, 6.0]]})
    HorizontalPartition(north: 1 row, south: 2 rows; 2 features)
    """

    def __init__(
        self,
        blocks: dict[str, ArrayLike],
        feature_names: Sequence[str] | None = None,
        **aligned: Any,
    ) -> None:
        if not blocks:
            raise PartitionError("blocks is empty: give at least one party its rows")
        self._blocks = {}
        for name, rows in blocks.items():
            if not isinstance(name, str):
                raise PartitionError(f"names of parties must be text, got {name!r}")
            rows = check_array(
                rows, dtype=None, ensure_all_finite=False, ensure_min_samples=0
            )
            if not len(rows):
                raise PartitionError(f"party {name!r} has no rows: leave it out")
            block = {"X": rows}
            for key, values in aligned.items():
                if values is None:
                    continue
                if name not in values:
                    raise PartitionError(f"{key} lacks the values of party {name!r}")
                block[key] = column_or_1d(values[name])
                if len(block[key]) != len(block["X"]):
                    raise PartitionError(
                        f"{key} has {len(block[key])} values for the "
                        f"{len(block['X'])} rows of party {name!r}"
                    )
            self._blocks[name] = block
        widths = {name: block["X"].shape[1] for name, block in self._blocks.items()}
        if len(set(widths.values())) > 1:
            raise PartitionError(
                f"parties hold different numbers of features: {widths}"
            )
        self.names = tuple(self._blocks)
        self.n_features = next(iter(widths.values()))
        self.feature_names = None if feature_names is None else list(feature_names)
        if feature_names is not None and len(feature_names) != self.n_features:
            raise PartitionError(
                f"feature_names has {len(feature_names)} names for "
                f"{self.n_features} features"
            )

    @classmethod
    def from_rows(
        cls,
        X: ArrayLike,
        party: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
        **aligned: Any,
    ) -> Self:
        """Split rows by a label that says who holds each.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        party : array-like of shape (n_samples,), default=None
            Label of each row's holder. None means that one party holds all.
        feature_names : sequence of str, default=None
            Read off `X` if it is a dataframe.
        **aligned : array-like of shape (n_samples,) or None
            Values that go with the rows.

        Returns
        -------
        partition : HorizontalPartition
            Parties in sorted order of their labels.
        """
        if feature_names is None and hasattr(X, "columns"):
            feature_names = [str(name) for name in X.columns]
        X = check_array(X, dtype=None, ensure_all_finite=False)
        rows = _rows_of_parties(party, len(X))
        aligned = {
            key: one_per_row(key, values, len(X))
            for key, values in aligned.items()
            if values is not None
        }
        return cls(
            {name: X[index] for name, index in rows.items()},
            feature_names,
            **{
                key: {name: values[index] for name, index in rows.items()}
                for key, values in aligned.items()
            },
        )

    @property
    def dtype(self) -> np.dtype:
        """Number type that holds the rows of all parties."""
        return np.result_type(*(block["X"].dtype for block in self._blocks.values()))

    @property
    def aligned(self) -> tuple[str, ...]:
        """Names of the values that go with the rows, such as "y"."""
        return tuple(key for key in self._blocks[self.names[0]] if key != "X")

    def map_rows(self, function: Callable) -> "HorizontalPartition":
        """Apply a function to the rows of each party, where they are.

        Parameters
        ----------
        function : callable
            From an array of rows to an array with as many rows.

        Returns
        -------
        partition : HorizontalPartition
            With the same parties and the same values beside the rows.
        """
        aligned: dict[str, Any] = {
            key: {name: block[key] for name, block in self._blocks.items()}
            for key in self.aligned
        }
        rows = {name: function(block["X"]) for name, block in self._blocks.items()}
        return HorizontalPartition(rows, **aligned)

    def __repr__(self):
        sizes = ", ".join(
            f"{name}: {n} row{'s' if n != 1 else ''}"
            for name, n in self.n_rows().items()
        )
        return f"HorizontalPartition({sizes}; {self.n_features} features)"


def one_per_row(name, values, n_samples):
    """Return values that go with rows as a 1-d array, or say what is wrong."""
    shape = np.asarray(values).shape
    if len(shape) != 1 and not (len(shape) == 2 and shape[1] == 1):
        raise ValueError(
            f"{name} should be a 1d array with one value per row, got an array of "
            f"shape {shape}"
        )
    if shape[0] != n_samples:
        raise ValueError(
            f"{name} has {shape[0]} values for {n_samples} rows: give one per row"
        )
    return column_or_1d(values)


def _rows_of_parties(party, n_samples):
    """Return the row numbers of each party, in sorted order of the labels."""
    if party is None:
        return {ONE_PARTY: np.arange(n_samples)}
    labels = one_per_row("party", party, n_samples)
    if labels.dtype == object:
        missing = [label is None or label != label for label in labels]
    else:
        missing = labels != labels
    if np.any(missing):
        raise PartitionError("party has missing labels: say who holds every row")
    try:
        values, codes = np.unique(labels, return_inverse=True)
    except TypeError:
        raise PartitionError("party mixes labels that cannot be sorted") from None
    names = [str(value) for value in values]
    if len(set(names)) != len(names):
        raise PartitionError("different labels in party look the same as text")
    return {name: np.flatnonzero(codes == code) for code, name in enumerate(names)}


def check_horizontal(
    estimator: Any,
    X: TableLike,
    party: ArrayLike | None = None,
    *,
    reset: bool = True,
    dtype: Any = "numeric",
    aligned: dict | None = None,
    **checks: Any,
) -> HorizontalPartition | RemoteRows:
    """Turn the arguments of ``fit`` into rows per party, or say what is wrong.

    Sets `n_features_in_` and `feature_names_in_` on the estimator, as scikit-learn's
    ``validate_data`` does.

    Parameters
    ----------
    estimator : estimator
    X : array-like of shape (n_samples, n_features), HorizontalPartition or RemoteRows
    party : array-like of shape (n_samples,), default=None
        Label of each row's holder.
    reset : bool, default=True
        Whether to set or to check the number and names of features.
    dtype : dtype or list of dtype, default="numeric"
        As in scikit-learn's ``check_array``.
    aligned : dict of str to array-like, default=None
        Further values per row, or names of columns if X is remote; None entries are
        left out.
    **checks
        Options of ``check_array``.

    Returns
    -------
    partition : HorizontalPartition or RemoteRows
    """
    aligned = {k: v for k, v in (aligned or {}).items() if v is not None}
    if isinstance(X, RemoteRows) and party is None:
        rows = X.checked(
            aligned,
            as_float=_wants_floats(dtype),
            finite=checks.get("ensure_all_finite", True) is True,
        )
        _check_features(estimator, rows, reset)
        return rows
    if hasattr(X, "federate"):
        if not isinstance(X, HorizontalPartition | RemoteRows):
            raise PartitionError(
                f"X is a {type(X).__name__}; "
                f"{type(estimator).__name__} needs rows held by different parties"
            )
        beside = [*(["party"] if party is not None else []), *aligned]
        if beside:
            raise PartitionError(
                f"{beside} cannot be given beside a partition: "
                "it already says who holds which rows and values"
            )
        return _check_given(estimator, X, reset, dtype, checks)
    X = validate_data(estimator, X, reset=reset, dtype=dtype, **checks)
    names = getattr(estimator, "feature_names_in_", None)
    return HorizontalPartition.from_rows(X, party, names, **aligned)


def _check_given(estimator, partition, reset, dtype, checks):
    _check_features(estimator, partition, reset)
    checked = partition.map_rows(lambda rows: check_array(rows, dtype=dtype, **checks))
    checked.feature_names = partition.feature_names
    return checked


def _check_features(estimator, partition, reset):
    if reset:
        estimator.n_features_in_ = partition.n_features
        if partition.feature_names is not None:
            estimator.feature_names_in_ = np.asarray(partition.feature_names, object)
    elif partition.n_features != estimator.n_features_in_:
        raise ValueError(
            f"X has {partition.n_features} features, but "
            f"{type(estimator).__name__} is expecting {estimator.n_features_in_} "
            "features as input"
        )
    else:
        _check_names(estimator, partition)


def _check_names(estimator, partition):
    """Refuse the right number of other columns, as scikit-learn does."""
    fitted = getattr(estimator, "feature_names_in_", None)
    given = partition.feature_names
    if fitted is not None and given is not None and list(fitted) != list(given):
        raise ValueError(
            f"X has the features {list(given)}, but {type(estimator).__name__} was "
            f"fitted to {list(fitted)}, in this order"
        )


def _wants_floats(dtype):
    """Tell whether every type that an estimator accepts is a floating-point type."""
    kinds = dtype if isinstance(dtype, list | tuple) else [dtype]
    return all(
        kind not in (None, "numeric") and np.issubdtype(kind, np.floating)
        for kind in kinds
    )
