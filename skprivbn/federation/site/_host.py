"""What stands between the coordinator and the data of a site: its site file.

Terms of a session are checked first, then what it costs is written down, and only then
are data read.
"""

import math
from datetime import UTC, datetime

import numpy as np

from skprivbn.exceptions import BudgetExceededError, ProtocolError
from skprivbn.federation._host import HostPolicy, PartyHost, find_installed_protocol
from skprivbn.federation._models import TRANSFORMERS, rebuild_model
from skprivbn.federation._party import PartyRefusal
from skprivbn.federation._remote import KEY_ROLES, name_results
from skprivbn.federation._session import Agreement
from skprivbn.federation._wire import decode
from skprivbn.federation.site._demands import MAX_PER_ROW, check_demands, check_size
from skprivbn.federation.site._results import check_room, write_results
from skprivbn.privacy import PrivacyAccountant, Spend
from skprivbn.privacy._budget_file import BudgetFile

__all__ = ["SiteHost"]

#: noisy fits on one state of the data that may end in a refusal. What is refused tells
#: one bit without noise, at an epsilon as small as the coordinator likes
MAX_REFUSALS = 20

_DATA_TYPES = {
    "dataset": str,
    "X": dict,
    "aligned": dict,
    "steps": list,
    "float": bool,
    "finite": bool,
    "min_rows": int,
}

#: settings that bound the rounds of a session, and their least values
_ROUNDS = {"max_iter": 0, "n_init": 1}


class SiteHost(PartyHost):
    """The host of a party whose data are what the site file says.

    Parameters
    ----------
    name : str
    site_file : SiteFile
    identity : Identity
    """

    def __init__(self, name, site_file, identity):
        super().__init__(name, {}, find_installed_protocol, identity=identity)
        self._site_file = site_file
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
        reply = super().handle(message)
        if self._is_noisy and not decode(reply)["ok"]:
            self._is_noisy = False
            count_use(self._dataset, "refused", self.asked)
        return reply

    def _answer(self, request):
        self.asked = request["operation"]
        return super()._answer(request)

    def _join(self, terms):
        """Check the site file, charge the budget, then read the data."""
        agreement = Agreement(terms)
        if self._pins is None or set(agreement.roster) - set(self._pins):
            raise PartyRefusal("not-authentic")
        columns, dataset = self._find_data(agreement.data)
        self.details = {"dataset": dataset.name, "protocol": agreement.protocol}
        party_class = None
        if agreement.protocol in dataset.protocols:
            party_class = self._find_protocol(agreement.protocol)
        if party_class is None:
            raise PartyRefusal("not-allowed")
        self._check_terms(party_class, agreement, dataset)
        if len(agreement.roster) < self._site_file.min_parties:
            raise PartyRefusal("too-few-parties")
        steps, n_features = rebuild_steps(agreement.data["steps"], len(columns))
        models = party_class.models(agreement.settings)
        check_demands(agreement.settings, models, n_features)
        keeps_results = party_class.keeps_results(agreement.settings)
        noise = None
        if not keeps_results and "privacy_noise" in vars(party_class):
            noise = party_class.privacy_noise(
                agreement.settings, n_features, len(agreement.roster)
            )
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
        self._dataset, self._columns = dataset, columns
        if keeps_results:
            check_room(self._site_file.results)
        else:
            check_individual(dataset, noise, agreement.data["aligned"])
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
        return super()._join(terms)

    def _check_terms(self, party_class, agreement, dataset):
        """Refuse what the site file does not allow, whatever the data are."""
        settings, backend = agreement.settings, agreement.backend["name"]
        if backend not in (*dataset.backends, "no sums") or has_weak_keys(agreement):
            raise PartyRefusal("not-allowed")
        if party_class.shows_rows(settings) and not dataset.allow_rows:
            raise PartyRefusal("not-allowed")
        steps = agreement.data["steps"]
        if not all(name in TRANSFORMERS for name in map(_estimator_name, steps)):
            raise PartyRefusal("not-allowed")
        applied = [*steps, *party_class.models(settings)]
        if not all(
            name in dataset.estimators for name in map(_estimator_name, applied)
        ):
            raise PartyRefusal("not-allowed")
        # The same at all sites: a session in which they differed could not agree.
        limits = {
            "min_rows": dataset.min_rows,
            "min_parties": self._site_file.min_parties,
        }
        for rule, least in (limits | _ROUNDS).items():
            asked = settings.get(rule, least)
            # what is no number is less than none, and no number of rounds equals it
            if type(asked) is not int or asked < least:
                raise PartyRefusal("not-allowed")

    def _operate(self, name, payload):
        reply = super()._operate(name, payload)
        if self._party.keeps_results(self._agreement.settings):
            self._keep(self._party.kept, self._agreement)
        return reply

    def _keep(self, results, agreement):
        """Write results down; whether that works is nobody else's business."""
        name = name_results(self._dataset.name, agreement.settings, agreement.session)
        named = [c for c, kind in self._dataset.columns.items() if kind == "key"]
        try:
            if results is None or not self._readable:
                raise ValueError("the model cannot be applied")
            write_results(
                self._site_file.results / name,
                agreement.settings["method"],
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
        cluster = data["aligned"].get("cluster")
        if cluster is not None and not isinstance(dataset.columns[cluster], list):
            raise PartyRefusal("unknown-dataset")
        return columns, dataset


def has_weak_keys(agreement):
    """Tell whether a session asks for keys that can be broken, as tests do.

    Parameters of sums and of counts come from the coordinator, who would break them.
    """
    parameters = [agreement.backend["parameters"]]
    parameters.append(agreement.settings.get("backend_parameters", {}))
    return any(chosen.get("insecure_test_key", False) for chosen in parameters)


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
    try:
        for step in steps:
            X = np.asarray(X, dtype=np.float64)
            finite = np.all(np.isfinite(X), axis=1)
            X = step.transform(X)
            if is_noisy:
                X = np.where(finite[:, None], np.nan_to_num(X), X)
    except (TypeError, ValueError):
        raise PartyRefusal("invalid-data") from None
    return X


def check_individual(dataset, noise, aligned):
    """Refuse noise that protects rows where the site wants it to protect persons.

    Parameters
    ----------
    dataset : Dataset
    noise : DistributedNoise or None
    aligned : dict of str to str
        Columns that go with the rows.
    """
    if noise is None or dataset.individual is None:
        return
    if aligned.get("individual") != dataset.individual:
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
    """
    aligned = data["aligned"]
    try:
        values = dataset.read({*columns, *aligned.values()})
    except (OSError, ValueError, KeyError, IndexError, StopIteration, EOFError):
        # A parser's message quotes the cell it stumbled over: it must not travel on.
        raise PartyRefusal("invalid-data") from None
    block = {"X": np.column_stack([values[column] for column in columns])}
    if data["float"]:
        block["X"] = block["X"].astype(np.float64)
    if data["finite"] and not np.all(np.isfinite(block["X"])):
        raise PartyRefusal("invalid-data")
    for key, column in aligned.items():
        block[key] = values[column]
        labels = dataset.columns[column]
        if isinstance(labels, list):
            if block[key].dtype.kind == "f":
                raise PartyRefusal("invalid-data")
            block[key] = np.array(labels)[block[key]]
    return block
