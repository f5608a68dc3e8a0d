"""Private K2 on columns with missing entries: available cases, on shares."""

import numpy as np
import pandas as pd
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.structure import (
    FederatedBayesianNetwork,
    K2StructureLearner,
    PrivateK2StructureLearner,
)
from skprivbn.structure.k2 import _shared_search
from tests.structure.k2.test_private import THREE, TWO, sample_asia, sizes
from tests.structure.k2.test_private_views import TWO as NAMES
from tests.structure.k2.test_private_views import run_search, told_apart

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)


def with_gaps(n, seed, part=0.15):
    X, ordering = sample_asia(n, seed)
    lost = np.random.default_rng(seed).random(X.shape) < part
    return np.where(lost, np.nan, X), ordering


def plain_table(X, columns):
    """Probabilities of the last column given the others, of complete records."""
    rows = X[~np.isnan(X[:, columns]).any(axis=1)][:, columns].astype(int)
    counts = np.zeros([2] * len(columns))
    np.add.at(counts, tuple(rows.T), 1)
    return (counts + 1) / (counts + 1).sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("seed", range(20))
def test_equals_available_cases_of_the_joined_table(seed):
    X, ordering = with_gaps(150, seed)
    criterion = ["k2", "bic", "bdeu"][seed % 3]
    private = PrivateK2StructureLearner(
        [TWO, THREE][seed % 2],
        ordering=ordering,
        criterion=criterion,
        missing="skip",
        max_parents=2 + seed % 2,
        states=[2] * 8,
    ).fit(X)
    pooled = FederatedBayesianNetwork(
        method="k2",
        criterion=criterion,
        missing="skip",
        max_parents=2 + seed % 2,
        search_params={"ordering": ordering},
        states=[2] * 8,
    ).fit(X)
    assert private.parents_ == pooled.parents_
    for name, table in private.network_.cpts.items():
        columns = [int(v[1:]) for v in (*private.parents_[name], name)]
        np.testing.assert_allclose(table, plain_table(X, columns), rtol=1e-12)


def test_without_gaps_it_is_plain_k2():
    X, ordering = sample_asia(200, 3)
    private = PrivateK2StructureLearner(TWO, ordering=ordering, missing="skip").fit(X)
    pooled = K2StructureLearner(ordering=ordering).fit(X)
    assert private.network_ == pooled.network_


def test_labels_and_other_ways_to_be_missing():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], 80),
            "stage": rng.choice(["i", "ii", "iii"], 80),
        }
    )
    X["ward"] = X["stage"].str.upper()
    X.loc[:9, "stage"] = None
    X.loc[5:19, "ward"] = None
    learner = PrivateK2StructureLearner(
        {"clinic": ["sex", "ward"], "lab": ["stage"]},
        ordering=["sex", "stage", "ward"],
        missing="skip",
    ).fit(X)
    assert learner.parents_ == {"sex": [], "stage": [], "ward": ["stage"]}
    assert learner.network_.states["ward"] == ("I", "II", "III")
    with pytest.raises(ValueError, match="missing|NaN"):
        PrivateK2StructureLearner(learner.parties).fit(X)


def test_steps_of_counts():
    X, ordering = with_gaps(150, 0)
    learners = [
        PrivateK2StructureLearner(
            TWO, ordering=ordering, missing="skip", max_parents=1, min_cell_count=step
        ).fit(X)
        for step in (0, 4)
    ]
    assert learners[0].parents_ == learners[1].parents_
    assert learners[0].network_ != learners[1].network_


def test_messages_do_not_depend_on_what_is_missing():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.integers(0, 2, (200, 1)), 4, axis=1).astype(float)
    seen = []
    for part in (0.0, 0.02, 0.2):
        lost = np.where(rng.random(X.shape) < part, np.nan, X)
        learner = PrivateK2StructureLearner(
            {"a": [0, 1], "b": [2, 3]},
            ordering=range(4),
            states=[2] * 4,
            missing="skip",
            max_parents=1,
            fit_parameters=False,
        ).fit(lost)
        assert learner.adjacency_matrix_.sum() == 3
        seen.append(sizes(learner.ledger_))
    assert seen[0] == seen[1] == seen[2]


def test_views_are_those_of_the_simulator():
    # codes of 255 records, of which a third are missing
    column = np.arange(255) % 3
    runs = [run_search(NAMES, column=column, missing="skip") for _ in range(24)]
    assert not any(told_apart(reader, runs) for reader in NAMES)


def fit_with_a_liar(monkeypatch, shift):
    """Fit while the lab adds something to its shares of the last tables."""
    opened = _shared_search.open_numbers

    def lie(talk, group, shares):
        if talk.name == "lab":
            shares = shares.copy()
            shares[: len(shift)] += np.array(shift).astype(shares.dtype)
        return (yield from opened(talk, group, shares))

    monkeypatch.setattr(_shared_search, "open_numbers", lie)
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (200, 1))
    X = np.hstack([X, X ^ (rng.random((200, 1)) < 0.1)]).astype(float)
    X[rng.random(X.shape) < 0.1] = np.nan
    return PrivateK2StructureLearner(
        {"clinic": [1], "lab": [0]}, ordering=[0, 1], max_parents=1, missing="skip"
    ).fit(X)


SHIFTS = {
    "a negative cell": [0, 0, 0, -50],
    "more than the clinic has of its column": [0, 0, 60],
    "more than the lab has of its own": [1],
}


@pytest.mark.parametrize("shift", SHIFTS.values(), ids=SHIFTS)
def test_attack_tables_that_cannot_be_counts_end_the_fit(monkeypatch, shift):
    with monkeypatch.context() as honest:
        network = fit_with_a_liar(honest, [0]).network_
    with monkeypatch.context() as liar, pytest.raises(PartyError) as caught:
        fit_with_a_liar(liar, shift)
    assert caught.value.code == "inconsistent"
    # the twin
    monkeypatch.setattr(_shared_search.SharedK2, "are_counts", lambda *_, **__: True)
    assert fit_with_a_liar(monkeypatch, shift).network_ != network


@pytest.mark.parametrize(
    "parameters",
    [
        {"opens": "structure"},
        {"epsilon": 1.0, "states": [2] * 8},
        {
            "scores": "lindell-pinkas",
            "backend": "paillier",
            "criterion": "wright_yang",
        },
    ],
)
def test_what_does_not_go_with_gaps(parameters):
    X, ordering = with_gaps(20, 0)
    learner = PrivateK2StructureLearner(
        TWO, ordering=ordering, missing="skip", **parameters
    )
    with pytest.raises(ValueError, match="missing='skip' compares"):
        learner.fit(X)
