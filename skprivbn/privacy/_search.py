"""Choosing parameters by private scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.callback import CallbackSupportMixin
from sklearn.model_selection import ParameterGrid
from sklearn.utils import Bunch, get_tags, indexable
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    process_routing,
)
from sklearn.utils.metaestimators import available_if
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from skprivbn.exceptions import BudgetExceededError
from skprivbn.privacy._accountant import PrivacyAccountant, check_accountant
from skprivbn.privacy._scores import (
    NoisyScores,
    bounded_weights,
    check_individual,
    check_score_bounds,
    check_weights,
    clipped_sum,
    row_scores,
    weight_sum,
)
from skprivbn.privacy._selection import (
    NoisyMax,
    NoisyRanking,
    best_of_trials,
    cost_of_fit,
    cost_of_trials,
    find_accountant,
    make_candidate,
    parameter_table,
    private_splits,
    stated_cost,
    sum_of_costs,
    warn_of_exact_fits,
)
from skprivbn.utils import tell_progress
from skprivbn.utils._sklearn import (
    HasMethods,
    Interval,
    RealNotInt,
    SavedVersionMixin,
    StrOptions,
    _check_method_params,
    _fit_context,
    _num_samples,
    _safe_indexing,
)
from skprivbn.utils._typing import WeightsLike
from skprivbn.utils._validation import keep_types


def _best_has(name):
    """Delegate a method if the best estimator, or before fit the estimator, has it."""

    def check(search):
        estimator = getattr(search, "best_estimator_", search.estimator)
        getattr(estimator, name)  # its AttributeError says best what is missing
        return True

    return available_if(check)


class PrivateSearchCV(
    CallbackSupportMixin, SavedVersionMixin, MetaEstimatorMixin, BaseEstimator
):
    """Grid search whose choice is differentially private.

    A choice of parameters by scores on private rows reveals information about them.
    Here a candidate's score is the sum of its held-out rows' log-likelihoods, each
    clipped to public bounds, plus noise. The search charges `epsilon` for the choice;
    every candidate's fit charges its own cost, fold by fold.

    Read more in the :ref:`User Guide <privacy_search>`.

    Parameters
    ----------
    estimator : estimator
        With `score_samples`, or a classifier with `predict_proba`. Its fits must be
        differentially private, or the search as a whole is not; it warns then.
    param_grid : dict or list of dict
        As for :class:`sklearn.model_selection.GridSearchCV`. The grid is public.
    score_bounds : tuple of (float, float)
        Public bounds of one row's score. See :func:`private_score`.
    epsilon : float, default=1.0
        Cost of the choice, in addition to the fits.
    delta : float, default=0.0
        Positive for Gaussian noise on the scores, which is better for many candidates.
    accountant : PrivacyAccountant, default=None
        Is charged. Candidates whose own `accountant` is None charge it too. None means
        the estimator's accountant, if it has one.
    method : {"noisy_scores", "report_noisy_max", "random_trials"}, \
            default="noisy_scores"
        Release all scores with noise and take the best; or release only which
        candidate wins, with noise that does not grow with their number. With
        "random_trials" the fits of candidates that lose cost nothing either: a secret
        number of candidates, drawn at random, are tried, and the best costs twice what
        one fit or score costs [1]_. For one holder, and ``delta=0``; whoever sees how
        long it takes guesses how many there were.
    scoring : callable, default=None
        ``scoring(estimator, X, y)`` returns one number per row, and is given one row
        at a time. None means the log-likelihood.
    cv : int, float or splitter, default=0.25
        A fraction holds out rows once (one fit per candidate). An integer is a number
        of folds (so many fits per candidate, all of which cost). Each row is assigned
        at random by itself, and rows of one `individual` together. A splitter must
        test each row at most once, and should place each row without regard to
        others, in a number of folds that is public: :class:`LeavePublicGroupOut`. A
        fit that fails ends the search. By chance one may have no rows, which noise
        takes too.
    max_weight : int, default=1
        Public bound of the weight of a row in the scores, or of all rows of one
        `individual` together: those of individuals with more count less.
    total_epsilon : float, default=None
        The most that the search may cost as a whole: the choice, every fit of every
        candidate, and the last fit. What it would cost follows from the parameters; if
        it is more, the search is refused before a row is touched. None sets no limit.
    n_trials : float, default=None
        For "random_trials": how many are expected. None means as many as there are
        candidates.
    refit : bool, default=True
        Fit the best candidate on all rows, at its cost.
    n_jobs : int, default=None
        Fits in parallel. With processes the accountant needs a `budget_file`.
    verbose : int, default=0
        1 prints every tenth fit, 2 every one.

    Attributes
    ----------
    cv_results_ : dict
        ``params``, ``param_*``, ``rank_test_score`` and, unless only the winner was
        released, ``mean_test_score`` (noisy) and ``std_test_score`` (the standard
        deviation of the noise). Nothing in it is exact.
    best_params_ : dict
        Of the winner.
    best_index_ : int
        Of the winner in ``cv_results_``.
    best_score_ : float
        Noisy mean score of the winner; it is optimistic. Not there if only the winner
        was released.
    best_estimator_ : estimator
        The winner fitted on all rows, if `refit`.
    privacy_spent_ : PrivacyCost
        Sum over the choice and all fits. An accountant may know a better bound.
    n_splits_ : int
        Number of folds.
    classes_ : ndarray of shape (n_classes,)
        Of the best estimator, if it is a classifier.
    n_features_in_ : int
        Of the best estimator.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Of the best estimator, if `X` has string names.

    See Also
    --------
    private_score : Noisy score of one fitted model.

    References
    ----------
    .. [1] N. Papernot, T. Steinke (2022). Hyperparameter tuning with Renyi differential
       privacy. ICLR.

    Examples
    --------
    The mixtures here are not private themselves, hence the warning:

    >>> import warnings
    >>> import numpy as np
    >>> from sklearn.mixture import GaussianMixture
    >>> from skprivbn.exceptions import PrivacyLeakWarning
    >>> from skprivbn.privacy import PrivateSearchCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 1)) + rng.choice([-5, 5], size=(2000, 1))
    >>> search = PrivateSearchCV(
    ...     GaussianMixture(random_state=0), {"n_components": [1, 2]}, (-8, 0)
    ... )
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", PrivacyLeakWarning)
    ...     search.fit(X).best_params_
    {'n_components': 2}
    """

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit"])],
        "param_grid": [dict, list],
        "score_bounds": [tuple, list, np.ndarray],
        "epsilon": [Interval(Real, 0, None, closed="neither")],
        "delta": [Interval(Real, 0, 1, closed="left")],
        "accountant": [PrivacyAccountant, None],
        "method": [StrOptions({"noisy_scores", "report_noisy_max", "random_trials"})],
        "scoring": [callable, None],
        "cv": [Interval(RealNotInt, 0, 1, closed="neither"), "cv_object"],
        "max_weight": [Interval(Integral, 1, None, closed="left")],
        "total_epsilon": [Interval(Real, 0, None, closed="neither"), None],
        "n_trials": [Interval(Real, 1, None, closed="left"), None],
        "refit": ["boolean"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        estimator: Any,
        param_grid: dict | list[dict],
        score_bounds: tuple[float, float],
        *,
        epsilon: float = 1.0,
        delta: float = 0.0,
        accountant: PrivacyAccountant | None = None,
        method: str = "noisy_scores",
        scoring: Callable | None = None,
        cv: Any = 0.25,
        max_weight: int = 1,
        total_epsilon: float | None = None,
        n_trials: float | None = None,
        refit: bool = True,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.score_bounds = score_bounds
        self.epsilon = epsilon
        self.delta = delta
        self.accountant = accountant
        self.method = method
        self.scoring = scoring
        self.cv = cv
        self.max_weight = max_weight
        self.total_epsilon = total_epsilon
        self.n_trials = n_trials
        self.refit = refit
        self.n_jobs = n_jobs
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike, y: ArrayLike | None = None, **params: Any) -> Self:
        """Fit all candidates, choose one privately, and fit it on all rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows.
        y : array-like of shape (n_samples,), default=None
            Class labels, for classifiers.
        **params
            Passed to the estimator's `fit` (for instance `party`) or the splitter
            (`groups`), row by row where they have one entry per row. A
            `sample_weight` holds integers up to `max_weight` and weighs the scores
            as well. With `individual`, the person behind each row, a person's rows
            are held out together and weigh `max_weight` at most.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        candidates = list(ParameterGrid(self.param_grid))
        choice = self._make_choice(len(candidates))
        if isinstance(X, list | tuple):  # no rows of it would have no columns
            X = np.asarray(keep_types(X))
        X, y = indexable(X, y)
        n_rows = _num_samples(X)
        self._check_rows(n_rows, y)
        persons = check_individual(params.get("individual"), n_rows)
        weights = check_weights(params.get("sample_weight"), n_rows, self.max_weight)
        weights = bounded_weights(weights, persons, self.max_weight)
        if self.method == "random_trials" and params.get("party") is not None:
            raise ValueError(
                "method='random_trials' keeps its trials secret, and several parties "
                "would all see them: use another method with party="
            )
        fit_params, split_params = self._route(X, params)
        splits = private_splits(self.cv, X, y, persons, **split_params)
        for name in ("best_estimator_", "best_score_"):  # those of a fit before
            self.__dict__.pop(name, None)

        shared = find_accountant(self.estimator, self.accountant, candidates)
        data = X, y, weights, fit_params
        unit = "rows" if params.get("individual") is None else "individuals"
        self._check_total(candidates, len(splits))
        if self.method == "random_trials":
            costs = self._choose_by_trials(
                candidates, data, splits, choice, shared, unit
            )
            return self._finish(candidates, costs, X, y, fit_params, shared)
        what = f"choice among {len(candidates)} candidates"
        cost = self.epsilon, self.delta, choice.rho, what, unit
        costs = [check_accountant(shared, *cost).spend(*cost)]

        fits = [
            delayed(_fit_and_sum)(
                make_candidate(self.estimator, candidate, shared),
                data,
                (train, test),
                choice.bounds,
                self.scoring,
            )
            for candidate in candidates
            for train, test in splits
        ]
        outcomes = self._run(fits, X, y)
        sums, fit_costs = zip(*outcomes)
        tested = sum(weight_sum(weights[test]) for _, test in splits)
        totals = np.reshape(sums, (len(candidates), len(splits))).sum(axis=1)
        if any(math.isinf(cost.epsilon) for cost in fit_costs):
            warn_of_exact_fits(self.estimator, shared)

        self.best_index_, scores = choice.release(totals, tested)
        self.cv_results_ = parameter_table(candidates) | scores
        if "mean_test_score" in scores:
            self.best_score_ = float(scores["mean_test_score"][self.best_index_])
        self.n_splits_ = len(splits)
        costs += fit_costs
        return self._finish(candidates, costs, X, y, fit_params, shared)

    def _finish(self, candidates, costs, X, y, fit_params, shared):
        """Fit the winner on all rows, and add up what everything cost."""
        self.best_params_ = candidates[self.best_index_]
        if self.refit:
            best = make_candidate(self.estimator, self.best_params_, shared)
            self.best_estimator_ = _fit(best, X, y, fit_params)
            costs.append(cost_of_fit(self.best_estimator_))
        self.privacy_spent_ = sum_of_costs(costs)
        return self

    def _choose_by_trials(self, candidates, data, splits, choice, shared, unit):
        """Set the winner of a secret number of trials; return their cost."""
        ((train, test),) = splits
        cost = cost_of_trials(self.estimator, candidates, self.epsilon)
        what = f"the best of random trials of {len(candidates)} candidates"
        if math.isinf(cost.epsilon):
            warn_of_exact_fits(self.estimator, shared)
        else:
            of_all = *cost, None, what, unit
            cost = check_accountant(shared, *of_all).spend(*of_all)
        weight = weight_sum(data[2][test])

        def run(model):
            split = train, test
            total, _ = _fit_and_sum(model, data, split, choice.bounds, self.scoring)
            return model, choice.scores.release([total], weight)[0][0]

        expected = len(candidates) if self.n_trials is None else self.n_trials
        index, score = best_of_trials(self.estimator, candidates, expected, run)
        self.best_index_, self.best_score_ = index, float(score)
        rank = np.full(len(candidates), 2, dtype=np.int32)
        rank[index] = 1
        self.cv_results_ = parameter_table(candidates) | {"rank_test_score": rank}
        self.n_splits_ = 1
        return [cost]

    def _check_total(self, candidates, n_splits):
        """Refuse a search that costs more than it may, by its parameters alone."""
        if self.total_epsilon is None:
            return
        fits = [
            stated_cost(make_candidate(self.estimator, candidate, None)).epsilon
            for candidate in candidates
        ]
        if self.method == "random_trials":
            total = cost_of_trials(self.estimator, candidates, self.epsilon).epsilon
        else:
            total = self.epsilon + n_splits * math.fsum(fits)
        total += self.refit * max(fits)
        if total > self.total_epsilon * (1 + 1e-9):
            raise BudgetExceededError(
                f"the search would cost epsilon={total:g}, more than total_epsilon="
                f"{self.total_epsilon:g}: {self.epsilon:g} for the choice, and "
                f"{n_splits} fit(s) of each of {len(candidates)} candidates with an "
                f"epsilon of up to {max(fits):g}{', and the last fit' * self.refit}. "
                "Lower the epsilon of the estimator or of the search, try fewer "
                "candidates, or use method='random_trials'"
            )

    def _make_choice(self, n_candidates):
        bounds = check_score_bounds(self.score_bounds)
        if self.method == "report_noisy_max":
            if self.delta > 0:
                raise ValueError(
                    "method='report_noisy_max' uses Laplace noise: set delta=0"
                )
            return NoisyMax(self.epsilon, bounds, self.max_weight)
        if self.method == "random_trials":
            self._check_trials()
            n_candidates = 1
        return NoisyRanking(
            NoisyScores.for_budget(
                self.epsilon, self.delta, bounds, n_candidates, self.max_weight
            )
        )

    def _check_trials(self):
        if self.delta > 0:
            raise ValueError(
                "method='random_trials' is accounted for with pure epsilon: set delta=0"
            )
        if isinstance(self.cv, Integral) or not isinstance(self.cv, Real):
            raise ValueError(
                "method='random_trials' holds out rows once: set cv to a fraction, as "
                "0.25"
            )

    def _check_rows(self, n_rows, y):
        # with noise, fits take no rows, too, and an error would tell that there are few
        is_exact = math.isinf(stated_cost(self.estimator).epsilon)
        if n_rows < 2 and is_exact:
            raise ValueError(
                "a search needs rows to fit and rows to score, got n_samples=1 or less"
            )
        if y is None and get_tags(self.estimator).target_tags.required:
            raise ValueError(
                f"{type(self.estimator).__name__} requires y to be passed, but the "
                "target y is None"
            )

    def _run(self, fits, X, y):
        made = Parallel(n_jobs=self.n_jobs, return_as="generator")(fits)
        outcomes = []
        with tell_progress(self, X, y, step="fit", max_steps=len(fits)) as progress:
            for _ in fits:
                with progress.step():
                    outcomes.append(next(made))
        return outcomes

    def _route(self, X, params):
        params = _check_method_params(X, params)
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", **params)
            return routed.estimator.fit, routed.get("splitter", Bunch(split={})).split
        groups = params.pop("groups", None)
        return params, {} if groups is None else {"groups": groups}

    def get_metadata_routing(self) -> Any:
        """Say which metadata go to the estimator and which to the splitter.

        Returns
        -------
        routing : MetadataRouter
            As :func:`sklearn.utils.metadata_routing.process_routing` needs it.
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(
            estimator=self.estimator,
            method_mapping=MethodMapping().add(caller="fit", callee="fit"),
        )
        if hasattr(self.cv, "get_metadata_routing"):
            router.add(
                splitter=self.cv,
                method_mapping=MethodMapping().add(caller="fit", callee="split"),
            )
        return router

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        inner = deepcopy(get_tags(self.estimator))
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = inner.classifier_tags
        tags.target_tags = inner.target_tags
        tags.input_tags = inner.input_tags
        tags.non_deterministic = True
        return tags

    def _best(self):
        check_is_fitted(self)
        if not self.refit:
            raise AttributeError(
                "this search was made with refit=False: fit the estimator with "
                "best_params_ yourself"
            )
        return self.best_estimator_

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: WeightsLike | None = None,
    ) -> float:
        """Return the score of the best estimator, without noise: for public rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Public rows; for private ones see :func:`private_score`.
        y : array-like of shape (n_samples,), default=None
            Class labels, for classifiers.
        sample_weight : array-like of shape (n_samples,), default=None
            Passed to the best estimator's `score`, if given.

        Returns
        -------
        float
            As ``best_estimator_.score`` gives it.
        """
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return self._best().score(X, y, **weights)

    @_best_has("score_samples")
    def score_samples(self, X: ArrayLike) -> np.ndarray:
        """Return the log-likelihood of each row under the best estimator."""
        return self._best().score_samples(X)

    @_best_has("predict")
    def predict(self, X: ArrayLike) -> np.ndarray:
        """Predict with the best estimator."""
        return self._best().predict(X)

    @_best_has("predict_proba")
    def predict_proba(self, X: ArrayLike) -> Any:
        """Predict probabilities with the best estimator."""
        return self._best().predict_proba(X)

    @_best_has("transform")
    def transform(self, X: ArrayLike) -> Any:
        """Transform with the best estimator."""
        return self._best().transform(X)

    @_best_has("sample")
    def sample(self, n_samples: int = 1, **params: Any) -> Any:
        """Draw from the best estimator."""
        return self._best().sample(n_samples, **params)

    @property
    def classes_(self) -> np.ndarray:
        """Class labels of the best estimator."""
        return self._best().classes_

    @property
    def n_features_in_(self) -> int:
        """Number of features seen by the best estimator."""
        if not hasattr(self, "best_estimator_"):
            raise AttributeError(f"{type(self).__name__} has no n_features_in_ yet")
        return self.best_estimator_.n_features_in_

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of the features seen by the best estimator."""
        if not hasattr(self, "best_estimator_"):
            raise AttributeError(f"{type(self).__name__} has no feature_names_in_ yet")
        return self.best_estimator_.feature_names_in_


def _fit_and_sum(estimator, data, split, bounds, scoring):
    """Fit on one part, sum the clipped scores of the other; what a worker does.

    Returns the sum and the cost of the fit. A fit that fails ends the search: whatever
    stood for its scores would let the row that made it fail move the sum by all rows.
    """
    X, y, weights, fit_params = data
    train, test = split
    fit_params = _check_method_params(X, fit_params, indices=train)
    y_train = None if y is None else _safe_indexing(y, train)
    estimator = _fit(estimator, _safe_indexing(X, train), y_train, fit_params)
    total = 0
    if len(test):
        y_test = None if y is None else _safe_indexing(y, test)
        scores = row_scores(estimator, _safe_indexing(X, test), y_test, scoring)
        total = clipped_sum(scores, bounds, weights[test])
    return total, cost_of_fit(estimator)


def _fit(estimator, X, y, fit_params):
    if y is None:
        return estimator.fit(X, **fit_params)
    return estimator.fit(X, y, **fit_params)
