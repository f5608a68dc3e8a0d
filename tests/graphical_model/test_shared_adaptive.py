"""Tables chosen by several holders: what they answer, what they refuse, the fit."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skprivbn.federation import PartyRefusal
from skprivbn.graphical_model._adaptive import AdaptiveBudget
from skprivbn.graphical_model._counting import Contribution, count_tables
from skprivbn.graphical_model._layout import TableLayout
from skprivbn.graphical_model._shared_adaptive import AdaptiveParty, AdaptiveTerms
from skprivbn.privacy import DistributedNoise, distribute
from tests.graphical_model.test_adaptive import learner, mean_error, rows_of

N_COLUMNS = 5
SINGLES = TableLayout([(i,) for i in range(N_COLUMNS)], [3] * N_COLUMNS)


@pytest.mark.parametrize(
    "parameters",
    [{}, {"delta": 1e-6}, {"delta": 1e-6, "backend": "ckks"}],
    ids=["laplace", "gaussian", "ckks"],
)
def test_several_holders(parameters):
    X = rows_of()
    party = np.arange(len(X)) % 4
    found = learner(**parameters).fit(X, party=party)
    assert mean_error(found, X) < 0.06
    assert found.noise_.n_parties == 4
    assert found.privacy_spent_ == (4.0, found.delta)
    sums = {e.operation for e in found.ledger_.entries} & {
        "one_way",
        "distances",
        "chosen",
    }
    assert len(sums) == 3
    kinds = {e.kind for e in found.ledger_.entries if e.operation in sums}
    hidden = "ciphertext" if parameters.get("backend") == "ckks" else "masked"
    assert kinds == {"public", hidden}
    # one for one-way tables, two for each round
    rounds = {e.round for e in found.ledger_.entries if e.operation in sums}
    assert len(rounds) == (1 + 2 * 5 if "delta" in parameters else 1 + 2 * 3)


def test_persons_of_several_holders():
    X, person = rows_of(), np.repeat(np.arange(1000), 5)
    found = learner(delta=1e-6, contribution="normalize")
    found.fit(X, party=person % 3, individual=person)
    assert found.n_samples_ == pytest.approx(1000, abs=90)


def test_every_answer_leaves_with_a_share_of_the_noise(monkeypatch):
    asked = []

    def share(self, shape):
        asked.append(shape)
        return np.zeros(shape, dtype=np.int64)

    monkeypatch.setattr(DistributedNoise, "share", share)
    X = rows_of()
    found = learner(delta=1e-6).fit(X, party=np.arange(len(X)) % 3)
    assert len(asked) == 3 * (1 + 2 * 5)
    table = found.noisy_tables_["x0",] / found.table_unit_["x0",]
    assert_array_equal(table, np.bincount(X[:, 0]))


def terms_for(**changes):
    fields = {
        "nodes": [f"x{i}" for i in range(N_COLUMNS)],
        "states": [[0, 1, 2]] * N_COLUMNS,
        "bins": {},
        "contribution": Contribution(),
        "missing": "error",
        "epsilon": 1.0,
        "delta": 1e-6,
        "min_honest": 2,
    }
    return AdaptiveTerms(**{**fields, **changes})


def test_both_sides_calibrate_the_noise():
    budget = AdaptiveBudget(1.0, 1e-6, N_COLUMNS)
    terms = AdaptiveTerms.from_payload(terms_for().to_payload())
    assert terms == terms_for()
    assert terms.noise(N_COLUMNS, 4) == distribute(budget.noise, 4)
    assert terms.protects == "rows"
    person = terms_for(contribution=Contribution("clip", max_records=2))
    assert person.protects == "individuals"
    ratio = person.noise(N_COLUMNS, 4).scale / terms.noise(N_COLUMNS, 4).scale
    assert ratio == pytest.approx(2, rel=0.01)
    with pytest.raises(ValueError, match="other columns"):
        terms.noise(N_COLUMNS + 1, 4)


BAD_TERMS = {
    "a column twice": {"nodes": ["x"] * N_COLUMNS},
    "no states": {"states": [[]] * N_COLUMNS},
    "bins of no column": {"bins": {"y": [0.0, 1.0]}},
    "bins that are not the states": {"bins": {"x0": [0.0, 1.0, 5.0]}},
    "no contribution": {"contribution": {"kind": "all"}},
    "missing": {"missing": "impute"},
}


@pytest.mark.parametrize("name", BAD_TERMS)
def test_terms_that_are_none(name):
    with pytest.raises(ValueError):
        terms_for(**BAD_TERMS[name])


@pytest.fixture
def party():
    """A holder that shows what it would hide, before noise."""
    holder = object.__new__(AdaptiveParty)
    holder.terms = terms_for()
    holder.budget, holder.n_told = holder.terms.budget, 0
    holder.rows = rows_of(100), None, None
    holder.block = {"X": holder.rows[0]}
    holder.hide_noisy = lambda counts: counts
    return holder


def packed(*cliques):
    return np.array([[*c, *[-1] * (3 - len(c))] for c in cliques], dtype=np.int64)


BAD_CLIQUES = {
    "other type": packed((0, 1)).astype(float),
    "other shape": np.array([[0, 1]]),
    "no such column": packed((0, 9)),
    "a column twice": packed((1, 1)),
    "not in order": packed((1, 0)),
    "no column": packed(()),
    "too many": packed(*[(0, 1)] * 6),
}


@pytest.mark.parametrize("name", BAD_CLIQUES)
def test_a_holder_counts_no_other_tables(party, name):
    with pytest.raises(PartyRefusal):
        party.chosen(BAD_CLIQUES[name])


def test_a_holder_tells_no_other_distances(party):
    cliques, weights = packed((0, 1)), np.full(9, 7)
    for expected in (
        weights[:8],
        weights.astype(float),
        -weights,
        np.full(9, 2**62),  # would overflow
    ):
        with pytest.raises(PartyRefusal):
            party.distances(cliques, expected)
    many = packed(*[(0, 1)] * 30)
    party.n_told = 0
    with pytest.raises(PartyRefusal):  # ten pairs in the first round
        party.distances(many, np.tile(weights, 30))


def test_answers_of_a_holder_are_in_the_units_of_the_budget(party):
    pair = TableLayout([(0, 1)], [3] * N_COLUMNS)
    exact = count_tables(party.rows[0], pair, Contribution())
    one_way, distance, table = party.budget.units
    assert_array_equal(party.chosen(packed((0, 1))), table * exact)
    gap = np.abs(9 * exact - 100).sum() // 18
    told = party.distances(packed((0, 1)), np.full(9, 7))
    assert_array_equal(told, [distance * gap])
    singles = count_tables(party.rows[0], SINGLES, Contribution())
    assert_array_equal(party.one_way(), one_way * singles)


def test_no_row_makes_a_holder_refuse():
    X = rows_of()
    X[0, 0] = 99
    learner(delta=1e-6).fit(X, party=np.arange(len(X)) % 3)
