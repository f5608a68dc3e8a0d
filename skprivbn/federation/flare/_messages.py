"""What a researcher and the sites say to each other on FLARE: introductions, fits."""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from skprivbn.crypto.certificates import name_of, vouch
from skprivbn.crypto.sealing import Identity
from skprivbn.exceptions import PartitionError, PartyError, ProtocolError
from skprivbn.federation._ledger import LedgerTable
from skprivbn.federation._terms import LIMITS
from skprivbn.federation._wire import decode, encode
from skprivbn.federation.coordinator import Coordinator
from skprivbn.federation.flare._policy import CONTROLLER, EXECUTOR
from skprivbn.federation.flare._relay import LOST, Relay
from skprivbn.federation.site._audit import SEEN_AS
from skprivbn.federation.site._site import (
    CONSIDER,
    INTRODUCE,
    JOIN,
    LEAVE,
    MEET,
    MESSAGE,
    QUESTION,
)

#: seconds after which a site, which tells the server every ten that it is there, is not
_SILENT_AFTER = 25.0


class Researcher:
    """Signs questions with the certificate of a person.

    The server, which carries them, cannot ask in that person's name.

    Parameters
    ----------
    certificate, private_key : bytes
        In PEM format, as in an admin's startup kit.
    """

    def __init__(self, certificate: bytes, private_key: bytes) -> None:
        self.name = name_of(certificate)
        self._certificate, self._key = certificate, private_key
        self._identity = Identity()

    @classmethod
    def from_kit(cls, kit: Path) -> "Researcher":
        """Return the owner of an admin's startup kit."""
        folder = kit / "startup"
        return cls(
            (folder / "client.crt").read_bytes(), (folder / "client.key").read_bytes()
        )

    def voucher(self, job: str) -> dict:
        """Return what sites check before they tell anything."""
        return vouch(self._certificate, self._key, self._identity.public, job)

    def sign(self, job: str, request: bytes) -> bytes:
        """Return a request with a signature, for this job."""
        signature = self._identity.sign(QUESTION, job.encode(), request)
        return encode({"request": request, "signature": signature})


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


@dataclass
class Introduction:
    """What sites have told of a dataset.

    Attributes
    ----------
    dataset : str
    columns : dict of str to dict
        What each column holds, by site.
    rules : dict of str to dict
        What is allowed, by site.
    limits : dict of str to int
        The strictest of all sites.
    datasets : list of str
        Names of those that the researcher may use at every site.
    """

    dataset: str = ""
    columns: dict[str, dict] = field(default_factory=dict)
    rules: dict[str, dict] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    datasets: list[str] = field(default_factory=list)

    def common_columns(self, wanted: Sequence[str] | None) -> dict:
        """Return what columns hold that are the same at all sites.

        Parameters
        ----------
        wanted : sequence of str or None
            Columns on which they have to agree; None is all.

        Returns
        -------
        columns : dict
        """
        (first, declared), *others = self.columns.items()
        for name, theirs in others:
            different = [
                column
                for column in sorted({*declared, *theirs} if wanted is None else wanted)
                if declared.get(column) != theirs.get(column)
            ]
            if different:
                raise PartitionError(
                    f"sites {first!r} and {name!r} declare the columns {different} of "
                    f"dataset {self.dataset!r} differently: choose others with "
                    "columns=, or have the site files agree"
                )
        return {
            column: kind
            for column, kind in declared.items()
            if all(theirs.get(column) == kind for _, theirs in others)
        }

    def columns_of_each(
        self, wanted: Sequence[str] | None, keys: str | None
    ) -> dict[str, dict]:
        """Return the columns that each site holds, beside keys.

        Parameters
        ----------
        wanted : sequence of str or None
            Which ones; None is all.
        keys : str or None
            Key column that every site must have.

        Returns
        -------
        held : dict of str to dict
            What each column holds, by site; without sites that hold none.
        """
        for keyword, of_parties in {"columns": wanted, "keys": keys}.items():
            if isinstance(of_parties, Mapping):
                raise PartitionError(
                    f"{keyword}= takes names of columns, not a mapping by site: site "
                    "files declare columns, and owner= chooses one of several copies"
                )
        held = {}
        for name, declared in self.columns.items():
            if keys is not None and declared.get(keys) != "key":
                raise PartitionError(
                    f"site {name!r} has no key column {keys!r}; its file can give one "
                    f'this name: {keys} = {{kind = "key", from = "customer_no"}}'
                )
            held[name] = {
                column: kind
                for column, kind in declared.items()
                if kind != "key" and (wanted is None or column in wanted)
            }
        unknown = sorted(set(wanted or ()).difference(*held.values()))
        if unknown:
            raise PartitionError(f"no site has the columns {unknown}")
        return {name: mine for name, mine in held.items() if mine}


def wait_for_sites(
    session: Any,
    sites: Sequence[str] | None,
    deadline: float,
    say: Callable[[str], object],
) -> tuple[str, ...]:
    """Return the names of the sites of a session, once all are connected.

    Parameters
    ----------
    session : nvflare.fuel.flare_api.flare_api.Session
    sites : sequence of str or None
        None is all that are connected.
    deadline : float
        In seconds of ``time.monotonic``.
    say : callable
        Is told once what is waited for.

    Returns
    -------
    sites : tuple of str
    """
    has_said = False
    while True:
        online = {c.name for c in session.get_connected_client_list()}
        if (sites is None and online) or (sites and set(sites) <= online):
            return tuple(sorted(online) if sites is None else sites)
        missing = sorted(set(sites or ["any site"]) - online)
        if not has_said:
            say(f"waiting for {', '.join(missing)} to connect to the server")
            has_said = True
        if time.monotonic() > deadline:
            raise ConnectionError(
                f"not connected to the server: {missing}: are they running, can they "
                "reach it, are their clocks right?"
            )
        time.sleep(0.2)


def introduce(
    relay: Relay,
    sites: Sequence[str],
    dataset: str,
    researcher: Researcher,
    timeout: float,
    deadline: float,
    say: Callable[[str], object],
) -> Introduction:
    """Wait until every site answers; have them check each other's certificates.

    Parameters
    ----------
    relay : Relay
    sites : sequence of str
    dataset : str
    researcher : Researcher
    timeout : float
        Seconds that a site may take to check the others.
    deadline : float
        In seconds of ``time.monotonic``.
    say : callable
        Is told what is waited for.

    Returns
    -------
    introduction : Introduction
    """
    told = _ask_all(relay, sites, dataset, researcher, deadline, say)
    mine = version("skprivbn")
    for name in sites:
        if told[name]["version"] != mine:
            raise ProtocolError(
                f"site {name!r} runs skprivbn {told[name]['version']}, this is "
                f"{mine}: protocols must be the same on all sides"
            )
    meeting = encode({"vouchers": {name: told[name]["voucher"] for name in sites}})
    replies = relay.ask(MEET, dict.fromkeys(sites, meeting), timeout)
    for name in sites:
        read_payload(name, "meet", replies.get(name))
    return Introduction(
        dataset,
        {name: told[name]["columns"] for name in sites},
        {name: told[name]["rules"] for name in sites},
        {
            rule: max(told[name]["limits"].get(rule, 0) for name in sites)
            for rule in LIMITS
        },
        sorted(set.intersection(*(set(told[name]["datasets"]) for name in sites))),
    )


def _ask_all(relay, sites, dataset, researcher, deadline, say):
    """Return what each site says of itself, once all have started the job."""
    voucher = researcher.voucher(relay.job_id)
    message = encode({"dataset": dataset, "researcher": voucher})
    told, waiting = {}, list(sites)
    say(
        "the server and each site start a process for this session, which loads "
        "Python, the engine and scikit-learn: some 10 seconds, more on busy machines"
    )
    while waiting:
        try:
            replies = relay.ask(INTRODUCE, dict.fromkeys(waiting, message), 1.0)
        except ConnectionError:
            replies = {}
            if status := relay.has_ended():
                raise ConnectionError(
                    f"the job ended as {status!r} before the sites were ready: "
                    "their logs say why (was site-policy run on every kit?)"
                ) from None
        for name, reply in replies.items():
            # before a site has started the job, nobody is there
            if reply != LOST:
                told[name] = read_payload(name, "introduce", reply)
                say(f"{name} is ready, {len(told)} of {len(sites)}")
        waiting = [name for name in sites if name not in told]
        if waiting:
            # those that are looked for should have the processors to themselves
            time.sleep(0.3)
            if time.monotonic() > deadline:
                raise _blame(relay.session, sites, waiting)
    return told


def _blame(session, sites, waiting):
    """Return an error that names the sites which are not there."""
    heard = {
        client.name: client.last_connect_time
        for client in session.get_connected_client_list()
    }
    last = max(heard.values(), default=0.0)
    silent = [
        name for name in waiting if last - heard.get(name, -math.inf) > _SILENT_AFTER
    ]
    if silent:
        return ConnectionError(
            f"the server has not heard of the sites {silent} for a while: are they "
            "running, is their network up, are their clocks right? The engine "
            "starts a job only when all sites are there"
        )
    if len(waiting) < len(sites):
        return PartyError(waiting[0], "introduce", "timeout")
    return ConnectionError(
        f"all sites of {list(sites)} are connected, but the job has not "
        "started in time: is another one running, or ready_within too short?"
    )


def read_payload(name, operation, reply):
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


class DryRun:
    """What a fit would ask of the sites, and what they would say.

    Attributes
    ----------
    answers : dict of str to str
        "accepted" or, in a code, why not, by site.
    rounds : list of Round
        What sites would tell at most.
    epsilon : float or None
        What it would cost each site; None if something exact would leave.
    """

    def __init__(
        self, answers: dict[str, str], rounds: list, epsilon: float | None
    ) -> None:
        self.answers, self.rounds, self.epsilon = answers, rounds, epsilon

    @property
    def is_accepted(self) -> bool:
        """Whether all sites would take part."""
        return set(self.answers.values()) == {"accepted"}

    def what_leaves(self) -> LedgerTable:
        """Return a table, in plain words, of what sites would tell at most."""
        rows = [(SEEN_AS[one.kind], one.what) for one in self.rounds]
        return LedgerTable(["as", "what"], rows)

    def __str__(self):
        cost = "none: an exact question" if self.epsilon is None else self.epsilon
        said = [
            f"{site}: {PartyError.REASONS.get(answer, answer)}"
            for site, answer in self.answers.items()
        ]
        return "\n".join([*said, f"epsilon: {cost}", str(self.what_leaves())])

    __repr__ = __str__

    def _repr_html_(self) -> Any:
        said = LedgerTable(["site", "says"], list(self.answers.items()))
        return said._repr_html_() + self.what_leaves()._repr_html_()


class FlareFit(Coordinator):
    """The sites of one fit."""

    connection = "authenticated"
    authentication = (
        "sites were authenticated by their certificates; whoever issued these "
        "(nvflare provision) could impersonate sites unless they made their own keys; "
        "the server, too, sees what the coordinator sees"
    )

    #: seconds between two questions whether somebody has approved
    patience = 2.0

    def __init__(self, relay, sign, approved_within, data, *arguments, **options):
        super().__init__(*arguments, **options)
        self.data = data
        self._carry, self._sign = relay, sign
        self._approved_within = approved_within
        self._joined = False

    def _exchange(self, requests, timeout):
        if self._joined:
            return self._carry(MESSAGE, requests, timeout)
        self._joined = True
        signed = {name: self._sign(request) for name, request in requests.items()}
        deadline = time.monotonic() + self._approved_within
        while True:
            replies = self._carry(JOIN, signed, timeout)
            # All join again: what others have set aside meanwhile may have lapsed.
            if not _is_pending(replies) or time.monotonic() > deadline:
                return replies
            time.sleep(self.patience)

    def _close(self):
        message = encode({})
        with suppress(ConnectionError):
            self._carry(LEAVE, dict.fromkeys(self.roster, message), 1.0)


class DryFit(FlareFit):
    """Asks sites what they would say to a fit, and goes no further."""

    def __enter__(self):
        self._start()

    def _exchange(self, requests, timeout):
        signed = {name: self._sign(request) for name, request in requests.items()}
        replies = self._carry(CONSIDER, signed, timeout)
        answers, epsilons = {}, []
        for name in requests:
            try:
                told = read_payload(name, "dry run", replies.get(name))
            except PartyError as error:
                answers[name] = error.code
            else:
                answers[name] = "accepted"
                epsilons.append(told["epsilon"])
        exact = not epsilons or None in epsilons
        epsilon = None if exact else max(epsilons)
        # unless nobody has said whether there is noise
        rounds = self.program.rounds(noisy=not exact if epsilons else None)
        raise Considered(DryRun(answers, rounds, epsilon))


class Considered(Exception):
    """Ends a fit that is not to be: sites have said what they would do."""

    def __init__(self, report):
        super().__init__("this was a dry run")
        self.report = report


def _is_pending(replies):
    for reply in replies.values():
        with suppress(ProtocolError, KeyError, TypeError):
            if decode(reply).get("code") == "pending":
                return True
    return False
