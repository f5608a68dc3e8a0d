"""FederatedNotearsADMM, its relatives and baselines, over real federations."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from skprivbn.bayesian_network._dag import is_acyclic
from skprivbn.datasets import (
    load_sachs,
    make_linear_sem,
    make_mlp_sem,
    make_var_sem,
)
from skprivbn.exceptions import (
    BudgetExceededError,
    PartitionError,
    PartyError,
    PrivacyLeakWarning,
)
from skprivbn.metrics import structural_hamming_distance, true_positive_rate
from skprivbn.partition import HorizontalPartition
from skprivbn.preprocessing import FederatedStandardScaler
from skprivbn.privacy import PrivacyAccountant
from skprivbn.programs import Moments
from skprivbn.structure import (
    FederatedDynotears,
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    Notears,
    VotingStructureLearner,
)
from skprivbn.structure.admm._program import admm
from skprivbn.structure.gaussian._notears import golem, notears
from skprivbn.structure.gaussian._program import drop_drowned_edges

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)


@pytest.fixture(scope="module")
def linear():
    X, weights = make_linear_sem(240, 6, random_state=1)
    return X, weights, np.arange(240) % 4


def test_recovers_the_graph_and_the_model(linear):
    X, weights, party = linear
    model = FederatedNotearsADMM().fit(X, party=party)
    assert structural_hamming_distance(weights, model.adjacency_matrix_) <= 1
    assert model.converged_
    assert model.h_ <= 1e-5
    assert model.consensus_distance_ <= 1e-2
    assert is_acyclic(model.adjacency_matrix_)
    assert model.weights_.diagonal().max() == 0.0
    # likelihood of the pooled least squares fit on the true graph, within shrinkage
    rest = X - model.predict(X)
    assert rest.var(axis=0) == pytest.approx(model.network_.variances, rel=0.1)
    assert model.score(X) == pytest.approx(Notears().fit(X).score(X), abs=0.3)
    assert model.sample(5, random_state=0).shape == (5, 6)


def test_noise_variances_are_those_of_the_rows():
    X, _ = make_linear_sem(50, 4, random_state=0)
    party = np.arange(50) % 3
    model = FederatedNotearsADMM().fit(X, party=party)
    centred = X.copy()
    for name in range(3):
        centred[party == name] -= X[party == name].mean(axis=0)
    rest = centred - centred @ model.network_.weights
    np.testing.assert_allclose(model.network_.variances, rest.var(axis=0), rtol=1e-9)
    np.testing.assert_allclose(model.network_.mean, X.mean(axis=0), atol=1e-9)


@pytest.mark.parametrize("backend", ["masking", "ckks", "paillier"])
def test_backends_agree_over_the_first_rounds(linear, backend):
    X, _, party = linear
    from skprivbn.crypto import PaillierBackend

    given = backend
    if backend == "paillier":
        X = X[:, :3]
        given = PaillierBackend(key_size=512, insecure_test_key=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        hidden = FederatedNotearsADMM(backend=given, max_iter=11)
        plain = FederatedNotearsADMM(backend="plaintext", max_iter=11)
        hidden.fit(X, party=party)
        plain.fit(X, party=party)
    assert hidden.n_iter_ == plain.n_iter_ == 11
    assert np.abs(plain.weights_).max() > 0.1
    # all backends add the same numbers
    np.testing.assert_array_equal(hidden.weights_, plain.weights_)


@pytest.mark.parametrize(
    "acyclicity", ["logdet", pytest.param("expm", marks=pytest.mark.slow)]
)
def test_not_worse_than_the_paper(acyclicity):
    """(d, K, n) = (10, 10, 30), mean distance over fresh graphs; the bar is 7.5."""
    distances, found = [], []
    for seed in range(20):
        X, weights = make_linear_sem(30, 10, random_state=seed)
        model = FederatedNotearsADMM(
            admm_params={"acyclicity": acyclicity}, backend="plaintext"
        )
        model.fit(X, party=np.arange(30) % 10)
        distances.append(structural_hamming_distance(weights, model.adjacency_matrix_))
        found.append(true_positive_rate(weights, model.adjacency_matrix_))
    assert np.mean(distances) <= 7.5
    assert np.mean(found) >= 0.75


@pytest.mark.parametrize(
    "make, old, new",
    [
        (FederatedNotearsADMM, {"rho1": 0.1}, r"admm_params=\{'rho1': \.\.\.\}"),
        (FederatedNotearsADMM, {"n_hidden": 3}, r"mlp_params=\{'n_hidden'"),
        (FederatedDynotears, {"h_tol": 1e-3}, r"admm_params=\{'h_tol'"),
    ],
)
def test_names_of_release_0_2_are_refused_with_the_new_one(make, old, new):
    with pytest.raises(TypeError, match=new):
        make(**old)
    with pytest.raises(TypeError, match=new):
        make().set_params(**old)


@pytest.mark.parametrize(
    "params, message",
    [
        ({"admm_params": {"rho": 1.0}}, "admm_params takes .* not"),
        ({"admm_params": {"gamma1": 0.5}}, "'gamma1' parameter of admm_params"),
        ({"method": "mlp", "mlp_params": {"n_hidden": 0}}, "of mlp_params"),
        ({"admm_params": {"acyclicity": "trace"}}, "'acyclicity' parameter"),
    ],
)
def test_settings_are_checked(linear, params, message):
    X, _, party = linear
    with pytest.raises(ValueError, match=message):
        FederatedNotearsADMM(**params).fit(X, party=party)


@pytest.mark.slow
def test_masks_do_not_change_the_mean_distance():
    """Rounding to 2**-64 can move single graphs in late rounds, means it must not."""
    distances = []
    for seed in range(12):
        X, weights = make_linear_sem(30, 10, random_state=30_000 + seed)
        found = [
            FederatedNotearsADMM(backend=backend).fit(X, party=np.arange(30) % 10)
            for backend in ("plaintext", "masking")
        ]
        distances.append(
            [structural_hamming_distance(weights, m.adjacency_matrix_) for m in found]
        )
    clear, masked = np.mean(distances, axis=0)
    assert masked == pytest.approx(clear, abs=0.3)


def test_units_of_all_columns_do_not_matter(linear):
    X, _, party = linear
    metres, inches = (
        FederatedNotearsADMM(backend="plaintext").fit(unit * X, party=party)
        for unit in (1.0, 39.4)
    )
    assert inches.loss_scale_ == pytest.approx(39.4**2 * metres.loss_scale_)
    np.testing.assert_array_equal(inches.adjacency_matrix_, metres.adjacency_matrix_)
    np.testing.assert_allclose(inches.weights_, metres.weights_, atol=1e-3)


def test_a_given_scale_is_a_factor_of_all_penalties(linear):
    X, _, party = linear

    def learner(scale, factor):
        penalties = {"rho1": 0.001 * factor, "rho2": 0.02 * factor}
        return FederatedNotearsADMM(
            lambda1=0.02 * factor,
            admm_params=penalties | {"loss_scale": scale},
            backend="plaintext",
        )

    relative, absolute, without = learner(4.0, 1), learner(1.0, 4), learner(1.0, 1)
    for model in (relative, absolute, without):
        model.fit(X, party=party)
    assert relative.loss_scale_ == 4.0
    np.testing.assert_allclose(relative.weights_, absolute.weights_, atol=5e-3)
    assert np.abs(relative.weights_ - without.weights_).max() > 0.02


@pytest.mark.slow
def test_proteins_are_not_worse_than_in_the_paper():
    """512 of 853 cells, mean distance over other choices than those of benchmarks."""
    sachs = load_sachs()
    for n_parties in (2, 16, 64):
        distances = []
        for seed in range(2000, 2012):
            rows = np.random.RandomState(seed).permutation(853)[:512]
            model = FederatedNotearsADMM(backend="plaintext")
            model.fit(sachs.data[rows], party=np.arange(512) % n_parties)
            found = model.adjacency_matrix_
            distances.append(structural_hamming_distance(sachs.adjacency_matrix, found))
        assert np.mean(distances) <= 14.0


@pytest.mark.parametrize("sizes", [[1, 2, 30, 207], [1, 1, 1, 237], [1, 80, 80, 79]])
def test_unequal_parties_and_single_rows(linear, sizes):
    X, weights, _ = linear
    party = np.repeat(["a", "b", "c", "d"], sizes)
    model = FederatedNotearsADMM(backend="plaintext").fit(X, party=party)
    assert model.converged_
    assert model.n_samples_ == 240
    assert structural_hamming_distance(weights, model.adjacency_matrix_) <= 2


def test_a_party_of_nearly_all_rows_decides(linear):
    """Losses divide by all rows, so a tiny party does not count like a large one."""
    X, _, _ = linear
    # one row that contradicts the others, under a name of its own
    odd = np.vstack([X, [[1e3, -1e3, 1e3, -1e3, 1e3, -1e3]]])
    party = np.append(np.arange(240) % 3, 3)
    with_it = FederatedNotearsADMM(backend="plaintext").fit(odd, party=party)
    without = FederatedNotearsADMM(backend="plaintext").fit(X, party=party[:-1])
    # parties are centred apart: one row alone is zero after centring
    np.testing.assert_array_equal(with_it.adjacency_matrix_, without.adjacency_matrix_)


@pytest.mark.parametrize(
    "learner",
    [FederatedNotearsADMM, FederatedGaussianBayesianNetwork, VotingStructureLearner],
)
def test_an_empty_party_is_named(linear, learner):
    X, _, _ = linear
    with pytest.raises(PartitionError, match="party 'b' has no rows: leave it out"):
        learner().fit(HorizontalPartition({"a": X[:9], "b": X[:0], "c": X[9:]}))


def test_search_over_lambda_in_a_pipeline(linear):
    """Routing hands `party` to both steps; scaling by deviations stays off."""
    X, weights, party = linear
    pipeline = make_pipeline(
        FederatedStandardScaler(with_std=False), FederatedNotearsADMM()
    )
    grid = {"federatednotearsadmm__lambda1": [0.02, 2.0]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise")
    with config_context(enable_metadata_routing=True):
        search.fit(X, party=party)
    assert search.best_params_ == {"federatednotearsadmm__lambda1": 0.02}
    scaler, learner = (step for _, step in search.best_estimator_.steps)
    for step in (scaler, learner):
        assert step.ledger_.parties == ("0", "1", "2", "3")
    np.testing.assert_allclose(scaler.mean_, X.mean(axis=0))
    assert structural_hamming_distance(weights, learner.adjacency_matrix_) <= 1
    assert search.score(X) == pytest.approx(learner.score(X - X.mean(axis=0)))


def test_rounds_run_out(linear):
    X, _, party = linear
    with pytest.warns(ConvergenceWarning, match="no consensus after 3 rounds"):
        model = FederatedNotearsADMM(max_iter=3).fit(X, party=party)
    assert not model.converged_


def test_bad_columns(linear):
    X, _, party = linear
    with pytest.raises(ValueError, match="minimum of 2"):
        FederatedNotearsADMM().fit(X[:, :1], party=party)
    constant = X.copy()
    constant[:, 2] = 5.0
    with pytest.raises(ValueError, match="x2.*leave them out"):
        FederatedNotearsADMM().fit(constant, party=party)
    broken = X.copy()
    broken[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        FederatedNotearsADMM().fit(broken, party=party)


@pytest.mark.parametrize("learner", [FederatedNotearsADMM, FederatedDynotears])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_values_whose_squares_are_no_numbers_are_refused(linear, learner):
    X, _, party = linear
    X, party = X.copy(), np.sort(party)
    # a row that only lags behind others is not in the sums of squares
    X[:2] *= 1e200
    with pytest.raises(PartyError) as caught:
        learner().fit(X, party=party)
    assert caught.value.code == "out-of-range"


def test_a_party_with_broken_rows_is_named():
    X, _ = make_linear_sem(30, 3, random_state=0)
    blocks = {"a": X[:10], "b": X[10:20], "c": X[20:]}
    partition = HorizontalPartition(blocks)
    partition._blocks["b"]["X"][0, 0] = np.inf
    model = FederatedNotearsADMM()
    model.n_features_in_ = 3
    terms = model._model_terms(3)
    with partition.federate(admm, terms, "masking") as federation:
        with pytest.raises(PartyError, match="'b'.*do not fit"):
            federation.run()


def test_standardised_data_warn(linear):
    X, _, party = linear
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    with pytest.warns(UserWarning, match="standardising"):
        FederatedNotearsADMM().fit(X, party=party)


def test_collinear_columns_are_survived(linear):
    X, _, party = linear
    X = np.column_stack([X, X[:, 0] + X[:, 1]])
    model = FederatedNotearsADMM().fit(X, party=party)
    assert is_acyclic(model.adjacency_matrix_)


@pytest.mark.filterwarnings("ignore:privacy noise:UserWarning")
def test_edges_that_noise_alone_could_make_are_left_out(monkeypatch):
    X, weights = make_linear_sem(2_000, 8, random_state=0)
    noise = {"epsilon": 1.0, "delta": 1e-6, "bounds": (-12, 12)}
    with pytest.warns(UserWarning, match="edges are left out, as noise alone"):
        model = FederatedNotearsADMM(**noise).fit(X)
    skeleton = (weights != 0) | (weights != 0).T
    assert not np.any(model.adjacency_matrix_ & ~skeleton)
    assert np.any(np.abs(model.weights_[~skeleton]) > 0.3)
    assert "are left out" in model.noise_report_.warnings[-1]
    # the twin: edges of noise are told
    monkeypatch.setattr(
        "skprivbn.structure.admm._notears.drop_drowned_edges", lambda graph, _: graph
    )
    twin = FederatedNotearsADMM(**noise).fit(X)
    assert np.sum(twin.adjacency_matrix_ & ~skeleton) > 3


@pytest.mark.parametrize("distance, kept", [(-1e-6, False), (1e-6, True)])
def test_an_edge_is_kept_from_where_it_stands_out_of_the_noise(distance, kept):
    # without noise, BIC says how weak: half log(n) and log(2) are to be gained
    weakest = np.sqrt(1 - np.exp(-2 * (np.log(1_000) / 2 + np.log(2)) / 1_000))
    correlation = weakest + distance
    covariance = np.array([[1.0, correlation], [correlation, 1.0]])
    graph = np.array([[False, True], [False, False]])
    known = Moments(1_000.0, np.zeros(2), covariance)
    assert drop_drowned_edges(graph, known)[0, 1] == kept
    # noise counts as lost rows: the same edge is drowned
    noisy = Moments(1_000.0, np.zeros(2), covariance, noise=np.full(2, 0.3))
    assert not drop_drowned_edges(graph, noisy)[0, 1]


def test_private_rounds_spend_once_and_touch_no_more_rows(linear):
    X, weights, party = linear
    accountant = PrivacyAccountant(epsilon=60.0, delta=1e-5)
    model = FederatedNotearsADMM(
        epsilon=50.0, delta=1e-6, bounds=(-12, 12), accountant=accountant
    ).fit(X, party=party)
    assert 45.0 < accountant.spent().epsilon <= 50.0
    kinds = {fact.kind for fact in model.ledger_.facts()}
    assert "noisy release" in kinds and "plaintext aggregate" not in kinds
    with pytest.raises(ValueError, match="public bounds"):
        FederatedNotearsADMM(epsilon=1.0).fit(X, party=party)
    # an accountant that watches over the rows allows no exact fit
    for learner in (FederatedNotearsADMM, FederatedGaussianBayesianNetwork):
        with pytest.raises(BudgetExceededError):
            learner(accountant=accountant).fit(X, party=party)
    with pytest.raises(ValueError, match="linear"):
        FederatedNotearsADMM("mlp", epsilon=1.0, bounds=(-9, 9)).fit(X, party=party)


def test_nothing_secret_is_kept(linear):
    X, _, party = linear
    model = FederatedNotearsADMM(backend="ckks", max_iter=60).fit(X, party=party)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.weights_, model.weights_)
    assert not {"federation", "partition"} & vars(model).keys()


@pytest.mark.slow
def test_mlp_beats_voting_and_basis_functions_beat_it():
    distances = {"admm": [], "voting": [], "basis": []}
    for seed in range(3):
        X, truth = make_mlp_sem(160, 6, random_state=seed)
        party = np.arange(160) % 8
        mlp = FederatedNotearsADMM("mlp", random_state=0)
        for name, model in (
            ("admm", mlp),
            ("voting", VotingStructureLearner(mlp)),
            ("basis", FederatedGaussianBayesianNetwork(basis="sigmoid")),
        ):
            model.fit(X, party=party)
            distance = structural_hamming_distance(truth, model.adjacency_matrix_)
            distances[name].append(distance)
    means = {name: np.mean(values) for name, values in distances.items()}
    assert means["basis"] <= means["admm"] <= means["voting"]


@pytest.mark.slow
def test_mlp_network_is_a_model():
    X, _ = make_mlp_sem(300, 4, random_state=0)
    party = np.arange(300) % 3
    model = FederatedNotearsADMM("mlp", random_state=0).fit(X, party=party)
    rest = X - model.predict(X)
    # parties are centred apart, so the pooled residuals are a little larger
    assert rest.var(axis=0) == pytest.approx(model.network_.variances, rel=0.1)
    roots = ~model.adjacency_matrix_.any(axis=0)
    assert np.ptp(model.predict(X)[:, roots], axis=0) == pytest.approx(0.0)
    drawn = model.sample(3000, random_state=0)
    assert drawn.mean(axis=0) == pytest.approx(X.mean(axis=0), abs=1.0)
    assert model.score(X) > FederatedNotearsADMM().fit(X, party=party).score(X)
    assert model.to_networkx().number_of_nodes() == 4
    assert model.score_samples(X).mean() == pytest.approx(model.score(X))


def test_dynotears_recovers_both_graphs_and_equals_the_pooled_run():
    X, series, W, A = make_var_sem(100, 4, n_series=6, random_state=0)
    # tight tolerances: the two runs take different paths to the same consensus
    settings = {"h_tol": 1e-9, "gamma1": 1.5}
    options = {"tol": 1e-4, "max_iter": 300, "admm_params": settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = FederatedDynotears(**options).fit(X, series=series, party=series % 3)
        pooled = FederatedDynotears(**options).fit(X, series=series)
    assert structural_hamming_distance(W, model.adjacency_matrix_) == 0
    np.testing.assert_array_equal(A != 0, model.lagged_adjacency_matrix_)
    np.testing.assert_allclose(model.weights_, pooled.weights_, atol=0.03)
    np.testing.assert_allclose(model.lagged_weights_, pooled.lagged_weights_, atol=0.03)
    assert model.score(X, series=series) == pytest.approx(
        pooled.score(X, series=series), abs=0.05
    )
    scores = model.score_samples(X, series=series)
    assert np.nanmean(scores) == pytest.approx(model.score(X, series=series))
    assert np.isnan(scores).sum() == len(set(series))
    graph = model.to_networkx()
    lagged = [edge for edge in graph.edges if edge[0].endswith("(t-1)")]
    assert len(lagged) == (A != 0).sum()
    assert graph.number_of_edges() == (A != 0).sum() + (W != 0).sum()


def test_dynotears_predicts_each_row_from_the_row_before_of_its_series():
    X, series, _, _ = make_var_sem(12, 3, n_series=4, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = FederatedDynotears(max_iter=3).fit(X, series=series, party=series % 3)
    shuffled = np.random.default_rng(0).permutation(series)
    predicted = model.predict(X, series=shuffled)
    last = {}
    for x, name, found in zip(X, shuffled, predicted, strict=True):
        expected = np.full(3, np.nan)
        if name in last:
            past = (last[name] - model.mean_) @ model._past[0]
            expected = model.network_.intercepts + x @ model.network_.weights + past
        np.testing.assert_allclose(found, expected)
        last[name] = x
    with pytest.raises(ValueError, match="nothing has a past"):
        model.predict(X[:2], series=[0, 1])


def test_dynotears_never_looks_across_series():
    X, series, _, _ = make_var_sem(30, 3, n_series=4, random_state=0)
    shifted = X + 100.0 * series[:, None]
    model = FederatedDynotears().fit(shifted, series=series, party=series)
    plain = FederatedDynotears().fit(X, series=series, party=series)
    # parties are centred apart, so a level per party changes nothing
    np.testing.assert_allclose(model.weights_, plain.weights_, atol=1e-6)
    assert model.n_samples_ == 4 * 29


def test_voting_counts_votes(linear):
    X, _, party = linear
    model = VotingStructureLearner(Notears(lambda1=0.05)).fit(X, party=party)
    expected = np.mean(
        [Notears(lambda1=0.05).fit(X[party == k]).adjacency_matrix_ for k in range(4)],
        axis=0,
    )
    np.testing.assert_allclose(model.votes_, expected)
    np.testing.assert_array_equal(model.adjacency_matrix_, expected > 0.5)
    everything = VotingStructureLearner(min_votes=0.0, acyclic=True)
    assert is_acyclic(everything.fit(X, party=party).adjacency_matrix_)


def test_a_graph_with_cycles_is_no_network_not_even_one_of_an_earlier_fit():
    """Every party finds an edge of a ring of three."""
    rng = np.random.default_rng(0)
    X, party = rng.normal(size=(600, 3)), np.repeat([0, 1, 2], 200)
    for k in range(3):
        X[party == k, (k + 1) % 3] += 2 * X[party == k, k]
    model = VotingStructureLearner(min_votes=0.0, acyclic=True).fit(X, party=party)
    assert model.sample().shape == (1, 3)
    with pytest.warns(UserWarning, match="has cycles.*acyclic=True"):
        model.set_params(acyclic=False).fit(X, party=party)
    assert not hasattr(model, "network_")


def test_a_party_whose_rows_are_all_alike_does_not_vote(linear):
    X, _, party = linear
    # the mean of equal numbers is not always that number
    alike = np.full((8, X.shape[1]), 0.1)
    assert (alike.std(axis=0) > 0.0).all()
    model = VotingStructureLearner().fit(
        np.vstack([X, alike]), party=np.append(party, [4] * 8)
    )
    np.testing.assert_allclose(
        model.votes_, VotingStructureLearner().fit(X, party=party).votes_ * 4 / 5
    )


def test_voting_runs_no_foreign_code(linear):
    from sklearn.linear_model import LinearRegression

    X, _, party = linear
    with pytest.raises(ValueError, match="no other code"):
        VotingStructureLearner(LinearRegression()).fit(X, party=party)


def test_notears_solves_its_problem(linear):
    X, weights, _ = linear
    covariance = np.cov(X.T, bias=True)
    found, h, _ = notears(covariance, lambda1=0.1, tol=1e-9)
    assert h <= 1e-8
    # on the graph found, lasso optimality: the gradient of the loss is -lambda sign
    kept = np.abs(found) > 0.05
    gradient = covariance @ (found - np.eye(6))
    np.testing.assert_allclose(gradient[kept], -0.1 * np.sign(found[kept]), atol=0.02)
    assert structural_hamming_distance(weights, np.abs(found) > 0.3) <= 1
    np.testing.assert_array_equal(np.abs(golem(covariance)) > 0.3, weights != 0)


@pytest.mark.parametrize(
    "estimator",
    [
        FederatedNotearsADMM(),
        FederatedGaussianBayesianNetwork(),
        VotingStructureLearner(),
        Notears(),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_checks(estimator):
    check_estimator(estimator)


def test_one_party_warns():
    X, _ = make_linear_sem(30, 3, random_state=0)
    with pytest.warns(PrivacyLeakWarning, match="one party"):
        FederatedNotearsADMM().fit(X)


def test_parameters_of_the_learner_that_votes_by_default():
    voting = VotingStructureLearner().set_params(estimator__max_iter=7)
    assert (
        voting.estimator.max_iter == 7 and type(voting.estimator).__name__ == "Notears"
    )
