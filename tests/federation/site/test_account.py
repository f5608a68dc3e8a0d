"""Budgets in two steps: nobody pays for a fit that another site refuses."""

import warnings
from contextlib import suppress

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation.site import _state
from skprivbn.federation.site._account import Account
from skprivbn.federation.site._state import SiteState
from skprivbn.preprocessing import FederatedStandardScaler
from skprivbn.privacy import PrivacyAccountant
from skprivbn.programs import MomentsTerms, moments
from tests.federation.flare.hospitals import NAMES, make_rows, site_files, write_tables
from tests.federation.site.loopback import charges, connect, make_sites

BUDGET = "budget = {epsilon = 20.0, delta = 1e-5}"
BOUNDS = np.array([[-5.0], [15.0]])
TERMS = MomentsTerms("none", BOUNDS, epsilon=0.1, delta=1e-6)


@pytest.fixture
def hospitals(tmp_path):
    """Three sites, of which west does not allow CKKS."""
    write_tables(tmp_path, *make_rows())
    texts = site_files(max_exact_fits=3, budget=BUDGET)
    text = texts["west"]
    texts["west"] = text.replace("min_rows", 'backends = ["masking"]\nmin_rows', 1)
    return make_sites(tmp_path, texts)


def n_charges(folder, kind="noisy", is_charged=True):
    """Return how often each site was charged, or has set something aside."""
    found = [charges(folder, name, kind) for name in NAMES]
    return [sum(c["is_charged"] == is_charged for c in mine) for mine in found]


def fit_noisy(rows, n_fits):
    """Return the number of releases of fits, of which one site refuses every second."""
    n_released = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(n_fits):
            for backend in ("masking", "ckks"):
                model = FederatedStandardScaler(
                    epsilon=0.1, delta=1e-8, bounds=(-5, 15), backend=backend
                )
                with suppress(PartyError):
                    model.fit(rows)
                    n_released += 1
    return n_released


@pytest.mark.parametrize("n_fits", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_charges_are_equal_at_all_sites_and_equal_to_the_releases(
    hospitals, tmp_path, n_fits
):
    n_released = fit_noisy(connect(hospitals, "icu").rows(["a", "b"]), n_fits)
    assert n_released == n_fits
    assert n_charges(tmp_path) == [n_fits] * 3
    assert n_charges(tmp_path, is_charged=False) == [0] * 3


def test_they_would_not_be_if_sites_charged_when_asked(
    hospitals, tmp_path, monkeypatch
):
    # the twin: one step
    reserve = Account.reserve

    def pay(self):
        reserve(self)
        self._charge()

    monkeypatch.setattr(Account, "reserve", pay)
    monkeypatch.setattr(Account, "begin", lambda self: None)
    n_released = fit_noisy(connect(hospitals, "icu").rows(["a", "b"]), 3)
    assert n_released == 3
    assert n_charges(tmp_path) == [6, 6, 3]


def test_exact_fits_are_reserved_too(hospitals, tmp_path):
    rows = connect(hospitals, "icu").rows(["a", "b"])
    for _ in range(5):
        with pytest.raises(PartyError, match="'west'.*does not allow"):
            FederatedStandardScaler(backend="ckks").fit(rows)
    for _ in range(3):
        FederatedStandardScaler().fit(rows)
    assert n_charges(tmp_path, "exact") == [3] * 3


def test_a_lying_coordinator_wastes_budget_at_most(hospitals, tmp_path):
    rows = connect(hospitals, "icu").rows(["a"])
    federation = rows.federate(moments, TERMS, "masking")
    federation.__enter__()
    hellos = b"".join(said["hello"] for said in federation._said.values())
    assert n_charges(tmp_path) == [0, 0, 0]
    assert n_charges(tmp_path, is_charged=False) == [1, 1, 1]
    # only north hears that all have signed, and pays; nobody has told anything yet
    federation._answer({"north": {"hellos": hellos}})
    assert n_charges(tmp_path) == [1, 0, 0]
    # south, which did not, tells nothing
    with pytest.raises(PartyError, match="'south'"):
        federation._answer({"south": {"sealed": {}}})
    assert n_charges(tmp_path) == [1, 0, 0]


def test_a_forged_greeting_costs_nothing(hospitals, tmp_path):
    rows = connect(hospitals, "icu").rows(["a"])
    federation = rows.federate(moments, TERMS, "masking")
    federation.__enter__()
    hellos = b"".join(said["hello"] for said in federation._said.values())
    hellos = hellos[:-1] + bytes([hellos[-1] ^ 1])
    with pytest.raises(PartyError, match="not signed"):
        federation._answer(dict.fromkeys(federation.roster, {"hellos": hellos}))
    assert n_charges(tmp_path) == [0, 0, 0]
    assert n_charges(tmp_path, is_charged=False) == [0, 0, 0]


def test_what_others_have_reserved_is_not_there(hospitals, tmp_path, monkeypatch):
    rows = connect(hospitals, "icu").rows(["a"])
    state = SiteState(tmp_path / "north" / "skprivbn_state")
    state.open_account(hospitals["north"]._site_file.datasets["icu"])
    other = "icu", "somebody else's", "noisy"
    cost = {"epsilon": 15.0, "delta": 1e-6, "rho": None}
    cost |= {"version": "1", "what": "a scaler"}
    state.reserve(*other, **cost)
    account = PrivacyAccountant(epsilon=99.0, delta=1e-3)
    model = FederatedStandardScaler(
        epsilon=15.0, delta=1e-6, bounds=(-5, 15), accountant=account
    )
    with pytest.raises(PartyError, match="'north'.*used up"):
        model.fit(rows)
    # reservations that come to nothing lapse
    with monkeypatch.context() as patched:
        patched.setattr(_state, "RESERVED_FOR", _state.RESERVED_FOR * 0)
        with pytest.raises(PartyError, match="'north'.*refuses"):
            model.fit(rows)  # so do those of the session itself
    state.reserve(*other, **cost)
    state.release("icu", "somebody else's")
    model.fit(rows)


def test_a_refusal_after_the_charge_is_counted(hospitals, monkeypatch, tmp_path):
    rows = connect(hospitals, "icu").rows(["a"])

    def fail(self):
        raise ValueError("a row of this site's")

    monkeypatch.setattr("skprivbn.federation.runner.Runner._check_rows", fail)
    model = FederatedStandardScaler(epsilon=0.1, delta=1e-6, bounds=(-5, 15))
    with pytest.raises(PartyError, match="'north'.*raised an error"):
        model.fit(rows)
    assert n_charges(tmp_path) == n_charges(tmp_path, "refused") == [1, 1, 1]
