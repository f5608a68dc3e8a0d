"""The local policy of a startup kit: no shipped code, no shell, no logs on the wire.

``nvflare provision`` makes kits with permissive defaults. A kit's owner restricts them
with ``python -m skprivbn.federation site-policy KIT``, before the first start.
"""

import json
import subprocess
import sys
from pathlib import Path

from skprivbn.exceptions import PartitionError
from skprivbn.utils import import_optional

EXECUTOR = "skprivbn.federation.flare.engine.PartyExecutor"
CONTROLLER = "skprivbn.federation.flare.engine.RelayController"

#: name of the site file in the folder ``local`` of a site's kit
SITE_FILE = "skprivbn_site.toml"

_DENIED = ("byoc", "shell_commands", "server-predeployed-flwr")
_LOG_STREAMER = "site_log_streamer"


def kit_kind(kit):
    """Return "server" or "client" for the kit in a folder."""
    for kind in ("server", "client"):
        if (Path(kit) / "startup" / f"fed_{kind}.json").exists():
            return kind
    raise PartitionError(
        f"{kit} is not the startup kit of a server or a site: it has no "
        "startup/fed_server.json or startup/fed_client.json"
    )


def write_policy(kit):
    """Write the restricted ``resources.json`` and ``authorization.json`` of a kit.

    Parameters
    ----------
    kit : path-like
        Folder of a server's or a site's startup kit.

    Returns
    -------
    written : list of Path
    """
    kit = Path(kit)
    kind, local = kit_kind(kit), kit / "local"
    resources = json.loads((local / "resources.json.default").read_text())
    resources["class_list_enforcement_mode"] = "enforce"
    resources["class_allow_list"] = [CONTROLLER if kind == "server" else EXECUTOR]
    if kind == "client":
        resources["allow_log_streaming"] = False
        resources["components"] = [
            c for c in resources["components"] if c["id"] != _LOG_STREAMER
        ]
    else:
        _keep_jobs_in_kit(resources, kit)
    authorization = json.loads((local / "authorization.json.default").read_text())
    authorization["permissions"] = {
        role: _restrict(rights) for role, rights in authorization["permissions"].items()
    }
    written = {"resources.json": resources, "authorization.json": authorization}
    for name, content in written.items():
        (local / name).write_text(json.dumps(content, indent=2) + "\n")
    return [local / name for name in written]


def _keep_jobs_in_kit(resources, kit):
    """Store jobs in the kit instead of a folder that all users of a machine share."""
    storage = kit.resolve() / "storage"
    snapshots = resources["snapshot_persistor"]["args"]["storage"]["args"]
    snapshots["root_dir"] = str(storage / "snapshots")
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(storage / "jobs")


def _restrict(rights):
    if rights == "any":
        jobs = ("submit_job", "clone_job", "manage_job", "download_job")
        rights = dict.fromkeys((*jobs, "view", "operate"), "any")
    rights = rights | dict.fromkeys(_DENIED, "none")
    if rights.get("submit_job", "none") != "none":
        # Whoever submitted a job, and nobody else, may talk to it.
        rights["app_command"] = "n:submitter"
    return rights


def check_kit(kit):
    """Say what is wrong with the local policy of a kit.

    Parameters
    ----------
    kit : path-like

    Returns
    -------
    problems : list of str
        Empty if the policy is as strict as it must be.
    """
    kit = Path(kit)
    kind = kit_kind(kit)
    try:
        resources = json.loads((kit / "local" / "resources.json").read_text())
        authorization = json.loads((kit / "local" / "authorization.json").read_text())
    except (OSError, ValueError):
        return [
            "local/resources.json or local/authorization.json is missing or damaged"
        ]
    problems = []
    allowed = [CONTROLLER if kind == "server" else EXECUTOR]
    if resources.get("class_allow_list") != allowed:
        problems.append(f"class_allow_list must be {allowed}, nothing else")
    if resources.get("class_list_enforcement_mode") != "enforce":
        problems.append('class_list_enforcement_mode must be "enforce"')
    if kind == "client":
        if resources.get("allow_log_streaming") is not False:
            problems.append("allow_log_streaming must be false: logs may hold data")
        if any(c.get("id") == _LOG_STREAMER for c in resources.get("components", [])):
            problems.append(f"component {_LOG_STREAMER} must go: it sends logs away")
    for role, rights in authorization.get("permissions", {}).items():
        granted = [
            right
            for right in _DENIED
            if rights == "any" or rights.get(right, "none") != "none"
        ]
        if granted:
            problems.append(f"role {role!r} must not have the rights {granted}")
    return problems


def make_kits(folder, name, server, sites, researchers, port=8002, admin_port=8003):
    """Make the startup kits of a study, and restrict those of server and sites.

    Parameters
    ----------
    folder : Path
        Gets ``project.yml`` and the folder ``kits``.
    name : str
        Of the study.
    server : str
        Name of the server's machine, as sites and researchers reach it.
    sites, researchers : sequence of str
    port, admin_port : int
        Of the server, for sites and for researchers.

    Returns
    -------
    kits : Path
        Holds a folder for each participant.
    """
    import_optional("nvflare", "new-study")
    folder.mkdir(parents=True, exist_ok=True)
    path, kits = folder / "project.yml", folder / "kits"
    if path.exists() or kits.exists():
        raise PartitionError(
            f"there is a study in {folder} already: certificates are renewed with "
            "nvflare provision, a new study has a folder of its own"
        )
    ports = {"fed_learn_port": port, "admin_port": admin_port}
    participants = [{"name": server, "type": "server", "org": "study"} | ports]
    for site in sites:
        participants.append({"name": site, "type": "client", "org": "study"})
    for person in researchers:
        admin = {"name": person, "type": "admin", "org": "study", "role": "lead"}
        participants.append(admin)
    impl = "nvflare.lighter.impl"
    builders = [
        {
            "path": f"{impl}.workspace.WorkspaceBuilder",
            "args": {"template_file": ["master_template.yml"]},
        },
        {
            "path": f"{impl}.static_file.StaticFileBuilder",
            "args": {"config_folder": "config"},
        },
        {"path": f"{impl}.cert.CertBuilder"},
        {"path": f"{impl}.signature.SignatureBuilder"},
    ]
    project = {"api_version": 3, "name": name}
    project |= {"participants": participants, "builders": builders}
    # JSON is YAML, too
    path.write_text(json.dumps(project, indent=2), encoding="utf-8")
    command = [sys.executable, "-m", "nvflare.cli", "provision"]
    done = subprocess.run(
        [*command, "-p", str(path), "-w", str(kits)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    made = kits / name / "prod_00"
    if done.returncode or not made.is_dir():
        said = (done.stderr or done.stdout).strip()
        raise PartitionError(f"nvflare provision failed: {said}")
    for participant in [server, *sites]:
        write_policy(made / participant)
    return made
