"""Wide effects and few rows: results do not depend on how rows are spread."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
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


def test_a_search_that_ends_early_is_not_told_to_take_more_steps():
    rng = np.random.default_rng(2)
    x, cluster = rng.normal(size=200), np.arange(200) % 20
    eta = 60 * (x + rng.normal(size=20)[cluster] / 6)
    y = (rng.random(200) < 1 / (1 + np.exp(-eta))).astype(int)
    X = np.column_stack([x, rng.normal(size=200)])
    with pytest.warns(ConvergenceWarning) as caught:
        model = PrivateGLMMClassifier(min_rows=1)
        model.fit(X, y, cluster=cluster, party=np.arange(200) // 20 % 3)
    assert not model.converged_ and model.n_iter_ < 100
    (text,) = (
        str(warning.message)
        for warning in caught
        if issubclass(warning.category, ConvergenceWarning)
    )
    assert "max_iter" not in text and "nearly separate the classes" in text
