import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator

from skprivbn.exceptions import PartitionError, PrivacyLeakWarning
from skprivbn.partition import HorizontalPartition, VerticalPartition, check_horizontal
from skprivbn.preprocessing import FederatedStandardScaler
from skprivbn.structure import FederatedBayesianNetwork

X = np.arange(12.0).reshape(6, 2)
PARTY = ["b", "a", "b", "c", "a", "b"]


def test_rows_go_to_their_holders_in_order():
    partition = HorizontalPartition.from_rows(X, PARTY, y=np.arange(6))
    assert partition.names == ("a", "b", "c")
    assert partition.n_rows() == {"a": 2, "b": 3, "c": 1}
    np.testing.assert_array_equal(partition._blocks["b"]["X"], X[[0, 2, 5]])
    np.testing.assert_array_equal(partition._blocks["b"]["y"], [0, 2, 5])


def test_integer_labels_keep_their_numerical_order():
    party = [10, 2, 10, 2, 33, 33]
    assert HorizontalPartition.from_rows(X, party).names == ("2", "10", "33")


def test_no_party_is_one_party():
    assert HorizontalPartition.from_rows(X).names == ("all",)


def test_blocks_are_copies():
    partition = HorizontalPartition.from_rows(X, PARTY)
    assert not any(
        np.shares_memory(block["X"], X) for block in partition._blocks.values()
    )


@pytest.mark.parametrize("name", ["party", "series"])
@pytest.mark.parametrize("values", [7, [["a", "b"]] * 6])
def test_wrong_shape_names_the_argument(name, values):
    with pytest.raises(ValueError, match=f"^{name} should be a 1d array"):
        HorizontalPartition.from_rows(X, **{name: values})


def test_lists_of_row_numbers_are_no_labels():
    with pytest.raises(ValueError, match="^party is a list of lists.*one value per"):
        HorizontalPartition.from_rows(X, [[0, 1], [2, 3, 4, 5]])


@pytest.mark.parametrize("name", ["party", "series"])
def test_the_name_of_a_column_is_no_label(name):
    """The column itself would be refused for its text, were it looked at first."""
    frame = pd.DataFrame({"age": range(6), "ward": list("aabbcc")})
    values = {"party": None, name: "ward"}
    party = values.pop("party")
    with pytest.raises(ValueError, match=rf"give {name}=X\['ward'\], and leave it out"):
        check_horizontal(FederatedStandardScaler(), frame, party, aligned=values)


@pytest.mark.parametrize("party", [["a"] * 5, ["a"] * 7])
def test_wrong_length_of_party(party):
    with pytest.raises(ValueError, match=r"party has \d values for 6 rows"):
        HorizontalPartition.from_rows(X, party)


@pytest.mark.parametrize(
    "party",
    [
        ["a", None, "a", "a", "a", "a"],
        [1.0, np.nan, 1, 1, 1, 1],
        pd.Series(["a", None, "a", "a", "a", "a"]),
    ],
)
def test_missing_labels(party):
    with pytest.raises(PartitionError, match="missing labels"):
        HorizontalPartition.from_rows(X, party)


@pytest.mark.parametrize("function", [np.asarray, np.mean, lambda p: p @ np.eye(2)])
def test_a_partition_does_not_become_an_array(function):
    with pytest.raises((PartitionError, TypeError)):
        function(HorizontalPartition.from_rows(X, PARTY))


def test_errors_name_what_is_wrong():
    with pytest.raises(PartitionError, match="empty"):
        HorizontalPartition({})
    with pytest.raises(PartitionError, match="different numbers of features"):
        HorizontalPartition({"a": [[1, 2]], "b": [[1]]})
    with pytest.raises(PartitionError, match="must be text"):
        HorizontalPartition({1: [[1, 2]]})
    with pytest.raises(PartitionError, match="y has 2 values for the 1 rows"):
        HorizontalPartition({"a": [[1, 2]]}, y={"a": [1, 2]})
    with pytest.raises(PartitionError, match="y lacks the values of party 'a'"):
        HorizontalPartition({"a": [[1, 2]]}, y={"b": [1, 2]})
    with pytest.raises(PartitionError, match="3 names for 2 features"):
        HorizontalPartition({"a": [[1, 2]]}, feature_names=["u", "v", "w"])


def test_check_horizontal_sets_what_scikit_learn_sets():
    estimator = BaseEstimator()
    frame = pd.DataFrame(X, columns=["u", "v"])
    partition = check_horizontal(estimator, frame, PARTY)
    assert estimator.n_features_in_ == 2
    assert list(estimator.feature_names_in_) == partition.feature_names == ["u", "v"]
    with pytest.raises(ValueError, match="feature names"):
        check_horizontal(estimator, frame[["v", "u"]], PARTY, reset=False)


def test_check_horizontal_checks_values():
    with pytest.raises(ValueError, match="NaN"):
        check_horizontal(BaseEstimator(), np.full((6, 2), np.nan), PARTY)
    given = HorizontalPartition({"a": [[1.0, np.nan]]})
    with pytest.raises(ValueError, match="NaN"):
        check_horizontal(BaseEstimator(), given)


def test_check_horizontal_takes_partitions():
    given = HorizontalPartition({"a": [[1, 2]], "b": [[3, 4]]}, y={"a": [0], "b": [1]})
    estimator = BaseEstimator()
    partition = check_horizontal(estimator, given, dtype=np.float64)
    assert partition._blocks["a"]["X"].dtype == np.float64
    assert partition._blocks["b"]["y"] == [1]
    with pytest.raises(PartitionError, match="party"):
        check_horizontal(estimator, given, ["a", "b"])
    with pytest.raises(ValueError, match="expecting 2 features"):
        wider = HorizontalPartition({"a": [[1, 2, 3]]})
        check_horizontal(estimator, wider, reset=False)
    with pytest.raises(PartitionError, match="rows held by different parties"):
        check_horizontal(estimator, VerticalPartition({"a": [[1]]}))


def test_lists_name_no_party():
    with pytest.raises(PartitionError, match="blocks must be a dict.*got list"):
        HorizontalPartition([X, X])
    with pytest.raises(PartitionError, match="y must be a dict.*got list"):
        HorizontalPartition({"a": X}, y=[0] * 6)
    with pytest.raises(PartitionError, match=r"y has values of parties \['b'\]"):
        HorizontalPartition({"a": X}, y={"a": [0] * 6, "b": [0]})


def test_party_given_as_y_is_told_of():
    with pytest.warns(PrivacyLeakWarning, match="by name, as in fit"):
        FederatedStandardScaler().fit(X, PARTY)


def test_one_table_given_to_two_parties_is_pointed_out():
    rows = np.random.default_rng(0).normal(size=(20, 2))
    other = rows + 1
    party = np.repeat(["a", "b", "c"], 20)
    table = np.concatenate([rows, other, rows])
    with pytest.warns(UserWarning, match="parties 'a' and 'c' hold the same rows"):
        FederatedStandardScaler().fit(table, party=party)
    with pytest.warns(UserWarning, match="parties 'a' and 'c' hold the same rows"):
        FederatedStandardScaler().fit(
            HorizontalPartition({"a": rows, "b": other, "c": rows})
        )


def test_copies_with_gaps_are_pointed_out_whatever_stands_for_a_gap():
    for gap in (None, np.nan, pd.NA):
        rows = np.array([["u", gap], ["v", "x"], *[["w", "y"]] * 4], dtype=object)
        other = np.array([["u", "x"], *[["w", "y"]] * 5], dtype=object)
        blocks = {"a": rows, "b": other, "c": rows.copy()}
        with pytest.warns(UserWarning, match="parties 'a' and 'c' hold the same rows"):
            FederatedBayesianNetwork(missing="skip").fit(HorizontalPartition(blocks))


def test_under_noise_nobody_is_told_that_rows_are_the_same(recwarn):
    rows = np.random.default_rng(0).normal(size=(200, 2))
    scaler = FederatedStandardScaler(epsilon=5.0, bounds=(-5, 5))
    scaler.fit(np.concatenate([rows] * 3), party=np.repeat(["a", "b", "c"], 200))
    assert not [w for w in recwarn if "same rows" in str(w.message)]


def test_a_notebook_shows_who_holds_what():
    import pandas as pd

    frame = pd.DataFrame({"<age>": [1.0, 2.0], "sex": ["f", "m"]})
    page = HorizontalPartition({"north": frame, "south": frame[:1]})._repr_html_()
    assert page.count("<tr>") == 3
    assert "&lt;age&gt;, sex" in page
    assert ">north<" in page


def test_columns_are_chosen_by_a_list_of_names():
    frame = pd.DataFrame({"age": [1.0, 2.0], "sex": ["f", "m"], "died": [0, 1]})
    rows = HorizontalPartition({"north": frame, "south": frame[["sex", "died", "age"]]})
    chosen = rows[["died", "age"]]
    assert chosen.feature_names == ["died", "age"]
    assert chosen._blocks["south"]["X"].tolist() == [[0.0, 1.0], [1.0, 2.0]]
    assert {kind["died"].kind for kind in chosen.dtypes} == {"i"}
    with pytest.raises(
        PartitionError, match=r"no columns \['aeg'\]: the partition has"
    ):
        rows[["age", "aeg"]]
    for rest in ("age", slice(3), 0, np.array([True, False])):
        with pytest.raises(PartitionError, match=r"as in rows\[\['age', 'sex'\]\]"):
            rows[rest]
