"""What a question costs at a site, charged in two steps.

A site first reserves the cost, and signs that it takes part. When it has seen that all
sites have, it charges, and only then reads data. A reservation lapses if it comes to
nothing, so that nobody pays for a fit that another site refuses; once charged, nothing
is given back. A coordinator that lies can waste a budget so, and never have an answer
that was not paid for.
"""

import math
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

from skprivbn.exceptions import BudgetExceededError
from skprivbn.federation.program import PartyRefusal
from skprivbn.federation.site._accounts import Accounts
from skprivbn.federation.site._snapshots import Snapshots
from skprivbn.federation.site._state import StateFile
from skprivbn.privacy import PrivacyAccountant, Spend
from skprivbn.privacy._budget_file import BudgetFile

#: noisy fits on one version of the data that may end in a refusal. What is refused
#: tells one bit without noise, at an epsilon as small as the coordinator likes
MAX_REFUSALS = 20
#: how long a reservation holds
RESERVED_FOR = timedelta(minutes=10)


class Account:
    """What one session costs.

    Parameters
    ----------
    dataset : Dataset
    noise : DistributedNoise or None
        None is a fit without differential privacy. Of these, every version of the data
        allows a fixed number.
    session : bytes
    what : str
        For the record.
    """

    def __init__(self, dataset, noise, session, what):
        self._dataset, self._noise, self._what = dataset, noise, what
        self._session = session.hex()
        self._reserved = StateFile(
            f"{dataset.state_file}.reserved.json", {"spends": []}, must_last=False
        )

    def reserve(self):
        """Set the cost aside, if there is enough; no data are read."""
        with self._reserved.locked():
            others, _ = self._read()
            self._check(others)
            self._write([*others, self._entry(self._session)])

    def check(self):
        """Refuse like :meth:`reserve` would; nothing is set aside."""
        with self._reserved.locked():
            self._check(self._read()[0])

    def charge(self):
        """Take what was reserved, for good."""
        with self._reserved.locked():
            others, mine = self._read()
            if not mine:
                # too late: others may have been given what was set aside
                raise PartyRefusal("refused")
            if self._noise is None:
                _write(self._exact_fits(), self._entry(self._what))
            else:
                self._noise.spend(self._accountant(), self._what)
            self._write(others)

    def release(self):
        """Give back what was reserved and not charged."""
        with self._reserved.locked():
            others, mine = self._read()
            if mine:
                self._write(others)

    def count_refusal(self):
        """Write down that a noisy fit, which was charged, ended in a refusal."""
        _write(self._refusals(), Spend(math.inf, 0.0, None, self._what, _now()))

    def _check(self, others):
        if self._noise is not None:
            if self._dataset.budget is None or _n(self._refusals()) >= MAX_REFUSALS:
                raise PartyRefusal("budget-exceeded")
            noisy = [spend for spend in others if spend.epsilon != math.inf]
            mine = self._entry("")
            self._accountant().check(
                mine.epsilon, mine.delta, mine.rho, self._what, besides=noisy
            )
            return
        exact = [spend for spend in others if spend.epsilon == math.inf]
        if _n(self._exact_fits()) + len(exact) >= self._dataset.max_exact_fits:
            raise BudgetExceededError("no exact fit is left")

    def _read(self):
        """Return what others have reserved, and what this session has."""
        now = datetime.now(UTC)
        held = [Spend(**fields) for fields in self._reserved.read()["spends"]]
        # a clock that was set back does not make a reservation hold for ever
        ages = [abs(now - datetime.fromisoformat(spend.at)) for spend in held]
        held = [spend for spend, age in zip(held, ages) if age < RESERVED_FOR]
        mine = [spend for spend in held if spend.what == self._session]
        return [spend for spend in held if spend not in mine], mine

    def _write(self, spends):
        self._reserved.write({"spends": [asdict(spend) for spend in spends]})

    def _entry(self, what):
        noise = self._noise
        if noise is None:
            return Spend(math.inf, 0.0, None, what, _now())
        return Spend(noise.epsilon, noise.delta, noise.rho, what, _now())

    def _accountant(self):
        path = f"{self._dataset.state_file}.budget.json"
        return PrivacyAccountant(*self._dataset.budget, budget_file=path)

    def _exact_fits(self):
        return self._record(Snapshots(self._dataset).version(), "exact")

    def _refusals(self):
        return self._record(self._dataset.version, "refused")

    def _record(self, version, kind):
        path = f"{self._dataset.state_file}.{version}.{kind}.json"
        record = BudgetFile(path, math.inf, 0.0)
        record.create()
        return record


def spent_so_far(dataset):
    """Return the exact fits and the epsilon that the declared version has cost.

    Parameters
    ----------
    dataset : Dataset

    Returns
    -------
    n_exact : int
    epsilon : float
    """
    n_exact, epsilon = 0, 0.0
    is_open = Accounts(dataset).is_open()
    state = dataset.state_file if is_open else dataset.source.old_state
    path = Path(f"{state}.{dataset.version}.exact.json")
    if path.exists():
        n_exact = _n(BudgetFile(path, math.inf, 0.0))
    path = Path(f"{state}.budget.json")
    if dataset.budget is not None and path.exists():
        epsilon = PrivacyAccountant(*dataset.budget, budget_file=path).spent().epsilon
    return n_exact, epsilon


def _now():
    return datetime.now(UTC).isoformat(timespec="seconds")


def _n(record):
    with record.locked():
        return len(record.read())


def _write(record, spend):
    with record.locked():
        record.write([*record.read(), spend])
