"""EM over parties against EM written out over all configurations, and its point."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.datasets import load_alarm, load_asia
from skprivbn.structure import FederatedBayesianNetwork
from tests.structure.rows.asking import run, terms_for

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)


def with_gaps(network, n, share, seed=0):
    X = pd.DataFrame(network.sample(n, random_state=seed), columns=network.nodes)
    return X.mask(np.random.default_rng(seed).random(X.shape) < share)


def states_of(network):
    return {node: list(labels) for node, labels in network.states.items()}


def naive_counts(network, codes):
    """Expected counts by going through every joint configuration."""
    cells = np.array(list(product(*(range(size) for size in network._inference.sizes))))
    joint = np.ones(len(cells))
    for table, family in zip(network._inference.tables, network._inference.families):
        joint *= table[tuple(cells[:, family].T)]
    counts = [np.zeros(table.shape) for table in network._inference.tables]
    for row in codes:
        share = np.where(((cells == row) | (row < 0)).all(axis=1), joint, 0.0)
        for table, family in zip(counts, network._inference.families):
            np.add.at(table, tuple(cells[:, family].T), share / share.sum())
    return counts


def counts_by_elimination(network, codes):
    """Expected counts by eliminating variables, one family and row after another."""
    counts = [np.zeros(table.shape) for table in network._inference.tables]
    for row in codes:
        seen = {v: int(code) for v, code in enumerate(row) if code >= 0}
        for table, family in zip(counts, network._inference.families):
            hidden = sorted(v for v in family if v not in seen)
            share = np.ones(())
            if hidden:
                share = network._inference.joint(hidden, seen)
                share = share.transpose(
                    [hidden.index(v) for v in family if v in hidden]
                )
            place = tuple(seen.get(v, slice(None)) for v in family)
            table[place] += share / share.sum()
    return counts


def oracle(X, network, n_iter, alpha, count):
    """EM on pooled rows, begun with what complete families show."""
    codes = network.encode(X)
    counts = []
    for family in network._inference.families:
        rows = codes[(codes[:, family] >= 0).all(axis=1)]
        counts.append(np.zeros([network._inference.sizes[v] for v in family]))
        np.add.at(counts[-1], tuple(rows[:, family].T), 1)
    for _ in range(n_iter):
        fields = network.nodes, network.states, network.parents
        counts = count(BayesianNetwork.from_counts(*fields, counts, alpha=alpha), codes)
    return BayesianNetwork.from_counts(*fields, counts, alpha=alpha)


def fit(X, network, party, n_iter, alpha):
    model = FederatedBayesianNetwork(
        structure=network.parents,
        states=states_of(network),
        missing="em",
        count_params={"max_iter": n_iter, "tol": 0.0, "alpha": alpha},
    )
    with pytest.warns(UserWarning, match="EM did not converge"):
        return model.fit(X, party=party)


def largest_difference(first, second):
    return max(np.abs(first.cpts[v] - second.cpts[v]).max() for v in first.nodes)


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_parties_find_what_em_finds_on_pooled_rows(share):
    network = load_asia(variant="noisy_or")
    X = with_gaps(network, 120, share)
    model = fit(X, network, X.index % 3, n_iter=4, alpha=0.5)
    expected = oracle(X, network, 4, 0.5, naive_counts)
    assert largest_difference(model.network_, expected) < 1e-12
    assert model.n_iter_ == 4 and not model.converged_


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.05, 0.1, 0.2, 0.3])
def test_parties_find_what_em_finds_on_pooled_rows_of_alarm(share):
    network = load_alarm()
    X = with_gaps(network, 60, share)
    model = fit(X, network, X.index % 4, n_iter=3, alpha=1.0)
    expected = oracle(X, network, 3, 1.0, counts_by_elimination)
    assert largest_difference(model.network_, expected) < 1e-8


def test_expected_counts_of_complete_rows_are_counts():
    network = load_alarm()
    codes = network.encode(network.sample(50, random_state=0))
    inference = network._inference
    counts, log_likelihood, n_impossible = inference.expected_counts(codes)
    for table, family in zip(counts, inference.families):
        exact = np.zeros(table.shape)
        np.add.at(exact, tuple(codes[:, family].T), 1)
        np.testing.assert_allclose(table, exact, atol=1e-9)
    rows = network.log_likelihood(network.decode(codes))
    assert log_likelihood == pytest.approx(rows.sum()) and n_impossible == 0


def test_impossible_rows_count_nowhere():
    network = load_asia()
    row = dict.fromkeys(network.nodes, "no") | {"tub": "yes", "xray": np.nan}
    codes = network.encode(pd.DataFrame([row]))
    counts, _, n_impossible = network._inference.expected_counts(codes)
    assert n_impossible == 1 and not any(table.any() for table in counts)


def test_available_cases_are_biased_where_em_is_not():
    # whether b was recorded depends on a, which is always there: missing at random
    rng = np.random.default_rng(0)
    a = rng.integers(2, size=6000)
    b = a ^ (rng.random(6000) < 0.1)
    X = pd.DataFrame({"a": a, "b": b.astype(object)})
    X.loc[(a == 1) & (rng.random(6000) < 0.8), "b"] = None
    options = {"structure": {"a": ["b"]}, "states": {"a": [0, 1], "b": [0, 1]}}
    shares = {}
    for missing in ("skip", "em"):
        model = FederatedBayesianNetwork(missing=missing, **options)
        model.fit(X, party=X.index % 3)
        shares[missing] = model.network_.query("b")[1]
    assert shares["skip"] < 0.3
    assert shares["em"] == pytest.approx(b.mean(), abs=0.03)


def test_structure_with_gaps_is_that_of_pooled_rows():
    network = load_asia()
    X = with_gaps(network, 1500, 0.1)
    options = {"states": states_of(network), "missing": "em"}
    for method in ("hill_climbing", "ges", "k2"):
        federated = FederatedBayesianNetwork(method, **options).fit(
            X, party=X.index % 3
        )
        pooled = FederatedBayesianNetwork(method, **options).fit(X)
        assert federated.parents_ == pooled.parents_
        assert largest_difference(federated.network_, pooled.network_) < 1e-12
        assert federated.converged_ and federated.n_iter_ > 1
        assert np.isfinite(federated.score(X))


@pytest.mark.parametrize("value", [None, np.nan, pd.NA])
def test_whatever_stands_for_a_missing_value(value):
    X = pd.DataFrame({"a": ["x", "y", value, "y"] * 5, "b": ["u", "u", "w", "w"] * 5})
    X = X.astype(object)
    model = FederatedBayesianNetwork(missing="em").fit(X)
    assert model.network_.states["a"] == ("x", "y")
    categories = X.astype({"a": "category"})
    other = FederatedBayesianNetwork(missing="em").fit(categories)
    assert other.network_ == model.network_


def test_options_that_do_not_go_together():
    X = with_gaps(load_asia(), 50, 0.1)
    with pytest.raises(ValueError, match="fractions of rows"):
        FederatedBayesianNetwork(missing="em", count_params={"min_cell_count": 3}).fit(
            X
        )
    with pytest.raises(ValueError, match="compare scores of whole graphs"):
        FederatedBayesianNetwork(missing="skip", search_params={"tabu_length": 3}).fit(
            X
        )
    with pytest.raises(ValueError, match="NaN in column.*missing='em' or 'skip'"):
        FederatedBayesianNetwork().fit(X)


def test_em_takes_no_more_steps_than_were_signed():
    rng = np.random.default_rng(0)
    rows = {name: rng.integers(2, size=(20, 2)).astype(float) for name in "nsw"}
    rows["n"][:5, 0] = np.nan
    blocks = {name: {"X": X} for name, X in rows.items()}
    options = {"missing": "em", "known": [[], [0]], "max_iter": 3}
    found = run(blocks, terms_for(["a", "b"], [[0, 1], [0, 1]], **options))
    assert (found["n_iter"], found["converged"]) == (3, False)
