"""A plain GridSearchCV over epsilon: what it charges, and what warns."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.privacy import PrivacyAccountant
from skprivbn.structure import FederatedGaussianBayesianNetwork

X = np.random.default_rng(0).integers(2, size=(400, 2))


def learner(accountant=None, **options):
    return DPCGMLearner(
        "chain", states=[2, 2], method="naive", accountant=accountant, **options
    )


def warnings_of(search):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(X)
    said = [w for w in caught if issubclass(w.category, PrivacyLeakWarning)]
    return [str(warning.message) for warning in said]


def test_every_fit_is_charged_and_exact_scores_warn_once():
    accountant = PrivacyAccountant(epsilon=10.0)
    search = GridSearchCV(learner(accountant), {"epsilon": [0.5, 1.0]}, cv=3)
    (message,) = warnings_of(search)
    assert "exact function of the rows" in message
    # two candidates, three folds, and the winner again
    best = search.best_params_["epsilon"]
    assert accountant.spent().epsilon == pytest.approx(3 * 1.5 + best)
    assert len(accountant.history) == 7


def test_without_an_accountant_the_second_fit_warns():
    search = GridSearchCV(learner(), {"epsilon": [0.5, 1.0]}, cv=2)
    (message,) = warnings_of(search)
    assert "second fit" in message


def test_scores_leak_one_row():
    """Why: the same model tells one row of two data sets apart by its score."""
    model = learner(epsilon=1.0).fit(X)
    assert model.score(X) != model.score(np.append(X, [[1, 0]], axis=0))


def rows_and_models():
    options = {"epsilon": 5.0, "bounds": (-1, 2)}
    return [
        learner(epsilon=1.0),
        PPEMGaussianMixture(1, max_iter=1, backend="masking", **options),
        FederatedGaussianBayesianNetwork(**options),
    ]


@pytest.mark.parametrize("model", rows_and_models(), ids=lambda m: type(m).__name__)
@pytest.mark.filterwarnings("ignore:all rows|privacy noise")
def test_one_rule_for_all_scores(model):
    accountant = PrivacyAccountant(epsilon=50.0)
    model.set_params(accountant=accountant)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X)
    method = "bic" if hasattr(model, "bic") else "score"
    with pytest.warns(PrivacyLeakWarning, match="private_score"):
        getattr(model, method)(X)
    # once, for clones as well
    model.score(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = clone(model).fit(X)
    again.score(X)
