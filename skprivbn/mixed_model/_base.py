"""What classifier and regressor have in common: the fit over parties."""

from __future__ import annotations

import re
from dataclasses import replace
from inspect import cleandoc
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.callback import CallbackSupportMixin
from sklearn.utils.validation import column_or_1d

from skprivbn.base import BACKEND_CONSTRAINT, FederatedEstimator
from skprivbn.exceptions import PartitionError, PartyError
from skprivbn.mixed_model._checks import (
    check_clusters,
    check_survey,
    check_target,
    check_weights,
    cluster_keys,
    declared_classes,
    declared_clusters,
    finite_per_row,
    name_columns,
    random_terms,
    require_columns,
    require_y,
    split_clusters,
    warn_of_estimates,
    warn_of_same_clusters,
    warn_of_survey,
)
from skprivbn.mixed_model._linear import linear_mixed_model
from skprivbn.mixed_model._program import generalised_mixed_model
from skprivbn.mixed_model._survey import Survey
from skprivbn.mixed_model._terms import MixedTerms
from skprivbn.mixed_model._updates import Estimates
from skprivbn.partition import RemoteRows, is_partition
from skprivbn.partition._base import refuse_name
from skprivbn.programs import keep_predictions, score_rows
from skprivbn.utils import column_names, warn_user
from skprivbn.utils._sklearn import (
    Interval,
    Options,
    RenamedParameters,
    StrOptions,
    _fit_context,
    moved_into,
    settings_in,
)
from skprivbn.utils._typing import PerRow, TableLike
from skprivbn.utils._validation import keep_types

#: settings of `effect_params`, and their defaults
EFFECT_PARAMS: dict = {
    "random_intercept": (["boolean"], True),
    "correlated": (["boolean"], True),
    "crossed": (["boolean"], False),
    "scales": ([StrOptions({"common", "each"})], "common"),
}
_NODES = [Options(Integral, {1}), Interval(Integral, 5, 100, closed="both"), None]
_QUADRATURE_PARAMS: dict = {
    "n_nodes": (_NODES, None),
    "tol": ([Interval(Real, 0, None, closed="left")], 1e-10),
}
#: settings of `metropolis_params`
METROPOLIS_PARAMS: dict = {
    "n_draws": ([Interval(Integral, 2, None, closed="left")], 1000),
    "n_burn_in": ([Interval(Integral, 0, None, closed="left")], 200),
    "batch_size": ([Interval(Integral, 1, None, closed="left")], 50),
    "random_state": (["random_state"], None),
}
_MAX_ITER = {"quadrature": 100, "metropolis": 20}
_DEFAULT_NODES = 25
# What party errors are likely to mean here; the parties' own words stay with them.
_HINTS = {
    "gaps": "an imputer fills columns of X only: leave out rows without an outcome, "
    "cluster, offset or weight",
    "invalid-data": "its y is not what the family needs (classes, counts, or "
    "proportions of sample_weight trials), or its offset or sample_weight has gaps",
    "out-of-range": "look at the units of X, y, offset and sample_weight",
    "too-detailed": "if few of its rows are in a cluster, small_clusters='auto' pools "
    "declared clusters by the rows of all sites, or sites join them (map in their site "
    "files); if few rows share labels of two columns of clusters, or few of a cluster "
    "that others hold, too, share a value of a feature, leave one of these out",
    "too-few-rows": "if few rows, of a cluster or of all parties, have the rarer "
    "outcome or a rare level of a feature, merge clusters or leave the feature out; if "
    "few of its rows are in a cluster that it holds alone, release_effects='shared' "
    "does not tell the effect; if offset or sample_weight leave nearly all weight to "
    "few rows of all parties, or of a cluster, look at their units",
}
# Sums that an iteration has one of.
_STEPS = {
    "products of columns, by shared cluster",
    "what clusters of one party explain at trial variances",
    "log-likelihoods, gradient and Hessians",
    "expected gradient and Hessian",
    "effects of clusters of one party",
    "log-likelihood, information and effects",
}


class BaseGLMM(CallbackSupportMixin, RenamedParameters, FederatedEstimator):
    """Parameters, checks and the fit; subclasses say what the target is.

    Parameters
    ----------
    slopes : list, dict of str to list, or None, default=None
        Features, by name or number, whose coefficients vary with the clusters. With
        several columns of cluster labels, a list for each: ``{"ward": ["age"]}``.
    effect_params : dict, default=None
        Settings of random effects that are not to have their defaults:
        ``"random_intercept"``, whether intercepts vary, too, where there are slopes
        (True), ``"correlated"``, whether random effects of the same clusters are
        correlated (True), ``"crossed"``, whether several columns of cluster labels
        are read on their own (linear models only), not within those of the columns
        before them (False), and ``"scales"``, whether effects of all clusters have one
        standard deviation ("common") or "each" its own (``method="metropolis"`` only;
        see the guide on what that can tell).
    fit_intercept : bool, default=True
        Whether there is a fixed intercept.
    quadrature_params : dict, default=None
        Settings of the integral over random effects, and of the search, that are not
        to have their defaults: ``"n_nodes"``, of which 1 is Laplace's approximation and
        5 and more are for one random effect per cluster (25 for one random effect, 1
        for several; linear models need none), and ``"tol"``: the search stops when the
        next step promises a smaller gain in log-likelihood, which is taken unseen; a
        last step of Newton's method follows (1e-10).
    clusters : array-like of labels, default=None
        All clusters there may be, as a public fact. If None, every party tells which
        clusters it holds.
    min_parties : int, default=2
        Fewest holders of a cluster whose rows are spread over parties.
    min_rows : int, default=5
        Fewest rows of such a cluster.
    small_clusters : {"auto", "refuse", "pool"}, default="auto"
        What to do with clusters below these limits: end the fit, or give all of them
        one random effect together, under the label "(other)"; if they are too small
        together, the smallest of the others joins them. Sites then also merge clusters
        of which they have fewer than ``min_cell_count`` rows of their own, before
        these are named, as "(other at north)". "auto" pools a column of clusters whose
        labels sites declare, by the rows and outcomes of all sites together, and
        warns; elsewhere it refuses.
    release_effects : {"all", "shared"}, default="all"
        Which clusters' random effects become known: all, or only those whose rows
        are spread over parties. The effect of a cluster held by one party tells about
        the rows of that party alone.
    backend : str or AdditiveBackend, default="masking"
        How sums are hidden: "masking", "ckks", "paillier" or "plaintext".

    Attributes
    ----------
    covariance_ : ndarray of shape (n_fixed, n_fixed)
        Sampling covariance of the intercept, if there is one, and coefficients.
    factors_ : list of str
        Names of the columns of cluster labels.
    clusters_ : ndarray of shape (n_clusters,), or dict of such
        Labels of the clusters; empty without random effects. By factor, as the
        following, if there are several.
    effect_names_ : dict of str to list of str
        What varies with each factor: "(Intercept)" and slopes.
    random_effects_ : ndarray of shape (n_clusters,) or (n_clusters, n_effects)
        Effects of each cluster given the estimates: posterior means by
        quadrature, else modes; NaN if withheld.
    random_effects_std_ : ndarray, shaped like `random_effects_`
        Their standard deviations.
    random_effect_scale_ : float or ndarray of shape (n_effects,)
        Standard deviations of the random effects; 0 without. Of shape (n_clusters,)
        with ``"scales": "each"``.
    random_effect_covariance_ : dict of str to ndarray of shape (n_effects, n_effects)
        Covariance of the random effects of each factor, on the average of clusters.
    log_likelihood_ : float
        Marginal log-likelihood at the estimates, restricted in linear models with
        `reml`.
    converged_ : bool
        Whether the search ended by itself.
    singular_ : bool
        Whether a variance is zero, or a correlation one, up to rounding.
    n_samples_ : int
        Rows of all parties.
    n_iter_ : int
        Number of iterations.
    ledger_ : Ledger
        Every message of the last fit, and who learnt what.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if `X` has string names.
    """

    #: what parties run
    protocols: tuple = (generalised_mixed_model, score_rows, keep_predictions)
    #: as in the terms: classes, numbers, counts or proportions
    _target: Any
    # what only one of classifier and regressor can choose
    method = "quadrature"
    reml = False
    _renamed: ClassVar = {
        "arrangement": "effect_params={'crossed': True}",
        "n_quadrature": "quadrature_params={'n_nodes': ...}",
        "tol": "quadrature_params={'tol': ...}",
        **moved_into("effect_params", EFFECT_PARAMS),
    }

    __metadata_request__fit = {
        "cluster": True,
        "offset": True,
        "sample_weight": True,
        "individual": True,
    }

    _parameter_constraints = {
        "slopes": ["array-like", dict, str, None],
        "effect_params": [dict, None],
        "fit_intercept": ["boolean"],
        "quadrature_params": [dict, None],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "clusters": ["array-like", None],
        "min_parties": [Interval(Integral, 2, None, closed="left")],
        "min_rows": [Interval(Integral, 1, None, closed="left")],
        "small_clusters": [StrOptions({"auto", "refuse", "pool"})],
        "release_effects": [StrOptions({"all", "shared"})],
        "backend": BACKEND_CONSTRAINT,
        "verbose": ["verbose"],
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: TableLike,
        y: PerRow = None,
        *,
        cluster: PerRow = None,
        party: PerRow = None,
        offset: PerRow = None,
        sample_weight: PerRow = None,
        individual: PerRow = None,
    ) -> Self:
        """Estimate fixed effects and the variances of the random effects.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or HorizontalPartition
            A partition carries `y` and `cluster` beside its rows. There may be no
            features if there are clusters: ``np.empty((n_samples, 0))``.
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
        individual : array-like of shape (n_samples,), default=None
            The person behind each row, whom `epsilon` is to protect: all rows of a
            person count as one row together, and those of nobody known not at all. A
            person's rows must be with one party. Without `epsilon` it changes nothing.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        has_noise, given = getattr(self, "epsilon", None) is not None, y
        if is_partition(X):
            if y is None and "y" not in getattr(X, "aligned", "y"):
                raise PartitionError(
                    "the partition has no y: name its column, as in "
                    "fit(rows, y='died'), or give HorizontalPartition(blocks, y=...)"
                )
            clusters = name_columns(cluster)
            names = None if cluster is None else list(clusters.values())
        else:
            beside = {"offset": offset, "sample_weight": sample_weight}
            for name, values in {"y": y, "cluster": cluster, **beside}.items():
                refuse_name(name, values)
            require_y(self, y)
            y = column_or_1d(keep_types(y) if has_noise else y, warn=True)
            sample_weight = check_weights(sample_weight, len(y))
            offset = finite_per_row("offset", offset, len(y))
            clusters, names = split_clusters(cluster)
            # under noise, an error would tell that there is such a row
            if not has_noise:
                y = check_target(y, self._target, sample_weight)
            if cluster is not None and not has_noise:
                check_clusters(clusters, self.clusters)
            elif list(clusters) == ["cluster"] and cluster is not None:
                clusters = {"cluster": declared_clusters(cluster, self.clusters)}
        beside = {"y": y, **clusters, "offset": offset, "sample_weight": sample_weight}
        beside["individual"] = individual if has_noise else None
        partition = self._check_rows(X, party, **beside)
        keys = [key for key in cluster_keys(8) if key in partition.aligned]
        require_columns(self, partition, keys)
        classes = declared_classes(X, given) if self._target == "classes" else None
        return self._learn_watched(X, y, partition, list(names or keys), classes)

    @property
    def _effects(self):
        return settings_in("effect_params", self.effect_params, EFFECT_PARAMS)

    @property
    def _quadrature(self):
        given = self.quadrature_params
        return settings_in("quadrature_params", given, _QUADRATURE_PARAMS)

    def _chains(self):
        """Return settings of the Metropolis chains, as terms call them."""
        return {}

    @property
    def _steps(self):
        # the first one adds products up, the last one looks at the result
        return {"step": "iteration", "max_steps": self._max_iter + 2}

    @property
    def _max_iter(self):
        return self.max_iter or _MAX_ITER[self.method]

    def _learn(self, partition, factors, classes, progress):
        if not factors:
            others = [name for name in partition.aligned if name != "y"]
            warn_user(
                "no cluster was given: this is a plain regression; pass cluster= to "
                "say which rows share a random effect"
                + (f" (what was given with the rows: {others})" if others else "")
            )
        terms = self._make_terms(factors, "offset" in partition.aligned)
        terms = replace(terms, classes=classes)
        is_remote = isinstance(partition, RemoteRows)
        if self.small_clusters == "auto" and is_remote and len(factors) == 1:
            declared = partition.schema[partition.aligned["cluster"]]
            known = terms.clusters or [list(declared)]
            terms = replace(terms, pool=True, clusters=known)
        linear = self._family.name == "gaussian"
        run = linear_mixed_model if linear else generalised_mixed_model
        try:
            with self._federate(partition, run, terms) as federation:
                found = federation.run(progress=_each_step(progress))
        except PartyError as error:
            if error.code in _HINTS:
                error.add_note(_HINTS[error.code])
            raise
        # sites may have raised the limits
        terms, ledger = federation.terms, federation.ledger
        survey = Survey.from_payload(found["survey"], terms, self.n_features_in_)
        check_survey(survey, len(ledger.parties), factors, column_names(self))
        if terms.mixed:
            warn_of_survey(survey, factors, ledger)
        if self.small_clusters == "auto" and any(survey.pooled):
            warn_user(
                f"clusters {survey.pooled[0]} are pooled into one, '(other)': too few "
                "rows of all sites, or too few with one of the outcomes, are in them"
            )
        estimates = Estimates(**found["estimates"])
        warn_of_estimates(estimates, survey, column_names(self))
        self._keep(estimates, survey, factors, ledger)
        if not self.singular_:
            warn_of_same_clusters(self, survey.census)

    def _make_terms(self, factors, has_offset=False):
        family, options = self._family, self._effects
        effects = random_terms(self.slopes, factors, column_names(self), options)
        n_effects = sum(len(columns) for _, columns in effects)
        n_nodes = self._quadrature["n_nodes"]
        if n_nodes is None:
            n_nodes = _DEFAULT_NODES if n_effects <= 1 else 1
        clusters = None
        if not factors:
            clusters = []
        elif self.clusters is not None:
            clusters = [np.unique(self.clusters).tolist()]
        # what terms call by the same name
        shared = "fit_intercept method reml min_parties release_effects".split()
        return MixedTerms(
            target=self._target,
            family=family.name,
            link=family.link,
            has_offset=has_offset,
            n_factors=len(factors),
            nested=not options["crossed"],
            term_factors=[factor for factor, _ in effects],
            term_columns=[list(columns) for _, columns in effects],
            clusters=clusters,
            n_quadrature=n_nodes,
            tol=self._quadrature["tol"],
            max_iter=self._max_iter,
            pool=self.small_clusters == "pool",
            min_cluster_rows=self.min_rows,
            scales="each" if options["scales"] == "each" else None,
            **self._chains(),
            **{name: getattr(self, name) for name in shared},
        )


def _each_step(progress):
    """Return what takes every sum of a fit, and makes a step of those that are one."""

    def tell(what):
        if what in _STEPS:
            with progress.step():
                pass

    return tell


def share_entries(estimator: type) -> type:
    """Write what the base class says of parameters where a docstring names them.

    Parameters
    ----------
    estimator : type
        ``<slopes ... backend>`` in its docstring stands for these and those between.

    Returns
    -------
    estimator : type
    """

    def entries(named):
        first, last = named.groups()
        pattern = rf"^{first} : .*?^{last} : .*?\n(?=\S|\n|\Z)"
        found = re.search(pattern, cleandoc(BaseGLMM.__doc__) + "\n", re.M | re.S)
        return found[0]

    if estimator.__doc__ is not None:
        text = cleandoc(estimator.__doc__) + "\n"
        estimator.__doc__ = re.sub(r"<(\w+) \.\.\. (\w+)>\n", entries, text)
    return estimator
