"""A draft of a site file: what it declares, and that it allows nothing exact."""

import pytest

from skprivbn.federation.__main__ import main
from skprivbn.federation.site._check import check_data
from skprivbn.federation.site._file import SiteFile


def write_rows(path, separator=";", comma=","):
    head = ["Alter (Jahre)", "Geschlecht", "sick", "n", "patient", "note", "from", "to"]
    rows = [head]
    for i in range(60):
        age = f"{40 + i / 4}".replace(".", comma)
        note = ["well", "ill at home"][i % 2] + str(i % 15)
        dates = [f"2026-01-{1 + i % 28:02}", f"{1 + i % 28}.1.2026"]
        rows.append([age, "fm"[i % 2], "01"[i % 2], str(i * 7), f"p{i}", note, *dates])
    rows[3][1], rows[4][0] = "NA", ""
    text = "\n".join(separator.join(row) for row in rows) + "\n"
    path.write_text(text, encoding="cp1252")


@pytest.mark.parametrize(("separator", "comma"), [(";", ","), (",", ".")])
def test_a_draft_declares_what_is_there_and_allows_nothing_exact(
    tmp_path, separator, comma, capsys
):
    local = tmp_path / "local"
    local.mkdir()
    write_rows(local / "stays.csv", separator, comma)
    command = ["new-site", str(tmp_path), "--data", "stays.csv", "--name", "icu"]
    assert main([*command, "--peers", "north", "south", "west"]) == 0
    path = local / "skprivbn_site.toml"
    dataset = SiteFile.load(path).datasets["icu"]
    assert dataset.columns == {
        "Alter (Jahre)": "float",
        "Geschlecht": ["f", "m"],
        "sick": ["0", "1"],
        "n": "int",
        "patient": "key",
    }
    problems, notes = check_data(dataset)
    assert problems == []
    assert "1 of 60 values" in notes[0]
    assert (dataset.max_exact_fits, dataset.approve) == (0, "ask")
    assert dataset.budget == (1.0, 1e-6)
    assert SiteFile.load(path).min_parties == 3
    text = path.read_text()
    assert "1 of 60 rows have no value" in text
    assert '"sick" = ["0", "1"]  # categories; write "int" if they are counts' in text
    assert "text with 30 different values: not declared" in text
    for column in ("from", "to"):
        assert f'# "{column}": dates; not declared: make numbers' in text
    assert '"n" = "int"  # numbers, another one in each row: "key" if they' in text
    # what a person has corrected is not written over
    assert main([*command, "--peers", "north"]) == 2
    assert "already" in capsys.readouterr().err


def test_a_draft_needs_a_file(tmp_path, capsys):
    (tmp_path / "local").mkdir()
    command = ["new-site", str(tmp_path), "--data", "no.csv", "--peers", "a", "b"]
    assert main(command) == 2
    assert "there is no file" in capsys.readouterr().err


def test_the_file_of_a_draft_may_be_in_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "kit" / "local").mkdir(parents=True)
    write_rows(tmp_path / "stays.csv", ",", ".")
    monkeypatch.chdir(tmp_path)
    assert main(["new-site", "kit", "--data", "stays.csv", "--peers", "a", "b"]) == 0
    (dataset,) = SiteFile.load("kit/local/skprivbn_site.toml").datasets.values()
    assert check_data(dataset)[0] == []
