"""A picture of how far private tables may be off."""

from collections.abc import Mapping
from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from skprivbn.inspection._style import PALETTE, draw_ranked_bars, get_axes


class ExpectedErrorDisplay:
    """Errors to expect in the tables of a private model, the largest on top.

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

    def __init__(self, errors: Mapping[tuple[str, ...], float]) -> None:
        self.errors = errors

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
        check_is_fitted(estimator, "expected_error_")
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
        draw_ranked_bars(self.ax_, names, shares, PALETTE[0])
        self.ax_.set(xlabel="% of people in the wrong cell, expected")
        return self
