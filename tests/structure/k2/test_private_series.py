"""The paper's own scores (Lindell and Pinkas) find what the pooled learner finds."""

import pandas as pd
import pytest

from skprivbn.crypto import PaillierBackend
from skprivbn.datasets import load_alarm, load_asia
from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.structure import K2StructureLearner, PrivateK2StructureLearner


def fit(X, ordering, **parameters):
    columns = list(X.columns)
    with pytest.warns(PrivacyLeakWarning, match="Paillier keys of 512 bits"):
        return PrivateK2StructureLearner(
            {"hospital": columns[::2], "lab": columns[1::2]},
            ordering=ordering,
            criterion="wright_yang",
            backend=PaillierBackend(512, insecure_test_key=True),
            scores="lindell-pinkas",
            **parameters,
        ).fit(X)


def assert_pooled(network, columns, n, seed, **parameters):
    X = pd.DataFrame(network.sample(n, random_state=seed), columns=network.nodes)
    ordering = [network.nodes[i] for i in network.topological_order]
    ordering = [v for v in ordering if v in columns]
    X = X[[v for v in network.nodes if v in columns]]
    private = fit(X, ordering, **parameters)
    pooled = K2StructureLearner(
        ordering=ordering, criterion="wright_yang", **parameters
    ).fit(X)
    assert private.parents_ == pooled.parents_
    assert private.network_ == pooled.network_
    return private


# in the first, one column has one value only: scores with and without it are equal;
# with 255 records a count and the number of states take one bit more than a count
@pytest.mark.parametrize(("n", "seed"), [(150, 0), (255, 1)])
def test_asia(n, seed):
    asia = load_asia()
    private = assert_pooled(asia, asia.nodes, n, seed, max_parents=2)
    assert any(private.parents_.values())


def test_columns_of_several_states():
    alarm = load_alarm()
    columns = [alarm.nodes[i] for i in alarm.topological_order[-7:]]
    assert max(len(alarm.states[v]) for v in columns) > 2
    assert_pooled(alarm, columns, 120, 0, max_parents=2)


@pytest.mark.slow
def test_alarm():
    alarm = load_alarm()
    private = assert_pooled(alarm, alarm.nodes, 200, 0, max_parents=1)
    assert sum(map(len, private.parents_.values())) > 20


@pytest.mark.parametrize(
    "parameters",
    [
        {"criterion": "k2"},
        {"backend": "ot"},
        {"parties": {"a": ["asia"], "b": ["tub", "smoke"], "c": ["lung"]}},
        {"epsilon": 1.0, "states": [2] * 4},
    ],
)
def test_other_protocols_than_the_papers_are_refused(parameters):
    X = load_asia().sample(50, random_state=0)
    X = pd.DataFrame(X, columns=load_asia().nodes)[["asia", "tub", "smoke", "lung"]]
    papers = {
        "parties": {"a": ["asia", "tub"], "b": ["smoke", "lung"]},
        "ordering": list(X.columns),
        "criterion": "wright_yang",
        "backend": "paillier",
        "scores": "lindell-pinkas",
    }
    with pytest.raises(ValueError, match="scores='lindell-pinkas' is the paper's"):
        PrivateK2StructureLearner(**papers | parameters).fit(X)
