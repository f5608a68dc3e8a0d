"""Contents of a file that several datasets are about."""

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation.site._file import SiteFile
from skprivbn.federation.site._snapshots import RowSketch, Snapshots
from skprivbn.federation.site._state import MAX_CONTENTS, SiteState
from skprivbn.preprocessing import FederatedStandardScaler
from tests.federation.site.loopback import connect, make_sites

NAMES = ("north", "south", "west")

SITE_FILE = """
min_parties = 3
peers = ["north", "south", "west"]

[datasets.stays]
path = "icu.csv"
min_rows = 10
max_exact_fits = 20
estimators = ["FederatedStandardScaler"]
columns = {age = "float", days = "float"}

[datasets.people]
path = "icu.csv"
min_rows = 10
max_exact_fits = 20
estimators = ["FederatedStandardScaler"]
columns = {age = "float", weight = "float"}
"""


def ask(folder, dataset):
    """Return the number of rows and the sum of ages of all hospitals."""
    sites = make_sites(folder, dict.fromkeys(NAMES, SITE_FILE))
    scaler = FederatedStandardScaler().fit(connect(sites, dataset).rows(["age"]))
    return np.array([1.0, scaler.mean_[0]]) * scaler.n_samples_


@pytest.fixture
def add_row(tmp_path):
    rng = np.random.default_rng(0)
    for name in NAMES:
        (tmp_path / name).mkdir()
        rows = [",".join(map(str, row)) for row in rng.normal(60, 9, (40, 3))]
        text = "\n".join(["age,days,weight", *rows, ""])
        (tmp_path / name / "icu.csv").write_text(text)

    def add(row):
        with open(tmp_path / "north" / "icu.csv", "a") as file:
            file.write(row + "\n")

    return add


@pytest.mark.parametrize("first", [["people"], ["people", "stays"]])
def test_attack_a_row_that_is_added_between_two_datasets(
    tmp_path, monkeypatch, add_row, first
):
    for dataset in first:
        before = ask(tmp_path, dataset)
    add_row("97.25,1,1")
    with pytest.raises(PartyError, match="changed"):
        ask(tmp_path, "stays")
    # the twin: what was asked of other columns is not looked at
    monkeypatch.setattr(Snapshots, "find", lambda self: self._known[0])
    np.testing.assert_allclose(ask(tmp_path, "stays") - before, [1, 97.25])


def replace_cell(folder, place, value):
    """Write another number into the first row of a hospital; return what it was."""
    path = folder / "north" / "icu.csv"
    header, row, *others = path.read_text().splitlines()
    cells = row.split(",")
    before, cells[place] = float(cells[place]), str(value)
    path.write_text("\n".join([header, ",".join(cells), *others, ""]))
    return before


def test_attack_a_row_that_is_replaced_between_two_datasets(
    tmp_path, monkeypatch, add_row
):
    before = ask(tmp_path, "people")
    age = replace_cell(tmp_path, 0, 97.25)
    with pytest.raises(PartyError, match="changed"):
        ask(tmp_path, "stays")
    # the twin: of other columns, only numbers of rows are compared
    monkeypatch.setattr(Snapshots, "_sketch_of", lambda *arguments: None)
    np.testing.assert_allclose(ask(tmp_path, "stays") - before, [0, 97.25 - age])


def test_attack_a_row_that_is_replaced_where_another_dataset_does_not_look(
    tmp_path, add_row
):
    ask(tmp_path, "people")
    ask(tmp_path, "stays")
    replace_cell(tmp_path, 1, 3.5)
    # as people nothing has changed, which says nothing of stays
    ask(tmp_path, "people")
    with pytest.raises(PartyError, match="changed"):
        ask(tmp_path, "stays")


def test_columns_that_are_gone_are_not_compared(tmp_path, add_row):
    ask(tmp_path, "people")
    for name in NAMES:
        path = tmp_path / name / "icu.csv"
        path.write_text(path.read_text().replace("weight", "kilos"))
    ask(tmp_path, "stays")


def test_both_are_the_same_version(tmp_path, add_row):
    ask(tmp_path, "people")
    ask(tmp_path, "stays")
    datasets = SiteFile.load(tmp_path / "north" / "site.toml").datasets
    key, contents = SiteState(datasets["stays"].state).contents("stays")
    found = [Snapshots(d, key, contents).find() for d in datasets.values()]
    assert {content["version"] for content in found} == {"1"}
    assert len(contents) == 2
    for _ in range(10):
        add_row("60,1,1")
    ask(tmp_path, "stays")


def test_parts_which_peers_choose_displace_no_content(tmp_path, add_row):
    ask(tmp_path, "people")
    dataset = SiteFile.load(tmp_path / "north" / "site.toml").datasets["people"]
    state, account = SiteState(dataset.state), dataset.account
    (whole,) = state.contents(account)[1]
    parts = [{"is_part": True, "n_rows": n} for n in range(MAX_CONTENTS + 2)]
    for part in parts:
        state.add_content(account, part)
    assert state.contents(account)[1] == [whole, *parts[2:]]


def test_sketches_bound_the_number_of_changed_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    sketch = RowSketch.of([X[:200], X[200:]], 7)
    assert sketch.changed_rows(RowSketch.of([X[::-1]], 7)) == 0
    again = RowSketch.from_json(sketch.to_json())
    for n in (1, 5, 50):
        changed = X.copy()
        changed[:n] += 1
        assert 0 < again.changed_rows(RowSketch.of([changed], 7)) <= n
        assert again.changed_rows(RowSketch.of([X[n:]], 7)) == n
