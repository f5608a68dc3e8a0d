"""Shares of tables add up to the tables, whoever holds which column."""

from itertools import combinations, permutations, product

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skprivbn.programs._shared_tables import ColumnTables, differ_in_few
from tests.crypto.shares._sides import NAMES, run_sides

#: the last column does not vary
N_STATES = (2, 3, 4, 1)
TABLES = [t for n in (1, 2, 3) for c in combinations(range(4), n) for t in [c, c[::-1]]]
TABLES = list(dict.fromkeys(TABLES)) + [next(permutations((2, 3, 0, 1)))]


def table_of(X, variables):
    table = np.zeros([N_STATES[v] for v in variables], dtype=int)
    np.add.at(table, tuple(X[:, list(variables)].T), 1)
    return table


@pytest.mark.parametrize("ring", [np.uint16, np.uint64])
@pytest.mark.parametrize("n_parties", [1, 2, 3])
def test_shares_add_up_to_tables(n_parties, ring):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(size, size=90) for size in N_STATES])
    owners = [NAMES[v % n_parties] for v in range(4)]

    def side(talk, links, i):
        codes = {v: X[:, v] for v in range(4) if owners[v] == talk.name}
        tables = ColumnTables(talk, links, owners, N_STATES, codes, ring)
        first = yield from tables.share(TABLES)
        return first, (yield from tables.share(TABLES[:5]))

    found, again = zip(*run_sides(side, n_parties))
    for shares in (found, again):
        for variables, own in zip(TABLES, zip(*shares)):
            assert {share.dtype for share in own} == {np.dtype(ring)}
            total = np.sum(own, axis=0, dtype=ring)
            assert_array_equal(total, table_of(X, variables))
    if n_parties > 1:
        # a share alone is other numbers each time
        crossing = TABLES.index((0, 1))
        assert not np.array_equal(found[0][crossing], table_of(X, (0, 1)))


@pytest.mark.parametrize("least", [3, 4, 5])
@pytest.mark.parametrize("n_parties", [1, 2, 3])
def test_which_tables_have_small_counts(n_parties, least):
    """Columns are at one holder, at two or three; four rows are above, at, below it."""
    X = np.repeat([[0, 0, 0, 0], [1, 1, 1, 0], [1, 2, 3, 0]], [4, 20, 20], axis=0)
    owners = [NAMES[v % n_parties] for v in range(4)]
    asked = [(0, 1), (0, 1, 2), (1, 2), (2,), (0, 3), (3,), (1, 0)]

    def side(talk, links, i):
        codes = {v: X[:, v] for v in range(4) if owners[v] == talk.name}
        tables = ColumnTables(talk, links, owners, N_STATES, codes, np.uint8)
        few = yield from tables.are_few(asked, least)
        return few, (yield from tables.are_few(asked[:3], 1))

    for i, (few, none) in enumerate(run_sides(side, n_parties)):
        held = [any(owners[v] == NAMES[i] for v in variables) for variables in asked]
        # all rows have the state of the last column
        expected = [
            least > 4 and is_held and v != (3,) for is_held, v in zip(held, asked)
        ]
        assert few.tolist() == expected
        assert not none.any()


def test_only_bits_say_which_tables_have_small_counts():
    """All tables alike but for their counts: what is said has the same form."""
    said = []
    for n_rare in (0, 1, 2, 3):
        X = np.repeat([[0, 0], [1, 1]], [60 - n_rare, n_rare], axis=0)

        def side(talk, links, i, X=X):
            tables = ColumnTables(talk, links, NAMES, (2, 2), {i: X[:, i]}, np.uint8)
            return (yield from tables.are_few([(0, 1)], 3))

        transcript: list = []
        found = run_sides(side, 2, transcript=transcript)
        assert [few.tolist() for few in found] == [[n_rare in (1, 2)]] * 2
        said.append([(a, b, _form(payload)) for a, b, payload in transcript])
    assert all(words == said[0] for words in said)


def _form(payload):
    return sorted(
        (label, len(part)) for label, parts in payload.items() for part in parts
    )


@pytest.mark.parametrize("seed", range(60))
def test_columns_are_alike_if_some_of_their_labels_nearly_are(seed):
    """By trying all sets of labels of both."""
    rng = np.random.default_rng(seed)
    shape = rng.integers(1, 5, 2)
    table = rng.integers(1, 9, shape) * (rng.random(shape) < 0.6)
    sizes = []
    for rows, columns in product(*(product([0, 1], repeat=n) for n in shape)):
        differ = np.not_equal.outer(rows, columns)
        sizes.append(table[differ].sum())
    smallest = min((size for size in sizes if size), default=np.inf)
    for least in (2, 5, 9):
        assert differ_in_few(table, least) == (smallest < least)
