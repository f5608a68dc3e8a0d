from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture

from skprivbn.mixture._gaussian_steps import (
    IllDefinedCovarianceError,
    Mixture,
    e_step,
    frame_of,
    local_statistics,
    maximise,
    n_statistics,
    squares_of,
    uniform_frame,
)

TYPES = ["full", "tied", "diag", "spherical"]
types = pytest.mark.parametrize("covariance_type", TYPES)


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return np.vstack([rng.normal(size=(40, 3)), rng.normal(4, 2, size=(60, 3))])


def random_responsibilities(n_rows, n_components=2):
    return np.random.default_rng(1).dirichlet(np.ones(n_components), size=n_rows)


def covariances_by_definition(X, responsibilities, covariance_type):
    """Weighted covariances, written down component by component."""
    counts = responsibilities.sum(axis=0)
    means = (responsibilities.T @ X) / counts[:, np.newaxis]
    full = np.array(
        [
            np.cov(X.T, aweights=responsibilities[:, k], bias=True)
            for k in range(len(counts))
        ]
    )
    return {
        "full": full,
        "tied": np.average(full, axis=0, weights=counts),
        "diag": np.array([np.diag(matrix) for matrix in full]),
        "spherical": np.array([np.diag(matrix).mean() for matrix in full]),
    }[covariance_type], means


def mixture_of(X, covariance_type):
    covariances, means = covariances_by_definition(
        X, random_responsibilities(len(X)), covariance_type
    )
    weights = np.array([0.3, 0.7])
    return Mixture.from_covariances(covariance_type, weights, means, covariances)


@types
@pytest.mark.parametrize("where", ["origin", "own means", "elsewhere"])
def test_the_m_step_does_not_depend_on_the_frame(rows, covariance_type, where):
    responsibilities = random_responsibilities(len(rows))
    mixture = mixture_of(rows, covariance_type)
    frame = {
        "origin": uniform_frame(covariance_type, np.zeros((2, 3)), np.ones(3)),
        "own means": frame_of(mixture),
        "elsewhere": frame_of(replace(mixture, means=mixture.means + 1.7)),
    }[where]
    # in two parts, as two parties would
    total = sum(
        local_statistics(rows[part], responsibilities[part], frame)
        for part in (slice(0, 30), slice(30, None))
    )
    assert len(total) == n_statistics(covariance_type, 2, 3)
    counts, means, covariances = maximise(total, frame, reg_covar=0.25)
    expected, expected_means = covariances_by_definition(
        rows, responsibilities, covariance_type
    )
    if covariance_type in ("full", "tied"):
        expected = expected + 0.25 * np.eye(3)
    else:
        expected = expected + 0.25
    np.testing.assert_allclose(counts, responsibilities.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(means, expected_means, rtol=1e-11)
    np.testing.assert_allclose(covariances, expected, rtol=1e-11)


@types
def test_moments_near_the_rows_survive_a_large_offset(rows, covariance_type):
    responsibilities = random_responsibilities(len(rows))
    far = np.rint(rows * 1024) / 1024 + 2.0**20
    near_frame = frame_of(mixture_of(far, covariance_type))
    far_frame = uniform_frame(covariance_type, np.zeros((2, 3)), np.ones(3))
    found = {}
    for name, frame in [("near", near_frame), ("far", far_frame)]:
        total = local_statistics(far, responsibilities, frame)
        found[name] = maximise(total, frame, 0.0)[2]
    expected, _ = covariances_by_definition(
        np.rint(rows * 1024) / 1024, responsibilities, covariance_type
    )
    np.testing.assert_allclose(found["near"], expected, rtol=1e-9)
    assert np.abs(found["far"] - expected).max() > 1e-6


@types
def test_the_e_step_is_bayes_rule(rows, covariance_type):
    mixture = mixture_of(rows, covariance_type)
    variances = np.broadcast_to(mixture.variances, (2, 3))
    dense = [np.diag(variance) for variance in variances]
    if covariance_type in ("full", "tied"):
        dense = np.broadcast_to(mixture.covariances, (2, 3, 3))
    joint = np.column_stack(
        [
            weight * multivariate_normal(mean, covariance).pdf(rows)
            for weight, mean, covariance in zip(mixture.weights, mixture.means, dense)
        ]
    )
    likelihoods, responsibilities = e_step(rows, mixture)
    np.testing.assert_allclose(likelihoods, np.log(joint.sum(axis=1)), rtol=1e-10)
    np.testing.assert_allclose(
        responsibilities, joint / joint.sum(axis=1, keepdims=True), rtol=1e-9
    )


@types
def test_the_paper_takes_moments_about_the_old_means(rows, covariance_type):
    responsibilities = random_responsibilities(len(rows))
    frame = uniform_frame(covariance_type, np.zeros((2, 3)), np.ones(3))
    total = local_statistics(rows, responsibilities, frame)
    counts, means, covariances = maximise(total, frame, 0.0)
    old = np.array([[0.0, 1.0, 2.0], [3.0, 3.0, 3.0]])
    found = covariances + squares_of(covariance_type, means - old, counts)
    moments = np.array(
        [
            (responsibilities[:, k, np.newaxis] * (rows - old[k])).T @ (rows - old[k])
            for k in range(2)
        ]
    )
    expected = {
        "full": moments / counts[:, np.newaxis, np.newaxis],
        "tied": moments.sum(axis=0) / counts.sum(),
        "diag": np.einsum("kff->kf", moments) / counts[:, np.newaxis],
        "spherical": np.einsum("kff->k", moments) / counts / 3,
    }[covariance_type]
    np.testing.assert_allclose(found, expected, rtol=1e-11)


@types
def test_given_precisions_are_factorised_as_in_scikit_learn(rows, covariance_type):
    expected = GaussianMixture(2, covariance_type=covariance_type, random_state=0)
    expected.fit(rows)
    mixture = Mixture.from_precisions(
        covariance_type, expected.weights_, expected.means_, expected.precisions_
    )
    np.testing.assert_allclose(mixture.precisions, expected.precisions_, rtol=1e-9)
    np.testing.assert_allclose(mixture.covariances, expected.covariances_, rtol=1e-9)
    np.testing.assert_allclose(
        mixture.precisions_cholesky,
        expected.precisions_cholesky_,
        rtol=1e-8,
        atol=1e-10,
    )


@pytest.mark.parametrize(
    "covariance_type, covariances",
    [
        ("full", np.array([[[1.0, 2.0], [2.0, 1.0]]])),
        ("tied", np.zeros((2, 2))),
        ("diag", np.array([[1.0, 0.0]])),
        ("spherical", np.array([-1e-9])),
        ("diag", np.array([[1.0, np.nan]])),
    ],
)
def test_a_covariance_that_is_none_is_an_error(covariance_type, covariances):
    with pytest.raises(IllDefinedCovarianceError, match="reg_covar"):
        Mixture.from_covariances(
            covariance_type, np.ones(1), np.zeros((1, 2)), covariances
        )
