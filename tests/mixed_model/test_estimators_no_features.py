"""Models of an intercept and random effects only, ``y ~ 1 + (1 | ward)``."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import log_expit, logsumexp
from scipy.stats import multivariate_normal, norm

from skprivbn.mixed_model import PrivateGLMMClassifier, PrivateGLMMRegressor
from skprivbn.partition import HorizontalPartition
from skprivbn.preprocessing import FederatedStandardScaler
from tests.federation.site.loopback import connect, make_sites

N, NAMES = 300, ("north", "south", "west")
RNG = np.random.default_rng(0)
WARD, PARTY = RNG.integers(6, size=N), np.arange(N) % 3
ETA = RNG.normal(size=6)[WARD]
TARGETS = {
    "gaussian": ETA + RNG.normal(size=N),
    "poisson": RNG.poisson(np.exp(ETA / 2)).astype(float),
    "binomial": (RNG.random(N) < 1 / (1 + np.exp(-ETA))).astype(int),
}
NOTHING = np.empty((N, 0))
U = np.linspace(-8, 8, 401)
#: lme4 1.1-31 in R 4.2.2, with bobyqa to 1e-9
LME4 = {
    "log_likelihood": -197.019638416,
    "intercept": -0.06458777652,
    "scale": 0.7244330653,
}


def make(family, **options):
    if family == "binomial":
        return PrivateGLMMClassifier(**options)
    return PrivateGLMMRegressor(family, **options)


def log_likelihood(family, parameters):
    """Return the marginal log-likelihood, on pooled rows, by the textbook."""
    y = TARGETS[family]
    if family == "gaussian":
        mean, scale, sigma = parameters
        V = scale**2 * np.equal.outer(WARD, WARD) + sigma**2 * np.eye(N)
        return multivariate_normal(np.full(N, mean), V).logpdf(y)
    mean, scale = parameters
    eta = mean + scale * U
    if family == "poisson":
        constant = [np.log(np.arange(1, k + 1)).sum() for k in y]
        rows = y[:, None] * eta - np.exp(eta) - np.array(constant)[:, None]
    else:
        rows = log_expit(np.where(y[:, None] == 1, eta, -eta))
    each = [rows[ward == WARD].sum(axis=0) + norm.logpdf(U) for ward in range(6)]
    return (logsumexp(each, axis=1) + np.log(U[1] - U[0])).sum()


@pytest.mark.filterwarnings("ignore:all rows are taken to be one party's")
@pytest.mark.parametrize("party", [None, PARTY], ids=["pooled", "parties"])
@pytest.mark.parametrize("family", TARGETS)
def test_an_intercept_and_random_effects_are_a_model(family, party):
    options = {"reml": False} if family == "gaussian" else {}
    model = make(family, **options).fit(
        NOTHING, TARGETS[family], cluster=WARD, party=party
    )
    found = [np.ravel(model.intercept_)[0], model.random_effect_scale_]
    if family == "gaussian":
        found.append(model.residual_scale_)
    best = minimize(lambda p: -log_likelihood(family, p), np.array(found) + 0.05)
    assert model.log_likelihood_ == pytest.approx(-best.fun, abs=1e-5)
    np.testing.assert_allclose(found, np.abs(best.x) * np.sign(found), atol=2e-3)
    assert np.ravel(model.coef_).shape == (0,) and model.n_features_in_ == 0
    assert model.covariance_.shape == (1, 1) and model.covariance_[0, 0] > 0
    text = str(model.summary())
    assert "(Intercept)" in text and "nan" not in text
    # what it predicts is its intercept and the effects of the clusters
    fitted = found[0] + model.random_effects_[WARD]
    mean = {"gaussian": fitted, "poisson": np.exp(fitted), "binomial": fitted > 0}
    predicted = model.predict(NOTHING, cluster=WARD)
    np.testing.assert_allclose(predicted, mean[family])


def test_laplace_is_lme4s_without_features_too():
    # glmer(y ~ 1 + (1 | ward), binomial), and its VarCorr
    model = make("binomial", quadrature_params={"n_nodes": 1})
    model.fit(NOTHING, TARGETS["binomial"], cluster=WARD, party=PARTY)
    assert model.log_likelihood_ == pytest.approx(LME4["log_likelihood"], abs=1e-5)
    assert model.intercept_[0] == pytest.approx(LME4["intercept"], abs=1e-4)
    assert model.random_effect_scale_ == pytest.approx(LME4["scale"], abs=1e-4)


def test_effects_around_zero_need_no_intercept_either():
    # no fixed effect at all
    model = make("gaussian", fit_intercept=False, reml=False)
    model.fit(NOTHING, TARGETS["gaussian"], cluster=WARD, party=PARTY)

    def loss(parameters):
        return -log_likelihood("gaussian", [0.0, *parameters])

    found = [model.random_effect_scale_, model.residual_scale_]
    assert model.log_likelihood_ == pytest.approx(-loss(found), abs=1e-6)
    assert model.log_likelihood_ == pytest.approx(-minimize(loss, found).fun, abs=1e-6)
    assert model.intercept_ == 0 and model.covariance_.shape == (0, 0)
    other = make("binomial", fit_intercept=False)
    other.fit(NOTHING, TARGETS["binomial"], cluster=WARD, party=PARTY)
    assert other.log_likelihood_ == pytest.approx(
        log_likelihood("binomial", [0.0, other.random_effect_scale_]), abs=1e-5
    )


def test_frames_and_partitions_without_columns():
    y, frame = TARGETS["binomial"], pd.DataFrame(index=range(N))
    expected = make("binomial").fit(NOTHING, y, cluster=WARD, party=PARTY)
    model = make("binomial").fit(frame, y, cluster=WARD, party=PARTY)
    assert model.log_likelihood_ == expected.log_likelihood_

    def held(values):
        return {name: values[i == PARTY] for i, name in enumerate(NAMES)}

    partition = HorizontalPartition(held(NOTHING), y=held(y), cluster=held(WARD))
    model = make("binomial").fit(partition)
    assert model.log_likelihood_ == pytest.approx(expected.log_likelihood_, abs=1e-9)
    # others need columns
    with pytest.raises(ValueError, match="0 feature"):
        FederatedStandardScaler().fit(partition)


def test_with_neither_features_nor_clusters_there_is_nothing_to_fit():
    with pytest.raises(ValueError, match="0 feature.*unless cluster is given"):
        make("binomial").fit(NOTHING, TARGETS["binomial"])
    with pytest.raises(ValueError, match="0 feature.*unless cluster is given"):
        make("gaussian").fit(NOTHING, TARGETS["gaussian"])


SITE_FILE = """
min_parties = 3
peers = ["north", "south", "west"]

[datasets.icu]
path = "icu.csv"
min_rows = 10
min_cell_count = 1
max_exact_fits = 20
estimators = ["PrivateGLMMClassifier", "PrivateGLMMRegressor"]

[datasets.icu.columns]
age = "float"
days = "float"
died = "int"
ward = ["a", "b", "c", "d", "e", "f"]
"""


@pytest.mark.parametrize("columns", [[], ["days", "died", "ward"]])
@pytest.mark.parametrize("family, target", [("gaussian", "days"), ("binomial", "died")])
def test_sites_fit_models_without_features(tmp_path, family, target, columns):
    # wards with a single row on one side of the mean of all would be pooled
    days = TARGETS["gaussian"] - ETA / 2
    for i, name in enumerate(NAMES):
        (tmp_path / name).mkdir()
        table = {
            "age": 60.0,
            "days": days,
            "died": TARGETS["binomial"],
            "ward": [f"{'abcdef'[ward]}" for ward in WARD],
        }
        table = pd.DataFrame(table)[i == PARTY]
        table.to_csv(tmp_path / name / "icu.csv", index=False)
    columns = [name for name in columns if name in (target, "ward")]
    connection = connect(make_sites(tmp_path, dict.fromkeys(NAMES, SITE_FILE)), "icu")
    rows = connection.rows(columns)
    model = make(family).fit(rows, y=target, cluster="ward")
    y = days if target == "days" else TARGETS[family]
    expected = make(family).fit(NOTHING, y, cluster=WARD, party=PARTY)
    assert model.n_features_in_ == 0
    assert model.log_likelihood_ == pytest.approx(expected.log_likelihood_, abs=1e-7)
    np.testing.assert_allclose(
        model.random_effects_, expected.random_effects_, atol=1e-7
    )
