"""FederatedGaussianBayesianNetwork: one secure sum, then any search."""

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skprivbn.bayesian_network import GaussianBayesianNetwork
from skprivbn.datasets import load_sachs, make_linear_sem
from skprivbn.exceptions import BudgetExceededError, PrivacyLeakWarning
from skprivbn.metrics import structural_hamming_distance
from skprivbn.partition import HorizontalPartition
from skprivbn.preprocessing import FederatedStandardScaler
from skprivbn.privacy import PrivacyAccountant, distribute
from skprivbn.structure import (
    FederatedDynotears,
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
)
from skprivbn.structure.gaussian._hill_climbing import FeatureMoments, graph_score
from skprivbn.structure.gaussian._moments import RowGrid, moment_sums, read_moments
from skprivbn.structure.gaussian._search import SEARCHES, held_out, search


@pytest.fixture(scope="module")
def linear():
    X, weights = make_linear_sem(400, 6, random_state=1)
    return X, weights, np.arange(400) % 5


def test_moments_are_those_of_the_rows():
    X = np.random.default_rng(0).normal(3.0, 2.0, size=(40, 4))
    parts = [moment_sums(part) for part in np.array_split(X, 7)]
    moments = read_moments(np.sum(parts, axis=0))
    assert moments.n_rows == 40
    np.testing.assert_allclose(moments.mean, X.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(moments.covariance, np.cov(X.T, bias=True), atol=1e-11)


def test_party_centring_removes_levels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    levels = rng.normal(0, 50, size=(3, 3))
    blocks = [X[k::3] + levels[k] for k in range(3)]
    plain = [moment_sums(X[k::3], "party") for k in range(3)]
    moved = [moment_sums(block, "party") for block in blocks]
    np.testing.assert_allclose(
        read_moments(np.sum(moved, axis=0), "party").covariance,
        read_moments(np.sum(plain, axis=0), "party").covariance,
        atol=1e-10,
    )


@pytest.mark.parametrize("backend", ["masking", "ckks", "paillier"])
def test_any_number_of_parties_gives_the_same_model(linear, backend):
    X, _, party = linear
    with pytest.warns(PrivacyLeakWarning, match="one party"):
        one = FederatedGaussianBayesianNetwork().fit(X)
    many = FederatedGaussianBayesianNetwork(backend=backend).fit(X, party=party)
    np.testing.assert_array_equal(one.adjacency_matrix_, many.adjacency_matrix_)
    np.testing.assert_allclose(one.weights_, many.weights_, rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        one.network_.variances, many.network_.variances, atol=1e-9
    )
    sums = [e for e in many.ledger_.entries if e.receiver == "coordinator"]
    assert sum(entry.operation == "moments" for entry in sums) == 5


def test_parameters_are_least_squares_on_the_rows(linear):
    X, _, party = linear
    network = FederatedGaussianBayesianNetwork().fit(X, party=party).network_
    for j in range(6):
        parents = np.flatnonzero(network.adjacency_matrix[:, j])
        design = np.column_stack([np.ones(len(X)), X[:, parents]])
        solved, *_ = np.linalg.lstsq(design, X[:, j], rcond=None)
        assert network.intercepts[j] == pytest.approx(solved[0], abs=1e-8)
        np.testing.assert_allclose(network.weights[parents, j], solved[1:], atol=1e-8)
        rest = X[:, j] - design @ solved
        assert network.variances[j] == pytest.approx(np.mean(rest**2))


@pytest.mark.parametrize("search", SEARCHES)
def test_every_search_finds_the_skeleton(linear, search):
    X, weights, party = linear
    model = FederatedGaussianBayesianNetwork(search).fit(X, party=party)
    truth = (weights != 0) | (weights != 0).T
    found = model.adjacency_matrix_ | model.adjacency_matrix_.T
    # what one of two nearly cancelling paths explains may be left out
    assert np.triu(truth != found).sum() <= 2
    if search in ("equal_variance", "golem", "notears"):
        assert structural_hamming_distance(weights, model.adjacency_matrix_) <= 1
    either = model.cpdag_ | model.cpdag_.T
    np.testing.assert_array_equal(either, found)


@pytest.mark.slow
def test_better_than_the_bars_of_the_paper_simulation():
    """(20, 10, 60): mean distance at most 1.5 over many graphs; here with slack."""
    distances = []
    for seed in range(10):
        X, weights = make_linear_sem(60, 20, random_state=seed)
        model = FederatedGaussianBayesianNetwork(backend="plaintext")
        with pytest.warns(PrivacyLeakWarning, match="plaintext"):
            model.fit(X, party=np.arange(60) % 10)
        distances.append(structural_hamming_distance(weights, model.adjacency_matrix_))
    assert np.mean(distances) <= 2.5


def test_held_out_likelihood_from_moments_alone(linear):
    X, weights, _ = linear
    learning, other = X[:300], X[300:]
    moments = [read_moments(moment_sums(rows)) for rows in (learning, other)]
    network = GaussianBayesianNetwork.fit_from_moments(
        learning.mean(axis=0), np.cov(learning.T, bias=True), weights != 0
    )
    expected = network.log_likelihood(other).mean()
    assert held_out(weights != 0, *moments) == pytest.approx(expected)


def test_auto_leaves_equal_variances_where_they_do_not_hold():
    truth = load_sachs().adjacency_matrix
    X = load_sachs().data
    rows = np.random.RandomState(0).permutation(853)[:512]
    party = np.arange(512) % 8
    auto = FederatedGaussianBayesianNetwork("auto", random_state=0)
    auto.fit(X[rows], party=party)
    assert auto.method_ != "equal_variance"
    equal = FederatedGaussianBayesianNetwork().fit(X[rows], party=party)
    assert structural_hamming_distance(
        truth, auto.adjacency_matrix_
    ) <= structural_hamming_distance(truth, equal.adjacency_matrix_)
    # what was set aside is not lost: parameters are those of all rows
    np.testing.assert_allclose(auto.network_.mean, X[rows].mean(axis=0))


def test_parties_that_differ_in_level_and_noise():
    """Pooled within-party covariances keep the weights, whatever the noise."""
    rng = np.random.default_rng(0)
    weights = np.array([[0.0, 1.5, 0.0], [0.0, 0.0, -1.0], [0.0, 0.0, 0.0]])
    blocks = {}
    for name, noise in (("a", 0.5), ("b", 1.0), ("c", 2.0)):
        N = rng.normal(size=(2000, 3)) * noise + rng.normal(0, 30, size=3)
        blocks[name] = N @ np.linalg.inv(np.eye(3) - weights)
    partition = HorizontalPartition(blocks)
    within = FederatedGaussianBayesianNetwork(centre="party").fit(partition)
    np.testing.assert_array_equal(within.adjacency_matrix_, weights != 0)
    np.testing.assert_allclose(within.weights_, weights, atol=0.05)
    pooled = FederatedGaussianBayesianNetwork().fit(partition)
    assert not np.array_equal(pooled.adjacency_matrix_, weights != 0)


def test_standardised_data_warn_except_where_it_does_not_matter(linear, recwarn):
    X, _, party = linear
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    FederatedGaussianBayesianNetwork("bic").fit(X, party=party)
    assert not recwarn.list
    with pytest.warns(UserWarning, match="standardising"):
        FederatedGaussianBayesianNetwork().fit(X, party=party)


def test_most_columns_standardised_warn_too(linear):
    X, _, party = linear
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    X[:, 0] *= 7.0
    with pytest.warns(UserWarning, match="most variables have nearly the same"):
        FederatedGaussianBayesianNetwork().fit(X, party=party)


def test_more_columns_than_rows_warn_unless_noise_hides_how_many_there_are(recwarn):
    rows = np.random.default_rng(0).normal(size=(15, 18))
    party = np.arange(15) % 3
    with pytest.warns(UserWarning, match="15 rows of 18 variables"):
        model = FederatedGaussianBayesianNetwork("auto").fit(rows, party=party)
    assert model.method_ == "pc" and model.adjacency_matrix_.sum() < 6
    recwarn.clear()
    private = {"epsilon": 5.0, "bounds": (-4, 4)}
    FederatedGaussianBayesianNetwork("ges", **private).fit(rows, party=party)
    assert not [w for w in recwarn if "rows of 18" in str(w.message)]


def test_bad_input(linear):
    X, _, party = linear
    with pytest.raises(ValueError, match="basis"):
        FederatedGaussianBayesianNetwork("pc", basis="sigmoid").fit(X, party=party)
    with pytest.raises(ValueError, match="public bounds"):
        FederatedGaussianBayesianNetwork(epsilon=1.0).fit(X, party=party)
    with pytest.raises(ValueError, match="must be a pair"):
        FederatedGaussianBayesianNetwork(epsilon=1.0, bounds=[1, 2, 3]).fit(
            X, party=party
        )
    with pytest.raises(ValueError, match="below its upper"):
        FederatedGaussianBayesianNetwork(epsilon=1.0, bounds=(1, 1)).fit(X, party=party)
    single = HorizontalPartition({"a": X[:1], "b": X[1:40], "c": X[40:]})
    assert FederatedGaussianBayesianNetwork().fit(single).n_samples_ == 400


def test_no_row_changes_the_sums_by_more_than_the_sensitivity():
    rng = np.random.default_rng(0)
    grid = RowGrid.from_bounds(([-1, -5, 0], [1, 5, 0.1]), 3)
    corners = np.array(np.meshgrid(*zip(grid.low, grid.high))).reshape(3, -1).T
    rows = np.vstack([corners, 100 * corners, rng.normal(size=(200, 3)) * [1, 5, 0.1]])
    for row in rows:
        sums = grid.sums(row[None]).astype(float)
        assert np.linalg.norm(sums) <= grid.l2_sensitivity
        assert np.abs(sums).sum() <= grid.l1_sensitivity
    # the bound on the length is nearly attained, or noise would be wasted
    thin = RowGrid.from_bounds((-1.0, 1.0), 1)
    assert np.linalg.norm(thin.sums(np.ones((1, 1)))) > 0.99 * thin.l2_sensitivity


def test_grid_moments_without_noise():
    X = np.random.default_rng(0).uniform(-1, 3, size=(500, 3))
    moments = RowGrid.from_bounds((-1, 3), 3)
    read = moments.read(moments.sums(X))
    assert read.n_rows == pytest.approx(500)
    np.testing.assert_allclose(read.mean, X.mean(axis=0), atol=2e-3)
    np.testing.assert_allclose(read.covariance, np.cov(X.T, bias=True), atol=5e-3)


def test_small_budgets_coarsen_the_grid_and_keep_the_sensitivity():
    from skprivbn.structure.gaussian._moments_protocol import calibrate

    grid = RowGrid.from_bounds((-1, 1), 4)
    assert grid.coarsened(1.0, 0.0) == grid == grid.coarsened(1e-7, 1e-6)
    with pytest.raises(ValueError, match="does not fit 64-bit integers"):
        calibrate(grid, 1e-7, 0.0)
    coarse = grid.coarsened(1e-7, 0.0)
    assert calibrate(coarse, 1e-7, 0.0).sensitivity == coarse.l1_sensitivity
    corner = np.ones((1, 4))
    assert 0.8 < np.abs(coarse.sums(corner)).sum() / coarse.l1_sensitivity <= 1.0
    np.testing.assert_allclose(coarse.read(5 * coarse.sums(corner)).mean, 1.0, atol=0.1)


def test_climbing_on_a_score_without_units_is_not_stuck_on_standardised_columns():
    X, _ = make_linear_sem(256, 12, random_state=1)
    moments = read_moments(moment_sums((X - X.mean(axis=0)) / X.std(axis=0)))
    features = FeatureMoments.linear(moments.covariance, moments.n_rows)

    def score(method):
        found = search(method, moments, lambda1=0.1, threshold=0.3, significance=0.05)
        return graph_score(features, found.adjacency, equal_variances=False)

    assert score("bic") >= score("ges") - 1e-6 > score("golem")


@pytest.mark.parametrize("method", SEARCHES)
def test_searches_survive_moments_that_are_nothing_but_noise(method):
    """Even if more variances come out negative than positive."""
    d, rng = 4, np.random.default_rng(0)
    grid = RowGrid.from_bounds((-5, 5), d)
    totals = rng.normal(size=(8, 1 + d + d * (d + 1) // 2)) * 1e4 * grid.levels**2
    totals[0, 1 + d :] = -abs(totals[0, 1 + d :])
    for total in totals:
        moments = grid.read(total, 1e4 * grid.levels**2)
        assert np.linalg.eigvalsh(moments.covariance)[0] > 0
        assert np.all(np.abs(moments.mean) <= 5.0)
        found = search(method, moments, lambda1=0.1, threshold=0.3, significance=0.05)
        assert found.adjacency.shape == (d, d)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_private_statistics(delta):
    X, weights = make_linear_sem(50_000, 4, random_state=1)
    party = np.arange(50_000) % 4
    # chance plays no part: at epsilon 15 one graph of sixteen is another
    accountant = PrivacyAccountant(epsilon=101.0, delta=1e-6)
    model = FederatedGaussianBayesianNetwork(
        epsilon=100.0, delta=delta, bounds=(-15, 15), accountant=accountant
    ).fit(X, party=party)
    assert 0 < accountant.spent().epsilon <= 100.0 + 1e-9
    assert structural_hamming_distance(weights, model.adjacency_matrix_) <= 1
    assert model.n_samples_ == pytest.approx(50_000, rel=0.01)
    assert model.n_samples_ != 50_000
    table = model.ledger_.who_learns_what()
    assert "noise" in str(table)
    assert any("colluding" in note for note in model.ledger_.notes)
    with pytest.raises(BudgetExceededError):
        model.fit(X, party=party)


def test_noise_has_the_standard_deviation_it_claims():
    """On empty-handed rows (all at the centre) every sum is noise but the count."""
    from skprivbn.structure.gaussian._moments_protocol import calibrate

    d = 30
    X = np.zeros((30, d))
    grid = RowGrid.from_bounds((-1, 1), d)
    noise = distribute(calibrate(grid, 1.0, 1e-6), 3)
    total = sum(noise.share(8000) for _ in range(3))
    assert total.std() == pytest.approx(noise.std, rel=0.1)
    # calibrated to the bound on one row's change, not below it
    assert noise.sensitivity >= grid.l2_sensitivity
    assert np.linalg.norm(grid.sums(X[:1])) <= noise.sensitivity


def test_search_over_lambda_and_epsilon_in_a_pipeline(linear):
    X, _, party = linear
    pipeline = make_pipeline(
        FederatedStandardScaler(with_std=False),
        FederatedGaussianBayesianNetwork("notears"),
    )
    name = "federatedgaussianbayesiannetwork"
    grid = GridSearchCV(
        pipeline,
        {f"{name}__lambda1": [0.05, 0.5], f"{name}__epsilon": [None, 20.0]},
        cv=2,
        error_score="raise",
    )
    pipeline.set_params(**{f"{name}__bounds": (-15, 15), f"{name}__delta": 1e-6})
    import sklearn

    with (
        sklearn.config_context(enable_metadata_routing=True),
        pytest.warns(PrivacyLeakWarning, match="this is the second fit"),
    ):
        grid.fit(X, party=party)
    assert grid.best_params_[f"{name}__epsilon"] is None
    assert np.isfinite(grid.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize(
    "learner",
    [
        FederatedGaussianBayesianNetwork(),
        FederatedNotearsADMM(max_iter=2),
        FederatedDynotears(max_iter=2),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_columns_that_do_not_vary_are_named(linear, learner):
    X, _, party = linear
    constant = np.column_stack([X, np.full(len(X), 7.1)])
    with pytest.raises(ValueError, match=r"\['x6'\] are constant"):
        learner.fit(constant, party=np.sort(party))
