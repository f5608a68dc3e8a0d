"""FederatedGaussianBayesianNetwork: one secure sum, then any search."""

import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skprivbn.datasets import load_sachs, make_linear_sem
from skprivbn.exceptions import BudgetExceededError, PrivacyLeakWarning
from skprivbn.metrics import structural_hamming_distance
from skprivbn.partition import HorizontalPartition
from skprivbn.preprocessing import FederatedStandardScaler
from skprivbn.privacy import PrivacyAccountant
from skprivbn.programs import Moments
from skprivbn.structure import (
    FederatedDynotears,
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
)
from skprivbn.structure.gaussian._program import (
    NetworkMomentsTerms,
    network_moments,
    read_noisy,
    words_of_hidden_edges,
)
from skprivbn.structure.gaussian._scores import (
    FeatureMoments,
    effective_rows,
    expand,
    graph_score,
    noise_on_correlations,
)
from skprivbn.structure.gaussian._search import SEARCHES, search
from skprivbn.utils._linalg import symmetric


@pytest.fixture(scope="module")
def linear():
    X, weights = make_linear_sem(400, 6, random_state=1)
    return X, weights, np.arange(400) % 5


@pytest.mark.parametrize("centre", ["pooled", "party"])
@pytest.mark.parametrize("basis", ["sigmoid", "polynomial"])
def test_moments_of_rows_and_of_functions_are_numpys(centre, basis):
    rng = np.random.default_rng(0)
    X, party = rng.normal(3.0, 2.0, size=(60, 3)), np.arange(60) % 4
    X += 50.0 * rng.normal(size=(4, 3))[party]
    terms = NetworkMomentsTerms(centre=centre, basis=basis)
    partition = HorizontalPartition.from_rows(X, party)
    with partition.federate(network_moments, terms, "masking") as federation:
        found = federation.run()

    def covariance(rows):
        about = np.tile(rows.mean(axis=0), (60, 1))
        if centre == "party":
            about = np.array([rows[party == k].mean(axis=0) for k in party])
        return (rows - about).T @ (rows - about) / 60

    np.testing.assert_allclose(found["mean"], X.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(found["covariance"], covariance(X), rtol=1e-10)
    scale = np.sqrt(np.diag(covariance(X)))
    Z = expand((X - X.mean(axis=0)) / scale, basis)
    np.testing.assert_allclose(
        symmetric(found["functions"]), covariance(Z), rtol=1e-9, atol=1e-9
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
    facts = many.ledger_.facts()
    assert len({fact.what for fact in facts if fact.who == "all parties"}) == 3


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


#: those that do not need noise of another kind than normal
OF_NORMAL_ROWS = sorted(SEARCHES.keys() - {"lingam"})


@pytest.mark.parametrize("search", OF_NORMAL_ROWS)
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


def test_auto_leaves_equal_variances_where_they_do_not_hold():
    truth = load_sachs().adjacency_matrix
    X = load_sachs().data
    rows = np.random.RandomState(0).permutation(853)[:512]
    party = np.arange(512) % 8
    auto = FederatedGaussianBayesianNetwork().fit(X[rows], party=party)
    assert auto.method_ == "lingam"  # concentrations are skewed
    equal = FederatedGaussianBayesianNetwork("equal_variance")
    with pytest.warns(UserWarning, match="comparable units"):
        equal.fit(X[rows], party=party)
    assert structural_hamming_distance(
        truth, auto.adjacency_matrix_
    ) <= structural_hamming_distance(truth, equal.adjacency_matrix_)


def test_parties_that_differ_in_level_and_noise():
    """Pooled within-party covariances keep the weights, whatever the noise."""
    rng = np.random.default_rng(0)
    weights = np.array([[0.0, 1.5, 0.0], [0.0, 0.0, -1.0], [0.0, 0.0, 0.0]])
    blocks = {}
    for name, noise in (("a", 0.5), ("b", 1.0), ("c", 2.0)):
        N = rng.normal(size=(2000, 3)) * noise + rng.normal(0, 30, size=3)
        blocks[name] = N @ np.linalg.inv(np.eye(3) - weights)
    partition = HorizontalPartition(blocks)
    within = FederatedGaussianBayesianNetwork(site_effects="levels").fit(partition)
    np.testing.assert_array_equal(within.adjacency_matrix_, weights != 0)
    np.testing.assert_allclose(within.weights_, weights, atol=0.05)
    pooled = FederatedGaussianBayesianNetwork().fit(partition)
    assert not np.array_equal(pooled.adjacency_matrix_, weights != 0)


def test_standardised_data_warn_except_where_it_does_not_matter(linear, recwarn):
    X, _, party = linear
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    FederatedGaussianBayesianNetwork("bic").fit(X, party=party)
    assert not recwarn.list
    FederatedGaussianBayesianNetwork().fit(X, party=party)
    assert not recwarn.list
    with pytest.warns(UserWarning, match="standardising"):
        FederatedGaussianBayesianNetwork("equal_variance").fit(X, party=party)


def test_most_columns_standardised_warn_too(linear):
    X, _, party = linear
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    X[:, 0] *= 7.0
    with pytest.warns(UserWarning, match="most variables have nearly the same"):
        FederatedGaussianBayesianNetwork("equal_variance").fit(X, party=party)


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


def test_climbing_on_a_score_without_units_is_not_stuck_on_standardised_columns():
    X, _ = make_linear_sem(256, 12, random_state=1)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    moments = Moments(256, X.mean(axis=0), np.cov(X.T, bias=True))
    features = FeatureMoments.linear(moments.covariance, moments.n_rows)

    def score(method):
        found = search(method, moments, lambda1=0.1, threshold=0.3, significance=0.05)
        return graph_score(features, found.adjacency, equal_variances=False)

    assert score("bic") >= score("ges") - 1e-6 > score("golem")


@pytest.mark.parametrize("method", OF_NORMAL_ROWS)
def test_searches_survive_moments_that_are_nothing_but_noise(method):
    """Even if more variances come out negative than positive."""
    d, rng = 4, np.random.default_rng(0)
    bounds = np.array([np.full(d, -5.0), np.full(d, 5.0)])
    terms = NetworkMomentsTerms(bounds=bounds, epsilon=1e-4, delta=1e-6)
    std, size = terms.noise(d, 3).std, 1 + d + d * (d + 1) // 2
    totals = rng.normal(size=(8, size)) * std
    totals[0, 1 + d :] = -abs(totals[0, 1 + d :])
    for total in totals:
        moments = read_noisy({"noisy": total}, terms, 3)
        assert moments.warnings[0].startswith("privacy noise is as large")
        assert np.linalg.eigvalsh(moments.covariance)[0] > 0
        assert np.all(np.abs(moments.mean) <= 5.0)
        found = search(method, moments, lambda1=0.1, threshold=0.3, significance=0.05)
        assert found.adjacency.shape == (d, d)


def test_noise_counts_as_lost_rows_whatever_the_units():
    """In units of the noise, a column in metres is one in millimetres."""
    X, _ = make_linear_sem(5000, 4, random_state=0)
    units = np.array([1.0, 1e3, 1e-3, 10.0])
    rows = []
    for scale in (np.ones(4), units):
        covariance = np.cov((scale * X).T, bias=True)
        moments = Moments(5000, scale * X.mean(axis=0), covariance, 0.1 * scale)
        rows.append(effective_rows(moments))
    assert rows[0] < 4500
    assert rows[1] == pytest.approx(rows[0], rel=1e-6)
    assert effective_rows(replace(moments, noise=0.0)) == 5000


def test_noise_on_partial_correlations_is_what_simulation_finds():
    X, _ = make_linear_sem(5000, 4, random_state=0)
    covariance, noise = np.cov(X.T, bias=True), np.full(4, 0.1)
    rng, found = np.random.default_rng(0), []
    for _ in range(500):
        added = np.triu(rng.normal(size=(4, 4)) * 0.01)
        K = np.linalg.inv(covariance + added + np.triu(added, 1).T)
        found.append(K / np.sqrt(np.outer(np.diag(K), np.diag(K))))
    pairs = np.std(found, axis=0)[np.triu_indices(4, 1)]
    moments = Moments(5000, X.mean(axis=0), covariance, noise)
    expected = noise_on_correlations(moments)
    assert pairs.min() / 1.5 < expected < 1.5 * pairs.max()


def test_hidden_edges_are_told_with_the_rows_that_would_show_them():
    X, _ = make_linear_sem(20_000, 4, random_state=0)
    covariance = np.cov(X.T, bias=True)
    moments = Moments(20_000, X.mean(axis=0), covariance, np.full(4, 0.2))
    [said] = words_of_hidden_edges(moments)
    [needed] = re.findall(r"about ([\d,]+) rows would show 0.3", said)
    times = float(needed.replace(",", "")) / 20_000
    assert times > 1
    # noise on a covariance falls by the rows; one digit is printed
    for factor, is_quiet in ((1.6, True), (0.6, False)):
        rows = moments.n_rows * times * factor
        less = replace(
            moments, n_rows=rows, noise=moments.noise / np.sqrt(times * factor)
        )
        assert (not words_of_hidden_edges(less)) == is_quiet
    [said] = words_of_hidden_edges(replace(moments, noise=np.full(4, 3.0)))
    assert "many times the rows" in said


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
        pytest.warns(PrivacyLeakWarning, match="StandardScaler in front of"),
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


@pytest.mark.parametrize(
    "method", ["auto", "equal_variance", "bic", "exact", "ges", "pc"]
)
def test_rules_about_edges_are_kept(method):
    X, weights = make_linear_sem(400, 6, random_state=0)
    parent, child = np.argwhere(weights)[0].tolist()
    party = np.arange(400) % 3
    for rules, holds in (
        ({"required_edges": [(child, parent)]}, lambda g: g[child, parent]),
        ({"forbidden_edges": [(parent, child)]}, lambda g: not g[parent, child]),
        ({"tiers": [[3, 4, 5], [0, 1, 2]]}, lambda g: not g[:3, 3:].any()),
    ):
        model = FederatedGaussianBayesianNetwork(method, search_params=rules)
        if method == "pc":
            with pytest.raises(ValueError, match="cannot keep the edge rules"):
                model.fit(X, party=party)
        else:
            assert holds(model.fit(X, party=party).adjacency_matrix_)
    model = FederatedGaussianBayesianNetwork(search_params={"required_edges": [(0, 0)]})
    with pytest.raises(ValueError, match="with itself"):
        model.fit(X, party=party)
