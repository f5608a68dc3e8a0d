"""PPEMGaussianMixture finds what GaussianMixture finds on the pooled rows."""

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine, make_blobs
from sklearn.mixture import GaussianMixture

from skprivbn.crypto import CKKSBackend, PaillierBackend
from skprivbn.datasets import load_parkinsons
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.partition import HorizontalPartition
from tests.mixture.conftest import assert_same_mixture, start_of

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)
TYPES = ["full", "tied", "diag", "spherical"]
types = pytest.mark.parametrize("covariance_type", TYPES)


def parkinson_components():
    X = np.asarray(load_parkinsons().data, dtype=float)
    X = X - X.mean(axis=0)
    return X @ np.linalg.svd(X, full_matrices=False)[2][:2].T


DATA = {
    "iris": (lambda: load_iris().data, 3, 7),
    "blobs": (
        lambda: make_blobs(600, n_features=20, centers=10, random_state=0)[0],
        10,
        5,
    ),
    "parkinsons": (parkinson_components, 2, 10),
}


def both(X, n_components, n_parties, covariance_type, backend, **parameters):
    start = start_of(X, n_components, covariance_type)
    settings = {"covariance_type": covariance_type, **start, **parameters}
    expected = GaussianMixture(n_components, **settings).fit(X)
    party = np.random.default_rng(0).integers(0, n_parties, size=len(X))
    found = PPEMGaussianMixture(n_components, backend=backend, **settings)
    return found.fit(X, party=party), expected


@types
@pytest.mark.parametrize("name", DATA)
def test_encrypted_fit_equals_pooled_fit(name, covariance_type):
    make_rows, n_components, n_parties = DATA[name]
    found, expected = both(
        make_rows(), n_components, n_parties, covariance_type, "ckks"
    )
    assert_same_mixture(found, expected)
    relative = np.abs(found.precisions_ - expected.precisions_).max()
    assert relative < 1e-9 * np.abs(expected.precisions_).max()
    assert found.precisions_cholesky_.shape == expected.precisions_cholesky_.shape


@types
@pytest.mark.parametrize(
    "backend",
    ["masking", "plaintext", CKKSBackend(preset="fast"), CKKSBackend(preset="large")],
    ids=["masking", "plaintext", "fast", "large"],
)
def test_every_backend_agrees(three_blobs, covariance_type, backend):
    X, _ = three_blobs
    found, expected = both(X, 3, 4, covariance_type, backend, tol=1e-4)
    assert expected.n_iter_ > 2
    assert_same_mixture(found, expected)


def test_paillier_agrees(three_blobs):
    X, _ = three_blobs
    backend = PaillierBackend(key_size=512, insecure_test_key=True)
    found, expected = both(X[::2], 3, 3, "diag", backend, max_iter=2, tol=1.0)
    assert_same_mixture(found, expected)


@types
def test_nearly_singular_rows(covariance_type):
    X = np.asarray(load_parkinsons().data, dtype=float)
    found, expected = both(X, 2, 8, covariance_type, "ckks")
    assert abs(found.lower_bound_ - expected.lower_bound_) < 1e-7
    assert found.n_iter_ == expected.n_iter_


@types
def test_an_offset_does_not_matter(three_blobs, covariance_type):
    # scikit-learn's own moments lose their digits here: compare with centred rows
    X, party = three_blobs
    X = np.rint(X * 2**20) / 2**20
    start = start_of(X, 3, covariance_type)
    settings = {"covariance_type": covariance_type, **start}
    expected = GaussianMixture(3, **settings).fit(X)
    settings["means_init"] = start["means_init"] + 2.0**20
    found = PPEMGaussianMixture(3, **settings).fit(X + 2.0**20, party=party)
    found.means_ = found.means_ - 2.0**20
    assert_same_mixture(found, expected, atol=1e-8, bound_atol=1e-8)


@types
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "names",
    [
        ["means"],
        ["weights"],
        ["precisions"],
        ["means", "weights"],
        ["means", "precisions"],
        ["weights", "precisions"],
    ],
    ids="+".join,
)
def test_a_start_that_is_partly_given(names, covariance_type):
    # k-means of three parties finds the clusters of scikit-learn's, in another order
    X = load_wine().data[:, :5]
    settings = {"covariance_type": covariance_type, "random_state": 0}
    found = GaussianMixture(3, max_iter=0, **settings).fit(X)
    settings["max_iter"] = 5
    rng = np.random.default_rng(0)
    weights = found.weights_**1.5
    start = {
        "means_init": found.means_ + rng.normal(0, 0.1, (3, 5)),
        "weights_init": weights / weights.sum(),
        "precisions_init": found.precisions_ * 1.1,
    }
    settings.update((f"{name}_init", start[f"{name}_init"]) for name in names)
    expected = GaussianMixture(3, **settings).fit(X)
    party = np.resize(["north", "south", "west"], len(X))
    alone = PPEMGaussianMixture(3, **settings).fit(X)
    assert_same_mixture(alone, expected, atol=1e-8)
    mixture = PPEMGaussianMixture(3, **settings).fit(X, party=party)
    if "means" not in names:
        # one matrix, for instance, says nothing about the order of components
        for model in (mixture, expected):
            order = np.argsort(model.means_[:, 0])
            model.weights_, model.means_ = model.weights_[order], model.means_[order]
            if covariance_type != "tied":
                model.covariances_ = model.covariances_[order]
    assert_same_mixture(mixture, expected, atol=1e-8)


def test_features_of_very_different_scales_and_a_bad_start(three_blobs):
    X, party = three_blobs
    scales = np.array([1e-4, 1e5])
    start = {
        "weights_init": np.full(3, 1 / 3),
        "means_init": X[:3] * scales,
        "precisions_init": np.tile(np.eye(2), (3, 1, 1)),
    }
    settings = {**start, "reg_covar": 0, "max_iter": 40}
    expected = GaussianMixture(3, **settings).fit(X * scales)
    found = PPEMGaussianMixture(3, min_rows=1, **settings).fit(X * scales, party=party)
    assert found.n_iter_ == expected.n_iter_
    np.testing.assert_allclose(found.means_, expected.means_, rtol=1e-8)
    np.testing.assert_allclose(found.covariances_, expected.covariances_, rtol=1e-7)


def test_who_holds_a_row_does_not_matter(three_blobs):
    X, _ = three_blobs
    start = start_of(X, 3, "full")
    fits = [
        PPEMGaussianMixture(3, backend="masking", **start).fit(X, party=party)
        for party in (
            np.arange(len(X)) % 3,
            np.minimum(np.arange(len(X)) // 40, 3),
            (X[:, 0] > 2) + 2 * (X[:, 1] > 3),
        )
    ]
    for other in fits[1:]:
        assert_same_mixture(other, fits[0], atol=1e-12)


def test_a_partition_equals_rows_with_labels(three_blobs):
    X, party = three_blobs
    settings = {**start_of(X, 3, "tied"), "covariance_type": "tied"}
    mixture = PPEMGaussianMixture(3, backend="masking", **settings)
    expected = mixture.fit(X, party=party).means_
    partition = HorizontalPartition.from_rows(X, party)
    np.testing.assert_array_equal(mixture.fit(partition).means_, expected)
    np.testing.assert_allclose(mixture.score(partition), mixture.score(X), rtol=1e-12)
    np.testing.assert_allclose(mixture.bic(partition), mixture.bic(X), rtol=1e-12)
    np.testing.assert_allclose(mixture.aic(partition), mixture.aic(X), rtol=1e-12)


def fit_as_in_table_1(n, k, n_parties, backend):
    R = np.random.RandomState(42)
    X = np.vstack([R.randn(n // k, 2) + 5 * i for i in range(k)])
    mixture = PPEMGaussianMixture(
        k,
        means_init=np.random.RandomState(42).rand(k, 2),
        weights_init=np.full(k, 1 / k),
        precisions_init=np.tile(np.eye(2), (k, 1, 1)),
        covariance_update="paper",
        reg_covar=0,
        # the paper's tolerance is on the total log-likelihood
        tol=1e-5 / len(X),
        max_iter=501,
        backend=backend,
    )
    mixture.fit(X, party=np.arange(len(X)) % n_parties)
    # the paper evaluates after the update and so counts one iteration less
    return round(mixture.lower_bound_ * len(X), 3), mixture.n_iter_ - 1


@pytest.mark.parametrize(
    "n, k, n_parties, backend, expected",
    [
        (200, 2, 3, "ckks", (-685.275, 52)),
        (1100, 3, 2, "masking", (-4285.445, 81)),
        pytest.param(200, 2, 2, "masking", (-685.275, 52), marks=pytest.mark.slow),
        pytest.param(1100, 3, 6, "plaintext", (-4285.445, 81), marks=pytest.mark.slow),
        pytest.param(2000, 2, 3, "masking", (-7046.019, 188), marks=pytest.mark.slow),
    ],
)
def test_table_1_of_the_paper(n, k, n_parties, backend, expected):
    assert fit_as_in_table_1(n, k, n_parties, backend) == expected


@pytest.mark.slow
@pytest.mark.parametrize("n_parties", [2, 6, 10])
@pytest.mark.parametrize(
    "n, k, expected",
    [
        (200, 3, (-839.393, 134)),
        (200, 4, (-821.071, 92)),
        (2900, 4, (-12202.963, 85)),
        (4700, 3, (-18535.617, 124)),
        (9200, 3, (-36243.374, 417)),
    ],
)
def test_more_of_table_1_encrypted(n, k, n_parties, expected):
    backend = CKKSBackend(preset="fast")
    assert fit_as_in_table_1(n, k, n_parties, backend) == expected


@types
def test_papers_covariances_under_exact_release(three_blobs, covariance_type):
    """The coordinator's last step gives what the parties would have gone on with."""
    X, party = three_blobs
    start = start_of(X, 3, covariance_type)
    old = PPEMGaussianMixture(
        3,
        covariance_type=covariance_type,
        covariance_update="paper",
        backend="masking",
        max_iter=2,
        tol=0,
        **start,
    )
    exact = GaussianMixture(3, covariance_type=covariance_type, **start)
    exact.set_params(max_iter=1, tol=1e9)
    with pytest.warns(UserWarning, match="did not converge"):
        exact.fit(X)
    with pytest.warns(UserWarning, match="did not converge"):
        old.set_params(max_iter=1).fit(X, party=party)
    step = old.means_ - start["means_init"]
    expected = {
        "full": lambda: np.einsum("kf,kg->kfg", step, step),
        "tied": lambda: np.einsum("k,kf,kg->fg", old.weights_, step, step),
        "diag": lambda: step**2,
        "spherical": lambda: (step**2).mean(axis=1),
    }[covariance_type]()
    np.testing.assert_allclose(
        old.covariances_, exact.covariances_ + expected, rtol=1e-9, atol=1e-12
    )
