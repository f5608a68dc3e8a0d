"""Directives that show what a benchmark stored, and which run stored it.

.. code-block:: rst

    .. results:: ppem
       :columns: backend, ratio to plaintext, largest difference
       :where: k=3, d=2

makes a table of these columns of ``benchmarks/results/ppem.json``, to two digits,
with the command that measures them again below. Pages thus have no number that somebody
typed and nobody measured again. ``:spread: method, SHD`` makes one column of SHD for
every method, and one line for rows that are alike in ``:columns:``. ``:digits: 3``
shows more digits. ``.. stored-runs:: ppem, k2`` lists the runs behind these files.
"""

import json
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from fit_directive import table, text

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


def names(argument):
    # a name may have a comma: then semicolons stand between names
    between = ";" if ";" in argument else ","
    return [name.strip() for name in argument.split(between)]


def conditions(argument):
    return dict(name.split("=") for name in names(argument))


class Results(Directive):
    """A table of stored measurements."""

    required_arguments = 1
    option_spec = {
        "columns": names,
        "where": conditions,
        "spread": names,
        "digits": int,
        "no-command": directives.flag,
    }

    def run(self):
        path = RESULTS / f"{self.arguments[0]}.json"
        self.state.document.settings.env.note_dependency(str(path))
        stored = json.loads(path.read_text(encoding="utf-8"))
        where = self.options.get("where", {})
        chosen = [
            row
            for row in stored["rows"]
            if all(str(row.get(name)) == value for name, value in where.items())
        ]
        if not chosen:
            raise self.error(f"no rows of {path.name} with {where}")
        columns = self.options.get("columns", list(chosen[0]))
        known = {name for row in stored["rows"] for name in row}
        if unknown := {*columns, *self.options.get("spread", ())} - known:
            raise self.error(f"{path.name} has no columns {sorted(unknown)}")
        digits = self.options.get("digits", 2)
        if "spread" in self.options:
            columns, chosen = spread(chosen, columns, *self.options["spread"])
        rows = [
            [text(rounded(row.get(name, "-"), digits)) for name in columns]
            for row in chosen
        ]
        shown = [table(columns, rows, widths=[1] * len(columns), kind="results")]
        if "no-command" not in self.options:
            command = nodes.literal(stored["command"], stored["command"])
            shown.append(nodes.paragraph("", "", nodes.Text("Measured by "), command))
        return shown


class StoredRuns(Directive):
    """A table of the runs behind some results; commits were not kept at first."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        kept = ("commit", "CPU_seconds", "command")
        rows = []
        for name in names(self.arguments[0]):
            path = RESULTS / f"{name}.json"
            self.state.document.settings.env.note_dependency(str(path))
            stored = json.loads(path.read_text(encoding="utf-8"))
            cells = [path.name, *(stored.get(key, "-") for key in kept)]
            rows.append([text(rounded(cell, 3)) for cell in cells])
        columns = ["results", "commit", "CPU seconds", "command of the run"]
        return [table(columns, rows, widths=[2, 1, 1, 5], kind="results")]


def spread(rows, columns, by, value):
    """Return columns and rows with one column of a value for each value of `by`."""
    lines = {}
    for row in rows:
        case = tuple((name, row.get(name)) for name in columns)
        lines.setdefault(case, dict(case))[row[by]] = row[value]
    return [*columns, *dict.fromkeys(row[by] for row in rows)], list(lines.values())


def rounded(value, digits):
    """Write a number with some significant digits, and anything else as it is."""
    if value is None:
        return "-"
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        return f"{float(f'{value:.{digits}g}'):,.10g}"
    return f"{value:.0e}"


def setup(app):
    """Register the directive with Sphinx."""
    app.add_directive("results", Results)
    app.add_directive("stored-runs", StoredRuns)
    return {"parallel_read_safe": True}
