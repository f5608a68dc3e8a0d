"""Lists of survivors are remembered as a roster once they are known to be lists."""

import numpy as np
import pytest

from skprivbn.crypto import MaskingBackend
from skprivbn.exceptions import PartyError
from skprivbn.federation import PartyHost
from skprivbn.federation.site._host import SiteHost
from skprivbn.protocols import MomentsParty, MomentsTerms
from tests.federation.site.loopback import open_sites

NAMES = ("north", "south", "west")


@pytest.fixture
def sites(tmp_path):
    rng = np.random.default_rng(0)
    tables = {name: rng.normal(size=(30, 1)).tolist() for name in NAMES}
    return open_sites(tmp_path, tables, {"x": '"float"'}, ["FederatedStandardScaler"])


def session(sites, recovery):
    backend, terms = MaskingBackend(recovery=recovery), MomentsTerms("none")
    return sites.rows().federate(MomentsParty, terms, backend)


def spoil(sites):
    """Tell sites, as whoever relays can, of survivors that nobody has heard of."""
    step = {"step": "keys", "survivors": ["nobody"]}
    with pytest.raises(PartyError), session(sites, recovery=True) as federation:
        federation.call("backend", step)


def ask(sites):
    with session(sites, recovery=False) as federation:
        return federation.secure_sum("sums")[0]


def test_attack_survivors_that_are_no_roster(sites):
    spoil(sites)
    assert ask(sites) == 90


def test_remembered_before_it_is_checked_no_roster_is_answered(sites, monkeypatch):
    def too_soon(self, step, **payload):
        if "survivors" in payload:
            self._hold_roster(payload["survivors"])
        return PartyHost._control_backend(self, step, **payload)

    monkeypatch.setattr(SiteHost, "_control_backend", too_soon)
    spoil(sites)
    with pytest.raises(PartyError) as caught:
        ask(sites)
    assert caught.value.code == "other-roster"
