"""Estimators survive whatever privacy noise does: what follows it is post-processing.

The noise is replaced by the worst there is, so that nothing here depends on luck.
"""

import numpy as np
import pytest

from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedPCA,
    FederatedStandardScaler,
)
from skprivbn.privacy import CountMechanism, DistributedNoise, private_score
from skprivbn.structure import (
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    PrivateK2StructureLearner,
)
from skprivbn.structure.gaussian._search import SEARCHES

pytestmark = [
    pytest.mark.filterwarnings("error::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:privacy noise is as large"),
    # parameters of the same estimators are fitted again and again
    pytest.mark.filterwarnings("ignore:this is the second fit"),
]

#: what is added to every count, in multiples of the noise's scale
WORST = {
    "none": lambda n: np.zeros(n),
    "all negative": lambda n: np.full(n, -40.0),
    "all positive": lambda n: np.full(n, 40.0),
    "negative first": lambda n: np.where(np.arange(n) == 0, -40.0, 40.0),
    "positive first": lambda n: np.where(np.arange(n) == 0, 40.0, -40.0),
    "alternating": lambda n: 40.0 * (-1.0) ** np.arange(n),
    "one huge": lambda n: np.where(np.arange(n) == n // 2, 40.0, 0.0),
    "random": lambda n: np.random.default_rng(0).laplace(size=n),
}

ROWS = np.random.default_rng(0).normal(size=(9, 4))
CODES = np.random.default_rng(0).integers(2, size=(9, 4))
PARTY = np.arange(9) % 3
#: of very different widths
OBJECT = np.dtype(object)
BOUNDS = ([-3, -1e3, 0, -1e-4], [3, 1e3, 0.1, 1e-4])


@pytest.fixture(params=WORST)
def worst_noise(request, monkeypatch):
    def draw(noise, shape):
        values = WORST[request.param](int(np.prod(shape)))
        return np.rint(noise.scale * values).astype(np.int64).reshape(shape)

    def release(noise, counts):
        return counts + draw(noise, np.shape(counts))

    monkeypatch.setattr(DistributedNoise, "share", draw)
    monkeypatch.setattr(CountMechanism, "release", release)


def assert_finite(value, name):
    """Look for NaN and infinities in what was fitted, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            assert_finite(inner, f"{name}[{key!r}]")
    elif isinstance(value, list | tuple) or getattr(value, "dtype", None) is OBJECT:
        for inner in value:
            assert_finite(inner, name)
    elif isinstance(value, np.ndarray | float):
        assert np.all(np.isfinite(value)), name
    elif type(value).__module__.startswith("skprivbn.bayesian_network"):
        assert_finite(vars(value), name)


#: the bound of private EM is not known, and says so
UNKNOWN = {"lower_bound_"}


def check(model, X, *methods, **fit_params):
    model.fit(X, **fit_params)
    for name, value in vars(model).items():
        if name.endswith("_") and name not in UNKNOWN:
            assert_finite(value, name)
    for name in methods:
        assert_finite(getattr(model, name)(X), name)


#: of moments alone
WITH_NOISE = sorted(SEARCHES.keys() - {"lingam"})


@pytest.mark.usefixtures("worst_noise")
@pytest.mark.parametrize(
    "search, epsilon, delta",
    [
        *((search, 1e-3, 0.0) for search in WITH_NOISE),
        ("bic", 1e-7, 0),
        ("pc", 0.1, 0.1),
    ],
)
def test_gaussian_networks(search, epsilon, delta):
    model = FederatedGaussianBayesianNetwork(
        search, epsilon=epsilon, delta=delta, bounds=BOUNDS
    )
    check(model, ROWS, "predict", "score", party=PARTY)
    assert np.all(np.isfinite(model.sample(5, random_state=0)))
    partly = np.where(np.arange(4) == 1, np.nan, ROWS)
    assert np.all(np.isfinite(model.network_.predict(partly)))


@pytest.mark.usefixtures("worst_noise")
@pytest.mark.parametrize("acyclicity", ["logdet", "expm"])
def test_consensus(acyclicity):
    model = FederatedNotearsADMM(
        admm_params={"acyclicity": acyclicity}, epsilon=1e-4, bounds=BOUNDS
    )
    check(model, ROWS, "predict", "score", party=PARTY)


@pytest.mark.usefixtures("worst_noise")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_mixtures(kind, dtype):
    model = PPEMGaussianMixture(
        2,
        covariance_type=kind,
        epsilon=1e-4,
        bounds=BOUNDS,
        backend="masking",
        max_iter=2,
        random_state=0,
    )
    check(model, ROWS.astype(dtype), "predict_proba", "score", party=PARTY)
    assert np.all(np.isfinite(model.sample(5)[0]))
    score = private_score(model, ROWS, epsilon=1e-6, bounds=(-9, 0))
    assert -9 <= score <= 0


@pytest.mark.usefixtures("worst_noise")
@pytest.mark.parametrize(
    "method, cliques, delta",
    [
        ("auto", "chain", 0.0),
        ("auto", "mst", 0.0),
        ("cgm", "chain", 1e-6),
        ("cgm", "mst", 0.0),
        ("naive", "tree", 1e-6),
    ],
)
def test_random_fields(method, cliques, delta):
    for party in (None, PARTY)[: 1 if cliques == "mst" else 2]:
        model = DPCGMLearner(
            cliques,
            epsilon=0.01,
            delta=delta,
            method=method,
            states=[2, 2, 3, 2],
            method_params={"max_iter": 20},
        )
        check(model, CODES, "score_samples", party=party)
        assert model.sample(5).shape == (5, 4)
        partly = np.where(np.arange(4) == 1, np.nan, CODES)
        assert model.predict(partly).shape == CODES.shape


@pytest.mark.usefixtures("worst_noise")
def test_networks_of_columns():
    parties = {"a": [0, 1], "b": [2, 3]}
    model = PrivateK2StructureLearner(
        parties, epsilon=1e-3, states=[2] * 4, max_parents=1
    )
    check(model, CODES, "score_samples")
    field = DPCGMLearner(parties=parties, epsilon=1e-3, states=[2, 2, 3, 2])
    check(field, CODES, "score_samples")


@pytest.mark.usefixtures("worst_noise")
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize(
    "transformer",
    [
        FederatedStandardScaler(),
        FederatedPCA(),
        FederatedPCA(0.5, whiten=True),
        FederatedKBinsDiscretizer(5),
    ],
    ids=repr,
)
def test_transformers(transformer, delta):
    for epsilon in (1e-5, 1e-2):
        transformer.set_params(epsilon=epsilon, delta=delta, bounds=BOUNDS)
        check(transformer, ROWS, "transform", party=PARTY)
        there = transformer.transform(ROWS)
        assert np.all(np.isfinite(transformer.inverse_transform(there)))


SAID = [
    FederatedGaussianBayesianNetwork(),
    FederatedNotearsADMM(),
    FederatedStandardScaler(),
    FederatedKBinsDiscretizer(),
]


@pytest.mark.parametrize("worst_noise", ["all negative"], indirect=True)
@pytest.mark.parametrize("estimator", SAID, ids=repr)
def test_noise_that_drowns_the_rows_is_said(estimator, worst_noise):
    estimator.set_params(epsilon=0.1, bounds=BOUNDS)
    with pytest.warns(UserWarning, match="next to nothing.*more rows"):
        estimator.fit(ROWS, party=PARTY)


@pytest.mark.parametrize("worst_noise", ["none"], indirect=True)
@pytest.mark.parametrize("estimator", SAID, ids=repr)
@pytest.mark.filterwarnings("error:privacy noise is as large")
def test_noise_that_does_not_drown_them_is_not(estimator, worst_noise):
    rows = np.tile(ROWS, (1000, 1))
    estimator.set_params(epsilon=100.0, bounds=(-3, 3))
    estimator.fit(rows, party=np.arange(len(rows)) % 3)
