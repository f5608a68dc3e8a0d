"""How pictures and the privacy report look: colours anybody can tell, escaped text."""

import html
import unicodedata
from importlib.resources import files

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


STYLE = (files("skprivbn.inspection") / "report.css").read_text(encoding="utf-8")

# Characters that turn the direction of the text after them.
_DIRECTIONS = "LRE RLE LRO RLO PDF LRI RLI FSI PDI".split()


class Html(str):
    """Text that is markup already. Any other text is escaped by :func:`tag`."""

    __slots__ = ()


def _escape(text):
    # Control and direction characters could make a name pass for another.
    shown = "".join(
        " "
        if char in "\t\n\r"
        else "\N{REPLACEMENT CHARACTER}"
        if unicodedata.category(char) in ("Cc", "Cs")
        or unicodedata.bidirectional(char) in _DIRECTIONS
        else char
        for char in str(text)
    )
    return html.escape(shown)


def tag(name, *children, **attributes):
    """Return an element; children and attributes are escaped unless `Html`.

    Parameters
    ----------
    name : str
    *children : object
        Html, or anything to be shown as text.
    **attributes : object
        A trailing underscore is dropped (``class_``), others become hyphens.

    Returns
    -------
    element : Html
    """
    inside = "".join(c if isinstance(c, Html) else _escape(c) for c in children)
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escape(value)}"'
        for key, value in attributes.items()
    )
    return Html(f"<{name}{written}>{inside}</{name}>")


def size(n_bytes):
    """Write a number of bytes for people."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 1000 or unit == "GB":
            break
        n_bytes /= 1000
    if unit == "bytes" or n_bytes >= 100:
        return f"{n_bytes:.0f} {unit}"
    return f"{n_bytes:.2g} {unit}"


def document(title, *parts):
    """Return the page: no script, no network, no file besides itself."""
    head = tag(
        "head",
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        # The browser itself refuses whatever a forgotten escape would let in.
        Html(
            '<meta http-equiv="Content-Security-Policy" '
            "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        ),
        Html('<meta name="referrer" content="no-referrer">'),
        tag("title", title),
        tag("style", Html(STYLE)),
    )
    body = tag("body", tag("main", *parts))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"
