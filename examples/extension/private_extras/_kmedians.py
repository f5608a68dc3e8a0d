"""Differentially private k-medians, from noisy counts of rows around each centre."""

from dataclasses import dataclass, replace

import numpy as np
from sklearn.base import ClusterMixin
from sklearn.utils.validation import validate_data

from skprivbn.base import PrivateEstimator, by_holders
from skprivbn.federation import Noisy, NoisyTerms, program
from skprivbn.privacy import CountMechanism
from skprivbn.programs import keep_predictions


@dataclass(frozen=True)
class KMediansTerms(NoisyTerms):
    """Public parameters, and the sensitivity of a release to one row."""

    bounds: np.ndarray
    n_clusters: int
    max_iter: int

    def check(self):
        """Check the parameters; each step costs a part of epsilon."""
        if self.epsilon is None or self.delta or self.protects != "rows":
            raise ValueError("epsilon protects rows, by Laplace noise")
        if self.n_clusters < 1 or self.max_iter < 1:
            raise ValueError("n_clusters and max_iter must be positive")

    def mechanism(self, n_features):
        """One row changes one cluster's count, and one side per feature."""
        return CountMechanism.for_budget(self.epsilon, 0.0, 1 + n_features)

    def noise_of_a_step(self, n_features, n_parties):
        """Return the noise for one of `max_iter` releases."""
        one = replace(self, epsilon=self.epsilon / self.max_iter)
        return one.noise(n_features, n_parties)


@program(KMediansTerms)
def kmedians(me):
    """Move each centre towards the majority of its rows, by decreasing steps."""
    terms, (low, high) = me.terms, me.terms.bounds
    # rows are clipped, never refused: an error would reveal a row
    X = np.asarray(me.numbers(bounds=terms.bounds))
    noise = terms.noise_of_a_step(len(low), len(me.roster))
    shares = (np.arange(terms.n_clusters) + 0.5) / terms.n_clusters
    centres = low + shares[:, None] * (high - low)
    for n_iter in range(terms.max_iter):
        counts = count_sides(X, centres)
        total = yield Noisy(counts, noise, "noisy counts of rows beside centres")
        n, sides = np.split(total.reshape(counts.shape), [1], axis=1)
        move = np.clip(sides / np.maximum(n, 1), -1, 1) * (high - low) / 4
        centres = np.clip(centres + 0.7**n_iter * move, low, high)
    return centres


def nearest(X, centres):
    """Return the nearest centre of each row, by the sum of absolute differences."""
    return np.abs(X[:, None] - centres).sum(axis=2).argmin(axis=1)


def count_sides(X, centres):
    """Count the rows of each centre, and how many more are above it than below."""
    clusters = nearest(X, centres)
    ones = np.ones((len(X), 1), dtype=np.int64)
    beside = np.hstack([ones, np.sign(X - centres[clusters]).astype(np.int64)])
    return np.stack([beside[clusters == k].sum(axis=0) for k in range(len(centres))])


class PrivateKMedians(ClusterMixin, PrivateEstimator):
    """Differentially private cluster medians of the rows of several parties."""

    protocols = (kmedians, keep_predictions)

    def __init__(
        self, n_clusters=2, *, epsilon=1.0, bounds, max_iter=10, accountant=None
    ):
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.bounds = bounds
        self.max_iter = max_iter
        self.accountant = accountant

    #: noisy sums are masked
    backend, delta, min_honest = "masking", 0.0, None

    def _learn(self, partition):
        shape = 2, partition.n_features
        low, high = self.bounds
        bounds = np.stack([np.broadcast_to(b, shape[1]) for b in (low, high)])
        terms = KMediansTerms(
            bounds.astype(float), self.n_clusters, self.max_iter, epsilon=self.epsilon
        )
        self.cluster_centers_ = self._run_charged(
            partition, kmedians, terms, "medians of clusters"
        )

    @by_holders
    def predict(self, X):
        """Return the number of the nearest centre of each row."""
        return nearest(validate_data(self, X, reset=False), self.cluster_centers_)

    def _public_model(self):
        return {"centres": self.cluster_centers_}

    @classmethod
    def _from_public_model(cls, model, n_features):
        estimator = cls(bounds=(0, 1))
        centres = model["centres"]
        if centres.ndim != 2 or centres.shape[1] != n_features:
            raise ValueError("centres of other columns")
        estimator.cluster_centers_ = centres
        return estimator
