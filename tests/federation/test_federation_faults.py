"""Parties that are lost, or answer garbage, in whole fits through a relay."""

import random

import numpy as np
import pytest
from sklearn.base import clone

from skprivbn.crypto import MaskingBackend
from skprivbn.exceptions import PartyError, ProtocolError
from skprivbn.federation import encode
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.preprocessing import FederatedPCA
from tests.federation.fits import FITS, N_CHANGES, fit, honest, outcome
from tests.federation.hostile import Losing, Relay, nudge, without_a_rule_on_losses
from tests.golden.recording import silence

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning",
    "ignore::sklearn.exceptions.ConvergenceWarning",
)

SEVEN = np.resize(list("abcdefg"), 70)
RECOVERY = MaskingBackend(recovery=True)
#: the first adds up once; the second adds squares about means that it has added before
ONE_SUM, TWO_SUMS = DPCGMLearner("chain", states=[2, 2]), FederatedPCA()


def counts_or_variances(estimator, relay, party=SEVEN):
    """Fit to rows of some parties; return what tells whose rows were added up."""
    X = np.random.default_rng(1).normal(size=(len(SEVEN), 2))[np.isin(SEVEN, party)]
    model = clone(estimator).set_params(backend=RECOVERY)
    with relay.carrying(), silence():
        if isinstance(model, FederatedPCA):
            return model.fit(X, party=party).explained_variance_
        model.fit((X > 0).astype(int), party=party)
    return np.concatenate([np.ravel(t) for t in model.noisy_tables_.values()])


def lose_in_every_round(estimator):
    """Return whose rows a fit is of that loses a party, for each round."""
    watched = Relay()
    everybody = counts_or_variances(estimator, watched)
    others = counts_or_variances(estimator, Relay(), SEVEN[SEVEN != "b"])
    outcomes = []
    for number in range(watched.n_rounds):
        try:
            found = counts_or_variances(estimator, Losing("b", number))
        except (PartyError, ProtocolError):
            outcomes.append("refused")
            continue
        is_of = {
            "all": np.allclose(found, everybody),
            "rest": np.allclose(found, others),
        }
        outcomes.append(next((who for who, fits in is_of.items() if fits), "neither"))
    return outcomes


def test_a_fit_of_one_sum_goes_on_without_a_lost_party():
    outcomes = lose_in_every_round(ONE_SUM)
    # until its keys are shared, then while its vector is missing, then once it arrived
    assert list(dict.fromkeys(outcomes)) == ["refused", "rest", "all"]


def test_attack_a_party_is_lost_between_two_sums():
    """The difference of what both tell would be its own."""
    # or after both, which are then over all
    outcomes = lose_in_every_round(TWO_SUMS)
    assert list(dict.fromkeys(outcomes)) == ["refused", "all"]


def test_without_the_rule_sums_are_of_different_parties(monkeypatch):
    without_a_rule_on_losses(monkeypatch)
    assert "neither" in lose_in_every_round(TWO_SUMS)


class Lying(Relay):
    """Puts something else in the place of one answer of a party."""

    def __init__(self, change, number, party):
        super().__init__()
        self.change, self.number, self.party = change, number, party

    def to_coordinator(self, message):
        is_it = (message.round, message.party) == (self.number, self.party)
        return self.change(message) if is_it else message.body


GARBAGE = [b"", b"\x80\x04K\x01.", encode(None), encode([]), encode({}), b"SKPB" * 9]


@pytest.mark.parametrize("name", FITS)
def test_who_answers_garbage_is_named(name):
    replies = honest(name)[1].replies
    for message in random.Random(0).sample(replies, N_CHANGES):
        garbage = random.Random(message.round).choice(GARBAGE)
        relay = Lying(lambda message, g=garbage: g, message.round, message.party)
        with pytest.raises(PartyError) as caught:
            fit(name, relay)
        assert (caught.value.party, caught.value.code) == (message.party, "garbage")


@pytest.mark.parametrize("name", FITS)
def test_a_changed_answer_is_no_error_of_the_coordinators(name):
    """A party may lie about its rows; whatever it says, nothing else is raised."""
    replies = honest(name)[1].replies
    for seed, message in enumerate(random.Random(2).sample(replies, N_CHANGES)):
        relay = Lying(nudge(seed), message.round, message.party)
        assert outcome(name, relay) in ("refused", "same", "other")
