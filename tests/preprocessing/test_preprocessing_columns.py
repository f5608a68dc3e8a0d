"""Transformers of some columns, beside which the others stay."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import (
    KBinsDiscretizer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)

from skprivbn.partition import HorizontalPartition
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedOneHotEncoder,
    FederatedOrdinalEncoder,
    FederatedSimpleImputer,
    FederatedStandardScaler,
)

rng = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": rng.normal(60, 10, 60),
        "ward": rng.choice(["a", "b", "c"], 60),
        "bmi": rng.normal(25, 3, 60),
    }
)
PARTY = np.tile(["north", "south", "west"], 20)
BINS = {"strategy": "uniform", "encode": "onehot-dense"}
CASES = {
    "scaler": (FederatedStandardScaler(), StandardScaler(), ["bmi"]),
    "imputer": (FederatedSimpleImputer(), SimpleImputer(), ["bmi", "age"]),
    "codes": (FederatedOrdinalEncoder(), OrdinalEncoder(), ["ward"]),
    "indicators": (
        FederatedOneHotEncoder(drop="first"),
        OneHotEncoder(drop="first", sparse_output=False),
        ["ward"],
    ),
    "bins": (
        FederatedKBinsDiscretizer(3, **BINS),
        KBinsDiscretizer(3, **BINS),
        ["age"],
    ),
}
pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)


def pooled(transformer, columns):
    both = ColumnTransformer(
        [("made", transformer, columns)],
        remainder="passthrough",
        verbose_feature_names_out=False,
    )
    return both.fit(FRAME)


@pytest.mark.parametrize("name", CASES)
def test_like_a_column_transformer(name):
    ours, theirs, columns = CASES[name]
    ours, expected = clone(ours).set_params(columns=columns), pooled(theirs, columns)
    made = ours.fit(FRAME, party=PARTY).transform(FRAME)
    table = expected.transform(FRAME)
    assert made.shape == table.shape
    numbers = [i for i in range(table.shape[1]) if not isinstance(table[0, i], str)]
    np.testing.assert_allclose(
        made[:, numbers].astype(float), table[:, numbers].astype(float), atol=1e-9
    )
    assert ours.get_feature_names_out().tolist() == list(
        expected.get_feature_names_out()
    )


@pytest.mark.parametrize("name", CASES)
def test_holders_transform_alike(name):
    ours, _, columns = CASES[name]
    ours = clone(ours).set_params(columns=columns)
    blocks = {key: FRAME[key == PARTY] for key in ("north", "south", "west")}
    rows = ours.fit(HorizontalPartition(blocks)).transform(HorizontalPartition(blocks))
    here = ours.transform(blocks["south"])
    np.testing.assert_array_equal(rows._blocks["south"]["X"], here)
    assert rows.feature_names == ours.get_feature_names_out().tolist()


@pytest.mark.parametrize("name", ["scaler", "codes", "indicators"])
def test_the_inverse_brings_columns_back_to_their_places(name):
    ours, _, columns = CASES[name]
    ours = clone(ours).set_params(columns=columns).fit(FRAME, party=PARTY)
    back = ours.inverse_transform(ours.transform(FRAME))
    np.testing.assert_allclose(back[:, [0, 2]].astype(float), FRAME[["age", "bmi"]])
    assert back[:, 1].tolist() == FRAME["ward"].tolist()


def test_columns_by_type():
    scaler = FederatedStandardScaler(
        columns=make_column_selector(dtype_include="number")
    )
    blocks = {key: FRAME[key == PARTY] for key in ("north", "south", "west")}
    by_type = scaler.fit(HorizontalPartition(blocks)).mean_
    np.testing.assert_allclose(by_type, FRAME[["age", "bmi"]].mean())
    np.testing.assert_allclose(scaler.fit(FRAME, party=PARTY).mean_, by_type)
    with pytest.raises(ValueError, match="rows are arrays"):
        scaler.fit(HorizontalPartition.from_rows(np.ones((6, 2)), list("aabbcc")))


def test_bounds_are_those_of_the_columns():
    scaler = FederatedStandardScaler(
        columns=["bmi"], epsilon=1e3, bounds={"bmi": (10, 50)}
    ).fit(FRAME, party=PARTY)
    np.testing.assert_allclose(scaler.mean_, FRAME[["bmi"]].mean(), rtol=0.05)
    assert scaler.privacy_spent_.epsilon == 1e3
    odd = pd.concat([FRAME, pd.DataFrame({"age": ["?"], "ward": [None], "bmi": ["-"]})])
    assert scaler.transform(odd).shape == (61, 3)


@pytest.mark.parametrize(
    ("columns", "message"),
    [(["weight"], "weight"), (["age", "age"], "has a column twice"), ([], "is empty")],
)
def test_columns_that_are_not_there(columns, message):
    with pytest.raises(ValueError, match=message):
        FederatedStandardScaler(columns=columns).fit(FRAME, party=PARTY)
    rows = HorizontalPartition.from_rows(FRAME, PARTY)
    with pytest.raises(ValueError, match=message):
        FederatedStandardScaler(columns=columns).fit(rows)


def test_text_names_the_column_that_was_asked_for():
    with pytest.raises(ValueError, match="text in column 'ward'"):
        FederatedStandardScaler(columns=["ward"]).fit(FRAME, party=PARTY)
    scaler = FederatedStandardScaler(columns=["bmi"]).fit(FRAME, party=PARTY)
    with pytest.raises(ValueError, match="text in column 'bmi'"):
        scaler.transform(FRAME.assign(bmi="heavy"))
