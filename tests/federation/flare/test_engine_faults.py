"""Faults with real processes: the message is true, and nobody pays for nothing.

Links are cut and slowed by a proxy, disks are small ones that are full, clocks are
those of a process that was started with another time.
"""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation.flare import FlareFederation, LocalFederation
from skprivbn.federation.flare._health import list_jobs
from skprivbn.federation.site._audit import read_audit
from skprivbn.federation.site._state import SiteState
from skprivbn.preprocessing import FederatedStandardScaler
from tests.federation.flare.hospitals import NAMES, site_files, write_tables
from tests.federation.flare.links import Link

pytestmark = pytest.mark.slow

BUDGET = "budget = {epsilon = 9000.0, delta = 1e-4}"
#: seconds: a loaded machine takes its time to start processes
READY = 240.0
#: seconds until a loss is noticed: about seven, and more where the machine is loaded
NOTICED = 30.0


class Hospitals(LocalFederation):
    """Three hospitals: west and the researcher connect through links of their own."""

    def __init__(self, folder, hospital_data, disks=None):
        data = folder / "data"
        write_tables(data, *hospital_data)
        self.state = {name: data / name / "state" for name in NAMES}
        texts = site_files(budget=BUDGET, path=data)
        if disks is not None:
            # what is spent of south's is on one, its log on the other
            self.state["south"], log = disks[0] / "state", disks[1] / "audit.jsonl"
            texts["south"] = f'audit_log = "{log}"\n{texts["south"]}'
        for name, folder_of_state in self.state.items():
            texts[name] = f'state = "{folder_of_state}"\n{texts[name]}'
        super().__init__(folder / "federation", texts)
        self.links = {}

    def provision(self):
        super().provision()
        for name, file in (("west", "fed_client.json"), ("admin", "fed_admin.json")):
            path = self.kits[name] / "startup" / file
            config = json.loads(path.read_text())
            if name == "west":
                service = config["servers"][0]["service"]
                host, port = service["target"].split(":")
            else:
                port = config["admin"]["port"]
            self.links[name] = Link(int(port))
            if name == "west":
                service["target"] = f"{host}:{self.links[name].port}"
            else:
                config["admin"]["port"] = self.links[name].port
            path.write_text(json.dumps(config))

    def stop(self):
        super().stop()
        for link in self.links.values():
            link.close()

    def n_charged(self):
        """Return how often each hospital was charged for a noisy fit."""
        states = [SiteState(self.state[name]) for name in NAMES]
        return [
            sum(charge["is_charged"] for charge in state.charges("icu", "noisy"))
            for state in states
        ]

    def open(self, **options):
        options = {"ready_within": READY, **options}
        return self.connect("icu", **options)


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory, hospital_data):
    pytest.importorskip("nvflare", reason="needs the extra skprivbn[nvflare]")
    folder = tmp_path_factory.mktemp("faults")
    with Hospitals(folder, hospital_data) as local:
        yield local


def scaler():
    return FederatedStandardScaler(epsilon=1.0, delta=1e-8, bounds=(-5, 15))


def noisy_fit(federation):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return scaler().fit(federation.rows(["a"]))


@contextmanager
def costs_nothing(local):
    before = local.n_charged()
    yield
    assert local.n_charged() == before


def pays_once(local, federation):
    before = local.n_charged()
    noisy_fit(federation)
    assert local.n_charged() == [n + 1 for n in before]


def until_it_works(local, federation):
    """The session goes on, once the other end has noticed that it can."""
    deadline = time.monotonic() + READY
    while True:
        try:
            return pays_once(local, federation)
        except (ConnectionError, PartyError):
            if time.monotonic() > deadline:
                raise
            time.sleep(2.0)


def test_a_link_to_a_site(hospitals):
    link = hospitals.links["west"]
    with hospitals.open(timeout=20.0) as federation:
        pays_once(hospitals, federation)
        link.delay = 0.25
        pays_once(hospitals, federation)
        link.mend()
        for fault, code in ((link.freeze, "timeout"), (link.cut, "lost")):
            fault()
            with (
                costs_nothing(hospitals),
                pytest.raises(PartyError, match="'west'") as caught,
            ):
                noisy_fit(federation)
            assert caught.value.code == code
            link.mend()
            until_it_works(hospitals, federation)


def test_a_link_to_the_researcher(hospitals):
    link = hospitals.links["admin"]
    federation = hospitals.open(timeout=20.0)
    pays_once(hospitals, federation)
    link.delay = 0.1
    pays_once(hospitals, federation)
    link.mend()
    for fault in (link.freeze, link.cut):
        link.mend()
        fault()
        begun = time.monotonic()
        with (
            costs_nothing(hospitals),
            pytest.raises(ConnectionError, match="connect again"),
        ):
            noisy_fit(federation)
        assert time.monotonic() - begun < 60
    # nobody hears that the session ends; its job ends by itself
    federation.close()
    assert time.monotonic() - begun < 120
    link.mend()
    with hospitals.open() as federation:
        pays_once(hospitals, federation)


def fit_twice(federation):
    rows = federation.rows(["a"])
    return [scaler().fit(rows).mean_[0] for _ in range(2)]


def test_two_researchers_pay_for_their_own(hospitals):
    before = hospitals.n_charged()
    # filters of warnings are not a thread's own
    with (
        warnings.catch_warnings(action="ignore"),
        hospitals.open() as one,
        hospitals.open() as other,
        ThreadPoolExecutor(2) as pool,
    ):
        means = [mean for both in pool.map(fit_twice, [one, other]) for mean in both]
    assert hospitals.n_charged() == [n + 4 for n in before]
    assert len(set(means)) == 4


def test_a_site_that_is_killed_before_anything_was_charged(hospitals):
    with hospitals.open(timeout=120.0) as federation:
        hospitals.signal("south", signal.SIGKILL)
        begun = time.monotonic()
        with (
            costs_nothing(hospitals),
            pytest.raises(PartyError, match="'south'.*no connection"),
        ):
            noisy_fit(federation)
        assert time.monotonic() - begun < NOTICED
    hospitals.processes["south"].wait()
    hospitals.start("south")
    with hospitals.open() as federation:
        pays_once(hospitals, federation)


RESEARCHER = """
import sys, time
from skprivbn.federation import FlareFederation
federation = FlareFederation.connect(
    sys.argv[1], "icu", sites=["north", "south", "west"], ready_within=240.0
)
print("job", federation.job_id, flush=True)
time.sleep(3600)
"""


def start_researcher(local, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", RESEARCHER, str(local.kits["admin"])],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_jobs_of_a_killed_researcher_end_by_themselves(hospitals):
    researcher = start_researcher(hospitals)
    # the engine prints, too
    (job,) = next(
        words[1:] for words in map(str.split, researcher.stdout) if words[:1] == ["job"]
    )
    kit = hospitals.kits["admin"]
    assert job in [entry["job_id"] for entry in list_jobs(kit)[1]]
    researcher.kill()
    researcher.wait()
    begun = time.monotonic()
    while job in [entry["job_id"] for entry in list_jobs(kit)[1]]:
        assert time.monotonic() - begun < 420, "four minutes of silence are enough"
        time.sleep(5.0)
    print(f"ended {time.monotonic() - begun:.0f} s after its researcher was killed")
    assert time.monotonic() - begun > 120, "who is silent for a minute may be alive"
    for name in NAMES:
        audit = hospitals.kits[name] / "local" / "skprivbn_audit.jsonl"
        records = [json.loads(line) for line in audit.read_text().splitlines()]
        assert job in {record.get("job") for record in records}
    with hospitals.open() as federation:
        pays_once(hospitals, federation)


needs_faketime = pytest.mark.skipif(
    shutil.which("faketime") is None, reason="needs faketime"
)


@needs_faketime
@pytest.mark.parametrize("shift", ["-30d", "+500d"])
def test_a_site_whose_clock_is_wrong(hospitals, shift, monkeypatch):
    hospitals.signal("west", signal.SIGKILL)
    hospitals.processes["west"].wait()
    with monkeypatch.context() as patched:
        for key, value in faked(shift).items():
            patched.setenv(key, value)
        hospitals.start("west")
    try:
        with (
            costs_nothing(hospitals),
            pytest.raises(ConnectionError, match=r"\['west'\].*clock"),
        ):
            FlareFederation.connect(
                hospitals.kits["admin"], "icu", sites=NAMES, ready_within=45.0
            )
    finally:
        hospitals.signal("west", signal.SIGKILL)
        hospitals.processes["west"].wait()
        hospitals.start("west")
    with hospitals.open() as federation:
        pays_once(hospitals, federation)


def faked(shift):
    """Return what a process with another clock has in its environment."""
    command = ["faketime", "-f", shift, "env"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    pairs = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    wanted = ("LD_PRELOAD", "FAKETIME")
    return {key: pairs[key] for key in wanted} | {"DONT_FAKE_MONOTONIC": "1"}


@needs_faketime
@pytest.mark.parametrize("shift", ["-30d", "+500d"])
def test_a_researcher_whose_clock_is_wrong(hospitals, shift):
    researcher = start_researcher(hospitals, **faked(shift))
    with costs_nothing(hospitals):
        _, said = researcher.communicate(timeout=300)
    assert "ConnectionError: no session with the server" in said
    assert "clock" in said


@pytest.fixture
def small_disks(tmp_path):
    """Two disks of a megabyte, each a file system of its own."""
    disks = [tmp_path / name for name in ("data disk", "audit disk")]
    mounted = []
    try:
        for disk in disks:
            disk.mkdir()
            command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
            if shutil.which("mount") is None or subprocess.run(command).returncode:
                pytest.skip("only root can mount a disk")
            mounted.append(disk)
        yield disks
    finally:
        for disk in mounted:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk):
    """Write until there is no space left on the device."""
    path = disk / "filler"
    with open(path, "wb", buffering=0) as file:
        for size in (1 << 16, 1 << 8, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC
    return path


def until_refused(local, federation):
    """Fit as long as the last page of a file has room; what fails costs nothing."""
    for _ in range(10):
        before = local.n_charged()
        try:
            pays_once(local, federation)
        except PartyError as error:
            assert local.n_charged() == before
            return error
    raise AssertionError("a full disk has room")


def test_disks_that_are_full(tmp_path, hospital_data, small_disks):
    pytest.importorskip("nvflare", reason="needs the extra skprivbn[nvflare]")
    local = Hospitals(tmp_path, hospital_data, small_disks)
    with local, local.open() as federation:
        pays_once(local, federation)
        for disk in small_disks:
            filler = fill(disk)
            refused = until_refused(local, federation)
            assert (refused.party, refused.code) == ("south", "cannot-record")
            filler.unlink()
            # the same session goes on
            pays_once(local, federation)
    written = [*small_disks[1].iterdir(), *local.kits["south"].rglob("*.txt")]
    said = "".join(path.read_text() for path in written if path.is_file())
    # as the system says it of the audit log, and SQLite of the state
    assert "No space left on device" in said
    assert "disk is full" in said or "unable to open database file" in said
    records, problems, _ = read_audit(small_disks[1] / "audit.jsonl")
    assert not problems
    assert "cannot-record" in {record.get("outcome") for record in records}
