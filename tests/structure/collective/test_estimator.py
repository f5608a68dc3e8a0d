"""Collective networks: close to the pooled fit, wherever the columns are."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.datasets import load_alarm, load_asia
from skprivbn.exceptions import PartitionError, PrivacyLeakWarning
from skprivbn.metrics import kl_divergence
from skprivbn.partition import VerticalPartition
from skprivbn.structure import CollectiveBayesianNetwork
from skprivbn.structure._search import complete
from skprivbn.structure.collective._structure import (
    learning_structure,
    scores_of_rows,
)

ASIA = load_asia(variant="noisy_or")
ORDERING = [ASIA.nodes[i] for i in ASIA.topological_order]
SITES = {
    "a": ["asia", "tub", "either", "xray", "dysp"],
    "b": ["smoke", "lung", "bronc"],
}
SELECTIONS = ["low_likelihood", "mixed", "random"]


def sample(network, n, seed):
    return pd.DataFrame(network.sample(n, random_state=seed), columns=network.nodes)


def fit_rows(X, sites=SITES, network=ASIA, **parameters):
    parameters = {"states": network.states, **parameters}
    estimator = CollectiveBayesianNetwork(sites, disclosure="rows", **parameters)
    with pytest.warns(PrivacyLeakWarning, match="sends rows of all sites"):
        return estimator.fit(X)


def pooled(X, parents, network=ASIA, alpha=1.0):
    return BayesianNetwork.from_data(
        X, parents, nodes=network.nodes, states=network.states, alpha=alpha
    )


def with_keys(X, sites, order=None, keep=None):
    """Split columns over sites; each has its own order of records and its own set."""
    blocks, columns, keys = {}, {}, {}
    for site, names in sites.items():
        index = np.arange(len(X)) if order is None else order[site]
        if keep is not None:
            index = index[np.isin(index, keep[site])]
        blocks[site] = X[names].to_numpy()[index]
        columns[site] = names
        keys[site] = [f"record {i}" for i in index]
    return VerticalPartition(
        blocks, columns, keys, order=list(X.columns), reveal_membership=True
    )


@pytest.mark.parametrize(
    "selection", ["random", pytest.param("mixed", marks=pytest.mark.slow)]
)
def test_a_tenth_of_the_rows_is_enough_on_asia(selection):
    recovered, divergence = 0, []
    for seed in range(20):
        X = sample(ASIA, 6000, seed)
        parameters = {"ordering": ORDERING, "random_state": seed}
        collective = fit_rows(X, selection=selection, fraction=0.1, **parameters)
        graph = complete(
            learning_structure(
                scores_of_rows(ASIA.encode(X), [2] * 8),
                method="bic",
                ordering=ASIA.topological_order,
            )
        )
        central = pooled(X, [np.array(ASIA.nodes)[column] for column in graph.T])
        true = {("lung", "either"), ("bronc", "dysp")}
        recovered += true <= set(collective.cross_edges_)
        divergence.append(kl_divergence(central, collective.network_))
        assert collective.communicated_fraction_ == pytest.approx(0.1, abs=0.001)
    assert recovered >= 15
    assert np.median(divergence) <= 0.025


@pytest.mark.slow
def test_unlikely_rows_need_to_be_many():
    """They estimate probabilities badly, and better the more of them there are."""
    divergence = {0.1: [], 0.5: [], 0.9: []}
    for seed in range(5):
        X = sample(ASIA, 6000, seed)
        central = pooled(X, ASIA.parents)
        for fraction, found in divergence.items():
            fitted = fit_rows(
                X,
                structure=ASIA.parents,
                selection="low_likelihood",
                fraction=fraction,
            )
            found.append(kl_divergence(central, fitted.network_))
        random = fit_rows(X, structure=ASIA.parents, fraction=0.1, random_state=seed)
        assert kl_divergence(central, random.network_) < divergence[0.1][-1] / 10
    few, half, most = (np.median(found) for found in divergence.values())
    assert most < half < few


def test_mixed_rows_are_unbiased_although_many_rows_are_equally_likely():
    X = sample(ASIA, 6000, 0)
    central = pooled(X, ASIA.parents)
    divergence = [
        kl_divergence(
            central,
            fit_rows(
                X,
                structure=ASIA.parents,
                selection="mixed",
                fraction=0.5,
                random_state=seed,
            ).network_,
        )
        for seed in range(5)
    ]
    assert np.mean(divergence) < 0.002


def conditional_kl(p, q, node):
    """Divergence of one node's table, weighted by how often its rows are used."""
    parents = p.parents[node]
    weight = p.query(list(parents))[..., None]
    other = q.cpts[node].transpose(
        [*(q.parents[node].index(u) for u in parents), len(parents)]
    )
    return float((weight * p.cpts[node] * np.log(p.cpts[node] / other)).sum())


@pytest.mark.parametrize("selection", ["random", "mixed"])
@pytest.mark.slow
def test_alarm_over_four_sites(selection):
    alarm = load_alarm()
    X = sample(alarm, 15_000, 0)
    sites = {f"site {i}": list(alarm.nodes[i::4]) for i in range(4)}
    fitted = fit_rows(
        X,
        sites,
        alarm,
        structure=alarm.parents,
        selection=selection,
        fraction=0.35,
        random_state=0,
    )
    central = pooled(X, alarm.parents, alarm)
    nodes = {child for _, child in fitted.cross_edges_}
    assert len(nodes) == 25
    total = sum(conditional_kl(central, fitted.network_, v) for v in nodes)
    assert total <= 0.03
    for node in set(alarm.nodes) - nodes:
        np.testing.assert_array_equal(
            fitted.network_.cpts[node],
            pooled(X, fitted.network_.parents, alarm).cpts[node],
        )


@pytest.mark.parametrize("method", ["bic", "cheng_bell_liu"])
def test_a_false_edge_through_a_hidden_variable_is_removed(method):
    sites = {
        "a": ["asia", "tub", "either", "xray"],
        "b": ["smoke", "lung", "bronc", "dysp"],
    }
    for seed in range(3):
        X = sample(ASIA, 6000, seed)
        parameters = {"ordering": ORDERING, "method": method, "random_state": seed}
        before = fit_rows(X, sites, search_params={"post_process": False}, **parameters)
        after = fit_rows(X, sites, **parameters)
        assert ("lung", "dysp") in before.network_.edges
        assert ("lung", "dysp") in before.local_networks_["b"].edges
        assert after.removed_edges_ == [("lung", "dysp")]
        lost = set(before.network_.edges) - set(after.network_.edges)
        assert lost == {("lung", "dysp")}
        assert {("lung", "either"), ("either", "dysp")} <= set(after.cross_edges_)


def test_without_an_ordering_the_links_are_found():
    X = sample(ASIA, 6000, 1)
    for method in ("bic", "cheng_bell_liu"):
        fitted = fit_rows(X, fraction=0.5, method=method, random_state=0)
        links = {frozenset(edge) for edge in fitted.cross_edges_}
        assert {frozenset(("lung", "either")), frozenset(("bronc", "dysp"))} <= links


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_all_rows_give_the_pooled_tables(selection, alpha):
    X = sample(ASIA, 2000, 0)
    fitted = fit_rows(
        X, selection=selection, fraction=1.0, ordering=ORDERING, alpha=alpha
    )
    expected = pooled(X, fitted.network_.parents, alpha=alpha)
    assert len(fitted.cross_edges_) >= 2
    for node in ASIA.nodes:
        np.testing.assert_allclose(
            fitted.network_.cpts[node], expected.cpts[node], rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("selection", SELECTIONS)
def test_the_order_of_a_sites_records_does_not_matter(selection):
    X = sample(ASIA, 200, 0)
    parameters = {
        "selection": selection,
        "fraction": 0.3,
        "ordering": ORDERING,
        "random_state": 5,
    }
    here = fit_rows(with_keys(X, SITES), None, **parameters)
    shuffled = np.random.default_rng(0).permutation(len(X))
    order = {"a": np.arange(len(X)), "b": shuffled}
    there = fit_rows(with_keys(X, SITES, order), None, **parameters)
    assert here.network_ == there.network_
    other = fit_rows(with_keys(X, SITES), None, **{**parameters, "random_state": 6})
    assert selection == "low_likelihood" or other.network_ != here.network_


def test_only_records_of_all_sites_count():
    X = sample(ASIA, 300, 0)
    keep = {"a": np.arange(0, 250), "b": np.arange(40, 300)}
    partition = with_keys(X, SITES, keep=keep)
    fitted = fit_rows(partition, None, fraction=1.0, structure=ASIA.parents)
    assert fitted.n_samples_ == 210
    assert fitted.network_.cpts["lung"] == pytest.approx(
        pooled(X[40:250], ASIA.parents).cpts["lung"]
    )
    assert "which of its records the others have" in str(
        [*fitted.ledger_.who_learns_what(), *fitted.ledger_.notes]
    )


def test_rows_below_the_papers_threshold():
    X = sample(ASIA, 1000, 0)
    fitted = fit_rows(X, structure=ASIA.parents, selection="low_likelihood", n_std=-0.3)
    chosen = np.ones(len(X), dtype=bool)
    for site, network in fitted.local_networks_.items():
        likelihood = np.exp(network.log_likelihood(X[SITES[site]]))
        chosen &= likelihood < likelihood.mean() - 0.3 * likelihood.std()
    assert fitted.communicated_fraction_ == chosen.mean() > 0
    expected = pooled(X[chosen], fitted.network_.parents)
    for node in ("either", "dysp"):
        np.testing.assert_allclose(
            fitted.network_.cpts[node], expected.cpts[node], rtol=1e-12
        )


def test_the_ledger_says_that_rows_are_sent():
    fitted = fit_rows(sample(ASIA, 500, 0), structure=ASIA.parents, fraction=0.2)
    shown = {(f.who, f.what) for f in fitted.ledger_.facts() if f.kind == "raw rows"}
    assert shown == {
        ("a", "rows that were chosen"),
        ("a", "100 rows of all sites, side by side"),
    }
    assert "100 rows of all sites, side by side" in str(
        [*fitted.ledger_.who_learns_what(), *fitted.ledger_.notes]
    )


def test_inference_agrees_with_pgmpy():
    inference = pytest.importorskip("pgmpy.inference")
    X = sample(ASIA, 2000, 0)
    fitted = fit_rows(X, ordering=ORDERING, fraction=0.5, random_state=0)
    holes = X.head(6).astype(object).to_numpy()
    holes[np.random.default_rng(0).random(holes.shape) < 0.5] = None
    oracle = inference.VariableElimination(fitted.network_.to_pgmpy())
    table = fitted.predict_proba(pd.DataFrame(holes, columns=X.columns))
    n_compared = 0
    for i, row in enumerate(holes):
        evidence = {v: x for v, x in zip(X.columns, row) if x is not None}
        for j, node in enumerate(X.columns):
            if row[j] is None:
                answer = oracle.query([node], evidence, show_progress=False)
                expected = [
                    answer.get_value(**{node: label})
                    for label in fitted.network_.states[node]
                ]
                np.testing.assert_allclose(table[j][i], expected, rtol=0, atol=1e-8)
                n_compared += 1
    assert n_compared > 10
    again = BayesianNetwork.from_bif(fitted.network_.to_bif())
    assert again == fitted.network_


def test_values_may_be_text_or_numbers():
    rng = np.random.default_rng(0)
    number = rng.choice([-1.5, 0.0, 2.0], size=500)
    text = np.where(rng.random(500) < 0.9, number > 0, number < 0)
    X = pd.DataFrame({"number": number, "text": np.where(text, "high", "low")})
    states = {"number": (-1.5, 0.0, 2.0), "text": ("high", "low")}
    fitted = CollectiveBayesianNetwork(
        {"a": ["number"], "b": ["text"]}, states=states
    ).fit(X)
    assert fitted.network_.states == states
    assert len(fitted.cross_edges_) == 1
    completed = fitted.predict(pd.DataFrame({"number": [2.0], "text": [None]}))
    assert completed.tolist() == [[2.0, "high"]]
    assert fitted.score(X) == pytest.approx(fitted.score_samples(X).mean())
    assert fitted.sample(3, random_state=0).shape == (3, 2)


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"n_std": 0.5}, "needs selection"),
        (
            {"structure": {"lung": ["smoke"]}, "ordering": ORDERING},
            "leave out ordering",
        ),
        ({"structure": {"lung": ["smoke"], "smoke": ["lung"]}}, "directed cycle"),
        ({"structure": {"lung": ["sun"]}}, "no node"),
        ({"ordering": ORDERING[1:]}, "ordering must list each"),
        ({"states": {**ASIA.states, "lung": ["no"]}}, "holds 'yes'"),
        ({"search_params": {"level": 0.1}}, "search_params takes"),
        ({"search_params": {"significance": 2}}, "'significance' parameter"),
        ({"backend": "carrier pigeon"}, "'backend' parameter"),
        ({"parties": {"a": ORDERING, "b": ["lung"]}}, "choose one owner"),
    ],
)
def test_wrong_parameters_are_explained(parameters, message):
    X = sample(ASIA, 100, 0)
    estimator = CollectiveBayesianNetwork(**{"parties": SITES, **parameters})
    with pytest.raises((ValueError, PartitionError), match=message):
        estimator.fit(X)
    with pytest.raises(NotFittedError):
        estimator.score(X)


def test_settings_that_have_moved_name_their_place():
    with pytest.raises(TypeError, match="search_params={'post_process': ...}"):
        CollectiveBayesianNetwork(SITES, post_process=False)


def test_wrong_values_are_explained():
    X = sample(ASIA, 100, 0)
    missing = X.astype(object)
    missing.loc[3, "lung"] = None
    with pytest.raises(ValueError, match="NaN in column 'lung'"):
        CollectiveBayesianNetwork(SITES).fit(missing)
    many = sample(ASIA, 300, 0).assign(lung=np.linspace(0, 1, 300))
    with pytest.raises(ValueError, match="discretise it first.*'lung': 'continuous'"):
        CollectiveBayesianNetwork(SITES).fit(many)
    keys = many.astype({"lung": str})
    with pytest.raises(ValueError, match="leave it out if it is a key or a date"):
        CollectiveBayesianNetwork(SITES).fit(keys)
    with pytest.warns(PrivacyLeakWarning), pytest.raises(ValueError, match="n_std"):
        CollectiveBayesianNetwork(
            SITES, disclosure="rows", selection="low_likelihood", n_std=-10
        ).fit(X)
    blocks = {"a": [[0.0], [np.nan]], "b": [[1], [0]]}
    with pytest.raises(ValueError, match="NaN in column 'a__0' of party 'a'"):
        CollectiveBayesianNetwork().fit(VerticalPartition(blocks))


def test_one_site_is_a_plain_fit_and_warns():
    X = sample(ASIA, 1000, 0)
    estimator = CollectiveBayesianNetwork(structure=ASIA.parents, states=ASIA.states)
    with pytest.warns(PrivacyLeakWarning, match="one party's"):
        estimator.fit(X)
    assert estimator.cross_edges_ == []
    assert kl_divergence(pooled(X, ASIA.parents), estimator.network_) < 1e-12


def test_continuous_columns_are_not_taken_for_labels():
    X = np.random.default_rng(0).normal(size=(60, 3))
    with pytest.raises(ValueError, match="'x0' has the non-integer value.*discretise"):
        CollectiveBayesianNetwork({"a": [0], "b": [1, 2]}).fit(X)


def test_too_many_states_are_refused_by_name():
    X = np.zeros((20, 2), dtype=int)
    with pytest.raises(ValueError, match="'x1' has 300 states, more than 256"):
        CollectiveBayesianNetwork({"a": [0], "b": [1]}, states=[2, 300]).fit(X)
