"""Mask recovery on a federation: parties lost in the middle of a sum."""

import numpy as np
import pytest

from skprivbn.crypto import MaskingBackend
from skprivbn.exceptions import PartyError, ProtocolError
from skprivbn.federation import InProcessFederation, decode
from tests.federation.protocol import MeanParty

BLOCKS = {
    name: {"X": np.random.default_rng(i).normal(size=(4, 2))}
    for i, name in enumerate("abcdefg")
}


class Losing(InProcessFederation):
    """Loses the given parties, for good, when they are asked something."""

    def __init__(self, losses, **options):
        self.losses = losses
        options.setdefault("on_dropout", "continue")
        backend = MaskingBackend(recovery=True)
        super().__init__(BLOCKS, MeanParty, {}, backend, **options)

    def _exchange(self, requests, timeout):
        replies = super()._exchange(requests, timeout)
        for name, message in requests.items():
            request = decode(message)
            step = request["payload"].get("step", request["operation"])
            if name in self.losses.get(step, ()):
                replies[name] = None
        return replies


def total_of(names):
    rows = np.vstack([BLOCKS[name]["X"] for name in names])
    return np.append(rows.sum(axis=0), len(rows))


@pytest.mark.parametrize("step", ["keys", "shares", "deliver", "moments"])
def test_the_sum_is_over_the_survivors(step):
    with Losing({step: ["b", "e"]}) as federation:
        total = federation.secure_sum("moments")
    np.testing.assert_allclose(total, total_of("acdfg"), rtol=1e-14)
    assert set(federation.lost) == {"b", "e"}
    assert sum("was lost" in note for note in federation.ledger.notes) == 2


@pytest.mark.parametrize("step", ["survivors", "unmask"])
def test_those_lost_after_hiding_still_count(step):
    with Losing({step: ["b", "e"]}) as federation:
        total = federation.secure_sum("moments")
    np.testing.assert_allclose(total, total_of("abcdefg"), rtol=1e-14)


def test_the_next_sum_goes_on_without_them():
    with Losing({"moments": ["b"]}) as federation:
        total = federation.secure_sum("moments")
        federation.agree("update", {"total": total})
        federation.losses = {}
        total = federation.secure_sum("moments")
    np.testing.assert_allclose(total, total_of("acdefg"), rtol=1e-14)


def test_too_many_losses_end_the_sum():
    with Losing({"moments": ["b", "c", "d"]}) as federation:
        with pytest.raises(ProtocolError, match="only 4 parties are left"):
            federation.secure_sum("moments")


def test_losses_raise_unless_allowed():
    with Losing({"moments": ["b"]}, on_dropout="raise") as federation:
        with pytest.raises(PartyError, match="'b'"):
            federation.secure_sum("moments")
