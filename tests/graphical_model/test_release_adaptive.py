"""Tables chosen by several holders: what they answer, what they refuse, the fit."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skprivbn.federation import Me
from skprivbn.graphical_model._adaptive import AdaptiveSearch
from skprivbn.graphical_model._release import TablesTerms, release_tables
from skprivbn.graphical_model._tables import Contribution, TableLayout, count_tables
from skprivbn.privacy import DistributedNoise, PrivacyAccountant, distribute
from skprivbn.utils._memoise import ask
from tests.graphical_model.test_adaptive import learner, mean_error, rows_of

N_COLUMNS = 5
SIZES = [3] * N_COLUMNS
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
    sums = [words for kind, words in release_tables.rounds() if kind == "Noisy"]
    told = [e for e in found.ledger_.entries if e.operation in sums]
    assert len(sums) == len({e.operation for e in told}) == 2
    # noise is added under masks, whatever the backend
    assert {e.kind for e in told} == {"masked"}
    n_sums = sum(e.sender == found.ledger_.parties[0] for e in told)
    # one for one-way tables, two for each round
    assert n_sums == (1 + 2 * 5 if "delta" in parameters else 1 + 2 * 3)


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
        "cliques": "aim",
        "ties": [],
        "max_model_cells": 10**5,
        "workload": [],
        "workload_weights": [],
    }
    return TablesTerms(**{**fields, **changes})


def test_both_sides_calibrate_the_noise():
    budget = AdaptiveSearch(1.0, 1e-6, N_COLUMNS)
    terms = TablesTerms.from_payload(terms_for().to_payload())
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
    "workload of no column": {"workload": [[0, 9]], "workload_weights": [1.0]},
    "workload without weight": {"workload": [[0, 1]]},
    "negative weight": {"workload": [[0, 1]], "workload_weights": [-1.0]},
    "no states at all": {"max_model_cells": 0},
}


@pytest.mark.parametrize("name", BAD_TERMS)
def test_terms_that_are_none(name):
    with pytest.raises(ValueError):
        terms_for(**BAD_TERMS[name])


def answers_without_noise(X):
    """Run the program of a party alone; return what it yields, and its result."""
    me = Me({"X": X}, terms_for(min_honest=1), "a", ("a",))
    steps, said, answer = release_tables(me), [], None
    while True:
        try:
            said.append(steps.send(answer))
        except StopIteration as stop:
            return said, stop.value
        answer = said[-1].counts


def test_answers_of_a_holder_are_in_the_units_of_the_budget():
    X = rows_of(100)
    said, found = answers_without_noise(X)
    one_way, _, table = terms_for().search.units
    singles = count_tables(X, SINGLES, Contribution())
    assert_array_equal(said[0].counts, one_way * singles)
    for clique, counts, unit in zip(found["cliques"], found["counts"], found["units"]):
        exact = count_tables(
            X, TableLayout([tuple(clique)], [3] * N_COLUMNS), Contribution()
        )
        assert_array_equal(np.ravel(counts), unit * exact)
        assert unit % (one_way if len(clique) == 1 else table) == 0


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_releases_cost_together_what_the_fit_is_charged(delta):
    terms = terms_for(delta=delta, min_honest=1)
    me = Me({"X": rows_of(100)}, terms, "a", ("a",))
    steps, noises, answer = release_tables(me), [], None
    whole = terms.noise(N_COLUMNS, 1)
    while True:
        try:
            step = steps.send(answer)
        except StopIteration:
            break
        noises.append(step.noise)
        answer = step.counts
    assert {noise.scale for noise in noises} == {whole.scale}
    if delta == 0:
        assert sum(noise.epsilon for noise in noises) == pytest.approx(1.0)
    else:
        assert sum(noise.rho for noise in noises) == pytest.approx(whole.rho, rel=1e-3)


def questions_of(n_rows, **changes):
    """Ask of one holder, without noise, what noisy answers would be asked."""
    search, X = terms_for(epsilon=0.5, **changes).search, rows_of(n_rows)
    asked = []

    def answer(question):
        asked.append(question)
        return question.answer(lambda t: count_tables(X, t, Contribution()), SIZES)

    ask(search.asking(SIZES, search.noise), answer)
    return search, asked


def test_few_rows_are_asked_for_no_triples_and_spend_their_budget_on_pairs():
    search, asked = questions_of(100)
    distances = [question for question in asked if question.expected is not None]
    assert {len(clique) for q in distances for clique in q.cliques} == {2}
    assert distances[0].unit == search.units[1] < distances[1].unit
    changes = np.concatenate([question.changes for question in asked])
    spent = np.linalg.norm(changes) / search.noise.sensitivity
    assert 0.99 < spent <= 1
    # the twin: as many of a larger unit would exceed what noise was made for
    planned = [search.n_distances(k) for k in range(search.n_rounds)]
    larger = [n * q.unit**2 for n, q in zip(planned, distances)]
    tables = [sum(c**2 for c in q.changes) for q in asked if q.expected is None]
    assert sum(larger) + sum(tables) > 1.01 * search.noise.sensitivity**2
    many = questions_of(20_000)[1]
    assert max(len(c) for q in many for c in q.cliques) == 3


def test_no_row_makes_a_holder_refuse():
    X = rows_of()
    X[0, 0] = 99
    learner(delta=1e-6).fit(X, party=np.arange(len(X)) % 3)


def test_a_tree_is_chosen_by_one_holder_only():
    X = rows_of()
    with pytest.raises(ValueError, match="cliques='mst' works for one holder.*'aim'"):
        learner("mst").fit(X, party=np.arange(len(X)) % 4)


@pytest.mark.parametrize("cliques", ["chain", "aim"])
def test_noise_that_does_not_fit_costs_nothing(cliques):
    accountant, X = PrivacyAccountant(1.0), rows_of()
    small = learner(cliques, epsilon=1e-12, backend="ckks", accountant=accountant)
    with pytest.raises(ValueError, match="does not fit 64-bit integers"):
        small.fit(X, party=np.arange(len(X)) % 4)
    assert accountant.spent().epsilon == 0
