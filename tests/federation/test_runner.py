"""What a party counts, and which results are the same."""

import numpy as np
import pytest

from skprivbn.exceptions import ProtocolError
from skprivbn.federation import (
    ALL_ROWS,
    HostPolicy,
    InProcessFederation,
    RowWeights,
    Sum,
    Terms,
    program,
)

ROWS = np.random.default_rng(0).normal(size=(60, 3))


def run(one, min_rows=1):
    blocks = {f"p{i}": {"X": ROWS[i::3]} for i in range(3)}
    policy = HostPolicy(min_rows=min_rows)
    with InProcessFederation(
        blocks, one, Terms(), "masking", policy=policy
    ) as federation:
        return federation.run(), federation


def test_results_may_hold_yes_and_no():
    @program(Terms)
    def signs(me, own=False):
        total = yield Sum(me.numbers().sum(axis=0), "sums", ALL_ROWS)
        return total > 0 if me.name == "p0" or not own else total <= 0

    assert run(signs)[0].tolist() == (ROWS.sum(axis=0) > 0).tolist()

    @program(Terms)
    def unlike(me):
        return (yield from signs.function(me, own=True))

    with pytest.raises(ProtocolError, match="disagree"):
        run(unlike)


def test_rows_are_counted_only_where_somebody_sets_a_limit():
    def sizes(n_blocks):
        @program(Terms)
        def weighted(me):
            weights = np.ones((me.n_rows, n_blocks))
            yield Sum(np.ones(2), "ones", RowWeights.of(weights))

        runs = (run(weighted, min_rows=least)[1] for least in (1, 2))
        return [federation.ledger.total_bytes for federation in runs]

    (free, limited), (free_of_many, limited_of_many) = sizes(1), sizes(100)
    assert free_of_many == free < limited < limited_of_many
