"""The page of ``make demo``: one file with everything in it."""

import base64
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from skprivbn.federation import Ledger

EXAMPLES = Path(__file__).parents[1] / "examples"
ATTACK = "<script>document.title = 'attacked'</script>"


class Fitted:
    """An estimator with a ledger, and a party whose name nobody should choose."""

    def __init__(self):
        self.ledger_ = Ledger(parties=("north", ATTACK))
        self.ledger_.record("sum", "north", "coordinator", b"x" * 999, "masked", ATTACK)
        self.ledger_.learns("coordinator", "its rows", is_total=True)
        self.ledger_.learns("north", "the mean")
        self.ledger_.learns(ATTACK, "the mean")
        self.ledger_.note(ATTACK, "broken by")


@pytest.fixture
def demo_page(monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "demo_page", raising=False)
    import demo_page

    return demo_page


@pytest.fixture
def result(demo_page):
    from matplotlib import pyplot

    figure, ax = pyplot.subplots()
    ax.plot([0, 1])
    scores = {"together": "1.0", ATTACK: ATTACK}
    result = demo_page.Result(
        Fitted(), "score", "1", "2", ATTACK, scores, figure, "A line & more"
    )
    result.title, result.code = f"Two parties {ATTACK}", "if 1 < 2:\n    fit()"
    return result


class Links(HTMLParser):
    """Collects what a page refers to, and which elements it has."""

    def __init__(self, page):
        super().__init__()
        self.names, self.open, self.links = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.names.append(tag)
        if tag not in {"meta", "img"}:
            self.open.append(tag)
        self.links += [v for k, v in attributes if k in {"src", "href", "data"}]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page_loads_nothing_and_runs_nothing(demo_page, result):
    page = Links(demo_page.page_of([result]))
    assert not page.open
    assert "script" not in page.names
    assert page.names.count("img") == 1
    assert all(
        link.startswith(("data:image/svg+xml;base64,", "#")) for link in page.links
    )


def test_pictures_are_drawings(demo_page, result):
    page = demo_page.page_of([result])
    (data,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert ElementTree.fromstring(base64.b64decode(data)).tag.endswith("svg")
    assert 'alt="A line &amp; more"' in page


def test_what_was_readable_is_listed_once_for_all_parties(result):
    clear = "sums over rows, in the clear"
    assert result.readers() == {
        ("coordinator", "totals of all parties"): ["rows"],
        ("each party", clear): ["the mean"],
    }


def test_links_within_the_page_lead_somewhere(demo_page, result):
    page = demo_page.page_of([result])
    for target in re.findall(r'href="#(\w+)"', page):
        assert f'id="{target}"' in page
