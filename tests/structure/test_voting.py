import numpy as np
import pytest

from skprivbn.datasets import make_linear_sem
from skprivbn.structure import Notears, VotingStructureLearner
from skprivbn.structure.gaussian._scores import FeatureMoments, graph_score
from tests.federation.site.loopback import open_sites


@pytest.mark.parametrize("backend", ["masking", "ckks"])
@pytest.mark.parametrize("seed", range(3))
def test_best_is_the_graph_that_explains_all_rows_best(seed, backend):
    X, _ = make_linear_sem(130, 5, random_state=seed)
    party = np.repeat(["a", "b", "c"], [20, 30, 80])
    graphs = [Notears().fit(X[party == k]).adjacency_matrix_ for k in "abc"]
    moments = FeatureMoments.linear(np.cov(X.T, bias=True), 130)
    scores = [graph_score(moments, g, equal_variances=False) for g in graphs]
    learner = VotingStructureLearner(strategy="best", backend=backend)
    model = learner.fit(X, party=party)
    expected = graphs[int(np.argmax(scores))]
    assert min(scores) < max(scores)
    np.testing.assert_array_equal(model.adjacency_matrix_, expected)
    np.testing.assert_array_equal(model.votes_, expected)
    assert model.network_.weights[expected].all()


def test_a_party_without_variation_does_not_win():
    X, _ = make_linear_sem(100, 4, random_state=1)
    party = np.repeat(["a", "b", "c"], [1, 49, 50])
    model = VotingStructureLearner(strategy="best").fit(X, party=party)
    assert model.adjacency_matrix_.any()


def test_best_at_sites_is_that_of_the_same_rows_here(tmp_path):
    X = make_linear_sem(600, 3, random_state=0)[0].round(3)
    names = ("north", "south", "west")
    tables = {name: rows.tolist() for name, rows in zip(names, np.split(X, 3))}
    kinds = dict.fromkeys("abc", '"float"')
    sites = open_sites(tmp_path, tables, kinds, ["VotingStructureLearner"])
    learner = VotingStructureLearner(strategy="best")
    found = learner.fit(sites.rows()).adjacency_matrix_
    here = learner.fit(X, party=np.repeat(names, 200)).adjacency_matrix_
    assert here.any()
    np.testing.assert_array_equal(found, here)
