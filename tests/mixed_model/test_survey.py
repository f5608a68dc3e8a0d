import numpy as np
import pytest

from skprivbn.mixed_model._survey import Census


@pytest.mark.parametrize(
    "outer_holders, refused", [(2, [False, True]), (1, [False] * 2)]
)
def test_a_small_cell_of_a_shared_cluster_is_refused_whoever_holds_it(
    outer_holders, refused
):
    # the sums of all cells of a shared ward are opened, also those of one holder
    census = Census(
        [["ward"], [["ward", "bed 1"], ["ward", "bed 2"]]],
        [np.array([12]), np.array([10, 2])],
        [np.array([outer_holders]), np.array([outer_holders, 1])],
        True,
    )
    _, cells = census.too_small(min_parties=2, min_rows=5, opened=False)
    assert cells.tolist() == refused
