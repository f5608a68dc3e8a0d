"""Linear NOTEARS on pooled rows: the reference that federated learners approach."""

from numbers import Integral, Real
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from skprivbn.bayesian_network import GaussianBayesianNetwork
from skprivbn.structure._acyclicity import acyclic_weights
from skprivbn.structure._continuous import (
    ContinuousNetworkMixin,
    refuse_constant,
    warn_if_standardised,
    warn_if_units_differ,
)
from skprivbn.structure.gaussian._notears import notears
from skprivbn.utils import column_names, warn_user
from skprivbn.utils._sklearn import Interval, _fit_context
from skprivbn.utils._validation import validate_table


class Notears(ContinuousNetworkMixin, BaseEstimator):
    """Linear NOTEARS on pooled rows: the reference that federated learners approach.

    Read more in the :ref:`User Guide <structure_federated>`.

    Parameters
    ----------
    lambda1 : float, default=0.1
        Weight of the absolute values of the weights.
    threshold : float, default=0.3
        Weights of at most this size are no edge.
    max_iter : int, default=100
        Bound on the dual updates.
    h_tol : float, default=1e-8
        Measure of cycles that counts as none.

    Attributes
    ----------
    network_ : GaussianBayesianNetwork
        Weights, intercepts and noise variances by least squares on the graph.
    adjacency_matrix_ : ndarray of bool of shape (n_features, n_features)
        The graph; entry (i, j) is an edge from i to j.
    weights_ : ndarray of shape (n_features, n_features)
        Raw weights.
    h_ : float
        Measure of the cycles left in the raw weights.
    n_iter_ : int
        Number of dual updates.
    n_samples_ : int
        Number of rows.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if `X` has string names.

    See Also
    --------
    FederatedNotearsADMM : The same over parties.

    References
    ----------
    .. [1] Zheng, Aragam, Ravikumar, Xing. DAGs with NO TEARS: continuous optimization
       for structure learning. NeurIPS 2018.

    Examples
    --------
    >>> from skprivbn.datasets import make_linear_sem
    >>> from skprivbn.structure import Notears
    >>> X, weights = make_linear_sem(500, 4, random_state=0)
    >>> model = Notears().fit(X)
    >>> bool((model.adjacency_matrix_ == (weights != 0)).all())
    True
    """

    _parameter_constraints = {
        "lambda1": [Interval(Real, 0, None, closed="left")],
        "threshold": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "h_tol": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        lambda1: float = 0.1,
        *,
        threshold: float = 0.3,
        max_iter: int = 100,
        h_tol: float = 1e-8,
    ) -> None:
        self.lambda1 = lambda1
        self.threshold = threshold
        self.max_iter = max_iter
        self.h_tol = h_tol

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : Ignored
            Not used, present for API consistency by convention.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        X = validate_table(self, X, **self._row_checks, **self._fit_checks)
        self.n_samples_ = len(X)
        mean = X.mean(axis=0)
        covariance = (X - mean).T @ (X - mean) / len(X)
        refuse_constant(column_names(self), mean, np.diag(covariance), "in these rows")
        warn_if_standardised(np.diag(covariance))
        self.weights_, self.h_, self.n_iter_ = notears(
            covariance,
            lambda1=self.lambda1,
            max_iter=self.max_iter,
            h_tol=self.h_tol,
        )
        if self.h_ > max(self.h_tol, 1e-6):
            warn_user(
                f"cycles of measure {self.h_:.2g} are left (h_tol={self.h_tol}); "
                "increase max_iter",
                ConvergenceWarning,
            )
        kept = acyclic_weights(self.weights_, self.threshold)
        self.adjacency_matrix_ = kept != 0
        self.network_ = GaussianBayesianNetwork.fit_from_moments(
            mean, covariance, kept, nodes=column_names(self)
        )
        warn_if_units_differ(self.network_, len(X), "NOTEARS")
        return self
