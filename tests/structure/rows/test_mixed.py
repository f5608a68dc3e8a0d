"""Mixed networks from rows of parties: pooled ones, and likelihoods written out."""

import numpy as np
import pandas as pd
import pytest

from skprivbn.bayesian_network import ConditionalGaussianBayesianNetwork
from skprivbn.inspection import DAGDisplay
from skprivbn.structure import FederatedBayesianNetwork
from tests.bayesian_network.test_conditional_gaussian import NETWORK
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.site.loopback import connect, make_sites

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)

CONTINUOUS = ["x", "y", "z"]
STATES = dict.fromkeys(CONTINUOUS, "continuous")


@pytest.fixture(scope="module")
def X():
    return pd.DataFrame(NETWORK.sample(3000, random_state=0), columns=NETWORK.nodes)


def naive_score(X, node, parents):
    """BIC of a continuous node by least squares on the rows of each configuration."""
    discrete = [v for v in parents if v not in CONTINUOUS]
    others = [v for v in parents if v in CONTINUOUS]
    groups = [X] if not discrete else [rows for _, rows in X.groupby(discrete)]
    total = 0.0
    for rows in groups:
        target = rows[node].to_numpy(float)
        design = np.column_stack([np.ones(len(rows)), rows[others].to_numpy(float)])
        weights = np.linalg.lstsq(design, target, rcond=None)[0]
        variance = np.mean((target - design @ weights) ** 2)
        total -= 0.5 * len(rows) * (np.log(2 * np.pi * variance) + 1)
    n_lines = np.prod([len(NETWORK.states[v]) for v in discrete])
    return total - 0.5 * np.log(len(X)) * n_lines * (len(others) + 2)


@pytest.mark.parametrize(
    "parents",
    [[], ["a"], ["x"], ["c", "x"], ["x", "b", "c"], ["z", "a", "x"]],
    ids=str,
)
def test_scores_are_those_of_least_squares(X, parents):
    table = X[["x", "a", "y", "b", "c", "z"]]
    structure = {"y": parents}
    options = {"structure": structure, "states": STATES}
    options["count_params"] = {"alpha": 0.0}
    model = FederatedBayesianNetwork(**options).fit(table, party=X.index % 4)
    empty = FederatedBayesianNetwork(**options | {"structure": {}}).fit(table)
    gain = naive_score(X, "y", parents) - naive_score(X, "y", [])
    assert model.log_score_ - empty.log_score_ == pytest.approx(gain, abs=5e-3)
    likelihood = model.network_.log_likelihood(X).sum()
    n_parameters = model.network_.n_parameters
    score = likelihood - 0.5 * np.log(len(X)) * n_parameters
    assert model.log_score_ == pytest.approx(score, abs=5e-3)


@pytest.mark.parametrize("method", ["hill_climbing", "k2"])
@pytest.mark.parametrize("min_cell_count", [0, 4])
def test_parties_find_the_pooled_network(X, method, min_cell_count):
    options = {"method": method, "states": STATES}
    if method == "k2":
        options["search_params"] = {"ordering": ["a", "b", "c", "x", "y", "z"]}
    party = X.index % 4
    steps = {"min_cell_count": min_cell_count}
    federated = FederatedBayesianNetwork(count_params=steps, **options)
    federated.fit(X, party=party)
    pooled = FederatedBayesianNetwork(**options).fit(X)
    assert pooled.adjacency_matrix_.tolist() == NETWORK.adjacency_matrix.tolist()
    assert federated.parents_ == pooled.parents_
    if min_cell_count == 0:
        assert federated.log_score_ == pooled.log_score_
        for name in ("cpts", "intercepts", "weights", "variances"):
            for node, values in getattr(pooled.network_, name).items():
                np.testing.assert_allclose(
                    getattr(federated.network_, name)[node], values, atol=1e-12
                )


def test_what_a_mixed_model_answers(X):
    model = FederatedBayesianNetwork(states=STATES).fit(X, party=X.index % 3)
    assert isinstance(model.network_, ConditionalGaussianBayesianNetwork)
    truth = NETWORK.log_likelihood(X).mean()
    assert model.score(X) == pytest.approx(truth, abs=0.02)
    gaps = X.head(20).astype(object)
    gaps.loc[::2, "a"], gaps.loc[1::2, "z"] = None, np.nan
    assert not pd.isna(model.predict(gaps)).any()
    assert model.sample(5, random_state=0).shape == (5, 6)
    assert [p.shape[1] for p in model.predict_proba(gaps)] == [2, 2, 2, 2, 3, 2]
    known = str([str(note) for note in model.ledger_.notes])
    assert "for which continuous columns were summed up: all rows" in known
    assert len(model.to_networkx()) == 6
    DAGDisplay.from_estimator(model)


def test_columns_far_from_zero_lose_no_digits(X):
    moved = X.assign(x=X["x"].astype(float) * 1e-3 + 2000.0, y=X["y"] * 1e5 - 3e7)
    near = FederatedBayesianNetwork(states=STATES).fit(X)
    far = FederatedBayesianNetwork(states=STATES).fit(moved)
    assert far.parents_ == near.parents_
    np.testing.assert_allclose(
        far.network_.variances["x"], near.network_.variances["x"] * 1e-6, rtol=1e-6
    )
    np.testing.assert_allclose(
        far.network_.weights["y"], near.network_.weights["y"] * 1e8, rtol=1e-6
    )


def test_configurations_without_rows_are_like_all_rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.integers(2, size=200), "x": rng.normal(3, 2, size=200)})
    model = FederatedBayesianNetwork(
        structure={"x": ["a"]}, states={"x": "continuous", "a": [0, 1, 2]}
    ).fit(X)
    assert model.network_.intercepts["x"][2] == pytest.approx(X["x"].mean())
    assert model.network_.variances["x"][2] == pytest.approx(X["x"].var(), rel=0.02)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"criterion": "bdeu"}, "need criterion='bic'"),
        ({"method": "ges"}, "method='ges' is not available with"),
        ({"structure": {"a": ["x"]}}, "discrete column 'a' a continuous parent"),
        ({"search_params": {"required_edges": [("x", "a")]}}, "cannot be both"),
        ({"states": {"q": "continuous"}}, "states names 'q'"),
        (
            {"states": {"x": "continuous", "a": "continuous"}},
            "declares column 'a' as continuous",
        ),
    ],
)
def test_options_that_do_not_go_with_continuous_columns(X, options, message):
    model = FederatedBayesianNetwork(**{"states": STATES} | options)
    with pytest.raises(ValueError, match=message):
        model.fit(X)


def test_sites_learn_mixed_networks(tmp_path):
    write_tables(tmp_path, *make_rows())
    rows = connect(make_sites(tmp_path, site_files()), "icu").rows(["a", "b", "ward"])
    model = FederatedBayesianNetwork(states={"a": "continuous", "b": "continuous"}).fit(
        rows
    )
    assert model.network_.continuous == ("a", "b")
    assert np.isfinite(model.score(rows))
