"""Handles on data at sites: what they know, and refuse before anybody is asked."""

import warnings

import numpy as np
import pytest

from skprivbn.exceptions import PartitionError
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.graphical_model._states import public_states
from skprivbn.mixed_model import PrivateGLMMClassifier
from skprivbn.partition import RemoteRows

SITES = ("north", "south", "west")
SCHEMA = {
    "age": "float",
    "room": "int",
    "ward": ["surgery", "medicine"],
    "sex": ["f", "m", "x"],
    "died": ["no", "yes"],
}


def test_a_cluster_of_numbers_is_refused_with_the_reason():
    rows = RemoteRows(None, "icu", SITES, SCHEMA, ["age"])
    with pytest.raises(PartitionError, match="'room' holds numbers of type 'int'"):
        PrivateGLMMClassifier().fit(rows, y="died", cluster="room")


def test_states_are_those_that_the_sites_declare():
    rows = RemoteRows(None, "icu", SITES, SCHEMA, ["ward", "sex"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # they are public: there is nothing to warn of
        states = public_states(None, ["ward", "sex"], rows, {})
    assert states == {"ward": (0, 1), "sex": (0, 1, 2)}


def test_states_that_are_given_go_with_those_that_are_declared():
    rows = RemoteRows(None, "icu", SITES, SCHEMA, ["ward", "room"])
    states = public_states({"room": [1, 2]}, ["ward", "room"], rows, {})
    assert states == {"ward": (0, 1), "room": (1, 2)}


def test_columns_without_states_are_named():
    rows = RemoteRows(None, "icu", SITES, SCHEMA, ["ward", "age", "room"])
    with pytest.raises(PartitionError, match=r"columns \['room'\]: give states="):
        DPCGMLearner(epsilon=1.0, bins={"age": np.linspace(0, 100, 5)}).fit(rows)


def test_columns_are_chosen_as_in_process():
    schema = {**SCHEMA, "patient": "key"}
    rows = RemoteRows(None, "icu", SITES, schema)
    chosen = rows[["died", "age", "patient"]]
    # a key is no part of X, and can be named beside it
    assert chosen.feature_names == ["died", "age"]
    with pytest.raises(PartitionError, match=r"no columns \['aeg'\]: the rows have"):
        rows[["aeg"]]
    with pytest.raises(PartitionError, match="by a list of their names"):
        rows[0]
    with pytest.raises(PartitionError, match="before transforming them"):
        rows.transformed({}, ["age"])[["age"]]
