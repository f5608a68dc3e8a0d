import matplotlib as mpl
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skprivbn.inspection import PrivacyUtilityDisplay

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

X = np.arange(20.0).reshape(-1, 1)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


class Private(BaseEstimator):
    """Scores that depend on the parameters and the fold only."""

    def __init__(self, epsilon=1.0, method="a"):
        self.epsilon = epsilon
        self.method = method

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def score(self, X, y=None):
        noise = 0 if self.epsilon in (None, np.inf) else 1 / self.epsilon
        return -noise - (self.method == "b") + X.mean() / 100


def search(grid, estimator=None, **kwargs):
    return GridSearchCV(estimator or Private(), grid, cv=4, **kwargs).fit(X)


def test_scores_and_error_bars_of_a_search():
    fitted = search({"epsilon": [10, 0.1, 1]})
    display = PrivacyUtilityDisplay.from_search(fitted, baseline=0.3)
    ((values, means, deviations),) = display.curves.values()
    assert values.tolist() == [0.1, 1, 10]
    results = fitted.cv_results_
    order = [1, 2, 0]
    assert_allclose(means, results["mean_test_score"][order])
    assert_allclose(deviations, results["std_test_score"][order])
    assert (deviations > 0).all()
    line = display.errorbars_[""].lines[0]
    assert_allclose(line.get_xdata(), values)
    assert_allclose(line.get_ydata(), means)
    assert display.ax_.get_xscale() == "log"
    assert display.baseline_lines_["not private"].get_ydata()[0] == 0.3
    assert display.figure_ is display.ax_.figure


def test_other_parameters_and_pipelines_give_several_lines():
    pipeline = make_pipeline(StandardScaler(), Private())
    fitted = search(
        {"private__epsilon": [0.1, 1], "private__method": ["a", "b"]}, pipeline
    )
    display = PrivacyUtilityDisplay.from_search(fitted)
    assert list(display.curves) == ["method=a", "method=b"]
    difference = display.curves["method=a"][1] - display.curves["method=b"][1]
    assert_allclose(difference, 1)


def test_several_searches_by_name_and_candidates_without_privacy():
    display = PrivacyUtilityDisplay.from_search(
        {
            "first": search({"epsilon": [0.1, 1, None]}),
            "second": search({"epsilon": [0.5, np.inf], "method": ["b"]}),
        }
    )
    assert list(display.curves) == ["first", "second"]
    assert display.curves["second"][0].tolist() == [0.5]
    mean = X.mean() / 100
    assert display.baselines == pytest.approx(
        {"first, not private": mean, "second, not private": mean - 1}
    )


def test_a_search_with_several_metrics():
    scoring = {"high": lambda e, X, y=None: 1.0, "low": lambda e, X, y=None: -1.0}
    fitted = search({"epsilon": [0.1, 1]}, scoring=scoring, refit=False)
    display = PrivacyUtilityDisplay.from_search(fitted, metric="low")
    assert display.curves[""][1].tolist() == [-1, -1]
    assert display.ax_.get_ylabel() == "low"
    with pytest.raises(ValueError, match="no metric 'score'; it has"):
        PrivacyUtilityDisplay.from_search(fitted)


def test_wrong_searches_are_refused():
    with pytest.raises(NotFittedError):
        PrivacyUtilityDisplay.from_search(GridSearchCV(Private(), {}))
    with pytest.raises(ValueError, match="must vary one parameter 'epsilon'"):
        PrivacyUtilityDisplay.from_search(search({"method": ["a", "b"]}))
