"""Continuous columns: to bins, and back."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skprivbn.graphical_model import DPCGMLearner, _dpcgm
from skprivbn.graphical_model._states import (
    check_bins,
    draw_within,
    fill_in,
    to_labels,
)
from skprivbn.partition import VerticalPartition
from skprivbn.privacy import PrivacyAccountant
from skprivbn.structure import FederatedBayesianNetwork, K2StructureLearner

EDGES = (0, 10, 20, 50)


def frame(n_rows=4000, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 51, size=n_rows)
    income = np.where(
        age > 20, rng.normal(40.0, 5.0, n_rows), rng.normal(10, 3, n_rows)
    )
    work = np.where(age > 20, "yes", "no")
    return pd.DataFrame({"age": age, "income": income, "work": work})


def learner(**parameters):
    defaults = {
        "epsilon": 8.0,
        "delta": 1e-6,
        "states": {"work": ["no", "yes"]},
        "bins": {"age": EDGES, "income": np.linspace(0.0, 60.0, 13)},
        "accountant": PrivacyAccountant(epsilon=np.inf, delta=0.1),
    }
    return DPCGMLearner(**{**defaults, **parameters})


def test_numbers_go_to_the_bin_they_are_in_or_near():
    X = np.array([[0.0], [9.9], [10.0], [49.0], [50.0], [99.0], [-3.0], [np.nan]])
    found = to_labels(X, ["a"], {"a": EDGES})[:, 0]
    assert_array_equal(found, [0, 0, 10, 20, 20, 20, 0, np.nan])
    mixed = np.array([["x", 12], ["y", None]], dtype=object)
    found = to_labels(mixed, ["a", "b"], {"b": EDGES})
    assert found[0].tolist() == ["x", 10.0]
    assert np.isnan(found[1, 1])
    with pytest.raises(ValueError, match="no numbers"):
        to_labels(mixed, ["a", "b"], {"a": EDGES})


@pytest.mark.parametrize("edges", [EDGES, (0.0, 10.0, 20.0, 50.0)])
def test_draws_stay_in_their_bin(edges):
    labels = np.repeat([0.0, 10.0, 20.0], 1000)
    drawn = draw_within(labels, edges, np.random.RandomState(0))
    assert drawn.dtype.kind == ("i" if isinstance(edges[0], int) else "f")
    assert_array_equal(to_labels(drawn[:, None], ["a"], {"a": edges})[:, 0], labels)
    if drawn.dtype.kind == "i":
        assert set(drawn) == set(range(51))


def test_filled_in_numbers_are_middles_and_others_stay():
    X = np.array([[3.0], [np.nan]])
    completed = np.array([[0.0], [20.0]])
    assert_array_equal(fill_in(X, completed, ["a"], {"a": EDGES}), [[3.0], [35.0]])


@pytest.mark.parametrize("several", [False, True])
def test_a_frame_comes_back_with_its_types(several):
    X = frame()
    party = np.arange(len(X)) % 3 if several else None
    found = learner().fit(X, party=party)
    rows = found.sample(4000, random_state=0)
    assert rows.columns.tolist() == X.columns.tolist()
    assert [d.kind for d in rows.dtypes][:2] == ["i", "f"]
    assert set(rows["work"]) == {"no", "yes"}
    for work in ("no", "yes"):
        drawn, true = (t.loc[t["work"] == work] for t in (rows, X))
        assert abs(drawn["income"].mean() - true["income"].mean()) < 2.5
        assert abs(drawn["age"].mean() - true["age"].mean()) < 2.5
    gaps = pd.DataFrame({"age": [40, 5], "income": [np.nan, 9.5], "work": [None] * 2})
    completed = found.predict(gaps)
    assert completed[:, 0].tolist() == [40, 5]
    assert 30 < completed[0, 1] < 50
    assert completed[1, 1:].tolist() == [9.5, "no"]
    assert np.isfinite(found.score(X))


def test_bins_alone_are_public():
    X = frame()[["age", "income"]]
    # PrivacyLeakWarning is an error here
    found = learner(states=None).fit(X)
    assert_allclose(found.marginal("age").sum(), 1)
    rows = learner(states=None, bins={0: EDGES, 1: [0.0, 30.0, 60.0]})
    drawn = rows.fit(X.to_numpy()).sample(5, random_state=0)
    assert drawn.shape == (5, 2)
    assert drawn.dtype == float


BAD = {
    "no column": ({"size": EDGES}, "no column"),
    "one edge": ({"a": [1.0]}, "two or more"),
    "text": ({"a": ["x", "y"]}, "two or more"),
    "order": ({"a": [2, 1]}, "increasing"),
    "infinite": ({"a": [0, np.inf]}, "finite"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_bins(name):
    bins, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        check_bins(bins, ["a"])


def test_states_and_bins_of_one_column_are_refused():
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-5)
    states = {"work": ["no", "yes"], "age": 3}
    with pytest.raises(ValueError, match="give one of them"):
        learner(states=states, accountant=accountant).fit(frame())
    with pytest.raises(ValueError, match="'age' has neither states= nor bins="):
        learner(states={"work": 2}, bins=None, accountant=accountant).fit(frame())
    assert accountant.spent().epsilon == 0


def people(n=600):
    rng = np.random.default_rng(0)
    sizes = pd.CategoricalDtype(["small", "large"], ordered=True)
    return pd.DataFrame(
        {
            "size": pd.Series(rng.choice(["small", "large"], n), dtype=sizes),
            "member": rng.random(n) < 0.3,
            "age": pd.array(rng.integers(18, 90, n), dtype="Int64"),
            "wage": rng.lognormal(3, 1, n).astype(np.float32),
            "hours": rng.integers(0, 60, n),
        }
    )


#: one more row, and what pandas then makes of the columns
LAST = {
    "no age": {"age": None},
    "half a year": {"age": 44.5},
    "no integer": {"age": "unknown"},
    "no flag": {"flag": None},
    "no code": {"code": None},
    "another code": {"code": "x"},
    "another size": {"size": "huge"},
}


def neighbours(changes):
    """Return a frame, and the same with one more row."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "age": rng.integers(20, 80, 200),
            "code": rng.integers(3, size=200),
            "flag": rng.random(200) < 0.5,
            "size": rng.choice(["small", "large"], 200),
        }
    )
    last = pd.DataFrame([{"age": 44, "code": 1, "flag": True, "size": "small"}])
    more = pd.concat([X, last.assign(**changes)], ignore_index=True)
    return X.astype({"size": "category"}), more.astype({"size": "category"})


@pytest.mark.parametrize("flags", [[False, True], [0, 1]], ids=str)
@pytest.mark.parametrize("changes", LAST.values(), ids=LAST)
def test_one_row_does_not_change_types(changes, flags, monkeypatch):
    states = {"code": 3, "flag": flags, "size": ["huge", "large", "small"]}
    model = learner(states=states, bins={"age": [20, 40, 80]}, cliques="chain")

    def types():
        return [
            model.fit(X).sample(50, random_state=0).dtypes.to_dict()
            for X in neighbours(changes)
        ]

    without, with_it = types()
    assert without == with_it
    assert without["age"] == without["code"] == np.int64
    # which sizes there are, the states say
    assert without["size"] == pd.CategoricalDtype(states["size"])
    # the twin: types of the frame
    monkeypatch.setattr(_dpcgm, "public_types", lambda types, states, bins: types)
    without, with_it = types()
    assert without != with_it


@pytest.mark.filterwarnings("ignore:epsilon=None")
def test_a_frame_of_mixed_types_comes_back_as_one():
    X = people()
    bins = {"age": [18, 30, 65, 90], "wage": [0, 20, 100], "hours": [0, 19.5, 60]}
    states = {"size": ["small", "large"], "member": [False, True]}
    options = {"bins": bins, "states": states}
    model = DPCGMLearner("chain", epsilon=None, **options).fit(X)
    drawn = model.sample(500, random_state=0)
    assert drawn.dtypes.to_dict() == X.dtypes.to_dict()
    assert drawn["hours"].max() <= 60 and drawn["age"].between(18, 90).all()
    # numbers of a column of floats are no integers, though its edges are
    assert (drawn["wage"] % 1 > 0).mean() > 0.9
    assert np.isfinite(model.score(drawn))


def test_with_noise_types_are_those_of_states_and_bins():
    X = people()
    bins = {"age": [18, 30, 65, 90], "wage": [0.0, 20, 100], "hours": [0, 20, 60]}
    states = {"size": ["small", "large"], "member": [False, True]}
    options = {"bins": bins, "states": states}
    drawn = DPCGMLearner(epsilon=5.0, **options).fit(X).sample(50, random_state=0)
    assert [dtype.kind for dtype in drawn.dtypes] == ["O", "b", "i", "f", "i"]
    assert drawn["size"].dtype == X["size"].dtype


def test_types_that_labels_do_not_have_are_left():
    X = people()[["size"]]
    model = DPCGMLearner("chain", epsilon=5.0, states=[["small", "huge"]]).fit(X)
    assert "huge" in set(model.sample(500, random_state=0)["size"])


def test_integers_within_bins_whose_edges_are_none():
    rng = np.random.RandomState(0)
    edges = (0.5, 2.5, 2.75, 6.0)
    labels = np.repeat([0.5, 2.5, 2.75], 200)
    drawn = draw_within(labels, edges, rng, whole=True).reshape(3, 200)
    assert set(drawn[0]) == {1, 2} and set(drawn[1]) == {2}
    assert set(drawn[2]) == {3, 4, 5, 6}


@pytest.mark.parametrize(
    "estimator", [FederatedBayesianNetwork(), K2StructureLearner(), "vertical"]
)
@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
def test_booleans_and_nullable_numbers_beside_categories(estimator):
    X = people()[["size", "member", "age"]].assign(age=lambda X: X["age"] // 40)
    if estimator == "vertical":
        held = VerticalPartition({"a": X[["size", "member"]], "b": X[["age"]]})
        assert held.categories["member"] == [False, True]
        return
    network = estimator.fit(X).network_
    assert network.states["member"] == (False, True)
    assert network.states["size"] == ("small", "large")
    assert np.isfinite(estimator.score(X))
