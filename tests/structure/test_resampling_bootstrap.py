"""Edges' confidence: near that of resampled rows, from nothing but tables."""

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from skprivbn.bayesian_network._labels import encode
from skprivbn.datasets import load_asia
from skprivbn.inspection import DAGDisplay
from skprivbn.structure import FederatedBayesianNetwork
from skprivbn.structure._resampling import Resampled, edge_confidence
from skprivbn.structure._scores import TableScores
from skprivbn.structure._search import EdgeRules, complete
from skprivbn.structure._tables import AskedTables
from skprivbn.structure.rows._mixed import AskedMoments, configuration_moments
from skprivbn.structure.rows._search import SEARCHES
from tests.bayesian_network.test_conditional_gaussian import NETWORK
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.site.loopback import connect, make_sites

one_party = pytest.mark.filterwarnings("ignore:all rows are taken to be one party's")


def resampled_rows(X, states, n_samples, method):
    """The oracle: searches in samples of the pooled rows."""
    codes, rng = encode(X.to_numpy(), X.columns, states), np.random.default_rng(0)
    found, n_rows = [], len(X)
    n_states = [len(labels) for labels in states.values()]
    for _ in range(n_samples):
        rows = codes[rng.integers(n_rows, size=n_rows)]
        tables = AskedTables.from_rows(rows, n_states)
        tables.consistent = not X.isna().any(axis=None)
        scores = TableScores(tables, n_rows, "bic")
        rules = EdgeRules.free(len(n_states), 2)
        options = {"ordering": range(len(n_states)), "tabu_length": 0, "n_restarts": 0}
        terms = SimpleNamespace(**options, seed=0)
        found.append(complete(SEARCHES[method](scores, rules, terms)))
    return edge_confidence(found, is_directed=method == "k2")


def joined(confidence):
    """Return in what share of samples two columns are joined, either way."""
    return (confidence + confidence.T)[np.triu_indices(len(confidence), 1)]


@pytest.mark.parametrize(
    "method, gaps",
    [("hill_climbing", 0.0), ("hill_climbing", 0.1), ("ges", 0.0), ("k2", 0.0)],
)
def test_confidence_is_near_that_of_resampled_rows(method, gaps):
    asia = load_asia()
    X = pd.DataFrame(asia.sample(900, random_state=0), columns=asia.nodes)
    X = X.mask(np.random.default_rng(1).random(X.shape) < gaps)
    states = {v: list(labels) for v, labels in asia.states.items()}
    expected = resampled_rows(X, states, 40, method)
    options = {
        "states": states,
        "max_parents": 2,
        "missing": "skip" if gaps else "error",
    }
    model = FederatedBayesianNetwork(
        method, search_params={"n_bootstrap": 40}, random_state=0, **options
    )
    model.fit(X, party=np.repeat([0, 1, 2], 300))
    wrong = joined(model.edge_confidence_) - joined(expected)
    possible = joined(model.edge_confidence_ + expected) > 0.05
    # columns that nearly stand for each other change places more often than in rows
    assert np.sqrt(np.mean(wrong[possible] ** 2)) < 0.2
    plain = FederatedBayesianNetwork(method, **options)
    plain.fit(X, party=np.repeat([0, 1, 2], 300))
    assert model.network_ == plain.network_ and not hasattr(plain, "edge_confidence_")


def test_continuous_columns_are_as_sure_as_in_resampled_rows():
    X = pd.DataFrame(NETWORK.sample(900, random_state=0), columns=NETWORK.nodes)
    party, rng, n_samples = np.arange(900) % 3, np.random.default_rng(0), 20
    options = {"states": {v: list(labels) for v, labels in NETWORK.states.items()}}
    options["states"] |= dict.fromkeys("xyz", "continuous")
    options["max_parents"] = 2
    model = FederatedBayesianNetwork(
        search_params={"n_bootstrap": 60}, random_state=0, **options
    )
    model.fit(X, party=party)
    expected = 0.0
    for _ in range(n_samples):
        rows = X.iloc[rng.integers(900, size=900)]
        again = FederatedBayesianNetwork(**options).fit(rows, party=party)
        expected = expected + again.adjacency_matrix_ / n_samples
    wrong = joined(model.edge_confidence_) - joined(expected)
    possible = joined(model.edge_confidence_ + expected) > 0.05
    assert np.sqrt(np.mean(wrong[possible] ** 2)) < 0.15


def test_gains_between_tables_drawn_apart_would_mean_nothing():
    # the twin of the one above: each score from its own draws
    rng = np.random.default_rng(0)
    codes = rng.choice(4, size=(2000, 2), p=[0.7, 0.1, 0.1, 0.1])
    exact = AskedTables.from_rows(codes, [4, 4])
    within, between = [], []
    for _ in range(200):
        scores = TableScores(Resampled(exact, rng), 2000, "bic")
        now = scores.score(1, [])
        within.append(scores.added(1, [], [0])[0] > now)
        between.append(scores.score(1, [0]) > now)
    assert np.mean(within) < 0.05 < 0.2 < np.mean(between)


def test_tables_vary_as_those_of_resampled_rows():
    rng = np.random.default_rng(0)
    codes = rng.choice(3, size=(400, 2), p=[0.6, 0.3, 0.1])
    exact = AskedTables.from_rows(codes, [3, 3])
    drawn = np.array([Resampled(exact, rng)([0, 1]) for _ in range(4000)])
    rows = [
        AskedTables.from_rows(codes[rng.integers(400, size=400)], [3, 3])([0, 1])
        for _ in range(4000)
    ]
    assert (drawn.sum(axis=(1, 2)) == 400).all()
    drawn, rows = drawn.reshape(4000, 9), np.reshape(rows, (4000, 9))
    np.testing.assert_allclose(drawn.mean(axis=0), rows.mean(axis=0), atol=0.8)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(rows.T), atol=6)
    again = Resampled(exact, rng)
    assert again([0, 1]) is again([1, 0])


def test_moments_vary_as_those_of_resampled_normal_rows():
    rng = np.random.default_rng(0)
    codes = rng.choice(2, size=(300, 1), p=[0.99, 0.01])
    values = rng.multivariate_normal([1, -2], [[2, 1], [1, 3]], size=300)
    values[codes[:, 0] == 1] += 2
    moments = AskedMoments(
        [2], 2, lambda _: configuration_moments(codes, values, [2], [0]).ravel()
    )
    drawn = np.array([Resampled(moments, rng)([0]) for _ in range(4000)])
    rows = []
    for _ in range(4000):
        chosen = rng.integers(300, size=300)
        full = np.c_[np.ones(300), values][chosen]
        own = [full[codes[chosen, 0] == k] for k in (0, 1)]
        rows.append([part.T @ part for part in own])
    rows = np.array(rows)
    np.testing.assert_array_equal(drawn[:, 0, 0, 0] + drawn[:, 1, 0, 0], 300)
    np.testing.assert_allclose(drawn, drawn.swapaxes(-1, -2))
    # one configuration has three rows: samples of none, one, two are among them
    assert (drawn[:, 1, 0, 0] == 0).any() and (drawn[:, 1, 0, 0] == 1).any()
    assert not drawn[drawn[:, 1, 0, 0] == 0][:, 1].any()
    for k in (0, 1):
        scale = rows[:, k].std(axis=0)
        np.testing.assert_array_less(
            np.abs(drawn[:, k].mean(axis=0) - rows[:, k].mean(axis=0)) / scale, 0.1
        )
        # three rows are not as normal ones
        ratio = drawn[:, k].std(axis=0) / scale
        assert 0.8 < ratio.min() < ratio.max() < (1.1, 1.5)[k]
    centred = drawn[:, 0, 1:, 1:] / drawn[:, 0, :1, :1]
    centred -= np.einsum("ni,nj->nij", *[drawn[:, 0, 0, 1:] / drawn[:, 0, :1, 0]] * 2)
    assert np.linalg.eigvalsh(centred).min() > 0


@one_party
def test_samples_cost_a_few_more_tables():
    asia = load_asia()
    X = pd.DataFrame(asia.sample(2000, random_state=0), columns=asia.nodes)
    party = X.index % 4
    plain = FederatedBayesianNetwork().fit(X, party=party)
    model = FederatedBayesianNetwork(search_params={"n_bootstrap": 30}, random_state=0)
    model.fit(X, party=party)
    assert model.ledger_.n_rounds < 5 * plain.ledger_.n_rounds
    assert set(plain.tables_) < set(model.tables_)
    assert any("drawn from these tables" in note for note in model.ledger_.notes)
    sure = model.edge_confidence_ + model.edge_confidence_.T
    place = list(asia.nodes).index
    assert sure[place("lung"), place("either")] == 1
    assert sure[place("asia"), place("smoke")] < 0.2
    arrows = DAGDisplay.from_estimator(model).arrows_
    widths = {edge: arrow.get_linewidth() for edge, arrow in arrows.items()}
    for (i, j), width in widths.items():
        wider = [sure[place(u), place(v)] for u, v in widths if widths[u, v] > width]
        assert all(other > sure[place(i), place(j)] for other in wider)
    # who holds which rows does not matter, nor does a second fit
    alone = FederatedBayesianNetwork(
        search_params={"n_bootstrap": 30}, random_state=0
    ).fit(X)
    np.testing.assert_array_equal(alone.edge_confidence_, model.edge_confidence_)
    model.set_params(search_params=None).fit(X.head(300))
    assert not hasattr(model, "edge_confidence_")


@one_party
@pytest.mark.parametrize(
    "options, message",
    [
        ({"structure": {}}, "leave one of them out"),
        ({"epsilon": 1.0}, "n_bootstrap is not available with epsilon"),
        ({"n_restarts": 1}, "not available with .*n_bootstrap="),
        ({"tabu_length": 1}, "not available with .*n_bootstrap="),
        ({"n_bootstrap": -1}, "n_bootstrap"),
    ],
)
def test_options_that_do_not_go_with_samples(options, message):
    X = load_asia().sample(100, random_state=0)
    flat = {name: options[name] for name in options if name in ("structure", "epsilon")}
    search = {"n_bootstrap": 5} | {k: v for k, v in options.items() if k not in flat}
    with pytest.raises(ValueError, match=message):
        FederatedBayesianNetwork(search_params=search, **flat).fit(X)


def records_of_the_lonely(pairs, n_columns):
    """What a coordinator makes of pair tables of samples: records, cell by cell.

    Yields the two columns and labels that somebody is alone with, and the record.
    """

    def cells(u, v):
        return pairs[u, v] if u < v else pairs[v, u].swapaxes(1, 2)

    for i, j in pairs:
        for a, b in np.argwhere(pairs[i, j][0] == 1):
            how_often = pairs[i, j][1:, a, b] - 1.0
            record = {i: a, j: b}
            for v in set(range(n_columns)) - {i, j}:
                shares = []
                for u, label in ((i, a), (j, b)):
                    others = cells(u, v)[:, label].astype(float)
                    together = how_often @ (others[1:] - others[0])
                    shares.append(together / np.sqrt(1 + others[0]))
                record[v] = np.sum(shares, axis=0).argmax()
            yield (i, j), [record[v] for v in range(n_columns)]


def share_of_whole_records(X, pairs):
    whole = []
    for columns, record in records_of_the_lonely(pairs, X.shape[1]):
        same = (X[:, columns] == np.take(record, columns)).all(axis=1)
        whole.append((X[same] == record).all())
    assert len(whole) > 5
    return np.mean(whole)


def test_attack_records_of_who_is_alone_in_a_cell():
    rng = np.random.default_rng(0)
    n_columns, n_labels, n_samples = 6, 4, 400
    X = rng.choice(n_labels, size=(1350, n_columns), p=[0.6, 0.3, 0.085, 0.015])
    exact = AskedTables.from_rows(X, [n_labels] * n_columns)
    samples = [exact, *(Resampled(exact, rng) for _ in range(n_samples))]
    asked = list(combinations(range(n_columns), 2))
    pairs = {pair: np.array([tables(pair) for tables in samples]) for pair in asked}
    # four labels that are guessed are right for one in eight
    assert share_of_whole_records(X, pairs) < 0.3
    # the twin: rows have one weight in all tables of a sample
    weights = np.vstack([np.ones(len(X)), rng.poisson(size=(n_samples, len(X)))])
    for i, j in asked:
        cells = (X[:, i] * n_labels + X[:, j])[:, None] == np.arange(n_labels**2)
        pairs[i, j] = (weights @ cells).reshape(-1, n_labels, n_labels)
    assert share_of_whole_records(X, pairs) > 0.9


def test_parties_hear_of_no_samples(monkeypatch):
    # what is drawn, is drawn from tables that the ledger lists, after they are known
    asia = load_asia()
    X = pd.DataFrame(asia.sample(600, random_state=0), columns=asia.nodes)
    told = []

    def listen(tables, rng):
        told.append(tables)
        return Resampled(tables, rng)

    monkeypatch.setattr("skprivbn.structure._scores.Resampled", listen)
    model = FederatedBayesianNetwork(search_params={"n_bootstrap": 10}, random_state=0)
    model.fit(X, party=X.index % 3)
    assert len(told) == 10 and all(isinstance(tables, AskedTables) for tables in told)
    operations = {entry.operation for entry in model.ledger_.entries}
    plain = FederatedBayesianNetwork().fit(X, party=X.index % 3)
    assert operations == {entry.operation for entry in plain.ledger_.entries}
    assert len(set(model.tables_)) == len(model.tables_)


@pytest.mark.parametrize("min_cell_count", [1, 5])
def test_sites_that_show_no_rows_allow_samples(tmp_path, min_cell_count):
    write_tables(tmp_path, *make_rows())
    texts = {
        name: text.replace("min_cell_count = 1", f"min_cell_count = {min_cell_count}")
        for name, text in site_files().items()
    }
    assert not any("allow_rows = true" in text for text in texts.values())
    rows = connect(make_sites(tmp_path, texts), "icu").rows(["ward", "died"])
    model = FederatedBayesianNetwork(
        search_params={"n_bootstrap": 5}, random_state=0
    ).fit(rows)
    assert model.edge_confidence_.shape == (2, 2)
