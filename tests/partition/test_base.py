"""Columns are told by their names, in whatever order parties have them."""

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator

from skprivbn.exceptions import PartitionError, PartyError
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.partition import (
    HorizontalPartition,
    RemoteColumns,
    VerticalPartition,
    check_horizontal,
    check_vertical,
)
from skprivbn.preprocessing import FederatedPCA, FederatedStandardScaler
from skprivbn.structure import (
    FederatedGaussianBayesianNetwork,
    PrivateK2StructureLearner,
)
from tests.federation.flare.hospitals import (
    NAMES,
    make_rows,
    site_files,
    write_tables,
)
from tests.federation.site.loopback import connect, make_sites

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)

RNG = np.random.default_rng(0)
ROWS = RNG.normal([60.0, 80.0], [3.0, 9.0], size=(90, 2))
FRAME = pd.DataFrame(ROWS, columns=["age", "weight"])
PARTS = {"north": FRAME[:30], "south": FRAME[30:60], "west": FRAME[60:]}


def shuffled(kind=pd.DataFrame):
    """The same tables, one of them with its columns the other way round."""
    parts = PARTS | {"south": PARTS["south"][["weight", "age"]]}
    if kind is pl.DataFrame:
        parts = {
            name: pl.DataFrame(part.to_dict("list")) for name, part in parts.items()
        }
    return parts


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_columns_in_another_order_are_the_same_columns(kind):
    scaler = FederatedStandardScaler().fit(HorizontalPartition(shuffled(kind)))
    np.testing.assert_allclose(scaler.mean_, ROWS.mean(axis=0), rtol=1e-12)
    assert list(scaler.feature_names_in_) == ["age", "weight"]


def test_a_wanted_order_can_be_given():
    partition = HorizontalPartition(shuffled(), feature_names=["weight", "age"])
    assert partition.feature_names == ["weight", "age"]
    np.testing.assert_array_equal(partition._blocks["north"]["X"], ROWS[:30, ::-1])
    np.testing.assert_array_equal(partition._blocks["south"]["X"], ROWS[30:60, ::-1])


@pytest.mark.parametrize(
    "south, message",
    [
        (
            FRAME.set_axis(["age", "height"], axis=1),
            r"lacks \['weight'\] and it has \['height'\] beside",
        ),
        (FRAME.assign(height=1.0), r"'south' has other columns.*: it has \['height'\]"),
        (FRAME[["age"]], r"other columns than .*: it lacks \['weight'\]\. Give all"),
        (Path("south.csv"), "'south' has 'south.csv' in the place of a table: read it"),
        (FRAME.set_axis(["age", "age"], axis=1), "two columns called 'age'"),
        (ROWS, "have arrays without names of columns"),
        (FRAME.set_axis([7, 8], axis=1), "has other columns"),
    ],
)
def test_other_columns_are_refused(south, message):
    with pytest.raises(PartitionError, match=message):
        HorizontalPartition(PARTS | {"south": south})


def test_columns_with_numbers_for_labels_are_compared_too():
    table = pd.DataFrame(ROWS, columns=[2019, 2020])
    partition = HorizontalPartition({"a": table, "b": table[[2020, 2019]]})
    assert partition.feature_names is None
    np.testing.assert_array_equal(partition._blocks["b"]["X"], ROWS)


def test_names_on_arrays():
    partition = HorizontalPartition({"a": ROWS}, feature_names=["age", "weight"])
    assert partition.feature_names == ["age", "weight"]
    with pytest.raises(PartitionError, match="two columns called 'age'"):
        HorizontalPartition({"a": ROWS}, feature_names=["age", "age"])
    with pytest.raises(PartitionError, match="X has other columns"):
        HorizontalPartition.from_rows(FRAME, feature_names=["age", "height"])


def test_what_is_scored_is_told_by_name():
    model = PPEMGaussianMixture(1, backend="masking").fit(HorizontalPartition(PARTS))
    other = {name: part[["weight", "age"]] for name, part in PARTS.items()}
    expected = model.score(FRAME)
    assert model.score(HorizontalPartition(other)) == pytest.approx(expected, abs=1e-6)
    renamed = {
        name: part.rename(columns={"age": "bmi"}) for name, part in PARTS.items()
    }
    with pytest.raises(ValueError, match="'bmi'.*was fitted to"):
        model.score(HorizontalPartition(renamed))
    # one table in a wrong order is an error, as in all of scikit-learn
    with pytest.raises(ValueError, match="feature names"):
        model.score(FRAME[["weight", "age"]])


@pytest.mark.parametrize("transformer", [FederatedStandardScaler(), FederatedPCA(2)])
def test_what_is_transformed_is_told_by_name(transformer):
    transformer.fit(HorizontalPartition(PARTS))
    other = {name: part[["weight", "age"]] for name, part in PARTS.items()}
    result = transformer.transform(HorizontalPartition(other))
    np.testing.assert_allclose(
        result._blocks["south"]["X"], transformer.transform(PARTS["south"])
    )
    assert result.feature_names == transformer.get_feature_names_out().tolist()
    renamed = {
        name: part.rename(columns={"age": "bmi"}) for name, part in PARTS.items()
    }
    with pytest.raises(ValueError, match="was fitted to"):
        transformer.transform(HorizontalPartition(renamed))


def test_a_fit_without_names_forgets_those_of_the_fit_before():
    estimator = BaseEstimator()
    check_horizontal(estimator, HorizontalPartition(PARTS))
    check_horizontal(estimator, HorizontalPartition({"a": ROWS, "b": ROWS}))
    assert not hasattr(estimator, "feature_names_in_")


def test_columns_of_a_vertical_partition_come_in_the_fitted_order():
    estimator = BaseEstimator()
    check_vertical(estimator, FRAME, {"a": ["age"], "b": ["weight"]})
    given = VerticalPartition({"b": FRAME[["weight"]], "a": FRAME[["age"]]})
    partition = check_vertical(estimator, given, reset=False)
    assert partition.feature_names == ["age", "weight"]
    given = VerticalPartition({"b": FRAME[["weight"]]}, {"b": ["bmi"]})
    with pytest.raises(ValueError, match=r"'bmi'.*not \['age', 'weight'\]"):
        check_vertical(estimator, given, reset=False)
    remote = RemoteColumns(
        None, "icu", {"b": ["weight"], "a": ["age"]}, {"age": "int", "weight": "int"}
    )
    partition = check_vertical(estimator, remote, reset=False)
    assert partition.feature_names == ["age", "weight"]
    assert partition.owners == {"age": "a", "weight": "b"}


def test_scores_of_columns_do_not_depend_on_their_order():
    three = FRAME.assign(height=FRAME["weight"] + RNG.normal(size=len(FRAME)))
    model = FederatedGaussianBayesianNetwork("bic").fit(
        VerticalPartition({"a": three[["age", "height"]], "b": three[["weight"]]})
    )
    other = VerticalPartition({"b": three[["weight"]], "a": three[["height", "age"]]})
    expected = model.score(three[["age", "height", "weight"]])
    # own parts of residuals are rounded to 2**-17 = 8e-6 of a standard deviation
    assert model.score(other) == pytest.approx(expected, abs=8e-6)


def test_parties_and_the_partition_say_the_same():
    given = VerticalPartition({"a": FRAME[["age"]], "b": FRAME[["weight"]]})
    with pytest.raises(PartitionError, match="gives 'a' the columns.*weight"):
        check_vertical(BaseEstimator(), given, {"a": ["weight"], "b": ["age"]})


@pytest.fixture
def federation(tmp_path):
    """Sites whose files have their columns in different orders."""
    X, ward, party, people = make_rows()
    write_tables(tmp_path, X, ward, party, people)
    path = tmp_path / NAMES[1] / "stays.csv"
    table = pd.read_csv(path)
    table[table.columns[::-1]].to_csv(path, index=False)
    return connect(make_sites(tmp_path, site_files()), "icu")


def test_sites_find_columns_by_name(federation):
    X = make_rows()[0]
    scaler = FederatedStandardScaler().fit(federation.rows(["a", "b"]))
    np.testing.assert_allclose(scaler.mean_, X.mean(axis=0), rtol=1e-9)


def test_models_are_applied_at_sites_to_columns_by_name(federation):
    rows, other = federation.rows(["a", "b"]), federation.rows(["b", "a"])
    model = PPEMGaussianMixture(2, backend="masking", random_state=0).fit(rows)
    assert model.score(other) == pytest.approx(model.score(rows), abs=1e-9)
    with pytest.raises(ValueError, match="was fitted to"):
        model.score(federation.rows(["a", "died"]))
    scaler = FederatedStandardScaler().fit(rows)
    moments = FederatedStandardScaler().fit(scaler.transform(other))
    np.testing.assert_allclose(moments.mean_, 0.0, atol=1e-9)
    assert list(moments.feature_names_in_) == ["a", "b"]
    with pytest.raises(PartitionError, match="before transforming"):
        moments.transform(FederatedStandardScaler().fit(other).transform(other))


@pytest.mark.parametrize("bad", ["a,b,b\n1,2,3\n", "a,b,c\n1,2,3\n1,2,3,4\n"])
def test_a_file_in_which_columns_cannot_be_told_is_refused(tmp_path, bad):
    write_tables(tmp_path, *make_rows())
    text = bad + (bad.splitlines()[1] + "\n") * 9
    (tmp_path / "north" / "stays.csv").write_text(text)
    rows = connect(make_sites(tmp_path, site_files()), "icu").rows(["a", "b"])
    with pytest.raises(PartyError, match="'north'.*do not fit"):
        FederatedStandardScaler().fit(rows)


@pytest.mark.parametrize(
    "X, advice",
    [
        ("stays.csv", r"X is 'stays\.csv'.*read it"),
        (Path("stays.csv"), r"X is 'stays\.csv'.*read it"),
        (PARTS, r"X is a dict: give {}\(X\) if .* pandas.DataFrame\(X\) if"),
        ({"age": [1, 2], "weight": [3, 4]}, r"X is a dict: give {}\(X\)"),
        ([*PARTS.values()], r"X is a list of tables.*{}\(\{{'north'"),
        ((ROWS, ROWS), r"X is a tuple of tables.*{}\(\{{'north'"),
    ],
)
@pytest.mark.parametrize(
    "check, partition",
    [
        (check_horizontal, "HorizontalPartition"),
        (check_vertical, "VerticalPartition"),
    ],
)
def test_what_is_no_table_is_told_what_to_be(X, advice, check, partition):
    with pytest.raises(PartitionError, match=advice.format(partition)):
        check(BaseEstimator(), X)


def test_nested_lists_are_tables():
    assert check_horizontal(BaseEstimator(), [[1.0, 2.0], [3.0, 4.0]]).n_features == 2


def test_values_beside_a_partition_are_told_where_to_go():
    partition = HorizontalPartition(PARTS)
    with pytest.raises(PartitionError, match=r"\['y'\] cannot.*\(blocks, y="):
        check_horizontal(BaseEstimator(), partition, aligned={"y": [0] * 90})


def test_records_without_a_common_key_make_one_think_of_keys():
    columns = {"a": FRAME[["age"]] > 60, "b": FRAME[["weight"]] > 80}
    keys = {"a": range(90), "b": [f"patient {i}" for i in range(90)]}
    with pytest.raises(PartyError, match="keys of the same records written alike"):
        PrivateK2StructureLearner().fit(VerticalPartition(columns, keys=keys))
