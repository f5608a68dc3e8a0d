"""What ADMM parties do not take from a coordinator."""

import numpy as np
import pytest

from skprivbn.crypto import PaillierBackend
from skprivbn.exceptions import PartyError
from skprivbn.structure import FederatedDynotears, FederatedNotearsADMM
from skprivbn.structure.admm._protocol import (
    ADMMParty,
    ConsensusState,
    collect_residuals,
)
from tests.federation.hostile import other_total
from tests.federation.site.loopback import open_sites

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)

ROWS = np.random.default_rng(0).normal(size=(30, 2))
PARTY = np.arange(30) % 3
PAILLIER = PaillierBackend(key_size=512, insecure_test_key=True)
#: stands out in the first column; the coordinator is after its second
NEEDLE = 7
#: a network whose only unit is on for rows beyond 20 in the first column
MAPS, BIAS, OUTPUT = [0.0, 1e4, 0.0, 0.0], [0.0, -2e5], [0.0, 50.0]


def play(monkeypatch, hostile, rows=ROWS, **parameters):
    """Fit with a coordinator of one's own."""

    def stop(federation, progress):
        hostile(federation)
        raise KeyboardInterrupt

    monkeypatch.setattr("skprivbn.structure.admm._notears.run_admm", stop)
    with pytest.raises(KeyboardInterrupt):
        FederatedNotearsADMM(**parameters).fit(rows, party=PARTY)


def isolate_one_row(federation):
    """Return the second column of the needle, about the mean of its holder's rows.

    The parties are handed a sum from which a network follows that looks at one row.
    """
    spread = federation.secure_sum("spread")
    total = federation.secure_sum("propose", {"total": spread})
    wanted = np.concatenate([MAPS, BIAS, OUTPUT, np.zeros(2), [0.0]])
    forged = 3 * wanted
    federation.secure_sum("propose", {"total": other_total(total, forged)})
    state = ConsensusState(federation.terms, 3)
    state.step(forged)
    height = state.kept()[7]
    *_, squares = collect_residuals(federation)
    # Sum (x - height [is the needle])^2 = Sum x^2 - 2 height x_needle + height^2
    return (spread[1] + height**2 - squares[1]) / (2 * height)


class TestOneRow:
    """A sum of the coordinator's making is a network of its choice."""

    rows = ROWS.copy()
    rows[NEEDLE, 0] = 60.0
    parameters = {"method": "mlp", "n_hidden": 1, "random_state": 0, "max_iter": 3}

    def test_attack_is_refused(self, monkeypatch):
        def hostile(federation):
            with pytest.raises(PartyError, match="not signed or sealed"):
                isolate_one_row(federation)

        play(monkeypatch, hostile, self.rows, **self.parameters)

    def test_attack_works_without_tags(self, monkeypatch, no_tags):
        own = self.rows[PARTY[NEEDLE] == PARTY].mean(axis=0)

        def hostile(federation):
            found = isolate_one_row(federation) + own[1]
            np.testing.assert_allclose(found, self.rows[NEEDLE, 1], atol=1e-6)

        play(monkeypatch, hostile, self.rows, **self.parameters)


def clear(total):
    return np.array(total)


def smaller(total):
    """Fewer rows, or less spread, than parties have: blows up what they add."""
    return other_total(total, np.array(total) / 30)


@pytest.mark.parametrize(
    ("backend", "forge", "reason"),
    [
        ("masking", clear, "refuses"),
        ("masking", lambda total: None, "refuses"),
        ("masking", smaller, "not signed or sealed"),
        (PAILLIER, clear, "refuses"),
        (PAILLIER, smaller, "not signed or sealed"),
    ],
)
def test_rows_and_scale_are_the_parties_own(monkeypatch, backend, forge, reason):
    def hostile(federation):
        spread = federation.secure_sum("spread")
        with pytest.raises(PartyError, match=reason):
            federation.secure_sum("propose", {"total": forge(spread)})

    play(monkeypatch, hostile, backend=backend)


@pytest.mark.parametrize(
    ("backend", "name", "value", "reason"),
    [
        ("masking", "total", np.zeros(5), "refuses"),
        ("masking", "consensus", np.zeros(4), "not signed or sealed"),
        # key holders have had the sum before
        (PAILLIER, "total", np.zeros(5), "refuses"),
    ],
)
def test_the_consensus_is_the_parties_own(monkeypatch, backend, name, value, reason):
    def hostile(federation):
        total = federation.secure_sum("spread")
        total = federation.secure_sum("propose", {"total": total})
        if backend is PAILLIER:
            federation.agree("update", {"total": total})
        with pytest.raises(PartyError, match=reason):
            federation.secure_sum("propose", {name: value})

    play(monkeypatch, hostile, backend=backend)


def test_a_sum_serves_one_round(monkeypatch):
    def hostile(federation):
        spread = federation.secure_sum("spread")
        federation.secure_sum("propose", {"total": spread})
        with pytest.raises(PartyError, match="not signed or sealed"):
            federation.secure_sum("propose", {"total": spread})

    play(monkeypatch, hostile)


@pytest.mark.parametrize("method", ["linear", "mlp"])
def test_residuals_are_those_of_the_model_that_parties_know(monkeypatch, method):
    """Parameters of the coordinator's choice could single out rows."""

    def hostile(federation):
        with pytest.raises(PartyError, match="not signed or sealed"):
            federation.secure_sum("residuals", {"parameters": np.ones(4)})
        raise KeyboardInterrupt

    monkeypatch.setattr("skprivbn.structure.admm._notears.collect_residuals", hostile)
    learner = FederatedNotearsADMM(method, max_iter=2, n_hidden=2, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        learner.fit(ROWS, party=PARTY)


def test_key_holders_give_residuals_of_the_exact_consensus_only(monkeypatch):
    """Before the exact sum, theirs is a decryption, which must not leave them."""

    def hostile(federation):
        total = federation.secure_sum("spread")
        payload = {"total": total}
        while True:
            total = federation.secure_sum("propose", payload)
            if not federation.agree("update", {"total": total}):
                break
            payload = {}
        federation.secure_sum("release")
        with pytest.raises(PartyError, match="refuses"):
            federation.secure_sum("residuals")

    play(monkeypatch, hostile, backend=PAILLIER, max_iter=1)


def test_weights_of_networks_are_drawn_from_a_seed():
    """A start of the coordinator's choice would be such a network, too."""
    learner = FederatedNotearsADMM("mlp", n_hidden=2, random_state=3)
    learner.n_features_in_ = 2
    terms = learner._model_terms(3)
    assert "start" not in terms.to_payload()
    assert np.abs(terms.start()).max() <= 1 / np.sqrt(2)


def test_attack_series_in_which_hardly_any_row_has_a_past(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    rows = rng.normal(60, 9, (3, 40, 2)).round(2)
    beds = np.tile(np.arange(40), (3, 1))
    # two patients of north come after another one in the same bed, and nobody else
    beds[0, [7, 9]], beds[0, [17, 29]] = 50, 51
    tables = {
        name: [[*row, bed] for row, bed in zip(mine.tolist(), numbers.tolist())]
        for name, mine, numbers in zip(("north", "south", "west"), rows, beds)
    }
    columns = {"age": '"float"', "stay": '"float"', "bed": '"int"'}
    sites = open_sites(tmp_path, tables, columns, ["FederatedDynotears"])
    overheard = []

    def listen(federation, progress):
        overheard.append(federation.secure_sum("spread"))
        raise KeyboardInterrupt

    monkeypatch.setattr("skprivbn.structure.admm._notears.run_admm", listen)
    model = FederatedDynotears(n_lags=1)
    with pytest.raises(PartyError) as caught:
        model.fit(sites.rows(["age", "stay"]), series="bed")
    assert caught.value.code == "too-few-rows"
    # the twin: how far two patients are apart, in every column
    few = property(lambda self: 1, lambda self, value: None)
    monkeypatch.setattr(ADMMParty, "min_rows", few)
    with pytest.raises(KeyboardInterrupt):
        model.fit(sites.rows(["age", "stay"]), series="bed")
    *squares, n_rows = overheard[0]
    assert n_rows == 2
    apart = np.abs(rows[0, 9] - rows[0, 29])
    np.testing.assert_allclose(np.sqrt(2 * np.array(squares)), apart, atol=1e-9)
