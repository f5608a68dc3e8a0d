"""Caterpillars and residuals."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skprivbn.inspection import RandomEffectsDisplay, ResidualsDisplay
from skprivbn.mixed_model import PrivateGLMMClassifier, PrivateGLMMRegressor

pytest.importorskip("matplotlib").use("Agg")
pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)


@pytest.fixture(scope="module")
def study():
    rng = np.random.default_rng(0)
    X, centre = rng.normal(size=(200, 2)), rng.integers(8, size=200)
    y = X[:, 0] + rng.normal(size=8)[centre] + rng.normal(size=200)
    return X, y, centre


def test_caterpillar_is_in_order_with_intervals(study):
    X, y, centre = study
    model = PrivateGLMMRegressor(slopes=[1]).fit(X, y, cluster=centre)
    display = RandomEffectsDisplay.from_estimator(model, effect="x1", level=0.5)
    effects = display.ax_.lines[1].get_xdata()
    np.testing.assert_allclose(effects, np.sort(model.random_effects_[:, 1]))
    order = np.argsort(model.random_effects_[:, 1])
    segments = display.ax_.collections[0].get_segments()
    widths = np.array([s[1, 0] - s[0, 0] for s in segments])
    np.testing.assert_allclose(
        widths, 2 * 0.67449 * model.random_effects_std_[order, 1], rtol=1e-4
    )
    assert display.ax_.get_xlabel() == "random effect: x1, with 50% intervals"
    assert display.ax_.get_ylabel() == "cluster"
    with pytest.raises(ValueError, match="does not vary"):
        RandomEffectsDisplay.from_estimator(model, effect="x0")


def test_of_a_pipeline_the_last_step_is_drawn(study):
    X, y, centre = study
    pipeline = make_pipeline(StandardScaler(), PrivateGLMMRegressor())
    with pytest.raises(NotFittedError, match="PrivateGLMMRegressor"):
        RandomEffectsDisplay.from_estimator(pipeline)
    pipeline[-1].fit(X, y, cluster=centre)
    display = RandomEffectsDisplay.from_estimator(pipeline)
    np.testing.assert_array_equal(display.labels, np.unique(centre))


def test_residuals_are_standardised(study):
    X, y, centre = study
    model = PrivateGLMMRegressor().fit(X, y, cluster=centre)
    display = ResidualsDisplay.from_estimator(model, X, y, cluster=centre)
    expected = (y - model.predict(X, cluster=centre)) / model.residual_scale_
    np.testing.assert_allclose(display.residuals, expected)
    classes = np.where(y > 0, "sick", "well")
    model = PrivateGLMMClassifier().fit(X, classes, cluster=centre)
    display = ResidualsDisplay.from_estimator(model, X, classes)
    p = model.predict_proba(X)[:, 1]
    expected = ((classes == "well") - p) / np.sqrt(p * (1 - p))
    np.testing.assert_allclose(display.residuals, expected)
    counts = np.random.default_rng(1).poisson(2, 200)
    model = PrivateGLMMRegressor("poisson").fit(X, counts, cluster=centre)
    display = ResidualsDisplay.from_estimator(model, X, counts)
    mean = model.predict(X)
    np.testing.assert_allclose(display.residuals, (counts - mean) / np.sqrt(mean))
