"""Fits through a relay that changes, repeats, mixes up and withholds messages.

Bytes in, bytes out, and what `fit` makes of them: no test here knows which messages a
protocol has, so that all of them hold for any.
"""

import random

import numpy as np
import pytest

from skprivbn.crypto import (
    CKKSBackend,
    MaskingBackend,
    PaillierBackend,
    PlaintextBackend,
)
from skprivbn.exceptions import PartyError, ProtocolError
from skprivbn.federation import decode, encode
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedStandardScaler,
)
from skprivbn.privacy import DistributedNoise
from skprivbn.structure import FederatedNotearsADMM
from tests.federation.fits import (
    FITS,
    N_CHANGES,
    fit,
    honest,
    outcome,
    rounds_with_totals,
)
from tests.federation.hostile import (
    Accomplice,
    Changing,
    Relay,
    add_plaintext,
    leaves,
    nudge,
    with_leaf,
    with_vectors,
    without_agreement,
    without_limits,
    without_signed_terms,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning",
    "ignore::sklearn.exceptions.ConvergenceWarning",
)

#: of which parties are handed totals
FITS_WITH_TOTALS = [
    "FederatedStandardScaler: masking",
    "FederatedKBinsDiscretizer: quantile",
    "PPEMGaussianMixture: diag",
    "FederatedNotearsADMM: ckks",
]


def some_requests(name, n, seed=0):
    return random.Random(seed).sample(honest(name)[1].requests, n)


@pytest.mark.parametrize("name", FITS)
def test_attack_one_value_of_a_message_is_changed(name):
    """A party that is told something else than its peers has no part in a result."""
    for seed, message in enumerate(some_requests(name, N_CHANGES)):
        relay = Changing(nudge(seed), message.round, message.party)
        assert outcome(name, relay) in ("refused", "same")


BACKENDS = {
    "masking": MaskingBackend(),
    "recovery": MaskingBackend(recovery=True),
    "plaintext": PlaintextBackend(),
    "paillier": PaillierBackend(key_size=512, insecure_test_key=True),
    "ckks": CKKSBackend(),
}
ROWS = np.random.default_rng(0).normal(size=(30, 2))
PARTY = np.resize(["north", "south", "west"], 30)
#: added to the first two numbers of a total
SHIFT = np.array([2.0, -3.0])


def learn_weights(backend, relay):
    """Fit a model whose consensus comes back to the parties in every round."""
    X = np.column_stack([ROWS, ROWS[:, 0] + np.sin(9 * ROWS[:, 1])])
    with relay.carrying():
        model = FederatedNotearsADMM(max_iter=4, backend=backend).fit(X, party=PARTY)
    return model.consensus_distance_


def learn_from_a_shifted_total(name):
    """Return what an honest fit finds, and one with another total in its middle."""
    backend, watched = BACKENDS[name], Relay()
    expected = learn_weights(backend, watched)
    rounds = rounds_with_totals(watched)

    def change(message):
        def shifted(hidden):
            return add_plaintext(backend, hidden, SHIFT)

        return with_vectors(message, shifted)

    relay = Changing(change, rounds[len(rounds) // 2])
    return expected, learn_weights(backend, relay)


@pytest.mark.parametrize("name", BACKENDS)
def test_attack_plaintext_added_to_a_total(name):
    with pytest.raises(PartyError, match="not signed or sealed"):
        learn_from_a_shifted_total(name)


@pytest.mark.parametrize("name", BACKENDS)
def test_without_tags_parties_go_on_with_what_the_coordinator_says(name, no_tags):
    expected, found = learn_from_a_shifted_total(name)
    assert abs(found - expected) > 1e-3


def learn_from_a_total_of_two(backend):
    """Fit with a total that the coordinator and a party made up together."""
    watched, accomplice = Relay(), Accomplice("west")
    expected = learn_weights(backend, watched)
    rounds = rounds_with_totals(watched)

    def change(message):
        def shifted(hidden):
            return accomplice.shifted(hidden, SHIFT)

        return with_vectors(message, shifted)

    with accomplice.helping():
        relay = Changing(change, rounds[len(rounds) // 2])
        return expected, learn_weights(backend, relay)


def test_attack_a_total_by_the_coordinator_and_a_party():
    with pytest.raises(PartyError, match="not signed or sealed"):
        learn_from_a_total_of_two(MaskingBackend(signed=True))


def test_without_signatures_the_pair_chooses_the_total():
    expected, found = learn_from_a_total_of_two(MaskingBackend())
    assert abs(found - expected) > 1e-3


class Repeating(Relay):
    """Delivers every message twice."""

    n_times = 2


@pytest.mark.parametrize("name", FITS)
def test_a_message_that_arrives_twice_is_answered_once(name):
    """What a party says to the same question the second time tells nothing new."""
    relay = Repeating()
    assert outcome(name, relay) in ("refused", "same")
    answers = {}
    for reply in relay.replies:
        answers.setdefault((reply.round, reply.party), set()).add(reply.body)
    assert all(len(different) == 1 for different in answers.values())


@pytest.mark.parametrize("name", FITS)
def test_attack_an_earlier_message_again(name):
    for message in some_requests(name, N_CHANGES):
        if message.round > 1:
            assert outcome(name, Lagging(message.round, message.party)) == "refused"


class Lagging(Changing):
    """Hands a party what it has heard two or more rounds ago in the same fit."""

    def __init__(self, number, party):
        super().__init__(self.old_message, number, party)

    def old_message(self, message):
        *heard, _, _ = self.heard_by(message.party)
        return random.Random(message.round).choice(heard).body


@pytest.mark.parametrize("name", FITS)
def test_attack_a_message_of_another_session(name):
    """Of the same parties, with the same data, at the same point of the protocol."""
    old = {(m.round, m.party): m.body for m in honest(name)[1].requests}
    for message in some_requests(name, N_CHANGES, seed=1):

        def replayed(message):
            return old[message.round, message.party]

        relay = Changing(replayed, message.round, message.party)
        assert outcome(name, relay) == "refused"


class Swapping(Relay):
    """Hands what is meant for one party to the next one, in one round."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def to_party(self, message):
        if message.round != self.number:
            return message.body
        asked = [m for m in self.requests if m.round == message.round]
        place = asked.index(message)
        return asked[place - 1].body


@pytest.mark.parametrize("name", FITS)
def test_attack_messages_for_other_parties(name):
    n_rounds = honest(name)[1].n_rounds
    for number in sorted({0, 1, 2, 3, n_rounds // 2, n_rounds - 1}):
        # what is the same for all is no other message
        assert outcome(name, Swapping(number)) in ("refused", "same")


def tell_rosters(change):
    """Fit a model, one of whose parties is told of other parties."""
    names = ["north", "south", "west"]

    def told(value):
        if value == "\n".join(names):
            return "\n".join(change(names))
        if isinstance(value, dict):
            return {key: told(member) for key, member in value.items()}
        return value

    def changed(message):
        assert told(message.value) != message.value
        return encode(told(message.value))

    return learn_weights("masking", Changing(changed, 0, "south"))


@pytest.mark.parametrize(
    "change",
    [
        lambda names: names[:2],
        lambda names: names[::-1],
        lambda names: [*names, "east"],
        lambda names: ["north", "south", "east"],
        lambda names: ["north", "south", "south"],
    ],
    ids=["fewer", "other order", "more", "others", "twice"],
)
def test_attack_parties_are_told_different_rosters(change):
    with pytest.raises(PartyError):
        tell_rosters(change)


def fit_with_two_epsilons(monkeypatch):
    """Tell one party to add hardly any noise; return the noise that parties add."""
    added, share = [], DistributedNoise.share

    def watched(self, shape):
        added.append(self.epsilon)
        return share(self, shape)

    def weaken(message):
        value = message.value
        (place,) = [path for path, _ in leaves(value) if path[-1] == "epsilon"]
        return encode(with_leaf(value, place, 1000.0))

    monkeypatch.setattr(DistributedNoise, "share", watched)
    learner = DPCGMLearner("chain", states=[2, 2], epsilon=1.0)
    with Changing(weaken, 0, "south").carrying():
        learner.fit((ROWS > 0).astype(int), party=PARTY)
    return added


def test_attack_one_party_is_told_of_less_noise(monkeypatch):
    with pytest.raises(PartyError, match="not signed or sealed"):
        fit_with_two_epsilons(monkeypatch)


def test_without_signed_terms_one_party_adds_less_noise(monkeypatch):
    without_signed_terms(monkeypatch)
    assert sorted(fit_with_two_epsilons(monkeypatch)) == [1.0, 1.0, 1000.0]


def clear_numbers(relay, party, since):
    """Return arrays that a party told in the clear, from a round on."""
    replies = [m for m in relay.replies if m.party == party and m.round >= since]
    return [
        leaf
        for message in replies
        for _, leaf in leaves(message.value)
        if isinstance(leaf, np.ndarray)
    ]


def search_quantiles(relay):
    with relay.carrying():
        bins = FederatedKBinsDiscretizer(2).fit(ROWS[:, :1], party=PARTY)
    return bins.bin_edges_[0]


def last_total():
    """Return the last round in which parties are handed a total."""
    watched = Relay()
    search_quantiles(watched)
    return rounds_with_totals(watched)[-1]


def tell_one_party_another_total():
    """Have an accomplice make up a total for one party; return what that tells."""
    number, accomplice = last_total(), Accomplice("west")

    def change(message):
        def shifted(hidden):
            # no row is below any threshold, in this party's eyes
            return accomplice.shifted(hidden, np.full(hidden.length - 1, -30))

        return with_vectors(message, shifted)

    relay = Changing(change, number, "north")
    with accomplice.helping(), pytest.raises((PartyError, ProtocolError)):
        search_quantiles(relay)
    return clear_numbers(relay, "north", number)


def test_attack_another_total_for_one_party_by_an_accomplice():
    assert tell_one_party_another_total() == []


def test_without_agreement_that_party_tells_what_it_made_of_it(monkeypatch):
    honest_edges = search_quantiles(Relay())
    without_agreement(monkeypatch)
    (told,) = tell_one_party_another_total()
    assert not np.isin(honest_edges, told).all()


def tell_one_party_alone():
    """Hand the last total to one party and to nobody else; return what that tells."""
    number = last_total()

    class Withholding(Relay):
        def to_party(self, message):
            is_last = message.round >= number and message.party != "north"
            return None if is_last else message.body

    relay = Withholding()
    with pytest.raises(PartyError, match="in time"):
        search_quantiles(relay)
    return clear_numbers(relay, "north", number)


def test_attack_the_last_total_reaches_one_party():
    assert tell_one_party_alone() == []


def test_without_agreement_one_party_answers_alone(monkeypatch):
    without_agreement(monkeypatch)
    (told,) = tell_one_party_alone()
    np.testing.assert_array_equal(told[0], search_quantiles(Relay()))


def pad_a_message(name):
    """Return what a party says to a message that is two million bytes longer."""

    def padded(message):
        value = message.value
        *_, (place, _) = leaves(value)
        return encode(with_leaf(value, place, bytes(2_000_000)))

    # exchanges of keys and oblivious transfers are long; totals are not
    number = rounds_with_totals(honest(name)[1])[0]
    with pytest.raises(PartyError) as caught:
        fit(name, Changing(padded, number))
    return caught.value.code


@pytest.mark.parametrize("name", FITS_WITH_TOTALS)
def test_attack_long_messages(name):
    assert pad_a_message(name) == "too-large"


@pytest.mark.parametrize("name", FITS_WITH_TOTALS)
def test_without_limits_long_messages_are_read(name, monkeypatch):
    without_limits(monkeypatch)
    assert pad_a_message(name) != "too-large"


def test_no_message_holds_a_number_of_the_rows():
    """Under every backend that hides, sums and rows are in no message to be read."""
    marker = 31415.926535
    rows = ROWS.copy()
    rows[0, 0] = marker
    for name in ("masking", "recovery", "paillier", "ckks"):
        relay = Relay()
        with relay.carrying():
            backend = BACKENDS[name]
            FederatedStandardScaler(backend=backend).fit(rows, party=PARTY)
        sums = {rows[party == PARTY, 0].sum() for party in np.unique(PARTY)}
        seen = [leaf for m in relay.replies for _, leaf in leaves(decode(m.body))]
        numbers = np.concatenate([np.ravel(s) for s in seen if _is_number(s)] or [[]])
        for value in {marker, *sums}:
            assert not np.isclose(numbers.astype(float), value).any()
            packed = np.float64(value).tobytes()
            assert not any(packed in m.body for m in relay.replies)


def _is_number(leaf):
    return isinstance(leaf, int | float | np.ndarray) and not isinstance(leaf, bool)
