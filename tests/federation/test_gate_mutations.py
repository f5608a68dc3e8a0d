"""Every threshold and comparison of the gate and the door: a mutant of each dies.

A mutant is the source of a module with one piece replaced, run in place of it. What
kills it are assertions that hold for the module itself.
"""

import ast
import types
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from skprivbn.exceptions import BudgetExceededError
from skprivbn.federation import gate
from skprivbn.federation.program import (
    ALL_ROWS,
    COUNTS,
    SAME_ROWS,
    CountsAt,
    PartyRefusal,
    RowWeights,
    TooFewRows,
)
from skprivbn.federation.site import _account, _block, _rules, _small_cells


def mutate(module, old, new):
    """Return a module with one piece of its source replaced."""
    source = Path(module.__file__).read_text(encoding="utf-8")
    assert source.count(old) == 1, f"{old!r} is there {source.count(old)} times"
    changed = source.replace(old, new)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))
    made = types.ModuleType(module.__name__)
    made.__file__ = module.__file__
    exec(compile(changed, module.__file__, "exec"), vars(made))
    return made


def passes(gate, weights, *parties, limits=(20, 5), n_rows=400, vector=(0.0, 0.0)):
    """Tell whether the sum of some parties passes; its own numbers come back."""
    vectors = [
        gate.with_rows(np.array(vector), w, n_rows) for w in parties or [weights]
    ]
    total = np.sum(vectors, axis=0)
    try:
        values = gate.check_rows(total, len(vector), "a sum", weights, *limits)
    except TooFewRows:
        return False
    assert len(values) == len(vector)
    return True


def check_gate(gate):
    """Hold for the gate; whatever mutant this holds for survives."""
    for n in (19, 20, 21):
        told = n >= 20
        assert passes(gate, ALL_ROWS, n_rows=n) is told
        assert passes(gate, ALL_ROWS, n_rows=n, vector=(1, 2)) is told
        assert passes(gate, COUNTS, vector=(n, 0)) is told
        assert passes(gate, COUNTS, vector=(-n, 0)) is told
        assert passes(gate, CountsAt(slice(0, 1)), vector=(n, 1)) is told
        assert passes(gate, CountsAt(slice(0, 1)), vector=(-n, 1)) is told
        for size in (1.0, 0.3, 7.0):
            assert passes(gate, RowWeights.of(np.full(n, size))) is told
        ones = RowWeights(np.array([n, 500.0]))
        assert passes(gate, ones) is told
        half = (
            RowWeights.of(np.full(n // 2, 0.7)),
            RowWeights.of(np.full(n - n // 2, 0.7)),
        )
        assert passes(gate, half[0], *half) is told
    for n in (4, 5, 6):
        cells = RowWeights(np.array([400.0]), None, np.array([100.0, n]))
        assert passes(gate, cells) is (n >= 5)
        cells = RowWeights(np.array([400.0]), np.array([400.0]), np.array([100.0, n]))
        assert passes(gate, cells) is (n >= 5)
    assert passes(gate, RowWeights.of(np.zeros(9)))
    assert passes(gate, SAME_ROWS)
    assert passes(gate, ALL_ROWS, n_rows=1, limits=(1, 0))
    assert passes(gate, RowWeights(np.array([9.0]), None, np.ones(1)), limits=(1, 1))
    assert passes(
        gate, RowWeights(np.array([0.5]), None, np.ones(1) / 2), limits=(1, 1)
    )
    assert not passes(
        gate, RowWeights(np.array([400.0, 9, 10]), None, np.array([99.0]))
    )
    for size in (1e-9, 1e-300):
        assert not passes(gate, RowWeights.of([size]))
    lonely = np.append(1.0, np.full(999, 1e-6))
    assert not passes(gate, RowWeights.of(lonely))
    two = RowWeights(np.array([400.0, 3.0]), None, np.zeros(0), (0, 1))
    try:
        gate.check_rows(gate.with_rows(np.ones(1), two, 9), 1, "a sum", two, 20, 5)
        raise AssertionError("three rows passed")
    except TooFewRows as few:
        assert few.columns == (1,)
    column = np.repeat([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]], [3, 5, 92], axis=0)
    d, w = column - column.mean(axis=0), np.ones(100)
    assert gate.kish(gate.rows_beside(d, w)).round(9).tolist() == [8, 3, 92, 97]
    assert gate.kish(gate.rows_beside(d, 2 * w)).round(9).tolist() == [8, 3, 92, 97]
    assert gate.kish(gate.rows_of_pairs(d, w)).round(9).tolist() == [3, 5, 0, 92]
    other = np.column_stack([d[:, 0], d[:, 1] + np.arange(100)])
    assert gate.two_valued(other).tolist() == [True, False]
    assert gate.two_valued(np.where(other > 50, np.nan, d)).all()
    assert not gate.rows_of_pairs(other, w).any()
    assert gate.rows_of_pairs(other, w, np.ones(2, dtype=bool)).any()
    heavy = np.where(np.arange(100) == 0, 1e6, 1.0)
    assert gate.kish(gate.rows_beside(d, heavy))[0] < 1.1
    assert gate.kish(gate.rows_of_pairs(d, heavy))[0] < 1.1
    gaps = np.where(np.arange(100)[:, None] < 3, np.nan, d)
    assert gate.kish(gate.rows_beside(gaps, w)).round(9).tolist() == [5, 0, 92, 97]
    assert gate.count_numbers({"a": [1, (2.0, b"123456789")], "b": np.ones(3)}) == 7
    assert gate.count_numbers({"a": True, "b": "text", "c": None}) == 0


GATE = [
    (
        "weights in (COUNTS, SAME_ROWS) or",
        "weights in (COUNTS, SAME_ROWS, ALL_ROWS) or",
    ),
    (
        'count = n_rows if vector.dtype.kind == "i" else n_rows / _UNIT',
        "count = n_rows",
    ),
    ("squares = weights.squares / _UNIT", "squares = weights.squares"),
    ("np.maximum(squares, _STEP), 0.0)", "squares, 0.0)"),
    (
        "np.where(weights.total > 0, np.maximum",
        "np.where(weights.total > 1e-6, np.maximum",
    ),
    (
        "np.where(weights.total > 0, np.maximum",
        "np.where(weights.total >= 0, np.maximum",
    ),
    ("cells = weights.cells / _UNIT", "cells = weights.cells"),
    (
        "weights.total / _UNIT, squares, cells]",
        "weights.total / _UNIT, squares, 0 * cells]",
    ),
    (
        "least = np.full(len(rows), min_rows)",
        "least = np.full(len(rows), min_rows - 1)",
    ),
    (
        "least = np.full(len(rows), min_rows)",
        "least = np.full(len(rows), min_rows + 1)",
    ),
    (
        "least = np.full(len(rows), min_rows)",
        "least = np.full(len(rows), min_cell_count)",
    ),
    ("weights.cells.size :] = min_cell_count", "weights.cells.size :] = min_rows"),
    (
        "weights.cells.size :] = min_cell_count",
        "weights.cells.size :] = min_cell_count - 1",
    ),
    ("least[-weights.cells.size :]", "least[weights.cells.size :]"),
    ("few = (rows > 0) &", "few = (rows > 1) &"),
    ("few = (rows > 0) &", "few = (rows >= 0) &"),
    ("(rows < least - _SLACK)", "(rows <= least)"),
    ("(rows < least - _SLACK)", "(rows < least - 1)"),
    ("(rows < least - _SLACK)", "(rows < least / 2)"),
    ("& (least > 1)", "& (least > 0)"),
    ("& (least > 1)", "& (least > 5)"),
    ("if np.any(few):", "if np.all(few):"),
    ("if is_few}", "if not is_few}"),
    ("return total[:n_values]", "return total"),
    ("return np.abs(total[:n_values]).astype", "return total[:n_values].astype"),
    (
        "np.abs(total[:n_values][weights.positions])",
        "(total[:n_values][weights.positions])",
    ),
    ("return behind * _UNIT", "return behind"),
    ("np.split(behind * _UNIT, [n_blocks", "np.split(behind, [n_blocks"),
    ("np.divide(sums**2, squares", "np.divide(sums, squares"),
    (
        "np.maximum(rows, np.finfo(np.float64).tiny), 0.0)",
        "np.where(rows > 0, 99, 99), 0.0)",
    ),
    ("return np.append(rows, cells)", "return np.append(rows, 99 + cells)"),
    ("parts.sum(axis=0), np.einsum(", "parts.max(axis=0), np.einsum("),
    ("0.0), np.sqrt(weights)", "0.0), np.ones(len(weights))"),
    ("np.where(counted, deviations, 0.0)", "deviations"),
    ("(block == low) | (block == high) |", "(block == low) |"),
    ("for power in (1, 2):", "for power in (1, 1):"),
    ("np.maximum(known, 0.0), np.maximum(-known, 0.0)", "np.abs(known), np.abs(known)"),
    (
        "np.where(np.isnan(deviations), 0.0, deviations)",
        "np.nan_to_num(deviations, nan=1.0)",
    ),
    ("np.divide(totals**2, squares", "np.divide(totals, squares"),
    ("return -(-len(value) // 8)", "return 0"),
]


def test_the_gate_itself():
    check_gate(gate)


@pytest.mark.parametrize(("old", "new"), GATE)
def test_no_mutant_of_the_gate_survives(old, new):
    mutant = mutate(gate, old, new)
    with pytest.raises((AssertionError, TooFewRows, ValueError, IndexError)):
        check_gate(mutant)


class Dataset:
    """What the door knows of a dataset."""

    min_rows, min_cell_count = 20, 5
    max_exact_numbers, max_parameters_per_row = 3, 1 / 3


class Question:
    """An exact question."""

    dataset, is_exact, n_features, steps = Dataset, True, 1, []

    class terms:
        """Terms of as many parameters as a third of 60 rows."""

        n_parameters = staticmethod(lambda n_features: 20)
        filled_columns = staticmethod(lambda n_features: [0])


def refuses(call, *arguments):
    try:
        call(*arguments)
    except (PartyRefusal, BudgetExceededError):
        return True
    return False


def account_of(module, n_told, n_set_aside):
    """Return the account of an exact question, and what was told before."""
    account = module.Account.__new__(module.Account)
    vars(account).update(_noise=None, _is_held=True, _name="icu", _version="1")
    account._mine = "icu", "session"
    account._state = types.SimpleNamespace(
        transaction=nullcontext,
        told=lambda name: {"1": (1, n_told), "2": (9, 999)},
        charges=lambda *mine: [
            {"version": "1", "announced": n_set_aside},
            {"version": "2", "announced": 999},
        ],
        announce=lambda *mine: True,
    )
    return account


def check_door(rules=_rules, block=_block, cells=_small_cells, told=_account):
    """Hold for the door of a site."""
    for n in (59, 60):
        assert refuses(rules.check_rows, Question, n) is (n < 60)
    few = types.SimpleNamespace(**{**vars(Question), "terms": Question.terms})
    few.terms = types.SimpleNamespace(n_parameters=lambda n: 0)
    for n in (19, 20):
        assert refuses(rules.check_rows, few, n) is (n < 20)
        column = np.where(np.arange(400) < n, 1.0, np.nan)[:, np.newaxis]
        assert refuses(block._check_filled, column, Question) is (n < 20)
    for n in (0, 1, 4, 5):
        column = np.where(np.arange(400) < n, np.nan, 1.0)[:, np.newaxis]
        assert refuses(block._check_apart, np.isnan, column, 5) is (0 < n < 5)
        three = np.where(np.arange(400) < n, 2.0, np.arange(400) % 2)[:, np.newaxis]
        ones, free = np.ones(400), np.zeros(1, dtype=bool)
        asked = three, ones, [0], free, 5, ["a"]
        assert refuses(cells.check_values, *asked) is (0 < n < 5)
        two = (np.arange(400) < n).astype(float)[:, np.newaxis]
        assert not refuses(cells.check_values, two, ones, [0], free, 5, ["a"])
        bins = two, ones, [0], ~free, 5, ["a"]
        assert refuses(cells.check_values, *bins) is (0 < n < 5)
        without = np.where(np.arange(400) < n, 0.0, 1.0)
        assert not refuses(cells.check_values, three, without, [0], free, 5, ["a"])
    for n_told in (0, 100):
        for n_set_aside in (0, 50):
            account = account_of(told, n_told, n_set_aside)
            n_left = 300 - n_told - n_set_aside
            assert not refuses(account.announce, n_left, 300)
            assert account._n_announced == n_left
            assert refuses(account.announce, n_left + 1, 300)
    weights = np.append(1.0, np.full(99, 1e-9))
    found = block.effective_rows({"X": np.zeros((100, 1)), "sample_weight": weights})
    assert found == pytest.approx(1)


DOOR = [
    (
        "rules",
        _rules,
        "n_rows < question.dataset.min_rows",
        "n_rows <= question.dataset.min_rows",
    ),
    ("rules", _rules, "n_rows < question.dataset.min_rows", "n_rows < 1"),
    (
        "rules",
        _rules,
        "n_parameters > question.dataset.max_parameters_per_row * n_rows",
        "n_parameters >= question.dataset.max_parameters_per_row * n_rows",
    ),
    (
        "rules",
        _rules,
        "n_parameters > question.dataset.max_parameters_per_row * n_rows",
        "n_parameters > n_rows",
    ),
    ("block", _block, "np.any(n_filled < question.dataset.min_rows)", "False"),
    (
        "block",
        _block,
        "n_filled < question.dataset.min_rows",
        "n_filled <= question.dataset.min_rows",
    ),
    ("block", _block, "np.any(is_small(marked, min_cell_count))", "False"),
    (
        "block",
        _block,
        "is_small(marked, min_cell_count)",
        "is_small(marked, min_cell_count + 1)",
    ),
    (
        "block",
        _block,
        "is_small(marked, min_cell_count)",
        "is_small(marked, min_cell_count - 1)",
    ),
    (
        "block",
        _block,
        "weights.sum() ** 2 / np.sum(weights**2)",
        "np.count_nonzero(weights)",
    ),
    (
        "cells",
        _small_cells,
        "len(numbers) >= FEW_VALUES or",
        "len(numbers) > FEW_VALUES or",
    ),
    ("cells", _small_cells, "len(numbers) >= FEW_VALUES or", "True or"),
    ("cells", _small_cells, "FEW_VALUES or is_grouped[column]:", "FEW_VALUES:"),
    (
        "cells",
        _small_cells,
        "(numbers < min_cell_count)",
        "(numbers <= min_cell_count)",
    ),
    (
        "cells",
        _small_cells,
        "(numbers < min_cell_count)",
        "(numbers < min_cell_count - 1)",
    ),
    ("cells", _small_cells, "block = block[w != 0]", "block = block[w == w]"),
    ("told", _account, "+ n_numbers > most", "+ n_numbers >= most"),
    ("told", _account, "+ n_numbers > most", "> most"),
    ("told", _account, "+ n_numbers > most", "+ n_numbers > most + 1"),
    ("told", _account, "if n_told + sum(", "if sum("),
    ("told", _account, 'c["announced"] for c in told', "0 for c in told"),
    ("told", _account, 'if charge["version"] == self._version]', "]"),
    (
        "told",
        _account,
        ".get(self._version, (0, 0))[1]",
        ".get(self._version, (0, 0))[0]",
    ),
]


def test_the_door_itself():
    check_door()


@pytest.mark.parametrize(("name", "module", "old", "new"), DOOR)
def test_no_mutant_of_the_door_survives(name, module, old, new):
    mutant = mutate(module, old, new)
    with pytest.raises((AssertionError, ValueError, IndexError)):
        check_door(**{name: mutant})


def test_there_are_many():
    assert len(GATE) + len(DOOR) >= 30
