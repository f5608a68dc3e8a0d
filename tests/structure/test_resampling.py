"""Edges' confidence: near that of resampled rows, from nothing but the covariance."""

import numpy as np
import pytest

from skprivbn.datasets import make_linear_sem
from skprivbn.inspection import DAGDisplay
from skprivbn.programs import Moments
from skprivbn.structure import FederatedGaussianBayesianNetwork as Learner
from skprivbn.structure._resampling import share_of_edges, wishart_root
from skprivbn.structure.gaussian._search import search


@pytest.fixture(scope="module")
def rows():
    """Effects so small that rows are not sure of them."""
    X, _ = make_linear_sem(120, 5, random_state=2)
    return X + np.random.default_rng(0).normal(0, 1.5, size=X.shape)


def resampled_rows(X, method, n_samples):
    """The oracle: searches in samples of the pooled rows."""
    rng, found = np.random.default_rng(0), []
    for _ in range(n_samples):
        drawn = X[rng.integers(len(X), size=len(X))]
        sample = Moments(len(X), drawn.mean(axis=0), np.cov(drawn.T, bias=True))
        found.append(search(method, sample, significance=0.01).cpdag)
    return share_of_edges(found)


@pytest.mark.parametrize("method", ["ges", "pc"])
def test_shares_are_near_those_of_resampled_rows(rows, method):
    model = Learner(method, n_bootstrap=100, random_state=0)
    ours = model.fit(rows, party=np.arange(len(rows)) % 3).edge_confidence_
    theirs = resampled_rows(rows, method, 100)
    joined, expected = ours + ours.T, theirs + theirs.T
    # some edges are sure, others are not
    assert expected.max() > 0.95 and np.any((expected > 0.1) & (expected < 0.9))
    np.testing.assert_allclose(joined, expected, atol=0.2)


def test_drawn_covariances_vary_as_those_of_normal_rows():
    rng = np.random.default_rng(0)
    roots = wishart_root(rng, np.full(4000, 20), 3)
    drawn = roots @ roots.swapaxes(1, 2)
    np.testing.assert_allclose(drawn.mean(axis=0), 20 * np.eye(3), atol=0.5)
    expected = 20 * (1 + np.eye(3))
    np.testing.assert_allclose(drawn.var(axis=0), expected, rtol=0.1)


def test_directions_count_where_the_search_finds_them():
    halves = np.array([[0, 1, 0], [1, 0, 1], [0, 0, 0]], dtype=bool)
    shares = share_of_edges([halves, np.zeros((3, 3), dtype=bool)])
    np.testing.assert_array_equal(shares, [[0, 0.25, 0], [0.25, 0, 0.5], [0, 0, 0]])
    X, weights = make_linear_sem(500, 4, random_state=0)
    party = np.arange(500) % 3
    model = Learner(n_bootstrap=20, random_state=0).fit(X, party=party)
    np.testing.assert_array_equal(model.edge_confidence_ > 0.9, weights != 0)


def test_parties_are_asked_for_nothing_more(rows):
    party = np.arange(len(rows)) % 3
    plain = Learner("ges").fit(rows, party=party)
    model = Learner("ges", n_bootstrap=5, random_state=0).fit(rows, party=party)
    counts = [
        (e.operation, e.sender, e.receiver, e.n_bytes) for e in model.ledger_.entries
    ]
    assert counts == [
        (e.operation, e.sender, e.receiver, e.n_bytes) for e in plain.ledger_.entries
    ]
    assert "5 bootstrap samples" in str(model.ledger_.notes)
    np.testing.assert_array_equal(plain.adjacency_matrix_, model.adjacency_matrix_)
    again = Learner("ges", n_bootstrap=5, random_state=0).fit(rows, party=party)
    np.testing.assert_array_equal(model.edge_confidence_, again.edge_confidence_)
    model.set_params(n_bootstrap=0).fit(rows, party=party)
    assert not hasattr(model, "edge_confidence_")


def test_of_columns_and_drawn(rows):
    pytest.importorskip("matplotlib").use("Agg")
    parties = {"clinic": [0, 1], "lab": [2, 3, 4]}
    model = Learner("ges", parties=parties, n_bootstrap=5, random_state=0).fit(rows)
    assert model.edge_confidence_.shape == (5, 5)
    DAGDisplay.from_estimator(model)


@pytest.mark.parametrize(
    "options", [{"basis": "sigmoid"}, {"epsilon": 1.0, "bounds": (-20, 20)}]
)
def test_what_does_not_vary_as_normal_rows_is_refused(rows, options):
    with pytest.raises(ValueError, match="n_bootstrap=5 is not available"):
        Learner(n_bootstrap=5, **options).fit(rows, party=np.arange(len(rows)) % 3)
