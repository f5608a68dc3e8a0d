"""What classifier and regressor have in common: the fit over parties."""

from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.callback import CallbackSupportMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from skprivbn.base import BACKEND_CONSTRAINT, FederatedEstimator
from skprivbn.crypto import resolve_backend
from skprivbn.exceptions import PartitionError
from skprivbn.mixed_model._checks import (
    check_clusters,
    check_weights,
    name_columns,
    random_terms,
    some,
    split_clusters,
    warn_of_holders,
)
from skprivbn.mixed_model._design import INTERCEPT
from skprivbn.mixed_model._estimates import estimate, estimate_linear
from skprivbn.mixed_model._linear_protocol import LinearParty, run_linear
from skprivbn.mixed_model._model import FittedGLMMMixin
from skprivbn.mixed_model._protocol import GLMMParty, collect, run_em
from skprivbn.mixed_model._survey import OTHER, cluster_keys, take_survey
from skprivbn.mixed_model._terms import MixedTerms
from skprivbn.partition import is_held
from skprivbn.protocols import ModelParty
from skprivbn.utils import column_names, warn_leak, warn_user
from skprivbn.utils._sklearn import Interval, Options, StrOptions, _fit_context
from skprivbn.utils._typing import TableLike, WeightsLike

_MAX_ITER = {"quadrature": 100, "metropolis": 20}
_DEFAULT_NODES = 25
# Error of the log-likelihood that is worth a warning, and nodes that have less of it.
_TOO_MUCH, _MANY_NODES = 0.01, 75


class BaseGLMM(CallbackSupportMixin, FittedGLMMMixin, FederatedEstimator):
    """Parameters, checks and the fit; subclasses say what the target is."""

    #: as in the terms: classes, numbers, counts or proportions
    _target: Any

    #: what parties run
    protocols: tuple = (GLMMParty, ModelParty)

    __metadata_request__fit = {
        "cluster": True,
        "offset": True,
        "sample_weight": True,
    }

    _parameter_constraints = {
        "slopes": ["array-like", dict, None],
        "random_intercept": ["boolean"],
        "correlated": ["boolean"],
        "arrangement": [StrOptions({"nested", "crossed"})],
        "fit_intercept": ["boolean"],
        "n_quadrature": [
            Options(Integral, {1}),
            Interval(Integral, 5, 100, closed="both"),
            None,
        ],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "clusters": ["array-like", None],
        "min_parties": [Interval(Integral, 2, None, closed="left")],
        "min_rows": [Interval(Integral, 1, None, closed="left")],
        "small_clusters": [StrOptions({"refuse", "pool"})],
        "release_effects": [StrOptions({"all", "shared"})],
        "backend": BACKEND_CONSTRAINT,
        "verbose": ["verbose"],
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: TableLike,
        y: ArrayLike | None = None,
        *,
        cluster: ArrayLike | None = None,
        party: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        sample_weight: WeightsLike | None = None,
    ) -> Self:
        """Estimate fixed effects and the variances of the random effects.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or HorizontalPartition
            A partition carries `y` and `cluster` beside its rows.
        y : array-like of shape (n_samples,)
            Two classes; or numbers, counts or proportions, as `family` says.
        cluster : array-like of shape (n_samples,) or (n_samples, n_factors)
            Category of each row's random effects; a frame where there are several.
            None fits a plain regression.
        party : array-like of shape (n_samples,), default=None
            Who holds each row. None means that one party holds all.
        offset : array-like of shape (n_samples,), default=None
            Known part of the predictor, such as the logarithm of an exposure.
        sample_weight : array-like of shape (n_samples,), default=None
            How often each row counts (classes, counts), its precision (numbers) or
            its number of trials (proportions).

        Returns
        -------
        self : object
            Fitted estimator.
        """
        if is_held(X) and isinstance(cluster, list) and cluster:
            clusters, names = name_columns(cluster), cluster
        else:
            clusters, names = split_clusters(cluster)
        if not is_held(X):
            y = self._check_target(y, sample_weight)
            if cluster is not None:
                check_clusters(clusters, self.clusters)
        check_weights(sample_weight)
        beside = {"y": y, **clusters, "offset": offset, "sample_weight": sample_weight}
        partition = self._check_rows(X, party, **beside)
        if "y" not in partition.aligned:
            raise PartitionError(
                "the partition has no y: HorizontalPartition(rows, y=..., cluster=...)"
            )
        keys = [key for key in cluster_keys(8) if key in partition.aligned]
        return self._learn_watched(X, y, partition, list(names or keys))

    @property
    def _steps(self):
        # the last one looks at the result
        return {"step": "iteration", "max_steps": self._max_iter + 1}

    @property
    def _max_iter(self):
        return self.max_iter or _MAX_ITER[getattr(self, "method", "quadrature")]

    def _learn(self, partition, factors, progress):
        if not factors:
            warn_user(
                "no cluster was given: this is a plain regression; pass cluster= to "
                "say which rows share a random effect"
            )
        terms = self._make_terms(factors)
        linear = terms.family == "gaussian"
        party_class = LinearParty if linear else GLMMParty
        with self._federate(partition, party_class, terms) as federation:
            survey = take_survey(federation, self.n_features_in_)
            self._check_classes(survey)
            survey = self._check_survey(survey, federation, linear)
            if linear:
                release = run_linear(federation, survey, progress)
            else:
                total = run_em(federation, survey, progress)
                release = collect(federation, survey, total)
        mixed = bool(factors)
        if linear:
            estimates = estimate_linear(release, survey, mixed=mixed, reml=terms.reml)
        else:
            estimates = estimate(release, survey, mixed=mixed, refine=not terms.drawn)
        collinear = not linear and release.collinear
        self._warn_of_estimates(estimates, survey, collinear, terms.drawn)
        if not linear and release.error > _TOO_MUCH:
            warn_user(
                f"the log-likelihood may be off by {release.error:.1g}, as "
                f"effects are wide and clusters have few rows: n_quadrature="
                f"{terms.n_quadrature} nodes are too few, try {_MANY_NODES}"
            )
        self._keep(estimates, survey, factors, federation.ledger)

    def _make_terms(self, factors):
        family, terms = self._family, []
        if factors:
            terms = random_terms(
                self.slopes,
                self.random_intercept,
                self.correlated,
                len(factors),
                factors,
                column_names(self),
            )
        method = getattr(self, "method", "quadrature")
        n_effects = sum(len(columns) for _, columns in terms)
        n_quadrature = self.n_quadrature
        if n_quadrature is None:
            n_quadrature = _DEFAULT_NODES if n_effects <= 1 else 1
        self._check_terms(factors, family, n_effects, n_quadrature, method)
        clusters = None
        if not factors:
            clusters = []
        elif self.clusters is not None:
            clusters = [np.unique(self.clusters).tolist()]
        seed = 0
        if method == "metropolis":
            numbers = check_random_state(self.random_state)
            seed = int(numbers.randint(np.iinfo(np.int32).max))
        return MixedTerms(
            target=self._target,
            family=family.name,
            link=family.link,
            reml=getattr(self, "reml", False),
            n_factors=len(factors),
            nested=self.arrangement == "nested",
            term_factors=[factor for factor, _ in terms],
            term_columns=[list(columns) for _, columns in terms],
            fit_intercept=self.fit_intercept,
            method=method,
            clusters=clusters,
            n_quadrature=n_quadrature,
            batch_size=getattr(self, "batch_size", 1),
            n_burn_in=getattr(self, "n_burn_in", 0),
            n_draws=getattr(self, "n_draws", 2),
            seed=seed,
            max_iter=self._max_iter,
            tol=self.tol,
            min_parties=self.min_parties,
            min_rows=self.min_rows,
            pool=self.small_clusters == "pool",
            release_effects=self.release_effects,
            max_sum=resolve_backend(self.backend).max_sum(),
        )

    def _check_terms(self, factors, family, n_effects, n_quadrature, method):
        if len(factors) > 1 and self.clusters is not None:
            raise ValueError("clusters= goes with one column of cluster labels only")
        if family.name == "gaussian":
            return
        if len(factors) > 1 and self.arrangement == "crossed":
            raise ValueError(
                "crossed effects are fitted for family='gaussian' only: others would "
                "open counts of pairs of clusters in every iteration"
            )
        if n_effects > 1 and n_quadrature > 1:
            raise ValueError(
                f"n_quadrature={n_quadrature} goes with one random effect per row; "
                f"with {n_effects}, use n_quadrature=1 (Laplace's approximation)"
            )
        if method == "metropolis" and (n_effects > 1 or n_quadrature == 1):
            raise ValueError(
                "method='metropolis' draws one random effect per cluster, and needs "
                "n_quadrature for its standard errors"
            )

    def _check_classes(self, survey):
        """Raise if there are other than two classes, where there are classes."""

    def _check_survey(self, survey, federation, linear):
        """Warn or raise about small clusters; return the survey with these pooled."""
        if linear and survey.n_samples < 2:
            raise ValueError("n_samples=1: a linear model needs more rows")
        # sites may have raised the limits
        terms, census = federation.terms, survey.census
        if not terms.mixed or len(federation.roster) == 1:
            return survey
        limits = terms.min_parties, terms.min_rows, terms.crossed
        if terms.pool:
            survey = survey.pooled(*limits)
            for factor, mask in enumerate(census.too_small(*limits)):
                if np.any(mask):
                    federation.ledger.note(
                        f"small clusters {some(census.names(factor), mask)} are pooled "
                        "into one: their rows share one random effect"
                    )
            census = survey.census
        for factor, mask in enumerate(census.too_small(*limits)):
            if np.any(mask):
                raise ValueError(
                    f"clusters {some(census.names(factor), mask)} have fewer than "
                    f"min_parties={limits[0]} holders or min_rows={limits[1]} rows: "
                    "sums over so few would tell what the rows are; "
                    "small_clusters='pool' gives them one random effect together, or "
                    "lower the limits knowingly"
                )
        self._note_what_opens(federation.ledger, census, linear, terms.crossed)
        warn_of_holders(census, federation.ledger, self.release_effects)
        return survey

    def _note_what_opens(self, ledger, census, linear, crossed):
        if not linear:
            ledger.note(
                "log-likelihoods of a cluster at many trial effects can determine the "
                "predictors of its rows if these are few: see min_rows"
            )
            return
        ledger.note(
            "sums of the features and the target are known of every cluster that "
            "several parties hold: more than in other families, where these are "
            "weighted by the model"
        )
        if crossed:
            message = (
                "crossed effects open the number of rows of every pair of clusters, "
                "and sums of each cluster also where one party holds it alone"
            )
            ledger.note(message)
            warn_leak(message)

    def _warn_of_estimates(self, estimates, survey, collinear, drawn):
        if np.any(survey.constant):
            names = column_names(self)
            warn_user(
                f"features {some(names, survey.constant)} do not vary: their "
                "coefficients are set to 0"
            )
        linear = estimates.sigma is not None
        if not estimates.determined and (collinear or linear):
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
            problem = "the log-likelihood has no maximum where the search stopped"
        elif not estimates.converged and not drawn:
            problem = (
                f"the search did not converge: increase max_iter, or tol={self.tol}"
            )
        else:
            return
        warn_user(problem, ConvergenceWarning)

    def _keep(self, estimates, survey, factors, ledger):
        design, census = survey.design, survey.census
        errors = np.sqrt(np.diag(estimates.covariance))
        fixed = estimates.fixed
        if not design.fit_intercept:
            fixed, errors = np.append(0.0, fixed), np.append(np.nan, errors)
        self._keep_fixed(fixed, errors)
        self.covariance_ = estimates.covariance
        self.log_likelihood_ = estimates.log_likelihood
        self.converged_ = bool(estimates.converged)
        self.singular_ = estimates.singular
        self.n_samples_ = survey.n_samples
        self.n_iter_ = estimates.n_iter
        self.ledger_ = ledger
        self.random_effect_covariance_ = {}
        names = column_names(self)
        self.effect_names_, clusters, effects, spread = {}, {}, {}, {}
        start = 0
        for number, factor in enumerate(factors):
            members = np.flatnonzero(design.random.factors == number)
            columns = design.random.columns[members]
            self.effect_names_[factor] = [
                "(Intercept)" if c == INTERCEPT else names[c] for c in columns
            ]
            block = np.ix_(members, members)
            self.random_effect_covariance_[factor] = estimates.random_covariance[block]
            clusters[factor] = _labels(census.names(number))
            n_levels = len(clusters[factor])
            part = slice(start, start + n_levels * len(members))
            shape, start = (n_levels, len(members)), part.stop
            each = estimates.effect_covariances[part]
            each = each[np.arange(len(each)), np.tile(members, n_levels)]
            effects[factor], spread[factor] = self._known_effects(
                estimates.effects[part].reshape(shape),
                np.sqrt(np.maximum(each, 0)).reshape(shape),
                census,
                number,
                np.sqrt(np.diag(self.random_effect_covariance_[factor])),
            )
        self.factors_ = list(factors)
        self.clusters_ = _only(clusters, np.array([]))
        self.random_effects_ = _only(effects, np.zeros(0))
        self.random_effects_std_ = _only(spread, np.zeros(0))
        scales = {
            factor: np.sqrt(np.diag(matrix))
            for factor, matrix in self.random_effect_covariance_.items()
        }
        self.random_effect_scale_ = _only(
            {k: float(v[0]) if len(v) == 1 else v for k, v in scales.items()}, 0.0
        )
        if estimates.sigma is not None:
            self.residual_scale_ = estimates.sigma

    def _known_effects(self, effects, spread, census, factor, scales):
        """Withhold what is not told; what nothing is known of has its prior spread."""
        top = census.tops[factor]
        withheld = np.zeros(len(effects), dtype=bool)
        if self.release_effects == "shared" and len(self.ledger_.parties) > 1:
            withheld = census.n_holders[0][top] == 1
        unseen = census.n_rows[factor] == 0
        spread = np.where(unseen[:, None], scales, spread)
        effects, spread = (
            np.where(withheld[:, None], np.nan, values) for values in (effects, spread)
        )
        if effects.shape[1] == 1:
            return effects[:, 0], spread[:, 0]
        return effects, spread

    def _keep_fixed(self, fixed: np.ndarray, errors: np.ndarray) -> Any:
        """Keep intercept and coefficients with their standard errors."""
        raise NotImplementedError


def _labels(names):
    """Return labels as an array; numbers stay numbers beside pooled ones."""
    mixed = OTHER in names and len({type(name) for name in names}) > 1
    return np.array(names, dtype=object) if mixed else np.asarray(names)


def _only(values, default):
    """Return the value of the only factor, or all of them by name."""
    if not values:
        return default
    return next(iter(values.values())) if len(values) == 1 else values
