import numpy as np
import pytest

from skprivbn.datasets import load_alarm, load_insurance
from skprivbn.inspection._layout import layered_layout


def random_dag(n_nodes, density, seed):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((n_nodes, n_nodes)) < density, 1)
    order = rng.permutation(n_nodes)
    return upper[np.ix_(order, order)]


GRAPHS = [
    np.zeros((1, 1), dtype=bool),
    np.zeros((5, 5), dtype=bool),
    *(random_dag(12, density, 0) for density in (0.1, 0.4, 1.0)),
    load_alarm().adjacency_matrix,
    load_insurance().adjacency_matrix,
]


@pytest.mark.parametrize("adjacency", GRAPHS, ids=range(len(GRAPHS)))
def test_boxes_do_not_overlap_and_edges_point_down(adjacency):
    rng = np.random.default_rng(0)
    widths = rng.uniform(0.3, 2, size=len(adjacency))
    positions, routes = layered_layout(adjacency, widths, gap=0.25, lane=0.12)
    assert positions.shape == (len(adjacency), 2)
    for i, j in np.argwhere(adjacency):
        assert positions[i, 1] > positions[j, 1]
    for i in range(len(adjacency)):
        for j in range(i):
            if positions[i, 1] == positions[j, 1]:
                distance = abs(positions[i, 0] - positions[j, 0])
                assert distance >= (widths[i] + widths[j]) / 2 + 0.25 - 1e-9
    assert set(routes) == {tuple(edge) for edge in np.argwhere(adjacency).tolist()}


@pytest.mark.parametrize("adjacency", GRAPHS[2:], ids=range(2, len(GRAPHS)))
def test_edges_keep_clear_of_the_boxes_they_pass(adjacency):
    widths = np.full(len(adjacency), 1.0)
    positions, routes = layered_layout(adjacency, widths, gap=0.25, lane=0.12)
    n_passed = 0
    for (i, j), points in routes.items():
        np.testing.assert_array_equal(points[0], positions[i])
        np.testing.assert_array_equal(points[-1], positions[j])
        np.testing.assert_allclose(np.diff(points[:, 1]), -1)
        for x, y in points[1:-1]:
            same_layer = positions[positions[:, 1] == y]
            n_passed += len(same_layer)
            assert (np.abs(same_layer[:, 0] - x) >= 0.5 + 0.06 + 0.25 - 1e-9).all()
    assert n_passed > 0 or len(adjacency) < 20


def test_a_planar_graph_is_drawn_without_crossings():
    # A binary tree with shuffled names.
    order = np.random.default_rng(0).permutation(15)
    tree = np.zeros((15, 15), dtype=bool)
    for child in range(1, 15):
        tree[order[(child - 1) // 2], order[child]] = True
    positions, _ = layered_layout(tree, np.ones(15))
    edges = np.argwhere(tree)
    for a, b in edges:
        for c, d in edges:
            if positions[a, 1] == positions[c, 1]:
                upper = positions[a, 0] - positions[c, 0]
                lower = positions[b, 0] - positions[d, 0]
                assert upper * lower >= 0
