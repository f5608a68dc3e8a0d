"""Sums whose two sides are generators: what parties read, what a coordinator does."""

from dataclasses import replace

import numpy as np
import pytest

from skprivbn.crypto import (
    CKKSBackend,
    HiddenVector,
    MaskingBackend,
    PaillierBackend,
    PlaintextBackend,
)
from skprivbn.crypto._masking import open_masked, read_limbs
from skprivbn.crypto._masking_rounds import RecoverySession
from skprivbn.exceptions import PartyError, ProtocolError
from tests.crypto.micro_federation import (
    Exchange,
    make_contexts,
    secure_sum,
    start_sessions,
)

RECOVERY = MaskingBackend(recovery=True)
SIGNED = MaskingBackend(signed=True)
BACKENDS = {
    "masking": MaskingBackend(),
    "signed": SIGNED,
    "recovery": RECOVERY,
    "all pairs": MaskingBackend(max_colluders=None),
    "plaintext": PlaintextBackend(),
    "paillier": PaillierBackend(key_size=512, insecure_test_key=True),
    "ckks": CKKSBackend(),
}
#: of a party in a recoverable sum: keys, shares, vector, survivors, unmask
N_MESSAGES = 5


def some_vectors(n_parties, length=6, seed=0):
    return np.random.default_rng(seed).normal(size=(n_parties, length)) * 1e3


def expected_sum(vectors):
    return secure_sum(PlaintextBackend(), vectors)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("readers", ["parties", "all"])
def test_parties_read_the_sum_of_all(name, readers):
    backend = BACKENDS[name]
    sessions = start_sessions(backend, make_contexts(4), readers)
    if readers == "all":
        backend = backend.masks_for_all()
    for seed in (0, 1):
        vectors = some_vectors(4, seed=seed)
        exchange = Exchange(sessions, vectors)
        total = exchange.run(backend)
        if readers == "all":
            found, total = backend.publish(total)
            np.testing.assert_array_equal(found, expected_sum(vectors))
        read = exchange.read(total)
        assert read.keys() == sessions.keys()
        for party, values in read.items():
            np.testing.assert_array_equal(values, expected_sum(vectors))
            assert sessions[party].counted == tuple(sessions)


MASKS = [name for name in BACKENDS if isinstance(BACKENDS[name], MaskingBackend)]


@pytest.mark.parametrize("name", MASKS)
def test_coordinator_does_not_read_what_is_for_parties(name):
    """Nor from the total: its values are noise, whatever the parties' are."""
    backend = BACKENDS[name]
    vectors = some_vectors(4)
    for readers, is_read in (("parties", False), ("all", True)):
        sessions = start_sessions(backend, make_contexts(4), readers)
        found, _ = backend.publish(Exchange(sessions, vectors).run(backend))
        assert np.isclose(found, expected_sum(vectors)).all() == is_read
        assert np.isclose(found, expected_sum(vectors)).any() == is_read


@pytest.mark.parametrize("how", ["sum", "dict", "nothing"])
@pytest.mark.parametrize("backend", [BACKENDS["masking"], SIGNED, RECOVERY])
def test_answers_that_are_no_total(backend, how):
    sessions = start_sessions(backend, make_contexts(3))
    exchange = Exchange(sessions, some_vectors(3))
    total = exchange.run(backend).to_payload()
    answer = {"sum": {"sum": total}, "dict": {"total": {"sum": total}}, "nothing": {}}[
        how
    ]
    with pytest.raises(ProtocolError, match="expected total"):
        exchange.parties["party 0"].send(answer)


def test_parties_that_name_sums_differently_have_no_sum():
    backend = MaskingBackend()
    sessions = start_sessions(backend, make_contexts(3))
    parties = {
        name: session.exchange(np.ones(3), what)
        for (name, session), what in zip(sessions.items(), ("one", "one", "two"))
    }
    said = {name: next(party) for name, party in parties.items()}
    with pytest.raises(PartyError, match="party 2"):
        next(backend.combine(said, tuple(sessions)))


@pytest.mark.parametrize("name", [n for n in BACKENDS if n != "recovery"])
def test_a_party_is_missing(name):
    """Without recovery there is no sum over the others."""
    backend = BACKENDS[name]
    sessions = start_sessions(backend, make_contexts(3))
    exchange = Exchange(sessions, some_vectors(3), [("party 1", 0)])
    with pytest.raises(ProtocolError, match="2 of 3 parties|of every party"):
        exchange.read(exchange.run(backend), ["party 0"])


@pytest.mark.parametrize("name", ["masking", "signed", "plaintext", "paillier", "ckks"])
def test_who_speaks_garbage_is_named(name):
    backend = BACKENDS[name]
    for garbage in ({}, {"vector": 3}, {"vector": ["masked"]}):
        sessions = start_sessions(backend, make_contexts(3))
        exchange = Exchange(sessions, some_vectors(3))
        said = exchange._send(None) | {"party 1": garbage}
        with pytest.raises(PartyError, match="party 1"):
            next(backend.combine(said, exchange.roster))


def signed_sum_with(garbage, number):
    """Run a signed sum in which one party's message is replaced."""
    sessions = start_sessions(SIGNED, make_contexts(3))
    exchange = Exchange(sessions, some_vectors(3))
    send = exchange._send

    def replaced(answers):
        said = send(answers)
        if len(exchange.received) == number + 1:
            said["party 2"] = garbage(said["party 2"])
        return said

    exchange._send = replaced
    return exchange, exchange.run(SIGNED)


@pytest.mark.parametrize(
    ("number", "garbage"),
    [
        (0, lambda said: {"vector": {}}),
        (1, lambda said: {"signature": bytes(63)}),
        (1, lambda said: {"signature": "text"}),
        (1, lambda said: {}),
        (2, lambda said: {"signature": bytes(64)}),
    ],
)
def test_who_speaks_garbage_in_a_signed_sum_is_named(number, garbage):
    with pytest.raises(PartyError, match="party 2"):
        signed_sum_with(garbage, number)


def test_vector_that_was_not_promised_is_named():
    def other(said):
        hidden = HiddenVector.from_payload(said["vector"])
        part = bytearray(hidden.parts[0])
        part[5] ^= 1
        return {"vector": replace(hidden, parts=[bytes(part)]).to_payload()}

    with pytest.raises(PartyError, match="party 2"):
        signed_sum_with(other, 2)
    signed_sum_with(lambda said: said, 2)


def test_signature_of_another_is_noticed_by_parties():
    """The coordinator cannot tell, but no vector leaves a party."""
    with pytest.raises(ProtocolError, match="not signed"):
        signed_sum_with(lambda said: {"signature": bytes(64)}, 1)


def kept_parties(n_parties, lost):
    """Return the places of those whose vector arrives."""
    return [i for i in range(n_parties) if lost.get(i, N_MESSAGES) > 2]


@pytest.mark.parametrize("readers", ["parties", "all"])
@pytest.mark.parametrize("step", range(N_MESSAGES))
@pytest.mark.parametrize("lost", [(0,), (6,), (1, 3)])
def test_losses_at_every_step_of_a_recoverable_sum(readers, step, lost):
    vectors = some_vectors(7)
    sessions = start_sessions(RECOVERY, make_contexts(7), readers)
    lost = dict.fromkeys(lost, step)
    exchange = Exchange(
        sessions, vectors, [(f"party {i}", step) for i, step in lost.items()]
    )
    total = exchange.run(RECOVERY)
    kept = kept_parties(7, lost)
    expected = expected_sum(vectors[kept])
    assert total.addends == len(kept)
    if readers == "all":
        found, total = RECOVERY.publish(total)
        np.testing.assert_array_equal(found, expected)
    else:
        assert not np.isclose(RECOVERY.publish(total)[0], expected).any()
    present = [f"party {i}" for i in range(7) if i not in lost]
    for name, values in exchange.read(total, present).items():
        np.testing.assert_array_equal(values, expected)
        assert sessions[name].counted == tuple(f"party {i}" for i in kept)


@pytest.mark.parametrize("readers", ["parties", "all"])
def test_parties_lost_one_after_the_other(readers):
    """One at every step of the same sum, and a sum of those who are left."""
    vectors = some_vectors(16)
    sessions = start_sessions(RECOVERY, make_contexts(16), readers)
    lost = {14: 0, 3: 1, 0: 2, 9: 3, 5: 4}
    exchange = Exchange(
        sessions, vectors, [(f"party {i}", step) for i, step in lost.items()]
    )
    total = exchange.run(RECOVERY)
    present = [f"party {i}" for i in range(16) if i not in lost]
    expected = expected_sum(vectors[kept_parties(16, lost)])
    for values in exchange.read(total, present).values():
        np.testing.assert_array_equal(values, expected)
    # from now on without them: the places of shares are those in the whole roster
    exchange = Exchange(sessions, vectors, [(f"party {i}", 0) for i in lost])
    total = exchange.run(RECOVERY)
    expected = expected_sum(np.delete(vectors, list(lost), axis=0))
    read = exchange.read(total, present)
    assert len(read) == 11
    for values in read.values():
        np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("step", range(N_MESSAGES))
def test_too_many_losses_end_the_sum(step):
    sessions = start_sessions(RECOVERY, make_contexts(6))
    fails = [("party 0", step), ("party 4", step)]
    exchange = Exchange(sessions, some_vectors(6), fails)
    with pytest.raises(ProtocolError, match="only 4 parties are left"):
        exchange.run(RECOVERY)


@pytest.mark.parametrize("step", range(N_MESSAGES))
def test_who_speaks_garbage_in_a_recoverable_sum_is_as_good_as_lost(step):
    vectors = some_vectors(4)
    sessions = start_sessions(RECOVERY, make_contexts(4))
    exchange = Exchange(sessions, vectors)
    send = exchange._send

    def garbled(answers):
        if answers is not None and len(exchange.received) > step:
            assert "party 1" not in answers or step == N_MESSAGES - 1
        said = send(answers)
        if len(exchange.received) == step + 1:
            said["party 1"] = {"nonsense": 1}
        return said

    exchange._send = garbled
    total = exchange.run(RECOVERY)
    kept = kept_parties(4, {1: step})
    read = exchange.read(total, ["party 0", "party 2", "party 3"])
    for values in read.values():
        np.testing.assert_array_equal(values, expected_sum(vectors[kept]))


def coordinators_bits(sessions, vectors, fails=()):
    """Return the bits of the values that a coordinator adds up."""
    exchange = Exchange(sessions, vectors, fails)
    total = exchange.run(RECOVERY)
    limbs = read_limbs(total)[:, : total.length]
    return np.unpackbits(limbs.view(np.uint8).reshape(2, -1, 8), axis=2)


@pytest.mark.parametrize("fails", [(), [("party 1", 2)]])
def test_a_covered_total_is_noise_to_the_coordinator(fails):
    """The twin without covers, in which it reads the zeros that parties added."""
    vectors, found = np.zeros((4, 4000)), {}
    for readers in ("parties", "all"):
        sessions = start_sessions(RECOVERY, make_contexts(4), readers)
        found[readers] = coordinators_bits(sessions, vectors, fails)
    fair = np.abs(found["parties"].mean(axis=1) - 0.5).max()
    assert fair < 7 * 0.5 / 4000**0.5
    assert not found["all"].any()


def test_covers_are_not_used_twice():
    """The difference of two totals would be that of two sums."""
    vectors = some_vectors(4)
    contexts = make_contexts(4)
    sessions = start_sessions(RECOVERY, contexts)
    totals = [Exchange(sessions, x * vectors).run(RECOVERY) for x in (1, 3)]
    again = converse_again(contexts)
    totals.append(Exchange(again, 5 * vectors).run(RECOVERY))
    opened = [RECOVERY.publish(total)[0] for total in totals]
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        difference = opened[j] - opened[i]
        expected = 2 * (j - i) * vectors.sum(axis=0)
        assert not np.isclose(difference, expected, rtol=1e-3).any()


def converse_again(contexts):
    """Return sessions with keys that were made a second time."""
    for context in contexts.values():
        assert context.group is not None
    return start_sessions(RECOVERY, contexts)


def test_one_cover_for_two_sums_would_tell_their_difference(monkeypatch):
    """The twin of the test above."""
    hide = RecoverySession.hide_integers

    def with_an_old_cover(self, integers, number, key):
        class Old:
            def piece(self, number, key, n_bytes):
                return bytes(range(n_bytes))

        self._covers = dict.fromkeys(self._roster, Old())
        return hide(self, integers, number, key)

    monkeypatch.setattr(RecoverySession, "hide_integers", with_an_old_cover)
    vectors = some_vectors(4)
    sessions = start_sessions(RECOVERY, make_contexts(4))
    totals = [Exchange(sessions, x * vectors).run(RECOVERY) for x in (1, 3)]
    limbs = [open_masked(total, 8)[:, :6] for total in totals]
    differences = [
        (int(a) + (int(b) << 64) - int(c) - (int(d) << 64)) % 2**112
        for a, b, c, d in zip(*limbs[1], *limbs[0])
    ]
    signed = [d - 2**112 if d >= 2**111 else d for d in differences]
    np.testing.assert_allclose(
        np.array(signed, dtype=float) / 2.0**56, 2 * vectors.sum(axis=0), rtol=1e-9
    )


def test_cover_of_a_lost_party_is_not_taken_off():
    """A total over all, told to be over fewer parties, is not read."""
    vectors = some_vectors(5)
    sessions = start_sessions(RECOVERY, make_contexts(5))
    exchange = Exchange(sessions, vectors)
    total = exchange.run(RECOVERY)
    with pytest.raises(ProtocolError, match="4 of 5 parties"):
        exchange.read(replace(total, addends=4), ["party 0"])
    sessions["party 1"]._signed = tuple(sessions)[:4]
    with pytest.raises(ProtocolError, match="masks do not cancel|not the sum"):
        exchange.read(replace(total, addends=4), ["party 1"])
    for values in exchange.read(total, ["party 2", "party 3"]).values():
        np.testing.assert_array_equal(values, expected_sum(vectors))


def test_integers_under_covers():
    counts = np.array([[2**60, -(2**60), 0, -1], [3, -5, 0, 1], [-7, 11, 0, 5]])
    sessions = start_sessions(RECOVERY, make_contexts(3))
    exchange = Exchange(sessions, counts)
    for values in exchange.read(exchange.run(RECOVERY)).values():
        assert values.dtype == np.int64
        np.testing.assert_array_equal(values, counts.sum(axis=0))


def test_forged_covered_total_is_refused():
    vectors = some_vectors(4)
    for place in (1, 20, 100):  # values; values; tag
        sessions = start_sessions(RECOVERY, make_contexts(4))
        exchange = Exchange(sessions, vectors)
        total = exchange.run(RECOVERY)
        part = bytearray(total.parts[0])
        part[place] ^= 4
        with pytest.raises(ProtocolError, match="not the sum"):
            exchange.read(replace(total, parts=[bytes(part)]), ["party 0"])
