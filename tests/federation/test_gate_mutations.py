"""Every threshold and comparison of the gate and the door: a mutant of each dies.

A mutant is the source of a module with one piece replaced, run in place of it. What
kills it are assertions that hold for the module itself.
"""

import ast
import sys
import types
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

from skprivbn.federation import Terms, gate
from skprivbn.federation.program import (
    ALL_ROWS,
    COUNTS,
    CountsAt,
    RowWeights,
    TooFewRows,
)
from skprivbn.federation.site import _account, _rules
from skprivbn.programs import _columns

#: the module, which has the name of a decorator
program = sys.modules["skprivbn.federation.program"]


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
    weights = parties[0] if weights is None else weights
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
        assert passes(gate, COUNTS, vector=(n, 0), limits=(99, 20)) is told
        assert passes(gate, COUNTS, vector=(-n, 0), limits=(2, 20)) is told
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
        # about few rows at one party, whatever many small ones there are at others
        sides = [np.stack([[n * 50.0], [n * 2500.0]]), np.ones((2, 1)) * 2.0]
        parties = [RowWeights(np.array([40.0]), None, sides=side) for side in sides]
        assert passes(gate, None, *parties) is (n >= 5)
        assert passes(gate, None, *parties[::-1]) is (n >= 5)
        few = RowWeights(np.array([40.0]), np.array([40.0]), sides=sides[0])
        assert passes(gate, few) is (n >= 5)
        # beside the means of sites that differ, rows have nearly the same weight
        nearly = np.array([[0.99, 0.9], [0.99**2, 0.9**2]]) @ np.diag([n - 1, 1])
        parties = [
            RowWeights(np.array([40.0]), None, sides=side)
            for side in (nearly[:, :1], nearly[:, 1:])
        ]
        assert passes(gate, None, *parties) is (n >= 5)
    # counts are exact
    assert not passes(gate, RowWeights(np.array([400.0]), None, np.array([4.7])))
    # where small counts may be told, the value of a row may not
    for n in (1, 2, 3):
        sides = np.array([[1e9 * n], [1e18 * n]])
        one = RowWeights(np.array([40.0]), None, np.array([n]), sides=sides)
        for least in (0, 1):
            assert passes(gate, one, limits=(20, least)) is (n >= 2)
            assert passes(gate, one, limits=(2, least)) is (n >= 2)
            assert passes(gate, one, limits=(1, least))
    # squares of any size, in the numbers that backends have
    for unit in (1e-13, 1e-6, 1.0, 1e6, 1e13):
        for n in (4, 5, 6):
            weights = unit * np.append(np.ones(n), np.full(300, 1e-6))
            sides = np.stack([[weights.sum()], [(weights**2).sum()]])
            some = RowWeights(np.array([40.0]), None, sides=sides)
            vector = gate.with_rows(np.zeros(2), some, 400)
            told = np.rint(np.ldexp(vector, 56))
            assert np.abs(vector).max() < 2**55
            found = gate.effective_rows(np.ldexp(told, -56), 2, some)[1]
            assert abs(found - n) < 0.01
    nobody = RowWeights(np.array([40.0]), None, sides=np.zeros((2, 1)))
    assert passes(gate, nobody)
    # few rows of one party, whatever many small ones there are at others
    one, many = np.array([[1e3], [1e6]]), np.array([[300.0], [300.0]])
    parties = [RowWeights(*np.zeros((2, 0)), sides=side) for side in (one, many)]
    assert not passes(gate, None, *parties)
    for size in (1e-9, 1e-300):
        lone = RowWeights(*np.zeros((2, 0)), sides=np.array([[size], [size**2]]))
        assert not passes(gate, lone)
    assert passes(gate, RowWeights.of(np.zeros(9)))
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
    of_pairs = gate.kish(gate.rows_of_pairs(d, w)).round(2).tolist()
    assert of_pairs == [3, 5, 0, 92, 9.45, 3.19]
    other = np.column_stack([d[:, 0], d[:, 1] + np.arange(100)])
    assert gate.count_values(other).tolist() == [2, 4]
    assert gate.count_values(np.where(other > 50, np.nan, d)).tolist() == [2, 2]
    late = np.where(np.arange(300) < 250, 0, np.arange(300) % 3).astype(float)
    assert gate.count_values(late[:, None]).tolist() == [3]
    assert gate.count_values((late + np.arange(300) // 298 * 2)[:, None]) == 4
    last = np.where(np.arange(300) < 250, np.arange(300) % 3, 7.0)
    assert gate.count_values(last[:, None]).tolist() == [4]
    zeros = np.repeat([0.0, -0.0, 1.0, 2.0], [3, 3, 60, 60])[:, None]
    sums = gate.rows_of_values(zeros, np.ones(126), gate.count_values(zeros))
    assert passes(gate, RowWeights(np.array([400.0]), None, gate.kish(sums)))
    for values in ((0.0, 1.0, 2.0), (5.0, -3.0, 0.25), (1e9, 0.0, -0.0)):
        for n in (4, 5, 6):
            x = np.repeat(values, [n, 60, 60])[:, None]
            x = np.vstack([x, [[np.nan]]])
            sums = gate.rows_of_values(x, np.full(len(x), 2.0), gate.count_values(x))
            cells = RowWeights(np.array([400.0]), None, gate.kish(sums))
            assert passes(gate, cells) is (n >= 5)
            assert len(cells.cells) == 64
            parts = [x[k::2] for k in range(2)]
            found = [gate.rows_of_values(y, np.ones(len(y)), np.ones(1)) for y in parts]
            whole = gate.rows_of_values(x, np.ones(len(x)), np.ones(1))
            np.testing.assert_array_equal(sum(found), whole)
    assert not gate.rows_of_values(x, np.ones(len(x)), np.full(1, 4)).any()
    assert gate.rows_of_values(x, np.ones(len(x)), np.full(1, 3)).any()
    assert gate.rows_of_values(x[:, 0:1] * 0, np.ones(len(x)), np.ones(1)).any()
    groups = np.repeat([0, 2], [7, 3])
    marks = np.column_stack([2 * np.ones(10), -np.ones(10), np.arange(10) == 8])
    found = gate.kish(gate.rows_by_group(marks, groups, 3)).tolist()
    assert found == [7, 0, 3, 0, 0, 0, 0, 0, 1]
    for n in (4, 5):
        own = np.column_stack([np.arange(99) < n, np.arange(99) % 2]).astype(float)
        for columns in (own[:, :1], own[::-1]):
            try:
                gate.check_cells(columns, 20, 5)
                assert n == 5 and columns.shape[1] == 1
            except TooFewRows:
                assert n == 4 or columns.shape[1] == 2
    gate.check_cells(own[:, :1] * 0, 20, 5)
    gate.check_cells(own, 1, 1)
    for n in (1, 2, 3):
        few = (np.arange(99) < n)[:, None] * 7.0
        gate.check_cells(few, 1, 0)
        try:
            gate.check_cells(few, 20, 1)
            assert n >= 2
        except TooFewRows:
            assert n == 1
    pairs = np.repeat([[1.0, 1], [1, 0], [0, 1], [0, 0]], [3, 30, 30, 30], axis=0)
    three = np.repeat([[1.0], [2.0], [3.0]], [40, 3, 40], axis=0)
    for columns in (pairs, three):
        try:
            gate.check_cells(columns, 20, 5)
            raise AssertionError("three rows passed")
        except TooFewRows:
            pass
    # signs are looked at in columns of few values; in others, products as a whole
    assert np.flatnonzero(gate.rows_of_pairs(other, w)[0]).tolist() == [0, 4, 5]
    by_sign = gate.rows_of_pairs(other, w, np.ones(2, dtype=bool))
    assert np.count_nonzero(by_sign[0]) == 4
    product, *_ = gate.kish(gate.rows_of_pairs(other, w))
    sizes = np.abs(other[:, 0] * other[:, 1])
    np.testing.assert_allclose(product, sizes.sum() ** 2 / (sizes**2).sum())
    apart = np.append(np.tile([[1.0], [-1.0]], (50, 1)), [[30.0]], axis=0)
    sizes = gate.kish(gate.rows_of_sizes(apart, np.ones(101)))
    np.testing.assert_allclose(sizes, 130**2 / 1000)
    heavy = np.where(np.arange(100) == 0, 1e6, 1.0)
    assert gate.kish(gate.rows_beside(d, heavy))[0] < 1.1
    assert gate.kish(gate.rows_of_pairs(d, heavy))[0] < 1.1
    gaps = np.where(np.arange(100)[:, None] < 3, np.nan, d)
    assert gate.kish(gate.rows_beside(gaps, w)).round(9).tolist() == [5, 0, 92, 97]
    spikes = np.array([[0, 5.0, 1], [0, 5, 2], [0, 6, 2], [3, 6, 2], [4, np.nan, 9]])
    np.testing.assert_array_equal(gate.common_values(spikes), [0, np.nan, 2])
    assert gate.centres_of_pairs(spikes, np.full(3, 8.0))[0].tolist() == [0, 8, 2]
    assert gate.centres_of_pairs(spikes[:, [1, 2]], np.zeros(2))[1].all()
    centres, counted = gate.centres_of_pairs(np.arange(9.0)[:, None], np.zeros(1))
    assert (centres.tolist(), counted.tolist()) == ([0], [False])


GATE = [
    ("(2 * n_equal > n_rows, value", "(2 * n_equal >= n_rows, value"),
    ("(2 * n_equal > n_rows, value", "(1.5 * n_equal > n_rows, value"),
    ("middle = len(known) // 2", "middle = 0"),
    ("has_centre = ~are_two & ~", "has_centre = are_two & ~"),
    ("np.where(has_centre, common, mean)", "np.where(are_two, mean, common)"),
    ("are_two | has_centre", "are_two"),
    ("are_two | has_centre", "has_centre"),
    ("if weights is COUNTS or isinstance", "if weights is not None or isinstance"),
    ("np.asarray(n_rows, dtype=vector.dtype)", "np.ones(1, dtype=vector.dtype)"),
    ("_ABOVE, _BELOW = 2.0**56", "_ABOVE, _BELOW = 2.0**20"),
    ("= 2.0**56, 2.0**-45", "= 2.0**56, 1.0"),
    ("_at_least(_STEP, total, squares / _UNIT)", "_at_least(_STEP, total, squares)"),
    ("_at_least(_STEP, total, squares / _UNIT)", "squares / _UNIT"),
    ("np.maximum(squares, step)", "squares"),
    ("_at_least(_BELOW / _ABOVE, sides,", "_at_least(1.0, sides,"),
    ("sides, whole / _ABOVE, (squares", "sides, 0 * whole, (squares"),
    ("/ _ABOVE, (squares - whole)", "/ _ABOVE, 0 * (squares - whole)"),
    ("rows * _UNIT, squares * _UNIT", "rows, squares"),
    ("above * _ABOVE + below", "below"),
    ("_ABOVE + below * _BELOW", "_ABOVE"),
    ("np.where(sums > 0, np.maximum", "np.where(sums > 1e-6, np.maximum"),
    ("np.where(sums > 0, np.maximum", "np.where(sums >= 0, np.maximum"),
    ("[vector, weights.cells,", "[vector, 0 * weights.cells,"),
    ("*told, sides, whole", "*told, 0 * sides, whole"),
    ("sides = _some_rows(sums,", "sides = 99 + _some_rows(sums,"),
    ("0 if weights.squares is None", "0 if weights.squares is not None"),
    ("min_cell_count if weights is COUNTS else min_rows,", "min_rows - 1,"),
    (
        "min_cell_count if weights is COUNTS else min_rows,",
        "min_cell_count if weights is COUNTS else min_rows + 1,",
    ),
    ("min_cell_count if weights is COUNTS else min_rows,", "min_rows,"),
    ("min_cell_count if weights is COUNTS else min_rows,", "min_cell_count,"),
    ("max(min_cell_count, min(min_rows, 2))", "min_cell_count"),
    ("max(min_cell_count, min(min_rows, 2))", "max(min_cell_count, 2)"),
    ("max(min_cell_count, min(min_rows, 2))", "max(min_cell_count, min_rows)"),
    ("max(min_cell_count, min(min_rows, 2))", "max(min_cell_count, min(min_rows, 3))"),
    ("max(min_cell_count, min(min_rows, 2))", "min(min_rows, 2)"),
    ("= fewest - _NEARLY", "= fewest"),
    ("= fewest - _NEARLY", "= fewest - 1"),
    ("weights.total.size + weights.cells.size :]", "weights.total.size :]"),
    ("_NEARLY = 1e-6, 0.5", "_NEARLY = 1e-6, 1.5"),
    ("weights.total.size :] = min_cell_count", "weights.total.size :] = min_rows"),
    (
        "weights.total.size :] = min_cell_count",
        "weights.total.size :] = min_cell_count - 1",
    ),
    ("least[weights.total.size :]", "least[-weights.total.size :]"),
    ("return (rows > 0) &", "return (rows > 1) &"),
    ("return (rows > 0) &", "return (rows >= 0) &"),
    ("(rows < least - _SLACK)", "(rows <= least)"),
    ("(rows < least - _SLACK)", "(rows < least - 1)"),
    ("(rows < least - _SLACK)", "(rows < least / 2)"),
    ("& (np.asarray(least) > 1)", "& (least > 0)"),
    ("& (np.asarray(least) > 1)", "& (least > 5)"),
    ("& (np.asarray(least) > 1)", "& (least > 2)"),
    ("if np.any(few):", "if np.all(few):"),
    ("if is_few))", "if not is_few))"),
    ("return total[:n_values]", "return total"),
    ("return np.abs(total[:n_values]).astype", "return total[:n_values].astype"),
    (
        "np.abs(total[:n_values][weights.positions])",
        "(total[:n_values][weights.positions])",
    ),
    ("rows = kish(np.stack([sums, squares]))", "rows = sums"),
    (
        "np.maximum(rows, np.finfo(np.float64).tiny), 0.0)",
        "np.where(rows > 0, 99, 99), 0.0)",
    ),
    ("concatenate([rows, cells, s", "concatenate([rows, 99 + cells, s"),
    ("parts.sum(axis=0), np.einsum(", "parts.max(axis=0), np.einsum("),
    ("roots, sums = np.sqrt(weights)", "roots, sums = np.ones(len(weights))"),
    ("(side**power for side in _sides", "(side for side in _sides"),
    ("np.outer(counted, counted)", "np.outer(counted, counted) | True"),
    ("np.outer(counted, counted)", "np.outer(counted, counted) & False"),
    ("np.where(by_sign, 0.0, sizes)", "np.where(by_sign, 0.0, 0.0)"),
    ("np.where(by_sign, 0.0, sizes)", "sizes"),
    ("np.diag(sizes)]", "np.diag(sizes * 0)]"),
    ("sizes = sum(signs)", "sizes = sum(signs[:3])"),
    (
        "sizes = sum(_sides(deviations, weights))",
        "sizes = _sides(deviations, weights)[0]",
    ),
    ("sizes.sum(axis=0), np", "sizes.max(axis=0), np"),
    ("if len(values) <= FEW_VALUES:", "if len(values) < FEW_VALUES:"),
    ("(column[:_FIRST], column[_FIRST:])", "(column[:_FIRST],)"),
    ("part[~np.isnan(part)]", "part"),
    ("min(len(values), FEW_VALUES + 1)", "min(len(values), FEW_VALUES)"),
    ("\nFEW_VALUES = 3", "\nFEW_VALUES = 2"),
    ("\nFEW_VALUES = 3", "\nFEW_VALUES = 4"),
    ("\nN_PARTITIONS = 32", "\nN_PARTITIONS = 2"),
    ("(n_values <= FEW_VALUES)", "(n_values < FEW_VALUES)"),
    ("(n_values <= FEW_VALUES)", "(n_values <= FEW_VALUES + 1)"),
    ("known = ~np.isnan(rows)\n", "known = rows == rows[0]\n"),
    ("np.where(known, rows, 0.0) + 0.0", "np.where(known, rows, 0.0)"),
    ("for value in (0, 1)]", "for value in (0, 0)]"),
    ("(bits >> np.uint64(k)) & np.uint64(1)", "(bits >> np.uint64(0)) & np.uint64(1)"),
    ("np.maximum(marks, 0.0).T", "np.abs(marks).T"),
    ("column**power, n_groups) for power", "column, n_groups) for power"),
    ("(n_rows, _fewest(min_rows, min_cell_count))", "(n_rows, 9)"),
    ("(n_rows, _fewest(min_rows, min_cell_count))", "(n_rows, min_cell_count)"),
    ("(n_rows, _fewest(min_rows, min_cell_count))", "(n_rows, min(min_rows, 2))"),
    ("if few.any():", "if few.all():"),
    ("    cells.append(rows_of_values(", "    (rows_of_values("),
    (
        "    cells.append(rows_of_pairs(rows - centres, ones, counted))\n",
        "",
    ),
    ("for power in (1, 2):", "for power in (1, 1):"),
    ("np.maximum(known, 0.0), np.maximum(-known, 0.0)", "np.abs(known), np.abs(known)"),
    (
        "np.where(np.isnan(deviations), 0.0, deviations)",
        "np.nan_to_num(deviations, nan=1.0)",
    ),
    ("np.divide(totals**2, squares", "np.divide(totals, squares"),
]


def test_the_gate_itself():
    check_gate(gate)


@pytest.mark.parametrize(("old", "new"), GATE)
def test_no_mutant_of_the_gate_survives(old, new):
    mutant = mutate(gate, old, new)
    with pytest.raises((AssertionError, TooFewRows, ValueError, IndexError)):
        check_gate(mutant)


def refuses(call, *arguments, code=False):
    """Tell whether something is refused, or with which code."""
    try:
        call(*arguments)
    except Exception as error:
        # classes of a mutant are its own
        if type(error).__name__ not in ("PartyRefusal", "BudgetExceededError"):
            raise
        return error.code if code else True
    return None if code else False


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


class Site(types.SimpleNamespace):
    """What rules know of a question; anything is allowed unless said otherwise."""

    dataset = types.SimpleNamespace(
        allow_rows=False,
        individual=None,
        estimators={
            "A": types.SimpleNamespace(load=lambda: StandardScaler),
            "C": types.SimpleNamespace(load=lambda: GaussianMixture),
        },
        backends={"masking": 1},
        limits={"min_rows": 20, "min_cell_count": 5},
        presets={},
        min_parties=3,
    )
    n_parties, noise = 3, None
    shows, joins, weak, models, protects = False, False, False, (), "rows"
    X, steps, backend, individual, min_rows = "ab", [], None, None, 20

    @property
    def agreement(self):
        return types.SimpleNamespace(
            backend=self.backend,
            roster=("a", "b"),
            data={
                "X": {"a": ["x"], "b": ["x"] if self.X == "ab" else ["y"]},
                "steps": self.steps,
                "aligned": {"individual": self.individual},
            },
        )

    @cached_property
    def terms(self):
        terms = types.SimpleNamespace(
            for_tests_only=lambda: self.weak,
            joins_columns=lambda: self.joins,
            shows_rows=lambda: self.shows,
            models=lambda: self.models,
            protects=self.protects,
        )
        terms.raised_to = lambda limits: (
            terms if limits["min_rows"] <= self.min_rows else "other terms"
        )
        return terms


def noise(min_honest):
    return types.SimpleNamespace(min_honest=min_honest)


def with_individual(**changes):
    known = types.SimpleNamespace(**vars(Site.dataset) | {"individual": "who"})
    return Site(dataset=known, noise=noise(2), **changes)


def check_rules(rules):
    """Hold for the rules of a site."""

    def allows(question):
        return not refuses(rules.check_question, question)

    assert allows(Site())
    for n in (2, 3, 4):
        assert allows(Site(n_parties=n)) is (n >= 3)
    for n_honest in (1, 2, 3):
        assert allows(Site(noise=noise(n_honest))) is (n_honest <= 2)
    for least in (19, 20, 21):
        assert allows(Site(min_rows=least)) is (least >= 20)
    assert not allows(Site(weak=True))
    assert not allows(Site(shows=True))
    known = types.SimpleNamespace(**vars(Site.dataset) | {"allow_rows": True})
    assert allows(Site(shows=True, dataset=known))
    assert not allows(Site(X="other"))
    assert allows(Site(X="other", joins=True))
    for name in "AB":
        assert allows(Site(models=({"estimator": name},))) is (name == "A")
        assert allows(Site(steps=[{"estimator": name}])) is (name == "A")
    assert allows(Site(models=({"estimator": "C"},)))
    assert not allows(Site(steps=[{"estimator": "C"}]))
    unknown = Site(steps=[{"estimator": "B"}])
    assert refuses(rules.check_question, unknown, code=True) == "not-allowed"
    other = Site(backend={"name": "plaintext", "parameters": {}})
    assert refuses(rules.check_question, other, code=True) == "not-allowed"
    assert not allows(with_individual())
    assert not allows(with_individual(individual="who"))
    assert not allows(with_individual(protects="individuals"))
    assert allows(with_individual(individual="who", protects="individuals"))


RULES = [
    ("return backend is None or backend", "return True or backend"),
    ("return not question.terms.for_tests_only()", "return True"),
    ("or all(x == lists[0] for x in lists)", "or any(x == lists[0] for x in lists)"),
    ("question.terms.joins_columns() or all", "all"),
    ("question.dataset.allow_rows or not", "not question.dataset.allow_rows or not"),
    ("or not question.terms.shows_rows()", "or question.terms.shows_rows()"),
    ("for model in [*models, *steps]", "for model in models"),
    ("for model in [*models, *steps]", "for model in steps"),
    ("return named and all(", "return named or all("),
    ("is question.terms\n", "is not None\n"),
    ("question.n_parties >= question", "question.n_parties > question"),
    ("question.n_parties >= question.dataset.min_parties", "True"),
    ("<= question.n_parties + 1", "<= question.n_parties"),
    ("<= question.n_parties + 1", "<= question.n_parties + 3"),
    ("return named and question", "return named or question"),
    ('question.terms.protects == "individuals"', "True"),
    ("if allows(question):", "if True:"),
]


@pytest.mark.parametrize(("old", "new"), RULES)
def test_no_mutant_of_the_rules_survives(old, new):
    mutant = mutate(_rules, old, new)
    with pytest.raises((AssertionError, TypeError)):
        check_rules(mutant)


def test_the_rules_themselves():
    check_rules(_rules)


def me_of(module, n_filled, limit=20):
    """Return a party of which some rows have a value of the second column."""
    X = np.ones((400, 2))
    X[n_filled:, 1] = np.nan
    return module.Me({"X": X}, Terms(), "a", ("a", "b"), own_min_rows=limit)


def check_door(program=program, told=_account, columns=_columns):
    """Hold for the door of a site."""
    for n in (19, 20, 21):
        few = refuses(lambda n=n: me_of(program, n).numbers(gaps=True), code=True)
        assert few == ("too-few-rows" if n < 20 else None)
        assert not refuses(lambda n=n: me_of(program, n, 1).numbers(gaps=True))
    for n in (19, 20):
        me = types.SimpleNamespace(min_rows=20, is_simulated=False)
        assert refuses(columns.check_table, me, 2, n) is (n < 20)
        assert refuses(columns.check_table, me, n + 1, n)
        assert refuses(columns.check_table, me, n, n) is (n < 20)
        free = types.SimpleNamespace(min_rows=1, is_simulated=True)
        assert not refuses(columns.check_table, free, 99, n)
    for n_told in (0, 100):
        for n_set_aside in (0, 50):
            account = account_of(told, n_told, n_set_aside)
            n_left = 300 - n_told - n_set_aside
            assert not refuses(account.announce, n_left, 300)
            assert account._n_announced == n_left
            assert refuses(account.announce, n_left + 1, 300)


DOOR = [
    (
        "program",
        program,
        "n_filled < self.own_min_rows",
        "n_filled <= self.own_min_rows",
    ),
    ("program", program, "n_filled < self.own_min_rows", "n_filled < 1"),
    (
        "program",
        program,
        "if gaps and strict and self.own",
        "if strict and not self.own",
    ),
    ("columns", _columns, "me.min_rows <= max(1, n_records)", "True"),
    (
        "columns",
        _columns,
        "me.min_rows <= max(1, n_records)",
        "me.min_rows < max(1, n_records)",
    ),
    ("columns", _columns, "or n_cells <= n_records", "or n_cells < n_records"),
    ("columns", _columns, "or n_cells <= n_records", "or n_cells <= n_records + 1"),
    ("columns", _columns, "me.is_simulated or n_cells", "n_cells"),
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
    assert len(GATE) + len(RULES) + len(DOOR) >= 90
