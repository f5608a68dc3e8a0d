"""Neighbours that cost more than epsilon before any noise was added, in release 0.2.

Sensitivities and noise were right; bits of a row depended on the other rows. Each test
says what its neighbours cost then. All of them have a claim of 1.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import LeaveOneGroupOut
from sklearn.naive_bayes import GaussianNB

from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.federation._models import describe_model, rebuild_model
from skprivbn.federation.site import _block as site_block
from skprivbn.partition import HorizontalPartition, RowSource
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedPCA,
    FederatedSimpleImputer,
    FederatedStandardScaler,
    _base,
    _linear,
)
from skprivbn.privacy import (
    LeavePublicGroupOut,
    PrivacyAccountant,
    PrivateSearchCV,
    _scores,
    private_score,
)
from skprivbn.privacy._options import apply_step
from skprivbn.privacy._persons import sum_by_person
from skprivbn.privacy._scores import row_scores
from skprivbn.programs import _moments
from skprivbn.structure import (
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
)
from skprivbn.utils._linalg import multiply_rows
from tests.privacy.attacks import field
from tests.privacy.before_noise import exact_cost

NOISE = {"epsilon": 1.0, "bounds": (-1.0, 1.0)}
ROWS = np.random.default_rng(0).uniform(-1, 1, (12, 2))


@pytest.mark.parametrize(
    "estimator",
    [
        FederatedStandardScaler(**NOISE),
        FederatedPCA(**NOISE),
        FederatedSimpleImputer(**NOISE),
        FederatedSimpleImputer(strategy="median", **NOISE),
        FederatedKBinsDiscretizer(3, **NOISE),
        FederatedGaussianBayesianNetwork(**NOISE),
        FederatedNotearsADMM(max_iter=2, **NOISE),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_a_person_at_a_party_without_rows(estimator):
    """Cost: infinite in five of seven (a PartyError without this person); now below 1.

    Scaler, PCA, imputer of means, Gaussian network and NOTEARS added up no vector at
    all where there was no row.
    """
    roster = ["a", "b", "c"]
    party = pd.Categorical(["a", "b"] * 6 + ["c"], categories=roster)
    X, who = np.append(ROWS, [[1.0, -1.0]], axis=0), np.arange(13)
    worlds = [(X[:n], {"party": party[:n], "individual": who[:n]}) for n in (12, 13)]
    assert 0 < exact_cost(estimator, *worlds, n_parties=3) <= 1 + 1e-9


def test_the_twin_that_adds_nothing_up_without_rows(monkeypatch):
    """One number in the place of a vector ends the fit: somebody has no rows."""

    def sum_of_some(blocks, n_rows, vectors):
        return sum_by_person(blocks, n_rows, vectors) if len(n_rows) else np.int64(0)

    monkeypatch.setattr(_moments, "sum_by_person", sum_of_some)
    party = pd.Categorical(["a", "b"] * 6 + ["c"], categories=["a", "b", "c"])
    X, who = np.append(ROWS, [[1.0, -1.0]], axis=0), np.arange(13)
    worlds = [(X[:n], {"party": party[:n], "individual": who[:n]}) for n in (12, 13)]
    scaler = FederatedStandardScaler(**NOISE)
    assert exact_cost(scaler, *worlds, n_parties=3) == np.inf


def test_rows_read_in_blocks_by_a_party_without_rows():
    """A file without rows has no block, and nothing could be added up of none."""
    source = RowSource(lambda: iter([]), 0, ["x0", "x1"])
    assert np.asarray(source).shape == (0, 2)
    assert [block.shape for block in source.map(np.abs).blocks()] == [(0, 2)]


class Then(BaseEstimator):
    """A transformer, fitted with noise to public rows, and tables of what it makes."""

    def __init__(self, step, tables):
        self.step, self.tables = step, tables

    def fit(self, X, party=None, individual=None):
        beside = {"party": party, "individual": individual}
        beside = {name: value for name, value in beside.items() if value is not None}
        self.tables_ = clone(self.tables).fit(self.step.transform(X), **beside)
        return self


def bins_around(edge):
    """A table of counts in 256 cells, two of which meet at a value, to the last bit."""
    bounds = sorted([0.0, 2 * edge])
    return FederatedKBinsDiscretizer(2, epsilon=1.0, bounds=tuple(bounds))


class Kept(BaseEstimator):
    """What stands for a fitted transformer where an estimator is cloned."""

    def __init__(self, step):
        self.step = step

    def __sklearn_clone__(self):
        return self

    def transform(self, X):
        return self.step.transform(X)


def fitted(step, X, y=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Kept(step.fit(X, y))


def cost_after(step, tables, *worlds):
    """Return what two data sets cost that go through a step into noisy tables."""
    return exact_cost(Then(step, tables), *((X, {}) for X in worlds))


@pytest.mark.parametrize("transformer", [FederatedStandardScaler, FederatedPCA])
def test_a_text_cell_beside_float32(transformer, monkeypatch):
    """Cost: 801 after the scaler and 799 after PCA, of 400 rows; now at most 1.

    One cell of text makes a table of objects of one of float32. A row whose result in
    single precision is at the edge of a cell is not there in double precision.
    """
    step = fitted(transformer(**NOISE), ROWS[:, :1])
    # values whose results in both precisions are on different sides of one of them
    values = np.random.default_rng(0).uniform(-1, 1, 2000).astype(np.float32)[:, None]
    single, double = (
        step.step._transform(values.astype(kind)).astype(np.float64)
        for kind in (np.float32, np.float64)
    )
    moved = np.argmax(np.abs(single - double))
    assert single[moved] != double[moved]
    edge = max(single[moved].item(), double[moved].item())
    table = bins_around(edge)
    X = pd.DataFrame(np.repeat(values[[moved]], 400, axis=0), columns=["x0"])
    odd = pd.concat([X, pd.DataFrame({"x0": ["unknown"]})])
    assert X.dtypes["x0"] == np.float32 and odd.dtypes["x0"].kind == "O"
    for neighbour in (odd, pd.concat([X, pd.DataFrame({"x0": [0.5]})])):
        # a row without a number is missing, and counts in the middle
        assert cost_after(step, table, X, neighbour) <= 1 + 1e-9
    # the twin: results have the type of the table
    monkeypatch.setattr(_base, "apply_to_rows", lambda function, X: function(X))
    assert cost_after(step, table, X, odd) > 700


WIDE = np.random.default_rng(0).uniform(-1, 1, (50, 10))


def rounded_by_number(rows, matrix):
    """Return the twin's projection: as BLAS does it."""
    return rows @ matrix


def tied_rows(step):
    """Return equal rows whose number decides on which side of an edge they are.

    Returns
    -------
    X : ndarray of shape (n + 1, n_features)
        Without the last row, several others are elsewhere, if BLAS multiplies.
    edge : float
    """
    axes, mean = step._axes().T, step.mean_
    best = 0, None, 0.0
    for row in np.random.default_rng(1).uniform(-1, 1, (40, len(mean))):
        for n in range(1, 70):
            X = np.repeat([row], n + 1, axis=0)
            fewer, more = (rounded_by_number(x - mean, axes)[:n] for x in (X[:-1], X))
            for edge in np.unique([fewer, more])[1:]:
                n_moved = abs(np.sum(fewer >= edge) - np.sum(more >= edge))
                best = max(best, (n_moved, X, edge), key=lambda found: found[0])
    return best


def test_projections_beside_one_row_more(monkeypatch):
    """Cost: 7 (three rows move, each out of a cell and into the next); now 1.

    BLAS multiplies four rows at a time, and rounds those that are left otherwise.
    """
    step = fitted(FederatedPCA(1, epsilon=1.0, bounds=(-1, 1)), WIDE)
    n_moved, X, edge = tied_rows(step.step)
    table = bins_around(edge)
    assert cost_after(step, table, X[:-1], X) == pytest.approx(1.0)
    if n_moved:  # the twin, where this machine's BLAS does so
        monkeypatch.setattr(_linear, "multiply_rows", rounded_by_number)
        cost = cost_after(step, table, X[:-1], X)
        assert cost == pytest.approx(1 + 2 * n_moved)


def rounded_by_all(rows, matrix):
    """Return the twin's projection: to the digits that the largest row has left."""
    made = multiply_rows(rows, matrix)
    digit = np.spacing(np.abs(made).max())
    return np.rint(made / digit) * digit


def test_sites_project_rows_as_everybody_does(monkeypatch):
    """Sites with noise, sites without and everybody else give rows their own bits.

    Rounding to the digit of the largest row would move all rows by one huge one.
    """
    step = fitted(FederatedPCA(3, epsilon=1.0, bounds=(-1, 1)), WIDE).step
    model = rebuild_model(describe_model(step), 10)
    for rows in (WIDE, WIDE.astype(np.float32)):
        expected = [step.transform(rows[[i]])[0] for i in range(len(rows))]
        beside = np.append(rows, np.full((1, 10), 1e6, rows.dtype), axis=0)
        for X in (rows, beside, np.asfortranarray(rows)):
            for is_noisy in (True, False):
                at_site = site_block._transform(X, model, is_noisy)
                assert np.array_equal(at_site[: len(rows)], expected)
            assert np.array_equal(step.transform(X)[: len(rows)], expected)
    partition = HorizontalPartition({"a": WIDE[:1], "b": WIDE[1:]})
    blocks = step.transform(partition)._blocks
    here = np.concatenate([blocks[name]["X"] for name in "ab"])
    assert np.array_equal(here, step.transform(WIDE))
    # the twin: one huge row moves all others
    monkeypatch.setattr(_linear, "multiply_rows", rounded_by_all)
    beside = np.append(WIDE, np.full((1, 10), 1e6), axis=0)
    made = [site_block._transform(X, model, is_noisy=True) for X in (WIDE, beside)]
    assert not np.array_equal(made[0], made[1][: len(WIDE)])


def test_steps_of_others_are_given_one_row_at_a_time():
    """Whatever they do with a batch, such as to multiply it by BLAS."""
    axes = np.random.default_rng(2).normal(size=(10, 1))

    class Step:
        def transform(self, X):
            return X @ axes * len(X)

    made = apply_step(Step(), WIDE)
    assert np.array_equal(made, [WIDE[i : i + 1] @ axes[:, 0] for i in range(50)])
    assert apply_step(Step(), WIDE[:0]).shape == (0, 1)


class Scored(BaseEstimator):
    """A private score of rows, with the words of an estimator."""

    def __init__(self, model, score_bounds, scoring=None):
        self.model, self.score_bounds, self.scoring = model, score_bounds, scoring

    def fit(self, X, y=None):
        self.score_ = private_score(
            self.model.step,
            X,
            y,
            epsilon=1.0,
            bounds=self.score_bounds,
            scoring=self.scoring,
        )
        return self


def between_two_steps(one, other):
    """Return bounds of scores within which two that hardly differ are rounded apart."""
    # half a step above the middle; both ends are as far from it, to the last bit
    middle = float(min(one, other)) - 2.0**-16
    low, high = middle - 1.0, middle + 1.0
    return (low, high) if (low + high) / 2 == middle else None


def tied_scores(model, n):
    """Return equal rows whose scores in a batch, and alone, are rounded apart."""
    for row in np.random.default_rng(3).uniform(-1, 1, (500, 10)):
        X = np.repeat([row], n, axis=0)
        batch, alone = model.score_samples(X), model.score_samples(X[:1])[0]
        # alone they are lower, as the score of a row that has none is
        if np.mean(batch > alone) > 0.9:
            bounds = between_two_steps(batch[0], alone)
            if bounds is not None:
                return X, bounds
    return None


def test_a_row_that_cannot_be_scored(monkeypatch):
    """Cost: 1 + n / 2^16, as 1.09 of 6,000 rows; now 1.

    The batch failed, and all rows were scored one by one, which rounds otherwise.
    """
    model = fitted(GaussianMixture(2, random_state=0), WIDE)
    X, bounds = tied_scores(model.step, 6000)
    worlds = (X, {}), (np.append(X, np.full((1, 10), np.nan), axis=0), {})
    assert exact_cost(Scored(model, bounds), *worlds) == pytest.approx(1.0)

    def in_batches(estimator, X, y=None, scoring=None):
        try:
            return estimator.score_samples(X)
        except ValueError:
            return row_scores(estimator, X)

    monkeypatch.setattr(_scores, "row_scores", in_batches)
    assert exact_cost(Scored(model, bounds), *worlds) > 1.08


@pytest.mark.parametrize("odd", ["x", None, np.nan, 10**400, [1.0], np.inf, 1j])
def test_scores_beside_an_odd_row(odd):
    """Cost: 93 of 300 rows, as the odd one makes objects of a table; now at most 1."""

    def logarithm(model, X, y):
        return np.log(X[:, 0])

    rows = np.full((300, 1), 0.5, dtype=np.float32)
    more = np.empty((301, 1), dtype=object)
    more[:-1], more[-1, 0] = rows, odd
    estimator = Scored(Kept(None), (-1.0, 0.0), logarithm)
    lists = rows.tolist(), [*rows.tolist(), [odd]]
    frames = pd.DataFrame(rows), pd.DataFrame(more)
    for few, many in ((rows, more), lists, frames):
        assert exact_cost(estimator, (few, {}), (many, {})) <= 1 + 1e-9


@pytest.mark.parametrize("odd", ["x", None, np.nan, 2.5, True])
def test_labels_of_classes_beside_an_odd_one(odd):
    """Cost: 301 of 300 rows, as one text makes texts of all labels; now at most 1."""
    X, y = np.repeat([[0.0], [1.0]], 150, axis=0), [0] * 150 + [1] * 150
    estimator = Scored(fitted(GaussianNB(), X, y), (-5.0, 0.0))
    more = np.append(X, [[0.5]], axis=0)
    for labels in ([*y, odd], pd.Series([*map(str, y), str(odd)])):
        worlds = (X, {"y": y}), (more, {"y": labels})
        assert exact_cost(estimator, *worlds) <= 1 + 1e-9


def search_by_groups(cv):
    """Return a search with folds by groups, whose fits are charged."""
    return PrivateSearchCV(
        field(epsilon=0.25, accountant=PrivacyAccountant(epsilon=20.0)),
        {"method_params": [{"regularization": 1e-4}]},
        (-3.0, 0.0),
        cv=cv,
        refit=False,
    )


def test_a_person_with_a_group_of_their_own():
    """Cost: infinite (a fold more); now 0.5, for a row in two fits without a score.

    ``n_splits_``, ``privacy_spent_`` and the accountant's history counted persons.
    """
    groups = [*["a", "b"] * 10, "c"]
    worlds = [(np.zeros((n, 1)), {"groups": groups[:n]}) for n in (20, 21)]

    def told(cv, world):
        search, (X, beside) = search_by_groups(cv), worlds[world]
        search.fit(X, **beside)
        history = search.estimator.accountant.history
        return search.n_splits_, search.privacy_spent_, [s.epsilon for s in history]

    declared = LeavePublicGroupOut(["a", "b"])
    assert told(declared, 0) == told(declared, 1)
    cost = exact_cost(search_by_groups(declared), *worlds)
    assert cost == pytest.approx(2 * 0.25)
    # the twin: groups are counted, and that is said
    with pytest.warns(PrivacyLeakWarning, match="counts the groups"):
        assert told(LeaveOneGroupOut(), 0) != told(LeaveOneGroupOut(), 1)
