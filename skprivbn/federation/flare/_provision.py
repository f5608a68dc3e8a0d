"""Startup kits of a study: certificates and settings of everybody who takes part."""

import json
import subprocess
import sys

from skprivbn.exceptions import PartitionError
from skprivbn.federation.flare._policy import write_policy
from skprivbn.utils import import_optional


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
