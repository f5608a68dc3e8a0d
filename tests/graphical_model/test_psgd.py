"""Noisy gradients: what one person changes, however many rows there are."""

import numpy as np
import pytest
from sklearn.base import clone

from skprivbn.graphical_model import DPCGMLearner
from skprivbn.graphical_model import _psgd as psgd
from skprivbn.graphical_model._psgd import private_gradient_descent
from skprivbn.graphical_model._tables import TableLayout

SIZES = [2, 3]
CODES = np.random.default_rng(0).integers(0, SIZES, (8, 2))
LAYOUT = TableLayout([(0, 1), (1,)], SIZES)
CHAIN = np.random.default_rng(3).integers(0, 2, (8, 4))
TIED = TableLayout([(0,), (0, 1), (1, 2), (2, 3)], [2] * 4, ties=[0, 1, 1, 1])


def gradients(codes, persons, monkeypatch, clip, n_steps=3, layout=LAYOUT):
    """Return sums of clipped gradients before noise, in units of the clipping norm."""
    seen = []

    def spy(total, l2_sensitivity, sigma):
        seen.append(total / l2_sensitivity)
        # the same model in every run: the sum differs by a person only
        return np.rint(sigma * np.cos(np.arange(len(total)))).astype(np.int64)

    monkeypatch.setattr(psgd, "add_discrete_gaussian", spy)
    options = {"sampling_rate": 1.0, "n_steps": n_steps, "clip": clip}
    private_gradient_descent(codes, layout, 2.0, 1e-5, persons=persons, **options)
    return np.array(seen)


@pytest.mark.parametrize("clip", [0.1, 1.0, 10.0])
def test_a_person_changes_a_sum_by_the_clipping_norm_at_most(clip, monkeypatch):
    many = np.random.default_rng(1).integers(0, SIZES, (50, 2))
    both, people = np.append(CODES, many, axis=0), np.append(np.arange(8), [99] * 50)
    without = gradients(CODES, np.arange(8), monkeypatch, clip)
    change = np.linalg.norm(
        gradients(both, people, monkeypatch, clip) - without, axis=1
    )
    assert np.all(change <= 1.0) and np.all(change > 0)
    # the twin that takes rows for people
    one_by_one = gradients(both, None, monkeypatch, clip) - without
    assert np.linalg.norm(one_by_one, axis=1).max() > 1.0


@pytest.mark.parametrize("clip", [0.1, None])
def test_a_person_of_a_tied_chain_changes_a_sum_by_the_clipping_norm(clip, monkeypatch):
    # somebody who stays has all transitions in one cell
    both = np.append(CHAIN, np.zeros((5, 4), dtype=int), axis=0)
    people = np.append(np.arange(8), [99] * 5)

    def change(clip):
        options = {"clip": clip, "layout": TIED}
        found = gradients(both, people, monkeypatch, **options)
        return found - gradients(CHAIN, np.arange(8), monkeypatch, **options)

    assert np.linalg.norm(change(clip), axis=1).max() <= 1.0
    # the twin of squares that count a cell once, however many cliques share it

    def squares(self, rows, public):
        return np.full(len(rows), 1.0)

    monkeypatch.setattr(psgd._People, "squares", squares)
    assert np.linalg.norm(change(0.9), axis=1).max() > 1.0


def test_gradients_of_a_tied_chain_are_those_of_its_likelihood(monkeypatch):
    # without clipping or noise, the first step climbs counts less expected counts
    found = gradients(CHAIN, None, monkeypatch, clip=10.0, n_steps=1, layout=TIED)
    counts = np.zeros((2, 2))
    for i in range(3):
        np.add.at(counts, (CHAIN[:, i], CHAIN[:, i + 1]), 1)
    first = np.bincount(CHAIN[:, 0], minlength=2) - 4.0
    expected = np.append(first, (counts - 8 * 3 / 4).ravel())
    np.testing.assert_allclose(10 * found[0], expected, atol=1e-3)


def test_a_stationary_chain_is_learnt():
    rng, X = np.random.default_rng(0), np.zeros((6000, 5), dtype=int)
    for i in range(1, 5):
        X[:, i] = X[:, i - 1] ^ (rng.random(6000) < 0.1)
    model = DPCGMLearner(
        "chain",
        method="psgd",
        states=[2] * 5,
        epsilon=8.0,
        delta=1e-5,
        clique_params={"stationary": True},
        method_params={"n_steps": 60},
    ).fit(X)
    pairs = [table for clique, table in model.potentials_.items() if len(clique) == 2]
    assert len(pairs) == 4 and all(np.array_equal(pairs[0], p) for p in pairs)
    joint = model.marginal(["x2", "x3"])
    assert 0.05 < (joint[0, 1] + joint[1, 0]) < 0.2


def test_a_person_is_the_mean_of_the_rows(monkeypatch):
    single = gradients(CODES, None, monkeypatch, 0.5)
    alike = gradients(
        np.repeat(CODES, 4, axis=0), np.repeat(np.arange(8), 4), monkeypatch, 0.5
    )
    np.testing.assert_allclose(alike, single, atol=1e-4)


def test_no_rows_are_noise_only(monkeypatch):
    assert not gradients(CODES[:0], None, monkeypatch, 1.0).any()


@pytest.mark.filterwarnings("ignore:this is the second fit")
def test_there_are_no_tables_not_even_those_of_an_earlier_fit():
    learner = DPCGMLearner("chain", states=SIZES, delta=1e-5).fit(CODES)
    assert hasattr(learner, "noisy_tables_")
    learner.set_params(method="psgd").fit(CODES)
    assert vars(learner).keys() == vars(clone(learner).fit(CODES)).keys()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:this is the second fit")
def test_persons_in_the_estimator():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.integers(0, 2, (1000, 1)), 3, axis=1)
    model = DPCGMLearner(
        "chain",
        method="psgd",
        states=[2] * 3,
        epsilon=8.0,
        delta=1e-5,
        contribution="normalize",
        method_params={"n_steps": 60},
    ).fit(np.repeat(X, 2, axis=0), individual=np.repeat(np.arange(1000), 2))
    assert model.score(X) > -3 * np.log(2) + 0.3
    with pytest.raises(ValueError, match="individual="):
        model.set_params(contribution=None).fit(X, individual=np.arange(1000))
