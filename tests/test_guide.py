"""Pages of the guide name every estimator, and parameters that exist."""

import inspect
import re
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator

from skprivbn.base import FederatedEstimator, PrivateEstimator
from tests.estimators import public_estimators
from tests.test_docstrings import CLASSES

DOC = Path(__file__).parents[1] / "doc"
EXAMPLES = Path(__file__).parents[1] / "examples"
ESTIMATORS = {
    name.rpartition(".")[2]: cls
    for name, cls in CLASSES.items()
    if issubclass(cls, BaseEstimator)
    and hasattr(cls, "fit")
    # the base of estimators that others write
    and cls not in (FederatedEstimator, PrivateEstimator)
}
# Fits and parameters of anything that protects rows or columns.
POOLED = {"K2StructureLearner", "Notears", "PrivateSearchCV"}


def read(page):
    return (DOC / page).read_text(encoding="utf-8")


def test_threat_model_lists_every_estimator():
    page = read("threat_model.rst")
    assert not [n for n in ESTIMATORS if n not in POOLED and f".{n}`" not in page]


def test_glossary_says_what_every_score_is():
    page = read("glossary.rst")
    scoring = [type(e).__name__ for e in public_estimators() if hasattr(e, "score")]
    assert len(scoring) > 8
    assert not [name for name in scoring if f".{name}`" not in page]


def test_defaults_of_backends_in_the_threat_model():
    page = read("threat_model.rst")
    rows = re.findall(r"   \* - (:class:.*?)\n     - ", page, flags=re.S)
    found = {
        name: row.rpartition("(")[2].rstrip(")")
        for row in rows
        for name in re.findall(r"\.(\w+)`", row)
    }
    assert len(found) > 8
    for name, backend in found.items():
        parameter = inspect.signature(ESTIMATORS[name]).parameters.get("backend")
        default = "no sums" if parameter is None else parameter.default
        assert default == backend, name


def test_dp_options_in_the_threat_model():
    """An estimator takes epsilon if and only if the table says that it limits."""
    page = read("threat_model.rst").partition("Every estimator\n")[2]
    for row in page.split("   * - ")[1:]:
        cells = row.split("\n     - ")
        for name in re.findall(r"\.(\w+)`", cells[0]):
            parameters = inspect.signature(ESTIMATORS[name]).parameters
            assert ("epsilon" in parameters) == ("epsilon" in cells[4]), name


@pytest.mark.parametrize(
    "page, names",
    {
        "mixture.rst": ["PPEMGaussianMixture"],
        "mixed_model.rst": ["PrivateGLMMClassifier"],
        "collective.rst": ["CollectiveBayesianNetwork"],
        "graphical_model.rst": ["DPCGMLearner"],
        "structure_k2.rst": ["PrivateK2StructureLearner"],
        "structure_federated.rst": [
            "FederatedGaussianBayesianNetwork",
            "FederatedNotearsADMM",
        ],
    }.items(),
)
def test_parameters_that_matter_exist(page, names):
    section = read(page).partition("Parameters that matter\n=")[2]
    section = re.split(r"\n=+\n", section)[0] + re.split(r"\n=+\n", section)[1]
    listed = re.findall(r"^``.*$", section, flags=re.M)
    words = {word for line in listed for word in re.findall(r"``(\w+)``", line)}
    known = {
        p for name in names for p in inspect.signature(ESTIMATORS[name]).parameters
    }
    assert len(words) > 3
    assert not words - known


def headings(page):
    return re.findall(r"^(\S.*)\n=+$", read(page), flags=re.M)


def test_quick_start_begins_with_learning_together_and_ends_with_sites():
    assert headings("quick_start.rst") == [
        "Quick start",
        "Learn together",
        "Who learnt what",
        "In a pipeline",
        "What privacy costs",
        "Between organisations",
    ]


def test_how_to_pages_are_in_the_guide():
    pages = ("data", "backends", "missing_values", "save_and_load", "flare")
    listed = re.findall(r"^   (\w+)$", read("user_guide.rst"), flags=re.M)
    assert {*pages, "write_your_own"} <= set(listed)


@pytest.mark.parametrize(
    "page, works",
    {
        "collective.rst": ["VertiBayes"],
        "graphical_model.rst": ["AIM", "PrivBayes", "Fu et al."],
        "mixed_model.rst": ["DLMM", "Zhu2020"],
        "mixture_method.rst": [],
        "structure_federated.rst": ["FedGES", "FedPC", "FedCDH"],
        "structure_k2.rst": ["PrivBayes", "VertiBayes"],
        "structure_rows.rst": ["FedGES", "FedPC"],
    }.items(),
)
def test_every_family_is_compared_with_related_work(page, works):
    _, _, section = read(page).partition("\nRelated work\n=")
    section = re.split(r"\n\S.*\n=+\n", section)[0]
    assert len(section.split()) > 50
    assert not [name for name in works if name not in section]


def test_authors_are_called_by_their_names():
    (authors,) = re.findall(r"\.\. \[Zhu2020\] (.*?)\.", read("mixed_model.rst"))
    assert "Zheng" in authors and "Bian" not in authors


def test_examples_show_no_seconds_and_spell_out_what_they_measure():
    """Seconds are those of the machine that built the page."""
    texts = {p.name: p.read_text() for p in EXAMPLES.glob("*/plot_*.py")}
    assert len(texts) > 15
    labels = {
        name: " ".join(re.findall(r"(?:label|title)\w*\W{1,3}f?[\"'](.*?)[\"']", text))
        for name, text in texts.items()
    }
    assert sum(map(bool, labels.values())) > 15
    short = r"\b(SHD|TPR|FDR|seconds|ms)\b"
    assert not [text for text in labels.values() if re.search(short, text)]
