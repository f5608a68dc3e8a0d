"""``make demo`` as a person sees it; ``make test-browser`` runs this."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.browser import browse, console, needs_chromium, screenshot

pytestmark = needs_chromium
DEMO = Path(__file__).parents[1] / "examples" / "demo.py"
PAPER = {"light": (255, 255, 255), "dark": (0x14, 0x18, 0x1D)}


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Run the demo; return its page and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, DEMO, "--folder", folder],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "MPLBACKEND": "Agg"},
    )
    return folder / "index.html", done.stdout


def test_says_how_far_it_is_and_where_the_page_is(demo):
    page, text = demo
    for number in range(1, 8):
        assert f"[{number}/7]" in text
    assert text.rstrip().endswith(page.resolve().as_uri())


def test_console_is_empty(tmp_path, demo):
    assert not console(tmp_path, demo[0])


def test_a_page_with_an_error_is_noticed(tmp_path, demo):
    broken = tmp_path / "broken.html"
    text = demo[0].read_text(encoding="utf-8")
    broken.write_text(text.replace("<main>", "<main><script>fit()</script>", 1))
    assert console(tmp_path, broken)


def test_every_fit_has_its_picture(tmp_path, demo):
    dom = browse(tmp_path, demo[0], "--dump-dom").stdout
    assert dom.count("<img") == dom.count("<section") == 7


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_page_fits_the_screen(tmp_path, demo, width, scheme):
    pixels = screenshot(tmp_path, demo[0], width, scheme, height=6000)
    assert pixels.shape[1] == width
    # What overflows, or is cut off, would show in the margins.
    for margin in (pixels[:, :10], pixels[:, -10:]):
        assert np.all(margin == PAPER[scheme])
    content = np.any(pixels != PAPER[scheme], axis=2)
    assert 0.02 < content.mean() < 0.9
