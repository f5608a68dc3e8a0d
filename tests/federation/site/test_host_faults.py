"""Faults a site can diagnose: a true code, nothing charged, the session goes on."""

import errno
import gc
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation.site._audit import AuditLog
from skprivbn.federation.site._site import Site
from skprivbn.federation.site._state import SiteState
from skprivbn.preprocessing import FederatedStandardScaler
from tests.federation.flare.hospitals import NAMES, make_rows, site_files, write_tables
from tests.federation.site.loopback import LoopbackSession, charges, connect, make_sites

BUDGET = "budget = {epsilon = 9000.0, delta = 1e-5}"


@pytest.fixture
def sites(tmp_path):
    write_tables(tmp_path, *make_rows())
    return make_sites(tmp_path, site_files(max_exact_fits=1000, budget=BUDGET))


def fit(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FederatedStandardScaler(epsilon=0.5, delta=1e-8, bounds=(-5, 15)).fit(
            rows
        )


def n_charged(folder):
    """Return how often each site was charged."""
    return [sum(c["is_charged"] for c in charges(folder, name)) for name in NAMES]


def refusal(rows):
    with pytest.raises(PartyError) as caught:
        fit(rows)
    return caught.value.party, caught.value.code


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
def test_a_disk_that_is_full_for_the_audit_log(sites, tmp_path, caplog):
    rows = connect(sites, "icu").rows(["a"])
    log = sites["south"]._log._log
    whole, log.path = log.path, tmp_path / "south" / "full.jsonl"
    log.path.symlink_to("/dev/full")
    assert refusal(rows) == ("south", "cannot-record")
    assert n_charged(tmp_path) == [0, 0, 0]
    errors = (tmp_path / "south" / "skprivbn_errors.log").read_text()
    assert "No space left on device" in errors
    log.path = whole
    fit(rows)
    assert n_charged(tmp_path) == [1, 1, 1]


def test_a_disk_that_is_full_for_the_budget(sites, tmp_path, monkeypatch):
    rows = connect(sites, "icu").rows(["a"])
    open_it = SiteState._connect

    def full(self):
        connection = open_it(self)
        if "south" in self.path.parts:
            # whatever is reserved takes more pages than there are
            connection.execute("PRAGMA max_page_count = 1")
            connection.execute(
                "CREATE TEMP TRIGGER long BEFORE INSERT ON main.charges BEGIN "
                "INSERT INTO models VALUES ('', zeroblob(99999), '', ''); END"
            )
        return connection

    with monkeypatch.context() as patched:
        patched.setattr(SiteState, "_connect", full)
        assert refusal(rows) == ("south", "cannot-record")
    assert n_charged(tmp_path) == [0, 0, 0]
    errors = (tmp_path / "south" / "skprivbn_errors.log").read_text()
    assert "database or disk is full" in errors
    fit(rows)
    assert n_charged(tmp_path) == [1, 1, 1]


def test_where_nothing_can_be_written_the_console_says_why(
    sites, tmp_path, monkeypatch, caplog
):
    rows = connect(sites, "icu").rows(["a"])

    def full(self, record):
        raise OSError(errno.ENOSPC, "No space left on device", str(self.path))

    monkeypatch.setattr(AuditLog, "write", full)
    errors = sites["north"]._host._errors
    errors.path = tmp_path / "no folder" / "errors.log"
    assert refusal(rows) == ("north", "cannot-record")
    assert "skprivbn_audit.jsonl" in caplog.text
    assert "No space left on device" in caplog.text


def test_a_cell_that_cannot_be_read(sites, tmp_path):
    rows = connect(sites, "icu").rows(["a", "b"])
    path = tmp_path / "west" / "stays.csv"
    lines = path.read_text().splitlines()
    lines[17] = "unknown," + lines[17].partition(",")[2]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(PartyError) as caught:
        FederatedStandardScaler().fit(rows)
    assert (caught.value.party, caught.value.code) == ("west", "invalid-data")
    errors = (tmp_path / "west" / "skprivbn_errors.log").read_text()
    assert "stays.csv" in errors
    assert "18" in errors
    assert "'a'" in errors


@pytest.mark.parametrize("days", [-90, 90])
def test_a_clock_ahead_or_behind(sites, days):
    sites["west"]._now = lambda: datetime.now(UTC) + timedelta(days=days)
    with pytest.raises(PartyError, match="'west'.*clock is wrong") as caught:
        connect(sites, "icu")
    assert caught.value.code == "not-valid-now"


@pytest.mark.parametrize("n_bytes", [0, 50, 5000])
def test_a_damaged_state_is_not_taken_for_an_empty_one(sites, tmp_path, n_bytes):
    rows = connect(sites, "icu").rows(["a"])
    fit(rows)
    path = tmp_path / "north" / "skprivbn_state" / "site.sqlite3"
    path.write_bytes(path.read_bytes()[:n_bytes])
    assert refusal(rows) == ("north", "cannot-record")


class Forgetful(LoopbackSession):
    """Keeps no transcript, as the engine does not."""

    def do_app_command(self, job_id, command, data):
        answer = super().do_app_command(job_id, command, data)
        self.transcript.clear()
        return answer


@pytest.mark.slow
def test_memory_is_flat_over_500_fits(sites):
    psutil = pytest.importorskip("psutil")
    rows = connect(sites, "icu", Forgetful).rows(["a", "b"])
    process, sizes, objects = psutil.Process(), [], []
    for n in range(501):
        FederatedStandardScaler().fit(rows)
        if n % 100 == 0:
            gc.collect()
            sizes.append(process.memory_info().rss / 2**20)
            objects.append(len(gc.get_objects()))
    print([f"{size:.1f} MB" for size in sizes], objects)
    # the first hundred fill caches
    assert sizes[-1] - sizes[1] < 5
    # less than one in a fit
    assert objects[-1] - objects[1] < 100


def test_a_site_that_fails_outside_of_a_session_says_why(sites, tmp_path, monkeypatch):
    def fail(self, dataset, researcher):
        raise RuntimeError("something is wrong here")

    monkeypatch.setattr(Site, "_introduce", fail)
    with pytest.raises(PartyError, match="'north'.*raised an error"):
        connect(sites, "icu")
    errors = (tmp_path / "north" / "skprivbn_errors.log").read_text()
    assert "something is wrong here" in errors
