"""What scikit-learn expects of an estimator, for every estimator of the package."""

import inspect
import pickle

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.callback import ProgressBar
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    check_param_validation,
    check_set_output_transform,
    check_set_output_transform_pandas,
    check_set_output_transform_polars,
    parametrize_with_checks,
)

from tests.estimators import expected_failures, public_estimators

# scikit-learn's checks know no parties: all their rows are one party's.
pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning",
    "ignore::sklearn.exceptions.ConvergenceWarning",
)

ESTIMATORS = public_estimators()


def each(estimators):
    return pytest.mark.parametrize(
        "estimator", estimators, ids=lambda estimator: type(estimator).__name__
    )


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def not_run_by_check_estimator():
    for estimator in ESTIMATORS:
        checks = [check_param_validation, check_dataframe_column_names_consistency]
        if hasattr(estimator, "transform"):
            checks += [
                check_set_output_transform,
                check_set_output_transform_pandas,
                check_set_output_transform_polars,
            ]
        for check in checks:
            reason = expected_failures(estimator).get(check.__name__)
            marks = () if reason is None else pytest.mark.xfail(reason=reason)
            name = f"{type(estimator).__name__}-{check.__name__}"
            yield pytest.param(estimator, check, marks=marks, id=name)


# Some of these checks fit with names and transform without on purpose.
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
@pytest.mark.parametrize("estimator, check", list(not_run_by_check_estimator()))
def test_checks_that_check_estimator_does_not_run(estimator, check):
    check(type(estimator).__name__, clone(estimator))


@each(ESTIMATORS)
def test_every_parameter_has_a_constraint(estimator):
    assert set(estimator.get_params(deep=False)) == set(
        estimator._parameter_constraints
    )


@each(ESTIMATORS)
def test_repr_and_html(estimator):
    assert type(estimator).__name__ in repr(estimator)
    assert type(estimator).__name__ in estimator._repr_html_()


def data_for(estimator):
    """Return rows that suit the estimator, and who holds each."""
    rng = np.random.default_rng(0)
    party = np.arange(60) % 3
    if estimator.__sklearn_tags__().input_tags.categorical:
        return rng.integers(0, 2, size=(60, 4)), party
    return rng.normal(size=(60, 4)) @ rng.normal(size=(4, 4)), party


def takes_party(estimator):
    return "party" in inspect.signature(estimator.fit).parameters


HORIZONTAL = [estimator for estimator in ESTIMATORS if takes_party(estimator)]
SCORING = [estimator for estimator in HORIZONTAL if hasattr(estimator, "score")]


def ready(estimator):
    """Return a copy, with the public domain of the rows if it needs one."""
    copy = clone(estimator)
    return copy.set_params(domain=[2] * 4) if "domain" in copy.get_params() else copy


def fit_arguments(estimator):
    X, party = data_for(estimator)
    y = None
    if estimator.__sklearn_tags__().target_tags.required:
        y = (X[:, 0] > 0).astype(int)
    return X, y, party


@each(HORIZONTAL)
def test_no_secret_is_in_a_fitted_estimator(estimator):
    X, y, party = fit_arguments(estimator)
    fitted = ready(estimator).fit(X, y, party=party)
    text = pickle.dumps(fitted)
    for word in (
        b"sealing",
        b"tenseal",
        b"_ckks",
        b"phe.",
        b"PartyHost",
        b"SumSession",
    ):
        assert word not in text
    copy = pickle.loads(text)
    assert copy.ledger_.total_bytes == fitted.ledger_.total_bytes


@each(SCORING)
def test_party_is_routed_through_a_pipeline_and_a_search(estimator):
    X, y, party = fit_arguments(estimator)
    with config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(ready(estimator))
        pipeline.fit(X, y, party=party)
        assert pipeline[-1].ledger_.parties == ("0", "1", "2")
        search = GridSearchCV(ready(estimator), {}, cv=2, error_score="raise")
        search.fit(X, y, party=party)
    assert search.best_estimator_.ledger_.parties == ("0", "1", "2")


@each(SCORING)
def test_leaving_one_party_out(estimator):
    X, y, party = fit_arguments(estimator)
    with config_context(enable_metadata_routing=True):
        splitter = LeaveOneGroupOut().set_split_request(groups="party")
        scores = cross_val_score(
            ready(estimator),
            X,
            y,
            cv=splitter,
            params={"party": party},
            error_score="raise",
        )
    assert scores.shape == (3,) and np.all(np.isfinite(scores))


@each([estimator for estimator in HORIZONTAL if hasattr(estimator, "set_callbacks")])
def test_progress_can_be_shown(estimator, capsys):
    X, y, party = fit_arguments(estimator)
    ready(estimator).set_callbacks(ProgressBar()).fit(X, y, party=party)


@each(HORIZONTAL)
def test_the_wrong_number_of_labels_is_said(estimator):
    X, y, party = fit_arguments(estimator)
    with pytest.raises(ValueError, match="party has 59 labels for 60 rows"):
        ready(estimator).fit(X, y, party=party[:-1])


@each([estimator for estimator in HORIZONTAL if hasattr(estimator, "fit_predict")])
def test_predict_after_fit_predict(estimator):
    X, _, party = fit_arguments(estimator)
    labels = ready(estimator).fit_predict(X, party=party)
    np.testing.assert_array_equal(
        labels, ready(estimator).fit(X, party=party).predict(X)
    )
