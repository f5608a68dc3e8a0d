"""With epsilon, no row is an error: public rules say what counts."""

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.model_selection import GridSearchCV

from skprivbn.exceptions import BudgetExceededError, PrivacyLeakWarning
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.privacy import CountMechanism, DistributedNoise, PrivacyAccountant
from tests.graphical_model.test_dpcgm import X, empirical, learner

__all__ = ["X"]


@pytest.mark.parametrize("party", [None, np.arange(4000) % 3], ids=["one", "three"])
def test_values_outside_the_states_are_left_out(X, party, monkeypatch):
    """An error would tell, without noise, that there is such a row."""
    monkeypatch.setattr(CountMechanism, "release", lambda self, counts: counts)
    monkeypatch.setattr(
        DistributedNoise, "share", lambda self, shape: np.zeros(shape, dtype=np.int64)
    )
    rows = X.copy()
    rows[:1000, 0] = 99
    found = learner().fit(rows, party=party)
    for pair in ((0, 1), (1, 2)):
        table = found.noisy_tables_[tuple(f"x{i}" for i in pair)]
        assert_array_equal(table, np.rint(3000 * empirical(X[1000:], pair)))
    found = learner(missing="skip").fit(rows, party=party)
    assert_array_equal(
        found.noisy_tables_["x1", "x2"], np.rint(4000 * empirical(X, [1, 2]))
    )


def test_rows_of_nobody_count_for_nothing(X):
    person = np.arange(4000).astype(object)
    person[::2] = None
    person[1] = np.nan
    for kind in ("normalize", "clip"):
        found = learner(contribution=kind, epsilon=9.0).fit(X, individual=person)
        assert found.n_samples_ == pytest.approx(2000, abs=100)


@pytest.mark.parametrize("method", ["auto", "psgd"])
def test_states_from_data_are_no_release_for_a_limited_budget(X, method):
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-3)
    options = {"method": method, "delta": 1e-4, "accountant": accountant}
    with pytest.raises(BudgetExceededError, match="states of the columns"):
        learner(states=None, **options).fit(X)
    assert accountant.history == ()


@pytest.mark.filterwarnings("ignore:epsilon=None learns from exact tables")
@pytest.mark.parametrize("epsilon", [1.0, None])
@pytest.mark.parametrize("n_rows", [40, 1000])
def test_values_of_a_continuous_column_do_not_become_states(n_rows, epsilon):
    rng = np.random.default_rng(0)
    balances = np.column_stack(
        [rng.integers(0, 3, n_rows), rng.lognormal(8, 1, n_rows)]
    )
    balance = rf"'x1' has {n_rows} different .*bins=.*FederatedKBins.*states="
    options = {"epsilon": epsilon, "cliques": "chain"}
    with pytest.raises(ValueError, match=balance):
        DPCGMLearner(**options).fit(balances)
    codes = np.tile(np.arange(257), 3)[:, np.newaxis]
    with pytest.raises(ValueError, match="257 different values in 771 rows.*256"):
        DPCGMLearner(**options).fit(codes)
    # what the message says
    edges = np.quantile(balances[:, 1], [0, 0.25, 0.5, 0.75, 1])
    with pytest.warns(PrivacyLeakWarning, match="read off the data"):
        found = DPCGMLearner(bins={"x1": edges}, **options).fit(balances)
    assert not np.isin(found.sample(200)[:, 1], balances[:, 1]).any()
    with pytest.warns(PrivacyLeakWarning, match="read off the data"):
        found = DPCGMLearner(**options).fit(codes[codes[:, 0] < 256])
    assert len(found.network_.states["x0"]) == 256
    assert DPCGMLearner(states=[257], **options).fit(codes).network_.nodes == ("x0",)


@pytest.mark.parametrize(
    ("of_column", "words"), [(int, "read off the data"), ("category", "to be public")]
)
def test_a_search_warns_of_states_once(X, of_column, words):
    rows = pd.DataFrame(X).rename(columns="x{}".format).astype(of_column)
    estimator = learner(states=None)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        GridSearchCV(estimator, {"epsilon": [1.0, 2.0]}, cv=2).fit(rows)
    assert sum(words in str(warning.message) for warning in said) == 1
    estimator = learner(states=None)
    for _ in range(2):  # but every fit of the same estimator does
        with pytest.warns(PrivacyLeakWarning, match=words):
            estimator.fit(rows)
