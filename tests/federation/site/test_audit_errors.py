import re
import stat

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation.program import PartyRefusal
from skprivbn.federation.site import _audit
from skprivbn.federation.site._audit import ErrorLog
from skprivbn.mixed_model import PrivateGLMMRegressor
from skprivbn.preprocessing import (
    FederatedOneHotEncoder,
    FederatedPCA,
    FederatedStandardScaler,
)
from skprivbn.structure import FederatedBayesianNetwork
from tests.federation.flare.hospitals import (
    MARKER,
    make_rows,
    site_files,
    write_tables,
)
from tests.federation.site.loopback import connect, make_sites, open_sites


def test_a_cell_that_cannot_be_read_is_named_at_the_site_only(tmp_path):
    write_tables(tmp_path, *make_rows())
    federation = connect(make_sites(tmp_path, site_files()), "broken")
    with pytest.raises(PartyError) as caught:
        FederatedStandardScaler().fit(federation.rows(["a"]))
    assert caught.value.code == "invalid-data"
    assert caught.value.__cause__ is None and MARKER not in str(caught.value)
    (log,) = (tmp_path / "north").rglob("skprivbn_errors.log")
    assert MARKER in log.read_text() and "session.join" in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
@pytest.mark.parametrize(
    ("ask", "code", "why"),
    [
        (
            lambda rows: FederatedStandardScaler().fit(rows(["age", "sick"])),
            "too-few-rows",
            "counts, sums and absolute sums: 2 of 14 blocks are about fewer rows than",
        ),
        (
            lambda rows: PrivateGLMMRegressor(small_clusters="refuse").fit(
                rows(["age"]), y="stay", cluster="ward"
            ),
            "too-detailed",
            f"2 rows are '{MARKER}': fewer than min_cell_count",
        ),
        (
            lambda rows: FederatedStandardScaler(backend="paillier").fit(rows(["age"])),
            "not-allowed",
            "the rule: Sums are hidden by what the site file names.",
        ),
    ],
)
def test_why_a_question_was_refused_is_said_at_the_site_only(tmp_path, ask, code, why):
    tables = {
        name: [[i, int(i < 1), i**0.5, MARKER if i < 2 else "A"] for i in range(40)]
        for name in ("north", "south", "west")
    }
    columns = {"age": '"float"', "sick": '"int"', "stay": '"float"'}
    columns |= {"ward": f'["A", "{MARKER}"]'}
    estimators = ["FederatedStandardScaler", "PrivateGLMMRegressor"]
    rules = 'backends = ["masking"]'
    federation = open_sites(tmp_path, tables, columns, estimators, rules)
    start = len(federation._relay.session.transcript)
    with pytest.raises(PartyError) as caught:
        ask(federation.rows)
    assert caught.value.code == code
    log = (tmp_path / "north" / "skprivbn_errors.log").read_text()
    assert why in log and "Traceback" not in log
    assert all(column in log for column in caught.value.columns)
    said = b"".join(federation._relay.session.transcript[start:])
    assert why.encode() not in said and MARKER.encode() not in said


def test_the_log_does_not_grow_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(_audit, "MAX_ERROR_BYTES", 2000)
    log = ErrorLog(tmp_path / "errors.log")
    for number in range(200):
        log.write("asked", ValueError(f"number {number}"))
    assert "number 199" in log.path.read_text()
    assert len(list(tmp_path.iterdir())) == 1 + _audit.N_KEPT
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 5 * 2000


def test_a_defect_is_written_down_with_its_place_and_cause(tmp_path):
    log = ErrorLog(tmp_path / "errors.log")
    try:
        try:
            float("not a number")
        except ValueError as error:
            raise PartyRefusal("invalid-data", "a cell") from error
    except PartyRefusal as error:
        log.write("next", error, ["age"])
    first, *lines = log.path.read_text().splitlines()
    assert first.endswith("next (columns age)")
    assert lines[0].endswith("invalid-data: a cell")
    assert "not a number" in lines[1] and f"{__file__}:" in lines[1]
    assert len(lines) == 2


def test_a_full_disk_changes_no_answer(tmp_path):
    ErrorLog(tmp_path / "no folder" / "errors.log").write("asked", ValueError())


@pytest.mark.parametrize(
    ("ask", "columns", "words"),
    [
        (
            lambda rows: FederatedPCA(1).fit(rows(["age", "bmi"])),
            ("bmi",),
            "columns ['bmi'] have gaps: fill them first (rows with Federated",
        ),
        (
            lambda rows: PrivateGLMMRegressor().fit(
                rows(["age"]), y="bmi", cluster="ward"
            ),
            ("bmi",),
            "columns ['bmi'] have gaps",
        ),
        (
            lambda rows: PrivateGLMMRegressor().fit(
                rows(["age"]), y="stay", cluster="smoker"
            ),
            ("smoker",),
            "columns ['smoker'] have gaps",
        ),
        (
            lambda rows: FederatedBayesianNetwork().fit(rows(["sick", "smoker"])),
            ("smoker",),
            "or take missing='skip'",
        ),
        (
            lambda rows: FederatedStandardScaler().fit(rows(["age", "sick"])),
            ("sick",),
            "(min_rows, min_cell_count): join rare levels with a larger min_frequency=",
        ),
        (
            lambda rows: FederatedStandardScaler().fit(
                FederatedOneHotEncoder().fit_transform(rows(["sick"]))
            ),
            # not the label of the rare one
            ("sick",),
            "(min_rows, min_cell_count): join rare levels with a larger min_frequency=",
        ),
        (
            lambda rows: PrivateGLMMRegressor(small_clusters="refuse").fit(
                rows(["age"]), y="stay", cluster="sick"
            ),
            ("sick",),
            "(min_cell_count): join rare levels with a larger min_frequency=",
        ),
    ],
)
def test_a_refusal_says_which_column_and_what_to_do(tmp_path, ask, columns, words):
    tables = {
        name: [
            [
                i,
                "" if i % 9 == 0 else 25,
                i**0.5,
                *("yn"[i > 0], "yn "[i % 3].strip()),
                "A",
            ]
            for i in range(40)
        ]
        for name in ("north", "south", "west")
    }
    kinds = {"age": '"float"', "bmi": '"float"', "stay": '"float"'}
    kinds |= {"sick": '["n", "y"]', "smoker": '["n", "y"]', "ward": '["A"]'}
    estimators = ["FederatedPCA", "FederatedStandardScaler", "PrivateGLMMRegressor"]
    estimators += ["FederatedBayesianNetwork", "FederatedOneHotEncoder"]
    sites = open_sites(tmp_path, tables, kinds, estimators)
    with pytest.raises(PartyError) as caught:
        ask(sites.rows)
    assert caught.value.columns == columns
    assert words in str(caught.value)
    # neither a label nor a number of rows
    assert not re.search(r"\d", str(caught.value))


def test_a_rare_level_inside_a_shared_cluster_is_named_with_its_column(tmp_path):
    """Over all rows there are 24 of the level, in ward B a single one."""
    rng = np.random.default_rng(0)
    tables = {
        name: [
            [
                "AB"[i % 2],
                "y" if i % 2 == 0 and i < 16 or (name, i) == ("west", 1) else "n",
                rng.normal(),
            ]
            for i in range(80)
        ]
        for name in ("north", "south", "west")
    }
    kinds = {"ward": '["A", "B"]', "trial": '["n", "y"]', "stay": '"float"'}
    estimators = ["PrivateGLMMRegressor", "FederatedOneHotEncoder"]
    rules = "min_cell_count = 1"
    rows = open_sites(tmp_path, tables, kinds, estimators, rules).rows(
        ["trial", "stay", "ward"]
    )
    encoder = FederatedOneHotEncoder(columns="trial", drop="first")
    with pytest.raises(PartyError, match="products of columns") as caught:
        PrivateGLMMRegressor().fit(
            encoder.fit_transform(rows), y="stay", cluster="ward"
        )
    assert caught.value.columns == ("trial", "ward")
