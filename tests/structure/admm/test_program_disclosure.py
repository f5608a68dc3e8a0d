"""The attacks work where the documentation says so, and fail where it says so."""

from contextlib import contextmanager
from itertools import permutations

import numpy as np
import pytest

from skprivbn.crypto import HiddenVector
from skprivbn.crypto._masking import read_limbs
from skprivbn.crypto._numbers import decode_fixed_point
from skprivbn.datasets import make_linear_sem
from skprivbn.exceptions import PrivacyLeakWarning, ProtocolError
from skprivbn.federation import InProcessFederation, Me, decode
from skprivbn.structure import FederatedNotearsADMM
from skprivbn.structure.admm._program import ROUND, admm
from tests.crypto.micro_federation import read_without_keys
from tests.structure.admm.disclosure import (
    covariance_from_message,
    covariances_from_sums,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning",
    "ignore::sklearn.exceptions.ConvergenceWarning",
)


@contextmanager
def listening(monkeypatch):
    """Record everything the coordinator sends and receives, decoded."""
    heard = []
    exchange = InProcessFederation._exchange

    def record(self, requests, timeout):
        replies = exchange(self, requests, timeout)
        heard.append(
            (
                {name: decode(message) for name, message in requests.items()},
                {name: decode(message) for name, message in replies.items()},
            )
        )
        return replies

    monkeypatch.setattr(InProcessFederation, "_exchange", record)
    yield heard


def rounds_of(heard):
    """Return {party: hidden vector} of every ADMM round."""
    rounds = []
    for _, replies in heard:
        told = {name: reply["payload"] for name, reply in replies.items()}
        if all(said.get("sum") == ROUND and "vector" in said for said in told.values()):
            rounds.append(
                {n: HiddenVector.from_payload(s["vector"]) for n, s in told.items()}
            )
    return rounds


def sums_that_parties_read(X, party, terms):
    """Run the program of all parties, and return the sums of all ADMM rounds."""
    roster = tuple(map(str, np.unique(party)))
    programs = [
        admm(Me({"X": X[party == int(name)]}, terms, name, roster)) for name in roster
    ]
    steps, sums = [next(one) for one in programs], []
    while True:
        total = sum(np.asarray(step.vector) for step in steps)
        if steps[0].what == ROUND:
            sums.append(total[: X.shape[1] ** 2])
        try:
            steps = [one.send(total) for one in programs]
        except StopIteration:
            return np.array(sums)


def follow(terms, sums):
    """Return the consensus before each sum, and the penalties: public steps."""
    W, alpha, rho1, rho2, known = terms.start(), 0.0, terms.rho1, terms.rho2, []
    for total in sums:
        known.append((W.reshape(3, 3), rho2))
        V = total / 3
        W, h = terms.problem.step(V, W, weight=3 * rho2, alpha=alpha, rho1=rho1)
        alpha, rho1, rho2 = alpha + rho1 * h, terms.gamma1 * rho1, terms.gamma2 * rho2
    return map(np.array, zip(*known))


def model_terms(**parameters):
    settings = parameters.pop("admm_params", {})
    learner = FederatedNotearsADMM(
        admm_params=settings | {"loss_scale": 1.0}, **parameters
    )
    learner.n_features_in_ = 3
    return learner._model_terms(3)


def local_covariances(X, party):
    blocks = [X[party == name] for name in np.unique(party)]
    return [(rows - rows.mean(0)).T @ (rows - rows.mean(0)) / len(X) for rows in blocks]


@pytest.fixture
def small():
    X, _ = make_linear_sem(60, 3, random_state=3)
    return X, np.arange(60) % 3


def read(vector, d):
    return read_without_keys(vector)[: d * d].reshape(d, d)


def test_one_plaintext_message_gives_the_covariance_away(small, monkeypatch):
    X, party = small
    with listening(monkeypatch) as heard:
        FederatedNotearsADMM(
            backend="plaintext",
            admm_params={"loss_scale": 1.0, "rho2": 0.01},
            max_iter=2,
        ).fit(X, party=party)
    vectors = rounds_of(heard)[0]
    zero = np.zeros((3, 3))
    for truth, vector in zip(local_covariances(X, party), vectors.values()):
        message = read(vector, 3)
        recovered = covariance_from_message(message, zero, zero, 0.01)
        np.testing.assert_allclose(recovered, truth, rtol=1e-8, atol=1e-10)


def test_a_later_plaintext_message_does_too(small, monkeypatch):
    """The attacker follows the multipliers from zero."""
    X, party = small
    settings = {"rho2": 0.01, "gamma2": 1.2, "loss_scale": 1.0}
    options = {"admm_params": settings, "max_iter": 12}
    with listening(monkeypatch) as heard:
        FederatedNotearsADMM(backend="plaintext", **options).fit(X, party=party)
    rounds = rounds_of(heard)
    messages = np.array([[read(v, 3) for v in vectors.values()] for vectors in rounds])
    sums = messages.sum(axis=1).reshape(len(rounds), 9)
    consensus, rhos = follow(model_terms(**options), sums)
    dual = np.zeros((3, 3))
    for message, before, after, rho in zip(messages, consensus, consensus[1:], rhos):
        recovered = covariance_from_message(message[0], before, dual, rho)
        dual = dual + rho * (message[0] - dual / rho - after)
    assert np.abs(before).max() > 0.1
    np.testing.assert_allclose(recovered, local_covariances(X, party)[0], rtol=1e-6)


@pytest.mark.parametrize("backend", ["masking", "ckks"])
def test_one_hidden_message_gives_nothing(small, monkeypatch, backend):
    X, party = small
    with listening(monkeypatch) as heard:
        FederatedNotearsADMM(
            backend=backend,
            admm_params={"loss_scale": 1.0, "rho2": 0.01},
            max_iter=2,
        ).fit(X, party=party)
    vectors = rounds_of(heard)[0]
    vector = next(iter(vectors.values()))
    with pytest.raises(ProtocolError):
        read_without_keys(vector)
    if backend == "masking":
        # read the masked numbers nevertheless, as an attacker would
        limbs = read_limbs(vector)[:, :9]
        guess = decode_fixed_point(limbs, np.float64).reshape(3, 3)
        zero = np.zeros((3, 3))
        recovered = covariance_from_message(guess, zero, zero, 0.01)
        assert np.abs(recovered - local_covariances(X, party)[0]).max() > 1e-2


@pytest.mark.slow
def test_sums_of_many_rounds_give_a_party_all_covariances(small):
    X, party = small
    terms = model_terms(admm_params={"rho2": 0.05, "gamma2": 1.3}, max_iter=15)
    sums = sums_that_parties_read(X, party, terms)
    consensus, rhos = follow(terms, sums)
    sums, rhos = sums[:-1].reshape(-1, 3, 3), rhos[:-1]
    found, misfit = covariances_from_sums(sums, consensus, rhos, 3)
    assert misfit < 1e-8
    truth = np.array(local_covariances(X, party))
    errors = [
        np.abs(found[list(order)] - truth).max() for order in permutations((0, 1, 2))
    ]
    assert min(errors) < 1e-4 * np.abs(truth).max()


@pytest.mark.filterwarnings("default::skprivbn.exceptions.PrivacyLeakWarning")
def test_the_estimator_warns_of_the_trajectory(small):
    X, party = small
    with pytest.warns(PrivacyLeakWarning, match="sums of .* rounds"):
        model = FederatedNotearsADMM().fit(X, party=party)
    who = {
        fact.who
        for fact in model.ledger_.facts()
        if f"the sums of all {model.n_iter_} rounds" in fact.what
    }
    assert who == {"all parties"}
