"""PPEM: expectation maximisation for Gaussian mixtures, as every party runs it.

1. Survey: how many rows there are, around where, and how far apart (two sums).
2. Start: first responsibilities of the own rows, of which an M-step makes a mixture.
3. Iterations: the E-step on the own rows, one sum over all parties, the M-step, which
   every party does by itself.

Rows may have gaps. A column that few rows of a component have an entry in would tell as
much as a component of few rows: both are counted alike.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from skprivbn.federation import (
    ALL_ROWS,
    SAME_ROWS,
    Me,
    PartyRefusal,
    RowWeights,
    Sum,
    Tell,
    TooFewRows,
    check_like,
    map_rows,
    program,
    row_blocks,
    sum_over_rows,
)
from skprivbn.federation._rows import unit_of_squares
from skprivbn.mixture._gaps import fill_with_zeros
from skprivbn.mixture._gaussian_steps import (
    Frame,
    IllDefinedCovarianceError,
    Mixture,
    e_step,
    frame_of,
    local_statistics,
    maximise,
    moments_about_old_means,
    uniform_frame,
)
from skprivbn.mixture._seeding import (
    cluster_sums,
    merge_centroids,
    most_likely_order,
    nearest,
    one_hot,
    own_clusters,
    random_responsibilities,
    secret_responsibilities,
)
from skprivbn.mixture._terms import (
    MAX_LLOYD_ROUNDS,
    EMTerms,
    check_given,
    first_mixture,
)

CENTRES = "centres and sizes of clusters of min_rows rows or more"
MASSES = "numbers of rows, or sums of squared distances from rows chosen"
SHOWN = "rows chosen as first means"
CLUSTERS = "sizes and sums of clusters, each step of k-means"
FIRST = "sums of first responsibilities and moments"
EACH = "sums of responsibilities and moments, log-likelihood, each iteration"

#: why a fit ends without a mixture
FEW_ENTRIES, FEW_CLUSTERS, SMALL, ILL_DEFINED = (
    "few entries",
    "few clusters",
    "small component",
    "ill-defined covariance",
)

# Log-likelihoods are told in this unit. Beyond what fits the sum then they say only
# that the start was bad.
_LIKELIHOOD_UNIT, _MAX_LIKELIHOOD = 2.0**20, 2.0**50


class NoMixtureError(Exception):
    """A fit ends without a mixture, for a reason that all parties know alike."""


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
    """

    rows: Any
    n_rows: int
    mean: np.ndarray
    scale: np.ndarray

    def frame(self, terms: EMTerms) -> Frame:
        """Return a frame that fits all rows, wherever the first mixture lies."""
        centre = np.zeros_like(self.scale)
        kind, n_components = terms.covariance_type, terms.n_components
        return uniform_frame(kind, centre, self.scale, n_components)

    def prior(self, terms: EMTerms) -> Mixture:
        """Return what to expect of a missing entry before there is a mixture."""
        shape = terms.n_components, len(self.scale)
        weights = np.full(shape[0], 1 / shape[0])
        variances = np.broadcast_to(self.scale**2, shape)
        return Mixture.from_covariances("diag", weights, np.zeros(shape), variances)


class Fit(NamedTuple):
    """One start of EM and where it led; means are relative to the mean of all rows."""

    mixture: Mixture
    bounds: list[float]
    converged: bool = False
    stopped: bool = False


@program(EMTerms)
def em(me: Me) -> Generator[Any, Any, dict]:
    """Fit a mixture from every start; return the best one, or why there is none."""
    terms, fits = me.terms, []
    try:
        survey = yield from take_survey(me)
        for seed in terms.seeds:
            mixture = yield from start(me, survey, seed)
            fits.append((yield from iterate(me, survey, mixture)))
    except TooFewRows:
        return {"ends": SMALL, "min_rows": me.min_rows}
    except IllDefinedCovarianceError:
        return {"ends": ILL_DEFINED, "min_rows": me.min_rows}
    except NoMixtureError as error:
        return {"ends": str(error), "min_rows": me.min_rows}
    best = max(fits, key=lambda fit: fit.bounds[-1] if fit.bounds else -np.inf)
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

    def add(X):
        entries, values = ~np.isnan(X), fill_with_zeros(X)
        sums = [entries.sum(axis=0), values.sum(axis=0), np.abs(values).sum(axis=0)]
        return np.concatenate([[len(X)], *sums])

    sums, weights = sum_over_rows(X, add), ALL_ROWS
    if terms.has_gaps:
        weights = RowWeights(sums[1 : 1 + X.shape[1]])
    try:
        sums = yield Sum(sums, "numbers of rows, sums and absolute sums", weights)
    except TooFewRows:
        raise NoMixtureError(FEW_ENTRIES if terms.has_gaps else SMALL) from None
    n_rows, (n, sums, sizes) = int(np.rint(sums[0])), np.split(sums[1:], 3)
    if n_rows < terms.n_components:
        raise PartyRefusal("too-few-rows")
    if not n.all():
        raise NoMixtureError(FEW_ENTRIES)
    mean, unit = sums / n, unit_of_squares(sizes / n, n)
    rows = map_rows(X, lambda X: X - mean)

    def add_squares(rows):
        return (fill_with_zeros(rows / unit) ** 2).sum(axis=0)

    squares = sum_over_rows(rows, add_squares)
    squares = yield Sum(squares, "sums of squared distances from the mean", SAME_ROWS)
    deviations = np.sqrt(squares / n) * unit
    scale = np.where(deviations > 0, deviations, unit)
    return Survey(rows, n_rows, mean, scale)


def start(me: Me, survey: Survey, seed: int) -> Generator[Any, Any, Mixture]:
    """Give own rows first responsibilities; make a mixture of all parties' sums."""
    terms, frame, prior = me.terms, survey.frame(me.terms), survey.prior(me.terms)
    how, kind = terms.init_params, terms.covariance_type
    if how == "given":
        return first_mixture(terms, None, None, None, survey.mean)
    if how in ("k-means++", "random_from_data"):
        chosen = yield from choose_rows(me, survey, seed)
        one_each = np.eye(terms.n_components)
        total = local_statistics(chosen, one_each, frame, prior)
    else:
        if how == "random":
            respond = draw_responsibilities(me, seed)
        else:
            respond = yield from cluster(me, survey, seed)
        sums, weights = expect(me, survey.rows, respond, frame, prior)
        total = (yield Sum(sums, FIRST, weights))[:-1]
    counts, means, covariances = maximise(total, frame, terms.reg_covar)
    shares = counts / survey.n_rows
    if terms.matches_clusters and me.peers:
        given = terms.given.moved(-survey.mean)
        order = most_likely_order(kind, shares, means, covariances, given)
        shares, means = shares[order], means[order]
        covariances = covariances if kind == "tied" else covariances[order]
    return first_mixture(terms, shares, means, covariances, survey.mean)


def iterate(me: Me, survey: Survey, mixture: Mixture) -> Generator[Any, Any, Fit]:
    """Alternate E-steps and M-steps until the log-likelihood rests.

    If a component is about to describe too few rows, the mixture before is kept.
    """
    terms, bounds = me.terms, []
    kind, last = terms.covariance_type, terms.lower_bound
    frame = survey.frame(terms)
    for _ in range(terms.max_iter):
        respond = partial(e_step, mixture=mixture)
        sums, weights = expect(me, survey.rows, respond, frame, mixture)
        try:
            total = yield Sum(sums, EACH, weights, new_keys=terms.rotate_keys)
        except TooFewRows:
            if not bounds:
                raise
            return Fit(mixture, bounds, stopped=True)
        counts, means, covariances = maximise(total[:-1], frame, terms.reg_covar)
        if terms.covariance_update == "paper":
            covariances = moments_about_old_means(
                kind, counts, covariances, means, mixture.means
            )
        shares = counts / counts.sum()
        mixture = Mixture.from_covariances(kind, shares, means, covariances)
        frame = frame_of(mixture)
        bounds.append(float(total[-1]) * _LIKELIHOOD_UNIT / survey.n_rows)
        change, last = bounds[-1] - last, bounds[-1]
        if abs(change) < terms.tol:
            return Fit(mixture, bounds, converged=True)
    return Fit(mixture, bounds)


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
        entries = _entries(me, X)
        counted = counted + np.stack([shares.T @ entries, (shares**2).T @ entries])
    most = _MAX_LIKELIHOOD / len(me.roster)
    sums[-1] = np.clip(sums[-1], -most, most)
    return sums, RowWeights(*counted.reshape(2, -1))


def draw_responsibilities(me: Me, seed: int) -> Callable:
    """Return random responsibilities, which at sites do not follow from the seed.

    Whoever knows those of as many starts as there are rows solves their sums for the
    rows.
    """
    draw: Callable = secret_responsibilities
    if me.is_simulated:
        draw = partial(random_responsibilities, random_state=_random_state(me, seed))
    return lambda X: (0.0, draw(len(X), me.terms.n_components))


def cluster(me: Me, survey: Survey, seed: int) -> Generator[Any, Any, Callable]:
    """Merge the centres of all parties' clusters; k-means moves them over all rows."""
    terms, n_components = me.terms, me.terms.n_components
    least = me.min_rows if me.peers else 1
    n_clusters = max(min(n_components, len(survey.rows) // least), 1)
    own = own_clusters(survey.rows, n_clusters, _random_state(me, seed), terms)
    centres = own.centres
    if me.peers:
        big, told = own.sizes >= least, np.where(own.entries < least, 0.0, own.centres)
        # Filled up, so that whoever carries it does not see how many there are.
        n_missing = n_components - np.count_nonzero(big)
        mine = {
            "centres": np.pad(told[big], [(0, n_missing), (0, 0)]),
            "sizes": np.pad(own.sizes[big], (0, n_missing)),
        }
        tell = Tell(dict.fromkeys(me.peers, mine), CENTRES, "plaintext aggregate")
        heard = yield from _hear_all(me, mine, tell)
        centres = np.vstack([heard[name]["centres"] for name in me.roster])
        sizes = np.concatenate([heard[name]["sizes"] for name in me.roster])
        if np.count_nonzero(sizes) < n_components:
            raise NoMixtureError(FEW_CLUSTERS)
        centres, sizes = centres[sizes > 0], sizes[sizes > 0]
        centres = merge_centroids(centres, sizes, n_components, seed)
    if terms.init_params == "kmeans":
        centres = yield from move_centres(me, survey, centres)
    elif own.mixture is not None:
        groups, respond = (
            one_hot(nearest(own.centres, centres), n_components),
            own.mixture,
        )
        return lambda X: (0.0, respond(fill_with_zeros(X)) @ groups)
    return lambda X: (0.0, one_hot(nearest(fill_with_zeros(X), centres), n_components))


def move_centres(
    me: Me, survey: Survey, centres: np.ndarray
) -> Generator[Any, Any, np.ndarray]:
    """Do steps of Lloyd's algorithm; clusters of few rows stay where they are."""
    centres = centres.copy()
    for _ in range(MAX_LLOYD_ROUNDS):
        moving, total = np.arange(len(centres)), None
        while total is None:
            sums, counted = _add_clusters(me, survey, centres[moving])
            try:
                total = yield Sum(sums, CLUSTERS, RowWeights(counted.ravel()))
            except TooFewRows as few:
                # their rows go with the nearest of the others
                small = few.blocks.reshape(counted.shape).any(axis=1)
                if small.all():
                    raise
                moving = moving[~small]
        sizes, sums = np.split(total, [len(moving)])
        steps = sums.reshape(len(moving), -1) / np.maximum(sizes, 0.5)[:, np.newaxis]
        centres[moving] += steps * survey.scale
        if np.abs(steps).max() < 1e-4:
            break
    return centres


def _add_clusters(me, survey, centres):
    """Return sizes and sums of own clusters, and how many rows these are about."""
    sums, counted = np.zeros(1), np.zeros(1)
    for X in row_blocks(survey.rows):
        filled = fill_with_zeros(X)
        members = one_hot(nearest(filled, centres), len(centres))
        sums = sums + cluster_sums(filled, members, centres, survey.scale)
        counted = counted + members.T @ _entries(me, X)
    return sums, counted


def choose_rows(me: Me, survey: Survey, seed: int) -> Generator[Any, Any, np.ndarray]:
    """Draw rows of all parties; with k-means++ by squared distance from those before.

    Everybody sees them.
    """
    rows, shared = np.asarray(survey.rows), np.random.RandomState(seed)
    filled, chances, chosen = fill_with_zeros(rows), np.ones(len(rows)), []
    for _ in range(me.terms.n_components):
        mine: dict = {"mass": float(chances.sum())}
        tell = Tell(dict.fromkeys(me.peers, mine), MASSES, "plaintext aggregate")
        masses = yield from _hear_all(me, mine, tell)
        ends = np.cumsum([masses[name]["mass"] for name in me.roster])
        target = shared.uniform() * ends[-1]
        holder = int(np.searchsorted(ends[:-1], target, side="right"))
        # The others send one, too, or the relay would know whose row it is.
        row = np.zeros(rows.shape[1])
        if me.roster[holder] == me.name:
            target -= ends[holder - 1] if holder else 0.0
            place = np.searchsorted(np.cumsum(chances)[:-1], target, side="right")
            row, chances[place] = rows[place], 0
        mine = {"row": fill_with_zeros(row), "gaps": np.isnan(row).astype(float)}
        tell = Tell(dict.fromkeys(me.peers, mine), SHOWN, "raw rows")
        told = (yield from _hear_all(me, mine, tell))[me.roster[holder]]
        chosen.append(np.where(told["gaps"] > 0, np.nan, told["row"]))
        if me.terms.init_params == "k-means++":
            squares = ((filled - told["row"]) ** 2).sum(axis=1)
            chances = squares if len(chosen) == 1 else np.minimum(chances, squares)
    return np.array(chosen)


def _hear_all(me, mine, tell):
    """Tell all peers the same; return what everybody told, by name."""
    heard = {me.name: mine}
    if me.peers:
        heard |= yield tell
    if heard.keys() != set(me.roster):
        raise PartyRefusal("refused")
    for message in heard.values():
        check_like(message, mine)
    return heard


def _entries(me, X):
    """Mark which rows count: all, with gaps also which have an entry in a column."""
    rows = np.ones((len(X), 1))
    return np.hstack([rows, ~np.isnan(X)]) if me.terms.has_gaps else rows


def _random_state(me, seed):
    """Return own random numbers, which decide nothing but where the search begins."""
    place = me.roster.index(me.name)
    return np.random.RandomState([seed, place] if place else seed)
