"""Undirected graphical models learnt from differentially private tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.callback import CallbackSupportMixin

from skprivbn.base import BACKEND_CONSTRAINT, EitherPartitionMixin, FederatedEstimator
from skprivbn.crypto import AdditiveBackend
from skprivbn.federation import Ledger
from skprivbn.graphical_model._estimation import (
    estimate_potentials,
    make_field,
    warn_of_misfit,
)
from skprivbn.graphical_model._plans import (
    ask_holders,
    charge_fit,
    check_columns,
    check_combinations,
    plan_search,
    read_tables,
    report_tables,
    rows_of,
    settings_of,
)
from skprivbn.graphical_model._psgd import noise_multiplier, private_gradient_descent
from skprivbn.graphical_model._queries import RandomFieldQueries
from skprivbn.graphical_model._release import (
    column_tables,
    release_tables,
    single_holder_ledger,
)
from skprivbn.graphical_model._searches import Released
from skprivbn.graphical_model._states import (
    check_bins,
    check_domain,
    note_states_read_off,
    null_codes,
    public_states,
    public_types,
    states_from_data,
)
from skprivbn.graphical_model._tables import Contribution, layout_for
from skprivbn.partition import is_partition
from skprivbn.partition._base import holds_columns
from skprivbn.partition._vertical import PARTIES_CONSTRAINT
from skprivbn.privacy import CountMechanism, PrivacyAccountant, PrivacyCost
from skprivbn.privacy._noise_report import report_noise
from skprivbn.privacy._options import (
    PRIVACY_CONSTRAINTS,
    delta_of,
    warn_of_fit,
)
from skprivbn.programs import keep_predictions, score_rows
from skprivbn.utils import tell_progress
from skprivbn.utils._sklearn import (
    RenamedParameters,
    StrOptions,
    _fit_context,
    moved_into,
)
from skprivbn.utils._typing import TableLike, WeightsLike
from skprivbn.utils._validation import column_types


class DPCGMLearner(
    EitherPartitionMixin,
    RenamedParameters,
    CallbackSupportMixin,
    RandomFieldQueries,
    FederatedEstimator,
):
    """Markov random field learnt from contingency tables with private noise.

    The contingency tables of the cliques are released once, with discrete Laplace or
    Gaussian noise; estimation from the noisy tables is post-processing and costs no
    privacy. Neighbouring data sets differ by one person, added or removed. Parties may
    hold different rows (``party=`` in `fit`) or different columns (`parties`).

    Read more in the :ref:`User Guide <graphical_model>`.

    Parameters
    ----------
    cliques : {"aim", "mst", "chain", "tree"} or list of tuples, default="aim"
        Which columns interact. "aim" chooses tables of one to three columns privately,
        in rounds; each round takes the tables that the current model fits worst [2]_.
        "mst", of one holder, chooses a tree privately, for a third of the budget.
        "chain" joins neighbouring columns, "tree" every column with the last one. A
        list gives the columns of each clique, by name or position.

    clique_params : dict, default=None
        `stationary` (False): whether columns are time steps; given cliques that are
        shifts of each other then share their potentials, except those of the first
        step. `structural_zeros`: mapping of given cliques to boolean arrays, True for
        configurations known to be impossible. For "aim": `workload`, a public list of
        the sets of columns whose tables matter most, or a mapping to their weights
        (None: all pairs and triples equally); `max_model_cells` (524288), the largest
        table of exact inference in the chosen model. More may be more accurate, and
        takes longer.

    parties : dict, default=None
        The columns of each party, if parties hold different columns: names, positions,
        slices or callables. Tables then stay secret-shared until noise is added, the
        number of records is public, and neighbouring data sets differ in the values of
        one record. Missing values and unknown labels count as the first state.

    epsilon : float or None, default=1.0
        Privacy budget of one fit. None uses exact tables, without any privacy.

    delta : float, default=0.0
        0 adds discrete Laplace noise (pure differential privacy), more discrete
        Gaussian noise.

    accountant : PrivacyAccountant, default=None
        Adds up the costs of fits on the same data, and refuses a fit that exceeds its
        budget. Without one, the second fit of the same estimator or of its clones, as
        in a search, warns (within one process).

    min_honest : int, default=None
        With several holders: number of parties trusted to add their share of the noise
        and to keep it secret. None means half of them, rounded up; sites accept no
        more.

    method : {"auto", "cgm", "naive", "psgd"}, default="auto"
        Estimator of the potentials. "auto" is an empirical Bayes estimate without
        tuning parameters; "cgm" the collective graphical model's expectation
        maximisation [1]_; "naive" maximum likelihood from the projected noisy tables;
        "psgd" stochastic gradient descent with clipped and noisy gradients, which
        releases no tables. Exact tables are fitted without a noise model.

    method_params : dict, default=None
        Settings of the method. For all: `inference` ("auto"): exact, or loopy belief
        propagation if an intermediate table would exceed `max_cells` (4194304);
        "exact" and "loopy" force one. `max_iter` (2000): maximum number of iterations
        of "cgm", or of "naive" for each penalty on its path.
        For "cgm": `discrepancy` (0.7): iterations end when the mean distance between
        noisy and expected tables is this fraction of the mean absolute noise, or no
        longer falls; more iterations would fit the noise. `tol` (1e-6): they also end
        when no potential changes by more. ``inference="nlbp"`` solves the E-step by
        non-linear belief propagation as in [1]_ instead of by its dual: slower, with
        the same result; with `damping`, the weight of the previous tables in each of
        its iterations, 1 - alpha of [1]_ (None: a growing weight, since a constant one
        does not converge for Laplace noise).
        For "naive": `regularization` (1e-4), the ridge penalty; `projection` (True),
        whether noisy tables are first made non-negative, with the same total.
        For "psgd": `sampling_rate` (0.02), the probability of a row, or person, to be
        in the batch of a step; `n_steps` (200); `clip`, the bound on a gradient's norm
        (None: the largest norm of a row's counts); `learning_rate` (0.4).

    states : mapping or list, default=None
        Public states of every column: labels, or their number k for 0, ..., k - 1.
        With `epsilon`, unknown values count as missing. None takes the categories of a
        dataframe as public; without categories, states are read off the data, 256 at
        most, which costs an infinite epsilon.

    bins : mapping of column to array-like, default=None
        Edges of continuous columns, which then need no `states`; they must be public,
        or found privately. Numbers outside go to the nearest bin. :meth:`sample` draws
        within the bins, with `epsilon` integers if all edges are integers (20, not
        20.0).

    contribution : {"normalize", "clip"}, dict or None, default=None
        How a person's records count in the tables, if persons have several records
        (``individual=`` in `fit`). "normalize" scales a person's records to add up to
        one per clique ("psgd": takes the mean of their gradients); "clip" counts at
        most `max_records` (1) of them. A dict may hold `max_records` beside `kind`;
        `max_weight` (1), the public bound to which sample weights are clipped; and
        `null_state`, a label for "nothing seen": a record adds nothing to cliques in
        which all its values are null. Noise grows with `max_records` and `max_weight`.

    missing : {"auto", "error", "skip"}, default="auto"
        Treatment of missing entries (NaN or None) in `fit`. "auto" is "error" without
        `epsilon`; with `epsilon` it leaves such rows out, and "error" is refused,
        because an error would disclose that such a row exists. "skip" leaves a row out
        only of the tables that need a missing entry.

    backend : str or AdditiveBackend, default="masking"
        How the tables of several holders are summed: "masking", "ckks", ...

    verbose : int, default=0
        1 prints every tenth step of the estimation, 2 every one.

    Attributes
    ----------
    network_ : MarkovRandomField
        The learnt field.

    potentials_ : dict of tuple of str to ndarray
        Log-potentials of the cliques.

    log_partition_ : float
        Logarithm of the field's normalising constant.

    cliques_ : list of tuple of str
        The cliques.

    noisy_tables_ : dict of tuple of str to ndarray of int
        The released tables; a stationary table under its first clique. Not for "psgd".

    table_unit_ : int or dict of tuple of str to int
        Count of one record in these tables: 1, or more where fractions of records are
        counted (persons with several records). A dict for "aim", whose tables differ.
        Not for "psgd".

    table_std_ : dict of tuple of str to float
        Standard deviation of the noise on each table, in records. Not for "psgd".

    noisy_marginals_ : dict of tuple of str to ndarray
        The tables as estimates of marginal probabilities; may be negative.

    marginal_std_ : dict of tuple of str to ndarray
        Their standard errors: sampling and noise.

    expected_error_ : dict of tuple of str to float
        Expected total variation distance between the field's marginals and the tables
        of the rows: for released tables from the noise; for other tables that "aim" has
        examined, the error of its model at that time. Not for "psgd".

    largest_clique_ : int
        Number of cells of the largest table of the inference.

    n_samples_ : float
        Number of records, estimated from the noisy tables. Not for "psgd".

    privacy_spent_ : PrivacyCost
        Cost of this fit.

    noise_report_ : NoiseReport
        Effect of the noise on the result, with `epsilon` only.

    noise_ : CountMechanism or DistributedNoise or None
        The noise of the tables.

    ledger_ : Ledger
        Every message of the last fit, and who learnt what.

    bins_ : dict of str to tuple
        Edges of continuous columns.

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
    .. [2] R. McKenna, B. Mullins, D. Sheldon, G. Miklau (2022). AIM: an adaptive and
       iterative mechanism for differentially private synthetic data. VLDB.

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

    _steps = {"step": "step"}
    _of_some_fits = ("noisy_tables_", "table_unit_", "table_std_", "n_samples_")
    _of_some_fits += ("expected_error_", "noisy_marginals_", "marginal_std_")
    _renamed = {
        "tied": "clique_params={'stationary': True}",
        "max_states": "clique_params={'max_model_cells': ...}",
        "max_records": "contribution={'kind': 'clip', 'max_records': ...}",
        "psgd_params": "method_params=",
        **moved_into("clique_params", ("structural_zeros", "workload")),
        **moved_into("contribution", ("max_weight", "null_state")),
        **moved_into(
            "method_params",
            ("discrepancy", "inference", "max_cells", "max_iter", "regularization"),
        ),
    }
    protocols = (release_tables, column_tables, score_rows, keep_predictions)
    _parameter_constraints = {
        "cliques": [StrOptions({"aim", "mst", "chain", "tree"}), list, tuple],
        "clique_params": [dict, None],
        "parties": PARTIES_CONSTRAINT,
        "epsilon": PRIVACY_CONSTRAINTS["epsilon"],
        "delta": PRIVACY_CONSTRAINTS["delta"],
        "accountant": PRIVACY_CONSTRAINTS["accountant"],
        "min_honest": PRIVACY_CONSTRAINTS["min_honest"],
        "method": [StrOptions({"auto", "cgm", "naive", "psgd"})],
        "method_params": [dict, None],
        "states": [Mapping, list, tuple, None],
        "bins": [Mapping, None],
        "contribution": [StrOptions({"normalize", "clip"}), dict, None],
        "missing": [StrOptions({"auto", "error", "skip"})],
        "backend": BACKEND_CONSTRAINT,
        "verbose": ["verbose"],
    }
    __metadata_request__fit = {"individual": True}
    _settings = property(settings_of)

    def __init__(
        self,
        cliques: str | Sequence[tuple] = "aim",
        *,
        clique_params: dict | None = None,
        parties: Mapping | Sequence | str | None = None,
        epsilon: float | None = 1.0,
        delta: float = 0.0,
        accountant: PrivacyAccountant | None = None,
        min_honest: int | None = None,
        method: str = "auto",
        method_params: dict | None = None,
        states: Mapping | Sequence | None = None,
        bins: Mapping[str | int, ArrayLike] | None = None,
        contribution: str | dict | None = None,
        missing: str = "auto",
        backend: str | AdditiveBackend = "masking",
        verbose: int = 0,
    ) -> None:
        self.cliques = cliques
        self.clique_params = clique_params
        self.parties = parties
        self.epsilon = epsilon
        self.delta = delta
        self.accountant = accountant
        self.min_honest = min_honest
        self.method = method
        self.method_params = method_params
        self.states = states
        self.bins = bins
        self.contribution = contribution
        self.missing = missing
        self.backend = backend
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
        X : array-like of shape (n_samples, n_features), HorizontalPartition or \
                VerticalPartition
            Labels of the states. A partition of columns with keys is first aligned by
            private set intersection.
        y : Ignored
            Not used, present for API consistency by convention.
        party : array-like of shape (n_samples,), default=None
            Holder of each row. The holders add noise to their own tables and sum them
            by the `backend`; all rows of a person must be at one holder.
        individual : array-like of shape (n_samples,), default=None
            The person behind each row; needs `contribution`. Rows without a label are
            not counted.
        sample_weight : array-like of int of shape (n_samples,), default=None
            Weights from 0 to the `max_weight` of `contribution`.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        aligned = {"individual": individual, "sample_weight": sample_weight}
        partition = self._check_rows(X, party, **aligned)
        several = party is not None or self.parties is not None or is_partition(X)
        warn = partial(warn_of_fit, self)
        states = public_states(
            self.states, self._nodes(), partition, self._checked_bins(), warn
        )
        check_combinations(self, several, aligned, states)
        if holds_columns(partition):
            check_columns(self, aligned)
        self._learn_watched(X, y, partition, states, several)
        self._types = column_types(X)
        if self.epsilon is not None:
            self._types = public_types(self._types, self.network_.states, self.bins_)
        return self

    def _learn(self, partition, states, several, progress):
        by_columns = holds_columns(partition)
        # Which tables, with which noise, at which cost: before this is spent, nothing
        # looks at the values of the rows, and mistakes that show without them are free.
        search = plan_search(self, by_columns)
        n_parties = partition.n_parties if several else None
        noise = search.noise_of(n_parties, self.min_honest)
        if several and not by_columns:
            self._check_noise_fits(noise)
        if states is not None:
            self._check_states(states, search)
        spent = charge_fit(self, search, states, noise, several, by_columns)
        # the rows: noisy tables, or noisy gradients
        if states is None:
            states = self._read_states(partition, search)
        make_layout = partial(layout_for, self, states)
        if self.method == "psgd":
            layout = make_layout(search.cliques, search.ties)
            self._descend(layout, partition, states, progress)
            ledger = single_holder_ledger(self, partition.names, search, noise)
        else:
            *told, ledger = ask_holders(self, search, partition, states, noise, several)
            released = search.read(*told, noise, make_layout)
            # what never sees a row: potentials of the field, from noisy tables
            self._keep(released, states, progress)
            if noise is not None:
                report_tables(self, released, search, noise, n_parties)
        if self.epsilon and np.isinf(spent.epsilon):
            note_states_read_off(ledger)
        self.noise_, self.privacy_spent_, self.ledger_ = noise, spent, ledger

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
        names = list(self.states)
        if isinstance(self.states, Mapping):
            names = list(dict.fromkeys([*self.states, *(self.bins or {})]))
            self.feature_names_in_ = np.asarray(names, dtype=object)
        self.n_features_in_, self._types = len(names), {}
        nodes = self._nodes()
        states = check_domain(self.states, self._checked_bins(), nodes)
        make_layout = partial(layout_for, self, states)
        tables = read_tables(noisy_tables, std, noise, nodes, make_layout, self)
        units = np.ones(len(tables.layout.shapes), dtype=int)
        with tell_progress(self, None, **self._steps) as progress:
            self._keep(Released(tables, tables.values, units), states, progress)
        self.noise_, self.privacy_spent_ = None, PrivacyCost(0.0, 0.0)
        self.ledger_ = Ledger(parties=())
        return self

    def _contribution(self, states=None):
        settings = self._settings
        return Contribution(
            settings.kind or "record",
            settings.max_records if settings.kind == "clip" else 1,
            settings.max_weight,
            None if states is None else null_codes(states, settings.null_state),
        )

    def _checked_bins(self):
        return check_bins(self.bins, self._nodes())

    def _check_states(self, states, search):
        """Refuse states that do not go with the other parameters."""
        self._contribution(states)  # may raise
        sizes = [len(labels) for labels in states.values()]
        make_layout = partial(layout_for, self, states)
        search.check(sizes, make_layout, self._settings.max_cells)

    def _read_states(self, partition, search):
        """Return states that are read off the rows, once they have been checked."""
        (block,) = partition._blocks.values()
        bins = self._checked_bins()
        warn = partial(warn_of_fit, self)
        states = states_from_data(block["X"], self._nodes(), bins, warn)
        states = check_domain(states, bins, self._nodes())
        self._check_states(states, search)
        return states

    def _descend(self, layout, partition, states, progress):
        """Learn by noisy gradients, without tables."""
        codes, persons, _ = rows_of(self, partition, states)
        settings, budget = self._settings, (self.epsilon, delta_of(self))
        theta = private_gradient_descent(
            codes, layout, *budget, progress, persons, **settings.of_method
        )
        self._set_model(layout, theta, states)
        self.n_iter_ = settings.n_steps
        multiplier = noise_multiplier(*budget, settings.sampling_rate, self.n_iter_)
        noise = CountMechanism("gaussian", *budget, multiplier, 1.0)
        report_noise(self, noise, self._protects(), math.nan)

    def _keep(self, released, states, progress):
        """Learn a field from released tables, and keep both."""
        tables = released.tables
        layout, self.n_samples_ = tables.layout, tables.n_records()
        if self.missing == "skip":
            tables = tables.rescaled()
        theta, self.n_iter_ = estimate_potentials(tables, self, progress)
        self._set_model(layout, theta, states)
        described = tables.describe(self.network_, self.n_samples_)
        self.noisy_marginals_, self.marginal_std_, expected = described
        warn_of_misfit(self.network_, self.noisy_marginals_, self.marginal_std_)
        # a tied table goes under its first clique
        firsts = np.unique(layout.ties, return_index=True)[1]
        names = [self.cliques_[i] for i in firsts]
        self.noisy_tables_ = dict(zip(names, layout.split(released.counts)))
        units = {name: int(unit) for name, unit in zip(names, released.units)}
        alike = len(set(units.values())) == 1
        self.table_unit_ = released.units[0].item() if alike else units
        self.table_std_ = dict(zip(names, released.tables.std.tolist()))
        nodes = self._nodes()
        self.expected_error_ = expected | {
            tuple(nodes[i] for i in clique): share
            for clique, share in released.missed.items()
        }

    def _protects(self, by_columns=False):
        """Whom noise hides: all rows of a person, a row, or the values of a record."""
        if by_columns:
            return "values"
        return "individuals" if self._settings.kind else "rows"

    def _set_model(self, layout, theta, states):
        self.network_ = make_field(layout, theta, self._nodes(), states)
        self.bins_ = self._checked_bins()
        self.cliques_ = self.network_.cliques
        self.potentials_ = dict(self.network_.potentials)
        self.log_partition_ = self.network_.log_partition
        self.largest_clique_ = layout.inference.n_cells
