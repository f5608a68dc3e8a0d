"""Pages in headless Chromium, for tests that ``make test-browser`` runs."""

import shutil
import subprocess

import numpy as np
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--hide-scrollbars --enable-logging=stderr"
).split()
#: Chromium's number for the preference that a page asks for by prefers-color-scheme
SCHEMES = {"light": 1, "dark": 0}

needs_chromium = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None,
        reason=f"no browser: install one of {', '.join(NAMES)} from system packages",
    ),
]


def browse(tmp_path, page, *options):
    """Open a page in a profile of its own; return the process that ended."""
    profile = tmp_path / "profile"
    shutil.rmtree(profile, ignore_errors=True)
    command = [CHROMIUM, *OPTIONS, f"--user-data-dir={profile}", *options]
    done = subprocess.run(
        [*command, page.as_uri()], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done


def console(tmp_path, page):
    """Return what the page, or the browser about it, wrote to the console."""
    lines = browse(tmp_path, page, "--dump-dom").stderr.splitlines()
    return [line for line in lines if ":CONSOLE" in line]


def screenshot(tmp_path, page, width, scheme, height=2400):
    """Return the page as an array of colours."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    picture = tmp_path / "page.png"
    browse(
        tmp_path,
        page,
        f"--screenshot={picture}",
        f"--window-size={width},{height}",
        f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
    )
    return np.rint(pyplot.imread(picture)[:, :, :3] * 255).astype(int)
