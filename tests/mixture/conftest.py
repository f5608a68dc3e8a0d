import numpy as np
import pytest
from sklearn.mixture import GaussianMixture


def start_of(X, n_components, covariance_type, **parameters):
    """Return initial parameters near a solution, for both estimators."""
    start = GaussianMixture(
        n_components,
        covariance_type=covariance_type,
        max_iter=0,
        random_state=0,
        **parameters,
    ).fit(X)
    return {
        "weights_init": start.weights_ / start.weights_.sum(),
        "means_init": start.means_,
        "precisions_init": start.precisions_,
    }


def assert_same_mixture(found, expected, atol=1e-9, bound_atol=1e-10):
    """Compare the parameters and the course of two fits."""
    for name in ("weights_", "means_", "covariances_"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=0, atol=atol
        )
    assert found.n_iter_ == expected.n_iter_
    assert found.converged_ == expected.converged_
    assert abs(found.lower_bound_ - expected.lower_bound_) < bound_atol
    np.testing.assert_allclose(
        found.lower_bounds_, expected.lower_bounds_, rtol=0, atol=bound_atol
    )


@pytest.fixture
def three_blobs():
    """Return rows of three overlapping components, and five holders."""
    rng = np.random.default_rng(3)
    X = np.vstack(
        [
            rng.normal(0, 1, size=(80, 2)),
            rng.normal([4, 1], [1, 0.5], size=(70, 2)),
            rng.normal([1, 5], [0.7, 1.2], size=(90, 2)),
        ]
    )
    return X, rng.integers(0, 5, size=len(X)).astype(str)
