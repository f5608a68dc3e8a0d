"""What is counted of a family, and what follows from counts that are known."""

from itertools import product
from math import prod

import numpy as np
import pytest

from skprivbn.structure.k2._crossing import Crossing, OwnColumns
from skprivbn.structure.k2._shared_search import K2Plan

N = 200
RING = np.dtype(np.uint16)
NAMES = ("alice", "bob", "carol")
#: variables 0, 1, 2 are a node and its parents so far, 3 and 4 candidates
N_STATES = (3, 2, 4, 3, 2)
CODES = np.random.default_rng(0).integers(0, N_STATES, (N, len(N_STATES)))


def true_counts(family):
    joint = np.ravel_multi_index(CODES[:, family].T, [N_STATES[v] for v in family])
    n_cells = prod(N_STATES[v] for v in family)
    counts = np.bincount(joint, minlength=n_cells)
    return counts.reshape([N_STATES[v] for v in family])


def shares_of(values, names, rng):
    """Shares that add up to values, random but the last."""
    values = np.asarray(values).astype(RING)
    shares = {name: rng.integers(0, 2**16, values.shape, RING) for name in names[1:]}
    total = sum(shares.values(), np.zeros_like(values))
    return {names[0]: values - total, **shares}


class Dealer:
    """Hands out shares of all counts that the steps before have left."""

    def __init__(self, owners, family, rng):
        self.shares = {}
        known = [family, *((*family[:-1], c) for c in (3, 4))]
        known += [(later, 3) for later in family] + [(4, later) for later in family]
        for subset in known:
            holders = [name for name in NAMES if name in {owners[v] for v in subset}]
            self.shares[subset] = shares_of(true_counts(subset), holders, rng)

    def known_to(self, name):
        return lambda family: self.shares.get(family, {}).get(name)


def placements():
    for size in (1, 2, 3):
        for owners in product(NAMES, repeat=size):
            if set(owners) != {"alice"}:
                yield tuple(range(size)), (*owners, *["?"] * (3 - size), *["alice"] * 2)


@pytest.mark.parametrize(("family", "owners"), list(placements()))
def test_tables_are_completed_to_the_counts_of_all_records(family, owners):
    rng = np.random.default_rng(1)
    plan = K2Plan(owners, N_STATES, tuple(range(5)), N, 3)
    rest = {owners[v] for v in family} - {"alice"}
    holders = ["alice", *(name for name in NAMES if name in rest)]
    crossing = Crossing(plan, list(family), [3, 4], holders)
    own = {
        name: OwnColumns(
            {v: CODES[:, v] for v in range(5) if owners[v] == name}, N_STATES, N
        )
        for name in holders
    }
    tables = [crossing.table(name, own[name]) for name in holders]
    blocks = [table.indicators.columns(slice(0, N), np.int64) for table in tables]
    assert [block.shape[1] for block in blocks] == list(crossing.n_columns)
    letters = "abc"[: len(blocks)]
    counted = np.einsum(",".join(f"n{x}" for x in letters) + f"->{letters}", *blocks)
    dealer, parts = Dealer(owners, family, rng), shares_of(counted, holders, rng)
    found = [
        dict(crossing.complete(name, own[name], parts[name], dealer.known_to(name)))
        for name in holders
    ]
    for candidate in (3, 4):
        whole = (*family, candidate)
        total = sum(of_party[whole] for of_party in found)
        np.testing.assert_array_equal(total, true_counts(whole))


def test_what_follows_is_not_counted():
    # all pairs are known: one number for every interaction of all three is left
    three = [2, 1, 2]
    for owners in product("ab", repeat=2):
        plan = K2Plan((*owners, "?", "a", "a"), N_STATES, tuple(range(5)), N, 3)
        if "b" in owners:
            crossing = Crossing(plan, [0, 1], [3], ["a", "b"])
            assert prod(crossing.n_columns) == prod(three)
