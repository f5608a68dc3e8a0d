"""The privacy accountant: what was spent, what is left; in memory or in a file."""

import json
import math
import os
import threading
from collections.abc import Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path

from skprivbn.exceptions import BudgetExceededError
from skprivbn.privacy._composition import (
    UNITS,
    PrivacyCost,
    Spend,
    public_delta,
    total_cost,
)
from skprivbn.utils import html_table
from skprivbn.utils._locked_file import hold_lock, replace_file

_FORMAT = "skprivbn-privacy-budget-1"
_PERSONS = (
    "where a person has at most m rows, epsilon for rows is m epsilon for individuals; "
)
_REPLACED = (
    "to replace a record is to remove one and to add one, so that epsilon for rows is "
    "2 epsilon for values; "
)
#: how to count what is of another unit, by the accountant's and the spend's
_CONVERT = {
    ("rows", "individuals"): _PERSONS
    + "count all on PrivacyAccountant(unit='individuals'), or fit without individual=",
    ("individuals", "rows"): _PERSONS
    + "fit with individual=, or spend(m * epsilon, unit='individuals') yourself",
    ("rows", "values"): _REPLACED
    + "count all on PrivacyAccountant(unit='values'), 2 epsilon for each fit of rows",
    ("values", "rows"): _REPLACED
    + "spend(2 * epsilon, unit='values') yourself and fit without this accountant",
    ("individuals", "values"): "bring the records of a person into one before the fit",
    ("values", "individuals"): "bring the records of a person into one before the fit",
}


class PrivacyAccountant:
    """Adds up the privacy cost of releases, and refuses to exceed the budget.

    One accountant belongs to one set of private rows. Pass it to every estimator
    that is fitted on them: clones made by a grid search or a pipeline keep counting
    on the same object.

    Pure releases add up by their epsilon. Releases that carry `rho` (discrete
    Gaussian noise) add up as zero-concentrated differential privacy, converted to
    an epsilon at the accountant's `delta`. Where both ways hold, the better counts.

    A spend is a reservation: it is recorded, on disk if there is a `budget_file`,
    before data are touched, and never given back, also if the fit fails later.

    Parameters
    ----------
    epsilon : float
        Budget. ``math.inf`` counts without limit.
    delta : float, default=0.0
        Budget for delta. Gaussian noise needs a positive one.
    budget_file : str or path-like, default=None
        JSON file that holds what was spent, locked while it changes, so that
        several processes (``n_jobs=2``) and later sessions count on the same budget.
        It is authoritative: an existing file with another budget is an error.
        Putting back an older copy of it is not detected.
    unit : {"rows", "individuals", "values"} or None, default=None
        Whom the budget protects: one row, added or removed; all rows of one person; or
        the values of one record, of a known number. Spends of another unit are refused
        if the budget has a limit, since their epsilons do not add up. None takes that
        of the first spend.
    n_max : float, default=None
        Public bound on the number of rows, or persons. Estimators with ``delta=None``
        then take :func:`public_delta` of it, at most one in a hundred `n_max`, and so
        does this budget unless its `delta` is larger.

    Attributes
    ----------
    history : tuple of Spend
        Every spend so far: `epsilon`, `delta`, `rho`, `what`, `at`, `unit`.

    See Also
    --------
    PrivateSearchCV : Choose parameters by noisy scores.

    Notes
    -----
    ``clone`` and ``deepcopy`` give the accountant itself. A pickled copy without a
    budget file is closed: it shows its history and refuses to spend, and so does
    the accountant in a forked process. Process-based searches therefore need the
    file, and ``error_score="raise"``, since a search turns errors into NaN scores.

    Examples
    --------
    >>> from skprivbn.privacy import PrivacyAccountant
    >>> accountant = PrivacyAccountant(epsilon=1.0)
    >>> accountant.spend(epsilon=0.25, what="a contingency table")
    PrivacyCost(epsilon=0.25, delta=0.0)
    >>> accountant.remaining()
    PrivacyCost(epsilon=0.75, delta=0.0)
    >>> accountant.spend(epsilon=2.0)
    Traceback (most recent call last):
    ...
    skprivbn.exceptions.BudgetExceededError: ...
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.0,
        budget_file: str | PathLike | None = None,
        unit: str | None = None,
        n_max: float | None = None,
    ) -> None:
        if n_max is not None:
            delta = max(delta, public_delta(n_max))
        if not epsilon > 0:
            raise ValueError(f"epsilon must be positive, got {epsilon!r}")
        if not 0 <= delta < 1:
            raise ValueError(f"delta must be in [0, 1), got {delta!r}")
        if unit not in (None, *UNITS):
            raise ValueError(f"unit must be None or one of {UNITS}, got {unit!r}")
        self.epsilon, self.delta, self.unit = float(epsilon), float(delta), unit
        self.n_max = n_max
        self.budget_file = None if budget_file is None else os.fspath(budget_file)
        self._history = []
        self._closed: str | None = None
        self._start_here()
        if self._file is not None:
            self._file.create()

    def _start_here(self):
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._file = (
            None
            if self.budget_file is None
            else BudgetFile(self.budget_file, self.epsilon, self.delta)
        )

    def spend(
        self,
        epsilon: float | None = None,
        delta: float = 0.0,
        rho: float | None = None,
        what: str = "",
        unit: str | None = None,
    ) -> PrivacyCost:
        """Reserve the cost of one release. Call it before touching data.

        Parameters
        ----------
        epsilon : float, default=None
            The release is (epsilon, delta)-differentially private. ``math.inf``
            announces an exact release, which a limited budget never allows.
        delta : float, default=0.0
            See `epsilon`.
        rho : float, default=None
            The release is rho-zCDP. May come alone, or together with the
            (epsilon, delta) that the same noise gives; the better one counts.
        what : str, default=""
            What is released, in plain words.
        unit : {"rows", "individuals", "values"}, default=None
            What neighbours differ in; None means what the accountant counts.

        Returns
        -------
        PrivacyCost
            Of this release alone, as stated (a spend in `rho` alone is converted):
            what an estimator keeps as ``privacy_spent_``.

        Raises
        ------
        BudgetExceededError
            If the budget does not allow it, or is of another unit. Nothing is recorded
            then: what was refused released nothing.
        """
        spend = _make_spend(epsilon, delta, rho, what, unit)
        with self._counting() as spends:
            self._refuse_excess(spend, spends)
            self._record(spend)
        if spend.epsilon is None:
            cost = total_cost([spend], self.delta)
            return PrivacyCost(cost.epsilon, cost.delta, unit)
        return PrivacyCost(spend.epsilon, spend.delta, unit)

    def check(
        self,
        epsilon: float | None = None,
        delta: float = 0.0,
        rho: float | None = None,
        what: str = "",
        besides: Sequence[Spend] = (),
        unit: str | None = None,
    ) -> None:
        """Raise like :meth:`spend` would, without spending.

        Parameters
        ----------
        epsilon, delta, rho, what, unit :
            Of :meth:`spend`.
        besides : sequence of Spend, default=()
            What else is about to be spent.
        """
        spend = _make_spend(epsilon, delta, rho, what, unit)
        with self._counting() as spends:
            self._refuse_excess(spend, [*spends, *besides])

    def spent(self) -> PrivacyCost:
        """Return the :class:`PrivacyCost` of everything so far."""
        return total_cost(self.history, self.delta)

    def remaining(self) -> PrivacyCost:
        """Return what a further pure release may cost, and the delta left over.

        Further releases counted by `rho` may cost less than their epsilon: use
        :meth:`check` to know.
        """
        return self._remaining(self.history)

    @property
    def history(self) -> tuple:
        """Every spend so far, oldest first."""
        if self._file is not None:
            with self._lock, self._file.locked():
                self._history = self._file.read()
        return tuple(self._history)

    def close(self) -> None:
        """Refuse every later spend of this object."""
        self._closed = "it was closed (its `with` block has ended)"

    def __enter__(self):
        self._raise_if_closed()
        return self

    def __exit__(self, *exc_info):
        self.close()

    @contextmanager
    def _counting(self):
        """Hold the spends against other threads and processes while they change."""
        self._raise_if_closed()
        with self._lock, nullcontext() if self._file is None else self._file.locked():
            if self._file is not None:
                self._history = self._file.read()
            yield self._history

    def _record(self, spend):
        if self._file is not None:
            self._file.write([*self._history, spend])
        self._history.append(spend)

    def _raise_if_closed(self):
        reason = self._closed
        if self._file is None and self._pid != os.getpid():
            reason = "it was carried into another process by a fork"
        if reason is not None:
            raise RuntimeError(
                f"this privacy accountant cannot spend: {reason}. Its budget would be "
                "counted twice. Give PrivacyAccountant a budget_file to count across "
                "processes and sessions, or fit with n_jobs=None."
            )

    def _refuse_excess(self, spend, spends):
        """Raise BudgetExceededError unless a spend fits in beside others."""
        self._refuse_other_unit(spend, spends)
        if not self._fits([*spends, spend]):
            raise BudgetExceededError(self._refusal(spend, spends))

    def _refuse_other_unit(self, spend, spends):
        """Refuse to add up what is about rows with what is about persons."""
        units = [self.unit, *(s.unit for s in spends if s.epsilon != math.inf)]
        known = next((unit for unit in units if unit is not None), None)
        if math.inf in (spend.epsilon, self.epsilon) or None in (known, spend.unit):
            return
        if spend.unit != known:
            what = f" for {spend.what}" if spend.what else ""
            how = _CONVERT[known, spend.unit]
            raise BudgetExceededError(
                f"this accountant counts epsilon for {known}, and the spend{what} is "
                f"for {spend.unit}, which does not add up: {how}, or give it an "
                "accountant of its own"
            )

    def _fits(self, spends):
        if math.isinf(self.epsilon):
            noisy = [spend for spend in spends if spend.epsilon != math.inf]
            return total_cost(noisy, self.delta).epsilon < math.inf
        cost = total_cost(spends, self.delta)
        # ten spends of a tenth must fit, whatever their rounding errors
        return cost.epsilon <= self.epsilon * (1 + 1e-9)

    def _remaining(self, spends):
        spent = total_cost(spends, self.delta)
        if math.isinf(spent.epsilon):
            return PrivacyCost(0.0, 0.0)
        return PrivacyCost(
            max(self.epsilon - spent.epsilon, 0.0), max(self.delta - spent.delta, 0.0)
        )

    def _refusal(self, spend, spends):
        what = f" for {spend.what}" if spend.what else ""
        if any(earlier.epsilon == math.inf for earlier in spends):
            return (
                f"nothing can be spent{what}: an exact release of the same data was "
                "announced before (infinite epsilon), so no budget is left to protect."
            )
        if spend.epsilon == math.inf:
            return (
                f"an exact release{what} has infinite epsilon, but the budget is "
                f"epsilon={self.epsilon:g}. Give the step its own epsilon or public "
                "bounds."
            )
        left = self._remaining(spends)
        if spend.epsilon is None:
            asked = f"rho={spend.rho:g}"
        else:
            asked = f"epsilon={spend.epsilon:g}, delta={spend.delta:g}"
        advice = "Ask for less, stop here, or begin a new budget with new data."
        if self.delta == 0 and (spend.delta > 0 or spend.epsilon is None):
            advice = (
                "This accountant has delta=0, which allows no Gaussian noise: make it "
                "with delta > 0, or use delta=0 (Laplace noise) in the estimator."
            )
        return (
            f"the privacy budget does not allow {asked}{what}: of "
            f"epsilon={self.epsilon:g}, delta={self.delta:g} there is "
            f"epsilon={left.epsilon:g}, delta={left.delta:g} left after "
            f"{len(spends)} spend(s). {advice}"
        )

    def __sklearn_clone__(self):
        return self

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __getstate__(self):
        state = self.__dict__.copy()
        del state["_lock"], state["_file"], state["_pid"]
        if self.budget_file is None:
            state["_closed"] = "it is a copy made by pickling, as for a worker process"
        else:
            state["_history"] = []
            # a worker may run in another directory
            state["budget_file"] = os.path.abspath(self.budget_file)
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        # no create(): a copy whose file is gone must not start a fresh budget
        self._start_here()

    def __repr__(self):
        spent, left = self.spent(), self.remaining()
        unit = "" if self.unit is None else f" for {self.unit}"
        return (
            f"<PrivacyAccountant{unit}: spent epsilon={spent.epsilon:g}, "
            f"delta={spent.delta:g}; left epsilon={left.epsilon:g}, "
            f"delta={left.delta:g}>"
        )

    def _repr_html_(self):
        def words(*numbers):
            return ["" if number is None else f"{number:g}" for number in numbers]

        rows = [
            (s.what, s.unit or "", *words(s.epsilon, s.delta, s.rho))
            for s in self.history
        ]
        rows.append(("spent", "", *words(*self.spent(), None)))
        rows.append(("left", "", *words(*self.remaining(), None)))
        return html_table(["release", "hides", "epsilon", "delta", "rho"], rows)


def _make_spend(epsilon, delta, rho, what, unit):
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Spend(
        None if epsilon is None else float(epsilon),
        float(delta),
        None if rho is None else float(rho),
        str(what),
        now,
        unit,
    )


def check_accountant(
    accountant: PrivacyAccountant | None,
    epsilon: float,
    delta: float = 0.0,
    rho: float | None = None,
    what: str = "",
    unit: str | None = None,
) -> PrivacyAccountant:
    """Return the accountant that a fit is to charge, after checking that it can.

    For use at the start of ``fit``, before data are touched::

        accountant = check_accountant(self.accountant, self.epsilon, self.delta)
        self.privacy_spent_ = accountant.spend(self.epsilon, self.delta, what="...")

    Parameters
    ----------
    accountant : PrivacyAccountant or None
        The user's. None makes one with exactly the budget of this fit.
    epsilon, delta, rho : float
        What the whole fit will cost.
    what : str, default=""
        What is released, in plain words, for the error message.
    unit : {"rows", "individuals", "values"}, default=None
        Of :meth:`PrivacyAccountant.spend`.

    Returns
    -------
    PrivacyAccountant
        Which has enough left.
    """
    if accountant is None:
        return PrivacyAccountant(epsilon, delta)
    if not isinstance(accountant, PrivacyAccountant):
        raise TypeError(
            "accountant must be a PrivacyAccountant or None, got "
            f"{type(accountant).__name__}"
        )
    accountant.check(epsilon, delta, rho, what, unit=unit)
    return accountant


class BudgetFile:
    """Spends of one budget, readable by people, changed under a lock.

    The file is replaced as a whole, after its bytes have reached the disk: a crash
    leaves the old or the new file, never half of one. A damaged file is never taken
    for an empty one.

    Parameters
    ----------
    path : str or path-like
        Where. A second file with the suffix ``.lock`` lies next to it.
    epsilon, delta : float
        The budget; it must be the one that the file was made with.
    """

    def __init__(self, path, epsilon, delta):
        self.path = Path(os.path.realpath(path))
        self.epsilon, self.delta = epsilon, delta

    def create(self):
        """Make an empty file unless there is one; check the budget if there is."""
        with self.locked():
            if not self.path.exists():
                self.write([])
            self.read()

    def locked(self):
        """Hold the lock that every reader and writer takes, also other people's."""
        return hold_lock(self.path, 0o666)

    def read(self):
        """Return the list of spends; a clear error for anything unexpected."""
        *budget, spends = read_budget(self.path)
        if tuple(budget) != (self.epsilon, self.delta):
            raise ValueError(
                f"the budget file {str(self.path)!r} was made for "
                f"epsilon={budget[0]:g}, delta={budget[1]:g}, but this accountant has "
                f"epsilon={self.epsilon:g}, delta={self.delta:g}. Use the file's "
                "budget, or another file for other data."
            )
        return spends

    def write(self, spends):
        """Replace the file, after its new content has reached the disk."""
        content = {
            "format": _FORMAT,
            "epsilon": _to_json(self.epsilon),
            "delta": self.delta,
            "spends": [_spend_to_json(spend) for spend in spends],
        }
        replace_file(self.path, json.dumps(content, indent=1).encode())


def read_budget(path):
    """Read a budget file; a clear error for anything unexpected.

    Parameters
    ----------
    path : Path

    Returns
    -------
    epsilon, delta : float
        The budget that the file was made for.
    spends : list of Spend
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != _FORMAT:
            raise ValueError
        spends = [_spend_from_json(item) for item in content["spends"]]
        return float(content["epsilon"]), float(content["delta"]), spends
    except FileNotFoundError:
        raise FileNotFoundError(
            f"the budget file {str(path)!r} is gone. What was spent is no "
            "longer known, so nothing more can be spent: restore the file."
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(
            f"{str(path)!r} is not a readable budget file. If it is damaged, "
            "restore it: starting anew would forget what was already spent."
        ) from None


def _to_json(value):
    # JSON has no infinity: the word, which float() reads, stands for it
    if value is not None and math.isinf(value):
        return "inf"
    return value


def _spend_to_json(spend):
    fields = asdict(spend)
    return fields | {name: _to_json(fields[name]) for name in ("epsilon", "rho")}


def _spend_from_json(fields):
    numbers = {
        name: None if fields[name] is None else float(fields[name])
        for name in ("epsilon", "delta", "rho")
    }
    words = {name: str(fields[name]) for name in ("what", "at")}
    # files of earlier releases say no unit
    return Spend(**numbers, **words, unit=fields.get("unit"))
