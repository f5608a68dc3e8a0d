"""What scikit-learn expects of an estimator, for every estimator of the package."""

import inspect
import pickle

import numpy as np
import pandas as pd
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

from skprivbn.federation import Ledger
from skprivbn.privacy import PrivacyAccountant, PrivateSearchCV
from skprivbn.structure import K2StructureLearner, Notears
from tests.estimators import expected_failures, public_estimators

# scikit-learn's checks know no parties: all their rows are one party's.
pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning",
    "ignore::sklearn.exceptions.ConvergenceWarning",
)

ESTIMATORS = public_estimators()
ONE_HOLDER = (K2StructureLearner, Notears, PrivateSearchCV)


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
    if "series" in inspect.signature(estimator.fit).parameters:
        party = np.sort(party)  # a series is not spread over parties row by row
    if estimator.__sklearn_tags__().input_tags.categorical:
        return rng.integers(0, 2, size=(60, 4)), party
    return rng.normal(size=(60, 4)) @ rng.normal(size=(4, 4)), party


def takes_party(estimator):
    return "party" in inspect.signature(estimator.fit).parameters


HORIZONTAL = [estimator for estimator in ESTIMATORS if takes_party(estimator)]
SCORING = [estimator for estimator in HORIZONTAL if hasattr(estimator, "score")]


def ready(estimator):
    """Return a copy, with the public states of the columns if it needs one."""
    copy = clone(estimator)
    is_discrete = copy.__sklearn_tags__().input_tags.categorical
    if is_discrete and "states" in copy.get_params():
        copy.set_params(states=[2] * 4)
    return copy


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


@each([e for e in ESTIMATORS if not isinstance(e, ONE_HOLDER)])
def test_a_fit_says_who_learnt_what(estimator):
    X, y, party = fit_arguments(estimator)
    given = {"party": party} if takes_party(estimator) else {}
    fitted = ready(estimator).fit(X, y, **given)
    assert isinstance(fitted.ledger_, Ledger)
    assert fitted.ledger_.who_learns_what().rows


def private_options(estimator, party):
    """Return parameters of a private fit, and what goes beside the rows."""
    options = {"epsilon": 1.0, "delta": 1e-6, "bounds": (-5.0, 5.0), "max_iter": 2}
    options["clusters"] = sorted(set(party))
    known = options.keys() & estimator.get_params(deep=False).keys()
    beside = {"party": party} | ({"cluster": party} if "clusters" in known else {})
    return {name: options[name] for name in known}, beside


@each([e for e in HORIZONTAL if "epsilon" in e.get_params(deep=False)])
def test_a_private_fit_says_what_it_spent(estimator):
    X, y, party = fit_arguments(estimator)
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6)
    options, beside = private_options(estimator, party)
    private = ready(estimator).set_params(accountant=accountant, **options)
    private.fit(X, y, **beside)
    assert 0 < private.privacy_spent_.epsilon <= 1.0
    # an accountant may know a tighter bound of what was charged
    assert 0 < accountant.spent().epsilon <= 1.000001 * private.privacy_spent_.epsilon


def verbose_estimators():
    for estimator in HORIZONTAL:
        if "verbose" in estimator.get_params(deep=False):
            yield estimator


@each(list(verbose_estimators()))
def test_verbose_prints_progress_and_nothing_else_does(estimator, capsys):
    X, y, party = fit_arguments(estimator)
    ready(estimator).fit(X, y, party=party)
    assert capsys.readouterr().out == ""
    # mixtures print every `verbose_interval` iterations, 10 as in scikit-learn
    short = {"verbose_interval"} & estimator.get_params(deep=False).keys()
    ready(estimator).set_params(verbose=2, **dict.fromkeys(short, 1)).fit(
        X, y, party=party
    )
    assert capsys.readouterr().out.count("\n") >= 2


@each([estimator for estimator in HORIZONTAL if "max_iter" in estimator.get_params()])
def test_long_fits_can_tell_of_progress(estimator):
    assert hasattr(estimator, "set_callbacks")


@each([estimator for estimator in HORIZONTAL if hasattr(estimator, "set_callbacks")])
def test_progress_can_be_shown(estimator, capsys):
    X, y, party = fit_arguments(estimator)
    ready(estimator).set_callbacks(ProgressBar()).fit(X, y, party=party)


@each(HORIZONTAL)
def test_the_wrong_number_of_labels_is_said(estimator):
    X, y, party = fit_arguments(estimator)
    with pytest.raises(ValueError, match="party has 59 values for 60 rows"):
        ready(estimator).fit(X, y, party=party[:-1])


@each([estimator for estimator in HORIZONTAL if hasattr(estimator, "fit_predict")])
def test_predict_after_fit_predict(estimator):
    X, _, party = fit_arguments(estimator)
    labels = ready(estimator).fit_predict(X, party=party)
    np.testing.assert_array_equal(
        labels, ready(estimator).fit(X, party=party).predict(X)
    )


@each([e for e in HORIZONTAL if "min_honest" in e.get_params(deep=False)])
def test_noise_grows_with_mistrust(estimator):
    """With fewer trusted, every share must be larger: what colluders know is less."""
    X, y, party = fit_arguments(estimator)
    options, beside = private_options(estimator, party)
    said = []
    for min_honest in (1, 3):
        private = ready(estimator).set_params(min_honest=min_honest, **options)
        notes = private.fit(X, y, **beside).ledger_.notes
        said += [note for note in notes if "colluding" in note]
    # one honest party is enough for epsilon 1, or all three are needed
    assert said[0].endswith(", 1, inf")
    assert "parties: 1, " in said[1] and not said[1].endswith(", 1, inf")
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6)
    private.set_params(min_honest=4, accountant=accountant)
    with pytest.raises(ValueError, match="min_honest must be between 1 and"):
        private.fit(X, y, **beside)
    assert accountant.spent().epsilon == 0


@each([e for e in ESTIMATORS if "backend" in e.get_params(deep=False)])
def test_parameters_of_a_backend_that_is_a_name(estimator):
    copy = clone(estimator)
    assert isinstance(copy.backend, str)
    kind = copy._backends[copy.backend].__name__
    with pytest.raises(ValueError, match=rf"set backend={kind}\(recovery=...\)"):
        copy.set_params(backend__recovery=True)
    name = "paillier"
    with pytest.raises(ValueError, match=r"set backend=Paillier\w+\(key_size=...\)"):
        copy.set_params(backend=name, backend__key_size=4096)
    copy.set_params(backend=copy._backends[name](), backend__key_size=4096)
    assert copy.backend.key_size == 4096


OF_SOME_FITS = {
    "privacy_spent_",
    "noise_report_",
    "edge_confidence_",
    "normality_pvalues_",
    "changing_mechanisms_",
    "change_pvalues_",
    "mark_confidence_",
    "not_testable_",
}


@each(ESTIMATORS)
def test_attributes_are_those_that_are_documented(estimator):
    docscrape = pytest.importorskip("numpydoc.docscrape")
    fields = docscrape.ClassDoc(type(estimator))["Attributes"]
    documented = {name for field in fields for name in field.name.split(", ")}
    X, y, party = fit_arguments(estimator)
    X = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    given = {"party": party} if takes_party(estimator) else {}
    fitted = ready(estimator).fit(X, y, **given)
    names = {*vars(fitted), *dir(type(fitted))}
    there = {n for n in names if n.endswith("_") and not n.startswith("_")}
    assert there - documented == set()
    # there only if asked for: noise and its cost, bootstrap samples, what differs
    assert documented - there <= OF_SOME_FITS
