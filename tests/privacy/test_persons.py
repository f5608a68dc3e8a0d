"""One person, many rows: noise for one row hides all of them."""

import numpy as np
import pytest
from sklearn.base import clone

from skprivbn.federation import Runner
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.partition import HorizontalPartition
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedPCA,
    FederatedStandardScaler,
)
from skprivbn.privacy import DistributedNoise
from skprivbn.privacy._persons import (
    cut_weights,
    number_persons,
    rows_of_person,
    sum_by_person,
)
from skprivbn.structure import FederatedGaussianBayesianNetwork, FederatedNotearsADMM

PRIVATE = {"bounds": (-1.0, 1.0), "epsilon": 1.0, "delta": 1e-6}
NUMERIC = [
    FederatedStandardScaler(**PRIVATE),
    FederatedStandardScaler(with_std=False, **PRIVATE),
    FederatedPCA(**PRIVATE),
    FederatedKBinsDiscretizer(3, **PRIVATE),
    FederatedGaussianBayesianNetwork(**PRIVATE),
    FederatedNotearsADMM(max_iter=3, **PRIVATE),
    *(
        PPEMGaussianMixture(
            2, covariance_type=kind, max_iter=1, backend="masking", **PRIVATE
        )
        for kind in ("full", "spherical")
    ),
]
quiet = pytest.mark.filterwarnings("ignore")


def name(estimator):
    return type(estimator).__name__


def seeded(estimator):
    model = clone(estimator)
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    return model


def test_persons_are_told_apart():
    labels = ["a", None, "b", "a", np.nan]
    assert number_persons(labels).tolist() == [0, -1, 1, 0, -1]
    assert rows_of_person(labels).tolist() == [2, 0, 1, 2, 0]
    assert rows_of_person([None, None]).tolist() == [0, 0]
    assert number_persons(np.array([2, 1, 2])).tolist() == [0, 1, 0]


def test_weights_are_cut():
    weights = [0.5, 2, 7, -1, np.nan, np.inf]
    assert cut_weights(weights, 3).tolist() == [0, 2, 3, 0, 0, 3]
    with pytest.raises(ValueError, match="max_weight=3"):
        cut_weights(weights, 3, strict=True)


def test_rows_of_a_person_share_one_row():
    rows = np.array([[7], [-8], [9], [100], [5]])
    n_rows = np.array([2, 2, 1, 0, 3])
    blocks = [rows[:2], rows[2:]]
    assert sum_by_person(blocks, n_rows, lambda X: X).tolist() == [3 - 4 + 9 + 1]


@pytest.fixture
def shown(monkeypatch):
    """Collect what parties add up, without noise, and the noise it would have."""
    sums = []

    def share(self, shape):
        sums.append(self)
        return np.zeros(shape, dtype=np.int64)

    monkeypatch.setattr(DistributedNoise, "share", share)
    return sums


@pytest.mark.parametrize("estimator", NUMERIC, ids=name)
@quiet
def test_no_person_moves_sums_beyond_the_noise(estimator, shown, monkeypatch):
    """As many extreme rows as one likes: the first sums move by one row's bound."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, size=(6, 3))
    opened = []

    def collect_noisy(self, counts, noise):
        opened.append(np.array(counts))
        return with_noise(self, counts, noise)

    with_noise = Runner._with_noise
    monkeypatch.setattr(Runner, "_with_noise", collect_noisy)

    def first_sums(X, individual):
        opened.clear()
        model = seeded(estimator)
        model.fit(X, individual=individual)
        return opened[0]

    others = np.arange(6)
    without = first_sums(rows, others)
    for extreme in (np.ones((1, 3)), -np.ones((50, 3)), rng.choice([-1, 1], (31, 3))):
        X = np.append(rows, extreme, axis=0)
        change = first_sums(X, np.append(others, [99] * len(extreme))) - without
        bound = shown[0].sensitivity
        assert 0 < np.linalg.norm(change) <= bound * (1 + 1e-9)
        # the twin: rows count one by one
        if len(extreme) == 50:
            alone = np.arange(len(X))
            assert np.linalg.norm(first_sums(X, alone) - without) > bound


@pytest.mark.parametrize("estimator", NUMERIC, ids=name)
@quiet
def test_persons_of_equal_size_count_as_their_rows_do(estimator, shown):
    rng = np.random.default_rng(0)
    rows = rng.normal(0, 0.3, size=(300, 2)).round(2)
    rows[:, 1] += rows[:, 0]
    party, model = np.arange(300) % 3, seeded(estimator)
    one = clone(model).fit(rows, party=party)
    four = clone(model).fit(
        np.repeat(rows, 4, axis=0),
        party=np.repeat(party, 4),
        individual=np.repeat(np.arange(300), 4),
    )
    for key, value in vars(one).items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            np.testing.assert_allclose(getattr(four, key), value, rtol=2e-2, atol=2e-2)
    for found, n_rows in ((one, 300), (four, 1200)):
        # a row's shares of two components are rounded down to multiples of 2^-14
        lost = 2 * n_rows / 2**14 if hasattr(found, "weights_") else 0.0
        assert getattr(found, "n_samples_", 300) == pytest.approx(300, abs=lost)


@quiet
def test_a_partition_says_who_is_behind_its_rows(shown):
    X, individual = np.ones((40, 2)), np.arange(40) // 4
    partition = HorizontalPartition.from_rows(X, individual % 3, individual=individual)
    scaler = FederatedStandardScaler(**PRIVATE).fit(partition)
    assert scaler.n_samples_ == 10
    exact = FederatedStandardScaler().fit(X, individual=individual)
    assert exact.n_samples_ == 40


@pytest.mark.parametrize("contribution", ["normalize", "clip"])
@pytest.mark.parametrize("several", [False, True])
@quiet
def test_learnt_trees_count_persons(contribution, several):
    rng = np.random.default_rng(0)
    first = rng.integers(2, size=2000)
    X = np.column_stack([first, first ^ (rng.random(2000) < 0.1), first])
    X, person = np.repeat(X, 3, axis=0), np.repeat(np.arange(2000), 3)
    learner = DPCGMLearner(
        "aim" if several else "mst",
        states=[2, 2, 2],
        epsilon=20.0,
        contribution=contribution,
    )
    party = {"party": person % 3} if several else {}
    found = learner.fit(X, individual=person, **party)
    assert found.n_samples_ == pytest.approx(2000, abs=60)
    assert found.marginal(["x0", "x2"])[0, 1] < 0.02
