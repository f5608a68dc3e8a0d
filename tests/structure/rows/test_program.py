"""What parties refuse to count, and what sites do."""

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation import COUNTS, Me, PartyRefusal
from skprivbn.structure import FederatedBayesianNetwork
from skprivbn.structure._tables import Question
from skprivbn.structure.rows import _program
from skprivbn.structure.rows._program import RowNetworkTerms, network_of_rows
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.site.loopback import connect, make_sites
from tests.structure.rows.asking import overhear, run, terms_for

NAMES, STATES = ["a", "b", "c"], [[0, 1]] * 3


def blocks(n_states=2):
    rng = np.random.default_rng(0)
    return {n: {"X": rng.integers(n_states, size=(30, 3))} for n in ("n", "s", "w")}


def test_the_tables_of_a_search_are_those_of_all_rows(monkeypatch):
    told = overhear(monkeypatch, Question("tables", [(0, 1), (0, 2)]))
    run(blocks(), terms_for(NAMES, STATES))
    X = np.vstack([block["X"] for block in blocks().values()])
    sums, tables = told[0], told[3]
    assert sums.tolist() == [90]
    for table, v in zip(np.split(tables, 2), (1, 2)):
        expected = np.bincount(2 * X[:, 0] + X[:, v], minlength=4)
        np.testing.assert_array_equal(table, expected)


def test_parties_find_the_same_without_being_told_what_to_ask():
    found = run(blocks(), terms_for(NAMES, STATES, max_parents=2))
    assert found["states"] == STATES and found["n_samples"] == 90
    assert {len(key) for key in found["tables"]} <= {1, 2, 3}
    kinds = {kind for kind, _ in network_of_rows.rounds()}
    assert kinds == {"Tell", "Sum"}


def test_sites_answer_for_no_table_with_more_cells_than_rows():
    """At a site, no table has more cells than all parties have rows; or small ones."""
    terms = terms_for(NAMES, [list(range(10))] * 3)
    block = {"X": np.random.default_rng(0).integers(10, size=(30, 3))}
    sizes = []
    for is_simulated in (False, True):
        me = Me(block, terms, "n", ("n",), is_simulated=is_simulated)
        steps = network_of_rows(me)
        first = next(steps)
        try:
            step = steps.send(first.vector)
            assert step.weights is COUNTS
            sizes.append(step.vector.size)
        except StopIteration as stop:
            sizes.append(stop.value["problem"])
    # tables of one column, and all of those that the search begins with
    assert sizes == [30, 300]


BAD_TERMS = {
    "a name twice": {"names": ["a", "a", "b"]},
    "states of one": {"states": [[0, 1]]},
    "a state twice": {"states": [[0, 0]] * 3},
    "max_parents": {"max_parents": -1},
    "a cycle": {"known": [[1], [0], []]},
    "its own parent": {"known": [[0], [], []]},
    "parents of one": {"known": [[]]},
    "no such parent": {"known": [[5], [], []]},
    "too many parents": {"known": [[1, 2], [], []]},
    "a required cycle": {"required": ~np.eye(3, dtype=bool)},
    "required and not allowed": {
        "required": np.eye(3, k=1, dtype=bool),
        "allowed": np.zeros((3, 3), dtype=bool),
    },
    "edges of other columns": {"allowed": np.ones((2, 2), dtype=bool)},
    "edges that are numbers": {"allowed": np.ones((3, 3))},
    "ordering": {"ordering": [0, 1, 1]},
    "endless repeats": {"n_bootstrap": 10**9},
    "continuous parent": {
        "continuous": [2],
        "states": [[0, 1], [0, 1], [0]],
        "known": [[2], [], []],
    },
    "continuous and ges": {
        "continuous": [2],
        "states": [[0, 1], [0, 1], [0]],
        "method": "ges",
    },
    "alpha": {"alpha": -1.0},
    "seed": {"seed": -1},
}


@pytest.mark.parametrize("name", BAD_TERMS)
def test_terms_that_make_no_sense(name):
    with pytest.raises(ValueError):
        terms_for(**{"names": NAMES, "states": STATES} | BAD_TERMS[name])


def test_terms_travel():
    terms = terms_for(NAMES, STATES, known=[[], [0], [1]])
    again = RowNetworkTerms.from_payload(terms.to_payload())
    assert again.known == terms.known
    assert again.names == NAMES


def test_missing_entries_and_unknown_labels_are_refused():
    rows = {"n": {"X": np.array([[0.0, np.nan, 1.0]])}, "s": {"X": np.zeros((1, 3))}}
    for value, words in ((np.nan, "entries are missing"), (7.0, "do not fit")):
        rows["n"]["X"][0, 1] = value
        with pytest.raises(PartyError, match=words):
            run(rows, terms_for(NAMES, STATES))


@pytest.mark.parametrize("labels", [[[0, 1]], [[0], [0], [[1]]], 3, [[0, 0], [0], [0]]])
def test_labels_that_are_none_end_the_fit(labels):
    me = Me(blocks()["n"], terms_for(NAMES, [None] * 3), "n", ("n", "s"))
    steps = network_of_rows(me)
    assert next(steps).messages == {"s": [[0, 1]] * 3}
    if labels == [[0, 0], [0], [0]]:  # what one party says twice is there once
        assert steps.send({"s": labels}).vector.tolist() == [30]
    else:
        with pytest.raises(PartyRefusal, match="refused"):
            steps.send({"s": labels})


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
    asked = [(0, 1), (0,), (1,)]

    def differences():
        told = overhear(monkeypatch, Question("tables", asked))
        rows = connect(make_sites(tmp_path, texts), "icu").rows(["ward", "died"])
        terms = terms_for(["ward", "died"], [[0, 1], [0, 1]], min_cell_count=5)
        with rows.federate(network_of_rows, terms, "masking") as session:
            session.run()
        both, *single = np.split(told[-1], [4, 6])
        both = both.reshape(2, 2)
        assert both[1, 1] == 0
        return single[0][1] - both[1].sum(), single[1][1] - both[:, 1].sum()

    assert differences() != (2, 2)
    monkeypatch.setattr(_program, "in_steps", hide_small)
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
