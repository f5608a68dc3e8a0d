"""Private set intersection against plain sets."""

import hashlib
import os

import numpy as np
import pytest

from skprivbn.crypto import _psi as psi
from skprivbn.crypto._psi import _hash_to_point, align_records, normalise_key
from skprivbn.crypto.shares import Conversation, run_together
from skprivbn.exceptions import ProtocolError
from tests.crypto.shares._sides import messages_of


def side(name, names, session, keys, check_sizes=None, n_padded=None):
    talk = Conversation(name, names, session)
    records = yield from align_records(talk, keys, check_sizes, n_padded)
    yield from talk.finish()
    return records


def align(lists, said=None, n_padded=None):
    names, session = [f"p{i}" for i in range(len(lists))], os.urandom(16)
    sides = {
        name: side(name, names, session, keys, n_padded=n_padded)
        for name, keys in zip(names, lists)
    }

    def note(sender, receiver, payload):
        if said is not None:
            said.extend((sender, receiver, m) for m in messages_of(payload))

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
    first = next(m for s, r, m in said if s == "p0" and isinstance(m, bytes))
    points = {first[i : i + 32] for i in range(0, len(first), 32)}
    for session in (b"", b"session"):
        for key in ("anna", "bert", "carl"):
            assert _hash_to_point(session, key) not in points
    repeated = []
    align([["anna", "bert"], ["bert", "carl"]], repeated)
    assert not points & {
        m[i : i + 32]
        for _, _, m in repeated
        if isinstance(m, bytes)
        for i in range(0, len(m), 32)
    }


def lengths(said):
    return [(s, r, len(m) if isinstance(m, bytes) else m) for s, r, m in said]


@pytest.mark.parametrize("n_parties", [2, 3])
def test_padded_lists_hide_how_many_keys_there_are(n_parties):
    few = [list(range(5 + i)) for i in range(n_parties)]
    many = [list(range(20 - i)) for i in range(n_parties)]
    seen = []
    for lists in (few, many):
        said = []
        aligned = align(lists, said, n_padded=20)
        assert all(keys == aligned[0] for keys in aligned)
        assert sorted(map(int, aligned[0])) == list(range(min(map(len, lists))))
        seen.append(lengths(said))
    assert seen[0] == seen[1]
    # the twin: without, lengths tell
    plain = [[], []]
    for lists, said in zip((few, many), plain):
        align(lists, said)
    assert lengths(plain[0]) != lengths(plain[1])


def test_attack_a_list_of_everybody_is_longer_than_declared():
    here, everybody = [3, 14, 15], list(range(50))
    with pytest.raises(ValueError, match="more than 20 keys"):
        align([here, everybody], n_padded=20)
    for n_keys in (50, 19):
        with pytest.raises(ProtocolError, match="wrong length"):
            told_by_a(n_keys, b"", n_padded=20)
    # the twin: without a declared number everybody is tried
    assert sorted(map(int, align([here, everybody])[1])) == here


def told_by_a(n_keys, points, n_padded=None):
    """Answer a party b with one key as if a had sent a number and points."""
    talk = Conversation("b", ("a", "b"), b"s")
    side = align_records(talk, ["x"], n_padded=n_padded)
    next(side)
    side.send({"a": {"messages": [n_keys], "messages/0": [points]}})


@pytest.mark.parametrize("order", [0, 1, 2**255 - 20])
def test_points_of_small_order_are_refused(order):
    with pytest.raises(ProtocolError, match="invalid"):
        told_by_a(1, order.to_bytes(32, "little"))


@pytest.mark.parametrize("n_keys", [3, -1, 2**40, "3", None])
def test_other_lengths_than_allowed_are_refused(monkeypatch, n_keys):
    # a peer with a list of everybody would learn who is here
    monkeypatch.setattr(psi, "MAX_KEYS", 2)
    with pytest.raises(ProtocolError, match="wrong length"):
        told_by_a(n_keys, b"")


def test_more_points_than_announced_are_refused():
    points = [_hash_to_point(b"s", key) for key in "uvw"]
    with pytest.raises(ProtocolError, match="wrong length"):
        told_by_a(2, b"".join(points))


@pytest.mark.parametrize("sizes", [(7, 7), (1, 20), (20, 3, 9), (5, 0, 12)])
def test_lists_in_parts(monkeypatch, sizes):
    monkeypatch.setattr(psi, "_PART", 3)
    lists = [list(range(size)) for size in sizes]
    aligned = align(lists)
    assert all(keys == aligned[0] for keys in aligned)
    assert sorted(map(int, aligned[0])) == list(range(min(sizes)))


def test_parts_travel_at_a_time(monkeypatch):
    monkeypatch.setattr(psi, "_PART", 3)
    n_rounds = []
    for size in (3, 30):
        said = []
        align([list(range(size))] * 3, said)
        n_rounds.append(sum(m == size for *_, m in said))
        longest = max(len(m) for *_, m in said if isinstance(m, bytes))
        # whatever the list, a message has three points
        assert longest == 3 * 32
    assert n_rounds == [6, 6]


def test_points_are_of_the_curve_and_commute():
    # RFC 7748: the first coordinate of the base point is 9
    assert on_the_curve((9).to_bytes(32, "little"))
    point = _hash_to_point(b"s", "anna")
    a, b = os.urandom(32), os.urandom(32)
    assert psi._multiply_all(a, psi._multiply_all(b, [point])) == psi._multiply_all(
        b, psi._multiply_all(a, [point])
    )


def on_the_curve(point):
    """By Euler's criterion: whether some v has v**2 = u**3 + 486662 u**2 + u."""
    u, prime = int.from_bytes(point, "little"), psi._PRIME
    return pow(u**3 + 486662 * u**2 + u, (prime - 1) // 2, prime) == 1


def keys_that_a_point_rules_out(hash_to_point):
    """What whoever sees one hidden key knows of others that it is not."""
    hidden = psi._multiply(os.urandom(32), [hash_to_point(b"s", "anna")])[0]
    keys = [f"key {i}" for i in range(100)]
    return sum(
        on_the_curve(hash_to_point(b"s", key)) != on_the_curve(hidden) for key in keys
    )


def test_a_hidden_key_rules_out_no_other_key():
    assert keys_that_a_point_rules_out(_hash_to_point) == 0


def test_twin_numbers_beside_the_curve_rule_out_half_of_the_keys():
    def any_number(session, key):
        return hashlib.sha256(session + key.encode()).digest()[:31] + b"\0"

    assert 25 < keys_that_a_point_rules_out(any_number) < 75


def test_order_of_points_survives_the_threads():
    points = [_hash_to_point(b"s", str(i)) for i in range(11)]
    secret = os.urandom(32)
    one_by_one = [psi._multiply(secret, [point])[0] for point in points]
    assert psi._multiply_all(secret, points) == one_by_one
    assert psi._multiply_all(secret, []) == []


def align_with_swapped_points():
    """Let the second of three parties swap two points of the first one's list."""
    keys = [f"key {i}" for i in range(5)]
    names, session = ("a", "b", "c"), os.urandom(16)
    sides = {name: side(name, names, session, keys) for name in names}

    def swap(sender, receiver, payload):
        if (sender, receiver) == ("b", "c") and "messages/0" in payload:
            points = payload["messages/0"][0]
            payload["messages/0"][0] = points[32:64] + points[:32] + points[64:]

    found = run_together(sides, swap)
    return {name: [keys[i] for i in records] for name, records in found.items()}


def test_attack_a_party_misaligns_the_rows_of_two_others():
    with pytest.raises(ProtocolError, match="aligned other keys"):
        align_with_swapped_points()


def test_without_the_comparison_rows_are_misaligned(monkeypatch):
    monkeypatch.setattr(psi, "_check_aligned", lambda talk, texts: iter(()))
    found = align_with_swapped_points()
    assert found["b"] == found["c"]
    assert sorted(found["a"]) == sorted(found["c"]) and found["a"] != found["c"]


def test_the_comparison_tells_nothing_of_the_keys():
    """Its points are new in every session; a dictionary of lists finds none."""
    said = [[], []]
    for messages in said:
        align([["anna", "bert"]] * 2, messages)
    points = [{m for *_, m in s if isinstance(m, bytes) and len(m) == 32} for s in said]
    assert len(points[0]) == 4 and not points[0] & points[1]


def align_with_a_mirror(n_padded=None):
    """A peer without any key, that sends back all that it gets.

    The points of the one list it passes off as its own, what becomes of these as those
    of the one list under both secrets.
    """
    keys, told = [f"key {i}" for i in range(5)], None
    other = {"messages/0": "messages/1", "messages/1": "messages/0"}
    party = side("a", ("a", "b"), os.urandom(16), keys, n_padded=n_padded)
    while True:
        try:
            said = party.send(told).get("b", {})
        except StopIteration as stop:
            return [keys[i] for i in stop.value]
        told = {"b": {other.get(label, label): m for label, m in said.items()}}


@pytest.mark.parametrize("n_padded", [None, 20])
def test_attack_a_peer_that_sends_back_what_it_gets(n_padded):
    with pytest.raises(ProtocolError, match="aligned other keys"):
        align_with_a_mirror(n_padded)


def test_without_names_in_the_comparison_it_has_all_keys(monkeypatch):
    monkeypatch.setattr(psi, "_said_by", lambda name, point: point)
    assert len(align_with_a_mirror()) == 5


def test_attack_a_peer_with_one_key_is_refused_before_any_point_leaves():
    said = []

    def refuse(n_keys):
        if min(n_keys.values()) < 2:
            raise ProtocolError("too few keys")

    names = ("a", "b")
    sides = {
        name: side(name, names, b"s", keys, refuse)
        for name, keys in zip(names, (["anna", "bert"], ["anna"]))
    }
    with pytest.raises(ProtocolError, match="too few"):
        run_together(sides, lambda *message: said.extend(messages_of(message[-1])))
    assert said == [2, 1]


def test_without_the_refusal_it_learns_who_is_there():
    assert align([["anna", "bert"], ["anna"]])[1] == ["anna"]
