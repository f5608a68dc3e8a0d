"""What can be done with a fitted mixture."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skprivbn.base import RowsMixin, by_holders
from skprivbn.federation import check_received
from skprivbn.federation._rows import paired_blocks
from skprivbn.mixture._gaussian_steps import (
    Mixture,
    covariance_shape,
    e_step,
    n_statistics,
    weighted_log_density,
)
from skprivbn.mixture._noisy_em import Box, noisy_steps
from skprivbn.partition import RemoteResults, is_partition
from skprivbn.privacy._options import note_exact_score
from skprivbn.programs._noisy_moments import bootstrap_interval, simulate_noise
from skprivbn.utils._memoise import ask
from skprivbn.utils._typing import RandomStateLike, TableLike
from skprivbn.utils._validation import validate_table


class FittedMixtureMixin(RowsMixin, DensityMixin):
    """Methods of a fitted mixture, those of scikit-learn's ``GaussianMixture``."""

    @property
    def _gap_rule(self):
        return "em" if self.missing == "em" else "error"

    @property
    def _row_checks(self):
        finite = "allow-nan" if self.missing == "em" else True
        return {"dtype": [np.float64, np.float32], "ensure_all_finite": finite}

    def _mixture(self):
        found = self.weights_, self.means_, self.covariances_
        arrays = (a.astype(np.float64) for a in (*found, self.precisions_cholesky_))
        return Mixture(self.covariance_type, *arrays)

    def _check(self, X):
        """Return the rows in double precision, and the precision of what they gave."""
        check_is_fitted(self)
        X = validate_table(self, X, reset=False, **self._row_checks)
        dtype = np.result_type(X.dtype, self.means_.dtype)
        return X.astype(np.float64, copy=False), dtype

    def _public_model(self):
        mixture = self._mixture()
        return {
            "covariance_type": mixture.covariance_type,
            "weights": mixture.weights,
            "means": mixture.means,
            "covariances": mixture.covariances,
            "missing": self._gap_rule,
        }

    @classmethod
    def _from_public_model(cls, model, n_features):
        """Make a fitted mixture of public parameters, all of which are checked."""
        k, d = len(model["weights"]), n_features
        shape = covariance_shape(model["covariance_type"], k, d)
        mixture = Mixture.from_covariances(
            model["covariance_type"],
            check_received(model["weights"], (k,)),
            check_received(model["means"], (k, d)),
            check_received(model["covariances"], shape),
        )
        if model["missing"] not in ("error", "em"):
            raise ValueError("missing must be 'error' or 'em'")
        estimator = cls(
            k, covariance_type=mixture.covariance_type, missing=model["missing"]
        )
        estimator._set_mixture(mixture, np.float64)
        return estimator

    def _set_mixture(self, mixture, dtype):
        self.weights_ = mixture.weights.astype(dtype)
        self.means_ = mixture.means.astype(dtype)
        self.covariances_ = mixture.covariances.astype(dtype)
        self.precisions_ = mixture.precisions.astype(dtype)
        self.precisions_cholesky_ = mixture.precisions_cholesky.astype(dtype)

    def _row_scores(self, X):
        # sums of them are made in double precision, whatever the rows have
        return e_step(self._check(X)[0], self._mixture())[0]

    def _score_rows_alone(self, X):
        """Return the log-likelihood that every row has alone, NaN where it has none.

        For scores that noise is added to: nothing in a row may raise.
        """
        check_is_fitted(self)
        checks = {"dtype": np.float64, "ensure_all_finite": False}
        X = validate_table(self, X, reset=False, ensure_min_samples=0, **checks)
        wrong = np.isinf(X) if self.missing == "em" else ~np.isfinite(X)
        wrong = wrong.any(axis=1)
        rows = np.where(wrong[:, np.newaxis], 0.0, X)
        return np.where(wrong, np.nan, e_step(rows, self._mixture(), alone=True)[0])

    @by_holders
    def predict(self, X: TableLike) -> np.ndarray | RemoteResults:
        """Return the most probable component of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or RemoteRows
            Rows. Sites keep the components of remote ones.

        Returns
        -------
        labels : ndarray of shape (n_samples,) or RemoteResults
            Components.
        """
        rows, _ = self._check(X)
        return weighted_log_density(rows, self._mixture()).argmax(axis=1)

    @by_holders
    def predict_proba(self, X: TableLike) -> np.ndarray | RemoteResults:
        """Return the probability of each component, for each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or RemoteRows
            Rows. Sites keep the probabilities of remote ones.

        Returns
        -------
        responsibilities : ndarray of shape (n_samples, n_components) or RemoteResults
            Probabilities.
        """
        rows, dtype = self._check(X)
        return e_step(rows, self._mixture())[1].astype(dtype, copy=False)

    def score_samples(self, X: ArrayLike) -> np.ndarray:
        """Return the log-likelihood of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples,)
            Log-likelihoods.
        """
        rows, dtype = self._check(X)
        return e_step(rows, self._mixture())[0].astype(dtype, copy=False)

    def bic(self, X: TableLike) -> float:
        """Return the Bayesian information criterion; lower is better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or HorizontalPartition
            Rows.

        Returns
        -------
        bic : float
            Criterion.
        """
        total, n_samples = self._log_likelihood(X)
        return -2 * total + self._n_parameters() * math.log(n_samples)

    def aic(self, X: TableLike) -> float:
        """Return Akaike's information criterion; lower is better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or HorizontalPartition
            Rows.

        Returns
        -------
        aic : float
            Criterion.
        """
        total, _ = self._log_likelihood(X)
        return -2 * total + 2 * self._n_parameters()

    def conf_int(
        self,
        level: float = 0.95,
        n_bootstrap: int = 100,
        random_state: RandomStateLike = None,
    ) -> dict[str, np.ndarray]:
        """Return confidence intervals of the parameters, noise included.

        For fits with `epsilon`, by a parametric bootstrap, which costs no privacy: rows
        are drawn from the mixture, clipped to the bounds and learnt from in the same
        way, with noise of the same scale. The number of components is taken to be
        right, and components to be as far apart as they were found to be. Intervals of
        covariances are about those before they were shrunk for the noise.

        Parameters
        ----------
        level : float, default=0.95
            Probability with which an interval is to cover the truth.
        n_bootstrap : int, default=100
            Number of fits.
        random_state : int, RandomState instance or None, default=None
            Makes the draws reproducible.

        Returns
        -------
        intervals : dict of str to ndarray of shape (..., 2)
            Low and high ends of ``weights_``, ``means_`` and ``covariances_``.
        """
        check_is_fitted(self)
        if not hasattr(self, "privacy_spent_"):
            raise ValueError(
                "conf_int needs a fit with epsilon: its intervals are those of the "
                "privacy noise, of which this fit has none"
            )
        if self.missing == "em":
            raise ValueError(
                "conf_int is not available with missing='em': its bootstrap draws "
                "complete rows"
            )
        (terms, n_parties, unshrunk), truth = self._noisy_fit, self._mixture()
        n_rows, rng = max(round(self.n_samples_), 1), check_random_state(random_state)
        drawn = _bootstrapped(truth, terms, n_parties, n_rows, n_bootstrap, rng)
        intervals = {
            name: bootstrap_interval(getattr(self, name), values, level)
            for name, values in drawn.items()
        }
        shrunk_by = unshrunk - self.covariances_
        intervals["covariances_"] += shrunk_by[..., np.newaxis]
        intervals["weights_"] = np.clip(intervals["weights_"], 0.0, 1.0)
        return intervals

    def _log_likelihood(self, X):
        if is_partition(X):
            check_is_fitted(self)
            return self._add_scores(X)
        note_exact_score(self)
        likelihoods = self._row_scores(X)
        return float(likelihoods.sum()), len(likelihoods)

    def _n_parameters(self):
        # as many as sums in the M-step, but that weights add up to one
        return n_statistics(self.covariance_type, *self.means_.shape) - 1

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Draw rows from the fitted mixture.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            Rows, ordered by component.
        y : ndarray of shape (n_samples,)
            Components.
        """
        check_is_fitted(self)
        if n_samples < 1:
            raise ValueError(
                f"Invalid value for 'n_samples': {n_samples}. The sampling requires at "
                "least one sample."
            )
        rng = check_random_state(self.random_state)
        return _draw_rows(self._mixture(), n_samples, rng)


def _draw_rows(mixture, n_rows, rng):
    """Draw rows of a mixture, ordered by component, and their components."""
    weights = mixture.weights / mixture.weights.sum()
    counts = rng.multinomial(n_rows, weights)
    n_components, n_features = mixture.means.shape
    covariances = mixture.covariances
    if mixture.covariance_type == "tied":
        covariances = [covariances] * n_components
    blocks = []
    for mean, covariance, count in zip(mixture.means, covariances, counts):
        if mixture.covariance_type in ("full", "tied"):
            # positive definite once, perhaps no longer to the digits of float32
            normal = rng.multivariate_normal(mean, covariance, int(count), "ignore")
            blocks.append(normal)
        else:
            normal = rng.standard_normal(size=(count, n_features))
            blocks.append(mean + normal * np.sqrt(covariance))
    return np.vstack(blocks), np.repeat(np.arange(n_components), counts)


def _bootstrapped(mixture, terms, n_parties, n_rows, n_fits, rng):
    """Return what private fits find in rows drawn from a mixture.

    Parameters
    ----------
    mixture : Mixture
        The truth of the simulation.
    terms : PrivateEMTerms
        Of the real fit.
    n_parties, n_rows, n_fits : int
    rng : RandomState

    Returns
    -------
    found : dict of str to ndarray of shape (n_fits, ...)
        Weights, means and covariances, which are not shrunk, of components in the
        order of the mixture's.
    """
    low, high = terms.bounds
    box, found = Box.between(low, high, terms.covariance_type), []
    for _ in range(n_fits):
        rows = box.inside(np.clip(_draw_rows(mixture, n_rows, rng)[0], low, high))
        blocks = partial(paired_blocks, rows, np.ones(n_rows))
        fit = ask(noisy_steps(terms, box, blocks, n_parties), partial(_answer, rng))
        gaps = (mixture.means[:, np.newaxis] - fit["means"]) / box.half
        _, order = linear_sum_assignment((gaps**2).sum(axis=2))
        covariances = fit["unshrunk"]
        if terms.covariance_type != "tied":
            covariances = covariances[order]
        found.append((fit["weights"][order], fit["means"][order], covariances))
    names = "weights_", "means_", "covariances_"
    return {name: np.array(values) for name, values in zip(names, zip(*found))}


def _answer(rng, asked):
    """Return the counts that a fit asks for, with simulated noise."""
    noise, size = asked.noise, len(asked.counts)
    return asked.counts + np.rint(simulate_noise(noise.kind, noise.std, size, rng))
