import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import pytest

import skprivbn

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", skprivbn._HOMES)
def test_headline_estimators_are_at_the_top(name):
    assert getattr(skprivbn, name).__name__ == name
    assert name in dir(skprivbn)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'Median'"):
        skprivbn.Median  # noqa: B018


def test_a_name_that_has_moved_says_where_to():
    with pytest.raises(ImportError, match="from skprivbn.structure import Coll"):
        from skprivbn.bayesian_network import CollectiveBayesianNetwork  # noqa: F401


HEAVY = ["cryptography", "dp_accounting", "matplotlib", "nacl", "networkx", "nvflare"]
HEAVY += ["opendp", "pandas", "phe", "polars", "tenseal"]


def loaded(statement):
    """Return the top-level modules that a fresh interpreter has after a statement."""
    code = f"{statement}; import sys; print(*{{m.split('.')[0] for m in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_the_package_loads_no_cipher_and_no_plotting():
    assert not loaded("import skprivbn") & set(HEAVY)


# cryptography and nacl seal messages of every fit
NOT_FOR_ESTIMATORS = {*HEAVY, "flask", "pyarrow", "tqdm"} - {"cryptography", "nacl"}


@pytest.mark.parametrize("family", ["mixture", "mixed_model", "structure"])
def test_importing_an_estimator_loads_nothing_heavier_than_scikit_learn(family):
    ours = loaded(f"import skprivbn.{family}")
    # what scikit-learn itself loads, such as pandas where it is there, is its own
    theirs = loaded("import sklearn.mixture, sklearn.linear_model")
    assert not (ours - theirs) & NOT_FOR_ESTIMATORS


def test_the_package_says_that_it_is_typed():
    assert (files("skprivbn") / "py.typed").is_file()


def test_versions_agree():
    assert skprivbn.__version__ == version("skprivbn")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {skprivbn.__version__}\n" in citation


def test_interpreters_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    promised = {
        words.rpartition(" ")[2]
        for words in project["classifiers"]
        if words.startswith("Programming Language :: Python :: 3.")
    }
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert promised == set(re.findall(r'"(3\.\d+)"', workflow))
    assert project["requires-python"] == f">={min(promised)}"
