"""A picture of what was sent: bytes by party and round."""

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skprivbn.federation import Ledger
from skprivbn.federation._ledger import COORDINATOR
from skprivbn.inspection._style import COORDINATOR_COLOUR, colours_of, get_axes
from skprivbn.utils import import_optional


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

    def __init__(
        self,
        rounds: np.ndarray,
        n_bytes: dict[str, np.ndarray],
        *,
        direction: str = "sent",
    ) -> None:
        self.rounds = rounds
        self.n_bytes = n_bytes
        self.direction = direction

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
        self.ax_.spines[["top", "right"]].set_visible(False)
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
