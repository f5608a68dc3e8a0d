"""Sums over parties that were asked different things must not come about."""

from dataclasses import replace

import numpy as np
import pytest

from skprivbn.crypto import HiddenVector, MaskingBackend, PaillierBackend
from skprivbn.crypto._masking import read_limbs
from skprivbn.exceptions import PartyError, ProtocolError
from skprivbn.federation import InProcessFederation, Party, Terms, operation
from skprivbn.federation._host import PartyHost

BLOCKS = {name: {"X": np.arange(10.0)} for name in "abc"}


class CountingParty(Party):
    """Counts rows below a threshold, told now or before."""

    def schedule(self):
        while True:
            yield "below", "tell", "below_told", "read"

    @operation()
    def tell(self, threshold):
        self.threshold = threshold

    @operation(tells="how many of its rows are below")
    def below(self, threshold):
        return self.hide([np.sum(self.block["X"] < threshold)])

    @operation(tells="how many of its rows are below")
    def below_told(self):
        return self.below(self.threshold)

    @operation()
    def read(self, total):
        return {"total": self.reveal(total)}


def federate(backend="masking"):
    return InProcessFederation(BLOCKS, CountingParty, Terms(), backend)


def hidden_vectors(replies):
    return [HiddenVector.from_payload(reply["vector"]) for reply in replies.values()]


def test_everybody_told_the_same():
    with federate() as federation:
        assert federation.secure_sum("below", {"threshold": 4.0}) == [12]
        federation.call("tell", {"threshold": 2.0})
        assert federation.secure_sum("below_told") == [6]


# -inf makes the answers of b and c zero: the sum would be the answer of a
ONE_BY_ONE = {"a": {"threshold": 4.0}} | dict.fromkeys("bc", {"threshold": -np.inf})


@pytest.mark.parametrize("before", [False, True])
def test_attack_a_question_whose_answer_is_known_for_all_but_one(before):
    with federate() as federation:
        if before:
            federation.call("tell", each=ONE_BY_ONE)
            replies = federation.call("below_told")
        else:
            replies = federation.call("below", each=ONE_BY_ONE)
    hidden = hidden_vectors(replies)
    with pytest.raises(ProtocolError, match="cannot be added"):
        MaskingBackend().add(hidden)
    # nor does it help to say that they are of one sum
    renamed = [replace(vector, key=hidden[0].key) for vector in hidden]
    total = MaskingBackend().add(renamed)
    with pytest.raises(ProtocolError, match="do not cancel"):
        MaskingBackend().open(total)
    assert read_limbs(total)[0, 0] != 4


@pytest.mark.parametrize("before", [False, True])
def test_without_binding_to_what_was_told_one_answer_is_read(before, monkeypatch):
    """The twin: masks cancel although parties were told different things."""
    monkeypatch.setattr(PartyHost, "_bind", lambda self, name, told: None)
    with federate() as federation:
        if before:
            federation.call("tell", each=ONE_BY_ONE)
            replies = federation.call("below_told")
        else:
            replies = federation.call("below", each=ONE_BY_ONE)
    total = MaskingBackend().add(hidden_vectors(replies))
    assert MaskingBackend().open(total) == [4]


@pytest.mark.parametrize("name", ["paillier", "masking", "plaintext"])
def test_parties_do_not_take_numbers_for_a_sum(name):
    backend = PaillierBackend(key_size=512, insecure_test_key=True)
    with federate(backend if name == "paillier" else name) as federation:
        total = federation.secure_sum("below", {"threshold": 4.0})
        for reply in federation.call("read", {"total": total}).values():
            assert reply["total"] == [12]
        with pytest.raises(PartyError, match="refuses"):
            federation.call("read", {"total": np.array([1.0])})


def test_without_the_refusal_numbers_are_taken_for_a_sum(monkeypatch):
    monkeypatch.setattr(CountingParty, "reveal", lambda self, total: total)
    with federate() as federation:
        federation.secure_sum("below", {"threshold": 4.0})
        for reply in federation.call("read", {"total": np.array([1.0])}).values():
            assert reply["total"] == [1.0]
