"""What the federated transformers share."""

from typing import ClassVar

import numpy as np
from sklearn.base import TransformerMixin

from skprivbn.base import PrivateEstimator, by_holders
from skprivbn.federation._cells import N_CELLS
from skprivbn.partition import HorizontalPartition
from skprivbn.privacy._noise_report import noisy_number, report_noise
from skprivbn.privacy._options import (
    apply_to_rows,
    bounds_of,
    noise_terms,
    warn_of_noise,
)
from skprivbn.programs import Moments, MomentsTerms, moments, quantiles
from skprivbn.programs._moments import read_moments
from skprivbn.programs._noisy_moments import moment_intervals, report_moments
from skprivbn.utils._sklearn import _check_feature_names_in
from skprivbn.utils._typing import TableLike
from skprivbn.utils._validation import validate_table


class FederatedTransformer(TransformerMixin, PrivateEstimator):
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
        finite = False if hasattr(self, "privacy_spent_") else self._complete
        return {"dtype": [np.float64, np.float32], "ensure_all_finite": finite}

    @property
    def _fit_checks(self):
        return {"ensure_all_finite": self._complete}

    @by_holders
    def transform(self, X: TableLike) -> np.ndarray | HorizontalPartition:
        """Transform rows, locally.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or HorizontalPartition
            Sites transform remote rows whenever these are used.

        Returns
        -------
        X_new : ndarray of shape (n_samples, n_features_out) or HorizontalPartition
            After a fit with `epsilon`, or to public edges of bins, rows with missing
            entries are missing, and the others float64: nothing that follows depends
            on which type the table of all rows has.
        """
        X = validate_table(self, X, reset=False, **self._row_checks)
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
        warn_of_noise(3 * np.sqrt(N_CELLS) * std, n_values)
        report_noise(
            estimator,
            noise,
            terms.protects,
            std,
            [noisy_number("number of values", n_values, np.sqrt(N_CELLS) * std)],
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
