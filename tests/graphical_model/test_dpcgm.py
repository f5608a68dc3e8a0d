"""The estimator: what users see, one holder and several."""

import pickle
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV, cross_val_score

from skprivbn.datasets import make_wifi_sessions
from skprivbn.exceptions import BudgetExceededError, PrivacyLeakWarning
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.graphical_model._release import release_tables
from skprivbn.partition import HorizontalPartition
from skprivbn.preprocessing import FederatedKBinsDiscretizer
from skprivbn.privacy import (
    CountMechanism,
    DistributedNoise,
    PrivacyAccountant,
    distribute,
)

SIZES = [3, 4, 2, 3]


def unlimited():
    return PrivacyAccountant(epsilon=np.inf, delta=0.1)


exact = pytest.mark.filterwarnings("ignore:epsilon=None learns from exact tables")


def learner(**parameters):
    defaults = {"cliques": "chain", "states": SIZES, "accountant": unlimited()}
    parameters = {**defaults, **parameters}
    return DPCGMLearner(**parameters)


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    first = rng.integers(3, size=4000)
    second = np.where(rng.random(4000) < 0.7, first, rng.integers(4, size=4000))
    third = (second >= 2).astype(int) ^ (rng.random(4000) < 0.1)
    fourth = np.where(rng.random(4000) < 0.5, third, rng.integers(3, size=4000))
    return np.column_stack([first, second, third, fourth])


def empirical(X, columns):
    table = np.zeros([SIZES[i] for i in columns])
    np.add.at(table, tuple(X[:, i] for i in columns), 1)
    return table / len(X)


METHODS = {
    "auto": {},
    "naive": {"method": "naive"},
    "cgm": {"method": "cgm"},
    "gaussian": {"delta": 1e-6},
    "gaussian cgm": {"delta": 1e-6, "method": "cgm"},
    "mst": {"cliques": "mst"},
    "mst, gaussian": {"cliques": "mst", "delta": 1e-6},
}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_finds_the_marginals(X, name):
    found = learner(epsilon=4.0, **METHODS[name]).fit(X)
    assert_allclose(found.marginal([0, 1]), empirical(X, [0, 1]), atol=0.03)
    assert_allclose(found.marginal(2), empirical(X, [2]), atol=0.03)
    assert found.n_samples_ == pytest.approx(4000, abs=200)
    assert found.score(X) > -np.log(np.prod(SIZES)) + 0.5
    assert found.privacy_spent_ == (4.0, found.delta)
    assert_allclose(found.score_samples(X[:9]).mean(), found.score(X[:9]))


def test_faithful_propagation_inside_the_estimator(X):
    found = learner(
        epsilon=0.2,
        method="cgm",
        method_params={"inference": "nlbp"},
        cliques=[(0, 1), (1, 2)],
    ).fit(X)
    assert found.n_iter_ > 1
    assert_allclose(found.marginal([0, 1]), empirical(X, [0, 1]), atol=0.06)


def test_psgd_learns_something(X):
    found = learner(
        method="psgd", delta=1e-5, epsilon=4.0, method_params={"n_steps": 60}
    ).fit(X)
    uniform = -np.log(np.prod(SIZES))
    assert found.score(X) > uniform + 0.2
    assert not hasattr(found, "n_samples_")


def test_without_epsilon_it_matches_exact_tables_and_warns(X):
    with pytest.warns(PrivacyLeakWarning, match="exact tables"):
        found = DPCGMLearner(epsilon=None, states=SIZES).fit(X)
    for clique in [(0, 1), (1, 2), (2, 3)]:
        assert_allclose(found.marginal(clique), empirical(X, clique), atol=1e-4)
    assert found.privacy_spent_.epsilon == np.inf
    edges = {tuple(sorted(edge)) for edge in found.to_networkx().edges}
    assert edges == {clique for clique in found.cliques_ if len(clique) == 2}
    with (
        pytest.warns(PrivacyLeakWarning, match="exact tables"),
        pytest.raises(BudgetExceededError),
    ):
        limited = PrivacyAccountant(epsilon=1.0)
        DPCGMLearner(epsilon=None, states=SIZES, accountant=limited).fit(X)


def test_mst_finds_strong_edges(X):
    found = learner(cliques="mst", epsilon=5.0).fit(X)
    edges = [clique for clique in found.cliques_ if len(clique) == 2]
    assert len(edges) == 3
    assert {("x0", "x1"), ("x1", "x2")} <= set(edges)


def test_labels_names_and_synthetic_rows_of_a_frame(X):
    frame = pd.DataFrame(
        {
            "colour": np.array(["red", "green", "blue"])[X[:, 0]],
            "size": X[:, 1],
            "flag": X[:, 2].astype(bool),
        }
    )
    states = {
        "colour": ["blue", "green", "red"],
        "size": range(4),
        "flag": [False, True],
    }
    found = learner(states=states, cliques=[("colour", "size"), ("size", "flag")])
    found.fit(frame)
    assert set(found.noisy_marginals_) == {("colour", "size"), ("size", "flag")}
    rows = found.sample(300, random_state=0)
    assert set(rows["colour"]) == {"red", "green", "blue"}
    assert [dtype.kind for dtype in rows.dtypes[1:]] == ["i", "b"]
    assert found.score(rows) > found.score(rows.sample(frac=1).assign(flag=True))
    assert found.score(frame) == pytest.approx(found.score(frame.to_numpy(object)))
    row = pd.DataFrame({"colour": ["red"], "size": [None], "flag": [None]})
    completed = found.predict(row)[0]
    probabilities = found.predict_proba(row)
    assert completed[1] == probabilities[1][0].argmax()
    query = found.network_.query("size", {"colour": "red"})
    assert_allclose(probabilities[1][0], query)


def test_released_tables_are_integers_near_the_truth(X):
    found = learner(epsilon=1.0).fit(X)
    noise = found.noise_
    for clique, table in found.noisy_tables_.items():
        assert table.dtype == np.int64
        columns = [int(name[1:]) for name in clique]
        error = table - 4000 * empirical(X, columns)
        assert np.abs(error).max() < 15 * noise.std
        assert_allclose(found.noisy_marginals_[clique], table / found.n_samples_)
    assert noise.sensitivity == 3


def test_noise_of_one_holder_is_drawn_by_opendp(X, monkeypatch):
    seen = []

    def release(self, counts):
        seen.append(self)
        return np.asarray(counts)

    monkeypatch.setattr(CountMechanism, "release", release)
    found = learner().fit(X)
    # whatever the mechanism returns is what is learnt from: no other noise is added
    assert len(seen) == 1
    table = found.noisy_tables_["x0", "x1"]
    assert_array_equal(table, np.rint(4000 * empirical(X, [0, 1])))


def test_mean_squared_error_of_released_marginals():
    """Proposition 4: mu (1 - mu) / N + Var(noise) / N^2."""
    mu, n, errors = np.array([0.15, 0.35, 0.5]), 500, []
    rng = np.random.default_rng(0)
    noise = CountMechanism.for_budget(0.5, l1_sensitivity=2)
    for _ in range(4000):
        counts = rng.multinomial(n, mu)
        errors.append((noise.release(counts) / n - mu) ** 2)
    expected = mu * (1 - mu) / n + noise.variance / n**2
    # the mean of 4000 squares has a relative error of about 3%
    assert_allclose(np.mean(errors, axis=0), expected, rtol=0.15)


def test_marginal_std_is_the_square_root_of_that_error(X):
    found = learner(epsilon=1.0).fit(X)
    p = found.network_.marginals()["x0", "x1"]
    expected = p * (1 - p) / found.n_samples_ + found.noise_.variance / (
        found.n_samples_**2
    )
    assert_allclose(found.marginal_std_["x0", "x1"] ** 2, expected)


def test_fit_marginals_repeats_a_fit_without_cost(X):
    one = learner(epsilon=1.0).fit(X)
    tables = {
        tuple(int(v[1:]) for v in c): table for c, table in one.noisy_tables_.items()
    }
    other = learner(accountant=None).fit_marginals(tables, one.noise_.std)
    for clique, table in one.potentials_.items():
        assert_allclose(other.potentials_[clique], table, atol=1e-8)
    assert other.privacy_spent_ == (0.0, 0.0)
    named = DPCGMLearner(states={"a": 2, "b": 2})
    named.fit_marginals({("a", "b"): [[400, 100], [100, 400]]}, std=2.0)
    assert named.predict([[0, None]])[0, 1] == 0
    with pytest.raises(ValueError, match="shape"):
        named.fit_marginals({("a", "b"): [[1, 2]]}, std=2.0)


def test_several_holders_learn_the_same_kind_of_model(X):
    party = np.arange(len(X)) % 4
    for backend, delta in (("masking", 0.0), ("masking", 1e-6), ("ckks", 0.0)):
        found = learner(epsilon=4.0, backend=backend, delta=delta).fit(X, party=party)
        assert_allclose(found.marginal([0, 1]), empirical(X, [0, 1]), atol=0.04)
        expected = distribute(
            CountMechanism.for_budget(4.0, delta, 3, np.sqrt(3)), n_parties=4
        )
        assert found.noise_ == expected
        assert found.noisy_tables_["x0", "x1"].dtype == np.int64
        words = "contingency tables, with noise"
        assert ("Noisy", words) in release_tables.rounds()
        kinds = {e.kind for e in found.ledger_.entries if e.operation == words}
        assert kinds == {"masked"}
        assert "noisy release" in str(list(found.ledger_.who_learns_what())) or (
            "differentially private noise"
            in str([*found.ledger_.who_learns_what(), *found.ledger_.notes])
        )


def test_holders_can_come_as_a_partition(X):
    blocks = {"north": X[:1500], "south": X[1500:2500], "west": X[2500:]}
    found = learner(epsilon=4.0).fit(HorizontalPartition(blocks))
    assert found.n_samples_ == pytest.approx(4000, abs=200)


def test_each_holder_adds_noise_before_anything_leaves_it(X, monkeypatch):
    """The sum without noise shares is exact: with them nobody sees clean totals."""
    asked = []

    def share(self, shape):
        asked.append(shape)
        return np.zeros(shape, dtype=np.int64)

    monkeypatch.setattr(DistributedNoise, "share", share)
    found = learner().fit(X, party=np.arange(len(X)) % 3)
    assert len(asked) == 3
    table = found.noisy_tables_["x0", "x1"]
    assert_array_equal(table, np.rint(4000 * empirical(X, [0, 1])))


def test_people_with_several_records(X):
    person = np.repeat(np.arange(1000), 4)
    found = learner(epsilon=4.0, contribution="normalize").fit(X, individual=person)
    assert found.n_samples_ == pytest.approx(1000, abs=60)
    assert_allclose(found.marginal([0, 1]), empirical(X, [0, 1]), atol=0.05)
    clipped = learner(
        epsilon=4.0,
        contribution={"kind": "clip", "max_records": 2},
    )
    clipped.fit(X, individual=person)
    assert clipped.n_samples_ == pytest.approx(2000, abs=100)
    assert clipped.noise_.sensitivity == 2 * 3


def test_tied_chain(X):
    same = np.minimum(X, 1)
    found = learner(
        states=[2] * 4, clique_params={"stationary": True}, epsilon=4.0
    ).fit(same)
    assert found.cliques_[0] == ("x0",)
    tables = [found.potentials_[c] for c in found.cliques_[1:]]
    assert_array_equal(tables[0], tables[1])
    assert_array_equal(tables[0], tables[2])
    assert found.noise_.sensitivity == 4
    assert len(found.noisy_tables_) == 2


def test_structural_zeros(X):
    zeros = np.zeros((3, 4), dtype=bool)
    zeros[0, 3] = True
    rows = X[~((X[:, 0] == 0) & (X[:, 1] == 3))]
    found = learner(clique_params={"structural_zeros": {(0, 1): zeros}}).fit(rows)
    assert found.marginal([0, 1])[0, 3] == 0
    drawn = found.sample(500, random_state=0)
    assert not np.any((drawn[:, 0] == 0) & (drawn[:, 1] == 3))


@exact
def test_missing_entries_are_refused_or_skipped(X):
    rows = X.astype(float)
    rows[np.random.default_rng(0).random(len(X)) < 0.3, 0] = np.nan
    with pytest.raises(ValueError, match="missing='skip'"):
        learner(epsilon=None).fit(rows)
    # an error would be a release: rows are left out
    assert learner(epsilon=9.0).fit(rows).n_samples_ == pytest.approx(2800, abs=200)
    found = learner(missing="skip", epsilon=4.0).fit(rows)
    assert_allclose(found.marginal([0, 1]), empirical(X, [0, 1]), atol=0.04)
    assert np.all(np.isfinite(found.score_samples(rows)))


@exact
def test_weights_are_bounded_and_counted(X):
    weight = np.arange(len(X)) % 3
    found = learner(contribution={"max_weight": 2}, epsilon=4.0).fit(
        X, sample_weight=weight
    )
    assert found.n_samples_ == pytest.approx(weight.sum(), abs=200)
    assert found.noise_.sensitivity == 2 * 3
    for bad in (weight * 9, np.where(weight == 2, np.inf, weight * 2.5)):
        found = learner(contribution={"max_weight": 2}, epsilon=4.0).fit(
            X, sample_weight=bad
        )
        assert found.n_samples_ == pytest.approx(2 * np.sum(weight > 0), abs=200)
        with pytest.raises(ValueError, match="from 0 to max_weight=2"):
            learner(contribution={"max_weight": 2}, epsilon=None).fit(
                X, sample_weight=bad
            )


def test_large_treewidth_falls_back_to_loopy_propagation():
    rng = np.random.default_rng(0)
    rows = rng.integers(6, size=(4000, 4))
    for j in range(1, 4):
        rows[:, j] = np.where(rng.random(4000) < 0.3, rows[:, j - 1], rows[:, j])
    cycle = {
        "cliques": [(0, 1), (1, 2), (2, 3), (3, 0)],
        "method_params": {"max_cells": 150},
        "states": [6] * 4,
    }
    with pytest.warns(UserWarning, match="loopy"):
        found = learner(epsilon=4.0, method="naive", **cycle).fit(rows)
    assert found.network_.inference == "loopy"
    truth = np.histogram2d(rows[:, 0], rows[:, 1], bins=np.arange(7))[0] / 4000
    assert_allclose(found.marginal((0, 1)), truth, atol=0.02)
    with pytest.raises(ValueError, match="inference='loopy'"):
        cycle["method_params"]["inference"] = "exact"
        learner(**cycle).fit(rows)


@pytest.mark.parametrize("method", ["auto", "naive"])
def test_dense_fields_learn_their_marginals_by_loopy_propagation(method):
    rng = np.random.default_rng(0)
    rows = rng.integers(4, size=(4000, 7))
    for j in range(1, 7):  # a strong tree, measured by all pairs
        kept = rng.random(4000) < 0.8
        rows[:, j] = np.where(kept, rng.permutation(4)[rows[:, j // 2]], rows[:, j])
    found = learner(
        cliques=list(combinations(range(7), 2)),
        epsilon=20.0,
        method=method,
        states=[4] * 7,
        method_params={"inference": "loopy"},
    ).fit(rows)
    truth = np.histogram2d(rows[:, 0], rows[:, 1], bins=np.arange(5))[0] / 4000
    assert_allclose(found.marginal((0, 1)), truth, atol=0.01)


def test_budget_is_charged_before_the_rows_are_looked_at(X):
    accountant = PrivacyAccountant(epsilon=1.0)
    learner(epsilon=0.6, accountant=accountant).fit(X)
    bad = np.full_like(X, 99)
    with pytest.raises(BudgetExceededError):
        learner(epsilon=0.6, accountant=accountant).fit(bad)
    assert accountant.spent().epsilon == pytest.approx(0.6)


def test_five_folds_spend_five_times(X):
    accountant = PrivacyAccountant(epsilon=10.0)
    cross_val_score(learner(epsilon=0.5, accountant=accountant), X, cv=5)
    assert accountant.spent().epsilon == pytest.approx(2.5)
    assert len(accountant.history) == 5


def test_grid_search_over_epsilon_routes_parties(X):
    accountant = PrivacyAccountant(epsilon=100.0)
    search = GridSearchCV(
        learner(accountant=accountant), {"epsilon": [0.01, 5.0]}, cv=2
    )
    search.fit(X, party=np.arange(len(X)) % 3)
    assert search.best_params_["epsilon"] == 5.0
    assert accountant.spent().epsilon == pytest.approx(2 * (0.01 + 5.0) + 5.0)


def test_one_fit_per_estimator_does_not_warn(X):
    # PrivacyLeakWarning is an error here
    for epsilon in (0.5, 1.0):
        learner(epsilon=epsilon, accountant=None).fit(X)


def test_tied_tables_can_be_learnt_from_again():
    X, person = make_wifi_sessions(300, 3, random_state=0)
    found = learner(
        states=[4] * 6,
        clique_params={"stationary": True},
        contribution={"kind": "normalize", "null_state": 0},
    ).fit(X, individual=person)
    unit = found.table_unit_
    assert unit == 1024
    tables = {
        tuple(int(name[1:]) for name in clique): table / unit
        for clique, table in found.noisy_tables_.items()
    }
    assert list(tables) == [(0,), (0, 1)]
    again = learner(states=[4] * 6, clique_params={"stationary": True}, accountant=None)
    again.fit_marginals(tables, found.noise_.std / unit)
    for clique, potential in found.potentials_.items():
        assert_allclose(again.potentials_[clique], potential)
    with pytest.raises(ValueError, match="one table for each"):
        again.fit_marginals({(0, 1): tables[0, 1]}, 1.0)


def test_a_second_fit_without_an_accountant_is_pointed_out(X):
    uncounted = learner(accountant=None).fit(X)
    with pytest.warns(PrivacyLeakWarning, match="second fit .* 2 so far"):
        uncounted.fit(X)
    counted = uncounted.set_params(accountant=unlimited())
    counted.fit(X)


def test_a_search_without_an_accountant_is_pointed_out(X):
    search = GridSearchCV(learner(accountant=None), {"epsilon": [0.5, 1.0]}, cv=2)
    with pytest.warns(PrivacyLeakWarning) as caught:
        search.fit(X)
    # once, whatever the number of fits
    (warning,) = caught
    assert "second fit" in str(warning.message)


def test_tables_that_are_out_already_are_free_to_learn_from(X):
    released = learner().fit(X)
    tables = {
        tuple(int(v[1:]) for v in c): t for c, t in released.noisy_tables_.items()
    }
    uncounted = learner(accountant=None)
    for _ in range(2):
        uncounted.fit_marginals(tables, released.noise_.std)


def test_states_from_data_warns(X):
    with pytest.warns(PrivacyLeakWarning, match="read off the data"):
        found = learner(states=None).fit(X)
    assert found.network_.states["x1"] == (0, 1, 2, 3)
    assert found.privacy_spent_.epsilon == np.inf
    # the ledger, and so the report, lists them beside what noise hides
    learnt = {fact[1]: fact[3] for fact in found.ledger_.facts()}
    assert learnt["which values occur in the columns"] == "plaintext aggregate"
    assert "which values occur in the columns" not in str(learner().fit(X).ledger_)


BAD = {
    "value outside the states": (
        {"states": [3, 3, 2, 3], "epsilon": None, "accountant": None},
        {},
        "not one of its states",
    ),
    "clique without column": ({"cliques": [("x0", "x9")]}, {}, "no column"),
    "epsilon": ({"epsilon": 0.0}, {}, "epsilon"),
    "psgd, delta": ({"method": "psgd"}, {}, "delta > 0"),
    "psgd, party": (
        {"method": "psgd", "delta": 1e-5},
        {"party": np.arange(4000) % 3},
        "one holder",
    ),
    "psgd, option": (
        {"method": "psgd", "delta": 1e-5, "method_params": {"sampling_rate": 2.0}},
        {},
        "sampling_rate",
    ),
    "psgd, unknown option": (
        {"method": "psgd", "delta": 1e-5, "method_params": {"momentum": 0.9}},
        {},
        "takes .*clip.*, not .*momentum",
    ),
    "psgd, clip": (
        {"method": "psgd", "delta": 1e-5, "contribution": "clip"},
        {},
        "mean gradient",
    ),
    "psgd, missing": (
        {"method": "psgd", "delta": 1e-5, "missing": "skip"},
        {},
        "complete rows",
    ),
    "null state of no column": (
        {"contribution": {"null_state": 9}},
        {},
        "state of no column",
    ),
    "mst, tables too large": (
        {"cliques": "mst", "method_params": {"max_cells": 50}},
        {},
        "max_cells",
    ),
    "tables too large": (
        {"cliques": [(0, 1, 2, 3)], "method_params": {"max_cells": 50}},
        {},
        "max_cells",
    ),
    "party without states": (
        {"states": None},
        {"party": np.arange(4000) % 3},
        "need states=, the public labels",
    ),
    "individual without contribution": (
        {},
        {"individual": np.arange(4000)},
        "contribution=",
    ),
    "contribution without individual": (
        {"contribution": "clip"},
        {},
        "need individual=",
    ),
    "states of other length": (
        {"states": [2, 2]},
        {},
        "2 entries, but",
    ),
    "no states": ({"states": [[], 4, 2, 3]}, {}, "at least one state"),
    "tied with different states": (
        {"clique_params": {"stationary": True}},
        {},
        "same states",
    ),
    "zeros elsewhere": (
        {"clique_params": {"structural_zeros": {(0, 2): np.zeros((3, 2), bool)}}},
        {},
        "none of the cliques",
    ),
}


@exact
@pytest.mark.parametrize("name", BAD)
def test_bad_input(X, name):
    parameters, arguments, message = BAD[name]
    accountant = PrivacyAccountant(epsilon=10.0, delta=1e-4)
    with pytest.raises(ValueError, match=message):
        learner(**{"accountant": accountant, **parameters}).fit(X, **arguments)
    # mistakes that show without the rows cost nothing
    if "contribution" not in name and "value" not in name:
        assert accountant.spent().epsilon == 0


def test_clone_and_pickle(X):
    found = learner().fit(X)
    copy = pickle.loads(pickle.dumps(found))
    assert_allclose(copy.score_samples(X[:5]), found.score_samples(X[:5]))
    assert clone(found).get_params()["accountant"] is found.accountant


@pytest.mark.parametrize("several", [False, True])
def test_mixed_frames_through_public_bins(several):
    rng = np.random.default_rng(0)
    age = rng.uniform(18, 90, size=3000)
    work = np.where(age > 66, "retired", rng.choice(["clerk", "nurse"], size=3000))
    frame = pd.DataFrame(
        {"age": age, "work": work, "sex": rng.choice(["f", "m"], 3000)}
    )
    bins = FederatedKBinsDiscretizer(6, strategy="uniform", bounds=([18], [90]))
    transformer = make_column_transformer(
        (bins, ["age"]), remainder="passthrough", verbose_feature_names_out=False
    ).set_output(transform="pandas")
    impossible = np.zeros((6, 3), dtype=bool)
    impossible[:3, 2] = True  # nobody retires before 54
    found = learner(
        cliques=[("age", "work"), ("work", "sex")],
        states={"age": 6, "work": ["clerk", "nurse", "retired"], "sex": ["f", "m"]},
        clique_params={"structural_zeros": {("age", "work"): impossible}},
        epsilon=50.0,
    )
    party = np.arange(3000) % 3 if several else None
    found.fit(transformer.fit_transform(frame), party=party)
    rows = pd.DataFrame(found.sample(3000, random_state=0), columns=frame.columns)
    assert not ((rows["age"] < 3) & (rows["work"] == "retired")).any()
    # noise of scale 2 / 50 per cell; the rest is the spread of two samples of 3000
    shares = rows["work"].value_counts(normalize=True)
    assert abs(shares["retired"] - (work == "retired").mean()) < 0.07
    missing = pd.DataFrame({"age": [5.0], "work": [None], "sex": ["f"]})
    assert found.predict(missing)[0, 1] == "retired"
