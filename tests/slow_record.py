"""Keeps what came of a whole run of the slow tests where a reader finds it.

A pytest plugin: ``make test-slow`` loads it with ``-p tests.slow_record`` and says
where to write with ``--slow-record``. A run that did not get to its end is not kept.
"""

import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

#: outcomes that are counted, in this order; deselected tests were not run
_OUTCOMES = "passed", "failed", "error", "skipped", "xfailed", "xpassed"
_HEAD = (
    "# Slow tests: the last whole run\n\nWritten by `make test-slow`, not by hand.\n\n"
)


def pytest_addoption(parser):
    """Say where to write."""
    parser.addoption("--slow-record", type=Path, help="file for the result of this run")


def pytest_configure(config):
    """Note when the run began."""
    config._slow_record_start = time.monotonic()


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    """Write the result; only the process that heard of all tests has a summary."""
    path = config.getoption("--slow-record")
    # 0: all passed, 1: some failed; otherwise the run did not get to its end
    if path is None or exitstatus not in (0, 1) or config.getoption("maxfail"):
        return
    counts = {name: len(terminalreporter.getreports(name)) for name in _OUTCOMES}
    failed = [
        report.nodeid
        for outcome in ("failed", "error")
        for report in terminalreporter.getreports(outcome)
    ]
    minutes = (time.monotonic() - config._slow_record_start) / 60
    lines = [
        f"- date: {datetime.now(UTC):%Y-%m-%d}",
        f"- commit: {describe_commit(config.rootpath, path)}",
        f"- Python {platform.python_version()}, {minutes:.0f} minutes",
        "- " + ", ".join(f"{n} {name}" for name, n in counts.items() if n),
        *(f"  - failed: `{nodeid}`" for nodeid in failed),
    ]
    path.write_text(_HEAD + "\n".join(lines) + "\n")


def describe_commit(root, record):
    """Return the commit that was tested, and whether files differed from it."""

    def git(*arguments):
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout

    try:
        commit = git("rev-parse", "--short=12", "HEAD").strip()
        changed = git(
            "status", "--porcelain", "--", ".", f":(exclude){record.resolve()}"
        ).strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown: not a git repository"
    return f"{commit}, with changes that are not committed" if changed else commit
