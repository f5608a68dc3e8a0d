"""Of all bytes that a coordinator sees, whatever hides sums, it reads results only."""

import numpy as np
import pytest

from skprivbn.crypto import HiddenVector, MaskingBackend, PaillierBackend
from skprivbn.crypto._masking import MaskingSession, add_masked
from skprivbn.exceptions import ProtocolError
from skprivbn.federation import (
    ALL_ROWS,
    InProcessFederation,
    Release,
    Sum,
    Terms,
    decode,
    program,
)

#: backend, number of parties
BACKENDS = {
    "masking": ("masking", 3),
    "recovery": (MaskingBackend(recovery=True), 4),
    "signed": (MaskingBackend(signed=True), 3),
    "many parties": ("masking", 34),
    "ckks": ("ckks", 3),
    "paillier": (PaillierBackend(key_size=512, insecure_test_key=True), 3),
}
MASKS = ["masking", "recovery", "signed", "many parties"]


@program(Terms)
def sums(me):
    """A sum for parties, one for the researcher, and a result of the first."""
    first = yield Sum(me.block["first"], "numbers", ALL_ROWS)
    yield Release(me.block["second"], "other numbers", ALL_ROWS)
    return {"result": first >> 40}


class Curious(InProcessFederation):
    """Keeps all bytes that it carries, and what it can add up without any key."""

    def __init__(self, *args):
        super().__init__(*args)
        self.seen = []

    def _exchange(self, requests, timeout):
        self.seen += requests.values()
        replies = super()._exchange(requests, timeout)
        self.seen += replies.values()
        for message in requests.values():
            payload = decode(message)["payload"]
            if "total" in payload:
                self._add_up(HiddenVector.from_payload(payload["total"]))
        return replies

    def _add_up(self, total):
        try:
            self.seen += add_masked([total.parts])
        except (ProtocolError, ValueError):
            pass  # no vectors under masks

    def sees(self, numbers):
        """Tell whether two numbers of 64 bits stand side by side in what it saw."""
        marker = numbers[:2].astype("<i8").tobytes()
        assert len(marker) == 16
        return any(marker in message for message in self.seen)


def watch(backend, n_parties):
    """Run the program; return what was seen of vectors, totals and results."""
    # in the high bits of the first numbers something a result can tell
    numbers = np.random.default_rng(0).integers(2**52, 2**54, (2, n_parties, 4))
    blocks = {
        f"party {i}": {"first": numbers[0, i], "second": numbers[1, i]}
        for i in range(n_parties)
    }
    with Curious(blocks, sums, Terms(), backend) as federation:
        result = federation.run()["result"]
    first, second = numbers.sum(axis=1)
    np.testing.assert_array_equal(result, first >> 40)
    np.testing.assert_array_equal(federation.released, [second])
    return {
        "vectors": [federation.sees(v) for vectors in numbers for v in vectors],
        "total": federation.sees(first),
        "release": federation.sees(second),
        "result": federation.sees(first >> 40),
    }


@pytest.mark.parametrize("name", BACKENDS)
def test_a_coordinator_reads_results_only(name):
    seen = watch(*BACKENDS[name])
    assert not any(seen["vectors"])
    assert not seen["total"]
    assert seen["release"] and seen["result"]


def test_in_the_clear_it_reads_everything():
    """So the search finds what is there."""
    seen = watch("plaintext", 3)
    assert all(seen["vectors"])
    assert seen["total"] and seen["release"] and seen["result"]


@pytest.mark.parametrize("name", MASKS)
def test_without_a_cover_it_reads_the_total_but_no_vector(name, monkeypatch):
    for session in (MaskingSession, *MaskingSession.__subclasses__()):
        monkeypatch.setattr(session, "_covered_by", lambda self: ())
    seen = watch(*BACKENDS[name])
    assert not any(seen["vectors"])
    assert seen["total"]


@pytest.mark.parametrize("name", ["masking", "signed", "many parties"])
def test_without_masks_it_reads_vectors(name, monkeypatch):
    monkeypatch.setattr(MaskingSession, "_make_masks", lambda self, context: [])
    seen = watch(*BACKENDS[name])
    # the first party's are under the cover of the sum, nobody else's are
    n_parties = BACKENDS[name][1]
    assert seen["vectors"] == [i % n_parties > 0 for i in range(2 * n_parties)]
