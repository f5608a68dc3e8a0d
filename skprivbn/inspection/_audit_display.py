"""A picture of what an audit found."""

from math import inf
from typing import Any, Self

from skprivbn.inspection._style import PALETTE, draw_ranked_bars, get_axes
from skprivbn.privacy import AuditResult


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

    def __init__(self, result: AuditResult, claimed: float | None = None) -> None:
        self.result = result
        self.claimed = claimed

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
