"""Numbers told are counted and rounded: a mutant of each step dies."""

import numpy as np
import pytest

from skprivbn.federation import _wire
from tests.federation.test_gate_mutations import mutate


def check_numbers(wire):
    """Hold for what counts and rounds the numbers of a result."""
    assert wire.count_numbers({"a": [1, (2.0, b"123456789")], "b": np.ones(3)}) == 7
    assert wire.count_numbers({"a": True, "b": "text", "c": None}) == 0
    assert wire.round_numbers([1.23456789, True, "text"], 4) == [1.235, True, "text"]
    assert wire.round_numbers(0.1 + 0.2, 17) == 0.1 + 0.2
    assert wire.round_numbers((1 << 53) + 1, 17) == (1 << 53) + 1
    told = wire.round_numbers({"a": np.array([[12345, 1234], [0, -98765]])}, 4)["a"]
    assert told.dtype.kind == "i" and told.tolist() == [[12340, 1234], [0, -98760]]


MUTANTS = [
    ("if n_digits >= ALL_DIGITS:", "if n_digits >= 4:"),
    ("if n_digits >= ALL_DIGITS:", "if n_digits > ALL_DIGITS:"),
    ("{n_digits - 1}e", "{n_digits}e"),
    ("{n_digits - 1}e", "{n_digits - 2}e"),
    ("dtype=np.asarray(value).dtype)", "dtype=float)"),
    ("return -(-len(value) // 8)", "return 0"),
]


def test_the_wire_itself():
    check_numbers(_wire)


@pytest.mark.parametrize(("old", "new"), MUTANTS)
def test_no_mutant_of_what_is_told_survives(old, new):
    with pytest.raises((AssertionError, ValueError)):
        check_numbers(mutate(_wire, old, new))
