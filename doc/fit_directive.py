"""A directive that runs a fit and shows what its ledger says.

.. code-block:: rst

    .. fit:: model

        model = FederatedStandardScaler().fit(X, party=party)

shows the code, runs it, and then shows the messages of ``model`` as a drawing, who
learnt what as a table, and the notes of the ledger. Options: ``:hide-code:``, and
``:show:`` with some of ``messages``, ``table``, ``notes``. Names last to the end of the
page; without code, more is shown of a fit above. What pages say about protocols is thus
what the protocols do, in this version.
"""

import re
import warnings
from dataclasses import replace

from docutils import nodes
from docutils.parsers.rst import Directive, directives

from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.inspection import message_diagram

SUMMED = "sum over parties"
PARTS = ("messages", "table", "notes")
UNREADABLE = {
    "bytes sealed for another party": "sealed",
    "ciphertexts it cannot decrypt": "encrypted",
    "masked values that look random alone": "masked",
    "additive shares that look random alone": "shares",
}


def parts(argument):
    """Read the option ``:show:``."""
    wanted = [part.strip() for part in argument.split(",")]
    if unknown := set(wanted) - set(PARTS):
        raise ValueError(f"unknown {sorted(unknown)}; known: {PARTS}")
    return wanted


class Fit(Directive):
    """Run code that fits an estimator, and show its ledger."""

    required_arguments = 1
    has_content = True
    option_spec = {"hide-code": directives.flag, "show": parts}

    def run(self):
        page = self.state.document.settings.env.temp_data
        code = "\n".join(self.content)
        names = page.setdefault("fit", {})
        leaks = execute(code, names, str(self.state.document.current_source))
        ledger = names[self.arguments[0]].ledger_
        show = self.options.get("show", PARTS)
        shown = []
        if code and "hide-code" not in self.options:
            shown.append(nodes.literal_block(code, code, language="python"))
        if "messages" in show:
            drawing = f'<div class="messages">{message_diagram(ledger)}</div>'
            shown.append(nodes.raw("", drawing, format="html"))
        if "table" in show:
            shown.append(who_learns_what(ledger))
        if "notes" in show:
            shown.append(bullets([*ledger.notes, *leaks]))
        return shown


def execute(code, names, source):
    """Run code on names; return its warnings of leaks in words."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(compile(code, source, "exec"), names)
    return dict.fromkeys(
        f"warning: {item.message}"
        for item in caught
        if issubclass(item.category, PrivacyLeakWarning)
    )


def who_learns_what(ledger):
    """Return a table: who can read what, and who gets what without reading it."""
    entries = [e for e in ledger.entries if not e.operation.startswith("session.")]
    readers = {}
    rows = replace(ledger, entries=entries).who_learns_what()
    for who, what, source, seen_as, *_ in rows:
        who = "each party" if who in ledger.parties else who
        if source == SUMMED:
            what = re.sub(r"\bits ", "", what)
        reads, gets = readers.setdefault(who, ({}, {}))
        if seen_as in UNREADABLE:
            gets[f"{what} ({UNREADABLE[seen_as]})"] = True
        else:
            kind = seen_as.partition(":")[0].removesuffix(" values")
            exact = "total" if source == SUMMED else "exact"
            kind = kind.replace("sums over rows, in the clear", exact)
            kind = kind.replace("values with differentially private noise", "noisy")
            kind = kind.replace("noisy (", "noisy, ").rstrip(")")
            reads[f"{what} ({kind})"] = True
    head = ("who", "can read", "gets and cannot read")
    rows = [
        (text(who), bullets(reads), bullets(gets))
        for who, (reads, gets) in readers.items()
    ]
    return table(head, rows, widths=(16, 46, 38), kind="ledger")


def text(words):
    return nodes.paragraph(words, words)


def bullets(items):
    """Return a bullet list; a dash if there is nothing to list."""
    if not items:
        return text("-")
    return nodes.bullet_list(
        "", *(nodes.list_item("", text(item)) for item in items), classes=["simple"]
    )


def table(head, rows, widths, kind):
    columns = [nodes.colspec(colwidth=width) for width in widths]
    first = nodes.row("", *(nodes.entry("", text(cell)) for cell in head))
    body = [nodes.row("", *(nodes.entry("", cell) for cell in row)) for row in rows]
    group = nodes.tgroup(
        "", *columns, nodes.thead("", first), nodes.tbody("", *body), cols=len(head)
    )
    return nodes.table("", group, classes=[kind])


def setup(app):
    """Register the directive with Sphinx."""
    app.add_directive("fit", Fit)
    return {"parallel_read_safe": True}
