"""A site of a real federation: its file, its certificate, its log, and one party.

The engine that connects the sites is not in here. It hands over bytes with a topic
and takes bytes back, so that a site behaves the same on any engine and in a test.
"""

import json
import threading
from datetime import UTC, datetime
from importlib.metadata import version

from skprivbn.crypto.certificates import (
    NotValidNowError,
    check_voucher,
    fingerprint,
    name_of,
    vouch,
)
from skprivbn.crypto.sealing import Identity, check_signature
from skprivbn.exceptions import ProtocolError
from skprivbn.federation._wire import decode, encode
from skprivbn.federation.program import PartyRefusal
from skprivbn.federation.runner import public_code
from skprivbn.federation.site._audit import AuditLog, QuestionLog
from skprivbn.federation.site._host import SiteHost
from skprivbn.federation.site._state import recording

INTRODUCE = "skprivbn.introduce"
MEET = "skprivbn.meet"
JOIN = "skprivbn.join"
MESSAGE = "skprivbn.message"
LEAVE = "skprivbn.leave"
CONSIDER = "skprivbn.consider"
#: everything a site listens to
TOPICS = (INTRODUCE, MEET, JOIN, MESSAGE, LEAVE, CONSIDER)
#: what researchers sign, beside a job and a request
QUESTION = b"skprivbn question"


def server_names(kit):
    """Return the names of the servers that a site's startup kit knows.

    Parameters
    ----------
    kit : Path

    Returns
    -------
    names : set of str
        In their certificates; an engine's server has one that looks like a site's.
    """
    servers = json.loads((kit / "fed_client.json").read_text())["servers"]
    return {server["identity"] for server in servers}


class Site:
    """What runs at a site for the length of one job.

    Parameters
    ----------
    name : str
        The site's name, as in its certificate.
    site_file : SiteFile
    kit : path-like
        Folder of the startup kit, with the site's certificate and key and the root's
        certificate.
    job : str
        Identifier of the job.
    coordinator : str
        Who submitted it, as the engine says; the log has who signs the questions.
    """

    def __init__(self, name, site_file, kit, job, coordinator):
        self.name = name
        self._site_file = site_file
        self._job = job
        self._root = (kit / "rootCA.pem").read_bytes()
        self._servers = server_names(kit)
        identity = Identity()
        self._voucher = vouch(
            (kit / "client.crt").read_bytes(),
            (kit / "client.key").read_bytes(),
            identity.public,
            job,
        )
        log = AuditLog(site_file.audit_log)
        self._log = QuestionLog(log, coordinator, job)
        self._host = SiteHost(name, site_file, identity, self._log)
        self._researcher = None
        # An engine may deliver from several threads; a party does one thing at a time.
        self._lock = threading.Lock()

    def answer(self, topic, message):
        """Answer one message of the coordinator; never raises.

        Parameters
        ----------
        topic : str
            One of :data:`TOPICS`.
        message : bytes

        Returns
        -------
        reply : bytes
            ``{"ok": True, "payload": ...}`` or ``{"ok": False, "code": ...}``.
        """
        with self._lock:
            self._host.asked, self._host.details = topic, {}
            try:
                reply = self._answer(topic, message)
            except Exception as error:
                self._host.write_error(error)
                reply = encode({"ok": False, "code": public_code(error)})
            return reply

    def close(self):
        """End whatever is going on and forget its keys."""
        self._host.close()

    def _answer(self, topic, message):
        if topic == MESSAGE:
            return self._host.handle(message)
        if topic in (JOIN, CONSIDER):
            request = self._signed(**decode(message))
            if topic == CONSIDER:
                return encode({"ok": True, "payload": self._host.consider(request)})
            return self._host.begin(request)
        control = {INTRODUCE: self._introduce, MEET: self._meet, LEAVE: self._leave}
        answer = control[topic](**decode(message))
        return encode({"ok": True, "payload": answer})

    def _signed(self, request, signature):
        """Return a request that the researcher of this job has signed."""
        if self._researcher is None:
            raise PartyRefusal("not-authentic")
        asked = QUESTION, self._job.encode(), request
        check_signature(self._researcher, signature, *asked)
        return request

    def _introduce(self, dataset, researcher):
        """Tell a researcher what may be asked, and the voucher for this session."""
        name = name_of(researcher["certificate"])
        identity = self._check(researcher, name, "person")
        if self._researcher not in (None, identity):
            raise PartyRefusal("not-authentic")
        self._researcher = identity
        self._log.who = self._host.researcher = name
        datasets = {
            key: found
            for key, found in self._site_file.datasets.items()
            if found.is_for(name)
        }
        if dataset and dataset not in datasets:
            why = f"there is no {dataset!r} for {name!r}"
            raise PartyRefusal("unknown-dataset", why)
        told = {
            "version": version("skprivbn"),
            "datasets": sorted(datasets),
            "voucher": self._voucher,
            "columns": {},
            "limits": {},
            "rules": {},
        }
        if dataset:
            found = datasets[dataset]
            told["columns"] = found.columns
            told["limits"] = found.limits
            told["rules"] = found.rules
        return told

    def _meet(self, vouchers):
        """Check the certificates of all sites and pin their identities."""
        pins = {name: self._identity(name, of) for name, of in vouchers.items()}
        if pins.get(self.name) != self._voucher["identity"]:
            raise ProtocolError("this site's own voucher was replaced")
        with recording():
            self._log.note("connected", roster=sorted(pins))
        self._host.pin(pins)
        return {}

    def _identity(self, name, voucher):
        """Return the identity of a site that this one takes part with.

        Who relays has a certificate of the same root. Were it a site's, it could be
        the first party, and make everybody's key.
        """
        peers = self._site_file.peers
        if name in self._servers or name not in {*peers, self.name}:
            raise PartyRefusal("unknown-peer", f"peers names no site {name!r}")
        identity = self._check(voucher, name, "site")
        pinned = peers.get(name)
        if pinned is not None and fingerprint(voucher["certificate"]) != pinned:
            raise PartyRefusal("unknown-peer", f"{name!r} has another certificate")
        return identity

    def _check(self, voucher, name, holder):
        try:
            return check_voucher(
                voucher, self._root, name, self._job, self._now(), holder
            )
        except NotValidNowError:
            why = f"the certificate of {name!r} is not valid at {self._now():%F %T} UTC"
            raise PartyRefusal("not-valid-now", why) from None

    @staticmethod
    def _now():
        return datetime.now(UTC)

    def _leave(self):
        """End the fit: forget its keys, keep the peers' identities."""
        self._host.close("done")
        return {}
