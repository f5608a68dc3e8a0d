"""PPEMGaussianMixture takes the place of GaussianMixture."""

import inspect
import warnings

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.callback import ProgressBar, ScoringMonitor
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from skprivbn.crypto import CKKSBackend
from skprivbn.exceptions import PartitionError, PrivacyLeakWarning
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.partition import HorizontalPartition
from skprivbn.preprocessing import FederatedStandardScaler
from tests.mixture.conftest import assert_same_mixture, start_of

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)
TYPES = ["full", "tied", "diag", "spherical"]
STARTS = ["kmeans", "k-means++", "random", "random_from_data", "local_em"]
types = pytest.mark.parametrize("covariance_type", TYPES)
starts = pytest.mark.parametrize("init_params", STARTS)


def masked(n_components=3, **parameters):
    settings = {"backend": "masking", "random_state": 0, **parameters}
    return PPEMGaussianMixture(n_components, **settings)


def test_every_parameter_of_gaussian_mixture_means_the_same():
    theirs = inspect.signature(GaussianMixture).parameters
    ours = inspect.signature(PPEMGaussianMixture).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    others = {n for n in theirs if ours[n].default != theirs[n].default}
    # None is a number that the budget bears; without one it is theirs
    assert others == {"max_iter"} and ours["max_iter"].default is None
    terms = PPEMGaussianMixture()._start_terms(n_features=2)
    assert terms["max_iter"] == theirs["max_iter"].default


@types
@pytest.mark.parametrize("n_parties", [1, 3])
def test_the_papers_start_has_no_part_in_the_rows(
    three_blobs, covariance_type, n_parties
):
    X, _ = three_blobs
    start = {
        "full": np.tile(np.eye(2), (3, 1, 1)),
        "tied": np.eye(2),
        "diag": np.ones((3, 2)),
        "spherical": np.ones(3),
    }
    expected = GaussianMixture(
        3,
        covariance_type=covariance_type,
        weights_init=np.full(3, 1 / 3),
        means_init=np.random.RandomState(5).rand(3, 2),
        precisions_init=start[covariance_type],
        max_iter=8,
    ).fit(X)
    found = masked(
        init_params="paper", covariance_type=covariance_type, max_iter=8, random_state=5
    ).fit(X, party=np.arange(len(X)) % n_parties)
    assert_same_mixture(found, expected, atol=1e-8)
    assert not any("centres" in e.operation for e in found.ledger_.entries)


def test_several_starts_of_the_paper_would_all_be_the_same(three_blobs):
    with pytest.raises(
        ValueError, match="init_params='paper' has one start, got n_init=2"
    ):
        masked(init_params="paper", n_init=2).fit(three_blobs[0])


@types
@pytest.mark.parametrize("init_params", ["kmeans", "random"])
def test_one_party_starts_where_scikit_learn_does(
    three_blobs, init_params, covariance_type
):
    X, _ = three_blobs
    settings = {
        "covariance_type": covariance_type,
        "init_params": init_params,
        "random_state": 3,
        "max_iter": 300,
    }
    expected = GaussianMixture(3, **settings).fit(X)
    assert_same_mixture(PPEMGaussianMixture(3, **settings).fit(X), expected, atol=1e-8)


@types
def test_methods_equal_those_of_scikit_learn(three_blobs, covariance_type):
    X, _ = three_blobs
    settings = {"covariance_type": covariance_type, "random_state": 1}
    expected = GaussianMixture(3, **settings).fit(X)
    found = PPEMGaussianMixture(3, **settings).fit(X)
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))
    for method in ("predict_proba", "score_samples", "score", "aic", "bic"):
        np.testing.assert_allclose(
            getattr(found, method)(X), getattr(expected, method)(X), atol=1e-8
        )
    for ours, theirs in zip(found.sample(50), expected.sample(50)):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    weights = np.arange(len(X)) % 3
    np.testing.assert_allclose(
        found.score(X, sample_weight=weights), found.score(np.repeat(X, weights, 0))
    )
    with pytest.raises(ValueError, match="at least one sample"):
        found.sample(0)


# Random responsibilities make equal components, which tied covariances keep equal.
@pytest.mark.parametrize(
    "init_params", [start for start in STARTS if start != "random"]
)
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_every_start_reaches_a_good_fit(three_blobs, init_params, covariance_type):
    X, party = three_blobs
    settings = {"covariance_type": covariance_type, "max_iter": 300}
    best = GaussianMixture(3, n_init=10, random_state=0, **settings).fit(X)
    mixture = masked(init_params=init_params, n_init=3, **settings)
    mixture.fit(X, party=party)
    assert mixture.lower_bound_ > best.lower_bound_ - 0.01
    assert np.all(np.diff(mixture.lower_bounds_) > -1e-8)
    assert len(mixture.lower_bounds_) == mixture.n_iter_
    assert mixture.lower_bounds_[-1] == mixture.lower_bound_


@pytest.mark.parametrize("split", ["mixed", "by place"])
def test_secure_k_means_is_as_good_as_pooled_k_means(three_blobs, split):
    X, party = three_blobs
    if split == "by place":
        party = np.argsort(np.argsort(X[:, 0])) // 60
    mixture = masked(max_iter=0).fit(X, party=party)
    squares = ((X[:, np.newaxis] - mixture.means_) ** 2).sum(axis=2)
    pooled = KMeans(3, n_init=10, random_state=0).fit(X)
    assert squares.min(axis=1).sum() < 1.0001 * pooled.inertia_


@pytest.mark.parametrize("init_params", ["random_from_data", "k-means++"])
def test_starts_from_rows_choose_different_rows(three_blobs, init_params):
    X, party = three_blobs
    for seed in range(5):
        mixture = masked(8, init_params=init_params, max_iter=0, random_state=seed)
        means = mixture.fit(X, party=party).means_
        distances = np.abs(X[:, np.newaxis] - means).max(axis=2)
        rows = distances.argmin(axis=0)
        assert np.all(distances.min(axis=0) < 1e-9) and len(set(rows)) == 8


def test_k_means_plus_plus_spreads_its_rows(three_blobs):
    X, party = three_blobs
    truth = np.repeat([0, 1, 2], [80, 70, 90])

    def hits(init_params):
        n_hit = 0
        for seed in range(8):
            mixture = masked(init_params=init_params, max_iter=0, random_state=seed)
            means = mixture.fit(X, party=party).means_
            rows = ((X[:, np.newaxis] - means) ** 2).sum(axis=2).argmin(axis=0)
            n_hit += len(set(truth[rows])) == 3
        return n_hit

    assert hits("k-means++") > hits("random_from_data")


def test_more_starts_are_never_worse(three_blobs):
    X, party = three_blobs
    settings = {"init_params": "random", "max_iter": 60, "tol": 1e-2}
    bounds = [
        masked(5, n_init=n_init, random_state=2, **settings)
        .fit(X, party=party)
        .lower_bound_
        for n_init in (1, 3, 6)
    ]
    assert bounds == sorted(bounds) and bounds[0] < bounds[-1]


@starts
def test_results_repeat_with_the_seed(three_blobs, init_params):
    X, party = three_blobs
    settings = {"init_params": init_params, "max_iter": 5, "tol": 1.0}
    one, two, other = (
        masked(random_state=seed, **settings).fit(X, party=party).means_
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, two)
    assert init_params == "kmeans" or np.abs(one - other).max() > 0


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@types
@pytest.mark.parametrize("max_iter", [0, 1, 100])
def test_fit_predict_equals_predict(three_blobs, covariance_type, max_iter):
    X, party = three_blobs
    mixture = masked(covariance_type=covariance_type, max_iter=max_iter, tol=1.0)
    labels = mixture.fit_predict(X, party=party)
    np.testing.assert_array_equal(labels, mixture.predict(X))
    assert adjusted_rand_score(np.repeat([0, 1, 2], [80, 70, 90]), labels) > 0.85


@types
def test_no_iteration_returns_the_start(three_blobs, covariance_type):
    X, party = three_blobs
    start = start_of(X, 3, covariance_type)
    settings = {"covariance_type": covariance_type, "max_iter": 0}
    given = masked(**settings, **start).fit(X, party=party)
    np.testing.assert_allclose(given.means_, start["means_init"])
    np.testing.assert_allclose(given.precisions_, start["precisions_init"], rtol=1e-9)
    assert given.n_iter_ == 0 and given.lower_bounds_ == []
    assert given.lower_bound_ == -np.inf and not given.converged_
    partly = masked(**settings, means_init=start["means_init"]).fit(X, party=party)
    np.testing.assert_allclose(partly.means_, start["means_init"])
    expected = GaussianMixture(
        3, random_state=0, means_init=start["means_init"], **settings
    ).fit(X)
    order = np.argsort(expected.weights_)
    np.testing.assert_allclose(
        np.sort(partly.weights_), expected.weights_[order], atol=0.02
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_warm_start_goes_on(three_blobs):
    X, party = three_blobs
    straight = masked(max_iter=40, tol=1e-6).fit(X, party=party)
    mixture = masked(max_iter=1, tol=1e-6, warm_start=True)
    bounds = []
    for _ in range(40):
        mixture.fit(X, party=party)
        bounds.append(mixture.lower_bound_)
        if mixture.converged_:
            break
    assert mixture.converged_ and len(bounds) == straight.n_iter_
    np.testing.assert_allclose(bounds, straight.lower_bounds_, atol=1e-9)
    np.testing.assert_allclose(mixture.means_, straight.means_, atol=1e-8)


def test_not_converging_is_said(three_blobs):
    X, party = three_blobs
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        masked(max_iter=1).fit(X, party=party)


@types
def test_float32_is_kept(three_blobs, covariance_type):
    X, party = three_blobs
    mixture = masked(covariance_type=covariance_type)
    single = X.astype(np.float32)
    mixture.fit(single, party=party)
    names = ["weights_", "means_", "covariances_", "precisions_"]
    for name in [*names, "precisions_cholesky_"]:
        assert getattr(mixture, name).dtype == np.float32
    for method in (mixture.predict_proba, mixture.score_samples):
        assert method(single).dtype == np.float32
        assert method(X).dtype == np.float64
    double = clone(mixture).fit(X, party=party)
    np.testing.assert_allclose(mixture.means_, double.means_, atol=1e-3)


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"weights_init": [0.5, 0.5]}, "weights.*shape"),
        ({"weights_init": [0.5, 0.4, 0.3]}, "normalized"),
        ({"weights_init": [1.5, -0.4, -0.1]}, "range"),
        ({"means_init": np.zeros((3, 3))}, "means.*shape"),
        ({"precisions_init": -np.ones((3, 2, 2))}, "positive-definite"),
        ({"precisions_init": np.ones((3, 2))}, "precision.*shape"),
        ({"n_components": 0}, "n_components"),
        ({"init_params": "clever"}, "init_params"),
        ({"backend": "rot13"}, "backend"),
        ({"backend": CKKSBackend("huge")}, "preset"),
    ],
)
def test_wrong_parameters_are_named(three_blobs, parameters, message):
    X, party = three_blobs
    with pytest.raises(ValueError, match=message):
        PPEMGaussianMixture(**{"n_components": 3, **parameters}).fit(X, party=party)


def test_bad_rows_are_named(three_blobs):
    X, party = three_blobs
    hole = X.copy()
    hole[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        masked().fit(hole, party=party)
    with pytest.raises(ValueError, match="239 values for 240 rows"):
        masked().fit(X, party=party[1:])
    with pytest.raises(ValueError, match="n_components = 9, n_samples = 8"):
        masked(9).fit(X[:8], party=party[:8])
    with pytest.raises(ValueError, match="'b' has no rows"):
        masked().fit(HorizontalPartition({"a": X, "b": X[:0]}))
    with pytest.raises(PartitionError, match="pool"):
        masked().fit(X, party=party).predict(HorizontalPartition({"a": X}))


def test_equal_rows(three_blobs):
    X = np.full((60, 2), 7.0)
    party = np.arange(60) % 3
    mixture = masked(1).fit(X, party=party)
    np.testing.assert_allclose(mixture.means_, [[7.0, 7.0]])
    np.testing.assert_allclose(mixture.covariances_[0], 1e-6 * np.eye(2), atol=1e-12)
    with pytest.raises(ValueError, match="reg_covar"):
        masked(1, reg_covar=0).fit(X, party=party)


def test_verbose_levels(three_blobs, capsys):
    X, party = three_blobs
    masked(verbose=1, verbose_interval=1, tol=1e-4).fit(X, party=party)
    first = capsys.readouterr().out
    start, *_, last, bound, fit = first.splitlines()
    assert start.startswith("[PPEMGaussianMixture] em-iteration 1, ")
    assert first.count("lower bound") == 1 and " change " in bound
    assert " em-iterations, " in last and " 1 start, " in fit
    mixture = PPEMGaussianMixture(3, verbose=2, verbose_interval=2, tol=1e-4)
    mixture.set_params(random_state=0, covariance_type="tied").fit(X, party=party)
    second = capsys.readouterr().out
    bounds = mixture.lower_bounds_
    for number in {*range(2, len(bounds) + 1, 2), len(bounds)}:
        bound, change = bounds[number - 1], np.diff(bounds)[number - 2]
        told = f"lower bound {bound:.6g}, change {change:.3g}, "
        assert f"best start: em-iteration {number}, {told}" in second
    # they are known at the end, and cost nothing
    n_rounds = mixture.ledger_.n_rounds
    mixture.set_params(verbose=0).fit(X, party=party)
    assert mixture.ledger_.n_rounds == n_rounds


@pytest.mark.parametrize("init_params", ["random", "k-means++"])
def test_several_starts_are_told_apart(three_blobs, init_params, capsys):
    X, party = three_blobs
    settings = {"init_params": init_params, "verbose": 1, "n_init": 3, "tol": 0.1}
    masked(**settings).fit(X, party=party)
    printed = capsys.readouterr().out
    assert " 3 starts, " in printed and printed.count(" em-iteration") >= 3


class StopAfter:
    """A callback that would like to stop after some iterations."""

    def __init__(self, n_iter):
        self.n_iter = n_iter

    def setup(self, estimator, context):
        self.names = []

    def on_fit_task_begin(self, estimator, context):
        self.names.append(context.task_name)

    def on_fit_task_end(self, estimator, context):
        return self.names.count("em-iteration") == self.n_iter

    def teardown(self, estimator, context):
        pass


def test_callbacks_see_iterations_and_parties_decide_when_to_stop(three_blobs):
    X, party = three_blobs
    callback = StopAfter(2)
    mixture = masked(tol=1e-5).set_callbacks(callback)
    mixture.fit(X, party=party)
    assert mixture.n_iter_ > 2 and mixture.converged_
    assert callback.names == ["fit", "start"] + ["em-iteration"] * mixture.n_iter_


def test_scikit_learns_callbacks(three_blobs, capsys):
    X, party = three_blobs
    monitor = ScoringMonitor(scoring=lambda model, X, y: {"score": model.score(X)})
    mixture = masked().set_callbacks(monitor, ProgressBar())
    mixture.fit(X, np.zeros(len(X)), party=party)
    [score] = monitor.get_logs(select="most_recent").data
    assert abs(score["score"] - mixture.score(X)) < 1e-9


def test_a_search_repeats_no_warning(three_blobs):
    X, party = three_blobs
    X, party = X[::2], party[::2]
    for _ in range(2):  # an estimator of its own warns again
        model = masked(tol=1e-6, bounds=(-20, 20))
        search = GridSearchCV(model, {"n_components": [2, 3]}, cv=2)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            search.fit(X, party=party)
        said = [str(warning.message)[:20] for warning in caught]
        for words in ("bounds has no effect", "the parties could, i"):
            assert said.count(words) == 1


def test_in_a_pipeline_and_a_search(three_blobs):
    X, party = three_blobs
    with config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(
            FederatedStandardScaler(),
            masked(1),
        )
        grid = {
            "ppemgaussianmixture__n_components": [1, 3],
            "ppemgaussianmixture__covariance_type": ["diag", "tied"],
        }
        search = GridSearchCV(pipeline, grid, cv=2, error_score="raise")
        order = np.random.default_rng(0).permutation(len(X))
        search.fit(X[order], party=party[order])
        assert search.best_params_["ppemgaussianmixture__n_components"] == 3
        labels = pipeline.fit_predict(X, party=party)
    assert labels.shape == (len(X),)


def test_searching_over_the_encryption(three_blobs):
    X, _ = three_blobs
    grid = {
        "backend": [CKKSBackend()],
        "backend__preset": ["default", "large"],
        "covariance_type": ["diag"],
    }
    search = GridSearchCV(
        PPEMGaussianMixture(2, random_state=0), grid, cv=2, error_score="raise"
    ).fit(X)
    scores = search.cv_results_["mean_test_score"]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-9)
    assert cross_val_score(masked(), X, cv=3, error_score="raise").shape == (3,)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_one_party_with_fewer_distinct_rows_than_components(covariance_type):
    rows = np.repeat([[0.0, 0.0], [1.0, 1.0]], 5, axis=0)
    options = {"covariance_type": covariance_type, "random_state": 0}
    with pytest.warns(PrivacyLeakWarning, match="one party"):
        ours = PPEMGaussianMixture(4, **options).fit(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs = GaussianMixture(4, **options).fit(rows)
    assert ours.score(rows) == pytest.approx(theirs.score(rows))
    with (
        pytest.warns(PrivacyLeakWarning, match="one party"),
        pytest.raises(ValueError, match="ill-defined empirical covariance"),
    ):
        PPEMGaussianMixture(4, reg_covar=0.0, **options).fit(rows)
