"""What a hostile coordinator or relay tries, and a party's host must not allow."""

import hashlib

import numpy as np
import pytest

from skprivbn.crypto import HiddenVector, MaskingBackend
from skprivbn.crypto.sealing import Identity
from skprivbn.federation import HostPolicy, PartyHost, decode, encode
from tests.federation.protocol import MeanParty, MeanTerms

PATH = "tests.federation.protocol:MeanParty"


def terms(roster=("a", "b"), **changes):
    return {
        "session": b"s" * 16,
        "roster": list(roster),
        "protocol": PATH,
        "settings": MeanTerms().to_payload(),
        "backend": {"name": "masking", "parameters": {}},
        "data": {},
        **changes,
    }


def request(operation, sequence, payload=None, session=b"s" * 16):
    return encode(
        {
            "session": session,
            "sequence": sequence,
            "operation": operation,
            "payload": payload or {},
        }
    )


def host(name="a", n_rows=4, **options):
    rows = np.arange(2.0 * n_rows).reshape(n_rows, 2)
    protocols, backends = {PATH: MeanParty}, {"masking": MaskingBackend()}
    return PartyHost(name, {"X": rows}, protocols.get, backends.get, **options)


def ask(party, *arguments, **options):
    return decode(party.handle(request(*arguments, **options)))


def join(party, **changes):
    return ask(party, "session.join", 0, {"agreement": terms(**changes)})


def started(**options):
    """Return two hosts that have met."""
    hosts = {name: host(name, **options) for name in ("a", "b")}
    hellos = {name: join(party)["payload"]["hello"] for name, party in hosts.items()}
    meet = {"hellos": hellos}
    turns = {n: ask(party, "session.meet", 1, meet) for n, party in hosts.items()}
    for sequence in (2, 3):
        sent = {name: turn["payload"]["sealed"] for name, turn in turns.items()}
        turns = {
            me: ask(hosts[me], "session.talk", sequence, {"sealed": {to: sent[to][me]}})
            for me, to in (("a", "b"), ("b", "a"))
        }
    for name, party in hosts.items():
        assert turns[name]["payload"]["done"]
        party._last_sequence = 1  # tests count from here
    return hosts


def test_a_repeated_request_gets_the_same_bytes():
    party = started()["a"]
    message = request("moments", 2)
    assert party.handle(message) == party.handle(message)


def test_masks_are_not_used_twice():
    """Two different vectors under one mask would differ in the clear."""
    hosts = started()
    hidden = [ask(party, "moments", 2)["payload"]["vector"] for party in hosts.values()]
    total = MaskingBackend().add([HiddenVector.from_payload(h) for h in hidden])
    first, party = hidden[0], hosts["a"]
    assert ask(party, "update", 3, {"total": total.to_payload()})["ok"]
    second = ask(party, "moments", 4)["payload"]["vector"]
    first, second = map(HiddenVector.from_payload, (first, second))
    assert first.round != second.round
    assert first.parts != second.parts


@pytest.mark.parametrize("sequence", [0, 1, 3, 2**40])
def test_only_the_next_sequence_number_is_accepted(sequence):
    party = started()["a"]
    assert ask(party, "moments", sequence) == {"ok": False, "code": "refused"}


def test_another_session_is_refused():
    party = started()["a"]
    assert ask(party, "moments", 2, session=b"x" * 16)["code"] == "refused"


def test_a_second_join_is_refused():
    party = started()["a"]
    other = terms(session=b"t" * 16)
    assert ask(party, "session.join", 2, {"agreement": other})["code"] == "refused"


@pytest.mark.parametrize(
    "changes, code",
    [
        ({"roster": ["b", "c"]}, "refused"),
        ({"roster": ["a"]}, "too-few-parties"),
        ({"protocol": "os:system"}, "not-allowed"),
        ({"roster": ["a", "a"]}, "not-authentic"),
        ({"session": b"short"}, "not-authentic"),
        ({"settings": []}, "not-authentic"),
        ({"settings": {"max_rounds": 3}}, "refused"),
        ({"settings": {"max_rounds": 3.5, "limit": 1.0}}, "refused"),
        ({"backend": {"name": "rot13", "parameters": {}}}, "not-allowed"),
        ({"backend": {"name": "masking", "parameters": {"a": 1}}}, "refused"),
    ],
)
def test_terms_a_party_does_not_accept(changes, code):
    party = host(policy=HostPolicy(min_parties=2))
    assert join(party, **changes) == {"ok": False, "code": code}


def test_too_few_rows():
    assert join(host(policy=HostPolicy(min_rows=5)))["code"] == "too-few-rows"


@pytest.mark.parametrize("message", [b"", b"SKPB", encode(1), encode({"session": 1})])
def test_malformed_requests(message):
    assert decode(host().handle(message))["ok"] is False


def test_parties_told_different_rosters_do_not_start():
    a, b = host("a"), host("b")
    hellos = {
        "a": join(a, roster=["a", "b"])["payload"]["hello"],
        "b": join(b, roster=["a", "b", "c"])["payload"]["hello"],
    }
    assert ask(a, "session.meet", 1, {"hellos": hellos})["code"] == "not-authentic"


def test_a_relay_cannot_swap_keys():
    """Even with a fresh identity of its own, if identities are pinned."""
    identity, other = Identity(), Identity()
    a = host("a", pins={"a": identity.public, "b": other.public}, identity=identity)
    b = host("b", identity=other)
    middle = host("b")  # the relay's own key pair, under b's name
    hellos = {"a": join(a)["payload"]["hello"], "b": join(middle)["payload"]["hello"]}
    join(b)
    assert ask(a, "session.meet", 1, {"hellos": hellos})["code"] == "not-authentic"


def test_a_relay_cannot_replace_a_partys_own_key():
    a, b, middle = host("a"), host("b"), host("a")
    join(a)
    hellos = {"a": join(middle)["payload"]["hello"], "b": join(b)["payload"]["hello"]}
    assert ask(a, "session.meet", 1, {"hellos": hellos})["code"] == "not-authentic"


def test_genuine_pinned_identities_are_accepted():
    identities = {"a": Identity(), "b": Identity()}
    pins = {name: identity.public for name, identity in identities.items()}
    hosts = {n: host(n, pins=pins, identity=i) for n, i in identities.items()}
    hellos = {name: join(party)["payload"]["hello"] for name, party in hosts.items()}
    for party in hosts.values():
        assert ask(party, "session.meet", 1, {"hellos": hellos})["ok"]


def test_requests_do_not_reach_inside_a_conversation():
    party = started()["a"]
    assert ask(party, "talk", 2)["payload"]["done"] is False
    assert ask(party, "moments", 3)["code"] == "refused"


def test_forged_sealed_messages_are_refused():
    party = started()["a"]
    ask(party, "talk", 2)
    forged = {"sealed": {"b": b"0" * 40}}
    assert ask(party, "session.talk", 3, forged)["code"] == "not-authentic"


def test_a_message_sealed_for_another_conversation_is_refused():
    hosts = started()
    sealed = ask(hosts["b"], "talk", 2)["payload"]["sealed"]["a"]
    ask(hosts["a"], "talk", 2)
    hosts["a"]._conversation = ("other", hosts["a"]._conversation[1])
    answer = ask(hosts["a"], "session.talk", 3, {"sealed": {"b": sealed}})
    assert answer["code"] == "not-authentic"


def test_a_new_session_starts_from_nothing():
    party = started()["a"]
    ephemeral = slice(32, 64)
    before = party._session.hello()[ephemeral]
    party.close()
    assert ask(party, "moments", 2)["code"] == "refused"
    assert join(party)["payload"]["hello"][ephemeral] != before


def test_frame_sizes_do_not_depend_on_the_data():
    sizes = set()
    for scale in (1e-6, 1.0, 1e5):
        party = started()["a"]
        party._party.rows = party._party.rows * scale
        sizes.add(len(party.handle(request("moments", 2))))
    assert len(sizes) == 1


def test_transcripts_hold_no_pair_secret():
    hosts = started()
    key = hosts["a"]._session.pair_key("b", b"masking")
    reply = hosts["a"].handle(request("moments", 2))
    assert key not in reply and hashlib.sha256(key).digest() not in reply


def test_attack_new_keys_out_of_turn_are_refused():
    """Keys change where the schedule says so, not between a vector and its total."""
    hosts = started()
    assert ask(hosts["a"], "moments", 2)["ok"]
    assert ask(hosts["a"], "session.rotate", 3)["code"] == "refused"
    fresh = host()
    join(fresh)
    assert ask(fresh, "session.rotate", 1)["code"] == "refused"


def test_without_the_schedule_new_keys_come_at_any_time(monkeypatch):
    monkeypatch.setattr(
        PartyHost, "_rotate", lambda self: self._make_keys("session.rotate")
    )
    hosts = started()
    assert ask(hosts["a"], "moments", 2)["ok"]
    assert ask(hosts["a"], "session.rotate", 3)["ok"]
