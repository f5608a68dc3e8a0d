"""Pictures of fitted models: mixtures, random effects, residuals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skprivbn.inspection._style import (
    LINE_PALETTE,
    MARKERS,
    PALETTE,
    check_fitted,
    get_axes,
)
from skprivbn.utils import import_optional


@dataclass(eq=False, repr=False)
class MixtureDisplay:
    """Components of a mixture of two features as ellipses, with rows if given.

    Use :meth:`from_estimator` to make one.

    Parameters
    ----------
    weights : array-like of shape (n_components,)
        Weight of each component; heavier ones are drawn darker.

    means : array-like of shape (n_components, 2)
        Mean of each component.

    covariances : array-like of shape (n_components, 2, 2)
        Covariance matrix of each component.

    X : array-like of shape (n_samples, 2), default=None
        Rows to show.

    party : array-like of shape (n_samples,), default=None
        Who holds each row, told by colours and markers.

    feature_names : sequence of str, default=None
        Labels of the axes.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the ellipses.

    figure_ : matplotlib Figure
        Figure containing the ellipses.

    ellipses_ : list of matplotlib Ellipse
        One per component and standard deviation, components first.

    scatters_ : dict of str to matplotlib PathCollection
        The rows of each party.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.inspection import MixtureDisplay
    >>> covariances = np.array([[[1.0, 0.5], [0.5, 1.0]], [[1.0, 0.0], [0.0, 4.0]]])
    >>> display = MixtureDisplay([0.3, 0.7], [[0, 0], [5, 1]], covariances).plot()
    >>> len(display.ellipses_)
    4
    """

    weights: Any
    means: Any
    covariances: Any
    _: KW_ONLY
    X: Any = None
    party: ArrayLike | None = None
    feature_names: Sequence[str] | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        *,
        features: Sequence | None = None,
        party: ArrayLike | None = None,
        n_std: Sequence[float] = (1, 2),
        ax: Any = None,
        scatter_kw: dict | None = None,
    ) -> Self:
        """Draw two features of a fitted mixture.

        Parameters
        ----------
        estimator : fitted mixture
            With `weights_`, `means_`, `covariances_` and `covariance_type`, such as
            :class:`~skprivbn.mixture.PPEMGaussianMixture` or scikit-learn's
            ``GaussianMixture``.

        X : array-like of shape (n_samples, n_features), default=None
            Rows to show.

        features : pair of str or int, default=None
            Names or numbers of the two features; needed if the mixture has others.

        party : array-like of shape (n_samples,), default=None
            Who holds each row.

        n_std : sequence of float, default=(1, 2)
            Sizes of the ellipses in standard deviations.

        ax : matplotlib Axes, default=None
            Where to draw; by default a new figure.

        scatter_kw : dict, default=None
            Options of ``Axes.scatter`` for the rows.

        Returns
        -------
        display : MixtureDisplay
        """
        estimator = check_fitted(estimator, ["weights_", "means_", "covariances_"])
        names = getattr(estimator, "feature_names_in_", None)
        if names is None and hasattr(X, "columns"):
            names = X.columns
        if names is None:
            names = [f"x{i}" for i in range(estimator.means_.shape[1])]
        pair = _places(features, list(names))
        display = cls(
            estimator.weights_,
            estimator.means_[:, pair],
            _as_matrices(estimator)[:, pair][:, :, pair],
            X=None if X is None else np.asarray(X)[:, pair],
            party=party,
            feature_names=[names[i] for i in pair],
        )
        return display.plot(n_std=n_std, ax=ax, scatter_kw=scatter_kw)

    def plot(
        self,
        *,
        n_std: Sequence[float] = (1, 2),
        ax: Any = None,
        scatter_kw: dict | None = None,
    ) -> Self:
        """Draw.

        Parameters
        ----------
        n_std : sequence of float, default=(1, 2)
            Sizes of the ellipses in standard deviations.

        ax : matplotlib Axes, default=None
            Where to draw; by default a new figure.

        scatter_kw : dict, default=None
            Options of ``Axes.scatter`` for the rows.

        Returns
        -------
        display : MixtureDisplay
            With the attributes that end with an underscore.
        """
        patches = import_optional("matplotlib.patches", "MixtureDisplay")
        self.figure_, self.ax_ = get_axes(ax, "MixtureDisplay", (5.6, 4.4))
        self.scatters_ = self._plot_rows(scatter_kw or {})
        self.ellipses_ = []
        weights = np.asarray(self.weights, dtype=float)
        for weight, mean, covariance in zip(weights, self.means, self.covariances):
            opacity = 0.35 + 0.6 * weight / weights.max()
            for size in n_std:
                width, height, angle = _axes_of(covariance, size)
                ellipse = patches.Ellipse(
                    mean,
                    width,
                    height,
                    angle=angle,
                    fill=False,
                    linewidth=1.2,
                    edgecolor="black",
                    alpha=opacity,
                    zorder=1,
                )
                self.ellipses_.append(self.ax_.add_patch(ellipse))
        self.ax_.scatter(*np.asarray(self.means).T, marker="+", color="black", zorder=4)
        self.ax_.autoscale_view()
        if self.feature_names is not None:
            self.ax_.set(xlabel=self.feature_names[0], ylabel=self.feature_names[1])
        if len(self.scatters_) > 1:
            self.ax_.legend(title="party", frameon=False, fontsize="small")
        return self

    def _plot_rows(self, options):
        if self.X is None:
            return {}
        X = np.asarray(self.X, dtype=float)
        party = np.zeros(len(X)) if self.party is None else np.asarray(self.party)
        options = {"s": 20, "linewidths": 0, "alpha": 0.75, **options}
        alone = self.party is None
        scatters = {}
        for i, name in enumerate(np.unique(party)):
            style = {
                "color": LINE_PALETTE[0] if alone else PALETTE[i % len(PALETTE)],
                "marker": MARKERS[i % len(MARKERS)],
            }
            rows = X[party == name]
            label = "rows" if alone else str(name)
            scatters[label] = self.ax_.scatter(
                *rows.T, label=label, **{**style, **options}
            )
        return scatters


def _places(features, names):
    """Return the positions of two features, given by name or number."""
    if features is None:
        features = names
        if len(names) != 2:
            raise ValueError(
                f"MixtureDisplay draws two features of {len(names)}: choose them with "
                "features=, or reduce all first, for instance with FederatedPCA"
            )
    places = [names.index(f) if f in names else f for f in features]
    if len(places) != 2 or any(i not in range(len(names)) for i in places):
        raise ValueError(f"features={features!r} must be two of {names}")
    return places


def _as_matrices(estimator):
    """Return the covariances as one matrix per component."""
    covariances = np.asarray(estimator.covariances_, dtype=float)
    n_components, n_features = estimator.means_.shape
    if estimator.covariance_type == "tied":
        return np.tile(covariances, (n_components, 1, 1))
    if estimator.covariance_type == "diag":
        return np.array([np.diag(variances) for variances in covariances])
    if estimator.covariance_type == "spherical":
        return covariances[:, np.newaxis, np.newaxis] * np.eye(n_features)
    return covariances


def _axes_of(covariance, n_std):
    """Return width, height and angle in degrees of an ellipse."""
    variances, directions = np.linalg.eigh(covariance)
    angle = np.degrees(np.arctan2(directions[1, 0], directions[0, 0]))
    return *(2 * n_std * np.sqrt(variances)), angle


@dataclass(eq=False, repr=False)
class RandomEffectsDisplay:
    """Random effects with intervals, in ascending order (a caterpillar plot).

    Use :meth:`from_estimator` to make one.

    Parameters
    ----------
    labels : array-like of shape (n_clusters,)
        Names of the clusters.

    effects, deviations : array-like of shape (n_clusters,)
        Effects and their standard deviations; NaN where they are withheld.

    name : str, default="effect"
        What varies.

    factor : str, default="cluster"
        What the clusters are called.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the effects.

    figure_ : matplotlib Figure
        Figure containing them.

    Examples
    --------
    >>> from skprivbn.inspection import RandomEffectsDisplay
    >>> display = RandomEffectsDisplay(["a", "b"], [0.3, -0.2], [0.1, 0.2]).plot()
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['b', 'a']
    """

    labels: ArrayLike
    effects: ArrayLike
    deviations: ArrayLike
    _: KW_ONLY
    name: str = "effect"
    factor: str = "cluster"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        factor: str | None = None,
        effect: str | None = None,
        level: float = 0.95,
        ax: Any = None,
    ) -> Self:
        """Draw the random effects of a fitted mixed model.

        Parameters
        ----------
        estimator : fitted mixed model
            With `random_effects_`, such as
            :class:`~skprivbn.mixed_model.PrivateGLMMClassifier`.

        factor : str, default=None
            Which clusters, if there are several columns of labels; the first if None.

        effect : str, default=None
            "(Intercept)" or the name of a slope; the first if None.

        level : float, default=0.95
            Of the intervals.

        ax : matplotlib Axes, default=None
            Where to draw; by default a new figure.

        Returns
        -------
        display : RandomEffectsDisplay
        """
        estimator = check_fitted(estimator, "random_effects_")
        if not estimator.factors_:
            raise ValueError("the model has no random effects: fit it with cluster=")
        factor = estimator.factors_[0] if factor is None else factor
        names = estimator.effect_names_[factor]
        effect = names[0] if effect is None else effect
        if effect not in names:
            raise ValueError(f"effect={effect!r} does not vary: choose from {names}")
        labels, effects, deviations = (
            values[factor] if isinstance(values, dict) else values
            for values in (
                estimator.clusters_,
                estimator.random_effects_,
                estimator.random_effects_std_,
            )
        )
        place = names.index(effect)
        effects, deviations = (
            np.reshape(values, (len(labels), -1))[:, place]
            for values in (effects, deviations)
        )
        display = cls(labels, effects, deviations, name=effect, factor=factor)
        return display.plot(level=level, ax=ax)

    def plot(self, *, level: float = 0.95, ax: Any = None) -> Self:
        """Draw the effects, the smallest first.

        Parameters
        ----------
        level : float, default=0.95
            Of the intervals.

        ax : matplotlib Axes, default=None
            Where to draw; by default a new figure.

        Returns
        -------
        self : object
        """
        from scipy.stats import norm

        effects, deviations = np.asarray(self.effects), np.asarray(self.deviations)
        shown = np.flatnonzero(np.isfinite(effects))
        order = shown[np.argsort(effects[shown], kind="stable")]
        half = norm.ppf((1 + level) / 2) * deviations[order]
        height = np.arange(len(order))
        figsize = (6, 1.2 + 0.22 * len(order))
        self.figure_, self.ax_ = get_axes(ax, "RandomEffectsDisplay", figsize)
        centre = effects[order]
        self.ax_.axvline(0, color="0.8", lw=1)
        self.ax_.hlines(height, centre - half, centre + half, color=LINE_PALETTE[0])
        self.ax_.plot(centre, height, "o", color=LINE_PALETTE[0], ms=4)
        self.ax_.set_yticks(height, [str(np.asarray(self.labels)[i]) for i in order])
        self.ax_.set(
            xlabel=f"random effect: {self.name}, with {level:.0%} intervals",
            ylabel=self.factor,
        )
        self.ax_.spines["left"].set_visible(False)
        return self


@dataclass(eq=False, repr=False)
class ResidualsDisplay:
    """Residuals against fitted values.

    Use :meth:`from_estimator` to make one, where the rows are: every holder sees its
    own.

    Parameters
    ----------
    fitted, residuals : array-like of shape (n_samples,)
        Expected targets, and what the rows differ from them, standardised.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the residuals.

    figure_ : matplotlib Figure
        Figure containing them.

    Examples
    --------
    >>> from skprivbn.inspection import ResidualsDisplay
    >>> ResidualsDisplay([0.2, 0.8], [1.0, -0.5]).plot().ax_.get_xlabel()
    'fitted value'
    """

    fitted: ArrayLike
    residuals: ArrayLike

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        cluster: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        ax: Any = None,
    ) -> Self:
        """Draw Pearson residuals of a fitted mixed model.

        Parameters
        ----------
        estimator : fitted mixed model
            A :class:`~skprivbn.mixed_model.PrivateGLMMRegressor` or a classifier.

        X : array-like of shape (n_samples, n_features)
            Rows.

        y : array-like of shape (n_samples,)
            Their target.

        cluster : array-like of shape (n_samples,), default=None
            Whose random effects are added; none if None.

        offset : array-like of shape (n_samples,), default=None
            Known part of the predictor.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights, or numbers of trials.

        ax : matplotlib Axes, default=None
            Where to draw; by default a new figure.

        Returns
        -------
        display : ResidualsDisplay
        """
        options = {"cluster": cluster, "offset": offset}
        weight = 1.0 if sample_weight is None else np.asarray(sample_weight)
        if hasattr(estimator, "classes_"):
            fitted = estimator.predict_proba(X, **options)[:, 1]
            y = np.asarray(y) == estimator.classes_[1]
            variance = fitted * (1 - fitted)
        else:
            fitted = estimator.predict(X, **options)
            variance = {
                "gaussian": getattr(estimator, "residual_scale_", 1.0) ** 2,
                "poisson": fitted,
                "binomial": fitted * (1 - fitted),
            }[estimator.family]
        residuals = (np.asarray(y, dtype=float) - fitted) * np.sqrt(weight / variance)
        return cls(fitted, residuals).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw the residuals.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; by default a new figure.

        Returns
        -------
        self : object
        """
        self.figure_, self.ax_ = get_axes(ax, "ResidualsDisplay")
        self.ax_.axhline(0, color="0.8", lw=1)
        self.ax_.plot(
            self.fitted, self.residuals, "o", color=LINE_PALETTE[0], ms=3, alpha=0.5
        )
        self.ax_.set(xlabel="fitted value", ylabel="standardised residual")
        return self
