"""Three scripts, in process and at sites: one line differs, results are the same."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_selector

from skprivbn.exceptions import PartitionError, PartyError
from skprivbn.federation._models import SomeColumns
from skprivbn.federation.flare import LocalFederation
from skprivbn.mixed_model import PrivateGLMMClassifier
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.partition import HorizontalPartition, VerticalPartition
from skprivbn.preprocessing import (
    FederatedOneHotEncoder,
    FederatedSimpleImputer,
    FederatedStandardScaler,
)
from skprivbn.structure import FederatedBayesianNetwork, PrivateK2StructureLearner
from tests.federation.site.loopback import connect, make_sites

NAMES = ("north", "south", "west")
WARDS, SEXES = ["er", "icu", "medicine", "surgery"], ["female", "male"]
KINDS = {"age": '"float"', "bmi": '"float"', "sex": json.dumps(SEXES)}
KINDS |= {"ward": json.dumps(WARDS), "died": '["0", "1"]'}
OWN = {"bank": ("default", "card"), "insurer": ("claim", "smoker")}
ESTIMATORS = [
    "FederatedBayesianNetwork",
    "FederatedOneHotEncoder",
    "FederatedSimpleImputer",
    "FederatedStandardScaler",
    "PPEMGaussianMixture",
    "PrivateGLMMClassifier",
    "PrivateK2StructureLearner",
    "describe",
]
FILE = """
min_parties = 2
peers = {peers}
[datasets.{dataset}]
path = "{path}"
min_rows = 10
max_exact_fits = 100
estimators = {estimators}
columns = {{{columns}}}
"""


def hospital(rng, n=150):
    """Return patients; some of their values are missing."""
    frame = pd.DataFrame({"age": rng.normal(60, 12, n).round(1)})
    frame["bmi"] = (22 + 0.08 * frame["age"] + rng.normal(0, 3, n)).round(1)
    sex, ward = rng.integers(0, 2, n), rng.integers(0, 4, n)
    effect = np.array([-0.8, 0.9, 0.3, -0.4])[ward] + 0.5 * sex
    dies = rng.logistic(size=n) < effect + (frame["age"] - 60) / 15
    frame["sex"] = pd.Categorical.from_codes(sex, SEXES)
    frame["ward"] = pd.Categorical.from_codes(ward, WARDS)
    frame["died"] = pd.Categorical.from_codes(dies.astype(int), ["0", "1"])
    frame.loc[rng.random(n) < 0.1, "bmi"] = np.nan
    return frame


@pytest.fixture
def hospitals():
    rng = np.random.default_rng(7)
    return {name: hospital(rng) for name in NAMES}


@pytest.fixture
def companies():
    """Return tables about overlapping customers, in different orders."""
    rng = np.random.default_rng(8)
    smoker = rng.integers(0, 2, 400)
    flip = lambda column: np.where(rng.random(400) < 0.9, column, 1 - column)  # noqa: E731
    table = pd.DataFrame({"smoker": smoker, "claim": flip(smoker)})
    table["default"] = flip(table["claim"])
    table["card"] = rng.integers(0, 2, 400)
    table["customer_id"] = [f"c{i:04d}" for i in rng.permutation(400)]
    rows = {"bank": slice(0, 350), "insurer": slice(50, 400)}
    return {
        name: table.iloc[rows[name]][["customer_id", *columns]].sample(
            frac=1, random_state=0
        )
        for name, columns in OWN.items()
    }


def write_files(folder, dataset, frames, columns):
    """Write the tables of sites; return their site files."""
    texts = {}
    for name, frame in frames.items():
        (folder / name).mkdir()
        path = folder / name / "table.csv"
        frame.to_csv(path, index=False)
        kinds = columns.get(name, columns)
        texts[name] = FILE.format(
            path=path,
            dataset=dataset,
            peers=json.dumps(list(frames)),
            estimators=json.dumps(ESTIMATORS),
            columns=", ".join(f"{column} = {kind}" for column, kind in kinds.items()),
        )
    return texts


def open_sites(folder, dataset, *tables):
    return connect(make_sites(folder, write_files(folder, dataset, *tables)), dataset)


@pytest.fixture
def sites(tmp_path, hospitals):
    return open_sites(tmp_path, "stays", hospitals, KINDS)


def rows_script(rows):
    """A mixed model of names of columns, as they are in the files."""
    rows = FederatedSimpleImputer(columns=["bmi"]).fit(rows).transform(rows)
    rows = FederatedOneHotEncoder(columns="sex", drop="first").fit(rows).transform(rows)
    model = PrivateGLMMClassifier().fit(rows, y="died", cluster="ward")
    return model.summary().to_frame(), model.score(rows, y="died", cluster="ward")


def mixed_types_script(rows):
    """Numbers are completed and scaled, labels become indicators, all by their type."""
    numbers = make_column_selector(dtype_include="number")
    labels = make_column_selector(dtype_include="category")
    for step in (
        FederatedSimpleImputer(strategy="median", columns=numbers),
        FederatedStandardScaler(columns=["bmi", "age"]),
        FederatedOneHotEncoder(columns=labels, drop="first"),
    ):
        rows = step.fit(rows).transform(rows)
    mixture = PPEMGaussianMixture(2, max_iter=5, random_state=0, tol=0.0)
    mixture.fit(rows)
    means = pd.DataFrame(mixture.means_, columns=mixture.feature_names_in_)
    return means, mixture.lower_bound_


def columns_script(columns):
    """A network of what two companies know of the same customers."""
    learner = PrivateK2StructureLearner(max_parents=1).fit(columns)
    table = pd.DataFrame(
        learner.adjacency_matrix_.astype(float), columns=learner.feature_names_in_
    )
    return table, learner.n_samples_


def assert_same(found, expected):
    (table, number), (other, other_number) = found, expected
    assert list(table.columns) == list(other.columns)
    assert list(table.index) == list(other.index)
    values = table.select_dtypes("number"), other.select_dtypes("number")
    np.testing.assert_allclose(*values, rtol=1e-6, atol=1e-9)
    assert values[0].size
    assert number == pytest.approx(other_number, rel=1e-9)


quiet = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning",
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore:this is the second fit",
)


@quiet
@pytest.mark.parametrize("script", [rows_script, mixed_types_script])
def test_rows(script, hospitals, sites):
    here = script(HorizontalPartition(hospitals))
    there = script(sites.rows())
    assert_same(there, here)


@quiet
@pytest.mark.slow
@pytest.mark.parametrize("script", [rows_script, mixed_types_script])
def test_rows_at_processes_of_their_own(script, tmp_path, hospitals):
    pytest.importorskip("nvflare", reason="needs the extra skprivbn[nvflare]")
    texts = write_files(tmp_path, "stays", hospitals, KINDS)
    with (
        LocalFederation(tmp_path / "federation", texts) as local,
        local.connect("stays", ready_within=120.0) as federation,
    ):
        there = script(federation.rows())
    assert_same(there, script(HorizontalPartition(hospitals)))


@quiet
def test_columns(tmp_path, companies):
    open_ = {"max_records": 5000, "reveal_membership": True}
    here = columns_script(VerticalPartition(companies, keys="customer_id", **open_))
    kinds = {
        name: {"customer_id": '"key"'} | dict.fromkeys(held, '["0", "1"]')
        for name, held in OWN.items()
    }
    sites = open_sites(tmp_path, "customers", companies, kinds)
    assert_same(columns_script(sites.columns(keys="customer_id", **open_)), here)


def labels_script(rows):
    """Labels are given as people write them, where sites show positions of labels."""
    sexes = {"sex": SEXES}
    summary = rows.describe(states={"sex": SEXES, "ward": WARDS, "died": ["0", "1"]})
    filler = FederatedSimpleImputer(strategy="most_frequent", categories={"sex": SEXES})
    filler.set_params(columns=["sex"])
    encoder = FederatedOneHotEncoder(columns=["sex"], categories=sexes, drop="first")
    rows = filler.fit(rows).transform(rows)
    rows = encoder.fit(rows).transform(rows)
    means = rows.describe(states={"ward": WARDS, "died": ["0", "1"]}).to_frame()
    return means.loc[["count", "mean"], ["sex_male"]], summary["sex"].counts[0]


def network_script(rows):
    """States are declared by their labels, all of them or some."""
    states = {"sex": SEXES, "died": ["0", "1"]}
    states |= {"age": "continuous", "bmi": "continuous"}
    learner = FederatedBayesianNetwork(states=states, missing="skip", max_parents=1)
    learner.fit(rows)
    names = learner.feature_names_in_
    table = pd.DataFrame(learner.adjacency_matrix_.astype(float), columns=names)
    return table, learner.n_samples_


@quiet
@pytest.mark.parametrize("script", [labels_script, network_script])
def test_labels_are_given_alike(script, hospitals, sites):
    assert_same(script(sites.rows()), script(HorizontalPartition(hospitals)))


@quiet
def test_labels_that_sites_do_not_declare_are_named(sites):
    encoder = FederatedOneHotEncoder(columns=["sex"], categories={"sex": ["f", "m"]})
    with pytest.raises(ValueError, match="no categories .'f', 'm'. at the sites"):
        encoder.fit(sites.rows())


@quiet
def test_names_in_process_are_the_values_of_the_columns(hospitals):
    """The oracle: the same model of arrays, without names."""
    model = PrivateGLMMClassifier()
    complete = {
        name: frame[["age", "ward", "died"]] for name, frame in hospitals.items()
    }
    model.fit(HorizontalPartition(complete), y="died", cluster="ward")
    pooled = pd.concat(complete.values())
    expected = PrivateGLMMClassifier().fit(
        pooled[["age"]],
        pooled["died"],
        cluster=pooled["ward"],
        party=np.repeat(NAMES, 150),
    )
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-12)
    assert model.feature_names_in_.tolist() == ["age"]


@quiet
def test_attack_a_step_of_other_columns(sites, monkeypatch):
    """Whoever chooses with what gaps are filled sets the rows with gaps apart."""
    rows = sites.rows()
    imputer = FederatedSimpleImputer(columns=["bmi"]).fit(rows)

    def ask():
        scaler = FederatedStandardScaler(columns=["bmi"])
        return scaler.fit(imputer.transform(rows)).mean_[0]

    honest = ask()
    imputer._on_columns.statistics_ = np.array([1000.0])
    with pytest.raises(PartyError, match="unknown-step|not fitted"):
        ask()
    # the twin: sites apply whatever they are told, and it tells how many have gaps
    monkeypatch.setattr(SomeColumns, "_was_found", lambda self, found: True)
    assert ask() > honest + 50


@quiet
@pytest.mark.parametrize(
    "model", [{"columns": [1, 1], "rest": []}, {"columns": [0], "rest": [0]}]
)
def test_attack_one_column_twice(sites, model):
    rows = sites.rows(["age", "died"])
    step = {"estimator": "FederatedStandardScaler", **model}
    with pytest.raises(PartyError):
        FederatedStandardScaler().fit(rows.transformed(step, ["age", "again"]))


def test_what_is_transformed_cannot_be_the_outcome(sites, hospitals):
    rows = sites.rows(["age", "died"])
    scaled = FederatedStandardScaler(columns=["age"]).fit(rows).transform(rows)
    assert scaled.feature_names == ["age", "died"]
    with pytest.raises(PartitionError, match="choose the columns of X first"):
        PrivateGLMMClassifier().fit(scaled, y="age")
    with pytest.raises(PartitionError, match="y='dead' is no column.*'died'"):
        PrivateGLMMClassifier().fit(HorizontalPartition(hospitals), y="dead")
    with pytest.raises(PartitionError, match="no column of 'b', which has .'age'."):
        tables = {"a": hospitals["north"], "b": hospitals["west"][["age"]]}
        VerticalPartition(tables, keys="ward")
