"""How the privacy report looks: escaped elements and one style sheet."""

import html
import unicodedata
from importlib.resources import files

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
