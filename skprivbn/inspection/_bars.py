"""Pictures made of bars: bytes of a ledger, bounds of an audit, errors of tables."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from math import inf
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skprivbn.federation import Ledger
from skprivbn.federation._ledger import COORDINATOR
from skprivbn.inspection._style import (
    COORDINATOR_COLOUR,
    PALETTE,
    colours_of,
    draw_ranked_bars,
    get_axes,
)
from skprivbn.privacy import AuditResult
from skprivbn.utils import import_optional


@dataclass(eq=False, repr=False)
class LedgerDisplay:
    """Bytes that each participant sent, or received, in every round.

    Use :meth:`from_ledger` or :meth:`from_estimator` to make one.

    Parameters
    ----------
    rounds : array-like of shape (n_rounds,)
        Numbers of the rounds.

    n_bytes : dict of str to array-like of shape (n_rounds,)
        Bytes of each participant in these rounds.

    direction : {"sent", "received"}, default="sent"
        What the bytes are, for the label of the axis.

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
    >>> display = LedgerDisplay.from_ledger(ledger)
    >>> {party: values.tolist() for party, values in display.n_bytes.items()}
    {'north': [3], 'south': [3]}
    """

    rounds: np.ndarray
    n_bytes: dict[str, np.ndarray]
    _: KW_ONLY
    direction: str = "sent"

    @classmethod
    def from_ledger(
        cls, ledger: Ledger, *, direction: str = "sent", ax: Any = None
    ) -> Self:
        """Draw a ledger.

        Parameters
        ----------
        ledger : Ledger
            A fitted estimator's `ledger_`.

        direction : {"sent", "received"}, default="sent"
            Whether a message counts for its sender or for its receiver. Either way
            every message counts once.

        ax : matplotlib Axes, default=None
            Where to draw; by default a new figure.

        Returns
        -------
        display : LedgerDisplay
        """
        if direction not in ("sent", "received"):
            raise ValueError(
                f"direction must be 'sent' or 'received', got {direction!r}"
            )
        entries = ledger.entries
        if not entries:
            raise ValueError("the ledger holds no messages")
        role = "sender" if direction == "sent" else "receiver"
        names = dict.fromkeys(getattr(entry, role) for entry in entries)
        # The coordinator on top of the stack, so that the parties line up.
        names = sorted(names, key=lambda name: name == COORDINATOR)
        numbers = [entry.round for entry in entries]
        rounds = np.arange(min(numbers), max(numbers) + 1)
        n_bytes = {name: np.zeros(len(rounds), dtype=np.int64) for name in names}
        for entry in entries:
            n_bytes[getattr(entry, role)][entry.round - rounds[0]] += entry.n_bytes
        return cls(rounds, n_bytes, direction=direction).plot(ax=ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, direction: str = "sent", ax: Any = None
    ) -> Self:
        """Draw the ledger of a fitted estimator.

        Parameters
        ----------
        estimator : estimator instance
            Fitted, with an attribute `ledger_`.

        direction : {"sent", "received"}, default="sent"
            Whether a message counts for its sender or for its receiver.

        ax : matplotlib Axes, default=None
            Where to draw; by default a new figure.

        Returns
        -------
        display : LedgerDisplay
        """
        check_is_fitted(estimator, "ledger_")
        return cls.from_ledger(estimator.ledger_, direction=direction, ax=ax)

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
        self.ax_.set(xlabel="round", ylabel=f"bytes {self.direction}")
        self.ax_.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        self.ax_.yaxis.set_major_formatter(ticker.EngFormatter("B"))
        handles, labels = self.ax_.get_legend_handles_labels()
        # Listed as they are stacked, from top to bottom.
        self.ax_.legend(
            handles[::-1],
            labels[::-1],
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
            frameon=False,
        )
        return self


@dataclass(eq=False, repr=False)
class AuditDisplay:
    """What an audit proves of each number of a result, against what is claimed.

    Parameters
    ----------
    result : AuditResult
        From :func:`~skprivbn.privacy.audit_estimator`.

    claimed : float, default=None
        The epsilon that the estimator claims, drawn as a line.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the bars.

    figure_ : matplotlib Figure
        Figure containing them.

    names_ : list of str
        Numbers that are shown, from below.

    See Also
    --------
    skprivbn.privacy.audit_estimator : Finds the bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.inspection import AuditDisplay
    >>> from skprivbn.preprocessing import FederatedStandardScaler
    >>> from skprivbn.privacy import audit_estimator
    >>> X = np.zeros((20, 1))
    >>> scaler = FederatedStandardScaler(epsilon=1.0, bounds=(-1, 1))
    >>> found = audit_estimator(scaler, X, np.append(X, [[1.0]], axis=0), n_trials=40)
    >>> AuditDisplay(found, claimed=1.0).plot().ax_.get_xlabel()
    'epsilon is at least'
    """

    result: AuditResult
    claimed: float | None = None

    def plot(self, *, n_most: int = 20, ax: Any = None) -> Self:
        """Draw one bar for each number, the largest bound on top.

        Parameters
        ----------
        n_most : int, default=20
            Most numbers to show; the others have smaller bounds.

        ax : matplotlib Axes, default=None
            Where to draw; by default a new figure.

        Returns
        -------
        self : object
        """
        bounds = self.result.bounds
        names = sorted(bounds, key=lambda name: bounds[name], reverse=True)
        self.names_ = names[:n_most][::-1]
        shown, n_shown = [bounds[n] for n in self.names_], len(self.names_)
        figsize = (6, 1.4 + 0.26 * n_shown)
        self.figure_, self.ax_ = get_axes(ax, "AuditDisplay", figsize)
        claimed = inf if self.claimed is None else self.claimed
        colors = [PALETTE[1] if bound > claimed else PALETTE[0] for bound in shown]
        draw_ranked_bars(self.ax_, self.names_, shown, colors)
        if self.claimed is not None:
            self.ax_.axvline(self.claimed, color="black", linestyle="--")
            self.ax_.text(
                self.claimed, n_shown - 0.4, "claimed", ha="center", va="bottom"
            )
        result = self.result
        self.ax_.set(xlabel="epsilon is at least", xlim=(0, None))
        self.ax_.set_title(
            f"{result.n_trials:,} fits each, confidence {result.confidence:.6g}",
            loc="left",
            pad=18,
        )
        return self


@dataclass(eq=False, repr=False)
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
