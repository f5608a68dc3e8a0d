"""The private learner finds what the pooled one finds, and shows nothing else."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from skprivbn.crypto import OTBackend, PaillierBackend
from skprivbn.datasets import load_alarm, load_asia, make_discrete_bayesian_network
from skprivbn.exceptions import (
    BudgetExceededError,
    PartitionError,
    PartyError,
    PrivacyLeakWarning,
)
from skprivbn.federation import PartyRefusal
from skprivbn.partition import VerticalPartition
from skprivbn.privacy import PrivacyAccountant
from skprivbn.structure import (
    FederatedBayesianNetwork,
    K2StructureLearner,
    PrivateK2StructureLearner,
)
from skprivbn.structure.k2 import _shared_search
from skprivbn.structure.k2._program import make_plan
from tests.federation.processes import in_processes

TWO = {"hospital": [0, 1, 2, 7], "lab": [3, 4, 5, 6]}
THREE = {"hospital": [0, 3, 6], "lab": [1, 4, 7], "insurer": [2, 5]}


def sample_asia(n, seed):
    asia = load_asia()
    X = asia.encode(asia.sample(n, random_state=seed))
    return X, list(asia.topological_order)


def assert_same(X, parties, **parameters):
    """Fit both; the networks must be equal to the last bit."""
    pooled = {k: v for k, v in parameters.items() if k != "backend"}
    private = PrivateK2StructureLearner(parties, **parameters).fit(X)
    expected = K2StructureLearner(**pooled).fit(X)
    assert private.parents_ == expected.parents_
    assert private.network_ == expected.network_
    np.testing.assert_array_equal(private.adjacency_matrix_, expected.adjacency_matrix_)
    return private


@pytest.mark.parametrize("criterion", ["k2", "stirling", "wright_yang", "bdeu", "bic"])
@pytest.mark.parametrize("n", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_asia(n, criterion):
    X, ordering = sample_asia(n, n)
    assert_same(X, TWO, ordering=ordering, criterion=criterion)


@pytest.mark.parametrize("seed", range(2))
def test_three_parties(seed):
    X, ordering = sample_asia(200, seed)
    assert_same(X, THREE, ordering=ordering)


def test_alarm():
    alarm = load_alarm()
    X = alarm.encode(alarm.sample(300, random_state=0))
    parties = {"ward": slice(0, None, 2), "lab": slice(1, None, 2)}
    assert_same(X, parties, ordering=alarm.topological_order, max_parents=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("n", [200, 1000, 10_000])
@pytest.mark.parametrize("parties", [TWO, THREE], ids=["two", "three"])
def test_asia_at_length(n, parties, seed):
    X, ordering = sample_asia(n, seed)
    assert_same(X, parties, ordering=ordering)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_alarm_at_length(seed):
    alarm = load_alarm()
    X = alarm.encode(alarm.sample(1000, random_state=seed))
    parties = {"ward": slice(0, None, 2), "lab": slice(1, None, 2)}
    assert_same(X, parties, ordering=alarm.topological_order)


@pytest.mark.parametrize("seed", range(2))
def test_more_states_constant_and_duplicate_columns(seed):
    rng = np.random.default_rng(seed)
    network = make_discrete_bayesian_network(5, n_states=3, random_state=seed)
    X = network.encode(network.sample(150, random_state=seed))
    X = np.column_stack([X, np.zeros(150, int), X[:, 0], rng.integers(0, 5, 150)])
    X = X[:, rng.permutation(8)]
    assert_same(X, TWO, max_parents=2)
    assert_same(X, THREE, max_parents=2)


@pytest.mark.parametrize("n", [1, 2, 3, 255, 256])
def test_few_records_and_edges_of_the_ring(n):
    rng = np.random.default_rng(n)
    X = rng.integers(0, 2, (n, 4))
    X[:, 3] = X[:, 0]
    assert_same(X, {"a": [0, 1], "b": [2, 3]}, states=[2, 2, 2, 2])


@pytest.mark.filterwarnings("ignore:Paillier keys of 512 bits")
@pytest.mark.parametrize("parties", [TWO, THREE], ids=["two", "three"])
def test_paillier(parties):
    X, ordering = sample_asia(60, 1)
    backend = PaillierBackend(512, insecure_test_key=True)
    learner = assert_same(X, parties, ordering=ordering, backend=backend)
    assert any("Paillier keys of 512 bits" in note for note in learner.ledger_.notes)


def test_short_keys_are_refused_or_warned_of():
    X, _ = sample_asia(20, 0)
    learner = PrivateK2StructureLearner(TWO, backend=PaillierBackend(512))
    with pytest.raises(ValueError, match="2048 bits or more"):
        learner.fit(X)
    learner.set_params(backend__insecure_test_key=True, max_parents=1)
    with pytest.warns(PrivacyLeakWarning, match="512 bits"):
        learner.fit(X)


@pytest.mark.slow
def test_parties_in_processes_of_their_own():
    X, _ = sample_asia(200, 3)
    partition = VerticalPartition({"a": X[:, :4], "b": X[:, 4:]})
    apart = PrivateK2StructureLearner().fit(in_processes(partition))
    expected = K2StructureLearner().fit(X)
    np.testing.assert_array_equal(apart.adjacency_matrix_, expected.adjacency_matrix_)


def test_one_party_is_plain_k2_and_warns():
    X, ordering = sample_asia(300, 0)
    with pytest.warns(PrivacyLeakWarning, match="one party's"):
        learner = PrivateK2StructureLearner(ordering=ordering).fit(X)
    assert learner.network_ == K2StructureLearner(ordering=ordering).fit(X).network_


@pytest.mark.parametrize("parties", [TWO, THREE], ids=["two", "three"])
def test_labels(parties):
    asia = load_asia()
    X = asia.sample(300, random_state=0)
    parameters = {"ordering": list(asia.topological_order), "max_parents": 2}
    learner = assert_same(X, parties, **parameters)
    codes = K2StructureLearner(**parameters).fit(asia.encode(X))
    assert learner.parents_ == codes.parents_
    assert set(learner.network_.states.values()) == {("no", "yes")}
    np.testing.assert_allclose(
        learner.score_samples(X), codes.score_samples(asia.encode(X))
    )
    holes = X[:20].copy()
    holes[:, 3] = None
    assert set(learner.predict(holes)[:, 3]) <= {"no", "yes"}
    assert set(learner.sample(20, random_state=0).ravel()) == {"no", "yes"}
    assert "states of columns" in str(
        [*learner.ledger_.who_learns_what(), *learner.ledger_.notes]
    )
    X[7, 2] = "perhaps"
    with pytest.raises(ValueError, match="column 'x2' holds 'perhaps', which is not"):
        learner.score(X)


def test_labels_of_a_data_frame():
    asia = load_asia()
    X = pd.DataFrame(asia.sample(300, random_state=1), columns=asia.nodes)
    X["smoke"] = X["smoke"] == "yes"
    X["xray"] = X["xray"].astype("category")
    X["dysp"] = (X["dysp"] == "yes").astype(int)
    parties = {"clinic": list(asia.nodes[:4]), "lab": list(asia.nodes[4:])}
    learner = assert_same(X, parties, max_parents=1)
    assert learner.network_.states["smoke"] == (False, True)
    assert learner.network_.states["xray"] == ("no", "yes")
    assert learner.network_.states["dysp"] == (0, 1)
    assert learner.score(
        VerticalPartition({name: X[held] for name, held in parties.items()})
    ) == pytest.approx(learner.score(X), abs=1e-5)


def test_declared_states_are_not_read_off_the_data():
    X = np.array([["no", "low"]] * 30)
    states = {"x0": ["no", "yes"], "x1": ["low", "middle", "high"]}
    parties = {"a": [0], "b": [1]}
    learner = assert_same(X, parties, states=states)
    assert learner.network_.states["x1"] == ("low", "middle", "high")
    assert "states of columns" not in str(
        [*learner.ledger_.who_learns_what(), *learner.ledger_.notes]
    )
    X[3, 1] = "mid"
    with pytest.raises(ValueError, match="column 'x1' holds 'mid', which is not"):
        learner.fit(X)


def test_probabilities_are_those_of_the_counts():
    X, ordering = sample_asia(500, 5)
    learner = PrivateK2StructureLearner(TWO, ordering=ordering).fit(X)
    for v in range(8):
        parents = [int(name[1:]) for name in learner.parents_[f"x{v}"]]
        cpt = learner.network_.cpts[f"x{v}"]
        for configuration in np.ndindex(cpt.shape[:-1]):
            chosen = (X[:, parents] == configuration).all(axis=1)
            counts = np.bincount(X[chosen, v], minlength=2)
            expected = (counts + 1) / (chosen.sum() + 2)
            np.testing.assert_allclose(cpt[configuration], expected, atol=1e-9)


def test_structure_only():
    X, ordering = sample_asia(200, 0)
    learner = PrivateK2StructureLearner(TWO, ordering=ordering, fit_parameters=False)
    learner.fit(X)
    assert learner.parents_ == K2StructureLearner(ordering=ordering).fit(X).parents_
    assert not hasattr(learner, "network_") and not hasattr(learner, "score")
    assert "counts of every column" not in str(
        [*learner.ledger_.who_learns_what(), *learner.ledger_.notes]
    )


def test_counts_are_opened_in_steps():
    X, ordering = sample_asia(300, 0)
    parameters = {"ordering": ordering, "max_parents": 2}
    learner = PrivateK2StructureLearner(TWO, min_cell_count=10, **parameters).fit(X)
    assert learner.parents_ == K2StructureLearner(**parameters).fit(X).parents_
    small = 0
    for v in range(8):
        parents = [int(name[1:]) for name in learner.parents_[f"x{v}"]]
        for configuration in np.ndindex(*(2,) * len(parents)):
            chosen = (X[:, parents] == configuration).all(axis=1)
            counts = np.bincount(X[chosen, v], minlength=2)
            small += ((counts > 0) & (counts < 10)).sum()
            counts = counts // 10 * 10
            np.testing.assert_allclose(
                learner.network_.cpts[f"x{v}"][configuration],
                (counts + 1) / (counts.sum() + 2),
            )
    assert small > 0


def fit_to_counts(n_rare):
    """Return what the holder of x0 cannot exclude of its records without x1."""
    counts = [10, 90, 60 + min(n_rare, 4), n_rare]
    X = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], counts, axis=0)
    learner = PrivateK2StructureLearner(
        {"a": [0], "b": [1]}, ordering=[0, 1], min_cell_count=5
    ).fit(X)
    known, told = X[:, 0].sum(), learner.network_.cpts["x1"][1]
    possible = np.column_stack([known - np.arange(known + 1), np.arange(known + 1)])
    opened = possible // 5 * 5 + 1.0
    return np.flatnonzero(np.isclose(opened[:, 1] / opened.sum(axis=1), told[1]))


def test_remainders_of_a_known_sum_tell_a_small_count():
    """A limit of steps that the guide names: nothing refuses it."""
    assert fit_to_counts(4).tolist() == [4]


def test_other_remainders_of_a_known_sum_leave_it_open():
    assert fit_to_counts(3).tolist() == [2, 3, 4]


def test_an_exact_network_costs_infinity():
    X, ordering = sample_asia(50, 0)
    limited = PrivacyAccountant(epsilon=100.0)
    learner = PrivateK2StructureLearner(TWO, ordering=ordering, accountant=limited)
    with pytest.raises(BudgetExceededError, match="exact network"):
        learner.fit(X)
    assert not hasattr(learner, "parents_")
    assert limited.history == ()
    unlimited = PrivacyAccountant(epsilon=np.inf)
    learner.set_params(accountant=unlimited, max_parents=1).fit(X)
    assert unlimited.spent().epsilon == np.inf


def terms_of(**parameters):
    columns = {"clinic": np.zeros((4, 1)), "lab": np.zeros((4, 1))}
    learner = PrivateK2StructureLearner(**parameters)
    return learner._terms(VerticalPartition(columns))


def sizes(ledger):
    return [(e.operation, e.sender, e.receiver, e.n_bytes) for e in ledger.entries]


def test_messages_depend_on_shape_and_result_only():
    rng = np.random.default_rng(0)
    tables = []
    for flip in (0.0, 0.2):
        X = rng.integers(0, 2, (256, 4))
        X[:, 2] = X[:, 0] ^ (rng.random(256) < flip)
        X[:, 3] = 1 - X[:, 1]
        tables.append(X)
    fits = [
        PrivateK2StructureLearner(
            {"a": [0, 1], "b": [2, 3]},
            states=[2] * 4,
            fit_parameters=False,
            criterion="bic",
        ).fit(X)
        for X in tables
    ]
    assert fits[0].parents_ == fits[1].parents_
    assert sizes(fits[0].ledger_) == sizes(fits[1].ledger_)


def test_more_columns_take_no_more_rounds():
    n_rounds = []
    for n_features in (4, 8):
        X = np.repeat(np.arange(50)[:, None] % 2, n_features, axis=1)
        columns = list(range(n_features))
        parties = {"a": columns[::2], "b": columns[1::2]}
        learner = PrivateK2StructureLearner(parties, max_parents=1).fit(X)
        assert learner.adjacency_matrix_[0, 1:].all()
        n_rounds.append(learner.ledger_.n_rounds)
    assert n_rounds[0] == n_rounds[1]


@pytest.mark.parametrize(
    "n_parties, most", [(2, 60), (3, 90), pytest.param(5, 100, marks=pytest.mark.slow)]
)
def test_asia_takes_few_rounds(n_parties, most):
    X, ordering = sample_asia(2000, 0)
    parties = {f"p{i}": slice(i, None, n_parties) for i in range(n_parties)}
    assert assert_same(X, parties, ordering=ordering).ledger_.n_rounds <= most


@pytest.mark.slow
@pytest.mark.parametrize("n_parties, most", [(2, 60), (3, 150), (5, 240)])
def test_alarm_takes_few_rounds(n_parties, most):
    alarm = load_alarm()
    X = alarm.encode(alarm.sample(2000, random_state=0))
    parties = {f"p{i}": slice(i, None, n_parties) for i in range(n_parties)}
    learner = assert_same(X, parties, ordering=alarm.topological_order)
    assert learner.ledger_.n_rounds <= most


@pytest.mark.filterwarnings("ignore:Paillier keys of 512 bits")
def test_tables_counted_by_paillier_share_rounds():
    n_rounds = []
    for n_features in (4, 8):
        X = np.repeat(np.arange(30)[:, None] % 2, n_features, axis=1)
        columns = list(range(n_features))
        learner = PrivateK2StructureLearner(
            {"a": columns[::2], "b": columns[1::2]},
            max_parents=1,
            backend=PaillierBackend(512, insecure_test_key=True),
        )
        n_rounds.append(learner.fit(X).ledger_.n_rounds)
    assert n_rounds[0] == n_rounds[1]


@pytest.mark.parametrize(
    "parameters",
    [
        {"min_cell_count": 10},
        pytest.param({"epsilon": 1e6, "states": [2] * 8}, marks=pytest.mark.slow),
    ],
)
def test_protected_tables_are_opened_in_few_rounds(parameters):
    X, ordering = sample_asia(300, 0)
    fits = [
        PrivateK2StructureLearner(THREE, ordering=ordering, **given).fit(X)
        for given in ({}, parameters)
    ]
    # a lookup more, of all groups of holders at a time
    assert fits[1].ledger_.n_rounds <= fits[0].ledger_.n_rounds + 15


def test_nothing_secret_is_in_a_fitted_learner():
    X, _ = sample_asia(50, 0)
    learner = PrivateK2StructureLearner(TWO, max_parents=1).fit(X)
    text = pickle.dumps(learner)
    for word in (b"shares._ot", b"nacl", b"PartyHost", b"SharedK2"):
        assert word not in text
    assert pickle.loads(text).parents_ == learner.parents_


def test_parties_send_each_other_sealed_bytes_only():
    X, _ = sample_asia(50, 0)
    ledger = PrivateK2StructureLearner(TWO, max_parents=1).fit(X).ledger_
    kinds = {
        e.kind for e in ledger.entries if {e.sender, e.receiver} == {"hospital", "lab"}
    }
    assert kinds == {"sealed"}


@pytest.mark.parametrize(
    "parties, match",
    [
        ({"a": [0, 1], "b": [1, 2]}, "choose one owner"),
        ({"a": [0], "b": [1]}, "nobody"),
        ({"a": [0, 1], "b": [7]}, "does not have"),
    ],
)
def test_unclear_ownership(parties, match):
    X = np.random.default_rng(0).integers(0, 2, (20, 3))
    with pytest.raises(PartitionError, match=match):
        PrivateK2StructureLearner(parties).fit(X)


@pytest.mark.parametrize(
    "parameters, match",
    [
        ({"ordering": [0, 0, 1]}, "each of the 3 columns once"),
        ({"states": [90, 90, 90]}, "too large"),
        ({"backend": "rot13"}, "'backend' parameter .* must be a str among"),
        ({"epsilon": 1.0, "min_cell_count": 3}, "choose one"),
        ({"epsilon": 1.0}, "epsilon needs states="),
        ({"criterion": "total_variation"}, "give epsilon="),
        ({"criterion": "aic"}, "criterion"),
    ],
)
def test_unsuitable_parameters(parameters, match):
    X = np.random.default_rng(0).integers(0, 2, (20, 3))
    with pytest.raises(ValueError, match=match):
        PrivateK2StructureLearner({"a": [0], "b": [1, 2]}, **parameters).fit(X)


def test_declared_categories_are_the_states():
    X = np.random.default_rng(0).integers(0, 2, (30, 2))
    partition = VerticalPartition({"a": X[:, :1], "b": X[:, 1:]})
    # as the handle on remote columns has it
    partition.categories = {"a__0": [0, 1, 2], "b__0": [0, 1]}
    learner = PrivateK2StructureLearner().fit(partition)
    assert [len(states) for states in learner.network_.states.values()] == [3, 2]


def test_too_many_records(monkeypatch):
    monkeypatch.setattr("skprivbn.structure.k2._shared_search.MAX_SAMPLES", 10)
    X = np.random.default_rng(0).integers(0, 2, (11, 2))
    with pytest.raises(PartyError, match="too large"):
        PrivateK2StructureLearner({"a": [0], "b": [1]}).fit(X)


def test_unequal_numbers_of_rows():
    with pytest.raises(PartitionError, match="different numbers of rows"):
        VerticalPartition({"a": np.zeros((3, 1)), "b": np.zeros((4, 1))})


def test_a_party_refuses_data_that_are_no_codes():
    partition = VerticalPartition({"a": [[0], [1]], "b": [[0.5], [1.0]]})
    with pytest.raises(ValueError, match="'b__0' has the non-integer value"):
        PrivateK2StructureLearner().fit(partition)


def test_backends_are_searchable_parameters():
    learner = PrivateK2StructureLearner(backend=PaillierBackend())
    assert learner.get_params()["backend__key_size"] == 2048
    assert OTBackend().get_params() == {}


@pytest.mark.parametrize(
    "told, states",
    [
        ({"n_samples": 9, "states": [["no", "yes"]]}, None),
        ({"n_samples": 4}, None),
        ("labels", None),
        ({"n_samples": 4, "states": []}, None),
        ({"n_samples": 4, "states": [["no"], ["yes"]]}, None),
        ({"n_samples": 4, "states": [2**40]}, None),
        ({"n_samples": 4, "states": [[]]}, None),
        ({"n_samples": 4, "states": [["no", "no"]]}, None),
        ({"n_samples": 4, "states": [["no", None]]}, None),
        ({"n_samples": 4, "states": [["no", "yes"]]}, [[0, 1], [0, 1]]),
    ],
)
def test_labels_that_a_peer_cannot_have_are_refused(told, states):
    terms = replace(terms_of(), states=states)
    own = {"n_samples": 4, "states": [[0, 1]]}
    with pytest.raises(PartyRefusal) as refusal:
        make_plan(terms, {"clinic": own, "lab": told}, 4)
    assert refusal.value.code == "invalid-data"
    possible = {"n_samples": 4, "states": [[0, 1]]}
    plan, _ = make_plan(terms, {"clinic": own, "lab": possible}, 4)
    assert plan.n_states == (2, 2)


def fit_columns(X, **options):
    parties = {"hospital": list(X)[:4], "lab": list(X)[4:]}
    return PrivateK2StructureLearner(parties, **options).fit(X)


def fit_pooled(X, **options):
    return K2StructureLearner(**options).fit(X)


def fit_rows(X, ordering=None, **options):
    search = {"ordering": ordering}
    learner = FederatedBayesianNetwork(
        method="k2", criterion="k2", search_params=search, **options
    )
    return learner.fit(X, party=np.arange(len(X)) % 3)


@pytest.mark.parametrize("fit", [fit_columns, fit_pooled, fit_rows])
def test_the_order_of_columns_is_not_taken_in_silence(fit):
    asia = load_asia()
    shuffled = ["dysp", "bronc", "either", "smoke", "xray", "lung", "tub", "asia"]
    X = pd.DataFrame(asia.sample(1000, random_state=0), columns=asia.nodes)[shuffled]
    with pytest.warns(UserWarning, match=r"dysp, bronc.*ordering=range\(8\)"):
        silent = fit(X, max_parents=2)
    ordered = [asia.nodes[v] for v in asia.topological_order]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        told = fit(X, max_parents=2, ordering=ordered)
        same = fit(X, max_parents=2, ordering=range(8))
        fit(X, max_parents=0)
    np.testing.assert_array_equal(same.adjacency_matrix_, silent.adjacency_matrix_)
    true = {(u, v) for v, parents in asia.parents.items() for u in parents}

    def n_found(fitted):
        pairs = np.argwhere(fitted.adjacency_matrix_)
        return len({(shuffled[i], shuffled[j]) for i, j in pairs} & true)

    assert n_found(silent) < n_found(told)


def test_a_fit_without_parameters_keeps_no_network():
    X, ordering = sample_asia(200, 0)
    learner = PrivateK2StructureLearner(
        TWO, ordering=ordering, max_parents=1, states=[2] * 8, epsilon=1e6
    ).fit(X)
    assert learner.network_.nodes and learner.privacy_spent_.epsilon == 1e6
    learner.set_params(fit_parameters=False, epsilon=None).fit(X)
    assert not hasattr(learner, "network_") and not hasattr(learner, "privacy_spent_")


def fit_with_a_liar(monkeypatch, shift, **options):
    """Fit while the second party adds something to its shares of the last tables."""
    opened = _shared_search.open_numbers

    def lie(talk, group, shares):
        if talk.name == "lab":
            shares = shares.copy()
            shares[: len(shift)] += np.array(shift).astype(shares.dtype)
        return (yield from opened(talk, group, shares))

    monkeypatch.setattr(_shared_search, "open_numbers", lie)
    # the first table is that of the first column, the lab's; the second is the clinic's
    X = np.random.default_rng(0).integers(0, 2, (200, 1))
    X = np.hstack([X, X ^ (np.random.default_rng(1).random((200, 1)) < 0.1)])
    learner = PrivateK2StructureLearner(
        {"clinic": [1], "lab": [0]}, ordering=[0, 1], max_parents=1, **options
    )
    return learner.fit(X)


SHIFTS = {
    "the sum is not n": [1, 0],
    "a negative cell": [150, -150],
    "another margin of a column": [0, 0, 1, -1],
    "a margin that the clinic knows": [0, 0, 1, 0, -1],
}


@pytest.mark.parametrize("shift", SHIFTS.values(), ids=SHIFTS)
def test_attack_tables_that_cannot_be_counts_end_the_fit(monkeypatch, shift):
    with pytest.raises(PartyError, match="nobody can tell whose") as caught:
        fit_with_a_liar(monkeypatch, shift)
    assert caught.value.code == "inconsistent"


@pytest.mark.parametrize("shift", SHIFTS.values(), ids=SHIFTS)
def test_without_a_look_at_them_wrong_tables_pass(monkeypatch, shift):
    honest = fit_with_a_liar(monkeypatch, [0]).network_
    monkeypatch.setattr(_shared_search.SharedK2, "are_counts", lambda *_, **__: True)
    assert fit_with_a_liar(monkeypatch, shift).network_ != honest


def test_attack_counts_between_two_steps_end_the_fit(monkeypatch):
    fit_with_a_liar(monkeypatch, [0], min_cell_count=10)
    with pytest.raises(PartyError, match="nobody can tell whose"):
        fit_with_a_liar(monkeypatch, [1], min_cell_count=10)
    with pytest.raises(PartyError, match="nobody can tell whose"):
        fit_with_a_liar(monkeypatch, [50], min_cell_count=10)


def test_a_shift_that_keeps_all_margins_is_not_seen(monkeypatch):
    """What the check cannot do: the guide says so."""
    honest = fit_with_a_liar(monkeypatch, [0])
    assert honest.parents_["x1"] == ["x0"]
    assert (
        fit_with_a_liar(monkeypatch, [0, 0, 1, -1, -1, 1]).network_ != honest.network_
    )
