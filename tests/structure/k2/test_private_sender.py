"""What a party that deviates still reads: limits that the security page states.

A first holder answers transfers with numbers of its choice where indicators belong, and
anybody may shift a share: nothing checks either. So the tests say how much an opened
table gives away, not that it gives nothing; where this changes, the page has to change.
"""

import numpy as np
import pytest

from skprivbn.crypto.shares import _tree_counts as trees
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.structure import PrivateK2StructureLearner
from skprivbn.structure.k2._shared_search import SharedK2

N_BITS = 7
PARTIES = {"hospital": [0], "lab": [1]}


def count_with_weights(monkeypatch, weights):
    """Have the first holder count its first records so often, and no others."""

    def add_values(job, numbers, rows):
        if rows.start == 0:
            numbers[: len(weights), 0] += np.array(weights, dtype=numbers.dtype)

    monkeypatch.setattr(trees._Job, "add_values", add_values)


@pytest.fixture
def X():
    return np.random.default_rng(0).integers(0, 2, (1000, 2))


def test_an_exact_table_gives_away_the_logarithm_of_a_count_unseen(monkeypatch, X):
    def fit():
        return PrivateK2StructureLearner(PARTIES, ordering=[0, 1]).fit(X)

    assert fit().parents_ == {"x0": [], "x1": []}
    count_with_weights(monkeypatch, 2 ** np.arange(N_BITS))
    # cells are not negative and add up: the fit ends well, with another network
    learner = fit()
    assert learner.parents_ == {"x0": [], "x1": ["x0"]}
    total = np.count_nonzero(X[:, 0] == 0)
    cell = round(learner.network_.cpts["x1"][0, 0] * (total + 2)) - 1
    read = cell >> np.arange(N_BITS) & 1
    np.testing.assert_array_equal(read, X[:N_BITS, 1] == 0)


def test_noise_is_not_for_a_record_that_counts_a_hundred_times(monkeypatch, X):
    def told(value):
        X[0, 1] = value
        learner = DPCGMLearner(
            [(0, 1)], parties=PARTIES, epsilon=1.0, states=[2, 2]
        ).fit(X)
        return next(iter(learner.noisy_tables_.values()))[0, 0]

    count_with_weights(monkeypatch, [100])
    # by 25 standard deviations of the noise
    assert told(0) > 50 > told(1)


def test_noise_is_not_for_a_record_at_the_end_of_a_table(monkeypatch, X):
    X[:, 1] = X[:, 0]
    X[0] = 0
    most, look_up = np.count_nonzero(X[:, 0] == 0), SharedK2._look_up_tables

    def shift(search, talk, holders, shares, transform):
        if talk.name == "hospital":
            # one record less is as many as there are, all of them one too many
            ((own, _),) = shares
            own[0, 0] += len(X) + 1 - most
        return look_up(search, talk, holders, shares, transform)

    def told(value):
        X[0, 1] = value
        learner = PrivateK2StructureLearner(
            PARTIES, ordering=[0, 1], states=[2, 2], epsilon=20.0
        ).fit(X)
        return learner.network_.cpts["x1"][0, 0]

    monkeypatch.setattr(SharedK2, "_look_up_tables", shift)
    assert told(1) > 0.99 and told(0) < 0.9
