"""What stands between the coordinator and the data of a site: its site file.

Terms of a session are checked first, then what it costs is written down, and only then
are data read.
"""

import math
from datetime import UTC, datetime
from functools import partial

import numpy as np

from skprivbn.exceptions import BudgetExceededError, ProtocolError
from skprivbn.federation._host import HostPolicy, PartyHost
from skprivbn.federation._models import rebuild_model
from skprivbn.federation._party import PartyRefusal
from skprivbn.federation._remote import KEY_ROLES, name_results
from skprivbn.federation._rows import RowSource, map_rows
from skprivbn.federation._session import Agreement
from skprivbn.federation._wire import decode
from skprivbn.federation.site._errors import ErrorLog
from skprivbn.federation.site._results import check_room, write_results
from skprivbn.privacy import PrivacyAccountant, Spend
from skprivbn.privacy._budget_file import BudgetFile

__all__ = ["SiteHost"]

#: noisy fits on one state of the data that may end in a refusal. What is refused tells
#: one bit without noise, at an epsilon as small as the coordinator likes
MAX_REFUSALS = 20

#: numbers that parameters may make a party keep beside each of its rows
MAX_PER_ROW = 1 << 12
#: numbers of one table, matrix or list of parameters, whatever the rows are
MAX_NUMBERS = 1 << 24
#: operations of one session, whatever its parameters say
MAX_ROUNDS = 1 << 20

#: beside the audit log: why something failed
ERROR_LOG = "skprivbn_errors.log"

_DATA_TYPES = {
    "dataset": str,
    "X": dict,
    "aligned": dict,
    "steps": list,
    "float": bool,
    "finite": bool,
    "min_rows": int,
}


class SiteHost(PartyHost):
    """The host of a party whose data are what the site file says.

    Parameters
    ----------
    name : str
    site_file : SiteFile
    identity : Identity
    """

    def __init__(self, name, site_file, identity):
        super().__init__(
            name, {}, self._find_protocol, self._find_backend, identity=identity
        )
        self._site_file = site_file
        self._dataset = None
        self._errors = ErrorLog(site_file.audit_log.with_name(ERROR_LOG))
        self._is_noisy = False
        self.asked, self.details = "", {}

    def pin(self, identities):
        """Accept only these identities from now on."""
        self._pins = identities

    def close(self):
        """End the session and forget its keys and state."""
        super().close()
        self._is_noisy = False

    def handle(self, message):
        """Answer one request; a noisy fit that ends in a refusal is written down."""
        self.failure = None
        reply = super().handle(message)
        if self.failure is not None:
            self._errors.write(self.asked, self.failure)
        if self._is_noisy and not decode(reply)["ok"]:
            self._is_noisy = False
            count_use(self._dataset, "refused", self.asked)
        return reply

    def _answer(self, request):
        self.asked = request["operation"]
        return super()._answer(request)

    def _join(self, agreement):
        """Check the site file, charge the budget, then read the data."""
        received, agreement = agreement, Agreement(agreement)
        if self._pins is None or set(agreement.roster) - set(self._pins):
            raise PartyRefusal("not-authentic")
        columns, dataset = self._find_data(agreement.data)
        self._dataset, self._columns = dataset, columns
        self.details = {"dataset": dataset.name, "protocol": agreement.protocol}
        party_class, terms = self._read_terms(agreement)
        self._check_terms(terms, agreement)
        if len(agreement.roster) < self._site_file.min_parties:
            raise PartyRefusal("too-few-parties")
        steps, n_features = rebuild_steps(agreement.data["steps"], len(columns))
        check_memory(terms, n_features)
        keeps_results = terms.keeps_results() is not None
        noise = None
        if not keeps_results:
            noise = find_noise(party_class, terms, n_features, len(agreement.roster))
        # Where answers cost nothing, or next to nothing, the coordinator does not get
        # to ask whether there are so many rows.
        is_free = keeps_results or noise is not None
        wanted = 1 if is_free else agreement.data["min_rows"]
        self._policy = HostPolicy(
            self._site_file.min_parties,
            max(dataset.min_rows, wanted),
            dataset.allow_rows,
            dataset.max_rounds,
        )
        if keeps_results:
            check_room(self._site_file.results)
        else:
            check_individual(dataset, terms, noise, agreement.data["aligned"])
            charge(dataset, noise, agreement.protocol)
            self._is_noisy = noise is not None
            self.details["epsilon"] = noise.epsilon if self._is_noisy else None
        try:
            block = read_block(dataset, columns, agreement.data)
            block["X"] = transform_rows(block["X"], steps, noise is not None)
        except Exception:
            if not keeps_results:
                raise
            # Nor what is missing, what cannot be read, and what becomes of the rows.
            block = {"X": np.full((self._policy.min_rows, n_features), np.nan)}
            self._readable = False
        else:
            self._readable = True
        self._block = block
        return super()._join(received)

    def _find_protocol(self, path):
        return self._dataset.protocols.get(path)

    def _find_backend(self, name):
        found = self._dataset.backends.get(name)
        return None if found is None else found.load()()

    def _check_terms(self, terms, agreement):
        """Refuse what the site file does not allow, whatever the data are."""
        dataset, steps = self._dataset, agreement.data["steps"]
        backend = agreement.backend
        if backend is not None and backend["name"] not in dataset.backends:
            raise PartyRefusal("not-allowed")
        # Parameters of keys come from the coordinator, who would break weak ones.
        weak = backend is not None and backend["parameters"].get("insecure_test_key")
        if weak or terms.for_tests_only():
            raise PartyRefusal("not-allowed")
        if terms.shows_rows() and not dataset.allow_rows:
            raise PartyRefusal("not-allowed")
        for model in [*steps, *terms.models()]:
            if _estimator_name(model) not in dataset.estimators:
                raise PartyRefusal("not-allowed")
        for step in steps:
            estimator = dataset.estimators[step["estimator"]].load()
            if not hasattr(estimator, "transform"):
                raise PartyRefusal("not-allowed")
        # The same at all sites: a session in which they differed could not agree.
        limits = {
            "min_rows": dataset.min_rows,
            "min_parties": self._site_file.min_parties,
        }
        if terms.raised_to(limits) is not terms:
            raise PartyRefusal("not-allowed")
        rounds = terms.rounds(len(agreement.roster))
        if rounds is not None and rounds > MAX_ROUNDS:
            raise PartyRefusal("too-many-rounds")

    def _operate(self, name, payload):
        reply = super()._operate(name, payload)
        label = self._terms.keeps_results()
        if label is not None:
            self._keep(self._party.kept, label)
        return reply

    def _keep(self, results, label):
        """Write results down; whether that works is nobody else's business."""
        name = name_results(self._dataset.name, label, self._agreement.session)
        named = [c for c, kind in self._dataset.columns.items() if kind == "key"]
        try:
            if results is None or not self._readable:
                raise ValueError("the model cannot be applied")
            write_results(
                self._site_file.results / name,
                label.rpartition(".")[2],
                results,
                self._columns,
                self._dataset.read(named),
            )
        except Exception as error:
            name = f"failed: {type(error).__name__}"
        self.details["results"] = name

    def _find_data(self, data):
        """Return this site's columns and the dataset that they are in."""
        if {key: type(value) for key, value in data.items()} != _DATA_TYPES:
            raise ProtocolError("malformed description of data")
        dataset = self._site_file.datasets.get(data["dataset"])
        columns = data["X"].get(self.name)
        if dataset is None or not isinstance(columns, list) or not columns:
            raise PartyRefusal("unknown-dataset")
        named = [*columns, *data["aligned"].values()]
        if not all(isinstance(c, str) and c in dataset.columns for c in named):
            raise PartyRefusal("unknown-dataset")
        # Keys name people: they are joined in private or stay here, and never become
        # features, outcomes or the names of clusters.
        shown = [c for role, c in data["aligned"].items() if role not in KEY_ROLES]
        if any(dataset.columns[column] == "key" for column in [*columns, *shown]):
            raise PartyRefusal("unknown-dataset")
        # Names of clusters are told. Of a column of numbers they would be its values.
        clusters = [c for role, c in data["aligned"].items() if "cluster" in role]
        if not all(isinstance(dataset.columns[c], list) for c in clusters):
            raise PartyRefusal("unknown-dataset")
        return columns, dataset


def check_memory(terms, n_features):
    """Refuse parameters that would take more memory than any site gives.

    The limits do not depend on the data: a refusal tells nothing about them.

    Parameters
    ----------
    terms : Terms
    n_features : int
        Columns of the rows that they are about.
    """
    per_row, in_all = terms.memory(n_features)
    check_size(per_row, max(MAX_PER_ROW, n_features))
    check_size(in_all, max(MAX_NUMBERS, n_features**2))


def check_size(n_numbers, most=MAX_NUMBERS):
    """Refuse so many numbers, if they are too many or not a number."""
    if not n_numbers <= most:
        raise PartyRefusal("too-large")


def find_noise(party_class, terms, n_features, n_parties):
    """Return the noise of a session, None if it releases something without.

    A party trusts no more than half of all, itself included, to add their share. Noise
    is that of the party class which declares the terms: a subclass of it may release
    more.

    Parameters
    ----------
    party_class : type
    terms : Terms
    n_features, n_parties : int

    Returns
    -------
    noise : DistributedNoise or None
    """
    try:
        noise = terms.noise(n_features, n_parties)
    except ValueError:
        raise PartyRefusal("refused") from None
    if noise is None or "terms" not in vars(party_class):
        return None
    if 2 * noise.min_honest > n_parties + 1:
        raise PartyRefusal("refused")
    return noise


def _estimator_name(model):
    name = model.get("estimator") if isinstance(model, dict) else None
    return name if isinstance(name, str) else ""


def rebuild_steps(steps, n_features):
    """Return the fitted transformers of a session and the features that come out."""
    made, most = [], max(MAX_PER_ROW, n_features)
    for step in steps:
        made.append(rebuild_model(step, n_features))
        n_features = len(made[-1].get_feature_names_out())
        check_size(n_features, most)
    return made, n_features


def transform_rows(X, steps, is_noisy):
    """Return rows after all steps.

    Steps are the coordinator's: they can be such that one row overflows. To refuse
    then would answer without noise, so that noisy fits take the largest number.
    """

    def transform(rows):
        try:
            for step in steps:
                rows = np.asarray(rows, dtype=np.float64)
                finite = np.all(np.isfinite(rows), axis=1)
                rows = step.transform(rows)
                if is_noisy:
                    rows = np.where(finite[:, None], np.nan_to_num(rows), rows)
        except (TypeError, ValueError):
            raise PartyRefusal("invalid-data") from None
        return rows

    if not steps:
        return X
    return map_rows(X, transform, steps[-1].get_feature_names_out())


def check_individual(dataset, terms, noise, aligned):
    """Refuse noise that protects rows where the site wants it to protect persons.

    Parameters
    ----------
    dataset : Dataset
    terms : Terms
        Say whether the protocol bounds a person; to name the column is not enough.
    noise : DistributedNoise or None
    aligned : dict of str to str
        Columns that go with the rows.
    """
    if noise is None or dataset.individual is None:
        return
    named = aligned.get("individual") == dataset.individual
    if not named or terms.protects != "individuals":
        raise PartyRefusal("not-allowed")


def charge(dataset, noise, what):
    """Reserve what a fit costs, on disk, before any data are touched.

    Parameters
    ----------
    dataset : Dataset
    noise : DistributedNoise or None
        None is a fit without differential privacy. Of these, every state of the data
        allows a fixed number.
    what : str
        For the record.
    """
    if noise is not None:
        if dataset.budget is None or n_uses(dataset, "refused") >= MAX_REFUSALS:
            raise PartyRefusal("budget-exceeded")
        path = f"{dataset.state_file}.budget.json"
        accountant = PrivacyAccountant(*dataset.budget, budget_file=path)
        noise.spend(accountant, what)
        return
    count_use(dataset, "exact", what, dataset.max_exact_fits)


def _uses(dataset, kind):
    """Return the record of what was done with the present state of the data."""
    try:
        snapshot = dataset.fingerprint()[:16]
    except OSError:
        raise PartyRefusal("invalid-data") from None
    record = BudgetFile(f"{dataset.state_file}.{snapshot}.{kind}.json", math.inf, 0.0)
    record.create()
    return record


def n_uses(dataset, kind):
    """Return how often the present state of the data was used in some way."""
    record = _uses(dataset, kind)
    with record.locked():
        return len(record.read())


def count_use(dataset, kind, what, most=math.inf):
    """Write down one more use of the data, unless there were as many as allowed.

    Parameters
    ----------
    dataset : Dataset
    kind : {"exact", "refused"}
        A fit without differential privacy, or one with it that ended in a refusal.
    what : str
        For the record.
    most : int
    """
    record = _uses(dataset, kind)
    with record.locked():
        uses = record.read()
        if len(uses) >= most:
            raise BudgetExceededError("no use of this kind is left")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        record.write([*uses, Spend(math.inf, 0.0, None, what, now)])


def _read_on(source):
    """Read rows in blocks; what is wrong with them is the site's to know."""
    try:
        yield from source.blocks()
    except (OSError, ValueError):
        raise PartyRefusal("invalid-data") from None


def read_block(dataset, columns, data):
    """Return a party's block.

    Parameters
    ----------
    dataset : Dataset
    columns : list of str
        Which make up X, in this order.
    data : dict
        The session's description of data.

    Returns
    -------
    block : dict of str to ndarray
        Rows may also be a ``RowSource``, which is read whenever it is used.
    """
    aligned = data["aligned"]
    try:
        X, values = dataset.read_rows(columns, set(aligned.values()))
    except (OSError, ValueError, KeyError, IndexError, EOFError):
        # A parser's message quotes the cell it stumbled over: it must not travel on.
        raise PartyRefusal("invalid-data") from None

    def check(rows):
        rows = rows.astype(np.float64) if data["float"] else rows
        if data["finite"] and not np.all(np.isfinite(rows)):
            raise PartyRefusal("invalid-data")
        return rows

    if isinstance(X, RowSource):
        X = RowSource(partial(_read_on, X), len(X), X.columns)
    block = {"X": map_rows(X, check)}
    for key, column in aligned.items():
        block[key] = values[column]
        labels = dataset.columns[column]
        if isinstance(labels, list):
            if block[key].dtype.kind == "f":
                raise PartyRefusal("invalid-data")
            block[key] = np.array(labels)[block[key]]
    return block
