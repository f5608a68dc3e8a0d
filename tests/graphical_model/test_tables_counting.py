"""Tables, and how much one person can change them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skprivbn.graphical_model._searches import GivenTables
from skprivbn.graphical_model._tables import (
    FRACTION_BITS,
    Contribution,
    TableLayout,
    count_tables,
    norms,
    resolve_cliques,
    resolve_ties,
)

NODES = ["a", "b", "c"]


def test_named_structures():
    assert resolve_cliques("chain", NODES) == [(0, 1), (1, 2)]
    assert resolve_cliques("tree", NODES) == [(0, 2), (1, 2)]
    assert resolve_cliques("chain", ["a"]) == [(0,)]
    assert resolve_cliques([("c", "a"), 1], NODES) == [(2, 0), (1,)]
    assert resolve_cliques([(-1, 0)], NODES) == [(2, 0)]


@pytest.mark.parametrize(
    "cliques, message",
    [
        ([("a", "z")], "'z', which is no column"),
        ([(0, 7)], "7, which is no column"),
        ([("a", "a")], "twice"),
        ([("a", "b"), ("b", "a")], "given twice"),
        ([()], "empty"),
        ([], "empty"),
    ],
)
def test_bad_cliques(cliques, message):
    with pytest.raises(ValueError, match=message):
        resolve_cliques(cliques, NODES)


def test_ties_of_a_time_series():
    cliques, ties = resolve_ties([(0, 1), (1, 2), (0, 2)], True)
    assert cliques == [(0,), (0, 1), (1, 2), (0, 2)]
    assert_array_equal(ties, [0, 1, 1, 2])


def loop_count(codes, layout):
    counts = np.zeros(layout.n_parameters, dtype=int)
    tables = layout.split(counts)
    for row in codes:
        for clique, table in zip(layout.cliques, layout.ties):
            if all(row[i] >= 0 for i in clique):
                tables[table][tuple(row[i] for i in clique)] += 1
    return counts


@pytest.mark.parametrize("ties", [None, [0, 0, 1]])
def test_counts_equal_a_plain_loop(ties):
    rng = np.random.default_rng(0)
    codes = rng.integers(-1, 3, size=(200, 4))
    layout = TableLayout([(0, 1), (2, 1), (3,)], [3] * 4, ties)
    found = count_tables(codes, layout, Contribution())
    assert found.dtype == np.int64
    assert_array_equal(found, loop_count(codes, layout))


def test_weights_count_rows_several_times():
    rng = np.random.default_rng(0)
    codes, weight = rng.integers(3, size=(50, 2)), rng.integers(0, 4, size=50)
    layout = TableLayout([(0, 1)], [3, 3])
    found = count_tables(codes, layout, Contribution(max_weight=3), weight=weight)
    repeated = count_tables(np.repeat(codes, weight, axis=0), layout, Contribution())
    assert_array_equal(found, repeated)


CONTRIBUTIONS = {
    "record": Contribution(),
    "weights": Contribution(max_weight=3),
    "normalize": Contribution("normalize"),
    "normalize, null": Contribution("normalize", null_codes=(0, 0, 0)),
    "clip": Contribution("clip", max_records=2),
    "clip, weights": Contribution("clip", max_records=2, max_weight=2),
}


@pytest.mark.parametrize("name", CONTRIBUTIONS)
@pytest.mark.parametrize("ties", [(0, 1, 2), (0, 1, 1)])
def test_nobody_exceeds_the_sensitivity(name, ties):
    contribution, rng = CONTRIBUTIONS[name], np.random.default_rng(1)
    layout = TableLayout([(0,), (0, 1), (1, 2)], [3] * 3, ties)
    per_record = contribution.per_clique
    search = GivenTables(1.0, 0.0, 3, per_record, ties=layout.ties)
    l1, l2 = norms(search.changes)
    worst = 0.0
    for trial in range(200):
        n_own = 1 if contribution.kind == "record" else rng.integers(1, 8)
        n_all = n_own + 5
        # half of the time all records are the same, the worst case of the L2 norm
        codes = rng.integers(3, size=(n_all, 3))
        if trial % 2:
            codes[:n_own] = rng.integers(3)
        person = np.r_[np.zeros(n_own, dtype=int), rng.integers(1, 4, size=5)]
        weight = None
        if contribution.max_weight > 1:
            weight = np.full(n_all, contribution.max_weight)
        individual = None if contribution.kind == "record" else person
        keep = person > 0
        with_person = count_tables(codes, layout, contribution, individual, weight)
        without = count_tables(
            codes[keep],
            layout,
            contribution,
            None if individual is None else individual[keep],
            None if weight is None else weight[keep],
        )
        change = np.abs(with_person - without)
        assert change.sum() <= l1
        assert np.sqrt((change**2).sum()) <= l2 + 1e-9
        worst = max(worst, change.sum() / l1)
    assert worst > 0.9


def test_normalised_contributions():
    layout = TableLayout([(0, 1)], [2, 2])
    codes = np.array([[0, 0], [1, 1], [1, 1], [0, 1], [0, 0]])
    individual = np.array(["p", "p", "p", "q", "q"])
    contribution = Contribution("normalize", null_codes=(0, 0))
    table = layout.split(count_tables(codes, layout, contribution, individual))[0]
    # p has two records that are not all null, q has one
    assert_allclose(table / 2**FRACTION_BITS, [[0, 1], [0, 1]])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"kind": "all"}, "unknown kind"),
        ({"kind": "clip", "max_records": 0}, "at least 1"),
        ({"max_weight": 0}, "at least 1"),
        # two rows of a person come before the 1.01st, for the noise of one
        ({"kind": "clip", "max_records": 1.01}, "integers"),
        ({"max_weight": float("nan")}, "integers"),
        ({"kind": "normalize", "max_records": 5}, "'clip' only"),
    ],
)
def test_a_contribution_that_no_rule_bounds_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Contribution(**arguments)
