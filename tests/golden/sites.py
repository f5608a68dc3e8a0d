"""Which questions sites answer, by how many rows they have and what they allow."""

import json
import warnings

import numpy as np

from skprivbn.exceptions import PartyError
from skprivbn.federation._models import PROTOCOLS, announced
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixed_model import PrivateGLMMClassifier, PrivateGLMMRegressor
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedOneHotEncoder,
    FederatedOrdinalEncoder,
    FederatedPCA,
    FederatedSimpleImputer,
    FederatedStandardScaler,
)
from skprivbn.structure import (
    CollectiveBayesianNetwork,
    FederatedBayesianNetwork,
    FederatedDynotears,
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    PrivateK2StructureLearner,
    VotingStructureLearner,
)
from tests.federation.site.loopback import connect, make_sites

NAMES = ("north", "south", "west")
#: rows of each site; sites want 20
SIZES = {"many rows": 200, "few rows": 24, "too few rows": 12}
POLICIES = {
    "exact": "max_exact_fits = 1000",
    "noisy": "max_exact_fits = 0\nbudget = {epsilon = 999.0, delta = 0.1}",
}
SITE_FILE = """
min_parties = 2
peers = {peers}

[datasets.icu]
path = "icu.csv"
min_rows = 20
{policy}
estimators = {estimators}
columns = {{{columns}}}

[datasets.people]
path = "people.csv"
min_rows = 20
{policy}
estimators = {estimators}
columns = {{{own}}}
"""
COLUMNS = {"a": '"float"', "b": '"float"', "c": '"float"', "days": '"float"'}
COLUMNS |= {"ward": '["medicine", "surgery"]', "died": '["0", "1"]'}
#: of the same people, at different sites
OWN = {"north": ("smoker", "asthma"), "south": ("cough",), "west": ("fever",)}
NUMBERS, LABELS = ["a", "b", "c"], ["ward", "died"]
NOISE = {"epsilon": 1.0}
BOUNDED = {**NOISE, "bounds": (-9.0, 9.0)}
STATES = [["medicine", "surgery"], ["0", "1"]]


def fit(estimator, columns, **beside):
    """Return a question about rows: fit an estimator to some columns."""
    return lambda sites: estimator.fit(sites.rows(columns), **beside)


def apply(step, columns):
    """Return a question: fit a step, and a scaler to what comes out of it."""

    def ask(sites):
        rows = sites.rows(columns)
        FederatedStandardScaler().fit(step.fit(rows).transform(rows))

    return ask


def score(estimator, columns, **beside):
    """Return a question: fit an estimator and add up the scores of all rows."""

    def ask(sites):
        rows = sites.rows(columns)
        estimator.fit(rows, **beside).score(rows, **beside)

    return ask


def join(estimator):
    """Return a question about columns that sites have of the same people."""
    names = [name for held in OWN.values() for name in held]
    return lambda sites: estimator.fit(sites.columns(names))


MIXTURE = {"max_iter": 3, "random_state": 0}
QUESTIONS = {
    "scaler": fit(FederatedStandardScaler(), NUMBERS),
    "scaler of labels": fit(FederatedStandardScaler(), ["died"]),
    "scaler, ckks": fit(FederatedStandardScaler(backend="ckks"), NUMBERS),
    "scaler, noise": fit(FederatedStandardScaler(**BOUNDED), NUMBERS),
    "PCA": fit(FederatedPCA(), NUMBERS),
    "PCA, noise": fit(FederatedPCA(**BOUNDED), NUMBERS),
    "imputer": fit(FederatedSimpleImputer(), NUMBERS),
    "imputer, noise": fit(FederatedSimpleImputer(**BOUNDED), NUMBERS),
    "two bins": fit(FederatedKBinsDiscretizer(2), NUMBERS),
    "ten bins": fit(FederatedKBinsDiscretizer(10), NUMBERS),
    "bins, noise": fit(FederatedKBinsDiscretizer(3, **BOUNDED), NUMBERS),
    "scaler of two bins": apply(FederatedKBinsDiscretizer(2), ["a"]),
    "scaler of scaled rows": apply(FederatedStandardScaler(), NUMBERS),
    "codes": fit(FederatedOrdinalEncoder(), LABELS),
    "indicators": fit(FederatedOneHotEncoder(), LABELS),
    "description": lambda sites: sites.rows([*NUMBERS, *LABELS]).describe(),
    "description with a table": lambda sites: sites.rows(LABELS).describe(
        [("ward", "died")]
    ),
    "description, noise": lambda sites: sites.rows(NUMBERS).describe(**BOUNDED),
    "Gaussian network": fit(FederatedGaussianBayesianNetwork("bic"), NUMBERS),
    "score of rows": score(FederatedGaussianBayesianNetwork("bic"), NUMBERS),
    "Gaussian network, noise": fit(
        FederatedGaussianBayesianNetwork("bic", **BOUNDED), NUMBERS
    ),
    "ADMM": fit(FederatedNotearsADMM(max_iter=2), NUMBERS),
    "ADMM, networks": fit(
        FederatedNotearsADMM(
            "mlp", mlp_params={"n_hidden": 2}, max_iter=2, random_state=0
        ),
        NUMBERS,
    ),
    "ADMM, noise": fit(FederatedNotearsADMM(max_iter=2, **BOUNDED), NUMBERS),
    "time series": fit(FederatedDynotears(max_iter=2), NUMBERS, series="ward"),
    "votes": fit(
        VotingStructureLearner(FederatedGaussianBayesianNetwork("bic")), NUMBERS
    ),
    "mixture": fit(PPEMGaussianMixture(2, **MIXTURE), NUMBERS),
    "mixture of many": fit(PPEMGaussianMixture(12, **MIXTURE), NUMBERS),
    "mixture, noise": fit(PPEMGaussianMixture(2, **BOUNDED, **MIXTURE), NUMBERS),
    "mixed classifier": fit(PrivateGLMMClassifier(), NUMBERS, y="died", cluster="ward"),
    "mixed regressor": fit(PrivateGLMMRegressor(), NUMBERS, y="days", cluster="ward"),
    "rows as weights": fit(PrivateGLMMRegressor(), ["a"], y="days", sample_weight="c"),
    "network": fit(FederatedBayesianNetwork(), LABELS),
    "network, noise": fit(FederatedBayesianNetwork(**NOISE), LABELS),
    "tables, noise": fit(DPCGMLearner(cliques=[(0, 1)], **NOISE), LABELS),
    "adaptive tables, noise": fit(DPCGMLearner(delta=1e-6, **NOISE), LABELS),
    "sums in the clear": fit(FederatedStandardScaler(backend="plaintext"), NUMBERS),
}
COLUMN_QUESTIONS = {
    "K2 of columns": join(PrivateK2StructureLearner(max_parents=1)),
    "K2 of columns, noise": join(PrivateK2StructureLearner(max_parents=1, **NOISE)),
    "collective of columns": join(CollectiveBayesianNetwork(max_parents=1)),
    "rows shown": join(CollectiveBayesianNetwork(disclosure="rows", random_state=0)),
    "tables of columns, noise": join(
        DPCGMLearner("chain", states=[("0", "1")] * 4, **NOISE)
    ),
}


def write_tables(folder, n_rows):
    """Write the rows of all sites, and their columns of the same people."""
    rng = np.random.default_rng(8)
    smoker = rng.integers(2, size=n_rows)
    people = {"smoker": smoker, "asthma": rng.integers(2, size=n_rows)}
    people["cough"] = np.where(rng.random(n_rows) < 0.9, smoker, 1 - smoker)
    people["fever"] = np.where(rng.random(n_rows) < 0.8, people["cough"], smoker)
    for name in NAMES:
        rows = rng.normal(size=(n_rows, 4))
        rows[:, 1] += rows[:, 0]
        rows[:, 2] = np.abs(rows[:, 2])
        rows[:, 3] += 0.5 * rows[:, 0]
        ward = np.array(["medicine", "surgery"])[np.arange(n_rows) % 2]
        died = (rows[:, 0] + rng.normal(size=n_rows) > 0).astype(int)
        own = zip(*(people[column] for column in OWN[name]))
        tables = {
            "icu": [
                COLUMNS,
                *([*row, *rest] for row, *rest in zip(rows.tolist(), ward, died)),
            ],
            "people": [OWN[name], *own],
        }
        (folder / name).mkdir(parents=True)
        for table, lines in tables.items():
            text = "\n".join(",".join(map(str, line)) for line in lines) + "\n"
            (folder / name / f"{table}.csv").write_text(text)


def run_sites(folder, size, policy):
    """Return three sites."""
    write_tables(folder, SIZES[size])
    texts = {
        name: SITE_FILE.format(
            peers=json.dumps(NAMES),
            policy=POLICIES[policy],
            estimators=json.dumps(sorted(announced(PROTOCOLS))),
            columns=", ".join(f"{column} = {kind}" for column, kind in COLUMNS.items()),
            own=", ".join(f'{column} = ["0", "1"]' for column in OWN[name]),
        )
        for name in NAMES
    }
    return make_sites(folder, texts)


def ask_all(folder, size, policy):
    """Return, for each question, whether sites answer it."""
    sites, answers = run_sites(folder, size, policy), {}
    for dataset, questions in (("icu", QUESTIONS), ("people", COLUMN_QUESTIONS)):
        session = connect(sites, dataset)
        for name, ask in questions.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    ask(session)
                    answers[name] = "answered"
                except (PartyError, ValueError):  # or all sites found too few rows
                    answers[name] = "refused"
    return answers
