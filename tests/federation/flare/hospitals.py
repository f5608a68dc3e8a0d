"""Three hospitals: rows of the same kind, and columns about the same people."""

import numpy as np

NAMES = ("north", "south", "west")

SITE_FILE = """
min_parties = 2
peers = ["north", "south", "west"]

[datasets.icu]
path = "stays.csv"
min_rows = 5
min_cell_count = 1
max_exact_fits = {max_exact_fits}
{budget}
estimators = [
    "CollectiveBayesianNetwork",
    "DPCGMLearner",
    "FederatedBayesianNetwork",
    "FederatedDynotears",
    "FederatedGaussianBayesianNetwork",
    "FederatedKBinsDiscretizer",
    "FederatedNotearsADMM",
    "FederatedOneHotEncoder",
    "FederatedOrdinalEncoder",
    "FederatedPCA",
    "FederatedSimpleImputer",
    "FederatedStandardScaler",
    "PPEMGaussianMixture",
    "PrivateGLMMClassifier",
    "PrivateGLMMRegressor",
    "PrivateK2StructureLearner",
    "VotingStructureLearner",
]

[datasets.icu.columns]
a = "float"
b = "float"
ward = ["surgery", "medicine"]
died = "int"
person = "key"
{own}

[datasets.broken]
path = "broken.csv"
min_rows = 1
max_exact_fits = 100
estimators = ["FederatedPCA", "FederatedStandardScaler"]
columns = {{a = "float"}}
"""

#: a cell that cannot be parsed, and must not be seen anywhere else
MARKER = "MARKER-7f3a9c52e1d84b06"

#: columns that only some hospitals have, about the same people
OWN = {"north": ("smoker", "asthma"), "south": ("cough",), "west": ()}


def make_rows(seed=0, n_rows=60):
    """Return rows (a, b, ward), labels of hospitals, and a table of own columns."""
    rng = np.random.default_rng(seed)
    n = n_rows * len(NAMES)
    centres = np.repeat([[0.0, 0.0], [5.0, 4.0], [9.0, 0.0]], n_rows, axis=0)
    X = centres + rng.normal(size=(n, 2))
    X[:, 1] += 0.5 * X[:, 0]
    ward = rng.integers(0, 2, n)
    party = np.tile(NAMES, n_rows)
    smoker = rng.integers(0, 2, n_rows)
    asthma = rng.integers(0, 2, n_rows)
    cough = np.where(rng.uniform(size=n_rows) < 0.9, smoker, 1 - smoker)
    people = {"smoker": smoker, "asthma": asthma, "cough": cough}
    return X, ward, party, people


def outcome(X):
    """Return something that depends on the rows, but not entirely."""
    return (X[:, 0] + 3 * np.sin(1000 * X[:, 1]) > 4).astype(int)


def write_tables(folder, X, ward, party, people):
    """Write ``stays.csv`` of every hospital into ``folder/hospital``."""
    labels = np.array(["surgery", "medicine"])
    died = outcome(X)
    for name in NAMES:
        own = OWN[name]
        lines = [",".join(["a", "b", "ward", "died", "person", "remark", *own])]
        mine = np.flatnonzero(party == name)
        for i, row in enumerate(mine):
            cells = [f"{X[row, 0]!r}", f"{X[row, 1]!r}", labels[ward[row]]]
            cells = [cell.removeprefix("np.float64(").rstrip(")") for cell in cells]
            cells += [
                str(died[row]),
                f"p{i}",
                "-",
                *(str(people[column][i]) for column in own),
            ]
            lines.append(",".join(cells))
        (folder / name).mkdir(parents=True, exist_ok=True)
        text = "\n".join(lines) + "\n"
        (folder / name / "stays.csv").write_text(text)
        # other contents, or it would be charged to the same account
        (folder / name / "people.csv").write_text(text.replace("remark", "note"))
        (folder / name / "broken.csv").write_text(f"a\n1.0\n{MARKER}\n")


def own_columns(federation, columns, **options):
    """Return a handle on columns that not all hospitals have.

    They are those of another file: of one, all exact questions are asked by the same
    roster of sites.
    """
    handle = federation.columns(columns, **options)
    handle.dataset = "people"
    return handle


def site_files(max_exact_fits=100, budget="", path=None):
    """Return the text of every hospital's site file."""
    texts = {}
    for name in NAMES:
        own = "\n".join(f'{column} = ["0", "1"]' for column in OWN[name])
        text = SITE_FILE.format(max_exact_fits=max_exact_fits, budget=budget, own=own)
        icu = text[text.index("[datasets.icu]") : text.index("[datasets.broken]")]
        text += icu.replace("icu", "people").replace("stays.csv", "people.csv")
        if path is not None:
            for table in ("stays.csv", "broken.csv", "people.csv"):
                text = text.replace(table, str(path / name / table))
        texts[name] = text
    return texts
