"""What a fitted field answers: scores, missing entries, marginals, synthetic rows."""

from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from skprivbn.base import RowsMixin, by_holders
from skprivbn.bayesian_network._labels import label_dtype
from skprivbn.federation import PartyRefusal
from skprivbn.graphical_model._elimination import elimination_order
from skprivbn.graphical_model._random_field import MarkovRandomField
from skprivbn.graphical_model._release import MAX_CELLS
from skprivbn.graphical_model._states import (
    bin_labels,
    check_bins,
    draw_within,
    fill_in,
    to_labels,
)
from skprivbn.graphical_model._tables import resolve_cliques
from skprivbn.partition import RemoteResults
from skprivbn.utils import column_names
from skprivbn.utils._typing import RandomStateLike, TableLike
from skprivbn.utils._validation import declared_labels, keep_types


class RandomFieldQueries(RowsMixin, DensityMixin):
    """Methods of estimators that keep a fitted MarkovRandomField in `network_`."""

    network_: Any
    bins_: Any

    _row_checks = {"dtype": None, "ensure_all_finite": False}

    def _nodes(self):
        return column_names(self)

    @property
    def _edges(self):
        """Edges of continuous columns; a field that was put in has none."""
        return getattr(self, "bins_", {})

    def _rows(self, X):
        check_is_fitted(self)
        rows = validate_data(self, keep_types(X), reset=False, **self._row_checks)
        return to_labels(rows, self.network_.nodes, self._edges)

    def _public_model(self):
        field = self.network_
        return {
            "nodes": list(field.nodes),
            "states": [list(field.states[node]) for node in field.nodes],
            "cliques": [list(clique) for clique in field.cliques],
            "potentials": list(field.potentials.values()),
            "inference": field.inference,
            "bins": {node: list(edges) for node, edges in self._edges.items()},
        }

    @classmethod
    def _public_model_memory(cls, model, n_features):
        return sum(map(len, model["states"])), 0

    @classmethod
    def _from_public_model(cls, model, n_features):
        """Make a fitted learner of a public field, which checks itself."""
        cliques = map(tuple, model["cliques"])
        field = MarkovRandomField(
            model["nodes"],
            dict(zip(model["nodes"], model["states"], strict=True)),
            dict(zip(cliques, model["potentials"], strict=True)),
            model["inference"],
        )
        if len(field.nodes) != n_features:
            raise ValueError("the field is about other columns")
        if field.inference == "exact":
            place = {node: i for i, node in enumerate(field.nodes)}
            scopes = [[place[node] for node in clique] for clique in field.cliques]
            sizes = [len(field.states[node]) for node in field.nodes]
            if elimination_order(scopes, sizes)[1] > MAX_CELLS:
                raise PartyRefusal("too-large")
        estimator = cls()
        estimator.network_ = field
        estimator.bins_ = check_bins(model["bins"], field.nodes)
        labels = {node: bin_labels(edges) for node, edges in estimator.bins_.items()}
        if any(field.states[node] != own for node, own in labels.items()):
            raise ValueError("the bins are not those of the field")
        return estimator

    def _row_scores(self, X):
        return self.score_samples(X)

    def score_samples(self, X: ArrayLike) -> np.ndarray:
        """Return the log-probability of each row; missing entries are summed out.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Labels; None and NaN are missing.

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples,)
        """
        rows = self._rows(X)
        return self.network_.log_likelihood(rows)

    @by_holders
    def predict_proba(self, X: TableLike) -> list[np.ndarray] | RemoteResults:
        """Return the distribution of every entry given the observed ones of its row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or RemoteRows
            Labels; None and NaN are missing. Sites keep the results for remote rows.

        Returns
        -------
        probabilities : list of ndarray of shape (n_samples, n_states) or RemoteResults
            One array per column.
        """
        rows = self._rows(X)
        return self.network_.predict_proba(rows)

    @by_holders
    def predict(self, X: TableLike) -> np.ndarray | RemoteResults:
        """Return X with each missing entry replaced by its most probable state.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or RemoteRows
            Labels; None and NaN are missing. Sites keep the results for remote rows.

        Returns
        -------
        completed : ndarray of shape (n_samples, n_features) or RemoteResults
        """
        completed = self.network_.predict(self._rows(X))
        return fill_in(X, completed, self.network_.nodes, self._edges)

    def marginal(self, columns: Any) -> np.ndarray:
        """Return the joint distribution of some columns.

        Parameters
        ----------
        columns : str, int or sequence of these
            Names or positions.

        Returns
        -------
        probabilities : ndarray
            One axis per column.
        """
        check_is_fitted(self)
        single = isinstance(columns, str | Integral)
        nodes = self._nodes()
        (scope,) = resolve_cliques([[columns] if single else columns], nodes)
        return self.network_.query([nodes[i] for i in scope])

    def sample(
        self,
        n_samples: int = 1,
        random_state: RandomStateLike = None,
        method: str = "independent",
    ) -> Any:
        """Draw synthetic rows; costs no privacy.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        random_state : int, RandomState instance or None, default=None
            Makes the rows reproducible.
        method : {"independent", "rounded"}, default="independent"
            "rounded" keeps marginals: counts are those that the field expects, rounded
            up or down at random, not drawn. Rows are then no independent sample, and
            standard errors computed of them are too large.

        Returns
        -------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            Labels, and numbers drawn within `bins`. A frame if columns have names (and
            pandas is installed), each column with the type of its labels. Without
            `epsilon`, with the type that it had in `fit`, which depends on the rows.
        """
        check_is_fitted(self)
        rng = check_random_state(random_state)
        nodes, states = self.network_.nodes, self.network_.states
        drawn = dict(zip(nodes, self.network_.sample(n_samples, rng, method).T))
        types = getattr(self, "_types", {})
        for node, labels in drawn.items():
            if node in self._edges:
                kind = getattr(types.get(node), "kind", None)
                whole = None if kind is None else kind in "iu"
                drawn[node] = draw_within(labels, self._edges[node], rng, whole)
            else:
                drawn[node] = labels.astype(label_dtype({node: states[node]}))
        if hasattr(self, "feature_names_in_") and find_spec("pandas") is not None:
            frame = import_module("pandas").DataFrame(drawn)
            return _with_types(frame, types)
        # the plainest type that all columns have in common
        kinds = {column.dtype.kind for column in drawn.values()}
        mixed = len(kinds - {"i", "f"}) > 0 and len(kinds) > 1
        columns = [c.astype(object) if mixed else c for c in drawn.values()]
        return np.column_stack(columns)

    def to_networkx(self) -> Any:
        """Return the learnt graph as a ``networkx.Graph``.

        Returns
        -------
        networkx.Graph
            With an edge between columns that are in a clique together.
        """
        check_is_fitted(self)
        return self.network_.to_networkx()


def _with_types(frame, types):
    """Return a frame with given types of columns, where its values have them."""
    for name, dtype in types.items():
        labels = declared_labels(dtype)
        # states= may have other labels
        if labels is None or frame[name].isin(labels).all():
            with suppress(TypeError, ValueError):
                frame[name] = frame[name].astype(dtype)
    return frame
