"""Messages too long, too many values, arrays that would stretch, malformed answers."""

import time
import tracemalloc
from itertools import count

import numpy as np
import pytest

from skprivbn.crypto import CKKSBackend, MaskingBackend, PartyMaskingBackend
from skprivbn.exceptions import PartyError, ProtocolError
from skprivbn.federation import (
    Coordinator,
    InProcessFederation,
    PartyRefusal,
    _host,
    decode,
    encode,
    runner,
)
from skprivbn.federation._party import Operation
from skprivbn.federation._wire import MAX_VALUES
from skprivbn.mixture import PPEMGaussianMixture
from tests.federation.hostile import changed
from tests.federation.protocol import MeanParty, MeanTerms
from tests.federation.test_federation_recovery import BLOCKS, LosableParty, total_of
from tests.federation.test_host import ask, host, join, request, started

LONG = b"x" * 2_000_000


@pytest.fixture
def decoded(monkeypatch):
    """Lengths of what hosts decode."""
    lengths = []

    def noting(message):
        lengths.append(len(message))
        return decode(message)

    monkeypatch.setattr(runner, "decode", noting)
    return lengths


@pytest.mark.parametrize("operation", ["moments", "session.rotate", "backend"])
def test_attack_long_message_is_refused_before_it_is_decoded(operation, decoded):
    party = started()["a"]
    decoded.clear()
    message = request(operation, 2, {"padding": LONG})
    assert decode(party.handle(message)) == {"ok": False, "code": "too-large"}
    assert not decoded


def test_without_the_limit_a_long_message_is_decoded(decoded, monkeypatch):
    monkeypatch.setattr(_host.PartyHost, "_most_bytes", lambda self: 2**31)
    party = started()["a"]
    party.handle(request("moments", 2, {"padding": LONG}))
    assert decoded[-1] > len(LONG)


def test_a_total_may_be_as_long_as_what_was_hidden(decoded):
    party = started()["a"]
    hidden = ask(party, "moments", 2)["payload"]["vector"]
    message = request("update", 3, {"total": hidden | {"parts": [LONG]}})
    assert decode(party.handle(message))["code"] == "too-large"


def test_long_terms_and_greetings_are_refused(monkeypatch):
    monkeypatch.setattr(runner, "MAX_TERMS_BYTES", 10_000)
    assert join(host(), settings={"x": LONG})["code"] == "too-large"
    party = host()
    assert join(party)["ok"]
    assert ask(party, "session.meet", 1, {"hellos": {"a": LONG}})["code"] == "too-large"


def test_long_messages_in_a_conversation_are_refused(decoded):
    party = started()["a"]
    assert ask(party, "talk", 2)["ok"]
    decoded.clear()
    sealed = request("session.talk", 3, {"sealed": {"b": LONG}})
    assert decode(party.handle(sealed))["code"] == "too-large"
    assert not decoded


@pytest.mark.parametrize(
    "value", [None, [], {}, "", np.zeros(0, np.uint8)], ids=lambda v: type(v).__name__
)
def test_many_small_values_do_not_take_long(value):
    many = b"".join([encode([value])[18:]] * 2_000_000)
    header = encode([None] * 2)[13:14] + (2_000_000).to_bytes(4, "little")
    body = header + many
    message = b"SKPB\x02" + len(body).to_bytes(8, "little") + body
    start = time.process_time()
    with pytest.raises(ProtocolError, match="values"):
        decode(message)
    assert time.process_time() - start < 0.5


def test_values_are_counted_over_all_lists():
    row = [None] * 1000
    n_rows = MAX_VALUES // 1001
    assert len(decode(encode([row] * n_rows))) == n_rows
    with pytest.raises(ProtocolError, match="values"):
        decode(encode([row] * (n_rows + 1)))
    with pytest.raises(ProtocolError, match="too long"):
        encode([None] * (MAX_VALUES + 1))


def peers_sum(shape):
    """Return the peak memory of adding 20,000 values to a peer's array of a shape."""
    party = object.__new__(MeanParty)
    party.context = type("Context", (), {"name": "a", "roster": ("a", "b")})
    side = party.add_among_peers(np.zeros(20_000, dtype=np.int64))
    next(side)
    tracemalloc.start()
    try:
        side.send({"b": {"part": np.zeros(shape, dtype=np.uint64)}})
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


def test_attack_array_of_a_peer_that_would_stretch():
    with pytest.raises(PartyRefusal):
        peers_sum((200, 1))


def test_without_the_check_an_array_stretches(monkeypatch):
    monkeypatch.setattr(
        "skprivbn.federation._party.check_received", lambda value, shape: value
    )
    assert peers_sum((200, 1)) > 200 * 20_000 * 8


SPOILT_VECTORS = {
    "missing": lambda vector: {},
    "no dict": lambda vector: {"vector": 5},
    "clear": lambda vector: {"vector": np.zeros(3)},
    "longer": lambda vector: {"vector": changed(vector, length=99)},
    "no parts": lambda vector: {"vector": changed(vector, parts=[])},
    "other kind": lambda vector: {"vector": vector | {"hidden": "other"}},
    "other sum": lambda vector: {"vector": changed(vector, key=bytes(33))},
    "two in one": lambda vector: {"vector": changed(vector, addends=2)},
    "other round": lambda vector: {"vector": changed(vector, round=7)},
}


class Spoiling(InProcessFederation):
    """Party b answers something else at one step."""

    def __init__(self, step, spoil, party_class=MeanParty, backend="masking", **kwargs):
        self.step, self.spoil = step, spoil
        terms = party_class.terms()
        super().__init__(BLOCKS, party_class, terms, backend, **kwargs)

    def _exchange(self, requests, timeout):
        replies = super()._exchange(requests, timeout)
        for name, message in requests.items():
            asked = decode(message)
            step = asked["payload"].get("step", asked["operation"])
            if name == "b" and step == self.step:
                payload = decode(replies[name])["payload"]
                replies[name] = encode({"ok": True, "payload": self.spoil(payload)})
        return replies


@pytest.mark.parametrize("how", SPOILT_VECTORS)
def test_malformed_vectors_name_their_party(how):
    def spoil(payload):
        return SPOILT_VECTORS[how](payload["vector"])

    with Spoiling("moments", spoil) as federation:
        with pytest.raises(PartyError) as caught:
            federation.secure_sum("moments")
    assert (caught.value.party, caught.value.code) == ("b", "garbage")


def test_ciphertext_that_is_none_names_its_party():
    def spoil(payload):
        vector = payload["vector"]
        garbage = [bytes(len(part)) for part in vector["parts"]]
        return {"vector": changed(vector, parts=garbage)}

    with Spoiling("moments", spoil, backend=CKKSBackend("fast")) as federation:
        with pytest.raises(PartyError, match="party 'b'"):
            federation.secure_sum("moments")


@pytest.mark.parametrize(
    "step, spoil",
    [
        ("keys", lambda reply: {}),
        ("keys", lambda reply: reply | {"public": 3}),
        ("keys", lambda reply: reply | {"round": 9}),
        ("shares", lambda reply: {"shares": 1}),
        ("shares", lambda reply: {"shares": {"a": b""}}),
        ("shares", lambda reply: {"shares": dict.fromkeys("abcdef", bytes(82))}),
        ("survivors", lambda reply: {"signature": b"short"}),
        ("unmask", lambda reply: {"seeds": reply["seeds"], "keys": []}),
        *(
            ("moments", lambda reply, how=how: how(reply["vector"]))
            for how in SPOILT_VECTORS.values()
        ),
    ],
)
def test_with_recovery_a_sum_goes_on_without_who_answers_garbage(step, spoil):
    backend = MaskingBackend(recovery=True)
    options = {"backend": backend, "on_dropout": "continue"}
    with Spoiling(step, spoil, LosableParty, **options) as federation:
        total = federation.secure_sum("moments")
    assert set(federation.lost) == {"b"}
    # whose vector has arrived by then is in the sum
    names = "abcdefg" if step in ("survivors", "unmask") else "acdefg"
    np.testing.assert_allclose(total, total_of(names), rtol=1e-14)


@pytest.mark.parametrize(
    "payload", [{}, {"sealed": 1, "done": True}, {"sealed": {"a": 1}, "done": True}]
)
def test_malformed_turns_name_their_party(payload):
    with Spoiling("talk", lambda reply: payload) as federation:
        with pytest.raises(PartyError, match="party 'b'"):
            federation.converse("talk")


def test_malformed_answers_name_their_party():
    with Spoiling("update", lambda reply: {"go_on": "perhaps"}) as federation:
        total = federation.secure_sum("moments")
        with pytest.raises(PartyError, match="party 'b'"):
            federation.agree("update", {"total": total})


@pytest.mark.parametrize(
    "step, spoil",
    [
        ("moments", lambda reply: {"vector": changed(reply["vector"], length=9)}),
        ("moments", lambda reply: {"vector": changed(reply["vector"], parts=[b""])}),
        ("list", lambda reply: {"signature": b"short"}),
        ("list", lambda reply: {}),
        ("send", lambda reply: {"vector": changed(reply["vector"], parts=[b"1"])}),
        ("send", lambda reply: {"vector": changed(reply["vector"], parts=[])}),
    ],
)
def test_malformed_steps_of_signed_sums_name_their_party(step, spoil):
    backend = PartyMaskingBackend(signed=True)
    with Spoiling(step, spoil, backend=backend) as federation:
        with pytest.raises(PartyError) as caught:
            federation.secure_sum("moments")
    assert (caught.value.party, caught.value.code) == ("b", "garbage")


def test_answers_of_several_types():
    sends = Operation(answers={"rows": np.ndarray, "cut": float | None})
    assert sends.fits({"rows": np.zeros(3), "cut": None})
    assert sends.fits({"rows": np.zeros(3), "cut": 0.5})
    for other in ({"rows": [1], "cut": None}, {"rows": np.zeros(3), "cut": "x"}, {}):
        assert not sends.fits(other)


def test_honest_hosts_keep_their_limits_small():
    limits = started()["a"]._limits
    assert max(limits.values()) < 100_000
    assert MeanTerms().message_bytes("fail", 2, 2) < 100_000


@pytest.mark.parametrize(
    "number, answer",
    [
        (0, {"hello": 3}),
        (2, {"sealed": {"a": 1}, "phase": 1}),
        (4, {}),
        (5, {"sum": 3, "vector": {}}),
        (6, {"sum": "another sum", "vector": {}}),
        (7, {"status": "go on"}),
    ],
)
def test_estimators_name_the_party_that_answers_garbage(number, answer, monkeypatch):
    with pytest.raises(PartyError, match="party 'b'"):
        fit_with_answer(number, answer, monkeypatch)


def test_without_declared_answers_nobody_is_named(monkeypatch):
    monkeypatch.setattr(Coordinator, "_is_said", lambda self, said: True)
    with pytest.raises((StopIteration, KeyError, RuntimeError)):
        fit_with_answer(4, {}, monkeypatch)


def fit_with_answer(number, answer, monkeypatch):
    """Fit a mixture while one party answers something else in one round."""
    honest, rounds = InProcessFederation._exchange, count()

    def spoil(self, requests, timeout):
        replies = honest(self, requests, timeout)
        if next(rounds) == number:
            replies["b"] = encode({"ok": True, "payload": answer})
        return replies

    monkeypatch.setattr(InProcessFederation, "_exchange", spoil)
    X = np.vstack([block["X"] for block in BLOCKS.values()] * 3)
    party = np.resize(list("abc"), len(X))
    mixture = PPEMGaussianMixture(
        2, backend="masking", random_state=0, min_rows=2, max_iter=1
    )
    mixture.fit(X, party=party)
