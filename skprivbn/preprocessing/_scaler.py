"""Standardise features of rows held by several parties."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils.validation import check_is_fitted

from skprivbn.base import BACKEND_CONSTRAINT
from skprivbn.crypto import AdditiveBackend
from skprivbn.federation import check_received
from skprivbn.preprocessing._base import (
    FederatedTransformer,
    check_digits,
    fit_moments,
)
from skprivbn.privacy import PrivacyAccountant
from skprivbn.privacy._options import PRIVACY_CONSTRAINTS
from skprivbn.programs import moments
from skprivbn.utils._sklearn import _fit_context
from skprivbn.utils._typing import TableLike, WeightsLike


class FederatedStandardScaler(OneToOneFeatureMixin, FederatedTransformer):
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
    backend : str or AdditiveBackend, default="masking"
        How the sums are hidden. Means and variances are results, known to the
        coordinator, so that they are summed exactly under masks whatever the backend.
    epsilon : float, default=None
        Privacy budget of the means and variances. None releases them exactly.
    delta : float, default=0.0
        With `epsilon`: 0 adds discrete Laplace noise, more discrete Gaussian noise.
    bounds : pair of numbers or array-likes of shape (n_features,), default=None
        Public lower and upper bounds of the features, to which rows are clipped;
        needed with `epsilon`.
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
        "backend": BACKEND_CONSTRAINT,
        **PRIVACY_CONSTRAINTS,
    }

    def __init__(
        self,
        *,
        with_mean: bool = True,
        with_std: bool = True,
        backend: str | AdditiveBackend = "masking",
        epsilon: float | None = None,
        delta: float = 0.0,
        bounds: tuple | None = None,
        accountant: PrivacyAccountant | None = None,
        min_honest: int | None = None,
    ) -> None:
        self.with_mean = with_mean
        self.with_std = with_std
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
                "sample_weight cannot go with epsilon: no noise hides a row whose "
                "weight nobody bounds"
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

    def _transform(self, X):
        if self.with_mean:
            X = X - self.mean_.astype(X.dtype)
        if self.with_std:
            X = X / self.scale_.astype(X.dtype)
        return X

    def _summands(self, X):
        """Return the sizes of what is added up in each result; sites round by them."""
        sizes = (np.abs(X) + np.abs(self.mean_)) / self.scale_
        return check_digits(sizes, self._transform(X))

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

    def inverse_transform(self, X: ArrayLike) -> np.ndarray:
        """Undo the standardisation, locally.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Standardised rows.

        Returns
        -------
        X_original : ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        X = np.array(X, dtype=np.float64)
        if self.with_std:
            X = X * self.scale_
        if self.with_mean:
            X = X + self.mean_
        return X


def _scale(moments):
    """Return standard deviations, and 1 for features that do not vary."""
    variance, mean, n = moments.covariance, moments.mean, moments.n_rows
    # As scikit-learn: below this, a variance is the rounding error of a constant.
    error = n * np.finfo(np.float64).eps * variance
    error += (n * mean * np.finfo(np.float64).eps) ** 2
    return np.where(variance <= error, 1.0, np.sqrt(variance))
