"""The page that ``make demo`` writes: one file, which loads nothing."""

import base64
import io
import re
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib.pyplot as plt

from skprivbn.federation import KINDS
from skprivbn.inspection import message_diagram

#: what a message of each kind is called here, and its colour: warm ones can be read
LOOKS = {
    "sealed": ("sealed for another party", "#0b4f7d"),
    "ciphertext": ("encrypted", "#0072b2"),
    "masked": ("masked", "#56b4e9"),
    "share": ("secret shares", "#009e73"),
    "public": ("public: parameters, results", "#b4bcc6"),
    "noisy release": ("noisy", "#e69f00"),
    "plaintext aggregate": ("sums, readable", "#d55e00"),
    "raw rows": ("rows, readable", "#a3190f"),
}
UNREADABLE = {KINDS[kind] for kind in ("sealed", "ciphertext", "masked", "share")}
COMPARED = ("federated", "pooled", "one party alone")
TOGETHER = "all of it together"
SUMMED = "sum over parties"


@dataclass
class Result:
    """What a demonstration has to show."""

    estimator: Any
    measure: str
    federated: str
    pooled: str
    alone: str
    scores: dict
    figure: Any
    caption: str
    title: str = ""
    code: str = ""
    seconds: float = 0.0

    @property
    def compared(self):
        """Return the fit, the same model of pooled data, and what one party finds."""
        return dict(zip(COMPARED, (self.federated, self.pooled, self.alone)))

    @property
    def ledger(self):
        return self.estimator.ledger_

    @property
    def cost(self):
        return f"{size(self.ledger.total_bytes)} in {self.ledger.n_rounds} rounds"

    def readers(self):
        """Return what was readable, by who could read it and what it looked like."""
        found = {}
        for who, what, source, seen_as, *_ in self.ledger.who_learns_what():
            is_public = seen_as == KINDS["public"]
            # Of what is public, the result is worth a line; session keys are not.
            if seen_as in UNREADABLE or (is_public and source != TOGETHER):
                continue
            who = "each party" if who in self.ledger.parties else who
            words = "public" if is_public else seen_as
            if source == SUMMED:
                words, what = "totals of all parties", re.sub(r"\bits ", "", what)
            found.setdefault((who, words), {})[what] = True
        return {reader: list(facts) for reader, facts in found.items()}


def size(n_bytes):
    """Write a number of bytes for people."""
    if n_bytes < 1e6:
        return f"{n_bytes / 1e3:.0f} kB"
    return f"{n_bytes / 1e6:.1f} MB"


def picture(figure, words):
    """Return a figure as an image inside the page."""
    file = io.BytesIO()
    figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="{escape(words)}" src="data:image/svg+xml;base64,{data}">'


def table(rows, head=(), kind=""):
    """Return a table; cells are markup already."""
    lines = [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows]
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    top = f"<thead><tr>{top}</tr></thead>" if head else ""
    return f'<table class="{kind}">{top}<tbody>{"".join(lines)}</tbody></table>'


def bar(ledger):
    """Draw the messages of a fit as one bar, a colour for each kind."""
    total, x, parts = ledger.total_bytes, 0.0, []
    kinds = ledger.bytes_by_kind()
    for kind in (kind for kind in LOOKS if kind in kinds):
        words, colour = LOOKS[kind]
        # A kind that was sent shows, however little of it.
        width = max(100 * kinds[kind] / total, 0.6)
        title = f"<title>{escape(words)}: {size(kinds[kind])}</title>"
        parts.append(
            f'<rect x="{x:.2f}" width="{width:.2f}" height="6" fill="{colour}">'
            f"{title}</rect>"
        )
        x += width
    label = ", ".join(f"{LOOKS[k][0]} {size(kinds[k])}" for k in LOOKS if k in kinds)
    return (
        f'<svg class="bar" viewBox="0 0 {x:.2f} 6" preserveAspectRatio="none" '
        f'role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def legend(kinds):
    """Explain the colours of bars."""
    items = [
        f'<li><span style="background:{colour}"></span>{escape(words)}</li>'
        for kind, (words, colour) in LOOKS.items()
        if kind in kinds
    ]
    return f'<ul class="legend">{"".join(items)}</ul>'


def overview(results):
    """Return the table of all fits: federated, pooled and alone, and what they cost."""
    rows = [
        (
            f'<a href="#fit{i}">{escape(result.title)}</a>'
            f'<small class="block">'
            f"{escape(result.measure)}</small>",
            *map(escape, result.compared.values()),
            result.cost + bar(result.ledger),
        )
        for i, result in enumerate(results, start=1)
    ]
    head = ["fit", *COMPARED, "messages"]
    kinds = {kind for result in results for kind in result.ledger.bytes_by_kind()}
    return table(rows, head, "overview") + legend(kinds)


def who_read_what(result):
    """Return what each participant could read, and how much it could not."""
    blocks = [
        f"<div><dt>{escape(who)} <small>{escape(words)}</small></dt>"
        + f"<dd>{escape('; '.join(facts))}</dd></div>"
        for (who, words), facts in result.readers().items()
    ]
    kinds = result.ledger.bytes_by_kind()
    hidden = sum(n for kind, n in kinds.items() if KINDS[kind] in UNREADABLE)
    share = 100 * hidden / result.ledger.total_bytes
    rest = (
        f"{share:.1f} % of all bytes were sealed, encrypted, masked or secret shares."
    )
    return f'<dl class="readers">{"".join(blocks)}</dl><p class="soft">{rest}</p>'


def section(number, result):
    """Return everything about one fit."""
    name = type(result.estimator).__name__
    scores = table(
        [(escape(k), escape(v)) for k, v in (result.compared | result.scores).items()],
        (),
        "scores",
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in result.ledger.notes)
    return f"""
<section id="fit{number}">
<h2>{escape(result.title)}</h2>
<div class="columns">
<figure>{picture(result.figure, result.caption)}
<figcaption>{escape(result.caption)}</figcaption></figure>
<div>
<p><code>{name}</code></p>
<h3>{escape(result.measure[0].upper() + result.measure[1:])}</h3>
{scores}
<h3>Cost: {result.cost}</h3>
{bar(result.ledger)}
{legend(result.ledger.bytes_by_kind())}
</div>
</div>
<h3>Who could read what</h3>
{who_read_what(result)}
<details><summary>The messages</summary>
<div class="scrolling">{message_diagram(result.ledger)}</div><ul>{notes}</ul></details>
<details><summary>The code</summary>
<pre class="scrolling"><code>{escape(result.code)}</code></pre></details>
</section>"""


def page_of(results):
    """Return the page about all demonstrations."""
    seconds = sum(result.seconds for result in results)
    sections = [section(i, result) for i, result in enumerate(results, start=1)]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>skprivbn: learnt together, not pooled</title>
<style>{STYLE}</style>
</head>
<body><main>
<header>
<h1>Learnt together, not pooled</h1>
<p>Models of several parties that do not pool their data, compared with the same
model of pooled data and with the model of one party alone.
Made by <code>make demo</code> in {seconds:.0f} seconds. All parties ran
in one process: a simulation, with the messages of a real run.</p>
</header>
{overview(results)}
{"".join(sections)}
<footer><h2>Next</h2>
<ul>
<li>README.md shows how to use each estimator; <code>make doc</code> builds the
guide.</li>
<li><code>make demo-federation</code> runs one of these fits between processes that hold
their own data, with certificates and audit logs.</li>
<li>The protocols are secure against semi-honest parties. Read the threat model
(doc/threat_model.rst) before you use data about people.</li>
</ul></footer>
</main></body>
</html>
"""


STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1d232b; --soft: #545e6b;
  --line: #d5dae1; --card: #f5f7f9; --link: #00588a; }
@media (prefers-color-scheme: dark) { :root { --page: #14181d; --ink: #e8ebef;
  --soft: #a9b3bf; --line: #39424d; --card: #1d232a; --link: #7cc4f0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); overflow-wrap: anywhere;
  font: 1rem/1.5 system-ui, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
  -webkit-text-size-adjust: 100%; }
main { max-width: 66rem; margin: 0 auto; padding: 2rem 1.2rem 4rem; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .5rem; }
header p { max-width: 46rem; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 0 0 1rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
a { color: var(--link); text-underline-offset: .15em; }
section, footer { margin-top: 3rem; padding-top: 1.5rem;
  border-top: 1px solid var(--line); }
table { width: 100%; border-collapse: collapse; font-size: .93rem; }
th, td { text-align: left; vertical-align: middle; padding: .45rem .8rem .45rem 0;
  border-bottom: 1px solid var(--line); }
th { font-size: .85rem; color: var(--soft); white-space: nowrap; }
td:last-child, th:last-child { padding-right: 0; }
.overview { margin-top: 1.5rem; }
.block { display: block; }
.overview td:nth-child(n+2):nth-child(-n+4), .scores td:last-child { text-align: right;
  white-space: nowrap; font-variant-numeric: tabular-nums; }
.overview th:nth-child(n+2):nth-child(-n+4) { text-align: right; }
.overview td:last-child { width: 20%; font-size: .8rem; color: var(--soft); }
.bar { display: block; width: 100%; height: .8rem; border-radius: .2rem; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; list-style: none; padding: 0;
  margin: .6rem 0; font-size: .85rem; color: var(--soft); }
.legend span { display: inline-block; width: .8rem; height: .8rem; border-radius: .2rem;
  margin-right: .4rem; vertical-align: -.08rem; }
.columns { display: grid; grid-template-columns: minmax(0, 7fr) minmax(0, 5fr);
  gap: 2rem; align-items: start; }
.columns p { margin: 0; }
figure { margin: 0; }
figure img { display: block; width: 100%; max-height: 30rem; object-fit: contain;
  background: #fff; border: 1px solid var(--line); border-radius: .5rem;
  padding: .8rem; }
figcaption { margin-top: .5rem; font-size: .9rem; color: var(--soft); }
.readers { columns: 2 22rem; column-gap: 2rem; margin: 0; font-size: .93rem; }
.readers div { break-inside: avoid; padding-bottom: .6rem; }
.readers dt { font-weight: 600; }
.readers dd { margin: .2rem 0 .3rem 1rem; }
small, .soft { color: var(--soft); font-size: .85rem; font-weight: 400; }
details { margin-top: .8rem; background: var(--card); border: 1px solid var(--line);
  border-radius: .5rem; padding: .5rem .9rem; font-size: .9rem; }
summary { cursor: pointer; font-weight: 600; }
.scrolling { overflow-x: auto; }
.scrolling svg { min-width: 34rem; }
pre { margin: .5rem 0; overflow-wrap: normal; }
code { font: .87em/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
@media (max-width: 44rem) { main { padding: 1.2rem 1rem 3rem; }
  h1 { font-size: 1.6rem; }
  .columns { grid-template-columns: minmax(0, 1fr); gap: 1rem; }
  .overview thead { display: none; }
  .overview tr { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr));
    padding: .5rem 0;
    border-bottom: 1px solid var(--line); }
  .overview td { border: 0; padding: .1rem .8rem .1rem 0; }
  .overview td:first-child, .overview td:last-child { grid-column: 1 / -1;
    width: auto; }
  .overview td:nth-child(2)::before { content: "federated "; }
  .overview td:nth-child(3)::before { content: "pooled "; }
  .overview td:nth-child(4)::before { content: "alone "; }
  .overview td:nth-child(n+2)::before { display: block; font-size: .8rem;
    color: var(--soft); }
  .overview td:nth-child(n+2):nth-child(-n+4) { text-align: left;
    white-space: normal; } }
@media print { details { display: none; } section { break-before: page; } }
"""
