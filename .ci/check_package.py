"""Build what would be published and try it as its users will.

Run by ``make check-package`` (some minutes: every step has an environment of its own).

- the wheel installs in an empty environment, every subpackage can be imported, and the
  README's snippets run there;
- importing skprivbn takes less than twice as long as importing scikit-learn;
- tests pass from the unpacked source distribution, with the newest and with the oldest
  dependencies that pyproject.toml allows;
- every optional extra installs alone, and what it is for works.
"""

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SUBPACKAGES = sorted(
    path.parent.name for path in (ROOT / "skprivbn").glob("*/__init__.py")
)
#: a part of the tests that touches every dependency
TESTS = ["test_architecture.py", "federation/test_program.py", "metrics"]
TESTS += ["crypto/test_base.py", "crypto/test_psi.py", "partition"]
TESTS += ["privacy/test_mechanisms.py", "privacy/test_composition.py"]
TESTS += ["mixture/test_ppem_agreement.py", "structure/k2/test_private.py"]
TEST_TOOLS = ["pytest", "hypothesis"]
#: read or compared with in these tests, so their oldest versions matter as well
PEERS = ["pandas", "polars", "pgmpy"]
#: what to run where nothing but the package with this extra is installed
EXTRAS = {
    "plot": "from skprivbn.datasets import load_asia; "
    "from skprivbn.inspection import DAGDisplay; "
    "DAGDisplay.from_network(load_asia()).figure_.savefig('asia.png')",
    "nvflare": "import skprivbn.federation.flare.engine",
    "lint": "import bandit, mypy, pip_audit, ruff",
    "package": "import build",
    "test": "import hypothesis, matplotlib, nvflare, numpydoc, pandas, pgmpy, polars, "
    "pytest, pytest_cov, rich, xdist",
    "doc": "import numpydoc, pandas, pydata_sphinx_theme, sphinx, sphinx_gallery",
    "bench": "import matplotlib, networkx, pandas, pgmpy",
}
#: large, and fetched by ``make bench`` anyway
HEAVY = {"torch", "mbi==2.0.0", "jax"}


class Environment:
    """An environment with nothing in it but what is installed here."""

    def __init__(self, folder):
        venv.create(folder, with_pip=True)
        self.python = Path(folder) / "bin" / "python"

    def run(self, *arguments, cwd=None, capture=False):
        command = [str(self.python), *map(str, arguments)]
        done = subprocess.run(
            command, cwd=cwd, check=True, text=True, capture_output=capture
        )
        return done.stdout

    def install(self, *requirements):
        options = ["--quiet", "--disable-pip-version-check"]
        self.run("-m", "pip", "install", *options, *requirements)
        self.run("-m", "pip", "check")


def build(folder):
    """Return the source distribution and the wheel."""
    command = [sys.executable, "-m", "build", "--outdir", folder, ROOT]
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def oldest():
    """Return dependencies and peers at the oldest versions that are allowed."""
    extras = PROJECT["optional-dependencies"]
    tools = extras["test"] + extras["plot"]
    peers = [each for each in tools if re.split("[<>=]", each)[0] in PEERS]
    # All of them fixed: pip searches long among what is left open.
    return [
        re.sub(r">=([\w.]+).*", r"==\1", each)
        for each in PROJECT["dependencies"] + peers
    ]


def import_seconds(environment, module):
    """Return the median time that a fresh interpreter takes to import a module."""
    code = f"import time; s = time.process_time(); import {module}; "
    code += "print(time.process_time() - s)"
    runs = [environment.run("-c", code, capture=True) for _ in range(7)]
    return median(map(float, runs))


def check_import(environment):
    names = ", ".join(f"skprivbn.{name}" for name in SUBPACKAGES)
    environment.run("-c", f"import {names}", cwd=tempfile.gettempdir())
    ours, theirs, everything = (
        import_seconds(environment, modules)
        for modules in ("skprivbn", "sklearn", names)
    )
    print(f"import skprivbn: {ours:.2f} s of CPU time, scikit-learn: {theirs:.2f} s")
    print(f"all subpackages, with the ciphers: {everything:.2f} s", flush=True)
    if ours > 2 * theirs:
        raise SystemExit("importing skprivbn takes more than twice scikit-learn's time")


def check_readme(environment, folder):
    """Run the README's snippets where nothing but the package is installed."""
    options = ["-o", "NORMALIZE_WHITESPACE", "-o", "ELLIPSIS"]
    environment.run("-m", "doctest", *options, ROOT / "README.md", cwd=folder)
    print("the README's snippets run after a plain install", flush=True)


def check_tests(environment, sdist, folder):
    """Run tests out of the source distribution, against the installed wheel."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    tests = [f"tests/{name}" for name in TESTS]
    options = ["-q", "--no-header", "-m", "not slow", "-p", "no:cacheprovider"]
    environment.run("-m", "pytest", *options, *tests, cwd=unpacked)


def check_extra(extra, wheel, folder):
    """Install the wheel with one extra and use it."""
    requirements = PROJECT["optional-dependencies"][extra]
    environment = Environment(folder)
    if HEAVY.isdisjoint(requirements):
        environment.install(f"{wheel}[{extra}]")
    else:
        light = [each for each in requirements if each not in HEAVY]
        own = [
            f"{wheel}{each[len(PROJECT['name']) :]}" for each in light if "[" in each
        ]
        environment.install(*own, *(each for each in light if "[" not in each))
    environment.run("-c", EXTRAS[extra], cwd=folder)
    print("extra", extra, "installs and works", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    steps = ["wheel", "newest", "oldest", "extras"]
    parser.add_argument(
        "steps", nargs="*", default=steps, help=", ".join(steps + list(EXTRAS))
    )
    chosen = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "dist").mkdir()
        sdist, wheel = build(folder / "dist")
        print("built", sdist.name, "and", wheel.name, flush=True)
        if "wheel" in chosen:
            environment = Environment(folder / "wheel")
            environment.install(wheel)
            check_import(environment)
            check_readme(environment, folder)
        for step, versions in (("newest", PEERS), ("oldest", oldest())):
            if step in chosen:
                environment = Environment(folder / step)
                environment.install(wheel, *versions, *TEST_TOOLS)
                (folder / f"{step}-sdist").mkdir()
                check_tests(environment, sdist, folder / f"{step}-sdist")
                print("tests pass with the", step, "dependencies", flush=True)
        for extra in PROJECT["optional-dependencies"]:
            if "extras" in chosen or extra in chosen:
                check_extra(extra, wheel, folder / f"extra-{extra}")


if __name__ == "__main__":
    main()
