"""Sites without an engine: real site code, certificates and files in one process."""

import datetime
import json
from base64 import b64decode, b64encode
from types import SimpleNamespace

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from skprivbn.federation.flare import FlareFederation
from skprivbn.federation.flare._messages import Researcher
from skprivbn.federation.site._file import SiteFile
from skprivbn.federation.site._site import Site
from skprivbn.federation.site._state import SiteState

JOB = "job-1"
#: name of the server, which relays
SERVER = "server.example.org"
#: as kits of sites name it; nobody listens there
SERVERS = {"servers": [{"identity": SERVER, "service": {"target": "localhost:1"}}]}


class Authority:
    """A root that issues certificates, as ``nvflare provision`` does."""

    def __init__(self, name="root"):
        self.name = name
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign(name, self.key.public_key(), days=30)

    def _sign(self, name, public_key, days, role=None):
        now = datetime.datetime.now(datetime.UTC)
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if role is not None:
            subject.append(x509.NameAttribute(NameOID.UNSTRUCTURED_NAME, role))
        issuer = [x509.NameAttribute(NameOID.COMMON_NAME, self.name)]
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name(subject))
            .issuer_name(x509.Name(issuer))
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=60))
            .not_valid_after(now + datetime.timedelta(days=days))
            .sign(self.key, hashes.SHA256())
        )

    def issue(self, name, days=30, role=None):
        """Return certificate and private key, in PEM format."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(name, key.public_key(), days, role)
        return pem(certificate), key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    def write_kit(self, folder, name):
        folder.mkdir(parents=True, exist_ok=True)
        certificate, key = self.issue(name)
        (folder / "client.crt").write_bytes(certificate)
        (folder / "client.key").write_bytes(key)
        (folder / "rootCA.pem").write_bytes(pem(self.certificate))
        (folder / "fed_client.json").write_text(json.dumps(SERVERS))
        return folder


def pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)


class LoopbackSession:
    """Stands for the engine: does what the relay at the server does."""

    cell = SimpleNamespace(is_cell_connected=lambda name: True)
    api = SimpleNamespace(get_cell=lambda cell=cell: cell)

    def __init__(self, sites):
        self.sites, self.transcript = sites, []

    def set_timeout(self, value):
        pass

    def close(self):
        pass

    def do_app_command(self, job_id, command, data):
        data = json.loads(json.dumps(data))
        replies = {}
        for name, number in data.get("sites", {}).items():
            message = b64decode(data["bodies"][number])
            answer = self.sites[name].answer(data["topic"], message)
            self.transcript += [message, answer]
            replies[name] = b64encode(answer).decode()
        return {"replies": replies, "lost": []}


def make_sites(folder, site_files, authority=None, job=JOB):
    """Return running sites from the texts of their site files."""
    authority = authority or Authority()
    sites = {}
    for name, text in site_files.items():
        kit = authority.write_kit(folder / name / "startup", name)
        path = folder / name / "site.toml"
        path.write_text(text)
        sites[name] = Site(name, SiteFile.load(path), kit, job, "scientist")
        sites[name].authority = authority
    return sites


def connect(sites, dataset, transport=LoopbackSession, who="scientist", **options):
    """Open a session with sites, as ``FlareFederation.connect`` does."""
    session = transport(sites)
    authority = next(iter(sites.values())).authority
    person = Researcher(*authority.issue(who, role="lead"))
    # a coordinator begins a job of its own
    for site in sites.values():
        site._researcher = None
    federation = FlareFederation(
        session, JOB, dataset, list(sites), 60.0, researcher=person, **options
    )
    federation._introduce()
    return federation


#: what a site file must have, and nothing else that forbids or allows
PLAIN_FILE = """
min_parties = 2
peers = {peers}

[datasets.icu]
path = "icu.csv"
min_rows = {min_rows}
max_exact_fits = 20
estimators = {estimators}
{rules}

[datasets.icu.columns]
{columns}
"""


def open_sites(
    folder, tables, columns, estimators, rules="", *, min_rows=20, **options
):
    """Connect with plain sites.

    Parameters
    ----------
    folder : Path
    tables : dict of str to list of list
        Rows of each site.
    columns : dict of str to str
        What columns hold, as in a site file; or such a dict for each site.
    estimators : list of str
    rules : str, default=""
        Further entries of the site files.
    min_rows : int, default=20
    **options
        Of :func:`connect`.
    """
    texts = {}
    for name, rows in tables.items():
        mine = columns.get(name, columns)
        lines = [",".join(mine), *(",".join(map(str, row)) for row in rows)]
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "icu.csv").write_text("\n".join(lines) + "\n")
        texts[name] = PLAIN_FILE.format(
            peers=json.dumps(list(tables)),
            estimators=json.dumps(estimators),
            rules=rules,
            min_rows=min_rows,
            columns="\n".join(f"{column} = {kind}" for column, kind in mine.items()),
        )
    return connect(make_sites(folder, texts), "icu", **options)


def charges(folder, name, kind="noisy", dataset="icu"):
    """Return what a site has charged or set aside, as its state has it."""
    state = SiteState(folder / name / "skprivbn_state")
    return [dict(row) for row in state.charges(dataset, kind)]


def audit(folder, name):
    """Return the entries of a site's audit log."""
    text = (folder / name / "skprivbn_audit.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]
