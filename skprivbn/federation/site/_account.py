"""What a question costs at a site, charged in two steps.

A site first reserves the cost, and signs that it takes part. Noise is charged when the
site has seen that all have signed, before it reads data. Exact numbers are set aside
when a program announces them and charged when they are about to leave, so that a fit
that is refused or fails costs nothing. What was charged is not given back. A
coordinator that lies can waste a budget so, and never have an answer that was not paid
for.

A refusal is an answer of one bit, which neither noise nor the gate is in front of. So a
session counts as refused from the moment at which data are read until its answer
leaves, and a version of the data has only so many.

An account has the name of its dataset: a file may be renamed, a host be written
otherwise, a password be changed, and the people stay the same. Contents are remembered,
so that a copy, or the same data under another name, is no new account.
"""

import math

from skprivbn.exceptions import BudgetExceededError
from skprivbn.federation.program import PartyRefusal, require
from skprivbn.federation.site._file import ANY_NUMBER
from skprivbn.federation.site._question import Approvals
from skprivbn.federation.site._snapshots import Snapshots
from skprivbn.federation.site._state import SiteState
from skprivbn.privacy import PrivacyAccountant, Spend
from skprivbn.privacy._composition import total_cost


class Account:
    """What one session costs, and what it is charged to.

    Parameters
    ----------
    question : Question
        Which something leaves the site for.
    who : str
        The researcher.
    """

    def __init__(self, question, who):
        self._question, self._who = question, who
        self._dataset, self._noise = question.dataset, question.noise
        self._state = SiteState(self._dataset.state)
        self._approvals = Approvals(question.site_file, self._state)
        self._name = self._dataset.account
        self._mine = self._name, question.agreement.session.hex()
        self._kind = "exact" if self._noise is None else "noisy"
        self._is_held, self._n_announced = False, 0

    def check(self, is_dry=True):
        """Refuse like :meth:`reserve` would; nothing is set aside.

        Parameters
        ----------
        is_dry : bool, default=True
            Whether the question need not wait for the approval of a person.
        """
        self._state.open_account(self._dataset)
        self._look()
        with self._state.transaction():
            self._check_names()
            self._check_cost()
        if self._dataset.approve == "ask" and not is_dry:
            self._approvals.check(self._question, self._who)

    def reserve(self):
        """Set the cost aside, if there is enough; no data are read."""
        self.check(is_dry=False)
        with self._state.transaction():
            self._check_cost()
            self._reserve()

    def begin(self):
        """Charge noise, now that all have signed; look at what is read next."""
        reserved = self._version
        self._look()
        if self._version != reserved:
            raise PartyRefusal("busy", "the data have become another version")
        with self._state.transaction():
            self._check_refusals()
            what = self._question.agreement.protocol
            self._state.add_refusal(*self._mine, self._version, what)
            if self._noise is not None:
                self._hold()

    def announce(self, n_numbers, most=math.inf):
        """Set exact numbers aside that a program is about to hide or return.

        Parameters
        ----------
        n_numbers : int
            That the researcher will read; 0 if only the sites do.
        most : float, default=inf
            That one version of the data may tell.
        """
        if self._noise is not None:
            return
        if not self._is_held:
            self._hold()
        if not n_numbers:
            return
        with self._state.transaction():
            told = self._exact_charges()
            n_told = self._state.told(self._name).get(self._version, (0, 0))[1]
            if n_told + sum(c["announced"] for c in told) + n_numbers > most:
                raise BudgetExceededError("too few exact numbers are left")
            if not self._state.announce(*self._mine, n_numbers):
                # the reservation has lapsed: others may have what was set aside
                self._check_cost()
                self._reserve()
                self._state.announce(*self._mine, n_numbers)
        self._n_announced = n_numbers

    def open(self):
        """Charge what was announced, which leaves the site next."""
        with self._state.transaction():
            if self._n_announced:
                self._charge(self._n_announced)
            if self._n_announced or self._noise is not None:
                # what tells no number, but why there is none, stays a refusal
                self._state.remove_refusal(*self._mine)
        self._n_announced = 0

    def release(self):
        """Give back what was set aside and not charged."""
        self._state.release(*self._mine)

    def hold_roster(self, roster):
        """Remember who asks and with which weights; refuse any others.

        Parameters
        ----------
        roster : iterable of str
        """
        with self._state.transaction():
            self._check_roster(roster)
            first, weights = self._state.asked_by(self._name, self._version)
            weights = self._question.weights or weights
            self._state.set_asked_by(
                self._name, self._version, first or sorted(roster), weights
            )

    def describe(self):
        """Return what the dataset has spent and disclosed so far, in words."""
        return describe_spent(self._state, self._dataset)

    def _look(self):
        """Identify the present content of the data, and its version."""
        if self._noise is not None:
            self._fingerprint = _identify(self._dataset)
            self._version = self._dataset.version
            return
        self._known = self._state.contents(self._name)
        self._content = Snapshots(self._dataset, *self._known).find()
        self._fingerprint = self._content["fingerprint"]
        self._version = self._content["version"]

    def _check_names(self):
        """Refuse data of another account, and another roster of sites or weights."""
        problem = find_problem(self._state, self._dataset, self._fingerprint)
        if problem is not None:
            raise PartyRefusal("other-account", problem)
        if self._noise is None and not self._question.recovers:
            self._check_roster(self._question.agreement.roster)

    def _check_roster(self, roster):
        first, noted = self._state.asked_by(self._name, self._version)
        weights = self._question.weights
        of_version = f"version {self._version} was asked"
        if first not in (None, sorted(roster)):
            why = f"{of_version} by {first} first, now by {sorted(roster)}"
            raise PartyRefusal("other-roster", why)
        # that all rows count alike goes with any weights
        if None not in (weights, noted) and weights != noted:
            raise PartyRefusal("other-weights", f"{of_version} with {noted!r} first")

    def _check_refusals(self):
        """Refuse if too many questions on the same version had no answer."""
        refusals = self._state.charges(self._name, "refused", self._mine[1])
        n_refusals = sum(c["version"] == self._version for c in refusals)
        if n_refusals >= self._dataset.max_refusals:
            raise BudgetExceededError("no refusal is left")

    def _check_cost(self):
        self._check_refusals()
        if self._noise is None:
            if len(self._exact_charges()) >= self._dataset.max_exact_fits:
                raise BudgetExceededError("no exact fit is left")
            return
        name, dataset = self._name, self._dataset
        if dataset.budget is None:
            raise PartyRefusal("budget-exceeded")
        first = self._state.budget(name, *dataset.budget)
        if first != dataset.budget:
            raise ValueError(
                f"the budget of account {name!r} was epsilon={first[0]:g}, "
                f"delta={first[1]:g}, and the site file says another"
            )
        noise, what = self._noise, self._question.agreement.protocol
        spends = _spends(self._state.charges(name, "noisy", self._mine[1]))
        unit = self._question.terms.protects
        other = next((s.unit for s in spends if s.unit not in (None, unit)), None)
        why = f"account {name!r} counts epsilon for {other}, and this is for {unit}"
        require(other is None, "other-unit", why)
        PrivacyAccountant(*dataset.budget).check(
            *(noise.epsilon, noise.delta, noise.rho, what),
            besides=spends,
            unit=unit,
        )

    def _exact_charges(self):
        """Return exact charges and reservations of others on the same version."""
        charges = self._state.charges(self._name, "exact", self._mine[1])
        return [charge for charge in charges if charge["version"] == self._version]

    def _reserve(self):
        cost = {"what": self._question.agreement.protocol}
        if self._noise is not None:
            cost |= {name: getattr(self._noise, name) for name in _COST}
            cost["unit"] = self._question.terms.protects
        self._state.reserve(*self._mine, self._kind, version=self._version, **cost)

    def _hold(self):
        """Remember who asks what of which data; charge if there is noise."""
        name, state = self._name, self._state
        with state.transaction():
            self._check_names()
            state.add_dataset(name, self._dataset.name, self._fingerprint)
            if self._noise is None:
                self._hold_content()
            if self._dataset.approve == "ask":
                self._approvals.use(self._question, self._who)
            if self._noise is not None:
                self._charge()
        self._is_held = True
        kinds = self._dataset.columns.values()
        if "key" in kinds and not self._question.terms.joins_columns():
            self.hold_records()

    def _hold_content(self):
        if self._state.contents(self._name) != self._known:
            raise PartyRefusal("busy", "another question was first about these data")
        if not self._question.recovers:
            self.hold_roster(self._question.agreement.roster)
        if self._content not in self._known[1]:
            self._state.add_content(self._name, self._content)

    def hold_records(self, joined=None):
        """Remember the rows of an exact answer; refuse any that differ by few.

        A peer chooses which records of this site all have: of two answers that are
        about a record more and less, the difference is this record.

        Parameters
        ----------
        joined : tuple of (str, ndarray), default=None
            As of :meth:`Dataset.blocks`.
        """
        if self._noise is not None:
            return
        if not self._is_held:
            self._hold()
        known = self._state.contents(self._name)
        part = Snapshots(self._dataset, *known).find_part(self._content, joined)
        with self._state.transaction():
            if self._state.contents(self._name) != known:
                raise PartyRefusal("busy", "another question was about these data")
            if part is not None:
                self._state.add_content(self._name, part)

    def _charge(self, n_numbers=0):
        if not self._state.charge(*self._mine, n_numbers):
            # too late: others may have been given what was set aside
            raise PartyRefusal("refused", "the reservation has lapsed")


_COST = ("epsilon", "delta", "rho")


def find_problem(state, dataset, fingerprint):
    """Return why a dataset may not be charged to its account, None if it may.

    Parameters
    ----------
    state : SiteState
    dataset : Dataset
    fingerprint : str or None
        Of its content, if that can be read.
    """
    name, account = dataset.name, dataset.account
    named, known = state.accounts_of(name, fingerprint)
    for other in named:
        if other != account:
            return (
                f"dataset {name!r} would be charged to the account {account!r}, and "
                f"was charged to {other!r}: list dataset {other!r} first, or, if it is "
                "about other people, give it another name"
            )
    for other in known:
        if other != account:
            return (
                f"the data of dataset {name!r} were charged to the account {other!r}: "
                "give the dataset this name, by which what was spent on these people "
                "is known"
            )
    return None


def spent_epsilon(dataset, charges):
    """Return what noisy charges cost together, at the delta of the budget.

    Parameters
    ----------
    dataset : Dataset
    charges : iterable of dict

    Returns
    -------
    epsilon : float
    """
    return total_cost(_spends(charges), dataset.budget[1]).epsilon


def describe_spent(state, dataset):
    """Describe what a dataset has spent and disclosed.

    Parameters
    ----------
    state : SiteState
    dataset : Dataset

    Returns
    -------
    words : str
    """
    told, spent = state.told(dataset.account), "no noisy fits"
    if dataset.budget is not None:
        noisy = state.charges(dataset.account, "noisy")
        epsilon = spent_epsilon(dataset, [c for c in noisy if c["is_charged"]])
        spent = f"epsilon {epsilon:.3g} of {dataset.budget[0]:g} spent"
    numbers = [f"{n} of version {version}" for version, (_, n) in told.items()]
    used = f"{told.get(dataset.version, (0, 0))[0]} of {dataset.exact_words} used"
    if dataset.max_exact_fits >= ANY_NUMBER:
        used = f"at most {dataset.exact_words}"
    refused = [c["version"] for c in state.charges(dataset.account, "refused")]
    n_refused = refused.count(dataset.version)
    return (
        f"version {dataset.version}: {used}, {spent}, {n_refused} of "
        f"{dataset.max_refusals} refusals; exact numbers disclosed: "
        f"{', '.join(numbers) or 'none'}"
    )


def look_at_account(dataset):
    """Return what a dataset has spent, and why it cannot be charged; write nothing.

    Parameters
    ----------
    dataset : Dataset

    Returns
    -------
    spent : str
        In words.
    problem : str or None
    """
    with SiteState.copy_for(dataset) as state:
        problem = find_problem(state, dataset, _identify(dataset))
        return describe_spent(state, dataset), problem


def _identify(dataset):
    """Identify what is there, if it can be read: if not, nothing is told of it."""
    try:
        return dataset.fingerprint()
    except (OSError, ValueError, KeyError, IndexError, EOFError):
        return None


def _spends(charges):
    return [Spend(*(c[n] for n in (*_COST, "what", "at", "unit"))) for c in charges]
