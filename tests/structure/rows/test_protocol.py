"""What parties refuse to count, and what sites do."""

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation import InProcessFederation
from skprivbn.structure import FederatedBayesianNetwork
from skprivbn.structure.rows import _protocol
from skprivbn.structure.rows._protocol import (
    RowTablesParty,
    RowTablesTerms,
    agree_on_states,
    sum_tables,
)
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.site.loopback import connect, make_sites

TERMS = {"names": ["a", "b", "c"], "states": [[0, 1]] * 3, "max_parents": 1}
TERMS |= {"continuous": []}
TERMS |= {"min_cell_count": 0, "missing": "error"}


def federation(**changes):
    rng = np.random.default_rng(0)
    blocks = {name: {"X": rng.integers(2, size=(30, 3))} for name in ("n", "s", "w")}
    terms = RowTablesTerms(**TERMS | changes)
    return InProcessFederation(blocks, RowTablesParty, terms, "masking")


def test_a_table_is_counted_once():
    with federation() as session:
        agree_on_states(session)
        count = sum_tables(session)
        assert count([([0], [1])]).sum() == 90
        with pytest.raises(PartyError, match="refuses"):
            count([([1], [0])])


@pytest.mark.parametrize(
    "asked",
    [
        np.array([[0, 1, 2]]),
        np.array([[0, 0]]),
        np.array([[0, 3]]),
        np.array([[-1, -1]]),
        np.array([[-2, 0]]),
        np.array([0, 1]),
        np.array([[0.0, 1.0]]),
        np.zeros((0, 2), dtype=int),
        [[0, 1]],
    ],
    ids=str,
)
def test_other_tables_than_the_terms_say_are_refused(asked):
    with federation() as session:
        agree_on_states(session)
        with pytest.raises(PartyError, match="refuses"):
            session.secure_sum("tables", {"asked": asked})


def test_tables_as_large_as_the_rows_are_refused():
    states = [list(range(300))] * 3
    with federation(states=states) as session:
        agree_on_states(session)
        with pytest.raises(PartyError, match="refuses"):
            session.secure_sum("tables", {"asked": np.array([[0, 1]])})


def test_sites_answer_for_no_table_with_more_cells_than_rows():
    states = [list(range(10))] * 3
    for limit in (1.0, np.inf):
        with federation(states=states) as session:
            agree_on_states(session)
            for host in session._hosts.values():
                host._party.max_cells_per_row = limit
            if limit == 1.0:
                with pytest.raises(PartyError, match="more cells"):
                    sum_tables(session)([([0], [1])])
            else:
                assert sum_tables(session)([([0], [1])]).sum() == 90


def test_a_number_of_rows_that_is_made_up_is_refused():
    with federation() as session:
        session.secure_sum("size", {"states": [[0, 1]] * 3})
        with pytest.raises(PartyError):
            session.call("accept", {"total": np.array([1e9])})


def test_states_that_were_declared_cannot_be_replaced():
    with federation() as session:
        total = session.secure_sum("size", {"states": [[0], [0], [0]]})
        assert total[0] == 90


@pytest.mark.parametrize(
    "changes",
    [
        {"names": ["a", "a", "b"]},
        {"states": [[0, 1]]},
        {"states": [[0, 0]] * 3},
        {"max_parents": -1},
    ],
)
def test_terms_that_make_no_sense(changes):
    with pytest.raises(ValueError):
        RowTablesTerms(**TERMS | changes)


def test_missing_entries_and_unknown_labels_are_refused():
    rows = {"n": {"X": np.array([[0.0, np.nan, 1.0]])}, "s": {"X": np.zeros((1, 3))}}
    terms = RowTablesTerms(**TERMS)
    for value in (np.nan, 7.0):
        rows["n"]["X"][0, 1] = value
        with InProcessFederation(rows, RowTablesParty, terms, "masking") as session:
            with pytest.raises(PartyError, match="do not fit"):
                agree_on_states(session)


def hide_small(counts, step):
    """The twin: counts that are not small are told as they are."""
    return np.where(counts < step, 0, counts)


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
def test_attack_a_small_count_as_a_difference(tmp_path, monkeypatch):
    """Many are in surgery, many die, two of these in one hospital did both."""
    X, ward, party, people = make_rows(n_rows=100)
    died = np.arange(len(X)) % 2 * (1 - ward)
    died[np.flatnonzero((party == "north") & (ward == 1))[:2]] = 1
    monkeypatch.setattr("tests.federation.flare.hospitals.outcome", lambda X: died)
    write_tables(tmp_path, X, ward, party, people)
    texts = site_files()
    for name, text in texts.items():
        text = text.replace("min_cell_count = 1", "min_cell_count = 5")
        texts[name] = text.replace('died = "int"', 'died = ["0", "1"]')

    def differences():
        rows = connect(make_sites(tmp_path, texts), "icu").rows(["ward", "died"])
        terms = {"names": ["ward", "died"], "states": [[0, 1], [0, 1]]}
        terms |= {"continuous": [], "max_parents": 1, "missing": "error"}
        terms = RowTablesTerms(**terms, min_cell_count=5)
        with rows.federate(RowTablesParty, terms, "masking") as session:
            agree_on_states(session)
            both, *single = np.split(
                sum_tables(session)([((0,), [1]), ((), [0]), ((), [1])]), [4, 6]
            )
        both = both.reshape(2, 2)
        assert both[1, 1] == 0
        return single[0][1] - both[1].sum(), single[1][1] - both[:, 1].sum()

    assert differences() != (2, 2)
    monkeypatch.setattr(_protocol, "in_steps", hide_small)
    assert differences() == (2, 2)


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
def test_sites_give_the_network_of_the_same_rows_in_process(tmp_path):
    data = make_rows()
    write_tables(tmp_path, *data)
    rows = connect(make_sites(tmp_path, site_files()), "icu").rows(["ward", "died"])
    remote = FederatedBayesianNetwork("ges").fit(rows)
    assert remote.network_.nodes == ("ward", "died")
    assert remote.n_samples_ == len(data[0])
    assert np.isfinite(remote.score(rows))
    texts = site_files()
    texts["west"] = texts["west"].replace("min_cell_count = 1", "min_cell_count = 5")
    rows = connect(make_sites(tmp_path, texts), "icu").rows(["ward", "died"])
    strict = FederatedBayesianNetwork("ges").fit(rows)
    # as one of the site files asks for, whatever the estimator says
    assert any("steps of 5" in note for note in strict.ledger_.notes)
    with pytest.raises(ValueError, match="fractions of rows"):
        FederatedBayesianNetwork("ges", missing="em").fit(rows)
