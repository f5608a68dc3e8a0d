"""EM under differential privacy: noisy sums of clipped rows, a fixed number of times.

Rows are clipped to public bounds, mapped to the box [-1, 1]^d and rounded, so that all
sums are exact: floating-point sums would depend on the other rows in their last bits.
Each party rounds its sums to a grid and adds its share of discrete noise, so that
nobody ever sees sums without noise. Everything after that is post-processing.
"""

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np

from skprivbn.federation import Me, Noisy, PartyRefusal, map_rows, program
from skprivbn.federation._rows import paired_blocks
from skprivbn.mixture._gaps import fill_with_zeros, statistics_of_gaps
from skprivbn.mixture._gaussian_steps import (
    Mixture,
    e_step,
    isotropic,
    local_statistics,
    maximise,
    n_statistics,
    regularised,
    squares_of,
    uniform_frame,
)
from skprivbn.mixture._seeding import (
    MixtureTerms,
    check_given,
    first_mixture,
    merge_centroids,
    nearest_cells,
)
from skprivbn.privacy import CountMechanism, distribute
from skprivbn.privacy._noise_report import noisy_number
from skprivbn.privacy._options import check_bounds

CELLS = "sizes and sums of random cells, with noise"
NOISY = "sums of responsibilities and moments, with noise, each iteration"

CELLS_PER_COMPONENT = 10
#: standard deviations of noise between the means of components that are two
_APART = 3.0

#: fewest and most iterations that are chosen for a budget, and the rows and the share
#: of a component's rows that noise is held to between them; of a stored study
_FEWEST, _MOST = 4, 10
_USUAL_ROWS, _NOISE_SHARE = 10_000, 0.01

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

    @property
    def uses_cells(self):
        """Whether the first means come from the rows, by one noisy release."""
        return self.init_params == "kmeans" and self.given.means is None

    @property
    def n_releases(self):
        """How many noisy sums there are."""
        return self.max_iter + self.uses_cells

    @property
    def n_cells(self):
        """How many random cells rows are counted in."""
        return CELLS_PER_COMPONENT * self.n_components

    def n_values(self, n_features):
        """Return the length of the sums of an iteration."""
        return n_statistics(self.covariance_type, self.n_components, n_features)

    def grid(self, n_features):
        """Return by what sums are multiplied before they are rounded.

        A row changes a rounded sum by less than one more than the exact one, which is
        inside the sensitivity and costs about one per cent of it.
        """
        return 2.0 ** math.ceil(math.log2(100 * math.sqrt(self.n_values(n_features))))

    def cells_factor(self, n_features):
        """Return by what the grid of the cells is finer than that of the iterations.

        A row is in one cell: it changes its size by one and d sums by at most one, by
        1 + d in all and by sqrt(1 + d) in Euclidean norm. The noise hides changes of
        the sums of the M-step, which are larger: a multiple of the counts, the largest
        power of two with which they change by no more, has the same noise and less of
        it per row.
        """
        l1, l2 = sensitivities(self.covariance_type, n_features)
        room = l1 / (1 + n_features)
        if self.delta > 0:
            room = l2 / math.sqrt(1 + n_features)
        return 2.0 ** math.floor(math.log2(room))

    def with_iterations(self, n_features, n_parties):
        """Return terms with as many iterations as the budget bears.

        By public quantities alone: the most of 4 to 10 with which the noise on a sum is
        at most one per cent of a component's part of 10,000 rows.
        """
        for n_iter in range(_MOST, _FEWEST, -1):
            terms = replace(self, max_iter=n_iter)
            noise = terms.noise(n_features, n_parties).split(terms.n_releases)
            share = noise.std / terms.grid(n_features) * self.n_components
            if share <= _NOISE_SHARE * _USUAL_ROWS:
                return terms
        return replace(self, max_iter=_FEWEST)

    def noise(self, n_features, n_parties):
        """Return the noise of all releases together, of which each has its part.

        The rows of a person weigh one together, so that they change exact sums by no
        more than one row does. Rounding adds less than one to each number that changes:
        to all numbers of an iteration, to one cell of a row, to any cell of a person.
        All releases have the noise of the one that changes most.
        """
        check_bounds(self.bounds, n_features)
        grid, n_changed = self.grid(n_features), self.n_values(n_features)
        changes = [(grid, *sensitivities(self.covariance_type, n_features), n_changed)]
        if self.uses_cells:
            fine, size = grid * self.cells_factor(n_features), 1 + n_features
            n_changed = size * (self.n_cells if self.protects == "individuals" else 1)
            changes.append((fine, size, math.sqrt(size), n_changed))
        largest_l1 = max(math.ceil(g * l1 + n) for g, l1, _, n in changes)
        largest_l2 = max(g * l2 + math.sqrt(n) for g, _, l2, n in changes)
        mechanism = CountMechanism.for_budget(
            self.epsilon,
            self.delta,
            l1_sensitivity=self.n_releases * largest_l1,
            l2_sensitivity=math.sqrt(self.n_releases) * largest_l2,
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


def exact_cells(rows, cells, shares):
    """Sizes of cells and sums of the rounded rows nearest to each of them.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, n_features)
        From :func:`round_rows`.
    cells : ndarray of shape (n_cells, n_features)
    shares : ndarray of shape (n_samples,)
        How much each row counts: rounded down, so that it is never more.

    Returns
    -------
    sums : ndarray of int64 of shape (n_cells * (1 + n_features),)
        In units of 2^-34, as :func:`exact_statistics`.
    """
    members = nearest_cells(rows, cells)
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


@program(PrivateEMTerms)
def noisy_em(me: Me) -> Generator[Any, Any, dict]:
    """Start from noisy counts in random cells, or without rows; then iterate."""
    terms, (low, high) = me.terms, me.terms.bounds
    check_given(terms, len(low))
    box = Box.between(low, high, terms.covariance_type)
    if not np.all(np.isfinite(public_start(terms, box).covariances)):
        # rows with gaps would fail, and so tell that they are there
        raise PartyRefusal("refused")
    return (yield from noisy_steps(terms, box, rows_in_box(me, box), len(me.roster)))


def noisy_steps(
    terms: PrivateEMTerms, box: "Box", rows: Callable, n_parties: int
) -> Generator[Noisy, Any, dict]:
    """Ask for noisy sums of rows in the box, and return what follows from them.

    Parameters
    ----------
    terms : PrivateEMTerms
    box : Box
    rows : callable
        Returns blocks of rows in the box, and how much each row counts.
    n_parties : int

    Returns
    -------
    found : dict
        Weights, means and covariances; covariances before they were shrunk; the noisy
        number of rows, and the standard deviation of the noise on the last sums.
    """
    n_features, mixture = len(box.middle), public_start(terms, box)
    frame = uniform_frame(
        terms.covariance_type, np.zeros_like(mixture.means), np.ones(n_features)
    )
    noise = terms.noise(n_features, n_parties).split(terms.n_releases)
    grid = terms.grid(n_features)
    if terms.uses_cells:
        cells = random_cells(terms, n_features)
        fine = grid * terms.cells_factor(n_features)
        sums = sum(exact_cells(fill_with_zeros(X), cells, s) for X, s in rows())
        total = yield Noisy(round_sums(sums, fine), noise, CELLS)
        means = centres_of_cells(
            total / fine, mixture.means, noise.std / fine, terms.seeds[0]
        )
        mixture = replace(mixture, means=means)
    average, n_averaged = np.zeros(terms.n_values(n_features)), 0
    for n_iter in range(terms.max_iter):
        sums = sum(noisy_expectation(X, s, mixture, frame) for X, s in rows())
        total = yield Noisy(round_sums(sums, grid), noise, NOISY)
        # from half of them on, EM hardly moves while noise is new: the mean with the
        # sums just before has less of it. Of noisy sums and public numbers alone.
        n_averaged = n_averaged + 1 if 2 * n_iter >= terms.max_iter else 1
        average = average + (total / grid - average) / n_averaged
        std = noise.std / grid / math.sqrt(n_averaged)
        mixture = maximise_noisy(average, frame, std)
    n_rows = max(float(average[: terms.n_components].sum()), 1.0)
    _, _, unshrunk = maximise(_with_rows(average, frame, std), frame, 0.0)
    found = box.outside(mixture, terms.reg_covar) | {"n_rows": n_rows, "std": std}
    return found | {"unshrunk": unshrunk * box.squared}


class Box(NamedTuple):
    """The box between public bounds, which rows are mapped to [-1, 1]^d from.

    Attributes
    ----------
    middle, half : ndarray of shape (n_features,)
        Half widths are the same for all features of spherical components.
    squared : float or ndarray
        By what covariances in the unit box differ from those of the features.
    """

    middle: np.ndarray
    half: np.ndarray
    squared: Any

    @classmethod
    def between(cls, low, high, covariance_type):
        """Return the box of bounds, for components of a type."""
        half = (high - low) / 2
        if covariance_type == "spherical":
            half = np.full_like(half, half.max())
        squared = squares_of(covariance_type, half[np.newaxis])
        return cls((high + low) / 2, half, squared)

    def inside(self, rows):
        """Return rows in the unit box, rounded."""
        # clipped again: bounds a hair apart have no middle that is between them
        return round_rows(np.clip((rows - self.middle) / self.half, -1, 1))

    def outside(self, mixture, reg_covar):
        """Return weights, means and covariances of the features."""
        covariances = mixture.covariances * self.squared
        return {
            "weights": mixture.weights,
            "means": self.middle + mixture.means * self.half,
            "covariances": regularised(mixture.covariance_type, covariances, reg_covar),
        }


def rows_in_box(me, box):
    """Return a function that reads own rows in the box, with weights.

    Rows of one person count as one row together, where noise is to hide persons.
    """
    terms, shared_by = me.terms, me.rows_of_person()
    rows = map_rows(me.numbers(gaps=terms.has_gaps, bounds=terms.bounds), box.inside)
    shares = np.ones(len(rows))
    if shared_by is not None:
        shares = np.where(shared_by > 0, 1 / np.maximum(shared_by, 1), 0.0)
    return lambda: paired_blocks(rows, shares)


def random_cells(terms, n_features):
    """Return points of the box, public: of the seed."""
    random_state = np.random.RandomState(terms.seeds[0])
    return random_state.uniform(-1, 1, (terms.n_cells, n_features))


def noisy_expectation(rows, shares, mixture, frame):
    """Do the E-step, and sum exactly what noise is added to."""
    _, responsibilities = e_step(rows, mixture, alone=True)
    responsibilities = responsibilities * shares[:, np.newaxis]
    return exact_statistics(rows, responsibilities, frame, mixture)


def public_start(terms, box):
    """Return the mixture to start from, in the unit box, without looking at rows.

    What the user did not give: equal weights, means drawn at random in the box, apart
    from each other, and variances of the size of a component's part of it.
    """
    kind, n_components = terms.covariance_type, terms.n_components
    n_features = len(box.middle)
    variance = n_components ** (-2 / n_features) / 12
    return first_mixture(
        kind,
        terms.given.about(*box),
        np.full(n_components, 1 / n_components),
        spread_points(n_components, n_features, terms.seeds[0]),
        isotropic(kind, n_components, n_features, variance),
    )


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
        Standard deviation of the noise on each sum. Covariances are shrunk by what
        it explains of their differences: of a component to those of all, of all to a
        diagonal matrix. Variances below what noise alone makes are raised to that.

    Returns
    -------
    mixture : Mixture
    """
    n_components, kind = len(frame.reference), frame.covariance_type
    sums = _with_rows(sums, frame, noise_std)
    counts, means, covariances = maximise(sums, frame, 0.0)
    means, weights = np.clip(means, -1, 1), counts / counts.sum()
    shared, noise_of_all = covariances, noise_std / counts.sum()
    if kind != "tied":
        shared = np.tensordot(weights, covariances, axes=1)
        noise_of_all = noise_of_all * math.sqrt(n_components)
    if kind in ("full", "tied"):
        shared = _shrink(shared, np.diag(np.diag(shared)), noise_of_all)
    floor = np.clip(noise_of_all, 1e-6, 1.0)
    if kind == "tied":
        covariances = _between(shared, floor)
    else:
        noise = noise_std / counts
        pairs = zip(covariances, noise)
        covariances = np.stack([_shrink(c, shared, std) for c, std in pairs])
    if kind == "full":
        covariances = np.stack([_between(c, floor) for c in covariances])
    elif kind != "tied":
        covariances = np.clip(covariances, floor, 1.0)
    return Mixture.from_covariances(kind, weights, means, covariances)


def _with_rows(sums, frame, noise_std):
    """Return sums in which every component has at least the rows that noise makes."""
    sums, n_components = sums.copy(), len(frame.reference)
    sums[:n_components] = np.maximum(sums[:n_components], max(noise_std, 1.0))
    return sums


def _shrink(values, target, noise_std):
    """Take from the differences to a target what noise explains of their squares."""
    gaps = values - target
    explained = np.size(gaps) * noise_std**2
    return target + gaps * max(1 - explained / max(np.sum(gaps**2), 1e-300), 0.0)


def _between(covariance, floor):
    """Bring the eigenvalues between `floor` and what a unit box allows."""
    values, vectors = np.linalg.eigh(covariance)
    values = np.clip(values, floor, len(values))
    covariance = (vectors * values) @ vectors.T
    return (covariance + covariance.T) / 2


def noise_on_components(means, counts, std, n_rows):
    """Return the noise on components' rows, and words about those that it hides.

    Parameters
    ----------
    means : ndarray of shape (n_components, n_features)
        In the unit box.
    counts : ndarray of shape (n_components,)
        Noisy numbers of rows.
    std : float
        Standard deviation of the noise on a sum, in rows.
    n_rows : float
        Noisy.

    Returns
    -------
    numbers : list of NoisyNumber
    warnings : list of str
    """
    n_components, n_features = means.shape
    numbers = [noisy_number("number of rows", n_rows, std * math.sqrt(n_components))]
    numbers += [
        noisy_number(f"rows of component {k}", count, std)
        for k, count in enumerate(counts)
    ]
    hidden = []
    for i, j in combinations(range(n_components), 2):
        # sums have noise in every column, and means the more the fewer rows there are
        noise = std * math.sqrt(n_features * (counts[i] ** -2 + counts[j] ** -2))
        gap = float(np.linalg.norm(means[i] - means[j]))
        needed = n_rows * _APART * noise / max(gap, 1e-9)
        if needed > n_rows:
            hidden.append((needed, i, j))
    if not hidden:
        return numbers, []
    needed, i, j = min(hidden)
    more = f", and {len(hidden) - 1} further pairs" if len(hidden) > 1 else ""
    return numbers, [
        f"components {i} and {j} lie within the noise{more}: about "
        f"{float(f'{needed:.1g}'):,.0f} rows needed at this epsilon to tell them apart"
    ]
