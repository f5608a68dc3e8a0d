"""Columns in other units, and far from zero: linear networks do not mind, or say so."""

import numpy as np
import pytest
from scipy.stats import norm

from skprivbn.datasets import make_linear_sem, make_var_sem
from skprivbn.metrics import structural_hamming_distance
from skprivbn.partition import HorizontalPartition
from skprivbn.programs._moments import Moments
from skprivbn.structure import (
    FederatedDynotears,
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    Notears,
    VotingStructureLearner,
)
from skprivbn.structure._learnt import MAX_NOISE_RATIO, vary
from skprivbn.structure.gaussian._search import choose, search
from tests.federation.site.loopback import open_sites

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)
OPTIONS = {"lambda1": 0.1, "threshold": 0.3, "significance": 0.01}
NETWORKS = {"method": "mlp", "random_state": 0, "max_iter": 6}
NETWORKS |= {"mlp_params": {"n_hidden": 2}}


def moments_of(X):
    return Moments(float(len(X)), X.mean(axis=0), np.cov(X.T, bias=True))


def some_units(seed, d):
    return 10 ** np.random.default_rng(seed).uniform(-1.5, 1.5, size=d)


@pytest.fixture(scope="module")
def linear():
    X, weights = make_linear_sem(300, 5, random_state=1)
    return X, weights != 0, np.sort(np.arange(300) % 3)


@pytest.mark.parametrize("seed", range(3))
def test_the_default_does_not_follow_units(seed):
    X, weights = make_linear_sem(1000, 10, random_state=seed)
    truth, scaled = weights != 0, X * some_units(seed, 10)
    party = np.arange(1000) % 3

    def distance(X, *method):
        learner = FederatedGaussianBayesianNetwork(*method).fit(X, party=party)
        return structural_hamming_distance(truth, learner.adjacency_matrix_), learner

    plain, found = distance(X)
    assert plain == 0 and found.method_ == "equal_variance"
    far, found = distance(scaled)
    assert found.method_ == "bic"
    # what a search finds that knows independences only
    np.testing.assert_array_equal(found.cpdag_, distance(scaled, "ges")[1].cpdag_)
    with pytest.warns(UserWarning, match="comparable units"):
        assert far + 3 < distance(scaled, "equal_variance")[0]


@pytest.mark.parametrize("method", ["ges", "bic", "auto", "exact"])
@pytest.mark.parametrize("seed", range(6))
def test_the_graph_is_the_same_in_all_units(method, seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(40, 400)), int(rng.integers(4, 9))
    noise_scale = rng.uniform(0.3, 3.0, size=d)
    X, _ = make_linear_sem(n, d, noise_scale=noise_scale, random_state=seed)
    learner = FederatedGaussianBayesianNetwork(method)
    first, *others = (
        learner.fit(
            X * 10.0 ** rng.uniform(-spread, spread, size=d), party=np.arange(n) % 3
        ).adjacency_matrix_
        for spread in (1.5, 3.0, 6.0)
    )
    assert first.any()
    for graph in others:
        np.testing.assert_array_equal(graph, first)


def test_directions_do_not_depend_on_how_rows_are_spread():
    """An edge that could point either way gains the same in both directions."""
    for seed in range(6):
        X, _ = make_linear_sem(400, 8, random_state=seed)
        X = X * some_units(seed, 8)
        graphs = [
            FederatedGaussianBayesianNetwork()
            .fit(X, party=np.arange(400) % n_parties)
            .adjacency_matrix_
            for n_parties in (3, 5, 8)
        ]
        np.testing.assert_array_equal(graphs[0], graphs[1])
        np.testing.assert_array_equal(graphs[0], graphs[2])


def bic(X, graph, equal_variances):
    """Bayesian information criterion of a graph, by regressions on the rows."""
    n, d = X.shape
    rest = []
    for j in range(d):
        design = np.column_stack([np.ones(n), X[:, graph[:, j]]])
        rest.append(X[:, j] - design @ np.linalg.lstsq(design, X[:, j], rcond=None)[0])
    scales = np.sqrt(np.mean(np.square(rest), axis=1))
    if equal_variances:
        scales = np.full(d, np.sqrt(np.mean(scales**2)))
    fit = sum(norm.logpdf(r, scale=s).sum() for r, s in zip(rest, scales))
    n_parameters = graph.sum() + (1 if equal_variances else d)
    return fit - 0.5 * n_parameters * np.log(n) - graph.sum() * np.log(d)


@pytest.mark.parametrize("noise", ["gaussian", "exponential"])
@pytest.mark.parametrize("spread", [0.0, 0.15, 0.3, 1.0])
def test_auto_compares_criteria_of_the_rows(noise, spread):
    chosen = set()
    for seed in range(4):
        scales = np.exp(np.random.default_rng(seed).uniform(-spread, spread, size=5))
        X, _ = make_linear_sem(
            200, 5, noise=noise, noise_scale=scales, random_state=seed
        )
        moments = moments_of(X)
        method, found = choose(moments, **OPTIONS)
        one, each = (
            search(name, moments, **OPTIONS).adjacency
            for name in ("equal_variance", "bic")
        )
        is_one = bic(X, one, True) >= bic(X, each, False)
        assert method == ("equal_variance" if is_one else "bic")
        np.testing.assert_array_equal(found.adjacency, one if is_one else each)
        chosen.add(method)
    if spread == 1.0:
        assert chosen == {"bic"}
    elif spread == 0.0 and noise == "gaussian":
        assert chosen == {"equal_variance"}


def test_auto_weighs_basis_functions_too():
    X, _ = make_linear_sem(400, 4, random_state=0)
    party = np.arange(400) % 3
    learner = FederatedGaussianBayesianNetwork(basis="sigmoid").fit(X, party=party)
    assert learner.method_ == "equal_variance" and learner.n_iter_ == 3
    learner.fit(X * [0.01, 1.0, 30.0, 200.0], party=party)
    assert learner.method_ == "bic"
    named = FederatedGaussianBayesianNetwork("bic", basis="sigmoid")
    named.fit(X * [0.01, 1.0, 30.0, 200.0], party=party)
    np.testing.assert_array_equal(learner.adjacency_matrix_, named.adjacency_matrix_)


def test_auto_with_noise_and_for_columns_of_parties():
    X, _ = make_linear_sem(50_000, 4, random_state=1)
    party = np.arange(50_000) % 4
    # chance plays no part
    units, budget = np.array([1.0, 20.0, 1.0, 1.0]), {"epsilon": 1e3, "delta": 1e-6}
    for factor, method in ((np.ones(4), "equal_variance"), (units, "bic")):
        bounds = (-15 * factor, 15 * factor)
        learner = FederatedGaussianBayesianNetwork(bounds=bounds, **budget)
        assert learner.fit(X * factor, party=party).method_ == method
        columns = FederatedGaussianBayesianNetwork(parties={"a": [0, 1], "b": [2, 3]})
        assert columns.fit(X[:300] * factor).method_ == method


LEARNERS = {
    "equal variances": FederatedGaussianBayesianNetwork("equal_variance"),
    "golem": FederatedGaussianBayesianNetwork("golem"),
    "notears": FederatedGaussianBayesianNetwork("notears"),
    "linear rounds": FederatedNotearsADMM(),
    "networks in rounds": FederatedNotearsADMM(**NETWORKS | {"max_iter": 40}),
    "pooled": Notears(),
    "votes": VotingStructureLearner(),
    "columns": FederatedGaussianBayesianNetwork(
        "equal_variance", parties={"a": [0, 1, 2], "b": [3, 4]}
    ),
}


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("is_scaled", [False, True])
def test_methods_that_assume_comparable_units_say_so(linear, recwarn, name, is_scaled):
    X, _, party = linear
    factors = np.array([1.0, 1.0, 20.0, 1.0, 0.3]) if is_scaled else 1.0
    held = {} if name in ("pooled", "columns") else {"party": party}
    LEARNERS[name].fit(X * factors, **held)
    said = [str(w.message) for w in recwarn if "comparable units" in str(w.message)]
    assert len(said) == is_scaled
    if is_scaled:
        assert "'x2' has the largest" in said[0]
        assert "Use FederatedGaussianBayesianNetwork()" in said[0]


def test_small_parties_do_not_hide_that_columns_were_standardised():
    X, _ = make_linear_sem(256, 20, random_state=0)
    party = np.arange(256) % 8
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    with pytest.warns(UserWarning, match="after standardising"):
        FederatedNotearsADMM().fit(X, party=party)


def test_series_in_other_units_warn(recwarn):
    X, series, *_ = make_var_sem(100, 4, n_series=6, random_state=0)
    learner = FederatedDynotears()
    learner.fit(X, series=series, party=series % 3)
    assert not [w for w in recwarn if "comparable units" in str(w.message)]
    with pytest.warns(UserWarning, match="DYNOTEARS assumes"):
        learner.fit(X * [1, 100, 1, 1], series=series, party=series % 3)


def make_golem(**options):
    return FederatedGaussianBayesianNetwork("golem", **options)


@pytest.mark.parametrize("make", [FederatedNotearsADMM, make_golem])
def test_privacy_noise_is_not_taken_for_units(linear, recwarn, make):
    X, _, party = linear
    for seed in range(3):
        learner = make(epsilon=1.0 + seed, delta=1e-6, bounds=(-15, 15))
        learner.fit(X, party=party)
    assert not [w for w in recwarn if "comparable units" in str(w.message)]
    X, _ = make_linear_sem(50_000, 3, random_state=1)
    factors = np.array([1.0, 20.0, 1.0])
    bounds = (-15 * factors, 15 * factors)
    learner = make(epsilon=1e3, delta=1e-6, bounds=bounds)
    with pytest.warns(UserWarning, match="comparable units"):
        learner.fit(X * factors, party=np.arange(len(X)) % 3)


def test_as_many_columns_as_rows_leave_no_units_to_speak_of(recwarn):
    X = np.random.default_rng(0).normal(size=(12, 12))
    Notears(lambda1=0.0).fit(X)
    assert not [w for w in recwarn if "comparable units" in str(w.message)]


FAR = {
    "one sum": FederatedGaussianBayesianNetwork(),
    "party means": FederatedGaussianBayesianNetwork(site_effects="levels"),
    "basis": FederatedGaussianBayesianNetwork(basis="sigmoid"),
    "linear rounds": FederatedNotearsADMM(),
    "networks in rounds": FederatedNotearsADMM(**NETWORKS),
    "series": FederatedDynotears(),
    "votes": VotingStructureLearner(acyclic=True),
}


def strength(model):
    return getattr(model, "weights_", model.network_.variances)


def fit_again(learner, rows, party):
    with np.errstate(all="raise"):
        return type(learner)(**learner.get_params()).fit(rows, party=party)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("backend", ["masking", "ckks"])
@pytest.mark.parametrize("name", FAR)
def test_columns_far_from_zero_change_nothing_but_the_means(linear, name, backend):
    X, _, party = linear
    learner = FAR[name].set_params(backend=backend)
    near = fit_again(learner, X, party)
    for offset in (1e6, 1e7):
        far = fit_again(learner, X + offset, party)
        np.testing.assert_array_equal(far.adjacency_matrix_, near.adjacency_matrix_)
        np.testing.assert_allclose(strength(far), strength(near), atol=1e-7)
        variances = far.network_.variances
        np.testing.assert_allclose(variances, near.network_.variances, rtol=1e-7)
        assert far.score(X + offset) == pytest.approx(near.score(X), abs=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:noise variances differ:UserWarning")
@pytest.mark.parametrize("backend", ["masking", "ckks"])
@pytest.mark.parametrize("name", FAR)
def test_a_column_of_unix_times(linear, name, backend):
    X, _, party = linear
    decade = 1.5e9 + np.random.default_rng(0).uniform(0, 3.2e8, size=len(X)).round()
    rows = np.column_stack([X, decade])
    network = fit_again(FAR[name].set_params(backend=backend), rows, party).network_
    if name != "series":
        centred = rows
        if name in ("party means", "linear rounds", "networks in rounds"):
            means = np.array([rows[party == k].mean(axis=0) for k in range(3)])
            centred = rows - means[party]
        # nothing explains the times
        assert network.variances[5] == pytest.approx(centred[:, 5].var(), rel=0.02)


def test_columns_of_parties_far_from_zero(linear):
    X, truth, _ = linear
    learner = FederatedGaussianBayesianNetwork(parties={"a": [0, 1, 2], "b": [3, 4]})
    near = learner.fit(X).network_
    far = learner.fit(X + [1e6, 1e7, 0, 1e9, 1e7]).network_
    np.testing.assert_array_equal(far.adjacency_matrix, truth)
    np.testing.assert_allclose(far.weights, near.weights, atol=1e-6)


def test_parameters_far_from_zero_are_least_squares(linear):
    """Of rows that were centred in extended precision."""
    X, _, party = linear
    rows = X + 1e7
    network = FederatedGaussianBayesianNetwork("bic").fit(rows, party=party).network_
    exact = rows.astype(np.longdouble)
    np.testing.assert_allclose(network.mean, exact.mean(axis=0).astype(float))
    exact = (exact - exact.mean(axis=0)).astype(float)
    for j, chosen in enumerate(network.adjacency_matrix.T):
        weights = np.linalg.lstsq(exact[:, chosen], exact[:, j], rcond=None)[0]
        np.testing.assert_allclose(network.weights[chosen, j], weights, rtol=1e-8)
        rest = exact[:, j] - exact[:, chosen] @ weights
        assert network.variances[j] == pytest.approx(np.mean(rest**2), rel=1e-8)


@pytest.mark.filterwarnings("ignore:noise variances differ:UserWarning")
@pytest.mark.parametrize("name", ["one sum", "linear rounds", "votes"])
def test_sites_with_columns_far_from_zero(tmp_path, name):
    X, _ = make_linear_sem(240, 3, random_state=0)
    rows = (X + [0.0, 1e7, 0.0]).round(3)
    rows[:, 2] = 1.7e9 + (1e6 * rows[:, 2]).round()
    tables = dict(zip(("north", "south", "west"), rows.reshape(3, 80, 3).tolist()))
    kinds = dict.fromkeys(("a", "b", "times"), '"float"')
    learner = type(FAR[name])(**FAR[name].get_params()).set_params(backend="masking")
    remote = open_sites(tmp_path, tables, kinds, [type(learner).__name__]).rows()
    found = learner.fit(remote).network_
    partition = HorizontalPartition({k: np.array(v) for k, v in tables.items()})
    local = learner.fit(partition).network_
    # "a" may be a child of "b", whose level of 1e7 its intercept is rounded by
    rounding = 1e7 * np.finfo(float).eps
    np.testing.assert_allclose(found.mean, rows.mean(axis=0), 1e-12, atol=rounding)
    np.testing.assert_allclose(found.variances, local.variances, rtol=1e-9)


@pytest.mark.parametrize("level", [0.0, 7.1, 1e7 + 0.1, 1.7e9])
@pytest.mark.parametrize("name", ["one sum", "linear rounds", "series"])
def test_constant_columns_are_named_wherever_they_are(linear, name, level):
    X, _, party = linear
    rows = np.column_stack([X + 1e6, np.full(len(X), level)])
    with pytest.raises(ValueError, match=r"\['x5'\] are constant"):
        fit_again(FAR[name].set_params(backend="masking"), rows, party)


def test_rounding_is_no_variation():
    mean = np.array([0.0, 0.0, 1e7, 1e7, -1.7e9])
    std = np.array([0.0, 1e-300, 1e-9, 1e-4, 1.0])
    assert vary(mean, std**2).tolist() == [False, False, False, True, True]
    assert pytest.approx(20.0) == MAX_NOISE_RATIO
