"""The privacy report in a real browser; ``make test-browser`` runs this."""

import re

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from skprivbn.federation import Ledger
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.inspection import privacy_report
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import FederatedStandardScaler
from tests.browser import SCHEMES, browse, needs_chromium, screenshot

pytestmark = needs_chromium
PAPER = {"light": (255, 255, 255), "dark": (0x14, 0x18, 0x1D)}
LONG = "Universitätsklinikum" + "der" * 40


class Learner(BaseEstimator):
    """As fitted as its ledger."""

    def fit(self, ledger):
        self.ledger_ = ledger
        return self


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Write a report of a real fit, and one with names that nobody should choose."""
    folder = tmp_path_factory.mktemp("reports")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    scaler = FederatedStandardScaler(epsilon=1.0, bounds=(-5, 5))
    party = np.array(["north", "south", "west"])[np.arange(60) % 3]
    privacy_report(scaler.fit(X, party=party), folder / "fit.html")
    mixture = PPEMGaussianMixture(2, backend="ckks", random_state=0)
    privacy_report(mixture.fit(X, party=party), folder / "mixture.html")

    codes, states = rng.integers(0, 2, size=(90, 4)), [2] * 4
    tables = DPCGMLearner(epsilon=1.0, states=states).fit(
        codes, party=["a", "b", "c"] * 30
    )
    privacy_report(tables, folder / "tables.html")

    attack = "<script>document.title = 'attacked'</script>"
    ledger = Ledger(parties=(LONG, attack))
    for _ in range(100):
        ledger.n_rounds += 1
        for name in ledger.parties:
            ledger.record("sum", name, "coordinator", b"x" * 999, "masked", f"{name}.x")
    ledger.learns(LONG, "the mean of " + "x" * 200)
    ledger.note(LONG, "broken by")
    privacy_report(Learner().fit(ledger), folder / "names.html", title=LONG)
    return folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["fit", "names"])
def test_page_fits_the_screen(tmp_path, pages, name, width, scheme):
    pixels = screenshot(tmp_path, pages / f"{name}.html", width, scheme)
    assert pixels.shape[1] == width
    paper = PAPER[scheme]
    # What overflows, or is cut off, would show in the margins.
    for margin in (pixels[:, :10], pixels[:, -10:]):
        assert np.all(margin == paper)
    content = np.any(pixels != paper, axis=2)
    assert 0.02 < content.mean() < 0.9
    # Text stands out: some pixels are far from the colour of the paper.
    assert np.abs(pixels - paper).sum(axis=2).max() > 500


@pytest.mark.parametrize("name", ["fit", "mixture", "tables"])
def test_paper_is_white_and_two_pages(tmp_path, pages, name):
    file = tmp_path / "page.pdf"
    browse(
        tmp_path,
        pages / f"{name}.html",
        f"--print-to-pdf={file}",
        "--no-pdf-header-footer",
        f"--blink-settings=preferredColorScheme={SCHEMES['dark']}",
    )
    content = file.read_bytes()
    assert content.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", content)) <= 2


def test_names_run_nothing(tmp_path, pages):
    dom = browse(tmp_path, pages / "names.html", "--dump-dom").stdout
    assert "<script" not in dom
    assert "<title>attacked" not in dom
    assert "&lt;script&gt;document.title" in dom
