"""Private K2 on records that are aligned by keys."""

import warnings

import numpy as np
import pytest

from skprivbn.exceptions import PartyError, PrivacyLeakWarning
from skprivbn.partition import VerticalPartition
from skprivbn.structure import K2StructureLearner, PrivateK2StructureLearner
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
    "keys",
    [{"a": ["1", " 1", "2"], "b": [1, 2, 3]}, {"a": [1, 2, 3], "b": [7, 8, 9]}],
)
def test_duplicate_keys_and_no_common_record(keys):
    blocks = {name: np.array([[0], [1], [1]]) for name in "ab"}
    with pytest.raises(PartyError):
        partition = VerticalPartition(blocks, keys=keys, reveal_membership=True)
        PrivateK2StructureLearner().fit(partition)
