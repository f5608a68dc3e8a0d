"""One secure sum of counts, sums and cross-products: both sides of the protocol."""

import secrets
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from skprivbn.federation import (
    Party,
    PartyRefusal,
    map_rows,
    operation,
    row_blocks,
    sum_over_rows,
)
from skprivbn.federation._cells import is_small
from skprivbn.federation._terms import NoisyTerms
from skprivbn.federation.site._small_cells import check_cells
from skprivbn.privacy import CountMechanism
from skprivbn.privacy._options import clip_rows, warn_of_noise
from skprivbn.privacy._persons import sum_by_person
from skprivbn.structure._basis import N_FUNCTIONS, expand
from skprivbn.structure.gaussian._moments import (
    RowGrid,
    join_moments,
    moment_sums,
    read_moments,
)

#: part of the rows that searches are compared by
HOLDOUT = 0.3


@dataclass(frozen=True)
class GaussianMomentsTerms(NoisyTerms):
    """Which moments are summed: of which rows, about what, with what noise.

    Parameters
    ----------
    centre : {"pooled", "party"}
    basis : str or None
        Basis functions of single columns, for a second sum.
    holdout : float
        Part of the rows whose sums are kept apart: none, or :data:`HOLDOUT`.
    seed : int
        Chooses them, where nobody else is there; at sites it is the operating system.
    bounds : ndarray of shape (2, n_features) or None
        Public bounds that rows are clipped to, with noise only.
    **noise
        As of :class:`NoisyTerms`.
    """

    centre: Literal["pooled", "party"] = "pooled"
    basis: str | None = None
    holdout: float = 0.0
    seed: int = 0
    bounds: np.ndarray | None = None

    def check(self):
        """Refuse to set any other part aside: it could be one row."""
        if self.holdout not in (0.0, HOLDOUT):
            raise ValueError(f"holdout must be 0 or {HOLDOUT}")

    def rounds(self, n_parties):
        """Return two: moments, then those of basis functions."""
        return 2

    def n_parameters(self, n_features):
        """Return the moments: of rows, of those held out, of basis functions."""
        sums = [n_features] * (2 if self.holdout > 0.0 else 1)
        if self.basis is not None:
            sums.append(N_FUNCTIONS * n_features)
        return sum(1 + n + n * (n + 1) // 2 for n in sums)

    def grid(self, n_features):
        """Return the grid that rows are put on, as coarse as the noise needs it."""
        grid = RowGrid.from_bounds(self.bounds, n_features)
        return grid.coarsened(self.epsilon, self.delta)

    def mechanism(self, n_features):
        """Return the noise that one curator would add."""
        return calibrate(self.grid(n_features), self.epsilon, self.delta)

    def survives_losses(self):
        """Tell whether there is one sum only."""
        return super().survives_losses() or self.basis is None


class GaussianMomentsParty(Party):
    """A holder of rows who takes part in one or two sums."""

    terms = GaussianMomentsTerms

    def prepare(self):
        """Refuse rows that are not finite numbers; noise must hide that, too."""
        if self.terms.epsilon is None:
            self.X = self.finite_rows()
        else:
            self.X = map_rows(
                self.block["X"], lambda rows: clip_rows(rows, self.terms.bounds)
            )

    def schedule(self):
        """One sum; two if basis functions need the scale of the columns first."""
        if self.terms.epsilon is not None:
            yield "noisy_moments"
            return
        yield "moments"
        if self.terms.basis is not None:
            yield "basis_moments"

    @operation(
        tells="number of rows, column sums and cross-products of its rows", exact=True
    )
    def moments(self):
        """Sums over own rows, the held-out ones apart."""
        centre = self.terms.centre
        if self.terms.holdout == 0.0:
            return self.hide(moment_sums(self.X, centre))
        held_out = self._held_out()
        parts = self.X[~held_out], self.X[held_out]
        for part in parts:  # each is told apart: so many rows, and no small cells
            self.check_table(1, len(part))
            if self.min_cell_count > 1:
                columns = range(part.shape[1])
                few = np.zeros(len(columns), dtype=bool)
                names = [f"column {i} of either part" for i in columns]
                check_cells(part, columns, few, self.min_cell_count, names)
        return self.hide(np.concatenate([moment_sums(X, centre) for X in parts]))

    @operation(
        tells="column sums and cross-products of basis functions of its rows",
        hears="the moments of all parties",
        hears_kind="plaintext aggregate",
        exact=True,
    )
    def basis_moments(self, total):
        """Sums over the basis functions of own rows, standardised by verified sums."""
        if self.min_cell_count > 1:
            check_few_values(self.X, self.min_cell_count)
        parts = split_moments(self.reveal(total), self.terms)
        moments = join_moments(parts, self.terms.centre)
        mean, variances = moments.mean, np.diag(moments.covariance)
        if not np.all(variances > 0):
            raise PartyRefusal("invalid-data")
        scale = np.sqrt(variances)
        Z = map_rows(
            self.X, lambda rows: expand((rows - mean) / scale, self.terms.basis)
        )
        return self.hide(moment_sums(Z, self.terms.centre))

    @operation(
        tells="noisy clipped moments of its rows", kind="noisy release", exact=True
    )
    def noisy_moments(self):
        """Clipped integer sums plus this party's share of the noise."""
        grid, shared_by = self.terms.grid(self.X.shape[1]), self.rows_of_person()
        if shared_by is None:
            sums = sum_over_rows(self.X, grid.sums)
        else:
            sums = sum_by_person(row_blocks(self.X), shared_by, grid.products)
        return self.hide_noisy(sums)

    def _held_out(self):
        n = len(self.X)
        held_out = np.zeros(n, dtype=bool)
        if self.is_simulated:
            order = np.random.default_rng(self.terms.seed).permutation(n)
        else:
            # By seeds that others know, two fits could differ by one row.
            order = np.argsort(np.frombuffer(secrets.token_bytes(8 * n), np.uint64))
        held_out[order[: int(self.terms.holdout * n)]] = True
        return held_out


def check_few_values(X, min_cell_count):
    """Refuse small cells that follow from sums of powers, and of products of powers.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_columns) or RowSource
    min_cell_count : int
    """
    # products of two functions of a column have powers up to twice the largest
    most, most_of_pairs = 2 * N_FUNCTIONS + 1, N_FUNCTIONS + 1
    codes = []
    for column in range(X.shape[1]):
        values = np.concatenate([block[:, column] for block in row_blocks(X)])
        labels, places = np.unique(values, return_inverse=True)
        if len(labels) <= most:
            codes.append((len(labels), places))
    tables = [np.bincount(places) for _, places in codes]
    pairs = combinations([c for c in codes if c[0] <= most_of_pairs], 2)
    tables += [np.bincount(one * n + other) for (_, one), (n, other) in pairs]
    if any(is_small(table, min_cell_count).any() for table in tables):
        raise PartyRefusal("too-detailed")


def collect_moments(federation):
    """The coordinator's side: one sum, read as moments (and those held out).

    Returns
    -------
    parts : list of Moments
    total : OpenSum
        The sum itself, which parties can verify.
    """
    terms = federation.terms
    total = federation.secure_sum("moments")
    if total[len(total) // 2 if terms.holdout > 0.0 else 0] < 2:
        raise ValueError(
            "too few rows: parties need several rows each to set some of them aside; "
            "name a search instead of 'auto'"
        )
    return split_moments(total, terms), total


def split_moments(total, terms):
    """Read the first sum: moments of the rows, and of those held out."""
    parts = np.split(total, 2) if terms.holdout > 0.0 else [total]
    return [read_moments(np.asarray(part), terms.centre) for part in parts]


def collect_basis_moments(federation, total):
    """The second sum, of basis functions of columns standardised by the first."""
    total = federation.secure_sum("basis_moments", {"total": total})
    return read_moments(total, federation.terms.centre)


def calibrate(grid, epsilon, delta):
    """Noise with which the sums are (epsilon, delta)-DP."""
    return CountMechanism.for_budget(
        epsilon,
        delta,
        l1_sensitivity=grid.l1_sensitivity,
        l2_sensitivity=grid.l2_sensitivity,
    )


def collect_noisy_moments(federation):
    """The coordinator's side with differential privacy."""
    terms = federation.terms
    n_features = terms.bounds.shape[1]
    noise = terms.noise(n_features, len(federation.roster))
    what = "moments of all rows, clipped to the bounds, with noise"
    total = federation.noisy_sum("noisy_moments", noise, what)
    moments = terms.grid(n_features).read(total, noise.std)
    d = len(moments.mean)
    # noise alone would make eigenvalues of about the square root times its size
    warn_of_noise(moments.noise * np.sqrt(d), np.trace(moments.covariance) / d)
    return moments
