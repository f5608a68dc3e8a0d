"""The layout that keeps the package readable and its secrets in one place."""

import ast
import inspect
import re
import sys
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import skprivbn
from skprivbn.utils import _EXTRA_OF

PACKAGE = Path(skprivbn.__file__).parent
ROOT = PACKAGE.parent
MODULES = sorted(PACKAGE.rglob("*.py"))

# A module imports from its own part or from a part with a smaller number.
LAYERS = {
    "exceptions": 0,
    "utils": 1,
    "crypto": 2,
    "privacy": 2,
    "federation": 3,
    "partition": 4,
    "programs": 5,
    "base": 6,
}
FAMILIES = {
    "bayesian_network",
    "graphical_model",
    "mixed_model",
    "mixture",
    "preprocessing",
    "structure",
}
TOOLS = {"datasets", "inspection", "metrics"}

CIPHER_LIBRARIES = {
    "cryptography",
    "nacl",
    "phe",
    "tenseal",
}
OPTIONAL = {"flask", "matplotlib", "networkx", "nvflare", "pandas", "pgmpy", "polars"}
OPTIONAL |= {"pyarrow", "werkzeug"}
# Instantiated by FLARE, by class path, in processes that have nvflare.
ENGINE = PACKAGE / "federation" / "flare" / "engine.py"
SEEDABLE = {"RandomState", "check_random_state", "default_rng"}


def part(path):
    """Name the part of the package that a file belongs to."""
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


@cache
def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path, *, lazy=True):
    """Yield (module, names) of every import of a file.

    ``lazy=False`` leaves out imports inside functions, which run on use.
    """
    todo = list(parse(path).body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import, line {node.lineno}"
            yield node.module, [alias.name for alias in node.names]
        elif lazy or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            todo.extend(ast.iter_child_nodes(node))


def packages(path, **kwargs):
    return {module.split(".")[0] for module, _ in imports(path, **kwargs)}


def parts_imported(path, **kwargs):
    found = set()
    for module, names in imports(path, **kwargs):
        top, *rest = module.split(".")
        if top == "skprivbn":
            found.update(rest[:1] or names)
    return found - {part(path), "__version__"}


def short(path):
    return str(path.relative_to(ROOT))


def test_every_part_has_a_place():
    found = {part(path) for path in MODULES} - {"__init__"}
    assert found <= set(LAYERS) | FAMILIES | TOOLS


def test_foundations_import_downwards_only():
    wrong = [
        f"{short(path)} imports {other}"
        for path in MODULES
        if part(path) in LAYERS
        for other in parts_imported(path)
        if other not in LAYERS or LAYERS[other] >= LAYERS[part(path)]
    ]
    assert not wrong


def test_families_and_tools_do_not_import_each_other_in_circles():
    upper = FAMILIES | TOOLS
    needs = {name: set() for name in upper}
    for path in MODULES:
        if part(path) in upper:
            needs[part(path)] |= parts_imported(path, lazy=False) & upper
    while needs:
        free = [name for name, others in needs.items() if not others & set(needs)]
        assert free, f"circular imports among {sorted(needs)}"
        for name in free:
            del needs[name]


def test_tools_know_models_but_no_estimators():
    wrong = [
        short(path)
        for path in MODULES
        if part(path) in TOOLS
        and parts_imported(path) & (FAMILIES - {"bayesian_network"})
    ]
    assert not wrong


def test_networks_are_values():
    """Whatever parties say to each other, or estimators do, stands elsewhere."""
    found = set()
    for path in (PACKAGE / "bayesian_network").glob("*.py"):
        found |= parts_imported(path)
    assert found <= {"utils"}


def test_cipher_libraries_stay_in_crypto():
    wrong = [
        short(path)
        for path in MODULES
        if part(path) != "crypto" and packages(path) & CIPHER_LIBRARIES
    ]
    assert not wrong


def test_optional_packages_are_imported_on_use():
    wrong = [
        short(path)
        for path in MODULES
        if path != ENGINE and packages(path, lazy=False) & OPTIONAL
    ]
    assert not wrong


def test_only_the_engine_imports_its_side():
    module = ".".join(ENGINE.relative_to(ROOT).with_suffix("").parts)
    wrong = [
        short(path)
        for path in MODULES
        for imported, names in imports(path)
        if module in {imported, *(f"{imported}.{name}" for name in names)}
    ]
    assert ENGINE.exists()
    assert not wrong


def test_modules_import_neighbours_not_their_own_package():
    """What is half imported depends on the order in which a package lists its files."""
    wrong = [
        f"{short(path)}: {names}"
        for path in MODULES
        if path.name != "__init__.py" and path.parent != PACKAGE
        for module, names in imports(path)
        if module == ".".join(path.parent.relative_to(ROOT).parts)
        and not all((path.parent / f"{name}.py").exists() for name in names)
    ]
    assert not wrong


def test_private_names_of_scikit_learn_stay_in_one_file():
    wrong = [
        f"{short(path)}: {module} {names}"
        for path in MODULES
        if path != PACKAGE / "utils" / "_sklearn.py"
        for module, names in imports(path)
        if module.split(".")[0] == "sklearn"
        and any(name.startswith("_") for name in [*module.split("."), *names])
    ]
    assert not wrong


def test_secrets_and_noise_do_not_come_from_seedable_generators():
    guarded = [p for p in MODULES if part(p) in {"crypto", "federation", "privacy"}]
    assert guarded
    wrong = []
    for path in guarded:
        for module, names in imports(path):
            if module == "random" or module.startswith("numpy.random"):
                wrong.append(f"{short(path)}: imports {module}")
            elif SEEDABLE & set(names) or (module == "numpy" and "random" in names):
                wrong.append(f"{short(path)}: imports {names} from {module}")
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Attribute):
                name = ast.unparse(node)
                if name in {"np.random", "numpy.random"} or node.attr in SEEDABLE:
                    wrong.append(f"{short(path)}:{node.lineno}: {name}")
    assert not wrong


def test_files_have_one_subject():
    wrong = [
        f"{short(path)}: {n_lines} lines"
        for path in [*MODULES, *(ROOT / "tests").rglob("*.py")]
        if (n_lines := len(path.read_text(encoding="utf-8").splitlines())) > 600
    ]
    assert not wrong, "split these files"


# Kinds of tests that concern the whole package and have a command of their own.
ACROSS = {"fuzz", "golden"}


def subjects(folder):
    """Name the modules of a folder of the package, and the folder itself."""
    if not folder.is_dir():
        return set()
    modules = {path.stem.lstrip("_") for path in folder.glob("*.py")}
    return (modules - {"init__"}) | {folder.name}


def test_tests_stand_where_their_subject_stands():
    """``tests/<folder>/test_<module>.py``, or ``test_<module>_<aspect>.py``."""
    wrong = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        folder = path.relative_to(ROOT / "tests").parent
        # those directly under tests/ concern the whole package
        if folder.parts and folder.parts[0] not in ACROSS:
            subject = path.stem.removeprefix("test_")
            known = subjects(PACKAGE / folder)
            if not any(f"{subject}_".startswith(f"{name}_") for name in known):
                wrong.append(short(path))
    assert not wrong, "move or rename these, after what they test"


def test_texts_name_tests_that_exist():
    named = re.compile(r"[`\"]((?:\w+/)*test_\w+\.py)")
    texts = [*(ROOT / "doc").glob("*.rst"), ROOT / ".ci" / "check_package.py"]
    found = {name for path in texts for name in named.findall(path.read_text())}
    assert len(found) > 20
    assert not {name for name in found if not (ROOT / "tests" / name).is_file()}


def project_texts():
    """Yield every text file that people write, none that a tool makes."""
    suffixes = {"", ".cff", ".cfg", ".html", ".md", ".py", ".rst", ".toml"}
    suffixes |= {".yaml", ".yml"}
    # ".git" is a file in a working tree of git
    generated = {".git", "_build", "__pycache__", "auto_examples", "generated"}
    paths = [*ROOT.glob("*")]
    for folder in [
        ".ci",
        ".github",
        "skprivbn",
        "tests",
        "doc",
        "examples",
        "benchmarks",
    ]:
        paths += (ROOT / folder).rglob("*")
    for path in paths:
        made = generated & set(path.relative_to(ROOT).parts)
        # in a worktree, .git is a file that names the repository's folder
        if (
            path.is_file()
            and path.suffix in suffixes
            and not made
            and path.name != ".git"
        ):
            yield path


def test_nothing_depends_on_one_machine():
    machine_path = re.compile(r"(?<![\w.~-])/(?:home|root|Users|work|opt|tmp)/\w")
    wrong = [
        f"{short(path)}: {found.group()}"
        for path in project_texts()
        if (found := machine_path.search(path.read_text(encoding="utf-8")))
    ]
    assert not wrong


def public_callables():
    """Yield (name, function) of public functions and of public classes' methods."""
    parts = [*LAYERS, *FAMILIES, *TOOLS]
    for module in [import_module(f"skprivbn.{name}") for name in parts]:
        for name in getattr(module, "__all__", ()):
            found = getattr(module, name)
            if inspect.isfunction(found):
                yield f"{module.__name__}.{name}", inspect.unwrap(found)
            elif inspect.isclass(found):
                yield from (
                    (f"{module.__name__}.{name}.{key}", function)
                    for key, function in methods(found)
                )


def methods(found):
    """Yield (name, function) of the public methods that this package defines."""
    for key in dir(found):
        member = inspect.getattr_static(found, key)
        # properties, class methods, and methods that are there only if ...
        for wrapped in ("fget", "__func__", "fn"):
            member = getattr(member, wrapped, member)
        if inspect.isfunction(member) and (key == "__init__" or key[0] != "_"):
            function = inspect.unwrap(member)
            # not of scikit-learn's mixins, nor an __init__ made by dataclasses
            if function.__code__.co_filename.startswith(str(PACKAGE)):
                yield key, function


def test_public_functions_are_annotated():
    found = dict(public_callables())
    assert len(found) > 300
    wrong = [
        f"{name}: {parameter.name}"
        for name, function in found.items()
        for parameter in inspect.signature(function).parameters.values()
        if parameter.annotation is parameter.empty
        and parameter.name not in ("self", "cls")
    ]
    wrong += [
        f"{name}: what it returns"
        for name, function in found.items()
        if "return" not in function.__annotations__
    ]
    assert not wrong


# Which environment of the Makefile runs a file; None is a plain ``pip install .``
ENVIRONMENTS = {
    "README.md": "demo",
    "examples/demo.py": "demo",
    "examples/demo_page.py": "demo",
    "examples/demo_federation.py": "federation",
    # people who try an example have what `plot` brings, as the demo
    "examples/*/*.py": "demo",
    "doc/*.py": "doc",
    "doc/*.rst": "test",
    "benchmarks/*.py": "bench",
    ".ci/*.py": "package",
    "tests/**/*.py": "test",
}
# Distributions whose modules have another name.
MODULE_OF = {
    "causal-learn": "causallearn",
    "pynacl": "nacl",
    "pytest-xdist": "xdist",
    "python-fedci": "fedci",
    "scikit-learn": "sklearn",
}
SNIPPET = re.compile(r"^\s*>>> (?:import|from) (\w+)", re.M)
# Peers that people bring themselves, to convert a network for them.
BROUGHT = {"pgmpy"}


def read_project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def declared(project, extra):
    """Return the modules that the package brings if installed with an extra."""
    extras = project["optional-dependencies"]
    todo = [*project["dependencies"], *(extras[extra] if extra else ())]
    found = set()
    while todo:
        name, _, nested = re.match(r"([\w.-]+)(\[([\w,-]+)\])?", todo.pop()).groups()
        if name == project["name"]:
            todo += [each for key in nested.split(",") for each in extras[key]]
        else:
            name = name.lower()
            found.add(MODULE_OF.get(name, name.replace("-", "_")))
    return found


def imports_anywhere(path):
    """Return the packages that a script, or the snippets of a text, import."""
    if path.suffix == ".py":
        found = packages(path)
    else:
        found = set(SNIPPET.findall(path.read_text(encoding="utf-8")))
    neighbours = {other.stem for other in path.parent.glob("*.py")}
    # tests put benchmarks/ and examples/ on their path to read these
    ours = {"skprivbn", "tests", "headline", "demo_page", "report"} | neighbours
    return found - ours - set(sys.stdlib_module_names)


def imported_on_use(path):
    """Return the packages that a module of ours asks for by `import_optional`."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "import_optional":
            yield node.args[0].value.partition(".")[0]


@cache
def needed():
    """Return (file, extra that runs it, packages that it imports)."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    extra_of = dict(re.findall(r"^(\w+)_extra := (\w+)$", makefile, flags=re.M))
    needs = [
        (path, environment and extra_of[environment], imports_anywhere(path))
        for pattern, environment in ENVIRONMENTS.items()
        for path in ROOT.glob(pattern)
    ]
    for path in MODULES:
        extra = "nvflare" if path == ENGINE else None
        needs.append((path, extra, imports_anywhere(path)))
        needs += [
            (path, _EXTRA_OF.get(name, "plot"), {name} - BROUGHT)
            for name in imported_on_use(path)
        ]
    return needs


def undeclared(project):
    """Return "file imports package" where the extra that runs it lacks the package."""
    return [
        f"{short(path)} imports {name}, which {extra or 'a plain install'} lacks"
        for path, extra, names in needed()
        for name in sorted(names - declared(project, extra))
    ]


def test_what_is_imported_is_installed():
    assert not undeclared(read_project())


@pytest.mark.parametrize(
    "extra, package",
    [
        ("plot", "pandas"),
        ("plot", "matplotlib"),
        ("plot", "networkx"),
        ("nvflare", "nvflare"),
        ("nvflare", "psutil"),
        ("test", "hypothesis"),
        ("doc", "docutils"),
        ("bench", "torch"),
        (None, "scikit-learn"),
        (None, "opendp"),
    ],
)
def test_a_requirement_that_is_taken_out_is_missed(extra, package):
    project = read_project()
    lists = project["optional-dependencies"] if extra else project
    key = extra or "dependencies"
    kept = [each for each in lists[key] if not each.lower().startswith(package)]
    assert len(kept) < len(lists[key])
    lists[key] = kept
    module = MODULE_OF.get(package, package)
    assert any(f" imports {module}," in line for line in undeclared(project))


def test_signatures_fit_a_tooltip():
    """Annotations are names, not what they stand for."""
    long = {
        name: len(str(inspect.signature(function)))
        for name, function in public_callables()
        if not name.endswith("__init__")
    }
    assert max(long.values()) > 100
    assert {name: n for name, n in long.items() if n > 500} == {}
