"""Exact inference against listing every configuration."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skprivbn.graphical_model._elimination import EliminationPlan, elimination_order
from tests.graphical_model.brute_force import SHAPES, SIZES, joint, marginal


def random_tables(cliques, sizes, rng, n_batch=1, spread=2.0):
    return [
        np.exp(spread * rng.normal(size=(n_batch, *(sizes[i] for i in clique))))
        for clique in cliques
    ]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_partition_function_and_marginals_of_every_shape(shape, seed):
    cliques, rng = SHAPES[shape], np.random.default_rng(seed)
    tables = random_tables(cliques, SIZES, rng)
    plan = EliminationPlan(cliques, SIZES)
    log_partition, tape = plan.forward(tables)
    table = joint(cliques, SIZES, [t[0] for t in tables])
    assert_allclose(log_partition[0], np.log(table.sum()), rtol=1e-12, atol=1e-12)
    for clique, found in zip(cliques, plan.backward(tape)):
        assert_allclose(found[0], marginal(table / table.sum(), clique), atol=1e-10)


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs(seed):
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 8)
    sizes = tuple(rng.integers(1, 4, n))
    cliques = [
        tuple(rng.permutation(n)[: rng.integers(0, min(n, 4) + 1)])
        for _ in range(rng.integers(0, 10))
    ]
    tables = random_tables(cliques, sizes, rng)
    plan = EliminationPlan(cliques, sizes)
    log_partition, tape = plan.forward(tables)
    table = joint(cliques, sizes, [t[0] for t in tables])
    assert_allclose(log_partition[0], np.log(table.sum()), atol=1e-10)
    for clique, found in zip(cliques, plan.backward(tape)):
        assert_allclose(found[0], marginal(table / table.sum(), clique), atol=1e-10)


def test_batches_are_independent_and_broadcast():
    rng = np.random.default_rng(0)
    cliques = SHAPES["third-order chain"]
    tables = random_tables(cliques, SIZES, rng, n_batch=3)
    tables[1] = tables[1][:1]
    plan = EliminationPlan(cliques, SIZES)
    log_partition, tape = plan.forward(tables)
    marginals = plan.backward(tape)
    for b in range(3):
        own = [t[b % len(t)][None] for t in tables]
        alone, alone_tape = plan.forward(own)
        assert_allclose(log_partition[b], alone[0], rtol=1e-12)
        for batch, single in zip(marginals, plan.backward(alone_tape)):
            assert_allclose(batch[b], single[0], atol=1e-13)


def test_extreme_potentials_neither_overflow_nor_lose_mass():
    rng = np.random.default_rng(1)
    cliques = SHAPES["complete"]
    logs = [rng.uniform(-30, 30, size=[SIZES[i] for i in c]) for c in cliques]
    plan = EliminationPlan(cliques, SIZES)
    log_partition, tape = plan.forward([np.exp(t - t.max())[None] for t in logs])
    total = np.zeros(SIZES)
    for clique, table in zip(cliques, logs):
        total = total + np.log(joint([clique], SIZES, [np.exp(table)]))
    peak = total.max()
    table = np.exp(total - peak)
    expected = np.log(table.sum()) + peak - sum(t.max() for t in logs)
    assert_allclose(log_partition[0], expected, rtol=1e-12)
    for clique, found in zip(cliques, plan.backward(tape)):
        assert_allclose(found[0], marginal(table / table.sum(), clique), atol=1e-10)


def test_zero_potentials_are_respected():
    table = np.array([[1.0, 0.0], [0.0, 1.0]])
    plan = EliminationPlan([(0, 1), (1, 2)], (2, 2, 2))
    log_partition, tape = plan.forward([table[None], table[None]])
    assert_allclose(np.exp(log_partition), 2.0)
    for found in plan.backward(tape):
        assert_allclose(found[0], table / 2)


def test_impossible_field_has_no_mass():
    plan = EliminationPlan([(0, 1)], (2, 2))
    log_partition, _ = plan.forward([np.zeros((1, 2, 2))])
    assert np.isneginf(log_partition[0])


def test_samples_follow_the_field():
    rng = np.random.default_rng(2)
    cliques = SHAPES["cycle"]
    tables = random_tables(cliques, SIZES, rng, spread=1.0)
    plan = EliminationPlan(cliques, SIZES)
    _, tape = plan.forward(tables)
    n = 40_000
    codes = plan.sample(tape, n, np.random.RandomState(0))
    expected = joint(cliques, SIZES, [t[0] for t in tables])
    expected = n * expected / expected.sum()
    observed = np.zeros(SIZES)
    np.add.at(observed, tuple(codes.T), 1)
    chi_square = ((observed - expected) ** 2 / expected).sum()
    n_cells = expected.size
    # five standard deviations above the mean of a chi-square distribution
    assert chi_square < n_cells + 5 * np.sqrt(2 * n_cells)


def test_order_finds_the_treewidth_of_chains_and_trees():
    chain = [(i, j) for i in range(30) for j in range(i + 1, min(i + 4, 30))]
    order, largest = elimination_order(chain, [10] * 30)
    assert sorted(order) == list(range(30))
    assert largest == 10**4
    star = [(0, i) for i in range(1, 50)]
    assert elimination_order(star, [5] * 50)[1] == 25


def test_rounded_samples_keep_marginals_better_than_a_bootstrap():
    rng = np.random.default_rng(5)
    cliques, sizes = (
        [(i, i + 1) for i in range(7)] + [(0, 3, 6)],
        (3, 4, 2, 5, 3, 2, 4, 6),
    )
    plan = EliminationPlan(cliques, (*sizes, 5))  # the last one is free
    _, tape = plan.forward(random_tables(cliques, sizes, rng, spread=1.0))
    n, errors = 2000, {}
    asked = plan.backward(tape)
    for rounded in (False, True):
        codes = plan.sample(tape, n, np.random.RandomState(0), rounded)
        errors[rounded] = {}
        for clique, expected in zip(cliques, asked):
            counts = np.zeros(expected.shape[1:])
            np.add.at(counts, tuple(codes[:, i] for i in clique), 1)
            gap = counts / n - expected[0]
            errors[rounded][clique] = np.abs(gap).sum() / 2
            for axis, i in enumerate(clique):
                others = tuple(a for a in range(len(clique)) if a != axis)
                single = np.abs(gap.sum(axis=others)).sum() / 2
                errors[rounded][(i,)] = single
        free = np.bincount(codes[:, 8], minlength=5)
        assert (np.ptp(free) == 0) == rounded
    singles = [(i,) for i in range(8)]
    assert max(errors[True][s] for s in singles) < 0.005
    for clique, error in errors[True].items():
        assert error < 0.7 * errors[False][clique], clique


def test_rows_of_a_rounded_sample_have_the_fields_probabilities():
    rng = np.random.default_rng(6)
    cliques = SHAPES["cycle"]
    tables = random_tables(cliques, SIZES, rng, spread=1.0)
    plan = EliminationPlan(cliques, SIZES)
    _, tape = plan.forward(tables)
    random_state, n = np.random.RandomState(0), 4000
    codes = [plan.sample(tape, 3, random_state, rounded=True)[0] for _ in range(n)]
    expected = joint(cliques, SIZES, [t[0] for t in tables])
    expected = n * expected / expected.sum()
    observed = np.zeros(SIZES)
    np.add.at(observed, tuple(np.transpose(codes)), 1)
    chi_square = ((observed - expected) ** 2 / expected).sum()
    n_cells = expected.size
    assert chi_square < n_cells + 5 * np.sqrt(2 * n_cells)


def test_rounding_makes_no_impossible_row():
    table = np.array([[1.0, 0.0], [0.0, 1e-12]])
    plan = EliminationPlan([(0, 1), (1, 2)], (2, 2, 2))
    _, tape = plan.forward([table[None], np.eye(2)[None]])
    codes = plan.sample(tape, 1000, np.random.RandomState(0), rounded=True)
    assert np.all(codes == codes[:, :1])
