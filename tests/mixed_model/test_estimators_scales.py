"""One standard deviation for each cluster, as appendix B of the paper begins."""

import numpy as np
import pytest
from scipy.optimize import minimize

from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.mixed_model import PrivateGLMMClassifier
from tests.mixed_model.pooled import Study, log_likelihood

EFFECTS = np.array([2.0, -1.5, 0.3, 0.0, 1.0, -2.5])
EACH = {"scales": "each"}
CHAINS = {"n_draws": 400, "n_burn_in": 50, "random_state": 0}


def simulate():
    rng = np.random.default_rng(3)
    X, cluster = rng.normal(size=(900, 2)), rng.integers(6, size=900)
    log_odds = 0.3 + X @ [0.8, -0.5] + EFFECTS[cluster]
    y = (rng.random(900) < 1 / (1 + np.exp(-log_odds))).astype(int)
    party = rng.integers(3, size=900)
    party[cluster == 4] = 1
    return Study(X, y, cluster, party)


STUDY = simulate()


def pooled(parameters):
    """Return the log-likelihood at intercept, coefficients and scales of all rows."""
    fixed, scales = np.split(parameters, [3])
    total = 0.0
    for c, scale in enumerate(scales):
        rows = (v[STUDY.cluster == c] for v in (STUDY.X, STUDY.y, STUDY.cluster))
        total += log_likelihood([*fixed, scale], *rows)
    return total


def fit(party, max_iter, chains=CHAINS, **options):
    model = PrivateGLMMClassifier(
        "metropolis",
        max_iter=max_iter,
        effect_params=EACH,
        metropolis_params=chains,
        **options,
    )
    return model.fit(STUDY.X, STUDY.y, cluster=STUDY.cluster, party=party)


def parameters(model):
    scales = model.random_effect_scale_
    return np.concatenate([model.intercept_, model.coef_[0], scales])


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
def test_scales_are_those_of_the_pooled_maximum():
    model = fit(STUDY.party, max_iter=40)
    found = parameters(model)
    assert model.log_likelihood_ == pytest.approx(pooled(found), abs=1e-3)
    start = np.append(np.zeros(3), np.full(6, 0.7))
    best = minimize(lambda p: -pooled(p), start, method="BFGS")
    assert -best.fun == pytest.approx(model.log_likelihood_, abs=0.1)
    np.testing.assert_allclose(found[:3], best.x[:3], atol=0.02)
    wide = np.abs(best.x[3:]) > 0.3
    assert wide.tolist() == [True, True, False, False, True, True]
    scales = found[3:]
    np.testing.assert_allclose(scales[wide], np.abs(best.x[3:])[wide], rtol=0.03)
    assert scales[~wide].max() < 0.1
    # an effect and its scale are one number: that is all one cluster can tell
    ratio = np.abs(model.random_effects_) / scales
    np.testing.assert_allclose(ratio[wide], 1, atol=0.1)
    assert model.summary().components.n_parameters == 6


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
def test_how_rows_are_spread_makes_no_difference():
    chains = CHAINS | {"n_draws": 100}
    by_cluster, mixed = (
        fit(party, 2, chains) for party in (STUDY.cluster % 3, STUDY.party)
    )
    np.testing.assert_allclose(parameters(by_cluster), parameters(mixed), atol=1e-6)
    np.testing.assert_allclose(by_cluster.coef_std_, mixed.coef_std_, rtol=1e-6)


def test_scales_of_clusters_that_are_not_told_are_not_told_either():
    chains = CHAINS | {"n_draws": 100}
    model = fit(STUDY.party, 2, chains, release_effects="shared")
    hidden = np.isnan(model.random_effect_scale_)
    assert hidden.tolist() == [False, False, False, False, True, False]
    with pytest.warns(PrivacyLeakWarning):
        told = fit(STUDY.party, 2, chains)
    shared = model.random_effect_scale_[~hidden]
    np.testing.assert_allclose(shared, told.random_effect_scale_[~hidden])


def test_quadrature_has_one_scale():
    model = PrivateGLMMClassifier(effect_params=EACH)
    with pytest.raises(ValueError, match="goes with method='metropolis'"):
        model.fit(STUDY.X, STUDY.y, cluster=STUDY.cluster, party=STUDY.cluster % 3)


def test_chains_without_an_intercept_leave_the_first_coefficient_alone():
    """The mean of the draws was added to whatever came first."""
    party = np.arange(len(STUDY.y)) % 3
    arguments = {"cluster": STUDY.cluster, "party": party}
    drawn = PrivateGLMMClassifier(
        "metropolis", fit_intercept=False, max_iter=10, metropolis_params=CHAINS
    ).fit(STUDY.X, STUDY.y, **arguments)
    exact = PrivateGLMMClassifier(fit_intercept=False)
    exact.fit(STUDY.X, STUDY.y, **arguments)
    np.testing.assert_allclose(drawn.coef_, exact.coef_, atol=0.02)
