"""K2 on pooled data: the reference for the private learner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.bayesian_network._base import known_states
from skprivbn.structure._discrete_columns import encode_columns
from skprivbn.structure._edge_rules import check_ordering, warn_of_column_order
from skprivbn.structure._learnt import DiscreteNetworkMixin
from skprivbn.structure._scores import (
    CRITERIA,
    FRACTION_BITS,
    DistanceScores,
    TableScores,
)
from skprivbn.structure._search import EdgeRules, complete, searching_greedily
from skprivbn.structure._tables import AskedTables, check_table_sizes
from skprivbn.utils import column_names
from skprivbn.utils._sklearn import Interval, StrOptions, _fit_context
from skprivbn.utils._validation import declared_categories, validate_table

SEARCH_CONSTRAINTS = {
    "max_parents": [Interval(Integral, 0, None, closed="left")],
    "ordering": ["array-like", None],
    "criterion": [StrOptions({*CRITERIA, "total_variation"})],
    "equivalent_sample_size": [Interval(Real, 0, None, closed="neither")],
    "states": [Mapping, list, tuple, None],
}


class K2NetworkMixin(DiscreteNetworkMixin):
    """A network over labels, and who depends on whom in it."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        return tags

    def _set_structure(self, names, parents, ordering):
        """Set the fitted attributes that say who depends on whom."""
        self.ordering_ = [names[v] for v in ordering]
        self.parents_ = {
            name: [names[u] for u in parents[v]] for v, name in enumerate(names)
        }
        self.adjacency_matrix_ = np.zeros((len(names), len(names)), dtype=bool)
        for v, found in parents.items():
            self.adjacency_matrix_[found, v] = True


class K2StructureLearner(K2NetworkMixin, BaseEstimator):
    """Learn a discrete Bayesian network by K2 from a pooled table.

    K2 takes the columns in a given order. To the parents of each it adds, greedily, the
    earlier column that raises the score most, until no column raises it [1]_. Scores
    are integers with 24 fractional bits, so that :class:`PrivateK2StructureLearner`
    finds exactly the same network on secret shares.

    Read more in the :ref:`User Guide <private_k2>`.

    Parameters
    ----------
    max_parents : int, default=3
        Most parents of a column.
    ordering : array-like of str or int, default=None
        All columns, by name or position, parents before children. None takes the
        order of the columns, and warns.
    criterion : {"k2", "stirling", "wright_yang", "bdeu", "bic", "total_variation"}, \
            default="k2"
        Score of a family: the exact score of Cooper and Herskovits, its
        approximation by Stirling's formula, the same without constants, the
        likelihood-equivalent uniform score, the Bayesian information criterion, or how
        far a column is from independent of its parents, which bears noise best.
    equivalent_sample_size : float, default=10.0
        Prior weight of ``criterion="bdeu"``.
    states : mapping or list, default=None
        States of every column: labels, or their number k for 0, ..., k - 1. None
        takes the categories of a dataframe, and for other columns those that occur.

    Attributes
    ----------
    network_ : BayesianNetwork
        Structure, and probabilities (count + 1) / (total + states).
    parents_ : dict of str to list of str
        In the order in which they were found.
    adjacency_matrix_ : ndarray of bool of shape (n_features, n_features)
        The graph; entry (i, j) is an edge from i to j.
    ordering_ : list of str
        The ordering used.
    log_score_ : float
        Sum of the scores of all families.
    n_samples_ : int
        Number of rows.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if `X` has string names.

    See Also
    --------
    PrivateK2StructureLearner : The same on columns of several parties.
    FederatedBayesianNetwork : The same, and other searches, on rows of several parties.

    References
    ----------
    .. [1] G. Cooper, E. Herskovits, "A Bayesian Method for the Induction of
       Probabilistic Networks from Data", Machine Learning 9, 1992.

    Examples
    --------
    >>> from skprivbn.datasets import load_asia
    >>> from skprivbn.structure import K2StructureLearner
    >>> asia = load_asia()
    >>> X = asia.sample(2000, random_state=0)
    >>> learner = K2StructureLearner(ordering=asia.topological_order).fit(X)
    >>> learner.parents_["x4"]
    ['x2']
    >>> learner.network_.states["x4"]
    ('no', 'yes')
    """

    _parameter_constraints = SEARCH_CONSTRAINTS

    def __init__(
        self,
        *,
        max_parents: int = 3,
        ordering: ArrayLike | None = None,
        criterion: str = "k2",
        equivalent_sample_size: float = 10.0,
        states: Mapping | Sequence | None = None,
    ) -> None:
        self.max_parents = max_parents
        self.ordering = ordering
        self.criterion = criterion
        self.equivalent_sample_size = equivalent_sample_size
        self.states = states

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn structure and probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Discrete values without missing entries.
        y : Ignored
            Not used, present for API consistency by convention.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        categories = declared_categories(X)
        X = validate_table(self, X, dtype=None)
        self.n_samples_ = len(X)
        names = column_names(self)
        ordering = check_ordering(self.ordering, names)
        if self.max_parents > 0:
            warn_of_column_order(self.ordering, names)
        declared = known_states(self.states, names, dict(zip(names, categories)))
        codes, states = encode_columns(X, names, declared)
        n_states = [len(labels) for labels in states]
        check_table_sizes(n_states, ordering, self.max_parents)
        tables = AskedTables.from_rows(codes, n_states)
        if self.criterion == "total_variation":
            scores = DistanceScores(tables, len(codes))
        else:
            scores = TableScores(
                tables, len(codes), self.criterion, self.equivalent_sample_size
            )
        rules = EdgeRules.free(len(names), self.max_parents)
        parents, found = complete(searching_greedily(scores, ordering, rules))
        self._set_structure(names, parents, ordering)
        self.log_score_ = sum(found.values()) / (1 << FRACTION_BITS)
        self.network_ = BayesianNetwork.from_counts(
            names,
            states,
            self.parents_,
            [tables.ordered([*parents[v], v]) for v in range(len(names))],
            alpha=1.0,
        )
        return self
