"""Private K2 with epsilon: structure and tables under one budget."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone

from skprivbn.datasets import load_asia
from skprivbn.exceptions import BudgetExceededError, PartyError, PrivacyLeakWarning
from skprivbn.federation.site._question import honest_majority
from skprivbn.inspection import privacy_report
from skprivbn.partition import VerticalPartition
from skprivbn.privacy import PrivacyAccountant, audit_estimator, zcdp_epsilon
from skprivbn.privacy._distributed import ChoiceNoise
from skprivbn.structure import K2StructureLearner, PrivateK2StructureLearner
from skprivbn.structure.k2._budget import K2Budget

TWO = {"hospital": [0, 1, 2, 7], "lab": [3, 4, 5, 6]}
THREE = {"hospital": [0, 3, 6], "lab": [1, 4, 7], "insurer": [2, 5]}
BINARY = {"states": [2, 2], "parties": {"a": [0], "b": [1]}}


def sample_asia(n, seed=0):
    asia = load_asia()
    X = asia.encode(asia.sample(n, random_state=seed))
    return X, {"ordering": list(asia.topological_order), "states": [2] * 8}


@pytest.mark.parametrize("parties", [None, TWO, THREE], ids=["one", "two", "three"])
@pytest.mark.parametrize(
    "criterion",
    [
        "k2",
        "total_variation",
        pytest.param("bdeu", marks=pytest.mark.slow),
        pytest.param("bic", marks=pytest.mark.slow),
    ],
)
def test_next_to_no_noise_gives_the_network_of_pooled_rows(parties, criterion):
    X, options = sample_asia(400)
    options |= {"criterion": criterion, "max_parents": 2}
    noisy = PrivateK2StructureLearner(parties, epsilon=1e7, **options).fit(X)
    exact = K2StructureLearner(**options).fit(X)
    assert noisy.parents_ == exact.parents_
    assert noisy.network_ == exact.network_
    assert noisy.privacy_spent_ == (1e7, 0.0)


@pytest.mark.slow
# with seed 0, two candidates have the same score, and any noise decides
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("parties", [TWO, THREE], ids=["two", "three"])
def test_the_network_of_pooled_rows_at_length(parties, seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (400, 8))
    X[:, 3] = (X[:, 1] + X[:, 2] + (rng.random(400) < 0.1)) % 3
    X[:, 6] = np.where(rng.random(400) < 0.2, X[:, 6], X[:, 0])
    options = {"states": [3] * 8, "criterion": "total_variation"}
    noisy = PrivateK2StructureLearner(parties, epsilon=1e8, **options).fit(X)
    exact = K2StructureLearner(**options).fit(X)
    assert noisy.parents_ == exact.parents_ and any(exact.parents_.values())
    assert noisy.network_ == exact.network_


@pytest.mark.filterwarnings("ignore:this is the second fit")
def test_noise_changes_structure_and_tables():
    X, options = sample_asia(300)
    learner = PrivateK2StructureLearner(epsilon=0.1, max_parents=2, **options)
    exact = K2StructureLearner(max_parents=2, **options).fit(X)
    assert exact.adjacency_matrix_.sum() >= 5
    found = [clone(learner).fit(X) for _ in range(3)]
    assert all(model.network_ != exact.network_ for model in found)
    # no edge stands out from such noise: the network hardly has one
    assert np.mean([model.adjacency_matrix_.sum() for model in found]) < 5


def test_a_budget_is_charged_once_and_before_the_fit():
    X, options = sample_asia(50)
    accountant = PrivacyAccountant(epsilon=1.0)
    learner = PrivateK2StructureLearner(
        TWO, epsilon=0.8, max_parents=1, accountant=accountant, **options
    ).fit(X)
    assert [spend.epsilon for spend in accountant.history] == [0.8]
    assert learner.privacy_spent_.epsilon == 0.8
    with pytest.raises(BudgetExceededError):
        learner.fit(X)
    assert len(accountant.history) == 1
    with pytest.raises(ValueError, match="min_honest must be between 1 and"):
        learner.set_params(min_honest=4, epsilon=0.1).fit(X)
    assert len(accountant.history) == 1
    learner.set_params(min_honest=None, epsilon=None, accountant=None).fit(X)
    assert not hasattr(learner, "privacy_spent_")


def test_the_second_uncounted_fit_warns():
    learner = PrivateK2StructureLearner(epsilon=0.5, **BINARY | {"parties": None})
    X = np.eye(2, dtype=int)
    learner.fit(X)
    with pytest.warns(PrivacyLeakWarning, match="second fit.*, 1 so far"):
        clone(learner).fit(X)


def test_exact_scores_of_private_records_warn():
    X = np.eye(2, dtype=int)
    accountant = PrivacyAccountant(epsilon=1.0)
    learner = PrivateK2StructureLearner(
        epsilon=0.5, accountant=accountant, **BINARY | {"parties": None}
    ).fit(X)
    with pytest.warns(PrivacyLeakWarning, match="score is an exact function"):
        learner.score(X)


@pytest.mark.parametrize("needs_margins", [False, True])
@pytest.mark.parametrize("fit_parameters", [False, True])
@pytest.mark.parametrize("n_choices", [0, 7])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_parts_add_up_to_the_whole(needs_margins, fit_parameters, n_choices, delta):
    budget = K2Budget(
        1.0, delta, 4, n_choices, needs_margins, fit_parameters, 3, min_honest=2
    )
    parts = [budget.margins, budget.choices, budget.tables]
    assert [part is not None for part in parts] == [
        needs_margins,
        n_choices > 0,
        fit_parameters,
    ]
    given = [part for part in parts if part is not None]
    if not given:
        return
    if delta == 0:
        assert sum(part.epsilon for part in given) == pytest.approx(1.0)
        assert budget.rho is None
    else:
        assert sum(part.rho for part in given) == pytest.approx(budget.rho)
        assert zcdp_epsilon(budget.rho, delta) <= 1.0
    for noise in (budget.margins, budget.tables):
        if noise is not None:
            # a record leaves a cell of each of four tables and enters another
            assert noise.sensitivity == (8 if delta == 0 else pytest.approx(8**0.5))
    epsilons = budget.epsilon_with_colluders()
    np.testing.assert_allclose(epsilons[:2], 1.0)
    assert epsilons[3] == np.inf
    has_tables = needs_margins or fit_parameters
    assert (epsilons[2] > 1.01) == has_tables


@pytest.mark.parametrize("min_honest, fine", [(2, True), (3, False)])
def test_a_site_accepts_enough_noise_only(min_honest, fine):
    columns = {"clinic": np.zeros((4, 1)), "lab": np.zeros((4, 1))}
    learner = PrivateK2StructureLearner(
        epsilon=1.0, min_honest=min_honest, states=[2, 2]
    )
    noise = learner._terms(VerticalPartition(columns)).noise(3, 3)
    assert noise.epsilon == 1.0
    assert honest_majority(SimpleNamespace(noise=noise, n_parties=3)) is fine


@pytest.mark.parametrize("fit_parameters", [False, True])
@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        (-1.0, 0.0),
        (0.0, 0.0),
        (np.nan, 0.0),
        (np.inf, 0.0),
        (-1.0, 1e-6),
        (1.0, -0.5),
        (1.0, 1.0),
        (1.0, np.nan),
    ],
)
def test_attack_a_budget_that_is_none(epsilon, delta, fit_parameters):
    """Less than nothing would be paid back, and no rho be found for ever."""
    with pytest.raises(ValueError, match="positive|between"):
        K2Budget(epsilon, delta, 5, 10, False, fit_parameters, 3, 2)


def test_noise_of_tables_has_the_scale_of_all_families():
    # 8 families, in each of which a record changes two counts: scale 16 / epsilon
    X = np.zeros((2000, 8), dtype=int)
    learner = PrivateK2StructureLearner(
        TWO, epsilon=8.0, max_parents=0, states=[40] * 8
    ).fit(X)
    # of 39 empty cells with noise of scale 2 per party, some must be positive
    cpts = np.stack(list(learner.network_.cpts.values()))
    counts = cpts[:, 1:] / cpts[:, 1:].min(axis=1, keepdims=True) - 1
    assert 0.5 < counts.mean() < 2.5  # E max(noise, 0) of two Laplace(2): 1.5


def test_ledger_and_report_say_what_was_opened():
    X, options = sample_asia(50)
    learner = PrivateK2StructureLearner(
        TWO,
        epsilon=1.0,
        delta=1e-6,
        criterion="total_variation",
        max_parents=1,
        **options,
    ).fit(X)
    told = {row[1]: row[3] for row in learner.ledger_.who_learns_what()}
    for what in ("counts of every column by itself", "parents of every column"):
        (how,) = [how for name, how in told.items() if name.startswith(what)]
        assert "differentially private noise" in how
    assert "whoever holds a column knows the number of records" in str(learner.ledger_)
    assert "colluding parties: 1, 1, inf" in str(learner.ledger_)
    report = str(privacy_report(learner))
    assert "7 choices, each of epsilon" in report
    assert "the values of one record, exchanged for others" in report


def test_structure_only():
    X, options = sample_asia(400)
    learner = PrivateK2StructureLearner(
        TWO, epsilon=1e7, max_parents=1, fit_parameters=False, **options
    ).fit(X)
    expected = K2StructureLearner(max_parents=1, **options).fit(X)
    assert learner.parents_ == expected.parents_
    assert not hasattr(learner, "network_")
    assert "counts of every column" not in str(list(learner.ledger_.who_learns_what()))


def test_too_little_epsilon_for_64_bits():
    X, options = sample_asia(50)
    with pytest.raises(PartyError, match="too large|out of range|limits"):
        PrivateK2StructureLearner(TWO, epsilon=1e-9, **options).fit(X)


def seen_of(X, **options):
    """Return all that a fit shows beside its noisy numbers."""
    learner = PrivateK2StructureLearner(epsilon=1.0, **BINARY | options)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        learner.fit(X)
    return {
        "warnings": {str(w.message) for w in said},
        "names": {name for name in vars(learner) if name.endswith("_")},
        # how long the result is, and who speaks last, follow from the noise
        "learnt": {
            row[:4]
            for row in learner.ledger_.who_learns_what().rows
            if not row[3].startswith("public values")
        },
        "n": learner.n_samples_,
        "states": learner.network_.states,
    }


@pytest.mark.parametrize("criterion", ["k2", "total_variation"])
def test_neighbours_look_the_same(criterion):
    """Neither errors nor anything exact tells which values a record has."""
    X = np.array([[0, 0], [1, 1]] * 5, dtype=object)
    expected = seen_of(X, criterion=criterion)
    for record in ([7, -1], [None, np.nan], [0.5, "yes"], [np.inf, 1]):
        neighbour = X.copy()
        neighbour[3] = record
        assert seen_of(neighbour, criterion=criterion) == expected
    seen_of(X[:1], criterion=criterion)


def test_what_is_no_state_counts_as_the_first():
    X = np.array([[0, 1], [1, 1], [None, 1], [7, 1]], dtype=object)
    learner = PrivateK2StructureLearner(epsilon=1e7, max_parents=0, **BINARY).fit(X)
    np.testing.assert_allclose(learner.network_.cpts["x0"], [4 / 6, 2 / 6])


def audit(n_trials, confidence, **options):
    # by one record, the second column depends on the first or does not
    n_less = 5 if options.get("criterion") == "total_variation" else 4
    X = np.repeat([[1, 1], [0, 0]], 6, axis=0)
    X[:n_less, 1] = 0
    neighbour = X.copy()
    neighbour[n_less, 1] = 0
    learner = PrivateK2StructureLearner(epsilon=1.0, **BINARY | options)
    return audit_estimator(
        learner,
        X,
        neighbour,
        statistic=lambda model: [
            float(model.adjacency_matrix_.sum()),
            *model.network_.cpts["x0"],
        ],
        n_trials=n_trials,
        confidence=confidence,
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("criterion", ["k2", "bic", "total_variation"])
def test_an_audit_finds_no_more_than_epsilon(criterion):
    found = audit(2000, 1 - 1e-9, criterion=criterion, parties=None)
    print(f"AUDIT K2 {criterion}: {found.epsilon:.3f} of 1, 2000 trials")
    assert found.n_failed == (0, 0) and found.epsilon <= 1.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_audit_finds_no_more_than_epsilon_with_a_colluder(monkeypatch):
    share, calls = ChoiceNoise.share, [0]

    def honest_share(self, scales):
        calls[0] += 1
        return share(self, scales) if calls[0] % 2 else np.zeros_like(scales)

    monkeypatch.setattr(ChoiceNoise, "share", honest_share)
    found = audit(200, 1 - 1e-9)
    print(f"AUDIT K2 of two, one colludes: {found.epsilon:.3f} of 1, 200 trials")
    assert found.n_failed == (0, 0) and found.epsilon <= 1.0


@pytest.mark.filterwarnings("ignore")
def test_an_audit_finds_a_structure_without_noise(monkeypatch):
    """The twin: noise on the tables only, as it was once."""
    monkeypatch.setattr(ChoiceNoise, "share", lambda self, scales: 0 * scales)
    monkeypatch.setattr(ChoiceNoise, "handicap", lambda self, scale, n: 0)
    found = audit(40, 0.9, parties=None)
    print(f"AUDIT twin, K2 with an exact structure: {found.epsilon:.3f} of 1")
    assert found.epsilon > 1.0
