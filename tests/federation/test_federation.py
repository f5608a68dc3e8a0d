import pickle

import numpy as np
import pytest

from skprivbn.exceptions import PartyError, ProtocolError
from skprivbn.federation import InProcessFederation, decode, encode
from skprivbn.federation._answers import check_same
from tests.federation.protocol import MeanParty, MeanTerms

BACKENDS = ["plaintext", "masking", "ckks", "paillier"]


def pooled(blocks):
    return np.vstack([block["X"] for block in blocks.values()])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_secure_sum_is_the_sum(blocks, backend):
    with InProcessFederation(blocks, MeanParty, MeanTerms(), backend) as federation:
        total = federation.secure_sum("moments")
        assert federation.agree("update", {"total": total})
        reply = federation.unanimous("release")
    expected = np.round(pooled(blocks).mean(axis=0)).astype(int)
    np.testing.assert_array_equal(reply["mean"], expected)
    assert isinstance(total, dict) == (backend in ("ckks", "paillier"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_exact_sums_go_to_the_coordinator_whatever_the_backend(blocks, backend):
    with InProcessFederation(blocks, MeanParty, MeanTerms(), backend) as federation:
        total = federation.secure_sum("scale")
    expected = (pooled(blocks) ** 2).sum(axis=0)
    np.testing.assert_allclose(total, expected, rtol=1e-15)


def test_parties_talk_to_each_other_sealed(blocks):
    with InProcessFederation(blocks, MeanParty, MeanTerms(), "plaintext") as federation:
        federation.converse("talk")
        heard = {name: host._party.heard for name, host in federation._hosts.items()}
        federation.call("release", to=())
    assert heard == {
        name: {peer: 2 for peer in blocks if peer != name} for name in blocks
    }
    sealed = [e for e in federation.ledger.entries if e.kind == "sealed"]
    assert {(e.sender, e.receiver) for e in sealed} == {
        (a, b) for a in blocks for b in blocks if a != b
    }


def test_two_of_three_can_talk(blocks):
    class PairParty(MeanParty):
        @property
        def peers(self):
            return ("south",) if self.name == "north" else ("north",)

    with InProcessFederation(blocks, PairParty, MeanTerms(), "plaintext") as federation:
        federation.converse("talk", between=["north", "south"])


def test_a_conversation_that_stalls_is_an_error(blocks):
    class Silent(MeanParty):
        @property
        def peers(self):
            return ()

    with InProcessFederation(blocks, Silent, MeanTerms(), "plaintext") as federation:
        with pytest.raises(ProtocolError, match="wait for messages"):
            federation.converse("talk")


@pytest.mark.parametrize(
    "how, code",
    [("refuse", "invalid-data"), ("overflow", "out-of-range"), ("x", "failed")],
)
def test_only_a_code_leaves_a_failing_party(blocks, how, code, caplog):
    replies = []

    class Spy(InProcessFederation):
        def _exchange(self, requests, timeout):
            answers = super()._exchange(requests, timeout)
            replies.extend(answers.values())
            return answers

    with (
        caplog.at_level("DEBUG"),
        Spy(blocks, MeanParty, MeanTerms(), "plaintext") as federation,
    ):
        with pytest.raises(PartyError, match="north.*fail") as caught:
            federation.call("fail", {"how": how})
    assert (caught.value.party, caught.value.code) == ("north", code)
    assert not any(b"31415926" in reply for reply in replies)
    assert "31415926" not in caplog.text
    assert pickle.loads(pickle.dumps(caught.value)).code == code


def test_a_failed_party_takes_part_in_nothing_more(blocks):
    with InProcessFederation(blocks, MeanParty, MeanTerms(), "plaintext") as federation:
        with pytest.raises(PartyError):
            federation.call("fail", {"how": "x"}, to="south")
        with pytest.raises(PartyError, match="refuses"):
            federation.call("moments")


def test_in_one_process_the_cause_is_chained(blocks):
    opened = InProcessFederation(blocks, MeanParty, MeanTerms(), "plaintext")
    with opened as federation, pytest.raises(PartyError) as caught:
        federation.call("fail", {"how": "x"})
    assert "31415926" in str(caught.value.__cause__)


def test_debugging_lets_exceptions_through(blocks):
    with InProcessFederation(
        blocks, MeanParty, MeanTerms(), "plaintext", debug=True
    ) as federation:
        with pytest.raises(RuntimeError, match="31415926"):
            federation.call("fail", {"how": "x"})


@pytest.mark.parametrize("operation", ["update", "prepare", "schedule", "hide", "nope"])
def test_operations_out_of_turn_are_refused(blocks, operation):
    with InProcessFederation(blocks, MeanParty, MeanTerms(), "plaintext") as federation:
        federation._operations = {
            **federation._operations,
            operation: federation._operations["moments"],
        }
        with pytest.raises(PartyError, match="refuses"):
            federation.call(operation, {"total": np.zeros(3)})


def test_rounds_are_bounded(blocks):
    with InProcessFederation(
        blocks, MeanParty, MeanTerms(max_rounds=1), "plaintext"
    ) as federation:
        federation.agree("update", {"total": federation.secure_sum("moments")})
        with pytest.raises(PartyError, match="refuses"):
            federation.secure_sum("moments")


def test_unexpected_arguments_are_refused(blocks):
    with InProcessFederation(blocks, MeanParty, MeanTerms(), "plaintext") as federation:
        with pytest.raises(PartyError):
            federation.call("moments", {"rows": True})


def test_disagreement_is_an_error(blocks):
    class Moody(MeanParty):
        def update(self, total):
            super().update(total)
            return {"go_on": self.name == "north"}

        update.operation = MeanParty.update.operation

    with InProcessFederation(blocks, Moody, MeanTerms(), "plaintext") as federation:
        total = federation.secure_sum("moments")
        with pytest.raises(ProtocolError, match="disagree"):
            federation.agree("update", {"total": total})


class Tampering(InProcessFederation):
    """A coordinator or network that changes what parties say."""

    change = staticmethod(lambda name, operation, reply: reply)

    def _exchange(self, requests, timeout):
        operations = {n: decode(m)["operation"] for n, m in requests.items()}
        replies = super()._exchange(requests, timeout)
        return {n: self.change(n, operations[n], r) for n, r in replies.items()}


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\x80\x04K\x01.",
        encode(None),
        encode([]),
        encode({"ok": 1, "payload": {}}),
        encode({"ok": True, "payload": []}),
        encode({"ok": False, "code": "see row 31415926"}),
    ],
)
def test_garbage_names_the_party(blocks, garbage):
    federation = Tampering(blocks, MeanParty, MeanTerms(), "plaintext")
    federation.change = lambda name, operation, reply: (
        garbage if (name, operation) == ("south", "moments") else reply
    )
    with federation, pytest.raises(PartyError, match="south.*decoded") as caught:
        federation.secure_sum("moments")
    assert "31415926" not in str(caught.value)


@pytest.mark.parametrize("backend", ["masking", "ckks", "paillier"])
def test_a_corrupted_hidden_vector_is_detected(blocks, backend):
    def damage(name, operation, reply):
        if (name, operation) != ("south", "moments"):
            return reply
        payload = decode(reply)["payload"]
        payload["vector"]["parts"] = payload["vector"]["parts"][:-1]
        return encode({"ok": True, "payload": payload})

    federation = Tampering(blocks, MeanParty, MeanTerms(), backend)
    federation.change = damage
    with federation, pytest.raises((ProtocolError, PartyError)):
        federation.secure_sum("moments")


def test_a_late_party_is_named(blocks):
    federation = Tampering(blocks, MeanParty, MeanTerms(), "plaintext")
    federation.change = lambda name, operation, reply: (
        None if (name, operation) == ("west", "moments") else reply
    )
    with federation, pytest.raises(PartyError, match="west.*in time"):
        federation.secure_sum("moments")


def test_in_process_answers_can_be_late_too(blocks):
    with pytest.raises(PartyError, match="in time"):
        with InProcessFederation(
            blocks, MeanParty, MeanTerms(), "plaintext", timeout=0.0
        ):
            pass


def test_losing_a_party_is_recorded_when_allowed(blocks):
    federation = Tampering(
        blocks, MeanParty, MeanTerms(), "plaintext", on_dropout="continue"
    )
    federation.change = lambda name, operation, reply: (
        None if (name, operation) == ("west", "moments") else reply
    )
    with federation:
        replies = federation.call("moments", missing="drop")
    assert list(replies) == ["north", "south"]
    assert federation.lost == {"west": "moments"}
    assert federation.active == ("north", "south")
    assert any("west was lost" in note for note in federation.ledger.notes)


def test_unknown_operations_are_the_coordinators_mistake(blocks):
    with InProcessFederation(blocks, MeanParty, MeanTerms(), "plaintext") as federation:
        with pytest.raises(ValueError, match="has no 'median'"):
            federation.call("median")


def test_nothing_is_shared_by_reference(blocks):
    total = np.zeros(3)

    class Greedy(MeanParty):
        def update(self, total):
            total += 1
            return {"go_on": True}

        update.operation = MeanParty.update.operation

    with InProcessFederation(blocks, Greedy, MeanTerms(), "plaintext") as federation:
        federation.secure_sum("moments")
        federation.agree("update", {"total": total})
    np.testing.assert_array_equal(total, 0)


def test_leaving_forgets_the_session(blocks):
    with InProcessFederation(blocks, MeanParty, MeanTerms(), "ckks") as federation:
        federation.secure_sum("moments")
    for host in federation._hosts.values():
        assert host._party is None and host._session is None and not host._sums
    with pytest.raises(PartyError, match="refuses"):
        federation.call("moments")


def test_rotation_changes_the_key(blocks):
    with InProcessFederation(blocks, MeanParty, MeanTerms(), "ckks") as federation:
        first = federation.secure_sum("moments")
        federation.agree("update", {"total": first})
        federation.rotate_keys()
        second = federation.secure_sum("moments")
        assert second["sum"] != first["sum"]
        assert federation.agree("update", {"total": second})


@pytest.mark.parametrize(
    "one, other, same",
    [
        ([1.0, np.nan, np.inf], [1.0, np.nan, np.inf], True),
        ([1.0, np.nan], [1.0, 2.0], False),
        ([np.nan, 1.0], [2.0, 1.0], False),
        ([np.inf], [1.0], False),
        ([100.0, 1.0], [100.0, 1.5], True),
        ([1.0, 1.0], [1.0, 1.5], False),
        ([2**60], [2**60 + 1], False),
    ],
)
def test_answers_are_compared_number_by_number(one, other, same):
    rtol = 0.01 if isinstance(one[0], float) else 0.0
    replies = {"a": {"x": np.array(one)}, "b": {"x": np.array(other)}}
    if same:
        assert check_same(replies, "op", rtol) is replies["a"]
    else:
        with pytest.raises(ProtocolError, match="disagree on the result of op"):
            check_same(replies, "op", rtol)
