"""What ADMM parties do not take from a coordinator."""

import numpy as np
import pytest

from skprivbn.crypto import PaillierBackend
from skprivbn.exceptions import PartyError
from skprivbn.structure import FederatedNotearsADMM

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)

ROWS = np.random.default_rng(0).normal(size=(30, 2))
FIRST = {"n_rows": 30, "scale": 1.0}
PAILLIER = PaillierBackend(key_size=512, insecure_test_key=True)


@pytest.mark.parametrize(
    ("backend", "asked"),
    [
        # shrinks or blows up what a party adds
        ("masking", [FIRST | {"n_rows": 1}]),
        ("masking", [FIRST | {"scale": 1e-3}]),
        ("masking", [FIRST | {"scale": float("nan")}]),
        ("masking", [FIRST | {"scale": 1}]),
        ("masking", [{"n_rows": 30}]),
        ("masking", [FIRST, {"n_rows": 60}]),
        ("masking", [FIRST, {"consensus": np.zeros(4), "scale": 2.0}]),
        ("masking", [FIRST, {"consensus": np.zeros(1)}]),
        ("masking", [FIRST, {}]),
        # key holders work the consensus out for themselves
        (PAILLIER, [FIRST | {"consensus": np.zeros(4)}]),
    ],
)
def test_proposals_answer_nothing_but_the_protocols_question(
    monkeypatch, backend, asked
):
    def hostile(federation, progress):
        federation.secure_sum("spread")
        *before, last = asked
        for payload in before:
            federation.secure_sum("propose", payload)
        with pytest.raises(PartyError, match="refuses"):
            federation.secure_sum("propose", last)
        raise KeyboardInterrupt

    monkeypatch.setattr("skprivbn.structure.admm._notears.run_admm", hostile)
    with pytest.raises(KeyboardInterrupt):
        FederatedNotearsADMM(backend=backend).fit(ROWS, party=np.arange(30) % 3)


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_residuals_are_those_of_the_model_that_parties_know(monkeypatch, model):
    """Parameters of the coordinator's choice could single out rows."""

    def hostile(federation):
        with pytest.raises(PartyError, match="did not complete"):
            federation.secure_sum("residuals", {"parameters": np.ones(4)})
        raise KeyboardInterrupt

    monkeypatch.setattr("skprivbn.structure.admm._notears.collect_residuals", hostile)
    learner = FederatedNotearsADMM(model, max_iter=2, n_hidden=2, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        learner.fit(ROWS, party=np.arange(30) % 3)


def test_key_holders_give_residuals_of_the_exact_consensus_only(monkeypatch):
    """Before the exact sum, theirs is a decryption, which must not leave them."""

    def hostile(federation, progress):
        federation.secure_sum("spread")
        total = federation.secure_sum("propose", FIRST)
        while federation.agree("update", {"total": total}):
            total = federation.secure_sum("propose")
        federation.secure_sum("release")
        with pytest.raises(PartyError, match="refuses"):
            federation.secure_sum("residuals")
        raise KeyboardInterrupt

    monkeypatch.setattr("skprivbn.structure.admm._notears.run_admm", hostile)
    with pytest.raises(KeyboardInterrupt):
        FederatedNotearsADMM(backend=PAILLIER, max_iter=1).fit(
            ROWS, party=np.arange(30) % 3
        )
