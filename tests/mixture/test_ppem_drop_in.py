"""scikit-learn's own tests of mixtures fail where the guide says so, and only there."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sklearn

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "doc" / "sklearn_mixture_tests.csv"
MODULES = ["test_gaussian_mixture", "test_mixture"]


def explained(n_parties):
    """Return the tests that fail, as the guide explains them."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {
            row["test"].strip("`"): row["why"]
            for row in csv.DictReader(file)
            if row["parties"] == "any" or n_parties > 1
        }


def failures(chosen, n_parties=1, min_rows=5):
    """Return the tests that fail, each once whatever its parameters."""
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "--tb=no", "-k", chosen]
    command += ["-p", "tests.mixture.drop_in", "-p", "no:cacheprovider", "--pyargs"]
    # theirs know nothing of our warnings, which are errors in our own tests
    command += ["-W", "ignore::skprivbn.exceptions.PrivacyLeakWarning"]
    command += [f"sklearn.mixture.tests.{module}" for module in MODULES]
    settings = {"N_PARTIES": str(n_parties), "MIN_ROWS": str(min_rows)}
    settings |= {"SKLEARN_RUN_FLOAT32_TESTS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True
    )
    assert re.search(r"\d+ (passed|failed)", done.stdout), done.stdout + done.stderr
    return set(re.findall(r"^(?:FAILED|ERROR) \S*::(\w+)", done.stdout, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.parametrize(
    "n_parties, chosen",
    # hundreds of fits of one iteration each take minutes; parties make no difference
    # to arrays of other libraries
    [(1, "not monotonic"), (3, "not monotonic and not array_api")],
)
def test_every_failure_is_explained(n_parties, chosen):
    found = failures(chosen, n_parties)
    assert found <= set(explained(n_parties))
    assert {"test_gaussian_mixture_precisions_init"} <= found


@pytest.mark.slow
def test_what_is_refused_for_few_rows_passes_without_a_least_number():
    chosen = "attributes or estimate_log_prob_resp or component_stable or n_iter"
    assert len(failures(chosen, n_parties=3)) == 2
    assert failures(chosen, n_parties=3, min_rows=1) == set()


@pytest.mark.slow
def test_what_once_differed_passes():
    chosen = "test_regularisation or fit_convergence_warning"
    assert failures(chosen) == set()


def test_explanations_are_of_tests_that_exist():
    folder = Path(sklearn.__file__).parent / "mixture" / "tests"
    text = "".join((folder / f"{m}.py").read_text(encoding="utf-8") for m in MODULES)
    for test, why in explained(3).items():
        assert f"def {test}(" in text and len(why) > 20
