"""Lists of survivors are remembered as a roster once they are known to be lists."""

import numpy as np
import pytest

from skprivbn.crypto import MaskingBackend
from skprivbn.exceptions import PartyError
from skprivbn.federation import Runner, decode, encode
from skprivbn.federation.site._host import SiteHost
from skprivbn.programs import MomentsTerms, moments
from tests.federation.site.loopback import open_sites

NAMES = ("north", "south", "west")


@pytest.fixture
def sites(tmp_path):
    rng = np.random.default_rng(0)
    tables = {name: rng.normal(size=(30, 1)).tolist() for name in NAMES}
    return open_sites(tmp_path, tables, {"x": '"float"'}, ["FederatedStandardScaler"])


def session(sites, recovery):
    backend, terms = MaskingBackend(recovery=recovery), MomentsTerms("none")
    return sites.rows().federate(moments, terms, backend)


def spoil(sites):
    """Tell sites, as whoever relays can, of survivors that nobody has heard of."""
    with session(sites, recovery=True) as federation:
        relay = federation._exchange

        def lie(requests, timeout):
            return relay({n: _with_nobody(m) for n, m in requests.items()}, timeout)

        federation._exchange = lie
        with pytest.raises(PartyError):
            federation.run()


def _with_nobody(message):
    request = decode(message)
    if "survivors" in request["payload"]:
        request["payload"] = {"survivors": ["nobody"]}
    return encode(request)


def ask(sites):
    with session(sites, recovery=False) as federation:
        return federation.run()["n_rows"][0]


def test_attack_survivors_that_are_no_roster(sites):
    spoil(sites)
    assert ask(sites) == 90


def test_remembered_before_it_is_checked_no_roster_is_answered(sites, monkeypatch):
    def too_soon(self, request):
        if "survivors" in request["payload"]:
            self._hold_roster(request["payload"]["survivors"])
        return Runner._answer(self, request)

    monkeypatch.setattr(SiteHost, "_answer", too_soon)
    spoil(sites)
    with pytest.raises(PartyError) as caught:
        ask(sites)
    assert caught.value.code == "other-roster"
