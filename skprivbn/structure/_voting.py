"""A vote over graphs that parties learn alone: the baseline of the paper."""

from collections.abc import Generator
from dataclasses import dataclass
from importlib import import_module
from inspect import isclass
from numbers import Real
from typing import Any, Self
from warnings import catch_warnings, simplefilter

import numpy as np
from sklearn.base import BaseEstimator

from skprivbn.base import BACKEND_CONSTRAINT, FederatedEstimator
from skprivbn.bayesian_network import GaussianBayesianNetwork
from skprivbn.bayesian_network._dag import is_acyclic
from skprivbn.crypto import AdditiveBackend
from skprivbn.federation import (
    ALL_ROWS,
    Me,
    PartyRefusal,
    RowWeights,
    Sum,
    Terms,
    program,
)
from skprivbn.federation.gate import check_alone
from skprivbn.federation.program import require
from skprivbn.programs import keep_predictions, score_rows
from skprivbn.programs._moments import add_moments
from skprivbn.structure._learnt import (
    ContinuousNetworkMixin,
    vary,
    warn_if_units_differ,
)
from skprivbn.structure.gaussian._notears import Notears, acyclic_weights
from skprivbn.structure.gaussian._scores import FeatureMoments, graph_score
from skprivbn.utils import column_names, warn_user
from skprivbn.utils._sklearn import HasMethods, Interval, StrOptions

#: parties run code of this package only, whatever a coordinator asks for
_LEARNERS = "skprivbn.structure."
#: options of learners that say how often something is done, and how often it may be
_REPEATED = {"max_iter", "n_restarts", "n_bootstrap", "tabu_length", "n_lags"}
_MOST_REPEATS = 10_000


@dataclass(frozen=True)
class VotingTerms(Terms):
    """Which learner every party fits to its own rows.

    Parameters
    ----------
    learner : list of str
        Module and class.
    options : dict
        Of its constructor.
    strategy : {"votes", "best"}
        Whether edges are added, or one party's graph is told.
    """

    learner: list[str]
    options: dict[str, Any]
    strategy: str = "votes"

    def __post_init__(self):
        super().__post_init__()
        settings = dict(self.options)
        for group in self.options.values():
            settings |= group if isinstance(group, dict) else {}
        for name in _REPEATED & settings.keys():
            value = settings[name]
            if isinstance(value, int | float) and not value <= _MOST_REPEATS:
                raise ValueError(
                    f"{name}={value} of the learner that votes is more than "
                    f"{_MOST_REPEATS}: sites do not work that long"
                )


@program(VotingTerms)
def voting(me: Me) -> Generator[Any, Any, dict]:
    """Vote for the edges of the own graph; then add the moments of all rows."""
    learner, X = _own_learner(me.terms), np.asarray(me.numbers())
    own = _own_votes(me, learner, X)
    if me.terms.strategy == "best":
        return (yield from _best(me, own, X))
    votes = yield Sum(own, "edges that parties found", ALL_ROWS)
    found = yield from add_moments(me, X, np.ones(len(X)))
    return found | {"votes": votes}


def _best(me, own, X):
    """Tell the graph of the party that explains the rows of all parties best."""
    found = yield from add_moments(me, X, np.ones(len(X)))
    n_rows, mine = found["n_rows"][0], np.array([name == me.name for name in me.roster])
    if not np.all(np.diag(found["covariance"]) > 0) or n_rows < 2:
        return found | {"votes": np.zeros(own.shape)}
    moments = FeatureMoments.linear(found["covariance"], n_rows)
    graph = acyclic_weights(own.astype(float), 0.0) != 0
    score = graph_score(moments, graph, equal_variances=False) / n_rows
    scores = yield Sum(
        mine * score, "score of each party's graph", RowWeights(mine * float(len(X)))
    )
    # the first of those that score alike; a total is one party's own number
    wins = mine[int(np.argmax(scores))]
    told = RowWeights(np.array([float(wins * len(X))]))
    votes = yield Sum(own * float(wins), "graph of the party that scores best", told)
    return found | {"votes": votes * len(me.roster)}


def _own_learner(terms):
    """Return the learner that terms name, or refuse it: no other code is run."""
    module, name = terms.learner
    require(module.startswith(_LEARNERS))
    learner = getattr(import_module(module), name)
    # A module also holds what it imports; nothing but its own estimators may run.
    require(isclass(learner) and learner.__module__ == module)
    require(issubclass(learner, BaseEstimator))
    return learner(**terms.options)


def _own_votes(me, learner, X):
    """Return one vote per edge of the own graph; none if the rows do not suffice.

    A vote is about the rows of one party, whatever the others have. A researcher who
    moves a threshold reads what it depends on: so there is none where the moments of
    these rows could not be told alone.
    """
    votes = np.zeros((X.shape[1], X.shape[1]), dtype=np.int64)
    if not len(X):
        return votes
    try:
        check_alone(me, X)
    except PartyRefusal:
        return votes
    if len(X) > 1 and vary(X.mean(axis=0), X.var(axis=0)).all():
        with catch_warnings():
            # few rows of one party make every learner warn
            simplefilter("ignore")
            votes += learner.fit(X).adjacency_matrix_
    return votes


class VotingStructureLearner(ContinuousNetworkMixin, FederatedEstimator):
    """Learn a network by a vote on graphs that the parties learn alone.

    Edges that enough parties found are kept. This is the baseline for federated
    learners when parties hold few rows. Votes are a secure sum: nobody learns the
    votes of a single party.

    Read more in the :ref:`User Guide <structure_federated>`.

    Parameters
    ----------
    estimator : estimator, default=None
        A learner of this package with `adjacency_matrix_`, fitted by every party on
        its own rows. None means :class:`Notears`.
    strategy : {"votes", "best"}, default="votes"
        "votes" adds the parties' graphs. "best" takes the graph of the one party that
        explains the rows of all parties best, by BIC: parties then read every party's
        score, and this graph. (The paper's NOTEARS-Best takes the graph nearest to the
        true one, which nobody knows.)
    min_votes : float, default=0.5
        An edge is kept if more than this share of the parties found it. Not used by
        "best".
    acyclic : bool, default=False
        Drop the edges with fewest votes until there is no cycle. The paper does not,
        and the elected graph may then have cycles and no `network_`.
    backend : str or AdditiveBackend, default="masking"
        How votes are hidden.

    Attributes
    ----------
    adjacency_matrix_ : ndarray of bool of shape (n_features, n_features)
        The elected graph; entry (i, j) is an edge from i to j.
    votes_ : ndarray of shape (n_features, n_features)
        Share of the parties that found each edge; of "best", 1 for those of its graph.
    network_ : GaussianBayesianNetwork
        Least squares on the elected graph; not there if it has cycles.
    n_samples_ : int
        Rows of all parties.
    n_iter_ : int
        Number of secure sums.
    ledger_ : Ledger
        Every message of the last fit, and who learnt what.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if `X` has string names.

    See Also
    --------
    FederatedGaussianBayesianNetwork : Adds moments instead of edges.

    References
    ----------
    .. [1] Na, Yang. Distributed Bayesian network structure learning. ISIE 2010.

    Examples
    --------
    >>> from skprivbn.datasets import make_linear_sem
    >>> from skprivbn.structure import VotingStructureLearner
    >>> X, weights = make_linear_sem(600, 4, random_state=0)
    >>> party = [f"hospital {i % 3}" for i in range(600)]
    >>> model = VotingStructureLearner().fit(X, party=party)
    >>> model.votes_.max()
    np.float64(1.0)
    """

    _of_some_fits = ("network_",)
    protocols = (voting, score_rows, keep_predictions)
    _parameter_constraints = {
        "estimator": [HasMethods(["fit", "get_params"]), None],
        "strategy": [StrOptions({"votes", "best"})],
        "min_votes": [Interval(Real, 0, 1, closed="left")],
        "acyclic": ["boolean"],
        "backend": BACKEND_CONSTRAINT,
    }

    def __init__(
        self,
        estimator: Any = None,
        *,
        strategy: str = "votes",
        min_votes: float = 0.5,
        acyclic: bool = False,
        backend: str | AdditiveBackend = "masking",
    ) -> None:
        self.estimator = estimator
        self.strategy = strategy
        self.min_votes = min_votes
        self.acyclic = acyclic
        self.backend = backend

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also those of the learner (``estimator__max_iter``).

        Parameters
        ----------
        **params : dict
            Parameters of this estimator.

        Returns
        -------
        self : estimator instance
        """
        nested = any(key.startswith("estimator__") for key in params)
        if nested and params.get("estimator", self.estimator) is None:
            # what None stands for has parameters, too
            params["estimator"] = Notears()
        return super().set_params(**params)

    def _learn(self, partition):
        learner = Notears() if self.estimator is None else self.estimator
        if not type(learner).__module__.startswith(_LEARNERS):
            raise ValueError(
                "estimator must be a structure learner of skprivbn.structure: parties "
                f"run no other code; got {type(learner).__name__}"
            )
        terms = VotingTerms(
            [type(learner).__module__, type(learner).__qualname__],
            learner.get_params(deep=False),
            self.strategy,
        )
        found = self._run(partition, voting, terms)
        votes, n_rows = found["votes"], found["n_rows"][0]
        d = self.n_features_in_
        self.votes_ = votes.reshape(d, d) / partition.n_parties
        elected = np.where(self.votes_ > self.min_votes, self.votes_, 0.0)
        if self.acyclic:
            elected = acyclic_weights(elected, 0.0)
        self.adjacency_matrix_ = elected != 0.0
        self.n_iter_ = 4 if self.strategy == "best" else 3
        self.n_samples_ = round(n_rows)
        network = GaussianBayesianNetwork.fit_from_moments(
            found["mean"],
            found["covariance"],
            acyclic_weights(elected, 0.0) != 0.0,
            nodes=column_names(self),
        )
        if getattr(learner, "_assumes_equal_variances", False):
            who = type(learner).__name__
            warn_if_units_differ(network, n_rows, who)
        if not is_acyclic(self.adjacency_matrix_):
            warn_user(
                "the elected graph has cycles, and so no network_ to predict, score "
                "or sample from: acyclic=True drops the edges with fewest votes"
            )
        else:
            self.network_ = network
