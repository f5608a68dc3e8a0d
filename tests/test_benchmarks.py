"""The report on benchmarks shows what was stored, every case for itself."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def report(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    for name in ("report", "_record"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import report

    return report


def lines_of(text, *cells):
    """Cells of the lines of a table that begin in this way."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines()]
    return [row for row in rows if row[: len(cells)] == list(cells)]


def test_the_report_is_that_of_the_stored_results(report, monkeypatch):
    monkeypatch.setattr(
        report, "draw", lambda name, number, *_: report.PLOTS / f"{name}_{number}.png"
    )
    text, _ = report.report()
    assert text == report.REPORT.read_text(), "run python benchmarks/report.py"


def test_numbers_of_records_are_not_mixed_up(report):
    stored = json.loads((report.RESULTS / "random_field_figures.json").read_text())
    for row in stored["rows"]:
        if row["figure"] == "2":
            case = [row[key] for key in ("figure", "graph", "epsilon", "records")]
            (line,) = lines_of(report.REPORT.read_text(), *map(report.words, case))
            assert line[4:] == ["1", *(report.words(v) for v in list(row.values())[5:])]


def test_rows_of_several_cases_are_not_taken_for_seeds(report):
    rows = [{"seed": 0, "d": 5, "new": n, "error": n / 10} for n in (1, 2)]
    with pytest.raises(ValueError, match="add to CASE what tells them apart"):
        report.over_seeds(rows)


def test_medians_say_over_how_many_seeds_they_are(report):
    rows = [{"seed": i, "d": 5, "ours": i} for i in range(3)]
    rows[1]["theirs"] = 7
    assert report.over_seeds(rows) == [
        {"d": 5, "seeds": 3, "ours": 1},
        {"d": 5, "seeds": 1, "theirs": 7},
    ]


def test_a_reference_is_the_row_of_the_same_case(report):
    rows = [
        {"series": "parties", "parties": k, "backend": name, "ms": k * cost}
        for k in (2, 4)
        for name, cost in (("plain", 1.0), ("hidden", 8.0))
    ]
    rows += [{"series": "parties", "parties": 9, "backend": "hidden", "ms": 1.0}]
    added = report.add_reference(rows, "plain", "ms")
    assert [row.get("ratio to plain") for row in added] == [None, 8, None, 8, None]


def test_two_numbers_with_one_label_are_refused(report):
    rows = [{"d": 5, "new": n, "ratio to peer": n / 10} for n in (1, 2)]
    with pytest.raises(ValueError, match="add what differs to CASE"):
        report.against_peers({"toy": rows}, {})
