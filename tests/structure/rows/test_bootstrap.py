"""Edges' confidence: that of resampled pooled rows; what the samples give away."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chisquare, poisson

from skprivbn.bayesian_network._dag import to_cpdag
from skprivbn.datasets import load_asia
from skprivbn.exceptions import PartyError, PrivacyLeakWarning
from skprivbn.federation import InProcessFederation
from skprivbn.inspection import DAGDisplay
from skprivbn.structure import FederatedBayesianNetwork
from skprivbn.structure.rows import _bootstrap
from skprivbn.structure.rows._protocol import (
    RowTablesParty,
    RowTablesTerms,
    agree_on_states,
    sum_tables,
)
from tests.bayesian_network.test_conditional_gaussian import NETWORK
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.site.loopback import connect, make_sites

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)


def drawn_beforehand(monkeypatch, weights):
    """Let parties, one after another, take weights that are known."""
    parts = []

    def draw(n_samples, n_rows):
        start = sum(parts)
        parts.append(n_rows)
        mine = weights[:n_samples, start : start + n_rows]
        return np.vstack([np.ones((1, n_rows)), mine]).astype(np.uint8)

    monkeypatch.setattr("skprivbn.structure.rows._protocol.draw_weights", draw)


@pytest.mark.parametrize(
    "method, mixed, gaps",
    [
        ("hill_climbing", False, 0.0),
        ("hill_climbing", False, 0.1),
        ("ges", False, 0.0),
        ("k2", False, 0.0),
        ("k2", True, 0.0),
        ("k2", True, 0.1),
    ],
)
def test_confidence_is_that_of_resampled_pooled_rows(monkeypatch, method, mixed, gaps):
    network = NETWORK if mixed else load_asia()
    X = pd.DataFrame(network.sample(900, random_state=0), columns=network.nodes)
    options = {"states": {v: list(labels) for v, labels in network.states.items()}}
    options |= {"continuous": ["x", "y", "z"]} if mixed else {}
    options |= {"max_parents": 2, "missing": "skip" if gaps else "error"}
    X = X.mask(np.random.default_rng(1).random(X.shape) < gaps)
    weights = np.random.default_rng(0).poisson(size=(6, len(X)))
    drawn_beforehand(monkeypatch, weights)
    party = np.repeat([0, 1, 2], 300)
    model = FederatedBayesianNetwork(method, n_bootstrap=6, **options)
    model.fit(X, party=party)
    expected = np.zeros(model.adjacency_matrix_.shape)
    for w in weights:
        again = FederatedBayesianNetwork(method, **options).fit(
            X.loc[X.index.repeat(w)]
        )
        edges = again.adjacency_matrix_
        if not mixed and method != "k2":
            edges = to_cpdag(edges)
        expected += np.where(edges & edges.T, 0.5, edges) / len(weights)
    np.testing.assert_allclose(model.edge_confidence_, expected, atol=1e-12)
    plain = FederatedBayesianNetwork(method, **options).fit(X, party=party)
    assert model.network_ == plain.network_ and not hasattr(plain, "edge_confidence_")


def test_samples_share_the_rounds_of_the_search():
    asia = load_asia()
    X = pd.DataFrame(asia.sample(2000, random_state=0), columns=asia.nodes)
    party = X.index % 4
    plain = FederatedBayesianNetwork().fit(X, party=party)
    model = FederatedBayesianNetwork(n_bootstrap=30).fit(X, party=party)
    # a few tables are asked for by some sample only
    assert model.ledger_.n_rounds < 3 * plain.ledger_.n_rounds
    known = str(list(model.ledger_.who_learns_what()))
    assert "all rows, and of 30 bootstrap samples: " in known
    assert any("weights of bootstrap samples stay" in n for n in model.ledger_.notes)
    sure = model.edge_confidence_ + model.edge_confidence_.T
    place = list(asia.nodes).index
    assert sure[place("lung"), place("either")] == 1
    assert sure[place("asia"), place("smoke")] < 0.2
    arrows = DAGDisplay.from_estimator(model).arrows_
    widths = {edge: arrow.get_linewidth() for edge, arrow in arrows.items()}
    for (i, j), width in widths.items():
        wider = [sure[place(u), place(v)] for u, v in widths if widths[u, v] > width]
        assert all(other > sure[place(i), place(j)] for other in wider)
    model.set_params(n_bootstrap=0).fit(X.head(300))
    assert not hasattr(model, "edge_confidence_")


def test_weights_are_poisson():
    weights = _bootstrap.draw_weights(200, 1000)
    assert (weights[0] == 1).all()
    seen = np.bincount(weights[1:].ravel(), minlength=6)
    expected = poisson.pmf(np.arange(5), 1)
    expected = np.append(expected, 1 - expected.sum()) * weights[1:].size
    seen = np.append(seen[:5], seen[5:].sum())
    assert chisquare(seen, expected).pvalue > 1e-6


def federation(blocks, n_bootstrap=0, min_cell_count=0):
    n = blocks["n"]["X"].shape[1]
    terms = RowTablesTerms(
        [f"x{v}" for v in range(n)],
        [[0, 1]] * n,
        [],
        1,
        min_cell_count,
        "error",
        n_bootstrap=n_bootstrap,
    )
    return InProcessFederation(blocks, RowTablesParty, terms, "masking")


def rows_read_off_sums(blocks, guessed):
    """What a coordinator finds with weights that it takes for those of party "n".

    All other parties help it with what they know. Every sample is an equation.
    """
    with federation(blocks, n_bootstrap=len(guessed)) as session:
        agree_on_states(session)
        n = blocks["n"]["X"].shape[1]
        counts = sum_tables(session)([([], list(range(n)))]).reshape(-1, n, 2)[..., 1]
        for name in ("s", "w"):
            weights = session._hosts[name]._party.weights.astype(int)
            counts = counts - weights @ blocks[name]["X"]
    equations = np.vstack([np.ones(guessed.shape[1]), guessed])
    return np.rint(np.linalg.lstsq(equations, counts, rcond=None)[0])


def test_rows_can_be_read_off_sums_only_by_who_knows_the_weights(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.integers(2, size=(120, 6))
    blocks = {name: {"X": part} for name, part in zip("nsw", np.split(X, 3))}
    # as many samples as parties with 40 rows accept
    guessed = rng.poisson(size=(39, 40))
    wrong = rows_read_off_sums(blocks, guessed) != X[:40]
    assert wrong.mean() > 0.3
    # the twin: a seed makes the weights, and the coordinator knows it, too
    drawn_beforehand(monkeypatch, np.hstack([guessed, rng.poisson(size=(39, 80))]))
    np.testing.assert_array_equal(rows_read_off_sums(blocks, guessed), X[:40])


def test_fewer_rows_than_samples_are_refused():
    X = np.random.default_rng(0).integers(2, size=(90, 2))
    blocks = {name: {"X": part} for name, part in zip("nsw", np.split(X, 3))}
    with pytest.raises(PartyError, match="fewer rows"):
        with federation(blocks, n_bootstrap=30) as session:
            agree_on_states(session)
    with pytest.raises(ValueError, match="party '0' has 30 rows.*lower n_bootstrap=30"):
        FederatedBayesianNetwork(n_bootstrap=30).fit(X, party=np.arange(90) % 3)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"min_cell_count": 3}, "vary together"),
        ({"structure": {}}, "leave out n_bootstrap="),
        ({"epsilon": 1.0}, "n_bootstrap is not available with epsilon"),
        ({"n_bootstrap": 1001}, "n_bootstrap"),
    ],
)
def test_options_that_do_not_go_with_samples(options, message):
    X = load_asia().sample(100, random_state=0)
    with pytest.raises(ValueError, match=message):
        FederatedBayesianNetwork(**{"n_bootstrap": 5} | options).fit(X)


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


def test_attack_records_of_who_is_alone_in_a_cell(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    n_columns, n_rows, n_labels = 6, 450, 4
    chances = [0.6, 0.3, 0.085, 0.015]
    X = rng.choice(n_labels, size=(3 * n_rows, n_columns), p=chances)
    blocks = {name: {"X": part} for name, part in zip("nsw", np.split(X, 3))}
    terms = RowTablesTerms(
        [f"x{v}" for v in range(n_columns)],
        [list(range(n_labels))] * n_columns,
        [],
        1,
        0,
        "error",
        n_bootstrap=400,
    )
    asked = list(combinations(range(n_columns), 2))
    with InProcessFederation(blocks, RowTablesParty, terms, "masking") as session:
        agree_on_states(session)
        told = sum_tables(session)([([i], [j]) for i, j in asked])
    told = np.split(told.reshape(401, -1), len(asked), axis=1)
    pairs = {pair: t.reshape(-1, n_labels, n_labels) for pair, t in zip(asked, told)}
    found = list(records_of_the_lonely(pairs, n_columns))
    whole = []
    for columns, record in found:
        same = (X[:, columns] == np.take(record, columns)).all(axis=1)
        whole.append((X[same] == record).all())
    # four labels that are guessed would be right for one in eight
    assert len(found) > 5 and np.mean(whole) > 0.9
    # therefore who has not said that rows may be seen is not asked for samples
    assert terms.shows_rows()
    write_tables(tmp_path, *make_rows())
    rows = connect(make_sites(tmp_path, site_files()), "icu").rows(["ward", "died"])
    model = FederatedBayesianNetwork(n_bootstrap=5)
    with pytest.raises(PartyError, match="not allow"):
        model.fit(rows)
    monkeypatch.setattr(RowTablesTerms, "shows_rows", lambda terms: False)
    rows = connect(make_sites(tmp_path, site_files()), "icu").rows(["ward", "died"])
    assert model.fit(rows).edge_confidence_.shape == (2, 2)


def test_a_warning_says_what_samples_tell():
    X = load_asia().sample(90, random_state=0)
    model = FederatedBayesianNetwork(n_bootstrap=3)
    with pytest.warns(PrivacyLeakWarning, match="alone in a cell"):
        model.fit(X, party=np.arange(90) % 3)
    assert any("whole records of persons" in note for note in model.ledger_.notes)


def test_sites_that_hide_small_cells_refuse_samples(tmp_path):
    write_tables(tmp_path, *make_rows())
    texts = {
        name: text.replace("min_rows = 5", "min_rows = 5\nallow_rows = true")
        for name, text in site_files().items()
    }
    rows = connect(make_sites(tmp_path, texts), "icu").rows(["ward", "died"])
    model = FederatedBayesianNetwork(n_bootstrap=5).fit(rows)
    assert model.edge_confidence_.shape == (2, 2)
    texts["west"] = texts["west"].replace("min_cell_count = 1", "min_cell_count = 5")
    rows = connect(make_sites(tmp_path, texts), "icu").rows(["ward", "died"])
    with pytest.raises(ValueError, match="bootstrap samples vary"):
        FederatedBayesianNetwork(n_bootstrap=5).fit(rows)
