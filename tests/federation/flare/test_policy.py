"""The policy tool: restricts what provisioning leaves open, and notices what is."""

import json
import subprocess
import sys

import pytest

from skprivbn.exceptions import PartitionError
from skprivbn.federation.__main__ import main
from skprivbn.federation.flare import check_kit, write_policy
from skprivbn.federation.flare._health import find_process, look_at_certificate
from skprivbn.federation.flare._policy import CONTROLLER, EXECUTOR, SITE_FILE
from skprivbn.federation.site._file import SiteFile
from skprivbn.federation.site._state import SiteState
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.site.loopback import SERVERS, Authority, pem

RESOURCES = {
    "class_list_enforcement_mode": "enforce",
    "class_allow_list": ["nvflare.app_common.psi.psi_executor.PSIExecutor"],
    "allow_log_streaming": True,
    "components": [{"id": "resource_manager"}, {"id": "site_log_streamer"}],
}
SERVER_RESOURCES = {
    "class_allow_list": ["*"],
    "snapshot_persistor": {"args": {"storage": {"args": {"root_dir": "shared"}}}},
    "components": [{"id": "job_manager", "args": {"uri_root": "shared"}}],
}
AUTHORIZATION = {
    "permissions": {
        "project_admin": "any",
        "lead": {"submit_job": "any", "byoc": "any", "shell_commands": "o:site"},
        "member": {"view": "any"},
    }
}


def make_kit(folder, kind, resources):
    for name in ("startup", "local"):
        (folder / name).mkdir(parents=True)
    (folder / "startup" / f"fed_{kind}.json").write_text(json.dumps(SERVERS))
    (folder / "local" / "resources.json.default").write_text(json.dumps(resources))
    path = folder / "local" / "authorization.json.default"
    path.write_text(json.dumps(AUTHORIZATION))
    certify(folder, kind)
    return folder


def certify(folder, kind, days=300):
    authority, startup = Authority(), folder / "startup"
    certificate, key = authority.issue(folder.name, days)
    (startup / f"{kind}.crt").write_bytes(certificate)
    (startup / f"{kind}.key").write_bytes(key)
    (startup / "rootCA.pem").write_bytes(pem(authority.certificate))


@pytest.fixture
def kit(tmp_path):
    return make_kit(tmp_path / "north", "client", RESOURCES)


def change(kit, name, key, value):
    path = kit / "local" / name
    content = json.loads(path.read_text())
    content[key] = value
    path.write_text(json.dumps(content))


def test_a_fresh_kit_is_not_accepted(kit):
    assert check_kit(kit)
    write_policy(kit)
    assert check_kit(kit) == []
    resources = json.loads((kit / "local" / "resources.json").read_text())
    assert resources["class_allow_list"] == [EXECUTOR]
    assert resources["components"] == [{"id": "resource_manager"}]
    rights = json.loads((kit / "local" / "authorization.json").read_text())
    for role in rights["permissions"].values():
        assert role["byoc"] == role["shell_commands"] == "none"


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("resources.json", "allow_log_streaming", True),
        ("resources.json", "allow_log_streaming", None),
        ("resources.json", "class_allow_list", ["*"]),
        ("resources.json", "class_allow_list", [EXECUTOR, "nvflare.app_common"]),
        ("resources.json", "class_list_enforcement_mode", "warn"),
        ("resources.json", "components", [{"id": "site_log_streamer"}]),
        ("authorization.json", "permissions", {"project_admin": "any"}),
        ("authorization.json", "permissions", {"lead": {"byoc": "any"}}),
    ],
)
def test_every_loosened_setting_is_noticed(kit, name, key, value):
    write_policy(kit)
    change(kit, name, key, value)
    assert len(check_kit(kit)) == 1


def test_a_server_keeps_its_jobs_to_itself(tmp_path):
    kit = make_kit(tmp_path / "server", "server", SERVER_RESOURCES)
    write_policy(kit)
    assert check_kit(kit) == []
    text = (kit / "local" / "resources.json").read_text()
    assert "shared" not in text
    assert CONTROLLER in text


def test_the_command_writes_checks_and_says_what_is_missing(kit, tmp_path, capsys):
    assert main(["site-policy", str(kit)]) == 1
    assert SITE_FILE in capsys.readouterr().err
    write_tables(tmp_path / "data", *make_rows())
    text = site_files(path=tmp_path / "data")["north"]
    healthy = text[: text.index("[datasets.broken]")]
    (kit / "local" / SITE_FILE).write_text(healthy)
    assert main(["site-policy", "--check", str(kit)]) == 0
    assert "as strict as it must be" in capsys.readouterr().out
    (kit / "local" / SITE_FILE).write_text(text)
    assert main(["site-policy", "--check", str(kit)]) == 1
    assert "broken.csv, line 3, column 'a': " in capsys.readouterr().err


def test_copies_of_a_file_are_noticed(kit, tmp_path, capsys):
    write_policy(kit)
    write_tables(tmp_path / "data", *make_rows())
    table = tmp_path / "data" / "north" / "stays.csv"
    (table.parent / "copy.csv").write_bytes(table.read_bytes())
    text = site_files(path=tmp_path / "data")["north"]
    text = text[: text.index("[datasets.broken]")]
    again = text[text.index("[datasets.icu]") :].replace("icu", "again")
    (kit / "local" / SITE_FILE).write_text(text + again)
    assert main(["site-policy", "--check", str(kit)]) == 0
    again = again.replace("stays.csv", "copy.csv")
    (kit / "local" / SITE_FILE).write_text(text + again)
    assert main(["site-policy", "--check", str(kit)]) == 1
    assert "copies of one another" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("peers", "message"),
    [
        ('["north", "south", "server.example.org"]', "which is the server"),
        ('["server.example.org"]', "no session has so many"),
        # itself is no other site
        ('["north"]', "peers names [] beside north"),
    ],
)
def test_peers_that_cannot_be_are_noticed(kit, tmp_path, capsys, peers, message):
    write_policy(kit)
    write_tables(tmp_path / "data", *make_rows())
    text = site_files(path=tmp_path / "data")["north"]
    text = text[: text.index("[datasets.broken]")]
    (kit / "local" / SITE_FILE).write_text(
        text.replace('["north", "south", "west"]', peers)
    )
    assert main(["site-policy", "--check", str(kit)]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("days", [300, 20, -2])
def test_certificates_that_end_are_noticed(kit, tmp_path, capsys, days):
    write_policy(kit)
    write_tables(tmp_path / "data", *make_rows())
    text = site_files(path=tmp_path / "data")["north"]
    text = text[: text.index("[datasets.broken]")]
    (kit / "local" / SITE_FILE).write_text(text)
    certify(kit, "client", days)
    assert main(["site-policy", "--check", str(kit)]) == int(days < 0)
    said = capsys.readouterr()
    assert ("have it renewed" in said.out + said.err) == (days < 30)
    assert ("has expired on" in said.err) == (days < 0)
    assert main(["status", str(kit)]) == 0
    assert ("has expired on" in capsys.readouterr().out) == (days < 0)


@pytest.fixture
def healthy_kit(kit, tmp_path):
    """A kit with policy, data and site file, of which nothing is wrong."""
    write_policy(kit)
    write_tables(tmp_path / "data", *make_rows())
    text = site_files(path=tmp_path / "data")["north"]
    (kit / "local" / SITE_FILE).write_text(text[: text.index("[datasets.broken]")])
    assert main(["site-policy", "--check", str(kit)]) == 0
    return kit


def problem_of(kit, capsys):
    """Return the one problem that the command sees; a monitor is told it, too."""
    capsys.readouterr()
    assert main(["site-policy", "--check", str(kit)]) == 1
    (problem,) = capsys.readouterr().err.splitlines()
    problem = problem.removeprefix("problem: ")
    assert main(["health", str(kit)]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert problem in {each["words"] for each in findings if not each["is_well"]}
    assert main(["status", str(kit)]) == 0
    assert problem in capsys.readouterr().out
    return problem


def test_a_server_that_is_not_there_yet_is_no_problem(healthy_kit, capsys):
    capsys.readouterr()
    assert main(["site-policy", "--check", str(healthy_kit)]) == 0
    assert "note: the server localhost:1 cannot be reached" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("rootCA.pem", None, "has no rootCA.pem, by which"),
        ("rootCA.pem", "?", "rootCA.pem cannot be read as a certificate"),
        ("client.crt", None, "has no certificate: have one issued"),
        ("client.crt", "?", "client.crt cannot be read as a certificate"),
        ("client.key", None, "client.key is missing"),
        ("client.key", "?", "client.key is missing, damaged"),
        ("fed_client.json", "{", "does not say which server"),
        ("fed_client.json", "[]", "does not say which server"),
        ("fed_client.json", '{"servers": []}', "does not say which server"),
    ],
)
def test_the_damaged_file_of_a_kit_is_named(
    healthy_kit, capsys, file, content, message
):
    path = healthy_kit / "startup" / file
    path.unlink()
    if content is not None:
        path.write_text(content)
    problem = problem_of(healthy_kit, capsys)
    assert message in problem
    assert "Err" not in problem and "another project" not in problem


@pytest.mark.parametrize(
    "server",
    [
        {"identity": "server.example.org"},
        {"service": {"target": "localhost:1"}},
        {"identity": "server.example.org", "service": {"target": "localhost"}},
        {"identity": "server.example.org", "service": {"target": 8002}},
        "localhost:1",
    ],
)
def test_a_kit_that_names_no_server_is_noticed(healthy_kit, capsys, server):
    path = healthy_kit / "startup" / "fed_client.json"
    path.write_text(json.dumps({"servers": [server]}))
    assert "does not say which server" in problem_of(healthy_kit, capsys)


def test_files_of_two_kits_are_noticed(healthy_kit, capsys):
    startup, other = healthy_kit / "startup", Authority()
    certificate, key = other.issue("north", 300)
    (startup / "client.key").write_bytes(key)
    assert "or not the key of client.crt" in problem_of(healthy_kit, capsys)
    (startup / "client.crt").write_bytes(certificate)
    assert "one is another project's" in problem_of(healthy_kit, capsys)
    (startup / "rootCA.pem").write_bytes(pem(other.certificate))
    assert main(["site-policy", "--check", str(healthy_kit)]) == 0


def test_a_budget_file_that_cannot_be_used_is_noticed(kit, tmp_path, capsys):
    write_policy(kit)
    write_tables(tmp_path / "data", *make_rows())
    text = site_files(path=tmp_path / "data", budget="budget = {epsilon = 1.0}")
    text = text["north"][: text["north"].index("[datasets.broken]")]
    (kit / "local" / SITE_FILE).write_text(text)
    (tmp_path / "data" / "north" / "stays.csv.budget.json").write_text("{}")
    assert main(["site-policy", "--check", str(kit)]) == 1
    assert "is not a readable budget file" in capsys.readouterr().err
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("os.access", lambda path, mode: False)
        assert main(["site-policy", "--check", str(kit)]) == 1
    assert "where this user may not write" in capsys.readouterr().err


def test_data_that_are_known_under_another_name_are_noticed(kit, tmp_path, capsys):
    write_policy(kit)
    write_tables(tmp_path / "data", *make_rows())
    text = site_files(path=tmp_path / "data")["north"]
    path = kit / "local" / SITE_FILE
    path.write_text(text[: text.index("[datasets.broken]")])
    assert main(["site-policy", "--check", str(kit)]) == 0
    # nothing is written before somebody asks
    assert not (kit / "local" / "skprivbn_state").exists()
    dataset = SiteFile.load(path).datasets["icu"]
    state = SiteState(dataset.state)
    state.open_account(dataset)
    state.add_dataset("icu", "icu", dataset.fingerprint())
    assert main(["site-policy", "--check", str(kit)]) == 0
    path.write_text(path.read_text().replace("datasets.icu", "datasets.again"))
    capsys.readouterr()
    assert main(["site-policy", "--check", str(kit)]) == 1
    assert "were charged to the account 'icu'" in capsys.readouterr().err


def test_an_audit_log_that_is_not_there_is_no_empty_one(kit, capsys):
    (kit / "local" / SITE_FILE).write_text(site_files()["north"])
    assert main(["audit", str(kit)]) == 2
    assert "nobody has asked anything yet, or it was" in capsys.readouterr().err


def test_not_a_kit(tmp_path):
    with pytest.raises(PartitionError, match="not the startup kit"):
        check_kit(tmp_path)
    assert main(["site-policy", str(tmp_path)]) == 2


def test_a_new_study_has_kits_that_are_restricted(tmp_path, capsys):
    pytest.importorskip("nvflare", reason="needs the extra skprivbn[nvflare]")
    command = ["new-study", str(tmp_path / "study"), "--name", "icu", "--sites"]
    command += ["north", "south", "--server", "localhost"]
    command += ["--researchers", "ann@example.org"]
    assert main(command) == 0
    made = tmp_path / "study" / "kits" / "icu" / "prod_00"
    assert f"kit of ann@example.org: {made / 'ann@example.org'}" in (
        capsys.readouterr().out
    )
    for name in ("localhost", "north", "south"):
        assert check_kit(made / name) == []
        assert look_at_certificate(made / name / "startup").is_well
    assert (made / "ann@example.org" / "startup" / "fed_admin.json").exists()
    # certificates of another root would not fit those that were handed out
    assert main(command) == 2
    assert "already" in capsys.readouterr().err


def test_a_site_that_a_service_started_is_found(kit, tmp_path):
    pytest.importorskip("psutil", reason="needs the extra skprivbn[nvflare]")
    assert find_process(kit) == (False, "not running")
    # as startup/sub_start.sh --once does, which leaves no file
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen([*sleep, "nvflare.client_train", "-m", str(kit)]) as engine:
        try:
            assert find_process(kit) == (True, f"running as process {engine.pid}")
            assert not find_process(tmp_path)[0]
        finally:
            engine.kill()
