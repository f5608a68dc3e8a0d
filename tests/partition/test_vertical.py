import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_selector

from skprivbn.exceptions import PartitionError
from skprivbn.partition import HorizontalPartition, VerticalPartition, check_vertical

X = np.arange(12).reshape(3, 4)
FRAME = pd.DataFrame(X, columns=["age", "sex", "crp", "ldl"])


@pytest.mark.parametrize(
    "data, parties",
    [
        (FRAME, {"clinic": ["age", "sex"], "lab": ["crp", "ldl"]}),
        (FRAME, [("clinic", ["age", "sex"]), ("lab", ["crp", "ldl"])]),
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


def test_prefixes():
    frame = FRAME.set_axis(
        ["clinic__age", "lab__crp", "clinic__sex", "lab__ldl"], axis=1
    )
    partition = check_vertical(BaseEstimator(), frame, "prefix")
    assert partition.columns == {
        "clinic": ["clinic__age", "clinic__sex"],
        "lab": ["lab__crp", "lab__ldl"],
    }
    assert partition.feature_names == list(frame.columns)


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
        ({"a": ["age", "sex"], "b": ["sex", "crp", "ldl"]}, "'sex'.*both 'a' and 'b'"),
        ({"a": ["age", "shoe"], "b": ["sex", "crp", "ldl"]}, "'a' columns.*not have"),
        ({"a": slice(None), "b": []}, "no column to"),
        ([("a", [0]), ("a", [1, 2, 3])], "appears twice"),
        ("suffix", "or 'prefix'"),
        ("prefix", "no 'party__' prefix"),
    ],
)
def test_wrong_parties(parties, message):
    with pytest.raises(PartitionError, match=message):
        check_vertical(BaseEstimator(), FRAME, parties)


def test_prefix_needs_names():
    with pytest.raises(PartitionError, match="dataframe"):
        check_vertical(BaseEstimator(), X, "prefix")


def test_values_errors():
    with pytest.raises(PartitionError, match="different numbers of rows"):
        VerticalPartition({"a": [[1], [2]], "b": [[1]]})
    with pytest.raises(PartitionError, match="held by 'a' and 'b'"):
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


def test_a_given_partition_is_taken_as_it_is():
    given = VerticalPartition({"a": FRAME[["age"]], "b": FRAME[["sex"]]})
    estimator = BaseEstimator()
    assert check_vertical(estimator, given) is given
    assert list(estimator.feature_names_in_) == ["age", "sex"]
    with pytest.raises(PartitionError, match="parties names"):
        check_vertical(estimator, given, {"a": ["age"], "c": ["sex"]})
    with pytest.raises(PartitionError, match="columns held by different parties"):
        check_vertical(estimator, HorizontalPartition({"a": [[1]]}))
