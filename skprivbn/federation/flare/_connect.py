"""The coordinator's side on NVIDIA FLARE: one job per session, one relay per round."""

import json
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Self

from sklearn.base import clone

from skprivbn.crypto import AdditiveBackend
from skprivbn.federation._ledger import LedgerTable
from skprivbn.federation._remote import RemoteColumns, RemoteRows, keep_owned
from skprivbn.federation._terms import Terms
from skprivbn.federation.coordinator import Coordinator
from skprivbn.federation.flare._messages import (
    Considered,
    DryFit,
    FlareFit,
    Introduction,
    Researcher,
    introduce,
    wait_for_sites,
    write_job,
)
from skprivbn.federation.flare._relay import RELAY_TIME, Heartbeat, Relay, within
from skprivbn.federation.program import Program
from skprivbn.federation.site._file import ANY_NUMBER
from skprivbn.utils import import_optional


def _in_words(value):
    """Return what a site file says of a rule, for people."""
    if isinstance(value, list):
        return ", ".join(value)
    if value is None or value == ANY_NUMBER:
        return "no limit" if value else "none"
    return str(value)


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
        self._relay = Relay(session, job_id)
        self.dataset, self.sites = dataset, tuple(sites)
        self.timeout, self.purpose = timeout, purpose
        self._researcher: Any = researcher
        self.approved_within = approved_within
        self._introduction = Introduction()
        self._is_dry = self._is_closed = False
        self._heartbeat: Heartbeat | None = None

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
        verbose: bool = True,
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
        verbose : bool, default=True
            Print what is waited for until all sites are ready.

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
        begun = time.monotonic()
        deadline = begun + ready_within

        def say(words):
            if verbose:
                print(f"[{time.monotonic() - begun:4.1f} s] {words}", flush=True)

        def log_in():
            username = admin["admin"]["username"]
            return api.new_secure_session(username, str(kit), timeout=ready_within)

        try:
            session = within(ready_within, "the login at the server", log_in)
        except Exception as error:
            raise ConnectionError(
                f"no session with the server of {kit} ({type(error).__name__}): is it "
                "running, is the clock here right, and was this kit issued by its "
                "project?"
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
                max(deadline - time.monotonic(), 0.0) + RELAY_TIME,
                "to open a session with the sites",
                lambda: federation._begin(sites, deadline, say),
            )
        except BaseException:
            within(RELAY_TIME, "to end the session", federation.close)
            raise
        return federation

    def _begin(self, sites, deadline, say):
        session = self._relay.session
        session.set_timeout(RELAY_TIME)
        self.sites = wait_for_sites(session, sites, deadline, say)
        with tempfile.TemporaryDirectory() as folder:
            write_job(Path(folder), self.sites)
            self._relay.job_id = session.submit_job(folder)
        self._introduce(deadline, say)
        self._heartbeat = Heartbeat(self._relay.say_here)

    def _introduce(self, deadline=math.inf, say=lambda words: None):
        self._introduction = introduce(
            self._relay,
            self.sites,
            self.dataset,
            self._researcher,
            self.timeout,
            deadline,
            say,
        )

    @property
    def job_id(self) -> Any:
        """The engine's name for this session, also in the sites' audit logs."""
        return self._relay.job_id

    @property
    def datasets(self) -> list[str]:
        """Names of the datasets that this researcher may use at every site."""
        return self._introduction.datasets

    def rules(self) -> LedgerTable:
        """Return the rules of all sites for the dataset, side by side.

        Returns
        -------
        table : LedgerTable
        """
        rules = self._introduction.rules
        rows = []
        for rule in rules[self.sites[0]]:
            said = [rules[name].get(rule) for name in self.sites]
            rows.append((rule, *(_in_words(value) for value in said)))
        return LedgerTable(["rule", *self.sites], rows)

    def dry_run(self, estimator: Any, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Ask the sites whether they would accept a fit, without fitting.

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
        schema = self._introduction.common_columns(columns)
        return RemoteRows(self, self.dataset, self.sites, schema, columns)

    def columns(
        self,
        columns: Sequence[str] | None = None,
        keys: str | None = None,
        *,
        owner: Mapping[str, str] | None = None,
        max_records: int | None = None,
        reveal_membership: bool = False,
    ) -> RemoteColumns:
        """Return a handle on the columns of all sites.

        Parameters
        ----------
        columns : sequence of str, default=None
            Which columns, in the order of each site's file; all that are no keys if
            None.
        keys : str, default=None
            Name of the key column of every site. Records are aligned by it, in private;
            None means that all sites hold the same records in the same order.
        owner : dict of str to str, default=None
            Of columns that several sites hold, the site whose copy counts.
        max_records : int, default=None
            With `keys`: most records of a site; lists of keys are filled up to it.
        reveal_membership : bool, default=False
            With `keys`: True says that sites may learn which of their records all
            others have, too; otherwise every fit warns.

        Returns
        -------
        columns : RemoteColumns
            To be passed as `X`.
        """
        held = self._introduction.columns_of_each(columns, keys)
        names = keep_owned({name: list(mine) for name, mine in held.items()}, owner)
        schema = {
            column: held[name][column]
            for name, mine in names.items()
            for column in mine
        }
        return RemoteColumns(
            self,
            self.dataset,
            names,
            schema,
            keys,
            max_records=max_records,
            reveal_membership=reveal_membership,
        )

    def open(
        self,
        program: Program,
        terms: Terms,
        backend: str | AdditiveBackend | None,
        data: dict,
        roster: Sequence[str],
        **options: Any,
    ) -> Coordinator:
        """Open the federation of one fit; called by the remote partitions.

        Limits in `terms` are raised to the strictest of the sites', which would
        refuse lower ones.
        """
        terms = terms.raised_to(self._introduction.limits)
        options = {"timeout": self.timeout, **options}
        fit = DryFit if self._is_dry else FlareFit
        return fit(
            self._relay.ask,
            partial(self._researcher.sign, self.job_id),
            self.approved_within,
            data,
            roster,
            program,
            terms,
            backend,
            **options,
        )

    def close(self) -> None:
        """End the session at the server and at all sites."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._heartbeat is not None:
            self._heartbeat.end()
        self._relay.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __repr__(self):
        return f"FlareFederation({self.dataset!r} at {', '.join(self.sites)})"
