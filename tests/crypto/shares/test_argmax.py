"""The secure argmax against numpy's, and what it sends."""

import numpy as np
import pytest

from skprivbn.crypto.shares._argmax import shared_argmax
from tests.crypto.shares._sides import flatten, run_sides, split


def plain_argmax(values, sizes):
    ends = np.cumsum(sizes)
    return [int(values[end - size : end].argmax()) for size, end in zip(sizes, ends)]


@pytest.mark.parametrize("n_parties", [2, 3, 4])
@pytest.mark.parametrize("width", [2, 7, 41, 64])
def test_equals_numpy(n_parties, width):
    rng = np.random.default_rng(width)
    sizes = [1, 2, 3, 8, 13, 1, 20]
    values = rng.integers(-(2 ** (width - 1)), 2 ** (width - 1) - 1, sum(sizes))
    values[6:9] = 2 ** (width - 1) - 1  # equal largest numbers: the first one wins
    shares = split(rng, values, n_parties)

    def side(talk, links, i):
        return shared_argmax(talk, links, shares[i], sizes, width)

    for winners in run_sides(side, n_parties):
        assert winners.tolist() == plain_argmax(values, sizes)


def test_many_circuits(monkeypatch):
    monkeypatch.setattr("skprivbn.crypto.shares._argmax._BATCH", 5)
    rng = np.random.default_rng(0)
    sizes = [3, 2, 1, 9, 1, 1, 4]
    values = rng.integers(-100, 100, sum(sizes))
    shares, transcript = split(rng, values, 2), []

    def side(talk, links, i):
        return shared_argmax(talk, links, shares[i], sizes, 9)

    for winners in run_sides(side, transcript=transcript):
        assert winners.tolist() == plain_argmax(values, sizes)
    messages = [m for _, _, payload in transcript for m in payload["messages"]]
    circuits = [m["inputs"] for m in messages if isinstance(m, dict)]
    assert [inputs.shape[1] for inputs in circuits] == [5, 1, 9, 2, 4]


def test_message_sizes_depend_on_the_shape_only():
    sizes = []
    for values in (np.zeros(9), np.arange(9)):
        transcript, shares = [], split(np.random.default_rng(0), values, 2)

        def side(talk, links, i, shares=shares):
            return shared_argmax(talk, links, shares[i], [4, 5], 20)

        run_sides(side, transcript=transcript)
        sizes.append([(s, r, len(flatten(p))) for s, r, p in transcript])
    assert sizes[0] == sizes[1]
