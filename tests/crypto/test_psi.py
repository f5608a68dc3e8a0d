"""Private set intersection against plain sets."""

import os

import numpy as np
import pytest

from skprivbn.crypto._psi import _hash_to_point, align_records, normalise_key
from skprivbn.crypto.shares import Conversation, run_together
from skprivbn.exceptions import ProtocolError


def align(lists, said=None):
    names, session = [f"p{i}" for i in range(len(lists))], os.urandom(16)
    sides = {
        name: align_records(Conversation(name, names, session), keys)
        for name, keys in zip(names, lists)
    }

    def note(sender, receiver, payload):
        if said is not None:
            said.extend((sender, receiver, m) for m in payload["messages"])

    found = run_together(sides, note)
    return [[str(keys[i]) for i in found[n]] for n, keys in zip(names, lists)]


@pytest.mark.parametrize("n_parties", [2, 3, 4])
def test_every_party_finds_the_same_records_in_the_same_order(n_parties):
    rng = np.random.default_rng(n_parties)
    lists = [rng.permutation(40)[:30].tolist() for _ in range(n_parties)]
    aligned = align(lists)
    assert all(keys == aligned[0] for keys in aligned)
    assert set(aligned[0]) == {str(k) for k in set.intersection(*map(set, lists))}


def test_order_is_not_the_files_order_and_changes():
    keys = list(range(30))
    one, other = align([keys, keys])[0], align([keys, keys])[0]
    assert sorted(one) == sorted(other) and one != other


def test_no_common_key():
    assert align([[1, 2], [3, 4]]) == [[], []]


def test_duplicates_are_refused():
    with pytest.raises(ValueError, match="distinct"):
        align([["x", " x "], ["x"]])


@pytest.mark.parametrize(
    "one, other", [(7, "7"), (7.0, 7), (" ab", "ab "), ("e\u0301", "\u00e9")]
)
def test_keys_are_written_in_one_way(one, other):
    assert normalise_key(one) == normalise_key(other)


@pytest.mark.parametrize("key", ["", "  ", float("nan")])
def test_missing_keys(key):
    with pytest.raises(ValueError, match="missing or empty"):
        normalise_key(key)


def test_a_peer_cannot_search_a_dictionary():
    # what bob gets first are alice's points under her secret; none is that of a key
    said = []
    align([["anna", "bert"], ["bert", "carl"]], said)
    first = next(m for s, r, m in said if s == "p0")
    points = {first[i : i + 32] for i in range(0, len(first), 32)}
    for session in (b"", b"session"):
        for key in ("anna", "bert", "carl"):
            assert _hash_to_point(session, key) not in points
    repeated = []
    align([["anna", "bert"], ["bert", "carl"]], repeated)
    assert not points & {
        m[i : i + 32] for _, _, m in repeated for i in range(0, len(m), 32)
    }


def test_invalid_points_are_refused():
    talk = Conversation("b", ("a", "b"), b"s")
    side = align_records(talk, ["x"])
    next(side)
    with pytest.raises(ProtocolError, match="invalid"):
        side.send({"a": {"messages": [bytes(32)]}})


def test_longer_lists_than_allowed_are_refused(monkeypatch):
    # a peer with a list of everybody would learn who is here
    monkeypatch.setattr("skprivbn.crypto._psi.MAX_KEYS", 2)
    talk = Conversation("b", ("a", "b"), b"s")
    side = align_records(talk, ["x"])
    next(side)
    points = [_hash_to_point(b"s", key) for key in "uvw"]
    with pytest.raises(ProtocolError, match="wrong length"):
        side.send({"a": {"messages": [b"".join(points)]}})
