"""What is kept of a run of the slow tests."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.slow_record import describe_commit

ROOT = Path(__file__).parents[1]
TESTS = """
import pytest

def test_one(): pass
def test_two(): assert False
@pytest.mark.skip
def test_three(): pass
@pytest.fixture
def broken(): raise ValueError
def test_four(broken): pass
"""


def run(folder, *options):
    (folder / "test_some.py").write_text(TESTS)
    kept = folder / "kept.md"
    command = [sys.executable, "-m", "pytest", "-p", "tests.slow_record"]
    command += [f"--slow-record={kept}", f"--rootdir={folder}", *options, str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    return kept


@pytest.mark.parametrize("options", [[], ["-n", "2"]], ids=["alone", "workers"])
def test_counts_and_failures_are_kept(tmp_path, options):
    text = run(tmp_path, *options).read_text()
    assert "- 1 passed, 1 failed, 1 error, 1 skipped\n" in text
    assert "failed: `test_some.py::test_two`" in text
    assert "failed: `test_some.py::test_four`" in text
    assert "commit: unknown" in text


@pytest.mark.parametrize("options", [["-x"], ["--collect-only", "--bad-option"]])
def test_a_run_that_stops_early_is_not_kept(tmp_path, options):
    assert not run(tmp_path, *options).exists()


def test_the_commit_says_whether_files_differ_from_it(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        command = ["git", *identity, "-C", str(tmp_path), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    kept = tmp_path / "kept.md"
    assert "unknown" in describe_commit(tmp_path, kept)
    git("init")
    (tmp_path / "code.py").write_text("1")
    git("add", ".")
    git("commit", "-m", "first")
    kept.write_text("of the run before")
    assert describe_commit(tmp_path, kept) == git("rev-parse", "--short=12", "HEAD")
    (tmp_path / "code.py").write_text("2")
    assert describe_commit(tmp_path, kept).endswith("not committed")


def test_make_keeps_the_run_where_contributors_look():
    target = (ROOT / "Makefile").read_text().split("\ntest-slow:")[1].split("\n\n")[0]
    assert "-p tests.slow_record --slow-record=tests/SLOW.md" in target
    assert "(tests/SLOW.md)" in (ROOT / "CONTRIBUTING.md").read_text()
    assert (ROOT / "tests" / "SLOW.md").exists()
