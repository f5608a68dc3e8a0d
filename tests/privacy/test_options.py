"""One way to charge, for all estimators with epsilon."""

import warnings
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline

from skprivbn.exceptions import (
    BudgetExceededError,
    PartitionError,
    PrivacyLeakWarning,
)
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.inspection import privacy_report
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.partition import HorizontalPartition
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedPCA,
    FederatedStandardScaler,
)
from skprivbn.privacy import PrivacyAccountant, PrivateSearchCV
from skprivbn.structure import FederatedGaussianBayesianNetwork, FederatedNotearsADMM

BOUNDS = (-5.0, 5.0)
NUMERIC = [
    FederatedStandardScaler(bounds=BOUNDS),
    FederatedPCA(bounds=BOUNDS),
    FederatedKBinsDiscretizer(bounds=BOUNDS),
    PPEMGaussianMixture(2, max_iter=2, bounds=BOUNDS, backend="masking"),
    FederatedGaussianBayesianNetwork(bounds=BOUNDS),
    FederatedNotearsADMM(bounds=BOUNDS, max_iter=5),
]
ACCOUNTANT = PrivacyAccountant(np.inf)
quiet = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(300, 2))


@pytest.fixture
def party():
    return np.array(["north", "south", "west"])[np.arange(300) % 3]


def name(estimator):
    return type(estimator).__name__


@pytest.mark.parametrize("estimator", NUMERIC, ids=name)
@quiet
def test_exact_fits_are_refused_and_the_account_stays_open(estimator, X, party):
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-5)
    model = clone(estimator).set_params(accountant=accountant)
    with pytest.raises(BudgetExceededError, match="exact release"):
        model.fit(X, party=party)
    assert accountant.history == ()
    model.set_params(epsilon=1.0, delta=1e-6).fit(X, party=party)
    assert 0.9 < accountant.spent().epsilon <= 1.0


@pytest.mark.parametrize("estimator", NUMERIC, ids=name)
@quiet
def test_gaussian_noise_is_charged_in_rho(estimator, X, party):
    accountant = PrivacyAccountant(epsilon=100.0, delta=1e-5)
    model = clone(estimator).set_params(accountant=accountant, epsilon=0.5, delta=1e-6)
    for _ in range(5):
        model.fit(X, party=party)
    assert all(spend.rho > 0 for spend in accountant.history)
    assert accountant.spent().epsilon < 1.3


@pytest.mark.parametrize("estimator", NUMERIC, ids=name)
@quiet
def test_what_a_fit_cost_is_forgotten_by_the_next(estimator, X, party):
    model = clone(estimator).set_params(epsilon=0.5).fit(X, party=party)
    assert model.privacy_spent_.epsilon == 0.5
    model.set_params(epsilon=None).fit(X, party=party)
    assert not hasattr(model, "privacy_spent_")


@pytest.mark.parametrize("estimator", NUMERIC, ids=name)
@quiet
def test_open_shares_of_noise_are_refused(estimator, X, party):
    accountant = PrivacyAccountant(epsilon=1.0)
    model = clone(estimator).set_params(
        epsilon=1.0, accountant=accountant, backend="plaintext"
    )
    with pytest.raises(ValueError, match="share of the noise"):
        model.fit(X, party=party)
    assert accountant.history == ()
    model.set_params(min_honest=1).fit(X, party=party)


@pytest.mark.parametrize(
    "estimator", [*NUMERIC, DPCGMLearner("chain", states=[2, 2])], ids=name
)
@quiet
def test_the_second_uncounted_fit_warns_once(estimator, X, party):
    X = (X > 0).astype(float)
    # not a clone: those of other tests were fitted, too
    model = type(estimator)(**estimator.get_params(deep=False)).set_params(epsilon=0.5)
    model.fit(X, party=party)
    with pytest.warns(PrivacyLeakWarning, match="second fit.*, 1 so far"):
        clone(model).fit(X, party=party)


@quiet
def test_a_private_mixture_does_not_start_from_an_exact_one(X, party):
    model = PPEMGaussianMixture(
        2, max_iter=2, bounds=BOUNDS, backend="masking", warm_start=True
    ).fit(X, party=party)
    with pytest.raises(ValueError, match="start from a fit without epsilon"):
        model.set_params(epsilon=1.0).fit(X, party=party)
    model.set_params(warm_start=False).fit(X, party=party)
    model.set_params(warm_start=True).fit(X, party=party)


def says_of_noise(warning):
    """Whether a warning follows from noisy sums alone."""
    is_late = issubclass(warning.category, ConvergenceWarning)
    return is_late or "privacy noise" in str(warning.message)


def seen_of(estimator, X, **beside):
    """Return all that a fit shows beside its noisy numbers."""
    model = type(estimator)(**estimator.get_params(deep=False))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.set_params(epsilon=1.0, delta=1e-6).fit(X, **beside)
    attributes = {k: v for k, v in vars(model).items() if k.endswith("_")}
    # those that are chosen by noisy tables
    noisy = {"ledger_", "cliques_"}
    return {
        "warnings": {str(w.message) for w in said if not says_of_noise(w)}
        - set(model.noise_report_.warnings),
        "names": set(attributes),
        "shapes": {k: np.shape(v) for k, v in attributes.items() if k not in noisy},
        "learnt": list(model.ledger_.who_learns_what()),
        "notes": model.ledger_.notes,
        "parties": model.ledger_.parties,
    }


@pytest.mark.parametrize("estimator", NUMERIC, ids=name)
@quiet
def test_one_row_is_enough_for_a_private_fit(estimator):
    type(estimator)(**estimator.get_params(deep=False)).set_params(epsilon=1.0).fit(
        [[np.nan, 1.0]]
    )


@pytest.mark.parametrize("transformer", NUMERIC[:3], ids=name)
@pytest.mark.parametrize("partition", [False, True])
@quiet
def test_rows_that_are_no_numbers_pass_a_private_transformer(transformer, partition):
    X = np.append(np.zeros((9, 2)), [[1.0, 2.0], [np.nan, 0.0], [np.inf, 1.0]], axis=0)
    rows = HorizontalPartition.from_rows(X, np.arange(12) % 3) if partition else X
    model = clone(transformer).set_params(epsilon=1.0).fit(rows)
    made = model.transform(rows)
    if partition:
        made = np.concatenate([made._blocks[k]["X"][-1:] for k in made.names])
    assert np.all(np.isnan(made[-2:])) and np.all(np.isfinite(made[-3]))
    with pytest.raises(ValueError, match="NaN|infinity"):
        model.set_params(epsilon=None).fit(X[:10]).transform(X)
    binner = FederatedKBinsDiscretizer(3, strategy="uniform", bounds=(0, 3))
    assert np.isnan(binner.fit(X).transform(X)[-2:]).all()


def test_public_edges_cost_nothing_in_a_search():
    X = np.random.default_rng(0).uniform(0, 2, size=(200, 2))
    accountant = PrivacyAccountant(epsilon=2.5)
    pipeline = make_pipeline(
        FederatedKBinsDiscretizer(2, strategy="uniform", bounds=(0, 2)),
        DPCGMLearner("chain", epsilon=0.5, states=[2, 2], method="naive"),
    )
    search = PrivateSearchCV(
        pipeline,
        {"dpcgmlearner__method_params": [{"regularization": r} for r in (1e-4, 1e-2)]},
        (-5, 0),
        accountant=accountant,
    ).fit(X)
    assert search.privacy_spent_.epsilon == pytest.approx(2.5)
    assert accountant.spent().epsilon == pytest.approx(2.5)


@pytest.mark.parametrize(
    "estimator", [*NUMERIC, DPCGMLearner("chain", states=[2, 2])], ids=name
)
@quiet
def test_a_declared_roster_does_not_tell_who_has_a_row(estimator):
    X = np.zeros((9, 2))
    roster = ["a", "b", "c", "d"]
    shown = []
    for labels in (["a", "b", "c"] * 3, ["a", "b", "c"] * 2 + ["d", "a", "b"]):
        party = pd.Categorical(labels, categories=roster)
        shown.append(seen_of(estimator, X, party=party))
        assert set(shown[-1]["parties"]) == set(roster)
    assert shown[0] == shown[1]
    blocks = {name: X[:n] for name, n in zip(roster, (3, 3, 3, 0))}
    assert seen_of(estimator, HorizontalPartition(blocks)) == shown[0]
    if "bounds" in estimator.get_params():
        with pytest.raises(PartitionError, match="'d' has no rows"):
            clone(estimator).fit(X, party=pd.Categorical(["a"] * 9, ["a", "d"]))


def test_bounds_without_epsilon_say_that_they_do_nothing():
    X, party = np.arange(60.0).reshape(30, 2), ["a", "b", "c"] * 10
    with pytest.warns(UserWarning, match="bounds has no effect without epsilon"):
        FederatedStandardScaler(bounds=(0, 60)).fit(X, party=party)


def test_a_single_holder_with_epsilon_is_not_told_that_there_is_nobody_to_hide_from():
    X = np.random.default_rng(0).normal(size=(500, 2))
    with pytest.warns(PrivacyLeakWarning, match="nobody to hide"):
        FederatedStandardScaler().fit(X)
    with pytest.warns(PrivacyLeakWarning, match="nobody to hide"):
        HorizontalPartition({"one": X}).describe()
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        FederatedStandardScaler(epsilon=1.0, bounds=(-5, 5)).fit(X)
        HorizontalPartition({"one": X}).describe(epsilon=1.0, bounds=(-5, 5))


@pytest.mark.parametrize("wrap", [np.asarray, lambda X: HorizontalPartition({"a": X})])
def test_a_step_without_noise_in_front_of_a_private_one_is_warned_of(wrap):
    X = wrap(np.random.default_rng(0).normal(size=(500, 2)))
    network = FederatedGaussianBayesianNetwork(
        epsilon=50.0, bounds=BOUNDS, accountant=ACCOUNTANT
    )
    exact, noisy = FederatedStandardScaler(), NUMERIC[0]
    bins = FederatedKBinsDiscretizer(2, strategy="uniform", bounds=BOUNDS)
    for between in ([], [bins]):  # public edges do not hide what came before
        with (
            pytest.warns(PrivacyLeakWarning, match="nobody to hide"),
            pytest.warns(PrivacyLeakWarning, match="StandardScaler in front of"),
        ):
            make_pipeline(exact, *between, network).fit(X)
        assert "together have no finite epsilon: no noise was added in part 1" in (
            privacy_report(make_pipeline(exact, *between, network))
        )
    noisy = clone(noisy).set_params(epsilon=50.0, accountant=ACCOUNTANT)
    with (  # a dataframe of what was transformed is another object
        config_context(transform_output="pandas"),
        pytest.warns(PrivacyLeakWarning, match="nobody to hide"),
        pytest.warns(PrivacyLeakWarning, match="StandardScaler in front of"),
    ):
        make_pipeline(exact, deepcopy(network)).fit(X)
    private = make_pipeline(noisy, network).fit(X)
    assert "2 parts together have epsilon = 100." in privacy_report(private)
    make_pipeline(bins, network).fit(X)
