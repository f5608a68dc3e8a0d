"""PPEM: expectation maximisation for Gaussian mixtures, as every party runs it.

1. Survey: how many rows there are, around where, and how far apart (two sums).
2. Start: first responsibilities of the own rows, of which an M-step makes a mixture.
3. Iterations (Algorithm 1 of the paper): the E-step on the own rows, one sum over all
   parties, the M-step, which every party does by itself.

The paper's a, b and c are one vector: sums of responsibilities, and of first and second
moments. Moments are taken about the means of the mixture before, in units of its
standard deviations (a :class:`Frame`), so that rounding does not depend on the units.
What the box leaves to the server, parties do: when to stop follows from the total, too.

Rows may have gaps. A column that few rows of a component have an entry in would tell as
much as a component of few rows: both are counted alike.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from skprivbn.federation import (
    Me,
    PartyRefusal,
    RowWeights,
    Sum,
    TooFewRows,
    map_rows,
    program,
    row_blocks,
)
from skprivbn.federation.gate import check_shares
from skprivbn.mixture._gaps import entries
from skprivbn.mixture._gaussian_steps import (
    Frame,
    IllDefinedCovarianceError,
    Mixture,
    e_step,
    frame_of,
    local_statistics,
    maximise,
    squares_of,
    uniform_frame,
)
from skprivbn.mixture._seeding import (
    EMTerms,
    NoMixtureError,
    check_given,
    choose_rows,
    cluster,
    draw_responsibilities,
    first_mixture,
    most_likely_order,
)
from skprivbn.programs._moments import add_moments

FIRST = "sums of first responsibilities and moments"
EACH = "sums of responsibilities and moments, log-likelihood, each iteration"

#: why a fit ends without a mixture, beside what starts say
FEW_ENTRIES, SMALL, ILL_DEFINED = (
    "few entries",
    "small component",
    "ill-defined covariance",
)

# Log-likelihoods are told in this unit. Beyond what fits the sum then they say only
# that the start was bad.
_LIKELIHOOD_UNIT, _MAX_LIKELIHOOD = 2.0**20, 2.0**50


@dataclass(frozen=True, eq=False)
class Survey:
    """The own rows about the mean of all, and what all parties know of all rows.

    Attributes
    ----------
    rows : ndarray or RowSource of shape (n_own_rows, n_features)
    n_rows : int
        Of all parties.
    mean, scale : ndarray of shape (n_features,)
        Of all parties' rows; standard deviations, where there are any.
    frame : Frame
        Fits all rows, wherever the first mixture lies.
    """

    rows: Any
    n_rows: int
    mean: np.ndarray
    scale: np.ndarray
    frame: Frame


class Fit(NamedTuple):
    """One start of EM and where it led; means are relative to the mean of all rows."""

    mixture: Mixture
    bounds: list[float]
    converged: bool = False
    stopped: bool = False
    #: what made it: responsibilities of own rows, sums over all rows, and their frame
    made_by: Any = None


@program(EMTerms)
def em(me: Me) -> Generator[Any, Any, dict]:
    """Fit a mixture from every start; return the best one, or why there is none."""
    # no number: a fit that ends without a mixture tells none
    fits, least = [], str(me.min_rows)
    try:
        survey = yield from take_survey(me)
        for seed in me.terms.seeds:
            begun = yield from start(me, survey, seed)
            fits.append((yield from iterate(me, survey, begun)))
    except TooFewRows:
        return {"ends": SMALL, "min_rows": least}
    except IllDefinedCovarianceError:
        return {"ends": ILL_DEFINED, "min_rows": least}
    except NoMixtureError as error:
        return {"ends": str(error), "min_rows": least}
    best = max(fits, key=lambda fit: fit.bounds[-1] if fit.bounds else -np.inf)
    check_components(me, survey, best)
    return {
        "weights": best.mixture.weights,
        "means": best.mixture.means + survey.mean,
        "covariances": best.mixture.covariances,
        "lower_bounds": best.bounds,
        "converged": best.converged,
        "stopped": best.stopped,
        "n_rows": survey.n_rows,
        "min_rows": me.min_rows,
    }


def take_survey(me: Me) -> Generator[Any, Any, Survey]:
    """Add up numbers of rows and sums, then squares about the mean."""
    terms, X = me.terms, me.numbers(gaps=me.terms.has_gaps)
    check_given(terms, X.shape[1])
    counted = _with_gaps_marked(me, X) if terms.has_gaps else X
    try:
        found = yield from add_moments(
            me, counted, np.ones(len(X)), second="diagonal", pairs=True
        )
    except TooFewRows as few:
        if terms.has_gaps or me.is_simulated:
            raise NoMixtureError(FEW_ENTRIES if terms.has_gaps else SMALL) from None
        # of columns, and not of components, which there are none of yet
        raise PartyRefusal(few.code, few.what, few.columns) from None
    n_rows = int(np.rint(found["n_rows"][0]))
    if n_rows < terms.n_components:
        raise PartyRefusal("too-few-rows")
    n, mean, variance = (
        found[name][-X.shape[1] :] for name in ("n_rows", "mean", "covariance")
    )
    if not n.all():
        raise NoMixtureError(FEW_ENTRIES)
    # of a constant column, what rounding leaves
    least = np.where(mean == 0, 1.0, np.abs(mean)) * 2.0**-15
    scale = np.where(variance > 0, np.sqrt(variance), least)
    shape = terms.n_components, len(scale)
    frame = uniform_frame(terms.covariance_type, np.zeros(shape), scale)
    return Survey(map_rows(X, lambda X: X - mean), n_rows, mean, scale, frame)


def _with_gaps_marked(me, X):
    """Return rows behind columns that count them, whose sums tell all rows.

    A column of ones counts rows without any entry, too. At parties with limits, each
    column's gaps are counted instead: few gaps would tell the rows that have them,
    since two fits from different starts differ in what is expected there.
    """
    has_limits = me.min_cell_count > 1
    n_columns = X.shape[1] + (X.shape[1] if has_limits else 1)
    return map_rows(
        X,
        lambda X: np.column_stack([np.isnan(X) if has_limits else np.ones(len(X)), X]),
        list(map(str, range(n_columns))),
    )


def start(me: Me, survey: Survey, seed: int) -> Generator[Any, Any, Fit]:
    """Give own rows first responsibilities; make a mixture of all parties' sums."""
    terms, frame, given = me.terms, survey.frame, me.terms.given.about(survey.mean)
    how, kind = terms.init_params, terms.covariance_type
    # what to expect of a missing entry before there is a mixture
    prior = Mixture.single(terms.n_components, survey.scale**2)
    if how == "given":
        return Fit(first_mixture(kind, given), [])
    made_by = None
    if terms.shows_rows():
        chosen = yield from choose_rows(me, survey.rows, seed)
        total = local_statistics(chosen, np.eye(len(chosen)), frame, prior)
    else:
        if how == "random":
            respond = draw_responsibilities(me, seed)
        else:
            respond = yield from cluster(me, survey.rows, survey.scale, seed)
        sums, weights = expect(me, survey.rows, respond, frame, prior)
        total = (yield Sum(sums, FIRST, weights))[:-1]
        made_by = respond, total, frame
    counts, means, covariances = maximise(total, frame, terms.reg_covar)
    shares = counts / survey.n_rows
    if terms.matches_clusters and me.peers:
        order = most_likely_order(kind, shares, means, covariances, given)
        shares, means = shares[order], means[order]
        covariances = covariances if kind == "tied" else covariances[order]
    return Fit(
        first_mixture(kind, given, shares, means, covariances), [], made_by=made_by
    )


def iterate(me: Me, survey: Survey, begun: Fit) -> Generator[Any, Any, Fit]:
    """Alternate E-steps and M-steps until the log-likelihood rests.

    If a component is about to describe too few rows, the mixture before is kept.
    """
    terms, bounds = me.terms, []
    mixture, made_by = begun.mixture, begun.made_by
    kind, last = terms.covariance_type, terms.lower_bound
    frame = survey.frame
    for _ in range(terms.max_iter):
        # E-step and partial M-step: a, b and c of own rows, and their log-likelihood
        respond = partial(e_step, mixture=mixture)
        sums, weights = expect(me, survey.rows, respond, frame, mixture)
        # encrypted, added up by the server, decrypted
        try:
            total = yield Sum(sums, EACH, weights, new_keys=terms.rotate_keys)
        except TooFewRows:
            if not bounds:
                raise
            return Fit(mixture, bounds, stopped=True, made_by=made_by)
        # M-step: weights a_j / sum of a, means b_j / a_j, covariances c_j / a_j
        counts, means, covariances = maximise(total[:-1], frame, terms.reg_covar)
        made_by = respond, total[:-1], frame
        if terms.covariance_update == "paper":
            # equation (4): about the means before the update
            covariances += squares_of(kind, means - mixture.means, counts)
        shares = counts / counts.sum()
        mixture = Mixture.from_covariances(kind, shares, means, covariances)
        frame = frame_of(mixture)
        # the log-likelihood of all rows, at the mixture before
        bounds.append(float(total[-1]) * _LIKELIHOOD_UNIT / survey.n_rows)
        change, last = bounds[-1] - last, bounds[-1]
        if abs(change) < terms.tol:
            return Fit(mixture, bounds, converged=True, made_by=made_by)
    return Fit(mixture, bounds, made_by=made_by)


def check_components(me: Me, survey: Survey, fit: Fit) -> None:
    """Refuse a mixture if one row is nearly all of the squares of a component.

    Parameters
    ----------
    me : Me
    survey : Survey
    fit : Fit
    """
    if fit.made_by is None:
        return
    respond, total, frame = fit.made_by
    kind = frame.covariance_type
    counts, means, covariances = maximise(total, frame, 0.0)
    n_columns = means.shape[1]
    # of tied covariances, all components' together
    parts = covariances * (counts.sum() if kind == "tied" else 1.0)
    for k, n in enumerate(counts):
        products = parts if kind == "tied" else n * covariances[k]
        if kind == "spherical":
            products = np.array([n_columns * products])

        def deviations(k=k):
            for X in row_blocks(survey.rows):
                far = np.nan_to_num(X - means[k])
                if kind == "spherical":
                    far = np.linalg.norm(far, axis=1, keepdims=True)
                yield far * np.sqrt(respond(X)[1][:, [k]])

        columns = (None,) if kind == "spherical" else ()
        check_shares(me, deviations(), products, columns)


def expect(
    me: Me, rows: Any, respond: Callable, frame: Frame, mixture: Mixture
) -> tuple[np.ndarray, RowWeights]:
    """Do the E-step on own rows; sum what the M-step needs, block by block.

    Parameters
    ----------
    me : Me
    rows : ndarray or RowSource
    respond : callable
        From rows to their log-likelihoods and responsibilities.
    frame : Frame
    mixture : Mixture
        What to expect in gaps.

    Returns
    -------
    sums : ndarray
        As of :func:`local_statistics`, and the log-likelihood.
    weights : RowWeights
        Of each component; with gaps also of each of its columns.
    """
    sums, counted = np.zeros(1), np.zeros(1)
    for X in row_blocks(rows):
        likelihoods, shares = respond(X)
        moments = local_statistics(X, shares, frame, mixture)
        sums = sums + np.append(moments, np.sum(likelihoods) / _LIKELIHOOD_UNIT)
        marks = entries(X, me.terms.has_gaps)
        counted = counted + np.stack([shares.T @ marks, (shares**2).T @ marks])
    most = _MAX_LIKELIHOOD / len(me.roster)
    sums[-1] = np.clip(sums[-1], -most, most)
    return sums, RowWeights(*counted.reshape(2, -1))
