"""Before noise, what is computed of a row has the same bits whatever the others are.

For every estimator with ``epsilon``: what one row adds to the numbers that noise hides
is compared, as integers, between the row alone, in a batch, beside odd rows, in tables
of other types, at a party that has no other row, and with persons. For every
transformer that may stand before such an estimator: the bits of what it makes of a row.
"""

from functools import cache
from importlib import import_module
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone

from skprivbn.federation._models import describe_model, rebuild_model
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.partition import HorizontalPartition
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedOneHotEncoder,
    FederatedOrdinalEncoder,
    FederatedPCA,
    FederatedSimpleImputer,
    FederatedStandardScaler,
)
from skprivbn.privacy import DistributedNoise
from skprivbn.privacy._options import apply_step
from skprivbn.structure import (
    FederatedBayesianNetwork,
    FederatedFCI,
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    PrivateK2StructureLearner,
)
from skprivbn.structure.k2._shared_search import SharedK2
from skprivbn.utils._validation import read_numbers
from tests.estimators import public_estimators
from tests.privacy.attacks import Description, exact_structure, search
from tests.privacy.before_noise import exact_cost, numbers_before_noise, watch_fit
from tests.privacy.toys import mixed_model

NOISE = {"epsilon": 1.0, "bounds": (-1.0, 1.0)}
STATES = {"epsilon": 1.0, "states": {"x0": ["a", "b"], "x1": [0, 1, 2]}}


def mixture(kind, **options):
    return PPEMGaussianMixture(
        2, covariance_type=kind, max_iter=1, random_state=0, **NOISE, **options
    )


#: every estimator with epsilon, in all its ways to compute something of rows
OF_NUMBERS = {
    "FederatedStandardScaler": FederatedStandardScaler(**NOISE),
    "FederatedStandardScaler, means": FederatedStandardScaler(with_std=False, **NOISE),
    "FederatedPCA": FederatedPCA(**NOISE),
    "FederatedKBinsDiscretizer": FederatedKBinsDiscretizer(3, **NOISE),
    "FederatedSimpleImputer": FederatedSimpleImputer(**NOISE),
    "FederatedSimpleImputer, median": FederatedSimpleImputer(
        strategy="median", **NOISE
    ),
    "FederatedGaussianBayesianNetwork": FederatedGaussianBayesianNetwork(
        "bic", **NOISE
    ),
    "FederatedFCI": FederatedFCI(**NOISE),
    "FederatedNotearsADMM": FederatedNotearsADMM(max_iter=2, random_state=0, **NOISE),
    **{
        f"PPEMGaussianMixture, {kind}, {missing}": mixture(kind, missing=missing)
        for kind in ("full", "tied", "diag", "spherical")
        for missing in ("auto", "em")
    },
    "PrivateGLMMRegressor": mixed_model(**NOISE),
    "describe": Description(1.0, states={}),
}
OF_LABELS = {
    **{
        f"DPCGMLearner, {cliques}": DPCGMLearner(
            cliques, method_params={"max_iter": 3}, **STATES
        )
        for cliques in ("chain", "mst")
    },
    "DPCGMLearner, psgd": DPCGMLearner(
        "chain",
        method="psgd",
        delta=1e-6,
        # all rows in every batch: coins could not be thrown again
        method_params={"sampling_rate": 1.0, "n_steps": 2, "clip": 0.5},
        **STATES,
    ),
    "DPCGMLearner, skip": DPCGMLearner(
        "chain", missing="skip", method_params={"max_iter": 3}, **STATES
    ),
    "FederatedBayesianNetwork": FederatedBayesianNetwork(max_parents=1, **STATES),
    "FederatedSimpleImputer, labels": FederatedSimpleImputer(
        strategy="most_frequent", categories=[["a", "b"], [0, 1, 2]], epsilon=1.0
    ),
    # rows with a 1 at the end are scored, all others learnt from
    "PrivateSearchCV": search(
        DPCGMLearner("chain", method="naive", method_params={"max_iter": 3}, **STATES),
        scoring=None,
    ).set_params(score_bounds=(-9.0, 0.0)),
    "describe, labels": Description(1.0, states={"x0": ["a", "b"], "x1": [0, 1, 2]}),
}
#: has records, whose number is public, and is looked at below
ELSEWHERE = {"PrivateK2StructureLearner"}


def test_every_estimator_with_epsilon_is_here():
    found = {
        type(estimator).__name__
        for estimator in public_estimators()
        if "epsilon" in estimator.get_params(deep=False)
    }
    cases = {name.split(",")[0] for name in (*OF_NUMBERS, *OF_LABELS)} | ELSEWHERE
    assert cases - {"describe"} == found


def on_edges(n):
    """Return rows at the edges of cells, and halfway between two integers.

    The slightest other rounding puts them elsewhere. float32 holds them exactly.
    """
    rng = np.random.default_rng(0)
    cells = rng.integers(-128, 129, (n, 2)) / 128
    ties = (rng.integers(-(2**15), 2**15, (n, 2)) + 0.5) / 2**15
    return np.where(rng.uniform(size=(n, 2)) < 0.5, cells, ties)


def table_of(rows):
    """Return rows as an array of objects, whatever is in them."""
    table = np.empty((len(rows), 2), dtype=object)
    for i, row in enumerate(rows):
        table[i, 0], table[i, 1] = row
    return table


def frame_of(rows):
    """Return rows as a dataframe, whose columns have types of their own."""
    columns = list(zip(*rows)) or [[], []]
    return pd.DataFrame({f"x{j}": list(column) for j, column in enumerate(columns)})


def plainest(rows):
    """Return an array of the plainest type that holds all rows."""
    try:
        array = np.array(rows, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        return table_of(rows)
    is_none = any(value is None for row in rows for value in row)
    return table_of(rows) if is_none else array.reshape(-1, 2)


def single_precision(rows):
    """Return float32, if that holds all rows."""
    array = plainest(rows)
    return array.astype(np.float32) if array.dtype.kind == "f" else array


BATCH = on_edges(67).tolist()
NUMBERS_BESIDE = {
    "a batch": BATCH,
    "a long batch": on_edges(300).tolist(),
    "text": [*BATCH[:9], ["unknown", 0.5]],
    "None": [*BATCH[:9], [None, 0.5]],
    "NaN": [*BATCH[:9], [np.nan, np.nan]],
    "infinity": [*BATCH[:9], [np.inf, -np.inf]],
    "huge": [*BATCH[:9], [1e308, -1e308]],
    "beyond floats": [*BATCH[:9], [10**400, 0.5]],
    "a complex number": [*BATCH[:9], [1j, 0.5]],
    "whole numbers": [[1, 0], [0, -1]],
}
ROWS = {
    "inside": [0.3, -0.7],
    "at edges": [0.5, 1.5 / 2**15],
    "far": [1.0, -1.0],
    "half missing": [0.25, np.nan],
    "outside": [np.inf, 1e300],
}
LABELS_BESIDE = {
    "a batch": [["a", 0], ["b", 1], ["a", 2], ["b", 1]] * 9,
    "unknown labels": [["a", 0], ["b", 1], ["c", 7]],
    "text": [["a", 0], ["b", 1], ["a", "x"]],
    "gaps": [["a", 0], [None, np.nan]],
    "numbers": [["a", 0], ["b", 1.0], [3, 0.5]],
    "lists": [["a", 0], [["a"], {}]],
    "infinity": [["a", 0], ["b", np.inf]],
    "single precision": [["a", np.float32(0)], ["b", np.float32(0.1)]],
}
LABELS = {"learnt": ["a", 0], "scored": ["b", 1], "unknown": ["c", 7]}
TABLES = {
    "array": plainest,
    "float32": single_precision,
    "objects": table_of,
    "frame": frame_of,
    "columns next to each other": lambda rows: np.asfortranarray(plainest(rows)),
}


class Additive:
    """What rows add to the numbers before noise, given the same noisy answers.

    Parameters
    ----------
    estimator : estimator
    rows : list
        Those whose noisy answers are repeated in all fits.
    table : callable
        From a list of rows to a table.
    who : callable, default=None
        From a number of rows to what goes beside them.
    n_parties : int, default=1
    """

    def __init__(self, estimator, rows, table, who=None, n_parties=1):
        self.estimator, self.table, self.n_parties = estimator, table, n_parties
        self.who = who or (lambda n: {})
        self.answers = watch_fit(
            estimator, table(rows), self.who(len(rows)), n_parties=n_parties
        )

    def numbers(self, rows, table=None, beside=None):
        """Return the numbers before noise of some rows."""
        return numbers_before_noise(
            self.estimator,
            (table or self.table)(rows),
            self.who(len(rows)) if beside is None else beside,
            answers=self.answers,
            n_parties=self.n_parties,
        )

    def added(self, others, rows, table=None):
        """Return what some rows add together to those of others."""
        with_rows = self.numbers([*others, *rows], table)
        return with_rows - self.numbers(others, table)

    def alone(self, rows, others=()):
        """Return what each of them adds by itself, added up."""
        nobody = self.numbers([*others])
        return sum(self.numbers([*others, row]) - nobody for row in rows)

    def assert_alike(self, one, other):
        """Compare, but for the rounding of sums that noise is calibrated for."""
        slack = 0
        if isinstance(self.estimator, PPEMGaussianMixture):
            slack = 1 + len(ROWS)  # a rounded sum with all rows, and with each alone
        assert np.abs(one - other).max() <= slack


@cache
def additive(name):
    """Return an estimator of numbers, and what rows add to its sums alone."""
    found = Additive(OF_NUMBERS[name], BATCH, plainest)
    return found, found.alone(ROWS.values())


@pytest.mark.parametrize("others", NUMBERS_BESIDE)
@pytest.mark.parametrize("name", OF_NUMBERS)
def test_rows_of_numbers(name, others):
    sums, alone = additive(name)
    names = ["array", "frame"]
    if others == "text":  # a table of objects in any case
        names.append("columns next to each other")
    for table in map(TABLES.get, TABLES if others == "a batch" else names):
        among = sums.added(NUMBERS_BESIDE[others], ROWS.values(), table)
        sums.assert_alike(among, alone)


@cache
def additive_labels(name):
    """Return an estimator of labels, and what rows add to its tables alone."""
    found = Additive(OF_LABELS[name], LABELS_BESIDE["a batch"], table_of)
    return found, found.alone(LABELS.values())


@pytest.mark.parametrize("others", LABELS_BESIDE)
@pytest.mark.parametrize("name", OF_LABELS)
def test_rows_of_labels(name, others):
    tables, alone = additive_labels(name)
    for table in (table_of, frame_of):
        among = tables.added(LABELS_BESIDE[others], LABELS.values(), table)
        assert np.array_equal(among, alone)


@pytest.mark.parametrize("others", LABELS_BESIDE)
def test_rows_of_labels_that_choose_tables(others):
    """Here how far tables are from a model is told with noise: no sum over rows."""
    estimator = DPCGMLearner("aim", method_params={"max_iter": 3}, **STATES)
    for row in LABELS.values():
        rows = LABELS_BESIDE[others]
        worlds = [(table_of(rows), {}), (table_of([*rows, row]), {})]
        assert exact_cost(estimator, *worlds) <= 1 + 1e-9


def of_persons(n):
    return {"individual": [f"person {i}" for i in range(n)]}


@pytest.mark.parametrize("who", [None, of_persons], ids=["rows", "persons"])
@pytest.mark.parametrize("name", [n for n in OF_NUMBERS if n != "describe"])
def test_the_only_rows_of_a_party(name, who):
    """They add what they add where there are others."""
    others, rows = BATCH[:12], list(ROWS.values())
    roster, who = ["a", "b", "c"], who or (lambda n: {})

    def held(labels):
        party = pd.Categorical(labels, categories=roster)
        return {"party": party} | who(len(labels))

    sums = Additive(
        OF_NUMBERS[name], others, plainest, lambda n: held((["a", "b"] * n)[:n]), 3
    )
    first, more = ["a", "b"] * 6, [*others, *rows]
    without = sums.numbers(others, beside=held(first))
    alone, among = (
        sums.numbers(more, beside=held([*first, *[name] * len(rows)])) - without
        for name in ("c", "a")
    )
    sums.assert_alike(among, alone)


@pytest.mark.parametrize("others", ["a batch", "text", "NaN"])
@pytest.mark.parametrize("name", OF_NUMBERS)
def test_rows_of_persons(name, others):
    sums = Additive(OF_NUMBERS[name], BATCH, plainest, of_persons)
    among = sums.added(NUMBERS_BESIDE[others], ROWS.values())
    sums.assert_alike(among, sums.alone(ROWS.values()))


@pytest.mark.parametrize("name", ["FederatedStandardScaler", "FederatedPCA"])
def test_the_twin_in_which_bits_depend_on_others(name, monkeypatch):
    """Rows that are clipped in the precision of their table are found out."""

    def clipped(X, **options):
        kind = np.float16 if len(X) % 2 else np.float64
        return read_numbers(X, **options).astype(kind).astype(np.float64)

    kernel = import_module("skprivbn.federation.program")
    monkeypatch.setattr(kernel, "read_numbers", clipped)
    sums = Additive(OF_NUMBERS[name], BATCH, plainest)
    with pytest.raises(AssertionError):
        sums.assert_alike(
            sums.added(BATCH[:8], ROWS.values()), sums.alone(ROWS.values())
        )


def tables_of_k2(X):
    """Return the tables of a private K2 search, without noise."""
    tables, open_counts = [], SharedK2.open_counts

    def watched(shared, transform=None, noise=None):
        tables.append((yield from open_counts(shared, transform, noise)))
        return tables[-1]

    learner = PrivateK2StructureLearner(ordering=["x0", "x1"], max_parents=1, **STATES)

    def no_noise(noise, shape):
        return np.zeros(shape, dtype=np.int64)

    with (
        exact_structure(),
        mock.patch.object(SharedK2, "open_counts", watched),
        mock.patch.object(DistributedNoise, "share", no_noise),
    ):
        learner.fit(X)
    return np.concatenate([table.ravel() for table in tables[0].values()])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("others", LABELS_BESIDE)
def test_a_record_of_a_private_k2_search(others):
    """A record has other values; the number of records is public."""
    # so many that depend on each other that the structure is the same
    base = [["a", 0], ["b", 1]] * 20
    changes = [
        tables_of_k2(table([*rows, ["b", 2]])) - tables_of_k2(table([*rows, ["a", 0]]))
        for rows in (base, [*base, *LABELS_BESIDE[others]])
        for table in (table_of, frame_of)
    ]
    assert np.abs(changes[0]).sum() > 0
    for change in changes[1:]:
        assert np.array_equal(change, changes[0])


WIDE = np.random.default_rng(1).uniform(-1, 1, (67, 10))
KINDS = ["a", "b", "c"]
TEXTS = table_of([[KINDS[i % 3], float(i % 2)] for i in range(67)])
#: every transformer: without epsilon only if nothing is read off the rows
TRANSFORMERS = {
    "FederatedStandardScaler": (FederatedStandardScaler(**NOISE), WIDE),
    "FederatedPCA": (FederatedPCA(4, **NOISE), WIDE),
    "FederatedPCA, whitened": (FederatedPCA(1, whiten=True, **NOISE), WIDE),
    "FederatedKBinsDiscretizer": (FederatedKBinsDiscretizer(3, **NOISE), WIDE),
    "FederatedKBinsDiscretizer, public": (
        FederatedKBinsDiscretizer(
            3, strategy="uniform", encode="onehot-dense", bounds=(-1, 1)
        ),
        WIDE,
    ),
    "FederatedSimpleImputer": (FederatedSimpleImputer(**NOISE), WIDE),
    "FederatedSimpleImputer, median": (
        FederatedSimpleImputer(strategy="median", **NOISE),
        WIDE,
    ),
    "FederatedSimpleImputer, labels": (
        FederatedSimpleImputer(
            strategy="most_frequent", categories=[KINDS, [0, 1]], epsilon=1.0
        ),
        TEXTS,
    ),
    "FederatedOneHotEncoder": (
        FederatedOneHotEncoder(categories=[KINDS, [0, 1]], handle_unknown="ignore"),
        TEXTS,
    ),
    "FederatedOrdinalEncoder": (
        FederatedOrdinalEncoder(
            categories=[KINDS, [0, 1]],
            handle_unknown="use_encoded_value",
            unknown_value=-1,
        ),
        TEXTS,
    ),
}
ODD_CELLS = ["unknown", None, np.nan, np.inf, 1e308, 10**400, 1j]


def test_every_transformer_is_here():
    found = {
        type(estimator).__name__
        for estimator in public_estimators()
        if hasattr(estimator, "transform")
    }
    assert {name.split(",")[0] for name in TRANSFORMERS} == found


def tables_with(X, odd):
    """Yield tables whose first rows are those of X, of all kinds."""
    for n in (1, 2, 3, 5, 8, 66, len(X)):
        yield X[:n]
    yield np.asfortranarray(X)
    yield X.astype(object)
    yield pd.DataFrame(X)
    more = np.append(X.astype(object), X[:1].astype(object), axis=0)
    more[-1, 0] = odd
    yield more
    yield pd.DataFrame(more).infer_objects()


def bits(rows):
    """Return rows as something to compare to the last bit, and the type."""
    rows = np.asarray(rows)
    if rows.dtype.kind == "O":
        return [[repr(value) for value in row] for row in rows.tolist()]
    return [row.tobytes() for row in np.ascontiguousarray(rows, dtype=np.float64)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("odd", ODD_CELLS, ids=lambda odd: type(odd).__name__)
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_what_transformers_make_of_a_row(name, odd):
    transformer, X = TRANSFORMERS[name]
    step = clone(transformer).fit(X, party=["north", "south", "west"] * 22 + ["north"])
    at_site = rebuild_model(describe_model(step), X.shape[1])
    tables = [X]
    if X.dtype.kind == "f":
        X = X.copy()
        X[::9, 0] = np.nan
        tables = [X, X.astype(np.float32)]
    for rows in tables:
        expected = bits(np.concatenate([step.transform(row[None]) for row in rows]))
        for table in tables_with(rows, odd):
            n = min(len(table), len(rows))
            assert bits(step.transform(table)[:n]) == expected[:n]
        partition = HorizontalPartition({"a": rows[:1], "b": rows[1:5], "c": rows[5:]})
        blocks = step.transform(partition)._blocks.values()
        held = np.concatenate([np.asarray(block["X"]) for block in blocks])
        assert bits(held) == expected
        if rows.dtype.kind == "f":  # sites hold float64
            assert bits(apply_step(at_site, rows.astype(np.float64))) == expected


class Piped(BaseEstimator):
    """A fitted transformer, and a private estimator of what it makes."""

    def __init__(self, step, estimator):
        self.step, self.estimator = step, estimator

    def __sklearn_clone__(self):
        return Piped(self.step, clone(self.estimator))

    def fit(self, X, **beside):
        self.estimator_ = self.estimator.fit(self.step.transform(X), **beside)
        return self


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [n for n in TRANSFORMERS if "labels" not in n])
def test_rows_in_a_pipeline(name):
    """Through every transformer into a private estimator."""
    transformer, X = TRANSFORMERS[name]
    step = clone(transformer).fit(X, party=["north", "south", "west"] * 22 + ["north"])
    X, following = X[:16], FederatedKBinsDiscretizer(2, epsilon=1.0, bounds=(-3, 3))
    estimator = Piped(step, following)
    answers = watch_fit(estimator, X)

    def numbers(table):
        return numbers_before_noise(estimator, table, answers=answers)

    for rows in [X, X.astype(np.float32)] if X.dtype.kind == "f" else [X]:
        single = np.array([numbers(rows[[i]]) for i in range(len(rows))])
        for table in tables_with(rows, "unknown"):
            expected = single[: len(table)].sum(axis=0)
            if len(table) > len(rows):
                expected = expected + numbers(table[len(rows) :])
            assert np.array_equal(numbers(table), expected)
