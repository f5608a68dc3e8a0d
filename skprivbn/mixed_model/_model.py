"""What a fitted mixed model keeps and answers, whatever its target is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skprivbn.exceptions import PartitionError
from skprivbn.federation import check_received
from skprivbn.mixed_model._checks import (
    check_same_kind,
    check_weights,
    cluster_keys,
    finite_per_row,
    name_columns,
    require_y,
    split_clusters,
)
from skprivbn.mixed_model._clusters import OTHER
from skprivbn.mixed_model._summary import GLMMSummary, VarianceComponents
from skprivbn.mixed_model._terms import INTERCEPT, family_of
from skprivbn.partition import RemoteResults, is_partition
from skprivbn.partition._base import take_column
from skprivbn.partition._horizontal import one_per_row
from skprivbn.programs._applied import predict_at_sites
from skprivbn.utils import column_names
from skprivbn.utils._typing import PerRow, TableLike
from skprivbn.utils._validation import validate_table

# What the exponential of a coefficient is, by link.
_RATIOS = {"logit": "Odds ratio", "log": "Rate ratio", "cloglog": "Hazard ratio"}


class FittedGLMMMixin:
    """Methods of estimators that keep effects in `coef_` and `random_effects_`.

    To be named before scikit-learn's mixins, whose ``score`` knows no clusters.
    """

    # without features there are an intercept and random effects left
    _row_checks = {"dtype": [np.float64, np.float32], "ensure_min_features": 0}
    __metadata_request__predict = {"cluster": True, "offset": True}
    __metadata_request__score = {"cluster": True, "offset": True}

    def _keep(self, estimates, survey, factors, ledger):
        random, census = survey.terms.random, survey.census
        errors, fixed = np.sqrt(np.diag(estimates.covariance)), estimates.fixed
        if not survey.terms.fit_intercept:
            fixed, errors = np.append(0.0, fixed), np.append(np.nan, errors)
        self._keep_fixed(fixed, errors)
        self.covariance_ = estimates.covariance
        self.log_likelihood_ = float(estimates.log_likelihood[0])
        self.converged_ = bool(estimates.converged)
        self.singular_ = estimates.singular
        self.n_samples_ = survey.n_samples
        self.n_iter_ = estimates.n_iter
        self.ledger_ = ledger
        self.random_effect_covariance_ = {}
        # INTERCEPT, -1, is the last of these
        names = np.array([*column_names(self), "(Intercept)"])
        self._effect_columns = []
        self.effect_names_, clusters, effects, spread, scales = {}, {}, {}, {}, {}
        start = 0
        for number, factor in enumerate(factors):
            members = np.flatnonzero(random.factors == number)
            columns = random.columns[members]
            self._effect_columns.append(columns.tolist())
            self.effect_names_[factor] = names[columns].tolist()
            covariance = estimates.random_covariance[..., members[:, None], members]
            scale = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
            scales[factor] = float(scale[0]) if scale.shape == (1,) else scale
            clusters[factor] = _labels(census.names(number))
            n_levels = len(clusters[factor])
            part = slice(start, start + n_levels * len(members))
            shape, start = (n_levels, len(members)), part.stop
            effects[factor], spread[factor] = self._known_effects(
                estimates.effects[part].reshape(shape),
                np.sqrt(np.maximum(estimates.effect_variances[part], 0)).reshape(shape),
                census,
                number,
                scale,
            )
            if survey.terms.scales:
                told = ~np.isnan(effects[factor])
                scales[factor] = np.where(told, scale[:, 0], np.nan)
                covariance = covariance[told].mean(axis=0)
            self.random_effect_covariance_[factor] = covariance
        self.factors_ = list(factors)
        self.clusters_ = _only(clusters, np.array([]))
        self.random_effects_ = _only(effects, np.zeros(0))
        self.random_effects_std_ = _only(spread, np.zeros(0))
        self.random_effect_scale_ = _only(scales, 0.0)
        vars(self).pop("residual_scale_", None)  # that of a fit of another family
        if estimates.sigma is not None:
            self.residual_scale_ = estimates.sigma

    def _known_effects(self, effects, spread, census, factor, scales):
        """Withhold what is not told; what nothing is known of has its prior spread."""
        withholds = self.release_effects == "shared" and len(self.ledger_.parties) > 1
        withheld = withholds & (census.n_holders[0][census.tops[factor]] == 1)
        unseen = census.n_rows[factor] == 0
        spread = np.where(unseen[:, None], scales, spread)
        effects, spread = (
            np.where(withheld[:, None], np.nan, values) for values in (effects, spread)
        )
        if effects.shape[1] == 1:
            return effects[:, 0], spread[:, 0]
        return effects, spread

    def _predictor(self, X, cluster, offset):
        """Return intercept + X coef + offset + what the clusters add."""
        check_is_fitted(self)
        if isinstance(cluster, str):
            X, cluster = take_column(X, cluster, "cluster")
        X = validate_table(self, X, reset=False, **self._row_checks)
        eta = X @ np.ravel(self.coef_) + np.ravel(self.intercept_)[0]
        if offset is not None:
            eta = eta + finite_per_row("offset", offset, len(X))
        if cluster is None or not self.factors_:
            return eta
        aligned, names = split_clusters(cluster)
        columns = [
            one_per_row("cluster", labels, len(X)) for labels in aligned.values()
        ]
        if names and self.factors_ != cluster_keys(len(self.factors_)):
            if set(names) != set(self.factors_):
                raise ValueError(
                    f"cluster has the columns {names}, the model was fitted to "
                    f"{self.factors_}"
                )
            columns = [columns[names.index(factor)] for factor in self.factors_]
        if len(columns) != len(self.factors_):
            raise ValueError(
                f"cluster has {len(columns)} columns of labels, the model was fitted "
                f"to {len(self.factors_)}: {self.factors_}"
            )
        for factor, labels, varying in zip(
            self.factors_, self._paths(columns), self._effect_columns
        ):
            clusters, effects = self._of_factor(factor)
            known = {label: i for i, label in enumerate(clusters.tolist())}
            check_same_kind("cluster", labels, known)
            place = np.array([known.get(label, len(clusters)) for label in labels])
            effects = np.concatenate([effects, np.zeros((1, effects.shape[1]))])
            Z = np.column_stack([np.ones(len(X)), X])[:, np.array(varying) - INTERCEPT]
            eta = eta + np.einsum("ij,ij->i", Z, effects[place])
        return eta

    def _of_factor(self, factor):
        """Return labels of a factor, and their effects in columns; 0 if withheld."""
        clusters, effects = (
            values[factor] if isinstance(values, dict) else values
            for values in (self.clusters_, self.random_effects_)
        )
        return clusters, np.nan_to_num(np.asarray(effects)).reshape(len(clusters), -1)

    def _paths(self, columns):
        """Return labels as they are in `clusters_`: nested ones within outer ones."""
        columns = [labels.tolist() for labels in columns]
        if self._effects["crossed"]:
            return columns
        paths = [
            [":".join(map(str, path)) for path in zip(*columns[: i + 1])]
            for i in range(1, len(columns))
        ]
        return [*columns[:1], *paths]

    def _predict_at_sites(self, X, cluster, offset, method):
        check_is_fitted(self)
        aligned = {**name_columns(cluster), "offset": offset}
        return predict_at_sites(self, X, method, aligned=aligned)

    def predict(
        self: Any, X: TableLike, *, cluster: PerRow = None, offset: PerRow = None
    ) -> np.ndarray | RemoteResults:
        """Return the more probable class of each row, or its expected target.

        Those of a typical cluster (effect 0), not averaged over clusters, where the
        cluster is unknown.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or RemoteRows
            Sites keep the results for remote rows.
        cluster : array-like of shape (n_samples,) or (n_samples, n_factors), str or \
                list of str, default=None
            Category of each row; unknown ones, and None, have effect 0. The name of a
            column of a dataframe, or names of columns of remote rows.
        offset : array-like of shape (n_samples,) or str, default=None
            Known part of the predictor.

        Returns
        -------
        y : ndarray of shape (n_samples,) or RemoteResults
        """
        if is_partition(X):
            return self._predict_at_sites(X, cluster, offset, "predict")
        return self._answer(self._family.mean(self._predictor(X, cluster, offset)))

    def score(
        self: Any,
        X: Any,
        y: PerRow = None,
        sample_weight: PerRow = None,
        *,
        cluster: PerRow = None,
        offset: PerRow = None,
    ) -> float:
        """Return the accuracy, or the explained part of the deviance (R squared).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or HorizontalPartition
            Of rows that parties hold, only sums become known: of hits; or of what is
            not explained, of the target, and of its squares (for counts, of y log y).
        y : array-like of shape (n_samples,) or str
            Target; the name of a column of a dataframe or of remote rows.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of rows that are here.
        cluster : array-like of shape (n_samples,) or (n_samples, n_factors), str or \
                list of str
            Category of each row; the name of a column of a dataframe, or names of
            columns of remote rows.
        offset : array-like of shape (n_samples,) or str, default=None
            Known part of the predictor.

        Returns
        -------
        score : float
        """
        check_is_fitted(self)
        if is_partition(X):
            if y is None and "y" not in X.aligned:
                raise PartitionError("the partition has no y to compare with")
            beside = {**name_columns(cluster), "y": y, "offset": offset}
            beside = {key: value for key, value in beside.items() if value is not None}
            totals, n_rows = self._add_scores(X, sample_weight, **beside)
            return float(self._total_score(totals / n_rows))
        if isinstance(y, str):
            X, y = take_column(X, y, "y")
        require_y(self, y)
        weights = check_weights(sample_weight, len(X))
        y = one_per_row("y", y, len(X))
        if self._target == "classes":
            check_same_kind("y", y.tolist(), self.classes_.tolist())
        else:
            y = finite_per_row("y", y, len(X))
        scores = self._row_scores(X, y, cluster, offset)
        return float(self._total_score(np.average(scores, axis=0, weights=weights)))

    def _public_effects(self):
        known = [self._of_factor(factor) for factor in self.factors_]
        return {
            "link": self._family.link,
            "crossed": self._effects["crossed"],
            "coefficients": np.append(self.intercept_, self.coef_),
            "columns": self._effect_columns,
            "clusters": [labels.tolist() for labels, _ in known],
            "effects": [effects for _, effects in known],
        }

    def _take_public_effects(self, model, n_features):
        coefficients = check_received(model["coefficients"], (n_features + 1,))
        family_of(self._family.name, model["link"])
        self._keep_fixed(coefficients, np.full(n_features + 1, np.nan))
        self.factors_ = cluster_keys(len(model["clusters"]))
        self._effect_columns = model["columns"]
        self.clusters_, self.random_effects_ = {}, {}
        parts = model["columns"], model["clusters"], model["effects"]
        for factor, columns, labels, effects in zip(self.factors_, *parts, strict=True):
            if not all(type(c) is int and INTERCEPT <= c < n_features for c in columns):
                raise ValueError("random effects are of columns that X lacks")
            self.clusters_[factor] = _labels(labels)
            shape = len(labels), len(columns)
            self.random_effects_[factor] = check_received(effects, shape)

    def _join_beside(self, block):
        """Return what goes beside rows as methods want it: all labels together."""
        keys = [key for key in cluster_keys(len(self.factors_)) if key in block]
        if len(keys) < 2:
            return block
        rest = {key: value for key, value in block.items() if key not in keys}
        columns = [np.asarray(block[key], dtype=object) for key in keys]
        return {**rest, "cluster": np.column_stack(columns)}

    def variance_components(self: Any) -> VarianceComponents:
        """Return variances and correlations of the random effects.

        Returns
        -------
        components : VarianceComponents
            Prints as R's ``VarCorr``; ``to_frame()``.
        """
        check_is_fitted(self)
        return VarianceComponents(
            names=self.effect_names_,
            covariances=self.random_effect_covariance_,
            residual=getattr(self, "residual_scale_", None),
            n_scales=len(self.clusters_) if self._effects["scales"] == "each" else 1,
        )

    def summary(self: Any, feature_names: Sequence[str] | None = None) -> GLMMSummary:
        """Return the table of fixed and random effects.

        Parameters
        ----------
        feature_names : sequence of str, default=None
            Names for the columns of X where these had none, as in a pipeline:
            ``pipeline[-1].summary(pipeline[:-1].get_feature_names_out())``.

        Returns
        -------
        summary : GLMMSummary
            Prints as text, shows as HTML in a notebook; ``conf_int()``,
            ``to_frame()``, ``to_latex()``, ``to_markdown()``.
        """
        check_is_fitted(self)
        features = column_names(self)
        if feature_names is not None:
            if len(feature_names) != len(features):
                raise ValueError(
                    f"feature_names has {len(feature_names)} names, the model was "
                    f"fitted to {len(features)} columns"
                )
            features = list(map(str, feature_names))
        estimates = np.append(self.intercept_, self.coef_)
        errors = np.append(self.intercept_std_, self.coef_std_)
        names = ["(Intercept)", *features]
        skip = int(not self.fit_intercept)
        return GLMMSummary(
            kind=self._kind(),
            classes=np.asarray(getattr(self, "classes_", [])).tolist() or None,
            ratio=_RATIOS.get(self._family.link),
            names=names[skip:],
            estimates=estimates[skip:],
            standard_errors=errors[skip:],
            components=self.variance_components() if self.factors_ else None,
            # draws go on as long as they are told to
            converged=self.converged_ or self.method == "metropolis",
            singular=self.singular_,
            log_likelihood=self.log_likelihood_,
            n_rows=self.n_samples_,
            n_clusters={name: len(self._of_factor(name)[0]) for name in self.factors_},
            n_parties=len(self.ledger_.parties),
        )

    def _kind(self):
        link = self._family.link
        names = {"identity": "Linear", "log": "Poisson", "logit": "Logistic"}
        name = names.get(link, link.capitalize())
        if not self.factors_:
            return f"{name} regression"
        restricted = link == "identity" and self.reml
        return f"{name} mixed model{' (REML)' if restricted else ''}"


def _labels(names):
    """Return labels as an array; numbers stay numbers beside pooled ones."""
    mixed = OTHER in names and len({type(name) for name in names}) > 1
    return np.array(names, dtype=object) if mixed else np.asarray(names)


def _only(values, default):
    """Return the value of the only factor, or all of them by name."""
    if not values:
        return default
    return next(iter(values.values())) if len(values) == 1 else values
