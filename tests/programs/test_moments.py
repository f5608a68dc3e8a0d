"""Secure moments against numpy on the pooled rows."""

import numpy as np
import pytest

from skprivbn.federation import Me
from skprivbn.partition import HorizontalPartition
from skprivbn.programs import MomentsTerms, moments
from skprivbn.programs._moments import read_moments


def split(rows, n_parties):
    party = np.arange(len(rows)) % n_parties
    return HorizontalPartition.from_rows(rows, party)


def collect(partition, backend="masking", **parameters):
    terms = MomentsTerms(**parameters)
    with partition.federate(moments, terms, backend) as federation:
        found = federation.run()
    return read_moments(found, terms, partition.n_parties), federation.ledger


@pytest.mark.parametrize("n_parties", [1, 3, 7])
@pytest.mark.parametrize("offset, scale", [(0, 1), (1e6, 1), (-1e-3, 1e-6), (0, 1e6)])
def test_exact_moments(n_parties, offset, scale):
    rng = np.random.default_rng(0)
    rows = offset + scale * rng.normal(size=(50, 3)) @ rng.normal(size=(3, 3))
    found, _ = collect(split(rows, n_parties))
    covariance = np.cov(rows.T, bias=True)
    assert found.n_rows == 50
    np.testing.assert_allclose(found.mean, rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(
        found.covariance, covariance, rtol=1e-9, atol=1e-9 * np.abs(covariance).max()
    )
    diagonal, _ = collect(split(rows, n_parties), second="diagonal")
    np.testing.assert_allclose(diagonal.covariance, np.diag(covariance), rtol=1e-9)
    first, _ = collect(split(rows, n_parties), second="none")
    assert first.covariance is None


@pytest.mark.parametrize("backend", ["ckks", "paillier"])
def test_sums_are_the_same_whatever_the_backend(backend):
    rows = np.random.default_rng(1).normal(size=(12, 2))
    found, ledger = collect(split(rows, 3), backend)
    masked, _ = collect(split(rows, 3))
    np.testing.assert_array_equal(found.mean, masked.mean)
    np.testing.assert_array_equal(found.covariance, masked.covariance)
    sums = {entry.kind for entry in ledger.entries if "sums" in entry.operation}
    assert sums == {"ciphertext"}


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_noisy_moments_are_near_the_clipped_ones(delta):
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(30_000, 2)) @ [[1, 0.5], [0, 1]]
    bounds = np.array([[-3.0, -3.0], [3.0, 3.0]])
    clipped = np.clip(rows, *bounds)
    found, _ = collect(split(rows, 4), bounds=bounds, epsilon=1.0, delta=delta)
    np.testing.assert_allclose(found.n_rows, len(rows), rtol=0.01)
    np.testing.assert_allclose(found.mean, clipped.mean(axis=0), atol=0.05)
    expected = np.cov(clipped.T, bias=True)
    np.testing.assert_allclose(found.covariance, expected, atol=0.15)
    assert np.linalg.eigvalsh(found.covariance).min() >= -1e-12


def test_noise_has_the_scale_that_the_sensitivity_asks_for():
    """One row more or less changes no released integer by more than the unit."""
    bounds = np.array([[-1.0] * 5, [1.0] * 5])
    partition = HorizontalPartition({"a": np.ones((5, 5)), "b": -np.ones((5, 5))})
    terms = MomentsTerms("full", bounds, epsilon=1.0)
    unit = terms.unit(5)
    n_values = 1 + 5 + 15
    assert terms.noise(5, 2).sensitivity == n_values * unit**2
    errors = []
    for _ in range(100):
        with partition.federate(moments, terms, "masking") as federation:
            total = federation.run()["noisy"]
        errors.append(total / unit**2 - ([10] + [0] * 5 + [10] * 15))
    # two shares, either of which would do: variance 2 x 2 (n_values / epsilon)^2
    assert 0.8 < np.std(errors) / (2 * n_values) < 1.2


def test_small_budgets_coarsen_the_grid_and_keep_the_sensitivity():
    bounds = np.array([[-1.0] * 30, [1.0] * 30])
    terms = MomentsTerms("full", bounds, epsilon=0.001)
    assert terms.unit(30) < 1 << 15
    assert terms.noise(30, 3).sensitivity == 496 * terms.unit(30) ** 2


def test_noisy_runs_differ():
    partition = split(np.ones((900, 2)), 3)
    options = {"bounds": np.array([[0.0, 0], [2, 2]]), "epsilon": 1.0}
    first, second = (collect(partition, **options)[0] for _ in range(2))
    assert first.n_rows != second.n_rows


def test_moments_far_from_zero_with_gaps_and_weights_are_numpys():
    rng = np.random.default_rng(3)
    rows = 1.7e9 + rng.normal(size=(60, 2))
    rows[::7, 1] = np.nan
    weights = rng.integers(1, 4, 60).astype(float)
    partition = HorizontalPartition.from_rows(
        rows, np.arange(60) % 3, sample_weight=weights
    )
    found, _ = collect(partition, second="diagonal", gaps=True, weighted=True)
    known = ~np.isnan(rows)
    totals = weights @ known
    mean = weights @ np.where(known, rows, 0) / totals
    variance = weights @ np.where(known, rows - mean, 0) ** 2 / totals
    np.testing.assert_array_equal(found.n_rows, totals)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-15)
    np.testing.assert_allclose(found.covariance, variance, rtol=1e-6)


@pytest.mark.parametrize("second", ["full", "diagonal", "none"])
def test_no_row_changes_the_sums_by_more_than_the_sensitivity(second):
    rng = np.random.default_rng(0)
    bounds = np.array([[-1.0, -5.0, 0.0], [1.0, 5.0, 0.1]])
    corners = np.array(np.meshgrid(*bounds.T)).reshape(3, -1).T
    rows = np.vstack([corners, 100 * corners, rng.normal(size=(50, 3)) * [1, 5, 0.1]])
    for delta, order in ((0.0, 1), (1e-6, 2)):
        terms = MomentsTerms(second, bounds, epsilon=1.0, delta=delta)
        sizes = []
        for row in rows:
            me = Me({"X": row[None]}, terms, "a", ("a", "b", "c"))
            step = next(moments(me))
            sizes.append(np.linalg.norm(step.counts, order))
        most = terms.noise(3, 3).sensitivity
        # nearly attained, or noise would be wasted
        assert 0.99 * most < max(sizes) <= most
