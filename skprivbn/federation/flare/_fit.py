"""One fit on NVIDIA FLARE: who asks, its messages, and the job that carries them."""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from skprivbn.crypto.certificates import name_of, vouch
from skprivbn.crypto.sealing import Identity
from skprivbn.exceptions import PartyError, ProtocolError
from skprivbn.federation._ledger import LedgerTable
from skprivbn.federation._wire import decode, encode
from skprivbn.federation.coordinator import Coordinator
from skprivbn.federation.flare._policy import CONTROLLER, EXECUTOR
from skprivbn.federation.site._site import CONSIDER, JOIN, LEAVE, MESSAGE, QUESTION


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


#: who reads what programs yield
READERS = {
    "Sum": "the sites, as a sum over all",
    "Release": "the researcher, as a sum over all",
    "Noisy": "everybody, as a sum with noise",
    "Tell": "other sites, sealed",
    "Hear": "heard from the researcher",
}


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
        rows = [(READERS[one.kind], one.what) for one in self.rounds]
        return LedgerTable(["told to", "what"], rows)

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
