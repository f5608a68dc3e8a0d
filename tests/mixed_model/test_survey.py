import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.mixed_model import PrivateGLMMRegressor
from skprivbn.mixed_model._clusters import Census
from tests.mixed_model.limits import fit_with_limit


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


@pytest.mark.parametrize(
    "rows, holders, left",
    [
        # b and c are enough together
        ([90, 12, 12, 30], [3, 3, 3, 3], ["a", "d", "(other)"]),
        # too few rows, or two holders at least but perhaps no more: d joins, not a
        ([90, 12, 2, 30], [3, 3, 3, 3], ["a", "(other)"]),
        ([90, 32, 32, 30], [3, 2, 2, 3], ["a", "(other)"]),
        # what one party holds alone stays closed
        ([90, 12, 2, 30], [3, 3, 3, 1], ["d", "(other)"]),
    ],
)
def test_small_clusters_are_pooled_with_the_next_if_they_are_too_few(
    rows, holders, left
):
    census = Census([list("abcd")], [np.array(rows)], [np.array(holders)], True)
    pooled, _ = census.pooled(3, 20, False)
    assert pooled.labels == [left]
    assert pooled.n_rows[0].sum() == sum(rows)
    assert not pooled.too_small(3, 20, False)[0].any()


PRODUCTS = "products of columns, by shared cluster"


def linear_sums(weights, min_rows):
    """Return all sums of products of a fit, and the row that weights pick."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 2)), rng.normal(size=120)
    columns = {"X": X, "y": y, "cluster": np.repeat(list("abcd"), 30)}
    columns["sample_weight"] = np.asarray(weights, dtype=float)
    party = np.tile(["n", "s", "w"], 40)
    heard = fit_with_limit(PrivateGLMMRegressor(), columns, party, min_rows)
    row = np.append(
        (X - X.mean(axis=0)) / X.std(axis=0), ((y - y.mean()) / y.std())[:, None], 1
    )[0]
    return heard[PRODUCTS], row


def picking_weights(others):
    """Weights that leave one row of the first cluster."""
    weights = np.ones(120)
    weights[1:30] = others
    return weights


@pytest.mark.parametrize("others", [0.0, 1e-9])
def test_attack_weights_that_leave_one_row_of_a_cluster(others):
    with pytest.raises(PartyError) as caught:
        linear_sums(picking_weights(others), 5)
    assert caught.value.code == "too-few-rows"
    # ordinary weights are welcome
    linear_sums(np.random.default_rng(1).integers(1, 9, 120), 5)


def test_without_a_look_at_weights_sums_of_a_cluster_are_the_row():
    total, row = linear_sums(picking_weights(0.0), 1)
    for value in row:
        assert np.isclose(total, value, rtol=1e-9).any()
    # of clusters with all their rows, sums are of all of them
    total, row = linear_sums(np.ones(120), 1)
    assert not np.isclose(total, row[-1], rtol=1e-9).any()
