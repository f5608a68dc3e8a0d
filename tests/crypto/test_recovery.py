import secrets
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from skprivbn.crypto import HiddenVector, MaskingBackend
from skprivbn.crypto._masking import read_limbs
from skprivbn.crypto._numbers import (
    add_limbs,
    decode_fixed_point,
    limbs_from_bytes,
    subtract_limbs,
    wrap_limbs,
)
from skprivbn.crypto._recovery import _pair_secret, _stream
from skprivbn.crypto._shamir import PRIME, SHARE_BYTES, join_shares, split_secret
from skprivbn.exceptions import ProtocolError
from tests.crypto.micro_federation import (
    MicroFederation,
    make_contexts,
    start_sessions,
)
from tests.fuzz.profiles import fuzzed

BACKEND = MaskingBackend(recovery=True)
STEPS = ("keys", "shares", "deliver", "statistics", "survivors", "unmask")


def federate(n_parties, fails=(), seed=0):
    vectors = np.random.default_rng(seed).normal(size=(n_parties, 5)) * 1e3
    sessions = start_sessions(BACKEND, make_contexts(n_parties))
    return MicroFederation(sessions, vectors, fails), vectors


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("lost", [(0,), (4,), (1, 3)])
def test_sum_is_over_those_whose_vector_arrived(step, lost):
    federation, vectors = federate(7, [(f"party {i}", step) for i in lost])
    total = BACKEND.secure_sum(federation, "statistics")
    # Lost after their masked vector had arrived, parties still count.
    counts = step in ("survivors", "unmask")
    kept = [i for i in range(7) if counts or i not in lost]
    expected = vectors[kept].sum(axis=0)
    np.testing.assert_allclose(BACKEND.open(total), expected, rtol=1e-12)
    assert total.addends == len(kept)
    for name in set(federation.roster) - federation.lost:
        session = federation.sessions[name]
        np.testing.assert_allclose(session.reveal(total), expected, rtol=1e-12)


@given(st.data())
@fuzzed(0.7)
def test_losses_at_any_step(data):
    n_parties = data.draw(st.integers(3, 9))
    n_lost = n_parties - BACKEND.n_needed(n_parties)
    lost = data.draw(st.permutations(range(n_parties)))[:n_lost]
    steps = {i: data.draw(st.sampled_from(STEPS)) for i in lost}
    federation, vectors = federate(
        n_parties, [(f"party {i}", step) for i, step in steps.items()]
    )
    kept = [i for i in range(n_parties) if steps.get(i) in (None, *STEPS[4:])]
    total = BACKEND.open(BACKEND.secure_sum(federation, "statistics"))
    np.testing.assert_allclose(total, vectors[kept].sum(axis=0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("step", STEPS)
def test_too_many_losses_end_the_sum(step):
    federation, _ = federate(6, [(f"party {i}", step) for i in (0, 1)])
    with pytest.raises(ProtocolError, match="only 4 parties are left"):
        BACKEND.secure_sum(federation, "statistics")


def test_many_rounds_with_losses_on_the_way():
    federation, vectors = federate(7, [("party 5", "statistics")])
    for _ in range(3):
        total = BACKEND.open(BACKEND.secure_sum(federation, "statistics"))
        expected = np.delete(vectors, 5, axis=0).sum(axis=0)
        np.testing.assert_allclose(total, expected, rtol=1e-12)


@pytest.mark.parametrize("new_keys", [False, True])
def test_attack_difference_of_two_sums_with_and_without_a_party(new_keys):
    """Once left out of a sum, a party cannot be brought back to be subtracted."""
    contexts = make_contexts(4)
    vectors = np.random.default_rng(0).normal(size=(4, 5))
    sessions = start_sessions(BACKEND, contexts)
    left_out = MicroFederation(sessions, vectors, [("party 3", "statistics")])
    BACKEND.secure_sum(left_out, "statistics")
    if new_keys:
        sessions = start_sessions(BACKEND, contexts)
    sums = MicroFederation(sessions, vectors)
    with pytest.raises(ProtocolError, match="not enough parties"):
        BACKEND.secure_sum(sums, "statistics")


def test_keys_and_seeds_are_fresh_every_round():
    federation, _ = federate(3)
    for _ in range(2):
        BACKEND.secure_sum(federation, "statistics")
    keys = [r["public"] for r in federation.sent if "public" in r]
    assert len(set(keys)) == len(keys) == 6
    seeds = [tuple(r["seeds"].values()) for r in federation.sent if "seeds" in r]
    assert len(set(seeds)) == len(seeds) == 6


class Recorder(MicroFederation):
    """A coordinator whose requests can be changed before they are sent."""

    def __init__(self, *args, tamper):
        super().__init__(*args)
        self.tamper = tamper

    def call(self, operation, payload=None, *, each=None, **options):
        if each is not None:
            each = {n: self.tamper(dict(p), {"to": n}) or p for n, p in each.items()}
            return super().call(operation, each=each, **options)
        payload = self.tamper(dict(payload or {}), options) or payload
        return super().call(operation, payload, **options)


def attack(tamper, n_parties=4):
    federation, vectors = federate(n_parties)
    return Recorder(federation.sessions, vectors, tamper=tamper)


def refuses(tamper, match, n_parties=4):
    with pytest.raises(ProtocolError, match=match):
        BACKEND.secure_sum(attack(tamper, n_parties), "statistics")


def test_swapped_key_is_refused():
    """A relay that puts its own key in place of a party's is noticed."""

    def swap(payload, options):
        if payload.get("step") == "shares":
            keys = payload["keys"]
            forged = {**keys["party 1"], "public": secrets.token_bytes(32)}
            return payload | {"keys": {**keys, "party 1": forged}}
        return None

    refuses(swap, "not signed")


def test_old_key_is_refused():
    """Signatures are for one round: last round's key does not pass."""
    federation, vectors = federate(4)
    old = {}

    def remember(payload, options):
        if payload.get("step") != "shares":
            return None
        if not old:
            old.update(payload["keys"])
            return None
        return payload | {"keys": {**payload["keys"], "party 1": old["party 1"]}}

    recorder = Recorder(federation.sessions, vectors, tamper=remember)
    BACKEND.secure_sum(recorder, "statistics")
    with pytest.raises(ProtocolError, match="not signed"):
        BACKEND.secure_sum(recorder, "statistics")


def test_too_few_keys_are_refused():
    def cut(payload, options):
        if payload.get("step") == "shares":
            keys = dict(list(payload["keys"].items())[:2])
            return payload | {"keys": keys}
        return None

    refuses(cut, "not enough parties")


def test_damaged_shares_are_refused():
    def damage(payload, options):
        if payload.get("step") == "deliver":
            shares = {k: b"\0" + v[1:] for k, v in payload["shares"].items()}
            return payload | {"shares": shares}
        return None

    refuses(damage, "damaged")


def test_survivor_list_without_enough_signatures_is_refused():
    def cut(payload, options):
        if payload.get("step") == "unmask":
            return payload | {
                "signatures": dict(list(payload["signatures"].items())[:2])
            }
        return None

    refuses(cut, "too few parties signed")


def test_forged_survivor_signature_is_refused():
    def forge(payload, options):
        if payload.get("step") == "unmask":
            signatures = payload["signatures"]
            return payload | {"signatures": {**signatures, "party 0": bytes(64)}}
        return None

    refuses(forge, "not signed")


@pytest.mark.parametrize("lie", [(), ("party 0", "party 1"), ("party 0",) * 4])
def test_short_or_repeated_survivor_list_is_refused(lie):
    def shorten(payload, options):
        if payload.get("step") == "survivors":
            return payload | {"survivors": list(lie)}
        return None

    refuses(shorten, "not enough parties")


def test_attack_different_survivor_lists_for_different_parties():
    """Half of the parties are told that the victim is lost, half that it is not.

    The coordinator would get shares of both its secrets. Signatures on the list, by
    more than two thirds of all, make this impossible.
    """

    federation, vectors = federate(6)
    sessions = federation.sessions

    def stop(payload, options):
        if payload.get("step") == "survivors":
            raise InterruptedError

    with pytest.raises(InterruptedError):
        BACKEND.secure_sum(Recorder(sessions, vectors, tamper=stop), "statistics")
    everybody = list(sessions)
    without_victim = everybody[1:]
    lists = {n: everybody if i < 3 else without_victim for i, n in enumerate(sessions)}
    signatures = {
        name: sessions[name].control("survivors", {"survivors": lists[name]})[
            "signature"
        ]
        for name in sessions
    }
    for name in sessions:
        agreeing = {n: s for n, s in signatures.items() if lists[n] == lists[name]}
        with pytest.raises(ProtocolError, match="too few|no survivor|not signed"):
            sessions[name].control("unmask", {"signatures": agreeing})


def test_each_secret_is_revealed_one_way_only():
    federation, _ = federate(7, [("party 2", "statistics")])
    BACKEND.secure_sum(federation, "statistics")
    answers = [r for r in federation.sent if "seeds" in r]
    assert len(answers) == 6
    for answer in answers:
        assert answer["keys"].keys() == {"party 2"}
        assert not answer["seeds"].keys() & answer["keys"].keys()
        assert len(answer["seeds"]) == 6


def test_steps_out_of_turn_are_refused():
    federation, vectors = federate(3)
    session = federation.sessions["party 0"]
    for step in ("shares", "deliver", "survivors", "unmask", "nonsense", "hide"):
        with pytest.raises(ProtocolError, match="out of turn"):
            session.control(step, {})
    with pytest.raises(ProtocolError, match="fresh keys"):
        session.hide(vectors[0], "statistics")
    with pytest.raises(ProtocolError, match="malformed"):
        session.control("keys", {"more": 1})
    BACKEND.secure_sum(federation, "statistics")
    # The sum is over: its secrets are gone, shares are handed out once, and no second
    # vector is masked.
    assert session._private is session._seed is None
    assert not session._received
    with pytest.raises(ProtocolError, match="out of turn"):
        session.control("unmask", {"signatures": {}})
    with pytest.raises(ProtocolError, match="fresh keys"):
        session.hide(vectors[0], "statistics")


def test_a_new_round_forgets_the_old_secrets():
    federation, vectors = federate(3)
    session = federation.sessions["party 0"]
    session.control("keys", {})
    private = session._private
    session.control("keys", {})
    assert session._private is not private
    assert session._round == 2


def test_masked_vectors_alone_are_noise():
    """What arrives before unmasking does not add up, even with nobody lost."""
    federation, vectors = federate(4)
    BACKEND.secure_sum(federation, "statistics")
    hidden = [
        HiddenVector.from_payload(r["vector"]) for r in federation.sent if "vector" in r
    ]
    with pytest.raises(ProtocolError, match="masks do not cancel"):
        BACKEND.open(BACKEND.add(hidden))


class LateVictim(MicroFederation):
    """A coordinator that gets one party's vector, but calls the party lost."""

    victim = "party 2"

    def call(self, operation, payload=None, **options):
        replies = super().call(operation, payload, **options)
        if operation == "statistics":
            self.seed = self.sessions[self.victim]._seed
            self.late = replies.pop(self.victim)
            self.lost.add(self.victim)
        return replies


def test_attack_late_message_stays_behind_its_self_mask():
    """The victim's key is rebuilt while its masked vector is there."""
    federation, vectors = federate(5)
    federation = LateVictim(federation.sessions, vectors)
    victim, roster = federation.victim, federation.roster
    total = BACKEND.secure_sum(federation, "statistics")
    expected = np.delete(vectors, 2, axis=0).sum(axis=0)
    np.testing.assert_allclose(BACKEND.open(total), expected, rtol=1e-12)

    answers = [r for r in federation.sent if "seeds" in r]
    assert all(victim not in answer["seeds"] for answer in answers)
    givers = [name for name in roster if name != victim]
    key = join_shares(
        {roster.index(n) + 1: a["keys"][victim] for n, a in zip(givers, answers)}
    )
    private = X25519PrivateKey.from_private_bytes(key)
    hellos = [r for r in federation.sent if "public" in r]
    publics = {name: hello["public"] for name, hello in zip(roster, hellos)}
    info = federation.late.key
    limbs = read_limbs(federation.late).copy()
    for peer in givers:
        secret = _pair_secret(private, publics[peer])
        noise = limbs_from_bytes(_stream(secret).piece(1, info, 128))
        adds = roster.index(victim) < roster.index(peer)
        (subtract_limbs if adds else add_limbs)(limbs, noise)
    wrap_limbs(limbs[:, :-3], 14)
    read = decode_fixed_point(limbs, np.dtype(float), 56)[:-3]
    assert np.abs(read - vectors[2]).min() > 1e6
    # Nothing but the self mask is left: without it the vector would be lost.
    subtract_limbs(
        limbs, limbs_from_bytes(_stream(federation.seed).piece(1, info, 128))
    )
    wrap_limbs(limbs[:, :-3], 14)
    read = decode_fixed_point(limbs, np.dtype(float), 56)[:-3]
    np.testing.assert_allclose(read, vectors[2], rtol=1e-12)


def test_total_is_of_the_parties_that_were_signed_for():
    """Not of those that are told with the total."""
    federation, _ = federate(7, [("party 2", "statistics")])
    total = BACKEND.secure_sum(federation, "statistics")
    with pytest.raises(ProtocolError, match="7 of 6 parties"):
        federation.sessions["party 0"].reveal(replace(total, addends=7))
    # Whoever signed nothing accepts nothing.
    federation.sessions["party 1"]._signed = ()
    with pytest.raises(ProtocolError, match="without a signed list"):
        federation.sessions["party 1"].reveal(total)
    # A total over other parties than those on the list has the wrong pads.
    session = federation.sessions["party 3"]
    session._signed = tuple(federation.sessions)
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
