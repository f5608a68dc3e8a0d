"""Private K2 on records that are aligned by keys."""

import warnings

import numpy as np
import pytest

from skprivbn.crypto import _psi
from skprivbn.exceptions import PartyError, PrivacyLeakWarning
from skprivbn.federation import HostPolicy, InProcessFederation
from skprivbn.partition import VerticalPartition
from skprivbn.programs import _columns
from skprivbn.structure import K2StructureLearner, PrivateK2StructureLearner
from skprivbn.structure.k2._program import private_k2
from tests.structure.k2.test_private import sample_asia


@pytest.mark.parametrize("n_parties", [2, 3])
def test_records_are_aligned_by_keys(n_parties):
    X, _ = sample_asia(300, 0)
    rng = np.random.default_rng(0)
    rows = [rng.permutation(300)[: 280 - i] for i in range(n_parties)]
    names = "abc"[:n_parties]
    columns = np.array_split(np.arange(8), n_parties)
    partition = VerticalPartition(
        {name: X[np.ix_(r, c)] for name, r, c in zip(names, rows, columns)},
        keys={name: [f"patient {i}" for i in r] for name, r in zip(names, rows)},
        max_records=300,
        reveal_membership=True,
    )
    learner = PrivateK2StructureLearner().fit(partition)
    common = sorted(set.intersection(*map(set, rows)))
    expected = K2StructureLearner().fit(X[common])
    assert learner.n_samples_ == len(common)
    np.testing.assert_array_equal(learner.adjacency_matrix_, expected.adjacency_matrix_)
    for one, other in zip(
        learner.network_.cpts.values(), expected.network_.cpts.values()
    ):
        np.testing.assert_array_equal(one, other)
    (fact,) = (
        fact
        for fact in learner.ledger_.facts()
        if fact.what == "which records all of them have"
    )
    assert fact.kind == "membership"
    # nobody has heard how many records a party has
    assert not {str(len(r)) for r in rows} & set(str(learner.ledger_).split())


def test_alignment_is_not_done_in_silence():
    blocks = {name: np.array([[0], [1], [1]]) for name in "ab"}
    partition = VerticalPartition(blocks, keys={"a": [1, 2, 3], "b": [3, 2, 1]})
    with pytest.warns(PrivacyLeakWarning, match="which of its records all others"):
        PrivateK2StructureLearner(ordering=[0, 1]).fit(partition)
    partition.reveal_membership = True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner = PrivateK2StructureLearner(ordering=[0, 1]).fit(partition)
    learnt = [fact.what for fact in learner.ledger_.facts()]
    assert "number of keys of each of them" in learnt


@pytest.mark.parametrize(
    # parties themselves compare keys as they are spelt in the end
    "keys, code",
    [
        ({"a": ["1", " 1", "2"], "b": [1, 2, 3]}, "invalid-data"),
        ({"a": [1, 2, 3], "b": [7, 8, 9]}, "few-common"),
        ({"a": ["01", "02", "03"], "b": [1, 2, 3]}, "few-common"),
    ],
)
def test_duplicate_keys_and_no_common_record(keys, code):
    blocks = {name: np.array([[0], [1], [1]]) for name in "ab"}
    partition = VerticalPartition(blocks, keys=keys, reveal_membership=True)
    with pytest.raises(PartyError) as caught:
        PrivateK2StructureLearner(ordering=[0, 1]).fit(partition)
    assert caught.value.code == code


def align_few(monkeypatch):
    """Align padded lists, of which one has three keys; return its error, and points."""
    rows = {"a": 20, "b": 3}
    partition = VerticalPartition(
        {name: np.arange(n)[:, None] % 2 for name, n in rows.items()},
        keys={name: range(n) for name, n in rows.items()},
        max_records=20,
        reveal_membership=True,
    )
    points, multiply = [], _psi._multiply

    def watched(secret, given):
        points.extend(given)
        return multiply(secret, given)

    monkeypatch.setattr(_psi, "_multiply", watched)
    terms = PrivateK2StructureLearner()._terms(partition)
    federation = InProcessFederation(partition._blocks, private_k2, terms)
    # only the party with many keys has a limit
    federation._runners["a"]._policy = HostPolicy(min_rows=10, is_simulated=True)
    error = None
    try:
        with federation:
            federation.run()
    except PartyError as caught:
        error = caught
    return error, points


def test_attack_a_short_list_hides_behind_padding(monkeypatch):
    """Nobody else sees how short: its own party refuses, before a point leaves."""
    error, points = align_few(monkeypatch)
    assert (error.party, error.code) == ("b", "too-few-rows")
    assert not points


def test_without_a_look_at_its_own_list_three_are_known_to_the_others(monkeypatch):
    require = _columns.require

    def careless(is_met, code="refused", why=""):
        require(is_met or code in ("too-few-rows", "few-common"), code, why)

    monkeypatch.setattr(_columns, "require", careless)
    error, points = align_few(monkeypatch)
    assert error is None and len(points) >= 40


def test_on_a_public_list_of_keys_nobody_learns_who_is_in_both_files():
    X, _ = sample_asia(400, 0)
    rng = np.random.default_rng(0)
    owners, columns = ["a", "b"], np.array_split(np.arange(8), 2)
    held = rng.random((2, 400)) < 0.7
    blocks = {
        name: np.where(here[:, None], X[:, own].astype(object), None)
        for name, here, own in zip(owners, held, columns)
    }
    learner = PrivateK2StructureLearner(ordering=range(8), missing="skip")
    learner.fit(VerticalPartition(blocks))
    both, across = X[held.all(axis=0)], 0
    names = list(learner.network_.nodes)
    for node, parents in learner.network_.parents.items():
        family = [*(names.index(u) for u in parents), names.index(node)]
        if len({v // 4 for v in family}) == 2:
            across += 1
            labels = [list(learner.network_.states[names[v]]) for v in family]
            counts = np.zeros([len(found) for found in labels])
            for row in both[:, family]:
                counts[tuple(map(list.index, labels, row.tolist()))] += 1
            expected = (counts + 1) / (counts + 1).sum(axis=-1, keepdims=True)
            found = learner.network_.cpts[node]
            np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert across and len(both) < learner.n_samples_ == 400
    assert "membership" not in {fact.kind for fact in learner.ledger_.facts()}
