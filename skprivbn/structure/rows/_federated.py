"""Networks of discrete and continuous columns, from rows of several parties."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Literal

import numpy as np
from sklearn.callback import CallbackSupportMixin
from sklearn.exceptions import ConvergenceWarning

from skprivbn.base import BACKEND_CONSTRAINT, EitherPartitionMixin, PrivateEstimator
from skprivbn.bayesian_network import (
    BayesianNetwork,
    ConditionalGaussianBayesianNetwork,
)
from skprivbn.crypto import BACKENDS, AdditiveBackend
from skprivbn.crypto.shares import resolve_count_backend
from skprivbn.federation import declare_noise
from skprivbn.graphical_model._plans import noise_on_tables
from skprivbn.graphical_model._release import gap_rule, release_tables
from skprivbn.graphical_model._searches import Released
from skprivbn.graphical_model._tables import TableLayout
from skprivbn.partition._base import holds_columns
from skprivbn.partition._vertical import PARTIES_CONSTRAINT
from skprivbn.privacy import PrivacyAccountant
from skprivbn.privacy._noise_report import report_noise
from skprivbn.privacy._options import PRIVACY_CONSTRAINTS, charge
from skprivbn.programs import keep_predictions, score_rows
from skprivbn.programs._columns import (
    column_terms,
    describe_shares,
    note_alignment,
)
from skprivbn.structure._edge_rules import (
    check_ordering,
    edge_rules,
    warn_of_column_order,
)
from skprivbn.structure._learnt import (
    DiscreteNetworkMixin,
    integer_seed,
    refuse_options,
    warn_of_one_holder,
)
from skprivbn.structure._scores import CRITERIA
from skprivbn.structure._search import complete
from skprivbn.structure._tables import ReleasedTables, noisy_terms, sets_in
from skprivbn.structure.rows._checks import (
    COUNT_PARAMS,
    SEARCH_PARAMS,
    check_options,
    check_values,
    declared_states,
    known_parents,
    read_settings,
    split_states,
    warn_of_numbers,
)
from skprivbn.structure.rows._columns import (
    ColumnNetworkTerms,
    network_of_columns,
    note_columns,
)
from skprivbn.structure.rows._program import (
    RowNetworkTerms,
    list_tables,
    network_of_rows,
)
from skprivbn.structure.rows._search import SEARCHES, learning_from
from skprivbn.utils import column_names, warn_user
from skprivbn.utils._sklearn import (
    HasMethods,
    Interval,
    RenamedParameters,
    StrOptions,
    moved_into,
)
from skprivbn.utils._typing import RandomStateLike


class FederatedBayesianNetwork(
    EitherPartitionMixin,
    RenamedParameters,
    CallbackSupportMixin,
    DiscreteNetworkMixin,
    PrivateEstimator,
):
    """Learn a discrete or mixed Bayesian network from rows or columns of parties.

    Every party runs the same search for a graph. When the search needs contingency
    tables, the parties count their own rows, and a secure sum adds the counts: many
    tables in a round, only those that the search needs, and none of them twice. The
    network equals that of the pooled rows.

    Parties may also hold columns about the same records (`parties`). Then tables, and
    sums of continuous columns, are computed on shares before they are opened.

    Read more in the :ref:`User Guide <structure_rows>`.

    Parameters
    ----------
    method : {"hill_climbing", "ges", "k2"}, default="hill_climbing"
        How to search for the graph.

        - "hill_climbing" adds, turns or removes the edge that raises the score most.
        - "ges" does so with classes of graphs that imply the same independences [1]_,
          and climbs on from a member of the class that it finds.
        - "k2" goes through the columns in a given order and adds parents to each [2]_.

    criterion : {"k2", "stirling", "wright_yang", "bdeu", "bic"}, default="bic"
        Score of a family: the exact score of Cooper and Herskovits, its
        approximation by Stirling's formula, the same without constants, the
        likelihood-equivalent uniform score, or the Bayesian information criterion.
    max_parents : int, default=3
        Most parents of a column.
    parties : dict, default=None
        Which party holds which columns, if columns and not rows are spread.
        Continuous ones are rounded to 2**-13 of their standard deviation. Without
        missing entries, `site_effects`, ``n_bootstrap`` and `epsilon`.
    site_effects : {"mechanisms"}, default=None
        With "mechanisms", any column may depend on its parents in another way at each
        party, if BIC prefers that; directions are then also told by fewer mechanisms
        differing. Beside tables, parties add up log-likelihoods of their own. For
        discrete columns, ``criterion="bic"``, another `method` than "ges" and no
        ``n_bootstrap``: samples of rows would tell records.
    structure : mapping of str to sequence of str, default=None
        Parents of every column, if known: then only probabilities are learnt.
    search_params : dict, default=None
        Settings of the search that are not to have their defaults:

        - ``"ordering"``, for "k2": all columns, by name or position, parents before
          children. None takes the order of the columns, and warns.
        - ``"required_edges"``, ``"forbidden_edges"``: lists of (parent, child), by name
          or position, that the graph must have, or must not.
        - ``"tiers"``: all columns in groups, such as those of different times: no edge
          leads from a later group to an earlier one.
        - ``"equivalent_sample_size"`` (10): prior weight of ``criterion="bdeu"``.
        - ``"tabu_length"`` (0), for "hill_climbing" and "ges": how many steps the
          search goes on downhill, in case that there is a higher place behind.
        - ``"n_restarts"`` (0): how often a quarter of the edges is removed at random
          from the best graph, to climb again from there.
        - ``"n_bootstrap"`` (0): bootstrap samples in which the search is repeated, for
          `edge_confidence_`. Of every table that a search needs, as many rows are drawn
          again from its cells, by the search: parties add up nothing but some more
          tables. Numbers of continuous columns are drawn as normal in every
          configuration.

    count_params : dict, default=None
        How rows are counted:

        - ``"alpha"`` (1): pseudo-count of every cell of a table; 0 gives maximum
          likelihood. Variances of continuous columns get so many rows with the variance
          of all.
        - ``"min_cell_count"`` (0): each party tells its counts in steps of it, rounded
          down. Smaller ones so count as none, because small cells expose people, and do
          not follow from tables that overlap. What comes out then differs from pooled
          rows.
        - ``"max_iter"`` (100), ``"tol"`` (1e-5): most steps of ``missing="em"``, which
          stops when the mean log-likelihood of a row rises by less.

    states : mapping or list, default=None
        Public states of every column: labels, their number k for 0, ..., k - 1, or
        "continuous". Columns that it leaves out have the categories of a dataframe;
        the labels of others are told by each party. Cross-validation needs all: a label
        that is missing in one part of the rows would be unknown to the network learnt
        there.

        Continuous columns hold numbers. Their nodes are linear in their continuous
        parents, with coefficients and variance for every configuration of their
        discrete parents; discrete columns then have discrete parents only. Needs
        ``criterion="bic"`` and another `method` than "ges".
    missing : {"auto", "error", "skip", "em"}, default="auto"
        What to do with missing entries (NaN or None) in `fit`. "auto" is "error"
        without `epsilon`; with it, an error would tell that there is such a row, which
        is left out instead, and "error" is refused. "skip" leaves a row out of the
        tables that need a missing entry (of sums of continuous columns, if it lacks
        any of these), which biases them unless entries are missing whatever the values
        of the others. "em" does so to find the graph, and
        learns its probabilities by expectation maximisation from all rows, which
        assumes only that what is missing does not depend on the missing values.
    backend : str or AdditiveBackend, default="masking"
        How tables are hidden while they are added.
    random_state : int, RandomState instance or None, default=None
        Chooses what restarts remove, and draws bootstrap samples.
    epsilon : float, default=None
        Privacy budget of one fit. The tables of all sets of ``max_parents + 1``
        columns, or of the families of `structure`, are released once with noise, and
        graph and probabilities read off them: the fewer sets, the less noise. None
        tells exact tables.
    delta : float, default=0.0
        With `epsilon`: 0 adds discrete Laplace noise, more discrete Gaussian noise.
    accountant : PrivacyAccountant, default=None
        Charged before any row is touched.
    min_honest : int, default=None
        With `epsilon`: how many parties are trusted to add their share of the noise
        and to keep it secret. None means half of them, rounded up; sites accept no
        more.
    verbose : int, default=0
        1 prints every tenth round of tables, 2 every one.

    Attributes
    ----------
    network_ : BayesianNetwork or ConditionalGaussianBayesianNetwork
        Structure, and probabilities (count + alpha) / (total + states * alpha). The
        latter with continuous columns. Of all rows together with `site_effects`, too.
    parents_ : dict of str to list of str
        Parents of every column; with "k2" in the order in which they were found.
    adjacency_matrix_ : ndarray of bool of shape (n_features, n_features)
        The graph; entry (i, j) is an edge from i to j.
    cpdag_ : ndarray of bool of shape (n_features, n_features)
        Its Markov equivalence class, undirected edges in both directions.
    edge_confidence_ : ndarray of shape (n_features, n_features)
        With `n_bootstrap`: the share of samples in whose graph there is an edge from i
        to j. Edges that could point either way count half in both directions, unless
        an ordering, tiers, required or forbidden edges, or continuous columns give
        directions a meaning; ``edge_confidence_ + edge_confidence_.T`` is the share
        with any edge.
    changing_mechanisms_ : ndarray of bool of shape (n_features,)
        With `site_effects`: which columns depend on their parents in another way at
        each party, by BIC.
    change_pvalues_ : ndarray of shape (n_features,)
        The same: p values of the likelihood-ratio test of one mechanism for all.
    log_score_ : float
        Sum of the scores of all families.
    tables_ : list of tuple of str
        Columns of every table that became known.
    n_iter_ : int
        Steps of "em", 0 without.
    converged_ : bool
        Whether "em" ended before `max_iter`.
    n_samples_ : float
        Rows of all parties (noisy with `epsilon`).
    ledger_ : Ledger
        Every message of the last fit, and who learnt what.
    privacy_spent_ : PrivacyCost
        What the fit cost, with `epsilon` only.
    noise_report_ : NoiseReport
        What noise does to the result, with `epsilon` only.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if `X` has string names.

    See Also
    --------
    K2StructureLearner : The same as ``method="k2"`` on a pooled table.
    PrivateK2StructureLearner : For columns of several parties.
    FederatedGaussianBayesianNetwork : For continuous columns.

    References
    ----------
    .. [1] D. Chickering, "Optimal Structure Identification with Greedy Search", JMLR
       3, 2002.
    .. [2] G. Cooper, E. Herskovits, "A Bayesian Method for the Induction of
       Probabilistic Networks from Data", Machine Learning 9, 1992.

    Examples
    --------
    >>> import pandas as pd
    >>> from skprivbn.datasets import load_asia
    >>> from skprivbn.structure import FederatedBayesianNetwork
    >>> asia = load_asia()
    >>> X = pd.DataFrame(asia.sample(3000, random_state=0), columns=asia.nodes)
    >>> party = [f"hospital {i % 3}" for i in range(3000)]
    >>> model = FederatedBayesianNetwork().fit(X, party=party)
    >>> sorted(model.network_.parents["either"])
    ['lung', 'tub']
    """

    _of_some_fits = (
        "edge_confidence_",
        "privacy_spent_",
        "changing_mechanisms_",
        "change_pvalues_",
    )
    protocols = (
        network_of_rows,
        network_of_columns,
        release_tables,
        score_rows,
        keep_predictions,
    )
    _parameter_constraints = {
        "method": [StrOptions(set(SEARCHES))],
        "criterion": [StrOptions(set(CRITERIA))],
        "max_parents": [Interval(Integral, 0, None, closed="left")],
        "parties": PARTIES_CONSTRAINT,
        "site_effects": [StrOptions({"mechanisms"}), None],
        "structure": [HasMethods("items"), None],
        "search_params": [dict, None],
        "count_params": [dict, None],
        "states": [Mapping, list, tuple, None],
        "missing": [StrOptions({"auto", "error", "skip", "em"})],
        "backend": BACKEND_CONSTRAINT,
        "random_state": ["random_state"],
        **{k: v for k, v in PRIVACY_CONSTRAINTS.items() if k != "bounds"},
        "verbose": ["verbose"],
    }
    _backends = BACKENDS
    _networks = (BayesianNetwork, ConditionalGaussianBayesianNetwork)
    # what is learnt from rows is scored on rows, not on columns of parties
    _scores_columns = None
    _renamed = {
        **moved_into("search_params", SEARCH_PARAMS),
        **moved_into("count_params", COUNT_PARAMS),
        "continuous": "states={'age': 'continuous', ...}",
    }
    _steps = {"step": "round"}

    def __init__(
        self,
        method: str = "hill_climbing",
        *,
        criterion: str = "bic",
        max_parents: int = 3,
        parties: Mapping | None = None,
        site_effects: str | None = None,
        structure: Mapping[str, Sequence[str]] | None = None,
        search_params: dict | None = None,
        count_params: dict | None = None,
        states: Mapping | Sequence | None = None,
        missing: Literal["auto", "error", "skip", "em"] = "auto",
        backend: str | AdditiveBackend = "masking",
        random_state: RandomStateLike = None,
        epsilon: float | None = None,
        delta: float = 0.0,
        accountant: PrivacyAccountant | None = None,
        min_honest: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.criterion = criterion
        self.max_parents = max_parents
        self.parties = parties
        self.site_effects = site_effects
        self.structure = structure
        self.search_params = search_params
        self.count_params = count_params
        self.states = states
        self.missing = missing
        self.backend = backend
        self.random_state = random_state
        self.epsilon = epsilon
        self.delta = delta
        self.accountant = accountant
        self.min_honest = min_honest
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.allow_nan = (
            gap_rule(self) != "error" or self.epsilon is not None
        )
        return tags

    @property
    def _fit_checks(self):
        if self.epsilon is not None:  # nothing in a row may raise
            return {"ensure_all_finite": False}
        finite = True if gap_rule(self) == "error" else "allow-nan"
        return {"ensure_all_finite": finite}

    def _learn(self, partition, progress):
        names, settings = column_names(self), read_settings(self)
        states, continuous = split_states(self.states, names)
        check_options(self, settings, continuous)
        known = known_parents(self.structure, settings, names)
        if self.method == "k2" and known is None and self.max_parents > 0:
            warn_of_column_order(settings.ordering, names)
        terms = self._terms(settings, names, continuous, known)
        by_columns = holds_columns(partition)
        if by_columns:
            refuse_options(self, "for columns of several parties", "epsilon")
        if self.epsilon is None:
            states = declared_states(states, partition, names, continuous)
            terms = replace(terms, states=states)
            learn = self._learn_columns if by_columns else self._learn_exactly
            found = learn(partition, terms, progress)
        else:
            found = self._learn_privately(partition, terms)
        if "problem" in found:
            raise ValueError(found["problem"])
        self.n_samples_, self.log_score_ = found["n_samples"], found["log_score"]
        self.n_iter_ = found.get("n_iter", 0)
        self.converged_ = found.get("converged", True)
        if not self.converged_:
            warn_user(
                f"EM did not converge in {terms.max_iter} steps: raise max_iter or "
                "tol in count_params",
                ConvergenceWarning,
            )
        if "edge_confidence" in found:
            self.edge_confidence_ = found["edge_confidence"]
        if "differs" in found:
            self.changing_mechanisms_ = found["differs"]
            self.change_pvalues_ = found["p_values"]
        discrete = [v for v in range(len(names)) if v not in continuous]
        self._set_network(
            names,
            found["states"],
            dict(enumerate(found["parents"])),
            dict(zip(discrete, found["cpts"])),
            dict(zip(continuous, found["lines"])),
        )
        self.tables_ = [
            tuple(names[v] for v in key) for key in sets_in(found["tables"])
        ]

    def _learn_exactly(self, partition, terms, progress):
        """Let parties search on exact tables, which they add up one after another."""
        check_values(partition, terms.names, terms.states, terms.continuous)
        charge(self, "contingency tables")

        def tell(what):
            with progress.step():
                pass

        with self._federate(partition, network_of_rows, terms) as federation:
            # sites may have raised the count below which cells are hidden
            terms = federation.terms
            found = federation.run(progress=tell)
        self.ledger_ = federation.ledger
        if "problem" not in found:
            warn_of_numbers(terms.names, terms.states, found["states"])
            list_tables(self.ledger_, terms, found["tables"], found["moments"])
        if terms.n_bootstrap:
            self.ledger_.note(
                f"{terms.n_bootstrap} bootstrap samples are drawn from these tables: "
                "rows are counted for the tables alone"
            )
        return found

    def _learn_columns(self, partition, terms, progress):
        """Let parties search on tables and sums that they make on shares."""
        terms = ColumnNetworkTerms(**vars(terms), **column_terms(partition))
        check_values(partition, terms.names, terms.states, terms.continuous)
        warn_of_one_holder(partition)
        charge(self, "contingency tables")
        with partition.federate(network_of_columns, terms) as federation:
            found = federation.run(turn=progress.step)
        self.ledger_, terms = federation.ledger, federation.terms
        note_alignment(self.ledger_, terms)
        describe_shares(
            self.ledger_, resolve_count_backend("ot"), found["n_hash_calls"]
        )
        if "problem" not in found:
            warn_of_numbers(terms.names, terms.states, found["states"])
            note_columns(self.ledger_, terms, found)
        return found

    def _learn_privately(self, partition, terms):
        """Search on tables that are released once with noise."""
        has_individuals = "individual" in partition.aligned
        release = noisy_terms(self, partition, terms, has_individuals)
        noise = release.noise(len(terms.names), partition.n_parties)
        self._check_noise_fits(noise)
        what = "contingency tables of all rows"
        spent = charge(self, what, noise, unit=release.protects)
        with self._federate(partition, release_tables, release) as federation:
            federation.run()
            (counts,) = federation.released
        declare_noise(federation.ledger, noise, what, release.protects)
        self.ledger_, self.privacy_spent_ = federation.ledger, spent
        layout = TableLayout(release.cliques, release.sizes, release.ties)
        unit = release.contribution.unit
        noisy = Released.from_counts(layout, counts, unit, noise).tables
        self._report_noise(noisy, release, noise, partition.n_parties)
        released = dict(zip(layout.cliques, layout.split(noisy.values)))
        tables = ReleasedTables(released, release.sizes, noisy.std[0] ** 2)
        found = complete(learning_from(terms, tables, tables.n_samples))
        return found | {"states": release.states, "n_samples": tables.n_samples}

    def _report_noise(self, released, terms, noise, n_parties):
        search = terms.search

        def std_with(delta):
            changed = replace(terms, delta=delta)
            return search.cell_std(changed.noise(len(terms.nodes), n_parties))

        numbers, warnings = noise_on_tables(released, terms.nodes)
        report_noise(
            self,
            noise,
            terms.protects,
            search.cell_std(noise),
            numbers,
            warnings,
            n_rows=released.n_records(),
            std_with=std_with,
        )

    def _terms(self, settings, names, continuous, known):
        """Return the terms of a search; states of columns are yet to be found."""
        discrete = [v for v in range(len(names)) if v not in continuous]
        impossible = [(u, v) for u in continuous for v in discrete]
        allowed, required = edge_rules(
            names,
            settings.required_edges,
            [*(settings.forbidden_edges or ()), *impossible],
            settings.tiers,
        )
        return RowNetworkTerms(
            names=names,
            states=[[0] if v in continuous else None for v in range(len(names))],
            continuous=continuous,
            max_parents=max(map(len, known)) if known else self.max_parents,
            min_cell_count=settings.min_cell_count,
            missing=gap_rule(self),
            known=known,
            allowed=allowed,
            required=required,
            ordering=check_ordering(settings.ordering, names),
            method=self.method,
            criterion=self.criterion,
            equivalent_sample_size=float(settings.equivalent_sample_size),
            tabu_length=settings.tabu_length,
            n_restarts=settings.n_restarts,
            n_bootstrap=settings.n_bootstrap,
            seed=integer_seed(self.random_state),
            alpha=float(settings.alpha),
            max_iter=settings.max_iter,
            tol=float(settings.tol),
            site_effects=self.site_effects,
        )

    def _set_network(self, names, states, parents, cpts, lines):
        """Set the network with the parents found, and what follows from it."""
        self.parents_ = {
            name: [names[u] for u in parents[v]] for v, name in enumerate(names)
        }
        known = {names[v]: states[v] for v in cpts}
        cpts = {names[v]: table for v, table in cpts.items()}
        if lines:
            self.network_ = ConditionalGaussianBayesianNetwork(
                names,
                known,
                self.parents_,
                cpts,
                *({names[v]: found[k] for v, found in lines.items()} for k in range(3)),
            )
        else:
            self.network_ = BayesianNetwork(names, known, self.parents_, cpts)
        self.adjacency_matrix_ = np.array(self.network_.adjacency_matrix)
        self.cpdag_ = self.network_.to_cpdag()
