"""Mask recovery on a federation: parties lost in the middle of a sum."""

import numpy as np
import pytest

from skprivbn.crypto import MaskingBackend
from skprivbn.exceptions import PartyError, ProtocolError
from skprivbn.federation import HostPolicy, InProcessFederation, decode
from skprivbn.programs import MomentsTerms, moments
from tests.federation.protocol import MeanParty, MeanTerms

BLOCKS = {
    name: {"X": np.random.default_rng(i).normal(size=(4, 2))}
    for i, name in enumerate("abcdefg")
}


class LosableTerms(MeanTerms):
    def survives_losses(self):
        return True


class LosableParty(MeanParty):
    """Goes on without others, though it adds up more than once."""

    terms = LosableTerms


class Losing(InProcessFederation):
    """Loses the given parties, for good, when they are asked something."""

    def __init__(self, losses, party_class=LosableParty, terms=None, **options):
        self.losses = losses
        options.setdefault("on_dropout", "continue")
        backend, terms = MaskingBackend(recovery=True), terms or party_class.terms()
        super().__init__(BLOCKS, party_class, terms, backend, **options)

    def _exchange(self, requests, timeout):
        replies = super()._exchange(requests, timeout)
        for name, message in requests.items():
            request = decode(message)
            step = request["payload"].get("step", request["operation"])
            if name in self.losses.get(step, ()):
                replies[name] = None
        return replies


def total_of(names):
    rows = np.vstack([BLOCKS[name]["X"] for name in names])
    return np.append(rows.sum(axis=0), len(rows))


@pytest.mark.parametrize("step", ["keys", "shares", "deliver", "moments"])
def test_the_sum_is_over_the_survivors(step):
    with Losing({step: ["b", "e"]}) as federation:
        total = federation.secure_sum("moments")
    np.testing.assert_allclose(total, total_of("acdfg"), rtol=1e-14)
    assert set(federation.lost) == {"b", "e"}
    assert sum("was lost" in note for note in federation.ledger.notes) == 2


@pytest.mark.parametrize("step", ["survivors", "unmask"])
def test_those_lost_after_hiding_still_count(step):
    with Losing({step: ["b", "e"]}) as federation:
        total = federation.secure_sum("moments")
    np.testing.assert_allclose(total, total_of("abcdefg"), rtol=1e-14)


def test_the_next_sum_goes_on_without_them():
    with Losing({"moments": ["b"]}) as federation:
        total = federation.secure_sum("moments")
        federation.agree("update", {"total": total})
        federation.losses = {}
        total = federation.secure_sum("moments")
    np.testing.assert_allclose(total, total_of("acdefg"), rtol=1e-14)


def test_too_many_losses_end_the_sum():
    with Losing({"moments": ["b", "c", "d"]}) as federation:
        with pytest.raises(ProtocolError, match="only 4 parties are left"):
            federation.secure_sum("moments")


def test_losses_raise_unless_allowed():
    with Losing({"moments": ["b"]}, on_dropout="raise") as federation:
        with pytest.raises(PartyError, match="'b'"):
            federation.secure_sum("moments")


@pytest.mark.parametrize("step", ["keys", "deliver", "moments"])
def test_attack_a_party_left_out_of_the_second_sum(step):
    # what the parties tell is the same in both: the difference would be b's
    with Losing({}, party_class=MeanParty) as federation:
        total = federation.secure_sum("moments")
        federation.agree("update", {"total": total})
        federation.losses = {step: ["b"]}
        with pytest.raises(ProtocolError, match="only 0 parties are left at .surv"):
            federation.secure_sum("moments")


@pytest.mark.parametrize("min_parties, joins", [(5, True), (6, False)])
def test_so_few_as_a_sum_may_be_over_are_enough_for_the_parties(min_parties, joins):
    policy = HostPolicy(min_parties=min_parties)
    federation = Losing({}, policy=policy)
    if joins:
        with federation:
            federation.secure_sum("moments")
    else:
        with pytest.raises(PartyError, match="roster is smaller"):
            federation.__enter__()


def test_a_release_that_might_lose_too_much_noise_is_refused():
    bounds = np.array([[-5.0] * 2, [5.0] * 2])
    terms = MomentsTerms("none", bounds, epsilon=1.0, min_honest=len(BLOCKS))
    # five of seven may be left: their noise alone would have to do
    with Losing({}, moments, terms) as federation:
        with pytest.raises(PartyError):
            federation.run()
    assert federation._released == []
