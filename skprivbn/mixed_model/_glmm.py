"""Logistic regression with random effects over rows of several parties."""

from numbers import Integral, Real
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.callback import CallbackSupportMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from skprivbn.base import BACKEND_CONSTRAINT, FederatedMixin
from skprivbn.crypto import AdditiveBackend, resolve_backend
from skprivbn.exceptions import PartitionError
from skprivbn.mixed_model._checks import (
    check_clusters,
    check_target,
    some,
    warn_of_holders,
)
from skprivbn.mixed_model._estimates import estimate
from skprivbn.mixed_model._model import FLOATS, FittedGLMMMixin
from skprivbn.mixed_model._protocol import GLMMParty, collect, run_em
from skprivbn.mixed_model._survey import take_survey
from skprivbn.partition import check_horizontal
from skprivbn.protocols import ModelParty, MomentsTerms
from skprivbn.utils import column_names, tell_progress, warn_user
from skprivbn.utils._sklearn import Interval, StrOptions, _fit_context
from skprivbn.utils._typing import RandomStateLike, TableLike

__all__ = ["PrivateGLMM"]

_MAX_ITER = {"quadrature": 100, "metropolis": 20}


class PrivateGLMM(
    CallbackSupportMixin,
    FittedGLMMMixin,
    FederatedMixin,
    ClassifierMixin,
    BaseEstimator,
):
    """Logistic mixed model by collaborative EM over parties.

    The model is ``logit P(y = 1) = intercept + X coef + z``, where the effect
    ``z ~ N(0, scale^2)`` is common to all rows of a cluster, such as a medical
    centre. The rows of a cluster may be spread over parties. Parties exchange sums
    of log-likelihoods, gradients and Hessians of their rows under the backend.

    Read more in the :ref:`User Guide <mixed_model>`.

    Parameters
    ----------
    e_step : {"quadrature", "metropolis"}, default="quadrature"
        How expectations over the random effects are taken: by adaptive Gauss-Hermite
        quadrature, which is deterministic and accurate, or by Metropolis-Hastings
        with proposals from N(0, scale^2), as in [1]_.
    n_quadrature : int, default=25
        Number of nodes. Log-likelihood and standard errors are computed on them
        with either `e_step`.
    n_draws : int, default=1000
        Metropolis steps kept in each iteration.
    n_burn_in : int, default=200
        Metropolis steps forgotten before those.
    batch_size : int, default=50
        Proposals evaluated in one round trip.
    max_iter : int, default=None
        Bound on the EM iterations. None allows 100 for quadrature. With
        ``e_step="metropolis"`` it is the number of iterations, 20 if None; estimates
        are averages over the second half of them.
    tol : float, default=1e-8
        Quadrature stops when the next step promises a smaller gain in
        log-likelihood.
    clusters : array-like of labels, default=None
        All clusters there may be, as a public fact. If None, every party tells which
        clusters it holds.
    min_parties : int, default=2
        Fewest holders of a cluster whose rows are spread over parties.
    min_rows : int, default=5
        Fewest rows of such a cluster.
    release_effects : {"all", "shared"}, default="all"
        Which clusters' random effects become known: all, or only those whose rows
        are spread over parties. The effect of a cluster held by one party tells about
        the rows of that party alone.
    backend : str or AdditiveBackend, default="masking"
        How sums are hidden: "masking", "ckks", "paillier" or "plaintext".
    random_state : int, RandomState instance or None, default=None
        Proposals and acceptance of Metropolis-Hastings.
    verbose : int, default=0
        1 prints every tenth iteration, 2 every one.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The second is the one whose probability is modelled.
    clusters_ : ndarray of shape (n_clusters,)
        Labels of the clusters; empty without random effects.
    coef_ : ndarray of shape (1, n_features)
        Fixed effects.
    intercept_ : ndarray of shape (1,)
        Log-odds where all features are 0.
    coef_se_ : ndarray of shape (1, n_features)
        Standard errors, from Louis' observed information.
    intercept_se_ : ndarray of shape (1,)
        Standard error of the intercept.
    covariance_ : ndarray of shape (n_features + 1, n_features + 1)
        Sampling covariance of intercept and coefficients.
    random_effects_ : ndarray of shape (n_clusters,)
        Posterior mean of each cluster's effect given the estimates; NaN if withheld.
    random_effects_std_ : ndarray of shape (n_clusters,)
        Posterior standard deviations.
    random_effect_scale_ : float
        Standard deviation of the random effects; 0 without.
    log_likelihood_ : float
        Marginal log-likelihood at the estimates.
    n_samples_ : int
        Rows of all parties.
    n_iter_ : int
        Number of EM iterations.
    ledger_ : Ledger
        Every message of the last fit, and who learnt what.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if `X` has string names.

    See Also
    --------
    skprivbn.preprocessing.FederatedStandardScaler : Not needed here: features are
        standardised within the fit.

    Notes
    -----
    Clusters that one party holds alone never enter the tables of log-likelihoods:
    that party integrates over their effects by itself.

    The quadrature iteration is EM with one Newton step per M-step, accelerated by
    differences of past gradients [2]_; the Metropolis iteration is parameter-expanded
    EM [3]_.

    References
    ----------
    .. [1] Zhu, Jiang, Wang, Wang, Bian, Tang. Privacy-preserving construction of
       generalized linear mixed model for biomedical computation. Bioinformatics,
       2020.
    .. [2] Lange. A quasi-Newton acceleration of the EM algorithm. Statistica Sinica,
       1995.
    .. [3] Liu, Rubin, Wu. Parameter expansion to accelerate EM: the PX-EM algorithm.
       Biometrika, 1998.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.mixed_model import PrivateGLMM
    >>> rng = np.random.default_rng(0)
    >>> X, centre = rng.normal(size=(600, 2)), rng.integers(12, size=600)
    >>> effects = rng.normal(size=12)
    >>> log_odds = X @ [1.0, -0.5] + effects[centre]
    >>> y = rng.random(600) < 1 / (1 + np.exp(-log_odds))
    >>> hospital = rng.choice(["north", "south", "west"], size=600)
    >>> model = PrivateGLMM().fit(X, y, cluster=centre, party=hospital)
    >>> print(model.summary())
    Logistic mixed model, 600 rows of 3 parties
    ...
    >>> model.predict_proba(X[:3], cluster=centre[:3]).shape
    (3, 2)
    """

    __metadata_request__fit = {"cluster": True}

    protocols = (GLMMParty, ModelParty)
    _parameter_constraints = {
        "e_step": [StrOptions({"quadrature", "metropolis"})],
        "n_quadrature": [Interval(Integral, 5, 100, closed="both")],
        "n_draws": [Interval(Integral, 2, None, closed="left")],
        "n_burn_in": [Interval(Integral, 0, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "clusters": ["array-like", None],
        "min_parties": [Interval(Integral, 2, None, closed="left")],
        "min_rows": [Interval(Integral, 1, None, closed="left")],
        "release_effects": [StrOptions({"all", "shared"})],
        "backend": BACKEND_CONSTRAINT,
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        e_step: str = "quadrature",
        *,
        n_quadrature: int = 25,
        n_draws: int = 1000,
        n_burn_in: int = 200,
        batch_size: int = 50,
        max_iter: int | None = None,
        tol: float = 1e-8,
        clusters: ArrayLike | None = None,
        min_parties: int = 2,
        min_rows: int = 5,
        release_effects: str = "all",
        backend: str | AdditiveBackend = "masking",
        random_state: RandomStateLike = None,
        verbose: int = 0,
    ) -> None:
        self.e_step = e_step
        self.n_quadrature = n_quadrature
        self.n_draws = n_draws
        self.n_burn_in = n_burn_in
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.clusters = clusters
        self.min_parties = min_parties
        self.min_rows = min_rows
        self.release_effects = release_effects
        self.backend = backend
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: TableLike,
        y: ArrayLike | None = None,
        *,
        cluster: ArrayLike | None = None,
        party: ArrayLike | None = None,
    ) -> Self:
        """Estimate fixed effects and the scale of the random effects.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or HorizontalPartition
            A partition carries `y` and `cluster` beside its rows.
        y : array-like of shape (n_samples,)
            Two classes.
        cluster : array-like of shape (n_samples,), default=None
            Category of each row's random effect. None fits a plain logistic
            regression.
        party : array-like of shape (n_samples,), default=None
            Who holds each row. None means that one party holds all.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        partition, mixed = self._check_data(X, y, cluster, party)
        if not mixed:
            warn_user(
                "no cluster was given: this is a plain logistic regression; pass "
                "cluster= to say which rows share a random effect"
            )
        settings = self._settings(mixed)
        with (
            tell_progress(
                self, X, y, step="iteration", max_steps=settings["max_iter"]
            ) as progress,
            self._federate(partition, GLMMParty, settings) as federation,
        ):
            survey = take_survey(federation)
            self._check_survey(survey, federation)
            n_iter, converged = run_em(federation, survey, progress)
            release = collect(federation, survey)
        refine = not mixed or self.e_step == "quadrature"
        estimates = estimate(release, survey, refine=refine)
        self._warn_of_estimates(
            estimates, survey, release.collinear, converged or not refine
        )
        self._keep(estimates, release, survey)
        self.n_iter_ = n_iter
        self.ledger_ = federation.ledger
        return self

    def _check_data(self, X, y, cluster, party):
        """Return the partition, and whether its rows have clusters."""
        if not hasattr(X, "federate"):
            y = check_target(self, y)
            if cluster is not None:
                check_clusters(cluster, self.clusters)
        partition = check_horizontal(
            self,
            X,
            party,
            dtype=FLOATS,
            aligned={"y": y, "cluster": cluster},
        )
        if "y" not in partition.aligned:
            raise PartitionError(
                "the partition has no y: HorizontalPartition(rows, y=..., cluster=...)"
            )
        return partition, "cluster" in partition.aligned

    def _settings(self, mixed):
        max_iter = self.max_iter or _MAX_ITER[self.e_step if mixed else "quadrature"]
        clusters = None
        if not mixed:
            clusters = []
        elif self.clusters is not None:
            clusters = np.unique(self.clusters).tolist()
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        return {
            **MomentsTerms("diagonal").to_payload(),
            "mixed": mixed,
            "e_step": self.e_step,
            "clusters": clusters,
            "n_quadrature": int(self.n_quadrature),
            "chains": {
                "batch_size": int(self.batch_size),
                "n_burn_in": int(self.n_burn_in),
                "n_draws": int(self.n_draws),
                "seed": int(seed),
            },
            "max_iter": int(max_iter),
            "tol": float(self.tol),
            "min_parties": int(self.min_parties),
            "min_rows": int(self.min_rows),
            "release_effects": self.release_effects,
            "max_sum": float(resolve_backend(self.backend).max_sum()),
        }

    def _check_survey(self, survey, federation):
        n_classes = len(survey.classes)
        if n_classes != 2:
            raise ValueError(
                f"y has {n_classes} class{'es' if n_classes != 1 else ''}, "
                f"{survey.classes[:5]}: {type(self).__name__} needs two"
            )
        if not survey.clusters or len(federation.roster) == 1:
            return
        # sites may have raised the limits
        settings = federation.settings
        min_parties, min_rows = settings["min_parties"], settings["min_rows"]
        shared = survey.n_holders > 1
        few = (survey.n_holders < min_parties) | (survey.n_rows < min_rows)
        if np.any(shared & few):
            raise ValueError(
                f"clusters {some(survey.clusters, shared & few)} are spread over "
                f"parties but have fewer than min_parties={min_parties} holders "
                f"or min_rows={min_rows} rows: sums over so few would tell what "
                "the rows are; merge small clusters, or lower the limits knowingly"
            )
        federation.ledger.note(
            "log-likelihoods of a cluster at many trial effects can determine the "
            "predictors of its rows if these are few: see min_rows"
        )
        warn_of_holders(survey, federation.ledger, self.release_effects)

    def _warn_of_estimates(self, estimates, survey, collinear, converged):
        if np.any(survey.constant):
            names = column_names(self)
            warn_user(
                f"features {some(names, survey.constant)} do not vary: their "
                "coefficients are set to 0"
            )
        if collinear:
            problem = (
                "features are collinear: the rows do not determine all coefficients, "
                "which have no standard errors; leave some of the features out"
            )
        elif not estimates.determined:
            problem = (
                "features separate the classes: some coefficients grow without limit "
                "and have no standard errors; leave out or merge the features that "
                "tell the classes apart without error"
            )
        elif not estimates.maximum:
            problem = "the log-likelihood has no maximum where EM stopped"
        elif not converged:
            problem = f"EM did not converge: increase max_iter, or tol={self.tol}"
        else:
            return
        warn_user(problem, ConvergenceWarning)

    def _keep(self, estimates, release, survey):
        errors = np.sqrt(np.diag(estimates.covariance))
        self.classes_ = np.asarray(survey.classes)
        self.clusters_ = np.asarray(survey.clusters)
        self.intercept_, self.coef_ = estimates.fixed[:1], estimates.fixed[None, 1:]
        self.intercept_se_, self.coef_se_ = errors[:1], errors[None, 1:]
        self.covariance_ = estimates.covariance
        self.random_effect_scale_ = estimates.sigma
        self.log_likelihood_ = estimates.log_likelihood
        self.n_samples_ = int(survey.n_rows.sum())
        n_clusters = len(survey.clusters)
        withheld = np.zeros(n_clusters, dtype=bool)
        if self.release_effects == "shared":
            withheld = survey.n_holders[:n_clusters] == 1
        unseen = survey.n_rows[:n_clusters] == 0
        effects = np.where(withheld, np.nan, release.effects[:n_clusters])
        deviations = np.where(withheld, np.nan, release.deviations[:n_clusters])
        self.random_effects_ = effects
        self.random_effects_std_ = np.where(unseen, estimates.sigma, deviations)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
