"""The beginning of a session: who is there, and what each site says of itself."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from skprivbn.exceptions import PartitionError, PartyError, ProtocolError
from skprivbn.federation._wire import encode
from skprivbn.federation.flare._fit import Researcher, read_payload
from skprivbn.federation.flare._relay import LOST, Relay
from skprivbn.federation.site._site import INTRODUCE, MEET

#: seconds after which a site, which tells the server every ten that it is there, is not
_SILENT_AFTER = 25.0
_LIMITS = ("min_rows", "min_parties", "min_cell_count")


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
        self, wanted: Sequence[str] | None, key: str | None
    ) -> dict[str, dict]:
        """Return the columns that each site holds, beside keys.

        Parameters
        ----------
        wanted : sequence of str or None
            Which ones; None is all.
        key : str or None
            Column of keys that every site must have.

        Returns
        -------
        held : dict of str to dict
            What each column holds, by site; without sites that hold none.
        """
        held = {}
        for name, declared in self.columns.items():
            if key is not None and declared.get(key) != "key":
                raise PartitionError(
                    f"site {name!r} has no key column {key!r}; its file can give one "
                    f'this name: {key} = {{kind = "key", from = "customer_no"}}'
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
            for rule in _LIMITS
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
