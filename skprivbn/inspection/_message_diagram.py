"""A drawing of a protocol: the messages of a real fit, repeated ones once."""

from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from textwrap import wrap
from typing import Any

from skprivbn.federation._ledger import COORDINATOR
from skprivbn.inspection._report_words import KIND_WORDS
from skprivbn.inspection._style import Html, ledger_of, size, tag

SESSION = "session"
RETURNED = "the sum goes back, still hidden"

WIDTH, LINE, GAP = 680, 17, 12
PARTY, PEER, SERVER = 50, 86, 630
N_CHARACTERS = 80


class Svg(str):
    """Text of a drawing, which notebooks show as one."""

    __slots__ = ()

    def _repr_html_(self):
        return str(self)


def message_diagram(estimator: Any, path: str | PathLike | None = None) -> str | None:
    """Draw the messages of a fit as a sequence diagram, from top to bottom.

    The drawing is made from the fit's own record, `ledger_`. All parties share one
    lifeline, with a second one if parties send messages to each other. A repeated
    message is drawn once, in a box with the number of repetitions. Green messages are
    unreadable to their receiver; orange and red ones can be read.

    Parameters
    ----------
    estimator : estimator instance or Ledger
        Fitted, with an attribute `ledger_`; or such a ledger itself.

    path : str or path-like, default=None
        File to write. None returns the drawing instead.

    Returns
    -------
    drawing : str or None
        SVG text if `path` is None. Notebooks show it as a drawing.

    See Also
    --------
    LedgerDisplay : Bytes by party and round.
    privacy_report : The same fit in words, for people who do not program.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.inspection import message_diagram
    >>> from skprivbn.preprocessing import FederatedStandardScaler
    >>> X, party = np.arange(60.0).reshape(30, 2), ["north", "south", "west"] * 10
    >>> drawing = message_diagram(FederatedStandardScaler().fit(X, party=party))
    >>> "masked, " in drawing and " bytes from each" in drawing
    True
    """
    drawing = Svg(
        draw_messages(
            ledger_of(estimator),
            xmlns="http://www.w3.org/2000/svg",
            style=f"max-width:{WIDTH}px;width:100%;height:auto",
        )
    )
    if path is None:
        return drawing
    Path(path).write_text(drawing, encoding="utf-8")
    return None


@dataclass
class _Step:
    """One operation: what the coordinator asks, what parties answer, tell peers."""

    operation: str
    times: int = 0
    first: int = 0
    last: int = 0
    messages: dict = field(default_factory=dict)

    def add(self, direction, entry):
        key = (direction, entry.tells, entry.kind)
        self.messages.setdefault(key, []).append(entry)


def _steps(ledger):
    """Gather messages by operation, in the order of their first appearance."""
    steps, position, current = {}, 0, (None, None)
    for entry in ledger.entries:
        operation = entry.operation
        if operation == "session.talk":
            continue  # the coordinator relays sealed messages, which are listed too
        if operation.startswith("session."):
            operation = SESSION
        step = steps.setdefault(operation, _Step(operation, first=position))
        direction = _direction(entry, ledger)
        asks = direction == "down" and current != (entry.round, operation)
        if asks or not step.times:
            current = (entry.round, operation)
            step.times += 1
            position += 1
            step.last = position
        step.add(direction, entry)
    return list(steps.values())


def _direction(entry, ledger):
    if entry.sender == COORDINATOR:
        return "down"
    return "peer" if entry.receiver in ledger.parties else "up"


def _loops(steps):
    """Group operations that took turns: their stretches of time overlap."""
    groups = []
    for step in sorted(steps, key=lambda step: step.first):
        if groups and step.first < max(other.last for other in groups[-1]):
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


def _sums(ledger):
    """Return who can read which kind of sum of what."""
    return {
        fact.what: (
            "parties" if "parties" in fact.who else COORDINATOR,
            "noisy sum" if fact.kind == "noisy release" else "sum",
        )
        for fact in ledger.facts()
        if fact.is_total
    }


def draw_messages(ledger, **attributes):
    """Return the drawing as an element of a page, which may style it itself."""
    groups = _loops(_steps(ledger))
    steps = [step for group in groups for step in group]
    sums = _sums(ledger)
    peers = {f.what: f.kind for f in ledger.facts() if f.who in ledger.parties}
    shapes, y, used = [], 64, {}
    talk = any(key[0] == "peer" for step in steps for key in step.messages)
    for group in groups:
        top = y
        times = sorted({step.times for step in group})
        is_loop = times[-1] > 1 and group[0].operation != SESSION
        if is_loop:
            y += LINE + 4
        found = [a for step in group for a in _arrows(step, ledger, sums, peers)]
        for arrow in _with_answers(found):
            drawn, y = _arrow(y, *arrow)
            shapes += drawn
            used[arrow[2]] = True
        if is_loop:
            shapes = [*_box(top, y, times), *shapes]
            y += GAP
    y += 4
    held = "each with rows or columns of its own"
    heads = [
        _lifeline(SERVER, y, COORDINATOR, "holds no data", anchor="end"),
        _lifeline(PARTY, y, _named(ledger.parties), held),
        *([_lifeline(PEER, y)] if talk else []),
    ]
    legend, height = _legend(used, y + 28)
    title = f"Messages between {len(ledger.parties)} parties and a coordinator"
    return tag(
        "svg",
        tag("title", title),
        *heads,
        *shapes,
        *legend,
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        aria_label=title,
        font_family="system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif",
        font_size=13,
        fill="currentColor",
        **attributes,
    )


def _named(parties):
    names = ", ".join(parties)
    return names if len(names) <= 48 else f"{len(parties)} parties"


def _arrows(step, ledger, sums, peers):
    """Yield (direction, words, kind, words below) of what is worth an arrow."""
    if step.operation == SESSION:
        yield "both", "public parameters; signed session keys", "public", ""
    for (direction, words, kind), entries in step.messages.items():
        if direction == "peer":
            yield "peer", *_peer_arrow(step, entries, peers)
        elif step.operation != SESSION and (words or kind != "public"):
            # Requests and acknowledgements that carry nothing are left out.
            below = f"{KIND_WORDS[kind][2]}, {_sizes(entries)}"
            senders = {entry.sender for entry in entries}
            if direction == "up":
                everybody = len(senders) == len(ledger.parties)
                below += " from each" if everybody else " from one of them"
            if direction == "up" and words in sums:
                reader, which = sums[words]
                below += f"; the {reader} can read the {which}"
            yield direction, words or RETURNED, kind, below


def _with_answers(arrows):
    """Join what parties send and its sum, which goes back to them as hidden."""
    joined = []
    for arrow in arrows:
        sent = joined[-1] if joined else (None,) * 4
        if (sent[0], *arrow[:3]) == ("up", "down", RETURNED, sent[2]):
            joined[-1] = ("both", *sent[1:3], f"{sent[3]}; {RETURNED}")
        else:
            joined.append(arrow)
    return joined


def _peer_arrow(step, entries, peers):
    words, kind = step.operation, peers.get(step.operation, "sealed")
    total = size(sum(entry.n_bytes for entry in entries))
    plural = "messages" if len(entries) > 1 else "message"
    below = f"sealed on its way, {len(entries)} {plural}, {total}"
    return (
        words,
        kind,
        f"{below}; inside: {KIND_WORDS[kind][2]}" if kind != "sealed" else below,
    )


def _sizes(entries):
    sizes = [entry.n_bytes for entry in entries]
    low, high = size(min(sizes)), size(max(sizes))
    return low if low == high else f"{low} to {high}"


def _label(words, x, y, anchor="middle", size=13, **style):
    style |= {"opacity": 0.75} if size == 11 else {}
    return tag("text", words, x=x, y=y, text_anchor=anchor, font_size=size, **style)


def _line(x1, y1, x2, y2, **style):
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, **style)


def _arrow(y, direction, words, kind, below):
    """Return the shapes of one arrow that starts at height y, and the height after."""
    is_peer = direction == "peer"
    right = PEER if is_peer else SERVER
    x, anchor = (PEER + 12, "start") if is_peer else ((PARTY + SERVER) / 2, "middle")
    shapes = []
    for line in wrap(words, N_CHARACTERS) or [""]:
        y += LINE
        shapes.append(_label(line, x, y, anchor))
    y += 8
    colour = KIND_WORDS[kind][3]
    shapes.append(_line(PARTY, y, right, y, stroke=colour, stroke_width=2))
    if direction != "down":
        shapes.append(_head(right, y, 1, colour))
    if direction != "up":
        shapes.append(_head(PARTY, y, -1, colour))
    if below:
        y += LINE - 2
        shapes.append(_label(below, x, y, anchor, 11))
    return shapes, y + GAP


def _head(x, y, side, colour):
    points = f"{x},{y} {x - 9 * side},{y - 5} {x - 9 * side},{y + 5}"
    return tag("polygon", points=points, fill=colour)


def _box(top, bottom, times):
    often = " to ".join(map(str, sorted({times[0], times[-1]})))
    place = {"x": 4, "y": top, "width": WIDTH - 8, "height": bottom - top, "rx": 6}
    style = {"fill_opacity": 0.06, "stroke": "currentColor", "stroke_opacity": 0.35}
    words = _label(f"{often} times", SERVER - 10, top + 17, "end", 12)
    return [tag("rect", **place, **style), words]


def _lifeline(x, bottom, *words, anchor="start"):
    """Draw a participant's line, with its name and role on top if they are given."""
    at, style = {"start": 4, "end": WIDTH - 4}[anchor], {"stroke_dasharray": "3 4"}
    style |= {"stroke": "currentColor", "stroke_opacity": 0.4}
    heads = [
        _label(line, at, y, anchor, size, **more)
        for line, y, size, more in zip(
            words, (18, 35), (13, 11), ({"font_weight": 600}, {})
        )
    ]
    return Html("".join(heads) + _line(x, 46, x, bottom, **style))


def _legend(used, y):
    """Explain the colours that occur, in one or two lines."""
    meaning = {}
    for kind, (*_, word, colour) in reversed(KIND_WORDS.items()):
        if kind in used:
            meaning.setdefault(colour, []).append(word)
    shapes, x = [], 8
    for colour, words in meaning.items():
        text = ", ".join(words)
        if x + 34 + 7 * len(text) > WIDTH:
            x, y = 8, y + LINE + 2
        shapes.append(tag("rect", x=x, y=y - 9, width=18, height=8, rx=2, fill=colour))
        shapes.append(tag("text", text, x=x + 24, y=y, font_size=11))
        x += 44 + 6.4 * len(text)
    return shapes, y + 10
