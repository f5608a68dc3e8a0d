"""NOTEARS by consensus ADMM over parties."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real

import numpy as np
from sklearn.callback import CallbackSupportMixin
from sklearn.exceptions import ConvergenceWarning

from skprivbn.base import BACKEND_CONSTRAINT, PrivateEstimator, RowsMixin
from skprivbn.bayesian_network import GaussianBayesianNetwork
from skprivbn.crypto import AdditiveBackend, resolve_backend
from skprivbn.privacy import PrivacyAccountant
from skprivbn.privacy._options import PRIVACY_CONSTRAINTS, charge, noise_terms
from skprivbn.programs import keep_predictions, score_rows
from skprivbn.structure._learnt import (
    ContinuousNetworkMixin,
    integer_seed,
    refuse_constant,
    warn_if_standardised,
    warn_if_units_differ,
)
from skprivbn.structure.admm._mlp import MLPNetwork, n_free_of_mlp
from skprivbn.structure.admm._program import (
    ROUND,
    ADMMTerms,
    admm,
    loss_scale,
    run_locally,
)
from skprivbn.structure.admm._steps import ConsensusProblem
from skprivbn.structure.gaussian._notears import ACYCLICITY
from skprivbn.structure.gaussian._program import (
    NetworkMomentsTerms,
    drop_drowned_edges,
    learn_moments,
    network_moments,
    weakest_edge,
)
from skprivbn.utils import column_names, warn_leak, warn_user
from skprivbn.utils._sklearn import (
    Interval,
    RenamedParameters,
    StrOptions,
    fill_params,
    moved_into,
    settings_in,
)
from skprivbn.utils._typing import RandomStateLike

#: settings of `admm_params`
ADMM_PARAMS = {
    "rho1": [Interval(Real, 0, None, closed="neither")],
    "rho2": [Interval(Real, 0, None, closed="neither")],
    "gamma1": [Interval(Real, 1, None, closed="left")],
    "gamma2": [Interval(Real, 1, None, closed="left")],
    "h_tol": [Interval(Real, 0, None, closed="left")],
    "acyclicity": [StrOptions(set(ACYCLICITY))],
    "loss_scale": [Interval(Real, 0, None, closed="neither")],
}
#: settings of `mlp_params`, and what they are if nobody says otherwise
MLP_PARAMS = {
    "n_hidden": ([Interval(Integral, 1, None, closed="left")], 10),
    "lambda2": ([Interval(Real, 0, None, closed="left")], 0.01),
}


class ADMMMixin(RenamedParameters, CallbackSupportMixin, RowsMixin):
    """What the estimators that run Algorithm 1 share."""

    _parameter_constraints = {
        "threshold": [Interval(Real, 0, None, closed="left")],
        "admm_params": [dict, None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "backend": BACKEND_CONSTRAINT,
        "verbose": ["verbose"],
    }

    _renamed = moved_into("admm_params", ADMM_PARAMS)

    @property
    def _steps(self):
        return {"step": "round", "max_steps": int(self.max_iter) + 1}

    def _terms(self, n_parties, problem, *, rho1, rho2, gamma2, loss_scale, **more):
        """Return the terms of a problem; those named are penalties if none is given."""
        rounds = fill_params(
            "admm_params",
            self.admm_params,
            ADMM_PARAMS,
            rho1=rho1,
            # a party's loss is of order 1 / K, so is the penalty it is weighed against
            rho2=rho2 / n_parties,
            gamma1=1.75,
            gamma2=gamma2,
            h_tol=1e-5,
            acyclicity="logdet",
            loss_scale=loss_scale,
        )
        acyclicity = rounds.pop("acyclicity")
        return ADMMTerms(
            problem=ConsensusProblem(
                self.n_features_in_, acyclicity=acyclicity, **problem
            ),
            max_iter=self.max_iter,
            tol=self.tol,
            threshold=self.threshold,
            **rounds,
            **more,
        )

    def _agree(self, partition, terms, progress):
        """Have the parties run Algorithm 1; keep how it ended."""

        def tell(what):
            if what == ROUND:
                with progress.step():
                    pass

        found = self._run(partition, admm, terms, progress=tell)
        if found["n_rows"] == 0:
            raise ValueError(
                f"no series has more than n_lags={terms.n_lags} rows, so that "
                "nothing has a past: give longer series"
            )
        refuse_constant(
            column_names(self),
            found["mean"],
            found["variances"],
            "within every party's rows",
        )
        self.ledger_.learns(
            "all parties",
            f"the sums of all {found['n_iter']} rounds, which together can determine "
            "every party's covariance",
        )
        self._keep_rounds(found, terms)
        return found

    def _keep_rounds(self, found, terms):
        self.n_iter_, self.converged_ = found["n_iter"], found["converged"]
        self.h_, self.consensus_distance_ = found["h"], found["distance"]
        if not self.converged_:
            warn_user(
                f"no consensus after {self.n_iter_} rounds: distance "
                f"{self.consensus_distance_:.2g} (tol={self.tol}), cycles "
                f"{self.h_:.2g} (h_tol={terms.h_tol}); increase max_iter, or tol and "
                "h_tol",
                ConvergenceWarning,
            )

    def _warn_of_trajectory(self, n_parties, n_variables):
        """Warn when the sums of all rounds can determine every party's moments."""
        known = resolve_backend(self.backend).kind == "plaintext"
        # with two parties, the roster is warned of: each sum is the other's
        n_others = n_parties - 1
        n_unknown = n_others * n_variables * (n_variables + 1) // 2
        n_equations = self.n_iter_ * n_variables * self.n_features_in_
        if n_others < 2 or known or n_equations < n_unknown:
            return
        warn_leak(
            f"the sums of {self.n_iter_} rounds are {n_equations} equations for the "
            f"{n_unknown} entries of the other {n_others} parties' "
            "covariances: a party, which reads all sums, can in principle solve for "
            "them, although it sees no other party's numbers; the coordinator reads "
            "the result only. FederatedGaussianBayesianNetwork takes two sums"
        )


class FederatedNotearsADMM(ADMMMixin, ContinuousNetworkMixin, PrivateEstimator):
    """Learn a network by NOTEARS on rows of parties, in rounds of secure sums.

    Consensus ADMM: every party fits its own rows near a common graph. The common graph
    is the sparse acyclic graph nearest to the mean of the parties' solutions. In every
    round only the sum of these solutions is disclosed, and only to the parties.

    Read more in the :ref:`User Guide <structure_federated>`.

    Parameters
    ----------
    method : {"linear", "mlp"}, default="linear"
        How variables depend on their parents: linearly, or through a network with one
        layer of sigmoids.
    lambda1 : float, default=None
        Weight of the absolute values of the weights. 0.02 for linear models and 0.01
        for networks if None.
    threshold : float, default=0.3
        Weights of at most this size are no edge.
    admm_params : dict, default=None
        Settings of the rounds that are not to have their defaults:

        - ``"rho1"``, ``"rho2"``: first penalties on cycles and on disagreement; 0.001
          and 0.05 divided by the number of parties for linear models, 0.1 and 1
          divided by it for networks.
        - ``"gamma1"``, ``"gamma2"``: their growth per round; 1.75, and 1.12 for linear
          models or 1.2 for networks.
        - ``"h_tol"``: measure of cycles that counts as none, 1e-5.
        - ``"acyclicity"``: the measure, ``"logdet"`` of DAGMA (default) or ``"expm"``
          of NOTEARS.
        - ``"loss_scale"``: variance that losses are divided by before they are weighed
          against penalties. The default is the geometric mean of the columns'
          variances within parties for linear models, so that their common unit does
          not matter, and 1 for networks. The paper has 1.

    mlp_params : dict, default=None
        Settings of networks: ``"n_hidden"``, the hidden units of every variable's
        network (10), and ``"lambda2"``, the weight of squares (0.01).
    max_iter : int, default=200
        Bound on the rounds.
    tol : float, default=0.01
        Root mean square distance of the parties to the consensus, relative to its
        norm, at which they agree.
    backend : str or AdditiveBackend, default="masking"
        How sums are hidden. Every party solves the common problem from sums that it
        has verified; the coordinator reads the result only.
    random_state : int, RandomState instance or None, default=None
        First weights of networks.
    epsilon : float, default=None
        Privacy budget of the fit, for linear models: the parties release noisy
        moments once, and the rounds run on those. None adds no noise.
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
    verbose : int, default=0
        1 prints every tenth round, 2 every one.

    Attributes
    ----------
    network_ : GaussianBayesianNetwork or MLPNetwork
        The fitted model: weights above the threshold, intercepts, noise variances.
    adjacency_matrix_ : ndarray of bool of shape (n_features, n_features)
        The graph: weights above the threshold, smallest dropped until acyclic. With
        `epsilon`, without edges that noise alone could make.
    weights_ : ndarray of shape (n_features, n_features)
        Raw weights; for networks the norms of the first layers' weights.
    n_iter_ : int
        Number of rounds.
    h_ : float
        Measure of the cycles left in the raw weights.
    consensus_distance_ : float
        Distance of the parties to the consensus.
    converged_ : bool
        Whether both tolerances were met.
    n_samples_ : float
        Rows of all parties (noisy with `epsilon`).
    loss_scale_ : float
        Variance that losses were divided by.
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
    FederatedGaussianBayesianNetwork : Two sums instead of many, columns in any units.

    Notes
    -----
    The sums of many rounds can together determine every party's covariance; a
    ``PrivacyLeakWarning`` says so. Parties read these sums, the coordinator does not.

    References
    ----------
    .. [1] Ng, Zhang. Towards federated Bayesian network structure learning with
       continuous optimization. AISTATS 2022.

    Examples
    --------
    >>> import warnings
    >>> from skprivbn.datasets import make_linear_sem
    >>> from skprivbn.exceptions import PrivacyLeakWarning
    >>> from skprivbn.structure import FederatedNotearsADMM
    >>> X, weights = make_linear_sem(300, 5, random_state=1)
    >>> party = [f"hospital {i % 3}" for i in range(300)]
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", PrivacyLeakWarning)
    ...     model = FederatedNotearsADMM().fit(X, party=party)
    >>> bool((model.adjacency_matrix_ == (weights != 0)).all())
    True
    """

    protocols = (admm, network_moments, score_rows, keep_predictions)
    _renamed = ADMMMixin._renamed | moved_into("mlp_params", MLP_PARAMS)
    _networks = (GaussianBayesianNetwork, MLPNetwork)
    _parameter_constraints = {
        **ADMMMixin._parameter_constraints,
        "method": [StrOptions({"linear", "mlp"})],
        "lambda1": [Interval(Real, 0, None, closed="left"), None],
        "mlp_params": [dict, None],
        "random_state": ["random_state"],
        **PRIVACY_CONSTRAINTS,
    }

    def __init__(
        self,
        method: str = "linear",
        *,
        lambda1: float | None = None,
        threshold: float = 0.3,
        admm_params: dict | None = None,
        mlp_params: dict | None = None,
        max_iter: int = 200,
        tol: float = 1e-2,
        backend: str | AdditiveBackend = "masking",
        random_state: RandomStateLike = None,
        epsilon: float | None = None,
        delta: float = 0.0,
        bounds: tuple | list | dict | None = None,
        accountant: PrivacyAccountant | None = None,
        min_honest: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.lambda1 = lambda1
        self.threshold = threshold
        self.admm_params = admm_params
        self.mlp_params = mlp_params
        self.max_iter = max_iter
        self.tol = tol
        self.backend = backend
        self.random_state = random_state
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.accountant = accountant
        self.min_honest = min_honest
        self.verbose = verbose

    def _learn(self, partition, progress):
        if self.epsilon is not None and self.method != "linear":
            raise ValueError(
                "epsilon is available for method='linear', whose moments can be "
                "released with noise"
            )
        terms = self._model_terms(partition.n_parties)
        if self.epsilon is not None:
            self._fit_private(partition, terms)
            return
        charge(self, "rounds")
        found = self._agree(partition, terms, progress)
        self._keep_graph(found, terms, found["n_rows"], found["variances"])
        self.network_ = network = self._make_network(found, terms)
        # variances within parties lack what their means differ by, one row's share each
        n_means = partition.n_parties
        lacking = (n_means + 4.0 * np.sqrt(2.0 * n_means)) / self.n_samples_
        warn_if_standardised(found["variances"], min(0.02 + lacking, 0.1))
        warn_if_units_differ(network, self.n_samples_, "NOTEARS")
        if self.method == "linear":
            self._warn_of_trajectory(partition.n_parties, self.n_features_in_)

    def _model_terms(self, n_parties):
        given = {} if self.lambda1 is None else {"lambda1": self.lambda1}
        if self.method == "linear":
            problem = {"lambda1": 0.02} | given
            return self._terms(
                n_parties, problem, rho1=1e-3, rho2=0.05, gamma2=1.12, loss_scale=None
            )
        mlp = settings_in("mlp_params", self.mlp_params, MLP_PARAMS)
        n_hidden = mlp["n_hidden"]
        n_free = n_free_of_mlp(self.n_features_in_, n_hidden)
        problem = {"lambda1": 0.01, "n_maps": n_hidden, "n_free": n_free} | given
        return self._terms(
            n_parties,
            problem | {"lambda2": mlp["lambda2"]},
            rho1=0.1,
            rho2=1.0,
            gamma2=1.2,
            loss_scale=1.0,
            n_hidden=n_hidden,
            seed=integer_seed(self.random_state),
        )

    def _make_network(self, found, terms):
        names, mean, shift = column_names(self), found["mean"], found["shift"]
        parameters, noise = terms.kept(found["parameters"]), found["noise"]
        kept = terms.weights(parameters)
        if self.method == "linear":
            return GaussianBayesianNetwork(names, kept, mean - mean @ kept, noise)
        return MLPNetwork(
            tuple(names), kept != 0, parameters, terms.n_hidden, mean, shift, noise
        )

    def _keep_graph(self, found, terms, n_rows, variances):
        self.n_samples_, self.loss_scale_ = n_rows, loss_scale(variances, terms)
        self.weights_ = terms.weights(found["parameters"])
        self.adjacency_matrix_ = terms.weights(terms.kept(found["parameters"])) != 0

    def _fit_private(self, partition, terms):
        """Noisy moments once; everything after them costs no privacy."""
        release = NetworkMomentsTerms(**noise_terms(self, partition))
        moments, _ = learn_moments(self, partition, release)
        terms = replace(terms, rho2=terms.rho2 * partition.n_parties)
        found = run_locally(moments, terms)
        self._keep_rounds(found, terms)
        self._keep_graph(found, terms, moments.n_rows, np.diag(moments.covariance))
        self._drop_drowned_edges(moments)
        self.network_ = GaussianBayesianNetwork.fit_from_moments(
            moments.mean,
            moments.covariance,
            self.adjacency_matrix_,
            nodes=column_names(self),
        )
        noise = moments.noise
        warn_if_units_differ(self.network_, self.n_samples_, "NOTEARS", noise)

    def _drop_drowned_edges(self, moments):
        """Tell no edge that noise alone could make, and say how many there were."""
        found = self.adjacency_matrix_
        self.adjacency_matrix_ = drop_drowned_edges(found, moments)
        n_dropped = np.sum(found) - np.sum(self.adjacency_matrix_)
        if n_dropped:
            words = (
                f"{n_dropped} of {np.sum(found)} edges are left out, as noise "
                "alone could make them: their partial correlations are below "
                f"{weakest_edge(moments):.2f}; weights_ has all of them"
            )
            warn_user(words)
            report = self.noise_report_
            self.noise_report_ = replace(report, warnings=(*report.warnings, words))
