"""The steward's page: who may see it, what it shows, what it never shows."""

import json
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation.__main__ import main
from skprivbn.federation.flare import _health
from skprivbn.federation.flare._health import look_at_kit
from skprivbn.federation.site._entries import (
    DATASET_RULES,
    OF_DATASET,
    OF_SITE,
    explain_lines,
)
from skprivbn.federation.site.console import HEIGHT, draw, make_app
from skprivbn.preprocessing import FederatedStandardScaler
from tests import browser
from tests.federation.flare.hospitals import MARKER
from tests.federation.site.loopback import Authority, connect
from tests.federation.site.test_question_approvals import kit_of, scaler, start

pytest.importorskip("flask")

TOKEN = "a-token-of-this-test"
PAGES = ("/", "/budget", "/log", "/health", "/site-file")
ASK = 'approve = "ask"'


def open_kit(tmp_path, rule=ASK):
    sites = start(tmp_path, rule, only="west")
    return sites, kit_of(tmp_path, "west")


def visit(kit):
    """Return a client that has come with the token, as a browser on the machine."""
    client = make_app(kit, TOKEN).test_client()
    assert client.get(f"/?token={TOKEN}").status_code == 302
    return client


def ask(sites, purpose="care for the old", **options):
    rows = connect(sites, "icu", who="ann@example.org", **options).rows(["a"])
    rows._connection.purpose = purpose
    return rows


def text_of(answer):
    assert answer.status_code == 200, answer.text
    return answer.text


def wait_for_a_question(sites, **options):
    rows = ask(sites, **options)
    with pytest.raises(PartyError, match="has to approve"):
        scaler().fit(rows)
    return rows


def find_number(home):
    return re.search(r"/question/(\w+)", home)[1]


def form_of(page, **fields):
    return {"form_token": re.search(r'form_token" value="(\w+)"', page)[1], **fields}


def test_a_question_is_seen_approved_and_fitted_and_the_bar_moves(tmp_path):
    sites, kit = open_kit(tmp_path)
    rows, client = wait_for_a_question(sites), visit(kit)
    home = text_of(client.get("/"))
    assert "care for the old" in home and "ann@example.org" in home
    assert "epsilon spent: <strong>0 of 9" in home
    number = find_number(home)
    page = text_of(client.get(f"/question/{number}"))
    for shown in ("epsilon 0.5", "read by the researcher", "north, south, west"):
        assert shown in page
    said = client.post(f"/question/{number}", data=form_of(page, do="approve"))
    assert said.status_code == 303
    assert "No question waits" in text_of(client.get("/"))
    scaler().fit(rows)
    budget = text_of(client.get("/budget"))
    # counted at the budget's delta, which is larger than the fit's
    assert "epsilon spent: <strong>0.474 of 9" in budget
    assert budget.count("<rect") == 1
    log = text_of(client.get("/log"))
    assert "each follows from the one before" in log
    assert "ended: done" in log


def test_the_researcher_reads_why_a_question_was_refused(tmp_path):
    sites, kit = open_kit(tmp_path)
    rows, client = wait_for_a_question(sites), visit(kit)
    number = find_number(text_of(client.get("/")))
    page = text_of(client.get(f"/question/{number}"))
    reason = "ask the ethics board first\x1b[2J"
    data = form_of(page, do="refuse", reason=reason)
    assert client.post(f"/question/{number}", data=data).status_code == 303
    with pytest.raises(PartyError, match="They write: ask the ethics board") as caught:
        scaler().fit(rows)
    assert caught.value.code == "denied"
    assert caught.value.words == "ask the ethics board first[2J"


def test_nobody_without_the_token_sees_anything(tmp_path):
    _, kit = open_kit(tmp_path)
    client = make_app(kit, TOKEN).test_client()
    for page in (*PAGES, "/question/0", "/static/console.css"):
        assert client.get(page).status_code == 401
        assert client.get(f"{page}?token=wrong").status_code == 401
    # the twin: with it, all are there
    client = visit(kit)
    for page in (*PAGES, "/static/console.css"):
        assert client.get(page).status_code == 200
    assert client.get("/question/0").status_code == 404


def test_attack_another_page_makes_the_stewards_browser_approve(tmp_path):
    sites, kit = open_kit(tmp_path)
    wait_for_a_question(sites)
    client = visit(kit)
    number = find_number(text_of(client.get("/")))
    page = f"/question/{number}"
    form = form_of(text_of(client.get(page)), do="approve")
    # a form of theirs, which cannot know the token of ours; nor may they lead here
    for data, headers in [
        ({"do": "approve"}, {}),
        (form | {"form_token": "0" * 64}, {}),
        (form, {"Origin": "https://evil.example"}),
        (form, {"Origin": "null"}),
        (form, {"Host": "evil.example:80"}),
    ]:
        assert client.post(page, data=data, headers=headers).status_code == 403
    assert client.get("/", headers={"Host": "evil.example:80"}).status_code == 403
    assert number in text_of(client.get("/"))
    cookie = client.get(f"/?token={TOKEN}").headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    # the twin: the form of this console is taken, of which browsers say the origin
    assert client.get(page).headers["Referrer-Policy"] == "same-origin"
    assert client.post(page, data=form).status_code == 303


def test_what_a_researcher_writes_is_text(tmp_path):
    sites, kit = open_kit(tmp_path)
    wait_for_a_question(sites, purpose="<script>alert(1)</script>\u202eevil")
    home = visit(kit).get("/")
    assert "<script>" not in home.text and "&lt;script&gt;" in home.text
    assert "\u202e" not in home.text
    assert "default-src 'none'" in home.headers["Content-Security-Policy"]


def test_no_value_of_the_data_is_on_any_page(tmp_path):
    sites, kit = open_kit(tmp_path, "")
    rows = connect(sites, "broken").rows(["a"])
    with pytest.raises(PartyError, match="invalid-data|cannot be"):
        FederatedStandardScaler().fit(rows)
    # the twin: it is in the site's own log of errors
    assert MARKER in (kit / "skprivbn_errors.log").read_text()
    client = visit(kit)
    assert not any(MARKER in text_of(client.get(page)) for page in PAGES)


def test_a_record_that_was_changed_is_seen(tmp_path):
    sites, kit = open_kit(tmp_path, "")
    scaler().fit(ask(sites))
    path = kit / "skprivbn_audit.jsonl"
    path.write_text(path.read_text().replace("ann@example.org", "bob@example.org", 1))
    client = visit(kit)
    assert "does not follow from the line before" in text_of(client.get("/log"))
    assert "Not well:" in text_of(client.get("/"))


def test_a_site_file_is_explained_without_passwords():
    text = """# ours
peers = ["south"]
[datasets.icu]
sql = {driver = "psycopg2", connect = {user = "u", password = "s3cret"}, query = "x"}
budget = {epsilon = 1.0}
[datasets.icu.columns]
age = {kind = "float", from = "Alter (Jahre)"}
ward = ["a", "b"]
"""
    lines = dict(explain_lines(text))
    assert "s3cret" not in str(lines)
    assert lines["# ours"] == ""
    assert "privacy budget" in lines["budget = {epsilon = 1.0}"]
    assert lines['ward = ["a", "b"]'] == "Holds one of 2 categories."
    assert "Alter (Jahre)" in lines['age = {kind = "float", from = "Alter (Jahre)"}']


def test_every_entry_of_a_site_file_is_explained():
    # others are unknown, and refused
    assert DATASET_RULES.keys() <= OF_DATASET.keys()
    assert all(words.endswith(".") for words in (OF_SITE | OF_DATASET).values())


def test_bars_are_as_high_as_what_was_spent():
    steps = [(f"2026-11-1{i}T00:00:00+00:00", i / 4, "a fit") for i in range(1, 4)]
    chart = draw("epsilon spent", steps, 1.0)
    assert [bar[3] for bar in chart.bars] == [HEIGHT / 4, HEIGHT / 2, 3 * HEIGHT / 4]
    assert (chart.share, chart.summary) == (75, "0.75 of 1")
    assert draw("told", steps, float("inf")).bars[-1][3] == pytest.approx(0.75 * HEIGHT)
    assert draw("told", [], 1.0).bars == []


def test_health_is_json_with_an_exit_code(tmp_path, capsys):
    _, kit = open_kit(tmp_path, "")
    assert main(["health", str(kit)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["well"] is False
    wells = {each["name"]: each["is_well"] for each in found["findings"]}
    assert wells["certificate"] and wells["state of icu"] and wells["audit log"]
    assert not wells["server"] and not wells["process"]


def test_a_foreign_certificate_is_noticed(tmp_path):
    _, kit = open_kit(tmp_path, "")

    def certificate():
        return look_at_kit(kit)[0]

    assert certificate().is_well
    mine, root = Authority(), (kit / "startup" / "rootCA.pem").read_bytes()
    (kit / "startup" / "client.crt").write_bytes(mine.issue("west")[0])
    assert "another project's" in certificate().words and not certificate().is_well
    mine.write_kit(kit / "startup", "north")
    described = json.loads((kit / "startup" / "fed_client.json").read_text())
    described["client"] = {"fqsn": "west"}
    (kit / "startup" / "fed_client.json").write_text(json.dumps(described))
    assert certificate().words == "client.crt is that of 'north', not of 'west'"
    assert _health.look_at_certificate(kit / "startup").name == "certificate"
    (kit / "startup" / "rootCA.pem").write_bytes(root)
    assert not certificate().is_well


def test_a_command_of_the_sites_choice_hears_of_a_question(tmp_path):
    sites, kit = open_kit(tmp_path)
    heard = tmp_path / "heard.txt"
    command = [sys.executable, "-c", "import sys; open(sys.argv[1], 'a').write("]
    command = [*command[:2], command[2] + "sys.stdin.read())", str(heard)]
    object.__setattr__(sites["west"]._site_file, "notify", command)
    wait_for_a_question(sites)
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(30)
    assert "ann@example.org asks for" in heard.read_text()
    wait_for_a_question(sites)
    # the same question again is no news
    assert heard.read_text().count("question") == 1


def test_the_command_serves_this_machine_only(tmp_path):
    from urllib.error import HTTPError
    from urllib.request import urlopen

    _, kit = open_kit(tmp_path)
    command = [sys.executable, "-m", "skprivbn.federation", "console", str(kit)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:")
            with pytest.raises(HTTPError, match="401"):
                urlopen(address.partition("?")[0])
        finally:
            process.terminate()


class Page:
    """An address that ``browser`` opens."""

    def __init__(self, address):
        self.address = address

    def as_uri(self):
        return self.address


class TestInABrowser:
    pytestmark = browser.needs_chromium

    @pytest.fixture
    def opened(self, tmp_path):
        return open_kit(tmp_path)

    @pytest.fixture
    def address(self, opened):
        """A console with a question that waits, served as the command does."""
        from werkzeug.serving import make_server

        sites, kit = opened
        wait_for_a_question(sites)
        server = make_server("127.0.0.1", 0, make_app(kit, TOKEN), threaded=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield lambda page: Page(
            f"http://127.0.0.1:{server.server_port}{page}?token={TOKEN}"
        )
        server.shutdown()
        thread.join()
        server.server_close()

    def test_pages_are_there_and_nothing_is_blocked(self, tmp_path, address):
        seen = browser.browse(tmp_path, address("/"), "--dump-dom").stdout
        assert "care for the old" in seen
        for page in (*PAGES, f"/question/{find_number(seen)}"):
            assert browser.console(tmp_path, address(page)) == []

    @pytest.mark.parametrize("width", [1280, 390])
    def test_nothing_is_wider_than_the_window(self, tmp_path, address, width):
        for page in PAGES:
            colours = browser.screenshot(tmp_path, address(page), width, "light", 900)
            assert colours.shape[1] == width
            # the margin on the right is paper below the header, in every row
            margin = colours[150:, -8:]
            assert np.all(margin == margin[-1, -1])

    @pytest.mark.skipif(browser.CHROMEDRIVER is None, reason="needs chromedriver")
    @pytest.mark.parametrize("width", [1280, 390])
    def test_a_steward_clicks_and_the_researcher_reads(
        self, tmp_path, opened, address, width
    ):
        sites, _ = opened
        with browser.Driver(tmp_path, width) as page:
            page.open(address("/").address)
            assert "epsilon spent: 0 of 9" in page.wait_for("care for the old")
            page.click("article .button")
            assert "epsilon 0.5" in page.wait_for("Hidden by")
            page.click("button[value=approve]")
            page.wait_for("No question waits")
            scaler().fit(ask(sites))
            page.click("nav a[href='/budget']")
            page.wait_for("epsilon spent: 0.474 of 9")
            assert page.run("document.querySelector('progress').value") == 5
            height = "document.querySelector('rect').getBoundingClientRect().height"
            assert page.run(height) > 1
            rows = wait_for_a_question(sites, purpose="another one")
            page.click("nav a[href='/']")
            page.wait_for("another one")
            page.click("article .button")
            page.wait_for("Hidden by")
            page.write("textarea", "ask the ethics board first")
            page.click("button.refuse")
            page.wait_for("No question waits")
            with pytest.raises(PartyError, match="They write: ask the ethics board"):
                scaler().fit(rows)
            for place in ("/", "/budget", "/log", "/health", "/site-file"):
                page.click(f"nav a[href='{place}']")
                page.wait_for("No value of the data")
                overflow = "document.documentElement.scrollWidth - innerWidth"
                assert page.run(overflow) <= 0


def test_a_site_file_that_cannot_be_read_is_a_problem_of_the_health_page(tmp_path):
    _, kit = open_kit(tmp_path)
    path, client = kit / "local" / "skprivbn_site.toml", visit(kit)
    path.write_text(path.read_text().replace("[datasets.icu]", "[datasets.icu]\nx = 1"))
    answer = client.get("/")
    assert answer.status_code == 500
    assert "unknown entries" in answer.text and "load the page again" in answer.text
