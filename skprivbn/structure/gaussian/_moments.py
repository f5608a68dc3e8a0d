"""Sums from which means and covariances follow, exact or with private noise."""

from dataclasses import dataclass, replace
from math import ceil, sqrt

import numpy as np

from skprivbn.federation import map_rows, sum_over_rows
from skprivbn.privacy._mechanisms import MAX_SCALES
from skprivbn.privacy._options import check_bounds
from skprivbn.protocols import Moments
from skprivbn.utils._triangles import symmetric, upper


def effective_rows(moments):
    """Return the rows whose sampling error alone would be as large as error plus noise.

    A covariance of two unrelated residuals has variance ``v v / n`` by sampling.
    Noise on the covariances adds ``noise^2``, times what the regressions that make the
    residuals magnify it by: relative to ``v v`` at most one over the smallest
    eigenvalue squared. Taking that errs on the side of fewer edges.
    """
    if moments.noise == 0.0:
        return moments.n_rows
    least = np.linalg.eigvalsh(moments.covariance)[0]
    return moments.n_rows / (1.0 + moments.n_rows * (moments.noise / least) ** 2)


def moment_sums(Z, centre="pooled"):
    """Return count, column sums and cross-products (upper triangle) of a party's rows.

    Parameters
    ----------
    Z : ndarray of shape (n, q) or RowSource
        The party's rows.
    centre : {"pooled", "party"}, default="pooled"
        With "party" the cross-products are taken about the party's own means.

    Returns
    -------
    ndarray of shape (1 + q + q (q + 1) / 2,)
        To be summed over parties.
    """
    sums = sum_over_rows(Z, lambda rows: rows.sum(axis=0))
    if centre == "party" and len(Z):
        mean = sums / len(Z)
        Z = map_rows(Z, lambda rows: rows - mean)
    cross = sum_over_rows(Z, lambda rows: rows.T @ rows)
    return np.concatenate([[len(Z)], sums, upper(cross)])


def read_moments(total, centre="pooled"):
    """Turn the sum over parties of :func:`moment_sums` into moments."""
    q = int((sqrt(1 + 8 * len(total)) - 3) / 2)
    n = total[0]
    mean = total[1 : q + 1] / n
    covariance = symmetric(total[q + 1 :]) / n
    if centre == "pooled":
        covariance = covariance - np.outer(mean, mean)
    return Moments(float(n), mean, covariance)


def join_moments(parts, centre):
    """Moments of all rows from those of two parts, or of one."""
    if len(parts) == 1:
        return parts[0]
    n = sum(part.n_rows for part in parts)
    shares = [part.n_rows / n for part in parts]
    mean = sum(w * part.mean for w, part in zip(shares, parts))
    covariance = sum(w * part.covariance for w, part in zip(shares, parts))
    if centre == "pooled":
        covariance = covariance + sum(
            w * np.outer(part.mean - mean, part.mean - mean)
            for w, part in zip(shares, parts)
        )
    return Moments(n, mean, covariance)


@dataclass(frozen=True)
class RowGrid:
    """Rows clipped to public bounds and put on an integer grid, for noisy sums.

    Rows are cut towards zero, so no row leaves the ball that the bounds imply and
    rounding is inside the sensitivity. The constant that counts rows is as large as
    the largest row, which balances the noise of counts, sums and cross-products.

    Parameters
    ----------
    low, high : ndarray of shape (q,)
        Public bounds of the columns.
    levels : int, default=4096
        Length of the longest row on the grid.
    """

    low: np.ndarray
    high: np.ndarray
    levels: int = 4096

    @classmethod
    def from_bounds(cls, bounds, n_columns):
        """Check ``bounds = (low, high)``, numbers or one per column."""
        return cls(*check_bounds(bounds, n_columns))

    @property
    def centre(self):
        """Middle of the bounds, subtracted from every row."""
        return 0.5 * (self.low + self.high)

    @property
    def step(self):
        """Width of the grid in the columns' units."""
        return np.linalg.norm(0.5 * (self.high - self.low)) / self.levels

    @property
    def l2_sensitivity(self):
        """Most that one row changes the vector of sums, in Euclidean length.

        For ``v = (L, q)`` with ``|q| <= L`` the upper triangle of ``v v'`` has squared
        length ``(|v|^4 + sum v_i^4) / 2 <= (4 + 1 + 1) / 2 L^4``.
        """
        return sqrt(3.0) * self.levels**2

    @property
    def l1_sensitivity(self):
        """The same in the sum of absolute values."""
        root = 1.0 + sqrt(len(self.low))
        return ceil(0.5 * (root**2 + 2.0) * self.levels**2)

    def coarsened(self, epsilon, delta):
        """Return a grid for whose sums Laplace noise of this budget fits integers."""
        share = MAX_SCALES["laplace"] * epsilon / self.l1_sensitivity
        if delta > 0 or share >= 1.0:
            return self
        # one less: the sensitivity is rounded up
        return replace(self, levels=max(int(self.levels * sqrt(share)) - 1, 1))

    def _put(self, X):
        # twice: bounds a hair apart have no middle that is between them
        half = 0.5 * (self.high - self.low)
        clipped = np.clip(np.clip(X, self.low, self.high) - self.centre, -half, half)
        return np.trunc(clipped / (self.step * (1.0 + 1e-12))).astype(np.int64)

    def products(self, X):
        """Return the integers of each row, whose sum over rows is :meth:`sums`."""
        grid, (i, j) = self._put(X), np.triu_indices(len(self.low))
        count = np.full((len(grid), 1), self.levels**2)
        return np.hstack([count, self.levels * grid, grid[:, i] * grid[:, j]])

    def sums(self, X):
        """Return the integer vector of a party's rows that noise is added to."""
        grid = self._put(X)
        n_rows, sums = len(X) * self.levels**2, self.levels * grid.sum(axis=0)
        return np.concatenate([[n_rows], sums, upper(grid.T @ grid)])

    def read(self, total, noise=0.0):
        """Turn a noisy sum into moments in the columns' units.

        However large the noise, the mean is within the bounds and the covariance
        positive definite. `noise` is its standard deviation on every entry of `total`.
        """
        q, levels = len(self.low), self.levels
        total = np.asarray(total, dtype=float)
        n = max(total[0] / levels**2, 2.0)
        half = 0.5 * (self.high - self.low) / self.step
        mean = np.clip(total[1 : q + 1] / (levels * n), -half, half)
        covariance = symmetric(total[q + 1 :]) / n - np.outer(mean, mean)
        # rounding alone makes a variance, also of rows that are all alike
        covariance = nearest_covariance(covariance + np.eye(q) / 12.0) * self.step**2
        noise = noise * self.step**2 / n
        return Moments(n, self.centre + mean * self.step, covariance, noise)


def nearest_covariance(matrix, floor=1e-4):
    """Raise the eigenvalues to at least `floor` times their mean size.

    Size, not value: noise can leave more negative eigenvalues than positive ones.
    """
    eigenvalues, vectors = np.linalg.eigh(matrix)
    least = floor * np.abs(eigenvalues).mean()
    if eigenvalues[0] >= least:
        return matrix
    return (vectors * np.maximum(eigenvalues, least)) @ vectors.T
