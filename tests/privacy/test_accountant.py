import copy
import math
import multiprocessing
import os
import pickle
import threading

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skprivbn.exceptions import BudgetExceededError
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.preprocessing import FederatedStandardScaler
from skprivbn.privacy import (
    PrivacyAccountant,
    PrivacyCost,
    check_accountant,
    zcdp_epsilon,
)
from tests.privacy.toys import NoisyHistogram


@pytest.fixture
def X():
    return np.random.default_rng(0).integers(4, size=(60, 1))


class Untouchable:
    """Data that raise when anything is asked of them."""

    def __getattr__(self, name):
        raise AssertionError(f"the data were touched ({name})")


def test_spend_returns_the_cost_of_this_release_only():
    accountant = PrivacyAccountant(epsilon=1.0)
    accountant.spend(epsilon=0.5)
    assert accountant.spend(epsilon=0.25) == PrivacyCost(0.25, 0.0)
    assert accountant.spent() == PrivacyCost(0.75, 0.0)
    assert accountant.remaining() == PrivacyCost(0.25, 0.0)
    assert [spend.epsilon for spend in accountant.history] == [0.5, 0.25]


def test_spend_returns_what_was_stated_or_the_conversion_of_rho():
    accountant = PrivacyAccountant(epsilon=9.0, delta=1e-3)
    assert accountant.spend(1.0, 1e-7, rho=0.01) == PrivacyCost(1.0, 1e-7)
    assert accountant.spend(rho=0.01) == PrivacyCost(zcdp_epsilon(0.01, 1e-3), 1e-3)


def test_a_tenth_fits_ten_times_and_not_eleven():
    accountant = PrivacyAccountant(epsilon=1.0)
    for _ in range(10):
        accountant.spend(epsilon=0.1)
    for epsilon in (0.1, 1e-6):
        with pytest.raises(BudgetExceededError):
            accountant.spend(epsilon=epsilon)
    assert len(accountant.history) == 10


def test_refusal_says_what_was_asked_what_is_left_and_what_to_do():
    accountant = PrivacyAccountant(epsilon=1.0)
    accountant.spend(epsilon=0.75)
    message = r"epsilon=0.5.*for the table.*epsilon=0.25.*left after 1 spend.*Ask for"
    with pytest.raises(BudgetExceededError, match=message):
        accountant.spend(epsilon=0.5, what="the table")
    with pytest.raises(BudgetExceededError, match="make it with delta > 0"):
        accountant.spend(rho=0.01)


def test_check_refuses_without_spending():
    accountant = PrivacyAccountant(epsilon=1.0)
    accountant.check(epsilon=1.0)
    with pytest.raises(BudgetExceededError):
        accountant.check(epsilon=1.5)
    with pytest.raises(BudgetExceededError):
        accountant.check(epsilon=math.inf)
    assert accountant.spent().epsilon == 0
    accountant.spend(epsilon=1.0)


def test_an_exact_release_is_refused_and_the_account_stays_open():
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6)
    with pytest.raises(BudgetExceededError, match="infinite epsilon"):
        accountant.spend(epsilon=math.inf, what="exact means")
    assert accountant.history == ()
    accountant.spend(epsilon=1.0)


def test_an_unlimited_budget_only_counts():
    accountant = PrivacyAccountant(epsilon=math.inf, delta=1e-6)
    accountant.spend(epsilon=5.0)
    accountant.spend(epsilon=math.inf)
    accountant.spend(epsilon=1.0, delta=1e-7)
    assert len(accountant.history) == 3
    with pytest.raises(BudgetExceededError):
        accountant.spend(epsilon=1.0, delta=1e-5)


@pytest.mark.parametrize("wrong", [{"epsilon": 0}, {"epsilon": 1, "delta": 1}])
def test_wrong_budgets(wrong):
    with pytest.raises(ValueError):
        PrivacyAccountant(**wrong)


def test_copies_count_on_the_same_budget():
    accountant = PrivacyAccountant(epsilon=1.0)
    assert clone(accountant) is accountant
    assert copy.deepcopy(accountant) is accountant
    assert copy.copy(accountant) is accountant
    assert clone(NoisyHistogram(accountant=accountant)).accountant is accountant


def test_a_pickled_copy_shows_its_history_and_is_closed():
    accountant = PrivacyAccountant(epsilon=1.0)
    accountant.spend(epsilon=0.5, what="before")
    loaded = pickle.loads(pickle.dumps(accountant))
    assert loaded.spent().epsilon == 0.5
    with pytest.raises(RuntimeError, match="budget_file"):
        loaded.spend(epsilon=0.1)
    accountant.spend(epsilon=0.5)


def test_a_closed_accountant_refuses():
    with PrivacyAccountant(epsilon=1.0) as accountant:
        accountant.spend(epsilon=0.5)
    with pytest.raises(RuntimeError, match="closed"):
        accountant.spend(epsilon=0.1)
    with pytest.raises(RuntimeError, match="closed"), accountant:
        pass
    assert accountant.spent().epsilon == 0.5


def _spend_in_child(accountant, connection):
    try:
        accountant.spend(epsilon=0.1)
        connection.send("spent")
    except RuntimeError as error:
        connection.send(str(error))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("with_file", [False, True])
def test_a_fork_needs_the_budget_file(tmp_path, with_file):
    budget_file = tmp_path / "budget.json" if with_file else None
    accountant = PrivacyAccountant(epsilon=1.0, budget_file=budget_file)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=_spend_in_child, args=(accountant, there))
    child.start()
    answer = here.recv()
    child.join()
    if with_file:
        assert answer == "spent"
        assert accountant.spent().epsilon == pytest.approx(0.1)
    else:
        assert "fork" in answer and "budget_file" in answer


def test_threads_do_not_lose_spends():
    accountant = PrivacyAccountant(epsilon=1.0)
    refused = []

    def work():
        for _ in range(30):
            try:
                accountant.spend(epsilon=0.01)
            except BudgetExceededError:
                refused.append(1)

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(accountant.history) == 100
    assert len(refused) == 50


def test_five_folds_spend_five_times(X):
    accountant = PrivacyAccountant(epsilon=1.0)
    model = NoisyHistogram(epsilon=0.125, accountant=accountant)
    cross_val_score(model, X, cv=5, error_score="raise")
    assert accountant.spent().epsilon == pytest.approx(5 * 0.125)


def test_grid_search_in_a_pipeline_spends_for_every_fit(X):
    accountant = PrivacyAccountant(epsilon=10.0)
    pipeline = make_pipeline(
        FunctionTransformer(), NoisyHistogram(accountant=accountant)
    )
    grid = {"noisyhistogram__epsilon": [0.1, 0.5]}
    GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(X)
    spent = accountant.spent().epsilon
    assert spent in (pytest.approx(3 * 0.6 + 0.1), pytest.approx(3 * 0.6 + 0.5))


def test_budget_exceeded_before_the_data_are_touched():
    accountant = PrivacyAccountant(epsilon=0.5)
    model = NoisyHistogram(epsilon=1.0, accountant=accountant)
    with pytest.raises(BudgetExceededError):
        model.fit(Untouchable())
    with pytest.raises(AssertionError, match="touched"):
        model.set_params(epsilon=0.4).fit(Untouchable())
    # reserved before, never given back
    assert accountant.spent().epsilon == 0.4


@pytest.mark.slow
def test_a_search_with_processes_needs_the_budget_file(X, tmp_path):
    def search(accountant):
        model = NoisyHistogram(epsilon=0.1, accountant=accountant)
        grid = {"prior": [0.5, 1.0]}
        return GridSearchCV(model, grid, cv=3, n_jobs=2, error_score="raise").fit(X)

    with pytest.raises(RuntimeError, match="budget_file"):
        search(PrivacyAccountant(epsilon=1.0))

    accountant = PrivacyAccountant(epsilon=1.0, budget_file=tmp_path / "budget.json")
    search(accountant)
    assert accountant.spent().epsilon == pytest.approx(0.7)
    with pytest.raises(BudgetExceededError):
        search(accountant)
    assert accountant.spent().epsilon == pytest.approx(1.0)


def test_check_accountant():
    fresh = check_accountant(None, 0.5, 1e-6)
    assert (fresh.epsilon, fresh.delta) == (0.5, 1e-6)
    accountant = PrivacyAccountant(epsilon=1.0)
    assert check_accountant(accountant, 1.0) is accountant
    with pytest.raises(BudgetExceededError):
        check_accountant(accountant, 1.5)
    with pytest.raises(TypeError, match="PrivacyAccountant"):
        check_accountant("budget", 1.0)


def test_representations_show_spent_and_left_and_escape():
    accountant = PrivacyAccountant(epsilon=1.0)
    accountant.spend(epsilon=0.25, what="<table>")
    assert "spent epsilon=0.25" in repr(accountant)
    assert "left epsilon=0.75" in repr(accountant)
    page = accountant._repr_html_()
    assert "&lt;table&gt;" in page and "<table>" in page
    assert "0.75" in page


def test_the_first_spend_says_what_the_accountant_counts():
    accountant = PrivacyAccountant(1.0)
    cost = accountant.spend(0.1, unit="rows")
    assert cost == (0.1, 0.0)
    assert cost.unit == "rows"
    accountant.spend(0.1)  # of whatever the accountant counts
    with pytest.raises(BudgetExceededError, match="m epsilon for individuals"):
        accountant.spend(0.1, unit="individuals", what="a mixture")
    with pytest.raises(BudgetExceededError, match="2 epsilon for values"):
        accountant.check(0.1, unit="values")
    assert len(accountant.history) == 2
    accountant.spend(0.8, unit="rows")


@pytest.mark.parametrize("unit", ["rows", "individuals", "values"])
def test_a_declared_unit_refuses_all_others(unit):
    accountant = PrivacyAccountant(1.0, unit=unit)
    for other in {"rows", "individuals", "values"} - {unit}:
        with pytest.raises(BudgetExceededError, match=f"counts epsilon for {unit}"):
            accountant.spend(0.1, unit=other)
    assert accountant.spend(1.0, unit=unit).unit == unit
    assert f"for {unit}:" in repr(accountant)
    with pytest.raises(ValueError, match="unit must be"):
        PrivacyAccountant(1.0, unit="people")


def test_the_unit_is_kept_on_disk_and_files_without_one_are_read(tmp_path):
    path = tmp_path / "budget.json"
    PrivacyAccountant(1.0, budget_file=path).spend(0.1, unit="individuals")
    with pytest.raises(BudgetExceededError, match="for individuals"):
        PrivacyAccountant(1.0, budget_file=path).spend(0.1, unit="rows")
    path.write_text(path.read_text().replace('"unit": "individuals"', '"unit": null'))
    PrivacyAccountant(1.0, budget_file=path).spend(0.1, unit="rows")


def test_costs_keep_their_unit_in_copies():
    cost = PrivacyCost(1.0, 1e-6, "individuals")
    for same in (pickle.loads(pickle.dumps(cost)), copy.deepcopy(cost)):
        assert same == cost == (1.0, 1e-6)
        assert same.unit == "individuals"
    assert repr(cost) == "PrivacyCost(epsilon=1.0, delta=1e-06, unit='individuals')"


def test_fits_charge_for_whom_their_noise_hides():
    X, person = np.linspace(-1, 1, 60)[:, None], np.arange(60) // 3
    accountant = PrivacyAccountant(3.0)
    scaler = FederatedStandardScaler(epsilon=1.0, bounds=(-1, 1), accountant=accountant)
    assert scaler.fit(X, individual=person).privacy_spent_.unit == "individuals"
    # refused before a row is touched: nothing is spent
    with pytest.raises(BudgetExceededError, match="fit with individual="):
        scaler.fit(X)
    assert accountant.spent().epsilon == 1.0
    columns = DPCGMLearner(
        [(0, 1)], states=[2, 2], epsilon=1.0, parties={"a": [0], "b": [1]}
    )
    columns.fit((X > [[0.0, 0.5]]).astype(int))
    assert columns.privacy_spent_.unit == "values"
