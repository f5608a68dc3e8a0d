"""Mixed models of classes, and of numbers, counts and proportions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state

from skprivbn.base import PrivateEstimator
from skprivbn.crypto import AdditiveBackend
from skprivbn.mixed_model._base import METROPOLIS_PARAMS, BaseGLMM, share_entries
from skprivbn.mixed_model._checks import TARGETS
from skprivbn.mixed_model._linear import linear_mixed_model
from skprivbn.mixed_model._model import FittedGLMMMixin
from skprivbn.mixed_model._noisy_linear import (
    NoisyMixedTerms,
    keep_noisy,
    noisy_linear_mixed_model,
)
from skprivbn.mixed_model._terms import Family, family_of
from skprivbn.partition import RemoteResults, RemoteRows, is_partition
from skprivbn.privacy import PrivacyAccountant
from skprivbn.privacy._options import PRIVACY_CONSTRAINTS, charge, noise_terms
from skprivbn.utils._sklearn import StrOptions, moved_into, settings_in
from skprivbn.utils._typing import PerRow, TableLike


@share_entries
class PrivateGLMMClassifier(FittedGLMMMixin, ClassifierMixin, BaseGLMM):
    """Logistic mixed model for rows that several parties hold.

    The model is ``logit P(y = 1) = intercept + X coef + z``, where the effect
    ``z ~ N(0, scale^2)`` is common to all rows of a cluster, such as a medical
    centre. The rows of a cluster may be spread over parties. Log-likelihoods,
    gradients and Hessians are secure sums over the parties.

    Read more in the :ref:`User Guide <mixed_model>`.

    Parameters
    ----------
    method : {"quadrature", "metropolis"}, default="quadrature"
        Expectations over the random effects: by adaptive Gauss-Hermite quadrature
        (deterministic and accurate), or by Metropolis-Hastings with proposals from
        N(0, scale^2), as in [1]_.
    link : {"logit", "probit", "cloglog"}, default="logit"
        Link function from probabilities to the predictor.
    <slopes ... quadrature_params>
    metropolis_params : dict, default=None
        Settings of ``method="metropolis"``: ``"n_draws"``, steps kept in each
        iteration (default 1000), ``"n_burn_in"``, steps discarded before them (200),
        ``"batch_size"``, proposals evaluated in one round trip (50), and
        ``"random_state"`` of proposals and acceptance (None).
    max_iter : int, default=None
        Maximum number of iterations of quadrature, 100 if None. With
        ``method="metropolis"`` the number of iterations, 20 if None; estimates are
        averages over the second half of them.
    <clusters ... backend>
    verbose : int, default=0
        1 prints every tenth iteration, 2 every one.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        Labels of the classes, in the order that their column declares, else sorted.
        The model is for the probability of the second.
    coef_ : ndarray of shape (1, n_features)
        Fixed effects.
    intercept_ : ndarray of shape (1,)
        Predictor where all features are 0.
    coef_std_ : ndarray of shape (1, n_features)
        Standard errors, from the observed information.
    intercept_std_ : ndarray of shape (1,)
        Standard error of the intercept.
    <covariance_ ... feature_names_in_>

    See Also
    --------
    PrivateGLMMRegressor : Counts, proportions and numbers.
    likelihood_ratio_test : Compare two fits.

    Notes
    -----
    The tables of log-likelihoods contain only clusters of several parties. A party
    integrates over the effects of its own clusters locally.

    The iteration is EM with one Newton step per M-step, accelerated by differences of
    past gradients [2]_; the Metropolis iteration is parameter-expanded EM [3]_. The
    search starts from the model without random effects and never ends below it; a
    variance of zero is a valid answer (`singular_`).

    References
    ----------
    .. [1] Zhu, Jiang, Wang, Wang, Zheng, Tang. Privacy-preserving construction of
       generalized linear mixed model for biomedical computation. Bioinformatics,
       2020.
    .. [2] Lange. A quasi-Newton acceleration of the EM algorithm. Statistica Sinica,
       1995.
    .. [3] Liu, Rubin, Wu. Parameter expansion to accelerate EM: the PX-EM algorithm.
       Biometrika, 1998.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.mixed_model import PrivateGLMMClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, centre = rng.normal(size=(600, 2)), rng.integers(12, size=600)
    >>> effects = rng.normal(size=12)
    >>> log_odds = X @ [1.0, -0.5] + effects[centre]
    >>> y = rng.random(600) < 1 / (1 + np.exp(-log_odds))
    >>> hospital = rng.choice(["north", "south", "west"], size=600)
    >>> model = PrivateGLMMClassifier().fit(X, y, cluster=centre, party=hospital)
    >>> print(model.summary())
    Logistic mixed model, 600 rows of 3 parties
    y: True against False
    ...
    >>> model.predict_proba(X[:3], cluster=centre[:3]).shape
    (3, 2)
    """

    __metadata_request__predict_proba = {"cluster": True, "offset": True}
    __metadata_request__predict_log_proba = {"cluster": True, "offset": True}
    __metadata_request__decision_function = {"cluster": True, "offset": True}

    classes_: np.ndarray

    _renamed = {
        **BaseGLMM._renamed,
        **moved_into("metropolis_params", METROPOLIS_PARAMS),
    }
    _absent = {
        "epsilon": "a logistic model needs sums of each cluster in every iteration, "
        "which the noise that hides a row in all of them would drown; "
        "PrivateGLMMRegressor(epsilon=...) fits linear models, and DPCGMLearner("
        "epsilon=...) releases tables, to samples of which any model can be fitted"
    }
    _parameter_constraints = {
        **BaseGLMM._parameter_constraints,
        "method": [StrOptions({"quadrature", "metropolis"})],
        "link": [StrOptions({"logit", "probit", "cloglog"})],
        "metropolis_params": [dict, None],
    }

    def __init__(
        self,
        method: str = "quadrature",
        *,
        link: str = "logit",
        slopes: ArrayLike | dict | None = None,
        effect_params: dict | None = None,
        fit_intercept: bool = True,
        quadrature_params: dict | None = None,
        metropolis_params: dict | None = None,
        max_iter: int | None = None,
        clusters: ArrayLike | None = None,
        min_parties: int = 2,
        min_rows: int = 5,
        small_clusters: str = "auto",
        release_effects: str = "all",
        backend: str | AdditiveBackend = "masking",
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.link = link
        self.slopes = slopes
        self.effect_params = effect_params
        self.fit_intercept = fit_intercept
        self.quadrature_params = quadrature_params
        self.metropolis_params = metropolis_params
        self.max_iter = max_iter
        self.clusters = clusters
        self.min_parties = min_parties
        self.min_rows = min_rows
        self.small_clusters = small_clusters
        self.release_effects = release_effects
        self.backend = backend
        self.verbose = verbose

    def _chains(self):
        given = self.metropolis_params
        chains = settings_in("metropolis_params", given, METROPOLIS_PARAMS)
        rng, seed = check_random_state(chains.pop("random_state")), 0
        if self.method == "metropolis":
            seed = int(rng.randint(np.iinfo(np.int32).max))
        return {**chains, "seed": seed}

    @property
    def _family(self) -> Family:
        return family_of("binomial", self.link)

    _target = "classes"

    def _keep(self, estimates, survey, *others):
        self.classes_ = np.asarray(survey.classes)
        super()._keep(estimates, survey, *others)

    def _keep_fixed(self, fixed, errors):
        self.intercept_, self.coef_ = fixed[:1], fixed[None, 1:]
        self.intercept_std_, self.coef_std_ = errors[:1], errors[None, 1:]

    def decision_function(
        self, X: ArrayLike, *, cluster: PerRow = None, offset: PerRow = None
    ) -> np.ndarray:
        """Return the log-odds of the second class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        cluster : array-like of shape (n_samples,) or (n_samples, n_factors)
            Category of each row; unknown ones, and None, have effect 0.
        offset : array-like of shape (n_samples,), default=None
            Known part of the predictor.

        Returns
        -------
        log_odds : ndarray of shape (n_samples,)
        """
        return self._predictor(X, cluster, offset)

    def predict_proba(
        self, X: TableLike, *, cluster: PerRow = None, offset: PerRow = None
    ) -> np.ndarray | RemoteResults:
        """Return probabilities of the classes.

        Rows of unknown clusters get the probabilities of a typical cluster (effect 0),
        not an average over clusters.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or RemoteRows
            Sites keep the results for remote rows.
        cluster : array-like of shape (n_samples,) or str, default=None
            Category of each row; the name of a column of a dataframe or of remote
            rows.
        offset : array-like of shape (n_samples,), default=None
            Known part of the predictor.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, 2) or RemoteResults
        """
        if is_partition(X):
            return self._predict_at_sites(X, cluster, offset, "predict_proba")
        second = self._family.mean(self._predictor(X, cluster, offset))
        return np.column_stack([1 - second, second])

    def predict_log_proba(
        self, X: ArrayLike, *, cluster: PerRow = None, offset: PerRow = None
    ) -> np.ndarray:
        """Return logarithms of the probabilities of the classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        cluster : array-like of shape (n_samples,), default=None
            Category of each row.
        offset : array-like of shape (n_samples,), default=None
            Known part of the predictor.

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, 2)
        """
        eta, one = self._predictor(X, cluster, offset), np.ones(1)
        log_likelihood = self._family.log_likelihood
        return np.column_stack([log_likelihood(k, one, eta) for k in (0 * one, one)])

    def _answer(self, mean):
        return self.classes_[(mean > 0.5).astype(int)]

    def _total_score(self, hits):
        return hits

    def _row_scores(self, X, y, cluster=None, offset=None):
        """Return which rows are of the class that is predicted."""
        predicted = self.predict(X, cluster=cluster, offset=offset)
        return (predicted == y).astype(float)

    def _public_model(self):
        return {"classes": self.classes_.tolist(), **self._public_effects()}

    @classmethod
    def _from_public_model(cls, model, n_features):
        """Make a fitted model of public parameters, all of which are checked."""
        if len(model["classes"]) != 2:
            raise ValueError("there must be two classes")
        estimator = cls(link=model["link"], effect_params={"crossed": model["crossed"]})
        estimator._take_public_effects(model, n_features)
        estimator.classes_ = np.array(model["classes"])
        return estimator

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


@share_entries
class PrivateGLMMRegressor(FittedGLMMMixin, RegressorMixin, BaseGLMM, PrivateEstimator):
    """Linear, Poisson or binomial mixed model for rows that several parties hold.

    The predictor is ``intercept + X coef + offset + Z b``, where the effects ``b`` are
    common to all rows of a cluster and normally distributed over clusters. Linear
    models need one exchange of sums of products; other families need sums of
    log-likelihoods, gradients and Hessians in every iteration.

    With `epsilon`, linear models with a random intercept of public clusters are fitted
    to a single noisy release of sums.

    Read more in the :ref:`User Guide <mixed_model>`.

    Parameters
    ----------
    family : {"gaussian", "poisson", "binomial"}, default="gaussian"
        Distribution of the target: numbers, counts, or proportions of `sample_weight`
        trials.
    link : str, default=None
        Link function: "identity" (gaussian), "log" (poisson), "logit", "probit" or
        "cloglog" (binomial). None means the first one of the family.
    <slopes ... quadrature_params>
    reml : bool, default=True
        Whether variances of a linear model are estimated by restricted maximum
        likelihood. Other families ignore it.
    max_iter : int, default=None
        Maximum number of iterations; 100 if None.
    <clusters ... backend>
    verbose : int, default=0
        1 prints every tenth iteration, 2 every one.
    epsilon : float, default=None
        Privacy budget of the sums, for ``family="gaussian"`` with `clusters` and
        without slopes, offset and weights. The limits on small clusters do not apply
        then. None releases the sums exactly.
    delta : float, default=0.0
        With `epsilon`: 0 adds discrete Laplace noise, more discrete Gaussian noise.
    bounds : pair, list of pairs or dict, default=None
        Public lower and upper bounds of the features and, last, of the target
        (``"y"`` in a dict), to which rows are clipped; needed with `epsilon`.
    accountant : PrivacyAccountant, default=None
        Charged before any row is read.
    min_honest : int, default=None
        With `epsilon`: number of parties trusted to add their share of the noise and
        to keep it secret. None means half of them, rounded up; sites accept no more.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Fixed effects.
    intercept_ : float
        Predictor where all features are 0.
    coef_std_ : ndarray of shape (n_features,)
        Standard errors; with `epsilon` by a parametric bootstrap that includes the
        noise.
    intercept_std_ : float
        Standard error of the intercept.
    residual_scale_ : float
        Standard deviation of the rows about their predictors, in linear models.
    privacy_spent_ : PrivacyCost
        Cost of the fit, with `epsilon` only.
    noise_report_ : NoiseReport
        Effect of the noise on the result, with `epsilon` only.
    <covariance_ ... feature_names_in_>

    See Also
    --------
    PrivateGLMMClassifier : Two classes.
    likelihood_ratio_test : Compare two fits.

    Notes
    -----
    A party integrates over the effects of its own clusters locally. Linear models open
    the sums of features and target of each cluster that several parties hold; the
    guide describes what these disclose.

    References
    ----------
    .. [1] Bates, Maechler, Bolker, Walker. Fitting linear mixed-effects models using
       lme4. Journal of Statistical Software, 2015.
    .. [2] Luo, Islam, Sheils, Buresh, Reps, Schuemie, Ryan, Edmondson, Duan, Tong, et
       al. DLMM as a lossless one-shot algorithm for collaborative multi-site
       distributed linear mixed models. Nature Communications, 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.mixed_model import PrivateGLMMRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, centre = rng.normal(size=(600, 2)), rng.integers(12, size=600)
    >>> y = X @ [1.0, -0.5] + rng.normal(size=12)[centre] + rng.normal(size=600)
    >>> hospital = rng.choice(["north", "south", "west"], size=600)
    >>> model = PrivateGLMMRegressor().fit(X, y, cluster=centre, party=hospital)
    >>> print(model.summary())
    Linear mixed model (REML), 600 rows of 3 parties
    ...
    >>> model.predict(X[:3], cluster=centre[:3]).shape
    (3,)
    """

    protocols = (*BaseGLMM.protocols, noisy_linear_mixed_model, linear_mixed_model)
    #: values with bounds beside the features
    _bounded_beside = ("y",)
    _parameter_constraints = {
        **BaseGLMM._parameter_constraints,
        "family": [StrOptions(set(TARGETS))],
        "link": [StrOptions({"identity", "log", "logit", "probit", "cloglog"}), None],
        "reml": ["boolean"],
        **PRIVACY_CONSTRAINTS,
    }

    def __init__(
        self,
        family: str = "gaussian",
        *,
        link: str | None = None,
        slopes: ArrayLike | dict | None = None,
        effect_params: dict | None = None,
        fit_intercept: bool = True,
        quadrature_params: dict | None = None,
        reml: bool = True,
        max_iter: int | None = None,
        clusters: ArrayLike | None = None,
        min_parties: int = 2,
        min_rows: int = 5,
        small_clusters: str = "auto",
        release_effects: str = "all",
        backend: str | AdditiveBackend = "masking",
        verbose: int = 0,
        epsilon: float | None = None,
        delta: float = 0.0,
        bounds: tuple | list | dict | None = None,
        accountant: PrivacyAccountant | None = None,
        min_honest: int | None = None,
    ) -> None:
        self.family = family
        self.link = link
        self.slopes = slopes
        self.effect_params = effect_params
        self.fit_intercept = fit_intercept
        self.quadrature_params = quadrature_params
        self.reml = reml
        self.max_iter = max_iter
        self.clusters = clusters
        self.min_parties = min_parties
        self.min_rows = min_rows
        self.small_clusters = small_clusters
        self.release_effects = release_effects
        self.backend = backend
        self.verbose = verbose
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.accountant = accountant
        self.min_honest = min_honest

    def _learn(self, partition, factors, classes, progress):
        if self.epsilon is None:
            charge(self, "estimates of a mixed model")
            super()._learn(partition, factors, classes, progress)
            return
        terms = NoisyMixedTerms(
            clusters=self._public_clusters(partition, factors),
            **noise_terms(self, partition),
        )
        run, what = noisy_linear_mixed_model, "products and sums of clusters"
        found = self._run_charged(partition, run, terms, what)
        keep_noisy(self, found, terms, factors[0])

    def _public_clusters(self, partition, factors):
        """Refuse options without calibrated noise; return the public labels."""
        if self.family != "gaussian":
            raise ValueError(
                f"epsilon is not available with family={self.family!r}: its search "
                "needs sums of each cluster in every iteration, which the noise that "
                "hides a row in all of them would drown. Use family='gaussian', or "
                "release tables by DPCGMLearner(epsilon=...) and fit any model to "
                "samples of these"
            )
        refused = {
            "slopes": self.slopes is not None,
            "effect_params": self.effect_params is not None,
            "fit_intercept=False": not self.fit_intercept,
            "release_effects='shared'": self.release_effects != "all",
            "offset": "offset" in partition.aligned,
            "sample_weight": "sample_weight" in partition.aligned,
        }
        for name, is_given in refused.items():
            if is_given:
                raise ValueError(
                    f"{name} is not available with epsilon, whose noise is calibrated "
                    "for one random intercept and equal weights; leave it out"
                )
        if len(factors) != 1:
            raise ValueError(
                "epsilon needs one column of cluster labels, fit(..., cluster=...): "
                f"got {len(factors)}"
            )
        if self.clusters is not None:
            return list(dict.fromkeys(np.asarray(self.clusters).tolist()))
        if isinstance(partition, RemoteRows):
            return list(partition.schema[partition.aligned["cluster"]])
        raise ValueError(
            "epsilon needs clusters=[...] with all possible labels: labels read off "
            "the data are not private"
        )

    @property
    def _family(self) -> Family:
        return family_of(self.family, self.link)

    @property
    def _target(self) -> str:
        return TARGETS[self.family]

    def _keep_fixed(self, fixed, errors):
        self.intercept_, self.coef_ = float(fixed[0]), fixed[1:]
        self.intercept_std_, self.coef_std_ = float(errors[0]), errors[1:]

    def _answer(self, mean):
        return mean

    def _total_score(self, parts):
        unexplained, mean, spread = parts
        if self.family == "poisson":
            total = 2 * (spread - xlogy(mean, mean))
        else:
            total = spread - mean**2
        if total <= 0:
            return 1.0 if unexplained <= 0 else 0.0
        return 1 - unexplained / total

    def _row_scores(self, X, y, cluster=None, offset=None):
        """Return the unexplained part, the target, and its part of the spread."""
        mean = self.predict(X, cluster=cluster, offset=offset)
        if self.family == "poisson":
            spread = xlogy(y, y)
            unexplained = 2 * (spread - xlogy(y, mean) - y + mean)
        else:
            spread, unexplained = y**2, (y - mean) ** 2
        return np.column_stack([unexplained, y, spread])

    def _public_model(self):
        return {"family": self.family, **self._public_effects()}

    @classmethod
    def _from_public_model(cls, model, n_features):
        """Make a fitted model of public parameters, all of which are checked."""
        effects = {"crossed": model["crossed"]}
        estimator = cls(model["family"], link=model["link"], effect_params=effects)
        estimator._take_public_effects(model, n_features)
        return estimator
