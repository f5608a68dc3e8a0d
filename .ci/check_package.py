"""Build what would be published and try it as its users will.

Run by ``make check-package`` (some minutes: every step has an environment of its own).

- the wheel installs in an empty environment, and every subpackage can be imported;
- importing skprivbn takes less than twice as long as importing scikit-learn;
- tests pass from the unpacked source distribution, with the newest and with the oldest
  dependencies that pyproject.toml allows;
- every optional extra installs alone.
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
#: a part of the tests that touches every dependency, in about a minute
TESTS = ["test_architecture.py", "federation/test_federation.py", "metrics"]
TESTS += ["crypto/test_backends.py", "privacy/test_mechanisms.py"]
TESTS += ["mixture/test_agreement.py", "structure/test_private_k2.py", "partition"]
TEST_TOOLS = ["pytest", "hypothesis", "pandas", "polars", "pgmpy"]


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
    """Return every dependency at the oldest version that is allowed."""
    return [re.sub(r">=([\w.]+).*", r"==\1", each) for each in PROJECT["dependencies"]]


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


def check_tests(environment, sdist, folder):
    """Run tests out of the source distribution, against the installed wheel."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    tests = [f"tests/{name}" for name in TESTS]
    options = ["-q", "--no-header", "-m", "not slow", "-p", "no:cacheprovider"]
    environment.run("-m", "pytest", *options, *tests, cwd=unpacked)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    steps = ["wheel", "newest", "oldest", "extras"]
    parser.add_argument("steps", nargs="*", default=steps, help=", ".join(steps))
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
        for step, versions in (("newest", []), ("oldest", oldest())):
            if step in chosen:
                environment = Environment(folder / step)
                environment.install(wheel, *versions, *TEST_TOOLS)
                (folder / f"{step}-sdist").mkdir()
                check_tests(environment, sdist, folder / f"{step}-sdist")
                print("tests pass with the", step, "dependencies", flush=True)
        for extra in PROJECT["optional-dependencies"] if "extras" in chosen else ():
            environment = Environment(folder / f"extra-{extra}")
            environment.install(f"{wheel}[{extra}]")
            print("extra", extra, "installs", flush=True)


if __name__ == "__main__":
    main()
