"""Questions: what a site is asked, what it refuses, and what waits for a person.

A question is checked against all rules before anything is reserved, charged or read,
whatever the data are. None of the rules knows an estimator. What depends on rows is the
gate's (:mod:`skprivbn.federation.gate`), which counts them in every exact sum. Where
the site file wants it, a person has to approve every question.
"""

import hashlib
import logging
import subprocess
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from skprivbn.exceptions import PartitionError
from skprivbn.federation._models import rebuild_model
from skprivbn.federation._session import Agreement
from skprivbn.federation._wire import encode
from skprivbn.federation.coordinator import MAX_WORDS
from skprivbn.federation.program import PartyRefusal, Program
from skprivbn.federation.site._audit import SEEN_AS, describe, format_record
from skprivbn.federation.site._state import SiteState
from skprivbn.privacy import DistributedNoise

logger = logging.getLogger("skprivbn")

#: where release 0.2 kept them, beside the audit log
OLD_FILE = "skprivbn_approvals.json"
#: questions that wait at the same time
MAX_WAITING = 100
#: of the hash of a question, shown as its number
N_DIGITS = 12


@dataclass(frozen=True)
class Question:
    """One fit, score or prediction that a site is asked to take part in.

    Attributes
    ----------
    site_file : SiteFile
    dataset : Dataset
    columns : list of str
        Of this site, which make up X.
    agreement : Agreement
    program : Program
    terms : Terms
    """

    site_file: Any
    dataset: Any
    columns: list
    agreement: Agreement
    program: Program
    terms: Any

    @cached_property
    def steps(self) -> list:
        """Fitted transformers that rows go through first."""
        made, n_features = [], len(self.columns)
        for step in self.agreement.data["steps"]:
            made.append(rebuild_model(step, n_features))
            n_features = len(made[-1].get_feature_names_out())
        return made

    @property
    def n_features(self) -> int:
        """Number of columns of the rows after all steps."""
        if not self.steps:
            return len(self.columns)
        return len(self.steps[-1].get_feature_names_out())

    @property
    def estimators(self) -> list:
        """Names of the estimators that have such a protocol."""
        return [
            name
            for name, estimator in self.dataset.estimators.items()
            if self.program in estimator.load().protocols
        ]

    @property
    def n_parties(self) -> int:
        """Number of sites that take part."""
        return len(self.agreement.roster)

    @property
    def is_kept(self) -> bool:
        """Whether nothing leaves the site: it keeps results for itself."""
        return self.terms.keeps_results() is not None

    @cached_property
    def noise(self) -> DistributedNoise | None:
        """The noise on all that leaves; None if something exact does, or nothing."""
        if self.is_kept:
            return None
        return self.terms.noise(self.n_features, self.n_parties)

    @property
    def is_exact(self) -> bool:
        """Whether something leaves without noise."""
        return not self.is_kept and self.noise is None

    @property
    def weights(self) -> str | None:
        """The column that says how much rows count."""
        return self.agreement.data["aligned"].get("sample_weight")

    @property
    def recovers(self) -> bool:
        """Whether sums may be opened over fewer sites than the roster has."""
        backend = self.agreement.backend
        wanted = backend is not None and backend["parameters"].get("recovery", False)
        return bool(wanted)


#: rules by their names, in the order in which they are checked
RULES = {}


def rule(code):
    """Make a function a rule: it tells whether a question is allowed.

    Parameters
    ----------
    code : str
        Of the refusal otherwise.

    Returns
    -------
    decorator : callable
    """

    def decorate(function):
        RULES[function.__name__] = code, function
        return function

    return decorate


@rule("not-allowed")
def known_backend(question):
    """Sums are hidden by what the site file names."""
    backend = question.agreement.backend
    return backend is None or backend["name"] in question.dataset.backends


@rule("not-allowed")
def strong_keys(question):
    """Parameters of keys come from the coordinator, who would break weak ones."""
    asked, dataset = question.agreement.backend, question.dataset
    if asked is None or question.terms.for_tests_only():
        return not question.terms.for_tests_only()
    backend = dataset.backends[asked["name"]].load()()
    name = backend.set_params(**asked["parameters"]).preset_name()
    return name is not None and name in dataset.presets.get(asked["name"], [name])


@rule("refused")
def same_columns(question):
    """Sums over rows are of the same columns everywhere.

    Of a column that is constant at the other sites, a sum is that of one site.
    """
    asked = question.agreement.data["X"]
    lists = [asked.get(name) for name in question.agreement.roster]
    return question.terms.joins_columns() or all(x == lists[0] for x in lists)


@rule("not-allowed")
def no_rows_shown(question):
    """Options that show single rows need the consent of the site file."""
    return question.dataset.allow_rows or not question.terms.shows_rows()


@rule("not-allowed")
def known_models(question):
    """Models and steps are of estimators that the site file names."""
    models, steps = question.terms.models(), question.agreement.data["steps"]
    known = question.dataset.estimators
    named = all(model["estimator"] in known for model in [*models, *steps])
    return named and all(
        hasattr(known[step["estimator"]].load(), "transform") for step in steps
    )


@rule("not-allowed")
def limits_raised(question):
    """Limits in the terms are at least the site's; all sites have the same terms."""
    return question.terms.raised_to(question.dataset.limits) is question.terms


@rule("too-few-parties")
def enough_parties(question):
    """A sum over few sites is nearly one site's."""
    return question.n_parties >= question.dataset.min_parties


@rule("refused")
def honest_majority(question):
    """A party trusts no more than half of all, itself included, to add their noise."""
    noise = question.noise
    return noise is None or 2 * noise.min_honest <= question.n_parties + 1


@rule("not-allowed")
def persons_protected(question):
    """Noise protects persons where the site file wants that, and not single rows.

    The terms say whether the protocol bounds a person; to name the column is not
    enough.
    """
    wanted = question.dataset.individual
    if question.noise is None or wanted is None:
        return True
    named = question.agreement.data["aligned"].get("individual") == wanted
    return named and question.terms.protects == "individuals"


def check_question(question):
    """Refuse what a rule forbids, or what makes no sense to it.

    Parameters
    ----------
    question : Question
    """
    for code, allows in RULES.values():
        try:
            if allows(question):
                continue
        except (KeyError, TypeError, ValueError):
            code = "refused"
        raise PartyRefusal(code, f"the rule: {allows.__doc__}")


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
