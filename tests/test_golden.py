"""Every estimator still finds what it found, and tells no more and no less.

Parameters, answers, warnings, words of the ledger, rounds and bytes on small fixed
inputs, as they were before the package was rebuilt. What has another name since is in
``tests/golden/renamed.py``; ``python -m tests.golden.make CASE`` computes one anew.
"""

import pytest

from tests.estimators import public_estimators
from tests.golden.cases import CASES
from tests.golden.make import load
from tests.golden.recording import current_name, differences, record
from tests.golden.renamed import RENAMED

EXPECTED = load()


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_old(name):
    case = CASES[name]
    lines = differences(EXPECTED[name], record(case), case.rtol, case.estimator)
    assert not lines, "\n".join(lines)


def test_every_case_has_results():
    assert set(CASES) == set(EXPECTED)


def test_every_estimator_has_a_case():
    named = {case.estimator for case in CASES.values()}
    covered = named | {current_name(name) for name in named}
    assert {type(estimator).__name__ for estimator in public_estimators()} <= covered


@pytest.mark.parametrize(
    "expected, found",
    [
        ({"weights_": [0.5, 0.5]}, {"weights_": [0.5, 0.5 + 1e-8]}),
        ({"weights_": [0.5]}, {}),
        ({"rounds": 3}, {"rounds": 4}),
        ({"learns": [["coordinator", "sums"]]}, {"learns": [["coordinator", "rows"]]}),
        ({"bytes": {"sum": 100}}, {"bytes": {"sum": 101}}),
        ({"notes": ["one"]}, {"notes": ["one", "two"]}),
        ({"h_": 1.0}, {"h_": "nan"}),
    ],
)
def test_a_difference_is_seen(expected, found):
    assert differences(expected, found, 1e-9, "")


def test_what_was_renamed_is_the_same(monkeypatch):
    monkeypatch.setitem(RENAMED, "Learner.model_", "network_")
    monkeypatch.setitem(RENAMED, "its sum", "its total")
    monkeypatch.setitem(RENAMED, "gone_", None)
    expected = {"model_": 1.0, "learns": [["coordinator", "its sum"]], "gone_": 2}
    found = {"network_": 1.0, "learns": [["coordinator", "its total"]]}
    assert differences(expected, found, 1e-9, "Learner") == []
    assert differences(expected, found, 1e-9, "Other") == ["/model_ is missing"]
