"""Tables counted fast are the tables counted one by one, and none is asked twice."""

import numpy as np
import pytest

from skprivbn.bayesian_network._tables import count_rows
from skprivbn.structure.rows._tables import AskedTables, count_extended, one_hot

SIZES = [2, 3, 5, 4, 2]


@pytest.fixture
def codes():
    rng = np.random.default_rng(0)
    return np.stack([rng.integers(size, size=300) for size in SIZES], axis=1)


@pytest.mark.parametrize("base", [[], [1], [4, 0], [2, 3, 1]])
@pytest.mark.parametrize("fast", [True, False])
def test_every_way_to_count_gives_the_same_tables(codes, base, fast):
    candidates = [v for v in (3, 0, 2, 1, 4) if v not in base]
    indicators = one_hot(codes, SIZES) if fast else None
    counts = count_extended(codes, SIZES, base, candidates, indicators)
    expected = [count_rows(codes, [*base, v], SIZES).ravel() for v in candidates]
    np.testing.assert_array_equal(counts, np.concatenate(expected))


@pytest.mark.parametrize("fast", [True, False])
def test_rows_are_left_out_of_tables_that_need_what_they_lack(codes, fast):
    codes[:40, 1] = codes[30:80, 2] = -1
    indicators = one_hot(codes, SIZES) if fast else None
    counts = count_extended(codes, SIZES, [1], [2, 0], indicators)
    both = codes[(codes[:, 1] >= 0) & (codes[:, 2] >= 0)]
    one = codes[codes[:, 1] >= 0]
    expected = [count_rows(both, [1, 2], SIZES), count_rows(one, [1, 0], SIZES)]
    np.testing.assert_array_equal(counts, np.concatenate([e.ravel() for e in expected]))


def test_many_rows_are_counted_in_chunks(codes, monkeypatch):
    whole = count_extended(codes, SIZES, [2, 3], [0, 1])
    monkeypatch.setattr("skprivbn.structure.rows._tables._CHUNK", 64)
    np.testing.assert_array_equal(count_extended(codes, SIZES, [2, 3], [0, 1]), whole)


def test_no_table_is_asked_for_twice_nor_if_it_follows_from_another(codes):
    asked = []

    def count(requests):
        asked.extend(frozenset((*base, v)) for base, found in requests for v in found)
        return np.concatenate([count_extended(codes, SIZES, *r) for r in requests])

    tables = AskedTables(SIZES, count)
    tables.fetch([([0], [1, 2]), ([1], [0, 2]), ([2, 0], [1])])
    tables.fetch([([1, 2], [0]), ([2], [0])])
    for variables in ([0], [0, 2], [0, 1, 2]):
        np.testing.assert_array_equal(
            tables(variables), count_rows(codes, variables, SIZES)
        )
    np.testing.assert_array_equal(
        tables([1], within=[0, 1]), count_rows(codes, [1], SIZES)
    )
    np.testing.assert_array_equal(
        tables.family([2, 0], 1), count_rows(codes, [2, 0, 1], SIZES)
    )
    assert len(asked) == len(set(asked)) == 4
    assert {frozenset(key) for key in tables.asked} == set(asked)


def test_tables_that_do_not_agree_are_asked_for_one_by_one(codes):
    codes[:50, 2] = -1
    tables = AskedTables(
        SIZES, lambda asked: count_extended(codes, SIZES, *asked[0]), consistent=False
    )
    tables.fetch([([0], [2])])
    assert tables([0, 2]).sum() == 250 and tables([0]).sum() == 300


def test_large_batches_are_split(codes, monkeypatch):
    monkeypatch.setattr("skprivbn.structure.rows._tables.ROUND_CELLS", 20)
    batches = []

    def count(requests):
        batches.append(requests)
        return np.concatenate([count_extended(codes, SIZES, *r) for r in requests])

    AskedTables(SIZES, count).fetch([([0], [1]), ([1], [2]), ([2], [3])])
    assert len(batches) == 3
