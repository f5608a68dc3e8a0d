"""What stands between the coordinator and the data of a site: its site file.

Terms of a session are checked first and what it costs is reserved. When all sites have
signed them, the cost is charged, and only then are data read.
"""

import re
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from skprivbn.exceptions import ProtocolError
from skprivbn.federation._remote import KEY_ROLES, name_results
from skprivbn.federation._session import Agreement, HostPolicy
from skprivbn.federation._wire import ALL_DIGITS, decode, has_types
from skprivbn.federation.program import PartyRefusal, require
from skprivbn.federation.runner import Runner, public_code
from skprivbn.federation.site._account import Account
from skprivbn.federation.site._audit import ERROR_LOG, ErrorLog, describe
from skprivbn.federation.site._block import (
    check_room,
    check_steps,
    digest_of_rows,
    prepare_rows,
    read_block,
    results_to_keep,
    write_results,
)
from skprivbn.federation.site._question import Question, check_question
from skprivbn.federation.site._state import SiteState, recording

try:
    import resource
except ImportError:  # Windows counts otherwise
    resource = None  # type: ignore[assignment]

#: bytes that a session may take beside what the process has
MAX_BYTES = 1 << 32
#: where Linux says how many pages of private data a process has
_PAGES = Path("/proc/self/statm")
#: exact numbers that sites read of one session, for each row
MAX_SUMMED = 1000.0
#: characters of what is asked that logs have, and those that they do not
MAX_WORDS = 100
_MARKS = re.compile(r"[^\w.]")

#: rounds whose numbers researchers read
_READ_BY_RESEARCHERS = ("Release", "result")
_DATA_TYPES = {
    "dataset": str,
    "X": dict,
    "aligned": dict,
    "steps": list,
    "float": bool,
    "finite": bool,
    "min_rows": int,
    "purpose": str,
}


class SiteHost(Runner):
    """The host of a party whose data are what the site file says.

    Parameters
    ----------
    name : str
    site_file : SiteFile
    identity : Identity
    log : QuestionLog
    """

    def __init__(self, name, site_file, identity, log):
        super().__init__(
            name, {}, self._find_protocol, self._find_backend, identity=identity
        )
        self._site_file, self._log = site_file, log
        self._dataset = None
        self._errors = ErrorLog(site_file.audit_log.with_name(ERROR_LOG))
        #: sessions that were charged: what was signed once is not asked twice
        self._used = set()
        self.researcher = None
        self._question = self._account = None
        self._is_signed = False
        self.asked, self.details = "", {}

    def pin(self, identities):
        """Accept only these identities from now on."""
        self._pins = identities

    def close(self, outcome="cut off"):
        """End the session and forget its keys and state."""
        super().close()
        if self._account is not None:
            self._tell_log(lambda: self._log.remember(spent=self._account.describe()))
        self._settle()
        self._tell_log(self._log.end, outcome)

    def begin(self, message):
        """Answer a request to join, which somebody who may ask has signed."""
        self.close()
        self._is_signed = True
        try:
            return self.handle(message)
        finally:
            self._is_signed = False

    def handle(self, message):
        """Answer one request; a refusal is written down."""
        self.failure = None
        with limited_memory():
            reply = super().handle(message)
        if self.failure is not None:
            columns = self._name_columns(getattr(self.failure, "columns", ()))
            self._errors.write(self.asked, self.failure, columns)
            asked, self._question = self._question, None
            code, known = decode(reply)["code"], {"asked": self.asked, **self.details}
            self._tell_log(self._log.refuse, code, asked, known)
            self._settle()
        return reply

    def write_error(self, error):
        """Write down why something failed, for the people at the site."""
        self._errors.write(self.asked, error)

    def _tell_log(self, write, *arguments):
        """Write something down that has happened, and cannot be refused any more."""
        try:
            write(*arguments)
        except Exception as error:
            self._errors.write(self.asked, error)

    def _settle(self):
        """Give back what was reserved and came to nothing."""
        account, self._account = self._account, None
        if account is not None:
            self._tell_log(account.release)

    def _answer(self, request):
        # for logs, whose lines are the site's own
        self.asked = _MARKS.sub("?", request["operation"][:MAX_WORDS])
        return super()._answer(request)

    def _join(self, agreement):
        """Check the rules of the site and reserve what is asked; data are not read."""
        self._question = None
        self._check_signed()
        question = self._accept(Agreement(agreement))
        self._question, self._policy = question, self._find_policy(question)
        account = None if question.is_kept else Account(question, self.researcher)
        if account is not None:
            with recording():
                account.reserve()
        self._account = account
        greeting = super()._join(agreement)
        with recording():
            self._log.begin(question)
        return greeting

    def _check_signed(self):
        """Refuse a question that nobody who may ask has signed."""
        if not self._is_signed:
            raise PartyRefusal("not-authentic")

    def consider(self, message):
        """Say whether a session would be accepted, and what it would cost.

        Parameters
        ----------
        message : bytes
            Of a request to join.

        Returns
        -------
        answer : dict
            With ``epsilon``, None if something exact would leave.
        """
        self.asked = "dry run"
        self._check_idle()
        try:
            question = self._accept(Agreement(decode(message)["payload"]["agreement"]))
            if not question.is_kept:
                with recording():
                    Account(question, self.researcher).check()
        except Exception as error:
            known = {"asked": self.asked, **self.details}
            self._tell_log(self._log.refuse, public_code(error), None, known)
            raise
        with recording():
            self._log.note("considered", **describe(question))
        return {"epsilon": None if question.noise is None else question.noise.epsilon}

    def _check_idle(self):
        """Refuse in the middle of a session: a dry run is not what all have signed."""
        if self._agreement is not None:
            raise PartyRefusal("refused")

    def _accept(self, agreement):
        """Return a question that the rules of the site allow, whatever its data."""
        if self._pins is None or set(agreement.roster) - set(self._pins):
            raise PartyRefusal("not-authentic")
        if agreement.session in self._used:
            raise PartyRefusal("refused")
        columns, self._dataset = self._find_data(agreement.data)
        self.details = {"dataset": self._dataset.name, "protocol": agreement.protocol}
        program, terms = self._read_terms(agreement)
        question = Question(
            self._site_file, self._dataset, columns, agreement, program, terms
        )
        check_question(question)
        with recording():
            check_steps(question, SiteState(self._dataset.state).models)
        if question.is_kept:
            check_room(self._site_file.results)
        return question

    def _find_policy(self, question):
        # Where answers cost nothing, or next to nothing, the coordinator does not get
        # to ask whether there are so many rows.
        dataset = question.dataset
        wanted = question.agreement.data["min_rows"] if question.is_exact else 1
        return HostPolicy(
            dataset.min_parties,
            max(dataset.min_rows, wanted),
            dataset.allow_rows,
            dataset.max_rounds,
            dataset.min_cell_count,
            max_summed=MAX_SUMMED,
            round_results=dataset.round_results or ALL_DIGITS,
        )

    def _check_rows(self):
        """Do nothing when the session is joined: there are no rows yet."""

    def _load(self):
        """Charge, now that all sites have signed the terms; then read the data."""
        question = self._question
        if self._account is not None:
            with recording():
                self._account.begin()
            self._used.add(question.agreement.session)
        try:
            block = read_block(
                question.dataset, question.columns, question.agreement.data
            )
            block["X"] = prepare_rows(question, block)
        except Exception:
            if not question.is_kept:
                raise
            # Nobody is told that data are missing or unreadable: the result stays here.
            empty = np.full((self._policy.min_rows, question.n_features), np.nan)
            block, self._readable = {"X": empty}, False
        else:
            self._readable = True
        self._block = block
        self._log.remember(rows=len(block["X"]))
        super()._check_rows()

    def _hold_roster(self, roster):
        self._account.hold_roster(roster)

    def _hold_records(self, records):
        """Compare the records of an answer with those of answers before."""
        if self._account is not None:
            column = self._question.agreement.data["aligned"].get("keys")
            joined = column and (column, self._block["keys"][records])
            with recording():
                self._account.hold_records(joined)

    def _hold_survivors(self, names):
        """Take survivors of a recovery as what they are: another roster."""
        if self._question.is_exact:
            with recording():
                self._hold_roster(names)

    def _find_protocol(self, path):
        return self._dataset.protocols.get(path)

    def _find_backend(self, name):
        found = self._dataset.backends.get(name)
        return None if found is None else found.load()()

    def _tells(self, kind, what, n_numbers):
        """Set aside what is about to leave, and refuse too many numbers."""
        if self._account is not None:
            read = n_numbers if kind in _READ_BY_RESEARCHERS else 0
            most = self._dataset.max_exact_numbers * len(self._block["X"])
            with recording():
                self._account.announce(read, most)
        self._log.tells(kind, what)

    def _opens(self):
        """Charge exact numbers, which leave with the next reply."""
        if self._account is not None:
            with recording():
                self._account.open()

    def _learns(self, result):
        """Remember what this site has helped to find, and may be asked to apply."""
        self._log.finish()
        found = results_to_keep(result) if self._question.is_exact else None
        if found is not None:
            rows = digest_of_rows(self._question, len(self._question.steps))
            with recording():
                state = SiteState(self._dataset.state)
                state.add_model(self._dataset.account, rows, found)

    def _name_columns(self, columns):
        """Return the names of columns, or of those that features are made of."""
        if self._question is None:
            return []
        names, beside = self._question.columns, self._question.agreement.data["aligned"]
        for step in self._question.steps:
            made_of = getattr(step, "_columns_behind", step.get_feature_names_out)
            names = list(made_of(names))
        known = dict(enumerate(names)) | beside
        return sorted({str(known[column]) for column in columns if column in known})

    def _keep(self, results):
        """Write results to the site's own folder; nobody is told whether that works."""
        label = self._terms.keeps_results()
        name = name_results(self._dataset.name, label, self._agreement.session)
        named = [c for c, kind in self._dataset.columns.items() if kind == "key"]
        try:
            if results is None or not self._readable:
                raise ValueError("the model cannot be applied")
            write_results(
                self._site_file.results / name,
                label.rpartition(".")[2],
                results,
                self._question.columns,
                self._dataset.source.read(named),
            )
        except Exception as error:
            name = f"failed: {type(error).__name__}"
        self._log.remember(results=name)

    def _find_data(self, data):
        """Return this site's columns and the dataset that they are in."""
        if not has_types(data, _DATA_TYPES):
            raise ProtocolError("malformed description of data")
        dataset = self._site_file.datasets.get(data["dataset"])
        if dataset is None or not dataset.is_for(self.researcher):
            why = f"there is no {data['dataset']!r} for {self.researcher!r}"
            raise PartyRefusal("unknown-dataset", why)
        columns, beside = data["X"].get(self.name), data["aligned"]
        # of clusters there are models without features
        has_rows = isinstance(columns, list) and (columns or "cluster" in beside)
        require(has_rows, "unknown-dataset")
        for role, column in [*(("X", c) for c in columns), *beside.items()]:
            kind = dataset.columns.get(column) if isinstance(column, str) else None
            why = f"the site file declares no {column!r} that may be {role}"
            require(_may_be(role, kind), "unknown-dataset", why)
        # what goes beside the rows does not take their place; one column under many
        # thresholds would be told value by value
        require("X" not in beside and len(set(columns)) == len(columns))
        return columns, dataset


def _may_be(role, kind):
    """Tell whether a column may be used so, as it is declared.

    Keys name people: they are joined in private or stay here, and never become
    features, outcomes or the names of clusters. Who joins tries out which keys are
    there, and records in common are remembered by them: other columns join nothing.
    Names of clusters are told: of a column of numbers they would be its values.
    """
    if role == "keys":
        return kind == "key"
    if "cluster" in role:
        return isinstance(kind, list)
    return kind is not None and (kind != "key" or role in KEY_ROLES)


@contextmanager
def limited_memory(n_bytes=MAX_BYTES):
    """Let this process take so much memory more; else it gets a MemoryError.

    Parameters come from the coordinator: a small message may ask for a million
    components.

    Of Linux, where sites run: others do not count private memory, and there is no
    limit.

    Parameters
    ----------
    n_bytes : int, default=MAX_BYTES
    """
    if resource is None or not _PAGES.exists():
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    n_pages = int(_PAGES.read_text(encoding="ascii").split()[5])
    wanted = n_pages * resource.getpagesize() + n_bytes
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([wanted, *known]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
