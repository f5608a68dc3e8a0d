"""Pages in headless Chromium, for tests that ``make test-browser`` runs."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from base64 import b64decode
from contextlib import suppress

import numpy as np
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
CHROMEDRIVER = shutil.which("chromedriver")
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


class Driver:
    """A browser that clicks, through ChromeDriver and its HTTP interface (W3C).

    Use as a context manager.

    Parameters
    ----------
    tmp_path : Path
        Gets the browser's profile.
    width, height : int
        Of the window.
    """

    def __init__(self, tmp_path, width, height=900):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self._process = subprocess.Popen(
            [CHROMEDRIVER, f"--port={port}"], stdout=subprocess.DEVNULL
        )
        self._base = f"http://127.0.0.1:{port}"
        profile = f"--user-data-dir={tmp_path / 'driven'}"
        # narrow windows are those of a phone: headless Chromium itself has 500 at least
        phone = {"width": width, "height": height, "pixelRatio": 1.0}
        options = {
            "binary": CHROMIUM,
            "args": [*OPTIONS, profile],
            "mobileEmulation": {"deviceMetrics": phone},
        }
        wanted = {"alwaysMatch": {"goog:chromeOptions": options}}
        try:
            self._base += f"/session/{self._start(wanted)['sessionId']}"
        except BaseException:
            self._process.kill()
            raise

    def _start(self, wanted):
        deadline = time.monotonic() + 60
        while True:
            try:
                return self._call("POST", "/session", {"capabilities": wanted})
            except urllib.error.URLError as error:
                # it takes a while until it listens
                if not isinstance(error.reason, ConnectionRefusedError):
                    raise
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def _call(self, method, path, content=None):
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self._base + path, body, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read())["value"]

    def _find(self, css):
        wanted = {"using": "css selector", "value": css}
        return next(iter(self._call("POST", "/element", wanted).values()))

    def open(self, address):
        self._call("POST", "/url", {"url": address})

    def click(self, css):
        self._call("POST", f"/element/{self._find(css)}/click", {})

    def write(self, css, text):
        self._call("POST", f"/element/{self._find(css)}/value", {"text": text})

    def text(self, css="body"):
        return self._call("GET", f"/element/{self._find(css)}/text")

    def wait_for(self, words):
        """Return the text of the page, once it holds some words."""
        deadline = time.monotonic() + 60
        while True:
            # while a page gives way to the next, there is none
            with suppress(urllib.error.HTTPError):
                if words in (seen := self.text()):
                    return seen
            assert time.monotonic() < deadline, f"the page never says {words!r}"
            time.sleep(0.1)

    def run(self, script):
        """Return what a script returns, which the page itself may not have."""
        content = {"script": f"return {script}", "args": []}
        return self._call("POST", "/execute/sync", content)

    def save(self, path):
        """Write a picture of the window."""
        path.write_bytes(b64decode(self._call("GET", "/screenshot")))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        try:
            self._call("DELETE", "")
        finally:
            self._process.kill()
            self._process.wait()
