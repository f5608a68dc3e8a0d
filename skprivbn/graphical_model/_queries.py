"""What a fitted field answers: scores, missing entries, marginals, synthetic rows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import DensityMixin, clone
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
from skprivbn.programs._noisy_moments import bootstrap_interval, simulate_noise
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
        return self.network_.query(self._asked(columns))

    def _asked(self, columns):
        """Return the names of columns that are given by name or position."""
        single, nodes = isinstance(columns, str | Integral), self._nodes()
        (scope,) = resolve_cliques([[columns] if single else columns], nodes)
        return [nodes[i] for i in scope]

    def conf_int(
        self,
        columns: Any,
        evidence: Mapping | None = None,
        *,
        level: float = 0.95,
        n_bootstrap: int = 100,
        random_state: RandomStateLike = None,
    ) -> np.ndarray:
        """Return confidence intervals of a marginal or query, noise included.

        By a parametric bootstrap, which costs no privacy: rows are drawn from the
        field, counted in the tables that were released, with noise of the same scale,
        and learnt from in the same way. The cliques are taken to be right: what they
        leave out, intervals leave out, too.

        Parameters
        ----------
        columns : str, int or sequence of these
            Names or positions.
        evidence : mapping of str to label, default=None
            Known states of other columns.
        level : float, default=0.95
            Probability with which an interval is to cover the truth.
        n_bootstrap : int, default=100
            Number of fits.
        random_state : int, RandomState instance or None, default=None
            Makes the draws reproducible.

        Returns
        -------
        intervals : ndarray of shape (..., 2)
            Low and high ends of every probability of ``network_.query``.
        """
        check_is_fitted(self)
        if not hasattr(self, "noisy_tables_") or self._settings.stationary:
            raise ValueError(
                "conf_int needs released tables, one for each clique: it is not for "
                "method='psgd' or a stationary field"
            )
        asked, nodes = self._asked(columns), self.network_.nodes
        n_rows, rng = max(round(self.n_samples_), 1), check_random_state(random_state)
        again = clone(self).set_params(
            states=dict(self.network_.states), bins=None, parties=None, verbose=0
        )
        kind = "laplace" if self.noise_ is None else self.noise_.kind
        drawn = []
        for _ in range(n_bootstrap):
            rows = self.network_.encode(self.network_.sample(n_rows, rng))
            tables = {}
            for clique, std in self.table_std_.items():
                cells = tuple(rows[:, nodes.index(node)] for node in clique)
                table = np.zeros([len(self.network_.states[v]) for v in clique])
                np.add.at(table, cells, 1)
                tables[clique] = table + simulate_noise(kind, std, table.shape, rng)
            again.fit_marginals(tables, list(self.table_std_.values()), kind)
            drawn.append(again.network_.query(asked, evidence))
        found = self.network_.query(asked, evidence)
        return np.clip(bootstrap_interval(found, drawn, level), 0.0, 1.0)

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
