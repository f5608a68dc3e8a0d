"""What a hostile coordinator or relay sends, and a party's runner must not take."""

import hashlib
import time
import weakref

import numpy as np
import pytest

from skprivbn.crypto import HiddenVector, MaskingBackend
from skprivbn.crypto.sealing import Identity
from skprivbn.exceptions import PartyError, ProtocolError
from skprivbn.federation import (
    HostPolicy,
    InProcessFederation,
    Runner,
    decode,
    encode,
    program,
    runner,
)
from skprivbn.federation._wire import MAX_VALUES
from tests.federation.protocol import MeanTerms, make_blocks, mean, stop_before

LONG = b"x" * 2_000_000


def tell(party, request, **changes):
    """Return what a party answers to a request, some of whose fields are others."""
    return decode(party.handle(encode(request | changes)))


def make_runner(name="a", n_rows=4, **options):
    rows = np.arange(2.0 * n_rows).reshape(n_rows, 2)
    programs, backends = {mean.path: mean}, {"masking": MaskingBackend()}
    return Runner(name, {"X": rows}, programs.get, backends.get, **options)


def join(party, roster=("a", "b"), **changes):
    agreement = {
        "session": b"s" * 16,
        "roster": "\n".join(roster),
        "protocol": mean.path,
        "settings": MeanTerms().to_payload(),
        "backend": {"name": "masking", "parameters": {}},
        "data": {},
        **changes,
    }
    request = {"session": b"s" * 16, "sequence": 0, "operation": "session.join"}
    return tell(party, request, payload={"agreement": agreement})


def meet(party, hellos):
    request = {"session": b"s" * 16, "sequence": 1, "operation": "next"}
    return tell(party, request, payload={"hellos": b"".join(hellos.values())})


@pytest.mark.parametrize("word", ["hellos", "sealed", "total"])
def test_a_repeated_request_gets_the_same_bytes(word):
    party, request = stop_before(word)
    message = encode(request)
    assert party.handle(message) == party.handle(message)


@pytest.mark.parametrize("word", ["hellos", "sealed", "total"])
@pytest.mark.parametrize("shift", [-1, 1, 2**40])
def test_only_the_next_sequence_number_is_accepted(word, shift):
    party, request = stop_before(word)
    sequence = request["sequence"] + shift
    refused = {"ok": False, "code": "refused"}
    assert tell(party, request, sequence=sequence) == refused
    # half a session is no session
    assert tell(party, request) == refused


@pytest.mark.parametrize("word", ["hellos", "sealed", "total"])
def test_another_session_or_operation_is_refused(word):
    for changes in ({"session": b"x" * 16}, {"operation": "sum"}):
        party, request = stop_before(word)
        assert tell(party, request, **changes)["code"] == "refused"


def test_a_second_join_is_refused():
    party, request = stop_before("total")
    changes = {"operation": "session.join", "payload": {"agreement": {}}}
    assert tell(party, request, **changes)["code"] == "refused"


@pytest.mark.parametrize(
    "changes, code",
    [
        ({"roster": "bc"}, "refused"),
        ({"roster": "a"}, "too-few-parties"),
        ({"protocol": "os:system"}, "not-allowed"),
        ({"roster": "aa"}, "not-authentic"),
        ({"session": b"short"}, "not-authentic"),
        ({"settings": []}, "not-authentic"),
        ({"settings": {"n_sums": 3}}, "refused"),
        ({"settings": {"n_sums": 3.5, "fails": "", "fails_at": ""}}, "refused"),
        ({"backend": {"name": "rot13", "parameters": {}}}, "not-allowed"),
        ({"backend": {"name": "masking", "parameters": {"a": 1}}}, "refused"),
    ],
)
def test_terms_that_a_party_does_not_accept(changes, code):
    party = make_runner(policy=HostPolicy(min_parties=2))
    assert join(party, **changes) == {"ok": False, "code": code}


def test_too_few_rows():
    party = make_runner(policy=HostPolicy(min_rows=5))
    assert join(party)["code"] == "too-few-rows"
    assert join(make_runner(policy=HostPolicy(min_rows=4)))["ok"]


@pytest.mark.parametrize("message", [b"", b"SKPB", encode(1), encode({"session": 1})])
def test_malformed_requests(message):
    assert decode(make_runner().handle(message))["ok"] is False


def test_a_failure_is_kept_without_the_rows_that_it_was_about():
    class Rows(list):
        pass

    kept = []

    @program(MeanTerms)
    def failing(me):
        rows = Rows(me.block["X"].tolist())
        kept.append(weakref.ref(rows))
        try:
            {}[len(rows)]
        except KeyError as error:
            raise ValueError(f"{len(rows)} rows") from error
        yield

    blocks = make_blocks()
    federation = InProcessFederation(blocks, failing, MeanTerms(), "masking")
    with pytest.raises(PartyError) as raised, federation:
        federation.run()
    assert str(raised.value.__cause__) == f"{len(blocks['a']['X'])} rows"
    assert kept and all(rows() is None for rows in kept)


def test_parties_told_different_rosters_do_not_start():
    a, b = make_runner("a"), make_runner("b")
    hellos = {
        "a": join(a)["payload"]["hello"],
        "b": join(b, roster=["a", "b", "c"])["payload"]["hello"],
    }
    assert meet(a, hellos)["code"] == "not-authentic"


def test_a_relay_cannot_swap_keys():
    """Even with a fresh identity of its own, if identities are pinned."""
    identity, other = Identity(), Identity()
    pins = {"a": identity.public, "b": other.public}
    a = make_runner("a", pins=pins, identity=identity)
    middle = make_runner("b")  # the relay's own key pair, under b's name
    hellos = {"a": join(a)["payload"]["hello"], "b": join(middle)["payload"]["hello"]}
    assert meet(a, hellos)["code"] == "not-authentic"


def test_a_relay_cannot_replace_a_partys_own_key():
    a, b, middle = make_runner("a"), make_runner("b"), make_runner("a")
    join(a)
    hellos = {"a": join(middle)["payload"]["hello"], "b": join(b)["payload"]["hello"]}
    assert meet(a, hellos)["code"] == "not-authentic"


def test_genuine_pinned_identities_are_accepted():
    identities = {"a": Identity(), "b": Identity()}
    pins = {name: identity.public for name, identity in identities.items()}
    parties = {
        name: make_runner(name, pins=pins, identity=identity)
        for name, identity in identities.items()
    }
    hellos = {name: join(party)["payload"]["hello"] for name, party in parties.items()}
    for party in parties.values():
        assert meet(party, hellos)["ok"]


def test_forged_and_foreign_sealed_messages_are_refused():
    party, request = stop_before("sealed")
    forged = {"sealed": {"b": b"0" * 40}}
    assert tell(party, request, payload=forged)["code"] == "not-authentic"
    party, request = stop_before("sealed")
    _, other = stop_before("sealed")
    assert tell(party, request, payload=other["payload"])["code"] == "not-authentic"


@pytest.mark.parametrize(
    "payload",
    [{}, {"total": 3}, {"total": {}, "more": 1}, {"sealed": {}}, {"choice": 1}],
)
def test_an_answer_that_fits_nothing_ends_the_session(payload):
    party, request = stop_before("total")
    assert not tell(party, request, payload=payload)["ok"]
    assert tell(party, request)["code"] == "refused"


def test_a_new_session_starts_from_nothing():
    party = make_runner()
    ephemeral = slice(32, 64)
    before = join(party)["payload"]["hello"][ephemeral]
    party.close()
    assert meet(party, {})["code"] == "refused"
    assert join(party)["payload"]["hello"][ephemeral] != before


def test_frame_sizes_do_not_depend_on_the_data():
    sizes = set()
    for scale in (1e-6, 1.0, 1e5):
        blocks = make_blocks()
        blocks["a"]["X"] = blocks["a"]["X"] * scale
        party, _ = stop_before("total", blocks=blocks)
        sizes.add(len(party._last_reply))
    assert len(sizes) == 1


def test_masks_are_not_used_twice():
    """Two vectors under one mask would differ in the clear."""
    party, request = stop_before("total")
    first = HiddenVector.from_payload(decode(party._last_reply)["payload"]["vector"])
    reply = tell(party, request)
    second = HiddenVector.from_payload(reply["payload"]["vector"])
    assert first.round != second.round and first.key != second.key
    assert first.parts != second.parts


def test_transcripts_hold_no_pair_secret():
    party, _ = stop_before("total")
    key = party._session.pair_key("b", b"masking")
    reply = party._last_reply
    assert key not in reply and hashlib.sha256(key).digest() not in reply


@pytest.fixture
def decoded(monkeypatch):
    """Lengths of what runners decode."""
    lengths = []

    def noting(message):
        lengths.append(len(message))
        return decode(message)

    monkeypatch.setattr(runner, "decode", noting)
    return lengths


@pytest.mark.parametrize("word", ["hellos", "sealed", "total"])
def test_attack_a_long_message_is_refused_before_it_is_decoded(
    word, decoded, monkeypatch
):
    monkeypatch.setattr(runner, "MAX_KEY_BYTES", 1 << 16)
    policy = HostPolicy(max_message_bytes=1 << 16)
    party, request = stop_before(word, policy=policy)
    decoded.clear()
    payload = request["payload"] | {"padding": LONG}
    refused = {"ok": False, "code": "too-large"}
    assert tell(party, request, payload=payload) == refused
    assert not decoded


def test_without_the_limit_a_long_message_is_decoded(decoded, monkeypatch):
    monkeypatch.setattr(runner, "ENVELOPE_BYTES", 2**31)
    party, request = stop_before("total")
    tell(party, request, payload=request["payload"] | {"padding": LONG})
    assert decoded[-1] > len(LONG)


def test_a_total_may_be_as_long_as_what_was_hidden():
    party, request = stop_before("total")
    total = [*request["payload"]["total"][:2], LONG]
    assert tell(party, request, payload={"total": total})["code"] == "too-large"


def test_long_terms_are_refused(monkeypatch):
    monkeypatch.setattr(runner, "MAX_TERMS_BYTES", 10_000)
    assert join(make_runner(), settings={"x": LONG})["code"] == "too-large"


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
