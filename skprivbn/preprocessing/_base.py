"""What the federated transformers share."""

from __future__ import annotations

from functools import wraps
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import TransformerMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skprivbn.base import PrivateEstimator, by_holders
from skprivbn.exceptions import PartitionError
from skprivbn.federation._cells import N_CELLS
from skprivbn.federation._models import select_columns
from skprivbn.partition import (
    HorizontalPartition,
    RemoteRows,
    check_horizontal,
    is_partition,
)
from skprivbn.privacy._noise_report import noisy_number, report_noise
from skprivbn.privacy._options import (
    apply_to_rows,
    bounds_of,
    noise_terms,
    words_of_noise,
)
from skprivbn.programs import Moments, MomentsTerms, moments, quantiles
from skprivbn.programs._moments import read_moments
from skprivbn.programs._noisy_moments import moment_intervals, report_moments
from skprivbn.utils import import_optional
from skprivbn.utils._sklearn import _check_feature_names_in, _get_column_indices
from skprivbn.utils._typing import TableLike
from skprivbn.utils._validation import check_block, validate_table

#: rows of which every estimator checks its columns itself
ANY_ROWS = {"dtype": None, "ensure_all_finite": False}
#: what transformers take for `columns`
COLUMNS_CONSTRAINT = [str, Integral, "array-like", callable, None]


class ColumnsMixin(TransformerMixin):
    """Transforms all columns, or some of them beside which the others stay.

    Subclasses implement ``_apply`` for checked rows, ``_names_out`` and ``_inverse``
    if there is an inverse.
    """

    #: names or positions of columns, a selector, or None for all
    columns: Any = None

    def _check_rows(self, X, party=None, **beside):
        if self.columns is None:
            return super()._check_rows(X, party, **beside)
        if not is_partition(X):
            self._places = _find_places(self.columns, X)
        partition = check_horizontal(self, X, party, aligned=beside, **ANY_ROWS)
        if is_partition(X):
            self._places = _find_places(self.columns, partition)
        return partition

    def _learn_watched(self, X, y, partition):
        vars(self).pop("_on_columns", None)
        if self.columns is None:
            return super()._learn_watched(X, y, partition)
        inner = clone(self).set_params(columns=None)
        if isinstance(partition, RemoteRows):
            names = [partition.feature_names[place] for place in self._places]
            chosen = partition.transformed(select_columns(self, self._places), names)
        else:
            chosen = partition.choose(self._places)
        inner.fit(chosen)
        own = {*self.get_params(deep=False), "n_features_in_", "feature_names_in_"}
        vars(self).update({k: v for k, v in vars(inner).items() if k not in own})
        self._on_columns = inner
        return self

    def transform(self, X: TableLike) -> np.ndarray | HorizontalPartition:
        """Transform rows, locally.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or HorizontalPartition
            Sites transform remote rows whenever these are used.

        Returns
        -------
        X_new : ndarray of shape (n_samples, n_features_out) or HorizontalPartition
            With `columns`, these first, then the others as they are. After a fit with
            `epsilon`, or to public edges of bins, rows with missing entries are
            missing, and the others float64: nothing that follows depends on which
            type the table of all rows has.
        """
        X = validate_table(self, X, reset=False, **self._row_checks)
        return self._apply_columns(X)

    def _apply_columns(self, X):
        """Transform the chosen columns of checked rows; the others follow."""
        if self.columns is None:
            return self._apply(X)
        inner, names = self._on_columns, _check_feature_names_in(self)
        part = check_block(X[:, self._places], names[self._places], **inner._row_checks)
        made = inner._apply(part)
        return np.hstack([made, X[:, self._rest]]) if self._rest else made

    @property
    def _rest(self):
        """Places of the columns that stay as they are, with `columns` only."""
        return [i for i in range(self.n_features_in_) if i not in self._places]

    def get_feature_names_out(
        self, input_features: ArrayLike | None = None
    ) -> np.ndarray:
        """Return the names of the features that come out.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the columns; those seen in ``fit`` if None.

        Returns
        -------
        feature_names_out : ndarray of object
            Such as ``ward_surgery`` for a column of zeros and ones.
        """
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        if self.columns is None:
            return self._names_out(names)
        return np.append(self._names_out(names[self._places]), names[self._rest])

    def _names_out(self, names):
        """Return names of what becomes of columns: theirs, if nothing else is said."""
        return names

    @available_if(lambda self: hasattr(self, "_inverse"))
    def inverse_transform(self, X: ArrayLike) -> np.ndarray:
        """Undo the transformation, locally, as far as that can be.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_out)
            As ``transform`` returns it.

        Returns
        -------
        X_original : ndarray of shape (n_samples, n_features)
            Labels are objects, None if unknown; bins are at their centres.
        """
        check_is_fitted(self)
        if self.columns is None:
            return self._inverse(X)
        X = np.asarray(X)
        n_made = X.shape[1] - len(self._rest)
        made = self._inverse(X[:, :n_made])
        both = np.hstack([made, X[:, n_made:].astype(X.dtype)])
        return both[:, np.argsort([*self._places, *self._rest])]


def _keeping_partitions(method):
    """Let a partition stay one, whatever ``set_output`` says."""

    @wraps(method)
    def call(self, X, *args, **kwargs):
        given = method.__wrapped__ if is_partition(X) else method
        return given(self, X, *args, **kwargs)

    return call


# scikit-learn has wrapped both, to make dataframes of what they return
ColumnsMixin.transform = by_holders(ColumnsMixin.transform)  # type: ignore[method-assign]
ColumnsMixin.fit_transform = _keeping_partitions(TransformerMixin.fit_transform)


def _find_places(columns, X):
    """Return the places of columns that are given by name, place, type or function."""
    if is_partition(X):
        names = X._column_names
        if callable(columns):
            found = {tuple(columns(_empty_frame(types))) for types in X.dtypes}
            if len(found) != 1:
                raise PartitionError(
                    f"columns={columns!r} selects by type, but rows are arrays, or "
                    "parties have a column in different types: give names of columns"
                )
            columns = found.pop()
        X = np.empty((1, len(names)))
        columns = [columns] if isinstance(columns, str | Integral) else list(columns)
        lacking = [c for c in columns if isinstance(c, str) and c not in names]
        if lacking:
            raise ValueError(
                f"columns= names {lacking}, and the columns are {list(names)}"
            )
        columns = [names.index(c) if isinstance(c, str) else c for c in columns]
    else:
        columns = columns(X) if callable(columns) else columns
        X = X if hasattr(X, "shape") else np.asarray(X, dtype=object)
    places = [int(place) for place in _get_column_indices(X, columns)]
    if not places or len(set(places)) < len(places):
        raise ValueError(f"columns={columns!r} is empty, or has a column twice")
    return places


def _empty_frame(types):
    """Return a dataframe without rows, which selectors by type can look at."""
    pandas = import_optional("pandas", "selecting columns by their types")
    declared = {
        name: pandas.CategoricalDtype(kind) if isinstance(kind, list) else kind
        for name, kind in types.items()
    }
    return pandas.DataFrame({n: pandas.Series(dtype=t) for n, t in declared.items()})


class FederatedTransformer(ColumnsMixin, PrivateEstimator):
    """A transformer of numeric rows; float32 stays float32 after an exact fit.

    After a fit with noise, or with nothing but public bounds, no row is refused: what
    follows may be private, and an error would tell that there is such a row. All
    results are float64 then, and subclasses implement ``_transform`` so that a row has
    the same bits alone and among others.
    """

    #: whether entries may be missing: True, or "allow-nan"
    _complete: ClassVar[bool | str] = True

    @property
    def _row_checks(self):
        if self.columns is not None:
            return ANY_ROWS
        finite = False if hasattr(self, "privacy_spent_") else self._complete
        return {"dtype": [np.float64, np.float32], "ensure_all_finite": finite}

    @property
    def _fit_checks(self):
        return {"ensure_all_finite": self._complete}

    def _apply(self, X):
        if hasattr(self, "privacy_spent_"):
            return self._transform_all(X)
        return self._transform(X)

    def _transform_all(self, X):
        """Transform rows, and raise for none: a private step may follow."""
        return apply_to_rows(self._transform, X)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.allow_nan = self._complete == "allow-nan"
        return tags


def fit_moments(estimator, partition, second, *, gaps=False):
    """Return the moments of all parties' rows; sets `ledger_` and `privacy_spent_`.

    Parameters
    ----------
    estimator : estimator
        With `backend` and the parameters of privacy.
    partition : HorizontalPartition
        With weights of rows, or without.
    second : {"full", "diagonal", "none"}
    gaps : bool, default=False
        Whether entries may be missing: each feature has a number of rows of its own.

    Returns
    -------
    moments : Moments
    """
    terms = MomentsTerms(
        second=second,
        gaps=gaps,
        weighted="sample_weight" in partition.aligned,
        **noise_terms(estimator, partition),
    )
    found = estimator._run_charged(partition, moments, terms, "means and variances")
    if gaps and terms.epsilon is None:
        refuse_empty_columns(estimator, found["n_rows"])
    known = read_moments(found, terms, partition.n_parties)
    if terms.epsilon is not None:
        report_moments(estimator, known, terms, partition.n_parties)
    return known


def intervals_of(estimator, name, level):
    """Return intervals of the means of an estimator, and of its second moments.

    Parameters
    ----------
    estimator : estimator
        Fitted by moments.
    name : str
        Of the attribute with the variances or covariances.
    level : float

    Returns
    -------
    intervals : dict of str to ndarray
    """
    second = getattr(estimator, name)
    known = Moments(estimator.n_samples_, estimator.mean_, second)
    bounds, std = None, 0.0
    if estimator.epsilon is not None:
        bounds, std = bounds_of(estimator), estimator.noise_report_.std
    found = moment_intervals(known, bounds, std, level)
    return dict(zip(("mean_", name), found))


def fit_quantiles(estimator, partition, terms, what):
    """Return quantiles of all parties' rows; sets `ledger_` and `privacy_spent_`.

    Parameters
    ----------
    estimator : estimator
        With `backend` and the parameters of privacy.
    partition : HorizontalPartition
    terms : QuantileTerms
    what : str
        What is released, in plain words.

    Returns
    -------
    quantiles : ndarray of shape (n_features, n_levels)
    """
    found = estimator._run_charged(partition, quantiles, terms, what)
    noise = terms.noise(partition.n_features, partition.n_parties)
    if noise is not None:
        std, n_values = noise.std / terms.unit, found["n_values"]
        report_noise(
            estimator,
            noise,
            terms.protects,
            std,
            [noisy_number("number of values", n_values, np.sqrt(N_CELLS) * std)],
            words_of_noise(3 * np.sqrt(N_CELLS) * std, n_values),
            n_rows=n_values,
        )
    refuse_empty_columns(estimator, ~np.isnan(found["quantiles"][:, 0]))
    return found["quantiles"]


def refuse_empty_columns(estimator, n_values):
    """Refuse features that no row has, given how many have each."""
    empty = np.flatnonzero(np.asarray(n_values) <= 0)
    if len(empty):
        names = _check_feature_names_in(estimator)[empty].tolist()
        raise ValueError(
            f"columns {names} have no value at any party, or sample_weight is zero "
            "wherever they have one: leave them out"
        )
