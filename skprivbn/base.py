"""What every federated estimator shares."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from skprivbn.crypto import BACKENDS, AdditiveBackend, resolve_backend
from skprivbn.federation import check_received
from skprivbn.partition import check_horizontal
from skprivbn.protocols._applied import add_scores, open_federation
from skprivbn.utils._saved_version import SavedVersionMixin
from skprivbn.utils._sklearn import StrOptions, _fit_context
from skprivbn.utils._typing import TableLike
from skprivbn.utils._validation import validate_table

__all__ = ["BACKEND_CONSTRAINT", "FederatedEstimator", "FederatedMixin"]

BACKEND_CONSTRAINT = [StrOptions(set(BACKENDS)), AdditiveBackend]


class BackendMixin(SavedVersionMixin):
    """Says what to write where a backend that was given by name is to have parameters.

    Attributes
    ----------
    _backends : mapping of str to type
        What the names stand for.
    """

    _backends: Mapping[str, type] = BACKENDS
    #: whether the backend adds vectors of rows, not counts of columns
    _adds_rows = False

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


class FederatedMixin(BackendMixin):
    """Routes `party` through scikit-learn and opens federations.

    Mix into estimators with ``fit(X, y=None, *, party=None)``. The class attribute
    below requests `party` by default, so that pipelines and searches hand it over
    without ``set_fit_request``.
    """

    __metadata_request__fit = {"party": True}
    _adds_rows = True

    def _check_noise_fits(self, noise, unit=1.0):
        """Raise if noise, in a unit, may be more than the backend can add.

        To be called before budget is spent: a party whose noise is too large by
        chance would refuse to go on.
        """
        most = resolve_backend(self.backend).max_sum()
        # exceeded with a probability of e^-40
        if 40 * noise.scale * unit > most:
            raise ValueError(
                f"noise for epsilon={noise.epsilon:g} has the scale "
                f"{noise.scale * unit:.3g}, and so may exceed the largest sum of the "
                f"backend, {most:.3g}; use a larger epsilon or backend='masking'"
            )

    def _federate(self, partition, party_class, terms, *, min_rows=1, **options):
        """Open a federation for one fit; warn of what its roster cannot hide.

        Parameters
        ----------
        partition : HorizontalPartition or VerticalPartition
        party_class : type
        terms : Terms
            Public parameters of the protocol.
        min_rows : int, default=1
        **options
            ``backend`` to override ``self.backend``, and those of ``Federation``.

        Returns
        -------
        federation : Federation
            To be used as a context manager.
        """
        backend = options.pop("backend", self.backend)
        return open_federation(
            partition, party_class, terms, backend, min_rows=min_rows, **options
        )


class FederatedEstimator(FederatedMixin, BaseEstimator):
    """An estimator that learns from rows of several parties, but for what it learns.

    A subclass names its party classes in `protocols` and defines :meth:`_learn`. Input,
    who holds which rows, the secure sums, the ledger, ``score`` and predictions at
    sites are taken care of here. Estimators that sites are to apply define
    :meth:`_learnt_shapes`, and those that they are to score ``_row_scores``.

    Attributes
    ----------
    protocols : tuple of type
        Party classes that the estimator asks data holders to run, and ``ModelParty`` if
        they may apply it.

    See Also
    --------
    skprivbn.federation.Party : A data holder's side.
    skprivbn.federation.Terms : What a protocol says about itself.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.base import FederatedEstimator
    >>> from skprivbn.federation import Party, Terms, operation
    >>> class RangeParty(Party):
    ...     @operation(tells="number and sums of its rows", exact=True)
    ...     def sums(self):
    ...         X = self.finite_numbers()
    ...         return self.hide(np.append(len(X), X.sum(axis=0)))
    >>> class FederatedMean(FederatedEstimator):
    ...     protocols = (RangeParty,)
    ...
    ...     def __init__(self, backend="masking"):
    ...         self.backend = backend
    ...
    ...     def _learn(self, partition):
    ...         with self._federate(partition, RangeParty, Terms()) as federation:
    ...             n, *sums = federation.secure_sum("sums")
    ...         self.mean_, self.ledger_ = np.array(sums) / n, federation.ledger
    >>> X = [[0.0, 2.0], [2.0, 4.0], [4.0, 6.0]]
    >>> FederatedMean().fit(X, party=["north", "south", "west"]).mean_
    array([2., 4.])
    """

    protocols: tuple[type, ...] = ()
    _parameter_constraints: dict = {"backend": BACKEND_CONSTRAINT}

    @_fit_context(prefer_skip_nested_validation=True)
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
            What goes with each row; the name of a column if X is remote.
        party : array-like of shape (n_samples,), default=None
            Who holds each row. None means that one party holds all.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        partition = check_horizontal(self, X, party, dtype=np.float64, aligned={"y": y})
        self._learn(partition)
        return self

    @abstractmethod
    def _learn(self, partition):
        """Set the fitted attributes, `ledger_` among them, from what parties tell.

        Parameters
        ----------
        partition : HorizontalPartition or RemoteRows
            Checked; to be handed to :meth:`_federate`.
        """

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
        raise NotImplementedError(f"{cls.__name__} has no _learnt_shapes")

    def _public_model(self):
        shapes = self._learnt_shapes(self.n_features_in_)
        return {name: np.asarray(getattr(self, name)) for name in shapes}

    @classmethod
    def _from_public_model(cls, model, n_features):
        estimator = cls()
        for name, shape in cls._learnt_shapes(n_features).items():
            setattr(estimator, name, check_received(model[name], shape))
        return estimator

    def score(
        self, X: TableLike, y: ArrayLike | None = None, sample_weight: Any = None
    ) -> float:
        """Return the mean score of rows, wherever they are.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), HorizontalPartition or \
                RemoteRows
            Of rows that parties hold, only the sum of all scores becomes known.
        y : array-like of shape (n_samples,), default=None
            What goes with each row; the name of a column if X is remote.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of rows that are here.

        Returns
        -------
        score : float
        """
        if hasattr(X, "federate"):
            total, n_rows = add_scores(
                self, X, sample_weight, dtype=np.float64, aligned={"y": y}
            )
            return total / n_rows
        beside = {} if y is None else {"y": np.asarray(y)}
        X = validate_table(self, X, reset=False)
        scores = self._row_scores(X, **beside)
        return float(np.average(scores, weights=sample_weight))
