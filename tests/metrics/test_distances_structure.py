import networkx as nx
import numpy as np
import pytest
from pgmpy.base import DAG
from pgmpy.metrics import SHD, AdjacencyConfusionMatrix
from sklearn.metrics import f1_score

from skprivbn.bayesian_network import GaussianBayesianNetwork
from skprivbn.metrics import (
    cpdag_distance,
    false_discovery_rate,
    skeleton_f1,
    structural_hamming_distance,
    true_positive_rate,
)

METRICS = [
    cpdag_distance,
    false_discovery_rate,
    skeleton_f1,
    structural_hamming_distance,
    true_positive_rate,
]


def random_dag(rng, n_nodes=7, density=0.35):
    upper = np.triu(rng.random((n_nodes, n_nodes)) < density, 1)
    order = rng.permutation(n_nodes)
    return upper[np.ix_(order, order)]


def to_pgmpy(adjacency):
    dag = DAG()
    dag.add_nodes_from(range(len(adjacency)))
    dag.add_edges_from(np.argwhere(adjacency).tolist())
    return dag


@pytest.mark.parametrize("seed", range(15))
def test_structural_hamming_distance_as_pgmpy_says(seed):
    rng = np.random.default_rng(seed)
    truth, learnt = random_dag(rng), random_dag(rng)
    for double, penalty in [(False, 1), (True, 2)]:
        theirs = SHD(edge_reverse_penalty=penalty)(
            true_causal_graph=to_pgmpy(truth), est_causal_graph=to_pgmpy(learnt)
        )
        for first, second in [(truth, learnt), (learnt, truth)]:
            ours = structural_hamming_distance(
                first, second, double_for_reversed=double
            )
            assert ours == theirs
    assert structural_hamming_distance(truth, truth) == 0


@pytest.mark.parametrize("seed", range(10))
def test_cpdag_distance_as_pgmpy_says(seed):
    rng = np.random.default_rng(seed)
    truth, learnt = random_dag(rng), random_dag(rng)

    def status(adjacency):
        """How each pair of nodes is joined in pgmpy's equivalence class."""
        pdag = to_pgmpy(adjacency).to_pdag()
        pairs = {tuple(edge): "directed" for edge in pdag.directed_edges}
        pairs |= {tuple(sorted(edge)): "undirected" for edge in pdag.undirected_edges}
        return pairs

    one, other = status(truth), status(learnt)
    different = {
        frozenset(pair)
        for pair in one.keys() | other.keys()
        if one.get(pair) != other.get(pair)
    }
    assert cpdag_distance(truth, learnt) == len(different)


@pytest.mark.parametrize("seed", range(10))
def test_skeleton_f1_as_sklearn_and_pgmpy_say(seed):
    rng = np.random.default_rng(seed)
    truth, learnt = random_dag(rng), random_dag(rng)
    pairs = np.triu_indices(len(truth), 1)
    skeletons = [(graph | graph.T)[pairs] for graph in (truth, learnt)]
    assert skeleton_f1(truth, learnt) == pytest.approx(f1_score(*skeletons))
    theirs = AdjacencyConfusionMatrix(metrics=["f1"])(
        true_causal_graph=to_pgmpy(truth), est_causal_graph=to_pgmpy(learnt)
    )
    assert skeleton_f1(truth, learnt) == pytest.approx(theirs["f1"])


@pytest.mark.parametrize("seed", range(10))
def test_rates_by_counting_edges_in_networkx(seed):
    rng = np.random.default_rng(seed)
    truth, learnt = random_dag(rng), random_dag(rng)
    graphs = [nx.from_numpy_array(g, create_using=nx.DiGraph) for g in (truth, learnt)]
    right = len(set(graphs[0].edges) & set(graphs[1].edges))
    n_true, n_learnt = (graph.number_of_edges() for graph in graphs)
    assert true_positive_rate(truth, learnt) == pytest.approx(right / n_true)
    assert false_discovery_rate(truth, learnt) == pytest.approx(1 - right / n_learnt)


def test_undirected_edges():
    arrow, back, line = [[0, 1], [0, 0]], [[0, 0], [1, 0]], [[0, 1], [1, 0]]
    nothing = np.zeros((2, 2))
    for double in (False, True):
        for a, b in [(arrow, line), (line, back), (line, nothing), (nothing, arrow)]:
            assert structural_hamming_distance(a, b, double_for_reversed=double) == 1
    assert true_positive_rate(arrow, line) == 1
    assert false_discovery_rate(arrow, line) == 0
    assert false_discovery_rate(nothing, line) == 1


def test_empty_graphs():
    nothing = np.zeros((3, 3))
    assert true_positive_rate(nothing, nothing) == 1
    assert false_discovery_rate(nothing, nothing) == 0
    assert skeleton_f1(nothing, nothing) == 1


def test_networks_match_by_name_and_weights_are_edges():
    truth = GaussianBayesianNetwork(["a", "b", "c"], np.diag([0.5, -2.0], 1))
    same = GaussianBayesianNetwork(["c", "b", "a"], np.diag([-1.0, 1.0], -1))
    assert structural_hamming_distance(truth, same) == 0
    assert structural_hamming_distance(truth, same.weights) == 2
    assert structural_hamming_distance(truth, np.diag([0.1, 0.1], 1)) == 0


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (np.zeros((3, 3)), "same nodes, got 2 and 3"),
        (np.eye(2), "itself"),
        (np.zeros((2, 3)), "square"),
    ],
)
def test_wrong_graphs_are_refused(metric, graph, message):
    with pytest.raises(ValueError, match=message):
        metric(np.zeros((2, 2)), graph)
    networks = [GaussianBayesianNetwork([name], [[0]]) for name in "ab"]
    with pytest.raises(ValueError, match="same nodes"):
        metric(*networks)


def test_cpdag_distance_needs_acyclic_graphs():
    with pytest.raises(ValueError, match="cycle"):
        cpdag_distance([[0, 1], [0, 0]], [[0, 1], [1, 0]])
