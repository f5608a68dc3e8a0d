"""Fits at real sites through a server that changes and repeats what it relays."""

import random
import warnings

import numpy as np
import pytest

from skprivbn.exceptions import PartyError, ProtocolError
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import FederatedKBinsDiscretizer, FederatedStandardScaler
from tests.federation.hostile import Changing, Relay, leaves, nudge
from tests.federation.site.loopback import connect
from tests.golden.sites import run_sites

#: an estimator, and the attribute that is compared
FITS = {
    "scaler": (FederatedStandardScaler(), "var_"),
    "scaler, ckks": (FederatedStandardScaler(backend="ckks"), "var_"),
    "bins": (FederatedKBinsDiscretizer(2), "bin_edges_"),
    "mixture": (PPEMGaussianMixture(2, max_iter=2, random_state=0), "means_"),
}
N_CHANGES = 5


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    sites = run_sites(tmp_path_factory.mktemp("sites") / "all", "many rows", "exact")
    return connect(sites, "icu").rows(["a", "b"])


def fit(name, rows, relay):
    """Return what is learnt through a relay."""
    estimator, attribute = FITS[name]
    with relay.at_sites(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = getattr(estimator.fit(rows), attribute)
    return np.concatenate([np.ravel(part) for part in found])


def some_requests(relay):
    """Return messages that say something; good-bye does not."""
    said = [message for message in relay.requests if list(leaves(message.value))]
    return random.Random(0).sample(said, N_CHANGES)


def count_refused(rows, honest, change):
    """Change messages, one a fit: each is refused, or the result is the same.

    The next fit is answered: who changes messages locks nobody out.
    """
    name, n_refused = honest.name, 0
    for seed, message in enumerate(some_requests(honest)):
        relay = Changing(change(seed), message.round, message.party)
        try:
            found = fit(name, rows, relay)
        except (PartyError, ProtocolError):
            found, n_refused = fit(name, rows, Relay()), n_refused + 1
        np.testing.assert_allclose(found, honest.found, rtol=1e-6)
    return n_refused


@pytest.fixture(
    params=["scaler", "bins"]
    + [pytest.param(n, marks=pytest.mark.slow) for n in ("scaler, ckks", "mixture")]
)
def honest(request, rows):
    relay = Relay()
    relay.name, relay.found = request.param, fit(request.param, rows, relay)
    return relay


def test_attack_one_value_of_a_message_is_changed(rows, honest):
    assert count_refused(rows, honest, nudge) == N_CHANGES


def test_attack_a_message_of_another_session(rows, honest):
    old = {(m.round, m.party): m.body for m in honest.requests}

    def replay(seed):
        return lambda message: old[message.round, message.party]

    assert count_refused(rows, honest, replay) == N_CHANGES
