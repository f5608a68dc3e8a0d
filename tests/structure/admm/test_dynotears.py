"""A row is learnt from together with its past, or not at all."""

import numpy as np
import pytest

from skprivbn.datasets import make_var_sem
from skprivbn.exceptions import PartitionError
from skprivbn.partition import HorizontalPartition
from skprivbn.structure import FederatedDynotears

pytestmark = [
    pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]

X, SERIES, _, A = make_var_sem(60, 3, n_series=3, random_state=0)
ROW_BY_ROW = np.arange(len(X)) % 3


@pytest.mark.parametrize("series", [None, SERIES])
@pytest.mark.parametrize(
    "party", [ROW_BY_ROW, np.random.default_rng(0).integers(0, 3, len(X))]
)
def test_a_series_spread_over_parties_row_by_row_is_refused(party, series):
    learner = FederatedDynotears(max_iter=2)
    with pytest.raises(PartitionError, match="alternate within one series"):
        learner.fit(X, party=party, series=series)
    partition = HorizontalPartition.from_rows(X, party, series=series)
    with pytest.raises(PartitionError, match="alternate within one series"):
        learner.fit(partition)
    learner.fit(X, party=SERIES, series=SERIES)
    with pytest.raises(PartitionError, match="alternate within one series"):
        learner.score(partition)


def test_series_of_different_parties_may_be_interwoven():
    order = np.argsort(np.arange(len(X)) % 60, kind="stable")  # by time
    woven, series = X[order], SERIES[order]
    model = FederatedDynotears(max_iter=5).fit(woven, party=series, series=series)
    plain = FederatedDynotears(max_iter=5).fit(X, party=SERIES)
    np.testing.assert_allclose(model.lagged_weights_, plain.lagged_weights_)
    # one series at several parties, one after the other, loses a row per party
    split = FederatedDynotears(max_iter=5).fit(X, party=SERIES, series=np.zeros(len(X)))
    np.testing.assert_allclose(split.lagged_weights_, plain.lagged_weights_)


def test_a_partition_made_of_blocks_is_taken_as_it_is():
    blocks = {str(k): X[k == SERIES] for k in range(3)}
    model = FederatedDynotears(max_iter=5).fit(HorizontalPartition(blocks))
    plain = FederatedDynotears(max_iter=5).fit(X, party=SERIES)
    np.testing.assert_allclose(model.lagged_weights_, plain.lagged_weights_)


def test_series_without_its_name_are_warned_of():
    with pytest.warns(UserWarning, match=r"y is not used.*fit\(X, series=series\)"):
        model = FederatedDynotears(max_iter=2).fit(X, SERIES)
    with pytest.warns(UserWarning, match="y is not used"):
        model.score(X, SERIES)


def test_series_of_one_row_have_no_past():
    alone = np.arange(len(X))
    for party in (None, SERIES):
        with pytest.raises(ValueError, match="nothing has a past: give longer series"):
            FederatedDynotears().fit(X, series=alone, party=party)
    # where others have longer ones, they count for nothing
    series = np.where(alone < 60, alone + 10, SERIES)
    model = FederatedDynotears(max_iter=5).fit(X, series=series, party=SERIES)
    assert model.n_samples_ == 2 * 59
