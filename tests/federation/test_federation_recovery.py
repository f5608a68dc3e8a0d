"""Mask recovery on a federation: parties lost in the middle of the only sum."""

import numpy as np
import pytest

from skprivbn.crypto import MaskingBackend
from skprivbn.exceptions import PartyError, ProtocolError
from skprivbn.federation import HostPolicy, InProcessFederation, Runner, decode
from skprivbn.programs import MomentsTerms, moments
from tests.federation.protocol import MeanTerms, mean

BLOCKS = {
    name: {"X": np.random.default_rng(i).normal(size=(4, 2))}
    for i, name in enumerate("abcdefg")
}


class Losing(InProcessFederation):
    """Loses the given parties, for good, when they are told some word."""

    def __init__(self, losses, program=mean, terms=None, **options):
        self.losses, self.gone = losses, set()
        options.setdefault("on_dropout", "continue")
        backend, terms = MaskingBackend(recovery=True), terms or MeanTerms(n_sums=1)
        super().__init__(BLOCKS, program, terms, backend, **options)

    def _exchange(self, requests, timeout):
        for name, message in requests.items():
            for word in decode(message)["payload"]:
                if name in self.losses.get(word, ()):
                    self.gone.add(name)
        present = {n: message for n, message in requests.items() if n not in self.gone}
        return super()._exchange(present, timeout)


def mean_of(names):
    return np.vstack([BLOCKS[name]["X"] for name in names]).mean(axis=0)


@pytest.mark.parametrize("word", ["keys", "shares"])
def test_the_sum_is_over_the_survivors(word):
    with Losing({word: ["b", "e"]}) as federation:
        found = federation.run()
    np.testing.assert_allclose(found["mean"], mean_of("acdfg"), rtol=1e-14)
    assert set(federation.lost) == {"b", "e"}
    assert sum("was lost" in note for note in federation.ledger.notes) == 2


@pytest.mark.parametrize("word", ["survivors", "signatures", "total"])
def test_those_lost_after_hiding_still_count(word):
    with Losing({word: ["b", "e"]}) as federation:
        found = federation.run()
    np.testing.assert_allclose(found["mean"], mean_of("abcdefg"), rtol=1e-14)
    assert set(federation.lost) == {"b", "e"}


def test_a_total_may_be_as_long_as_what_was_hidden_some_messages_before():
    rng = np.random.default_rng(0)
    blocks = {name: {"X": rng.normal(size=(4, 2000))} for name in BLOCKS}
    backend = MaskingBackend(recovery=True)
    with InProcessFederation(blocks, mean, MeanTerms(n_sums=1), backend) as federation:
        found = federation.run()
    expected = np.vstack([block["X"] for block in blocks.values()]).mean(axis=0)
    np.testing.assert_allclose(found["mean"], expected, atol=1e-14)


def test_attack_so_many_are_kept_from_comparing_totals(monkeypatch):
    """More than may be lost at all: whoever is left would compare with nobody."""

    class Muting(InProcessFederation):
        def _answer(self, answers, what="next"):
            for answer in answers.values():
                if "signed" in answer:
                    # of three others, 64 bytes each
                    signed = answer["signed"]
                    answer["signed"] = signed[:64] + bytes(3 * 64) + signed[4 * 64 :]
            super()._answer(answers, what)

    def run():
        backend, terms = MaskingBackend(recovery=True), MeanTerms(n_sums=1)
        with Muting(BLOCKS, mean, terms, backend) as federation:
            return federation.run()

    with pytest.raises(PartyError, match="not signed or sealed"):
        run()
    monkeypatch.setattr(Runner, "_compare", lambda self: iter(()))
    np.testing.assert_allclose(run()["mean"], mean_of("abcdefg"), rtol=1e-14)


def test_too_many_losses_end_the_sum():
    with Losing({"shares": ["b", "c", "d"]}) as federation:
        with pytest.raises(ProtocolError, match="only 4 parties are left"):
            federation.run()


def test_losses_raise_unless_allowed():
    with Losing({"shares": ["b"]}, on_dropout="raise") as federation:
        with pytest.raises(PartyError, match="'b'"):
            federation.run()


@pytest.mark.parametrize("min_parties, joins", [(5, True), (6, False)])
def test_so_few_as_a_sum_may_be_over_are_enough_for_the_parties(min_parties, joins):
    policy = HostPolicy(min_parties=min_parties)
    federation = Losing({}, policy=policy, on_dropout="raise")
    if joins:
        with federation:
            federation.run()
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
    assert federation.released == []
