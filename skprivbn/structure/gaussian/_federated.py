"""Linear Gaussian networks from secure sums of moments."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skprivbn.base import BACKEND_CONSTRAINT, EitherPartitionMixin, PrivateEstimator
from skprivbn.bayesian_network import GaussianBayesianNetwork
from skprivbn.crypto import AdditiveBackend
from skprivbn.partition._base import holds_columns
from skprivbn.partition._vertical import PARTIES_CONSTRAINT
from skprivbn.privacy import PrivacyAccountant
from skprivbn.privacy._options import (
    PRIVACY_CONSTRAINTS,
    bounds_of,
    charge,
    noise_terms,
)
from skprivbn.programs import Moments, keep_predictions, score_rows
from skprivbn.programs._columns import (
    column_terms,
    note_alignment,
)
from skprivbn.programs._noisy_moments import bootstrap_interval, draw_moments
from skprivbn.structure._edge_rules import read_edge_rules
from skprivbn.structure._learnt import (
    ContinuousNetworkMixin,
    refuse_options,
    warn_if_few_rows,
    warn_if_standardised,
    warn_if_units_differ,
    warn_of_one_holder,
)
from skprivbn.structure._resampling import drawn_covariances, share_of_edges
from skprivbn.structure._site_effects import MAX_PARENTS
from skprivbn.structure.gaussian._columns import (
    ColumnMomentsTerms,
    column_moments,
    score_gaussian_columns,
)
from skprivbn.structure.gaussian._program import (
    NetworkMomentsTerms,
    learn_moments,
    network_moments,
)
from skprivbn.structure.gaussian._scores import (
    BASES,
    basis_features,
    nearest_covariance,
)
from skprivbn.structure.gaussian._search import (
    DIRECTED_SEARCHES,
    EQUAL_VARIANCE_SEARCHES,
    FREE_SEARCHES,
    MAX_VARIABLES,
    SEARCHES,
    FoundGraph,
    choose,
    search,
)
from skprivbn.utils import column_names
from skprivbn.utils._linalg import symmetric
from skprivbn.utils._sklearn import Interval, RenamedParameters, StrOptions
from skprivbn.utils._typing import RandomStateLike


class FederatedGaussianBayesianNetwork(
    EitherPartitionMixin, ContinuousNetworkMixin, RenamedParameters, PrivateEstimator
):
    """Learn a Gaussian Bayesian network from rows or columns of parties.

    Linear Gaussian structure learning needs only the number of rows, column sums and
    cross-products. Two secure sums add these over the parties: first the column sums,
    then products about the mean, so that columns may be far from zero. The search then
    runs on the pooled covariance. For linear data this is more accurate and faster than
    :class:`FederatedNotearsADMM`, and discloses less.

    Parties may also hold columns about the same records (`parties`). Then every pair of
    parties multiplies its columns by oblivious transfers, and the coordinator learns
    the same covariance.

    Read more in the :ref:`User Guide <structure_federated>`.

    Parameters
    ----------
    method : {"auto", "equal_variance", "bic", "ges", "exact", "notears", "golem", \
            "pc", "lingam"}, default="auto"
        How to search for the graph.

        - "auto" takes "equal_variance" if one noise variance for all variables has a
          better BIC than one for each, so that columns may be in any units. Else it
          takes "lingam" if a test says that most columns are not normal, and "bic" if
          not; "pc" if there are not more rows than columns.
        - "equal_variance" climbs from the empty graph and from a GOLEM solution on
          the likelihood with one noise variance for all variables.
        - "golem" and "notears" optimise continuous weights and threshold them. They
          assume equal noise variances, too, and so columns in comparable units.
        - "ges", "exact", "pc" and "bic" do not assume equal noise variances; they
          learn a Markov equivalence class, and `network_` is one member of it. "bic"
          climbs from the empty graph, a GOLEM solution and what "ges" finds. "exact"
          finds the best of all graphs, for up to 20 columns. Units of columns do not
          matter, but to "bic" where noise is comparable: equal noise tells directions.
        - "lingam" reads directions off noise that is not normal, by DirectLiNGAM, in
          one sum for each column. Units and variances do not matter.

    parties : dict, default=None
        Which party holds which columns, if columns and not rows are spread. Columns
        are rounded to 2**-13 of their standard deviation.
    basis : {"sigmoid", "polynomial"}, default=None
        Let parents act through five functions of each of them instead of linearly.
        Takes one more sum. For methods "auto", "equal_variance" and "bic". `network_`
        is then the best linear network on the graph found.
    site_effects : {"levels", "mechanisms"}, default=None
        How parties may differ. With "levels", every party's own means are removed.
        With "mechanisms", any variable may depend on its parents in another way at
        each party, if BIC prefers that; directions are then also told by fewer
        mechanisms differing. A variable has up to three parents then, and one more sum
        is that of log-likelihoods, which parties read and the researcher does not. For
        method "auto". Both need parties with more than a few rows.
    lambda1 : float, default=0.1
        Sparsity of "notears".
    threshold : float, default=0.3
        Size up to which weights of "notears" and "golem" are no edge.
    significance : float, default=0.01
        Level of the tests of "pc".
    search_params : dict, default=None
        Rules about edges, for all methods but "pc", "golem" and "notears":

        - ``"required_edges"``, ``"forbidden_edges"``: lists of (parent, child), by name
          or position, that the graph must have, or must not.
        - ``"tiers"``: all columns in groups, such as those of different times: no edge
          leads from a later group to an earlier one.

    n_bootstrap : int, default=0
        Bootstrap samples in which the search is repeated, for `edge_confidence_`. The
        covariances of as many rows from a normal distribution are drawn at the
        coordinator: parties are asked for nothing more. With ``method="lingam"`` the
        order of the columns stays as it was found: shares are those of edges, given
        their directions. Without ``site_effects="mechanisms"``: sums of rows that
        sites draw again would tell the rows.
    backend : str or AdditiveBackend, default="masking"
        How sums are hidden. Parties read them, and tell the coordinator the moments.
    random_state : int, RandomState instance or None, default=None
        Draws the samples of `n_bootstrap`.
    epsilon : float, default=None
        Privacy budget of the moments. None releases them exactly.
    delta : float, default=0.0
        With `epsilon`: 0 adds discrete Laplace noise, more discrete Gaussian noise.
    bounds : pair, list of pairs or dict, default=None
        Public lower and upper bounds of the features, to which rows are clipped;
        needed with `epsilon`.
    accountant : PrivacyAccountant, default=None
        Charged before any row is touched.
    min_honest : int, default=None
        With `epsilon`: how many parties are trusted to add their share of the noise
        and to keep it secret. None means half of them, rounded up; sites accept no
        more.

    Attributes
    ----------
    network_ : GaussianBayesianNetwork
        Weights, intercepts and noise variances by least squares on the graph.
    adjacency_matrix_ : ndarray of bool of shape (n_features, n_features)
        The graph; entry (i, j) is an edge from i to j.
    cpdag_ : ndarray of bool of shape (n_features, n_features)
        Its Markov equivalence class, undirected edges in both directions.
    edge_confidence_ : ndarray of shape (n_features, n_features)
        With `n_bootstrap`: the share of samples in whose graph there is an edge from i
        to j. Edges of "ges", "exact", "pc" and "bic" that could point either way count
        half in both directions; ``edge_confidence_ + edge_confidence_.T`` is the share
        with any edge.
    weights_ : ndarray of shape (n_features, n_features)
        Raw weights of "notears" and "golem", else those of `network_`.
    method_ : str
        The method used, of interest with "auto".
    normality_pvalues_ : ndarray of shape (n_features,)
        With "lingam", and with "auto" where parties were asked for it: p values of a
        test that each column is normal.
    changing_mechanisms_ : ndarray of bool of shape (n_features,)
        With ``site_effects="mechanisms"``: which variables depend on their parents in
        another way at each party, by BIC.
    change_pvalues_ : ndarray of shape (n_features,)
        The same: p values of the likelihood-ratio test of one mechanism for all.
    n_samples_ : float
        Rows of all parties (noisy with `epsilon`).
    n_iter_ : int
        Number of secure sums.
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
    FederatedNotearsADMM : Many rounds instead of two sums.

    References
    ----------
    .. [1] Ng, Zhang. Towards federated Bayesian network structure learning with
       continuous optimization. AISTATS 2022, section 4.

    Examples
    --------
    >>> from skprivbn.datasets import make_linear_sem
    >>> from skprivbn.structure import FederatedGaussianBayesianNetwork
    >>> X, weights = make_linear_sem(300, 5, random_state=0)
    >>> party = [f"hospital {i % 3}" for i in range(300)]
    >>> model = FederatedGaussianBayesianNetwork().fit(X, party=party)
    >>> bool((model.adjacency_matrix_ == (weights != 0)).all())
    True
    """

    _of_some_fits = (
        "edge_confidence_",
        "normality_pvalues_",
        "changing_mechanisms_",
        "change_pvalues_",
    )
    protocols = (
        network_moments,
        column_moments,
        score_gaussian_columns,
        score_rows,
        keep_predictions,
    )
    _renamed = {"centre": "site_effects='levels' for centre='party'"}
    _parameter_constraints = {
        "method": [StrOptions({*SEARCHES, "auto"})],
        "parties": PARTIES_CONSTRAINT,
        "basis": [StrOptions(set(BASES)), None],
        "site_effects": [StrOptions({"levels", "mechanisms"}), None],
        "lambda1": [Interval(Real, 0, None, closed="left")],
        "threshold": [Interval(Real, 0, None, closed="left")],
        "significance": [Interval(Real, 0, 1, closed="neither")],
        "search_params": [dict, None],
        "n_bootstrap": [Interval(Integral, 0, None, closed="left")],
        "backend": BACKEND_CONSTRAINT,
        "random_state": ["random_state"],
        **PRIVACY_CONSTRAINTS,
    }

    def __init__(
        self,
        method: str = "auto",
        *,
        parties: Mapping | Sequence | str | None = None,
        basis: str | None = None,
        site_effects: str | None = None,
        lambda1: float = 0.1,
        threshold: float = 0.3,
        significance: float = 0.01,
        search_params: dict | None = None,
        n_bootstrap: int = 0,
        backend: str | AdditiveBackend = "masking",
        random_state: RandomStateLike = None,
        epsilon: float | None = None,
        delta: float = 0.0,
        bounds: tuple | list | dict | None = None,
        accountant: PrivacyAccountant | None = None,
        min_honest: int | None = None,
    ) -> None:
        self.method = method
        self.parties = parties
        self.basis = basis
        self.site_effects = site_effects
        self.lambda1 = lambda1
        self.threshold = threshold
        self.significance = significance
        self.search_params = search_params
        self.n_bootstrap = n_bootstrap
        self.backend = backend
        self.random_state = random_state
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.accountant = accountant
        self.min_honest = min_honest

    _scores_columns = score_gaussian_columns

    @property
    def _assumes_equal_variances(self):
        return self.method in EQUAL_VARIANCE_SEARCHES

    def _learn(self, partition):
        self._check_options()
        options = {}
        if holds_columns(partition):
            moments = self._column_moments(partition)
        elif self.site_effects == "mechanisms":
            self._learn_mechanisms(partition)
            return
        elif self.epsilon is None:
            moments, options = self._exact_moments(partition)
        else:
            terms = NetworkMomentsTerms(**noise_terms(self, partition))
            (moments, _), self.n_iter_ = learn_moments(self, partition, terms), 1
        self._keep(moments, options)

    def _learn_mechanisms(self, partition):
        """Let parties search among networks whose mechanisms may differ."""
        terms = NetworkMomentsTerms(max_parents=MAX_PARENTS, **self._search_terms)
        moments, found = learn_moments(self, partition, terms)
        self.n_iter_ = 3
        self.method_, graph = "mechanisms", found["graph"]
        self._keep_graph(moments, FoundGraph.directed(graph))
        self.changing_mechanisms_ = found["differs"]
        self.change_pvalues_ = found["p_values"]

    @property
    def _search_terms(self):
        """Rules for parties that do a part of the search."""
        rules = read_edge_rules(self)
        if rules is None:
            return {}
        return {"allowed": rules.allowed, "required": rules.required}

    def _check_options(self):
        if self.epsilon is not None:
            refuse_options(self, "with epsilon", "site_effects", "n_bootstrap")
            why = "the noise on five times as many columns would leave nothing to see"
            refuse_options(self, f"with epsilon, as {why}", "basis")
        if self.basis is not None:
            why = "samples vary as normal rows do, which products of functions do not"
            refuse_options(self, f"with basis, as {why}", "n_bootstrap")
        if self.site_effects == "mechanisms":
            where = "with site_effects='mechanisms'"
            refuse_options(self, where, "basis", "method", "n_bootstrap")
        if self.method in FREE_SEARCHES and read_edge_rules(self) is not None:
            raise ValueError(
                f"method={self.method!r} cannot keep the edge rules of search_params: "
                "use 'bic', 'equal_variance', 'exact', 'ges' or 'lingam'"
            )
        if self.method == "lingam" and self.epsilon is not None:
            raise ValueError(
                "method='lingam' is not available with epsilon: no noise is calibrated "
                "for its sums; use 'bic'"
            )
        if self.basis is not None and self.method not in (
            "auto",
            "equal_variance",
            "bic",
        ):
            raise ValueError(
                f"basis={self.basis!r} needs method='auto', 'equal_variance' or "
                f"'bic', got {self.method!r}"
            )
        if self.method == "exact" and self.n_features_in_ > MAX_VARIABLES:
            raise ValueError(
                f"method='exact' takes at most {MAX_VARIABLES} columns, got "
                f"{self.n_features_in_}: use method='bic'"
            )

    def _exact_moments(self, partition):
        order = {"lingam": "always", "auto": "if not normal"}.get(self.method, "none")
        if self.method == "auto" and (self.basis is not None or self.n_bootstrap):
            order = "none"  # both are about products of normal rows
        centre = "party" if self.site_effects == "levels" else "pooled"
        options = self._search_terms if order != "none" else {}
        terms = NetworkMomentsTerms(
            centre=centre, basis=self.basis, order=order, **options
        )
        moments, found = learn_moments(self, partition, terms)
        self.n_iter_, options = 2, {}
        if self.basis is not None:
            covariance = symmetric(found["functions"])
            scale = np.sqrt(np.diag(moments.covariance))
            options["features"] = basis_features(covariance, moments.n_rows, scale)
            self.n_iter_ = 3
        if order != "none":
            options["normality"] = found["normality"]
            self.n_iter_ = 3
        if "order" in found:
            options["order"] = found["order"]
            self.n_iter_ += len(found["order"]) - 1
        return moments, options

    def _column_moments(self, partition):
        """Moments from columns that different parties hold."""
        where = "for columns of parties"
        refuse_options(self, where, "basis", "epsilon", "site_effects")
        if self.method == "lingam":
            raise ValueError("method='lingam' is not available for columns of parties")
        warn_of_one_holder(partition)
        charge(self, "moments")
        terms = ColumnMomentsTerms(**column_terms(partition))
        with partition.federate(column_moments, terms) as federation:
            found = federation.run()
        self.ledger_ = federation.ledger
        moments = Moments(float(found["n_samples"]), found["mean"], found["covariance"])
        who = "all parties and the coordinator"
        self.ledger_.learns(who, "means and covariance of all columns")
        note_alignment(self.ledger_, terms)
        self.ledger_.note(
            "products across parties by oblivious transfer, safe against parties that "
            "follow the protocol",
            "technique",
        )
        self.n_iter_ = 1
        warn_if_few_rows(moments.n_rows, len(moments.mean))
        return moments

    @property
    def _search_options(self):
        names = ("lambda1", "threshold", "significance")
        options = {name: getattr(self, name) for name in names}
        return options | {"rules": read_edge_rules(self)}

    def _keep(self, moments, options):
        options = self._search_options | options
        if self.method == "auto":
            self.method_, found = choose(moments, **options)
        else:
            self.method_, found = self.method, search(self.method, moments, **options)
        self._keep_graph(moments, found)
        if "normality" in options:
            self.normality_pvalues_ = options["normality"]
        if self._assumes_equal_variances:
            if self.epsilon is None:  # noise tells variances apart
                warn_if_standardised(np.diag(moments.covariance))
            who = f"method={self.method!r}"
            warn_if_units_differ(self.network_, moments.n_rows, who, moments.noise)
        if self.n_bootstrap:
            graphs = list(self._resample(moments, options))
            self.edge_confidence_ = share_of_edges(graphs)
            self.ledger_.note(
                f"{self.n_bootstrap} bootstrap samples are drawn from the covariance "
                "at the coordinator: parties are asked for nothing more"
            )

    def _was_found(self, found):
        """Tell whether the network has some graph, and moments that were found."""
        network, words = self.network_, ("weights", "variances", "intercepts")
        shape = np.shape(found.get("covariance"))
        if shape != (len(network.nodes),) * 2 or "mean" not in found:
            return False
        again = GaussianBayesianNetwork.fit_from_moments(
            found["mean"], nearest_covariance(found["covariance"]), network.weights != 0
        )
        pairs = [(getattr(network, word), getattr(again, word)) for word in words]
        return all(np.allclose(x, y, rtol=1e-6, atol=1e-12) for x, y in pairs)

    def _keep_graph(self, moments, found):
        self.network_ = GaussianBayesianNetwork.fit_from_moments(
            moments.mean,
            nearest_covariance(moments.covariance),
            found.adjacency,
            nodes=column_names(self),
        )
        self.adjacency_matrix_ = found.adjacency
        self.cpdag_ = found.cpdag
        weights = self.network_.weights if found.weights is None else found.weights
        self.weights_ = np.array(weights)
        self.n_samples_ = moments.n_rows

    def conf_int(
        self,
        level: float = 0.95,
        n_bootstrap: int = 500,
        random_state: RandomStateLike = None,
    ) -> dict[str, np.ndarray]:
        """Return confidence intervals of the network's weights, noise included.

        By a parametric bootstrap, which costs no privacy: moments of normal rows of the
        learnt network are drawn, noise of the same scale is added to them, and the
        weights of the same edges are estimated again. The graph is taken to be right.

        Parameters
        ----------
        level : float, default=0.95
            Probability with which an interval is to cover the truth.
        n_bootstrap : int, default=500
            Number of draws.
        random_state : int, RandomState instance or None, default=None
            Makes the draws reproducible.

        Returns
        -------
        intervals : dict of str to ndarray of shape (..., 2)
            Low and high ends of ``network_.weights``, zero where there is no edge, and
            of ``network_.intercepts``.
        """
        check_is_fitted(self)
        if self.basis is not None:
            raise ValueError("conf_int is for linear networks: fit without basis=")
        network, rng = self.network_, check_random_state(random_state)
        known = Moments(self.n_samples_, network.mean, network.covariance)
        bounds, std, kind = None, 0.0, "none"
        if self.epsilon is not None:
            bounds, report = bounds_of(self), self.noise_report_
            std, kind = report.std, report.kind
        weights, intercepts = [], []
        for _ in range(n_bootstrap):
            drawn = draw_moments(known, bounds, std, kind, rng)
            again = GaussianBayesianNetwork.fit_from_moments(
                drawn.mean, nearest_covariance(drawn.covariance), self.adjacency_matrix_
            )
            weights.append(again.weights)
            intercepts.append(again.intercepts)
        return {
            "weights": bootstrap_interval(network.weights, weights, level),
            "intercepts": bootstrap_interval(network.intercepts, intercepts, level),
        }

    def _resample(self, moments, options):
        """Search on covariances of normal rows, and yield what has a direction."""
        seed = check_random_state(self.random_state).randint(2**31)
        for covariance in drawn_covariances(
            seed, moments.covariance, moments.n_rows, self.n_bootstrap
        ):
            sample = replace(moments, covariance=covariance)
            found = search(self.method_, sample, **options)
            directed = self.method_ in DIRECTED_SEARCHES or self.search_params
            yield found.adjacency if directed else found.cpdag
