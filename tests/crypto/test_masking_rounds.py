import secrets
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from skprivbn.crypto import HiddenVector, MaskingBackend, _masking_rounds
from skprivbn.crypto._masking import read_limbs
from skprivbn.crypto._masking_rounds import (
    PRIME,
    SHARE_BYTES,
    _common_stream,
    _stream,
    join_shares,
    split_secret,
)
from skprivbn.crypto._numbers import (
    add_limbs,
    decode_fixed_point,
    limbs_from_bytes,
    subtract_limbs,
    wrap_limbs,
)
from skprivbn.exceptions import ProtocolError
from tests.crypto.micro_federation import Exchange, make_contexts, start_sessions
from tests.fuzz.profiles import fuzzed

BACKEND = MaskingBackend(recovery=True)
#: messages of a party in one sum
KEYS, SHARES, VECTOR, SURVIVORS, UNMASK = range(5)


def federate(n_parties, fails=(), tamper=None, readers="all"):
    vectors = np.random.default_rng(0).normal(size=(n_parties, 5)) * 1e3
    sessions = start_sessions(BACKEND, make_contexts(n_parties), readers)
    return Exchange(sessions, vectors, fails, tamper), sessions, vectors


def read(total):
    """Return a sum that everybody may read."""
    return BACKEND.publish(total)[0]


@given(st.data())
@fuzzed(0.7)
def test_losses_at_any_step(data):
    n_parties = data.draw(st.integers(3, 9))
    n_lost = n_parties - BACKEND.n_needed(n_parties)
    lost = data.draw(st.permutations(range(n_parties)))[:n_lost]
    steps = {i: data.draw(st.integers(KEYS, UNMASK)) for i in lost}
    fails = [(f"party {i}", step) for i, step in steps.items()]
    exchange, _, vectors = federate(n_parties, fails)
    # Lost after their masked vector had arrived, parties still count.
    kept = [i for i in range(n_parties) if steps.get(i, UNMASK) > VECTOR]
    total = read(exchange.run(BACKEND))
    np.testing.assert_allclose(total, vectors[kept].sum(axis=0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("new_keys", [False, True])
def test_attack_difference_of_two_sums_with_and_without_a_party(new_keys):
    """Once left out of a sum, a party cannot be brought back to be subtracted."""
    contexts = make_contexts(4)
    vectors = np.random.default_rng(0).normal(size=(4, 5))
    sessions = start_sessions(BACKEND, contexts)
    Exchange(sessions, vectors, [("party 3", VECTOR)]).run(BACKEND)
    if new_keys:
        sessions = start_sessions(BACKEND, contexts)
    with pytest.raises(ProtocolError, match="not enough parties"):
        Exchange(sessions, vectors).run(BACKEND)


def test_keys_and_seeds_are_fresh_every_round():
    _, sessions, vectors = federate(3)
    keys, seeds = [], []
    for _ in range(2):
        exchange = Exchange(sessions, vectors)
        exchange.run(BACKEND)
        keys += [said["public"] for said in exchange.received[KEYS].values()]
        answers = exchange.received[UNMASK].values()
        seeds += [tuple(said["seeds"].values()) for said in answers]
    assert len(set(keys)) == len(keys) == 6
    assert len(set(seeds)) == len(seeds) == 6


def refuses(word, change, match, n_parties=4):
    """Have a coordinator change what it tells parties in one step."""

    def tamper(answers):
        return {
            name: {word: change(answer[word])} if word in answer else answer
            for name, answer in answers.items()
        }

    exchange, _, _ = federate(n_parties, tamper=tamper)
    with pytest.raises(ProtocolError, match=match):
        exchange.run(BACKEND)


def first_two(told):
    return dict(list(told.items())[:2])


def test_swapped_key_is_refused():
    """A relay that puts its own key in place of a party's is noticed."""

    def swap(keys):
        forged = {**keys["party 1"], "public": secrets.token_bytes(32)}
        return {**keys, "party 1": forged}

    refuses("keys", swap, "not signed")


def test_old_key_is_refused():
    """Signatures are for one round: last round's key does not pass."""
    exchange, sessions, vectors = federate(4)
    exchange.run(BACKEND)
    old = exchange.received[KEYS]["party 1"]
    old = {word: old[word] for word in ("public", "signature")}

    def replay(answers):
        return {
            name: {"keys": answer["keys"] | {"party 1": old}}
            for name, answer in answers.items()
        }

    with pytest.raises(ProtocolError, match="not signed"):
        Exchange(sessions, vectors, tamper=replay).run(BACKEND)


@pytest.mark.parametrize(
    ("word", "change", "match"),
    [
        ("keys", first_two, "not enough parties"),
        ("shares", lambda x: {k: b"\0" + v[1:] for k, v in x.items()}, "damaged"),
        ("shares", lambda x: dict.fromkeys(x, 3), "damaged"),
        ("shares", lambda x: list(x), "does not fit|malformed"),
        ("survivors", lambda x: tuple(x), "does not fit|malformed"),
        ("survivors", lambda x: [], "not enough parties"),
        ("survivors", lambda x: x[:2], "not enough parties"),
        ("survivors", lambda x: x[:1] * 4, "not enough parties"),
        ("signatures", first_two, "too few parties signed"),
        ("signatures", lambda x: x | {"party 0": bytes(64)}, "not signed"),
        ("signatures", lambda x: x | {"party 9": bytes(64)}, "no survivor"),
    ],
)
def test_what_a_coordinator_changes_is_refused(word, change, match):
    refuses(word, change, match)


def test_attack_different_survivor_lists_for_different_parties():
    """Half of the parties are told that the victim is lost, half that it is not.

    The coordinator would get shares of both its secrets. Signatures on the list, by
    more than two thirds of all, make this impossible.
    """
    shown = {}

    def tamper(answers):
        for place, (name, answer) in enumerate(answers.items()):
            if "survivors" in answer and place >= 3:
                answers[name] = {"survivors": answer["survivors"][1:]}
            if "survivors" in answer:
                shown[name] = answers[name]["survivors"]
        return answers

    exchange, sessions, _ = federate(6, tamper=tamper)
    exchange._send, send = None, exchange._send
    said = send(None)
    combine = BACKEND.combine(said, exchange.roster)
    answers = None
    for _ in range(3):
        answers = send(combine.send(answers))
    assert {len(names) for names in shown.values()} == {5, 6}
    signatures = {name: said["signature"] for name, said in answers.items()}
    for name, party in exchange.parties.items():
        agreeing = {n: s for n, s in signatures.items() if shown[n] == shown[name]}
        with pytest.raises(ProtocolError, match="too few|no survivor|not signed"):
            party.send({"signatures": agreeing})


def test_each_secret_is_revealed_one_way_only():
    exchange, _, _ = federate(7, [("party 2", VECTOR)])
    exchange.run(BACKEND)
    answers = exchange.received[UNMASK]
    assert len(answers) == 6
    for answer in answers.values():
        assert answer["keys"].keys() == {"party 2"}
        assert not answer["seeds"].keys() & answer["keys"].keys()
        assert len(answer["seeds"]) == 6


def test_masks_serve_one_vector():
    """There are none before the keys of a sum are made, nor after one was hidden."""
    exchange, sessions, vectors = federate(3)
    session = sessions["party 0"]
    with pytest.raises(ProtocolError, match="fresh keys"):
        session.hide(vectors[0], "statistics")
    exchange.run(BACKEND)
    with pytest.raises(ProtocolError, match="fresh keys"):
        session.hide(vectors[0], "statistics")
    # what is left of the sum has neither its keys nor the shares of others
    state = exchange.parties["party 0"].gi_frame.f_locals
    assert not state.keys() & {"private", "seed", "received"}
    assert "vector" in state


@pytest.mark.parametrize("answer", [{}, {"keys": {}, "more": 1}, {"shares": {}}])
def test_steps_out_of_turn_are_refused(answer):
    exchange, _, _ = federate(3)
    party = exchange.parties["party 0"]
    next(party)
    with pytest.raises(ProtocolError, match="does not fit"):
        party.send(answer)


def test_masked_vectors_alone_are_noise():
    """What arrives before unmasking does not add up, even with nobody lost."""
    exchange, _, _ = federate(4)
    exchange.run(BACKEND)
    hidden = [
        HiddenVector.from_payload(said["vector"])
        for said in exchange.received[VECTOR].values()
    ]
    with pytest.raises(ProtocolError, match="masks do not cancel"):
        read(BACKEND.add(hidden))


def test_attack_late_message_stays_behind_its_self_mask(monkeypatch):
    """The victim's key is rebuilt while its masked vector is there."""
    seeds, token_bytes = [], secrets.token_bytes
    monkeypatch.setattr(
        _masking_rounds.secrets,
        "token_bytes",
        lambda n: seeds.append(token_bytes(n)) or seeds[-1],
    )
    exchange, _, vectors = federate(5)
    seeds.clear()
    victim, roster, send = "party 2", exchange.roster, exchange._send

    def late(answers):
        said = send(answers)
        if len(exchange.received) == VECTOR + 1:
            del said[victim]  # the coordinator has it, and calls the party lost
        return said

    exchange._send = late
    total = exchange.run(BACKEND)
    expected = np.delete(vectors, 2, axis=0).sum(axis=0)
    np.testing.assert_allclose(read(total), expected, rtol=1e-12)

    answers = exchange.received[UNMASK]
    assert all(victim not in answer["seeds"] for answer in answers.values())
    key = join_shares(
        {roster.index(n) + 1: a["keys"][victim] for n, a in answers.items()}
    )
    private = X25519PrivateKey.from_private_bytes(key)
    hidden = HiddenVector.from_payload(exchange.received[VECTOR][victim]["vector"])
    limbs = read_limbs(hidden).copy()
    for peer in answers:
        stream = _common_stream(private, exchange.received[KEYS][peer]["public"])
        noise = limbs_from_bytes(stream.piece(1, hidden.key, 128))
        adds = roster.index(victim) < roster.index(peer)
        (subtract_limbs if adds else add_limbs)(limbs, noise)

    def values():
        wrap_limbs(limbs[:, :-3], 14)
        return decode_fixed_point(limbs, np.dtype(float))[:-3]

    assert np.abs(values() - vectors[2]).min() > 1e6
    # Nothing but the self mask is left: without it the vector would be lost.
    seed = seeds[roster.index(victim)]
    subtract_limbs(limbs, limbs_from_bytes(_stream(seed).piece(1, hidden.key, 128)))
    np.testing.assert_allclose(values(), vectors[2], rtol=1e-12)


@pytest.mark.parametrize("readers", ["parties", "all"])
def test_total_is_of_the_parties_that_were_signed_for(readers):
    """Not of those that are told with the total."""
    exchange, sessions, _ = federate(7, [("party 2", VECTOR)], readers=readers)
    total = exchange.run(BACKEND)
    with pytest.raises(ProtocolError, match="7 of 6 parties"):
        sessions["party 0"].reveal(replace(total, addends=7))
    # Whoever signed nothing accepts nothing.
    sessions["party 1"]._signed = ()
    with pytest.raises(ProtocolError, match="without a signed list"):
        sessions["party 1"].reveal(total)
    # A total over other parties than those on the list has the wrong pads.
    session = sessions["party 3"]
    session._signed = tuple(sessions)
    with pytest.raises(ProtocolError):
        session.reveal(replace(total, addends=7))


@pytest.mark.parametrize("threshold", [1, 2, 3, 5])
def test_any_enough_shares_give_the_secret(threshold):
    secret = secrets.token_bytes(32)
    shares = dict(zip(range(1, 6), split_secret(secret, threshold, range(1, 6))))
    assert all(len(share) == SHARE_BYTES for share in shares.values())
    for points in combinations(shares, threshold):
        assert join_shares({x: shares[x] for x in points}) == secret


def test_too_few_shares_are_uniform_whatever_the_secret():
    """Leading bits of each share, and of the sum of two, are fair coins."""
    n, threshold = 2000, 3
    for secret in (bytes(32), b"\xff" * 32):
        rows = [split_secret(secret, threshold, [1, 2, 3]) for _ in range(n)]
        numbers = [[int.from_bytes(share, "big") for share in row] for row in rows]
        for combine in (lambda r: r[0], lambda r: r[2], lambda r: r[0] + r[1]):
            ones = sum((combine(row) % PRIME) >> 255 for row in numbers)
            # Six standard deviations of a fair coin.
            assert abs(ones - n / 2) < 6 * np.sqrt(n) / 2


def test_too_few_shares_do_not_give_the_secret():
    secret = secrets.token_bytes(32)
    shares = dict(zip(range(1, 6), split_secret(secret, 4, range(1, 6))))
    for points in combinations(shares, 3):
        try:
            assert join_shares({x: shares[x] for x in points}) != secret
        except ProtocolError:
            pass  # not even a possible secret


def test_shares_that_do_not_belong_together():
    one, two = (split_secret(secrets.token_bytes(32), 2, [1, 2]) for _ in range(2))
    try:
        mixed = join_shares({1: one[0], 2: two[1]})
    except ProtocolError:
        return
    assert mixed not in (join_shares({1: s[0], 2: s[1]}) for s in (one, two))


@pytest.mark.parametrize(
    "share", [b"", bytes(32), b"\xff" * SHARE_BYTES, bytes(SHARE_BYTES + 1)]
)
def test_malformed_shares(share):
    with pytest.raises(ProtocolError, match="malformed"):
        join_shares({1: share, 2: bytes(SHARE_BYTES)})


@pytest.mark.parametrize(
    ("secret", "threshold", "points"),
    [(b"short", 2, [1, 2]), (bytes(32), 3, [1, 2]), (bytes(32), 1, [0, 1])]
    + [(bytes(32), 1, [1, 1]), (bytes(32), 0, [1])],
)
def test_impossible_sharing(secret, threshold, points):
    with pytest.raises(ValueError, match="."):
        split_secret(secret, threshold, points)
