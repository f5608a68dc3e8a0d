"""With ``opens="structure"`` the network is the same, and no step is seen."""

import numpy as np
import pytest

from skprivbn.crypto.shares import _gmw as gmw
from skprivbn.datasets import make_discrete_bayesian_network
from skprivbn.exceptions import PartyError
from skprivbn.structure import K2StructureLearner, PrivateK2StructureLearner
from skprivbn.structure.k2 import _shared_structure
from skprivbn.structure.k2._program import find_structure
from tests.structure.k2.test_private import THREE, TWO, sample_asia, sizes
from tests.structure.k2.test_private_views import (
    CONSTANT,
    VARYING,
    no_words,
    run_search,
    said,
    told_apart,
)
from tests.structure.k2.test_private_views import (
    TWO as NAMES,
)


def fit(X, parties, **parameters):
    learner = PrivateK2StructureLearner(parties, opens="structure", **parameters)
    return learner.fit(X)


def assert_same(X, parties, **parameters):
    """Fit both; the networks must be the same but for the order of parents."""
    private = fit(X, parties, **parameters)
    pooled = K2StructureLearner(**parameters).fit(X)
    order = private.ordering_.index
    expected = {v: sorted(found, key=order) for v, found in pooled.parents_.items()}
    assert private.parents_ == expected
    np.testing.assert_array_equal(private.adjacency_matrix_, pooled.adjacency_matrix_)
    likelihoods = [m.network_.log_likelihood(X) for m in (private, pooled)]
    np.testing.assert_allclose(*likelihoods, rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("parties", [TWO, THREE], ids=["two", "three"])
def test_asia(parties, seed):
    X, ordering = sample_asia(200, seed)
    assert_same(X, parties, ordering=ordering, max_parents=2 + seed % 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("parties", [TWO, THREE], ids=["two", "three"])
def test_asia_at_length(parties, seed):
    X, ordering = sample_asia(1000, seed)
    assert_same(X, parties, ordering=ordering)


@pytest.mark.parametrize("max_parents", [0, 1, 4, 9])
def test_any_number_of_parents(max_parents):
    X = np.random.default_rng(max_parents).integers(0, 2, (60, 5))
    X[:, 4] = X[:, 0] ^ X[:, 1] & X[:, 2] | X[:, 3]
    assert_same(
        X, {"a": [0, 3], "b": [1, 2, 4]}, max_parents=max_parents, ordering=range(5)
    )


@pytest.mark.parametrize("seed", range(2))
def test_equal_scores_are_decided_by_the_ordering(seed):
    rng = np.random.default_rng(seed)
    network = make_discrete_bayesian_network(5, n_states=3, random_state=seed)
    X = network.encode(network.sample(150, random_state=seed))
    X = np.column_stack([X, np.zeros(150, int), X[:, 0], rng.integers(0, 5, 150)])
    assert_same(X[:, rng.permutation(8)], TWO, max_parents=2, ordering=range(8))


@pytest.mark.filterwarnings("ignore:Paillier keys of 512 bits")
def test_other_scores_and_noise():
    X, ordering = sample_asia(60, 1)
    assert_same(X, TWO, ordering=ordering, criterion="bdeu", max_parents=2)
    options = {"states": [2] * 8, "criterion": "total_variation", "epsilon": 1e6}
    order = PrivateK2StructureLearner(TWO, ordering=ordering, **options).fit(X)
    structure = fit(X, TWO, ordering=ordering, **options)
    np.testing.assert_array_equal(order.adjacency_matrix_, structure.adjacency_matrix_)
    assert [r.what for r in structure.ledger_.releases][1] == "parents of every column"


def test_too_many_families_are_refused():
    X = np.zeros((10, 40), dtype=int)
    with pytest.raises(ValueError, match="would count 102050 families"):
        fit(X, {"a": slice(20), "b": slice(20, 40)}, states=[2] * 40)


def data_of(first, second, n=400):
    """Two causes of an effect; that which is copied more often is found first."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (n, 3))
    u = rng.random(n)
    X[:, 2] = np.where(u < first, X[:, 0], np.where(u < first + second, X[:, 1], 0))
    return X


def test_neither_the_order_nor_the_number_of_steps_shows():
    one, other = data_of(0.6, 0.3), data_of(0.3, 0.6)
    nothing = np.random.default_rng(1).integers(0, 2, (400, 3))
    options = {"max_parents": 2, "ordering": range(3), "states": [2] * 3}
    parties = {"a": [0], "b": [1, 2]}
    order = [
        PrivateK2StructureLearner(parties, fit_parameters=False, **options).fit(X)
        for X in (one, other, nothing)
    ]
    assert order[0].parents_["x2"] == order[1].parents_["x2"][::-1] == ["x0", "x1"]
    # the twin: a search that ends early says so by its number of messages
    assert sizes(order[0].ledger_) != sizes(order[2].ledger_)
    hidden = [
        fit(X, parties, fit_parameters=False, **options) for X in (one, other, nothing)
    ]
    assert hidden[0].parents_["x2"] == hidden[1].parents_["x2"] == ["x0", "x1"]
    assert hidden[2].parents_["x2"] == []
    seen = [sizes(learner.ledger_) for learner in hidden]
    assert seen[0] == seen[1]
    # before the result itself is told
    assert [[e for e in s if e[0] != "the result"] for s in seen[1:]] == [
        [e for e in seen[0] if e[0] != "the result"]
    ] * 2
    # with tables, messages depend on the structure, and on nothing else
    seen = [sizes(fit(X, parties, **options).ledger_) for X in (one, other)]
    assert seen[0] == seen[1]


def steps(search):
    return said(find_structure(search))


@pytest.mark.parametrize("column", [CONSTANT, VARYING], ids=["empty", "edges"])
def test_views_are_those_of_the_simulator(column):
    runs = [
        run_search(NAMES, column=column, steps=steps, opens="structure")
        for _ in range(24)
    ]
    assert not any(told_apart(reader, runs) for reader in NAMES)


def test_a_twin_that_shares_bits_without_masks_is_told_apart(monkeypatch):
    monkeypatch.setattr(gmw, "random_words", no_words)
    runs = [
        run_search(NAMES, column=VARYING, steps=steps, opens="structure")
        for _ in range(24)
    ]
    assert told_apart("bob", runs)


def test_the_structure_is_all_that_is_opened(monkeypatch):
    opened, open_bits = [], gmw.open_bits

    def spy(talk, group, bits):
        found = yield from open_bits(talk, group, bits)
        if talk.name == "alice":
            opened.append(found)
        return found

    monkeypatch.setattr(gmw, "open_bits", spy)
    runs = []
    for _ in range(40):
        opened.clear()
        run_search(NAMES, column=VARYING, steps=steps, opens="structure")
        runs.append([bits.copy() for bits in opened])
    # edges from the first column to both others, in every run
    assert all(run[-1].tolist() == [1, 1, 0] for run in runs)
    for bits in zip(*(run[:-1] for run in runs), strict=True):
        # all others are sums with random bits: none is the same in 40 runs
        assert (np.ptp(np.stack([b.ravel() for b in bits]), axis=0) == 1).all()


def fit_with_a_liar(monkeypatch, flipped):
    """Fit five columns of noise while the lab flips bits of the last opening."""
    open_circuit = _shared_structure.open_circuit

    def lie(talk, links, group, circuit):
        def other(engine):
            bits = (yield from circuit(engine)).copy()
            if talk.name == "lab":
                bits[flipped] ^= 1
            return bits

        return (yield from open_circuit(talk, links, group, other))

    monkeypatch.setattr(_shared_structure, "open_circuit", lie)
    X = np.random.default_rng(0).integers(0, 2, (200, 5))
    parties = {"clinic": [0, 2, 4], "lab": [1, 3]}
    options = {"max_parents": 2, "ordering": range(5), "fit_parameters": False}
    return fit(X, parties, **options).adjacency_matrix_


def test_attack_more_parents_than_the_search_allows_end_the_fit(monkeypatch):
    with monkeypatch.context() as honest:
        assert fit_with_a_liar(honest, []).sum() == 0
    # edges in order: (1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2), ...
    with monkeypatch.context() as at_the_limit:
        found = fit_with_a_liar(at_the_limit, [3, 4])
    assert found.sum() == found[:, 3].sum() == 2
    with monkeypatch.context() as liar, pytest.raises(PartyError) as caught:
        fit_with_a_liar(liar, [3, 4, 5])
    assert caught.value.code == "inconsistent"
    # the twin
    kind = _shared_structure.SharedStructure
    monkeypatch.setattr(kind, "are_parents", lambda *_: True)
    assert fit_with_a_liar(monkeypatch, [3, 4, 5])[:, 3].sum() == 3
