"""Wide effects and few rows: results do not depend on how rows are spread."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from skprivbn.mixed_model import PrivateGLMMClassifier

TOENAIL = json.loads((Path(__file__).parent / "lme4" / "toenail.json").read_text())


def fit(X, y, cluster, party):
    # nodes err by 0.03 here, lme4's as well
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PrivateGLMMClassifier(min_rows=1).fit(X, y, cluster=cluster, party=party)


def test_patients_with_wide_effects_may_be_anywhere():
    treated, time = np.array(TOENAIL["terbinafine"]), np.array(TOENAIL["time"])
    X = np.column_stack([treated, time, treated * time])
    patient, y = np.array(TOENAIL["patient"]), np.array(TOENAIL["y"])
    pooled = fit(X, y, patient, None)
    assert pooled.log_likelihood_ == pytest.approx(TOENAIL["log_likelihood"], abs=2e-4)
    assert pooled.random_effect_scale_ == pytest.approx(TOENAIL["deviation"], abs=5e-3)
    np.testing.assert_allclose(pooled.coef_[0], TOENAIL["fixed"][1:], atol=1e-3)
    # three parties ended 0.0075 below, after 39 steps
    for party in (np.arange(len(y)) % 3, patient % 3):
        model = fit(X, y, patient, party)
        assert model.converged_ and model.n_iter_ <= 15
        value = pytest.approx(pooled.log_likelihood_, abs=1e-5)
        assert model.log_likelihood_ == value
        np.testing.assert_allclose(model.coef_, pooled.coef_, atol=1e-4)
        np.testing.assert_allclose(model.coef_std_, pooled.coef_std_, atol=1e-4)
        scale = pytest.approx(pooled.random_effect_scale_, abs=1e-4)
        assert model.random_effect_scale_ == scale


def near_separation(seed):
    """Return rows that a feature nearly separates within each of twenty clusters."""
    rng = np.random.default_rng(seed)
    x, cluster = rng.normal(size=200), np.arange(200) % 20
    eta = 60 * (x + rng.normal(size=20)[cluster] / 6)
    y = (rng.random(200) < 1 / (1 + np.exp(-eta))).astype(int)
    return np.column_stack([x, rng.normal(size=200)]), y, cluster


def exact_likelihood(model, X, y, cluster):
    """Return the log-likelihood at the estimates, over a fine grid of effects."""
    u, total = np.linspace(-7, 7, 2001), 0.0
    eta = model.intercept_ + X @ model.coef_[0]
    for label in np.unique(cluster):
        mine = cluster == label
        at = eta[mine][:, None] + model.random_effect_scale_ * u
        heights = (y[mine][:, None] * at - np.logaddexp(0, at)).sum(axis=0)
        total += np.log(np.sum(np.exp(heights) * norm.pdf(u)) * (u[1] - u[0]))
    return total


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
@pytest.mark.filterwarnings("ignore:the log-likelihood may be off")
@pytest.mark.parametrize("n_quadrature, widest", [(25, 6), (1, 8)])
@pytest.mark.parametrize("seed", [1, 2])
def test_near_separation_ends_at_the_same_place_whoever_holds_the_rows(
    seed, n_quadrature, widest
):
    # the log-likelihood rises to infinity: -14.44, coefficient 159, scale 22 at one
    # party, and -14.58, 50, 7 where parties shared clusters
    X, y, cluster = near_separation(seed)
    number = np.arange(200)
    spreads = [number % 2, cluster % 3, number // 20 % 2, number // 20 % 3]
    spreads += [number // 20 % 5, np.where(cluster < 7, cluster % 3, number // 20 % 3)]
    model = PrivateGLMMClassifier(
        min_rows=1, quadrature_params={"n_nodes": n_quadrature}
    )
    found = []
    for party in (None, *spreads):
        with pytest.warns(
            ConvergenceWarning, match=f"scale is held at {widest}"
        ) as caught:
            found.append(clone(model).fit(X, y, cluster=cluster, party=party))
        text = " ".join(str(warning.message) for warning in caught)
        assert "max_iter" not in text and "nearly separate the classes" in text
        assert not found[-1].converged_ and np.isnan(found[-1].coef_std_).all()
        assert found[-1].random_effect_scale_ == widest
    values = [one.log_likelihood_ for one in found]
    assert np.ptp(values) < 3e-4
    assert np.ptp([one.coef_ for one in found], axis=0).max() < 2e-3
    if n_quadrature > 1:
        exact = exact_likelihood(found[0], X, y, cluster)
        assert values[0] == pytest.approx(exact, abs=0.02)


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
@pytest.mark.filterwarnings("ignore:the log-likelihood may be off")
def test_more_nodes_may_have_wider_effects():
    X, y, cluster = near_separation(2)
    with pytest.warns(ConvergenceWarning, match="scale is held at 10.375"):
        model = PrivateGLMMClassifier(min_rows=1, quadrature_params={"n_nodes": 75})
        model.fit(X, y, cluster=cluster)
    exact = exact_likelihood(model, X, y, cluster)
    assert model.log_likelihood_ == pytest.approx(exact, abs=0.02)
