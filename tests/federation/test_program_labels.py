"""Labels that hardly any row has are not told: of some columns, they are the rows."""

from contextlib import suppress

import numpy as np
import pytest

from skprivbn.crypto import MaskingBackend
from skprivbn.exceptions import PartyError
from skprivbn.federation import Coordinator, runner
from skprivbn.mixed_model import PrivateGLMMRegressor, _survey
from skprivbn.structure import PrivateK2StructureLearner
from skprivbn.structure.k2 import _program
from skprivbn.structure.rows import _program as _rows_program
from skprivbn.structure.rows._program import network_of_rows
from tests.federation.site.loopback import open_sites
from tests.structure.rows.asking import terms_for

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
    for module in (_program, _rows_program, _survey):
        monkeypatch.setattr(module, "check_labels", lambda me, columns: None)
    monkeypatch.setattr(runner, "check_rows", lambda total, n, *rest: total[:n])


def code_of(ask, *arguments):
    with pytest.raises(PartyError) as caught:
        ask(*arguments)
    return caught.value.code


def ask_for_labels(rows):
    """Take a column of numbers for one of categories that nobody has declared."""
    terms = terms_for(["income"], [None], min_cell_count=5, missing="skip")
    told, common = [], _rows_program._common_states

    def overhear(*labels):
        told.append(common(*labels))
        return told[-1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_rows_program, "_common_states", overhear)
        with rows.federate(network_of_rows, terms, MaskingBackend()) as federation:
            try:
                federation.run()
            except PartyError:  # of so many labels there is no table
                if not told:
                    raise
    return told[0]


def incomes(rng, n=N_ROWS):
    return rng.choice(100_000, (n, 1), replace=False)


def test_attack_incomes_as_labels_of_rows(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    tables = {name: incomes(rng).tolist() for name in NAMES}
    rows = open_sites(tmp_path, tables, {"income": '"int"'}, ESTIMATORS).rows()
    assert code_of(ask_for_labels, rows) == "too-detailed"
    tell_anything(monkeypatch)
    told = {income for table in tables.values() for (income,) in table}
    assert ask_for_labels(rows) == [sorted(told)]


def test_labels_of_enough_rows_are_told(tmp_path):
    # missing entries are no label
    tables = {name: [[i % 3 or '""'] for i in range(N_ROWS)] for name in NAMES}
    rows = open_sites(tmp_path, tables, {"income": '"int"'}, ESTIMATORS).rows()
    rows = rows.checked({}, as_float=True, finite=False)
    assert ask_for_labels(rows) == [[1, 2]]


def learn_k2(columns):
    """Return the labels that the coordinator is told of."""
    told, run = {}, Coordinator.run

    def overhear(federation, **options):
        told.update(run(federation, **options))
        return told

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Coordinator, "run", overhear)
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
    """Return what all parties are told of clusters."""
    overheard, read = [], _survey.Survey.counted

    def overhear(*told):
        survey = read(*told)
        overheard.append(survey.census)
        return survey

    # it has heard by the time that the fit refuses clusters of one row
    with pytest.MonkeyPatch.context() as patched, suppress(ValueError):
        patched.setattr(_survey.Survey, "counted", overhear)
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
    rules = "max_exact_numbers = 99"
    rows = open_sites(tmp_path, tables, columns, ESTIMATORS, rules).rows(["years"])
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
    model = PrivateGLMMRegressor(small_clusters="refuse", **options).fit(
        rows, y="stay", cluster="doctor"
    )
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
    # the twin: stays are read off effects
    monkeypatch.setattr(runner, "check_rows", lambda total, n, *rest: total[:n])
    assert np.isnan(stays_by_effects(rows, known, release_effects="shared")).all()
    np.testing.assert_allclose(stays_by_effects(rows, known), true, atol=1e-4)
