import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.compose import make_column_selector

from skprivbn.exceptions import PartitionError
from skprivbn.partition import HorizontalPartition, VerticalPartition, check_vertical
from skprivbn.structure import (
    CollectiveBayesianNetwork,
    FederatedBayesianNetwork,
    FederatedGaussianBayesianNetwork,
    PrivateK2StructureLearner,
)

X = np.arange(12).reshape(3, 4)
FRAME = pd.DataFrame(X, columns=["age", "sex", "crp", "ldl"])


@pytest.mark.parametrize(
    "data, parties",
    [
        (FRAME, {"clinic": ["age", "sex"], "lab": ["crp", "ldl"]}),
        (FRAME, {"clinic": [0, 1], "lab": slice(2, 4)}),
        (FRAME, {"clinic": slice("age", "sex"), "lab": ["crp", "ldl"]}),
        (
            FRAME,
            {
                "clinic": make_column_selector("age|sex"),
                "lab": make_column_selector("crp|ldl"),
            },
        ),
        (X, {"clinic": [0, 1], "lab": [2, 3]}),
    ],
)
def test_ways_to_name_columns(data, parties):
    partition = check_vertical(BaseEstimator(), data, parties)
    assert partition.names == ("clinic", "lab")
    np.testing.assert_array_equal(partition._blocks["clinic"]["X"], X[:, :2])
    np.testing.assert_array_equal(partition._blocks["lab"]["X"], X[:, 2:])


def test_estimators_see_columns_in_the_order_of_x():
    parties = {"lab": ["ldl", "age"], "clinic": ["crp", "sex"]}
    estimator = BaseEstimator()
    partition = check_vertical(estimator, FRAME, parties)
    assert partition.feature_names == list(FRAME.columns)
    assert partition.owners["age"] == "lab"
    assert list(estimator.feature_names_in_) == list(FRAME.columns)


@pytest.mark.parametrize(
    "parties, message",
    [
        ({"a": ["age", "sex"], "b": ["crp"]}, "nobody the columns.*ldl"),
        (
            {"a": ["age", "sex"], "b": ["sex", "crp", "ldl"]},
            r"{'sex': \['a', 'b'\]}: choose one owner",
        ),
        ({"a": ["age", "shoe"], "b": ["sex", "crp", "ldl"]}, "'a' columns.*not have"),
        ({"a": slice(None), "b": []}, "no column to"),
        ([("a", [0]), ("b", [1, 2, 3])], "parties must be a dict"),
        ("prefix", "parties must be a dict"),
    ],
)
def test_wrong_parties(parties, message):
    with pytest.raises(PartitionError, match=message):
        check_vertical(BaseEstimator(), FRAME, parties)


def test_values_errors():
    with pytest.raises(PartitionError, match="different numbers of rows"):
        VerticalPartition({"a": [[1], [2]], "b": [[1]]})
    with pytest.raises(PartitionError, match="'age': .*owner={'age': 'a'} .*or keys="):
        VerticalPartition({"a": FRAME[["age"]], "b": FRAME[["age", "sex"]]})
    with pytest.raises(PartitionError, match="unequal numbers of keys"):
        VerticalPartition({"a": [[1]], "b": [[1]]}, keys={"a": [1, 2], "b": [1]})
    with pytest.raises(PartitionError, match="keys lacks"):
        VerticalPartition({"a": [[1]], "b": [[1]]}, keys={"a": [1]})
    with pytest.raises(PartitionError, match="does not become an array"):
        np.asarray(VerticalPartition({"a": [[1]]}))


def test_keys_allow_unequal_rows():
    partition = VerticalPartition(
        {"a": [[1], [2]], "b": [[1]]}, keys={"a": ["x", "y"], "b": ["y"]}
    )
    assert partition.has_keys and partition.n_rows() == {"a": 2, "b": 1}


def test_parties_may_call_their_keys_differently():
    bank = pd.DataFrame({"customer_id": [7, 8], "age": [1, 2]})
    insurer = pd.DataFrame({"N° client": [8], "claim": [3]})
    tables = {"bank": bank, "insurer": insurer}
    names = {"bank": "customer_id", "insurer": "N° client"}
    partition = VerticalPartition(tables, keys=names)
    assert partition.feature_names == ["age", "claim"]
    assert partition._blocks["bank"]["keys"].tolist() == [7, 8]
    assert repr(partition).endswith("; 2 and 1 rows)")
    given = VerticalPartition(
        {**tables, "insurer": [[3]]}, keys={**names, "insurer": [8]}
    )
    assert given._blocks["insurer"]["keys"].tolist() == [8]
    with pytest.raises(
        PartitionError, match="no column of 'insurer', which has .*keys={'bank'"
    ):
        VerticalPartition(tables, keys="customer_id")
    with pytest.raises(PartitionError, match='name their column, keys="customer_id"'):
        VerticalPartition(tables)


def test_a_party_has_no_two_columns_of_one_name():
    twice = FRAME.set_axis(["age", "sex", "age", "ldl"], axis=1)
    with pytest.raises(
        PartitionError, match="party 'bank' has two columns called 'age'"
    ):
        VerticalPartition({"bank": twice, "insurer": FRAME[["crp"]]}, keys="sex")


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_a_record_without_a_key_is_left_out_by_its_holder(missing):
    bank = pd.DataFrame({"id": np.array([7, missing], dtype=object), "age": [1, 2]})
    with pytest.raises(PartitionError, match="keys of party 'bank' has missing ones"):
        VerticalPartition({"bank": bank}, keys="id")


def test_gaps_that_the_estimator_bears_are_said():
    table = VerticalPartition({"bank": FRAME.assign(age=np.nan)})
    learner = PrivateK2StructureLearner(ordering=table.feature_names)
    with pytest.raises(ValueError, match="or you set missing='skip'; without keys=, "):
        check_vertical(learner, table)
    # which completes rows only
    with pytest.raises(ValueError, match="or complete these rows; without keys=, "):
        check_vertical(FederatedBayesianNetwork(), table)


def test_what_is_wrong_with_keys_and_columns_is_said_at_once():
    tables = {"bank": FRAME, "insurer": FRAME[["crp", "age"]]}
    keys = {"bank": "ldl", "insurer": "crp"}
    tables["insurer"] = tables["insurer"].assign(sex=1)
    said = r"{'age': \['bank', 'insurer'\], 'sex': .*'sex': 'bank'} says .* counts$"
    with pytest.raises(PartitionError, match=said):
        VerticalPartition(tables, keys=keys)
    with pytest.raises(PartitionError, match="'bank' has repeated ones .2"):
        VerticalPartition({"bank": FRAME.assign(ldl=7)}, keys="ldl")


def test_of_two_copies_one_counts():
    pd = pytest.importorskip("pandas")
    kinds = pd.Categorical(["low", "high"], categories=["low", "high"])
    bank = pd.DataFrame({"age": [1, 2], "score": kinds})
    clinic = pd.DataFrame({"dose": [7, 8], "age": [3, 4], "score": ["x", "y"]})
    tables = {"bank": bank, "clinic": clinic}
    with pytest.raises(PartitionError, match="'age': .*'bank', 'clinic'.*owner="):
        VerticalPartition(tables)
    owner = {"age": "clinic", "score": "bank"}
    partition = VerticalPartition(tables, owner=owner)
    assert partition.columns == {"bank": ["score"], "clinic": ["dose", "age"]}
    assert partition._blocks["clinic"]["X"].tolist() == [[7, 3], [8, 4]]
    assert partition.categories == {"score": ["low", "high"]}
    assert partition.reorder(["age", "score", "dose"]).columns["clinic"] == [
        "age",
        "dose",
    ]
    with pytest.raises(PartitionError, match="'bank' does not hold column 'dose'"):
        VerticalPartition(tables, owner=owner | {"dose": "bank"})
    with pytest.raises(PartitionError, match="leaves no column to ..bank"):
        VerticalPartition(tables, owner={"age": "clinic", "score": "clinic"})


def test_no_party_has_more_keys_than_declared():
    blocks, keys = {"a": [[1], [2]], "b": [[1]]}, {"a": ["x", "y"], "b": ["y"]}
    assert VerticalPartition(blocks, keys=keys, max_records=2).max_records == 2
    with pytest.raises(PartitionError, match="'a' has more than max_records=1 keys"):
        VerticalPartition(blocks, keys=keys, max_records=1)


def test_keys_that_stand_for_two_records_and_paths_are_refused():
    blocks = {"a": [[1], [2]], "b": [[1]]}
    with pytest.raises(PartitionError, match="keys of party 'a' has repeated ones .1"):
        VerticalPartition(blocks, keys={"a": ["x", "x"], "b": ["y"]})
    with pytest.raises(PartitionError, match="'b' has 'b.csv' in the place of a table"):
        VerticalPartition(blocks | {"b": "b.csv"})


def test_a_given_partition_says_who_holds_what():
    given = VerticalPartition({"a": FRAME[["age"]], "b": FRAME[["sex"]]})
    estimator = BaseEstimator()
    assert check_vertical(estimator, given).owners == {"age": "a", "sex": "b"}
    assert list(estimator.feature_names_in_) == ["age", "sex"]
    with pytest.raises(PartitionError, match="parties names"):
        check_vertical(estimator, given, {"a": ["age"], "c": ["sex"]})
    with pytest.raises(PartitionError, match="columns held by different parties"):
        check_vertical(estimator, HorizontalPartition({"a": [[1]]}))


@pytest.mark.parametrize(
    "learner",
    [
        PrivateK2StructureLearner(max_parents=1),
        CollectiveBayesianNetwork(random_state=0),
        FederatedGaussianBayesianNetwork("bic"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_columns_keep_their_names_in_whatever_order_parties_list_them(learner):
    rng = np.random.default_rng(0)
    cause, noise = rng.integers(0, 2, 300), rng.integers(0, 2, 300)
    effect = np.where(rng.random(300) < 0.9, cause, 1 - cause)
    X = np.column_stack([cause, effect, noise, (rng.random(300) < 0.2).astype(int)])
    for parties in ({"a": [0, 3], "b": [1, 2]}, {"b": [2, 1], "a": [3, 0]}):
        model = clone(learner).set_params(parties=parties).fit(X)
        # of equivalent directions, rounding chooses one
        assert [set(edge) for edge in model.network_.edges] == [{"x0", "x1"}]


def test_blocks_follow_the_given_order():
    partition = VerticalPartition(
        {"a": [[1, 2], [3, 4]], "b": [[5], [6]]},
        {"a": ["late", "early"], "b": ["middle"]},
        order=["early", "middle", "late"],
    )
    assert partition.columns == {"a": ["early", "late"], "b": ["middle"]}
    assert partition._blocks["a"]["X"].tolist() == [[2, 1], [4, 3]]


def test_columns_of_a_table_by_names():
    X = np.arange(12).reshape(4, 3)
    parties = {"lab": ["dose"], "clinic": ["sex", "age"]}
    names = ["age", "dose", "sex"]
    for table, given in [(X, names), (pd.DataFrame(X, columns=names), None)]:
        partition = VerticalPartition.from_columns(table, parties, given)
        assert partition.names == ("lab", "clinic")
        assert partition.feature_names == names
        assert partition.columns == {"lab": ["dose"], "clinic": ["age", "sex"]}
        assert partition._blocks["clinic"]["X"].tolist() == X[:, [0, 2]].tolist()


@pytest.mark.parametrize(
    "parties, names, message",
    [
        ({"a": ["age"], "b": ["dose"]}, None, "pass feature_names"),
        ({"a": ["age"], "b": ["dose"]}, ["age"], "1 names for 2 columns"),
        ({"a": ["age"], "b": ["sex"]}, ["age", "dose"], r"does not have: \['sex'\]"),
        ({"a": ["age"], "b": ["age"]}, ["age", "dose"], "'age': .*'a', 'b'"),
        ({"a": ["age"]}, ["age", "dose"], r"nobody the columns \['dose'\]"),
    ],
)
def test_wrong_names_of_columns(parties, names, message):
    with pytest.raises(PartitionError, match=message):
        VerticalPartition.from_columns([[1, 2], [3, 4]], parties, names)


@pytest.mark.parametrize(
    "parties, message",
    [
        ([[0, 1], [2, 3]], "parties must be a dict"),
        (
            {"a": ["age", "sex"], "b": ["crp", "ldl"]},
            "without names.*from_columns",
        ),
    ],
)
def test_parties_of_an_array(parties, message):
    with pytest.raises(PartitionError, match=message):
        check_vertical(BaseEstimator(), X, parties)


def test_lists_name_no_party():
    with pytest.raises(PartitionError, match="blocks must be a dict.*got list"):
        VerticalPartition([X, X])
    with pytest.raises(PartitionError, match="keys must be a dict.*got list"):
        VerticalPartition({"a": X}, keys=[1, 2, 3])
    with pytest.raises(PartitionError, match="columns names those of"):
        VerticalPartition({"a": X}, columns={"b": list("abcd")})
