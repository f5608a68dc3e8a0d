"""Pictures of mixed models: effects of the clusters, and residuals."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skprivbn.inspection._style import LINE_PALETTE, get_axes


class RandomEffectsDisplay:
    """Random effects with intervals, in order: a caterpillar.

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

    def __init__(
        self,
        labels: ArrayLike,
        effects: ArrayLike,
        deviations: ArrayLike,
        *,
        name: str = "effect",
        factor: str = "cluster",
    ) -> None:
        self.labels = labels
        self.effects = effects
        self.deviations = deviations
        self.name = name
        self.factor = factor

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
        check_is_fitted(estimator, "random_effects_")
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
        self.ax_.spines[["top", "right", "left"]].set_visible(False)
        return self


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

    def __init__(self, fitted: ArrayLike, residuals: ArrayLike) -> None:
        self.fitted = fitted
        self.residuals = residuals

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
        self.ax_.spines[["top", "right"]].set_visible(False)
        return self
