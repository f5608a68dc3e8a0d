"""Every threshold and comparison of the gate: a mutant of each dies.

A mutant is the source of a module with one piece replaced, run in place of it. What
kills it are assertions that hold for the module itself.
"""

import ast
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from skprivbn.federation import Terms, gate
from skprivbn.federation.program import (
    ALL_ROWS,
    COUNTS,
    CountsAt,
    Me,
    PartyRefusal,
    RowWeights,
    TooFewRows,
)


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


def shares(gate, *arguments):
    """Return which columns are refused, in one text; none is empty."""
    me, rows, *rest = arguments
    try:
        gate.check_shares(me, [rows[:1], rows[1:]], *rest)
    except PartyRefusal as refusal:
        return "".join(map(str, refusal.columns))
    return ""


def alone(gate, me, rows, *columns):
    """Return which columns are refused, if own rows are, as far as they are named."""
    try:
        gate.check_alone(me, rows, *columns)
    except PartyRefusal as refusal:
        return list(refusal.columns)
    return None


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
    # so are small weights, and those of equal rows count in full
    for size, n in ((1e-9, 1), (1e-3, 19), (1e-3, 20), (0.1, 23)):
        equal = RowWeights.of(np.full(n, size))
        told = np.rint(np.ldexp(gate.with_rows(np.zeros(2), equal, n), 56))
        found = gate.effective_rows(np.ldexp(told, -56), 2, equal)
        assert 0 < found < 1.1 * n
    assert not passes(gate, RowWeights.of(np.append(np.ones(19), 0.75)))
    for most in (1.0, 1 - 1e-9):
        assert not gate.are_few(np.array([20 * most]), 20).any()
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
    three = np.column_stack([d[:, 0], np.arange(100) % 3])
    assert np.count_nonzero(gate.rows_of_pairs(three, w)[0]) == 3
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
    # wherever the mean is; and beside a value that most rows have
    row = np.arange(99)
    for n in (4, 5):
        far = np.where(row < n, 100, np.where(row >= 94, -20 * n, row % 7 * 1e-4))
        sizes = np.column_stack([np.where(row < 10, 0.5, 9 + row % 7), 9 + row % 7])
        both = np.stack([row < 30, (row < n) | (row > 70)], axis=1) * sizes
        both[:n] = 0.5, 9.0
        for columns in (far[:, None] + 1000.0, both):
            try:
                gate.check_cells(columns, 20, 5)
                assert n == 5
            except TooFewRows:
                assert n == 4
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
    # one row along columns, along their difference, and of squares alone
    me = Me({}, Terms(), "a", ("a", "b"), min_rows=20, min_cell_count=5)
    for limits, most in ((me, 4.5**-0.5), (replace(me, min_cell_count=1), 1.5**-0.5)):
        for off in (-1e-6, 1e-6):
            for size, way in ((1, [1, 0]), (2, [0, -1]), (1, [0.5**0.5, -(0.5**0.5)])):
                rows = np.stack(
                    [[0.1, 0.0], size * np.sqrt(most + off) * np.array(way)]
                )
                products = size**2 * np.eye(2)
                assert bool(shares(gate, limits, rows, products)) is (off > 0)
                if 0 in way:
                    squares = np.diag(products)
                    assert bool(shares(gate, limits, rows, squares)) is (off > 0)
        assert not shares(gate, limits, rows, np.ones(2))
        assert not shares(gate, replace(limits, is_simulated=True), rows, products)
    assert not shares(gate, replace(me, min_rows=1, min_cell_count=0), rows, products)
    X = np.repeat(np.arange(50.0) % 7, 2)[:, None] ** [1, 2, 1]
    assert not shares(gate, me, X, X.T @ X)
    X[9, 2] += 1e-3
    assert shares(gate, me, X, X.T @ X) == "02"
    assert shares(gate, me, X, X.T @ X, (None, "x", "y")) == "y"
    assert shares(gate, me, X, X.T @ X, (None, "x", ("z", "y"))) == "yz"
    # the same of own rows, whatever their mean; of single columns, few values
    own = np.random.default_rng(0).normal(size=(60, 1))
    alike = np.hstack([own, own + 1e3])
    assert not alone(gate, me, alike)
    alike[9, 1] += 3.0
    assert alone(gate, me, alike) == [0, 1]
    assert alone(gate, me, alike, ("x", "y")) == ["x", "y"]
    assert alone(gate, me, np.eye(60)[:, :2]) == []


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
    ("if is_few)", "if not is_few)"),
    ("c if isinstance(c, tuple) else (c,) for c in columns", "(c,) for c in columns"),
    ("check_cells(rows, me.min_rows, me.min_cell_count)", "pass"),
    ("deviations = rows - rows.mean(axis=0)", "deviations = rows"),
    ("deviations.T @ deviations, columns", "np.eye(rows.shape[1]) * 1e9, columns"),
    ("deviations.T @ deviations, columns", "deviations.T @ deviations"),
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
    ("roots, sums = np.sqrt(weights)", "roots, sums = np.ones(len(weights))"),
    ("(side**power for side in _sides", "(side for side in _sides"),
    ("np.outer(counted, counted)", "np.outer(counted, counted) | True"),
    ("np.outer(counted, counted)", "np.outer(counted, counted) & False"),
    ("np.where(by_sign, 0.0, sizes)", "np.where(by_sign, 0.0, 0.0)"),
    ("np.where(by_sign, 0.0, sizes)", "sizes"),
    ("np.diag(sizes)]", "np.diag(sizes * 0)]"),
    ("sizes = sum(signs)", "sizes = sum(signs[:3])"),
    (
        "_add_up(sum(_sides(deviations, weights)))",
        "_add_up(_sides(deviations, weights)[0])",
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
    ("_UNIT, _STEP = 2.0**14, 2.0**-24", "_UNIT, _STEP = 2.0**14, 2.0**-60"),
    ("_UNIT, _STEP = 2.0**14, 2.0**-24", "_UNIT, _STEP = 2.0**14, 2.0**-10"),
    ("_UNIT, _STEP = 2.0**14, 2.0**-24", "_UNIT, _STEP = 2.0**40, 2.0**-24"),
    ("_SLACK, _NEARLY = 1e-6, 0.5", "_SLACK, _NEARLY = 0.1, 0.5"),
    ("_SLACK, _NEARLY = 1e-6, 0.5", "_SLACK, _NEARLY = 0.0, 0.5"),
    ("\nN_PARTITIONS = 32", "\nN_PARTITIONS = 8"),
    ("np.where(squares > 0, np.maximum(rows", "np.where(rows > 0, np.maximum(rows"),
    ("np.sum(rows == value, axis=0)", "np.sum(rows >= value, axis=0)"),
    ("(rows - centres, ones, counted)", "(rows - mean, ones, counted)"),
    ("rows_beside(rows - mean, ones)", "rows_beside(rows, ones)"),
    ("cells[0] += np.where", "cells[1] += np.where"),
    ("= 2.0**56, 2.0**-45", "= 2.0**56, 2.0**-10"),
    ("= 2.0**56, 2.0**-45", "= 2.0**90, 2.0**-45"),
    ("count_values(deviations) <= 2", "count_values(deviations) <= 3"),
    ("common_values(rows), count_values(rows) <= 2", "common_values(rows), False"),
    ("if me.is_simulated:", "if False:"),
    ("squares, add = np.diag(products), np.sum", "squares = np.diag(products)"),
    ("squares, add = products, np.max", "squares, add = products, np.sum"),
    ("turn @ products @ turn", "products"),
    ("_ROUNDED = 2.0**-40", "_ROUNDED = 2.0**-10"),
    ("_ROUNDED = 2.0**-40", "_ROUNDED = 0.0"),
    ("(fewest - _NEARLY) <= 1", "fewest <= 1"),
    ("(fewest - _NEARLY) <= 1", "(fewest - _NEARLY) <= 1.1"),
    ("if np.all(shares**2", "if np.any(shares**2"),
    ("shares**2 * (fewest", "shares * (fewest"),
    ("2 * parts > parts.max()", "2 * parts >= 0"),
]


def test_the_gate_itself():
    check_gate(gate)


@pytest.mark.parametrize(("old", "new"), GATE)
def test_no_mutant_of_the_gate_survives(old, new):
    mutant = mutate(gate, old, new)
    with pytest.raises(
        (AssertionError, TooFewRows, ValueError, IndexError, RuntimeWarning)
    ):
        check_gate(mutant)


def test_there_are_many():
    assert len(GATE) >= 110
