"""Principal components of rows held by several parties."""

from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import pinvh
from sklearn.base import (
    ClassNamePrefixFeaturesOutMixin,
)
from sklearn.utils.extmath import fast_logdet
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
from skprivbn.programs import keep_predictions, moments, score_rows
from skprivbn.utils._linalg import multiply_rows
from skprivbn.utils._sklearn import Interval, RealNotInt
from skprivbn.utils._validation import validate_table


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
    #: axes may make copies of a column; sites tell neither quantiles nor bins of these
    _mixes_columns = True
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
        bounds: tuple | None = None,
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

    def _transform(self, X):
        # by BLAS, a row would be rounded by the number of rows beside it
        return multiply_rows(X - self.mean_, self._axes().T).astype(X.dtype, copy=False)

    def _summands(self, X):
        """Return the sizes of what is added up in each result; sites round by them."""
        sizes = (np.abs(X) + np.abs(self.mean_)) @ np.abs(self._axes()).T
        return check_digits(sizes, self._transform(X))

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

    def inverse_transform(self, X: ArrayLike) -> np.ndarray:
        """Return to the space of the features, locally.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Transformed rows.

        Returns
        -------
        X_original : ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
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
