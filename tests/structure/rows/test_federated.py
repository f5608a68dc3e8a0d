"""Networks from rows of parties: those of pooled rows, and pgmpy's scores."""

import warnings

import numpy as np
import pandas as pd
import pytest

from skprivbn.bayesian_network._labels import count_rows
from skprivbn.datasets import load_alarm, load_asia, load_child, load_insurance
from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.partition import HorizontalPartition
from skprivbn.structure import FederatedBayesianNetwork, K2StructureLearner

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)

NETWORKS = {
    "asia": load_asia,
    "alarm": load_alarm,
    "child": load_child,
    "insurance": load_insurance,
}
METHODS, CRITERIA = ("hill_climbing", "ges", "k2"), ("bic", "bdeu", "k2", "stirling")


def sample(name, n, seed=0):
    network = NETWORKS[name]()
    X = network.sample(n, random_state=seed)
    return pd.DataFrame(X, columns=network.nodes), network


def split(X, n_parties, how, rng):
    if how == "even":
        return np.arange(len(X)) % n_parties
    if how == "skewed":
        shares = rng.dirichlet(np.full(n_parties, 0.5))
        return rng.choice(n_parties, size=len(X), p=shares)
    # parties that see one outcome only, as far as there are as many
    return X.iloc[:, -1].astype("category").cat.codes.to_numpy() % n_parties


def equal_to_pooled(X, party, **options):
    options["states"] = {name: sorted(set(X[name])) for name in X}
    federated = FederatedBayesianNetwork(**options).fit(X, party=party)
    pooled = FederatedBayesianNetwork(**options).fit(X)
    np.testing.assert_array_equal(federated.adjacency_matrix_, pooled.adjacency_matrix_)
    for node in pooled.network_.nodes:
        np.testing.assert_allclose(
            federated.network_.cpts[node], pooled.network_.cpts[node], atol=1e-12
        )
    assert federated.log_score_ == pooled.log_score_
    assert federated.tables_ == pooled.tables_
    return federated


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("method", METHODS)
def test_every_search_and_criterion_gives_the_pooled_network(method, criterion):
    X, _ = sample("asia", 600)
    model = equal_to_pooled(
        X,
        np.arange(600) % 3,
        method=method,
        criterion=criterion,
        search_params={"tabu_length": 3},
    )
    assert model.adjacency_matrix_.any() and model.n_samples_ == 600


def combinations():
    rng = np.random.default_rng(0)
    for seed in range(200):
        yield (
            rng.choice(list(NETWORKS)),
            int(rng.integers(1, 11)),
            rng.choice(["even", "skewed", "by outcome"]),
            rng.choice(METHODS),
            rng.choice(CRITERIA),
            int(rng.choice([200, 500, 1500])),
            seed,
        )


@pytest.mark.slow
@pytest.mark.parametrize("combination", list(combinations()), ids=str)
def test_the_pooled_network_to_the_last_edge(combination):
    name, n_parties, how, method, criterion, n, seed = combination
    X, _ = sample(name, n, seed)
    party = split(X, n_parties, how, np.random.default_rng(seed))
    equal_to_pooled(X, party, method=method, criterion=criterion, max_parents=2)


def test_one_party_and_k2_are_the_pooled_k2_learner():
    X, network = sample("child", 800)
    ordered = {"ordering": list(network.topological_order)}
    pooled = K2StructureLearner(criterion="bdeu", **ordered).fit(X)
    federated = FederatedBayesianNetwork(
        "k2", criterion="bdeu", search_params=ordered
    ).fit(X, party=X.index % 4)
    assert federated.parents_ == pooled.parents_
    assert federated.network_ == pooled.network_
    assert federated.log_score_ == pooled.log_score_


@pytest.mark.parametrize("criterion", ["bic", "bdeu", "k2"])
def test_scores_are_those_of_pgmpy(criterion):
    structure_score = pytest.importorskip("pgmpy.structure_score")
    X, network = sample("asia", 700)
    states = {name: list(labels) for name, labels in network.states.items()}
    model = FederatedBayesianNetwork(
        criterion=criterion, states=states, structure=network.parents
    ).fit(X, party=X.index % 3)
    options = {"equivalent_sample_size": 10} if criterion == "bdeu" else {}
    name = {"bic": "BIC", "bdeu": "BDeu", "k2": "K2"}[criterion]
    theirs = getattr(structure_score, name)(X, state_names=states, **options)
    score = sum(
        theirs.local_score(node, tuple(network.parents[node])) for node in network.nodes
    )
    assert model.log_score_ == pytest.approx(score, abs=1e-4)


def test_a_known_structure_needs_its_own_tables_only():
    X, network = sample("asia", 500)
    model = FederatedBayesianNetwork(
        structure=network.parents, count_params={"alpha": 0.5}
    )
    model.fit(X, party=X.index % 3)
    families = {frozenset((v, *network.parents[v])) for v in network.nodes}
    # those of fewer columns follow from others
    needed = {f for f in families if not any(f < other for other in families)}
    assert {frozenset(table) for table in model.tables_} == needed
    assert len(model.tables_) == len(needed) < len(families)
    expected = type(network).from_data(X, network.parents, alpha=0.5)
    assert model.network_ == expected
    with pytest.raises(ValueError, match="leave out tiers="):
        model.set_params(search_params={"tiers": [list(X)]}).fit(X)


def test_no_table_is_opened_twice_and_the_ledger_lists_them():
    X, _ = sample("asia", 500)
    model = FederatedBayesianNetwork("ges").fit(X, party=X.index % 3)
    assert len({frozenset(table) for table in model.tables_}) == len(model.tables_)
    (known,) = [note for note in model.ledger_.notes if "tub x" in str(note)]
    for table in model.tables_:
        assert " x ".join(table) in str(known)
    words = "contingency tables of the search"
    asked = [e for e in model.ledger_.entries if e.operation == words]
    # the coordinator reads none of them
    assert {e.kind for e in asked} == {"masked"}


def test_counts_of_a_party_come_in_steps():
    X, network = sample("asia", 900)
    party = X.index % 3
    steps = {"min_cell_count": 5, "alpha": 0.0}
    model = FederatedBayesianNetwork(structure=network.parents, count_params=steps)
    model.fit(X, party=party)
    nodes, codes = list(model.network_.nodes), model.network_.encode(X)
    sizes = [len(model.network_.states[node]) for node in nodes]
    for child, node in enumerate(nodes):
        family = [*map(nodes.index, model.network_.parents[node]), child]
        counts = np.zeros([sizes[v] for v in family])
        for p in range(3):
            mine = count_rows(codes[party == p], family, sizes)
            counts += mine // 5 * 5
        total = counts.sum(axis=-1, keepdims=True)
        uniform = np.full_like(counts, 1 / sizes[child])
        expected = np.divide(counts, total, out=uniform, where=total > 0)
        np.testing.assert_allclose(model.network_.cpts[node], expected)
    assert any("steps of 5" in note for note in model.ledger_.notes)
    # a search runs on such tables, too
    FederatedBayesianNetwork("ges", count_params=steps).fit(X, party=party)


def test_labels_that_one_party_has_are_known_to_all():
    blocks = {
        "north": pd.DataFrame({"a": ["x", "y", "x"], "b": [0.0, 1.0, 0.0]}),
        "south": pd.DataFrame({"a": ["z", "y", "z"], "b": [2.0, 1.0, 0.0]}),
        "west": pd.DataFrame({"a": ["x", "x", "x"], "b": [0.0, 0.0, 0.0]}),
    }
    model = FederatedBayesianNetwork().fit(HorizontalPartition(blocks))
    assert dict(model.network_.states) == {"a": ("x", "y", "z"), "b": (0, 1, 2)}


def test_wrong_values_are_said_with_their_column():
    X, _ = sample("asia", 60)
    with pytest.raises(ValueError, match="column 'asia' holds 'no'"):
        FederatedBayesianNetwork(states=[["yes"]] * 8).fit(X)
    with pytest.raises(ValueError, match="column 'x1' has the non-integer value"):
        FederatedBayesianNetwork().fit([[0, 0.5], [1, 1.5]])
    with pytest.raises(ValueError, match="NaN in column 'x0'"):
        FederatedBayesianNetwork().fit([[np.nan, 0.0], [1, 1.0]])


@pytest.mark.parametrize("n_values", [30, 31])
def test_many_undeclared_numbers_are_warned_of(n_values):
    X = pd.DataFrame({"age": np.arange(620) % n_values, "sick": np.arange(620) % 2})
    party = np.arange(620) // 200
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        FederatedBayesianNetwork().fit(X, party=party)
        FederatedBayesianNetwork(states={"age": n_values}).fit(X, party=party)
    said = [str(w.message) for w in caught if "taken as a category" in str(w.message)]
    assert len(said) == (n_values > 30)
    assert all("states={'age': 'continuous'}" in text for text in said)


def test_text_among_numbers_is_warned_of():
    column = np.array([1, 2, 3] * 100, dtype=object)
    column[200:] = "1"
    X = pd.DataFrame({"grade": column, "sick": np.arange(300) % 2})
    with pytest.warns(UserWarning, match="'grade' mixes numbers and text, such as 1 "):
        FederatedBayesianNetwork().fit(X, party=np.arange(300) // 100)


@pytest.mark.filterwarnings("default")
def test_one_and_two_parties_are_warned():
    X, _ = sample("asia", 60)
    with pytest.warns(PrivacyLeakWarning, match="one party's"):
        FederatedBayesianNetwork().fit(X)
    with pytest.warns(PrivacyLeakWarning, match="two parties"):
        FederatedBayesianNetwork().fit(X, party=X.index % 2)


@pytest.mark.parametrize(
    "old, new",
    [
        ("tabu_length", r"search_params=\{'tabu_length'"),
        ("tiers", "search_params="),
        ("n_bootstrap", "search_params="),
        ("alpha", r"count_params=\{'alpha'"),
        ("max_iter", "count_params="),
        ("continuous", "states=.*'continuous'"),
    ],
)
def test_an_old_name_of_a_parameter_is_answered_by_the_new_one(old, new):
    with pytest.raises(TypeError, match=new):
        FederatedBayesianNetwork(**{old: 1})
    with pytest.raises(TypeError, match=new):
        FederatedBayesianNetwork().set_params(**{old: 1})


def test_settings_of_a_search_are_known():
    X, _ = sample("asia", 60)
    for wrong in ({"tabu": 1}, {"tabu_length": -1}):
        with pytest.raises(ValueError, match="search_params"):
            FederatedBayesianNetwork(search_params=wrong).fit(X)
