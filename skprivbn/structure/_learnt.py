"""What estimators with a fitted network share: scores, samples, exports, warnings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skprivbn.base import BackendMixin, RowsMixin, by_holders
from skprivbn.bayesian_network import GaussianBayesianNetwork
from skprivbn.bayesian_network._discrete import BayesianNetwork
from skprivbn.crypto.shares import COUNT_BACKENDS
from skprivbn.partition import RemoteResults
from skprivbn.partition._base import holds_columns
from skprivbn.programs._columns import add_column_scores
from skprivbn.structure._discrete_columns import score_columns
from skprivbn.utils import warn_leak, warn_user
from skprivbn.utils._sklearn import StrOptions
from skprivbn.utils._typing import RandomStateLike, TableLike
from skprivbn.utils._validation import validate_table

#: of a model with equal noise variances: what samples, cut weak weights and noise that
#: differs somewhat leave apart (benchmarks/study_units.py)
MAX_NOISE_RATIO = 20.0

COUNT_BACKEND_CONSTRAINT = [StrOptions(set(COUNT_BACKENDS)), *COUNT_BACKENDS.values()]


def integer_seed(random_state):
    """Return an integer that everybody can draw from alike."""
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def refuse_options(estimator, where, *names):
    """Raise if a parameter does not have its default, where nothing else will do."""
    defaults = signature(type(estimator)).parameters
    for name in names:
        given = getattr(estimator, name)
        if given != defaults[name].default:
            raise ValueError(
                f"{name}={given!r} is not available {where}: leave out {name}="
            )


def warn_of_one_holder(partition):
    """Warn if columns of parties are all one party's."""
    if partition.n_parties == 1:
        warn_leak(
            "all columns are taken to be one party's: there is nobody to hide "
            "anything from; give every holder of columns its own in parties="
        )


def _has_parameters(estimator):
    return getattr(estimator, "fit_parameters", True)


def public_network(network):
    """Return the parameters of a network in a form that travels to sites."""
    told = {}
    for name in signature(type(network)).parameters:
        value = getattr(network, name)
        if isinstance(value, Mapping):
            value = {
                node: _plain(value[node]) for node in network.nodes if node in value
            }
            if len(value) == len(network.nodes):
                value = list(value.values())
        told[name] = _plain(value)
    return told


def _plain(value):
    return list(value) if isinstance(value, tuple) else value


def read_network(model, n_features, kinds):
    """Rebuild a network from its public parameters, which its constructor checks.

    Parameters
    ----------
    model : dict
        From :func:`public_network`.
    n_features : int
    kinds : tuple of type
        Networks that it may be.

    Returns
    -------
    network : object
    """
    for kind in kinds:
        if model.keys() == signature(kind).parameters.keys():
            network = kind(**model)
            if len(network.nodes) == n_features:
                return network
    raise ValueError("the network is about other columns")


class LearntNetworkMixin(BackendMixin, RowsMixin):
    """Scores, samples and exports of the fitted `network_`, of any variables.

    Attributes
    ----------
    _networks : tuple of type
        What `network_` may be.
    _scores_columns : Program or None
        How columns of several parties are scored, if they can be.
    """

    network_: Any
    _networks: tuple[type, ...]
    _rows: Callable
    _scores_columns: Any = None

    def _public_model(self):
        return public_network(self.network_)

    def _was_found(self, found):
        """Tell whether the network follows from a result, as sites ask of columns."""
        return False

    @classmethod
    def _from_public_model(cls, model, n_features):
        """Make a fitted learner of a public network, which checks itself."""
        estimator = cls()
        estimator.network_ = read_network(model, n_features, cls._networks)
        return estimator

    @available_if(_has_parameters)
    def score_samples(self, X: ArrayLike) -> np.ndarray:
        """Return the log-likelihood of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Of discrete columns, NaN or None where missing, which is summed out; rows of
            continuous columns alone are complete.

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples,)
        """
        return self.network_.log_likelihood(self._rows(X))

    @available_if(_has_parameters)
    def _row_scores(self, X):
        return self.score_samples(X)

    def _add_scores(self, X, sample_weight=None, **beside):
        if not holds_columns(X) or self._scores_columns is None:
            return super()._add_scores(X, sample_weight, **beside)
        return add_column_scores(self, X, sample_weight, self._scores_columns)

    @available_if(_has_parameters)
    def sample(
        self, n_samples: int = 1, random_state: RandomStateLike = None
    ) -> np.ndarray:
        """Draw rows from the fitted network.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        random_state : int, RandomState instance or None, default=None
            Makes the rows reproducible.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        return self.network_.sample(n_samples, random_state=random_state)

    @available_if(_has_parameters)
    def to_networkx(self) -> Any:
        """Return the learnt graph as a ``networkx.DiGraph``.

        Returns
        -------
        networkx.DiGraph
            With the nodes' names.
        """
        check_is_fitted(self)
        return self.network_.to_networkx()


class DiscreteNetworkMixin(LearntNetworkMixin):
    """Likelihood and completion through the fitted `network_`."""

    _row_checks = {"dtype": None, "ensure_all_finite": False}
    # how columns are counted together, where several parties hold them
    _backends = COUNT_BACKENDS
    _networks: tuple[type, ...] = (BayesianNetwork,)
    _scores_columns: Any = score_columns

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.target_tags.required = False
        return tags

    def _rows(self, X):
        check_is_fitted(self)
        return validate_table(
            self, X, reset=False, dtype=None, ensure_all_finite="allow-nan"
        )

    @available_if(_has_parameters)
    @by_holders
    def predict(self, X: TableLike) -> np.ndarray | RemoteResults:
        """Return X with every missing entry replaced by its most probable value.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or RemoteRows
            Values of the states; NaN or None where missing. Sites complete whole rows
            of theirs and keep them.

        Returns
        -------
        X_completed : ndarray of shape (n_samples, n_features) or RemoteResults
        """
        return self.network_.predict(self._rows(X))

    @available_if(_has_parameters)
    @by_holders
    def predict_proba(self, X: TableLike) -> list[np.ndarray] | RemoteResults:
        """Return the distribution of every entry, given the observed ones of its row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or RemoteRows
            Values of the states; NaN or None where missing.

        Returns
        -------
        probabilities : list of ndarray of shape (n_samples, n_states) or RemoteResults
            One array per column. An entry that is observed is certain.
        """
        return self.network_.predict_proba(self._rows(X))


class ContinuousNetworkMixin(LearntNetworkMixin):
    """Prediction and likelihood through the fitted `network_`."""

    _networks: tuple[type, ...] = (GaussianBayesianNetwork,)
    _fit_checks = {"ensure_min_features": 2, "ensure_min_samples": 2}
    #: whether directions come from equal noise variances, and so from units
    _assumes_equal_variances = True

    def _rows(self, X):
        check_is_fitted(self)
        return validate_table(self, X, reset=False, **self._row_checks)

    @by_holders
    def predict(self, X: TableLike) -> np.ndarray | RemoteResults:
        """Predict every variable from its parents.

        To fill in missing entries of linear models from all observed ones, use
        ``network_.predict``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or RemoteRows
            Complete rows. Sites keep the predictions for remote ones.

        Returns
        -------
        ndarray of shape (n_samples, n_features) or RemoteResults
            Mean of every variable given its parents; a root's is its overall mean.
        """
        return self.network_.given_parents(self._rows(X))


def vary(mean, variances):
    """Return which columns vary by more than the rounding of numbers near their mean.

    Parameters
    ----------
    mean, variances : ndarray of shape (n_features,)

    Returns
    -------
    ndarray of bool of shape (n_features,)
    """
    return variances > (2.0**-40 * mean) ** 2


def refuse_constant(names, mean, variances, where):
    """Raise if columns do not vary; names them, and where they do not."""
    constant = [
        name for name, varies in zip(names, vary(mean, variances)) if not varies
    ]
    if constant:
        raise ValueError(
            f"columns {constant} are constant {where}: they cannot be part of a "
            "network, leave them out"
        )


def warn_if_few_rows(n_rows, n_features):
    """Warn if there are more variables than rows: edges are then found in noise."""
    if n_rows <= n_features:
        warn_user(
            f"{n_rows:.0f} rows of {n_features} variables: some variables are sums of "
            "others whatever they mean, so that edges are found in noise. Take fewer "
            "columns, or more rows than columns by far"
        )


def warn_if_standardised(variances, tolerance=0.02):
    """Warn if variables have the same spread, which hides the directions.

    Parameters
    ----------
    variances : ndarray of shape (n_features,)
    tolerance : float, default=0.02
        By how much variances that are the same may differ.
    """
    if len(variances) < 2:
        return
    # all of them nearly, or most of them exactly: one column was left in its unit
    typical = np.median(variances)
    n_exact = np.sum(np.abs(variances - typical) <= 1e-6 * typical)
    most = n_exact >= max(3, 0.75 * len(variances))
    if most or variances.max() <= (1.0 + tolerance) * variances.min():
        which = "most" if n_exact < len(variances) and most else "all"
        warn_user(
            f"{which} variables have nearly the same variance, as after standardising: "
            "methods that assume equal noise variances read directions off unequal "
            "marginal variances and fail on such data; give the variables in their "
            "own units, or use FederatedGaussianBayesianNetwork(), whose default "
            "method does not assume equal noise variances"
        )


def noise_ratio(network, noise=0.0):
    """Return by what factor noise variances differ at least, and of which variables.

    Parameters
    ----------
    network : GaussianBayesianNetwork or MLPNetwork
    noise : float or ndarray of shape (n_features,), default=0.0
        Of privacy, as of :class:`~skprivbn.programs.Moments`.

    Returns
    -------
    ratio : float
    most, least : int
        The variables with the largest and the smallest.
    """
    variances, error = network.variances, 0.0
    if np.any(noise):
        error = 3.0 * (noise**2 + noise**2 @ np.square(network.weights))
    low, high = variances - error, variances + error
    most, least = np.argmax(low), np.argmin(high)
    return float(low[most] / high[least]), int(most), int(least)


def warn_if_units_differ(network, n_rows, method, noise=0.0):
    """Warn if a model of equal noise variances leaves very different ones.

    What parents leave of a variable has the variable's unit: they explain any
    difference of variances but that one.

    Parameters
    ----------
    network : GaussianBayesianNetwork or MLPNetwork
        As it was fitted.
    n_rows : float
        Behind it. Where there are not more of them than variables, parents explain
        whatever they like.
    method : str
        What assumes that noise variances are equal.
    noise : float or ndarray of shape (n_features,), default=0.0
        Of privacy, as of :class:`~skprivbn.programs.Moments`.
    """
    ratio, most, least = noise_ratio(network, noise)
    if n_rows > len(network.nodes) and ratio > MAX_NOISE_RATIO:
        warn_user(
            f"noise variances differ {ratio:.2g}-fold ({network.nodes[most]!r} has the "
            f"largest, {network.nodes[least]!r} the smallest): {method} assumes that "
            "all are the same, as in columns of comparable units; where they are not, "
            "the graph follows the units. Use FederatedGaussianBayesianNetwork(), "
            "whose default method assumes neither, or give columns in comparable "
            "units; standardising them does not help"
        )
