"""What every federated estimator shares."""

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
from skprivbn.federation import check_received, declare_noise
from skprivbn.federation._session import warn_of_roster
from skprivbn.partition import check_horizontal, check_vertical, is_partition
from skprivbn.partition._base import holds_columns
from skprivbn.privacy._options import (
    UncountedFitsMixin,
    charge,
    note_exact_score,
    note_exact_step,
    warn_of_exact_step,
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
    """Says what to write where a backend that was given by name is to have parameters.

    Attributes
    ----------
    _backends : mapping of str to type
        What the names stand for.
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
    """Let parties apply a method to rows that stay with them.

    What sites predict, they keep; what they transform is used from there.

    Parameters
    ----------
    method : callable
        ``predict``, ``predict_proba`` or ``transform``, for rows that are here. What
        goes beside rows are keyword arguments; of remote rows, names of columns.

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
    """Tell whether there are scores of rows, or say what to write."""
    if hasattr(estimator, "_row_scores"):
        return True
    raise AttributeError(
        f"{type(estimator).__name__} needs a method _row_scores to be scored; or "
        "scikit-learn's ClassifierMixin or RegressorMixin as the first of its bases, "
        "which score rows that are here"
    )


class RowsMixin(SavedVersionMixin):
    """What a fitted estimator does with rows, be they here or with their holders.

    Attributes
    ----------
    _row_checks : dict
        What rows must be: options of scikit-learn's ``check_array``.
    _fit_checks : dict
        The same for fits only, such as ``ensure_min_samples``.
    """

    _row_checks: ClassVar[dict] = {"dtype": np.float64}
    _fit_checks: ClassVar[dict] = {}
    #: options of `tell_progress`: a fit in steps, which `_learn` then gets to tell of
    _steps: ClassVar[dict | None] = None
    #: fitted attributes that not every fit has: a new one forgets them
    _of_some_fits: ClassVar[tuple[str, ...]] = ()
    #: whether its backend adds vectors of rows, not counts of columns
    _adds_rows = False

    @property
    def _uses_y(self):
        """Whether `y` goes with the rows."""
        return isinstance(self, ClassifierMixin | RegressorMixin)

    def _learn_watched(self, X, y, *checked):
        """Learn, and tell whoever watches of every step, if there are steps."""
        warn_of_exact_step(self, X)
        for name in self._of_some_fits:
            vars(self).pop(name, None)
        if self._steps is None:
            self._learn(*checked)
        else:
            with tell_progress(self, X, y, **self._steps) as progress:
                self._learn(*checked, progress)
        return self

    @available_if(_can_score)
    def score(
        self, X: TableLike, y: ArrayLike | None = None, sample_weight: Any = None
    ) -> float:
        """Return the mean score of rows: their log-likelihood, unless said otherwise.

        It is an exact function of the rows. If they are private themselves, use
        :func:`skprivbn.privacy.private_score`; with a limited accountant, a warning
        says so once.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), HorizontalPartition or \
                RemoteRows
            Of rows that parties hold, only the sum of all scores becomes known.
        y : array-like of shape (n_samples,), default=None
            What goes with each row, where that is used; the name of a column if X is
            remote.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of rows that are here.

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
        """Open a federation; warn of what its backend and its roster cannot hide.

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
        # under noise, how many rows a party has is not told, also if there is none
        least, backend = 0 if terms.has_noise() else 1, backend or self.backend
        federation = partition.federate(program, terms, backend, min_rows=least)
        used, n_parties = federation.backend, partition.n_parties
        warn_of_roster(used, n_parties, has_noise=terms.has_noise())
        if getattr(used, "recovery", False):
            federation.on_dropout = "continue"
        return federation


class FederatedEstimator(BackendMixin, RowsMixin, BaseEstimator):
    """Base class of estimators fitted to rows of several parties.

    Subclasses name their programs in `protocols` and implement :meth:`_learn`. Input,
    who holds which rows, the secure sums, the ledger, ``score`` and predictions at
    sites are taken care of here. Estimators that sites are to apply define
    :meth:`_learnt_shapes`, and those that they are to score ``_row_scores``.

    Attributes
    ----------
    protocols : tuple of Program
        What the estimator asks data holders to run; ``score_rows`` and
        ``keep_predictions`` among them if they may apply it.

    See Also
    --------
    skprivbn.federation.program : What a protocol may say.
    skprivbn.federation.Terms : Its public parameters.

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

    # pipelines and searches hand `party` over without set_fit_request
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
            What goes with each row, where that is used; the name of a column if X is
            remote.
        party : array-like of shape (n_samples,), default=None
            Who holds each row. None means that one party holds all.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        if self._uses_y and y is None and "y" not in getattr(X, "aligned", ()):
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None: give one value per row, or the name of a column of a partition"
            )
        partition = self._check_rows(X, party, y=y if self._uses_y else None)
        return self._learn_watched(X, y, partition)

    def _check_rows(self, X, party=None, **beside):
        """Return the rows of each party, or say what is wrong with them."""
        checks = self._row_checks | self._fit_checks
        if is_partition(X):
            # there may be many parties with one row each
            checks.pop("ensure_min_samples", None)
        if getattr(self, "epsilon", None) is not None:
            # an error would tell that there is such a row, which no noise hides
            checks |= {"ensure_all_finite": False, "ensure_min_samples": 0}
        return check_horizontal(self, X, party, aligned=beside, **checks)

    @abstractmethod
    def _learn(self, partition):
        """Set the fitted attributes, `ledger_` among them, from what parties tell.

        Parameters
        ----------
        partition : HorizontalPartition or RemoteRows
            Checked; to be handed to :meth:`_federate`.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement _learn")

    def _run(self, partition, program, terms, **options):
        """Have the parties run a program; keep the ledger, return what they found.

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
            What the program returned.
        """
        with self._federate(partition, program, terms) as federation:
            result = federation.run(**options)
        self.ledger_ = federation.ledger
        return result

    def _check_noise_fits(self, noise):
        """Raise if noise may be more than the backend can add.

        To be called before budget is spent: a party whose noise is too large by
        chance would refuse to go on.
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
        """Return names and shapes of the fitted attributes that make a prediction.

        Sites refuse arrays of any other shape: one with an entry for every row could
        pick out single rows.

        Parameters
        ----------
        n_features : int

        Returns
        -------
        shapes : dict of str to tuple of int
        """
        raise TypeError(f"{cls.__name__} cannot be applied at sites: no _learnt_shapes")

    def _is_declared(self, declared):
        """Tell whether a fitted transformer says no more than what columns declare.

        Parameters
        ----------
        declared : list of (list or None)
            Labels that a site declares of each column, as rows have them.

        Returns
        -------
        is_declared : bool
        """
        return False

    def _was_found(self, found):
        """Tell whether a fitted transformer is what parties found together.

        Sites apply no other, but in front of noise or scores.

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


class PrivateEstimator(UncountedFitsMixin, FederatedEstimator):
    """A federated estimator with `epsilon`, whose noise hides rows or persons."""

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
        y : Ignored
            Not used, present for API consistency by convention.
        party : array-like of shape (n_samples,), default=None
            Who holds each row. None means that one party holds all.
        individual : array-like of shape (n_samples,), default=None
            The person behind each row, whom `epsilon` is to protect: all rows of a
            person count as one row together, and those of nobody known not at all. A
            person's rows must be with one party. Without `epsilon` it changes nothing.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        persons = None if self.epsilon is None else individual
        return self._learn_watched(X, y, self._check_rows(X, party, individual=persons))

    def _run_charged(self, partition, program, terms, what, **options):
        """Have the parties run a program, once the fit is paid for; keep its cost.

        Parameters
        ----------
        partition, program, terms, **options :
            As in :meth:`_run`.
        what : str
            What is released, in plain words.

        Returns
        -------
        result : object
        """
        # may raise, before budget is spent
        noise = terms.noise(partition.n_features, partition.n_parties)
        spent = charge(self, what, noise, unit=terms.protects)
        result = self._run(partition, program, terms, **options)
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
