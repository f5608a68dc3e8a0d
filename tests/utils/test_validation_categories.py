"""What a dataframe declares as categories are the states, whatever rows there are."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.model_selection import GridSearchCV

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.datasets import load_asia
from skprivbn.exceptions import PartitionError, PrivacyLeakWarning
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.partition import HorizontalPartition, VerticalPartition, check_horizontal
from skprivbn.structure import (
    CollectiveBayesianNetwork,
    K2StructureLearner,
    PrivateK2StructureLearner,
)
from skprivbn.utils._validation import declared_categories

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)

ASIA = load_asia()
NODES = list(ASIA.nodes)
PARTIES = {"clinic": NODES[:4], "lab": NODES[4:]}
LABELS = ("yes", "no", "unknown")
PLAIN = pd.DataFrame(ASIA.sample(400, random_state=0), columns=NODES)
FRAME = PLAIN.astype(pd.CategoricalDtype(LABELS))
TABLES = {
    "pandas": FRAME,
    "polars": pl.DataFrame(
        PLAIN.to_dict("list"), schema=dict.fromkeys(NODES, pl.Enum(LABELS))
    ),
}
ROWS = FRAME[(PLAIN == "no").all(axis=1)]


@pytest.fixture(params=["pandas", "polars"])
def frame(request):
    return TABLES[request.param]


def test_what_tables_declare(frame):
    assert declared_categories(frame) == [list(LABELS)] * 8
    assert declared_categories(PLAIN) == [None] * 8
    assert declared_categories(PLAIN.to_numpy()) == []
    numbers = pd.DataFrame({"a": [1, 2], "b": pd.Categorical([3, 1])})
    assert declared_categories(numbers) == [None, [1, 3]]
    # its labels are those that were seen, here or in another table
    seen = pl.DataFrame({"a": ["x", "y"]}, schema={"a": pl.Categorical})
    assert declared_categories(seen) == [None]


@pytest.mark.parametrize(
    "learner",
    [
        K2StructureLearner(max_parents=1),
        PrivateK2StructureLearner(max_parents=1, parties=PARTIES),
        CollectiveBayesianNetwork(parties=PARTIES, random_state=0),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_categories_are_the_states(learner, frame):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = learner.fit(frame).network_
    assert network.states == dict.fromkeys(NODES, LABELS)
    # rows without a single "yes" do not change that
    assert learner.fit(ROWS).network_.states == dict.fromkeys(NODES, LABELS)
    assert np.isfinite(learner.score(FRAME))


@pytest.mark.parametrize(
    "learner", [PrivateK2StructureLearner, CollectiveBayesianNetwork]
)
def test_categories_in_a_partition(learner):
    blocks = {name: ROWS[held] for name, held in PARTIES.items()}
    model = learner().fit(VerticalPartition(blocks))
    assert model.network_.states == dict.fromkeys(NODES, LABELS)
    model = learner().fit(VerticalPartition.from_columns(ROWS, PARTIES))
    assert model.network_.states == dict.fromkeys(NODES, LABELS)
    shuffled = VerticalPartition(blocks).reorder(NODES[::-1])
    assert learner().fit(shuffled).network_.states == dict.fromkeys(NODES, LABELS)


def test_categories_of_some_columns():
    some = ROWS.astype(dict.fromkeys(NODES[1:5], "str"))
    model = PrivateK2StructureLearner(parties=PARTIES).fit(some)
    assert model.network_.states["asia"] == LABELS
    assert model.network_.states[NODES[2]] == ("no",)
    assert "states of columns" in str(list(model.ledger_.who_learns_what()))
    model.fit(ROWS)
    assert "states of columns" not in str(list(model.ledger_.who_learns_what()))


def test_states_that_are_given_go_first():
    states = dict.fromkeys(NODES, ("no", "yes"))
    model = PrivateK2StructureLearner(parties=PARTIES, states=states).fit(FRAME)
    assert model.network_.states == states
    network = BayesianNetwork.from_data(ROWS, {}, states=states)
    assert network.states == states


def test_tables_of_a_known_structure(frame):
    network = BayesianNetwork.from_data(frame, ASIA.parents)
    assert network.states == dict.fromkeys(NODES, LABELS)
    assert BayesianNetwork.from_data(PLAIN, {}).states == dict.fromkeys(
        NODES, ("no", "yes")
    )


def test_private_tables_take_categories_to_be_public(frame):
    learner = DPCGMLearner(epsilon=1.0, cliques=[(0, 1)])
    with pytest.warns(PrivacyLeakWarning, match="categories.*taken to be public"):
        learner.fit(frame)
    assert learner.network_.states == dict.fromkeys(NODES, LABELS)
    party = np.arange(400) % 3
    with pytest.warns(PrivacyLeakWarning, match="categories.*taken to be public"):
        learner.fit(frame, party=party)
    assert learner.network_.states == dict.fromkeys(NODES, LABELS)
    with pytest.raises(ValueError, match="or columns of categories, and bins="):
        learner.fit(PLAIN, party=party)


def test_one_missing_entry_makes_objects_of_booleans():
    """So that a column declares its states tells that nobody lacks one."""
    learner = DPCGMLearner(epsilon=1.0, cliques=[(0,)], method_params={"max_iter": 5})
    flags = pd.DataFrame({"flag": [True, False] * 10})
    with pytest.warns(PrivacyLeakWarning, match="which columns hold booleans"):
        learner.fit(flags)
    assert learner.privacy_spent_.epsilon == 1.0
    flags = pd.DataFrame({"flag": [True, False] * 10 + [None]})
    with pytest.warns(PrivacyLeakWarning, match="read off the data"):
        learner.fit(flags)
    assert learner.privacy_spent_.epsilon == np.inf
    # what is declared does not depend on a row, and nothing has to be said
    learner = DPCGMLearner(epsilon=1.0, cliques=[(0,)], states=[[False, True]])
    learner.fit(flags)
    assert learner.privacy_spent_.epsilon == 1.0


def test_parties_that_declare_different_categories():
    same = FRAME.astype(pd.CategoricalDtype(LABELS[::-1]))
    partition = HorizontalPartition({"north": FRAME, "south": same[NODES[::-1]]})
    assert partition.categories == dict.fromkeys(NODES, list(LABELS))
    fewer = FRAME.assign(smoke=FRAME["smoke"].cat.remove_unused_categories())
    learner = DPCGMLearner(epsilon=1.0, cliques=[(0, 1)])
    with pytest.raises(PartitionError, match="different categories of column 'smoke'"):
        learner.fit(HorizontalPartition({"north": FRAME, "south": fewer}))
    learner.set_params(states=dict.fromkeys(NODES, LABELS))
    learner.fit(HorizontalPartition({"north": FRAME, "south": fewer}))


def test_categories_follow_their_columns():
    one = FRAME.assign(smoke=FRAME["smoke"].cat.remove_categories("unknown"))
    learner = DPCGMLearner(epsilon=1.0, cliques=[(0, 1)])
    learner.fit(HorizontalPartition({"north": one, "south": one}))
    other = HorizontalPartition({"north": one[NODES[::-1]], "south": one})
    partition = check_horizontal(learner, other, reset=False, dtype=None)
    assert sorted(partition.categories["smoke"]) == ["no", "yes"]


@pytest.mark.parametrize(
    "declare", ["categories", pytest.param("states", marks=pytest.mark.slow)]
)
def test_a_search_over_folds_that_lack_a_label(declare):
    learner, X = PrivateK2StructureLearner(parties=PARTIES), FRAME
    if declare == "states":
        X = PLAIN
        learner.set_params(states=ASIA.states)
    search = GridSearchCV(learner, {"max_parents": [0, 1]}, cv=3).fit(X)
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))
    assert search.best_params_ == {"max_parents": 1}


def test_a_label_that_was_not_declared_is_named_with_what_to_do():
    model = PrivateK2StructureLearner(parties=PARTIES).fit(PLAIN[:20])
    with pytest.raises(ValueError, match="states= or as categories of a dataframe"):
        model.score(PLAIN)
