"""Pictures of Gaussian mixtures in two dimensions."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skprivbn.inspection._style import LINE_PALETTE, PALETTE, get_axes
from skprivbn.utils import import_optional

MARKERS = "os^Dv<>P"


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

    def __init__(
        self,
        weights: Any,
        means: Any,
        covariances: Any,
        *,
        X: Any = None,
        party: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> None:
        self.weights = weights
        self.means = means
        self.covariances = covariances
        self.X = X
        self.party = party
        self.feature_names = feature_names

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
        check_is_fitted(estimator, ["weights_", "means_", "covariances_"])
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
                    linewidth=1.6,
                    edgecolor="black",
                    alpha=opacity,
                    zorder=3,
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
