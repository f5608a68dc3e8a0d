"""The rules of a site, one function each: what it refuses whatever the data are.

A question is checked against all of them before anything is reserved, charged or read.
Rules that depend on rows (:func:`check_rows`) come after the charge: a refusal tells
one bit about them.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from skprivbn.federation._session import Agreement
from skprivbn.federation.program import PartyRefusal, Program
from skprivbn.privacy import DistributedNoise

#: numbers that parameters may make a party keep beside each of its rows
MAX_PER_ROW = 1 << 12
#: numbers of one table, matrix or list of parameters, whatever the rows are
MAX_NUMBERS = 1 << 24
#: operations of one session, whatever its parameters say
MAX_ROUNDS = 1 << 20


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
    steps : list of estimator
        Fitted transformers that rows go through first.
    n_features : int
        Of the rows after all steps.
    """

    site_file: Any
    dataset: Any
    columns: list
    agreement: Agreement
    program: Program
    terms: Any
    steps: list
    n_features: int

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
        return find_noise(self.terms, self.n_features, self.n_parties)

    @property
    def is_exact(self) -> bool:
        """Whether something leaves without noise."""
        return not self.is_kept and self.noise is None

    @property
    def summed_columns(self) -> list:
        """Columns of which exact sums leave, where small counts are to be hidden."""
        if not self.is_exact or self.dataset.min_cell_count <= 1:
            return []
        return self.terms.summed_columns(self.n_features)

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


def known_backend(question):
    """Sums are hidden by what the site file names."""
    backend = question.agreement.backend
    if backend is not None and backend["name"] not in question.dataset.backends:
        raise PartyRefusal("not-allowed")


def strong_keys(question):
    """Parameters of keys come from the coordinator, who would break weak ones."""
    asked, dataset = question.agreement.backend, question.dataset
    if question.terms.for_tests_only():
        raise PartyRefusal("not-allowed")
    if asked is None:
        return
    try:
        backend = dataset.backends[asked["name"]].load()()
        name = backend.set_params(**asked["parameters"]).preset_name()
    except (TypeError, ValueError):
        raise PartyRefusal("refused") from None
    if name is None or name not in dataset.presets.get(asked["name"], [name]):
        raise PartyRefusal("not-allowed")


def same_columns(question):
    """Sums over rows are of the same columns everywhere.

    Of a column that is constant at the other sites, a sum is that of one site.
    """
    asked = question.agreement.data["X"]
    lists = [asked.get(name) for name in question.agreement.roster]
    if not question.terms.joins_columns() and any(x != lists[0] for x in lists):
        raise PartyRefusal("refused")


def no_rows_shown(question):
    """Options that show single rows need the consent of the site file."""
    if question.terms.shows_rows() and not question.dataset.allow_rows:
        raise PartyRefusal("not-allowed")


def known_models(question):
    """Models that are applied are of estimators that the site file names."""
    check_models(question.dataset, question.terms.models())


def limits_raised(question):
    """Limits in the terms are at least the site's; all sites have the same terms."""
    limits = question.dataset.limits | {"min_parties": question.dataset.min_parties}
    if question.terms.raised_to(limits) is not question.terms:
        raise PartyRefusal("not-allowed")


def small_cells_hidden(question):
    """Exact tables hide counts below ``min_cell_count``, or are not told."""
    shown = question.is_exact and question.terms.shows_small_cells()
    if shown and question.dataset.min_cell_count > 1:
        raise PartyRefusal("small-cells")


def few_rounds(question):
    """No session goes on for ever."""
    rounds = question.terms.rounds(question.n_parties)
    if rounds is not None and rounds > MAX_ROUNDS:
        raise PartyRefusal("too-many-rounds")


def enough_parties(question):
    """A sum over few sites is nearly one site's."""
    if question.n_parties < question.dataset.min_parties:
        raise PartyRefusal("too-few-parties")


def little_memory(question):
    """Parameters take no more memory than any site gives."""
    check_memory(question.terms, question.n_features)


def persons_protected(question):
    """Noise protects persons where the site file wants that, and not single rows.

    The terms say whether the protocol bounds a person; to name the column is not
    enough.
    """
    wanted = question.dataset.individual
    if question.noise is None or wanted is None:
        return
    named = question.agreement.data["aligned"].get("individual") == wanted
    if not named or question.terms.protects != "individuals":
        raise PartyRefusal("not-allowed")


#: all rules that do not depend on rows, in the order in which they are checked
RULES = (
    known_backend,
    strong_keys,
    same_columns,
    no_rows_shown,
    known_models,
    limits_raised,
    few_rounds,
    enough_parties,
    little_memory,
    small_cells_hidden,
    persons_protected,
)


def check_question(question):
    """Refuse what a rule forbids.

    Parameters
    ----------
    question : Question
    """
    for rule in RULES:
        try:
            rule(question)
        except PartyRefusal as refusal:
            refusal.add_note(f"the rule: {rule.__doc__}")
            raise


def check_rows(question, n_rows):
    """Refuse sums about few rows, and a model with too many parameters for them.

    Parameters
    ----------
    question : Question
    n_rows : float
        That count.
    """
    if question.is_exact:
        if n_rows < question.dataset.min_rows:
            why = f"weights leave {n_rows:.3g} rows: fewer than min_rows"
            raise PartyRefusal("too-few-rows", why)
        n_parameters = question.terms.n_parameters(question.n_features)
        if n_parameters > question.dataset.max_parameters_per_row * n_rows:
            why = f"a model of {n_parameters} parameters: see max_parameters_per_row"
            raise PartyRefusal("too-detailed", why)


def is_foreign(program):
    """Tell whether a protocol was written outside of this package.

    Parameters
    ----------
    program : Program

    Returns
    -------
    foreign : bool
    """
    package = __name__.partition(".")[0]
    return program.__module__.partition(".")[0] != package


def check_told(question, n_rows, told):
    """Refuse exact answers with too many numbers for the rows that they are about.

    What terms declare (:meth:`Terms.n_parameters`) is nothing if somebody forgot to:
    numbers that leave are counted, of protocols which this package does not have.

    Parameters
    ----------
    question : Question
    n_rows : float
        That count.
    told : dict of str to int
        Numbers in the longest answer of each operation so far.
    """
    if not question.is_exact or not is_foreign(question.program):
        return
    n_numbers = sum(told.values())
    if n_numbers > question.dataset.max_parameters_per_row * n_rows:
        why = f"answers of {n_numbers} exact numbers: see max_parameters_per_row"
        raise PartyRefusal("too-detailed", why)


def check_models(dataset, models, method=None):
    """Refuse models of estimators that a site file does not name.

    Parameters
    ----------
    dataset : Dataset
    models : list of dict
    method : str, default=None
        That they must have.
    """
    for model in models:
        name = model.get("estimator") if isinstance(model, dict) else None
        if not isinstance(name, str) or name not in dataset.estimators:
            raise PartyRefusal("not-allowed", f"the site file does not name {name!r}")
        if method and not hasattr(dataset.estimators[name].load(), method):
            raise PartyRefusal("not-allowed")


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


def find_noise(terms, n_features, n_parties):
    """Return the noise of a session, None if it releases something without.

    A party trusts no more than half of all, itself included, to add their share.

    Parameters
    ----------
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
    if noise is not None and 2 * noise.min_honest > n_parties + 1:
        raise PartyRefusal("refused")
    return noise
