"""What the coordinator makes of parties that fail, are late, or talk nonsense."""

import pickle

import numpy as np
import pytest

from skprivbn.crypto import CKKSBackend, MaskingBackend
from skprivbn.exceptions import PartyError, ProtocolError
from skprivbn.federation import (
    Coordinator,
    InProcessFederation,
    Sum,
    Terms,
    decode,
    encode,
    program,
)
from skprivbn.federation.coordinator import check_same
from skprivbn.federation.program import ALL_ROWS
from tests.federation.hostile import changed
from tests.federation.protocol import MeanTerms, make_blocks, mean

FAILURES = [("refuse", "invalid-data"), ("overflow", "out-of-range"), ("x", "failed")]


def run(
    blocks, terms=None, backend="masking", transport=InProcessFederation, **options
):
    session = transport(blocks, mean, terms or MeanTerms(), backend, **options)
    with session:
        return session.run(), session


class Recording(InProcessFederation):
    """Keeps what parties answer."""

    def _exchange(self, requests, timeout):
        replies = super()._exchange(requests, timeout)
        self.heard = [*getattr(self, "heard", []), *replies.values()]
        return replies


@pytest.mark.parametrize("how, code", FAILURES)
def test_only_a_code_leaves_a_failing_party(blocks, how, code, caplog):
    session = Recording(blocks, mean, MeanTerms(fails=how), "masking")
    with caplog.at_level("DEBUG"), pytest.raises(PartyError, match="south") as caught:
        with session:
            session.run()
    assert (caught.value.party, caught.value.code) == ("south", code)
    assert not any(b"31415926" in reply for reply in session.heard)
    assert "31415926" not in caplog.text
    assert pickle.loads(pickle.dumps(caught.value)).code == code


@pytest.mark.parametrize("how, code", FAILURES)
def test_in_one_process_the_cause_is_chained(blocks, how, code):
    with pytest.raises(PartyError) as caught:
        run(blocks, MeanTerms(fails=how))
    cause = caught.value.__cause__
    assert "31415926" in "\n".join([str(cause), *getattr(cause, "__notes__", [])])
    assert "31415926" in caught.value.__notes__[0]


def test_debugging_lets_exceptions_through(blocks):
    with pytest.raises(RuntimeError, match="31415926"):
        run(blocks, MeanTerms(fails="x"), debug=True)


#: by which replies are told apart; keys of recoverable sums are signed, too
WORDS = ("public", "shares", "vector", "signature", "seeds", "tells")


class Changing(InProcessFederation):
    """Puts something else in the place of what a party says, if it says a word."""

    def __init__(self, word, party, change, *arguments, **options):
        super().__init__(*arguments, **options)
        self.word, self.party, self.change = word, party, change

    def _exchange(self, requests, timeout):
        replies = super()._exchange(requests, timeout)
        if self.party in replies:
            payload = decode(replies[self.party])["payload"]
            if next((word for word in WORDS if word in payload), "") == self.word:
                replies[self.party] = self.change(payload)
        return replies


def run_changed(word, change, party="south", *, blocks, backend="masking", **options):
    session = Changing(
        word, party, change, blocks, mean, MeanTerms(), backend, **options
    )
    with session:
        return session.run()


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\x80\x04K\x01.",
        encode(None),
        encode([]),
        encode({"ok": 1, "payload": {}}),
        encode({"ok": True, "payload": []}),
        encode({"ok": True, "payload": {}}),
        encode({"ok": False, "code": "see row 31415926"}),
    ],
)
def test_garbage_names_the_party(blocks, garbage):
    with pytest.raises(PartyError, match="south.*decoded") as caught:
        run_changed("vector", lambda payload: garbage, blocks=blocks)
    assert "31415926" not in str(caught.value)


SPOILT_VECTORS = {
    "missing": lambda vector: {},
    "no dict": lambda vector: {"vector": 5},
    "clear": lambda vector: {"vector": np.zeros(3)},
    "longer": lambda vector: {"vector": changed(vector, length=99)},
    "no parts": lambda vector: {"vector": changed(vector, parts=[])},
    "other kind": lambda vector: {"vector": changed(vector, kind="other")},
    "other sum": lambda vector: {"vector": changed(vector, key=bytes(33))},
    "two in one": lambda vector: {"vector": changed(vector, addends=2)},
    "other round": lambda vector: {"vector": changed(vector, round=7)},
}


def said_with(spoil):
    """Return a change of a reply that spoils its vector."""

    def change(payload):
        said = {key: value for key, value in payload.items() if key != "vector"}
        payload = said | spoil(payload["vector"])
        return encode({"ok": True, "payload": payload})

    return change


@pytest.mark.parametrize("how", SPOILT_VECTORS)
def test_malformed_vectors_name_their_party(blocks, how):
    with pytest.raises(PartyError) as caught:
        run_changed("vector", said_with(SPOILT_VECTORS[how]), blocks=blocks)
    assert (caught.value.party, caught.value.code) == ("south", "garbage")


def test_a_ciphertext_that_is_none_names_its_party(blocks):
    def spoil(vector):
        return {"vector": changed(vector, parts=[bytes(len(vector[2]))])}

    with pytest.raises(PartyError, match="party 'south'"):
        run_changed(
            "vector", said_with(spoil), blocks=blocks, backend=CKKSBackend("fast")
        )


@pytest.mark.parametrize("payload", [{"sealed": 1}, {"sealed": {"north": 1}}])
def test_malformed_messages_to_peers_name_their_party(blocks, payload):
    def change(said):
        return encode({"ok": True, "payload": said | payload})

    with pytest.raises(PartyError, match="party 'south'"):
        run_changed("tells", change, blocks=blocks)


def test_without_a_look_at_what_parties_say_nobody_is_named(blocks, monkeypatch):
    monkeypatch.setattr(Coordinator, "_is_said", lambda self, said: True)
    with pytest.raises((StopIteration, KeyError, RuntimeError, TypeError)):
        run_changed("vector", said_with(SPOILT_VECTORS["missing"]), blocks=blocks)


def test_a_late_party_is_named(blocks):
    with pytest.raises(PartyError, match="west.*in time"):
        run_changed("vector", lambda payload: None, "west", blocks=blocks)


def test_in_process_answers_can_be_late_too(blocks):
    with pytest.raises(PartyError, match="in time"):
        run(blocks, timeout=0.0)


@pytest.mark.parametrize(
    "word, spoil",
    [
        ("public", lambda said: {"public": 3}),
        ("public", lambda said: {"round": 9}),
        ("shares", lambda said: {"shares": 1}),
        ("shares", lambda said: {"shares": {"a": b""}}),
        ("shares", lambda said: {"shares": dict.fromkeys("abcdef", bytes(82))}),
        ("signature", lambda said: {"signature": b"short"}),
        ("seeds", lambda said: {"keys": []}),
        *(
            ("vector", lambda said, spoil=spoil: spoil(said["vector"]))
            for spoil in SPOILT_VECTORS.values()
        ),
    ],
)
def test_with_recovery_the_only_sum_goes_on_without_who_answers_garbage(word, spoil):
    blocks = make_blocks("abcdefg")

    def change(said):
        kept = {k: v for k, v in said.items() if k != "vector" or word != "vector"}
        return encode({"ok": True, "payload": kept | spoil(said)})

    session = Changing(
        word,
        "b",
        change,
        blocks,
        mean,
        MeanTerms(n_sums=1),
        MaskingBackend(recovery=True),
        on_dropout="continue",
    )
    with session:
        found = session.run()["mean"]
    # by the last step nobody needs it any more: it may stay
    assert set(session.lost) == ({"b"} if word != "seeds" else set())
    # whose vector has arrived by then is in the sum
    names = "abcdefg" if word in ("signature", "seeds") else "acdefg"
    rows = np.vstack([blocks[name]["X"] for name in names])
    np.testing.assert_allclose(found, rows.mean(axis=0), rtol=1e-14)


@pytest.mark.parametrize(
    "word, spoil",
    [
        ("vector", lambda said: {"vector": changed(said["vector"], length=9)}),
        ("vector", lambda said: {"vector": changed(said["vector"], parts=[b""])}),
        ("signature", lambda said: {"signature": b"short"}),
        ("vector", lambda said: {"vector": changed(said["vector"], parts=[b"1"])}),
        ("vector", lambda said: {"vector": changed(said["vector"], parts=[])}),
    ],
)
def test_malformed_steps_of_signed_sums_name_their_party(blocks, word, spoil):
    def change(said):
        return encode({"ok": True, "payload": said | spoil(said)})

    backend = MaskingBackend(signed=True)
    with pytest.raises(PartyError) as caught:
        run_changed(word, change, blocks=blocks, backend=backend)
    assert (caught.value.party, caught.value.code) == ("south", "garbage")


def test_nothing_is_shared_by_reference(blocks):
    """A party that changes the total it was sent changes it for itself only."""

    @program(Terms)
    def greedy(me):
        total = yield Sum([1.0, 2.0], "ones and twos", ALL_ROWS)
        if me.name == "north":
            total += 1
        return {"total": total}

    with pytest.raises(ProtocolError, match="disagree"):
        with InProcessFederation(blocks, greedy, Terms(), "masking") as session:
            session.run()


def test_leaving_forgets_the_session(blocks):
    _, session = run(blocks, backend="ckks")
    for runner in session._runners.values():
        assert runner._session is None and not runner._sums and runner._rest is None


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
def test_results_are_compared_number_by_number(one, other, same):
    rtol = 0.01 if isinstance(one[0], float) else 0.0
    replies = {"a": {"x": np.array(one)}, "b": {"x": np.array(other)}}
    if same:
        assert check_same(replies, "mean", rtol) is replies["a"]
    else:
        with pytest.raises(ProtocolError, match="disagree on the result of mean"):
            check_same(replies, "mean", rtol)
