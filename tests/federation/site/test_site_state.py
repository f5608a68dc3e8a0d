"""The state of a site outlasts crashes, forks and several processes at once."""

import os
import sqlite3
import stat
import threading
import time
import warnings
from contextlib import closing, suppress
from types import SimpleNamespace

import numpy as np
import pytest

from skprivbn.exceptions import BudgetExceededError, PartyError
from skprivbn.federation import Runner
from skprivbn.federation.program import PartyRefusal
from skprivbn.federation.site import _question, _state
from skprivbn.federation.site._account import Account, look_at_account
from skprivbn.federation.site._file import SiteFile
from skprivbn.federation.site._question import Approvals
from skprivbn.federation.site._state import SiteState
from skprivbn.preprocessing import FederatedStandardScaler
from tests.federation.flare.hospitals import NAMES, make_rows, site_files, write_tables
from tests.federation.site.crash import needs_fork, run_killed
from tests.federation.site.loopback import audit, charges, connect, make_sites

SITE_FILE = """
peers = ["south", "west"]
[datasets.icu]
path = "stays.csv"
min_rows = 5
max_exact_fits = 3
budget = {epsilon = 1.0, delta = 1e-5}
approve = "ask"
estimators = ["FederatedStandardScaler"]
columns = {age = "float"}
"""
NOISE = SimpleNamespace(epsilon=0.4, delta=1e-6, rho=None)
#: numbers of two releases and of a result
RELEASES = (3, 5, 7)


@pytest.fixture
def site_file(tmp_path, monkeypatch):
    """A site where questions wait, and are told of in few words."""
    monkeypatch.setattr(_question, "describe", lambda question: {"dataset": "icu"})
    monkeypatch.setattr(_question, "_what_leaves", lambda question: {})
    (tmp_path / "site.toml").write_text(SITE_FILE)
    ages = "\n".join(map(str, range(40)))
    (tmp_path / "stays.csv").write_text(f"age\n{ages}\n")
    return SiteFile.load(tmp_path / "site.toml")


def ask(site_file, session, noise=None):
    """Return a question, as far as an account is concerned."""
    return SimpleNamespace(
        site_file=site_file,
        dataset=site_file.datasets["icu"],
        noise=noise,
        weights=None,
        recovers=False,
        terms=SimpleNamespace(protects="rows"),
        agreement=SimpleNamespace(
            session=session,
            roster=["north", "south", "west"],
            protocol="moments",
            settings={},
            backend=None,
            data={},
        ),
    )


def reserve(question):
    """Return the account of a question that waited, was approved and is asked again."""
    account = Account(question, "ann")
    with suppress(PartyRefusal):
        account.check(is_dry=False)
    for number in Approvals(question.site_file).waiting():
        Approvals(question.site_file).answer(number, "approved")
    account.reserve()
    return account


def begin(question):
    """Return the account of a question whose first sum is about to be hidden."""
    account = reserve(question)
    account.begin()
    account.announce(0)
    return account


def fit(question, tell=lambda n_numbers: None):
    """Do to the state what a fit does; say what leaves when it does."""
    account = begin(question)
    for n_numbers in RELEASES:
        account.announce(n_numbers)
        account.open()
        tell(n_numbers)
    account.release()


def charged(site_file, kind, session):
    rows = SiteState(site_file.state).charges("icu", kind)
    mine = [row for row in rows if row["session"] == session.hex()]
    return [row for row in mine if row["is_charged"]]


@needs_fork
@pytest.mark.parametrize("noise", [None, NOISE], ids=["exact", "noisy"])
@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_every_statement_it_charges_once_or_not_at_all(
    site_file, tmp_path, noise, step
):
    kind = "exact" if noise is None else "noisy"
    sums, seen, number, is_killed = [0, 3, 8, 15], set(), 1 - step, True
    while is_killed:
        number += step
        for path in site_file.state.glob("*"):
            path.unlink()
        left = tmp_path / f"left-{number}"
        left.write_bytes(b"")

        def tell(n_numbers, left=left):
            with open(left, "ab") as file:
                file.write(bytes([n_numbers]))

        question = ask(site_file, b"killed", noise)
        is_killed = run_killed(number, fit, question, tell)
        n_left = sum(left.read_bytes())
        rows = charged(site_file, kind, b"killed")
        assert len(rows) <= 1
        if noise is None:
            n_told = rows[0]["numbers"] if rows else 0
            assert n_told in (n_left, sums[min(sums.index(n_left) + 1, 3)])
            seen.add(n_told)
        else:
            assert rows or not n_left
            seen.add(len(rows))
        # who asks again is answered, and pays once
        fit(ask(site_file, b"again", noise))
        (again,) = charged(site_file, kind, b"again")
        assert again["numbers"] == (15 if noise is None else 0)
        assert len(charged(site_file, kind, b"killed")) == len(rows)
        assert Approvals(site_file).waiting() == {}
    assert seen == (set(sums) if noise is None else {0, 1})
    assert number > 100


def test_numbers_that_are_charged_afterwards_would_leave_uncharged(
    site_file, monkeypatch
):
    # the twin of a crash just then
    monkeypatch.setattr(Account, "open", lambda self: None)
    told = []
    fit(ask(site_file, b"late"), told.append)
    assert sum(told) == 15
    assert charged(site_file, "exact", b"late") == []


def test_a_fit_that_fails_costs_nothing(site_file):
    state = SiteState(site_file.state)
    for number in range(10):
        account = begin(ask(site_file, bytes([number])))
        account.announce(4)
        # too few rows: nothing is opened
        account.release()
    assert state.charges("icu", "exact") == []
    assert state.told("icu") == {}


def test_what_a_program_announces_and_does_not_open_is_not_charged(site_file):
    fit(ask(site_file, b"first"))
    account = begin(ask(site_file, b"second"))
    account.announce(100)
    account.announce(4)  # it stepped back
    account.open()
    account.announce(50)
    account.release()
    state = SiteState(site_file.state)
    assert state.told("icu") == {"1": (2, 19)}
    assert [row["announced"] for row in state.charges("icu", "exact")] == [0, 0]


def test_data_that_become_another_version_meanwhile(site_file):
    fit(ask(site_file, b"first"))
    account = reserve(ask(site_file, b"second"))
    ages = "\n".join(map(str, range(100, 140)))
    (site_file.state.parent / "stays.csv").write_text(f"age\n{ages}\n")
    object.__setattr__(site_file.datasets["icu"], "version", "2")
    with pytest.raises(PartyRefusal, match="busy"):
        account.begin()
    account.release()
    state = SiteState(site_file.state)
    assert state.told("icu") == {"1": (1, 15)}
    # asked again, it is the new one that is charged
    fit(ask(site_file, b"third"))
    assert state.told("icu") == {"1": (1, 15), "2": (1, 15)}


def test_numbers_of_a_version_are_bounded(site_file):
    one, two = (begin(ask(site_file, session)) for session in (b"one", b"two"))
    one.announce(10, most=15)
    with pytest.raises(BudgetExceededError, match="too few exact numbers"):
        two.announce(6, most=15)
    two.announce(5, most=15)
    one.open()
    two.open()
    with pytest.raises(BudgetExceededError):
        two.announce(1, most=15)
    assert SiteState(site_file.state).told("icu") == {"1": (2, 15)}


def test_a_reservation_that_lapsed_is_made_again_if_there_is_room(
    site_file, monkeypatch
):
    account = begin(ask(site_file, b"slow"))
    state = SiteState(site_file.state)
    with monkeypatch.context() as patched:
        patched.setattr(_state, "RESERVED_FOR", _state.RESERVED_FOR * 0)
        assert state.charges("icu", "exact") == []
    account.announce(5)
    account.open()
    assert state.told("icu") == {"1": (1, 5)}


def test_the_file_is_the_owners(site_file):
    state = SiteState(site_file.state)
    state.open_account(site_file.datasets["icu"])
    assert stat.S_IMODE(state.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.path.parent.stat().st_mode) == 0o700


def test_a_state_of_a_later_release_is_not_read(site_file):
    state = SiteState(site_file.state)
    state.open_account(site_file.datasets["icu"])
    with closing(sqlite3.connect(state.path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(ValueError, match="or a later release's"):
        state.told("icu")
    with pytest.raises(ValueError, match="or a later release's"):
        look_at_account(site_file.datasets["icu"])


def test_another_process_is_waited_for_and_not_for_ever(site_file, monkeypatch):
    state, other = SiteState(site_file.state), SiteState(site_file.state)
    state.open_account(site_file.datasets["icu"])
    monkeypatch.setattr(_state, "WAIT", 0.2)
    with other.transaction():
        start = time.monotonic()
        with pytest.raises(PartyRefusal, match="busy") as caught:
            state.add_model("icu", "5f", b"found")
        assert 0.1 < time.monotonic() - start < 5
        assert "another process" in caught.value.__notes__[0]
    monkeypatch.setattr(_state, "WAIT", 20.0)
    other_one = threading.Event()

    def hold():
        with other.transaction():
            other_one.set()
            time.sleep(0.2)

    thread = threading.Thread(target=hold)
    thread.start()
    other_one.wait()
    state.add_model("icu", "5f", b"found")
    thread.join()
    assert state.models("5f") == [b"found"]
    assert state.models("6a") == []


@needs_fork
def test_processes_share_one_budget(site_file, tmp_path):
    state = SiteState(site_file.state)
    state.open_account(site_file.datasets["icu"])

    def grant(number):
        dataset = site_file.datasets["icu"]
        with suppress(BudgetExceededError):
            question = ask(site_file, bytes([number]), NOISE)
            object.__setattr__(dataset, "approve", "always")
            Account(question, "ann").reserve()
            (tmp_path / f"granted-{number}").touch()

    children = []
    for number in range(1, 7):
        child = os.fork()
        if not child:
            try:
                grant(number)
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    assert len(list(tmp_path.glob("granted-*"))) == 2
    assert len(state.charges("icu", "noisy")) == 2


@needs_fork
def test_a_forked_process_is_refused(site_file, tmp_path):
    state = SiteState(site_file.state)
    state.open_account(site_file.datasets["icu"])

    def use():
        with pytest.raises(PartyRefusal, match="refused"):
            state.add_model("icu", "5f", b"found")

    assert not run_killed(0, use)
    assert state.models("5f") == []


def test_a_budget_is_not_raised_while_it_is_spent(site_file):
    fit(ask(site_file, b"first", NOISE))
    text = SITE_FILE.replace("epsilon = 1.0", "epsilon = 9.0")
    path = site_file.state.parent / "site.toml"
    path.write_text(text)
    account = Account(ask(SiteFile.load(path), b"second", NOISE), "ann")
    with pytest.raises(ValueError, match="was epsilon=1, delta=1e-05, and the site"):
        account.check()


def test_questions_of_release_0_2_still_wait(site_file):
    old = site_file.audit_log.with_name("skprivbn_approvals.json")
    waits = '{"5f": {"status": "pending", "digest": "5f6a", "who": "ann"}}'
    old.write_text(waits)
    assert Approvals(site_file).waiting() == {
        "5f": {"status": "pending", "digest": "5f6a", "who": "ann"}
    }
    assert not old.exists()
    aside = old.with_name(f"{old.name}.read")
    assert aside.read_text() == waits
    Approvals(site_file).answer("5f", "denied")
    # a power cut gave the file its old name back
    aside.rename(old)
    assert Approvals(site_file).waiting() == {}


BUDGET = "budget = {epsilon = 2000.0, delta = 1e-5}"


def scaler(noisy, backend="masking"):
    noise = {"epsilon": 0.1, "delta": 1e-8, "bounds": (-5, 15)} if noisy else {}
    return FederatedStandardScaler(backend=backend, **noise)


def sessions(folder):
    """Return the kinds of sessions that each site has charged."""
    return [
        [
            (row["session"], kind, row["numbers"])
            for kind in ("exact", "noisy")
            for row in charges(folder, name, kind)
            if row["is_charged"]
        ]
        for name in NAMES
    ]


def fail_at_west(self):
    if self.name == "west":
        raise PartyRefusal("too-few-rows")


@needs_fork
@pytest.mark.parametrize("n_fits", [4, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore:privacy noise:UserWarning")
def test_accepted_refused_and_killed_fits_at_three_sites(tmp_path, n_fits):
    write_tables(tmp_path, *make_rows())
    # every round has refusals, and as many are allowed
    budget = f"{BUDGET}\nmax_refusals = {4 * n_fits}"
    texts = site_files(max_exact_fits=2 * n_fits, budget=budget)
    text = texts["west"]
    texts["west"] = text.replace("min_rows", 'backends = ["masking"]\nmin_rows', 1)
    rows = connect(make_sites(tmp_path, texts), "icu").rows(["a", "b"])
    rng = np.random.default_rng(0)
    n_killed, of_killed = 0, [set(), set(), set()]
    for number in range(n_fits):
        noisy = bool(number % 2)
        before = sessions(tmp_path)
        # refused before and after data are read: neither costs anything
        with pytest.raises(PartyError, match="'west'"):
            scaler(noisy, "ckks").fit(rows)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Runner, "_check_rows", fail_at_west)
            with pytest.raises(PartyError, match="'west'"):
                scaler(noisy=False).fit(rows)
        assert sessions(tmp_path) == before
        if run_killed(int(rng.integers(1, 250)), _fit_quietly, scaler(noisy), rows):
            n_killed += 1
            for mine, old, new in zip(of_killed, before, sessions(tmp_path)):
                mine.update(set(new) - set(old))
                # once at most, whenever that was
                assert len(new) - len(old) <= 1
        _fit_quietly(scaler(noisy), rows)
    assert n_killed > n_fits / 4
    told = []
    for mine, killed in zip(sessions(tmp_path), of_killed):
        assert len({session for session, _, _ in mine}) == len(mine)
        told.append([charge for charge in mine if charge not in killed])
    # the same at all sites, but for fits that were killed on the way
    assert told[0] == told[1] == told[2]
    n_completed = 2 * n_fits - n_killed
    assert len(told[0]) == n_completed
    assert len({n for _, kind, n in told[0] if kind == "exact"}) == 1


def _fit_quietly(model, rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(rows)


def test_status_and_audit_say_what_was_told(tmp_path):
    write_tables(tmp_path, *make_rows())
    sites = make_sites(tmp_path, site_files(budget=BUDGET))
    FederatedStandardScaler().fit(connect(sites, "icu").rows(["a", "b"]))
    dataset = SiteFile.load(tmp_path / "north" / "site.toml").datasets["icu"]
    spent, _ = look_at_account(dataset)
    ((version, (_, n_told)),) = SiteState(dataset.state).told("icu").items()
    assert n_told > 0
    assert f"exact numbers disclosed: {n_told} of version {version}" in spent
    assert audit(tmp_path, "north")[-1]["spent"] == spent
