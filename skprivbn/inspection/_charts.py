"""Charts: bytes of a ledger, errors of tables, and what privacy costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np

from skprivbn.federation._ledger import COORDINATOR
from skprivbn.inspection._style import (
    COORDINATOR_COLOUR,
    LINE_PALETTE,
    MARKERS,
    PALETTE,
    check_fitted,
    colours_of,
    get_axes,
    ledger_of,
    legend_beside,
)
from skprivbn.utils import import_optional


@dataclass(eq=False, repr=False)
class LedgerDisplay:
    """Bytes that each participant sent in every round.

    Use :meth:`from_estimator` to make one.

    Parameters
    ----------
    rounds : array-like of shape (n_rounds,)
        Numbers of the rounds.

    n_bytes : dict of str to array-like of shape (n_rounds,)
        Bytes of each participant in these rounds.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the bars.

    figure_ : matplotlib Figure
        Figure containing the bars.

    bars_ : dict of str to matplotlib BarContainer
        The bars of each participant, stacked in this order.

    Examples
    --------
    >>> from skprivbn.federation import Ledger
    >>> from skprivbn.inspection import LedgerDisplay
    >>> ledger = Ledger(parties=("north", "south"))
    >>> for party in ledger.parties:
    ...     ledger.record("means", party, "coordinator", b"...", "masked", "means")
    >>> display = LedgerDisplay.from_estimator(ledger)
    >>> {party: values.tolist() for party, values in display.n_bytes.items()}
    {'north': [3], 'south': [3]}
    """

    rounds: np.ndarray
    n_bytes: dict[str, np.ndarray]

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw the ledger of a fitted estimator.

        Parameters
        ----------
        estimator : estimator instance or Ledger
            Fitted, with an attribute `ledger_`; or such a ledger itself.

        ax : matplotlib Axes, default=None
            Where to draw; by default a new figure.

        Returns
        -------
        display : LedgerDisplay
        """
        entries = ledger_of(estimator).entries
        # The coordinator on top of the stack, so that the parties line up.
        names = dict.fromkeys(entry.sender for entry in entries)
        names = sorted(names, key=lambda name: name == COORDINATOR)
        numbers = [entry.round for entry in entries]
        rounds = np.arange(min(numbers), max(numbers) + 1)
        n_bytes = {name: np.zeros(len(rounds), dtype=np.int64) for name in names}
        for entry in entries:
            n_bytes[entry.sender][entry.round - rounds[0]] += entry.n_bytes
        return cls(rounds, n_bytes).plot(ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; by default a new figure.

        Returns
        -------
        display : LedgerDisplay
            With the attributes that end with an underscore.
        """
        ticker = import_optional("matplotlib.ticker", "LedgerDisplay")
        self.figure_, self.ax_ = get_axes(ax, "LedgerDisplay", (6.4, 3.6))
        styles = colours_of([name for name in self.n_bytes if name != COORDINATOR])
        styles[COORDINATOR] = {"facecolor": COORDINATOR_COLOUR}
        bottom = np.zeros(len(self.rounds))
        self.bars_ = {}
        for name, values in self.n_bytes.items():
            total = ticker.EngFormatter("B", places=1)(int(np.sum(values)))
            self.bars_[name] = self.ax_.bar(
                self.rounds,
                values,
                bottom=bottom,
                # Thin bars touch, so that many rounds do not become a moire pattern.
                width=0.8 if len(self.rounds) <= 40 else 1.0,
                label=f"{name} ({total})",
                **styles[name],
            )
            bottom = bottom + values
        self.ax_.set(xlabel="round", ylabel="bytes sent")
        self.ax_.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        self.ax_.yaxis.set_major_formatter(ticker.EngFormatter("B"))
        handles, labels = self.ax_.get_legend_handles_labels()
        # Listed as they are stacked, from top to bottom.
        legend_beside(self.ax_, handles[::-1], labels[::-1])
        return self


@dataclass(eq=False, repr=False)
class ExpectedErrorDisplay:
    """Expected errors of the tables of a private model, the largest on top.

    Use :meth:`from_estimator` to make one. It shows nothing that was not released.

    Parameters
    ----------
    errors : mapping of tuple of str to float
        For each set of columns the share of people in the wrong cell of its table.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the bars.

    figure_ : matplotlib Figure
        Figure containing them.

    tables_ : list of tuple of str
        Columns of the tables that are shown, from below.

    Examples
    --------
    >>> from skprivbn.inspection import ExpectedErrorDisplay
    >>> errors = {("age", "sex"): 0.01, ("age", "income"): 0.03}
    >>> display = ExpectedErrorDisplay(errors).plot()
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['age, sex', 'age, income']
    """

    errors: Mapping[tuple[str, ...], float]

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        n_columns: int | None = None,
        n_most: int = 20,
        ax: Any = None,
    ) -> Self:
        """Draw the expected errors of a fitted learner.

        Parameters
        ----------
        estimator : fitted DPCGMLearner
            With `expected_error_`.

        n_columns : int, default=None
            Only tables of so many columns.

        n_most : int, default=20
            Most tables to show; the others have smaller errors.

        ax : matplotlib Axes, default=None
            Where to draw; by default a new figure.

        Returns
        -------
        display : ExpectedErrorDisplay
        """
        estimator = check_fitted(estimator, "expected_error_")
        display = cls(estimator.expected_error_)
        return display.plot(n_columns=n_columns, n_most=n_most, ax=ax)

    def plot(
        self, *, n_columns: int | None = None, n_most: int = 20, ax: Any = None
    ) -> Self:
        """Draw one bar for each table.

        Parameters
        ----------
        n_columns : int, default=None
            Only tables of so many columns.

        n_most : int, default=20
            Most tables to show; the others have smaller errors.

        ax : matplotlib Axes, default=None
            Where to draw; by default a new figure.

        Returns
        -------
        self : object
        """
        wanted = [c for c in self.errors if n_columns in (None, len(c))]
        if not wanted:
            raise ValueError(f"there are no tables of n_columns={n_columns}")
        ranked = sorted(wanted, key=lambda c: -self.errors[c])[:n_most]
        self.tables_ = ranked[::-1]
        figsize = (6, 1.2 + 0.26 * len(ranked))
        self.figure_, self.ax_ = get_axes(ax, "ExpectedErrorDisplay", figsize)
        shares = [100 * self.errors[c] for c in self.tables_]
        names = [", ".join(map(str, c)) for c in self.tables_]
        self.ax_.barh(names, shares, color=PALETTE[0])
        self.ax_.spines["left"].set_visible(False)
        self.ax_.tick_params(axis="y", length=0)
        self.ax_.set(xlabel="% of people in the wrong cell, expected")
        return self


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
            fitted = check_fitted(fitted, "cv_results_")
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
