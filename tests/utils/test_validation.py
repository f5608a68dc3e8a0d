"""What is missing is said with the name of the column, and of who holds it."""

import numpy as np
import pandas as pd
import pytest

from skprivbn.exceptions import PartitionError
from skprivbn.mixed_model import PrivateGLMMClassifier
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.partition import HorizontalPartition, VerticalPartition
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedPCA,
    FederatedStandardScaler,
)
from skprivbn.structure import (
    CollectiveBayesianNetwork,
    FederatedBayesianNetwork,
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    K2StructureLearner,
    PrivateK2StructureLearner,
)
from skprivbn.utils._validation import refuse_missing

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)

ROWS = np.random.default_rng(0).normal(size=(30, 3))
PARTY = np.array(["north", "south", "west"])[np.arange(30) % 3]
FRAME = pd.DataFrame(ROWS, columns=["age", "weight", "height"])
BROKEN = FRAME.copy()
BROKEN.loc[4, "weight"] = np.nan  # held by south
CODES = (ROWS > 0).astype(int)
WRONG = CODES.copy()
WRONG[4, 2] = 7


NUMBERS = [
    FederatedGaussianBayesianNetwork(),
    FederatedNotearsADMM(),
    FederatedPCA(),
    FederatedKBinsDiscretizer(),
    PPEMGaussianMixture(backend="masking"),
]


@pytest.mark.parametrize("estimator", NUMBERS, ids=lambda e: type(e).__name__)
def test_the_column_with_text_is_named(estimator):
    text = FRAME.assign(weight="heavy")
    with pytest.raises(ValueError, match="text in column 'weight', where numbers"):
        estimator.fit(text, party=PARTY)
    with pytest.raises(ValueError, match="text in column 'x1', where numbers"):
        estimator.fit(text.to_numpy(), party=PARTY)
    with pytest.raises(
        ValueError, match="text in column 'weight' of party 'north', where numbers"
    ):
        estimator.fit(HorizontalPartition.from_rows(text, PARTY))


def test_an_imputer_of_rows_is_not_advised_where_columns_are_held():
    learner = FederatedGaussianBayesianNetwork()
    with pytest.raises(ValueError, match="FederatedSimpleImputer"):
        learner.fit(BROKEN, party=PARTY)
    learner.set_params(parties={"north": ["age"], "south": ["weight", "height"]})
    with pytest.raises(ValueError, match="without keys=, all .* same rows$"):
        learner.fit(BROKEN)


@pytest.mark.parametrize("estimator", NUMBERS, ids=lambda e: type(e).__name__)
def test_the_column_with_missing_entries_is_named(estimator):
    with pytest.raises(ValueError, match="NaN in column 'weight'") as caught:
        estimator.fit(BROKEN, party=PARTY)
    # those who know say it: the advice is not to impute in one table
    assert " impute" not in str(caught.value) and "sklearn" not in str(caught.value)
    with pytest.raises(ValueError, match="NaN in column 'x1': leave out"):
        estimator.fit(BROKEN.to_numpy(), party=PARTY)
    with pytest.raises(ValueError, match="NaN in column 'weight' of party 'south'"):
        estimator.fit(HorizontalPartition.from_rows(BROKEN, PARTY))
    estimator.fit(FRAME, party=PARTY)
    apply = getattr(estimator, "transform", getattr(estimator, "predict", None))
    with pytest.raises(ValueError, match="NaN in column 'weight'"):
        apply(BROKEN)


def test_infinite_and_many():
    with pytest.raises(ValueError, match="infinity.*in column 'weight'"):
        FederatedStandardScaler().fit(BROKEN.fillna(np.inf), party=PARTY)
    names = [f"c{i}" for i in range(9)]
    with pytest.raises(ValueError, match=r"columns \['c0', .*'c4'\] and 4 more"):
        refuse_missing(np.full((2, 9), np.nan), names)
    refuse_missing(np.full((2, 9), np.nan), names, "allow-nan")
    labels = np.array([["a", None]], dtype=object)
    with pytest.raises(ValueError, match="NaN in column 'c1' of party 'north'"):
        refuse_missing(labels, names, holder="north")


@pytest.mark.parametrize(
    "learner",
    [
        K2StructureLearner(),
        PrivateK2StructureLearner(),
        CollectiveBayesianNetwork(),
        FederatedGaussianBayesianNetwork("bic", parties={"a": [0], "b": [1, 2]}),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_columns_of_parties_with_missing_entries(learner):
    X = BROKEN.where(BROKEN.isna(), CODES)
    with pytest.raises(ValueError, match="column 'weight'"):
        learner.fit(X)
    if not hasattr(learner, "parties"):
        return
    partition = VerticalPartition({"a": X[["age"]], "b": X[["weight", "height"]]})
    with pytest.raises(ValueError, match="NaN in column 'weight' of party 'b'"):
        learner.set_params(parties=None).fit(partition)


def test_text_where_numbers_are_wanted():
    partition = VerticalPartition({"a": [["x"]] * 30, "b": ROWS})
    with pytest.raises(ValueError, match="text in column 'a__0' of party 'a'"):
        FederatedGaussianBayesianNetwork("bic").fit(partition)


@pytest.mark.parametrize(
    "learner", [PrivateK2StructureLearner, CollectiveBayesianNetwork]
)
def test_a_label_outside_states_names_its_column(learner):
    partition = VerticalPartition(
        {"a": WRONG[:, :1], "b": WRONG[:, 1:]}, {"a": ["x"], "b": ["y", "z"]}
    )
    with pytest.raises(ValueError, match="column 'z' holds 7.*states="):
        learner(states=[2, 2, 2]).fit(partition)


def test_a_label_outside_states_at_one_of_several_holders():
    learner = FederatedBayesianNetwork(states=[2, 2, 2])
    with pytest.raises(ValueError, match="column 'x2' holds 7"):
        learner.fit(WRONG, party=PARTY)


@pytest.mark.parametrize(
    "cluster, message",
    [
        (["a", np.nan, "b"] * 10, "missing labels"),
        ([1, "1", 2] * 10, "several types"),
    ],
)
def test_labels_of_clusters(cluster, message):
    y = np.arange(30) % 2
    with pytest.raises(PartitionError, match=message):
        PrivateGLMMClassifier().fit(ROWS, y, cluster=cluster, party=PARTY)
    with pytest.raises(PartitionError, match=message):
        HorizontalPartition.from_rows(ROWS, PARTY, cluster=cluster)


def test_parties_that_label_clusters_by_text_and_by_numbers():
    with pytest.raises(PartitionError, match="cluster mixes labels.*number and text"):
        HorizontalPartition(
            {"a": ROWS[:2], "b": ROWS[2:4]}, cluster={"a": [1, 2], "b": ["1", "2"]}
        )


def test_clusters_of_another_type_are_not_taken_for_new_ones():
    cluster = np.arange(30) % 5
    y = np.where(cluster > 2, 1, np.arange(30) % 2)
    model = PrivateGLMMClassifier().fit(ROWS, y, cluster=cluster, party=PARTY)
    with pytest.raises(ValueError, match=r"has the label '\d', the fit had \d"):
        model.predict(ROWS, cluster=cluster.astype(str))
    # new ones of the same type have no effect
    np.testing.assert_array_equal(
        model.decision_function(ROWS, cluster=cluster + 10),
        model.decision_function(ROWS),
    )


def test_columns_with_and_without_names():
    scaler = FederatedStandardScaler().fit(FRAME, party=PARTY)
    with pytest.warns(UserWarning, match="no names.*fitted to columns with some"):
        scaler.transform(HorizontalPartition.from_rows(ROWS, PARTY))
    scaler.fit(ROWS, party=PARTY)
    with pytest.warns(UserWarning, match="have names.*fitted to columns with none"):
        scaler.transform(HorizontalPartition.from_rows(FRAME, PARTY))
