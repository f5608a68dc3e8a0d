"""One fit on NVIDIA FLARE: its messages, and the job that carries them."""

import json
import time
from contextlib import suppress

from skprivbn.exceptions import PartyError, ProtocolError
from skprivbn.federation._wire import decode, encode
from skprivbn.federation.coordinator import Coordinator
from skprivbn.federation.flare._policy import CONTROLLER, EXECUTOR
from skprivbn.federation.flare._researcher import DryRun
from skprivbn.federation.site._site import CONSIDER, JOIN, LEAVE, MESSAGE


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
