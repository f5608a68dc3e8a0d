"""The simulated building."""

import numpy as np

from skprivbn.datasets import make_wifi_sessions


def test_shape_and_states():
    X, individual = make_wifi_sessions(200, 8, random_state=0)
    assert X.shape == (24 * 200, 6)
    assert X.min() == 0
    assert X.max() == 8
    assert np.array_equal(np.bincount(individual), np.full(200, 24))
    again, _ = make_wifi_sessions(200, 8, random_state=0)
    assert np.array_equal(X, again)
    other, _ = make_wifi_sessions(200, 8, random_state=1)
    assert not np.array_equal(X, other)


def test_null_dominates_and_popularity_decreases():
    X, _ = make_wifi_sessions(1500, 6, random_state=0)
    counts = np.bincount(X.ravel(), minlength=7)
    assert counts[0] > 0.5 * counts.sum()
    # neighbours in Zipf's law are close in the tail: compare every other one
    assert np.all(counts[1:-2] > counts[3:])


def test_people_stay_where_they_are():
    X, _ = make_wifi_sessions(500, 6, random_state=0)
    now, then = X[:, :-1].ravel(), X[:, 1:].ravel()
    connected = (now > 0) & (then > 0)
    assert (now == then)[connected].mean() > 0.7
