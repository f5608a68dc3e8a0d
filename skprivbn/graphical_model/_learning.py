"""From released tables to a fitted field: which method, and what is kept of it."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from skprivbn.federation import Ledger
from skprivbn.graphical_model._cgm import collective_em
from skprivbn.graphical_model._counting import resolve_cliques, resolve_ties
from skprivbn.graphical_model._elimination import EliminationPlan
from skprivbn.graphical_model._estimation import empirical_bayes, naive_mle
from skprivbn.graphical_model._layout import (
    TableLayout,
    check_table_sizes,
    choose_inference,
    support_of,
)
from skprivbn.graphical_model._noisy_tables import NoisyTables
from skprivbn.graphical_model._queries import RandomFieldQueries
from skprivbn.graphical_model._random_field import MarkovRandomField
from skprivbn.graphical_model._states import check_column_states
from skprivbn.privacy import PrivacyCost
from skprivbn.utils import tell_progress, warn_user
from skprivbn.utils._sklearn import _fit_context

__all__ = ["RandomFieldLearning"]

#: penalty that keeps the maximum likelihood of exact tables finite
_EXACT_PENALTY = 1e-9
#: a distance between learnt and released marginals that is worth a warning
_FAR = 0.02


class RandomFieldLearning(RandomFieldQueries):
    """The part of the learner that never sees a row: it works on released tables."""

    cliques: Any
    states: Any
    tied: str | None
    noise_: Any

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_marginals(
        self,
        noisy_tables: Mapping[tuple, ArrayLike],
        std: float | Sequence[float],
        noise: str = "laplace",
    ) -> Self:
        """Learn a field from tables that were released before; costs no privacy.

        Parameters
        ----------
        noisy_tables : mapping of clique to array-like
            Noisy counts of each clique, in records; a clique is a tuple of column names
            (the keys of `states`) or positions, in the order of the table's axes. Tied
            tables under their first clique, as in `noisy_tables_`.
        std : float or sequence of float
            Standard deviation of the noise, one for all or one per table.
        noise : {"laplace", "gaussian"}, default="laplace"
            Its distribution.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        if noise not in ("laplace", "gaussian"):
            raise ValueError(f"noise must be 'laplace' or 'gaussian', got {noise!r}")
        if self.states is None:
            raise ValueError("fit_marginals needs states=, those of all columns")
        n_columns = len(self.states)
        nodes = [f"x{i}" for i in range(n_columns)]
        if isinstance(self.states, Mapping):
            nodes = list(self.states)
            self.feature_names_in_ = np.asarray(nodes, dtype=object)
        self.n_features_in_ = n_columns
        states = check_column_states(self.states, nodes)
        cliques = resolve_cliques(list(noisy_tables), nodes)
        ties = np.arange(len(cliques))
        if self.tied is not None:
            measured = cliques
            cliques, ties = resolve_ties(
                resolve_cliques(self.cliques, nodes), self.tied
            )
            firsts = [cliques[i] for i in np.unique(ties, return_index=True)[1]]
            if measured != firsts:
                raise ValueError(
                    f"with tied={self.tied!r} there must be one table for each of "
                    f"{[tuple(nodes[i] for i in first) for first in firsts]}, in this "
                    "order: the sum over all cliques tied to it"
                )
        layout = self._layout(cliques, ties, states)
        values = [np.asarray(table, dtype=float) for table in noisy_tables.values()]
        for clique, table, shape in zip(noisy_tables, values, layout.shapes):
            if table.shape != shape or not np.all(np.isfinite(table)):
                raise ValueError(
                    f"the table of clique {clique!r} must be finite, of shape {shape}"
                )
        std = np.broadcast_to(np.asarray(std, dtype=float), len(values)).copy()
        if not np.all(std >= 0):
            raise ValueError("std must not be negative")
        counts = layout.flatten(values)
        tables = NoisyTables(layout, counts, std, noise)
        with tell_progress(self, None, step="step") as progress:
            self._learn(tables, states, counts, progress)
        self.noise_, self.privacy_spent_ = None, PrivacyCost(0.0, 0.0)
        self.ledger_ = Ledger(parties=())
        return self

    def _layout(self, cliques, ties, states):
        if self.tied is not None and len(set(states.values())) > 1:
            raise ValueError(
                "tied='time' needs columns with the same states at every time step"
            )
        sizes = [len(labels) for labels in states.values()]
        check_table_sizes(cliques, sizes, self.max_cells)
        inference = choose_inference(self.inference, cliques, sizes, self.max_cells)
        layout = TableLayout(cliques, sizes, ties, inference=inference)
        if self.structural_zeros:
            layout.support = support_of(layout, self.structural_zeros, self._nodes())
        return layout

    def _learn(self, tables, states, counts, progress, unit=1):
        """Estimate potentials from the tables by the chosen method."""
        n_records, self.table_unit_ = tables.n_records(), unit
        if self.missing == "skip":
            tables = tables.rescaled()
        self.n_iter_, converged = 0, True
        exact = tables.kind == "none" or not tables.std.any()
        if exact or self.method == "naive":
            penalty = _EXACT_PENALTY if exact else self.regularization
            theta, self.n_iter_, converged = naive_mle(
                tables, penalty, self.max_iter, progress
            )
        elif self.method == "cgm":
            e_step = "nlbp" if self.inference == "nlbp" else "dual"
            theta, self.n_iter_, converged = collective_em(
                tables, e_step, self.discrepancy, self.max_iter, progress=progress
            )
        else:
            theta = empirical_bayes(tables, progress=progress)
        if not converged:
            warn_user(
                f"method={self.method!r} has not converged after {self.n_iter_} "
                "iterations; raise max_iter",
                ConvergenceWarning,
            )
        self._set_model(tables.layout, theta, states)
        self.n_records_ = n_records
        self._set_tables(tables, counts)

    def _set_model(self, layout, theta, states):
        nodes = self._nodes()
        if layout.support is not None:
            theta = np.where(layout.support, theta, -np.inf)
        tables = layout.split(theta)
        self.cliques_ = [tuple(nodes[i] for i in clique) for clique in layout.cliques]
        potentials = {c: tables[g] for c, g in zip(self.cliques_, layout.ties)}
        exact = isinstance(layout.inference, EliminationPlan)
        self.model_ = MarkovRandomField(
            nodes, states, potentials, "exact" if exact else "loopy"
        )
        self.potentials_ = dict(self.model_.potentials)
        self.log_partition_ = self.model_.log_partition

    def _set_tables(self, tables, counts):
        layout, n_records = tables.layout, self.n_records_
        released = layout.split(np.asarray(counts))
        values = layout.split(tables.values)
        fitted = self.model_.marginals()
        self.noisy_tables_, self.noisy_marginals_, self.marginal_std_ = {}, {}, {}
        first, miss = set(), 0.0
        for clique, table in zip(self.cliques_, layout.ties):
            multiplicity = layout.multiplicity[table]
            if table not in first:
                self.noisy_tables_[clique] = released[table]
                first.add(table)
            p = np.clip(fitted[clique], 0, 1)
            noise = tables.std[table] / (multiplicity * n_records)
            self.noisy_marginals_[clique] = values[table] / (multiplicity * n_records)
            self.marginal_std_[clique] = np.sqrt(p * (1 - p) / n_records + noise**2)
            distance = np.abs(p - self.noisy_marginals_[clique])
            miss = max(miss, (distance - 6 * self.marginal_std_[clique]).max())
        if miss > _FAR and self.model_.inference == "loopy":
            warn_user(
                f"the learnt marginals miss the tables by {miss:.2g} more than noise "
                "explains: learning with loopy belief propagation failed; use fewer or "
                "smaller cliques, or raise max_cells for exact inference",
                ConvergenceWarning,
            )
