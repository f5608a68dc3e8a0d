"""FCI on sums of several parties."""

import numpy as np
import pytest

from skprivbn.bayesian_network import PartialAncestralGraph
from skprivbn.structure import FederatedFCI


def confounded(n_rows=4000, seed=0):
    rng = np.random.default_rng(seed)
    hidden, a, b, c, d, e = rng.normal(size=(6, n_rows))
    third, fourth = a + hidden + c, b + hidden + d
    return np.column_stack([a, b, third, fourth, fourth + e])


def test_hidden_causes_are_found_however_rows_are_spread():
    X = confounded()
    graphs = [
        FederatedFCI().fit(X, party=np.arange(len(X)) % n).pag_ for n in (3, 4, 7)
    ]
    assert str(graphs[0]).splitlines() == [
        "x0 o-> x2",
        "x1 o-> x3",
        "x2 <-> x3",
        "x3 --> x4",
    ]
    assert graphs[0].hidden_causes() == [("x2", "x3")]
    assert graphs[0].causes("x4") == ["x3"]
    assert all(graph == graphs[0] for graph in graphs[1:])


def test_noise_counts_as_fewer_rows():
    X, party = confounded(20_000), np.arange(20_000) % 3
    exact = FederatedFCI().fit(X, party=party)
    options = {"bounds": (-8, 8), "delta": 1e-6}
    noisy = FederatedFCI(epsilon=20.0, **options).fit(X, party=party)
    assert noisy.privacy_spent_.epsilon == 20.0
    assert noisy.pag_.distance(exact.pag_) <= 4
    with pytest.warns(UserWarning, match="noise"):
        drowned = FederatedFCI(epsilon=0.05, **options).fit(X[:500], party=party[:500])
    assert len(drowned.pag_.edges()) <= 1


def test_levels_of_parties_are_removed():
    rng = np.random.default_rng(1)
    party = np.arange(3000) % 3
    X = rng.normal(size=(3000, 2)) + 5.0 * party[:, np.newaxis]
    assert FederatedFCI().fit(X, party=party).pag_.edges()
    assert not FederatedFCI(site_effects="levels").fit(X, party=party).pag_.edges()


@pytest.mark.parametrize(
    "marks, words",
    [
        ([[0, 1]], "square"),
        ([[0, 4], [1, 0]], "0 .no edge."),
        ([[0, 1], [0, 0]], "at both ends"),
        ([[1, 0], [0, 0]], "itself"),
    ],
)
def test_marks_that_make_no_graph_are_refused(marks, words):
    with pytest.raises(ValueError, match=words):
        PartialAncestralGraph(marks)


def test_graphs_are_compared_by_names():
    one = PartialAncestralGraph([[0, 2], [3, 0]], ["a", "b"])
    other = PartialAncestralGraph([[0, 3], [2, 0]], ["b", "a"])
    assert one == other
    assert one.distance(PartialAncestralGraph([[0, 0], [0, 0]], ["a", "b"])) == 2
    assert repr(one) == "<PartialAncestralGraph of 2 nodes, 1 edges>"
