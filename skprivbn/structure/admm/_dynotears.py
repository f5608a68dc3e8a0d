"""DYNOTEARS by consensus ADMM over holders of time series."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skprivbn.base import FederatedEstimator, by_holders
from skprivbn.bayesian_network import GaussianBayesianNetwork
from skprivbn.bayesian_network._gaussian import normal_log_density
from skprivbn.crypto import AdditiveBackend
from skprivbn.exceptions import PartitionError
from skprivbn.federation import check_received
from skprivbn.partition import HorizontalPartition, RemoteResults, check_horizontal
from skprivbn.programs import keep_predictions, score_rows
from skprivbn.structure._learnt import (
    public_network,
    read_network,
    warn_if_units_differ,
)
from skprivbn.structure.admm._notears import ADMMMixin
from skprivbn.structure.admm._program import admm, lagged_rows
from skprivbn.utils import column_names, warn_user
from skprivbn.utils._sklearn import Interval, _fit_context
from skprivbn.utils._typing import TableLike, WeightsLike


class FederatedDynotears(ADMMMixin, FederatedEstimator):
    """Learn a dynamic network from time series of several parties.

    Every variable is a linear function of other variables at the same time (without
    cycles) and of all variables at earlier times. The rounds are those of
    :class:`FederatedNotearsADMM` with both kinds of weights as parameters.

    Read more in the :ref:`User Guide <structure_federated>`.

    Parameters
    ----------
    n_lags : int, default=1
        How many earlier times act on the present.
    lambda1 : float, default=0.02
        Weight of the absolute values of the instantaneous effects.
    lagged_lambda1 : float, default=0.02
        Weight of the absolute values of the lagged effects.
    threshold : float, default=0.3
        Instantaneous effects of at most this size are no edge.
    lagged_threshold : float, default=0.1
        The same for lagged effects.
    admm_params : dict, default=None
        Settings of the rounds that are not to have their defaults, as of
        :class:`FederatedNotearsADMM`: ``"rho1"`` (0.001), ``"rho2"`` (0.01 divided by
        the number of parties), ``"gamma1"`` (1.75), ``"gamma2"`` (1.2), ``"h_tol"``
        (1e-5), ``"acyclicity"`` (``"logdet"``), ``"loss_scale"`` (1).
    max_iter : int, default=200
        Bound on the rounds.
    tol : float, default=0.01
        Relative distance of the parties to the consensus at which they agree.
    backend : str or AdditiveBackend, default="masking"
        How sums are hidden.
    verbose : int, default=0
        1 prints every tenth round, 2 every one.

    Attributes
    ----------
    weights_ : ndarray of shape (n_features, n_features)
        Raw instantaneous effects; entry (i, j) is that of i on j.
    lagged_weights_ : ndarray of shape (n_lags, n_features, n_features)
        Raw lagged effects, of the time before first.
    adjacency_matrix_ : ndarray of bool of shape (n_features, n_features)
        Instantaneous edges, acyclic.
    lagged_adjacency_matrix_ : ndarray of bool of shape (n_lags, n_features, n_features)
        Lagged edges.
    network_ : GaussianBayesianNetwork
        Distribution of the present given that the past is at its mean.
    mean_ : ndarray of shape (n_features,)
        Means of the variables over all series.
    n_iter_ : int
        Number of rounds.
    h_ : float
        Measure of the cycles left in the raw weights.
    consensus_distance_ : float
        Distance of the parties to the consensus.
    converged_ : bool
        Whether both tolerances were met.
    n_samples_ : int
        Number of times with a complete past.
    ledger_ : Ledger
        Every message of the last fit, and who learnt what.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if `X` has string names.

    See Also
    --------
    FederatedNotearsADMM : The same without time.

    References
    ----------
    .. [1] Pamfil et al. DYNOTEARS: structure learning from time-series data.
       AISTATS 2020.

    Examples
    --------
    >>> import warnings
    >>> from skprivbn.datasets import make_var_sem
    >>> from skprivbn.exceptions import PrivacyLeakWarning
    >>> from skprivbn.structure import FederatedDynotears
    >>> X, series, W, A = make_var_sem(100, 4, n_series=6, random_state=0)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", PrivacyLeakWarning)
    ...     model = FederatedDynotears().fit(X, series=series, party=series % 3)
    >>> model.lagged_weights_.shape
    (1, 4, 4)
    """

    __metadata_request__fit = {"party": True, "series": True}
    __metadata_request__score = {"series": True}
    __metadata_request__predict = {"series": True}

    protocols = (admm, score_rows, keep_predictions)
    _parameter_constraints = {
        **ADMMMixin._parameter_constraints,
        "n_lags": [Interval(Integral, 1, None, closed="left")],
        "lambda1": [Interval(Real, 0, None, closed="left")],
        "lagged_lambda1": [Interval(Real, 0, None, closed="left")],
        "lagged_threshold": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        n_lags: int = 1,
        *,
        lambda1: float = 0.02,
        lagged_lambda1: float = 0.02,
        threshold: float = 0.3,
        lagged_threshold: float = 0.1,
        admm_params: dict | None = None,
        max_iter: int = 200,
        tol: float = 1e-2,
        backend: str | AdditiveBackend = "masking",
        verbose: int = 0,
    ) -> None:
        self.n_lags = n_lags
        self.lambda1 = lambda1
        self.lagged_lambda1 = lagged_lambda1
        self.threshold = threshold
        self.lagged_threshold = lagged_threshold
        self.admm_params = admm_params
        self.max_iter = max_iter
        self.tol = tol
        self.backend = backend
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: TableLike,
        y: object = None,
        *,
        party: ArrayLike | None = None,
        series: Any = None,
    ) -> Self:
        """Learn the dynamic network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or HorizontalPartition
            Observations in order of time, one series after the other. A partition may
            carry ``series`` next to the rows.
        y : Ignored
            Not used, present for API consistency by convention.
        party : array-like of shape (n_samples,), default=None
            Who holds each row. None means that one party holds all. A series is held
            by one party, or by several one after the other.
        series : array-like of shape (n_samples,), default=None
            Independent series that rows belong to; all rows of a party are one series
            if None.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        _warn_of_unused(y, series)
        return self._learn_watched(X, y, self._check_rows(X, party, series=series))

    @property
    def _fit_checks(self):
        return {"ensure_min_features": 2, "ensure_min_samples": self.n_lags + 2}

    def _learn(self, partition, progress):
        _refuse_turns(partition)
        d, n_lags = self.n_features_in_, int(self.n_lags)
        problem = {
            "n_free": n_lags * d * d,
            "lambda1": self.lambda1,
            "lambda_free": self.lagged_lambda1,
        }
        terms = self._terms(
            partition.n_parties,
            problem,
            rho1=1e-3,
            rho2=1e-2,
            gamma2=1.2,
            loss_scale=1.0,
            n_lags=n_lags,
            lagged_threshold=self.lagged_threshold,
        )
        found = self._agree(partition, terms, progress)
        self.n_samples_, self.mean_ = found["n_rows"], found["mean"]
        effects = found["parameters"].reshape(-1, d, d)
        self.weights_, self.lagged_weights_ = effects[0], effects[1:]
        kept = terms.kept(found["parameters"]).reshape(-1, d, d)
        present, self._past = kept[0], kept[1:]
        self.adjacency_matrix_ = present != 0
        self.lagged_adjacency_matrix_ = self._past != 0
        self.network_ = GaussianBayesianNetwork(
            column_names(self),
            present,
            self.mean_ - self.mean_ @ present,
            found["noise"],
        )
        warn_if_units_differ(self.network_, self.n_samples_, "DYNOTEARS")
        self._warn_of_trajectory(partition.n_parties, (n_lags + 1) * d)

    def _lagged(self, X, series):
        """Return rows with their past, and at which rows of X they are."""
        check_is_fitted(self)
        partition = check_horizontal(
            self, X, reset=False, dtype=np.float64, aligned={"series": series}
        )
        (block,) = partition._blocks.values()
        series = block.get("series", np.zeros(len(block["X"]), dtype=int))
        Z = lagged_rows(block["X"], series, self.n_lags)
        if not len(Z):
            raise ValueError(
                f"no series has more than n_lags={self.n_lags} rows: nothing has a past"
            )
        numbers = np.arange(len(series))[:, None]
        return Z, lagged_rows(numbers, series, self.n_lags)[:, 0]

    @by_holders
    def predict(
        self, X: TableLike, *, series: ArrayLike | str | None = None
    ) -> np.ndarray | RemoteResults:
        """Predict every variable from its parents, present and past.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or RemoteRows
            Observations in order of time, one series after the other. Sites keep the
            predictions for remote ones.
        series : array-like of shape (n_samples,) or str, default=None
            Independent series that rows belong to; the name of a column of remote
            rows.

        Returns
        -------
        ndarray of shape (n_samples, n_features) or RemoteResults
            NaN for rows without a complete past.
        """
        (Z, places), d = self._lagged(X, series), self.n_features_in_
        past = Z[:, d:] - np.tile(self.mean_, self.n_lags)
        effect = past @ self._past.reshape(-1, d)
        predicted = np.full(np.shape(X), np.nan)  # type: ignore[arg-type]
        network = self.network_
        predicted[places] = Z[:, :d] @ network.weights + network.intercepts + effect
        return predicted

    def score(
        self,
        X: TableLike,
        y: object = None,
        *,
        series: ArrayLike | None = None,
        sample_weight: WeightsLike | None = None,
    ) -> float:
        """Return the mean Gaussian log-likelihood of rows given their past.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or HorizontalPartition
            Observations in order of time, one series after the other; those of a
            partition are summed under masks.
        y : Ignored
            Not used, present for API consistency by convention.
        series : array-like of shape (n_samples,), default=None
            Independent series that rows belong to.
        sample_weight : None
            Not supported, present for API consistency by convention.

        Returns
        -------
        float
            Higher is better.
        """
        if sample_weight is not None:
            raise ValueError("rows of a time series cannot be weighted")
        _warn_of_unused(y, series)
        _refuse_turns(X)
        return self._mean_score(X, series=series)

    def score_samples(
        self, X: ArrayLike, *, series: ArrayLike | None = None
    ) -> np.ndarray:
        """Return the log-likelihood of each row given its past.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Observations in order of time, one series after the other.
        series : array-like of shape (n_samples,), default=None
            Independent series that rows belong to.

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples,)
            NaN for rows without a complete past.
        """
        rest = np.asarray(X, dtype=float) - self.predict(X, series=series)
        return normal_log_density(rest, self.network_.variances).sum(axis=1)

    def _row_scores(self, X, series=None):
        scores = self.score_samples(X, series=series)
        return scores[~np.isnan(scores)]

    def to_networkx(self) -> Any:
        """Return the learnt graph as a ``networkx.DiGraph``.

        Returns
        -------
        networkx.DiGraph
            Nodes are the variables now and, like ``"x0 (t-1)"``, those variables at
            earlier times that act on them.
        """
        check_is_fitted(self)
        graph = self.network_.to_networkx()
        names = self.network_.nodes
        for lag, cause, effect in np.argwhere(self.lagged_adjacency_matrix_):
            weight = float(self._past[lag, cause, effect])
            earlier = f"{names[cause]} (t-{lag + 1})"
            graph.add_edge(earlier, names[effect], weight=weight)
        return graph

    def _public_model(self):
        own = {"mean": self.mean_, "past": self._past}
        return public_network(self.network_) | own

    @classmethod
    def _from_public_model(cls, model, n_features):
        """Make a fitted learner of public parameters, all of which are checked."""
        network, d = dict(model), n_features
        mean, past = network.pop("mean"), network.pop("past")
        estimator = cls(max(len(past), 1))
        estimator.network_ = read_network(network, d, (GaussianBayesianNetwork,))
        estimator.mean_ = check_received(mean, (d,))
        estimator._past = check_received(past, (estimator.n_lags, d, d))
        return estimator


def _warn_of_unused(y, series):
    """Warn of what may be `series`, given by its place instead of its name."""
    if y is not None and series is None:
        warn_user(
            "y is not used, and rows are taken to be one series (of each party): say "
            "which rows are another by name, as in fit(X, series=series)"
        )


def _refuse_turns(partition):
    """Refuse a series that is spread over parties: nobody has a row with its past."""
    if not isinstance(partition, HorizontalPartition):
        return
    names = partition.take_turns("series")
    if names is not None:
        raise PartitionError(
            f"rows of the parties {names} alternate within one series, so that none of "
            "them holds a row and its past. Every series must be held by one party: "
            "if each party has its own, say so with series=party"
        )
