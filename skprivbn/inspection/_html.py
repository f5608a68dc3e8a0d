"""How the privacy report looks: escaped elements and one style sheet."""

import html
import unicodedata

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


STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1d232b; --soft: #545e6b;
  --line: #d5dae1; --card: #f5f7f9; --good: #00694c; --note: #835000;
  --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --page: #14181d; --ink: #e8ebef;
  --soft: #a9b3bf; --line: #39424d; --card: #1d232a; --good: #5fd0ac;
  --note: #f2b84b; --bad: #ff8f85; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 1rem/1.45 system-ui, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans",
  "DejaVu Sans", sans-serif; -webkit-text-size-adjust: 100%; overflow-wrap: anywhere; }
main { max-width: 50rem; margin: 0 auto; padding: 1.5rem 1.1rem 3rem; }
header ~ header { margin-top: 3rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: .1rem 0 .4rem; }
h2 { font-size: 1.15rem; line-height: 1.3; margin: 1.8rem 0 .4rem; }
h3 { font-size: 1.02rem; line-height: 1.35; margin: 0; }
p { margin: .5rem 0; }
ul { margin: .3rem 0; padding-left: 1.2rem; }
li { margin: .2rem 0; }
.soft { color: var(--soft); font-size: .88rem; }
.alert { border-left: .35rem solid var(--note); padding-left: .8rem; }
.answers { list-style: none; padding: 0; margin: 1.2rem 0 0; }
.answers li { background: var(--card); border: 1px solid var(--line);
  border-left: .35rem solid var(--line); border-radius: .4rem; padding: .65rem .9rem;
  margin: .6rem 0; }
.answers p { margin: .2rem 0 0; }
.answers .good { border-left-color: var(--good); }
.answers .note { border-left-color: var(--note); }
.answers .bad { border-left-color: var(--bad); }
.mark { float: right; margin-left: .8rem; font-size: .8rem; font-weight: 600;
  line-height: 1.6; }
.good .mark, td.good { color: var(--good); }
.note .mark, td.note { color: var(--note); }
.bad .mark, td.bad { color: var(--bad); }
table { width: 100%; border-collapse: collapse; margin: .5rem 0; font-size: .93rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .8rem .35rem 0;
  border-bottom: 1px solid var(--line); }
thead th { font-size: .85rem; color: var(--soft); }
tbody th { font-weight: 600; width: 11rem; }
table.readers td:last-child { width: 12rem; padding-right: 0; }
th > span:first-child { display: inline-block; }
th > span:first-child::first-letter { text-transform: uppercase; }
svg { display: block; width: 100%; height: auto; }
.messages { overflow-x: auto; }
.messages svg { fill: currentColor; min-width: 32rem; max-width: 680px; }
dl { columns: 2; column-gap: 2rem; font-size: .88rem; margin: .4rem 0; }
dl div { break-inside: avoid; margin-bottom: .35rem; }
dt { font-weight: 600; display: inline; } dt::after { content: ": "; }
dd { margin: 0; display: inline; }
code { font: .85rem/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
.sign { display: none; }
@media (max-width: 30rem) { main { padding: 1rem .9rem 2rem; }
  h1 { font-size: 1.5rem; } dl { columns: 1; }
  thead { display: none; }
  tr, tbody th, td, table.readers td:last-child { display: block; width: auto; }
  tbody th, td { border: 0; padding: 0; }
  tr { border-bottom: 1px solid var(--line); padding: .35rem 0; } }
@media print { :root { color-scheme: light; --page: #fff; --ink: #000; --soft: #444;
  --line: #bbb; --card: #fff; --good: #00694c; --note: #835000;
  --bad: #b3261e; }
  @page { size: A4; margin: 12mm 15mm; }
  html { font-size: 8.6pt; } main { max-width: none; padding: 0; }
  h2 { margin-top: 1rem; }
  .answers { margin-top: .6rem; }
  .answers li { padding: .35rem .8rem; margin: .35rem 0; }
  th, td { padding-top: .15rem; padding-bottom: .15rem; } li, p { margin: .15rem 0; }
  h2, h3, h2 + p { break-after: avoid; }
  tr, .answers li, .messages { break-inside: avoid; }
  .messages svg { max-height: 98mm; min-width: 0; margin: 0 auto; }
  svg { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  header ~ header { break-before: page; }
  .sign { display: flex; gap: 2rem; margin-top: 2.6rem; break-inside: avoid; }
  .sign span { flex: 1; border-top: 1px solid #000; padding-top: .3rem; } }
"""
