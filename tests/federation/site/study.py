"""An honest study at three small hospitals: their data, and what is asked."""

import json
import warnings

import numpy as np

from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixed_model import PrivateGLMMClassifier, PrivateGLMMRegressor
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import (
    FederatedOneHotEncoder,
    FederatedSimpleImputer,
    FederatedStandardScaler,
)
from skprivbn.structure import (
    FederatedBayesianNetwork,
    FederatedGaussianBayesianNetwork,
)
from tests.federation.site.loopback import connect, make_sites

NAMES = ("north", "south", "west")
#: of the three hospitals together; the rarest are rarer than what one site may tell
ETHNICITY = (0.78, 0.12, 0.06, 0.025, 0.01, 0.005)
ASA = (0.2, 0.4, 0.29, 0.1, 0.01)
CATEGORIES = {
    "sex": ["f", "m"],
    "diabetes": ["no", "yes"],
    "smoker": ["never", "former", "current"],
    "ward": list("ABCDEF"),
    "sepsis": ["no", "yes"],
    "ventilated": ["no", "yes"],
    "died": ["no", "yes"],
    "ethnicity": [f"group {i}" for i in range(len(ETHNICITY))],
    "dialysis": ["no", "yes"],
    "asa": [str(i + 1) for i in range(len(ASA))],
}
NUMBERS = ["age", "bmi", "lactate", "sbp", "hr", "creatinine", "los"]
#: shares of missing entries
GAPS = {"bmi": 0.05, "lactate": 0.15, "creatinine": 0.1, "smoker": 0.1}
COMPLETE = ["age", "sbp", "hr", "los"]
#: ethnicity once more, with rare levels joined as refusals advise
ORIGIN = """
[datasets.icu.columns.origin]
from = "ethnicity"
kind = ["group 0", "group 1", "other"]

[datasets.icu.columns.origin.map]
"group 2" = "other"
"group 3" = "other"
"group 4" = "other"
"group 5" = "other"
"""

#: what the guide recommends to a site
SITE_FILE = """
min_parties = 3
peers = {peers}

[datasets.icu]
path = "icu.csv"
{rules}
estimators = ["DPCGMLearner", "FederatedBayesianNetwork",
    "FederatedGaussianBayesianNetwork", "FederatedKBinsDiscretizer",
    "FederatedNotearsADMM", "FederatedOneHotEncoder", "FederatedOrdinalEncoder",
    "FederatedPCA", "FederatedSimpleImputer", "FederatedStandardScaler",
    "PPEMGaussianMixture", "PrivateGLMMClassifier", "PrivateGLMMRegressor", "describe"]

[datasets.icu.columns]
{columns}
"""
RECOMMENDED = "max_exact_numbers = 3\nbudget = {epsilon = 1.0}"


def make_patients(n_rows, seed):
    """Return columns of one hospital's patients, as text, empty where missing."""
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(64, 15, n_rows), 18, 99).round(1)
    lactate = np.exp(rng.normal(0.4, 0.5, n_rows)).round(2)
    creatinine = np.exp(rng.normal(0, 0.5, n_rows)).round(2)
    numbers = {
        "age": age,
        "bmi": rng.normal(27, 5, n_rows).round(1),
        "lactate": lactate,
        "sbp": rng.normal(120, 20, n_rows).round(),
        "hr": rng.normal(85, 15, n_rows).round(),
        "creatinine": creatinine,
    }
    sepsis = rng.random(n_rows) < 0.1 + 0.05 * lactate
    ventilated = rng.random(n_rows) < 0.2 + 0.2 * sepsis
    risk = -3.5 + 0.03 * (age - 64) + 0.8 * ventilated + 0.7 * sepsis
    ward = rng.integers(6, size=n_rows)
    died = rng.random(n_rows) < 1 / (1 + np.exp(-risk - 0.3 * (ward % 3)))
    days = 3 + 2 * sepsis + 0.02 * age + 0.5 * (ward % 3) + rng.exponential(2, n_rows)
    numbers["los"] = days.round(1)
    codes = {
        "sex": rng.integers(2, size=n_rows),
        "diabetes": rng.random(n_rows) < 0.2,
        "smoker": rng.choice(3, n_rows, p=[0.5, 0.3, 0.2]),
        "ward": ward,
        "sepsis": sepsis,
        "ventilated": ventilated,
        "died": died,
        "ethnicity": rng.choice(len(ETHNICITY), n_rows, p=ETHNICITY),
        "dialysis": rng.random(n_rows) < 0.015,
        "asa": rng.choice(len(ASA), n_rows, p=ASA),
    }
    table = {name: values.astype(str) for name, values in numbers.items()}
    for name, values in codes.items():
        table[name] = np.array(CATEGORIES[name])[np.asarray(values, dtype=int)]
    for name, share in GAPS.items():
        table[name] = np.where(rng.random(n_rows) < share, "", table[name])
    return table


def open_study(folder, n_rows=400, seed=0, rules=RECOMMENDED):
    """Connect with three hospitals whose site files are as recommended."""
    kinds = dict.fromkeys(NUMBERS, "float") | CATEGORIES
    declared = "\n".join(f"{name} = {json.dumps(kind)}" for name, kind in kinds.items())
    for place, name in enumerate(NAMES):
        table = make_patients(n_rows, [seed, place])
        (folder / name).mkdir(parents=True)
        lines = [
            ",".join(kinds),
            *(",".join(row) for row in zip(*map(table.get, kinds))),
        ]
        (folder / name / "icu.csv").write_text("\n".join(lines) + "\n")
    known = {"peers": json.dumps(NAMES), "columns": declared + ORIGIN}
    rules = rules if isinstance(rules, dict) else dict.fromkeys(NAMES, rules)
    texts = {name: SITE_FILE.format(**known, rules=rules[name]) for name in NAMES}
    return connect(make_sites(folder, texts), "icu")


def after(sites, columns, *steps):
    """Return rows after steps, each fitted to what the one before makes of them."""
    rows = sites.rows(columns)
    for step in steps:
        rows = step.fit(rows).transform(rows)
    return rows


def died(features, cluster):
    return lambda sites: PrivateGLMMClassifier().fit(
        sites.rows(features), y="died", cluster=cluster
    )


def scale_some_encode_others(sites):
    FederatedStandardScaler().fit(sites.rows(COMPLETE))
    return FederatedOneHotEncoder().fit(sites.rows(["sex", "ward", "asa"]))


SIX = ["sex", "diabetes", "ward", "ethnicity", "dialysis", "asa"]
TEN = list(CATEGORIES)
QUESTIONS = {
    "description": lambda sites: sites.rows([*NUMBERS, *TEN]).describe(),
    "scaler over gaps": lambda sites: FederatedStandardScaler().fit(
        sites.rows(NUMBERS)
    ),
    "imputer, scaler": lambda sites: FederatedStandardScaler().fit(
        after(sites, NUMBERS, FederatedSimpleImputer())
    ),
    "one-hot, scaler": lambda sites: FederatedStandardScaler().fit(
        after(sites, SIX, FederatedOneHotEncoder())
    ),
    "some scaled, others encoded": scale_some_encode_others,
    "imputed network": lambda sites: FederatedBayesianNetwork(max_parents=2).fit(
        after(sites, TEN, FederatedSimpleImputer(strategy="most_frequent"))
    ),
    "network": lambda sites: FederatedBayesianNetwork(max_parents=2).fit(
        sites.rows([name for name in TEN if name not in GAPS])
    ),
    "Gaussian network": lambda sites: FederatedGaussianBayesianNetwork("bic").fit(
        sites.rows(COMPLETE)
    ),
    "mixture": lambda sites: PPEMGaussianMixture(2, random_state=0).fit(
        after(sites, COMPLETE, FederatedStandardScaler())
    ),
    "died by ward": died(["age", "sex", "ventilated", "sepsis"], "ward"),
    "died by ethnicity": died(["age", "sex"], "ethnicity"),
    "died by ward, dialysis": died(["age", "dialysis"], "ward"),
    "days by ward": lambda sites: PrivateGLMMRegressor().fit(
        sites.rows(["age", "sepsis"]), y="los", cluster="ward"
    ),
    "chain of tables, noise": lambda sites: DPCGMLearner("chain", epsilon=0.5).fit(
        sites.rows(["sex", "ward", "sepsis", "died"])
    ),
}


def ask(question, sites):
    """Return what an analysis is told; an error is a refusal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return question(sites)
