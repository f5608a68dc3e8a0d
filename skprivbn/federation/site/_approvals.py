"""Questions that wait for a person at the site, where the site file wants that."""

import hashlib
from datetime import UTC, datetime

from skprivbn.exceptions import PartitionError
from skprivbn.federation._wire import encode
from skprivbn.federation.program import PartyRefusal
from skprivbn.federation.site._audit import SEEN_AS, describe
from skprivbn.federation.site._state import StateFile

#: name of the file, beside the audit log
APPROVALS = "skprivbn_approvals.json"
#: questions that wait at the same time
MAX_WAITING = 100
#: of the hash of a question, shown as its number
N_DIGITS = 12


class Approvals:
    """What people at a site have said to questions.

    Parameters
    ----------
    path : path-like
    """

    def __init__(self, path):
        self._file = StateFile(path, {})

    def check(self, question, who):
        """Return if somebody has approved the question; else let it wait.

        Parameters
        ----------
        question : Question
        who : str
        """
        digest = _digest(question, who)
        number = digest[:N_DIGITS]
        with self._file.locked():
            state = self._file.read()
            entry = state.get(number)
            if entry is None:
                if _n_waiting(state) >= MAX_WAITING:
                    raise PartyRefusal("denied")
                now = datetime.now(UTC).isoformat(timespec="seconds")
                words = {"who": who, "event": "waiting", **describe(question)}
                words["left"] = _what_leaves(question)
                state[number] = {
                    "time": now,
                    "status": "pending",
                    "digest": digest,
                    **words,
                }
                self._file.write(state)
                raise PartyRefusal("pending")
        if entry["digest"] != digest:
            # made to have the number of one that looks better
            raise PartyRefusal("denied")
        if entry["status"] != "approved":
            raise PartyRefusal("pending" if entry["status"] == "pending" else "denied")

    def use(self, question, who):
        """Take an approval: it is for one fit."""
        digest = _digest(question, who)
        number = digest[:N_DIGITS]
        with self._file.locked():
            state = self._file.read()
            entry = state.get(number, {})
            if (entry.get("status"), entry.get("digest")) != ("approved", digest):
                raise PartyRefusal("denied")
            del state[number]
            self._file.write(state)

    def waiting(self):
        """Return the questions that wait for an answer, by number."""
        state = self._file.read()
        return {n: entry for n, entry in state.items() if entry["status"] == "pending"}

    def answer(self, number, status):
        """Approve or deny a question.

        Parameters
        ----------
        number : str
            As :meth:`waiting` has it.
        status : {"approved", "denied"}
        """
        with self._file.locked():
            state = self._file.read()
            if number not in state:
                raise PartitionError(f"no question {number!r} waits here")
            state[number]["status"] = status
            self._file.write(state)


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
