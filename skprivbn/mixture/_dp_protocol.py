"""EM under differential privacy: noisy sums of clipped rows, a fixed number of times.

Rows are clipped to public bounds, mapped to the box [-1, 1]^d and rounded, so that all
sums are exact: floating-point sums would depend on the other rows in their last bits.
Each party rounds its sums to a grid, adds its share of discrete noise and hides the
result, so that nobody ever sees sums without noise. Everything after that is
post-processing.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from skprivbn.federation import (
    Party,
    PartyRefusal,
    declare_noise,
    map_rows,
    operation,
    sum_over_rows,
)
from skprivbn.federation._rows import paired_blocks
from skprivbn.mixture._gaps import fill_with_zeros
from skprivbn.mixture._gaussian_steps import (
    Mixture,
    e_step,
    local_statistics,
    maximise,
    n_statistics,
    uniform_frame,
)
from skprivbn.mixture._private_gaps import statistics_of_gaps
from skprivbn.mixture._seeding import merge_centroids, nearest
from skprivbn.mixture._terms import MixtureTerms, check_given
from skprivbn.privacy import CountMechanism, distribute
from skprivbn.privacy._options import check_bounds, clip_rows

# Noisy integers travel as multiples of this: room for large counts, and coarse enough
# that reading an approximate sum gives the integer back.
INTEGER_UNIT = 2.0**-20

CELLS_PER_COMPONENT = 10

#: bits after the point of rows and of responsibilities, and of products of two
#: coordinates with a responsibility
_ROW_BITS, _SHARE_BITS = 10, 14
_SUM_BITS = 2 * _ROW_BITS + _SHARE_BITS


def sensitivities(covariance_type, n_features):
    """Return by how much one row of [-1, 1]^d changes the sums of the M-step.

    Responsibilities of a row sum to one, so that their Euclidean norm is at most one
    as well.

    Parameters
    ----------
    covariance_type : {"full", "tied", "diag", "spherical"}
    n_features : int

    Returns
    -------
    l1, l2 : float
        Sum of absolute changes and Euclidean norm of the change.

    Examples
    --------
    >>> sensitivities("diag", 4)
    (9.0, 3.0)
    """
    second_l1, second_square = {
        "full": (n_features * (n_features + 1) / 2,) * 2,
        "tied": (n_features * (n_features + 1) / 2,) * 2,
        "diag": (n_features, n_features),
        "spherical": (n_features, n_features**2),
    }[covariance_type]
    return (
        float(1 + n_features + second_l1),
        math.sqrt(1 + n_features + second_square),
    )


@dataclass(frozen=True)
class PrivateEMTerms(MixtureTerms):
    """Terms of EM under differential privacy.

    Parameters
    ----------
    epsilon, delta : float
        Budget of all releases together.
    bounds : ndarray of shape (2, n_features)
        Public, rows are clipped to them.
    min_honest : int or None
        How many parties are trusted to add their share of the noise; by default half
        of them, rounded up.
    protects : {"rows", "individuals"}
        Whom the noise hides: rows, or persons, all of whose rows count as one.
    """

    epsilon: float
    delta: float
    bounds: np.ndarray
    min_honest: int | None
    protects: Literal["rows", "individuals"] = "rows"

    def rounds(self, n_parties):
        """Return two for each release, and one for the result."""
        return 2 * self.n_releases + 1

    @property
    def uses_cells(self):
        """Whether the first means come from the rows, by one noisy release."""
        return self.init_params == "kmeans" and self.given.means is None

    @property
    def n_releases(self):
        """How many noisy sums there are."""
        return self.max_iter + self.uses_cells

    def n_values(self, n_features):
        """Return the length of the sums of an iteration."""
        return n_statistics(self.covariance_type, self.n_components, n_features)

    def grid(self, n_features):
        """Return by what sums are multiplied before they are rounded.

        A row changes a rounded sum by less than one more than the exact one, which is
        inside the sensitivity and costs about one per cent of it.
        """
        return 2.0 ** math.ceil(math.log2(100 * math.sqrt(self.n_values(n_features))))

    def noise(self, n_features, n_parties):
        """Return the noise of one release, for the budget of all of them."""
        check_bounds(self.bounds, n_features)
        length, grid = self.n_values(n_features), self.grid(n_features)
        l1, l2 = sensitivities(self.covariance_type, n_features)
        mechanism = CountMechanism.for_budget(
            self.epsilon,
            self.delta,
            l1_sensitivity=self.n_releases * math.ceil(grid * l1 + length),
            l2_sensitivity=math.sqrt(self.n_releases) * (grid * l2 + math.sqrt(length)),
        )
        return distribute(mechanism, n_parties, self.min_honest)


def round_rows(rows):
    """Round rows of [-1, 1]^d to multiples of 2^-10, which stay in the box."""
    return np.rint(rows * 2**_ROW_BITS) / 2**_ROW_BITS


def exact_statistics(rows, responsibilities, frame, mixture=None):
    """Sum rounded rows as :func:`local_statistics` does, without rounding errors.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, n_features)
        From :func:`round_rows`, perhaps with gaps.
    responsibilities : ndarray of shape (n_samples, n_components)
        Each row sums to one; rounded down, so that it is never more.
    frame : Frame
        With references zero and scales one.
    mixture : Mixture, default=None
        What to expect in gaps.

    Returns
    -------
    sums : ndarray of int64 of shape (n_statistics,)
        In units of 2^-34, equal to the sum of what the single rows give.
    """
    # A row so far from every component that it has no responsibilities counts for
    # nothing; a single such row must not spoil the sums, which noise would not hide.
    shares = np.where(np.isfinite(responsibilities), responsibilities, 0.0)
    shares = np.floor(shares * 2**_SHARE_BITS) / 2**_SHARE_BITS
    incomplete = np.isnan(rows).any(axis=1)
    if incomplete.any():
        gaps = statistics_of_gaps(
            rows[incomplete], shares[incomplete], mixture, _SUM_BITS
        )
        return gaps + exact_statistics(rows[~incomplete], shares[~incomplete], frame)
    # Sums of this many multiples of the unit are integers that floats hold exactly.
    n_block = max(2 ** (52 - _SUM_BITS) // rows.shape[1], 1)
    total = np.zeros(
        n_statistics(frame.covariance_type, *frame.reference.shape), dtype=np.int64
    )
    for start in range(0, len(rows), n_block):
        block = slice(start, start + n_block)
        sums = local_statistics(rows[block], shares[block], frame)
        total += (sums * 2.0**_SUM_BITS).astype(np.int64)
    return total


def exact_cells(rows, cells, shares=None):
    """Sizes of cells and sums of the rounded rows nearest to each of them.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, n_features)
        From :func:`round_rows`.
    cells : ndarray of shape (n_cells, n_features)
    shares : ndarray of shape (n_samples,), default=None
        How much each row counts: rounded down, so that it is never more. One if None.

    Returns
    -------
    sums : ndarray of int64 of shape (n_cells * (1 + n_features),)
        In units of 2^-34, as :func:`exact_statistics`.
    """
    members = nearest(rows, cells)
    shares = np.ones(len(rows)) if shares is None else shares
    whole = np.floor(shares * 2**_SHARE_BITS).astype(np.int64)
    sizes, totals = np.zeros(len(cells), np.int64), np.zeros(cells.shape, np.int64)
    np.add.at(sizes, members, whole)
    integers = (rows * 2**_ROW_BITS).astype(np.int64)
    np.add.at(totals, members, whole[:, np.newaxis] * integers)
    units = 2 ** (2 * _ROW_BITS), 2**_ROW_BITS
    return np.append(sizes * units[0], totals.ravel() * units[1])


def round_sums(sums, grid):
    """Round exact sums to integer multiples of 1 / grid, a power of two."""
    shift = _SUM_BITS - int(math.log2(grid))
    if shift <= 0:
        return sums << -shift
    return (sums + (1 << (shift - 1))) >> shift


class PrivateEMParty(Party):
    """A data holder in EM under differential privacy."""

    terms = PrivateEMTerms

    def prepare(self):
        terms = self.terms
        n_features = np.shape(self.block["X"])[1]
        check_given(terms, n_features)
        low, high = terms.bounds
        self.middle, self.half = box(low, high, terms.covariance_type)
        self.rows, self.shares = map_rows(self.block["X"], self._in_box), None
        self.filled = self.rows
        if terms.has_gaps:
            self.filled = map_rows(self.rows, fill_with_zeros)
        if (shared_by := self.rows_of_person()) is not None:
            self.shares = np.where(shared_by > 0, 1 / np.maximum(shared_by, 1), 0.0)
        self.frame = uniform_frame(
            terms.covariance_type,
            np.zeros(n_features),
            np.ones(n_features),
            terms.n_components,
        )
        self.noise = terms.noise(n_features, len(self.context.roster))
        self.grid = terms.grid(n_features)
        self.noise_std = self.noise.std / self.grid
        self.mixture = public_start(terms, self.middle, self.half)
        if not np.all(np.isfinite(self.mixture.covariances)):
            # rows with gaps would fail, and so tell that they are there
            raise PartyRefusal("refused")
        random_state = np.random.RandomState(terms.seeds[0])
        n_cells = CELLS_PER_COMPONENT * terms.n_components
        self.cells = random_state.uniform(-1, 1, (n_cells, n_features))

    def _in_box(self, rows):
        clipped = clip_rows(rows, self.terms.bounds)
        # twice: bounds a hair apart have no middle that is between them
        boxed = round_rows(np.clip((clipped - self.middle) / self.half, -1, 1))
        if self.terms.has_gaps:
            boxed[np.isnan(np.asarray(rows, dtype=np.float64))] = np.nan
        return boxed

    def _add_up(self, function, rows):
        """Sum what a function makes of rows and the shares that they count for."""
        if self.shares is None:
            return sum_over_rows(rows, lambda block: function(block, None))
        return sum(function(*pair) for pair in paired_blocks(rows, self.shares))

    def schedule(self):
        if self.terms.uses_cells:
            yield "noisy_cells"
            yield "start"
        for _ in range(self.terms.max_iter):
            yield "noisy_statistics"
            yield "update"
        yield "hand_over"

    @operation(
        tells="sizes and sums of its clipped rows in random cells, with its share of "
        "the noise",
        kind="noisy release",
    )
    def noisy_cells(self):
        def count(rows, shares):
            return exact_cells(rows, self.cells, shares)

        return self._hide_noisy(self._add_up(count, self.filled))

    @operation()
    def start(self, total):
        means = centres_of_cells(
            self._reveal_noisy(total),
            self.mixture.means,
            self.noise_std,
            self.terms.seeds[0],
        )
        self.mixture = replace(self.mixture, means=means)

    @operation(
        tells="sums of responsibilities and moments of its clipped rows, with its "
        "share of the noise",
        kind="noisy release",
    )
    def noisy_statistics(self):
        def add(rows, shares):
            _, responsibilities = e_step(rows, self.mixture)
            if shares is not None:
                responsibilities = responsibilities * shares[:, np.newaxis]
            return exact_statistics(rows, responsibilities, self.frame, self.mixture)

        return self._hide_noisy(self._add_up(add, self.rows))

    @operation()
    def update(self, total):
        sums = self._reveal_noisy(total)
        self.mixture = maximise_noisy(sums, self.frame, self.noise_std)

    def _hide_noisy(self, sums):
        integers = round_sums(sums, self.grid)
        integers += self.noise.share(len(integers))
        return self.hide(integers * INTEGER_UNIT)

    def _reveal_noisy(self, total):
        return np.rint(self.reveal(total) / INTEGER_UNIT) / self.grid

    @operation(
        tells="the mixture made of the noisy sums",
        kind="noisy release",
        answers={"weights": np.ndarray, "means": np.ndarray, "covariances": np.ndarray},
    )
    def hand_over(self):
        mixture = self.mixture
        return {
            "weights": mixture.weights,
            "means": mixture.means,
            "covariances": mixture.covariances,
        }


def box(low, high, covariance_type):
    """Return middle and half width of the bounds; one width for all if spherical."""
    half = (high - low) / 2
    if covariance_type == "spherical":
        half = np.full_like(half, half.max())
    return (high + low) / 2, half


def _units_of_covariances(half, covariance_type):
    """Return by what covariances in the unit box differ from those of the features."""
    if covariance_type in ("full", "tied"):
        return np.outer(half, half)
    return half[0] ** 2 if covariance_type == "spherical" else half**2


def public_start(terms, middle, half):
    """Return the mixture to start from, in the unit box, without looking at rows.

    What the user did not give: equal weights, means drawn at random in the box, apart
    from each other, and variances of the size of a component's part of it.
    """
    kind, n_components = terms.covariance_type, terms.n_components
    given, n_features = terms.given, len(middle)
    means = spread_points(n_components, n_features, terms.seeds[0])
    if given.means is not None:
        means = (given.means - middle) / half
    weights = given.weights
    if weights is None:
        weights = np.full(n_components, 1 / n_components)
    if given.precisions is not None or given.covariances is not None:
        units = _units_of_covariances(half, kind)
        if given.precisions is not None:
            precisions = given.precisions * units
            return Mixture.from_precisions(kind, weights, means, precisions)
        covariances = given.covariances / units
    else:
        variance = n_components ** (-2 / n_features) / 12
        covariances = {
            "full": np.tile(variance * np.eye(n_features), (n_components, 1, 1)),
            "tied": variance * np.eye(n_features),
            "diag": np.full((n_components, n_features), variance),
            "spherical": np.full(n_components, variance),
        }[kind]
    return Mixture.from_covariances(kind, weights, means, covariances)


def spread_points(n_points, n_features, seed):
    """Draw points in [-0.7, 0.7]^d one by one, the farthest of some candidates."""
    random_state = np.random.RandomState(seed)
    points = [random_state.uniform(-0.7, 0.7, n_features)]
    while len(points) < n_points:
        candidates = random_state.uniform(-0.7, 0.7, (30, n_features))
        gaps = candidates[:, np.newaxis] - np.array(points)
        nearest = (gaps**2).sum(axis=2).min(axis=1)
        points.append(candidates[nearest.argmax()])
    return np.array(points)


def centres_of_cells(sums, fallback, noise_std, seed):
    """Cluster the centroids of those cells that stand out from the noise.

    Parameters
    ----------
    sums : ndarray of shape (n_cells * (1 + n_features),)
        Noisy sizes of the cells, and sums of the rows in each.
    fallback : ndarray of shape (n_components, n_features)
        Means to use if too few cells stand out.
    noise_std : float
        Standard deviation of the noise on each sum.
    seed : int

    Returns
    -------
    means : ndarray of shape (n_components, n_features)
    """
    n_components, n_features = fallback.shape
    n_cells = len(sums) // (1 + n_features)
    sizes, totals = sums[:n_cells], sums[n_cells:].reshape(n_cells, n_features)
    occupied = sizes > 3 * noise_std
    if occupied.sum() < n_components:
        return fallback
    sizes = sizes[occupied]
    centroids = np.clip(totals[occupied] / sizes[:, np.newaxis], -1, 1)
    return merge_centroids(centroids, sizes, n_components, seed)


def maximise_noisy(sums, frame, noise_std):
    """Do the M-step from noisy sums, and make a proper mixture of the result.

    Parameters
    ----------
    sums : ndarray of shape (n_statistics,)
        With noise; counts may be negative, covariances indefinite.
    frame : Frame
    noise_std : float
        Standard deviation of the noise on each sum. Variances below what it alone
        would make are raised to that.

    Returns
    -------
    mixture : Mixture
    """
    n_components = len(frame.reference)
    sums = sums.copy()
    sums[:n_components] = np.maximum(sums[:n_components], max(noise_std, 1.0))
    counts, means, covariances = maximise(sums, frame, 0.0)
    means = np.clip(means, -1, 1)
    floor = np.clip(noise_std / counts, 1e-6, 1.0)
    kind = frame.covariance_type
    if kind == "tied":
        covariances = _between(covariances, noise_std / counts.sum())
    elif kind == "full":
        covariances = np.stack([_between(c, f) for c, f in zip(covariances, floor)])
    else:
        floor = floor if kind == "spherical" else floor[:, np.newaxis]
        covariances = np.clip(covariances, floor, 1.0)
    return Mixture.from_covariances(kind, counts / counts.sum(), means, covariances)


def _between(covariance, floor):
    """Bring the eigenvalues between `floor` and what a unit box allows."""
    values, vectors = np.linalg.eigh(covariance)
    values = np.clip(values, min(max(floor, 1e-6), 1.0), len(values))
    covariance = (vectors * values) @ vectors.T
    return (covariance + covariance.T) / 2


def run_private_em(federation, progress):
    """Coordinate a fit under differential privacy.

    Parameters
    ----------
    federation : Federation
        Of :class:`PrivateEMParty`.
    progress : Progress
        Told of every iteration.

    Returns
    -------
    mixture : Mixture
    """
    terms = federation.terms
    noise = terms.noise(terms.bounds.shape[1], len(federation.roster))
    what = "the mixture and the sums of all rounds"
    declare_noise(federation.ledger, noise, what, terms.protects)
    with progress.part("em-iteration", terms.max_iter) as iterations:
        if terms.uses_cells:
            total = federation.secure_sum("noisy_cells")
            federation.call("start", {"total": total})
        for _ in range(terms.max_iter):
            with iterations.step():
                total = federation.secure_sum("noisy_statistics")
                federation.call("update", {"total": total})
    return _out_of_box(federation.unanimous("hand_over"), terms)


def _out_of_box(parameters, terms):
    kind = terms.covariance_type
    middle, half = box(*terms.bounds, kind)
    covariances = parameters["covariances"] * _units_of_covariances(half, kind)
    if kind in ("full", "tied"):
        np.einsum("...ff->...f", covariances)[...] += terms.reg_covar
    else:
        covariances = covariances + terms.reg_covar
    means = middle + parameters["means"] * half
    return Mixture.from_covariances(kind, parameters["weights"], means, covariances)
