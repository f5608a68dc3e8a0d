"""The drawing of a protocol says what its ledger says."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from skprivbn.federation import Ledger
from skprivbn.inspection import message_diagram
from skprivbn.preprocessing import FederatedStandardScaler


def texts(drawing):
    """Return the texts of a drawing from top to bottom, after parsing it as XML."""
    root = ElementTree.fromstring(drawing)
    found = [e for e in root.iter() if e.tag.endswith("text")]
    return [e.text for e in sorted(found, key=lambda e: float(e.get("y")))]


def ask(ledger, operation, *, tells="", kind="masked", hears=""):
    """Enter one round: a question to all parties and their answers."""
    ledger.n_rounds += 1
    for party in ledger.parties:
        ledger.record(operation, "coordinator", party, b"..", "public", hears)
    for party in ledger.parties:
        ledger.record(operation, party, "coordinator", b"....", kind, tells)


@pytest.fixture
def ledger():
    return Ledger(parties=("north", "south"))


def test_drawing_of_a_fit_has_every_message_that_tells_something():
    X = np.random.default_rng(0).normal(size=(30, 2))
    scaler = FederatedStandardScaler().fit(X, party=["a", "b", "c"] * 10)
    words = " ".join(texts(message_diagram(scaler)))
    told = {
        entry.tells
        for entry in scaler.ledger_.entries
        if entry.tells and not entry.operation.startswith("session.")
    }
    assert len(told) == 3
    assert all(tells in words for tells in told)
    assert "the coordinator can read the sum" not in words
    assert message_diagram(scaler.ledger_) == message_diagram(scaler)


def test_operations_that_take_turns_share_a_box(ledger):
    ask(ledger, "survey", tells="how many")
    for _ in range(5):
        ask(ledger, "statistics", tells="its sums")
        ask(ledger, "update", tells="whether to go on", kind="public")
    ask(ledger, "release", tells="the result", kind="public")
    drawn = texts(message_diagram(ledger))
    order = ["how many", "5 times", "its sums", "whether to go on", "the result"]
    assert [text for text in drawn if text in order] == order


def test_one_operation_may_repeat_more_often_than_another(ledger):
    for n in (1, 2, 3):
        for _ in range(n):
            ask(ledger, "count", tells="counts")
        ask(ledger, "open", tells="shares", kind="share")
    assert "3 to 6 times" in texts(message_diagram(ledger))


def test_two_times_in_a_row_is_a_box_and_once_is_none(ledger):
    ask(ledger, "count", tells="counts")
    assert not any("times" in text for text in texts(message_diagram(ledger)))
    ask(ledger, "count", tells="counts")
    assert "2 times" in texts(message_diagram(ledger))


def test_what_parties_tell_each_other_is_named(ledger):
    operation = "clusters of the others"
    ask(ledger, operation, kind="public")
    ledger.record(operation, "north", "south", b"." * 9, "sealed", "")
    ledger.learns("south", operation)
    drawn = texts(message_diagram(ledger))
    assert "clusters of the others" in drawn
    below = "sealed on its way, 1 message, 9 bytes; inside: readable sums"
    assert below in drawn


def test_only_some_parties_answer(ledger):
    ledger.record("release", "north", "coordinator", b"....", "public", "the result")
    assert "public, 4 bytes from one of them" in texts(message_diagram(ledger))


def test_readable_messages_have_another_colour_than_hidden_ones(ledger):
    ask(ledger, "sums", tells="sums", kind="masked")
    hidden = set(re.findall("#[0-9a-fA-F]{6}", message_diagram(ledger)))
    ask(ledger, "rows", tells="rows", kind="raw rows")
    shown = set(re.findall("#[0-9a-fA-F]{6}", message_diagram(ledger)))
    assert len(shown - hidden) == 1


@pytest.mark.parametrize(
    "kind, which", [("masked", "sum"), ("noisy release", "noisy sum")]
)
def test_who_can_read_a_sum(ledger, kind, which):
    ask(ledger, "sums", tells="its sums")
    ledger.learns("coordinator", "its sums", kind, is_total=True)
    words = " ".join(texts(message_diagram(ledger)))
    assert f"; the coordinator can read the {which}" in words


def test_names_are_escaped():
    ledger = Ledger(parties=("<script>", "a&b"))
    ask(ledger, "sums", tells="sums < 3")
    drawing = message_diagram(ledger)
    assert "<script>" not in drawing
    assert "<script>, a&b" in texts(drawing)


def test_file_and_notebook_show_the_same(ledger, tmp_path):
    ask(ledger, "sums", tells="sums")
    path = tmp_path / "drawing.svg"
    assert message_diagram(ledger, path) is None
    drawing = message_diagram(ledger)
    assert path.read_text(encoding="utf-8") == drawing == drawing._repr_html_()


def test_nothing_to_draw():
    with pytest.raises(NotFittedError):
        message_diagram(FederatedStandardScaler())
    with pytest.raises(ValueError, match="holds no messages"):
        message_diagram(Ledger(parties=("a",)))
