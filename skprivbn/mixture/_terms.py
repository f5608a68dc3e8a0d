"""Public parameters of a mixture's fit, the same at every party."""

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from skprivbn.federation import Terms, check_received
from skprivbn.mixture._gaussian_steps import Mixture, covariance_shape, n_statistics

MAX_LLOYD_ROUNDS = 10


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
