import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, StandardScaler

from skprivbn.exceptions import (
    BudgetExceededError,
    PartyError,
    PrivacyLeakWarning,
)
from skprivbn.partition import HorizontalPartition
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedPCA,
    FederatedStandardScaler,
)
from skprivbn.privacy import PrivacyAccountant

X = load_iris().data
PARTY = np.arange(len(X)) % 4
TRANSFORMERS = [
    FederatedStandardScaler(),
    FederatedPCA(2),
    FederatedKBinsDiscretizer(4, strategy="uniform", bounds=(0, 8)),
]


@pytest.mark.parametrize("with_mean", [True, False])
@pytest.mark.parametrize("with_std", [True, False])
def test_scaler_equals_scikit_learns(with_mean, with_std):
    options = {"with_mean": with_mean, "with_std": with_std}
    ours = FederatedStandardScaler(**options).fit(X, party=PARTY)
    theirs = StandardScaler(**options).fit(X)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), rtol=1e-10)
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(X)), X)
    if with_std:
        np.testing.assert_allclose(ours.var_, theirs.var_, rtol=1e-12)


def test_constant_features_are_left_alone():
    rows = np.column_stack([np.full(12, 1e6 + 0.1), np.arange(12.0)])
    scaler = FederatedStandardScaler().fit(rows, party=np.arange(12) % 3)
    assert scaler.scale_[0] == 1.0
    np.testing.assert_allclose(scaler.transform(rows)[:, 0], 0, atol=1e-9)


@pytest.mark.parametrize("n_components", [None, 1, 3, 0.5, 0.95])
@pytest.mark.parametrize("whiten", [False, True])
def test_pca_equals_scikit_learns(n_components, whiten):
    ours = FederatedPCA(n_components, whiten=whiten).fit(X, party=PARTY)
    theirs = PCA(n_components, whiten=whiten, svd_solver="full").fit(X)
    assert ours.n_components_ == theirs.n_components_
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), atol=1e-8)
    for name in (
        "explained_variance_",
        "explained_variance_ratio_",
        "singular_values_",
    ):
        np.testing.assert_allclose(
            getattr(ours, name), getattr(theirs, name), rtol=1e-9
        )
    np.testing.assert_allclose(
        ours.inverse_transform(ours.transform(X)),
        theirs.inverse_transform(theirs.transform(X)),
        atol=1e-8,
    )


def test_pca_says_how_many_components_there_are():
    with pytest.raises(ValueError, match="at most the number of features, 4"):
        FederatedPCA(5).fit(X, party=PARTY)


@pytest.mark.parametrize("bounds", [None, (0, 10)])
def test_quantile_edges_split_the_rows_evenly(bounds):
    rows = np.random.default_rng(0).gamma(2.0, size=(2000, 2))
    party = np.arange(2000) % 5
    binner = FederatedKBinsDiscretizer(4, bounds=bounds)
    with pytest.warns(PrivacyLeakWarning, match="read off the data"):
        binner.fit(rows, party=party)
    expected = np.quantile(
        np.clip(rows, 0, 10), np.linspace(0, 1, 5), axis=0, method="inverted_cdf"
    ).T
    resolution = 20 / 2**16
    np.testing.assert_allclose(np.stack(binner.bin_edges_), expected, atol=resolution)
    counts = np.bincount(binner.transform(rows)[:, 0].astype(int))
    np.testing.assert_allclose(counts, 500, atol=2)


def test_uniform_edges_from_the_data():
    rows = np.array([[-3.0], [0.1], [5.0], [4.0]])
    binner = FederatedKBinsDiscretizer(2, strategy="uniform")
    with pytest.warns(PrivacyLeakWarning, match="read off the data"):
        binner.fit(rows, party=["a", "b", "c", "d"])
    np.testing.assert_allclose(binner.bin_edges_[0], [-3, 1, 5], atol=1e-3)


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_outer_edges_have_enough_rows_at_them_or_beyond(strategy):
    binner = FederatedKBinsDiscretizer(3, strategy=strategy, min_rows=7)
    with pytest.warns(PrivacyLeakWarning, match="edges"):
        edges = binner.fit(X, party=PARTY).bin_edges_
    ordered = np.sort(X, axis=0)
    for found, values in zip(edges, ordered.T):
        near = 1e-3 * np.ptp(values)
        np.testing.assert_allclose(found[[0, -1]], values[[6, -7]], atol=near)
        assert np.sum(values <= found[0] + near) >= 7


@pytest.mark.parametrize("n_rows", [7, 9, 10, 13, 14, 20])
def test_outer_edges_of_few_rows_are_at_most_the_middle(n_rows):
    rows = np.random.default_rng(n_rows).normal(size=(n_rows, 1))
    binner = FederatedKBinsDiscretizer(2, strategy="uniform", min_rows=7)
    with pytest.warns(PrivacyLeakWarning, match="edges"):
        edges = binner.fit(rows, party=np.arange(n_rows) % 3).bin_edges_[0]
    few = min(7, (n_rows + 1) // 2)
    expected = np.sort(rows[:, 0])[[few - 1, -few]]
    np.testing.assert_allclose(edges[[0, -1]], expected, atol=5e-3)


def test_public_bounds_ask_nobody():
    binner = FederatedKBinsDiscretizer(2, strategy="uniform", bounds=([0] * 4, [8] * 4))
    binner.fit(X, party=PARTY)
    assert binner.ledger_.entries == []
    np.testing.assert_array_equal(binner.transform([[1, 4, 7, 9]]), [[0, 1, 1, 1]])
    np.testing.assert_array_equal(
        binner.inverse_transform([[0, 1, 1, 1]]), [[2, 6, 6, 6]]
    )


def test_equal_quantiles_are_merged():
    rows = np.array([[0.0]] * 90 + [[1.0]] * 10)
    binner = FederatedKBinsDiscretizer(5, bounds=(0, 1))
    with pytest.warns(PrivacyLeakWarning):
        binner.fit(rows, party=np.arange(100) % 4)
    assert binner.n_bins_[0] < 5
    assert set(binner.transform(rows)[:90, 0]) != set(binner.transform(rows)[90:, 0])


def test_a_constant_feature_has_one_bin():
    binner = FederatedKBinsDiscretizer(3)
    with pytest.warns(PrivacyLeakWarning):
        binner.fit(np.full((8, 1), 2.5), party=np.arange(8) % 4)
    np.testing.assert_array_equal(binner.transform([[2.5], [9.0]]), [[0], [0]])


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_noisy_quantiles(delta):
    rows = np.random.default_rng(0).uniform(size=(20_000, 1))
    binner = FederatedKBinsDiscretizer(4, bounds=(0, 1), epsilon=1.0, delta=delta)
    binner.fit(rows, party=np.arange(20_000) % 4)
    np.testing.assert_allclose(binner.bin_edges_[0], [0, 0.25, 0.5, 0.75, 1], atol=0.03)
    assert binner.privacy_spent_.epsilon == 1.0


@pytest.mark.parametrize(
    "estimator",
    [FederatedStandardScaler(), FederatedPCA(), FederatedKBinsDiscretizer()],
)
def test_epsilon_is_charged_and_needs_bounds(estimator):
    accountant = PrivacyAccountant(epsilon=1.5)
    estimator.set_params(epsilon=1.0, bounds=(0, 8), accountant=accountant)
    estimator.fit(X, party=PARTY)
    assert accountant.spent().epsilon == 1.0
    with pytest.raises(BudgetExceededError):
        estimator.fit(X, party=PARTY)
    with pytest.raises(ValueError, match="needs public bounds="):
        estimator.set_params(bounds=None).fit(X, party=PARTY)


@pytest.mark.parametrize(
    "estimator",
    [FederatedStandardScaler(), FederatedPCA(), FederatedKBinsDiscretizer()],
)
def test_an_exact_release_is_refused_by_a_watching_accountant(estimator):
    estimator.set_params(accountant=PrivacyAccountant(epsilon=100.0))
    with pytest.raises(BudgetExceededError):
        estimator.fit(X, party=PARTY)


@pytest.mark.parametrize(
    "bounds", [(1, 0), (0, np.inf), (0,), "ab", ([0, 0], [1, 1, 1])]
)
def test_wrong_bounds(bounds):
    with pytest.raises(ValueError, match="bounds"):
        FederatedStandardScaler(epsilon=1.0, bounds=bounds).fit(X, party=PARTY)


@pytest.mark.parametrize("estimator", TRANSFORMERS)
@pytest.mark.parametrize("routing", [False, True])
def test_in_a_pipeline(estimator, routing):
    with config_context(enable_metadata_routing=routing):
        pipeline = make_pipeline(estimator, FederatedStandardScaler())
        if routing:
            pipeline.fit(X, party=PARTY)
        else:
            steps = [name for name, _ in pipeline.steps]
            pipeline.fit(X, **{f"{step}__party": PARTY for step in steps})
        alone = FederatedStandardScaler().fit(
            estimator.fit(X, party=PARTY).transform(X), party=PARTY
        )
    np.testing.assert_allclose(pipeline[-1].mean_, alone.mean_, atol=1e-12)


@pytest.mark.parametrize("estimator", TRANSFORMERS)
def test_partitions_stay_partitions(estimator):
    partition = HorizontalPartition.from_rows(X, PARTY, y=np.arange(len(X)))
    transformed = estimator.fit(partition).transform(partition)
    assert isinstance(transformed, HorizontalPartition)
    np.testing.assert_allclose(
        transformed._blocks["1"]["X"], estimator.transform(X[PARTY == 1])
    )
    np.testing.assert_array_equal(transformed._blocks["1"]["y"], np.arange(150)[1::4])
    with config_context(transform_output="pandas"):
        assert isinstance(estimator.transform(partition), HorizontalPartition)
        assert isinstance(estimator.fit_transform(partition), HorizontalPartition)


@pytest.mark.parametrize("estimator", TRANSFORMERS)
@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_output_containers(estimator, container):
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    estimator.fit(frame, party=PARTY)
    try:
        out = estimator.set_output(transform=container).transform(frame)
    finally:
        estimator.set_output(transform="default")
    assert list(out.columns) == list(estimator.get_feature_names_out())


@pytest.mark.parametrize("estimator", TRANSFORMERS)
def test_float32_is_kept_unless_noise_may_follow(estimator):
    """One row of text would make float64 of a table of float32, for all rows."""
    estimator.fit(X.astype(np.float32), party=PARTY)
    expected = np.float64 if hasattr(estimator, "privacy_spent_") else np.float32
    assert estimator.transform(X.astype(np.float32)).dtype == expected


def test_values_too_large_for_the_number_format_are_refused():
    with pytest.raises(PartyError, match="too large for the secure sum"):
        FederatedStandardScaler().fit(X * 1e30, party=PARTY)


@pytest.mark.parametrize(
    "party, message", [(None, "party=party"), (PARTY % 2, "with two parties")]
)
def test_what_the_roster_cannot_hide_is_said(party, message):
    with pytest.warns(PrivacyLeakWarning, match=message) as caught:
        FederatedStandardScaler().fit(X, party=party)
    assert caught[0].filename == __file__


def test_plaintext_is_said():
    with pytest.warns(PrivacyLeakWarning, match="plaintext backend hides nothing"):
        FederatedStandardScaler(backend="plaintext").fit(X, party=PARTY)


@pytest.mark.parametrize("n_components", [1, 2, 4, 0.99])
def test_pca_is_a_probabilistic_model_as_scikit_learns(n_components):
    ours = FederatedPCA(n_components).fit(X, party=PARTY)
    theirs = PCA(n_components, svd_solver="full").fit(X)
    assert ours.noise_variance_ == pytest.approx(theirs.noise_variance_, abs=1e-10)
    np.testing.assert_allclose(ours.get_covariance(), theirs.get_covariance())
    np.testing.assert_allclose(ours.get_precision(), theirs.get_precision(), rtol=1e-6)
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X))
    assert ours.score(X) == pytest.approx(theirs.score(X))
    assert ours.score(HorizontalPartition.from_rows(X, PARTY)) == pytest.approx(
        theirs.score(X)
    )


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
@pytest.mark.parametrize("encode", ["ordinal", "onehot-dense"])
def test_bins_of_each_feature_as_scikit_learn_has_them(strategy, encode):
    # a third of 150 is a whole number, and in floats a little more
    rows = X[:-1]
    options = {"n_bins": [2, 3, 6, 4], "strategy": strategy, "encode": encode}
    with pytest.warns(PrivacyLeakWarning):
        ours = FederatedKBinsDiscretizer(**options).fit(rows, party=PARTY[:-1])
    method = {"quantile_method": "inverted_cdf"}
    theirs = KBinsDiscretizer(**options, **method).fit(rows)
    for mine, other in zip(ours.bin_edges_, theirs.bin_edges_):
        np.testing.assert_allclose(mine, other, atol=1e-3)
    assert ours.n_bins_.tolist() == theirs.n_bins_.tolist()
    names = theirs.get_feature_names_out()
    assert list(ours.get_feature_names_out()) == list(names)
    # edges are values of rows, and a hair beside them here
    apart = np.stack(
        [
            np.abs(x[:, None] - e).min(axis=1) > 0.01
            for x, e in zip(rows.T, ours.bin_edges_)
        ]
    ).all(axis=0)
    mine, other = ours.transform(rows[apart]), theirs.transform(rows[apart])
    np.testing.assert_array_equal(mine, other)
    made = ours.inverse_transform(ours.transform(rows))
    np.testing.assert_allclose(
        made, theirs.inverse_transform(ours.transform(rows)), 0.01
    )


@pytest.mark.parametrize(
    "n_bins, message",
    [
        ([2, 3], "one for each of the 4"),
        ([1, 2, 2, 2], "from 2"),
        ([2.5] * 4, "from 2"),
    ],
)
def test_wrong_numbers_of_bins(n_bins, message):
    with pytest.raises(ValueError, match=message):
        FederatedKBinsDiscretizer(n_bins, bounds=(0, 8)).fit(X, party=PARTY)


@pytest.mark.parametrize("weight", [1.0, 1e5, 1e8])
def test_squares_of_many_rows_fit_the_numbers_of_sums(weight):
    """Weights stand in for rows: up to a hundred thousand million of them."""
    weights = np.full(900, weight)
    rows = np.random.default_rng(0).normal(size=(900, 2))
    ours = FederatedStandardScaler().fit(
        rows, party=np.arange(900) % 3, sample_weight=weights
    )
    theirs = StandardScaler().fit(rows, sample_weight=weights)
    np.testing.assert_allclose(ours.var_, theirs.var_, rtol=1e-12)


def test_bounds_by_name_and_as_a_list_of_pairs():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.uniform(3, 9, size=(600, 2)), columns=["age", "sugar"])
    party, options = ["a", "b", "c"] * 200, {"n_bins": 2, "strategy": "uniform"}
    for bounds in (
        ([0, 2], [120, 20]),
        [(0, 120), (2, 20)],
        {"sugar": (2, 20), "age": [0, 120]},
    ):
        binner = FederatedKBinsDiscretizer(bounds=bounds, **options)
        edges = binner.fit(rows, party=party).bin_edges_
        np.testing.assert_array_equal(np.stack(edges), [[0, 60, 120], [2, 11, 20]])
        scaler = FederatedStandardScaler(epsilon=5.0, bounds=bounds)
        assert np.all(np.abs(scaler.fit(rows, party=party).mean_ - 6) < [20, 5])


@pytest.mark.parametrize(
    "bounds, message",
    [
        ({"age": (0, 1), "suger": (0, 1)}, "names 'suger'.*did you mean 'sugar'"),
        ({"age": (0, 1)}, r"lacks columns \['sugar'\]"),
        ({"age": (0, 1), "sugar": 5}, r"\{'age': \(0, 120\), ...\}"),
        ([(0, 1), (0, 1, 2)], r"\[\(low, high\), ...\]"),
    ],
)
def test_bounds_that_do_not_fit_the_columns(bounds, message):
    rows = pd.DataFrame(np.ones((6, 2)), columns=["age", "sugar"])
    with pytest.raises(ValueError, match=message):
        FederatedStandardScaler(epsilon=1.0, bounds=bounds).fit(rows)


@pytest.mark.parametrize("options", [{}, {"epsilon": 1.0, "bounds": (0, 9)}])
def test_dates_are_named(options):
    days = pd.date_range("2026-01-01", periods=6)
    rows = pd.DataFrame({"age": np.arange(6.0), "admitted": days})
    scaler, message = (
        FederatedStandardScaler(**options),
        "columns .'admitted'. are dates",
    )
    with pytest.raises(ValueError, match=message):
        scaler.fit(rows)
    with pytest.raises(ValueError, match=message):
        scaler.fit(HorizontalPartition({"a": rows[:3], "b": rows[3:]}))
    with pytest.raises(ValueError, match="X holds dates"):
        scaler.fit(days.to_numpy()[:, None])


def test_arguments_of_fit_that_are_called_otherwise():
    X, labels = np.ones((6, 2)), ["a", "b"] * 3
    with pytest.raises(
        TypeError, match=r"StandardScaler.fit\(\) .* did you mean party="
    ):
        FederatedStandardScaler().fit(X, parties=labels)
    with pytest.raises(
        TypeError, match=r"^FederatedPCA.fit\(\) .* party= or individual="
    ):
        FederatedPCA().fit(X, groups=labels)
    with pytest.raises(TypeError, match=r"FederatedPCA\(whiten=...\)"):
        FederatedPCA().fit(X, whitenn=True)
    with pytest.raises(TypeError, match="it takes X, y, party, individual"):
        FederatedPCA().fit(X, zzz=1)
