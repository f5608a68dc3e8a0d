"""The audit log: one question at a time, in plain words, in a chain."""

import json
import re
import stat
import warnings

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation.__main__ import main
from skprivbn.federation._wire import decode, encode
from skprivbn.federation.site import _audit, _host
from skprivbn.federation.site._audit import (
    ERROR_LOG,
    AuditLog,
    format_record,
    read_audit,
)
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import (
    FederatedOneHotEncoder,
    FederatedSimpleImputer,
    FederatedStandardScaler,
)
from skprivbn.programs import MomentsTerms, moments
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.site.loopback import audit, charges, connect, make_sites

BUDGET = "budget = {epsilon = 1.0, delta = 1e-5}"


@pytest.fixture
def rows(tmp_path):
    write_tables(tmp_path, *make_rows())
    federation = connect(make_sites(tmp_path, site_files(budget=BUDGET)), "icu")
    federation.purpose = "sepsis study 17"
    return federation.rows(["a", "b"])


def test_a_fit_is_two_records_in_plain_words(rows, tmp_path, capsys):
    model = FederatedStandardScaler(epsilon=0.5, delta=1e-6, bounds=(-5, 15))
    model.fit(rows)
    connected, asked, ended = audit(tmp_path, "north")
    assert connected["event"] == "connected"
    assert asked["who"] == "scientist"
    assert asked["columns"] == ["a", "b"]
    assert asked["roster"] == ["north", "south", "west"]
    assert asked["purpose"] == "sepsis study 17"
    assert (asked["backend"], asked["epsilon"]) == ("masking", 0.5)
    assert "FederatedStandardScaler" in asked["estimators"]
    assert asked["terms"]["second"] == "diagonal"
    assert (ended["outcome"], ended["rows"]) == ("done", 60)
    assert list(ended["left"].values()) == [1, 1]
    path = tmp_path / "north" / "skprivbn_audit.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert main(["audit", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "scientist asked for" in printed
    assert "purpose       sepsis study 17" in printed
    assert "(secure sum with noise, read by the researcher and the server)" in printed
    assert re.search(r"\d UTC  question \w+ of scientist ended: done\n", printed)
    assert "3 records, each follows from the one before" in printed


@pytest.mark.parametrize(
    "epsilon, words", [(0.5, "missing=rows left out"), (None, "missing=error")]
)
def test_a_noisy_fit_over_gaps_says_what_it_does_with_them(epsilon, words):
    record = {"event": "asked", "epsilon": epsilon, "delta": 0.0}
    assert words in format_record(record | {"terms": {"missing": "error"}})


def test_labels_that_sites_declare_are_known_after_an_imputer(rows):
    people = rows._connection.rows(["ward"])
    imputer = FederatedSimpleImputer(strategy="most_frequent").fit(people)
    with warnings.catch_warnings(action="error"):
        encoder = FederatedOneHotEncoder().fit(imputer.transform(people))
    assert len(encoder.categories_[0]) == 2
    assert encoder.privacy_spent_.epsilon == 0


def test_what_left_is_what_the_ledger_says(rows, tmp_path):
    model = FederatedStandardScaler().fit(rows)
    told = {
        entry.tells
        for entry in model.ledger_.entries
        if entry.sender == "north" and not entry.operation.startswith("session.")
    }
    left = audit(tmp_path, "north")[-1]["left"]
    assert {text.rpartition(" (")[0] for text in left} == told - {""}


def test_who_reads_a_sum_is_written_down(rows, tmp_path):
    FederatedStandardScaler().fit(rows)
    first, _, result = audit(tmp_path, "north")[-1]["left"]
    assert first.endswith("read by the sites)")
    assert result.endswith("read by the researcher and the server)")
    PPEMGaussianMixture(2).fit(rows)
    left = audit(tmp_path, "north")[-1]["left"]
    assert any(text.endswith("read by the sites)") for text in left)


def test_refusals_and_sessions_that_break_off_are_written_down(rows, tmp_path):
    with pytest.raises(PartyError):
        FederatedStandardScaler(epsilon=9.0, bounds=(-5, 15)).fit(rows)
    last = audit(tmp_path, "north")[-1]
    assert (last["event"], last["outcome"]) == ("refused", "budget-exceeded")
    assert last["epsilon"] == 9.0
    site = rows._connection._relay.session.sites["north"]
    federation = rows.federate(*parties())
    federation.__enter__()
    site.close()
    last = audit(tmp_path, "north")[-1]
    assert (last["event"], last["outcome"]) == ("ended", "cut off")
    assert not last["left"]


def test_a_question_that_its_researcher_leaves_is_abandoned(rows, tmp_path):
    with rows.federate(*parties()):
        pass
    last = audit(tmp_path, "north")[-1]
    assert (last["event"], last["outcome"]) == ("ended", "abandoned")
    assert not last["left"]


def parties():
    from skprivbn.programs import MomentsTerms, moments

    return moments, MomentsTerms("none"), "masking"


@pytest.mark.parametrize(
    ("change", "n_problems"),
    [
        (lambda lines: lines, 0),
        (lambda lines: [*lines[:2], *lines[3:]], 1),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], 3),
        (lambda lines: [lines[0].replace('"n": 0', '"n": 7'), *lines[1:]], 1),
        (lambda lines: [*lines[:2], "", *lines[2:]], 2),
        (lambda lines: [*lines[:-1], lines[-1][:9]], 1),
    ],
)
def test_the_chain_shows_what_was_done_to_it(tmp_path, change, n_problems, capsys):
    path = tmp_path / "log.jsonl"
    for n in range(5):
        AuditLog(path).write({"n": n})
    path.write_text(
        "".join(f"{line}\n" for line in change(path.read_text().split("\n")[:-1]))
    )
    records, problems, _ = read_audit(path)
    assert len(problems) == n_problems
    assert main(["audit", str(path)]) == bool(n_problems)
    # and a site goes on after a line that was cut off
    AuditLog(path).write({"n": 5})
    again, problems, _ = read_audit(path)
    assert again[-1]["n"] == 5
    assert len(problems) == n_problems


def test_full_files_are_put_aside_and_read_with_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(_audit, "MAX_BYTES", 400)
    path = tmp_path / "log.jsonl"
    for n in range(12):
        AuditLog(path).write({"n": n})
    aside = sorted(tmp_path.glob("log.jsonl.0*"))
    assert len(aside) >= 2
    records, problems, _ = read_audit(path)
    assert [record["n"] for record in records] == list(range(12))
    assert not problems
    aside[0].chmod(0o600)
    aside[0].write_text(aside[0].read_text().replace('"n": 1', '"n": 8'))
    assert len(read_audit(path)[1]) == 1


def test_a_line_that_does_not_fit_leaves_no_part(tmp_path):
    resource = pytest.importorskip("resource")
    log = AuditLog(tmp_path / "audit.jsonl")
    log.write({"event": "asked"})
    whole = log.path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # part of the next line fits
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 40, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            log.write({"event": "asked"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert log.path.read_bytes() == whole
    log.write({"event": "asked"})
    assert not read_audit(log.path)[1]


def test_long_lines_do_not_break_the_chain(tmp_path):
    log = AuditLog(tmp_path / "audit.jsonl")
    for size in (10, 1 << 21, 1 << 17, 10):
        log.write({"event": "asked", "purpose": "x" * size})
    records, problems, _ = read_audit(log.path)
    assert len(records) == 4
    assert not problems


def test_terms_are_shortened():
    long = {"x": np.zeros(99), "y": list(range(50)), "z": b"key", "e": np.inf}
    short = _audit._shorten(long)
    assert short["x"] == "array of shape (99,)"
    assert len(short["y"]) == 21
    assert json.dumps(short)


def test_nothing_is_answered_that_cannot_be_written_down(rows, tmp_path):
    path = tmp_path / "north" / "skprivbn_audit.jsonl"
    path.unlink()
    path.mkdir()
    with pytest.raises(PartyError, match="'north'.*cannot write down") as caught:
        FederatedStandardScaler().fit(rows)
    assert caught.value.code == "cannot-record"
    errors = (tmp_path / "north" / "skprivbn_errors.log").read_text()
    assert "IsADirectoryError" in errors
    assert str(path) in errors
    assert charges(tmp_path, "north", "exact") == []


def ask_in_long_words(sites, words):
    """Join with, and then ask for, something whose name is the coordinator's."""
    rows = connect(sites, "icu").rows(["a", "b"])
    rows.aligned = {"x" * 100_000: "died"}
    with rows.federate(moments, MomentsTerms("none"), "masking"):
        host = sites["north"]._host
        request = {"session": host._agreement.session, "operation": words}
        request |= {"sequence": host._last_sequence + 1, "payload": {}}
        assert not decode(host.handle(encode(request)))["ok"]


def test_attack_names_that_fill_the_logs(tmp_path, monkeypatch):
    write_tables(tmp_path, *make_rows())
    sites = make_sites(tmp_path, site_files())
    ask_in_long_words(sites, "two\nlines " + "y" * 3000)
    logs = [tmp_path / "north" / name for name in ("skprivbn_audit.jsonl", ERROR_LOG)]
    assert all(path.stat().st_size < 20_000 for path in logs)
    assert "two?lines?y" in logs[1].read_text()
    # the twin
    monkeypatch.setattr(_audit, "MAX_TEXT", 1 << 20)
    monkeypatch.setattr(_host, "MAX_WORDS", 1 << 20)
    ask_in_long_words(sites, "z" * 3000)
    assert logs[0].stat().st_size > 100_000
    assert "z" * 3000 in logs[1].read_text()
