"""FCI on discrete, mixed and different columns of several parties."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2, chi2_contingency

from skprivbn.partition import HorizontalPartition
from skprivbn.structure import FederatedFCI
from skprivbn.structure._fci import fci
from skprivbn.structure._hidden_causes import (
    IndependenceTerms,
    LikelihoodRatioTests,
)
from skprivbn.structure._tables import AskedTables
from skprivbn.structure.rows._mixed import AskedMoments, configuration_moments
from tests.federation.site.loopback import open_sites


def hidden_model(seed, d=6, n_hidden=2, n_rows=4000):
    """Binary columns, each after some of those before it, and hidden ones."""
    rng = np.random.default_rng(seed)
    size = d + n_hidden
    order, X = rng.permutation(size), np.zeros((n_rows, size), dtype=int)
    pairs = list(combinations(range(size), 2))
    edges = [pairs[k] for k in rng.choice(len(pairs), 9, replace=False)]
    for place, v in enumerate(order):
        odds = np.full(n_rows, rng.uniform(-0.3, 0.3))
        for i, j in edges:
            if j == place:
                effect = rng.choice([-1, 1]) * rng.uniform(0.8, 1.6)
                odds += effect * (2 * X[:, order[i]] - 1)
        X[:, v] = rng.random(n_rows) < 1 / (1 + np.exp(-odds))
    return X[:, :d]


def g_squared(X, significance=0.01):
    """Test by SciPy, stratum by stratum, on pooled rows."""

    def independent(x, y, given):
        total = freedom = 0.0
        strata = X[:, list(given)] @ (2 ** np.arange(len(given)))
        for stratum in np.unique(strata):
            part = X[strata == stratum]
            table = np.bincount(2 * part[:, x] + part[:, y], minlength=4).reshape(2, 2)
            table = table[table.any(axis=1)][:, table.any(axis=0)]
            found = chi2_contingency(table, correction=False, lambda_=0)
            total, freedom = total + found.statistic, freedom + found.dof
        return freedom == 0 or chi2.sf(total, freedom) > significance

    return independent


@pytest.mark.parametrize("seed", range(20))
def test_discrete_columns_give_the_graph_of_pooled_rows(seed):
    X = hidden_model(seed)
    expected = fci(g_squared(X), X.shape[1])
    for n in (3, 5):
        model = FederatedFCI(states=[2] * 6).fit(X, party=np.arange(len(X)) % n)
        np.testing.assert_array_equal(model.pag_.marks, expected)
    assert model.not_testable_ == []


def mixed_model(n_rows=3000, seed=0):
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=n_rows)
    ward = rng.integers(3, size=n_rows)
    x = ward + hidden + rng.normal(size=n_rows)
    sex = rng.integers(2, size=n_rows)
    y = 2 * sex + hidden + rng.normal(size=n_rows)
    died = (rng.random(n_rows) < 1 / (1 + np.exp(1 - y))).astype(int)
    rows = [ward, x, sex, y, died]
    return pd.DataFrame(dict(zip(("ward", "x", "sex", "y", "died"), rows)))


MIXED = {"ward": 3, "x": "continuous", "sex": 2, "y": "continuous", "died": 2}


def test_mixed_columns_are_tested_together():
    X = mixed_model()
    model = FederatedFCI(states=MIXED, significance=0.001)
    pag = model.fit(X, party=np.arange(len(X)) % 3).pag_
    assert ("x", "y") in pag.hidden_causes()
    assert ("ward", "o->", "x") in pag.edges()
    assert ("sex", "o->", "y") in pag.edges()
    assert {frozenset((a, b)) for a, _, b in pag.edges()} == {
        *(frozenset(pair) for pair in (("ward", "x"), ("x", "y"), ("sex", "y"))),
        frozenset(("y", "died")),
    }


@pytest.mark.parametrize("given", [(), (0,), (3,), (0, 3)])
def test_a_mixed_test_is_a_ratio_of_regressions(given):
    """Of x and sex: the regressions of x on numbers, in every configuration."""
    X = mixed_model(500)
    codes, values = X.to_numpy(dtype=int), X[["x", "y"]].to_numpy()
    codes[:, [1, 3]] = 0
    n_states = [3, 1, 2, 1, 2]

    def count(asked):
        found = [configuration_moments(codes, values, n_states, g) for g in asked]
        return np.concatenate([part.ravel() for part in found])

    moments = AskedMoments(n_states, 2, count)
    tables = AskedTables.from_rows(codes, n_states)
    held = [list(range(5))]

    def log_likelihood(parents):
        groups = [X.columns[v] for v in parents if v in (0, 2, 4)]
        total = 0.0
        for _, part in X.groupby(groups or (lambda _: 0)):
            numbers = [part["y"]] if 3 in parents else []
            A = np.column_stack([np.ones(len(part)), *numbers])
            rest = part["x"] - A @ np.linalg.lstsq(A, part["x"], rcond=None)[0]
            total -= len(part) / 2 * np.log(np.mean(rest**2))
        return total

    gain = log_likelihood((*given, 2)) - log_likelihood(given)
    n_cells = 3 if 0 in given else 1
    expected = chi2.logsf(2 * gain, n_cells * (2 + (3 in given)))
    tests = LikelihoodRatioTests(tables, moments, [1, 3], 0.01, held)
    # but for the row that every configuration has beside its own
    found = np.log(tests.p_value(1, 2, given))
    assert found == pytest.approx(expected, rel=0.05, abs=0.1)


def test_what_is_known_of_causes_is_kept():
    X, party = hidden_model(3), np.arange(4000) % 3
    plain = FederatedFCI(states=[2] * 6).fit(X, party=party).pag_
    a, _, b = plain.edges()[0]
    places = [plain.nodes.index(v) for v in (a, b)]
    for rules, marks in (
        ({"required_edges": [(b, a)]}, (3, 2)),
        ({"forbidden_edges": [(a, b), (b, a)]}, (2, 2)),
    ):
        model = FederatedFCI(states=[2] * 6, search_params=rules)
        found = model.fit(X, party=party).pag_.marks
        i, j = places
        assert (found[i, j], found[j, i]) == marks
    tiers = {"tiers": [[0, 1, 2], [3, 4, 5]]}
    numbers = FederatedFCI(search_params=tiers).fit(X.astype(float), party=party)
    across = numbers.pag_.marks[:3, 3:]
    assert set(across.ravel()) <= {0, 2}


def test_samples_tell_how_sure_a_mark_is():
    X, party = hidden_model(3), np.arange(4000) % 3
    for states in ([2] * 6, None):
        model = FederatedFCI(states=states, n_bootstrap=10, random_state=0)
        shares = model.fit(X.astype(float), party=party).mark_confidence_
        assert shares.shape == (6, 6, 4)
        np.testing.assert_allclose(shares.sum(axis=-1), 1.0)
        joined = model.pag_.marks > 0
        assert shares[joined, 0].mean() < 0.3 < 0.7 < shares[~joined, 0].mean()


def lacking(X, columns, n_parties=6):
    """Let the first half of the parties have no values of some columns."""
    rows = {}
    for k in range(n_parties):
        own = X[k::n_parties].astype(float)
        own[:, columns if k < n_parties // 2 else []] = np.nan
        rows[f"site {k}"] = own
    return HorizontalPartition(rows)


def chain(n_rows=6000):
    """Columns a -> b -> c, and d of its own."""
    rng, columns = np.random.default_rng(0), [np.zeros(n_rows, dtype=bool)]
    for _ in range(3):
        odds = np.where(columns[-1], 0.8, 0.2) if len(columns) > 1 else 0.5
        columns.append(rng.random(n_rows) < odds)
    return np.column_stack([*columns[1:], rng.random(n_rows) < 0.5])


def test_parties_may_have_different_columns():
    X, states = chain(), [2] * 4
    whole = FederatedFCI(states=states).fit(X.astype(float), party=np.arange(6000) % 6)
    model = FederatedFCI(states=states, missing="skip").fit(lacking(X, [3]))
    assert model.pag_ == whole.pag_
    assert model.not_testable_ == []
    # b beside a, and b beside c, but never a beside c
    rows = {}
    for k in range(6):
        own = X[k::6].astype(float)
        own[:, 0 if k < 3 else 2] = np.nan
        rows[f"site {k}"] = own
    model.fit(HorizontalPartition(rows))
    # neither could it be tested whether one of them separates b from the other
    pairs = [("x0", "x1"), ("x0", "x2"), ("x1", "x2")]
    assert model.not_testable_ == pairs
    assert model.pag_.edges() == [(a, "o-o", b) for a, b in pairs]


def test_no_mark_depends_on_an_edge_that_was_not_tested():
    """A collider a -> c <- b, with d after c: a and d are never seen together."""
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 8000)) < 0.5
    c = rng.random(8000) < np.array([0.1, 0.5, 0.9])[a.astype(int) + b]
    d = rng.random(8000) < np.where(c, 0.8, 0.2)
    X, rows = np.column_stack([a, b, c, d]), {}
    options = {"states": [2] * 4, "missing": "skip"}
    for k in range(4):
        own = X[k::4].astype(float)
        own[:, 0 if k < 2 else 3] = np.nan
        rows[f"site {k}"] = own
    model = FederatedFCI(**options).fit(HorizontalPartition(rows))
    assert ("x0", "x3") in model.not_testable_
    whole = FederatedFCI(**options).fit(X.astype(float), party=np.arange(8000) % 4)
    assert ("x2", "-->", "x3") in whole.pag_.edges()
    for x, y in model.not_testable_:
        assert (x, "o-o", y) in model.pag_.edges()


def test_attack_tables_with_and_without_one_party(monkeypatch):
    """One party lacks a column: two tables differ by its rows alone."""
    X, known = chain(1200), {}
    rows = {f"site {k}": X[k::4].astype(float) for k in range(4)}
    rows["site 3"][:, 2] = np.nan
    keep = AskedTables._keep

    def curious(self, variables, numbers):
        """Stand in for a party that keeps what it reads."""
        keep(self, variables, numbers)
        known.update(self._kept)

    monkeypatch.setattr(AskedTables, "_keep", curious)
    model = FederatedFCI(states=[2] * 4, missing="skip")
    with pytest.raises(ValueError, match="only 1 of all parties have the columns x0"):
        model.fit(HorizontalPartition(rows))
    assert not known
    # the twin: groups may be of one party
    init = IndependenceTerms.__init__
    monkeypatch.setattr(
        IndependenceTerms,
        "__init__",
        lambda self, **fields: init(self, **{"min_parties": 1} | fields),
    )
    model.fit(HorizontalPartition(rows))
    told = known[0, 1].sum(axis=1).astype(int) - known[0, 2].sum(axis=1)
    np.testing.assert_array_equal(told, np.bincount(rows["site 3"][:, 0].astype(int)))


def test_attack_by_the_other_member_of_a_group_of_two(monkeypatch):
    """Two parties lack a column; each subtracts its own rows from their difference."""
    X, known = chain(1200), {}
    keep = AskedTables._keep

    def curious(self, variables, numbers):
        """Stand in for a party that keeps what it reads."""
        keep(self, variables, numbers)
        known.update(self._kept)

    monkeypatch.setattr(AskedTables, "_keep", curious)
    rows = {f"site {k}": X[k::4].astype(float) for k in range(4)}
    rows["site 0"][:, 2] = rows["site 1"][:, 2] = np.nan
    # the twin: a group of two is enough, and the ledger says what follows
    model = FederatedFCI(states=[2] * 4, missing="skip").fit(HorizontalPartition(rows))
    both = known[0, 1].sum(axis=1).astype(int) - known[0, 2].sum(axis=1)
    own, other = (np.bincount(rows[f"site {k}"][:, 0].astype(int)) for k in (0, 1))
    np.testing.assert_array_equal(both - own, other)
    assert any(
        "same columns: 2, 2; all of a group but one can read" in note
        for note in model.ledger_.notes
    )
    # sites that want groups of three tell nothing
    known.clear()
    init = IndependenceTerms.__init__
    monkeypatch.setattr(
        IndependenceTerms,
        "__init__",
        lambda self, **fields: init(self, **{"min_parties": 3} | fields),
    )
    with pytest.raises(ValueError, match="only 2 of all parties .* at least 3 must"):
        model.fit(HorizontalPartition(rows))
    assert not known


def test_sites_with_different_columns(tmp_path):
    X, tables = chain(1200), {}
    for k, name in enumerate(("north", "south", "east", "west")):
        text = np.where(X[k::4], "yes", "no").astype(object)
        text[:, 3 if k < 2 else []] = ""
        tables[name] = text.tolist()
    kinds = dict.fromkeys("abcd", '["no", "yes"]')
    rows = open_sites(tmp_path, tables, kinds, ["FederatedFCI"]).rows()
    model = FederatedFCI(states=dict.fromkeys("abcd"), missing="skip").fit(rows)
    assert [(a, b) for a, _, b in model.pag_.edges()] == [("a", "b"), ("b", "c")]
    lone = tables | {"north": [[*row[:3], "no"] for row in tables["north"]]}
    (tmp_path / "again").mkdir()
    rows = open_sites(tmp_path / "again", lone, kinds, ["FederatedFCI"]).rows()
    with pytest.raises(ValueError, match="only 1 of all parties"):
        model.fit(rows)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"states": [2] * 4, "epsilon": 1.0}, "epsilon=1.0 is not available with"),
        ({"states": [2] * 4, "site_effects": "levels"}, "not available with states="),
        ({"missing": "skip"}, "'skip' is not available without states="),
        ({"epsilon": 1.0, "n_bootstrap": 3}, "n_bootstrap=3 is not available with"),
    ],
)
def test_what_is_not_available_is_said(options, words):
    with pytest.raises(ValueError, match=words):
        FederatedFCI(**options).fit(chain(60).astype(float), party=np.arange(60) % 3)
