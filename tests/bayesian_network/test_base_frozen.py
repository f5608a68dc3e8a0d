"""The library's own mappings can be parameters of its estimators."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone

from skprivbn.bayesian_network._base import FrozenMapping
from skprivbn.datasets import load_asia
from skprivbn.graphical_model import DPCGMLearner, MarkovRandomField
from skprivbn.structure import (
    CollectiveBayesianNetwork,
    K2StructureLearner,
    PrivateK2StructureLearner,
)

ASIA = load_asia()
FIELD = MarkovRandomField(["a", "b"], [2, 2], {("a", "b"): np.zeros((2, 2))})


@pytest.mark.parametrize(
    "estimator",
    [
        CollectiveBayesianNetwork(states=ASIA.states, structure=ASIA.parents),
        PrivateK2StructureLearner(states=ASIA.states),
        K2StructureLearner(states=ASIA.states),
        DPCGMLearner(states=FIELD.states),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.parametrize(
    "duplicate",
    [clone, copy.deepcopy, lambda estimator: pickle.loads(pickle.dumps(estimator))],
    ids=["clone", "deepcopy", "pickle"],
)
def test_parameters_can_be_what_a_network_has(estimator, duplicate):
    twin = duplicate(estimator)
    assert twin.states == estimator.states
    assert "structure" not in twin.get_params() or twin.structure == ASIA.parents


@pytest.mark.parametrize(
    "mapping", [ASIA.states, ASIA.parents, ASIA.cpts, FIELD.states, FIELD.potentials]
)
def test_mappings_of_values_cannot_be_changed(mapping):
    key = next(iter(mapping))
    with pytest.raises(TypeError):
        mapping[key] = None
    with pytest.raises(TypeError):
        del mapping[key]
    for twin in (copy.copy(mapping), pickle.loads(pickle.dumps(mapping))):
        assert list(twin) == list(mapping)
        np.testing.assert_array_equal(twin[key], mapping[key])


def test_it_is_a_mapping_like_any():
    mapping = FrozenMapping({"a": 1})
    assert mapping == {"a": 1} and mapping == {"a": 1} and mapping != {"a": 2}
    assert mapping | {"b": 2} == {"a": 1, "b": 2} == {"b": 2} | mapping
    assert repr(mapping) == "{'a': 1}" and dict(mapping) == {"a": 1}
