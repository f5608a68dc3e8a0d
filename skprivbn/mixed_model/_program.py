"""Generalised mixed models: quadrature, Laplace's approximation, Metropolis-Hastings.

After a survey (labels, moments of the features, sizes of the clusters) the model
without random effects is begun. From there on every step is one sum: a table that tells
the integral over the effects, with a gradient and Hessians over all rows; each party
updates the parameters by itself. Clusters that one party holds alone never enter the
tables: it integrates over their effects by itself.
"""

from collections.abc import Generator
from functools import partial
from typing import Any

from skprivbn.federation import (
    Me,
    Sum,
    TooFewRows,
    program,
)
from skprivbn.mixed_model._estimates import estimate
from skprivbn.mixed_model._search import Search, first_look
from skprivbn.mixed_model._survey import take_survey
from skprivbn.mixed_model._terms import MixedTerms


@program(MixedTerms)
def generalised_mixed_model(me: Me) -> Generator[Any, Any, dict]:
    """Climb the log-likelihood, with random effects and without."""
    survey, rows, look = yield from take_survey(me, partial(first_look, me.terms))
    if rows is None:
        return {"survey": survey.to_payload()}
    search = Search(me, survey, rows, look)
    while search.n_regressions < survey.terms.n_regressions:
        vector = search.regression()
        try:
            total = yield Sum(
                vector, "gradient and Hessian without effects", search.weights
            )
        except TooFewRows:
            search.end_at_best()
            break
        search.improve(total)
    if survey.terms.drawn:
        yield from _draw(search)
    while search.going:
        vector = search.table()
        try:
            total = yield Sum(
                vector, "log-likelihoods, gradient and Hessians", search.weights
            )
        except TooFewRows:
            search.end_at_best()
            break
        search.move(total)
    vector = search.final_table()
    if len(vector):
        total = yield Sum(vector, "gradients of clusters at the end", search.weights)
        search.read_final(total)
    vector = search.conclusion()
    total = yield Sum(vector, "log-likelihood, information and effects", search.weights)
    estimates = estimate(search.release(total), survey)
    return {"survey": survey.to_payload(), "estimates": estimates.to_payload()}


def _draw(search):
    """Metropolis-Hastings: draws of the effects, then a step of EM."""
    search.begin_to_draw()
    for _ in range(search.terms.max_iter):
        search.chains.restart()
        while not search.chains.is_complete:
            vector = search.propose()
            total = yield Sum(
                vector, "log-likelihoods at proposed effects", search.weights
            )
            search.walk(total)
        vector = search.expected_derivatives()
        total = yield Sum(vector, "expected gradient and Hessian", search.weights)
        search.expand(total)
