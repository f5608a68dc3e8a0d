"""Covariance between columns of different parties, by secure products."""

import numpy as np
import pytest

from skprivbn.datasets import make_linear_sem
from skprivbn.exceptions import PartitionError, PartyError, PrivacyLeakWarning
from skprivbn.metrics import structural_hamming_distance
from skprivbn.partition import VerticalPartition
from skprivbn.structure import FederatedGaussianBayesianNetwork
from skprivbn.structure.gaussian import _columns
from skprivbn.structure.gaussian._columns import (
    BITS,
    ColumnMomentsTerms,
    bit_weights,
    column_moments,
    to_bits,
)


def test_bits_are_twos_complement():
    numbers = np.array([[0, 1, -1, 2 ** (BITS - 1) - 1, -(2 ** (BITS - 1))]])
    bits = to_bits(numbers, BITS).reshape(5, BITS).astype(np.uint64)
    back = (bits * bit_weights(BITS)).sum(axis=1, dtype=np.uint64).view(np.int64)
    np.testing.assert_array_equal(back, numbers[0])


def federate(X, parties):
    partition = VerticalPartition(
        {name: X[:, held] for name, held in parties.items()},
        {name: [f"x{j}" for j in held] for name, held in parties.items()},
        order=[f"x{j}" for j in range(X.shape[1])],
    )
    owners = [partition.owners[name] for name in partition.feature_names]
    terms = ColumnMomentsTerms(owners, has_keys=False, max_records=None)
    with partition.federate(column_moments, terms) as federation:
        return federation.run()


@pytest.mark.parametrize(
    "parties",
    [{"a": [0, 2], "b": [1, 3, 4]}, {"a": [4], "b": [1, 0], "c": [3, 2]}],
    ids=["two", "three"],
)
def test_moments_equal_those_of_the_joined_table(parties):
    X, _ = make_linear_sem(600, 5, random_state=0)
    X = X * [1, 100, 0.01, 1, 1] + [0, 5, 7, -3, 1000]
    found = federate(X, parties)
    np.testing.assert_allclose(found["mean"], X.mean(axis=0))
    scale = X.std(axis=0)
    error = np.abs(found["covariance"] - np.cov(X.T, bias=True)) / np.outer(
        scale, scale
    )
    # rounding errors are independent: 2**-13 / sqrt(12) each, averaged over records
    assert error.max() < 5 * 2.0**-13 / np.sqrt(6 * 600)


@pytest.mark.slow
def test_shares_alone_look_random(monkeypatch):
    X, _ = make_linear_sem(20, 2, random_state=0)
    opened, open_numbers = [], _columns.open_numbers

    def watched(talk, roster, shares):
        opened.append(int(shares[0, 1]))
        return open_numbers(talk, roster, shares)

    monkeypatch.setattr(_columns, "open_numbers", watched)
    for _ in range(8):
        federate(X, {"a": [0], "b": [1]})
    seen = list(zip(opened[::2], opened[1::2], strict=True))
    totals = {(one + other) % 2**64 for one, other in seen}
    assert len(totals) == 1
    high = np.array(seen, dtype=float) / 2.0**64
    # uniform: fresh each time, spread over the whole ring
    assert len({one for one, _ in seen}) == 8
    assert high[:, 0].max() > 0.25
    assert high[:, 0].min() < 0.75
    assert high[:, 0].std() > 0.05


def test_summaries_that_a_peer_cannot_have_are_refused(monkeypatch):
    X, _ = make_linear_sem(40, 2, random_state=0)
    summary = _columns.Standardised.summary
    said = [("n_rows", 40.0), ("n_rows", 39), ("mean", np.zeros(2)), ("scale", None)]
    for word, wrong in said:
        with monkeypatch.context() as patched:
            patched.setattr(
                _columns.Standardised,
                "summary",
                lambda self, word=word, wrong=wrong: summary(self) | {word: wrong},
            )
            with pytest.raises(PartyError) as caught:
                federate(X, {"a": [0], "b": [1]})
        assert caught.value.code == "not-authentic"


def test_estimator_finds_the_graph_across_owners():
    X, weights = make_linear_sem(400, 5, random_state=1)
    parties = {"clinic": [0, 1, 4], "laboratory": [2, 3]}
    model = FederatedGaussianBayesianNetwork(parties=parties).fit(X)
    assert structural_hamming_distance(weights, model.adjacency_matrix_) == 0
    rows = FederatedGaussianBayesianNetwork().fit(X, party=np.arange(400) % 3)
    np.testing.assert_allclose(model.weights_, rows.weights_, atol=1e-3)
    assert model.score(X) == pytest.approx(rows.score(X), abs=1e-3)


def test_records_are_aligned_by_keys():
    """Each party has records of its own, in an order of its own."""
    X, _ = make_linear_sem(120, 4, random_state=1)
    rng = np.random.default_rng(0)
    held = {"a": rng.permutation(100), "b": rng.permutation(np.arange(10, 120))}
    columns = {"a": [0, 3], "b": [1, 2]}
    partition = VerticalPartition(
        {name: X[np.ix_(held[name], columns[name])] for name in held},
        {name: [f"x{j}" for j in columns[name]] for name in held},
        keys={name: [f"patient {i}" for i in held[name]] for name in held},
        reveal_membership=True,
        order=[f"x{j}" for j in range(4)],
    )
    model = FederatedGaussianBayesianNetwork().fit(partition)
    joined = FederatedGaussianBayesianNetwork(parties=columns).fit(X[10:100])
    assert model.n_samples_ == 90
    np.testing.assert_array_equal(model.adjacency_matrix_, joined.adjacency_matrix_)
    np.testing.assert_allclose(model.weights_, joined.weights_, atol=1e-3)
    assert "which records all of them have" in str(
        list(model.ledger_.who_learns_what())
    )


def test_bad_input():
    X, _ = make_linear_sem(60, 3, random_state=1)
    parties = {"a": [0], "b": [1, 2]}
    with pytest.raises(PartitionError, match="give one"):
        FederatedGaussianBayesianNetwork(parties=parties).fit(X, party=np.ones(60))
    with pytest.raises(ValueError, match="epsilon=1.0 is not available"):
        FederatedGaussianBayesianNetwork(
            parties=parties, epsilon=1.0, bounds=(-9, 9)
        ).fit(X)
    far = X.copy()
    far[:, 1] = 0.0
    with pytest.raises(PartyError, match="'b'"):
        FederatedGaussianBayesianNetwork(parties=parties).fit(far)
    outlier = np.vstack([np.tile(X, (10, 1)), [[0.0, 1e6, 0.0]]])
    with pytest.raises(PartyError, match="too large"):
        FederatedGaussianBayesianNetwork(parties=parties).fit(outlier)


def test_one_holder_of_all_columns_is_told_that_nothing_is_hidden():
    X, _ = make_linear_sem(100, 3, random_state=0)
    learner = FederatedGaussianBayesianNetwork(parties={"clinic": [0, 1, 2]})
    with pytest.warns(PrivacyLeakWarning, match="one party's.*own in parties="):
        learner.fit(X)


def count_records_in_digits(monkeypatch):
    """Have the second party multiply by 1, 2**18, 2**36 and zeros; return the first."""
    honest, integers = _columns.share_products, {}

    def lie(me, talk, links, owners, own, batch):
        integers[me.name] = own
        if me.name == "b":
            own = np.zeros_like(own)
            own[:3, 0] = 2 ** (BITS * np.arange(3))
        return honest(me, talk, links, owners, own, batch)

    monkeypatch.setattr(_columns, "share_products", lie)
    return integers


def test_attack_products_that_no_column_has_end_the_fit(monkeypatch):
    X, _ = make_linear_sem(400, 2, random_state=0)
    count_records_in_digits(monkeypatch)
    with pytest.raises(PartyError) as caught:
        federate(X, {"a": [0], "b": [1]})
    assert (caught.value.party, caught.value.code) == ("a", "inconsistent")


def test_without_a_look_at_them_products_of_three_records_pass(monkeypatch):
    X, _ = make_linear_sem(400, 2, random_state=0)
    integers = count_records_in_digits(monkeypatch)
    monkeypatch.setattr(_columns, "can_be_correlations", lambda correlation: True)
    found = federate(X, {"a": [0], "b": [1]})
    scale = X.std(axis=0).prod() / 400 / 4.0**_columns.FRACTION_BITS
    number, read = round(found["covariance"][0, 1] / scale), []
    for _ in range(3):
        read.append((number + 2 ** (BITS - 1)) % 2**BITS - 2 ** (BITS - 1))
        number = (number - read[-1]) >> BITS
    # the lowest bits are lost to floating point, with the first record
    np.testing.assert_array_equal(read[1:], integers["a"][1:3, 0])
