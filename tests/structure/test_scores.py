"""The criterion "total_variation": apportioned records, and what a record changes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skprivbn.datasets import load_asia
from skprivbn.structure import K2StructureLearner
from skprivbn.structure._scores import (
    CRITERIA,
    DistanceTerms,
    apportion,
    score_terms,
)

ONE = 1 << 24


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(any), st.integers(0, 80)
)
@settings(max_examples=50, deadline=None)
def test_one_record_more_goes_to_one_state(weights, n):
    shares = apportion(weights, n)
    assert shares.shape == (len(weights), n + 1)
    assert not shares[:, 0].any()
    steps = np.diff(shares, axis=1)
    assert np.all(steps >= 0) and np.all(steps.sum(axis=0) == 1)
    quotas = np.outer(weights, np.arange(n + 1)) / np.sum(weights)
    assert np.all(np.abs(shares - quotas) <= max(1, len(weights) / 2))


def table(rng, shape, n):
    cells = rng.multinomial(n, rng.dirichlet(np.full(np.prod(shape), 0.3)))
    return cells.reshape(shape)


def replace_one(rng, counts):
    """Return counts with one record moved to another cell."""
    flat = counts.ravel().copy()
    flat[rng.choice(np.flatnonzero(flat))] -= 1
    flat[rng.integers(flat.size)] += 1
    return flat.reshape(counts.shape)


@pytest.mark.parametrize("criterion", [*CRITERIA, "total_variation"])
def test_another_record_changes_a_score_by_the_sensitivity_at_most(criterion):
    rng = np.random.default_rng(0)
    n, shape, worst = 30, (3, 4), 0
    if criterion == "total_variation":
        # whatever the noise on the counts of the node alone
        terms = [DistanceTerms(rng.integers(-9, 20, 3), n) for _ in range(4)]
    else:
        terms = [score_terms(criterion, n, 3, 4, 10.0)]
    for _ in range(300):
        counts = table(rng, shape, n)
        changed = replace_one(rng, counts)
        for one in terms:
            worst = max(worst, abs(one.score(counts) - one.score(changed)))
    assert worst <= terms[0].sensitivity
    # the bound is no larger than it has to be: all records of a state, or all but one
    counts, changed = np.zeros(shape, dtype=int), np.zeros(shape, dtype=int)
    counts[0, 0], changed[0, 0], changed[1, 0] = n, n - 1, 1
    if criterion != "total_variation":
        change = abs(terms[0].score(counts) - terms[0].score(changed))
        assert change >= 0.99 * terms[0].sensitivity


def test_sensitivity_of_k2_is_the_logarithm_of_the_records():
    terms = score_terms("k2", 10_000, 3, 1)
    assert terms.sensitivity / ONE == pytest.approx(np.log(10_000), abs=1e-6)
    assert DistanceTerms(np.ones(2), 10_000).sensitivity == 2 * ONE
    assert score_terms("k2", 0, 2, 1).sensitivity == 0


def test_distance_of_independent_and_of_equal_columns():
    terms = DistanceTerms(np.array([60, 40]), 100)
    independent = np.array([[30, 30], [20, 20]])
    equal = np.array([[60, 0], [0, 40]])
    penalty = -terms.constant(2)
    assert terms.score(independent) == -penalty
    # 24 records would have to move
    assert terms.score(equal) == round(2 * 60 * 40 / 100) * ONE - penalty
    assert terms.bound(2, 2) >= abs(terms.score(equal))


def test_counts_of_noise_only_are_no_distribution():
    terms = DistanceTerms(np.array([-3, -1, -2]), 9)
    np.testing.assert_allclose(terms.probabilities, 1 / 3)


def test_pooled_search_finds_the_network_of_asia():
    asia = load_asia()
    X = asia.encode(asia.sample(20_000, random_state=0))
    learner = K2StructureLearner(
        ordering=asia.topological_order, criterion="total_variation", max_parents=2
    ).fit(X)
    truth = np.zeros((8, 8), dtype=bool)
    for node, parents in asia.parents.items():
        for parent in parents:
            truth[asia.nodes.index(parent), asia.nodes.index(node)] = True
    assert (learner.adjacency_matrix_ != truth).sum() <= 2
