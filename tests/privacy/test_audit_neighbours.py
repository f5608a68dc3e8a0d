"""Given the same noisy answers, data sets that differ in a person give the same fit.

A fit is watched, and then repeated with the answers that were opened: with a person
more, who may be as strange as people come. Attributes, to the last bit, warnings,
errors, messages, their sizes and the ledger's words must be those of the fit without.
And what the noise had to hide, this person's part of the sums, must cost no more than
epsilon.
"""

import warnings
from io import StringIO

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, PredefinedSplit
from sklearn.pipeline import make_pipeline

from skprivbn.exceptions import PartyError, PrivacyLeakWarning
from skprivbn.federation import Ledger
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.partition import HorizontalPartition
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedPCA,
    FederatedSimpleImputer,
    FederatedStandardScaler,
)
from skprivbn.privacy import PrivacyAccountant, _options, zcdp_epsilon
from skprivbn.privacy._composition import zcdp_budget
from skprivbn.structure import (
    FederatedBayesianNetwork,
    FederatedFCI,
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    PrivateK2StructureLearner,
)
from skprivbn.utils import _validation
from tests.privacy.attacks import BOUNDS, Description, field, search
from tests.privacy.toys import intervals_of, mixed_model
from tests.privacy.watching import Attack, cost_of

EPSILON = 1.0


def plain(value):
    """Return a fitted attribute as something to compare, to the last bit."""
    if isinstance(value, Ledger):
        messages = [
            (e.round, e.operation, e.sender, e.receiver, e.n_bytes, e.kind, e.tells)
            for e in value.entries
        ]
        learnt = list(value.who_learns_what())
        return value.parties, messages, learnt, value.notes, plain(value.releases)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, dict):
        return {repr(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(inner) for inner in value]
    if type(value).__module__.startswith("skprivbn") and hasattr(value, "__dict__"):
        return plain(vars(value))
    return repr(value)


class Neighbours(Attack):
    """Fits with the same answers, and all that anybody sees of them."""

    def look(self, world, answers):
        """Return what was watched, and what is seen beside it."""
        _options._uncounted.clear()  # whether a fit is the second is no news
        _options._said.clear()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            watch = self.fit(world, answers.opened, answers.chosen)
        seen = {k: plain(v) for k, v in vars(watch.model).items() if k.endswith("_")}
        seen["intervals"] = plain(intervals_of(watch.model))
        return watch, seen | {"warnings": sorted({str(w.message) for w in said})}


def assert_alike(estimator, *worlds, n_parties=1, epsilon=EPSILON):
    """Compare a first data set with all others, its neighbours."""
    delta = getattr(estimator, "delta", 0.0)
    most = epsilon if delta == 0 else zcdp_budget(epsilon, delta)
    neighbours = Neighbours(estimator, worlds, n_parties)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answers = neighbours.fit(0)
    first, expected = neighbours.look(0, answers)
    for number in range(1, len(worlds)):
        watch, seen = neighbours.look(number, answers)
        differ = [key for key in expected | seen if expected.get(key) != seen.get(key)]
        assert not differ, (number, differ)
        cost = cost_of(first, watch)
        # zCDP of Gaussian noise that is calibrated by its exact delta is a little more
        assert cost <= most * (1 + 1e-9) or delta > 0, (number, cost)
        if delta > 0:
            assert zcdp_epsilon(cost, delta) <= 1.2 * epsilon


NOISE = {"epsilon": EPSILON, **BOUNDS}


def mixture(kind, **options):
    return PPEMGaussianMixture(
        2,
        covariance_type=kind,
        max_iter=2,
        backend="masking",
        random_state=0,
        **NOISE,
        **options,
    )


NUMBERS = {
    "scaler": FederatedStandardScaler(**NOISE),
    "scaler, means only": FederatedStandardScaler(with_std=False, **NOISE),
    "scaler, Gaussian noise": FederatedStandardScaler(delta=1e-6, **NOISE),
    "PCA": FederatedPCA(**NOISE),
    "PCA, half of the variance": FederatedPCA(0.5, whiten=True, **NOISE),
    "bins": FederatedKBinsDiscretizer(3, **NOISE),
    "imputer, means": FederatedSimpleImputer(**NOISE),
    "imputer, medians": FederatedSimpleImputer(strategy="median", **NOISE),
    "FCI": FederatedFCI(**NOISE),
    "ADMM": FederatedNotearsADMM(max_iter=5, random_state=0, **NOISE),
    "mixed model": mixed_model(**NOISE),
    "mixed model, Gaussian noise": mixed_model(delta=1e-6, **NOISE),
    **{
        f"Gaussian network, {method}": FederatedGaussianBayesianNetwork(
            method, random_state=0, **NOISE
        )
        for method in ("equal_variance", "bic", "pc")
    },
    **{f"mixture, {kind}": mixture(kind) for kind in ("full", "tied")},
    **{
        f"mixture with gaps, {kind}": mixture(kind, missing="em")
        for kind in ("full", "tied", "diag", "spherical")
    },
}
ROWS = np.random.default_rng(0).uniform(-1, 1, (12, 2))
#: others may be all alike, or have nothing in a column
OTHERS = {
    "many": ROWS,
    "nobody": ROWS[:0],
    "one": ROWS[:1],
    "alike": np.zeros((12, 2)),
    "empty column": np.column_stack([ROWS[:, 0], np.full(12, np.nan)]),
    "infinite": np.full((5, 2), np.inf),
}
STRANGE = {
    "missing": [np.nan, np.nan],
    "half missing": [0.5, np.nan],
    "infinite": [np.inf, -np.inf],
    "huge": [1e308, -1e308],
    "far": [1.0, 1.0],
    "twin": ROWS[0].tolist(),
}


@pytest.mark.parametrize(
    "others",
    [
        "many",
        "nobody",
        pytest.param("one", marks=pytest.mark.slow),
        "empty column",
        pytest.param("alike", marks=pytest.mark.slow),
        pytest.param("infinite", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", NUMBERS)
def test_rows_of_numbers(name, others):
    rows = OTHERS[others]
    more = [(np.append(rows, [row], axis=0), {}) for row in STRANGE.values()]
    assert_alike(NUMBERS[name], (rows, {}), *more)


@pytest.mark.parametrize("name", NUMBERS)
def test_the_only_row_of_a_party(name):
    roster = ["a", "b", "c"]
    first = pd.Categorical(["a", "b"] * 6, categories=roster)
    party = pd.Categorical(["a", "b"] * 6 + ["c"], categories=roster)
    more = [
        (np.append(ROWS, [row], axis=0), {"party": party}) for row in STRANGE.values()
    ]
    assert_alike(NUMBERS[name], (ROWS, {"party": first}), *more, n_parties=3)


#: entries of tables of numbers, which one of them makes tables of objects
NO_NUMBERS = [pd.NA, "x", "", 10**400, 1j, np.complex64(1j), pd.Timestamp(2026, 1, 1)]


def with_rows(value):
    return pd.DataFrame({"x0": [*ROWS[:, 0], value], "x1": [*ROWS[:, 1], 0.5]})


@pytest.mark.parametrize(
    "name", ["scaler", "imputer, medians", "Gaussian network, bic", "mixture, full"]
)
def test_entries_that_are_no_numbers(name, monkeypatch):
    first = pd.DataFrame(ROWS, columns=["x0", "x1"])
    worlds = [(with_rows(value), {}) for value in [*NO_NUMBERS, "0.5"]]
    assert_alike(NUMBERS[name], (first, {}), *worlds)
    # the twin: a row is refused, which tells that it is there
    monkeypatch.setattr(_validation, "numbers_or_gaps", lambda X: X)
    for X, _ in worlds[:-1]:
        with pytest.raises((TypeError, ValueError, OverflowError)):
            clone(NUMBERS[name]).fit(X)


def test_the_type_of_a_table_is_not_that_of_the_result():
    """One entry that is no number makes a table of objects of one of float32."""
    rows = pd.DataFrame(ROWS, columns=["x0", "x1"], dtype=np.float32)
    worlds = [(pd.concat([rows, with_rows("x")[-1:]]), {})]
    assert worlds[0][0].dtypes["x0"].kind == "O"
    assert_alike(NUMBERS["mixture, full"], (rows, {}), *worlds)


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
def test_a_step_that_is_given_no_numbers():
    """After a step with noise, such a row is missing, and the next one takes it."""
    pipeline = make_pipeline(NUMBERS["scaler"], NUMBERS["imputer, means"])
    pipeline.fit(pd.DataFrame(ROWS, columns=["x0", "x1"]))
    for value in NO_NUMBERS:
        assert np.all(np.isfinite(pipeline.transform(with_rows(value))))


def test_columns_that_are_declared_not_to_be_numbers_are_refused():
    for column in (pd.Categorical(["a"] * 3), pd.to_datetime(["2026-01-01"] * 3)):
        with pytest.raises((TypeError, ValueError)):
            NUMBERS["scaler"].fit(pd.DataFrame({"x0": column, "x1": [0.5, 1, None]}))


#: who the person is: also nobody known, or the namesake of a number
WHO = ["new", None, np.nan, 3, 2.5, ("a", 1), ["a"], b"new", True]


def labels_of(who, n):
    """Return labels of persons: as many others, and somebody with five rows."""
    labels = np.empty(n + 5, dtype=object)
    labels[:n] = [f"person {i}" for i in range(n)]
    for i in range(n, n + 5):
        labels[i] = who
    return labels


@pytest.mark.parametrize("name", NUMBERS)
def test_rows_of_a_person(name):
    first = {"individual": labels_of(None, 12)[:12]}
    more = [
        (np.append(ROWS, [row] * 5, axis=0), {"individual": labels_of(who, 12)})
        for who in WHO
        for row in ([np.inf, np.nan], [1.0, 1.0])
    ]
    assert_alike(NUMBERS[name], (ROWS, first), *more)


def test_namesakes_are_one_person():
    """The number 1 and the text "1" may be the same person, and count as one."""
    rows, far = np.zeros((10, 1)), np.ones((40, 1))
    X = np.append(rows, far, axis=0)
    for labels in (["1"] * 20 + [1] * 20, [1.0, True] * 20):
        who = {"individual": [*range(10, 20), *labels]}
        assert_alike(
            FederatedKBinsDiscretizer(2, **NOISE),
            (rows, {"individual": [*range(10, 20)]}),
            (X, who),
        )


def test_rows_of_nobody_in_a_list_of_text_count_for_nothing():
    """numpy makes the text "nan" of them, and so one person of all."""
    rows = np.append(np.zeros((10, 1)), [[-1.0]], axis=0)
    labels = [f"person {i}" for i in range(10)] + [np.nan]
    more = np.append(rows, np.ones((39, 1)), axis=0)
    assert_alike(
        FederatedKBinsDiscretizer(2, **NOISE),
        (rows, {"individual": labels}),
        (more, {"individual": labels + [np.nan] * 39}),
    )


STATES = {"epsilon": EPSILON, "states": {"x0": ["a", "b"], "x1": [0, 1, 2]}}
LABELS = {
    **{
        f"field, {cliques}, {method}": DPCGMLearner(
            cliques, method=method, method_params={"max_iter": 5}, **STATES
        )
        for cliques, method in (
            ("chain", "naive"),
            ("chain", "cgm"),
            ("chain", "auto"),
            ("mst", "auto"),
            ("aim", "auto"),
        )
    },
    "field, psgd": DPCGMLearner(
        "chain",
        method="psgd",
        delta=1e-6,
        # all rows in every batch: coins could not be thrown again
        method_params={"sampling_rate": 1.0, "n_steps": 3},
        **STATES,
    ),
    "field, skip": DPCGMLearner(
        "aim", method_params={"max_iter": 5}, missing="skip", **STATES
    ),
    "field, Gaussian noise": DPCGMLearner(
        "chain", method_params={"max_iter": 5}, delta=1e-6, **STATES
    ),
    "field, bins": DPCGMLearner(
        "chain",
        method_params={"max_iter": 5},
        epsilon=EPSILON,
        states={"x0": ["a", "b"]},
        bins={"x1": [0, 1, 2, 3]},
    ),
    **{
        f"network from rows, {method}": FederatedBayesianNetwork(
            method, max_parents=1, random_state=0, **STATES
        )
        for method in ("hill_climbing", "k2", "ges")
    },
    "network from rows, skip": FederatedBayesianNetwork(
        max_parents=1, missing="skip", **STATES
    ),
    "imputer": FederatedSimpleImputer(
        strategy="most_frequent", categories=[["a", "b"], [0, 1, 2]], epsilon=EPSILON
    ),
}
CASES = [["a", 0], ["b", 1], ["a", 2], ["b", 0], ["a", 1], ["b", 2]]
ODD = [
    ["a", 0],
    ["c", 7],
    [None, None],
    [np.nan, np.inf],
    ["a", "x"],
    [3, -1],
    [True, 1.5],
    ["a", 10**400],
    [b"a", 1j],
    [("a",), (["a"],)],
    [["a"], {}],
    [pd.NA, pd.NaT],
]


def objects(rows):
    table = np.empty((len(rows), 2), dtype=object)
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            table[i, j] = value
    return table


def frame(rows):
    return pd.DataFrame(objects(rows), columns=["x0", "x1"])


@pytest.mark.parametrize(
    "table", [objects, frame, list], ids=["array", "frame", "list"]
)
@pytest.mark.parametrize("name", LABELS)
def test_rows_of_labels(name, table):
    odd = ODD
    if table is list:  # numpy knows no list of lists of lists of different lengths
        odd = [row for row in ODD if not isinstance(row[0], tuple | list)]
    more = [(table([*CASES, row]), {}) for row in odd]
    assert_alike(LABELS[name], (table(CASES), {}), *more)


@pytest.mark.parametrize("name", LABELS)
def test_the_only_row_of_all_with_labels(name):
    more = [(frame([row]), {}) for row in ODD[:4]]
    assert_alike(LABELS[name], (frame(CASES)[:0], {}), *more)


@pytest.mark.parametrize(
    "name", [n for n in LABELS if "psgd" not in n and "mst" not in n]
)
def test_the_only_row_of_a_party_with_labels(name):
    roster = ["a", "b", "c"]
    first = pd.Categorical(["a", "b"] * 3, categories=roster)
    party = pd.Categorical(["a", "b"] * 3 + ["c"], categories=roster)
    more = [(objects([*CASES, row]), {"party": party}) for row in ODD]
    assert_alike(LABELS[name], (objects(CASES), {"party": first}), *more, n_parties=3)


@pytest.mark.parametrize("name", LABELS)
def test_rows_of_a_person_with_labels(name):
    estimator = clone(LABELS[name])
    if "contribution" in estimator.get_params():
        estimator.set_params(contribution="normalize")
    more = [
        (objects(CASES + [row] * 5), {"individual": labels_of(who, 6)})
        for who in WHO
        for row in (["a", 0], ["c", 7])
    ]
    first = {"individual": labels_of(None, 6)[:6]}
    assert_alike(estimator, (objects(CASES), first), *more)


HOLDERS = {"parties": {"clinic": [0], "lab": [1]}}
FEW_STEPS = {"method_params": {"max_iter": 5}}
COLUMNS = {
    "field": DPCGMLearner("chain", **HOLDERS, **FEW_STEPS, **STATES),
    "field, aim": DPCGMLearner(delta=1e-6, **HOLDERS, **FEW_STEPS, **STATES),
}
OTHER_RECORDS = [["b", 2], ["c", np.inf], [None, np.nan], [("a", 1), "x"]]


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_several_holders(name):
    """A record has other values, at both holders; their number is known."""
    more = [(objects([record, *CASES[1:]]), {}) for record in OTHER_RECORDS]
    assert_alike(COLUMNS[name], (objects(CASES), {}), *more, n_parties=2)


def test_the_noise_report_of_k2_follows_from_its_structure():
    """Drawn anew by each fit, as this harness plays no choices on shares again."""
    worlds = [(objects([r, *CASES[1:]]), {}) for r in [CASES[0], *OTHER_RECORDS]]
    estimator = PrivateK2StructureLearner(**HOLDERS, **STATES)
    neighbours = Neighbours(estimator, worlds * 2, 2)
    answers, reports = neighbours.fit(0), {}
    for number in range(len(worlds) * 2):
        watch, seen = neighbours.look(number, answers)
        told = seen["noise_report_"], seen["warnings"]
        edges = watch.model.network_.adjacency_matrix.tobytes()
        assert reports.setdefault(edges, told) == told
    assert len(reports) <= 2


def of_one_column():
    """What reads labels 0 and 1."""
    return (
        field(epsilon=EPSILON),
        FederatedBayesianNetwork(states=[2], epsilon=EPSILON),
        FederatedSimpleImputer(
            strategy="most_frequent", categories=[[0, 1]], epsilon=EPSILON
        ),
        Description(EPSILON),
    )


@pytest.mark.parametrize("text", ["x", 1.5, None, 1j], ids=repr)
def test_one_row_does_not_change_how_others_are_read(text):
    """A list of numbers with one text in it is a list of texts to numpy."""
    rows, more = [[0]] * 20 + [[1]] * 10, [[0]] * 20 + [[1]] * 10 + [[text]]
    for estimator in of_one_column():
        assert_alike(estimator, (rows, {}), (more, {}))


@pytest.mark.parametrize("cell", ["x", "1.5", "", "nan", "1e400", "True"])
def test_one_cell_of_a_file_does_not_change_how_others_are_read(cell, monkeypatch):
    """pandas makes text of a column of numbers if one cell is text."""
    file = "x0\n" + "0\n" * 20 + "1\n" * 10
    rows, more = (pd.read_csv(StringIO(text)) for text in (file, file + f'"{cell}"\n'))
    for estimator in of_one_column():
        assert_alike(estimator, (rows, {}), (more, {}))
    if cell == "x":
        # the twin: text is no number, and all labels are unknown
        monkeypatch.setattr("skprivbn.utils._validation.texts_of", lambda labels: {})
        with pytest.raises(AssertionError, match="30"):
            assert_alike(field(epsilon=EPSILON), (rows, {}), (more, {}))


@pytest.mark.parametrize("states", [{}, {"x0": [0, 1]}])
def test_a_description_of_the_only_row_of_a_party(states):
    """Whether somebody has one would be told by a refusal."""
    rows, roster = np.zeros((30, 1)), ["a", "b", "c"]
    partitions = [
        HorizontalPartition.from_rows(X, pd.Categorical(party, categories=roster))
        for X, party in ((rows, ["a"] * 30), (rows[:2], ["a", "b"]), (rows[:0], []))
    ]
    for partition in partitions:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of little but noise
            partition.describe(epsilon=50.0, bounds=(0, 1), states=states)
    # the twin: without noise, whoever has no rows refuses
    with pytest.raises(PartyError, match="fewer rows"):
        partitions[0].describe(states=states)


def test_a_description_of_numbers_among_texts():
    rows = np.array([["0.5"]] * 30, dtype=object)
    more = [
        (np.append(rows, objects([[value, 0]])[:, :1], axis=0), {})
        for value in ("x", None, 10**400, 1j, [1], np.inf, True)
    ]
    assert_alike(Description(EPSILON, states={}), (rows, {}), *more)


def test_categories_that_pandas_makes_are_pointed_out():
    rows = pd.DataFrame({"x0": pd.Categorical(["a", "b"] * 10)})
    party = np.repeat(["north", "south", "west", "east"], 5)
    partition = HorizontalPartition.from_rows(rows, party)
    noise = {"epsilon": 50.0, "bounds": (0, 1)}
    with pytest.warns(PrivacyLeakWarning, match="pandas makes.*pass states="):
        partition.describe(**noise)
    partition.describe(states={"x0": ["a", "b"]}, **noise)


def test_a_description_hides_a_person_with_many_rows():
    rows = np.zeros((30, 1))
    first = {"individual": np.arange(30)}
    more = {"individual": np.append(np.arange(30), np.full(40, 99))}
    neighbour = np.append(rows, np.ones((40, 1)), axis=0)
    for states in ({}, {"x0": [0, 1]}):
        estimator = Description(EPSILON, states=states)
        assert_alike(estimator, (rows, first), (neighbour, more))
        # the twin: rows count one by one
        with pytest.raises(AssertionError, match="40.0"):
            assert_alike(estimator, (rows, {}), (neighbour, {}))


@pytest.mark.parametrize(
    "weight", [np.nan, np.inf, -np.inf, -1, 2.5, 1e30, None, pd.NA, "x"]
)
def test_weights(weight):
    estimator = DPCGMLearner(
        "chain", contribution={"max_weight": 3}, method_params={"max_iter": 5}, **STATES
    )
    more = np.append(np.ones(6), weight)
    assert_alike(
        estimator,
        (objects(CASES), {"sample_weight": np.ones(6)}),
        (objects([*CASES, ["a", 0]]), {"sample_weight": more}),
    )


@pytest.mark.parametrize("method", ["noisy_scores", "report_noisy_max"])
@pytest.mark.parametrize("fold", [0.0, 1.0], ids=["fitted", "scored"])
def test_searches(method, fold):
    """Scores and fits together, by a person who is in one of both."""
    estimator = search(
        field(width=2, contribution="normalize", epsilon=0.25), method=method
    ).set_params(
        scoring=None,
        param_grid={"method_params": [{"regularization": r} for r in (1e-4, 1e-2)]},
    )
    rows = np.repeat([[0.0, 0.0], [0.0, 1.0]], 10, axis=0)
    first = {"individual": np.arange(20)}
    more = [
        (
            np.append(rows, [[label, fold]] * 5, axis=0),
            {"individual": labels_of(who, 20)},
        )
        for label in (1.0, 7.0, np.nan)
        for who in ("new", None)
    ]
    assert_alike(estimator, (rows, first), *more, epsilon=1.5)


@pytest.mark.parametrize("table", [np.array, list], ids=["array", "list"])
def test_a_search_with_nobody_to_learn_from(table, monkeypatch):
    """Two are held out by chance, and the fit on nobody is one with the same noise."""
    monkeypatch.setattr(
        "skprivbn.privacy._selection._coins",
        lambda persons: np.where(persons < 2, 0, 2**64 - 1).astype(np.uint64),
    )
    estimator = search(field(epsilon=0.25), scoring=None, cv=0.5)
    worlds = [(table([[0]] * 2 + more), {}) for more in ([], [[1]], [[7]])]
    assert_alike(estimator, *worlds, epsilon=1.5)


def cost_of_plain_search(cvs, accountant):
    """Return what a last row costs in all fits of a search, given its folds."""
    rows = np.append(np.zeros((30, 1)), [[1.0]], axis=0)
    watches, answers = [], None
    for n, cv in zip((30, 31), cvs):
        learner = field(accountant=accountant)
        plain_search = GridSearchCV(learner, {"epsilon": [0.5]}, cv=cv)
        attack = Attack(plain_search, [(rows[:n], {})])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answers = answers or attack.fit(0)
            watches.append(attack.fit(0, answers.opened, answers.chosen))
    return cost_of(*watches)


def test_what_a_plain_search_charges():
    """Fits are charged in full, and cost less: a row is in one fold's fit, and last."""
    accountant = PrivacyAccountant(epsilon=20.0)
    folds = np.arange(31) % 2
    own = [PredefinedSplit(folds[:n]) for n in (30, 31)]
    assert cost_of_plain_search(own, accountant) == pytest.approx(1.0)
    # two folds and the refit, three times: answers had to be heard first
    assert [spend.epsilon for spend in accountant.history] == [0.5] * 9


def test_folds_of_a_plain_search_move_other_rows():
    """Why its charge is none of a guarantee, as the guide says: here, rows differ."""
    rows = np.zeros((31, 1))
    before, after = (list(KFold(2).split(rows[:n])) for n in (30, 31))
    moved = set(after[1][0]) ^ set(before[1][0])
    assert len(moved) == 1 and 30 not in moved
