"""Tables counted fast are the tables counted one by one, and none is asked twice."""

import numpy as np
import pytest

from skprivbn.bayesian_network._labels import count_rows
from skprivbn.structure._tables import AskedTables, RowCounts

SIZES = [2, 3, 5, 4, 2]


@pytest.fixture
def codes():
    rng = np.random.default_rng(0)
    return np.stack([rng.integers(size, size=300) for size in SIZES], axis=1)


def count(codes, asked, fast=True):
    """Count tables, by sets of rows or row by row."""
    counts = RowCounts(codes, SIZES)
    if not fast:
        counts._rows_of = None
    return counts.count(asked)


def asking(tables, wanted):
    """Ask tables that are at hand."""
    assert not list(tables.asking(wanted))


@pytest.mark.parametrize("base", [[], [1], [4, 0], [2, 3, 1]])
@pytest.mark.parametrize("fast", [True, False])
def test_every_way_to_count_gives_the_same_tables(codes, base, fast):
    asked = [(*base, v) for v in (3, 0, 2, 1, 4) if v not in base]
    expected = [count_rows(codes, variables, SIZES).ravel() for variables in asked]
    found = count(codes, asked, fast)
    np.testing.assert_array_equal(found, np.concatenate(expected))


@pytest.mark.parametrize("fast", [True, False])
def test_rows_are_left_out_of_tables_that_need_what_they_lack(codes, fast):
    codes[:40, 1] = codes[30:80, 2] = -1
    counts = count(codes, [(1, 2), (1, 0)], fast)
    both = codes[(codes[:, 1] >= 0) & (codes[:, 2] >= 0)]
    one = codes[codes[:, 1] >= 0]
    expected = [count_rows(both, [1, 2], SIZES), count_rows(one, [1, 0], SIZES)]
    np.testing.assert_array_equal(counts, np.concatenate([e.ravel() for e in expected]))


def test_many_rows_are_counted_in_chunks(codes, monkeypatch):
    asked = [(2, 3, 0), (2, 3, 1)]
    whole = count(codes, asked, fast=False)
    np.testing.assert_array_equal(count(codes, asked), whole)
    for name in ("_CHUNK", "_WORDS"):
        monkeypatch.setattr(f"skprivbn.structure._tables.{name}", 16)
    np.testing.assert_array_equal(count(codes, asked, fast=False), whole)
    np.testing.assert_array_equal(count(codes, asked), whole)


def test_no_rows_have_empty_tables(codes):
    assert not count(codes[:0], [(2, 3, 0), (1,)]).any()


def test_no_table_is_asked_for_twice_nor_if_it_follows_from_another(codes):
    asked = []

    def counted(wanted):
        asked.extend(map(frozenset, wanted))
        return count(codes, wanted)

    tables = AskedTables(SIZES, counted)
    asking(tables, [(0, 3), (3, 0), (2, 0, 1), (1, 0), (2,)])
    asking(tables, [(1, 2, 0), (2, 0), (0,)])
    for variables in ([0], [0, 2], [0, 1, 2], [3]):
        expected = count_rows(codes, variables, SIZES)
        np.testing.assert_array_equal(tables(variables), expected)
    expected = count_rows(codes, [2, 0, 1], SIZES)
    np.testing.assert_array_equal(tables.ordered([2, 0, 1]), expected)
    assert asked == [{0, 3}, {0, 1, 2}]
    assert tables.asked == [(0, 3), (0, 1, 2)]


def test_tables_that_do_not_agree_are_asked_for_one_by_one(codes):
    codes[:50, 2] = -1
    tables = AskedTables(SIZES, lambda asked: count(codes, asked), consistent=False)
    asking(tables, [(0, 2)])
    assert tables([0, 2]).sum() == 250 and tables([0]).sum() == 300


def test_tables_that_nobody_counts_have_to_be_asked_for():
    tables = AskedTables(SIZES)
    assert next(tables.asking([(1, 0)])) == ("tables", [(1, 0)])
    with pytest.raises(LookupError, match="were not asked for"):
        tables([0, 1])


def test_large_batches_are_split(codes, monkeypatch):
    monkeypatch.setattr("skprivbn.structure._tables.ROUND_CELLS", 20)
    batches = []

    def counted(asked):
        batches.append(asked)
        return count(codes, asked)

    asking(AskedTables(SIZES, counted), [(0, 1), (1, 2), (2, 3)])
    assert len(batches) == 3
