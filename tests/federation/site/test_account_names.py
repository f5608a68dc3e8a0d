"""What was spent on people is not forgotten because their data are named otherwise."""

import csv
import json
import shutil
import sqlite3
import sys
from base64 import b64encode
from dataclasses import replace

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation.program import PartyRefusal
from skprivbn.federation.site import _account, _file
from skprivbn.federation.site._account import look_at_account
from skprivbn.federation.site._file import SiteFile
from skprivbn.federation.site._snapshots import RowSketch, Snapshots
from skprivbn.federation.site._state import SiteState
from skprivbn.preprocessing import FederatedStandardScaler
from skprivbn.privacy import PrivacyAccountant
from tests.federation.site.crash import needs_fork, run_killed
from tests.federation.site.loopback import connect, make_sites

NAMES = ("north", "south", "west")
SITE_FILE = """
min_parties = 3
peers = ["north", "south", "west"]

[datasets.{dataset}]
{source}
min_rows = 5
max_exact_fits = 1
budget = {{epsilon = 1.0, delta = 1e-5}}
estimators = ["FederatedStandardScaler"]
columns = {{age = "float"}}
"""
FILE = 'path = "stays.csv"'
#: with sqlite3's, a server's driver: who connects, and where to, is written down
DRIVER = """
import sqlite3
from sqlite3 import Error

def connect(host, user, password, database):
    return sqlite3.connect(database)
"""
QUERY = """
sql.driver = "hospital_driver"
sql.query = "SELECT age FROM stays"
sql.connect.host = "{host}"
sql.connect.user = "{user}"
sql.connect.password = "{password}"
sql.connect.database = "{path}"
"""


def write_table(folder, seed=0):
    ages = np.random.default_rng(seed).normal(60, 9, 40)
    with open(folder / "stays.csv", "w", newline="") as file:
        csv.writer(file).writerows([["age"], *ages[:, np.newaxis].tolist()])
    with sqlite3.connect(folder / "stays.db") as connection:
        connection.execute("CREATE TABLE stays (age REAL)")
        rows = [(age,) for age in ages.tolist()]
        connection.executemany("INSERT INTO stays VALUES (?)", rows)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three hospitals, each with a file and a database."""
    (tmp_path / "hospital_driver.py").write_text(DRIVER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "hospital_driver", raising=False)
    for seed, name in enumerate(NAMES):
        (tmp_path / name).mkdir()
        write_table(tmp_path / name, seed)
    return tmp_path


def open_rows(folder, source=FILE, dataset="icu"):
    """Return rows of hospitals whose site files are these; north's is the one given."""
    texts = {name: SITE_FILE.format(dataset=dataset, source=FILE) for name in NAMES}
    texts["north"] = SITE_FILE.format(dataset=dataset, source=source)
    # a job of its own, after whatever has changed
    return connect(make_sites(folder, texts), dataset).rows(["age"])


def fit_exact(rows):
    return FederatedStandardScaler().fit(rows)


def fit_noisy(rows):
    account = PrivacyAccountant(epsilon=99.0, delta=1e-2)
    return FederatedStandardScaler(
        epsilon=0.8, delta=1e-6, bounds=(0, 120), accountant=account
    ).fit(rows)


FITS = pytest.mark.parametrize("fit", [fit_exact, fit_noisy])


def code_of(fit, rows):
    with pytest.raises(PartyError) as caught:
        fit(rows)
    return caught.value.party, caught.value.code


def forget_others(folder):
    """Let all sites but north have their budgets back."""
    for name in NAMES[1:]:
        shutil.rmtree(folder / name / "skprivbn_state")


def rename(folder):
    (folder / "north" / "stays.csv").rename(folder / "north" / "stays_2026-12.csv")
    return 'path = "stays_2026-12.csv"'


def move(folder):
    (folder / "north" / "new disk").mkdir()
    (folder / "north" / "stays.csv").rename(folder / "north" / "new disk" / "icu.csv")
    return 'path = "new disk/icu.csv"'


def query(folder, host="127.0.0.1", user="reader", password="old"):
    path = folder / "north" / "stays.db"
    return QUERY.format(host=host, user=user, password=password, path=path)


CHANGES = {
    "file renamed": (lambda folder: FILE, rename),
    "file moved": (lambda folder: FILE, move),
    "host": (query, lambda folder: query(folder, host="localhost")),
    "password": (query, lambda folder: query(folder, password="new")),
    "user": (query, lambda folder: query(folder, user="other")),
}


@FITS
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.filterwarnings("ignore:privacy noise:UserWarning")
def test_attack_a_spent_budget_stays_spent(folder, change, fit):
    before, after = CHANGES[change]
    fit(open_rows(folder, before(folder)))
    forget_others(folder)
    party, code = code_of(fit, open_rows(folder, after(folder)))
    assert (party, code) == ("north", "budget-exceeded")


@pytest.mark.parametrize("change", CHANGES)
def test_without_accounts_by_name_it_is_there_again(folder, change, monkeypatch):
    # the twin: an account of the place of the data, as they are written
    load = _file._dataset

    def by_place(*arguments):
        dataset = load(*arguments)
        return replace(dataset, account=str(dataset.source.old_state))

    monkeypatch.setattr(_file, "_dataset", by_place)
    monkeypatch.setattr(_account, "find_problem", lambda *known: None)
    before, after = CHANGES[change]
    fit_exact(open_rows(folder, before(folder)))
    forget_others(folder)
    fit_exact(open_rows(folder, after(folder)))


@FITS
@pytest.mark.filterwarnings("ignore:privacy noise:UserWarning")
def test_attack_the_same_data_under_another_name(folder, fit, monkeypatch):
    fit(open_rows(folder))
    forget_others(folder)
    assert code_of(fit, open_rows(folder, dataset="again")) == (
        "north",
        "other-account",
    )
    # a copy is no other content
    table = (folder / "north" / "stays.csv").read_bytes()
    (folder / "north" / "copy.csv").write_bytes(table)
    copy = open_rows(folder, 'path = "copy.csv"', dataset="again")
    assert code_of(fit, copy) == ("north", "other-account")
    # the twin: nobody looks what is known
    monkeypatch.setattr(_account, "find_problem", lambda *known: None)
    fit(open_rows(folder, dataset="again"))


def test_other_data_under_another_name_have_an_account_of_their_own(folder):
    fit_exact(open_rows(folder))
    for seed, name in enumerate(NAMES):
        (folder / name / "stays.db").unlink()
        write_table(folder / name, seed + 5)
    fit_exact(open_rows(folder, dataset="again"))
    state = SiteState(folder / "north" / "skprivbn_state")
    for name in ("icu", "again"):
        assert state.accounts_of(name, None) == ([name], [])


def test_what_a_dataset_is_charged_to_does_not_depend_on_their_order(folder):
    """Two datasets of one file have one account, which another one cannot take over."""
    first, icu = (
        SITE_FILE.format(dataset=name, source=FILE) for name in ("first", "icu")
    )
    entries = "[datasets"
    fit_exact(open_rows(folder))
    north = folder / "north" / "site.toml"
    north.write_text(icu + first[first.index(entries) :])
    datasets = SiteFile.load(north).datasets
    assert {dataset.account for dataset in datasets.values()} == {"icu"}
    assert look_at_account(datasets["first"])[1] is None
    north.write_text(first + icu[icu.index(entries) :])
    datasets = SiteFile.load(north).datasets
    assert {dataset.account for dataset in datasets.values()} == {"first"}
    assert "list dataset 'icu' first" in look_at_account(datasets["icu"])[1]
    # nor by its content
    assert "account 'icu'" in look_at_account(datasets["first"])[1]


def write_old_state(folder):
    """Write what release 0.2 would have beside the data, after one fit of each kind."""
    spend = {"delta": 1e-6, "rho": None, "what": "scaler", "at": "2026-01-01T00:00:00"}
    files = {
        "budget": (1.0, 1e-5, spend | {"epsilon": 0.9}),
        "1.exact": ("inf", 0.0, spend | {"epsilon": "inf", "delta": 0.0}),
    }
    for kind, (epsilon, delta, spent) in files.items():
        content = {"format": "skprivbn-privacy-budget-1", "epsilon": epsilon}
        content |= {"delta": delta, "spends": [spent]}
        path = folder / "north" / f"stays.csv.{kind}.json"
        path.write_text(json.dumps(content))
    contents = {"key": 7, "contents": [], "rosters": {"1": list(NAMES)}}
    path = folder / "north" / "stays.csv.snapshots.json"
    path.write_text(json.dumps(contents))


@FITS
@pytest.mark.filterwarnings("ignore:privacy noise:UserWarning")
def test_what_earlier_releases_have_counted_is_taken_over(folder, fit):
    write_old_state(folder)
    assert code_of(fit, open_rows(folder)) == ("north", "budget-exceeded")
    # once: from now on it belongs to the name
    source = rename(folder)
    assert code_of(fit, open_rows(folder, source)) == ("north", "budget-exceeded")
    for path in (folder / "north").glob("stays.csv.*"):
        path.unlink()
    assert code_of(fit, open_rows(folder, source)) == ("north", "budget-exceeded")


def test_files_that_were_read_are_put_aside(folder):
    write_old_state(folder)
    dataset = SiteFile.load(write_site_file(folder, "icu")).datasets["icu"]
    old = sorted((folder / "north").glob("stays.csv.*"))
    texts = [path.read_text() for path in old]
    # to look at what is left changes nothing
    spent, _ = look_at_account(dataset)
    assert spent == (
        "version 1: 1 of 1 exact fits used, epsilon 0.9 of 1 spent, 0 of 20 refusals; "
        "exact numbers disclosed: 0 of version 1"
    )
    assert sorted((folder / "north").glob("stays.csv.*")) == old
    SiteState(dataset.state).open_account(dataset)
    assert look_at_account(dataset)[0] == spent
    aside = sorted((folder / "north").glob("stays.csv.*"))
    assert [path.name for path in aside] == [f"{path.name}.read" for path in old]
    assert [path.read_text() for path in aside] == texts
    assert {path.stat().st_mode & 0o777 for path in aside} == {0o400}
    # another project's site of this machine reads them, too; nobody reads them twice
    SiteState(dataset.state).open_account(dataset)
    assert look_at_account(dataset)[0] == spent
    other = replace(dataset, state=folder / "other")
    SiteState(other.state).open_account(other)
    assert look_at_account(other)[0] == spent


def write_old_folder(folder):
    """Write what the folder of the state had before there was a database."""
    state = folder / "north" / "skprivbn_state"
    state.mkdir()
    write_old_state(folder)
    for path in (folder / "north").glob("stays.csv.*.json"):
        path.rename(state / path.name.replace("stays.csv", "a%2Fb"))
    known = {"a/b": {"datasets": ["a/b", "icu"], "contents": ["5f"]}}
    (state / "accounts.json").write_text(json.dumps(known))
    return state


def test_the_folder_of_accounts_is_read_whole(folder):
    path = write_old_folder(folder)
    dataset = SiteFile.load(write_site_file(folder, "icu")).datasets["icu"]
    state = SiteState(dataset.state)
    state.open_account(dataset)
    assert state.accounts_of("icu", "5f") == (["a/b"], ["a/b"])
    assert state.budget("a/b", 9.0, 0.1) == (1.0, 1e-5)
    assert [c["epsilon"] for c in state.charges("a/b", "noisy")] == [0.9]
    assert state.told("a/b") == {"1": (1, 0)}
    assert state.asked_by("a/b", "1") == (list(NAMES), None)
    assert "list dataset 'a/b' first" in look_at_account(dataset)[1]
    assert not list(path.glob("*.json"))


@needs_fork
def test_a_crash_while_old_files_are_read(folder):
    """They are read again, or were."""
    write_old_folder(folder)
    dataset = SiteFile.load(write_site_file(folder, "icu")).datasets["icu"]
    expected = look_at_account(replace(dataset, account="a/b"))
    path, saved = dataset.state, folder / "saved"
    shutil.copytree(path, saved)

    def take_over():
        SiteState(path).open_account(dataset)

    number, is_killed = 0, True
    while is_killed:
        number += 1
        shutil.rmtree(path)
        shutil.copytree(saved, path)
        is_killed = run_killed(number, take_over)
        take_over()
        assert look_at_account(replace(dataset, account="a/b")) == expected
    assert number > 20


def test_contents_known_to_earlier_releases_are_known(folder):
    write_old_state(folder)
    datasets = SiteFile.load(write_site_file(folder, "icu")).datasets
    path = folder / "north" / "stays.csv.snapshots.json"
    state = json.loads(path.read_text())
    sketch = RowSketch.of(datasets["icu"].blocks(), state["key"])
    sums = b64encode(sketch.sums.tobytes()).decode()
    state["contents"] = [
        {
            "fingerprint": datasets["icu"].fingerprint(),
            "version": "1",
            "sketch": {"n_rows": sketch.n_rows, "sums": sums},
        }
    ]
    path.write_text(json.dumps(state))
    known = SiteState(datasets["icu"].state)
    known.open_account(datasets["icu"])
    again = SiteFile.load(write_site_file(folder, "again")).datasets["again"]
    assert "account 'icu'" in look_at_account(again)[1]
    # a row that is added since then is one
    with open(folder / "north" / "stays.csv", "a") as file:
        file.write("97.25\n")
    with pytest.raises(PartyRefusal, match="changed-little"):
        Snapshots(datasets["icu"], *known.contents("icu")).find()


def write_site_file(folder, dataset):
    path = folder / "north" / "site.toml"
    path.write_text(SITE_FILE.format(dataset=dataset, source=FILE))
    return path


def test_old_files_that_are_damaged_are_not_taken_for_none(folder):
    write_old_state(folder)
    (folder / "north" / "stays.csv.1.exact.json").write_text("{")
    assert code_of(fit_exact, open_rows(folder)) == ("north", "cannot-record")


def test_sites_of_one_machine_may_share_their_accounts(folder):
    """Two startup kits, of two projects, for the same people."""
    shared = f'state = "{folder / "state"}"\n'
    other = folder / "other kit"
    other.mkdir()
    for place in (folder / "north", other):
        source = f'path = "{folder / "north" / "stays.csv"}"'
        text = shared + SITE_FILE.format(dataset="icu", source=source)
        (place / "site.toml").write_text(text)
    one, two = (
        SiteFile.load(place / "site.toml").datasets["icu"]
        for place in (folder / "north", other)
    )
    assert SiteState(one.state).path == SiteState(two.state).path
