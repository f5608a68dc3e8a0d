"""How the privacy report looks: escaped elements, small charts, one style sheet."""

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


def _chart(width, height, *shapes, label):
    return tag(
        "svg",
        tag("title", label),
        *shapes,
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=label,
    )


def bars(rows, *, label, n_most=12, write=size):
    """Draw one horizontal bar per (name, bytes); the smallest of many as one.

    Names are text next to the drawing, so that they wrap and can be read aloud.
    `write` says how other values than bytes are written.
    """
    rows = sorted(rows, key=lambda row: -row[1])
    if len(rows) > n_most:
        rest = rows[n_most - 1 :]
        others = (f"{len(rest)} others", sum(value for _, value in rest))
        rows = [*rows[: n_most - 1], others]
    largest = max((value for _, value in rows), default=0) or 1
    lines = [
        tag(
            "tr",
            tag("th", tag("bdi", name), scope="row"),
            tag("td", write(value), class_="number"),
            tag("td", _bar(value / largest), class_="drawing", aria_hidden="true"),
        )
        for name, value in rows
    ]
    return tag(
        "table",
        tag("caption", label),
        tag("tbody", *lines),
        class_="bars",
        role="table",
    )


def _bar(fraction):
    rect = tag("rect", width=max(round(200 * fraction, 1), 1), height=12, rx=2)
    return tag(
        "svg", rect, viewBox="0 0 200 12", preserveAspectRatio="none", class_="bar"
    )


def columns(values, *, label, n_most=60):
    """Draw one column per round; several rounds share one if there are many."""
    step = -(-len(values) // n_most) or 1
    totals = [sum(values[i : i + step]) for i in range(0, len(values), step)]
    largest = max(totals, default=0) or 1
    width, height = 640, 110
    slot = width / max(len(totals), 1)
    # A few rounds must not become slabs as wide as the page.
    slot = min(slot, 48)
    shapes = [
        tag(
            "rect",
            x=round(i * slot, 2),
            y=round(height - 90 * total / largest, 2),
            width=round(slot * 0.8, 2),
            height=round(90 * total / largest, 2),
        )
        for i, total in enumerate(totals)
    ]
    shapes.append(tag("line", x1=0, x2=width, y1=height, y2=height))
    drawing = _chart(width, height + 1, *shapes, label=label)
    each = "one column per round" if step == 1 else f"one column per {step} rounds"
    ends = f"{each}, from the first to the last; the highest is {size(largest)}"
    return tag("figure", tag("figcaption", label), drawing, tag("p", ends))


def scale(fraction, *, label):
    """Draw a mark on a scale from one half (guessing) to one (certain)."""
    place = round(640 * (2 * fraction - 1), 1)
    shapes = (
        tag("rect", x=0, y=8, width=640, height=8, rx=4, class_="track"),
        tag("rect", x=0, y=8, width=max(place, 4), height=8, rx=4),
        tag("circle", cx=min(max(place, 12), 628), cy=12, r=11),
    )
    ends = tag(
        "p", tag("span", "50 %: a guess"), tag("span", "100 %: certain"), class_="ends"
    )
    drawing = _chart(640, 24, *shapes, label=label)
    return tag("figure", tag("figcaption", label), drawing, ends)


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
  --line: #d5dae1; --card: #f5f7f9; --bar: #0072b2; --good: #00694c; --note: #835000;
  --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --page: #14181d; --ink: #e8ebef;
  --soft: #a9b3bf; --line: #39424d; --card: #1d232a; --bar: #56b4e9; --good: #5fd0ac;
  --note: #f2b84b; --bad: #ff8f85; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans",
  "DejaVu Sans", sans-serif; -webkit-text-size-adjust: 100%; overflow-wrap: anywhere; }
main { max-width: 46rem; margin: 0 auto; padding: 1.5rem 1.1rem 3rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: .1rem 0 .4rem; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 2.4rem 0 .5rem; padding-top: .9rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1.02rem; line-height: 1.35; margin: 0; }
h4 { font-size: .85rem; line-height: 1.35; margin: .9rem 0 .2rem; color: var(--soft); }
h4.good { color: var(--good); } h4.note { color: var(--note); }
h4.bad { color: var(--bad); }
p { margin: .5rem 0; }
ul { margin: .3rem 0; padding-left: 1.2rem; }
li { margin: .3rem 0; }
.soft, figure p, .from { color: var(--soft); font-size: .85rem; }
.from { display: block; line-height: 1.35; }
.answers { list-style: none; padding: 0; margin: 1.2rem 0 0; }
.answers li, .card { background: var(--card); border: 1px solid var(--line);
  border-left: .35rem solid var(--line); border-radius: .4rem; padding: .65rem .9rem;
  margin: .6rem 0; }
.answers p { margin: .15rem 0 0; }
.answers .good { border-left-color: var(--good); }
.answers .note { border-left-color: var(--note); }
.answers .bad { border-left-color: var(--bad); }
.mark { float: right; margin-left: .8rem; font-size: .8rem; font-weight: 600;
  line-height: 1.6; }
.good .mark { color: var(--good); } .note .mark { color: var(--note); }
.bad .mark { color: var(--bad); }
table { width: 100%; border-collapse: collapse; margin: .7rem 0; font-size: .93rem; }
caption, figcaption { text-align: left; font-weight: 600; font-size: .93rem;
  padding: .3rem 0; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem .35rem 0;
  border-bottom: 1px solid var(--line); }
thead th { font-size: .85rem; color: var(--soft); }
tbody th { font-weight: 600; }
.number { text-align: right; white-space: nowrap; overflow-wrap: normal;
  font-variant-numeric: tabular-nums; }
.facts th { width: 11rem; }
.card h3 > span:first-child { display: inline-block; }
.card h3 > span:first-child::first-letter { text-transform: uppercase; }
.roster .number { white-space: normal; }
.bars th { width: 36%; font-weight: 400; } .bars .number { width: 5.5rem; }
.bars th, .bars td { border: 0; padding-top: .15rem; padding-bottom: .15rem; }
.bars .drawing { vertical-align: middle; padding-right: 0; }
figure { margin: 1.1rem 0; }
svg { display: block; width: 100%; height: auto; fill: var(--bar); }
svg.bar { height: .75rem; }
svg line:not(.messages line) { stroke: var(--soft); stroke-width: 1; }
svg .track { fill: var(--line); }
.messages { overflow-x: auto; }
.messages svg { fill: currentColor; min-width: 32rem; max-width: 680px; }
.ends { display: flex; justify-content: space-between; margin: .3rem 0; }
dt { font-weight: 600; margin-top: .6rem; } dd { margin: 0; }
code { font: .85rem/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
.sign { display: none; }
@media (max-width: 30rem) { main { padding: 1rem .9rem 2rem; }
  h1 { font-size: 1.5rem; }
  .facts tr, .facts th, .facts td { display: block; width: auto; }
  .facts th { border: 0; padding-bottom: 0; } .facts td { padding-top: 0; }
  .roster tr { display: grid; grid-template-columns: 1fr 5.6rem 5.2rem;
    border-bottom: 1px solid var(--line); }
  .roster th, .roster td { border: 0; }
  .roster tr > :nth-child(2) { grid-area: 2 / 1 / 3 / 4; padding-top: 0; }
  .roster thead th:nth-child(2) { display: none; } }
@media print { :root { color-scheme: light; --page: #fff; --ink: #000; --soft: #444;
  --line: #bbb; --card: #fff; --bar: #0072b2; --good: #00694c; --note: #835000;
  --bad: #b3261e; }
  @page { margin: 15mm 16mm; }
  html { font-size: 9.5pt; } main { max-width: none; padding: 0; }
  h2 { margin-top: 1.5rem; } dl { columns: 2; column-gap: 2rem; }
  h2, h3, h4, caption, h2 + p { break-after: avoid; }
  li, tr, figure, .answers li, dl div { break-inside: avoid; }
  svg { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .sign { display: flex; gap: 2rem; margin-top: 3.5rem; break-inside: avoid; }
  .sign span { flex: 1; border-top: 1px solid #000; padding-top: .3rem; } }
"""
