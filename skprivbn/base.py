"""Base classes of federated estimators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skprivbn.crypto import BACKENDS, AdditiveBackend, resolve_backend
from skprivbn.exceptions import PartitionError
from skprivbn.federation import Program, check_received, declare_noise
from skprivbn.federation._session import leaks_of_roster
from skprivbn.partition import check_horizontal, check_vertical, is_partition
from skprivbn.partition._base import holds_columns
from skprivbn.privacy._options import (
    charge,
    note_exact_score,
    note_exact_step,
    share_memory,
    warn_of_exact_step,
    warn_of_fit,
)
from skprivbn.programs._applied import (
    add_scores,
    predict_at_sites,
    transform_at_holders,
)
from skprivbn.utils import tell_progress
from skprivbn.utils._sklearn import (
    CachedParameterNames,
    SavedVersionMixin,
    StrOptions,
    _fit_context,
)
from skprivbn.utils._typing import TableLike

__all__ = [
    "BACKEND_CONSTRAINT",
    "EitherPartitionMixin",
    "FederatedEstimator",
    "PrivateEstimator",
    "RowsMixin",
    "by_holders",
]

BACKEND_CONSTRAINT = [StrOptions(set(BACKENDS)), AdditiveBackend]


class BackendMixin(CachedParameterNames, SavedVersionMixin):
    """Explains how to set parameters of a backend that was given by name.

    Attributes
    ----------
    _backends : mapping of str to type
        The backend of each name.
    """

    _backends: Mapping[str, type] = BACKENDS

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also those of a backend (``backend__preset``).

        Parameters
        ----------
        **params : dict
            Parameters of this estimator.

        Returns
        -------
        self : estimator instance
        """
        backend = params.get("backend", getattr(self, "backend", None))
        prefix = "backend__"
        nested = [key.removeprefix(prefix) for key in params if key.startswith(prefix)]
        if nested and isinstance(backend, str) and backend in self._backends:
            wanted = f"{self._backends[backend].__name__}({nested[0]}=...)"
            raise ValueError(
                f"backend={backend!r} is a name, which has no parameters: set "
                f"backend={wanted} instead of {prefix}{nested[0]}=..."
            )
        return super().set_params(**params)  # type: ignore[misc]


def by_holders(method: Callable) -> Callable:
    """Let sites apply a method to their own rows, if it gets remote rows.

    Predictions stay at the sites; transformed rows can be used in further steps.

    Parameters
    ----------
    method : callable
        ``predict``, ``predict_proba`` or ``transform``, for local rows. Further values
        per row, such as clusters, are keyword arguments; of remote rows, names of
        columns.

    Returns
    -------
    method : callable
    """

    @wraps(method)
    def apply(self, X, **beside):
        check_is_fitted(self)
        is_here, transforms = not is_partition(X), method.__name__ == "transform"
        if not is_here and not transforms:
            return predict_at_sites(self, X, method.__name__, aligned=beside)
        made = method(self, X, **beside) if is_here else transform_at_holders(self, X)
        if transforms:
            note_exact_step(self, X, made)
        return made

    return apply


def _can_score(estimator):
    """Return True if rows have scores; otherwise raise an error with the remedy."""
    if hasattr(estimator, "_row_scores"):
        return True
    raise AttributeError(
        f"{type(estimator).__name__} needs a method _row_scores to be scored; or "
        "scikit-learn's ClassifierMixin or RegressorMixin as the first of its bases, "
        "which score local rows"
    )


class RowsMixin(SavedVersionMixin):
    """Scores and federations of estimators of rows, local or remote.

    Attributes
    ----------
    _row_checks : dict
        Options of scikit-learn's ``check_array`` for rows.
    _fit_checks : dict
        The same for fits only, such as ``ensure_min_samples``.
    """

    _row_checks: ClassVar[dict] = {"dtype": np.float64}
    _fit_checks: ClassVar[dict] = {}
    #: options of `tell_progress`, if the fit has steps: `_learn` then gets a callback
    _steps: ClassVar[dict | None] = None
    #: fitted attributes that not every fit sets: `fit` deletes them first
    _of_some_fits: ClassVar[tuple[str, ...]] = ()
    #: whether its backend adds vectors of rows, not counts of columns
    _adds_rows = False

    def __sklearn_clone__(self) -> Self:
        return share_memory(self, super().__sklearn_clone__())  # type: ignore[misc]

    @property
    def _uses_y(self):
        """Whether there is a target: of classifiers and regressors."""
        return isinstance(self, ClassifierMixin | RegressorMixin)

    def _learn_watched(self, X, y, *checked):
        """Learn, and report progress if the fit has steps."""
        warn_of_exact_step(self, X)
        fitted = vars(self)
        before = {n: fitted.pop(n) for n in self._of_some_fits if n in fitted}
        try:
            if self._steps is None:
                self._learn(*checked)
            else:
                with tell_progress(self, X, y, **self._steps) as progress:
                    self._learn(*checked, progress)
        except BaseException:
            fitted.update(before)  # a fit that fails leaves the last one whole
            raise
        return self

    @available_if(_can_score)
    def score(
        self, X: TableLike, y: ArrayLike | None = None, sample_weight: Any = None
    ) -> float:
        """Return the mean score of rows: the log-likelihood by default.

        The score is exact. For private rows use
        :func:`skprivbn.privacy.private_score`; with a limited accountant, a warning
        says so once.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), HorizontalPartition or \
                RemoteRows
            Of partitions and remote rows, only the sum of all scores is disclosed.
        y : array-like of shape (n_samples,), default=None
            Target of each row, of classifiers and regressors; the name of a column if
            `X` is remote.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of local rows.

        Returns
        -------
        score : float
        """
        if y is not None and not is_partition(X):
            y = np.asarray(y)
        return self._mean_score(X, sample_weight, y=y if self._uses_y else None)

    def _mean_score(self, X, sample_weight=None, **beside):
        check_is_fitted(self)
        beside = {name: value for name, value in beside.items() if value is not None}
        if is_partition(X):
            total, n_rows = self._add_scores(X, sample_weight, **beside)
            return total / n_rows
        note_exact_score(self)
        scores = self._row_scores(X, **beside)
        return float(np.average(scores, weights=sample_weight))

    def _add_scores(self, X, sample_weight=None, **beside):
        """Return the sum of the scores of rows that parties hold, and their number."""
        return add_scores(self, X, sample_weight, aligned=beside)

    def _federate(self, partition, program, terms, backend=None):
        """Open a federation; warn if its backend or its roster disclose more.

        Parameters
        ----------
        partition : HorizontalPartition, VerticalPartition or a handle on remote ones
        program : Program
        terms : Terms
            Its public parameters.
        backend : str or AdditiveBackend, default=None
            The estimator's own if None.

        Returns
        -------
        federation : Coordinator
            To be used as a context manager.
        """
        if not isinstance(program, Program):
            raise TypeError(f"{program!r} is no program: mark it with @program(Terms)")
        if not isinstance(terms, program.terms):
            wanted, got = program.terms.__name__, type(terms).__name__
            raise TypeError(f"{program.__qualname__} takes {wanted}, got {got}")
        # under noise, how many rows a party has is not told, also if there is none
        least, backend = 0 if terms.has_noise() else 1, backend or self.backend
        federation = partition.federate(program, terms, backend, min_rows=least)
        used, names = federation.backend, partition.names
        for leak in leaks_of_roster(used, names, has_noise=terms.has_noise()):
            warn_of_fit(self, leak)
        if getattr(used, "recovery", False):
            federation.on_dropout = "continue"
        return federation


class FederatedEstimator(BackendMixin, RowsMixin, BaseEstimator):
    """Base class of estimators fitted to rows of several parties.

    Subclasses list their programs in `protocols` and implement :meth:`_learn`. This
    class checks the input, assigns rows to parties, and provides secure sums, the
    ledger, ``score`` and predictions at sites. For predictions at sites, subclasses
    define :meth:`_learnt_shapes`, for scores ``_row_scores``. The target reaches
    programs of classifiers and regressors, as ``me.block["y"]``.

    Attributes
    ----------
    protocols : tuple of Program
        Programs that parties run; ``score_rows`` and ``keep_predictions`` allow scores
        and predictions at sites.

    See Also
    --------
    skprivbn.federation.program : Decorator of programs.
    skprivbn.federation.Terms : Public parameters of a program.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.base import FederatedEstimator
    >>> from skprivbn.federation import ALL_ROWS, Sum, Terms, program
    >>> @program(Terms)
    ... def mean(me):
    ...     X = me.numbers()
    ...     sums = np.append(len(X), X.sum(axis=0))
    ...     n, *sums = yield Sum(sums, "number and sums of rows", ALL_ROWS)
    ...     return np.array(sums) / n
    >>> class FederatedMean(FederatedEstimator):
    ...     protocols = (mean,)
    ...
    ...     def __init__(self, backend="masking"):
    ...         self.backend = backend
    ...
    ...     def _learn(self, partition):
    ...         self.mean_ = self._run(partition, mean, Terms())
    >>> X = [[0.0, 2.0], [2.0, 4.0], [4.0, 6.0]]
    >>> FederatedMean().fit(X, party=["north", "south", "west"]).mean_
    array([2., 4.])
    """

    # pipelines and searches pass `party` without set_fit_request
    __metadata_request__fit = {"party": True}
    protocols: tuple[Any, ...] = ()
    #: of estimators without such a parameter
    backend: str | AdditiveBackend = "masking"
    _adds_rows = True
    _parameter_constraints: dict = {"backend": BACKEND_CONSTRAINT}

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(
        self,
        X: TableLike,
        y: ArrayLike | None = None,
        *,
        party: ArrayLike | None = None,
    ) -> Self:
        """Learn from the rows of all parties.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), HorizontalPartition or \
                RemoteRows
            The rows of all parties.
        y : array-like of shape (n_samples,), default=None
            Target of each row, of classifiers and regressors; the name of a column if
            `X` is remote. Others ignore it.
        party : array-like of shape (n_samples,), default=None
            Who holds each row. None means that one party holds all.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        return self._learn_watched(X, y, self._check_rows(X, party, y=y))

    def _check_rows(self, X, party=None, **beside):
        """Return the rows of each party, checked."""
        y = beside["y"] = beside.get("y") if self._uses_y else None
        if self._uses_y and y is None and "y" not in getattr(X, "aligned", ()):
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None: give one value per row, or the name of a column of a partition"
            )
        checks = self._row_checks | self._fit_checks
        if is_partition(X):
            # there may be many parties with one row each
            checks.pop("ensure_min_samples", None)
        if getattr(self, "epsilon", None) is not None:
            # an error would reveal such a row, which no noise hides
            checks |= {"ensure_all_finite": False, "ensure_min_samples": 0}
        return check_horizontal(self, X, party, aligned=beside, **checks)

    @abstractmethod
    def _learn(self, partition):
        """Set the fitted attributes, among them `ledger_`.

        Parameters
        ----------
        partition : HorizontalPartition or RemoteRows
            Checked rows, for :meth:`_run`.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement _learn")

    def _run(self, partition, program, terms, **options):
        """Run a program at the parties, keep the ledger, return the result.

        Parameters
        ----------
        partition : HorizontalPartition or RemoteRows
        program : Program
        terms : Terms
            Its public parameters.
        **options
            Of ``Coordinator.run``.

        Returns
        -------
        result : object
            The return value of the program.
        """
        if terms.has_noise():
            raise TypeError(
                f"{program.__qualname__} adds noise, which costs epsilon: have a "
                "PrivateEstimator call _run_charged"
            )
        return self._run_paid(partition, program, terms, **options)

    def _run_paid(self, partition, program, terms, **options):
        with self._federate(partition, program, terms) as federation:
            result = federation.run(**options)
        self.ledger_ = federation.ledger
        return result

    def _check_noise_fits(self, noise):
        """Raise if the noise may exceed the largest sum of the backend.

        To be called before budget is spent: a party whose noise is too large by
        chance would refuse to continue.
        """
        most = resolve_backend(self.backend).max_sum()
        # exceeded with a probability of e^-40
        if 40 * noise.scale > most:
            raise ValueError(
                f"noise for epsilon={noise.epsilon:g} has the scale "
                f"{noise.scale:.3g}, and so may exceed the largest sum of the "
                f"backend, {most:.3g}; use a larger epsilon or backend='masking'"
            )

    @classmethod
    def _learnt_shapes(cls, n_features):
        """Return names and shapes of the fitted attributes that predictions need.

        Sites refuse arrays of other shapes: one entry per row could isolate single
        rows.

        Parameters
        ----------
        n_features : int

        Returns
        -------
        shapes : dict of str to tuple of int
        """
        raise TypeError(f"{cls.__name__} cannot be applied at sites: no _learnt_shapes")

    def _is_declared(self, declared):
        """Return whether a fitted transformer contains only declared labels.

        Parameters
        ----------
        declared : list of (list or None)
            Labels that a site declares for each column.

        Returns
        -------
        is_declared : bool
        """
        return False

    def _was_found(self, found):
        """Return whether a fitted transformer is the result of a session.

        Before exact questions, sites apply no other.

        Parameters
        ----------
        found : dict
            Part of a result.

        Returns
        -------
        was_found : bool
        """
        return False

    def _public_model(self):
        shapes = self._learnt_shapes(self.n_features_in_)
        return {name: np.asarray(getattr(self, name)) for name in shapes}

    @classmethod
    def _from_public_model(cls, model, n_features):
        estimator = cls()
        for name, shape in cls._learnt_shapes(n_features).items():
            setattr(estimator, name, check_received(model[name], shape))
        return estimator


class PrivateEstimator(FederatedEstimator):
    """Base class of estimators with `epsilon`: noise protects rows or persons.

    A `FederatedEstimator` whose :meth:`_learn` calls :meth:`_run_charged`. Subclasses
    have the parameters or class attributes `epsilon`, `delta`, `accountant` and
    `min_honest`.
    """

    __metadata_request__fit = {"individual": True}

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(
        self,
        X: TableLike,
        y: ArrayLike | None = None,
        *,
        party: ArrayLike | None = None,
        individual: ArrayLike | None = None,
    ) -> Self:
        """Learn from the rows of all parties.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), HorizontalPartition or \
                RemoteRows
            The rows of all parties.
        y : array-like of shape (n_samples,), default=None
            Target of each row, of classifiers and regressors; the name of a column if
            `X` is remote. Others ignore it.
        party : array-like of shape (n_samples,), default=None
            Who holds each row. None means that one party holds all.
        individual : array-like of shape (n_samples,), default=None
            The person of each row, whom `epsilon` protects: all rows of a person
            together count as one row, and rows without a person do not count. The rows
            of a person must be at one party. Ignored without `epsilon`.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        persons = None if self.epsilon is None else individual
        partition = self._check_rows(X, party, y=y, individual=persons)
        return self._learn_watched(X, y, partition)

    def _run_charged(self, partition, program, terms, what, **options):
        """Charge the accountant, run a program at the parties, keep its cost.

        Parameters
        ----------
        partition, program, terms, **options :
            As in :meth:`_run`.
        what : str
            Description of the release for the accountant and the ledger.

        Returns
        -------
        result : object
        """
        # may raise, before budget is spent
        noise = terms.noise(partition.n_features, partition.n_parties)
        spent = charge(self, what, noise, unit=terms.protects)
        result = self._run_paid(partition, program, terms, **options)
        if noise is not None:
            declare_noise(self.ledger_, noise, what, terms.protects)
            self.privacy_spent_ = spent
        return result


class EitherPartitionMixin:
    """For learners of rows that parties hold, or of columns (`parties`)."""

    parties: Any
    _row_checks: dict
    _fit_checks: dict

    def _check_rows(self, X, party=None, **beside):
        if not holds_columns(X) and self.parties is None:
            return super()._check_rows(X, party, **beside)
        if party is not None:
            raise PartitionError(
                "party says who holds rows and parties who holds columns: give one"
            )
        checks = self._row_checks | self._fit_checks
        return check_vertical(self, X, self.parties, **checks)
