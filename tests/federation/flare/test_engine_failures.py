"""What happens when sites, the server or people fail, on NVIDIA FLARE."""

import json
import signal
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation.flare import FlareFederation, LocalFederation
from skprivbn.federation.flare._messages import write_job
from skprivbn.federation.site._audit import read_audit
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.partition import RemoteRows
from skprivbn.preprocessing import FederatedPCA
from tests.federation.flare.hospitals import MARKER, NAMES, site_files, write_tables

pytestmark = pytest.mark.slow


#: seconds: a loaded machine takes its time to start processes
READY = 240.0
#: seconds until a loss is noticed: about seven, and more where the machine is loaded
NOTICED = 30.0


def until_noticed(thread):
    """Wait for a fit that fails; it must not take the time that an answer may take."""
    begun = time.monotonic()
    thread.join(NOTICED)
    assert not thread.is_alive()
    print(f"noticed after {time.monotonic() - begun:.1f} s")


def works(local, **options):
    """A new session with all sites can be opened, and used."""
    with local.connect("icu", ready_within=READY, **options) as federation:
        FederatedPCA().fit(federation.rows(["a", "b"]))


def long_fit(federation):
    """Start a fit of many rounds; return the model, the thread and its errors."""
    model = PPEMGaussianMixture(
        3, backend="masking", tol=0.0, max_iter=200, random_state=0
    )
    errors = []

    def fit():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(federation.rows(["a", "b"]))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=fit)
    thread.start()
    time.sleep(3.0)
    assert thread.is_alive()
    return model, thread, errors


@pytest.fixture(autouse=True)
def all_running(hospitals):
    """Start again whatever a test has ended."""
    yield
    for name, process in list(hospitals.processes.items()):
        if process.poll() is not None:
            hospitals.start(name)


def test_a_killed_site_is_named_and_the_estimator_stays_unfitted(hospitals):
    with hospitals.connect("icu", ready_within=READY) as federation:
        model, thread, errors = long_fit(federation)
        hospitals.signal("west", signal.SIGKILL)
        until_noticed(thread)
    (error,) = errors
    assert isinstance(error, PartyError)
    assert (error.party, error.code) == ("west", "lost")
    assert not hasattr(model, "means_")
    assert not hasattr(model, "ledger_")
    hospitals.processes["west"].wait()
    hospitals.start("west")
    works(hospitals)


@pytest.mark.xfail(
    reason="FLARE 2.9.0 ends the whole job three seconds after a site's process died, "
    "mostly before the server's side of the job counts the site as lost"
)
def test_a_job_that_dies_while_it_computes_is_noticed(hospitals):
    with hospitals.connect("icu", ready_within=READY) as federation:
        _, thread, errors = long_fit(federation)
        (job,) = [p for p in hospitals.family("west") if "-m" in p.cmdline()][-1:]
        # frozen, it owes an answer
        job.suspend()
        time.sleep(1.0)
        job.kill()
        until_noticed(thread)
    (error,) = errors
    assert (error.party, error.code) == ("west", "lost")
    works(hospitals)


def test_a_frozen_site_that_comes_back_goes_on(hospitals):
    with hospitals.connect("icu", ready_within=READY, timeout=60.0) as federation:
        model, thread, errors = long_fit(federation)
        hospitals.signal("west", signal.SIGSTOP)
        time.sleep(4.0)
        assert thread.is_alive()
        hospitals.signal("west", signal.SIGCONT)
        thread.join(300.0)
    assert not errors
    assert model.n_iter_ == 200


def test_a_frozen_site_is_late(hospitals):
    with hospitals.connect("icu", ready_within=READY, timeout=15.0) as federation:
        hospitals.signal("south", signal.SIGSTOP)
        try:
            with pytest.raises(PartyError, match="'south'.*in time"):
                FederatedPCA().fit(federation.rows(["a", "b"]))
        finally:
            hospitals.signal("south", signal.SIGCONT)
    works(hospitals)


def test_a_server_that_dies_is_a_clear_error_and_the_next_session_works(hospitals):
    with hospitals.connect("icu", ready_within=READY) as federation:
        model, thread, errors = long_fit(federation)
        hospitals.signal("server", signal.SIGKILL)
        until_noticed(thread)
    (error,) = errors
    assert isinstance(error, ConnectionError)
    assert "connect again" in str(error)
    assert not hasattr(model, "means_")
    hospitals.processes["server"].wait()
    hospitals.start("server")
    works(hospitals)


def test_a_job_at_the_server_that_is_killed_is_noticed(hospitals):
    with hospitals.connect("icu", ready_within=READY) as federation:
        (*_, job) = hospitals.family("server")
        # frozen, a site owes an answer
        hospitals.signal("west", signal.SIGSTOP)
        try:
            errors = []

            def fit():
                try:
                    FederatedPCA().fit(federation.rows(["a", "b"]))
                except ConnectionError as error:
                    errors.append(error)

            thread = threading.Thread(target=fit)
            thread.start()
            time.sleep(3.0)
            job.kill()
            until_noticed(thread)
        finally:
            hospitals.signal("west", signal.SIGCONT)
    assert "connect again" in str(errors[0])
    works(hospitals)


def test_connect_names_the_site_that_is_missing(hospitals):
    hospitals.signal("west", signal.SIGKILL)
    hospitals.processes["west"].wait()
    begun = time.monotonic()
    with pytest.raises(ConnectionError, match=r"\['west'\]"):
        FlareFederation.connect(
            hospitals.kits["admin"], "icu", sites=NAMES, ready_within=45.0
        )
    assert time.monotonic() - begun < 75
    hospitals.start("west")
    works(hospitals)


def test_two_researchers_at_the_same_time(hospitals):
    with (
        hospitals.connect("icu", ready_within=READY) as one,
        hospitals.connect("icu", ready_within=READY) as other,
    ):
        models = [PPEMGaussianMixture(2, random_state=0) for _ in range(2)]
        threads = [
            threading.Thread(target=model.fit, args=(session.rows(["a", "b"]),))
            for model, session in zip(models, (one, other))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240.0)
    np.testing.assert_allclose(models[0].means_, models[1].means_)
    log = hospitals.kits["south"] / "local" / "skprivbn_audit.jsonl"
    records, problems, _ = read_audit(log)
    assert not problems
    assert {one.job_id, other.job_id} <= {record["job"] for record in records}


def test_an_unknown_dataset(hospitals):
    with pytest.raises(PartyError) as caught:
        hospitals.connect("nothing", ready_within=READY)
    assert caught.value.code == "unknown-dataset"


def test_a_kit_of_another_project_does_not_get_in(hospitals, tmp_path):
    other = LocalFederation(tmp_path / "other", site_files(path=tmp_path))
    other.provision()
    fake = tmp_path / "kit"
    fake.mkdir()
    admin = other.kits["admin"]
    real = json.loads((hospitals.kits["admin"] / "startup/fed_admin.json").read_text())
    for name in ("client.crt", "client.key"):
        (fake / "startup").mkdir(exist_ok=True)
        (fake / "startup" / name).write_bytes((admin / "startup" / name).read_bytes())
    root = (hospitals.kits["admin"] / "startup" / "rootCA.pem").read_bytes()
    (fake / "startup" / "rootCA.pem").write_bytes(root)
    (fake / "startup" / "fed_admin.json").write_text(json.dumps(real))
    (fake / "local").mkdir()
    for path in (hospitals.kits["admin"] / "local").iterdir():
        (fake / "local" / path.name).write_bytes(path.read_bytes())
    with pytest.raises(ConnectionError, match="no session with the server"):
        FlareFederation.connect(fake, "icu")


def submit(hospitals, folder):
    """Submit a job by hand; return its final status and all logs."""
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    kit = hospitals.kits["admin"]
    session = new_secure_session("scientist@demo.org", str(kit))
    try:
        try:
            job = session.submit_job(str(folder))
        except Exception as error:
            return f"REFUSED {error}", ""
        deadline, status = time.monotonic() + 60.0, ""
        while time.monotonic() < deadline:
            status = session.get_job_status(job) or ""
            if status.startswith(("FINISHED", "FAILED", "ABORTED")):
                break
            time.sleep(0.5)
        else:
            session.abort_job(job)
    finally:
        session.close()
    logs = [
        path.read_text(errors="replace")
        for name in ("server", *NAMES)
        for path in hospitals.kits[name].rglob("*log*.txt")
    ]
    return status, "\n".join(logs)


def test_a_job_that_ships_code_is_refused(hospitals, tmp_path):
    write_job(tmp_path, NAMES)
    custom = tmp_path / "app" / "custom"
    custom.mkdir()
    (custom / "evil.py").write_text("open('stolen', 'w')\n")
    status, logs = submit(hospitals, tmp_path)
    assert "BYOC not permitted" in status + logs


def test_a_job_with_another_class_is_refused(hospitals, tmp_path):
    write_job(tmp_path, NAMES)
    path = tmp_path / "app" / "config" / "config_fed_client.json"
    config = json.loads(path.read_text())
    other = "nvflare.app_common.executors.statistics.statistics_executor"
    config["executors"][0]["executor"] = {"path": f"{other}.StatisticsExecutor"}
    path.write_text(json.dumps(config))
    status, logs = submit(hospitals, tmp_path)
    assert not status.startswith("FINISHED:COMPLETED")
    assert "StatisticsExecutor' at config path" in logs
    assert "is not in allow_list" in logs


def test_a_site_with_loosened_policy_loads_no_data(hospitals):
    path = hospitals.kits["south"] / "local" / "resources.json"
    strict = path.read_text()
    path.write_text(strict.replace('"allow_log_streaming": false', '"x": false'))
    try:
        with pytest.raises(PartyError, match="'south'.*policy of its kit"):
            hospitals.connect("icu", ready_within=READY)
    finally:
        path.write_text(strict)
    works(hospitals)


def memory_of(members):
    """Yield the writable memory of processes."""
    for member in members:
        folder = Path(f"/proc/{member.pid}")
        maps = (folder / "maps").read_text().splitlines()
        with open(folder / "mem", "rb", buffering=0) as memory:
            for line in maps:
                span, rights, *_ = line.split()
                start, end = (int(x, 16) for x in span.split("-"))
                if rights.startswith("rw") and end - start < 1 << 28:
                    try:
                        memory.seek(start)
                        yield memory.read(end - start)
                    except (OSError, ValueError, OverflowError):
                        continue


def download(local, job, folder):
    """Do what an admin can do after a job: download all that is left of it."""
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    session = new_secure_session("scientist@demo.org", str(local.kits["admin"]))
    try:
        deadline = time.monotonic() + READY
        while not (session.get_job_status(job) or "").startswith("FINISHED"):
            assert time.monotonic() < deadline
            time.sleep(0.5)
        session.download_job_result(job, str(folder))
    finally:
        session.close()


def holders_of(markers, folders):
    """Return the files under some folders that hold a marker."""
    files = [p for folder in folders for p in folder.rglob("*") if p.is_file()]
    return [p for p in files if any(marker in p.read_bytes() for marker in markers)]


# What a site's process does on its own account before anything else: its code quotes
# cells in a warning, in its log and in an exception.
CARELESS = """
import logging, sys, warnings
from skprivbn.federation.site._file import Dataset

read = Dataset.read_rows

def careless(self, columns, beside):
    values = read(self, columns, beside)
    warnings.warn("WARNED-{marker}")
    logging.getLogger("careless").error("LOGGED-{marker}")
    print("PRINTED-{marker}", file=sys.stderr)
    raise RuntimeError("RAISED-{marker}")

Dataset.read_rows = careless
"""


def test_what_a_site_says_to_itself_is_heard_nowhere_else(
    tmp_path, hospital_data, monkeypatch
):
    write_tables(tmp_path / "data", *hospital_data)
    (tmp_path / "code").mkdir()
    code = tmp_path / "code" / "sitecustomize.py"
    local = LocalFederation(tmp_path / "federation", site_files(path=tmp_path / "data"))
    local.provision()
    try:
        local.start("server")
        code.write_text(CARELESS.format(marker=MARKER))
        monkeypatch.setenv("PYTHONPATH", str(code.parent))
        for name in NAMES:
            local.start(name)
        monkeypatch.delenv("PYTHONPATH")
        caught = {}
        with local.connect("icu", ready_within=READY) as federation:
            for dataset in ("icu", "broken"):
                schema = {"a": "float"}
                rows = RemoteRows(federation, dataset, federation.sites, schema)
                with pytest.raises(PartyError) as caught[dataset]:
                    FederatedPCA().fit(rows)
        download(local, federation.job_id, tmp_path / "download")
    finally:
        local.stop()
    assert caught["icu"].value.code == "failed"
    assert caught["broken"].value.code == "invalid-data"
    said = "".join(str(e.value) + repr(e.value.__context__) for e in caught.values())
    assert MARKER not in said
    elsewhere = [tmp_path / "download", local.kits["server"], local.kits["admin"]]
    assert all(folder.exists() for folder in elsewhere)
    assert not holders_of([MARKER.encode()], elsewhere)
    # the site itself has it: the scan would find what is there
    own = holders_of([f"LOGGED-{MARKER}".encode()], [local.kits["north"]])
    assert own


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs Linux")
def test_a_sites_rows_are_in_nobody_elses_memory_or_files(hospitals, tmp_path):
    # a number that nobody else has, in a row and hence in the site's statistics
    rare = 7.123456789012345
    table = next(
        Path(line.split('"')[1])
        for line in (hospitals.kits["north"] / "local" / "skprivbn_site.toml")
        .read_text()
        .splitlines()
        if line.startswith("path")
    )
    original = table.read_text()
    lines = original.splitlines()
    # a site does not answer about data of which few rows have changed
    for i in range(1, 11):
        value = rare if i == 1 else float(i)
        lines[i] = ",".join([repr(value), *lines[i].split(",")[1:]])
    table.write_text("\n".join(lines) + "\n")
    markers = [np.float64(rare).tobytes(), repr(rare).encode()]
    try:
        with hospitals.connect("icu", ready_within=READY) as federation:
            FederatedPCA().fit(federation.rows(["a", "b"]))
            job = federation.job_id
            try:
                seen = {
                    name: any(
                        marker in chunk
                        for chunk in memory_of(hospitals.family(name))
                        for marker in markers
                    )
                    for name in ("north", "server", "south")
                }
            except PermissionError:
                pytest.skip("this system does not let a parent read its children")
    finally:
        table.write_text(original)
    assert seen["north"], "the scan does not find what is there"
    assert not seen["server"]
    assert not seen["south"]
    download(hospitals, job, tmp_path)
    others = [tmp_path, *(hospitals.kits[n] for n in ("server", "admin", "south"))]
    assert not holders_of([*markers, MARKER.encode()], others)


def test_no_process_is_left(tmp_path, hospital_data):
    write_tables(tmp_path / "data", *hospital_data)
    files = site_files(path=tmp_path / "data")
    with LocalFederation(tmp_path / "federation", files) as local:
        federation = local.connect("icu", ready_within=READY)
        members = [member for name in local.processes for member in local.family(name)]
        assert len(members) >= 8, "server, sites and a job of each"
    alive = [m for m in members if m.is_running() and m.status() != "zombie"]
    assert not alive
    federation.close()
