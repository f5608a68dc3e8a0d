"""What the displays share: matplotlib only when needed, colours anybody can tell."""

from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from skprivbn.utils import import_optional

# Okabe and Ito's palette, which people with any colour vision tell apart.
PALETTE = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#0072B2", "#D55E00")
# The same with the dark ones first: thin lines need contrast with white.
LINE_PALETTE = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
)
COORDINATOR_COLOUR = "#999999"
HATCHES = ("", "//", "..", "xx")
MARKERS = "os^Dv<>P"


def get_axes(ax, user, figsize=None):
    """Return the figure and axes to draw in, open at the top and the right.

    Parameters
    ----------
    ax : matplotlib Axes or None
        A new figure is made if None.
    user : str
        What needs matplotlib, for the error if it is not installed.
    figsize : tuple of float, default=None
        Size in inches of a new figure.

    Returns
    -------
    figure, ax
    """
    pyplot = import_optional("matplotlib.pyplot", user)
    if ax is None:
        ax = pyplot.subplots(figsize=figsize, layout="constrained")[1]
    ax.spines[["top", "right"]].set_visible(False)
    return ax.figure, ax


def legend_beside(ax, *entries):
    """Put the legend to the right of the axes."""
    ax.legend(*entries, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def check_fitted(estimator, attributes):
    """Return a fitted estimator; of a pipeline, its last step."""
    if isinstance(estimator, Pipeline):
        estimator = estimator[-1]
    check_is_fitted(estimator, attributes)
    return estimator


def ledger_of(estimator):
    """Return the ledger of a fitted estimator, or a ledger itself, with messages."""
    ledger = estimator
    if not hasattr(ledger, "entries"):
        ledger = check_fitted(estimator, "ledger_").ledger_
    if not ledger.entries:
        raise ValueError("the ledger holds no messages")
    return ledger


def colours_of(names):
    """Return a fill style per name; hatches tell apart what shares a colour."""
    return {
        name: {
            "facecolor": PALETTE[i % len(PALETTE)],
            "hatch": HATCHES[i // len(PALETTE) % len(HATCHES)],
        }
        for i, name in enumerate(names)
    }
