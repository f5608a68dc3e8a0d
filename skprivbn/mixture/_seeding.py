"""Where EM starts: what a party works out alone, and how the pieces are put together.

Every start ends in responsibilities of each party's own rows, from which an M-step
over all parties makes the first mixture, as in scikit-learn.
"""

import secrets
import warnings

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin
from sklearn.mixture import GaussianMixture

from skprivbn.utils._computed_once import computed_once


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


def local_clusters(X, n_clusters, random_state):
    """Cluster one party's rows by k-means.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    n_clusters : int
    random_state : RandomState

    Returns
    -------
    centroids : ndarray of shape (n_clusters, n_features)
    sizes : ndarray of shape (n_clusters,)
    """
    k_means = KMeans(n_clusters, n_init=1, random_state=random_state)
    with warnings.catch_warnings():
        # fewer distinct rows than clusters: some clusters stay empty
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = k_means.fit_predict(X)
    sizes = np.bincount(labels, minlength=n_clusters).astype(float)
    return k_means.cluster_centers_, sizes


def local_components(X, n_components, random_state, **parameters):
    """Fit one party's own mixture.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    n_components : int
    random_state : RandomState
    **parameters
        Of scikit-learn's ``GaussianMixture``.

    Returns
    -------
    means : ndarray of shape (n_components, n_features)
    counts : ndarray of shape (n_components,)
        Sums of responsibilities.
    predict_proba : callable
        From rows to their responsibilities.
    """
    mixture = GaussianMixture(n_components, random_state=random_state, **parameters)
    with warnings.catch_warnings():
        # it is a start only
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit(X)
    counts = mixture.predict_proba(X).sum(axis=0)
    return mixture.means_, counts, mixture.predict_proba


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


def cluster_sums(X, labels, centres, scale):
    """Sum one party's part of a step of Lloyd's algorithm.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    labels : ndarray of shape (n_samples,)
    centres : ndarray of shape (n_clusters, n_features)
    scale : ndarray of shape (n_features,)
        Unit of each feature.

    Returns
    -------
    vector : ndarray of shape (n_clusters * (1 + n_features),)
        Sizes, then sums of distances from the centres.
    """
    members = one_hot(labels, len(centres))
    distances = (X - centres[labels]) / scale
    return np.append(members.sum(axis=0), (members.T @ distances).ravel())


def move_centres(vector, centres, scale):
    """Return the centres after a step of Lloyd's algorithm, from sums over all rows.

    Clusters without rows stay where they are.
    """
    n_clusters = len(centres)
    sizes, sums = vector[:n_clusters], vector[n_clusters:].reshape(centres.shape)
    occupied = sizes > 0.5
    step = np.zeros_like(centres)
    step[occupied] = sums[occupied] / sizes[occupied, np.newaxis]
    return centres + step * scale


def few_moved(both, least):
    """Tell whether a cluster differs from an earlier one by few rows: sums tell them.

    Parameters
    ----------
    both : ndarray of shape (n_tables, n_clusters, n_clusters)
        Numbers of rows by their clusters before and now.
    least : int
        Fewest rows to tell of.

    Returns
    -------
    few : bool
    """
    old, new = both.sum(axis=2, keepdims=True), both.sum(axis=1, keepdims=True)
    # of small clusters nothing is told
    told = (old >= least) & (new >= least)
    few = [(rows - both > 0.5) & (rows - both < least) for rows in (old, new)]
    return bool(np.any(told & np.logical_or(*few)))


def stay_untold(sizes, least):
    """Mark clusters to be silent about, so that few rows do not follow from others.

    What all clusters add up to is known. Beside small clusters, the smallest others
    are therefore left out, until all that are left out have enough rows together.

    Parameters
    ----------
    sizes : ndarray of shape (n_clusters,) or (n_clusters, n_features)
        Numbers of rows; of each column on its own, if there are columns.
    least : int
        Fewest rows to tell of.

    Returns
    -------
    untold : ndarray of bool of the same shape
    """
    order = np.argsort(sizes, axis=0)
    so_far = np.cumsum(np.take_along_axis(sizes, order, axis=0), axis=0)
    # clusters are added while those before them have too few rows together
    before = np.concatenate([np.zeros_like(so_far[:1]), so_far[:-1]])
    joined = np.empty(sizes.shape, dtype=bool)
    np.put_along_axis(joined, order, before < least, axis=0)
    small = sizes < least
    return small | (joined & (small & (sizes > 0)).any(axis=0))
