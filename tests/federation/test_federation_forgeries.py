"""A coordinator that hands another total back than the sum of what parties hid."""

from dataclasses import replace

import numpy as np
import pytest

from skprivbn.crypto import (
    CKKSBackend,
    HiddenVector,
    MaskingBackend,
    PaillierBackend,
    PartyMaskingBackend,
    PlaintextBackend,
    _authentication,
)
from skprivbn.exceptions import PartyError
from skprivbn.federation import InProcessFederation
from skprivbn.federation._answers import OpenSum
from tests.federation.hostile import add_plaintext
from tests.federation.protocol import MeanParty, MeanTerms

BACKENDS = {
    "masking": MaskingBackend(),
    "recovery": MaskingBackend(recovery=True),
    "party-masking": PartyMaskingBackend(),
    "plaintext": PlaintextBackend(),
    "paillier": PaillierBackend(key_size=512, insecure_test_key=True),
    "ckks": CKKSBackend(),
}
BLOCKS = {name: {"X": np.arange(8.0).reshape(4, 2) + i} for i, name in enumerate("abc")}
N_ROWS = 12
#: added to the sums of both columns: the mean then is where the coordinator wants it
SHIFT = np.array([1200.0, -600.0])


def forged_payload(backend, total):
    """Return a total with the shift added, as it travels."""
    hidden = total.hidden if isinstance(total, OpenSum) else None
    hidden = hidden or HiddenVector.from_payload(total)
    return add_plaintext(backend, hidden, SHIFT).to_payload()


def forged_update(name):
    """Return the parties' means after a total that the coordinator made up."""
    backend = BACKENDS[name]
    options = {"on_dropout": "continue"} if name == "recovery" else {}
    with InProcessFederation(
        BLOCKS, MeanParty, MeanTerms(), backend, **options
    ) as federation:
        total = federation.secure_sum("moments")
        federation.call("update", {"total": forged_payload(backend, total)})
        return [host._party.mean for host in federation._hosts.values()]


@pytest.mark.parametrize("name", BACKENDS)
def test_attack_plaintext_added_to_a_total(name):
    with pytest.raises(PartyError, match="not signed or sealed"):
        forged_update(name)


@pytest.mark.parametrize("name", BACKENDS)
def test_without_the_check_the_coordinator_chooses_the_model(name, monkeypatch):
    """The twin: all parties go on with what they were told."""
    monkeypatch.setattr(
        _authentication.TagSecrets, "check", lambda self, values, tag, parties: None
    )
    honest = np.vstack([block["X"] for block in BLOCKS.values()]).mean(axis=0)
    for mean in forged_update(name):
        np.testing.assert_allclose(mean, honest + SHIFT / N_ROWS, atol=1e-6)


@pytest.mark.parametrize("name", BACKENDS)
def test_honest_totals_are_what_the_coordinator_reads(name):
    backend = BACKENDS[name]
    with InProcessFederation(BLOCKS, MeanParty, MeanTerms(), backend) as federation:
        for _ in range(2):
            total = federation.secure_sum("moments")
            assert federation.agree("update", {"total": total})
            if isinstance(total, OpenSum):
                assert total[-1] == N_ROWS
        honest = np.vstack([block["X"] for block in BLOCKS.values()]).mean(axis=0)
        for host in federation._hosts.values():
            np.testing.assert_allclose(host._party.mean, honest, atol=1e-7)


def test_attack_total_of_the_round_before():
    with InProcessFederation(BLOCKS, MeanParty, MeanTerms(), "masking") as federation:
        old = federation.secure_sum("moments")
        federation.agree("update", {"total": old})
        new = federation.secure_sum("moments")
        again = replace(old.hidden, key=new.hidden.key, round=new.hidden.round)
        with pytest.raises(PartyError, match="not signed or sealed"):
            federation.call("update", {"total": again.to_payload()})


def test_a_party_that_met_a_forged_total_is_gone():
    with InProcessFederation(BLOCKS, MeanParty, MeanTerms(), "masking") as federation:
        total = federation.secure_sum("moments")
        forged = {"total": forged_payload(MaskingBackend(), total)}
        with pytest.raises(PartyError):
            federation.call("update", forged, to="a")
        with pytest.raises(PartyError, match="refuses"):
            federation.call("update", {"total": total}, to="a")


def test_what_is_computed_from_a_sum_is_a_plain_array():
    """Only the sum itself stands for what parties can verify."""
    total = OpenSum(np.arange(3.0), "hidden")
    for computed in (total / 2, total + total, np.exp(total), np.rint(total)):
        assert type(computed) is np.ndarray
    for part in (total[1:], total.reshape(3, 1), total.astype(int)):
        assert part.hidden is None
    assert type(total.sum()) is np.float64
