"""The coordinator's side on NVIDIA FLARE: one job per session, one relay per round."""

import json
import tempfile
import time
from base64 import b64decode, b64encode
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any, Self

from skprivbn.crypto import AdditiveBackend
from skprivbn.exceptions import PartitionError, PartyError, ProtocolError
from skprivbn.federation._federation import Federation
from skprivbn.federation._remote import RemoteColumns, RemoteRows
from skprivbn.federation._terms import Terms
from skprivbn.federation._wire import decode, encode
from skprivbn.federation.flare._policy import CONTROLLER, EXECUTOR
from skprivbn.federation.site._site import INTRODUCE, JOIN, LEAVE, MEET, MESSAGE
from skprivbn.utils import import_optional

__all__ = ["FlareFederation"]

_COMMAND = "skprivbn"
#: seconds that the server gets to pass an answer on
_RELAY_TIME = 10.0
_ENDED = ("FINISHED", "FAILED", "ABORTED", "ABANDONED")


class FlareFederation:
    """A session with the sites of an NVIDIA FLARE project.

    Use as a context manager; made by :meth:`connect`.

    Parameters
    ----------
    session : nvflare.fuel.flare_api.flare_api.Session
        Connection to the server.
    job_id : str or None
        The engine's name for this session, also in the sites' audit logs.
    dataset : str
        Name of the dataset at every site.
    sites : sequence of str
        Names of the sites, as in their certificates.
    timeout : float
        Seconds that a site may take for one answer.
    purpose : str, default=""
        What the fits are for, for the sites' audit logs.
    """

    def __init__(
        self,
        session: Any,
        job_id: str | None,
        dataset: str,
        sites: Sequence[str],
        timeout: float,
        purpose: str = "",
    ) -> None:
        self._session = session
        self.job_id, self.dataset, self.sites = job_id, dataset, tuple(sites)
        self.timeout, self.purpose = timeout, purpose
        self._schemas, self._limits = {}, {}

    @classmethod
    def connect(
        cls,
        kit: str | PathLike,
        dataset: str,
        *,
        sites: Sequence[str] | None = None,
        timeout: float = 120.0,
        ready_within: float = 60.0,
        purpose: str = "",
    ) -> Self:
        """Open a session with the sites of a project.

        Parameters
        ----------
        kit : path-like
            Folder of an admin's startup kit.
        dataset : str
            Name of a dataset in the site files.
        sites : sequence of str, default=None
            Which sites; all that are connected if None.
        timeout : float, default=120.0
            Seconds that a site may take for one answer.
        ready_within : float, default=60.0
            Seconds within which all sites have to be ready.
        purpose : str, default=""
            What the fits are for, in plain words; sites write it into their audit
            logs.

        Returns
        -------
        federation : FlareFederation
        """
        api = import_optional("nvflare.fuel.flare_api.flare_api", "FlareFederation")
        kit = Path(kit).resolve()
        try:
            admin = json.loads((kit / "startup" / "fed_admin.json").read_text())
        except OSError:
            raise FileNotFoundError(
                f"{kit} is not an admin's startup kit: no startup/fed_admin.json"
            ) from None
        try:
            session = api.new_secure_session(admin["admin"]["username"], str(kit))
        except Exception as error:
            raise ConnectionError(
                f"no session with the server of {kit} ({type(error).__name__}): is it "
                "running, and was this kit issued by its project?"
            ) from error
        federation = cls(session, None, dataset, (), timeout, purpose)
        try:
            federation._begin(sites, ready_within)
        except BaseException:
            federation.close()
            raise
        return federation

    def _begin(self, sites, ready_within):
        deadline = time.monotonic() + ready_within
        self.sites = self._wait_for_sites(sites, deadline)
        with tempfile.TemporaryDirectory() as folder:
            write_job(Path(folder), self.sites)
            self.job_id = self._session.submit_job(folder)
        self._introduce(deadline)

    def _wait_for_sites(self, sites, deadline):
        while True:
            online = {c.name for c in self._session.get_connected_client_list()}
            if (sites is None and online) or (sites and set(sites) <= online):
                return tuple(sorted(online) if sites is None else sites)
            if time.monotonic() > deadline:
                missing = sorted(set(sites or ["any site"]) - online)
                raise ConnectionError(f"not connected to the server: {missing}")
            time.sleep(0.2)

    def _introduce(self, deadline):
        """Wait until every site answers; have them check each other's certificates."""
        message = encode({"dataset": self.dataset})
        found, waiting = {}, list(self.sites)
        while waiting:
            # Before a site has started the job, a call takes its whole timeout.
            try:
                replies = self._relay(INTRODUCE, dict.fromkeys(waiting, message), 1.0)
            except ConnectionError:
                replies = {}
                status = self._session.get_job_status(self.job_id) or ""
                if any(word in status for word in _ENDED):
                    raise ConnectionError(
                        f"the job ended as {status!r} before the sites were ready: "
                        "their logs say why (was site-policy run on every kit?)"
                    ) from None
                time.sleep(0.2)
            for name, reply in replies.items():
                found[name] = _payload(name, "introduce", reply)
            waiting = [name for name in self.sites if name not in found]
            if waiting and time.monotonic() > deadline:
                if not found:
                    raise ConnectionError(
                        f"no site of {list(self.sites)} has started the job in time: "
                        "the engine starts it only when all of them are there"
                    )
                raise PartyError(waiting[0], "introduce", "timeout")
        mine = version("skprivbn")
        for name, introduction in found.items():
            if introduction["version"] != mine:
                raise ProtocolError(
                    f"site {name!r} runs skprivbn {introduction['version']}, this is "
                    f"{mine}: protocols must be the same on all sides"
                )
        vouchers = {name: found[name]["voucher"] for name in self.sites}
        meeting = encode({"vouchers": vouchers})
        replies = self._relay(MEET, dict.fromkeys(self.sites, meeting), self.timeout)
        for name in self.sites:
            _payload(name, "meet", replies.get(name))
        self._schemas = {name: found[name]["columns"] for name in self.sites}
        self._limits = {
            rule: max(found[name]["limits"][rule] for name in self.sites)
            for rule in ("min_rows", "min_parties", "min_cell_count")
        }

    def rows(self, columns: Sequence[str] | None = None) -> RemoteRows:
        """Return a handle on the rows of all sites.

        Parameters
        ----------
        columns : sequence of str, default=None
            Columns that make up X; all that are no keys if None, and then all sites
            must declare the same columns.

        Returns
        -------
        rows : RemoteRows
            To be passed as `X`.
        """
        first, *others = self.sites
        schema = self._schemas[first]
        for name in others:
            theirs = self._schemas[name]
            different = [
                column
                for column in sorted({*schema, *theirs} if columns is None else columns)
                if schema.get(column) != theirs.get(column)
            ]
            if different:
                raise PartitionError(
                    f"sites {first!r} and {name!r} declare the columns {different} of "
                    f"dataset {self.dataset!r} differently: choose others with "
                    "columns=, or have the site files agree"
                )
        common = {
            column: kind
            for column, kind in schema.items()
            if all(self._schemas[name].get(column) == kind for name in others)
        }
        return RemoteRows(self, self.dataset, self.sites, common, columns)

    def columns(
        self, columns: Sequence[str] | None = None, key: str | None = None
    ) -> RemoteColumns:
        """Return a handle on the columns of all sites.

        Parameters
        ----------
        columns : sequence of str, default=None
            Which columns, in the order of each site's file; all that are no keys if
            None.
        key : str, default=None
            Key column of every site by which records are aligned, in private. Without,
            all sites must hold the same records in the same order.

        Returns
        -------
        columns : RemoteColumns
            To be passed as `X`.
        """
        held, schema = {}, {}
        for name, declared in self._schemas.items():
            if key is not None and declared.get(key) != "key":
                raise PartitionError(f"site {name!r} has no key column {key!r}")
            held[name] = [
                column
                for column, kind in declared.items()
                if kind != "key" and (columns is None or column in columns)
            ]
            schema |= {column: declared[column] for column in held[name]}
        unknown = sorted(set(columns or ()) - set(schema))
        if unknown:
            raise PartitionError(f"no site has the columns {unknown}")
        held = {name: mine for name, mine in held.items() if mine}
        return RemoteColumns(self, self.dataset, held, schema, key)

    def open(
        self,
        party_class: type,
        terms: Terms,
        backend: str | AdditiveBackend | None,
        data: dict,
        roster: Sequence[str],
        **options: Any,
    ) -> Federation:
        """Open the federation of one fit; called by the remote partitions.

        Limits in `terms` are raised to the strictest of the sites', which would
        refuse lower ones.
        """
        terms = terms.raised_to(self._limits)
        options = {"timeout": self.timeout, **options}
        return _FlareFit(
            self._relay, data, roster, party_class, terms, backend, **options
        )

    def _relay(self, topic, messages, timeout):
        """Carry {site: bytes} there and back; sites that do not answer are left out."""
        # Sites are mostly told the same, which then travels to the server once.
        bodies = list(dict.fromkeys(messages.values()))
        data = {
            "topic": topic,
            "timeout": timeout,
            "bodies": [b64encode(body).decode() for body in bodies],
            "sites": {name: bodies.index(body) for name, body in messages.items()},
        }
        self._session.set_timeout(timeout + _RELAY_TIME)
        try:
            answer = self._session.do_app_command(self.job_id, _COMMAND, data)
        except Exception as error:
            if type(error).__name__ == "AuthorizationError":
                raise PermissionError(
                    "the server does not let this user talk to a job: was site-policy "
                    "run on the server's kit?"
                ) from error
            raise ConnectionError(
                "the connection to the federation was lost "
                f"({type(error).__name__}): connect again"
            ) from error
        replies = answer["replies"]
        return {name: b64decode(replies[name]) for name in messages if name in replies}

    def close(self) -> None:
        """End the session at the server and at all sites."""
        if self._session is None:
            return
        session, self._session = self._session, None
        if self.job_id is not None:
            try:
                session.do_app_command(self.job_id, _COMMAND, {"end": True})
            except Exception:
                with suppress(Exception):
                    session.abort_job(self.job_id)
        with suppress(Exception):
            session.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __repr__(self):
        return f"FlareFederation({self.dataset!r} at {', '.join(self.sites)})"


class _FlareFit(Federation):
    """The sites of one fit."""

    authentication = (
        "sites were authenticated by their certificates; whoever issued these "
        "(nvflare provision) could impersonate sites unless they made their own keys; "
        "the server, too, sees what the coordinator sees"
    )

    def __init__(self, relay, data, *arguments, **options):
        super().__init__(*arguments, **options)
        self.data = data
        self._carry = relay
        self._joined = False

    def _exchange(self, requests, timeout):
        topic, self._joined = (MESSAGE if self._joined else JOIN), True
        return self._carry(topic, requests, timeout)

    def _close(self):
        message = encode({})
        with suppress(ConnectionError):
            self._carry(LEAVE, dict.fromkeys(self.roster, message), 1.0)


def _payload(name, operation, reply):
    """Return what a site answered to a control message, or raise what is wrong."""
    if reply is None:
        raise PartyError(name, operation, "timeout")
    try:
        answer = decode(reply)
        if answer["ok"] is True:
            return answer["payload"]
        code = answer["code"]
    except (ProtocolError, KeyError, TypeError):
        code = "garbage"
    raise PartyError(name, operation, code if code in PartyError.REASONS else "garbage")


def write_job(folder, sites):
    """Write a job that names our two classes, and nothing else.

    Parameters
    ----------
    folder : Path
    sites : sequence of str
    """
    meta = {
        "name": "skprivbn",
        "resource_spec": {},
        "min_clients": len(sites),
        "mandatory_clients": list(sites),
        "deploy_map": {"app": ["server", *sites]},
    }
    server = {
        "format_version": 2,
        "workflows": [{"id": "relay", "path": CONTROLLER}],
        "components": [],
    }
    client = {
        "format_version": 2,
        "executors": [{"tasks": ["skprivbn"], "executor": {"path": EXECUTOR}}],
        "components": [],
    }
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    (folder / "meta.json").write_text(json.dumps(meta))
    (config / "config_fed_server.json").write_text(json.dumps(server))
    (config / "config_fed_client.json").write_text(json.dumps(client))
