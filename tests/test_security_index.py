"""The page on security names attacks: each is a test, and has a twin where it works."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "doc" / "security.rst").read_text(encoding="utf-8")
SAME = "same"


def lines():
    """Return what a liar does with the tests in which it fails, and works."""
    section = PAGE.split("\nAttacks that are tests\n")[1].split("\nKnown limits\n")[0]
    rows = re.split(r"^   \* - ", section, flags=re.MULTILINE)[2:]
    for row in rows:
        what, attacks, twins = re.split(r"^     - ", row, flags=re.MULTILINE)
        yield " ".join(what.split()), attacks, twins


LINES = list(lines())


def named(cell):
    """Return the tests that a cell names, as (file, function)."""
    file, found = None, []
    for word in re.findall(r"``([\w/.]+)``", cell):
        if word.endswith(".py"):
            file = word
        else:
            found.append((file, word))
    return found


def has_test(file, name):
    source = (TESTS / file).read_text(encoding="utf-8")
    return re.search(rf"^ *def {name}\(", source, flags=re.MULTILINE) is not None


@pytest.mark.parametrize(
    ("what", "attacks", "twins"), LINES, ids=[w for w, *_ in LINES]
)
def test_attacks_and_twins_are_there(what, attacks, twins):
    assert named(attacks), "no attack"
    assert named(twins) or twins.split()[-1] == SAME, "no twin"
    missing = [t for t in named(attacks) + named(twins) if not has_test(*t)]
    assert not missing


def test_a_name_that_is_not_there_is_found():
    assert not has_test("crypto/test_masking.py", "test_nothing_of_this_name")
    assert len(LINES) > 20
