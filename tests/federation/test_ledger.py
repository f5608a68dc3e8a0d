import pickle

import pandas as pd
import pytest

from skprivbn.federation import KINDS, InProcessFederation, Ledger
from skprivbn.federation._ledger import LedgerTable
from tests.federation.protocol import MeanTerms, mean


@pytest.fixture
def ledger(blocks):
    with InProcessFederation(blocks, mean, MeanTerms(), "ckks") as federation:
        federation.run()
    return federation.ledger


def test_totals_agree(ledger):
    assert sum(ledger.bytes_by_kind().values()) == ledger.total_bytes
    assert sum(entry.n_bytes for entry in ledger.entries) == ledger.total_bytes


def test_kinds_are_what_was_sent(ledger):
    kinds = {(e.operation, e.sender, e.receiver): e.kind for e in ledger.entries}
    assert kinds["sums of rows", "north", "coordinator"] == "ciphertext"
    assert kinds["sums of rows", "coordinator", "north"] == "ciphertext"
    assert kinds["the result", "north", "coordinator"] == "public"
    assert kinds["a greeting", "south", "west"] == "sealed"
    assert {e.kind for e in ledger.entries if e.receiver == e.sender} == set()


@pytest.mark.parametrize(
    "backend, kind", [("masking", "masked"), ("plaintext", "plaintext aggregate")]
)
def test_the_kind_follows_the_backend(blocks, backend, kind):
    with InProcessFederation(blocks, mean, MeanTerms(), backend) as federation:
        federation.run()
    sent = [e for e in federation.ledger.entries if e.operation == "sums of rows"]
    assert {e.kind for e in sent if e.receiver == "coordinator"} == {kind}


def test_who_learns_what_is_in_plain_words(ledger):
    table = ledger.who_learns_what()
    text = str(list(table))
    assert "('all parties', 'sums of rows', 'sum over parties'" in text
    assert "all parties" in text
    assert "ciphertexts it cannot decrypt" in text
    assert "the result" in text
    frame = table.to_frame()
    assert list(frame.columns) == ["who", "learns", "from", "as", "times", "bytes"]
    unread = frame[frame["as"] == KINDS["ciphertext"]]
    assert unread.times.item() == 6
    assert len(str(table).splitlines()) <= 10


def test_facts_are_the_rows_of_the_table_as_data():
    ledger = Ledger(parties=("a", "b"))
    for kind in KINDS:
        ledger.record("op", "a", "coordinator", b"...", kind, f"something {kind}")
    ledger.learns("coordinator", "counts", "noisy release", epsilon=1)
    *told, known = ledger.facts()
    assert [fact.kind for fact in told] == list(KINDS)
    assert {fact.n_bytes for fact in told} == {3}
    assert (known.epsilon, known.n_messages) == (1, None)
    for fact, row in zip(ledger.facts(), ledger.who_learns_what()):
        is_read = fact.kind not in ("ciphertext", "masked")
        words = fact.what if is_read else "vectors that it adds and cannot read"
        assert row[:2] == (fact.who, words) and row[3].startswith(KINDS[fact.kind])
    assert row[3:] == (f"{KINDS['noisy release']} (epsilon = 1)", "", "")


def test_what_every_party_learns_is_one_line_and_what_some_do_is_not():
    ledger = Ledger(parties=("a", "b", "c"))
    for name in "abc":
        ledger.learns(name, "a public key")
    for name in "ab":
        ledger.learns(name, "the labels of c")
    rows = [row[:2] for row in ledger.who_learns_what()]
    assert rows == [
        ("each party", "a public key"),
        ("a", "the labels of c"),
        ("b", "the labels of c"),
    ]


def test_the_simulation_says_so(ledger):
    assert any("simulation" in note for note in ledger.notes)
    assert any("north" in note and "key" in note for note in ledger.notes)


def test_html_and_frame(ledger):
    html = ledger._repr_html_()
    assert html.count("<table>") == 1 and "ciphertexts" in html
    frame = ledger.to_frame()
    assert isinstance(frame, pd.DataFrame) and len(frame) == len(ledger.entries)


def test_html_is_escaped():
    ledger = Ledger(parties=("<b>",))
    ledger.record("op", "<b>", "coordinator", b"", "public", "<script>")
    ledger.note("<i>")
    html = ledger._repr_html_()
    assert "<script>" not in html and "<b>" not in html and "<i>" not in html


def test_a_ledger_travels(ledger):
    copy = pickle.loads(pickle.dumps(ledger))
    assert str(copy) == str(ledger) and copy == ledger
    # what a console shows of one message is no longer than what it shows of thousands
    assert len(repr(ledger)) < 80


def test_the_transcript_hash_depends_on_every_message():
    first, second = Ledger(), Ledger()
    for ledger, message in ((first, b"a"), (second, b"b")):
        ledger.record("op", "x", "coordinator", message, "public", "")
    assert first.transcript_hash != second.transcript_hash


def test_knowledge_is_listed_once():
    ledger = Ledger(parties=("a",))
    for _ in range(2):
        ledger.learns("coordinator", "noisy counts", "noisy release", epsilon=0.5)
    assert str(list(ledger.who_learns_what())).count("epsilon = 0.5") == 1


def test_unknown_kinds_are_refused():
    with pytest.raises(ValueError, match="unknown kind"):
        Ledger().record("op", "a", "b", b"", "secret", "")
    with pytest.raises(ValueError, match="unknown kind"):
        Ledger().learns("a", "b", "secret")


def test_a_table_fits_a_hundred_characters_and_loses_no_word():
    told = "sums and absolute sums of " + ", ".join(f"feature {i}" for i in range(30))
    table = LedgerTable(
        ["who", "learns", "as"], [("each party", told, KINDS["masked"])]
    )
    lines = str(table).splitlines()
    assert max(map(len, lines)) <= 100 and len(lines) > 4
    assert set(told.split()) <= set(str(table).split())
