"""Features that are collinear, or nearly so: no more is lost than rows lose."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skprivbn.mixed_model import PrivateGLMMClassifier, PrivateGLMMRegressor
from skprivbn.mixed_model._updates import decorrelate, least_coefficients, vanished

N = 600
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
NOISE = RNG.normal(size=N)
CENTRE = RNG.integers(12, size=N)
PARTY = np.arange(N) % 3
ETA = 0.3 + X @ [0.5, -0.4] + 0.7 * RNG.normal(size=12)[CENTRE]
CLASSES = (RNG.random(N) < 1 / (1 + np.exp(-ETA))).astype(int)
AMOUNTS = ETA + RNG.normal(size=N)
COUNTS = RNG.poisson(np.exp(ETA))
MODELS = {
    "quadrature": (PrivateGLMMClassifier(), CLASSES),
    "laplace": (PrivateGLMMClassifier(quadrature_params={"n_nodes": 1}), CLASSES),
    "poisson": (PrivateGLMMRegressor("poisson"), COUNTS),
    "linear": (PrivateGLMMRegressor("gaussian", reml=False), AMOUNTS),
    "restricted": (PrivateGLMMRegressor("gaussian"), AMOUNTS),
}


def columns(delta):
    return np.column_stack([X, X[:, 0] - 2 * X[:, 1] + delta * NOISE])


def fit(name, features, party=PARTY):
    model, y = MODELS[name]
    model = type(model)(**model.get_params())
    return model.fit(features, y, cluster=CENTRE, party=party)


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-7])
@pytest.mark.parametrize("name", MODELS)
def test_nearly_collinear_features_are_the_same_model(name, delta):
    model = fit(name, columns(delta))
    # the same model in columns that are not collinear
    other = fit(name, np.column_stack([X, NOISE]))
    a, b, c = np.ravel(other.coef_)
    expected = [a - c / delta, b + 2 * c / delta, c / delta]
    rtol = max(1e-5, 1e-11 / delta)
    np.testing.assert_allclose(np.ravel(model.coef_), expected, rtol=rtol)
    error = np.ravel(other.coef_std_)[2] / delta
    errors = np.ravel(model.coef_std_)
    np.testing.assert_allclose(errors, error * np.array([1, 2, 1]), rtol=1e-2)
    assert errors[2] == pytest.approx(error, rel=1e-5)
    assert model.intercept_std_ == pytest.approx(other.intercept_std_, rel=1e-5)
    # the restricted likelihood depends on the units of the features
    unit = np.log(delta) if name == "restricted" else 0.0
    expected = other.log_likelihood_ - unit
    assert model.log_likelihood_ == pytest.approx(expected, abs=1e-6)
    assert model.converged_


def test_lme4_has_the_same_likelihood_and_errors():
    # lme4 1.1-31 in R 4.2.2, bobyqa to 1e-9, delta = 1e-3: its coefficients are not yet
    # at the maximum there, nor are their errors those of the columns that are not
    # collinear
    model = fit("laplace", columns(1e-3))
    assert model.log_likelihood_ == pytest.approx(-341.936457, abs=2e-6)
    assert model.intercept_std_[0] == pytest.approx(0.3024759, abs=5e-5)
    model = fit("quadrature", columns(1e-3))
    assert model.log_likelihood_ == pytest.approx(-341.886106, abs=2e-6)
    model = fit("restricted", columns(1e-3))
    assert model.log_likelihood_ == pytest.approx(-886.925185, abs=2e-6)
    np.testing.assert_allclose(model.coef_std_, [40.95416, 81.90691, 40.95243], 1e-5)


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
@pytest.mark.parametrize("name", ["quadrature", "linear"])
def test_who_holds_collinear_rows_makes_no_difference(name):
    expected = fit(name, columns(1e-5))
    for party in (CENTRE % 3, None):
        model = fit(name, columns(1e-5), party)
        np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-5)
        np.testing.assert_allclose(model.coef_std_, expected.coef_std_, rtol=1e-5)


@pytest.mark.parametrize("name", ["quadrature", "laplace", "linear"])
def test_collinear_features_have_the_least_coefficients(name):
    with pytest.warns(ConvergenceWarning, match="features are collinear"):
        model = fit(name, columns(0.0))
    reduced = fit(name, X)
    assert model.log_likelihood_ == pytest.approx(reduced.log_likelihood_, abs=1e-6)
    assert np.all(np.isnan(model.coef_std_))
    coefficients, scale = np.ravel(model.coef_), columns(0.0).std(axis=0)
    free = np.array([1, -2, -1]) * scale
    assert coefficients * scale @ free == pytest.approx(0, abs=1e-6)
    fitted = columns(0.0) @ coefficients
    np.testing.assert_allclose(fitted, X @ np.ravel(reduced.coef_), atol=1e-5)
    if name != "linear":
        # which does not depend on how coefficients are shared
        assert model.intercept_std_ == pytest.approx(reduced.intercept_std_, rel=1e-5)


def test_columns_that_are_not_collinear_stay_as_they_are():
    features = np.column_stack([np.ones(N), X, X[:, 0] + 0.05 * NOISE, np.zeros(N)])
    np.testing.assert_array_equal(decorrelate(features.T @ features), np.eye(5))


def test_many_collinear_columns_are_taken_apart():
    rng = np.random.default_rng(1)
    base = np.column_stack([np.ones(N), rng.normal(size=(N, 3))])
    near = base[:, [1]] + 1e-4 * rng.normal(size=(N, 2))
    exact = base[:, 1] - 3 * base[:, 3]
    features = np.column_stack([base, near, exact]) * [1, 1, 1e3, 1e-3, 1, 1, 1]
    turn = decorrelate(features.T @ features)
    turned = features @ turn
    nothing = vanished(turned.T @ turned, turn)
    assert np.flatnonzero(nothing).tolist() == [6]
    kept = turned[:, ~nothing]
    kept = kept / np.linalg.norm(kept, axis=0)
    assert np.linalg.cond(kept) < 10 < 1e3 < np.linalg.cond(features[:, :6])
    beta, free = least_coefficients(np.arange(7.0), turn, nothing)
    assert free.shape == (7, 1) and free[:, 0] @ beta == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(
        features @ beta, features @ np.arange(7.0), rtol=1e-6, atol=1e-6
    )


def test_no_columns_and_columns_of_zeros():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decorrelate(np.zeros((0, 0))).shape == (0, 0)
        np.testing.assert_array_equal(decorrelate(np.zeros((2, 2))), np.eye(2))
