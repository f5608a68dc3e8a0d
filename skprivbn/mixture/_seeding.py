"""The terms of a fit, and its start: what parties tell each other, and work out alone.

Every start ends in responsibilities of each party's own rows, from which an M-step
over all parties makes the first mixture, as in scikit-learn; or in rows that all see.
"""

import secrets
import warnings
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin
from sklearn.mixture import GaussianMixture

from skprivbn.federation import (
    Me,
    PartyRefusal,
    RowWeights,
    Sum,
    Tell,
    Terms,
    TooFewRows,
    check_like,
    check_received,
    row_blocks,
    sum_over_rows,
)
from skprivbn.mixture._gaps import entries, fill_with_zeros
from skprivbn.mixture._gaussian_steps import (
    Mixture,
    as_matrices,
    covariance_shape,
    n_statistics,
)
from skprivbn.utils._memoise import memoise

CENTRES = "centres and sizes of clusters of min_rows rows or more"
MASSES = "numbers of rows, or squared distances from rows chosen"
SHOWN = "rows chosen as first means"
CLUSTERS = "sizes and sums of clusters, each step of k-means"

#: why there is nothing to start from
FEW_CLUSTERS = "few clusters"

#: of so many of its rows a party makes clusters to start from; all rows move them later
MAX_START_ROWS = 1 << 17
#: steps of k-means over all parties' rows
MAX_LLOYD_ROUNDS = 10
#: distances that are worked on at a time
_N_BLOCK = 1 << 18


@dataclass(frozen=True)
class Given:
    """What the start has from the user, or from the fit before."""

    weights: np.ndarray | None = None
    means: np.ndarray | None = None
    precisions: np.ndarray | None = None
    covariances: np.ndarray | None = None

    def about(self, centre, unit=1.0, squared=1.0):
        """Return the same about a centre, in units of features and of covariances."""

        def apply(function, value):
            return None if value is None else function(value)

        return replace(
            self,
            means=apply(lambda means: (means - centre) / unit, self.means),
            precisions=apply(lambda p: p * squared, self.precisions),
            covariances=apply(lambda c: c / squared, self.covariances),
        )


@dataclass(frozen=True)
class MixtureTerms(Terms):
    """What every fit of a mixture says: its shape, and how EM starts.

    Parameters
    ----------
    n_components : int
    covariance_type : {"full", "tied", "diag", "spherical"}
    reg_covar : float
    max_iter : int
        Most iterations of each start.
    init_params : str
        As the estimator's; ``"given"`` if the whole start is.
    seeds : list of int
        One for each start.
    given : Given
    missing : {"error", "em"}
        Whether rows may have gaps.
    """

    n_components: int
    covariance_type: Literal["full", "tied", "diag", "spherical"]
    reg_covar: float
    max_iter: int
    init_params: Literal[
        "given", "kmeans", "k-means++", "local_em", "random", "random_from_data"
    ]
    seeds: list[int]
    given: Given
    missing: Literal["error", "em"] = field(default="error", kw_only=True)

    @property
    def has_gaps(self):
        """Whether rows may have gaps."""
        return self.missing == "em"

    @property
    def matches_clusters(self):
        """Whether clusters of rows are put in the order of what is given."""
        given = self.given.weights, self.given.means, self.given.precisions
        some = any(value is not None for value in given)
        return some and self.init_params in ("kmeans", "local_em")

    def check(self):
        """Refuse no components or starts, and fewer iterations than none."""
        if self.n_components < 1 or self.max_iter < 0 or not self.seeds:
            raise ValueError(
                "n_components and n_init must be positive, max_iter not negative"
            )

    def n_summed(self, n_features):
        """Return the sums of an M-step; with gaps also numbers of entries."""
        n_seen = self.n_components * n_features if self.has_gaps else 0
        return n_seen + n_statistics(
            self.covariance_type, self.n_components, n_features
        )

    def shows_rows(self):
        """Tell whether all parties get to see the rows that the start is made of."""
        return self.init_params in ("k-means++", "random_from_data")


@dataclass(frozen=True)
class EMTerms(MixtureTerms):
    """Terms of exact EM.

    Parameters
    ----------
    lower_bound : float
        Of the fit before, from which a warm start goes on.
    tol : float
    covariance_update : {"exact", "paper"}
    rotate_keys : bool
        Whether every iteration has keys of its own.
    min_rows : int
        Components of fewer rows are not told.
    """

    lower_bound: float
    tol: float
    covariance_update: Literal["exact", "paper"]
    rotate_keys: bool
    min_rows: int


def check_given(terms, n_features):
    """Refuse a start whose arrays have other shapes than those of a mixture.

    Weights for every row of a party, for instance, could pick out one of them.
    """
    n_components = terms.n_components
    covariances = covariance_shape(terms.covariance_type, n_components, n_features)
    shapes = {
        "weights": (n_components,),
        "means": (n_components, n_features),
        "precisions": covariances,
        "covariances": covariances,
    }
    for name, shape in shapes.items():
        if (value := getattr(terms.given, name)) is not None:
            check_received(value, shape)


def first_mixture(kind, given, weights=None, means=None, covariances=None):
    """Make the first mixture of what is given, and of these where nothing is."""
    weights = weights if given.weights is None else given.weights
    means = means if given.means is None else given.means
    if given.precisions is not None:
        return Mixture.from_precisions(kind, weights, means, given.precisions)
    if given.covariances is not None:
        covariances = given.covariances
    return Mixture.from_covariances(kind, weights, means, covariances)


class NoMixtureError(Exception):
    """A fit ends without a mixture, for a reason that all parties know alike."""


def draw_responsibilities(me: Me, seed: int) -> Callable:
    """Return random responsibilities, which at sites do not follow from the seed.

    Whoever knows those of as many starts as there are rows solves their sums for the
    rows: at sites they come from the operating system.
    """
    random_state, n_components = _random_state(me, seed), me.terms.n_components

    def respond(X):
        shape = len(X), n_components
        if me.is_simulated:
            shares = random_state.uniform(size=shape)
        else:
            draws = np.frombuffer(secrets.token_bytes(4 * np.prod(shape)), np.uint32)
            shares = draws.reshape(shape) + 0.5
        return 0.0, shares / shares.sum(axis=1, keepdims=True)

    return respond


def cluster(
    me: Me, rows: Any, scale: np.ndarray, seed: int
) -> Generator[Any, Any, Callable]:
    """Merge the centres of all parties' clusters; k-means moves them over all rows."""
    terms, n_components = me.terms, me.terms.n_components
    least = me.min_rows if me.peers else 1
    n_clusters = max(min(n_components, len(rows) // least), 1)
    own = own_clusters(rows, n_clusters, _random_state(me, seed), terms)
    centres = own.centres
    if me.peers:
        big, told = own.sizes >= least, np.where(own.entries < least, 0.0, own.centres)
        # Filled up, so that whoever carries it does not see how many there are.
        n_missing = n_components - np.count_nonzero(big)
        mine = {
            "centres": np.pad(told[big], [(0, n_missing), (0, 0)]),
            "sizes": np.pad(own.sizes[big], (0, n_missing)),
        }
        tell = Tell(dict.fromkeys(me.peers, mine), CENTRES, "plaintext aggregate")
        heard = yield from _hear_all(me, mine, tell)
        centres = np.vstack([heard[name]["centres"] for name in me.roster])
        sizes = np.concatenate([heard[name]["sizes"] for name in me.roster])
        if np.count_nonzero(sizes) < n_components:
            raise NoMixtureError(FEW_CLUSTERS)
        centres, sizes = centres[sizes > 0], sizes[sizes > 0]
        centres = merge_centroids(centres, sizes, n_components, seed)
    if terms.init_params == "kmeans":
        centres = yield from move_centres(me, rows, scale, centres)
    elif own.mixture is not None:
        groups = one_hot(nearest(own.centres, centres), n_components)
        return lambda X: (0.0, own.mixture(fill_with_zeros(X)) @ groups)
    return lambda X: (0.0, one_hot(nearest(fill_with_zeros(X), centres), n_components))


def move_centres(
    me: Me, rows: Any, scale: np.ndarray, centres: np.ndarray
) -> Generator[Any, Any, np.ndarray]:
    """Do steps of Lloyd's algorithm; clusters of few rows stay where they are."""
    centres = centres.copy()
    for _ in range(MAX_LLOYD_ROUNDS):
        moving, total = np.arange(len(centres)), None
        while total is None:
            sums, counted = _add_clusters(me, rows, scale, centres[moving])
            try:
                total = yield Sum(sums, CLUSTERS, RowWeights(counted.ravel()))
            except TooFewRows as few:
                # their rows go with the nearest of the others
                small = few.blocks.reshape(counted.shape).any(axis=1)
                if small.all():
                    raise
                moving = moving[~small]
        sizes, sums = np.split(total, [len(moving)])
        steps = sums.reshape(len(moving), -1) / np.maximum(sizes, 0.5)[:, np.newaxis]
        centres[moving] += steps * scale
        if np.abs(steps).max() < 1e-4:
            break
    return centres


def _add_clusters(me, rows, scale, centres):
    """Return sizes of own clusters and sums of distances from their centres.

    And how many rows these are about.
    """
    sums, counted = np.zeros(1), np.zeros(1)
    for X in row_blocks(rows):
        filled = fill_with_zeros(X)
        members = one_hot(nearest(filled, centres), len(centres))
        distances = (filled - members @ centres) / scale
        moved = (members.T @ distances).ravel()
        sums = sums + np.append(members.sum(axis=0), moved)
        counted = counted + members.T @ entries(X, me.terms.has_gaps)
    return sums, counted


def choose_rows(me: Me, rows: Any, seed: int) -> Generator[Any, Any, np.ndarray]:
    """Draw rows of all parties; with k-means++ by squared distance from those before.

    Everybody sees them.
    """
    rows, shared = np.asarray(rows), np.random.RandomState(seed)
    filled, chances, chosen = fill_with_zeros(rows), np.ones(len(rows)), []
    for _ in range(me.terms.n_components):
        mine: dict = {"mass": float(chances.sum())}
        tell = Tell(dict.fromkeys(me.peers, mine), MASSES, "plaintext aggregate")
        masses = yield from _hear_all(me, mine, tell)
        ends = np.cumsum([masses[name]["mass"] for name in me.roster])
        target = shared.uniform() * ends[-1]
        holder = int(np.searchsorted(ends[:-1], target, side="right"))
        # The others send one, too, or the relay would know whose row it is.
        row = np.zeros(rows.shape[1])
        if me.roster[holder] == me.name:
            target -= ends[holder - 1] if holder else 0.0
            place = np.searchsorted(np.cumsum(chances)[:-1], target, side="right")
            row, chances[place] = rows[place], 0
        mine = {"row": fill_with_zeros(row), "gaps": np.isnan(row).astype(float)}
        tell = Tell(dict.fromkeys(me.peers, mine), SHOWN, "raw rows")
        told = (yield from _hear_all(me, mine, tell))[me.roster[holder]]
        chosen.append(np.where(told["gaps"] > 0, np.nan, told["row"]))
        if me.terms.init_params == "k-means++":
            squares = ((filled - told["row"]) ** 2).sum(axis=1)
            chances = squares if len(chosen) == 1 else np.minimum(chances, squares)
    return np.array(chosen)


def _hear_all(me, mine, tell):
    """Tell all peers the same; return what everybody told, by name."""
    heard = {me.name: mine}
    if me.peers:
        heard |= yield tell
    if heard.keys() != set(me.roster):
        raise PartyRefusal("refused")
    for message in heard.values():
        check_like(message, mine)
    return heard


def _random_state(me, seed):
    """Return own random numbers, which decide nothing but where the search begins."""
    place = me.roster.index(me.name)
    return np.random.RandomState([seed, place] if place else seed)


def one_hot(labels, n_components):
    """Return responsibilities of one for each row's label."""
    return np.eye(n_components)[labels]


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
        mixture = GaussianMixture(
            n_clusters,
            covariance_type=terms.covariance_type,
            reg_covar=terms.reg_covar,
            random_state=random_state,
        )
        with suppress(ValueError):  # too few rows for a mixture of its own
            fitted = _fit_quietly(mixture, some)
    if fitted is not None:
        members, centres = fitted.predict_proba, fitted.means_
    else:
        k_means = KMeans(n_clusters, n_init=1, random_state=random_state)
        centres = _fit_quietly(k_means, some).cluster_centers_

        def members(X):
            return one_hot(nearest(X, centres), n_clusters)

    sizes = step * members(some).sum(axis=0)
    seen = np.full(centres.shape, np.inf)
    if terms.has_gaps:

        def count(X):
            return members(fill_with_zeros(X)).T @ ~np.isnan(X)

        seen = sum_over_rows(rows, count)
    return OwnClusters(centres, sizes, seen, fitted and fitted.predict_proba)


def _fit_quietly(model, X, **options):
    """Fit where a search begins: clusters may stay empty, mixtures not converge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, **options)


@memoise
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
    return _fit_quietly(k_means, centroids, sample_weight=sizes).cluster_centers_


def nearest(X, centres):
    """Return the number of the centre closest to each row."""
    if not len(X):
        return np.zeros(0, dtype=np.intp)
    return pairwise_distances_argmin(X, centres)


def nearest_cells(rows: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return the number of the cell closest to each row; of equally close, the first.

    Each row as it is alone, for sums with noise: distances from a product of matrices
    would move a row between two cells with one row more.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, n_features)
        Complete.
    cells : ndarray of shape (n_cells, n_features)

    Returns
    -------
    nearest : ndarray of int of shape (n_samples,)

    Examples
    --------
    >>> import numpy as np
    >>> nearest_cells(np.array([[0.1], [0.9]]), np.array([[0.0], [1.0]]))
    array([0, 1])
    """
    nearest = np.empty(len(rows), dtype=np.intp)
    n_rows = max(_N_BLOCK // len(cells), 1)
    for start in range(0, len(rows), n_rows):
        block = rows[start : start + n_rows]
        squares = np.zeros((len(block), len(cells)))
        for column, places in zip(block.T, cells.T):
            squares += (column[:, np.newaxis] - places) ** 2
        nearest[start : start + n_rows] = squares.argmin(axis=1)
    return nearest


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
    spreads = as_matrices(kind, covariances, shape)[:, np.newaxis]
    if given.precisions is None:
        own = Mixture.from_covariances(kind, shares, means, covariances).precisions
        precisions = as_matrices(kind, own, shape)[:, np.newaxis]
    else:
        precisions = as_matrices(kind, given.precisions, shape)[np.newaxis]
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
