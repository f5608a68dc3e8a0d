"""Which questions of an honest study sites answer, with the recommended site file.

Run with ``python benchmarks/study_site_questions.py`` (two minutes; ``--seeds 7 8 9``
for other patients). Three hospitals, real sites in one process: 14 analyses of 400
patients each, with rare levels and gaps, and 20 of 16,700 patients each; beside them 14
of 100 patients each, too few for much, for the sentences. A row is one analysis, over
all seeds:

- answered, of: in how many of the data sets sites answered;
- not told: columns of which the answer left something out, such as counts of rare
  categories, in the first data set that had such columns;
- refused: the sentence with which sites refused, in the first data set in which they
  did.
"""

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from _record import record

from skprivbn.federation._describe import Summary
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedOneHotEncoder,
    FederatedOrdinalEncoder,
    FederatedPCA,
    FederatedSimpleImputer,
    FederatedStandardScaler,
)
from skprivbn.structure import FederatedBayesianNetwork, FederatedNotearsADMM

# the hospitals stand with the tests
sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.federation.site.study import (
    COMPLETE,
    NUMBERS,
    QUESTIONS,
    SIX,
    after,
    died,
    open_study,
)


def score_mixture(sites):
    """Fit a mixture to rows with gaps filled, and score it."""
    rows = after(sites, NUMBERS, FederatedSimpleImputer(strategy="median"))
    return PPEMGaussianMixture(3, random_state=0).fit(rows).score(rows)


MORE_QUESTIONS = {
    "table of ward and died": lambda sites: sites.rows(["ward", "died"]).describe(
        [("ward", "died")]
    ),
    "scaler, PCA": lambda sites: FederatedPCA(2).fit(
        after(sites, COMPLETE, FederatedStandardScaler())
    ),
    "quartiles, network": lambda sites: FederatedBayesianNetwork().fit(
        after(sites, COMPLETE, FederatedKBinsDiscretizer(4))
    ),
    "network in rounds": lambda sites: FederatedNotearsADMM(max_iter=10).fit(
        after(sites, COMPLETE, FederatedStandardScaler())
    ),
    "medians, mixture, score": score_mixture,
    "scaler, noise": lambda sites: FederatedStandardScaler(
        epsilon=0.2, bounds={"age": (18, 100), "hr": (20, 200)}
    ).fit(sites.rows(["age", "hr"])),
}
#: analyses that are refused where a level is too rare, as refusals advise
ADVISED = {
    "one-hot of frequent levels, scaler": lambda sites: FederatedStandardScaler().fit(
        after(sites, SIX, FederatedOneHotEncoder(min_frequency=20))
    ),
    "died by joined ethnicity": died(["age"], "origin"),
    "frequent levels, network": lambda sites: FederatedBayesianNetwork(
        max_parents=2
    ).fit(after(sites, SIX, FederatedOrdinalEncoder(min_frequency=20))),
}
#: analyses by the number of patients of each hospital
STUDIES = {
    100: QUESTIONS | ADVISED,
    400: QUESTIONS | ADVISED,
    16_700: QUESTIONS | MORE_QUESTIONS,
}


def ask(question, sites):
    """Return the refusal of a question, and which columns the answer leaves out."""
    try:
        answer = question(sites)
    except (RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}", None
    columns = answer.columns if isinstance(answer, Summary) else {}
    hidden = [
        name
        for name, column in columns.items()
        if column.count is None
        or (column.states and (column.counts is None or np.isnan(column.counts).any()))
    ]
    return None, ", ".join(hidden) or None


def measure(n_rows, questions, seeds):
    """Return a row for each analysis."""
    rows = {
        name: {
            "patients of a hospital": n_rows,
            "analysis": name,
            "answered": 0,
            "of": len(seeds),
            "not told": None,
            "refused": None,
        }
        for name in questions
    }
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            sites = open_study(Path(folder), n_rows=n_rows, seed=seed)
            for name, question in questions.items():
                refused, hidden = ask(question, sites)
                row = rows[name]
                row["answered"] += refused is None
                row["not told"] = row["not told"] or hidden
                row["refused"] = row["refused"] or refused
    return list(rows.values())


def main():
    """Ask all questions, print the answers and keep them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for n_rows, questions in STUDIES.items():
        # of many patients, one data set is as good as another
        seeds = options.seeds[:1] if n_rows == max(STUDIES) else options.seeds
        rows += measure(n_rows, questions, seeds)
    for row in rows:
        print(*row.values(), sep=" | ")
    print("kept in", record("site_questions", rows))


if __name__ == "__main__":
    main()
