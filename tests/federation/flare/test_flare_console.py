"""The operator's console beside a real site: asked, seen, clicked, fitted, spent."""

import subprocess
import sys

import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation.flare import LocalFederation
from skprivbn.preprocessing import FederatedStandardScaler
from tests import browser
from tests.federation.flare.hospitals import site_files, write_tables

pytestmark = [
    pytest.mark.slow,
    *browser.needs_chromium,
    pytest.mark.skipif(browser.CHROMEDRIVER is None, reason="needs chromedriver"),
]
BUDGET = 'budget = {epsilon = 9.0, delta = 1e-5}\napprove = "ask"'


def scaler(epsilon):
    return FederatedStandardScaler(epsilon=epsilon, delta=1e-6, bounds=(-5, 15))


@pytest.fixture
def local(tmp_path, hospital_data):
    pytest.importorskip("nvflare", reason="needs the extra skprivbn[nvflare]")
    pytest.importorskip("flask", reason="needs the extra skprivbn[console]")
    write_tables(tmp_path / "data", *hospital_data)
    asking = site_files(budget=BUDGET, path=tmp_path / "data")["west"]
    plain = site_files(budget=BUDGET.splitlines()[0], path=tmp_path / "data")
    files = plain | {"west": asking}
    with LocalFederation(tmp_path / "federation", files) as local:
        yield local


@pytest.fixture
def address(local):
    command = [sys.executable, "-m", "skprivbn.federation", "console"]
    with subprocess.Popen(
        [*command, str(local.kits["west"])], stdout=subprocess.PIPE, text=True
    ) as console:
        yield console.stdout.readline().strip()
        console.terminate()


@pytest.mark.filterwarnings("ignore")
def test_a_question_is_approved_and_another_refused(tmp_path, local, address):
    with (
        local.connect("icu", ready_within=240.0, purpose="a trial") as federation,
        browser.Driver(tmp_path, 1280) as page,
    ):
        rows = federation.rows(["a"])
        with pytest.raises(PartyError, match="has to approve"):
            scaler(0.5).fit(rows)
        page.open(address)
        seen = page.wait_for("a trial")
        assert "All is well" in seen and "epsilon spent: 0 of 9" in seen
        page.click("article .button")
        page.wait_for("Hidden by")
        page.click("button[value=approve]")
        page.wait_for("No question waits")
        scaler(0.5).fit(rows)
        page.click("nav a[href='/budget']")
        page.wait_for("epsilon spent: 0.474 of 9")
        assert page.run("document.querySelector('progress').value") == 5
        with pytest.raises(PartyError, match="has to approve"):
            scaler(0.4).fit(rows)
        page.click("nav a[href='/']")
        page.wait_for("a trial")
        page.click("article .button")
        page.wait_for("Hidden by")
        page.write("textarea", "ask the ethics board first")
        page.click("button.refuse")
        page.wait_for("No question waits")
        with pytest.raises(PartyError, match="They write: ask the ethics board first"):
            scaler(0.4).fit(rows)
