"""Standardise and project rows of several parties: what follows from moments."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import pinvh
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.extmath import fast_logdet
from sklearn.utils.validation import check_is_fitted

from skprivbn.base import BACKEND_CONSTRAINT
from skprivbn.crypto import AdditiveBackend
from skprivbn.federation import check_received
from skprivbn.preprocessing._base import (
    COLUMNS_CONSTRAINT,
    FederatedTransformer,
    fit_moments,
    intervals_of,
)
from skprivbn.privacy import PrivacyAccountant
from skprivbn.privacy._options import PRIVACY_CONSTRAINTS
from skprivbn.programs import Moments, keep_predictions, moments, score_rows
from skprivbn.utils._linalg import multiply_rows
from skprivbn.utils._sklearn import Interval, RealNotInt, _fit_context
from skprivbn.utils._typing import TableLike, WeightsLike
from skprivbn.utils._validation import validate_table


class FederatedStandardScaler(FederatedTransformer):
    """Standardise features by their mean and standard deviation over all parties.

    A plain ``StandardScaler`` in front of a private estimator would see the pooled
    rows. Here each party tells its sums under the backend, and only the means and
    variances over all parties become known. Missing entries are left out, and stay
    missing.

    Read more in the :ref:`User Guide <preprocessing>`.

    Parameters
    ----------
    with_mean : bool, default=True
        Subtract the mean.
    with_std : bool, default=True
        Divide by the standard deviation.
    columns : str, list or callable, default=None
        Which columns to transform: names, positions, or a selector by type such as
        ``make_column_selector``; the others follow them as they are. None means all.
    backend : str or AdditiveBackend, default="masking"
        How the sums are hidden. Means and variances are results, known to the
        coordinator, so that they are summed exactly under masks whatever the backend.
    epsilon : float, default=None
        Privacy budget of the means and variances. None releases them exactly.
    delta : float, default=0.0
        With `epsilon`: 0 adds discrete Laplace noise, more discrete Gaussian noise.
    bounds : pair, list of pairs or dict, default=None
        Public lower and upper bounds of the features, to which rows are clipped:
        ``(low, high)``, a list with ``(low, high)`` of each feature, or
        ``{"age": (0, 120), ...}``; needed with `epsilon`.
    accountant : PrivacyAccountant, default=None
        Charged before any row is touched.
    min_honest : int, default=None
        With `epsilon`: how many parties are trusted to add their share of the noise
        and to keep it secret. None means half of them, rounded up; sites accept no
        more.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        Mean over all parties.
    var_ : ndarray of shape (n_features,) or None
        Variance over all parties.
    scale_ : ndarray of shape (n_features,) or None
        What features are divided by; 1 for constant features.
    n_samples_ : float or ndarray of shape (n_features,)
        Rows of all parties, or their weight; of each feature, if some are missing. An
        estimate if noise was added.
    ledger_ : Ledger
        Every message of the last fit, and who learnt what.
    privacy_spent_ : PrivacyCost
        What the fit cost, with `epsilon` only.
    noise_report_ : NoiseReport
        What noise does to the result, with `epsilon` only.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if `X` has string names.

    See Also
    --------
    FederatedPCA : Linear dimension reduction.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.preprocessing import FederatedStandardScaler
    >>> X = np.array([[0.0, 10.0], [2.0, 10.0], [4.0, 16.0]])
    >>> scaler = FederatedStandardScaler().fit(X, party=["a", "b", "c"])
    >>> scaler.mean_
    array([ 2., 12.])
    >>> scaler.transform(X).round(3)
    array([[-1.225, -0.707],
           [ 0.   , -0.707],
           [ 1.225,  1.414]])
    """

    mean_: Any
    scale_: Any

    # weights given to a pipeline do not reach its scaler, unless the user asks for it
    __metadata_request__fit = {"sample_weight": False}
    protocols = (moments,)
    _complete = "allow-nan"
    _parameter_constraints = {
        "with_mean": ["boolean"],
        "with_std": ["boolean"],
        "columns": COLUMNS_CONSTRAINT,
        "backend": BACKEND_CONSTRAINT,
        **PRIVACY_CONSTRAINTS,
    }

    def __init__(
        self,
        *,
        with_mean: bool = True,
        with_std: bool = True,
        columns: Any = None,
        backend: str | AdditiveBackend = "masking",
        epsilon: float | None = None,
        delta: float = 0.0,
        bounds: tuple | list | dict | None = None,
        accountant: PrivacyAccountant | None = None,
        min_honest: int | None = None,
    ) -> None:
        self.with_mean = with_mean
        self.with_std = with_std
        self.columns = columns
        self.backend = backend
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.accountant = accountant
        self.min_honest = min_honest

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(
        self,
        X: TableLike,
        y: object = None,
        *,
        party: ArrayLike | None = None,
        individual: ArrayLike | None = None,
        sample_weight: WeightsLike | None = None,
    ) -> Self:
        """Learn means and variances from the rows of all parties.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), HorizontalPartition or \
                RemoteRows
            The rows of all parties; NaN is missing.
        y : Ignored
            Not used, present for API consistency by convention.
        party : array-like of shape (n_samples,), default=None
            Who holds each row. None means that one party holds all.
        individual : array-like of shape (n_samples,), default=None
            The person behind each row, whom `epsilon` is to protect.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of rows, without `epsilon` only; the name of a column if X is
            remote.

        Returns
        -------
        self : object
            Fitted scaler.
        """
        if sample_weight is not None:
            self._check_weights(sample_weight)
        persons = None if self.epsilon is None else individual
        beside = {"individual": persons, "sample_weight": sample_weight}
        return self._learn_watched(X, y, self._check_rows(X, party, **beside))

    def _check_weights(self, sample_weight):
        if self.epsilon is not None:
            raise ValueError(
                "sample_weight is not available with epsilon: weights have no bound, "
                "so that no noise hides a row"
            )
        if isinstance(sample_weight, str):  # a column at the sites, which check it
            return
        if not np.all(np.asarray(sample_weight, dtype=float) >= 0):
            raise ValueError("sample_weight must hold numbers of at least 0")

    def _learn(self, partition):
        second = "diagonal" if self.with_std else "none"
        # noise hides rows, not which of their entries are missing
        found = fit_moments(self, partition, second, gaps=self.epsilon is None)
        n_values = np.asarray(found.n_rows)
        alike = np.all(n_values == n_values.flat[0])
        self.n_samples_ = float(n_values.flat[0]) if alike else n_values
        self.mean_, self.var_, self.scale_ = found.mean, found.covariance, None
        if self.with_std:
            self.scale_ = _scale(found)

    def conf_int(self, level: float = 0.95) -> dict[str, np.ndarray]:
        """Return confidence intervals of means and variances, noise included.

        They cost no privacy. Those of variances are for normal rows. Rows beyond
        `bounds` were clipped, and the intervals are of clipped rows.

        Parameters
        ----------
        level : float, default=0.95
            Probability with which an interval is to cover the truth.

        Returns
        -------
        intervals : dict of str to ndarray of shape (..., 2)
            Low and high ends of ``mean_`` and ``var_``.
        """
        check_is_fitted(self)
        if self.var_ is None:
            raise ValueError("conf_int needs with_std=True: it uses the variances")
        return intervals_of(self, "var_", level)

    def _transform(self, X):
        if self.with_mean:
            X = X - self.mean_.astype(X.dtype)
        if self.with_std:
            X = X / self.scale_.astype(X.dtype)
        return X

    def _was_found(self, found):
        """Tell whether mean and scale are those of moments, or zero and one."""
        moments = _moments_of(found, self.mean_)
        if moments is None:
            return False
        scales = [] if moments.covariance is None else [_scale(moments)]
        return _is_one_of(self.mean_, [moments.mean, 0.0]) and _is_one_of(
            self.scale_, [*scales, 1.0]
        )

    def _public_model(self):
        scale = self.scale_ if self.with_std else np.ones_like(self.mean_)
        mean = self.mean_ if self.with_mean else np.zeros_like(self.mean_)
        return {"mean": mean, "scale": scale}

    @classmethod
    def _from_public_model(cls, model, n_features):
        """Make a fitted scaler of public numbers, which are checked."""
        estimator = cls()
        estimator.mean_ = check_received(model["mean"], (n_features,))
        estimator.scale_ = check_received(model["scale"], (n_features,))
        if np.any(estimator.scale_ <= 0):
            raise ValueError("scales must be above zero")
        return estimator

    def _inverse(self, X):
        X = np.array(X, dtype=np.float64)
        if self.with_std:
            X = X * self.scale_
        if self.with_mean:
            X = X + self.mean_
        return X


def _moments_of(found, mean):
    """Return moments that were found of as many columns; None if there are none."""
    if found.get("mean") is None or np.shape(found["mean"]) != np.shape(mean):
        return None
    return Moments(found["n_rows"], found["mean"], found["covariance"])


def _is_one_of(values, candidates):
    """Tell whether an array is one of some others, but for last digits."""
    return any(np.allclose(values, one, rtol=1e-9, atol=0.0) for one in candidates)


def _scale(moments):
    """Return standard deviations, and 1 for features that do not vary."""
    variance, mean, n = moments.covariance, moments.mean, moments.n_rows
    # As scikit-learn: below this, a variance is the rounding error of a constant.
    error = n * np.finfo(np.float64).eps * variance
    error += (n * mean * np.finfo(np.float64).eps) ** 2
    return np.where(variance <= error, 1.0, np.sqrt(variance))


class FederatedPCA(ClassNamePrefixFeaturesOutMixin, FederatedTransformer):
    """Principal component analysis over all parties' rows.

    Each party tells its sums of products under the backend; only the mean and the
    covariance over all parties become known, and components follow from those.

    Read more in the :ref:`User Guide <preprocessing>`.

    Parameters
    ----------
    n_components : int, float or None, default=None
        Number of components; between 0 and 1, the share of the variance to keep;
        None keeps all.
    whiten : bool, default=False
        Scale the components to unit variance.
    backend : str or AdditiveBackend, default="masking"
        How the sums are hidden. Mean and covariance are results, known to the
        coordinator, so that they are summed exactly under masks whatever the backend.
    epsilon : float, default=None
        Privacy budget of the mean and covariance. None releases them exactly.
    delta : float, default=0.0
        With `epsilon`: 0 adds discrete Laplace noise, more discrete Gaussian noise.
    bounds : pair, list of pairs or dict, default=None
        Public lower and upper bounds of the features, to which rows are clipped:
        ``(low, high)``, a list with ``(low, high)`` of each feature, or
        ``{"age": (0, 120), ...}``; needed with `epsilon`.
    accountant : PrivacyAccountant, default=None
        Charged before any row is touched.
    min_honest : int, default=None
        With `epsilon`: how many parties are trusted to add their share of the noise
        and to keep it secret. None means half of them, rounded up; sites accept no
        more.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Principal axes, by decreasing variance.
    explained_variance_ : ndarray of shape (n_components,)
        Variance along each component.
    explained_variance_ratio_ : ndarray of shape (n_components,)
        The same as shares of the whole variance.
    singular_values_ : ndarray of shape (n_components,)
        Of the centred table of all rows.
    mean_ : ndarray of shape (n_features,)
        Mean over all parties.
    covariance_ : ndarray of shape (n_features, n_features)
        Covariance over all parties: this, not only the components, becomes known.
    noise_variance_ : float
        Mean variance along the components that are not kept.
    n_components_ : int
        Number of components kept.
    n_samples_ : float
        Rows of all parties; an estimate if noise was added.
    ledger_ : Ledger
        Every message of the last fit, and who learnt what.
    privacy_spent_ : PrivacyCost
        What the fit cost, with `epsilon` only.
    noise_report_ : NoiseReport
        What noise does to the result, with `epsilon` only.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if `X` has string names.

    See Also
    --------
    FederatedStandardScaler : Bring features to a common scale first.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skprivbn.preprocessing import FederatedPCA
    >>> X, _ = load_iris(return_X_y=True)
    >>> party = ["north", "south", "west"] * 50
    >>> pca = FederatedPCA(n_components=2).fit(X, party=party)
    >>> pca.explained_variance_ratio_.round(3)
    array([0.925, 0.053])
    """

    protocols = (moments, score_rows, keep_predictions)
    _fit_checks = {"ensure_all_finite": True, "ensure_min_samples": 2}
    _parameter_constraints = {
        "n_components": [
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0, 1, closed="neither"),
            None,
        ],
        "whiten": ["boolean"],
        "backend": BACKEND_CONSTRAINT,
        **PRIVACY_CONSTRAINTS,
    }

    def __init__(
        self,
        n_components: float | None = None,
        *,
        whiten: bool = False,
        backend: str | AdditiveBackend = "masking",
        epsilon: float | None = None,
        delta: float = 0.0,
        bounds: tuple | list | dict | None = None,
        accountant: PrivacyAccountant | None = None,
        min_honest: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.whiten = whiten
        self.backend = backend
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.accountant = accountant
        self.min_honest = min_honest

    def _learn(self, partition):
        n_features = partition.n_features
        if isinstance(self.n_components, Integral) and self.n_components > n_features:
            raise ValueError(
                f"n_components={self.n_components} must be at most the number of "
                f"features, {n_features}"
            )
        found = fit_moments(self, partition, "full")
        n = self.n_samples_ = found.n_rows
        self.mean_ = found.mean
        self.covariance_ = found.covariance * n / max(n - 1, 1)
        variances, axes = np.linalg.eigh(self.covariance_)
        variances = np.maximum(variances[::-1], 0)
        components = _with_signs(axes.T[::-1])
        total = variances.sum()
        ratios = variances / total if total > 0 else np.zeros_like(variances)
        k = self.n_components_ = self._choose(ratios)
        self.components_ = components[:k]
        self.explained_variance_ = variances[:k]
        self.explained_variance_ratio_ = ratios[:k]
        self.singular_values_ = np.sqrt(variances[:k] * max(n - 1, 1))
        self.noise_variance_ = float(variances[k:].mean()) if k < n_features else 0.0

    def _choose(self, ratios):
        if self.n_components is None:
            return len(ratios)
        if isinstance(self.n_components, Integral):
            return int(self.n_components)
        # The fewest components whose share exceeds the one asked for.
        share = np.searchsorted(np.cumsum(ratios), self.n_components, side="right")
        return min(int(share) + 1, len(ratios))

    @property
    def _n_features_out(self):
        return self.n_components_

    def conf_int(self, level: float = 0.95) -> dict[str, np.ndarray]:
        """Return confidence intervals of means and covariances, noise included.

        They cost no privacy. Those of covariances are for normal rows. Rows beyond
        `bounds` were clipped, and the intervals are of clipped rows.

        Parameters
        ----------
        level : float, default=0.95
            Probability with which an interval is to cover the truth.

        Returns
        -------
        intervals : dict of str to ndarray of shape (..., 2)
            Low and high ends of ``mean_`` and ``covariance_``.
        """
        check_is_fitted(self)
        return intervals_of(self, "covariance_", level)

    def _transform(self, X):
        # by BLAS, a row would be rounded by the number of rows beside it
        return multiply_rows(X - self.mean_, self._axes().T).astype(X.dtype, copy=False)

    def _was_found(self, found):
        """Tell whether these are eigenvectors of moments, and their variances."""
        moments, axes = _moments_of(found, self.mean_), self.components_
        if moments is None or np.ndim(moments.covariance) != 2:
            return False
        products = moments.covariance @ axes.T
        variances, n = np.sum(axes.T * products, axis=0), np.max(moments.n_rows)
        left, total = products - axes.T * variances, np.trace(moments.covariance)
        # whitening divides by these: they may be off by rounding, no more
        wrong = self.explained_variance_ - variances * n / max(n - 1, 1)
        return bool(
            _is_one_of(self.mean_, [moments.mean])
            and np.allclose(axes @ axes.T, np.eye(len(axes)))
            and np.all(np.abs(left) <= 1e-6 * total)
            and np.all(np.abs(wrong) <= 1e-6 * variances + 1e-12 * total)
        )

    def _public_model(self):
        return {
            "whiten": bool(self.whiten),
            "mean": self.mean_,
            "components": self.components_,
            "variances": self.explained_variance_,
            "noise_variance": self.noise_variance_,
        }

    @classmethod
    def _from_public_model(cls, model, n_features):
        """Make fitted components of public numbers, which are checked."""
        n_components = len(model["components"])
        estimator = cls(n_components, whiten=model["whiten"])
        estimator.mean_ = check_received(model["mean"], (n_features,))
        shape = (n_components, n_features)
        estimator.components_ = check_received(model["components"], shape)
        variances = check_received(model["variances"], (n_components,))
        estimator.explained_variance_ = np.maximum(variances, 0)
        estimator.n_components_ = n_components
        noise = check_received(np.asarray(model["noise_variance"], np.float64), ())
        estimator.noise_variance_ = max(float(noise), 0.0)
        return estimator

    def _inverse(self, X):
        scale = self._deviations() if self.whiten else 1.0
        return (np.asarray(X) * scale) @ self.components_ + self.mean_

    def get_covariance(self) -> np.ndarray:
        """Return the covariance of the model: components, and noise in all directions.

        Returns
        -------
        covariance : ndarray of shape (n_features, n_features)
        """
        check_is_fitted(self)
        above = np.maximum(self.explained_variance_ - self.noise_variance_, 0)
        covariance = (self.components_.T * above) @ self.components_
        return covariance + self.noise_variance_ * np.eye(self.components_.shape[1])

    def get_precision(self) -> np.ndarray:
        """Return the inverse of :meth:`get_covariance`.

        Returns
        -------
        precision : ndarray of shape (n_features, n_features)
        """
        return pinvh(self.get_covariance(), check_finite=False)

    def score_samples(self, X: ArrayLike) -> np.ndarray:
        """Return the log-likelihood of each row under probabilistic PCA.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows that are here.

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples,)
        """
        return self._row_scores(X)

    def _row_scores(self, X):
        check_is_fitted(self)
        X = validate_table(self, X, reset=False, dtype=np.float64)
        deviations, precision = X - self.mean_, self.get_precision()
        distances = np.einsum("ij,jk,ik->i", deviations, precision, deviations)
        constant = X.shape[1] * np.log(2 * np.pi) - fast_logdet(precision)
        return -0.5 * (distances + constant)

    def _deviations(self):
        deviations = np.sqrt(self.explained_variance_)
        return np.maximum(deviations, np.finfo(deviations.dtype).eps)

    def _axes(self):
        if self.whiten:
            return self.components_ / self._deviations()[:, None]
        return self.components_


def _with_signs(axes):
    """Make the largest entry of each axis positive; of equal ones, the first.

    As scikit-learn does, but that rounding does not decide which is the largest: two
    standardised columns have axes of equal entries.
    """
    sizes = np.abs(axes)
    first = np.argmax(sizes >= (1 - 1e-9) * sizes.max(axis=1, keepdims=True), axis=1)
    return axes * np.sign(axes[np.arange(len(axes)), first])[:, None]
