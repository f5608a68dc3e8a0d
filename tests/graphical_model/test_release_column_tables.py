"""Columns at several holders: oracle, what is refused, what nobody sees."""

import os
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from skprivbn.crypto.shares import Conversation, open_noisy_numbers, run_together
from skprivbn.crypto.shares import _gmw as shared_noise
from skprivbn.exceptions import BudgetExceededError, PartitionError, PartyError
from skprivbn.graphical_model import DPCGMLearner, _release
from skprivbn.graphical_model._adaptive import (
    PROBABILITY_UNIT,
    AdaptiveSearch,
)
from skprivbn.graphical_model._release import (
    ColumnTablesTerms,
    apportion,
    column_tables,
)
from skprivbn.graphical_model._tables import Contribution
from skprivbn.inspection import privacy_report
from skprivbn.partition import VerticalPartition
from skprivbn.privacy import DistributedNoise, PrivacyAccountant
from skprivbn.programs._shared_tables import ColumnTables
from tests.crypto.shares._sides import NAMES, deal_links, messages_of, run_sides
from tests.privacy.watching import Attack
from tests.structure.k2.test_private_views import told_apart

second_fit = pytest.mark.filterwarnings("ignore:this is the second fit")

SIZES = (2, 3, 4, 2)
TWO = {"clinic": [0, 3], "lab": [1, 2]}
THREE = {"clinic": [0], "lab": [1, 3], "insurer": [2]}
ALL = [c for order in (1, 2, 3) for c in combinations(range(4), order)]


def rows_of(n, seed=0):
    rng = np.random.default_rng(seed)
    first = rng.integers(2, size=n)
    rows = [(first + rng.integers(2, size=n) * rng.integers(s, size=n)) for s in SIZES]
    return np.column_stack([row % size for row, size in zip(rows, SIZES)])


def table_of(X, clique):
    table = np.zeros([SIZES[v] for v in clique], dtype=int)
    np.add.at(table, tuple(X[:, list(clique)].T), 1)
    return table


def owners_of(roster):
    """Four columns, dealt out to the parties."""
    return [roster[v % len(roster)] for v in range(4)]


def joined(shared, cliques):
    """Own shares of all cells, one table after the other."""
    shares = yield from shared.share(cliques)
    return np.concatenate([share.ravel() for share in shares])


@pytest.mark.parametrize("n", [1, 128, 300])
@pytest.mark.parametrize("n_parties", [1, 2, 3])
def test_shares_add_up_to_tables_and_to_half_their_distances(n, n_parties):
    X, rng, owners = rows_of(n), np.random.default_rng(n), owners_of(NAMES[:n_parties])
    expected = [apportion(rng.integers(9, size=table_of(X, c).shape), n) for c in ALL]

    def side(talk, links, i):
        columns = {v: X[:, v] for v in range(4) if owners[v] == talk.name}
        shared = ColumnTables(talk, links, owners, SIZES, columns, np.uint64)
        # some tables are known already when they are asked for
        some = yield from shared.distances(ALL[2:9], expected[2:9])
        return (
            (yield from joined(shared, ALL)),
            (yield from shared.distances(ALL, expected)),
            some,
        )

    tables, distances, some = map(sum, zip(*run_sides(side, n_parties)))
    exact = [table_of(X, clique) for clique in ALL]
    assert_array_equal(tables, np.concatenate([table.ravel() for table in exact]))
    half = [np.abs(a - b).sum() // 2 for a, b in zip(exact, expected)]
    assert_array_equal(distances, half)
    assert_array_equal(some, half[2:9])


def test_expected_records_are_whole_and_all_there():
    rng = np.random.default_rng(0)
    for n in (0, 1, 7, 2**24):
        weights = rng.integers(PROBABILITY_UNIT, size=(5, 3))
        records = apportion(weights, n)
        assert records.sum() == n and records.min() >= 0
        assert np.abs(records - n * weights / weights.sum()).max() < 1
    assert_array_equal(apportion(np.zeros(3, dtype=np.int64), 5), 0)


@pytest.mark.parametrize("cliques", ["aim", [(2, 0, 1), (3,), ("x1", "x3")]])
@pytest.mark.parametrize("parties", [TWO, THREE], ids=["two", "three"])
def test_with_hardly_any_noise_tables_are_those_of_all_records(parties, cliques):
    X = rows_of(400)
    learner = DPCGMLearner(cliques, parties=parties, epsilon=1e6, states=SIZES).fit(X)
    for clique, told in learner.noisy_tables_.items():
        unit = learner.table_unit_
        unit = unit if isinstance(unit, int) else unit[clique]
        positions = [int(name[1]) for name in clique]
        assert_array_equal(told, unit * table_of(X, positions))
    if cliques == "aim":
        assert {1, 2} <= {len(clique) for clique in learner.cliques_}
    assert learner.n_samples_ == pytest.approx(400)


def test_two_holders_learn_what_one_curator_learns():
    """Each adds all of the noise: it is as if one curator had added it twice."""
    X, learners = rows_of(5000), []
    for parties in (TWO, {"curator": [0, 1, 2, 3]}):
        learner = DPCGMLearner(parties=parties, epsilon=4.0, states=SIZES)
        learners.append(learner.fit(X))
        assert learner.privacy_spent_ == (4.0, 0.0)
        for clique in ALL:
            error = learner.marginal(clique) - table_of(X, clique) / 5000
            assert np.abs(error).sum() / 2 < 0.06
    two, one = (learner.noise_ for learner in learners)
    assert (two.n_parties, two.min_honest) == (2, 1)
    assert two.std == pytest.approx(np.sqrt(2) * one.std)


def test_noise_is_for_a_record_that_is_exchanged():
    """It leaves a cell of every table, enters another, and moves a distance by one."""
    for delta, order in ((0.0, 1), (1e-6, 2)):
        budget = AdaptiveSearch(1.0, delta, 4, n_changed=2)
        one_way, distance, table = budget.units
        n_distances = sum(
            budget.n_pairs(i) + budget.n_triples(i) for i in range(budget.n_rounds)
        )
        n_tables = budget.n_rounds * budget.n_tables
        changes = np.repeat(
            [one_way, distance, table], [2 * 4, n_distances, 2 * n_tables]
        )
        assert budget.noise.sensitivity == pytest.approx(np.linalg.norm(changes, order))
        given = terms_for(
            ["clinic", "lab"], delta=delta, cliques=[[0, 1], [2]], ties=[0, 1]
        )
        assert given.search.noise.sensitivity == pytest.approx(4 ** (1 / order))


def terms_for(roster, **changes):
    fields = {
        "nodes": [f"x{v}" for v in range(4)],
        "states": [list(range(size)) for size in SIZES],
        "bins": {},
        "epsilon": 1.0,
        "delta": 1e-6,
        "min_honest": None,
        "owners": owners_of(roster),
        "has_keys": False,
        "max_records": None,
        "contribution": Contribution(),
        "missing": "error",
        "cliques": "aim",
        "ties": [],
        "max_model_cells": 1000,
    }
    return ColumnTablesTerms(**fields | changes)


def test_both_sides_calibrate_the_noise():
    terms = terms_for(["clinic", "lab"])
    assert ColumnTablesTerms.from_payload(terms.to_payload()) == terms
    learner = DPCGMLearner(
        parties={"clinic": [0, 2], "lab": [1, 3]}, delta=1e-6, states=SIZES
    ).fit(rows_of(50))
    assert terms.noise(2, 2) == learner.noise_
    for wrong in (
        {"owners": ["clinic"]},
        {"cliques": [[0, 9]]},
        {"states": [[]] * 4},
        {"bins": {"x9": [0.0, 1.0]}},
        {"workload": [[0, 9]], "workload_weights": [1.0]},
        {"workload": [[0, 1]]},
        {"max_model_cells": 0},
        {"contribution": Contribution(max_weight=2)},
        {"missing": "skip"},
        {"cliques": [[0], [1]], "ties": [0, 0]},
    ):
        with pytest.raises(ValueError):
            terms_for(["clinic", "lab"], **wrong)


def view_of(n_colluders):
    """Numbers that are opened, less the noise of colluders; and the exact ones."""
    learner = DPCGMLearner(parties=TWO, delta=1e-6, states=SIZES)
    attack = Attack(learner, [(rows_of(300), {})], 2, n_colluders)
    seen = attack.fit(0)
    exact = attack.fit(0, seen.opened)
    n_rounds = AdaptiveSearch(1.0, 1e-6, 4).n_rounds
    assert len(seen.opened) == 1 + 2 * n_rounds
    return np.concatenate(seen.opened), np.concatenate(exact.opened)


@second_fit
def test_a_holder_that_takes_its_noise_away_has_no_exact_table_or_distance():
    seen, exact = view_of(n_colluders=1)
    assert np.mean(seen == exact) < 0.05
    assert np.abs(seen - exact).mean() > 50


@second_fit
def test_all_noise_taken_away_leaves_exact_tables_and_distances():
    """The twin."""
    assert_array_equal(*view_of(n_colluders=2))


def cost_of_a_record(cliques):
    """What it costs, by the noise of one of two holders, that a record differs."""
    others = np.zeros((30, 2), dtype=int)
    worlds = [(np.append(others, [own], axis=0), {}) for own in ([0, 0], [1, 1])]
    parties = {"clinic": [0], "lab": [1]}
    learner = DPCGMLearner(cliques, parties=parties, epsilon=3.0, states=[2, 2])
    return Attack(learner, worlds, 2, 1).largest_loss()


@second_fit
@pytest.mark.parametrize("cliques", ["aim", "chain"])
def test_a_record_costs_no_more_than_is_charged(cliques, monkeypatch):
    assert 0.65 * 3 <= cost_of_a_record(cliques) <= 3 * (1 + 1e-9)
    # the twin: paid for as if it were added, not exchanged for another
    monkeypatch.setattr(ColumnTablesTerms, "n_changed", 1)
    assert cost_of_a_record(cliques) > 3.5


#: differences of 127 records take whole bytes, so that uniform means uniform bytes
N_VIEWED = 127


def run_tables(roster):
    """Messages that each party gets while tables of constant columns are opened."""
    session, views = os.urandom(16), {name: [] for name in roster}
    links, owners = deal_links(roster, session), owners_of(roster)
    cliques = [(0, 1), (1, 2, 3)]
    expected = [np.zeros([SIZES[v] for v in c], dtype=np.int64) for c in cliques]

    def side(name):
        talk = Conversation(name, roster, session)
        constant = np.zeros(N_VIEWED, dtype=int)
        columns = {v: constant for v in range(4) if owners[v] == name}
        shared = ColumnTables(talk, links[name], owners, SIZES, columns, np.uint64)
        for shares in (
            (yield from shared.distances(cliques, expected)),
            (yield from joined(shared, cliques)),
            (yield from joined(shared, [(v,) for v in range(4)])),
        ):
            nothing = np.zeros(shares.shape, dtype=np.int64)
            yield from open_noisy_numbers(talk, roster, shares, nothing)
        yield from talk.finish()

    def note(sender, receiver, payload):
        views[receiver].extend(messages_of(payload))

    run_together({name: side(name) for name in roster}, note)
    return views


@pytest.mark.parametrize(
    "roster", [NAMES[:2], pytest.param(NAMES[:3], marks=pytest.mark.slow)]
)
def test_what_a_holder_gets_looks_random(roster):
    runs = [run_tables(roster) for _ in range(8)]
    assert not any(told_apart(reader, runs) for reader in roster)


def test_a_twin_that_opens_shares_as_they_are_is_told_apart(monkeypatch):
    def as_they_are(talk, group, shares):
        yield from ()
        return shares

    monkeypatch.setattr(shared_noise, "refresh_numbers", as_they_are)
    runs = [run_tables(NAMES[:2]) for _ in range(8)]
    assert told_apart("bob", runs)


def come_apart(monkeypatch):
    """Let each holder come to the table of its own column, of as many states."""
    X = np.random.default_rng(0).integers(2, size=(60, 2))
    partition = VerticalPartition({"clinic": X[:, :1], "lab": X[:, 1:]})
    terms = ColumnTablesTerms(
        nodes=["clinic__0", "lab__0"],
        states=[[0, 1]] * 2,
        bins={},
        epsilon=1.0,
        delta=0.0,
        min_honest=None,
        owners=["clinic", "lab"],
        has_keys=False,
        max_records=None,
        contribution=Contribution(),
        missing="error",
        cliques="aim",
        ties=[],
        max_model_cells=100,
    )
    n_holders = iter(range(2))

    def other_rounds(terms, n_parties, _):
        told = yield terms.search.chosen([(next(n_holders),)])
        return {"told": told}

    monkeypatch.setattr(_release, "search_steps", other_rounds)
    with partition.federate(column_tables, terms) as federation:
        return federation.run()["told"], terms.search.units[2], X


def test_holders_that_come_to_different_tables_refuse(monkeypatch):
    with pytest.raises(PartyError, match="refuse"):
        come_apart(monkeypatch)


def test_holders_that_do_not_compare_add_two_tables_up(monkeypatch, no_noise):
    """The twin: a record changes twice as many counts as noise is made for."""
    monkeypatch.setattr(_release, "_agree", lambda talk, question: iter(()))
    told, unit, X = come_apart(monkeypatch)
    assert_array_equal(told, unit * (np.bincount(X[:, 0]) + np.bincount(X[:, 1])))


@pytest.fixture
def no_noise(monkeypatch):
    def nothing(noise, shape):
        return np.zeros(shape, dtype=np.int64)

    monkeypatch.setattr(DistributedNoise, "share", nothing)


REFUSED = {
    "contribution": {"contribution": "normalize"},
    "max_weight": {"contribution": {"max_weight": 2}},
    "null_state": {"contribution": {"null_state": 0}},
    "missing='skip'": {"missing": "skip"},
    "missing='error'": {"missing": "error"},
    "stationary": {
        "clique_params": {"stationary": True},
        "cliques": "chain",
        "states": [2] * 4,
    },
    "cliques='mst'": {"cliques": "mst"},
    "backend": {"backend": "ckks"},
    "epsilon=None": {"epsilon": None},
    "method='psgd'": {"method": "psgd", "delta": 1e-6},
    "states=": {"states": None},
    "min_honest": {"min_honest": 3},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_columns_cannot_be_asked_for(name):
    options = {"parties": TWO, "states": SIZES, **REFUSED[name]}
    accountant = PrivacyAccountant(epsilon=5.0)
    learner = DPCGMLearner(accountant=accountant, **options)
    with pytest.raises(ValueError, match=name):
        learner.fit(rows_of(20))
    assert not accountant.history


def test_persons_weights_and_parties_of_rows_are_refused():
    X, learner = rows_of(20), DPCGMLearner(parties=TWO, states=SIZES)
    with pytest.raises(ValueError, match="individual= is not available for columns"):
        learner.fit(X, individual=np.arange(20))
    with pytest.raises(ValueError, match="sample_weight= is not available"):
        learner.fit(X, sample_weight=np.ones(20))
    with pytest.raises(PartitionError, match="party says who holds rows"):
        learner.fit(X, party=np.arange(20) % 2)


def test_the_budget_is_charged_before_a_record_is_read():
    accountant = PrivacyAccountant(epsilon=1.5)
    learner = DPCGMLearner(
        "chain", parties=TWO, epsilon=1.0, states=SIZES, accountant=accountant
    )
    learner.fit(rows_of(30))
    assert [spend.epsilon for spend in accountant.history] == [1.0]
    with pytest.raises(BudgetExceededError):
        learner.fit(rows_of(30))


@pytest.mark.usefixtures("no_noise")
def test_frames_bins_and_what_is_missing():
    """What is no state counts as the first one, so that nothing is to be refused."""
    frame = pd.DataFrame(
        {
            "clinic__age": [17.0, 30.0, 99.0, np.nan, 41.0],
            "clinic__sex": ["f", "m", "?", "f", None],
            "lab__dose": [0, 1, 2, 1, 7],
        }
    )
    learner = DPCGMLearner(
        [("clinic__age", "lab__dose"), ("clinic__sex",)],
        parties={"clinic": ["clinic__age", "clinic__sex"], "lab": ["lab__dose"]},
        states={"clinic__sex": ["f", "m"], "lab__dose": [0, 1, 2]},
        bins={"clinic__age": [18, 40, 65]},
    ).fit(frame)
    assert_array_equal(
        learner.noisy_tables_["clinic__age", "lab__dose"], [[1, 2, 0], [1, 0, 1]]
    )
    assert_array_equal(learner.noisy_tables_["clinic__sex",], [4, 1])
    assert list(learner.sample(3, random_state=0)) == list(frame)


def known_after(learner):
    """Who learnt what, as the ledger says."""
    return {(who, what) for who, what, *_ in learner.ledger_.who_learns_what()}


@pytest.mark.usefixtures("no_noise")
def test_records_are_aligned_by_keys():
    X = rows_of(40)
    partition = VerticalPartition(
        {"clinic": X[:30, :2], "lab": X[10:, 2:][::-1]},
        keys={"clinic": np.arange(30), "lab": np.arange(10, 40)[::-1]},
        reveal_membership=True,
    )
    learner = DPCGMLearner([(0, 2)], states=SIZES).fit(partition)
    told = learner.noisy_tables_["clinic__0", "lab__0"]
    assert_array_equal(told, table_of(X[10:30], (0, 2)))
    learnt = "all parties", "which records all of them have"
    assert learnt in known_after(learner)


def test_the_ledger_and_the_report_say_who_learns_what():
    learner = DPCGMLearner("chain", parties=THREE, epsilon=2.0, states=SIZES)
    ledger = learner.fit(rows_of(40)).ledger_
    (release,) = ledger.releases
    assert (release.protects, release.epsilon) == ("values", 2.0)
    everybody = "all parties and the coordinator"
    assert known_after(learner) >= {
        (everybody, release.what),
        (everybody, "number of records"),
    }
    (note,) = ledger.notes_on("colluders")
    assert note.value[:2] == (2.0, 2.0) and note.value[2] > 2.0
    report = privacy_report(learner)
    assert "the values of one record, exchanged for others" in str(report)
