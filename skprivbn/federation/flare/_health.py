"""What the owner of a kit wants to know: whether it is well, what runs, what waits."""

import json
import os
import socket
import sqlite3
import ssl
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from skprivbn.crypto.certificates import check_certificate, name_of, validity
from skprivbn.exceptions import PartitionError, ProtocolError
from skprivbn.federation.flare._policy import SITE_FILE, check_kit, kit_kind
from skprivbn.federation.flare._relay import within
from skprivbn.federation.site._account import look_at_account
from skprivbn.federation.site._audit import format_record, read_audit
from skprivbn.federation.site._check import check_state
from skprivbn.federation.site._file import SiteFile
from skprivbn.federation.site._question import Approvals
from skprivbn.utils import import_optional

#: days before a certificate ends at which to say so
SOON = 30
#: seconds for the server to take a connection
PATIENCE = 5.0
#: seconds for the server to answer an admin's question
ANSWER_TIME = 30.0
#: ends of the modules that run a site or the server
ENGINES = (".client_train", ".server_train")


@dataclass(frozen=True)
class Finding:
    """What was found out about one part of a kit.

    Attributes
    ----------
    name : str
    is_well : bool
    words : str
    """

    name: str
    is_well: bool
    words: str


def look_at_kit(kit):
    """Look at a kit, but not at its data.

    Parameters
    ----------
    kit : Path
        Of a site or of the server.

    Returns
    -------
    findings : list of Finding
    """
    kit = Path(kit)
    kind = kit_kind(kit)
    problems, findings = check_kit(kit), [look_at_certificate(kit / "startup")]
    words = "; ".join(problems) or "no code, shell command or log can pass"
    findings.append(Finding("policy", not problems, words))
    is_running, words = find_process(kit)
    findings.append(Finding("process", is_running, words))
    if kind == "client":
        findings.append(look_at_server(kit / "startup"))
        findings += _look_at_site(kit)
    return findings


def to_json(findings):
    """Return findings as text for a monitor."""
    is_well = all(finding.is_well for finding in findings)
    return json.dumps({"well": is_well, "findings": list(map(asdict, findings))})


def look_at_certificate(startup):
    """Check chain, name and dates of the certificate of a kit.

    Parameters
    ----------
    startup : Path

    Returns
    -------
    finding : Finding
    """
    path = next(iter(sorted(startup.glob("*.crt"))), None)
    if path is None:
        return _bad_certificate(f"{startup} has no certificate: have one issued")
    root = startup / "rootCA.pem"
    if not root.exists():
        return _bad_certificate(
            f"{startup} has no rootCA.pem, by which others' certificates are checked: "
            "copy it from the kit as it came"
        )
    key, now = path.with_suffix(".key"), datetime.now(UTC)
    try:
        for file in (root, path):
            content = file.read_bytes()
            name, (start, end) = name_of(content), validity(content)
    except (OSError, ProtocolError):
        return _bad_certificate(
            f"{file.name} cannot be read as a certificate: copy it from the kit as it "
            "came"
        )
    try:
        check_certificate(content, root.read_bytes())
    except ProtocolError:
        return _bad_certificate(
            f"{path.name} and rootCA.pem do not belong together: one is another "
            "project's"
        )
    try:
        _trust(root).load_cert_chain(path, key)
    except OSError:
        return _bad_certificate(
            f"{key.name} is missing, damaged or not the key of {path.name}: copy both "
            "from one kit"
        )
    wanted = _own_name(startup)
    if wanted not in (None, name):
        return _bad_certificate(f"{path.name} is that of {name!r}, not of {wanted!r}")
    if now < start:
        words = f"begins at {start:%Y-%m-%d %H:%M} UTC, and the clock here says "
        return _bad_certificate(f"certificate {path.name} {words}{now:%F %H:%M}")
    left = end - now
    if now > end:
        words = f"has expired on {end:%Y-%m-%d}: have it renewed"
        return _bad_certificate(f"certificate {path.name} {words}")
    advice = "" if left.days > SOON else ": have it renewed"
    words = f"certificate {path.name} is valid for {left.days} more days{advice}"
    return Finding("certificate", True, words)


def _bad_certificate(words):
    return Finding("certificate", False, words)


def _trust(root):
    """Return how to encrypt with whoever has a certificate that a root has issued."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # its name is the one in the kit
    context.load_verify_locations(root)
    return context


def _own_name(startup):
    """Return the name by which the engine runs a kit, None if it does not say."""
    for file, *keys in [
        ("fed_client.json", "client", "fqsn"),
        ("fed_admin.json", "admin", "username"),
    ]:
        try:
            found = json.loads((startup / file).read_text())
            for key in keys:
                found = found[key]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        return found
    return None


def find_process(kit):
    """Tell whether the engine runs from a kit, in words, too."""
    number = _alive(kit / "pid.fl")
    if number is None:
        number = _find_engine(kit)
    if number is not None:
        return True, f"running as process {number}"
    if _alive(kit / "daemon_pid.fl") is not None:
        # FLARE's script waits some seconds before it starts, or starts again
        return True, "starting: ask again in some seconds"
    return False, "not running"


def _alive(path):
    """Return the number of the process that a file names, None if there is none."""
    try:
        number = int(path.read_text())
        os.kill(number, 0)
    except (OSError, ValueError):
        return None
    return number


def _find_engine(kit):
    """Return the number of the engine's process of a kit, None if there is none.

    Started by a service (``--once``), it leaves no file that names it.
    """
    psutil, folder = import_optional("psutil", "health"), str(kit.resolve())
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if folder in words and any(word.endswith(ENGINES) for word in words):
            return process.pid
    return None


def look_at_server(startup):
    """Open a connection to the server as the engine would, and close it.

    Parameters
    ----------
    startup : Path
        Of a site's kit.

    Returns
    -------
    finding : Finding
        Its name is "kit" if the kit does not say where the server is.
    """
    try:
        (host, port, name), *_ = _read_servers(startup)
    except PartitionError as error:
        return Finding("kit", False, str(error))
    where = f"the server {host}:{port}"
    try:
        context = _trust(startup / "rootCA.pem")
        context.load_cert_chain(startup / "client.crt", startup / "client.key")
    except OSError:
        words = f"{where} is not tried without certificates that can be used"
        return Finding("server", False, words)
    try:
        with (
            socket.create_connection((host, port), PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname=name) as secure,
        ):
            subject = secure.getpeercert()["subject"]
            found = dict(pair for (pair,) in subject).get("commonName")
            # what the server thinks of our certificate comes with its first words
            secure.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            secure.recv(1)
    except ssl.SSLCertVerificationError as error:
        words = f"{where} has a certificate that is not valid here: "
        return Finding("server", False, words + error.verify_message)
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        words = f"{where} does not accept this kit's certificate: {reason}"
        return Finding("server", False, words)
    except OSError as error:
        return Finding("server", False, f"{where} cannot be reached: {error}")
    if found != name:
        words = f"{where} has the certificate of {found!r}, not of {name!r}"
        return Finding("server", False, words)
    return Finding("server", True, f"{where} takes connections with this certificate")


def _read_servers(startup):
    """Return host, port and name of the servers of a site's kit, one at least."""
    path, servers = startup / "fed_client.json", []
    try:
        for server in json.loads(path.read_text())["servers"]:
            host, _, port = server["service"]["target"].rpartition(":")
            servers.append((host, int(port), server["identity"]))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        servers = []
    if not servers:
        raise PartitionError(
            f"{path} does not say which server to connect to (its name as identity, "
            "host:port as target of service): copy it from the kit as it came"
        )
    return servers


def check_peers(kit, site_file):
    """Say which peers of a site file cannot be, if the kit says who is who.

    Parameters
    ----------
    kit : Path
        Of a site.
    site_file : SiteFile

    Returns
    -------
    problems : list of str
    """
    startup = kit / "startup"
    try:
        name = name_of((startup / "client.crt").read_bytes())
        servers = {server for _, _, server in _read_servers(startup)}
    except (OSError, ProtocolError, PartitionError):
        return []  # others look at certificates and servers
    problems = [
        f"peers names {server!r}, which is the server: as a site it could make "
        "everybody's key and read what it relays. Sessions with it are refused; take "
        "it out"
        for server in sorted(servers & set(site_file.peers))
    ]
    others = sorted(set(site_file.peers) - servers - {name})
    return problems + [
        f"dataset {dataset.name}: min_parties is {dataset.min_parties}, and peers "
        f"names {others} beside {name}: no session has so many sites"
        for dataset in site_file.datasets.values()
        if len(others) + 1 < dataset.min_parties
    ]


def _look_at_site(kit):
    try:
        site_file = SiteFile.load(kit / "local" / SITE_FILE)
    except PartitionError as error:
        return [Finding("site file", False, str(error))]
    problems = check_peers(kit, site_file)
    n = len(site_file.datasets)
    words = "; ".join(problems) or f"{n} dataset{'s' * (n != 1)}"
    findings = [Finding("site file", not problems, words)]
    for dataset in site_file.datasets.values():
        problems = check_state(dataset)
        words = "; ".join(problems) or "questions and costs can be recorded"
        findings.append(Finding(f"state of {dataset.name}", not problems, words))
    return [*findings, _look_at_log(site_file), _look_at_questions(site_file)]


def _look_at_log(site_file):
    if not site_file.audit_log.exists():
        return Finding("audit log", True, "nobody has asked anything yet")
    records, problems, _ = read_audit(site_file.audit_log)
    words = f"{len(records)} records, each follows from the one before"
    return Finding("audit log", not problems, "; ".join(problems) or words)


def _look_at_questions(site_file):
    try:
        n_waiting = len(Approvals(site_file).waiting())
    except (OSError, ValueError, sqlite3.Error) as error:
        return Finding("questions", False, str(error))
    words = f"questions that wait for approval: {n_waiting}"
    return Finding("questions", True, words)


def describe_kit(kit):
    """Return lines on the state of a kit: findings, what was spent, the last record.

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
    lines = [f"skprivbn {version('skprivbn')}"]
    if (startup / "fed_admin.json").exists():
        return [*lines, look_at_certificate(startup).words, *_ask_server(kit)]
    lines += [finding.words for finding in look_at_kit(kit)]
    if not (kit / "local" / SITE_FILE).exists():
        return lines
    site_file = SiteFile.load(kit / "local" / SITE_FILE)
    for name, dataset in site_file.datasets.items():
        spent, _ = look_at_account(dataset)
        lines.append(f"dataset {name}, {spent}")
    if site_file.audit_log.exists():
        records, _, _ = read_audit(site_file.audit_log)
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
        session = api.new_secure_session(user, str(kit.resolve()), timeout=ANSWER_TIME)
        try:
            if abort is not None:
                session.abort_job(abort)
            jobs = session.list_jobs(detailed=True)
            return session.get_system_info(), [
                job for job in jobs if not str(job.get("status")).startswith("FINISHED")
            ]
        finally:
            session.close()

    return within(2 * ANSWER_TIME, "the question to the server", ask)
