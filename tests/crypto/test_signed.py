"""Sums that every party adds up by itself, against a coordinator with an accomplice."""

import secrets
from dataclasses import replace

import numpy as np
import pytest

from skprivbn.crypto import HiddenVector, MaskingBackend, PartyMaskingBackend, _signed
from skprivbn.crypto._masking import (
    add_masked,
    bytes_of_value,
    read_limbs,
    write_limbs,
)
from skprivbn.crypto._numbers import add_limbs
from skprivbn.exceptions import ProtocolError
from tests.crypto.micro_federation import (
    MicroFederation,
    hide_all,
    make_contexts,
    secure_sum,
    start_sessions,
)

BACKENDS = [MaskingBackend(signed=True), PartyMaskingBackend(signed=True)]
VECTORS = np.arange(12.0).reshape(3, 4)


def steps(sessions, digests):
    """Run both steps with the digests that a coordinator shows to each party."""
    signatures = {
        name: session.control("list", {"digests": digests(name)})["signature"]
        for name, session in sessions.items()
    }
    replies = [
        session.control("send", {"signatures": signatures})
        for session in sessions.values()
    ]
    return [HiddenVector.from_reply(reply).parts[0] for reply in replies]


def honest(backend):
    """Return sessions and the total of all as it travels."""
    sessions = start_sessions(backend, make_contexts(3))
    promised = hide_all(sessions, VECTORS)
    digests = {name: h.parts[0] for name, h in zip(sessions, promised)}
    parts = steps(sessions, lambda name: digests)
    return sessions, replace(promised[0], parts=parts, addends=3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_parties_add_the_same(backend):
    sessions, total = honest(backend)
    for session in sessions.values():
        np.testing.assert_array_equal(session.reveal(total), VECTORS.sum(axis=0))
    if backend.sum_known_to == "coordinator":
        np.testing.assert_array_equal(backend.open(total), VECTORS.sum(axis=0))


def shift_with_a_fitting_tag(accomplice, part, shift):
    """Change a masked vector as one can who has the key of the tags."""
    last, n = accomplice._last, accomplice._last.length
    hidden = HiddenVector("masked", n, last.number, last.key, [part])
    limbs, extra = read_limbs(hidden), last.numbers.encode(shift)
    tags = [last.tags.tag(x, accomplice._name) for x in (extra, np.zeros_like(extra))]
    change = accomplice._backend.ring
    more = (change.join(tags[0]) - change.join(tags[1])) % change.modulus
    add_limbs(limbs[:, :n], extra)
    add_limbs(limbs[:, n : n + 2], change.split(more, 2))
    return write_limbs(limbs[:, :n], limbs[:, n:], bytes_of_value(last.key))


SHIFT = np.array([1e6, -5.0, 0.0, 0.25])


@pytest.mark.parametrize("masks", [MaskingBackend, PartyMaskingBackend])
def test_accomplice_makes_up_a_total_unless_parties_add(masks):
    """The twin without signatures, in which all accept a total of the pair's choice."""
    backend = masks()
    sessions = start_sessions(backend, make_contexts(3))
    total = backend.add(hide_all(sessions, VECTORS))
    forged = shift_with_a_fitting_tag(sessions["party 2"], total.parts[0], SHIFT)
    for name in ("party 0", "party 1"):
        found = sessions[name].reveal(replace(total, parts=[forged]))
        np.testing.assert_array_equal(found, VECTORS.sum(axis=0) + SHIFT)

    sessions, total = honest(masks(signed=True))
    for place in (0, 2):  # an honest party's vector, or the accomplice's own
        sessions, total = honest(masks(signed=True))
        parts = list(total.parts)
        parts[place] = shift_with_a_fitting_tag(
            sessions["party 2"], parts[place], SHIFT
        )
        with pytest.raises(ProtocolError, match="not the vectors"):
            sessions["party 1"].reveal(replace(total, parts=parts))


@pytest.mark.parametrize("backend", BACKENDS)
def test_parts_left_out_repeated_or_added_beforehand(backend):
    for change in (
        lambda parts: parts[:2],
        lambda parts: [parts[0], parts[0], parts[2]],
        lambda parts: [parts[1], parts[0], parts[2]],
        lambda parts: [*parts, parts[0]],
        lambda parts: add_masked([parts]),
    ):
        sessions, total = honest(backend)
        with pytest.raises(ProtocolError, match="not the vectors"):
            sessions["party 0"].reveal(replace(total, parts=change(total.parts)))


def two_promises(backend):
    """The accomplice promises one vector to one party and another to the other."""
    sessions = start_sessions(backend, make_contexts(3))
    promised = hide_all(sessions, VECTORS)
    digests = {name: h.parts[0] for name, h in zip(sessions, promised)}
    accomplice = sessions["party 2"]
    other = shift_with_a_fitting_tag(accomplice, accomplice._part, SHIFT)
    digest = _signed.hashlib.sha256(other).digest()
    text = accomplice._digest_text("party 2", digest, accomplice._last.key)
    changed = digests | {"party 2": digest + accomplice._context.sign(text)}
    shown = {"party 0": changed, "party 1": digests, "party 2": digests}
    parts = steps(sessions, shown.__getitem__)
    total = replace(promised[0], parts=parts, addends=3)
    forged = replace(total, parts=[*parts[:2], other])
    return sessions["party 0"].reveal(forged), sessions["party 1"].reveal(total)


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_parties_cannot_be_shown_different_vectors(backend, monkeypatch):
    with pytest.raises(ProtocolError):
        two_promises(backend)
    # the twin: nobody compares lists, and two parties go on with different totals
    monkeypatch.setattr(_signed._AddedByAll, "_list_text", lambda self: b"a list")
    first, second = two_promises(backend)
    np.testing.assert_array_equal(first - second, SHIFT)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_is_sent_before_all_have_promised(backend):
    """The masked vector leaves in the last step; until then there are digests only."""
    sessions = start_sessions(backend, make_contexts(3))
    promised = hide_all(sessions, VECTORS)
    digests = {name: h.parts[0] for name, h in zip(sessions, promised)}
    assert {len(part) for part in digests.values()} == {96}
    session = sessions["party 0"]
    for step, payload in [
        ("send", {"signatures": dict.fromkeys(sessions, bytes(64))}),
        ("list", {"digests": {"party 0": digests["party 0"]}}),
        ("list", {"digests": digests | {"party 1": secrets.token_bytes(96)}}),
        ("list", {"digests": digests | {"party 1": digests["party 0"]}}),
        ("list", {"digests": digests | {"party 1": b""}}),
        ("list", {"digests": digests | {"party 1": 5}}),
        ("list", {"more": digests}),
        ("list", {"digests": [1]}),
        ("unmask", {}),
    ]:
        with pytest.raises(ProtocolError):
            session.control(step, payload)
        session._next_step = "list"
    signature = session.control("list", {"digests": digests})["signature"]
    with pytest.raises(ProtocolError):
        session.control("send", {"signatures": dict.fromkeys(sessions, signature)})
    with pytest.raises(ProtocolError):
        session.control("send", {"signatures": dict.fromkeys(sessions, signature)})


@pytest.mark.parametrize("backend", BACKENDS)
def test_sums_as_a_federation_runs_them(backend):
    sessions = start_sessions(backend, make_contexts(3))
    for number in (1, 2):
        federation = MicroFederation(sessions, number * VECTORS)
        total = backend.secure_sum(federation, "statistics")
        for session in sessions.values():
            found = session.reveal(total)
            np.testing.assert_array_equal(found, number * VECTORS.sum(axis=0))


def test_options():
    with pytest.raises(ValueError, match="needs all parties"):
        MaskingBackend(recovery=True, signed=True).validate()
    words = PartyMaskingBackend(signed=True).describe(["a", "b"])["hidden_by"]
    assert words.endswith("adds the signed vectors of all by itself")
    assert secure_sum(MaskingBackend(), VECTORS).shape == (4,)
