"""Sums that every party adds up by itself, against a coordinator with an accomplice."""

import hashlib
import secrets
from dataclasses import replace

import numpy as np
import pytest

from skprivbn.crypto import HiddenVector, MaskingBackend, _masking_rounds
from skprivbn.crypto._masking import (
    add_masked,
    bytes_of_value,
    read_limbs,
    write_limbs,
)
from skprivbn.crypto._numbers import add_limbs, encode_fixed_point
from skprivbn.exceptions import ProtocolError
from tests.crypto.micro_federation import (
    Exchange,
    hide_all,
    make_contexts,
    start_sessions,
)

BACKEND = MaskingBackend(signed=True)
READERS = ["parties", "all"]
VECTORS = np.arange(12.0).reshape(3, 4)


def honest(readers, tamper=None):
    """Return sessions and the total of all as it travels."""
    sessions = start_sessions(BACKEND, make_contexts(3), readers)
    return sessions, Exchange(sessions, VECTORS, tamper=tamper).run(BACKEND)


@pytest.mark.parametrize("readers", READERS)
def test_all_parties_add_the_same(readers):
    sessions, total = honest(readers)
    for session in sessions.values():
        np.testing.assert_array_equal(session.reveal(total), VECTORS.sum(axis=0))
    found, _ = BACKEND.publish(total)
    assert np.array_equal(found, VECTORS.sum(axis=0)) == (readers == "all")


def shift_with_a_fitting_tag(accomplice, part, shift):
    """Change a masked vector as one can who has the key of the tags."""
    last, n = accomplice._last, accomplice._last.length
    hidden = HiddenVector("masked", n, last.number, last.key, [part])
    limbs, extra = read_limbs(hidden), encode_fixed_point(shift)
    tags = [last.tags.tag(x, accomplice._name) for x in (extra, np.zeros_like(extra))]
    change = accomplice._backend.ring
    more = (change.join(tags[0]) - change.join(tags[1])) % change.modulus
    add_limbs(limbs[:, :n], extra)
    add_limbs(limbs[:, n : n + 2], change.split(more, 2))
    return write_limbs(limbs[:, :n], limbs[:, n:], bytes_of_value(last.key))


SHIFT = np.array([1e6, -5.0, 0.0, 0.25])


@pytest.mark.parametrize("readers", READERS)
def test_attack_accomplice_makes_up_a_total_unless_parties_add(readers):
    """The twin without signatures, in which all accept a total of the pair's choice."""
    backend = MaskingBackend()
    sessions = start_sessions(backend, make_contexts(3), readers)
    total = backend.add(hide_all(sessions, VECTORS))
    forged = shift_with_a_fitting_tag(sessions["party 2"], total.parts[0], SHIFT)
    for name in ("party 0", "party 1"):
        found = sessions[name].reveal(replace(total, parts=[forged]))
        np.testing.assert_array_equal(found, VECTORS.sum(axis=0) + SHIFT)

    for place in (0, 2):  # an honest party's vector, or the accomplice's own
        sessions, total = honest(readers)
        parts = list(total.parts)
        parts[place] = shift_with_a_fitting_tag(
            sessions["party 2"], parts[place], SHIFT
        )
        with pytest.raises(ProtocolError, match="not the vectors"):
            sessions["party 1"].reveal(replace(total, parts=parts))


@pytest.mark.parametrize("readers", READERS)
def test_parts_left_out_repeated_or_added_beforehand(readers):
    for change in (
        lambda parts: parts[:2],
        lambda parts: [parts[0], parts[0], parts[2]],
        lambda parts: [parts[1], parts[0], parts[2]],
        lambda parts: [*parts, parts[0]],
        lambda parts: add_masked([parts]),
    ):
        sessions, total = honest(readers)
        with pytest.raises(ProtocolError, match="not the vectors"):
            sessions["party 0"].reveal(replace(total, parts=change(total.parts)))


def two_promises(readers):
    """The accomplice promises one vector to one party and another to the other."""
    sessions = start_sessions(BACKEND, make_contexts(3), readers)
    accomplice, others = sessions["party 2"], []
    hide = accomplice.hide

    def remember(vector, operation):
        hidden = hide(vector, operation)
        part = shift_with_a_fitting_tag(accomplice, hidden.parts[0], SHIFT)
        digest = hashlib.sha256(part).digest()
        text = accomplice._digest_text("party 2", digest)
        others.append((part, digest + accomplice._context.sign(text)))
        return hidden

    accomplice.hide = remember

    def tamper(answers):
        if "digests" in answers["party 0"]:
            digests = answers["party 0"]["digests"] | {"party 2": others[0][1]}
            return answers | {"party 0": {"digests": digests}}
        return answers

    total = Exchange(sessions, VECTORS, tamper=tamper).run(BACKEND)
    forged = replace(total, parts=[*total.parts[:2], others[0][0]])
    return sessions["party 0"].reveal(forged), sessions["party 1"].reveal(total)


@pytest.mark.parametrize("readers", READERS)
def test_two_parties_cannot_be_shown_different_vectors(readers, monkeypatch):
    with pytest.raises(ProtocolError, match="not signed"):
        two_promises(readers)
    # the twin: nobody compares lists, and two parties go on with different totals
    monkeypatch.setattr(
        _masking_rounds.SignedMaskingSession,
        "_list_text",
        lambda self, digests: b"a list",
    )
    first, second = two_promises(readers)
    np.testing.assert_array_equal(first - second, SHIFT)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda told: {"signatures": dict.fromkeys(told, bytes(64))},
        lambda told: {"digests": {"party 0": told["party 0"]}},
        lambda told: {"digests": told | {"party 1": secrets.token_bytes(96)}},
        lambda told: {"digests": told | {"party 1": told["party 0"]}},
        lambda told: {"digests": told | {"party 1": b""}},
        lambda told: {"digests": told | {"party 1": 5}},
        lambda told: {"digests": told, "more": 1},
        lambda told: {"more": told},
        lambda told: {"digests": [1]},
    ],
)
def test_nothing_is_sent_before_all_have_promised(spoil):
    """The masked vector leaves in the last step; until then there are digests only."""
    sessions = start_sessions(BACKEND, make_contexts(3))
    exchange = Exchange(sessions, VECTORS)
    promised = {
        name: HiddenVector.from_payload(said["vector"]).parts[0]
        for name, said in exchange._send(None).items()
    }
    assert {len(part) for part in promised.values()} == {96}
    with pytest.raises(ProtocolError):
        exchange.parties["party 0"].send(spoil(promised))
    party = exchange.parties["party 1"]
    signature = party.send({"digests": promised})["signature"]
    with pytest.raises(ProtocolError, match="not signed"):
        party.send({"signatures": dict.fromkeys(sessions, signature)})


@pytest.mark.parametrize("readers", READERS)
def test_one_sum_after_the_other(readers):
    sessions = start_sessions(BACKEND, make_contexts(3), readers)
    for number in (1, 2):
        exchange = Exchange(sessions, number * VECTORS)
        for found in exchange.read(exchange.run(BACKEND)).values():
            np.testing.assert_array_equal(found, number * VECTORS.sum(axis=0))


def test_options():
    with pytest.raises(ValueError, match="needs all parties"):
        MaskingBackend(recovery=True, signed=True).validate()
    words = BACKEND.describe(["a", "b"])["hidden_by"]
    assert words.endswith("adds the signed vectors of all by itself")
