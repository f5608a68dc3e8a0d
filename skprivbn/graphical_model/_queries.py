"""What a fitted field answers: scores, missing entries, marginals, synthetic rows."""

from numbers import Integral

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from skprivbn.graphical_model._counting import resolve_cliques

__all__ = ["RandomFieldQueries"]


class RandomFieldQueries:
    """Methods of estimators that keep a fitted MarkovRandomField in `model_`."""

    def _nodes(self):
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            return [f"x{i}" for i in range(self.n_features_in_)]
        return [str(name) for name in names]

    def _rows(self, X):
        check_is_fitted(self)
        return validate_data(self, X, reset=False, dtype=None, ensure_all_finite=False)

    def score_samples(self, X):
        """Return the log-probability of each row; missing entries are summed out.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Labels; None and NaN are missing.

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples,)
        """
        rows = self._rows(X)
        return self.model_.log_likelihood(rows)

    def score(self, X, y=None, sample_weight=None):
        """Return the mean log-probability per row.

        The score is an exact function of the rows. If they are private themselves,
        use :func:`skprivbn.privacy.private_score`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Labels.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights.

        Returns
        -------
        score : float
        """
        return float(np.average(self.score_samples(X), weights=sample_weight))

    def predict_proba(self, X):
        """Return the distribution of every entry given the observed ones of its row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Labels; None and NaN are missing.

        Returns
        -------
        probabilities : list of ndarray of shape (n_samples, n_states)
            One array per column.
        """
        rows = self._rows(X)
        return self.model_.predict_proba(rows)

    def predict(self, X):
        """Return X with each missing entry replaced by its most probable state.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Labels; None and NaN are missing.

        Returns
        -------
        completed : ndarray of shape (n_samples, n_features)
        """
        rows = self._rows(X)
        return self.model_.predict(rows)

    def marginal(self, columns):
        """Return the joint distribution of some columns.

        Parameters
        ----------
        columns : str, int or sequence of these
            Names or positions.

        Returns
        -------
        probabilities : ndarray
            One axis per column.
        """
        check_is_fitted(self)
        single = isinstance(columns, str | Integral)
        nodes = self._nodes()
        (scope,) = resolve_cliques([[columns] if single else columns], nodes)
        return self.model_.query([nodes[i] for i in scope])

    def sample(self, n_samples=1, random_state=None):
        """Draw synthetic rows; costs no privacy.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        random_state : int, RandomState instance or None, default=None
            Seed for reproducible output.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            Labels.
        """
        check_is_fitted(self)
        return self.model_.sample(n_samples, random_state)
