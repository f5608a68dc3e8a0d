"""What came of sums is told by all parties, who hold the same totals, or by none.

Peers compare digests of what they verified, sealed, before the first of them answers. A
party on the coordinator's side has the key of the tags; it has not the channels between
the others.
"""

import hashlib

import numpy as np
import pytest

from skprivbn.crypto import (
    HiddenVector,
    PartyMaskingBackend,
    SparseMaskingBackend,
    _sparse,
)
from skprivbn.exceptions import PartyError
from skprivbn.federation import InProcessFederation, decode, encode
from skprivbn.federation._host import PartyHost
from tests.crypto.test_signed import shift_with_a_fitting_tag
from tests.federation.hostile import changed
from tests.federation.protocol import MeanParty, MeanTerms

BLOCKS = {
    name: {"X": np.arange(12.0).reshape(4, 3) + i} for i, name in enumerate("abc")
}
TRUTH = np.round(np.vstack([block["X"] for block in BLOCKS.values()]).mean(axis=0))
#: 12 rows: all columns then have the mean that the pair wants
SHIFT = np.array([1200.0, 1200.0, 1200.0, 0.0])


@pytest.fixture
def no_agreement(monkeypatch):
    """Let parties answer as soon as they can."""
    monkeypatch.setattr(PartyHost, "_needs_agreement", lambda self, answer: False)


@pytest.fixture
def federation():
    with InProcessFederation(
        BLOCKS, MeanParty, MeanTerms(), PartyMaskingBackend()
    ) as federation:
        yield federation


def forged(federation, total, accomplice="c"):
    """Return another total, with a tag by a party that has the key."""
    parts = list(HiddenVector.from_payload(total).parts)
    sums = federation._hosts[accomplice]._plain_sums
    parts[0] = shift_with_a_fitting_tag(sums, parts[0], SHIFT)
    return changed(total, parts=parts)


def help_the_coordinator(federation, name="c"):
    """Have a party tell each peer the digest that this peer wants to see."""
    host = federation._hosts[name]

    def agree(answer):
        digests = {}
        for peer in host._party.peers:
            other = federation._hosts[peer]
            known = other._heard + other._session.group.transcript
            digests[peer] = {"digest": hashlib.sha256(known).digest()}
        yield digests
        return answer

    host._agree = agree


def tell_two_totals(federation):
    """Hand one party a made-up total and the others the true one; ask for results."""
    total = federation.secure_sum("moments")
    help_the_coordinator(federation)
    federation.call("update", {"total": forged(federation, total)}, to="a")
    federation.call("update", {"total": total}, to=("b", "c"))
    return federation.call("release")


def test_attack_different_totals_for_different_parties(federation):
    with pytest.raises(PartyError, match="not signed or sealed") as caught:
        tell_two_totals(federation)
    assert caught.value.operation == "release"
    assert not any(e.tells and e.operation == "release" for e in told(federation))


def test_without_digests_one_party_answers_for_a_made_up_total(
    federation, no_agreement
):
    replies = tell_two_totals(federation)
    np.testing.assert_array_equal(replies["a"]["mean"], TRUTH + 100)
    np.testing.assert_array_equal(replies["b"]["mean"], TRUTH)


def told(federation):
    return [e for e in federation.ledger.entries if e.receiver == "coordinator"]


def ask_one_party(federation):
    """Hand the last total to one party alone, and answer it in the peers' place."""
    total = federation.secure_sum("moments")
    federation.call("update", {"total": total}, to="a")
    reply = federation._ask("release", {"a": {}}, None, "raise")["a"]
    if "mean" in reply:
        return reply["mean"]
    # the only sealed messages there are are its own
    talk = {"a": {"sealed": {peer: reply["sealed"][peer] for peer in "bc"}}}
    return federation._ask("session.talk", talk, None, "raise", "release")["a"]


def test_attack_the_last_message_reaches_one_party(federation):
    with pytest.raises(PartyError, match="not signed or sealed"):
        ask_one_party(federation)


def test_attack_nobody_else_is_asked(federation):
    total = federation.secure_sum("moments")
    federation.call("update", {"total": total})
    federation._ask("release", {"a": {}}, None, "raise")
    with pytest.raises(PartyError, match="not signed or sealed"):
        federation._ask("session.talk", {"a": {"sealed": {}}}, None, "raise")


def test_without_digests_one_party_answers_alone(federation, no_agreement):
    np.testing.assert_array_equal(ask_one_party(federation), TRUTH)


def test_a_digest_is_one_round_and_tells_the_coordinator_nothing(federation):
    total = federation.secure_sum("moments")
    assert federation.agree("update", {"total": total})
    n_rounds = federation.ledger.n_rounds
    assert federation.unanimous("release")["mean"].tolist() == TRUTH.tolist()
    assert federation.ledger.n_rounds == n_rounds + 2
    sealed = [
        e
        for e in federation.ledger.entries
        if e.kind == "sealed" and e.operation == "release"
    ]
    assert len(sealed) == 6 and {e.n_bytes for e in sealed} == {sealed[0].n_bytes}
    assert sealed[0].n_bytes < 100


def test_among_many_neighbours_compare(monkeypatch):
    """Through them all honest parties hang together."""
    monkeypatch.setattr(_sparse, "n_neighbours", lambda n, share: 4)
    blocks = {f"p{i}": {"X": np.full((2, 3), float(i))} for i in range(12)}
    backend = SparseMaskingBackend()
    with InProcessFederation(blocks, MeanParty, MeanTerms(), backend) as federation:
        total = federation.secure_sum("moments")
        federation.agree("update", {"total": total})
        federation.unanimous("release")
        sealed = [
            (e.sender, e.receiver)
            for e in federation.ledger.entries
            if e.kind == "sealed" and e.operation == "release"
        ]
        assert len(sealed) == 12 * 4 == len(set(sealed))
    with InProcessFederation(blocks, MeanParty, MeanTerms(), backend) as federation:
        federation.agree("update", {"total": federation.secure_sum("moments")})
        federation._hosts["p5"]._heard = bytes(31) + b"x"
        with pytest.raises(PartyError, match="not signed or sealed"):
            federation.unanimous("release")


def test_who_asks_one_party_for_a_result_is_told_to_ask_all(federation):
    federation.agree("update", {"total": federation.secure_sum("moments")})
    with pytest.raises(ValueError, match="ask all of them"):
        federation.call("release", to=federation.first)


def test_a_party_alone_answers_at_once():
    terms, block = MeanTerms(), {"a": BLOCKS["a"]}
    with InProcessFederation(block, MeanParty, terms, "plaintext") as federation:
        federation.agree("update", {"total": federation.secure_sum("moments")})
        n_rounds = federation.ledger.n_rounds
        federation.unanimous("release")
        assert federation.ledger.n_rounds == n_rounds + 1


def test_two_turns_are_no_answer(federation, monkeypatch):
    """A party that never comes to the point has answered garbage."""
    federation.agree("update", {"total": federation.secure_sum("moments")})

    def talk_on(answer):
        while True:
            yield dict.fromkeys("ac", {"digest": b""})

    federation._hosts["b"]._agree = talk_on
    federation._hosts["a"]._agree = talk_on
    with pytest.raises(PartyError, match="garbage|not signed"):
        federation.call("release")


class Chatting(InProcessFederation):
    """One party talks where the others answer, or the other way round."""

    def _exchange(self, requests, timeout):
        replies = super()._exchange(requests, timeout)
        if decode(requests["a"])["operation"] == "release":
            payload = {"mean": np.zeros(3, dtype=int)}
            if "mean" in decode(replies["a"])["payload"]:
                payload = {"sealed": {"a": b"x", "c": b"x"}, "done": False}
            replies["b"] = encode({"ok": True, "payload": payload})
        return replies


@pytest.mark.parametrize("agreeing", [True, False])
def test_who_talks_where_others_answer_is_named(agreeing, monkeypatch):
    if not agreeing:
        monkeypatch.setattr(PartyHost, "_needs_agreement", lambda self, answer: False)
    with Chatting(BLOCKS, MeanParty, MeanTerms(), "masking") as federation:
        federation.agree("update", {"total": federation.secure_sum("moments")})
        with pytest.raises(PartyError) as caught:
            federation.call("release")
    assert (caught.value.party, caught.value.code) == ("b", "garbage")
