"""Secure moments against numpy on the pooled rows."""

import numpy as np
import pytest

from skprivbn.partition import HorizontalPartition
from skprivbn.protocols import MomentsParty, MomentsTerms, collect_moments


def split(rows, n_parties):
    party = np.arange(len(rows)) % n_parties
    return HorizontalPartition.from_rows(rows, party)


def collect(partition, backend="masking", **parameters):
    terms = MomentsTerms(**parameters)
    with partition.federate(MomentsParty, terms, backend) as federation:
        return collect_moments(federation), federation.ledger


@pytest.mark.parametrize("n_parties", [1, 3, 7])
@pytest.mark.parametrize("offset, scale", [(0, 1), (1e6, 1), (-1e-3, 1e-6), (0, 1e6)])
def test_exact_moments(n_parties, offset, scale):
    rng = np.random.default_rng(0)
    rows = offset + scale * rng.normal(size=(50, 3)) @ rng.normal(size=(3, 3))
    moments, _ = collect(split(rows, n_parties))
    covariance = np.cov(rows.T, bias=True)
    assert moments.n_rows == 50
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(
        moments.covariance, covariance, rtol=1e-9, atol=1e-9 * np.abs(covariance).max()
    )
    diagonal, _ = collect(split(rows, n_parties), second="diagonal")
    np.testing.assert_allclose(diagonal.covariance, np.diag(covariance), rtol=1e-9)
    first, _ = collect(split(rows, n_parties), second="none")
    assert first.covariance is None


@pytest.mark.parametrize("backend", ["ckks", "paillier"])
def test_results_are_summed_exactly_whatever_the_backend(backend):
    rows = np.random.default_rng(1).normal(size=(12, 2))
    moments, ledger = collect(split(rows, 3), backend)
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0), rtol=1e-13)
    kinds = {e.kind for e in ledger.entries if e.operation in ("sums", "squares")}
    assert kinds == {"masked", "public", "plaintext aggregate"}


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_noisy_moments_are_near_the_clipped_ones(delta):
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(30_000, 2)) @ [[1, 0.5], [0, 1]]
    bounds = np.array([[-3.0, -3.0], [3.0, 3.0]])
    clipped = np.clip(rows, *bounds)
    moments, ledger = collect(split(rows, 4), bounds=bounds, epsilon=1.0, delta=delta)
    np.testing.assert_allclose(moments.n_rows, len(rows), rtol=0.01)
    np.testing.assert_allclose(moments.mean, clipped.mean(axis=0), atol=0.05)
    expected = np.cov(clipped.T, bias=True)
    np.testing.assert_allclose(moments.covariance, expected, atol=0.15)
    assert np.linalg.eigvalsh(moments.covariance).min() >= -1e-12
    assert "epsilon = 1" in str(list(ledger.who_learns_what()))
    assert any("colluding" in note for note in ledger.notes)


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
        with partition.federate(MomentsParty, terms, "masking") as federation:
            total = federation.secure_sum("noisy_moments")
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
