"""Where EM starts: what a party works out alone, and how the pieces are put together.

Every start ends in responsibilities of each party's own rows, from which an M-step
over all parties makes the first mixture, as in scikit-learn.
"""

import secrets
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin
from sklearn.mixture import GaussianMixture

from skprivbn.federation import sum_over_rows
from skprivbn.mixture._gaps import entries_seen, fill_with_zeros
from skprivbn.mixture._gaussian_steps import Mixture
from skprivbn.utils._computed_once import computed_once

#: of so many of its rows a party makes clusters to start from; all rows move them later
MAX_START_ROWS = 1 << 17


def one_hot(labels, n_components):
    """Return responsibilities of one for each row's label."""
    return np.eye(n_components)[labels]


def random_responsibilities(n_rows, n_components, random_state):
    """Return uniformly drawn responsibilities, normalised by row."""
    return _by_row(random_state.uniform(size=(n_rows, n_components)))


def secret_responsibilities(n_rows, n_components):
    """Return the same from the operating system, for sums that others read.

    Whoever knows the responsibilities of as many starts as there are rows solves their
    sums for the rows.
    """
    draws = np.frombuffer(secrets.token_bytes(4 * n_rows * n_components), np.uint32)
    return _by_row(draws.reshape(n_rows, n_components) + 0.5)


def _by_row(shares):
    return shares / shares.sum(axis=1, keepdims=True)


class OwnClusters(NamedTuple):
    """Clusters of one party's rows.

    Attributes
    ----------
    centres : ndarray of shape (n_clusters, n_features)
    sizes : ndarray of shape (n_clusters,)
    entries : ndarray of shape (n_clusters, n_features)
        How many rows of each have an entry in each column; infinite without gaps.
    mixture : callable or None
        From complete rows to their responsibilities, if a mixture was fitted.
    """

    centres: np.ndarray
    sizes: np.ndarray
    entries: np.ndarray
    mixture: Callable | None


def own_clusters(rows, n_clusters, random_state, terms):
    """Cluster one party's rows, by k-means or by a mixture of its own.

    Parameters
    ----------
    rows : ndarray or RowSource of shape (n_samples, n_features)
        With the centre at zero, which a missing entry is taken for.
    n_clusters : int
    random_state : RandomState
    terms : EMTerms

    Returns
    -------
    clusters : OwnClusters
    """
    some, step = rows, -(-len(rows) // MAX_START_ROWS)
    if step > 1:
        some = rows[np.arange(len(rows)) % step == 0]
    some = fill_with_zeros(np.asarray(some))
    fitted = None
    if terms.init_params == "local_em" and len(rows) > 1:
        kind, reg_covar = terms.covariance_type, terms.reg_covar
        fitted = _own_mixture(some, n_clusters, random_state, kind, reg_covar)
    if fitted is not None:
        members, centres = fitted.predict_proba, fitted.means_
    else:
        k_means = KMeans(n_clusters, n_init=1, random_state=random_state)
        with warnings.catch_warnings():
            # fewer distinct rows than clusters: some clusters stay empty
            warnings.simplefilter("ignore", ConvergenceWarning)
            centres = k_means.fit(some).cluster_centers_

        def members(X):
            return one_hot(nearest(X, centres), n_clusters)

    sizes = step * members(some).sum(axis=0)
    entries = np.full(centres.shape, np.inf)
    if terms.has_gaps:

        def count(X):
            return entries_seen(X, members(fill_with_zeros(X)))

        entries = sum_over_rows(rows, count)
    return OwnClusters(centres, sizes, entries, fitted and fitted.predict_proba)


def _own_mixture(X, n_components, random_state, covariance_type, reg_covar):
    """Fit one party's own mixture; None if there are too few rows for one."""
    mixture = GaussianMixture(
        n_components,
        covariance_type=covariance_type,
        reg_covar=reg_covar,
        random_state=random_state,
    )
    with warnings.catch_warnings():
        # it is a start only
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            return mixture.fit(X)
        except ValueError:
            return None


@computed_once
def merge_centroids(centroids, sizes, n_clusters, seed):
    """Cluster the centroids of all parties, weighted by the rows they stand for.

    Parameters
    ----------
    centroids : ndarray of shape (n_centroids, n_features)
    sizes : ndarray of shape (n_centroids,)
    n_clusters : int
        At most `n_centroids`.
    seed : int
        Public, so that every party gets the same result.

    Returns
    -------
    centres : ndarray of shape (n_clusters, n_features)
    """
    if len(centroids) == n_clusters:
        return centroids
    k_means = KMeans(n_clusters, n_init=10, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return k_means.fit(centroids, sample_weight=sizes).cluster_centers_


def nearest(X, centres):
    """Return the number of the centre closest to each row."""
    if not len(X):
        return np.zeros(0, dtype=np.intp)
    return pairwise_distances_argmin(X, centres)


def cluster_sums(X, members, centres, scale):
    """Sum one party's part of a step of Lloyd's algorithm.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    members : ndarray of shape (n_samples, n_clusters)
        One-hot.
    centres : ndarray of shape (n_clusters, n_features)
    scale : ndarray of shape (n_features,)
        Unit of each feature.

    Returns
    -------
    vector : ndarray of shape (n_clusters * (1 + n_features),)
        Sizes, then sums of distances from the centres.
    """
    distances = (X - members @ centres) / scale
    return np.append(members.sum(axis=0), (members.T @ distances).ravel())


def most_likely_order(covariance_type, shares, means, covariances, given):
    """Return the cluster that each component starts from, if part of it is given.

    Clusters have no order of their own. They are matched with the given parameters so
    that the expected log-likelihood of all rows is highest, each cluster's rows under
    the component that it becomes; parameters that are not given are the cluster's.

    Parameters
    ----------
    covariance_type : {"full", "tied", "diag", "spherical"}
    shares : ndarray of shape (n_components,)
        Of all rows, in each cluster.
    means : ndarray of shape (n_components, n_features)
        Of the clusters.
    covariances : ndarray
        Of the clusters; singular ones are refused unless precisions are given.
    given : Given
        Weights, means or precisions of the components, in their order; means relative
        to the same point as those of the clusters.

    Returns
    -------
    order : ndarray of shape (n_components,)
        Of each component, the number of its cluster.
    """
    kind, shape = covariance_type, means.shape
    # clusters along the first axis, components along the second
    spreads = _matrices(kind, covariances, shape)[:, np.newaxis]
    if given.precisions is None:
        own = Mixture.from_covariances(kind, shares, means, covariances).precisions
        precisions = _matrices(kind, own, shape)[:, np.newaxis]
    else:
        precisions = _matrices(kind, given.precisions, shape)[np.newaxis]
    scores = np.linalg.slogdet(precisions)[1]
    scores = scores - np.einsum("...ab,...ab->...", precisions, spreads)
    if given.means is not None:
        steps = means[:, np.newaxis] - given.means
        scores = scores - np.einsum("...a,...ab,...b->...", steps, precisions, steps)
    if given.weights is not None:
        smallest = np.finfo(np.float64).tiny
        scores = scores + 2 * np.log(np.maximum(given.weights, smallest))
    scores = np.broadcast_to(shares[:, np.newaxis] * scores, 2 * (len(means),))
    return linear_sum_assignment(scores.T, maximize=True)[1]


def _matrices(covariance_type, covariances, shape):
    """Return covariances, or precisions, as one matrix per component."""
    n_components, n_features = shape
    if covariance_type == "tied":
        return np.broadcast_to(covariances, (n_components, n_features, n_features))
    if covariance_type == "full":
        return covariances
    diagonals = np.reshape(covariances, (n_components, -1, 1))
    return diagonals * np.eye(n_features)
