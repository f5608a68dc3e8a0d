"""Every estimator still finds what it found, and tells no more and no less.

On small fixed inputs: fitted attributes, answers, kinds of warnings and of what each
side learns; which questions sites answer; and rounds and bytes, which may not grow.
Under noise, results are those that noise of zero would leave. What has another name
since is in ``tests/golden/renamed.py``; ``python -m tests.golden.make CASE`` computes a
case anew.
"""

import pytest

from tests.estimators import public_estimators
from tests.golden.cases import CASES, FUNCTIONS
from tests.golden.make import COSTS, RESULTS, SITES, load
from tests.golden.recording import current_name, differences, excesses, record
from tests.golden.renamed import RENAMED
from tests.golden.sites import COLUMN_QUESTIONS, POLICIES, QUESTIONS, SIZES, ask_all

EXPECTED, EXPECTED_COSTS, EXPECTED_ANSWERS = map(load, (RESULTS, COSTS, SITES))
#: what fits without messages has no cost
LOCAL = {"K2StructureLearner", "Notears", "PrivateSearchCV"}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_old(name):
    case = CASES[name]
    found = record(case)
    lines = differences(EXPECTED[name], found, case.rtol, case.estimator)
    if name in EXPECTED_COSTS:
        lines += excesses(EXPECTED_COSTS[name], found["costs"])
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("size", SIZES)
def test_sites_answer_what_they_answered(tmp_path, size, policy):
    assert ask_all(tmp_path, size, policy) == EXPECTED_ANSWERS[f"{size}, {policy}"]


def test_every_case_has_results():
    assert set(CASES) == set(EXPECTED)
    with_messages = {name for name in CASES if CASES[name].estimator not in LOCAL}
    assert with_messages == set(EXPECTED_COSTS)


#: questions that all sites answer alike, whatever their rows
ALIKE = {
    "codes": "answered",
    "indicators": "answered",
    "sums in the clear": "refused",
    "rows shown": "refused",
}


@pytest.mark.parametrize("name", [*QUESTIONS, *COLUMN_QUESTIONS])
def test_a_question_tells_kinds_of_sites_apart(name):
    answers = {kept[name] for kept in EXPECTED_ANSWERS.values()}
    both = {"answered", "refused"}
    assert answers == ({ALIKE[name]} if name in ALIKE else both)


def test_every_estimator_has_a_case():
    named = {case.estimator for case in CASES.values()} - FUNCTIONS
    covered = named | {current_name(name) for name in named}
    assert {type(estimator).__name__ for estimator in public_estimators()} <= covered


LEDGER = {
    "parties": ["a", "b"],
    "coordinator learns": ["masked", "plaintext aggregate", "public"],
    "others learn": ["public"],
    "releases": [["rows", 1.0, 0.0]],
}


@pytest.mark.parametrize(
    "expected, found",
    [
        ({"weights_": [0.5, 0.5]}, {"weights_": [0.5, 0.5 + 1e-8]}),
        ({"weights_": [0.5]}, {}),
        ({"n_iter_": 3}, {"n_iter_": 4}),
        ({"counts": [10**12, 3]}, {"counts": [10**12, 4]}),
        ({"nodes": ["a", "b"]}, {"nodes": ["b", "a"]}),
        ({"edges": [[True, False]]}, {"edges": [[True, True]]}),
        ({"h_": 1.0}, {"h_": "nan"}),
        ({"ledger": LEDGER}, {"ledger": LEDGER | {"others learn": ["raw rows"]}}),
        ({"ledger": LEDGER}, {"ledger": LEDGER | {"releases": []}}),
    ],
)
def test_a_difference_is_seen(expected, found):
    assert differences(expected, found, 1e-9, "")


def test_the_order_of_a_sum_is_no_difference():
    expected = {"mean_": [0.1 + 0.2 + 0.3, 1e6], "n_samples_": 90}
    found = {"mean_": [0.1 + (0.2 + 0.3), 1e6], "n_samples_": 90}
    assert expected != found
    assert differences(expected, found, 1e-9, "") == []


def test_parties_may_learn_what_the_coordinator_did_but_not_the_other_way_round():
    moved = LEDGER | {"coordinator learns": ["masked", "public"]}
    moved["others learn"] = ["plaintext aggregate", "public"]
    assert differences({"ledger": LEDGER}, {"ledger": moved}, 1e-9, "") == []
    assert differences({"ledger": moved}, {"ledger": LEDGER}, 1e-9, "") == [
        "ledger: coordinator learns plaintext aggregate"
    ]


@pytest.mark.parametrize(
    "rounds, n_bytes, n_lines", [(4, 1100, 0), (1, 10, 0), (5, 1000, 1), (5, 1101, 2)]
)
def test_costs_may_not_grow(rounds, n_bytes, n_lines):
    expected, found = {"rounds": 3, "bytes": 1000}, {"rounds": rounds, "bytes": n_bytes}
    assert len(excesses(expected, found)) == n_lines


def test_what_was_renamed_is_the_same(monkeypatch):
    monkeypatch.setitem(RENAMED, "Learner.model_", "network_")
    monkeypatch.setitem(RENAMED, "gone_", None)
    expected, found = {"model_": 1.0, "gone_": 2}, {"network_": 1.0}
    assert differences(expected, found, 1e-9, "Learner") == []
    assert differences(expected, found, 1e-9, "Other") == ["/model_ is missing"]
