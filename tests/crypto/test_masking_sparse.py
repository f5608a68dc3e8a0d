"""Masks in common with some parties only: who can read what, and when."""

import hashlib
from itertools import combinations
from math import comb

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skprivbn.crypto import MaskingBackend, PlaintextBackend, _masking
from skprivbn.crypto._authentication import agree_on_group_key
from skprivbn.crypto._masking import find_neighbours, n_neighbours, read_limbs
from skprivbn.exceptions import ProtocolError
from skprivbn.mixture import PPEMGaussianMixture
from tests.crypto.micro_federation import (
    converse,
    hide_all,
    make_contexts,
    secure_sum,
    start_sessions,
)

FEW = 6


@pytest.fixture
def few_neighbours(monkeypatch):
    """Six neighbours, which are too few to be safe, so that rosters can be small."""
    monkeypatch.setattr(_masking, "n_neighbours", lambda n, share: FEW)
    monkeypatch.setattr(_masking, "ALL_PAIRS", FEW)


def edges(contexts):
    return {
        name: set(find_neighbours(context, FEW)) for name, context in contexts.items()
    }


def parts_of(graph, names):
    """Return the sets of parties that hang together, of those that are left."""
    left, parts = set(names), []
    while left:
        part, new = set(), {left.pop()}
        while new:
            part |= new
            new = set().union(*(graph[name] for name in new)) & left
            left -= new
        parts.append(part)
    return parts


def test_sums_are_those_of_masks_between_all(few_neighbours):
    vectors = np.random.default_rng(0).normal(size=(20, 9))
    expected = secure_sum(MaskingBackend(max_colluders=None), list(vectors))
    assert_array_equal(secure_sum(MaskingBackend(), list(vectors)), expected)


def test_neighbours_are_mutual_and_as_many_as_said(few_neighbours):
    contexts = make_contexts(20)
    graph = edges(contexts)
    for name, neighbours in graph.items():
        assert len(neighbours) == FEW and name not in neighbours
        assert all(name in graph[peer] for peer in neighbours)


def test_another_key_of_anybody_is_another_graph(few_neighbours):
    contexts = make_contexts(20)
    graph = edges(contexts)
    for context in contexts.values():
        context.keys_hash = hashlib.sha256(b"one key less").digest()
    assert edges(contexts) != graph


def fall_apart(order, out, half):
    """Tell whether parties on a circle fall apart, by walking along all edges."""
    n = len(order)
    graph = {
        order[i]: {order[(i + step) % n] for step in range(-half, half + 1) if step}
        for i in range(n)
    }
    return len(parts_of(graph, set(order) - set(out))) > 1


@pytest.mark.parametrize(("n", "n_out", "k"), [(10, 4, 4), (10, 6, 4), (12, 6, 4)])
def test_the_chance_is_that_of_all_sets_of_accomplices(n, n_out, k):
    # all sets in one order are as one set in all orders
    sets = list(combinations(range(n), n_out))
    n_bad = sum(fall_apart(range(n), out, k // 2) for out in sets)
    chance = comb(n - n_out, 2)
    for i in range(k):
        chance *= (n_out - i) / (n - 1 - i)
    # every pair of gaps is counted, so the bound is met unless there are three
    assert 0 < n_bad / len(sets) < chance + 1e-9 < 3 * n_bad / len(sets)
    bits = -np.log2(min(chance, 1))
    assert n_neighbours(n, n_out / n, bits - 1e-9) <= k
    assert n_neighbours(n, n_out / n, bits + 1e-3) > k


def test_more_parties_or_accomplices_take_more_neighbours():
    found = [n_neighbours(n, 0.5) for n in (100, 256, 1000, 10_000)]
    assert found == sorted(found) == [52, 84, 108, 124]
    assert n_neighbours(1000, 0.1) < n_neighbours(1000, 0.3) < n_neighbours(1000, 0.6)
    # Bell et al. want n share^(k/2) below two to the minus 40, for one gap
    for share in (0.1, 0.3, 0.5):
        k = n_neighbours(10_000, share, 40)
        assert 10_000 * share ** (k / 2) > 2.0**-40  # which would take about twice k
        assert comb(int(10_000 * (1 - share)), 2) * share**k < 2.0**-39


@pytest.mark.parametrize("n_parties", [1, 3, 32])
def test_few_parties_have_masks_with_all(n_parties):
    contexts = make_contexts(n_parties)
    backend, first = MaskingBackend(), contexts["party 0"]
    peers = [f"party {i}" for i in range(1, n_parties)]
    assert list(backend.mask_keys(first, b"")) == peers
    assert backend.key_makers(first.roster) == first.roster
    dense = MaskingBackend(max_colluders=None)
    assert backend.describe(first.roster) == dense.describe(first.roster)


@pytest.mark.parametrize("n_parties", [33, 100, 1000])
def test_many_parties_have_masks_with_some(n_parties):
    roster = tuple(f"party {i}" for i in range(n_parties))
    backend, dense = MaskingBackend(), MaskingBackend(max_colluders=None)
    k = n_neighbours(n_parties, 0.5)
    assert backend.n_neighbours(n_parties) == k < n_parties - 1
    assert dense.n_neighbours(n_parties) == n_parties - 1
    assert len(backend.key_makers(roster)) == 3
    assert dense.key_makers(roster) == roster
    assert backend.n_needed(n_parties) == n_parties
    words = backend.describe(roster)
    assert f"masks in common with {k} random parties" in words["hidden_by"]
    assert "chance of 2**-100" in words["hidden_by"]
    assert f"more than {n_parties // 2} of the {n_parties}" in words["broken_by"]
    assert f"with {n_parties - 1} of the" in dense.describe(roster)["broken_by"]
    # recovery has masks between all
    recovery = MaskingBackend(recovery=True)
    assert recovery.n_neighbours(n_parties) == n_parties - 1
    assert "random parties" not in recovery.describe(roster)["hidden_by"]


def test_40_parties_by_default():
    vectors = np.random.default_rng(0).normal(size=(40, 5))
    for backend in (MaskingBackend(), MaskingBackend(signed=True)):
        contexts = make_contexts(40)
        sessions = start_sessions(backend, contexts)
        assert {len(session._masks) for session in sessions.values()} == {22}
        found = secure_sum(backend, vectors, sessions)
        assert_array_equal(found, secure_sum(PlaintextBackend(), vectors))


def is_read_by(accomplices_of):
    """Let some parties help the coordinator read one, and tell whether they can."""
    contexts, victim = make_contexts(20), "party 7"
    accomplices = accomplices_of(edges(contexts)[victim])
    sessions = start_sessions(MaskingBackend(), contexts, "all")
    vectors = np.arange(20 * 4).reshape(20, 4)
    hidden = dict(zip(sessions, hide_all(sessions, vectors)))[victim]
    limbs = read_limbs(hidden)
    # low halves are enough: integers have 64 bits
    found = limbs[0].copy()
    for name in accomplices:
        peers = find_neighbours(contexts[name], FEW)
        stream, adds = sessions[name]._masks[peers.index(victim)]
        piece = stream.piece(hidden.round, hidden.key, limbs.nbytes)
        in_common = np.frombuffer(piece, "<u8").reshape(2, -1)[0]
        found = found + in_common if adds else found - in_common
    return np.array_equal(found[: hidden.length].view(np.int64), vectors[7])


def test_all_neighbours_of_a_party_read_it_and_one_less_does_not(few_neighbours):
    assert is_read_by(lambda neighbours: sorted(neighbours))
    assert not is_read_by(lambda neighbours: sorted(neighbours)[1:])


def test_accomplices_that_try_keys_isolate_somebody_only_if_neighbours_are_few():
    def tries_until_alone(k, most):
        roster = [f"party {i}" for i in range(20)]
        accomplices = set(roster[:10])
        for number in range(most):
            key = hashlib.sha256(number.to_bytes(4, "big")).digest()
            circle = sorted(
                roster, key=lambda name: hashlib.sha256(key + name.encode()).digest()
            )
            if fall_apart(circle, accomplices, k // 2):
                return number + 1
        return None

    # the twin, sized for one try, falls within some
    assert tries_until_alone(4, 50) is not None
    safe = n_neighbours(20, 0.5)
    assert tries_until_alone(safe, 2000) is None


def test_parties_that_were_shown_different_keys_have_no_masks_in_common(few_neighbours):
    vectors = list(np.ones((20, 3)))
    contexts = make_contexts(20)
    contexts["party 3"].keys_hash = hashlib.sha256(b"another").digest()
    with pytest.raises(ProtocolError, match="do not cancel"):
        secure_sum(
            MaskingBackend(), vectors, start_sessions(MaskingBackend(), contexts)
        )


def test_without_the_binding_two_circles_have_masks_in_common(monkeypatch):
    def masks_in_common():
        contexts = make_contexts(20)
        for name in ("party 3", "party 4"):
            contexts[name].keys_hash = hashlib.sha256(name.encode()).digest()
        backend = MaskingBackend()
        one, other = (backend.mask_keys(contexts[f"party {i}"], b"") for i in (3, 4))
        return one["party 4"] == other["party 3"]

    # everybody is a neighbour, so that the two are
    everybody = [f"party {i}" for i in range(20)]
    monkeypatch.setattr(
        _masking, "find_neighbours", lambda c, _: set(everybody) - {c.name}
    )
    assert not masks_in_common()
    monkeypatch.setattr(
        MaskingBackend,
        "mask_keys",
        lambda _, c, binding: {p: c.pair_key(p, b"") for p in everybody if p != c.name},
    )
    assert masks_in_common()


def test_three_parties_make_the_key_of_all_and_hear_from_all(few_neighbours):
    contexts, sent = make_contexts(8), []
    makers = MaskingBackend().key_makers(contexts["party 0"].roster)
    assert len(makers) == 3

    def overheard(side):
        message = None
        while True:
            try:
                outgoing = side.send(message)
            except StopIteration as stop:
                return stop.value
            sent.append(len(outgoing))
            message = yield outgoing

    keys = converse(
        {n: overheard(agree_on_group_key(c, makers)) for n, c in contexts.items()}
    )
    assert len({key.derive("anything") for key in keys.values()}) == 1
    # contributions of three to seven; confirmations of three to seven, five to three
    assert sum(sent) == 3 * 7 + 3 * 7 + 5 * 3


@pytest.mark.parametrize("fooled", ["party 0", "party 5"])
def test_a_party_with_another_key_is_noticed(fooled, monkeypatch):
    contexts = make_contexts(8)
    makers = contexts["party 0"].roster[:3]

    def relay(side, name):
        outgoing = next(side)
        received = yield outgoing
        if name == fooled:
            received["party 1"] = {"contribution": bytes(32)}
        received = yield side.send(received)
        side.send(received)

    sides = {n: relay(agree_on_group_key(c, makers), n) for n, c in contexts.items()}
    with pytest.raises(ProtocolError, match="same key"):
        converse(sides)


def test_a_mixture_is_the_same(few_neighbours):
    X = np.random.default_rng(0).normal(size=(120, 2))
    party = np.repeat(np.arange(12), 10)
    found = [
        PPEMGaussianMixture(
            2, backend=MaskingBackend(max_colluders=share), random_state=0
        ).fit(X, party=party)
        for share in (None, 0.5)
    ]
    assert_array_equal(*(mixture.means_ for mixture in found))


@pytest.mark.parametrize(
    ("share", "name"),
    [(0.5, "masking"), (0.9, "masking"), (0.49, None), (1e-9, None)],
)
def test_attack_a_coordinator_that_says_hardly_anybody_colludes(share, name):
    """Sites take no parameters without a name; two accomplices would be enough."""
    assert MaskingBackend(max_colluders=share).preset_name() == name
    assert MaskingBackend(max_colluders=None).preset_name() == "all-pairs"
    # the twin: with whom a party then shares masks
    assert (n_neighbours(1000, share) > 2) == (share > 0.01)
