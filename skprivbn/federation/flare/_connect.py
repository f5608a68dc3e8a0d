"""The coordinator's side on NVIDIA FLARE: one job per session, one relay per round."""

import json
import math
import tempfile
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any, Self

from sklearn.base import clone

from skprivbn.crypto import AdditiveBackend
from skprivbn.exceptions import PartitionError, PartyError, ProtocolError
from skprivbn.federation._federation import Federation
from skprivbn.federation._ledger import LedgerTable
from skprivbn.federation._remote import RemoteColumns, RemoteRows
from skprivbn.federation._terms import Terms
from skprivbn.federation._wire import encode
from skprivbn.federation.flare._fit import (
    Considered,
    DryFit,
    FlareFit,
    read_payload,
    write_job,
)
from skprivbn.federation.flare._patience import Heartbeat, within
from skprivbn.federation.flare._researcher import Researcher
from skprivbn.federation.site._site import INTRODUCE, MEET
from skprivbn.utils import import_optional

__all__ = ["FlareFederation"]

_COMMAND = "skprivbn"
#: seconds that the server gets to pass an answer on
_RELAY_TIME = 10.0
#: seconds after which a site, which tells the server every ten that it is there, is not
_SILENT_AFTER = 25.0
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
    researcher : Researcher, default=None
        Who asks.
    approved_within : float, default=0.0
        Seconds that a fit waits for people at the sites to approve it.

    Attributes
    ----------
    datasets : list of str
        Names of the datasets that this researcher may use at every site.
    """

    def __init__(
        self,
        session: Any,
        job_id: str | None,
        dataset: str,
        sites: Sequence[str],
        timeout: float,
        purpose: str = "",
        researcher: Researcher | None = None,
        approved_within: float = 0.0,
    ) -> None:
        self._session = session
        self.job_id, self.dataset, self.sites = job_id, dataset, tuple(sites)
        self.timeout, self.purpose = timeout, purpose
        self._researcher: Any = researcher
        self.approved_within = approved_within
        self.datasets: list[str] = []
        self._schemas, self._limits, self._rules = {}, {}, {}
        self._is_dry = False
        self._lock, self._heartbeat = threading.Lock(), None

    @classmethod
    def connect(
        cls,
        kit: str | PathLike,
        dataset: str | None = None,
        *,
        sites: Sequence[str] | None = None,
        timeout: float = 120.0,
        ready_within: float = 60.0,
        purpose: str = "",
        approved_within: float = 0.0,
    ) -> Self:
        """Open a session with the sites of a project.

        Parameters
        ----------
        kit : path-like
            Folder of an admin's startup kit.
        dataset : str, default=None
            Name of a dataset in the site files. Without, the session only tells which
            there are: see the attribute ``datasets``.
        sites : sequence of str, default=None
            Which sites; all that are connected if None.
        timeout : float, default=120.0
            Seconds that a site may take for one answer.
        ready_within : float, default=60.0
            Seconds within which all sites have to be ready.
        purpose : str, default=""
            What the fits are for, in plain words; sites write it into their audit
            logs.
        approved_within : float, default=0.0
            Seconds that a fit waits for people at the sites to approve it, where site
            files want that.

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
        deadline = time.monotonic() + ready_within

        def log_in():
            username = admin["admin"]["username"]
            return api.new_secure_session(username, str(kit), timeout=ready_within)

        try:
            session = within(ready_within, "the login at the server", log_in)
        except Exception as error:
            raise ConnectionError(
                f"no session with the server of {kit} ({type(error).__name__}): is it "
                "running, and was this kit issued by its project?"
            ) from error
        federation = cls(
            session,
            None,
            dataset or "",
            (),
            timeout,
            purpose,
            Researcher.from_kit(kit),
            approved_within,
        )
        try:
            # beyond the deadline, what is under way may end and say who is missing
            within(
                max(deadline - time.monotonic(), 0.0) + _RELAY_TIME,
                "to open a session with the sites",
                lambda: federation._begin(sites, deadline),
            )
        except BaseException:
            within(_RELAY_TIME, "to end the session", federation.close)
            raise
        return federation

    def _begin(self, sites, deadline):
        self._session.set_timeout(_RELAY_TIME)
        self.sites = self._wait_for_sites(sites, deadline)
        with tempfile.TemporaryDirectory() as folder:
            write_job(Path(folder), self.sites)
            self.job_id = self._session.submit_job(folder)
        self._introduce(deadline)
        self._heartbeat = Heartbeat(self._say_here)

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
        voucher = self._researcher.voucher(self.job_id)
        message = encode({"dataset": self.dataset, "researcher": voucher})
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
                found[name] = read_payload(name, "introduce", reply)
            waiting = [name for name in self.sites if name not in found]
            if waiting and time.monotonic() > deadline:
                raise self._blame(waiting, bool(found))
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
            read_payload(name, "meet", replies.get(name))
        self._schemas = {name: found[name]["columns"] for name in self.sites}
        self.datasets = sorted(
            set.intersection(*(set(told["datasets"]) for told in found.values()))
        )
        self._rules = {name: found[name]["rules"] for name in self.sites}
        self._limits = {
            rule: max(found[name]["limits"].get(rule, 0) for name in self.sites)
            for rule in ("min_rows", "min_parties", "min_cell_count")
        }

    def rules(self) -> LedgerTable:
        """Return what the sites allow for the dataset, side by side.

        Returns
        -------
        table : LedgerTable
        """
        first = self._rules[self.sites[0]]
        rows = []
        for rule in first:
            said = [self._rules[name].get(rule) for name in self.sites]
            words = [", ".join(v) if isinstance(v, list) else str(v) for v in said]
            rows.append((rule, *words))
        return LedgerTable(["rule", *self.sites], rows)

    def dry_run(self, estimator: Any, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Ask sites what they would say to a fit, without fitting.

        Rules that depend on the number of rows are left out, as the answer would tell
        it. Of an estimator that opens several sessions, the first is asked about.

        Parameters
        ----------
        estimator : estimator
        X : RemoteRows or RemoteColumns
        y, **fit_params :
            Of its ``fit``.

        Returns
        -------
        report : DryRun
            Prints who would accept, what it would cost, and what would leave at most.
        """
        given = {} if y is None else {"y": y}
        self._is_dry = True
        try:
            clone(estimator).fit(X, **given, **fit_params)
        except Considered as done:
            return done.report
        finally:
            self._is_dry = False
        raise ValueError("the estimator did not ask the sites anything")

    def _blame(self, waiting, is_running):
        """Return an error that names the sites which are not there."""
        heard = {
            client.name: client.last_connect_time
            for client in self._session.get_connected_client_list()
        }
        last = max(heard.values(), default=0.0)
        silent = [
            name
            for name in waiting
            if last - heard.get(name, -math.inf) > _SILENT_AFTER
        ]
        if silent:
            return ConnectionError(
                f"the server has not heard of the sites {silent} for a while: are they "
                "running, is their network up, are their clocks right? The engine "
                "starts a job only when all sites are there"
            )
        if is_running:
            return PartyError(waiting[0], "introduce", "timeout")
        return ConnectionError(
            f"all sites of {list(self.sites)} are connected, but the job has not "
            "started in time: is another one running, or ready_within too short?"
        )

    def _say_here(self):
        # whoever talks, is there
        if self._lock.acquire(blocking=False):
            try:
                self._session.do_app_command(self.job_id, _COMMAND, {"here": True})
            finally:
                self._lock.release()

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
        fit = DryFit if self._is_dry else FlareFit
        return fit(
            self._relay,
            partial(self._researcher.sign, self.job_id),
            self.approved_within,
            data,
            roster,
            party_class,
            terms,
            backend,
            **options,
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
        try:
            with self._lock:
                self._session.set_timeout(timeout + _RELAY_TIME)
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
        if self._heartbeat is not None:
            self._heartbeat.end()
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
