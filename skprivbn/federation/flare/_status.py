"""What the owner of a kit wants to know now: who is there, what runs, what waits."""

import json
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from skprivbn.exceptions import PartitionError
from skprivbn.federation.flare._health import (
    find_process,
    look_at_certificate,
    look_at_server,
)
from skprivbn.federation.flare._patience import within
from skprivbn.federation.flare._policy import SITE_FILE, kit_kind
from skprivbn.federation.site._account import look_at_account
from skprivbn.federation.site._approvals import Approvals
from skprivbn.federation.site._audit import format_record, read_audit
from skprivbn.federation.site._file import SiteFile
from skprivbn.utils import import_optional

#: seconds for the server to answer
PATIENCE = 30.0


def describe_kit(kit):
    """Return lines on the state of a kit, its owner's side only.

    Parameters
    ----------
    kit : Path
        Of a site, of the server or of an admin. An admin's is asked at the server.

    Returns
    -------
    lines : list of str
    """
    startup = kit / "startup"
    if not startup.is_dir():
        raise PartitionError(f"{kit} is not a startup kit: it has no folder startup")
    lines = [f"skprivbn {version('skprivbn')}", look_at_certificate(startup).words]
    if (startup / "fed_admin.json").exists():
        return lines + _ask_server(kit)
    lines.append(find_process(kit)[1])
    if kit_kind(kit) == "client":
        lines.append(look_at_server(startup).words)
    if (kit / "local" / SITE_FILE).exists():
        lines += _site(kit)
    return lines


def _site(kit):
    site_file = SiteFile.load(kit / "local" / SITE_FILE)
    lines = []
    for name, dataset in site_file.datasets.items():
        spent, _ = look_at_account(dataset)
        lines.append(f"dataset {name}, {spent}")
    waiting = Approvals(site_file).waiting()
    lines.append(f"questions that wait for approval: {len(waiting)}")
    if site_file.audit_log.exists():
        records, problems, _ = read_audit(site_file.audit_log)
        lines += [f"audit log: {problem}" for problem in problems]
        lines += ["last record:", *map(format_record, records[-1:])]
    return lines


def approvals_of(kit):
    """Return the questions that wait, or have waited, at the site of a kit."""
    return Approvals(SiteFile.load(Path(kit) / "local" / SITE_FILE))


def _ask_server(kit):
    info, jobs = list_jobs(kit)
    # what the engine says of the server is whether jobs run
    lines = [f"server: running, {len(jobs)} jobs have not ended"]
    for client in info.client_info:
        heard = datetime.fromtimestamp(client.last_connect_time, UTC)
        lines.append(f"site {client.name}: heard of at {heard:%Y-%m-%d %H:%M:%S} UTC")
    lines += [
        f"job {job['job_id']} of {job.get('submitter_name', 'somebody')}: "
        f"{job.get('status')}"
        for job in jobs
    ]
    return lines


def list_jobs(kit, abort=None):
    """Ask the server who is connected and which jobs have not ended.

    Parameters
    ----------
    kit : Path
        Of an admin.
    abort : str, default=None
        A job to end first.

    Returns
    -------
    info : SystemInfo
    jobs : list of dict
    """
    api = import_optional("nvflare.fuel.flare_api.flare_api", "status")
    admin = json.loads((kit / "startup" / "fed_admin.json").read_text())

    def ask():
        user = admin["admin"]["username"]
        session = api.new_secure_session(user, str(kit.resolve()), timeout=PATIENCE)
        try:
            if abort is not None:
                session.abort_job(abort)
            jobs = session.list_jobs(detailed=True)
            return session.get_system_info(), [
                job for job in jobs if not str(job.get("status")).startswith("FINISHED")
            ]
        finally:
            session.close()

    return within(2 * PATIENCE, "the question to the server", ask)
