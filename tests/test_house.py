"""What a protocol is, it says itself: other rooms know it neither by name nor by key.

Each rule is shown code that breaks it, too.
"""

import ast
import difflib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator

import skprivbn
from skprivbn.federation import Program

PACKAGE = Path(skprivbn.__file__).parent
ROOT = PACKAGE.parent
#: rooms that serve every protocol, and so know none
ROOMS = ("federation", "crypto")


def announced():
    """Return what this distribution announces, by name, from its project file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = {}
    for name, place in project["entry-points"]["skprivbn.protocols"].items():
        module, _, attribute = place.partition(":")
        found[name] = getattr(import_module(module), attribute)
    return found


def estimators():
    return {k: v for k, v in announced().items() if issubclass(v, BaseEstimator)}


def party_classes():
    return {party for each in announced().values() for party in each.protocols}


def walk(folder):
    for path in sorted(folder.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def read_by_key(tree):
    """Yield expressions that read terms with a constant string instead of a name.

    Terms are whatever has a name that ends so, or is made of something that has:
    ``self.terms["tol"]``, ``terms.to_payload().get("tol")``, ``getattr(terms, "tol")``.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=source, slice=ast.Constant(value=str())):
                pass
            case ast.Call(
                func=ast.Attribute(value=source, attr="get" | "pop" | "__getitem__"),
                args=[ast.Constant(value=str()), *_],
            ):
                pass
            case ast.Call(
                func=ast.Name(id="getattr"),
                args=[source, ast.Constant(value=str()), *_],
            ):
                pass
            case _:
                continue
        names = {getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(source)}
        if any(name.endswith(("terms", "settings")) for name in names):
            yield ast.unparse(node)


def test_parameters_of_protocols_are_attributes():
    wrong = [
        f"{path.relative_to(ROOT)}: {found}"
        for path, tree in walk(PACKAGE)
        for found in read_by_key(tree)
    ]
    assert not wrong


@pytest.mark.parametrize(
    "line",
    [
        "n = self.settings['n_components']",
        "n = self.terms['n_components']",
        "n = terms.to_payload()['n_components']",
        "n = vars(self.terms).get('n_components', 1)",
        "n = getattr(em_terms, 'n_components')",
        "n = agreement.settings.pop('n_components')",
    ],
)
def test_a_parameter_that_is_read_by_key_is_seen(line):
    assert list(read_by_key(ast.parse(line)))
    assert not list(read_by_key(ast.parse("n = self.terms.n_components")))


def names_of_families():
    """Return names of families, estimators, parties and terms, and no plain words."""
    common = tuple(f"skprivbn.{x}" for x in ("federation", "programs", "protocols"))
    parties = {p for p in party_classes() if not p.__module__.startswith(common)}
    # programs are called by plain words
    found = {*estimators(), *(p.__name__ for p in parties if isinstance(p, type))}
    found |= {party.terms.__name__ for party in parties} - {"Terms"}
    modules = {estimator.__module__ for estimator in estimators().values()}
    # skprivbn.structure.k2._private: structure, structure.k2
    for module in modules:
        _, *folders, _ = module.split(".")
        found |= {".".join(folders[: i + 1]) for i in range(len(folders))}
        found |= set(folders[1:]) - {"gaussian", "rows"}  # also plain words
    return found


def family_words(tree, names, *, in_sentences=True):
    """Yield names of families in code: identifiers, imports, texts; no docstrings."""
    pattern = re.compile(rf"(?<![a-z])({'|'.join(map(re.escape, names))})(?![a-z])")
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            # a docstring may show an estimator in its example
            body[0] = ast.Pass()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.arg(arg=text):
                pass
            case ast.FunctionDef(name=text) | ast.ClassDef(name=text):
                pass
            case ast.alias(name=text) | ast.Constant(value=str(text)):
                pass
            case ast.ImportFrom(module=str(text)):
                pass
            case _:
                continue
        if in_sentences or " " not in text:
            yield from pattern.findall(text)


def test_rooms_of_all_protocols_name_no_family():
    names = names_of_families()
    assert {"mixture", "k2", "PPEMGaussianMixture", "EMTerms"} <= names
    wrong = [
        f"{path.relative_to(ROOT)}: {word}"
        for room in ROOMS
        for path, tree in walk(PACKAGE / room)
        for word in family_words(tree, names)
    ]
    assert not wrong


@pytest.mark.parametrize(
    "line",
    [
        "ROUNDS = {'PPEMGaussianMixture': 10}",
        "from skprivbn.mixture import x",
        "import skprivbn.structure.k2",
        "def em_rounds(terms): return isinstance(terms, EMTerms)",
        "if party.estimator == 'the DPCGMLearner of old': pass",
        "def k2_rounds(): pass",
    ],
)
def test_a_family_that_is_named_is_seen(line):
    assert list(family_words(ast.parse(line), names_of_families()))


def test_only_its_family_and_the_map_name_an_estimator():
    """In code; a sentence, such as advice in an error, may point to it."""
    home = {n: e.__module__.split(".")[1] for n, e in estimators().items()}
    wrong = [
        f"{path.relative_to(ROOT)}: {word}"
        for path, tree in walk(PACKAGE)
        for word in family_words(tree, home, in_sentences=False)
        if path != PACKAGE / "__init__.py"
        and not path.is_relative_to(PACKAGE / home[word])
    ]
    assert not wrong


#: fields of terms whose keys are not the protocol's: columns, or parameters of others
OPEN_KEYS = {"bins", "model", "options", "parameters"}


def test_terms_are_frozen_and_keep_no_parameters_in_dicts():
    parties = party_classes()
    assert len(parties) > 15
    for party in parties:
        assert isinstance(party, Program)
        assert is_dataclass(party.terms) and party.terms.__dataclass_params__.frozen
        kept = {f.name for f in fields(party.terms) if "dict[" in str(f.type)}
        assert kept <= OPEN_KEYS, f"{party.terms.__name__}: make a dataclass of {kept}"


TOY = '''"""The smallest and the largest of nothing: a toy."""

import numpy as np

from skprivbn.base import FederatedEstimator
from skprivbn.federation import ALL_ROWS, Sum, Terms, program


@program(Terms)
def mean(me):
    """One sum."""
    X = me.numbers()
    sums = np.append(len(X), X.sum(axis=0))
    n, *sums = yield Sum(sums, "number and sums of rows", ALL_ROWS)
    return np.array(sums) / n


class FederatedMean(FederatedEstimator):
    """The mean of the rows of all parties."""

    protocols = (mean,)

    def __init__(self, backend="masking"):
        self.backend = backend

    def _learn(self, partition):
        self.mean_ = self._run(partition, mean, Terms())
'''

#: what is entered, and behind which line, to have one estimator more
ENTERED = {
    "skprivbn/preprocessing/_mean.py": (None, TOY),
    "skprivbn/preprocessing/__init__.py": (
        "from skprivbn.preprocessing._discretizer import FederatedKBinsDiscretizer\n",
        "from skprivbn.preprocessing._mean import FederatedMean\n",
    ),
    "pyproject.toml": (
        '[project.entry-points."skprivbn.protocols"]\n',
        'FederatedMean = "skprivbn.preprocessing:FederatedMean"\n',
    ),
    "doc/api/skprivbn.preprocessing.rst": (
        "   FederatedKBinsDiscretizer\n",
        "   FederatedMean\n",
    ),
}

FIT = """
import sys
from pathlib import Path

import numpy as np

from skprivbn.preprocessing import FederatedMean
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.site.loopback import connect, make_sites

folder = Path(sys.argv[1])
X, ward, party, people = make_rows()
write_tables(folder, X, ward, party, people)
files = {
    name: text.replace("estimators = [", 'estimators = ["FederatedMean",', 1)
    for name, text in site_files().items()
}
np.testing.assert_allclose(FederatedMean().fit(X, party=party).mean_, X.mean(axis=0))
rows = connect(make_sites(folder, files), "icu").rows(["a", "b"])
np.testing.assert_allclose(FederatedMean().fit(rows).mean_, X.mean(axis=0))
"""


def enter(folder, entered):
    """Copy what is distributed, enter lines; return the difference as text."""
    shutil.copytree(
        PACKAGE, folder / "skprivbn", ignore=shutil.ignore_patterns("__py*")
    )
    difference = []
    for name, (line, new) in entered.items():
        path = ROOT / name
        old = "" if line is None else path.read_text(encoding="utf-8")
        assert line is None or old.count(line) == 1
        text = new if line is None else old.replace(line, line + new)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        difference += difflib.unified_diff(
            old.splitlines(True), text.splitlines(True), name, name, n=0
        )
    return "".join(difference)


def install(folder):
    """Announce what the project file of a folder announces, as pip would."""
    path = folder / "pyproject.toml"
    source = path if path.exists() else ROOT / "pyproject.toml"
    project = tomllib.loads(source.read_text())["project"]
    info = folder / f"skprivbn-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: skprivbn\nVersion: {project['version']}\n"
    )
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{k} = {v}" for k, v in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))


def fit_toy(folder):
    search = os.pathsep.join([str(folder), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-c", FIT, str(folder / "sites")],
        env=os.environ | {"PYTHONPATH": search},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_new_estimator_touches_its_family_the_map_and_its_docs(tmp_path):
    difference = enter(tmp_path, ENTERED)
    touched = set(re.findall(r"^\+\+\+ (\S+)$", difference, flags=re.M))
    own = ("skprivbn/preprocessing/", "doc/", "pyproject.toml")
    assert touched == set(ENTERED) and all(name.startswith(own) for name in touched)
    assert not re.findall(r"^-(?!--)", difference, flags=re.M), "lines were taken out"
    install(tmp_path)
    done = fit_toy(tmp_path)
    assert done.returncode == 0, difference + done.stderr


@pytest.mark.slow
def test_a_new_estimator_that_is_not_announced_runs_at_no_site(tmp_path):
    enter(tmp_path, {k: v for k, v in ENTERED.items() if k != "pyproject.toml"})
    install(tmp_path)
    done = fit_toy(tmp_path)
    assert done.returncode != 0
    assert "no such estimators" in done.stderr
