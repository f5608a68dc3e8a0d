import tracemalloc
import warnings

import numpy as np
import pytest

from skprivbn.crypto import MaskingBackend
from skprivbn.exceptions import PartyError
from skprivbn.federation import Federation, InProcessFederation
from skprivbn.mixed_model import PrivateGLMM, PrivateGLMMRegressor, _survey
from skprivbn.mixed_model._census import Census
from skprivbn.mixed_model._protocol import GLMMParty
from skprivbn.mixed_model._survey import SurveyParty
from skprivbn.mixed_model._terms import MixedTerms


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


def linear_sums(weights, monkeypatch):
    """Return all sums of products of a fit, and the row that weights pick."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 2)), rng.normal(size=120)
    cluster, party = np.repeat(list("abcd"), 30), np.tile(["n", "s", "w"], 40)
    opened = []
    add = Federation.secure_sum

    def watch(federation, operation, payload=None):
        total = add(federation, operation, payload)
        if operation == "products":
            party = federation._hosts["n"]._party
            opened.append((np.asarray(total) / party.unit, party))
        return total

    monkeypatch.setattr(Federation, "secure_sum", watch)
    model = PrivateGLMMRegressor(min_rows=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, cluster=cluster, party=party, sample_weight=weights)
    total, held = opened[0]
    # the first row of all is the first of party n
    return total, held.data.R[0]


def picking_weights(others):
    """Weights that leave one row of the first cluster."""
    weights = np.ones(120)
    weights[1:30] = others
    return weights


@pytest.mark.parametrize("others", [0.0, 1e-9])
def test_attack_weights_that_leave_one_row_of_a_cluster(others, monkeypatch):
    with pytest.raises(PartyError) as caught:
        linear_sums(picking_weights(others), monkeypatch)
    assert caught.value.code == "too-few-rows"
    # ordinary weights are welcome
    linear_sums(np.random.default_rng(1).integers(1, 9, 120), monkeypatch)


def test_without_a_look_at_weights_sums_of_a_cluster_are_the_row(monkeypatch):
    monkeypatch.setattr(
        SurveyParty, "weighs_on_few", lambda self, codes, size: np.zeros(size, bool)
    )
    total, row = linear_sums(picking_weights(0.0), monkeypatch)
    for value in row:
        assert np.isclose(total, value, rtol=1e-9).any()
    # of clusters with all their rows, sums are of all of them
    total, row = linear_sums(np.ones(120), monkeypatch)
    assert not np.isclose(total, row[-1], rtol=1e-9).any()


def test_attack_a_cluster_that_is_named_twice():
    blocks = {
        name: {
            "X": np.arange(12.0).reshape(6, 2) + i,
            "y": np.arange(6) % 2,
            "cluster": np.repeat(["a", "b"], 3),
        }
        for i, name in enumerate("nsw")
    }
    model = PrivateGLMM()
    model.n_features_in_ = 2
    terms = model._make_terms(["cluster"])
    with InProcessFederation(blocks, GLMMParty, terms, "masking") as federation:
        first = federation.secure_sum("labels")
        told = {"total": first, "classes": [0, 1], "clusters": [["a", "b", "a"]]}
        with pytest.raises(PartyError, match="refuses"):
            federation.secure_sum("census", told)


def name_clusters(n_clusters):
    """Have parties look at clusters that nobody has; return the memory it takes."""
    backend = MaskingBackend()
    terms = MixedTerms(
        n_factors=1,
        term_factors=[0],
        term_columns=[[-1]],
        n_quadrature=1000,
        max_sum=backend.max_sum(),
    )
    rng = np.random.default_rng(0)
    block = {"X": rng.normal(size=(200, 1)), "y": rng.integers(0, 2, 200)}
    block["cluster"] = np.zeros(200, dtype=int)
    blocks = dict.fromkeys(("north", "south", "west"), block)
    told = {"classes": [0, 1], "clusters": [list(range(n_clusters))]}
    tracemalloc.start()
    try:
        with InProcessFederation(blocks, GLMMParty, terms, backend) as federation:
            total = federation.secure_sum("labels")
            total = federation.secure_sum("census", {"total": total, **told})
            for _ in range(2):
                total = federation.secure_sum("regress", {"total": total})
            federation.sum_and_agree("step", {"total": total})
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_attack_a_short_message_that_takes_much_memory(monkeypatch):
    # ten bytes for each cluster
    with pytest.raises(PartyError) as caught:
        name_clusters(20_000)
    assert caught.value.code == "too-large"
    # the twin: each takes some thousand numbers at every party
    monkeypatch.setattr(_survey, "MAX_NUMBERS", np.inf)
    assert name_clusters(500) - name_clusters(1) > 500 * 1000 * 8
