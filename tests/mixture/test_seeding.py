"""Sums of clusters: those of few rows do not follow from what is told of the others."""

import numpy as np
import pytest

from skprivbn.mixture._seeding import stay_untold


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_out_has_enough_rows_together(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 12, (6, 50)).astype(float)
    untold = stay_untold(sizes, 5)
    left_out = np.where(untold, sizes, 0).sum(axis=0)
    assert not np.any((left_out > 0) & (left_out < 5))
    assert np.all(untold[sizes < 5])
    # small clusters alone would be told by what all clusters add up to
    alone = np.where(sizes < 5, sizes, 0).sum(axis=0)
    assert np.any((alone > 0) & (alone < 5))


def test_clusters_of_enough_rows_are_told():
    assert not stay_untold(np.array([40.0, 5.0, 20.0]), 5).any()
    # nobody is in the second
    assert stay_untold(np.array([40.0, 0.0, 20.0]), 5).tolist() == [False, True, False]
