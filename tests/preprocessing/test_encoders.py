import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from skprivbn.exceptions import (
    BudgetExceededError,
    PartyError,
    PrivacyLeakWarning,
)
from skprivbn.partition import HorizontalPartition
from skprivbn.preprocessing import (
    FederatedOneHotEncoder,
    FederatedOrdinalEncoder,
    FederatedSimpleImputer,
    _categories,
)
from skprivbn.preprocessing._categories import CategoriesTerms, categories
from skprivbn.privacy import PrivacyAccountant

X = np.array(
    [["red", 1], ["blue", 2], ["red", 2], ["green", 1], ["blue", 7], ["red", 1]],
    dtype=object,
)
PARTY = list("abcabc")
DECLARED = [["red", "green", "blue"], [1, 2, 7]]
PAIRS = [
    (FederatedOrdinalEncoder, OrdinalEncoder, {}),
    (FederatedOneHotEncoder, OneHotEncoder, {}),
    (FederatedOneHotEncoder, OneHotEncoder, {"drop": "first"}),
]


@pytest.mark.parametrize("ours, theirs, options", PAIRS)
@pytest.mark.parametrize("known", ["auto", DECLARED])
@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
def test_encodes_as_scikit_learn_does(ours, theirs, options, known):
    ours = ours(categories=known, **options).fit(X, party=PARTY)
    dense = {"sparse_output": False} if theirs is OneHotEncoder else {}
    theirs = theirs(categories=known, **options, **dense).fit(X)
    for mine, other in zip(ours.categories_, theirs.categories_):
        assert mine.tolist() == other.tolist()
    np.testing.assert_array_equal(ours.transform(X), theirs.transform(X))
    encoded = theirs.transform(X)
    assert ours.inverse_transform(encoded).tolist() == X.tolist()
    assert list(ours.get_feature_names_out()) == list(theirs.get_feature_names_out())


def many_rows():
    """Return rows of three parties, with rare labels, none of which one party has."""
    rng = np.random.default_rng(0)
    shares = [0.8, 0.12, 0.05, 0.02, 0.01]
    rows = np.array([*"abcde"], dtype=object)[rng.choice(5, (300, 2), p=shares)]
    rows[:, 1] = np.where(rows[:, 1] == "e", "d", rows[:, 1])
    return rows, np.arange(300) % 3


@pytest.mark.parametrize("ours, theirs, options", PAIRS)
@pytest.mark.parametrize("min_frequency", [1, 4, 20, 200, 301, 0.01, 0.06, 0.9])
@pytest.mark.parametrize("known", ["auto", [[*"edcba"]] * 2])
@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
def test_rare_labels_are_those_of_scikit_learn(
    ours, theirs, options, min_frequency, known
):
    rows, party = many_rows()
    options = {"categories": known, "min_frequency": min_frequency, **options}
    ours = ours(**options).fit(rows, party=party)
    dense = {"sparse_output": False} if theirs is OneHotEncoder else {}
    theirs = theirs(**options, **dense).fit(rows)
    for mine, other in zip(ours.infrequent_categories_, theirs.infrequent_categories_):
        assert (mine is None) is (other is None)
        assert mine is None or mine.tolist() == other.tolist()
    encoded = theirs.transform(rows)
    np.testing.assert_array_equal(ours.transform(rows), encoded)
    assert list(ours.get_feature_names_out()) == list(theirs.get_feature_names_out())
    if encoded.size:
        labels = ours.inverse_transform(encoded).tolist()
        assert labels == theirs.inverse_transform(encoded).tolist()


def test_only_parties_read_how_many_rows_have_a_label():
    rows, party = many_rows()
    encoder = FederatedOneHotEncoder(categories=[[*"abcde"]] * 2, min_frequency=5)
    ledger = encoder.fit(rows, party=party).ledger_
    sums = {e.operation for e in ledger.entries if "frequencies" in e.operation}
    assert sums == {"frequencies of labels, number of rows"}
    readers = {e.receiver for e in ledger.entries if e.kind == "plaintext sum"}
    assert "coordinator" not in readers
    assert not hasattr(encoder, "privacy_spent_")
    with pytest.raises(BudgetExceededError):
        encoder.set_params(accountant=PrivacyAccountant(epsilon=1.0)).fit(
            rows, party=party
        )


@pytest.mark.parametrize("n_rare", [3, 4, 5, 6])
@pytest.mark.parametrize("holders", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_merged_labels_are_not_a_small_count(n_rare, holders):
    """Where counts below 5 are hidden, so many rows have the merged level, or more."""
    labels = {name: ["x"] * 40 + ["y"] * 10 for name in "abc"}
    for i in range(n_rare):
        labels[holders[i % len(holders)]].append("z")
    tables = {k: np.array(v, dtype=object)[:, None] for k, v in labels.items()}
    terms = CategoriesTerms(["v"], [[*"xyz"]], min_frequency=1, min_cell_count=5)
    partition = HorizontalPartition(tables)
    with partition.federate(categories, terms, "masking") as federation:
        rare = federation.run()["rare"].tolist()
    # alone, fewer than 5 would be told: the next larger label joins them
    assert rare == ([False, True, True] if n_rare < 5 else [False, False, False])


@pytest.mark.parametrize("wrong", [0, -1, 0.0, 1.0, float("nan"), "5"])
def test_min_frequency_is_a_number_of_rows_or_a_share(wrong):
    with pytest.raises(ValueError, match="min_frequency"):
        FederatedOneHotEncoder(min_frequency=wrong).fit(X, party=PARTY)
    with pytest.raises(ValueError, match="min_frequency"):
        CategoriesTerms(["x"], [["a"]], min_frequency=wrong)


@pytest.mark.parametrize("ours", [pair[0] for pair in PAIRS])
def test_declared_categories_ask_nobody(ours, recwarn):
    encoder = ours(categories=DECLARED, accountant=PrivacyAccountant(epsilon=1.0))
    encoder.fit(X, party=PARTY)
    assert encoder.ledger_.entries == [] and not len(recwarn)
    assert encoder.privacy_spent_.epsilon == 0


@pytest.mark.parametrize("ours", [pair[0] for pair in PAIRS])
def test_categories_off_the_data_warn_and_are_refused_with_a_limit(ours):
    with pytest.warns(PrivacyLeakWarning, match="read off the data"):
        encoder = ours().fit(X, party=PARTY)
    assert not hasattr(encoder, "privacy_spent_")
    assert "labels" in str(list(encoder.ledger_.who_learns_what()))
    with pytest.raises(BudgetExceededError):
        ours(accountant=PrivacyAccountant(epsilon=1.0)).fit(X, party=PARTY)


def test_unknown_labels():
    strict = FederatedOrdinalEncoder(categories=DECLARED).fit(X, party=PARTY)
    with pytest.raises(ValueError, match="'pink'.*in categories=, or set handle_"):
        strict.transform([["pink", 1]])
    with pytest.raises(ValueError, match="column 'x1' has missing values"):
        strict.transform(np.array([["red", None]], dtype=object))
    options = {"categories": DECLARED, "handle_unknown": "use_encoded_value"}
    lenient = FederatedOrdinalEncoder(**options, unknown_value=-1).fit(X, party=PARTY)
    rows = np.array([["pink", 7], ["red", None]], dtype=object)
    np.testing.assert_array_equal(lenient.transform(rows), [[-1, 2], [0, -1]])
    assert lenient.inverse_transform([[-1, 2]]).tolist() == [[None, 7]]
    one_hot = FederatedOneHotEncoder(categories=DECLARED, handle_unknown="ignore")
    made = one_hot.fit(X, party=PARTY).transform(rows)
    np.testing.assert_array_equal(made, [[0, 0, 0, 0, 0, 1], [1, 0, 0, 0, 0, 0]])


@pytest.mark.parametrize("encoder", [FederatedOneHotEncoder, FederatedOrdinalEncoder])
def test_a_missing_label_in_a_partition_is_not_the_first_one(encoder):
    rows = pd.DataFrame({"age": range(6), "arm": ["A", "B", None, "B", "A", "B"]})
    partition = HorizontalPartition.from_rows(rows, party=list("abcabc"))
    options = {"drop": "first"} if encoder is FederatedOneHotEncoder else {}
    strict = encoder(columns="arm", categories={"arm": ["A", "B"]}, **options)
    strict.fit(partition)
    for X in (rows, partition):
        with pytest.raises(ValueError, match="column 'arm' has missing values: fill"):
            strict.transform(X)


def test_a_column_of_one_label_is_dropped_whole():
    encoder = FederatedOneHotEncoder(categories=[["a"], ["b", "c"]], drop="first")
    rows = np.array([["a", "b"], ["a", "c"]])
    made = encoder.fit(rows, party=["north", "south"]).transform(rows)
    np.testing.assert_array_equal(made, [[0], [1]])
    assert encoder.inverse_transform(made).tolist() == rows.tolist()


def test_categories_that_a_dataframe_declares_keep_their_order():
    sizes = pd.Categorical(["S", "L", "S"], categories=["S", "M", "L"])
    frame = pd.DataFrame({"size": sizes})
    with pytest.warns(PrivacyLeakWarning):
        encoder = FederatedOrdinalEncoder().fit(frame, party=["a", "b", "c"])
    assert encoder.transform(frame).ravel().tolist() == [0, 2, 0]
    # pandas may have made them of the values that occur
    assert not hasattr(encoder, "privacy_spent_")


def test_labels_of_few_rows_are_not_told_where_there_is_a_limit():
    rows = np.array([["common"]] * 20 + [["rare"]], dtype=object)
    partition = HorizontalPartition({"a": rows, "b": rows[:20], "c": rows[:20]})
    for least, found in ((1, ["common", "rare"]), (5, ["common"])):
        terms = CategoriesTerms(["x0"], [None], min_rows=least)
        with partition.federate(categories, terms, "masking") as federation:
            assert federation.run() == {"categories": [found]}


@pytest.mark.parametrize(
    "told",
    [
        "ab",
        {},
        [],
        [[None]],
        [[["a"]]],
        [np.arange(3)],
        [5],
        [[*"aa"]],
        [[*range(257)]],
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
def test_labels_that_a_peer_makes_up_are_refused(told, monkeypatch):
    honest = _categories._frequent_labels

    def frequent_labels(me, least):
        return told if me.name == "b" else honest(me, least)

    monkeypatch.setattr(_categories, "_frequent_labels", frequent_labels)
    with pytest.raises(PartyError) as caught:
        FederatedOrdinalEncoder().fit(X[:, :1], party=PARTY)
    assert caught.value.code in ("refused", "too-detailed")


def test_only_the_parties_know_who_has_a_label(recwarn):
    encoder = FederatedOrdinalEncoder().fit(X, party=PARTY)
    told = [e for e in encoder.ledger_.entries if e.operation == "labels of columns"]
    assert {e.receiver for e in told if e.kind == "sealed"} == {"a", "b", "c"}
    # what the coordinator sees of it are envelopes
    assert all(e.n_bytes < 250 for e in told if e.receiver == "coordinator")


def test_a_column_of_many_values_is_no_column_of_labels():
    rows = np.arange(600.0)[:, None]
    with (
        pytest.warns(PrivacyLeakWarning),
        pytest.raises(PartyError, match="party '0'"),
    ):
        FederatedOrdinalEncoder().fit(rows, party=np.arange(600) // 300)


def test_in_a_pipeline_and_of_rows_that_stay():
    gaps = X.copy()
    gaps[1, 0] = None
    steps = (
        FederatedSimpleImputer(strategy="most_frequent", categories=DECLARED),
        FederatedOneHotEncoder(categories=DECLARED),
    )
    with config_context(enable_metadata_routing=True):
        here = make_pipeline(*steps).fit(gaps, party=PARTY).transform(gaps)
    assert here[1].tolist() == [1, 0, 0, 0, 1, 0]
    partition = HorizontalPartition.from_rows(gaps, PARTY)
    there = make_pipeline(*steps).fit(partition).transform(partition)
    assert there._blocks["b"]["X"][0].tolist() == here[1].tolist()


@pytest.mark.parametrize("ours", [pair[0] for pair in PAIRS])
def test_wrong_categories_say_what_to_give(ours):
    with pytest.raises(ValueError, match="1 entries for 2 columns"):
        ours(categories=[["red"]]).fit(X, party=PARTY)


@pytest.mark.parametrize("encoder", [FederatedOneHotEncoder, FederatedOrdinalEncoder])
def test_categories_by_name_of_the_column(encoder):
    rows = pd.DataFrame({"ward": list("xyz") * 10, "sex": ["f", "m"] * 15})
    party = ["a", "b", "c"] * 10
    labels = {"sex": ["m", "f"], "ward": ["z", "y", "x"]}
    both = encoder(categories=labels).fit(rows, party=party)
    assert [c.tolist() for c in both.categories_] == [["z", "y", "x"], ["m", "f"]]
    assert both.privacy_spent_.epsilon == 0
    with pytest.warns(PrivacyLeakWarning, match="read off the data"):
        some = encoder(categories={"sex": ["m", "f"]}).fit(rows, party=party)
    assert [c.tolist() for c in some.categories_] == [["x", "y", "z"], ["m", "f"]]
    assert not hasattr(some, "privacy_spent_")
    with pytest.raises(ValueError, match="categories names 'sx'.*did you mean 'sex'"):
        encoder(categories={"sx": ["m", "f"]}).fit(rows, party=party)


@pytest.mark.filterwarnings("ignore:categories are read off")
def test_numbers_are_not_made_columns_without_a_word():
    X, party = np.linspace(0, 1, 900)[:, None], ["a", "b", "c"] * 300
    with pytest.warns(UserWarning, match="'x0' holds numbers.*its 60 values"):
        FederatedOneHotEncoder().fit(X[:60], party=party[:60])
    with pytest.raises(PartyError) as caught:
        FederatedOneHotEncoder().fit(X, party=party)
    assert "at most 256 labels of a column" in caught.value.__notes__[0]
