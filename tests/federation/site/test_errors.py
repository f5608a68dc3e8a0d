import stat

import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation.site import _errors
from skprivbn.federation.site._errors import ErrorLog
from skprivbn.preprocessing import FederatedStandardScaler
from tests.federation.flare.hospitals import (
    MARKER,
    make_rows,
    site_files,
    write_tables,
)
from tests.federation.site.loopback import connect, make_sites


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


def test_the_log_does_not_grow_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(_errors, "MAX_BYTES", 2000)
    log = ErrorLog(tmp_path / "errors.log")
    for number in range(200):
        log.write("asked", ValueError(f"number {number}"))
    assert "number 199" in log.path.read_text()
    assert len(list(tmp_path.iterdir())) == 1 + _errors.N_KEPT
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 5 * 2000


def test_a_full_disk_changes_no_answer(tmp_path):
    ErrorLog(tmp_path / "no folder" / "errors.log").write("asked", ValueError())
