"""Labels that hardly any row has are not told: of some columns, they are the rows."""

from contextlib import suppress

import numpy as np
import pytest

from skprivbn.crypto import MaskingBackend
from skprivbn.exceptions import PartyError
from skprivbn.federation import Party
from skprivbn.mixed_model import PrivateGLMMRegressor, _survey
from skprivbn.structure import PrivateK2StructureLearner
from skprivbn.structure.k2 import _private
from skprivbn.structure.rows._protocol import RowTablesParty, RowTablesTerms
from tests.federation.site.loopback import open_sites

NAMES = ("north", "south", "west")
N_ROWS = 60

ESTIMATORS = [
    "FederatedBayesianNetwork",
    "PrivateGLMMRegressor",
    "PrivateK2StructureLearner",
]

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning",
    "ignore::sklearn.exceptions.ConvergenceWarning",
)


def tell_anything(monkeypatch):
    """The twin: nobody counts how many rows have a label."""
    monkeypatch.setattr(Party, "check_labels", lambda self, columns: None)


def code_of(ask, *arguments):
    with pytest.raises(PartyError) as caught:
        ask(*arguments)
    return caught.value.code


def ask_for_labels(rows):
    """Take a column of numbers for one of categories that nobody has declared."""
    terms = RowTablesTerms(["income"], [None], [], 0, 5, "error")
    with rows.federate(RowTablesParty, terms, MaskingBackend()) as federation:
        return federation.call("labels")


def incomes(rng, n=N_ROWS):
    return rng.choice(100_000, (n, 1), replace=False)


def test_attack_incomes_as_labels_of_rows(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    tables = {name: incomes(rng).tolist() for name in NAMES}
    rows = open_sites(tmp_path, tables, {"income": '"int"'}, ESTIMATORS).rows()
    assert code_of(ask_for_labels, rows) == "too-detailed"
    tell_anything(monkeypatch)
    for name, told in ask_for_labels(rows).items():
        assert told["labels"] == [sorted(income for (income,) in tables[name])]


def test_labels_of_enough_rows_are_told(tmp_path):
    # missing entries are no label
    tables = {name: [[i % 3 or '""'] for i in range(N_ROWS)] for name in NAMES}
    rows = open_sites(tmp_path, tables, {"income": '"int"'}, ESTIMATORS).rows()
    assert ask_for_labels(rows.checked({}, as_float=True, finite=False))["north"] == {
        "labels": [[1, 2]]
    }


def learn_k2(columns):
    """Return the labels that the coordinator is told of."""
    told, run = {}, _private.run_private_k2

    def overhear(federation, progress):
        told.update(run(federation, progress))
        return told

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_private, "run_private_k2", overhear)
        PrivateK2StructureLearner(max_parents=0, fit_parameters=False).fit(columns)
    return told["states"]


def test_attack_incomes_as_labels_of_columns(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    tables = {
        "north": incomes(rng).tolist(),
        "south": rng.integers(0, 2, (N_ROWS, 1)).tolist(),
    }
    columns = {"north": {"income": '"int"'}, "south": {"died": '["0", "1"]'}}
    held = open_sites(tmp_path, tables, columns, ESTIMATORS).columns()
    assert code_of(learn_k2, held) == "too-detailed"
    tell_anything(monkeypatch)
    told = learn_k2(open_sites(tmp_path, tables, columns, ESTIMATORS).columns())
    assert told[0] == sorted(income for (income,) in tables["north"])


def count_rows_in_clusters(rows, cluster):
    """Return what the coordinator, like all parties, is told of clusters."""
    overheard, read = [], _survey._read_census

    def overhear(*told):
        overheard.append(read(*told))
        return overheard[-1]

    # it has heard by the time that the fit refuses clusters of one row
    with pytest.MonkeyPatch.context() as patched, suppress(ValueError):
        patched.setattr(_survey, "_read_census", overhear)
        model = PrivateGLMMRegressor(release_effects="shared")
        model.fit(rows, y="stay", cluster=cluster)
    return overheard[0]


def test_attack_clusters_that_are_persons(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    tables = {}
    for number, name in enumerate(NAMES):
        # nobody has the ward, age group and diagnosis of somebody else
        codes = np.stack(np.unravel_index(rng.permutation(125)[:N_ROWS], (5, 5, 5)))
        tables[name] = [[number, *row, *rng.normal(size=2)] for row in codes.T.tolist()]
    five = '["0", "1", "2", "3", "4"]'
    columns = {"site": five, "ward": five, "age": five, "diagnosis": five}
    columns |= {"years": '"float"', "stay": '"float"'}
    rows = open_sites(tmp_path, tables, columns, ESTIMATORS).rows(["years"])
    cluster = ["site", "ward", "age", "diagnosis"]
    assert code_of(count_rows_in_clusters, rows, cluster) == "too-detailed"
    # the twin: everybody's four columns are the name of a cluster of one row
    tell_anything(monkeypatch)
    census = count_rows_in_clusters(rows, cluster)
    persons = {tuple(row[:4]) for rows in tables.values() for row in rows}
    assert {tuple(map(int, path)) for path in census.labels[-1]} == persons
    assert set(census.n_rows[-1].tolist()) == {1}


def stays_by_effects(rows, alone, **options):
    """Undo what the model makes of the stay of a doctor's only patient."""
    model = PrivateGLMMRegressor(**options).fit(rows, y="stay", cluster="doctor")
    share = 1 + (model.residual_scale_ / model.random_effect_scale_) ** 2
    effects = dict(zip(model.clusters_.tolist(), model.random_effects_ * share))
    found = [effects[doctor] + model.coef_[0] * years for doctor, years in alone]
    return np.array(found) + model.intercept_


def test_attack_effects_of_doctors_with_one_patient(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    tables, alone = {}, []
    for name in NAMES:
        # ten doctors see one patient each, the others ten
        doctors = [f"{name}{i}" for i in [*range(10), *np.repeat(range(10, 15), 10)]]
        skills = dict(zip(doctors, rng.normal(0, 2, N_ROWS)))
        years = rng.normal(60, 9, N_ROWS).round(1)
        stay = [
            round(6 + skills[d] + e, 2)
            for d, e in zip(doctors, rng.normal(size=N_ROWS))
        ]
        tables[name] = list(zip(doctors, years, stay))
        alone += tables[name][:10]
    labels = sorted({row[0] for rows in tables.values() for row in rows})
    columns = {"doctor": str(labels).replace("'", '"')}
    columns |= {"years": '"float"', "stay": '"float"'}
    # a steward for whom numbers of patients are no secret
    rows = open_sites(tmp_path, tables, columns, ESTIMATORS, "min_cell_count = 1").rows(
        ["years"]
    )
    known, true = [row[:2] for row in alone], [row[2] for row in alone]
    assert code_of(stays_by_effects, rows, known) == "too-few-rows"
    assert np.isnan(stays_by_effects(rows, known, release_effects="shared")).all()
    # the twin: stays are read off effects
    few = property(lambda self: 1, lambda self, value: None)
    monkeypatch.setattr(_survey.SurveyParty, "min_rows", few)
    np.testing.assert_allclose(stays_by_effects(rows, known), true, atol=1e-4)
