"""A coordinator with one of the parties on its side, in whole sessions."""

import numpy as np
import pytest

from skprivbn.crypto import HiddenVector, MaskingBackend, PartyMaskingBackend
from skprivbn.datasets import make_partitioned_blobs
from skprivbn.exceptions import PartyError
from skprivbn.federation import InProcessFederation
from skprivbn.federation._answers import OpenSum
from skprivbn.mixture import PPEMGaussianMixture
from tests.crypto.test_signed import shift_with_a_fitting_tag
from tests.federation.hostile import changed
from tests.federation.protocol import MeanParty, MeanTerms

BLOCKS = {
    name: {"X": np.arange(12.0).reshape(4, 3) + i} for i, name in enumerate("abc")
}
#: 12 rows: all columns then have the mean that the pair wants
SHIFT = np.array([1200.0, 1200.0, 1200.0, 0.0])


def means_after_a_forgery(backend, part):
    """Return the means of a and b; c gives the coordinator what it knows."""
    with InProcessFederation(BLOCKS, MeanParty, MeanTerms(), backend) as federation:
        total = federation.secure_sum("moments")
        payload = total.hidden.to_payload() if isinstance(total, OpenSum) else total
        hidden = HiddenVector.from_payload(payload)
        accomplice = federation._hosts["c"]._plain_sums
        parts = list(hidden.parts)
        parts[part] = shift_with_a_fitting_tag(accomplice, parts[part], SHIFT)
        federation.call(
            "update", {"total": changed(payload, parts=parts)}, to=("a", "b")
        )
        return [federation._hosts[name]._party.mean for name in "ab"]


def test_attack_a_total_by_the_coordinator_and_a_party():
    truth = np.mean([block["X"].mean(axis=0) for block in BLOCKS.values()], axis=0)
    # the twin: tags alone do not keep out who has their key
    for mean in means_after_a_forgery(PartyMaskingBackend(), 0):
        np.testing.assert_allclose(mean, truth + 100)
    for backend in (PartyMaskingBackend(signed=True), MaskingBackend(signed=True)):
        for part in range(3):
            with pytest.raises(PartyError, match="not signed or sealed"):
                means_after_a_forgery(backend, part)


@pytest.mark.parametrize("masks", [MaskingBackend, PartyMaskingBackend])
def test_mixtures_are_the_same(masks):
    """Results and numbers of rows are added by everybody as well."""
    X, _, party = make_partitioned_blobs(240, n_parties=4, random_state=0)
    options = {"covariance_type": "spherical", "random_state": 0, "tol": 1.0}
    one, other = (
        PPEMGaussianMixture(3, backend=backend, **options).fit(X, party=party)
        for backend in (masks(), masks(signed=True))
    )
    np.testing.assert_array_equal(one.means_, other.means_)
    np.testing.assert_array_equal(one.covariances_, other.covariances_)
    assert any("signed vectors" in note for note in other.ledger_.notes)
