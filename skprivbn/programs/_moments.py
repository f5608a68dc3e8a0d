"""Means and covariances of rows held by several parties.

Exactly, in two sums: counts and sums, then second moments about the mean, which loses
no digit on data far from zero. Or with differential privacy, in one: rows clipped to
public bounds, in integers, with noise that the parties add together.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from skprivbn.federation import Me, Noisy, Sum, program
from skprivbn.federation._rows import paired_blocks, row_blocks, unit_of_squares
from skprivbn.federation._terms import NoisyTerms
from skprivbn.federation.gate import (
    N_PARTITIONS,
    centres_of_pairs,
    check_shares,
    count_values,
    kish,
    rows_beside,
    rows_of_pairs,
    rows_of_sizes,
    rows_of_values,
)
from skprivbn.federation.program import RowWeights, require
from skprivbn.privacy import CountMechanism
from skprivbn.privacy._mechanisms import MAX_SCALES
from skprivbn.privacy._options import check_bounds, words_of_noise
from skprivbn.privacy._persons import sum_by_person
from skprivbn.utils._linalg import symmetric, upper

#: clipped values between -1 and 1 are carried as integers up to this size
UNIT = 1 << 15
#: numbers that are worked on at a time, few enough for a processor's cache
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Moments:
    """Number of rows, mean and second moments about the mean.

    Attributes
    ----------
    n_rows : float or ndarray of shape (n_features,)
        Number of rows, or their weight; of each feature, if entries may be missing. An
        estimate, at least 1, if noise was added.
    mean : ndarray of shape (n_features,)
    covariance : ndarray of shape (n_features, n_features) or (n_features,) or None
        Divided by `n_rows`; only its diagonal, or nothing, if that was asked for.
    noise : float or ndarray of shape (n_features,)
        What was added to the covariance of two features has the product of their
        entries as its standard deviation; 0 if nothing was.
    warnings : tuple of str
        What a user should know of the noise.
    """

    n_rows: Any
    mean: np.ndarray
    covariance: Any
    noise: Any = 0.0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class MomentsTerms(NoisyTerms):
    """Terms of sums of moments: the moments, the rows and the noise.

    Parameters
    ----------
    second : {"full", "diagonal", "none"}
        Which second moments to sum.
    bounds : ndarray of shape (2, n_features) or None
        Public lower and upper bounds to which rows are clipped, with noise only.
    gaps : bool
        Whether entries may be missing: moments are then over the rows that have a
        value, feature by feature.
    weighted : bool
        Whether rows have weights, which noise could not hide.
    centre : {"pooled", "party"}
        About which mean second moments are: that of all rows, or each party's own.
    epsilon, delta, min_honest, protects :
        As of :class:`NoisyTerms`.
    """

    second: Literal["full", "diagonal", "none"] = "full"
    bounds: np.ndarray | None = None
    gaps: bool = False
    weighted: bool = False
    centre: Literal["pooled", "party"] = "pooled"

    def check(self) -> None:
        """Refuse products of features with gaps; weights and own means beside noise."""
        if self.gaps and self.second == "full":
            raise ValueError("second: with gaps, squares of single features only")
        if self.weighted and self.epsilon is not None:
            raise ValueError("weighted: no noise hides a row of any weight")
        if self.centre == "party" and self.epsilon is not None:
            raise ValueError("centre: with noise, moments are about the bounds")

    def n_values(self, n_features: int) -> int:
        """Return how many integers are told with noise: counts, sums and squares."""
        n_second = {
            "full": n_features * (n_features + 1) // 2,
            "diagonal": n_features,
            "none": 0,
        }
        n_counts = n_features if self.gaps else 1
        return n_counts + n_features + n_second[self.second]

    def mechanism(self, n_features: int) -> CountMechanism:
        """Return the noise that one curator would add, within the bounds."""
        check_bounds(self.bounds, n_features)
        return self._calibrated(n_features)[0]

    def unit(self, n_features: int) -> int:
        """Return the integer that stands for half the width between the bounds."""
        return self._calibrated(n_features)[1]

    def _calibrated(self, n_features):
        n_values = self.n_values(n_features)
        return calibrate(self.epsilon, self.delta, n_values, n_values)


def calibrate(
    epsilon: float, delta: float, l1: int, squared_l2: int
) -> tuple[CountMechanism, int]:
    """Return the noise of sums, and the integer that stands for half a width.

    Parameters
    ----------
    epsilon, delta : float
    l1, squared_l2 : int
        Most that a row of values between -1 and 1 adds to all numbers together.

    Returns
    -------
    mechanism : CountMechanism
        For numbers in units of the square of the integer, rounding included.
    unit : int
    """
    unit = UNIT
    if delta == 0:
        unit = max(min(UNIT, int(np.sqrt(MAX_SCALES["laplace"] * epsilon / l1))), 1)
    mechanism = CountMechanism.for_budget(
        epsilon, delta, unit**2 * l1, unit**2 * np.sqrt(squared_l2)
    )
    return mechanism, unit


@program(MomentsTerms)
def moments(me: Me) -> Generator[Any, Any, dict]:
    """Add counts and sums, then squares about the mean; or all of it with noise.

    Parameters
    ----------
    me : Me

    Returns
    -------
    found : dict
        For :func:`read_moments`.
    """
    terms = me.terms
    if terms.epsilon is not None:
        integers = _integer_moments(me)
        noise = terms.noise(len(terms.bounds[0]), len(me.roster))
        total = yield Noisy(integers, noise, "noisy counts, sums and squares of rows")
        return {"noisy": total}
    rows, weights = me.numbers(gaps=terms.gaps), _weights_of(me)
    return (yield from add_moments(me, rows, weights, terms.second, terms.centre))


def add_moments(
    me: Me,
    rows: Any,
    weights: np.ndarray,
    second: str = "full",
    centre: str = "pooled",
    pairs: bool = False,
) -> Generator[Any, Any, dict]:
    """Add counts and sums, then squares about the mean: a part of other programs.

    Parameters
    ----------
    me : Me
    rows : ndarray of shape (n_rows, n_features) or RowSource
        Own rows, NaN where an entry is missing.
    weights : ndarray of shape (n_rows,)
    second : {"full", "diagonal", "none"}
    centre : {"pooled", "party"}
    pairs : bool, default=False
        Whether sums of other programs tell of products of features, too, as those of
        ``second="full"`` do.

    Returns
    -------
    found : dict
        `n_rows` of each feature, `mean` and `covariance`.
    """

    def add(function: Callable) -> Any:
        return sum(function(x, w) for x, w in _chunks(rows, weights))

    own = add(_first_moments)
    n_own, own_sums, _ = own.reshape(3, -1)
    own_mean = own_sums / np.where(n_own > 0, n_own, 1.0)
    n_features, own_columns = len(own_mean), tuple(range(len(own_mean)))

    def count_first():
        n = add(lambda x, w: np.stack([w, w**2]) @ ~np.isnan(x))
        centre, others = own_mean, np.zeros(1)
        if len(weights) and np.ptp(weights) > 0:
            # of all own rows: one of much weight is not its own centre
            plain = add(lambda x, w: _first_moments(x, np.ones(len(w))))
            centre = np.split(plain, 3)[1] / np.maximum(plain[:n_features], 1.0)
            # weights that few rows have tell of these rows beside a fit without
            others = weights - weights.mean()
        sides = add(lambda x, w: rows_beside(x - centre, w))
        of_weights = rows_beside(others[:, np.newaxis], np.ones(len(others)))
        sides = np.hstack([sides, of_weights])
        beside = (*own_columns * 2, *["sample_weight"] * 2)
        return RowWeights(*n, kish(sides), own_columns + beside * 2, sides)

    if centre == "party":
        about_it = add(lambda x, w: _first_moments(x - own_mean, w))
        own[-n_features:] = about_it[-n_features:]
    total = yield Sum(own, "counts, sums and absolute sums", count_first)
    n, sums, sizes = total.reshape(3, -1)
    known = np.where(n > 0, n, 1.0)
    mean, unit = sums / known, unit_of_squares(sizes / known, n)
    found = {"n_rows": n, "mean": mean, "covariance": None}
    about, typical = own_mean if centre == "party" else mean, 2.0**15 * unit

    if second == "none":
        return found

    def count_second():
        spread = add(lambda x, w: rows_of_sizes((x - about) / unit, w))
        n_values = count_values(rows)
        cells = kish(add(lambda x, w: rows_of_values(x, w, n_values)))
        columns = own_columns * (1 + 2 * N_PARTITIONS)
        # squares and products of typical sizes are about one
        if not pairs and second != "full":
            squares = add(lambda x, w: rows_of_sizes(((x - about) / typical) ** 2, w))
            return RowWeights(*spread, cells, columns + own_columns, squares)
        centres, few = centres_of_pairs(rows, about)
        products = add(lambda x, w: rows_of_pairs((x - centres) / typical, w, few))
        # of a pair, its second column
        columns += tuple(np.triu_indices(n_features, 1)[1].tolist()) * 4 + own_columns
        if second == "diagonal":
            # three times the numbers, for sums that only hint at products
            hints, products = np.split(products, [-n_features], axis=1)
            cells = np.append(cells, kish(hints))
        return RowWeights(*spread, cells, columns, products)

    own = add(lambda x, w: _second_moments((x - about) / unit, w, second))
    total = yield Sum(own, "squares and products about the mean", count_second)
    if second == "diagonal":
        return found | {"covariance": total / known * unit**2}
    products = symmetric(total)
    chunks = _chunks(rows, weights)
    own = ((x - about) / unit * np.sqrt(w)[:, np.newaxis] for x, w in chunks)
    check_shares(me, own, products)
    return found | {"covariance": products / known[0] * np.outer(unit, unit)}


def read_moments(
    found: dict, terms: MomentsTerms, n_parties: int, floor: float = 0.0
) -> Moments:
    """Return the result of the program as moments.

    Parameters
    ----------
    found : dict
        What :func:`moments` returned.
    terms : MomentsTerms
    n_parties : int
    floor : float, default=0.0
        Least eigenvalue of a noisy covariance, beside their mean size.

    Returns
    -------
    moments : Moments
    """
    if terms.epsilon is not None:
        return _read_noisy(found["noisy"], terms, n_parties, floor)
    n_rows = found["n_rows"] if terms.gaps else float(found["n_rows"][0])
    return Moments(n_rows, found["mean"], found["covariance"])


def _weights_of(me):
    """Return the weights of the own rows, or refuse what are none."""
    if not me.terms.weighted:
        return np.ones(me.n_rows)
    weights = np.asarray(me.block.get("sample_weight"))
    require(weights.dtype.kind in "fiu", "invalid-data")
    require(np.all(np.isfinite(weights) & (weights >= 0)), "invalid-data")
    return weights.astype(np.float64)


def _chunks(rows, weights):
    """Return rows and their weights, a few thousand of them at a time."""
    size = max(_CHUNK // max(rows.shape[1], 1), 1)
    for block, w in paired_blocks(rows, weights):
        for start in range(0, max(len(block), 1), size):
            yield block[start : start + size], w[start : start + size]


def _first_moments(rows, weights):
    gaps = np.isnan(rows)
    if not gaps.any():
        n = np.full(rows.shape[1], weights.sum())
        return np.concatenate([n, weights @ rows, weights @ np.abs(rows)])
    values = np.where(gaps, 0.0, rows)
    return np.concatenate([weights @ ~gaps, weights @ values, weights @ np.abs(values)])


def _second_moments(rows, weights, second):
    """Sums of squares (diagonal) or of all products (upper triangle)."""
    if second == "diagonal":
        return weights @ np.where(np.isnan(rows), 0.0, rows) ** 2
    return upper((rows * weights[:, np.newaxis]).T @ rows)


def _integer_moments(me):
    """Return the sums of own clipped rows as integers, a person's rows as one row."""
    terms, shared_by = me.terms, me.rows_of_person()
    rows = me.numbers(gaps=terms.gaps, bounds=terms.bounds)
    if shared_by is None:
        shared_by = np.ones(len(rows), dtype=int)
    return sum_by_person(row_blocks(rows), shared_by, partial(_moments_of_rows, terms))


def _moments_of_rows(terms, rows):
    """Return the integer moments of each row: the same whatever the others are."""
    low, high = terms.bounds
    unit, present = terms.unit(rows.shape[1]), ~np.isnan(rows)
    rows = np.rint((rows - (low + high) / 2) / ((high - low) / 2) * unit)
    # bounds a hair apart have no middle: what noise relies on holds all the same
    rows = np.where(present, np.clip(rows, -unit, unit), 0).astype(np.int64)
    counts = present if terms.gaps else np.ones((len(rows), 1), dtype=bool)
    found = [unit**2 * counts.astype(np.int64), unit * rows]
    if terms.second == "diagonal":
        found.append(rows**2)
    elif terms.second == "full":
        i, j = np.triu_indices(rows.shape[1])
        found.append(rows[:, i] * rows[:, j])
    return np.hstack(found)


def _read_noisy(total, terms, n_parties, floor):
    """Make moments of noisy integers that are possible, and say if they are noise."""
    low, high = terms.bounds
    n_features, unit = len(low), terms.unit(len(low))
    values = total / unit**2
    n_counts = n_features if terms.gaps else 1
    n, sums, second = np.split(values, [n_counts, n_counts + n_features])
    std = terms.noise(n_features, n_parties).std / unit**2
    warnings = words_of_noise(3 * std, n.min())
    n = np.maximum(n, 1.0)
    half, centre, mean = (high - low) / 2, (low + high) / 2, np.clip(sums / n, -1, 1)
    covariance: Any = None
    noise: Any = 0.0
    if terms.second == "full":
        products = symmetric(second / n) - np.outer(mean, mean)
        products = _nearest_covariance(products, floor)
        covariance, noise = products * np.outer(half, half), half * np.sqrt(std / n)
    elif terms.second == "diagonal":
        covariance = np.clip(second / n - mean**2, 0, 1) * half**2
    n_rows = n if terms.gaps else float(n[0])
    return Moments(n_rows, centre + half * mean, covariance, noise, warnings)


def _nearest_covariance(moments, floor):
    """Make what noise spoilt positive semi-definite, with variances of at most one.

    One is the largest variance between -1 and 1. Eigenvalues are raised to `floor`
    times their mean size: noise can leave more negative ones than positive ones.
    """
    values, vectors = np.linalg.eigh(moments)
    least = floor * max(np.abs(values).mean(), 2.0**-40)
    covariance = (vectors * np.maximum(values, least)) @ vectors.T
    scale = np.sqrt(np.maximum(np.diag(covariance), 1.0))
    return covariance / np.outer(scale, scale)
