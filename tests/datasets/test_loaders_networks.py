import numpy as np
import pytest

from skprivbn.datasets import load_alarm, load_asia, load_child, load_insurance
from skprivbn.datasets._loaders import read_network


@pytest.mark.parametrize(
    "name, n_nodes, n_edges, n_parameters",
    [
        ("asia", 8, 8, 18),
        ("alarm", 37, 46, 509),
        ("child", 20, 25, 230),
        ("insurance", 27, 52, 1008),
    ],
)
def test_stored_networks_have_their_published_size(
    name, n_nodes, n_edges, n_parameters
):
    stored = read_network(name)
    assert len(stored["nodes"]) == n_nodes
    assert sum(map(len, stored["parents"].values())) == n_edges
    free = [(cpt.shape[-1] - 1) * cpt[..., 0].size for cpt in stored["cpts"].values()]
    assert sum(free) == n_parameters
    for cpt in stored["cpts"].values():
        np.testing.assert_allclose(cpt.sum(axis=-1), 1, atol=2e-7)


@pytest.mark.parametrize("load", [load_asia, load_alarm, load_child, load_insurance])
def test_loaders_return_networks(load):
    network = load()
    rows = np.asarray(network.sample(20, random_state=0))
    assert rows.shape == (20, len(network.nodes))
    for column, node in zip(rows.T, network.nodes):
        assert set(column) <= set(network.states[node])


def test_asia_either_is_a_logical_or():
    network = load_asia()
    assert network.parents["either"] == ("lung", "tub")
    np.testing.assert_array_equal(
        network.cpts["either"], [[[1, 0], [1, 0]], [[1, 0], [0, 1]]]
    )


def test_noisy_asia_differs_in_one_table():
    standard, noisy = load_asia(), load_asia(variant="noisy_or")
    for node in standard.nodes:
        same = np.array_equal(standard.cpts[node], noisy.cpts[node])
        assert same == (node != "either")
    np.testing.assert_allclose(noisy.cpts["either"][..., 0], [[0.99, 0.9], [0.9, 0.1]])


@pytest.mark.filterwarnings("ignore:.get_example_model. is deprecated:FutureWarning")
@pytest.mark.slow
def test_stored_networks_equal_an_independent_copy():
    utils = pytest.importorskip("pgmpy.utils")
    for load, name in [(load_alarm, "alarm"), (load_child, "child")]:
        theirs = utils.get_example_model(name)
        ours = load()
        assert set(theirs.nodes()) == set(ours.nodes)
        for cpd in theirs.get_cpds():
            node, *parents = cpd.variables
            axes = [parents.index(p) for p in ours.parents[node]]
            values = np.moveaxis(np.asarray(cpd.values), 0, -1)
            values = values.transpose([*axes, len(axes)])
            own = [cpd.state_names[p] for p in (*ours.parents[node], node)]
            for axis, names in enumerate(own):
                labels = ours.states[(*ours.parents[node], node)[axis]]
                values = np.take(values, [names.index(s) for s in labels], axis=axis)
            np.testing.assert_allclose(values, ours.cpts[node], atol=1e-6)


def test_unknown_variant():
    with pytest.raises(ValueError, match="'variant' parameter"):
        load_asia(variant="other")
