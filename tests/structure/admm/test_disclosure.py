"""The attacks work where the documentation says so, and fail where it says so."""

from contextlib import contextmanager
from itertools import permutations

import numpy as np
import pytest

from skprivbn.crypto import HiddenVector, resolve_backend
from skprivbn.crypto._masking import read_limbs
from skprivbn.crypto._numbers import decode_fixed_point
from skprivbn.datasets import make_linear_sem
from skprivbn.exceptions import PrivacyLeakWarning, ProtocolError
from skprivbn.federation import InProcessFederation, decode
from skprivbn.structure import FederatedNotearsADMM
from skprivbn.structure.admm._disclosure import (
    covariance_from_message,
    covariances_from_sums,
)
from skprivbn.structure.admm._protocol import ConsensusState

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
    for requests, replies in heard:
        request = next(iter(requests.values()))
        if request["operation"] == "propose":
            vectors = {
                name: HiddenVector.from_payload(reply["payload"]["vector"])
                for name, reply in replies.items()
            }
            rounds.append(vectors)
    return rounds


def follow(model, backend, rounds):
    """Return all sums, and the consensus before each, as who reads sums knows them."""
    backend = resolve_backend(backend)
    state = ConsensusState(model._model_terms(3), 3)
    sums, consensus = [], []
    for vectors in rounds:
        total = backend.open(backend.add(list(vectors.values())))
        consensus.append(state.consensus.reshape(3, 3))
        sums.append(total[:9].reshape(3, 3))
        state.step(total)
    return np.array(sums), np.array(consensus)


def local_covariances(X, party):
    blocks = [X[party == name] for name in np.unique(party)]
    return [(rows - rows.mean(0)).T @ (rows - rows.mean(0)) / len(X) for rows in blocks]


@pytest.fixture
def small():
    X, _ = make_linear_sem(60, 3, random_state=3)
    return X, np.arange(60) % 3


def read(backend, vector, d):
    return resolve_backend(backend).open(vector)[: d * d].reshape(d, d)


def test_one_plaintext_message_gives_the_covariance_away(small, monkeypatch):
    X, party = small
    with listening(monkeypatch) as heard:
        FederatedNotearsADMM(
            backend="plaintext", loss_scale=1.0, rho2=0.01, max_iter=2
        ).fit(X, party=party)
    vectors = rounds_of(heard)[0]
    zero = np.zeros((3, 3))
    for truth, vector in zip(local_covariances(X, party), vectors.values()):
        message = read("plaintext", vector, 3)
        recovered = covariance_from_message(message, zero, zero, 0.01)
        np.testing.assert_allclose(recovered, truth, rtol=1e-8, atol=1e-10)


def test_a_later_plaintext_message_does_too(small, monkeypatch):
    """The attacker follows the multipliers from zero."""
    X, party = small
    with listening(monkeypatch) as heard:
        model = FederatedNotearsADMM(
            backend="plaintext", loss_scale=1.0, rho2=0.01, gamma2=1.2, max_iter=12
        ).fit(X, party=party)
    rounds = rounds_of(heard)
    _, (before, *later) = follow(model, "plaintext", rounds)
    rho, dual = 0.01, np.zeros((3, 3))
    name = next(iter(rounds[0]))
    for vectors, after in zip(rounds, later):
        message = read("plaintext", vectors[name], 3)
        recovered = covariance_from_message(message, before, dual, rho)
        dual = dual + rho * (message - dual / rho - after)
        before, rho = after, rho * 1.2
    assert np.abs(before).max() > 0.1
    np.testing.assert_allclose(recovered, local_covariances(X, party)[0], rtol=1e-6)


@pytest.mark.parametrize("backend", ["masking", "ckks"])
def test_one_hidden_message_gives_nothing(small, monkeypatch, backend):
    X, party = small
    with listening(monkeypatch) as heard:
        FederatedNotearsADMM(
            backend=backend, loss_scale=1.0, rho2=0.01, max_iter=2
        ).fit(X, party=party)
    vectors = rounds_of(heard)[0]
    vector = next(iter(vectors.values()))
    with pytest.raises(ProtocolError):
        resolve_backend(backend).open(vector)
    if backend == "masking":
        # read the masked numbers nevertheless, as an attacker would
        limbs = read_limbs(vector)[:, :9]
        guess = decode_fixed_point(limbs, np.float64, 56).reshape(3, 3)
        zero = np.zeros((3, 3))
        recovered = covariance_from_message(guess, zero, zero, 0.01)
        assert np.abs(recovered - local_covariances(X, party)[0]).max() > 1e-2


@pytest.mark.slow
def test_sums_of_many_rounds_give_all_covariances_away(small, monkeypatch):
    X, party = small
    with listening(monkeypatch) as heard:
        model = FederatedNotearsADMM(
            loss_scale=1.0, rho2=0.05, gamma2=1.3, max_iter=15
        ).fit(X, party=party)
    sums, consensus = follow(model, "masking", rounds_of(heard))
    sums = sums[:-1]
    rhos = 0.05 * 1.3 ** np.arange(len(sums))
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
    learnt = str(list(model.ledger_.who_learns_what()))
    assert f"the sums of all {model.n_iter_} rounds" in learnt
