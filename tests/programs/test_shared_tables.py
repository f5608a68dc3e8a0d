"""Shares of tables add up to the tables, whoever holds which column."""

from itertools import combinations, permutations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skprivbn.programs._shared_tables import ColumnTables
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
