"""Names of parties can be told apart by whoever reads the ledger."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator

from skprivbn.exceptions import PartitionError, ProtocolError
from skprivbn.federation import InProcessFederation
from skprivbn.federation._session import Agreement, check_roster
from skprivbn.partition import HorizontalPartition, VerticalPartition, check_vertical
from skprivbn.preprocessing import FederatedStandardScaler
from skprivbn.programs import MomentsTerms, moments
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.site.loopback import connect, make_sites

ROWS = np.arange(12.0).reshape(6, 2)
WRONG = [
    "coordinator",
    "Coordinator",
    "the coordinator",
    "all parties",
    "each party",
    "",
    " ",
    "north ",
    "north\ncoordinator  everything",
    b"north",
    1,
    None,
]


@pytest.mark.parametrize("name", WRONG, ids=repr)
def test_names_that_would_make_the_ledger_untrue_are_refused(name):
    with pytest.raises(PartitionError, match="name"):
        HorizontalPartition({name: ROWS, "south": ROWS})
    with pytest.raises(PartitionError, match="name"):
        VerticalPartition({name: ROWS, "south": ROWS})
    with pytest.raises(PartitionError, match="name"):
        check_vertical(BaseEstimator(), ROWS, {name: [0], "south": [1]})
    blocks = {name: {"X": ROWS}, "south": {"X": ROWS}}
    with pytest.raises(PartitionError, match="name"):
        InProcessFederation(blocks, moments, MomentsTerms("none"))


def test_names_that_look_the_same_are_refused():
    with pytest.raises(PartitionError, match="look the same"):
        check_roster(["Zürich", "Zu\u0308rich"])
    assert check_roster(["Zürich", "north", "North"]) == ("Zürich", "north", "North")


@pytest.mark.parametrize(
    "party, message",
    [
        ([1, "1"] * 3, "several types.*1, '1'"),
        (np.array([1, "1"] * 3, dtype=object), "several types"),
        (pd.Series([1, "1"] * 3, dtype=object), "several types"),
        ([True, 1] * 3, "several types"),
        ([b"a", b"b"] * 3, "bytes"),
        (np.array([b"a", b"b"] * 3), "bytes"),
        (["a", np.nan] * 3, "missing labels"),
        (pd.Series(["a", None] * 3, dtype="string"), "missing labels"),
        (pd.Series([1, None] * 3, dtype="Int64"), "missing labels"),
        (["coordinator", "b"] * 3, "'coordinator' cannot be the name"),
        (["", "b"] * 3, "not empty"),
    ],
)
def test_labels_of_rows(party, message):
    with pytest.raises(PartitionError, match=message):
        FederatedStandardScaler().fit(ROWS, party=party)


def test_numbers_are_names_as_text():
    for party in ([10, 2] * 3, np.array([10, 2] * 3), pd.Series([10, 2] * 3)):
        assert HorizontalPartition.from_rows(ROWS, party).names == ("2", "10")


def test_a_site_refuses_a_roster_with_such_a_name():
    terms = {
        "session": bytes(16),
        "roster": "north\nsouth",
        "protocol": "",
        "settings": {},
        "backend": {"name": "masking", "parameters": {}},
        "data": {},
    }
    assert Agreement(terms).roster == ("north", "south")
    wrong = [f"north\n{name}" for name in WRONG if isinstance(name, str)]
    for roster in (*wrong, ["north", "south"], b"north\nsouth", 1, None):
        with pytest.raises(ProtocolError, match="malformed agreement"):
            Agreement(terms | {"roster": roster})


def test_a_site_of_such_a_name_is_refused(tmp_path):
    X, ward, party, people = make_rows()
    write_tables(tmp_path, X, ward, party, people)
    files = site_files()
    (tmp_path / "west").rename(tmp_path / "coordinator")
    files["coordinator"] = files.pop("west")
    files = {n: t.replace('"west"]', '"coordinator"]') for n, t in files.items()}
    rows = connect(make_sites(tmp_path, files), "icu").rows(["a", "b"])
    with pytest.raises(PartitionError, match="'coordinator' cannot be the name"):
        FederatedStandardScaler().fit(rows)
