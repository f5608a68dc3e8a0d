"""Undirected graphical models learnt from differentially private tables."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from numbers import Integral, Real
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.callback import CallbackSupportMixin

from skprivbn.base import BACKEND_CONSTRAINT, FederatedMixin
from skprivbn.crypto import AdditiveBackend
from skprivbn.graphical_model._combinations import check_combinations
from skprivbn.graphical_model._counting import (
    Contribution,
    count_tables,
    resolve_cliques,
    resolve_ties,
    sensitivities,
)
from skprivbn.graphical_model._layout import check_table_sizes
from skprivbn.graphical_model._learning import RandomFieldLearning
from skprivbn.graphical_model._noisy_tables import NoisyTables
from skprivbn.graphical_model._psgd import PSGDOptions, private_gradient_descent
from skprivbn.graphical_model._release import (
    TablesParty,
    check_rows,
    release_tables,
    single_holder_ledger,
    tables_settings,
)
from skprivbn.graphical_model._selection import TreeBudget, measure_tree
from skprivbn.graphical_model._shared_tree import (
    SharedTreeBudget,
    TreeParty,
    all_pairs,
    release_tree,
)
from skprivbn.graphical_model._spending import SpendingMixin
from skprivbn.graphical_model._states import (
    check_column_states,
    null_codes,
    states_from_data,
)
from skprivbn.partition import check_horizontal
from skprivbn.privacy import CountMechanism, PrivacyAccountant, distribute
from skprivbn.privacy._options import PRIVACY_CONSTRAINTS
from skprivbn.utils import tell_progress
from skprivbn.utils._sklearn import Interval, StrOptions, _fit_context
from skprivbn.utils._typing import TableLike, WeightsLike

__all__ = ["DPCGMLearner"]


class DPCGMLearner(
    CallbackSupportMixin,
    RandomFieldLearning,
    SpendingMixin,
    FederatedMixin,
    DensityMixin,
    BaseEstimator,
):
    """Markov random field learnt from contingency tables with private noise.

    The contingency tables of the cliques are released once, with discrete Laplace or
    Gaussian noise; everything after that works on the noisy tables and costs no more
    privacy. Neighbouring data sets differ by one person, added or removed.

    Read more in the :ref:`User Guide <graphical_model>`.

    Parameters
    ----------
    cliques : {"chain", "tree", "mst"} or list of tuples, default="chain"
        Which columns interact. "chain" joins neighbouring columns, "tree" every
        column with the last one. A list gives the columns of each clique, by name or
        position. "mst" chooses a tree privately, from a third of the budget (half of
        it with several holders).

    epsilon : float, default=1.0
        Privacy budget of one fit.

    delta : float, default=0.0
        With 0 the noise is Laplace and the guarantee pure, otherwise Gaussian.

    method : {"auto", "cgm", "naive", "psgd", "non_private"}, default="auto"
        How potentials are estimated. "auto" is an empirical Bayes estimate without
        tuning parameters; "cgm" the collective graphical model's expectation
        maximisation [1]_; "naive" takes the projected noisy tables for the truth;
        "psgd" is stochastic gradient descent with clipped and noisy gradients, which
        releases no tables; "non_private" uses exact tables.

    states : mapping or list, default=None
        Public states of every column: labels, or their number k for 0, ..., k - 1.
        None reads them off the data, which is not private.

    accountant : PrivacyAccountant, default=None
        Adds up what fits on the same data cost, and refuses what exceeds its budget.
        Without one, the second fit of the same estimator or of its clones, as in a
        search, warns (within one process).

    inference : {"auto", "exact", "loopy", "nlbp"}, default="auto"
        Exact inference, or loopy belief propagation; "auto" takes the first if no
        intermediate table exceeds `max_cells`. "nlbp" is "auto" with the E-step of
        "cgm" solved by non-linear belief propagation as in [1]_ instead of its dual,
        which is slower with the same result.

    regularization : float, default=1e-4
        Ridge penalty of "naive".

    discrepancy : float, default=0.7
        "cgm" stops when the mean distance between noisy and expected tables is below
        this fraction of the mean absolute noise, or no longer falls; going on learns
        the noise.

    max_iter : int, default=2000
        Most iterations of "cgm", or of "naive" for each penalty on its path.

    tied : {"time"} or None, default=None
        "time" takes columns as time steps: cliques that are shifts of each other share
        their potentials, and the first step gets potentials of its own.

    contribution : {"normalize", "clip"} or None, default=None
        For people with several records (``individual=`` in `fit`). "normalize" scales
        each person's records to add up to one per clique, "clip" counts at most
        `max_records` of them.

    max_records : int, default=1
        See `contribution`. The noise grows with it.

    max_weight : int, default=1
        Public bound on sample weights. The noise grows with it.

    null_state : object, default=None
        Label that stands for "nothing seen": a record adds nothing to cliques in which
        all its values are null.

    missing : {"error", "skip"}, default="error"
        What to do with missing entries (NaN or None) in `fit`. "skip" leaves a row out
        of the tables that need a missing entry.

    structural_zeros : mapping of clique to array-like of bool, default=None
        Configurations known to be impossible, True in the array of their clique.

    psgd_params : dict, default=None
        For "psgd": `sampling_rate`, `n_steps`, `clip`, `learning_rate`.

    backend : str or AdditiveBackend, default="masking"
        How tables of several holders are added: "masking", "ckks", ...

    min_honest : int, default=None
        With several holders: how many of them are trusted to add their share of the
        noise and to keep it secret. None means half of them, rounded up; sites accept
        no more.

    max_cells : int, default=4194304
        Largest number of cells of all tables together, and of intermediate tables of
        exact inference.

    verbose : int, default=0
        1 prints every tenth step of the estimation, 2 every one.

    Attributes
    ----------
    model_ : MarkovRandomField
        The learnt field.

    potentials_ : dict of tuple of str to ndarray
        Log-potentials of the cliques.

    log_partition_ : float
        Logarithm of the field's normalising constant.

    cliques_ : list of tuple of str
        The cliques.

    noisy_tables_ : dict of tuple of str to ndarray of int
        The tables as released; a tied table under its first clique. Not for "psgd".

    table_unit_ : int
        How much one record counts in them: 1, or more where fractions of records are
        counted or tables weighted (people with several records, "mst" with several
        holders). Not for "psgd".

    noisy_marginals_ : dict of tuple of str to ndarray
        The same as estimates of marginal probabilities; may be negative.

    marginal_std_ : dict of tuple of str to ndarray
        Their standard errors: sampling and noise.

    n_records_ : float
        Number of records, estimated from the noisy tables. Not for "psgd".

    privacy_spent_ : PrivacyCost
        Cost of this fit.

    noise_ : CountMechanism or DistributedNoise or None
        The noise of the tables.

    ledger_ : Ledger
        Every message of the last fit, and who learnt what.

    n_iter_ : int
        Iterations of "cgm" or "naive".

    n_features_in_ : int
        Number of columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if `X` has string names.

    See Also
    --------
    skprivbn.privacy.PrivateSearchCV : Choose parameters by private scores.

    References
    ----------
    .. [1] G. Bernstein, R. McKenna, T. Sun, D. Sheldon, M. Hay, G. Miklau (2017).
       Differentially private learning of undirected graphical models using collective
       graphical models. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.graphical_model import DPCGMLearner
    >>> from skprivbn.privacy import PrivacyAccountant
    >>> rng = np.random.default_rng(0)
    >>> first = rng.integers(2, size=5000)
    >>> X = np.column_stack([first, first ^ (rng.random(5000) < 0.1)])
    >>> accountant = PrivacyAccountant(epsilon=1.0)
    >>> learner = DPCGMLearner(epsilon=1.0, states=[2, 2], accountant=accountant)
    >>> learner = learner.fit(X)
    >>> learner.predict([[0, np.nan], [1, np.nan]])
    array([[0, 0],
           [1, 1]])
    >>> learner.privacy_spent_
    PrivacyCost(epsilon=1.0, delta=0.0)
    """

    _parameter_constraints = {
        "cliques": [StrOptions({"chain", "tree", "mst"}), list, tuple],
        # exact tables are a method here, not epsilon=None
        "epsilon": PRIVACY_CONSTRAINTS["epsilon"][:1],
        "delta": PRIVACY_CONSTRAINTS["delta"],
        "method": [StrOptions({"auto", "cgm", "naive", "psgd", "non_private"})],
        "states": [Mapping, list, tuple, None],
        "accountant": PRIVACY_CONSTRAINTS["accountant"],
        "inference": [StrOptions({"auto", "exact", "loopy", "nlbp"})],
        "regularization": [Interval(Real, 0, None, closed="neither")],
        "discrepancy": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tied": [StrOptions({"time"}), None],
        "contribution": [StrOptions({"normalize", "clip"}), None],
        "max_records": [Interval(Integral, 1, None, closed="left")],
        "max_weight": [Interval(Integral, 1, None, closed="left")],
        "null_state": "no_validation",
        "missing": [StrOptions({"error", "skip"})],
        "structural_zeros": [Mapping, None],
        "psgd_params": [dict, None],
        "backend": BACKEND_CONSTRAINT,
        "min_honest": PRIVACY_CONSTRAINTS["min_honest"],
        "max_cells": [Interval(Integral, 1, None, closed="left")],
        "verbose": ["verbose"],
    }
    __metadata_request__fit = {"individual": True}

    def __init__(
        self,
        cliques: str | Sequence[tuple] = "chain",
        *,
        epsilon: float = 1.0,
        delta: float = 0.0,
        method: str = "auto",
        states: Mapping | Sequence | None = None,
        accountant: PrivacyAccountant | None = None,
        inference: str = "auto",
        regularization: float = 1e-4,
        discrepancy: float = 0.7,
        max_iter: int = 2000,
        tied: str | None = None,
        contribution: str | None = None,
        max_records: int = 1,
        max_weight: int = 1,
        null_state: object = None,
        missing: str = "error",
        structural_zeros: Mapping[tuple, ArrayLike] | None = None,
        psgd_params: dict | None = None,
        backend: str | AdditiveBackend = "masking",
        min_honest: int | None = None,
        max_cells: int = 2**22,
        verbose: int = 0,
    ) -> None:
        self.cliques = cliques
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.states = states
        self.accountant = accountant
        self.inference = inference
        self.regularization = regularization
        self.discrepancy = discrepancy
        self.max_iter = max_iter
        self.tied = tied
        self.contribution = contribution
        self.max_records = max_records
        self.max_weight = max_weight
        self.null_state = null_state
        self.missing = missing
        self.structural_zeros = structural_zeros
        self.psgd_params = psgd_params
        self.backend = backend
        self.min_honest = min_honest
        self.max_cells = max_cells
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        tags.non_deterministic = True
        return tags

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: TableLike,
        y: object = None,
        *,
        party: ArrayLike | None = None,
        individual: ArrayLike | None = None,
        sample_weight: WeightsLike | None = None,
    ) -> Self:
        """Release noisy tables of the rows and learn a field from them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or HorizontalPartition
            Labels of the states.
        y : Ignored
            Not used, present for API consistency by convention.
        party : array-like of shape (n_samples,), default=None
            Who holds each row. The holders add noise to their own tables and sum them
            under the `backend`; a person's rows must all be with one of them.
        individual : array-like of shape (n_samples,), default=None
            The person behind each row; needs `contribution`.
        sample_weight : array-like of int of shape (n_samples,), default=None
            Weights from 0 to `max_weight`.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        aligned = {"individual": individual, "sample_weight": sample_weight}
        partition = check_horizontal(
            self, X, party, dtype=None, ensure_all_finite=False, aligned=aligned
        )
        several = party is not None or hasattr(X, "federate")
        check_combinations(self, several, aligned)
        with tell_progress(self, X, y, step="step") as progress:
            if self.method == "psgd":
                self._fit_psgd(partition, progress)
            elif self.cliques != "mst":
                self._fit_tables(partition, several, progress)
            elif several:
                self._fit_shared_mst(partition, progress)
            else:
                self._fit_mst(partition, progress)
        return self

    def _fit_tables(self, partition, several, progress):
        cliques, ties = resolve_ties(
            resolve_cliques(self.cliques, self._nodes()), self.tied
        )
        # Mistakes that show without the rows must not cost budget.
        plan = None if self.states is None else self._plan(cliques, ties)
        if self.method == "non_private":
            noise, spent = None, self._announce_exact_release()
        else:
            noise = CountMechanism.for_budget(
                self.epsilon, self.delta, *sensitivities(ties, self._contribution())
            )
            if several:
                noise = distribute(noise, partition.n_parties, self.min_honest)
                self._check_noise_fits(noise)
            spent = self._spend(noise.rho, "contingency tables of cliques")
        # Nothing above has looked at the values of the rows.
        states, contribution, layout = plan or self._plan(cliques, ties, partition)
        if several:
            settings = tables_settings(
                layout, self._nodes(), states, contribution, self.missing, noise
            )
            with self._federate(partition, TablesParty, settings) as federation:
                counts = release_tables(federation, noise)
            ledger = federation.ledger
        else:
            counts = self._count(partition, layout, states, contribution)
            counts = counts if noise is None else noise.release(counts)
            ledger = single_holder_ledger(partition, noise)
        std = 0.0 if noise is None else noise.std
        tables = NoisyTables(
            layout,
            counts / contribution.unit,
            np.full(len(layout.shapes), std / contribution.unit),
            "none" if noise is None else noise.kind,
        )
        self._learn(tables, states, counts, progress, contribution.unit)
        self.noise_, self.privacy_spent_, self.ledger_ = noise, spent, ledger

    def _fit_mst(self, partition, progress):
        n, contribution = len(self._nodes()), self._contribution()
        if self.states is not None:
            self._pair_sizes(self._states())  # may raise, before budget is spent
        budget = TreeBudget(self.epsilon, self.delta, n, contribution.per_clique)
        spent = self._spend(budget.rho, "one-way tables, a tree and two-way tables")
        states = self._states(partition)
        sizes = self._pair_sizes(states)
        cliques, counts, std = measure_tree(
            lambda layout: self._count(
                partition, layout, states, self._contribution(states)
            ),
            sizes,
            budget,
        )
        layout = self._layout(cliques, np.arange(len(cliques)), states)
        tables = NoisyTables(layout, counts.astype(float), std, budget.one_way.kind)
        self._learn(tables, states, counts, progress)
        self.noise_, self.privacy_spent_ = budget.two_way, spent
        self.ledger_ = single_holder_ledger(partition, budget)

    def _fit_shared_mst(self, partition, progress):
        nodes, contribution = self._nodes(), self._contribution()
        budget = SharedTreeBudget(
            self.epsilon, self.delta, len(nodes), contribution.per_clique
        )
        noise = distribute(budget.noise, partition.n_parties, self.min_honest)
        self._check_noise_fits(noise)
        states = self._states()
        sizes, unit = self._pair_sizes(states), budget.edge_unit
        spent = self._spend(noise.rho, "all two-way tables, and those of a tree")
        settings = tables_settings(
            all_pairs(sizes),
            nodes,
            states,
            self._contribution(states),
            self.missing,
            noise,
        )
        with self._federate(partition, TreeParty, settings) as federation:
            edges, counts = release_tree(federation, noise, sizes, budget)
        layout = self._layout(edges, np.arange(len(edges)), states)
        std = np.full(len(edges), noise.std / unit)
        tables = NoisyTables(layout, counts / unit, std, noise.kind)
        self._learn(tables, states, counts, progress, unit)
        self.noise_, self.privacy_spent_ = noise, spent
        self.ledger_ = federation.ledger

    def _pair_sizes(self, states):
        """Numbers of states, if tables of all pairs of columns are not too large."""
        sizes = [len(labels) for labels in states.values()]
        check_table_sizes(combinations(range(len(sizes)), 2), sizes, self.max_cells)
        return sizes

    def _fit_psgd(self, partition, progress):
        options = PSGDOptions.from_dict(self.psgd_params or {})
        cliques = resolve_cliques(self.cliques, self._nodes())
        ties = np.arange(len(cliques))
        plan = None if self.states is None else self._plan(cliques, ties)
        spent = self._spend(None, "noisy gradients")
        states, _, layout = plan or self._plan(cliques, ties, partition)
        (block,) = partition._blocks.values()
        codes, _, _ = check_rows(
            block, self._nodes(), states, self._contribution(), "error"
        )
        theta = private_gradient_descent(
            codes, layout, self.epsilon, self.delta, options, progress
        )
        self._set_model(layout, theta, states)
        self.n_iter_, self.noise_, self.privacy_spent_ = options.n_steps, None, spent
        self.ledger_ = single_holder_ledger(partition, self)

    def _contribution(self, states=None):
        return Contribution(
            self.contribution or "record",
            self.max_records if self.contribution == "clip" else 1,
            self.max_weight,
            None if states is None else null_codes(states, self.null_state),
        )

    def _plan(self, cliques, ties, partition=None):
        """States, contribution and layout; from the rows if they are not given."""
        states = self._states(partition)
        return states, self._contribution(states), self._layout(cliques, ties, states)

    def _states(self, partition=None):
        if self.states is not None:
            return check_column_states(self.states, self._nodes())
        (block,) = partition._blocks.values()
        return states_from_data(block["X"], self._nodes())

    def _count(self, partition, layout, states, contribution):
        (block,) = partition._blocks.values()
        rows = check_rows(block, self._nodes(), states, contribution, self.missing)
        codes, individual, weight = rows
        return count_tables(codes, layout, contribution, individual, weight)
