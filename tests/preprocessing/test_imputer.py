import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.datasets import load_iris
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skprivbn.exceptions import BudgetExceededError, PartyError, PrivacyLeakWarning
from skprivbn.partition import HorizontalPartition
from skprivbn.preprocessing import (
    FederatedPCA,
    FederatedSimpleImputer,
    FederatedStandardScaler,
)
from skprivbn.preprocessing._categories import CategoriesTerms, categories
from skprivbn.privacy import PrivacyAccountant
from skprivbn.programs import MomentsTerms, moments

X = load_iris().data.copy()
X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
PARTY = np.arange(len(X)) % 4
WORDS = np.array(
    [
        ["red", "b"],
        ["red", None],
        [None, "b"],
        ["blue", "a"],
        ["red", "a"],
        ["blue", 3],
    ],
    dtype=object,
)


@pytest.mark.parametrize("strategy", ["mean", "median", "most_frequent"])
@pytest.mark.parametrize("rows", [X, X[:-1], 1e6 + X, -X])
def test_fills_gaps_as_scikit_learn_does(strategy, rows):
    ours = FederatedSimpleImputer(strategy=strategy).fit(rows, party=PARTY[: len(rows)])
    theirs = SimpleImputer(strategy=strategy).fit(rows)
    exact = strategy != "median"
    rtol = 1e-10 if exact else 2**-15
    np.testing.assert_allclose(ours.statistics_, theirs.statistics_, rtol=rtol)
    np.testing.assert_allclose(ours.transform(rows), theirs.transform(rows), rtol=rtol)


def test_text_is_filled_with_the_most_frequent():
    imputer = FederatedSimpleImputer(strategy="most_frequent")
    filled = imputer.fit_transform(WORDS, party=list("abcabc"))
    assert filled[2, 0] == "red"
    # as frequent as "b", and before it
    assert filled[1, 1] == "a"
    assert filled[0].tolist() == ["red", "b"]


@pytest.mark.parametrize("backend", ["masking", "ckks", "paillier"])
@pytest.mark.parametrize("strategy", ["mean", "median", "most_frequent"])
def test_under_every_backend(strategy, backend):
    rows = X[:40]
    imputer = FederatedSimpleImputer(strategy=strategy, backend=backend)
    imputer.fit(rows, party=PARTY[:40])
    expected = SimpleImputer(strategy=strategy).fit(rows).statistics_
    np.testing.assert_allclose(imputer.statistics_, expected, rtol=1e-4)


def test_in_a_pipeline_and_of_rows_that_stay():
    steps = FederatedSimpleImputer(), FederatedStandardScaler(), FederatedPCA(2)
    pipeline = make_pipeline(*steps)
    with config_context(enable_metadata_routing=True):
        here = pipeline.fit(X, party=PARTY).transform(X)
    partition = HorizontalPartition.from_rows(X, PARTY)
    there = make_pipeline(*steps).fit(partition).transform(partition)
    rows = np.concatenate([here[k == PARTY] for k in range(4)])
    blocks = np.concatenate([block["X"] for block in there._blocks.values()])
    np.testing.assert_allclose(blocks, rows, atol=1e-9)


@pytest.mark.parametrize("strategy", ["mean", "median"])
def test_noise_hides_rows_and_missing_ones_do_not_count(strategy):
    rng = np.random.default_rng(0)
    rows = rng.normal(2.0, 0.5, size=(20_000, 2))
    rows[rng.random(rows.shape) < 0.5] = np.nan
    imputer = FederatedSimpleImputer(strategy=strategy, epsilon=1.0, bounds=(-8, 8))
    imputer.fit(rows, party=np.arange(20_000) % 4)
    # to count missing rows as the middle of the bounds would halve the mean
    np.testing.assert_allclose(imputer.statistics_, 2.0, atol=0.1)
    assert imputer.privacy_spent_.epsilon == 1.0
    filled = imputer.transform([[np.nan, np.inf], [1.0, -np.inf]])
    assert np.isfinite(filled).all()


def test_noisy_frequencies_need_declared_categories():
    rows = np.array([["a"], ["b"], ["a"], [None]] * 50, dtype=object)
    imputer = FederatedSimpleImputer(strategy="most_frequent", epsilon=1.0)
    with pytest.raises(ValueError, match="give categories="):
        imputer.fit(rows, party=np.arange(200) % 4)
    imputer.set_params(categories=[["a", "b", "c"]])
    imputer.fit(rows, party=np.arange(200) % 4)
    assert imputer.statistics_.tolist() == ["a"]
    # all rows of a person count as one: 100 rows of "a" are two votes
    others = np.resize(["one", "", "two", "three"], 200)
    person = np.where(rows[:, 0] == "b", np.arange(200).astype(str), others)
    options = {"strategy": "most_frequent", "categories": [["a", "b", "c"]]}
    imputer = FederatedSimpleImputer(**options, epsilon=50.0)
    imputer.fit(rows, party=[*"aabc"] * 50, individual=person.tolist())
    assert imputer.statistics_.tolist() == ["b"]


def test_exact_statistics_are_refused_by_a_limited_accountant():
    for strategy in ("mean", "median", "most_frequent"):
        accountant = PrivacyAccountant(epsilon=1.0)
        imputer = FederatedSimpleImputer(strategy=strategy, accountant=accountant)
        with pytest.raises(BudgetExceededError):
            imputer.fit(X, party=PARTY)


@pytest.mark.parametrize("strategy", ["mean", "median", "most_frequent"])
def test_a_column_without_values_is_named(strategy):
    rows = pd.DataFrame({"age": [1.0, 2, 3], "dose": [np.nan] * 3})
    with pytest.raises(ValueError, match="dose"):
        FederatedSimpleImputer(strategy=strategy).fit(rows, party=["a", "b", "c"])


@pytest.mark.parametrize("strategy", ["mean", "median", "most_frequent"])
def test_only_the_statistics_become_known(strategy):
    imputer = FederatedSimpleImputer(strategy=strategy).fit(X, party=PARTY)
    kinds = {entry.kind for entry in imputer.ledger_.entries}
    assert "raw rows" not in kinds


def test_a_feature_that_few_rows_have_is_not_averaged():
    rows = np.column_stack([np.arange(40.0), np.full(40, np.nan)])
    rows[0, 1] = 7.0
    partition = HorizontalPartition.from_rows(rows, np.arange(40) % 2)
    terms = MomentsTerms("none", gaps=True)
    with (
        pytest.raises(PartyError, match="about fewer rows of all sites"),
        partition.federate(moments, terms, "masking", min_rows=5) as federation,
    ):
        federation.run()
    # without the limit, the one value is told
    with partition.federate(moments, terms, "masking") as federation:
        assert federation.run()["mean"][1] == 7.0


def test_the_only_label_of_a_column_is_not_told():
    rows = np.full((40, 1), np.nan)
    rows[0] = 1.0  # the one patient of whom it is known
    partition = HorizontalPartition.from_rows(rows, np.arange(40) % 2)
    terms = CategoriesTerms(["sick"], [[0.0, 1.0]], count=True)
    # without the party's own limit, the answer is that patient's
    for min_rows, winner in ((5, None), (1, 1.0)):
        session = partition.federate(categories, terms, "masking", min_rows=min_rows)
        with session as federation:
            assert federation.run() == {"winners": [winner]}


def test_scaler_leaves_gaps_alone():
    ours = FederatedStandardScaler().fit(X, party=PARTY)
    theirs = StandardScaler().fit(X)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), rtol=1e-10)
    np.testing.assert_array_equal(ours.n_samples_, theirs.n_samples_seen_)


def test_scaler_weighs_rows():
    weights = np.random.default_rng(1).integers(0, 4, len(X)).astype(float)
    ours = FederatedStandardScaler().fit(X, party=PARTY, sample_weight=weights)
    theirs = StandardScaler().fit(X, sample_weight=weights)
    np.testing.assert_allclose(ours.mean_, theirs.mean_, rtol=1e-10)
    np.testing.assert_allclose(ours.var_, theirs.var_, rtol=1e-10)
    private = FederatedStandardScaler(epsilon=1.0, bounds=(0, 8))
    with pytest.raises(ValueError, match="sample_weight is not available with epsilon"):
        private.fit(X, party=PARTY, sample_weight=weights)
    with pytest.raises(ValueError, match="at least 0"):
        FederatedStandardScaler().fit(X, party=PARTY, sample_weight=-weights)
    with pytest.raises(ValueError, match="sample_weight has 3 values for 150 rows"):
        FederatedStandardScaler().fit(X, party=PARTY, sample_weight=[1, 2, 3])


def test_weights_that_single_out_a_row_count_as_one_row():
    weights = np.full(len(X), 1e-9)
    weights[:2] = 1.0
    complete = load_iris().data
    partition = HorizontalPartition.from_rows(
        complete, np.arange(len(X)) % 2, sample_weight=weights
    )
    terms = MomentsTerms("none", gaps=True, weighted=True)
    with (
        pytest.raises(PartyError, match="about fewer rows of all sites"),
        partition.federate(moments, terms, "masking", min_rows=5) as federation,
    ):
        federation.run()


def test_weights_of_a_pipeline_are_not_the_scalers_unless_asked_for():
    weights = np.r_[np.ones(75), np.zeros(75)]
    rows = load_iris().data
    with config_context(enable_metadata_routing=True):
        regression = LinearRegression().set_fit_request(sample_weight=True)
        model = make_pipeline(FederatedStandardScaler(), regression)
        model.fit(rows, rows[:, 0], party=PARTY, sample_weight=weights)
    np.testing.assert_allclose(model[0].mean_, rows.mean(axis=0))


def test_declared_values_warn_of_nothing(recwarn):
    imputer = FederatedSimpleImputer(
        strategy="most_frequent", categories=[["blue", "red"], ["a", "b", 3]]
    )
    imputer.fit(WORDS, party=list("abcabc"))
    leaks = [w for w in recwarn if w.category is PrivacyLeakWarning]
    assert imputer.statistics_.tolist() == ["red", "a"] and not leaks
