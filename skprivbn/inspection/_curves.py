"""A curve of what privacy costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skprivbn.inspection._style import LINE_PALETTE, MARKERS, get_axes, legend_beside
from skprivbn.utils import import_optional


@dataclass(eq=False, repr=False)
class PrivacyUtilityDisplay:
    """Scores against the privacy parameter, one line per method.

    Use :meth:`from_search` to make one.

    Parameters
    ----------
    curves : mapping of str to (array-like, array-like, array-like)
        For each method the values of the parameter, the mean scores and their
        standard deviations.

    baselines : mapping of str to float, default=None
        Scores without privacy, drawn as horizontal lines.

    param : str, default="epsilon"
        Name of the parameter, for the label of the axis.

    metric : str, default="score"
        Name of the score, for the label of the axis.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the curves.

    figure_ : matplotlib Figure
        Figure containing the curves.

    errorbars_ : dict of str to matplotlib ErrorbarContainer
        The curve of each method.

    baseline_lines_ : dict of str to matplotlib Line2D
        The horizontal lines.

    Examples
    --------
    >>> from skprivbn.inspection import PrivacyUtilityDisplay
    >>> display = PrivacyUtilityDisplay(
    ...     {"noisy tables": ([0.1, 1, 10], [-9.5, -8.2, -8.0], [0.3, 0.1, 0.1])},
    ...     baselines={"not private": -7.9},
    ... ).plot()
    >>> display.ax_.get_xscale()
    'log'
    """

    curves: Mapping[str, tuple]
    _: KW_ONLY
    baselines: Mapping[str, float] | None = None
    param: str = "epsilon"
    metric: str = "score"

    @classmethod
    def from_search(
        cls,
        search: Any,
        *,
        param: str = "epsilon",
        metric: str = "score",
        baseline: float | Mapping[str, float] | None = None,
        ax: Any = None,
    ) -> Self:
        """Draw the results of a fitted search over a privacy parameter.

        Parameters
        ----------
        search : fitted search, or mapping of str to fitted search
            Anything with `cv_results_`, such as a fitted
            :class:`~sklearn.model_selection.GridSearchCV`. Several methods can be
            given by name. A search over other parameters as well gives one line for
            each combination of them.

        param : str, default="epsilon"
            The privacy parameter. In a pipeline the last part of its name is enough.

        metric : str, default="score"
            Which score, for a search with several.

        baseline : float or mapping of str to float, default=None
            Scores without privacy. Candidates whose parameter is None or infinite
            become such a baseline by themselves.

        ax : matplotlib Axes, default=None
            Where to draw; by default a new figure.

        Returns
        -------
        display : PrivacyUtilityDisplay
        """
        searches = search if isinstance(search, Mapping) else {"": search}
        if baseline is None or isinstance(baseline, Mapping):
            baselines = dict(baseline or {})
        else:
            baselines = {"not private": float(baseline)}
        curves = {}
        for name, fitted in searches.items():
            check_is_fitted(fitted, "cv_results_")
            for others, points in _curves_of(fitted.cv_results_, param, metric).items():
                label = ", ".join(part for part in (name, others) if part)
                private = np.isfinite(points[0])
                if private.any():
                    curves[label] = tuple(values[private] for values in points)
                if not private.all():
                    line = f"{label}, not private" if label else "not private"
                    baselines[line] = float(points[1][~private][0])
        display = cls(curves, baselines=baselines, param=param, metric=metric)
        return display.plot(ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; by default a new figure.

        Returns
        -------
        display : PrivacyUtilityDisplay
            With the attributes that end with an underscore.
        """
        ticker = import_optional("matplotlib.ticker", "PrivacyUtilityDisplay")
        self.figure_, self.ax_ = get_axes(ax, "PrivacyUtilityDisplay", (6.8, 3.8))
        self.errorbars_, self.baseline_lines_ = {}, {}
        for i, (name, (values, means, deviations)) in enumerate(self.curves.items()):
            # A little sideways, in proportion as the axis is logarithmic: error bars
            # at the same epsilon would otherwise hide each other.
            aside = 1.025 ** (i - (len(self.curves) - 1) / 2)
            self.errorbars_[name] = self.ax_.errorbar(
                np.asarray(values) * aside,
                means,
                yerr=deviations,
                label=name or None,
                color=LINE_PALETTE[i % len(LINE_PALETTE)],
                marker=MARKERS[i % len(MARKERS)],
                markersize=5,
                capsize=3,
                linewidth=1.5,
            )
        for i, (name, score) in enumerate((self.baselines or {}).items()):
            self.baseline_lines_[name] = self.ax_.axhline(
                score,
                label=name,
                color="#555555",
                linestyle=("--", ":", "-.")[i % 3],
                linewidth=1.2,
                zorder=1,
            )
        self.ax_.set_xscale("log")
        tried = np.unique(
            np.concatenate([np.asarray(v[0]) for v in self.curves.values()])
        )
        if len(tried) <= 10:
            self.ax_.set_xticks(tried, [f"{value:g}" for value in tried])
            self.ax_.xaxis.set_minor_locator(ticker.NullLocator())
        label = "ε" if self.param.split("__")[-1] == "epsilon" else self.param
        self.ax_.set(
            xlabel=f"{label} (less private to the right)",
            ylabel=self.metric.replace("_", " "),
        )
        if self.ax_.get_legend_handles_labels()[0]:
            legend_beside(self.ax_)
        return self


def _curves_of(results, param, metric):
    """Return {other parameters: (values, means, deviations)}, values ascending."""
    score = f"mean_test_{metric}"
    if score not in results:
        known = [key[10:] for key in results if key.startswith("mean_test_")]
        raise ValueError(f"the search has no metric {metric!r}; it has {known}")
    candidates = results["params"]
    names = {name for candidate in candidates for name in candidate}
    matches = sorted(
        name for name in names if name == param or name.endswith(f"__{param}")
    )
    if len(matches) != 1:
        raise ValueError(
            f"the search must vary one parameter {param!r}, found {matches} among "
            f"{sorted(names)}"
        )
    groups = {}
    varied = [
        name
        for name in sorted(names - set(matches))
        if len({repr(candidate.get(name)) for candidate in candidates}) > 1
    ]
    for i, candidate in enumerate(candidates):
        value = candidate.get(matches[0])
        others = ", ".join(
            f"{name.split('__')[-1]}={candidate[name]}"
            for name in varied
            if name in candidate
        )
        groups.setdefault(others, []).append(
            (
                np.inf if value is None else float(value),
                results[score][i],
                results[f"std_test_{metric}"][i],
            )
        )
    return {others: tuple(np.array(sorted(rows)).T) for others, rows in groups.items()}
