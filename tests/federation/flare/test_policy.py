"""The policy tool: restricts what provisioning leaves open, and notices what is."""

import json

import pytest

from skprivbn.exceptions import PartitionError
from skprivbn.federation.__main__ import main
from skprivbn.federation.flare import check_kit, write_policy
from skprivbn.federation.flare._policy import CONTROLLER, EXECUTOR, SITE_FILE
from skprivbn.federation.site._file import SiteFile
from skprivbn.federation.site._state import SiteState
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.site.loopback import Authority

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
    servers = {"servers": [{"identity": "server.example.org"}]}
    (folder / "startup" / f"fed_{kind}.json").write_text(json.dumps(servers))
    (folder / "local" / "resources.json.default").write_text(json.dumps(resources))
    path = folder / "local" / "authorization.json.default"
    path.write_text(json.dumps(AUTHORIZATION))
    certify(folder, kind)
    return folder


def certify(folder, kind, days=300):
    certificate, _ = Authority().issue(folder.name, days)
    (folder / "startup" / f"{kind}.crt").write_bytes(certificate)


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
