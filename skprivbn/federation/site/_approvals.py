"""Questions that wait for a person at the site, where the site file wants that."""

import hashlib
import logging
import subprocess
import threading
from datetime import UTC, datetime

from skprivbn.exceptions import PartitionError
from skprivbn.federation._wire import encode
from skprivbn.federation.coordinator import MAX_WORDS
from skprivbn.federation.program import PartyRefusal
from skprivbn.federation.site._audit import SEEN_AS, describe, format_record
from skprivbn.federation.site._state import SiteState

logger = logging.getLogger("skprivbn")

#: where release 0.2 kept them, beside the audit log
OLD_FILE = "skprivbn_approvals.json"
#: questions that wait at the same time
MAX_WAITING = 100
#: of the hash of a question, shown as its number
N_DIGITS = 12


class Approvals:
    """What people at a site have said to questions.

    Parameters
    ----------
    site_file : SiteFile
    state : SiteState, default=None
        Of which transactions an approval is part; the site file's own if None.
    """

    def __init__(self, site_file, state=None):
        self._state = state or SiteState(site_file.state)
        self._notify = site_file.notify
        self._old = site_file.audit_log.with_name(OLD_FILE)

    def check(self, question, who):
        """Return if somebody has approved the question; else let it wait.

        Parameters
        ----------
        question : Question
        who : str
        """
        digest = _digest(question, who)
        number = digest[:N_DIGITS]
        self._state.import_questions(self._old)
        with self._state.transaction():
            asked = self._state.questions()
            is_new = number not in asked
            if is_new:
                if _n_waiting(asked) >= MAX_WAITING:
                    raise PartyRefusal("denied")
                now = datetime.now(UTC).isoformat(timespec="seconds")
                words = {"time": now, "who": who, "event": "waiting"}
                words |= describe(question) | {"left": _what_leaves(question)}
                asked[number] = words | {"status": "pending", "digest": digest}
                self._state.set_question(number, asked[number])
        entry = asked[number]
        if is_new and self._notify:
            notify(self._notify, f"question {number}\n{format_record(entry)}\n")
        if entry["digest"] != digest:
            # made to have the number of one that looks better
            raise PartyRefusal("denied")
        if entry["status"] == "pending":
            raise PartyRefusal("pending")
        if entry["status"] != "approved":
            raise PartyRefusal("denied", words=entry.get("reason", ""))

    def use(self, question, who):
        """Take an approval: it is for one fit."""
        digest = _digest(question, who)
        number = digest[:N_DIGITS]
        with self._state.transaction():
            entry = self._state.questions().get(number, {})
            if (entry.get("status"), entry.get("digest")) != ("approved", digest):
                raise PartyRefusal("denied")
            self._state.set_question(number, None)

    def waiting(self):
        """Return the questions that wait for an answer, by number."""
        self._state.import_questions(self._old)
        if not self._state.path.exists():
            return {}
        asked = self._state.questions()
        return {n: entry for n, entry in asked.items() if entry["status"] == "pending"}

    def answer(self, number, status, reason=""):
        """Approve or deny a question.

        Parameters
        ----------
        number : str
            As :meth:`waiting` has it.
        status : {"approved", "denied"}
        reason : str, default=""
            Which the researcher reads.
        """
        self._state.import_questions(self._old)
        with self._state.transaction():
            asked = self._state.questions()
            if number not in asked:
                raise PartitionError(f"no question {number!r} waits here")
            said = {"status": status, "reason": reason[:MAX_WORDS]}
            self._state.set_question(number, asked[number] | said)


def notify(command, text):
    """Run a command of the site's choice with a text as its input; do not wait.

    Parameters
    ----------
    command : list of str
        Not given to a shell.
    text : str
    """

    def run():
        try:
            # the site file names it, and no shell reads it
            subprocess.run(  # nosec B603
                command,
                input=text.encode(),
                check=True,
                timeout=60,
                stdout=subprocess.DEVNULL,
            )
        except (OSError, subprocess.SubprocessError) as error:
            logger.warning("notify = %s failed: %s", command, error)

    # a job that ends lets it end, too, whoever's thread this is
    threading.Thread(target=run, daemon=False).start()


def _digest(question, who):
    """Name what is asked: the same again is the same question."""
    agreement = question.agreement
    asked = {
        "who": who,
        "roster": list(agreement.roster),
        "protocol": agreement.protocol,
        "settings": agreement.settings,
        "backend": agreement.backend,
        "data": agreement.data,
    }
    return hashlib.sha256(encode(asked)).hexdigest()


def _n_waiting(state):
    return sum(entry["status"] == "pending" for entry in state.values())


def _what_leaves(question):
    """Return what a party may tell, in the words of the ledger."""
    rounds = question.program.rounds(noisy=question.noise is not None)
    return {f"{what} ({SEEN_AS[kind]})": 1 for kind, what in rounds}
