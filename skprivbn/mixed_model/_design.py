"""Which columns have fixed and which have random effects, and in which units.

Features are standardised within a fit. What is estimated then is translated back, here,
to features as they are.

Random effects that hang together are solved for together: effects of different clusters
are independent given the rest, unless some row belongs to both (wards of one hospital,
or a plate and a sample). Such sets are blocks of a block-diagonal system; blocks of one
size are worked on at once.
"""

from dataclasses import dataclass

import numpy as np

#: stands for the column of ones among the columns of a random effect
INTERCEPT = -1


@dataclass(frozen=True)
class RandomTerms:
    """Random effects: for each term a factor and the columns that vary with it.

    Effects of one term are correlated, those of different terms are not. All of them
    together are a vector b = Lambda u with u ~ N(0, I), whose entries belong to the
    columns of the terms one after the other. Lambda is lower triangular; its free
    entries are theta.

    Parameters
    ----------
    terms : sequence of (int, sequence of int)
        Number of the factor, and columns of X (or INTERCEPT).

    Examples
    --------
    >>> RandomTerms([(0, [-1, 2])]).matrix([2.0, 0.5, 1.0])
    array([[2. , 0. ],
           [0.5, 1. ]])
    """

    terms: tuple

    def __post_init__(self):
        terms = tuple((int(f), tuple(int(c) for c in cs)) for f, cs in self.terms)
        object.__setattr__(self, "terms", terms)

    @property
    def columns(self):
        """Column of X of every effect."""
        return np.array([c for _, columns in self.terms for c in columns], dtype=int)

    @property
    def factors(self):
        """Factor of every effect."""
        return np.array([f for f, columns in self.terms for _ in columns], dtype=int)

    @property
    def n_effects(self):
        """Number of effects of a row."""
        return sum(len(columns) for _, columns in self.terms)

    @property
    def positions(self):
        """Rows and columns of Lambda in which theta stands."""
        rows, columns, start = [], [], 0
        for _, members in self.terms:
            k, j = np.triu_indices(len(members))
            rows.extend(start + j)
            columns.extend(start + k)
            start += len(members)
        return np.array(rows, dtype=int), np.array(columns, dtype=int)

    @property
    def diagonal(self):
        """Mask of the entries of theta that are on the diagonal."""
        rows, columns = self.positions
        return rows == columns

    @property
    def start(self):
        """Theta of effects with unit variances."""
        return self.diagonal.astype(float)

    def matrix(self, theta):
        """Return Lambda."""
        matrix = np.zeros((self.n_effects, self.n_effects))
        matrix[self.positions] = theta
        return matrix

    def theta(self, covariance):
        """Return the entries of Lambda for a covariance Lambda Lambda'."""
        matrix, start = np.zeros_like(covariance), 0
        for _, members in self.terms:
            block = slice(start, start + len(members))
            matrix[block, block] = _root(covariance[block, block])
            start += len(members)
        return matrix[self.positions]


def _root(covariance):
    """Return a lower triangular root, also of a singular matrix."""
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))
    upper = np.linalg.qr(root.T, mode="r")
    return (upper * np.where(np.diag(upper) < 0, -1, 1)[:, None]).T


@dataclass(frozen=True)
class Design:
    """Columns of the model in units in which they are estimated.

    Parameters
    ----------
    mean, scale : ndarray of shape (n_features,)
        Of the features; `scale` is 1 for those that do not vary.
    fit_intercept : bool
    random : RandomTerms
    """

    mean: np.ndarray
    scale: np.ndarray
    fit_intercept: bool
    random: RandomTerms

    def fixed(self, X):
        """Return the columns of the fixed effects.

        Features are centred only where an intercept makes up for it.
        """
        if not self.fit_intercept:
            return X / self.scale
        return np.column_stack([np.ones(len(X)), (X - self.mean) / self.scale])

    def mixed(self, X):
        """Return the columns of the random effects."""
        pieces = [np.empty((len(X), 0))]
        for _, columns in self.random.terms:
            centre = self.mean if INTERCEPT in columns else np.zeros_like(self.mean)
            for c in columns:
                one = c == INTERCEPT
                piece = (
                    np.ones(len(X)) if one else (X[:, c] - centre[c]) / self.scale[c]
                )
                pieces.append(piece[:, None])
        return np.concatenate(pieces, axis=1)

    @property
    def back_fixed(self):
        """Matrix from estimated coefficients to those of features as they are."""
        if not self.fit_intercept:
            return np.diag(1 / self.scale)
        back = np.diag(np.append(1.0, 1 / self.scale))
        back[0, 1:] = -self.mean / self.scale
        return back

    @property
    def back_random(self):
        """Matrix from estimated random effects to those of columns as they are."""
        columns = self.random.columns
        # the intercept is the column before the first, and there may be no other
        units = np.append(1.0, self.scale)[columns - INTERCEPT]
        back, start = np.diag(1 / units), 0
        for _, members in self.random.terms:
            if INTERCEPT in members:
                i = start + members.index(INTERCEPT)
                for j, c in enumerate(members, start):
                    if c != INTERCEPT:
                        back[i, j] = -self.mean[c] / self.scale[c]
            start += len(members)
        return back


@dataclass(frozen=True)
class Layout:
    """Where every random effect stands.

    Effects are numbered by factor, level of the factor, and column.

    Parameters
    ----------
    factors : ndarray of int of shape (n_effects,)
        Factor of each column of random effects.
    n_levels : sequence of int
        Number of levels of each factor.
    parts : sequence of ndarray of int of shape (n_levels,)
        Number of the block that each level of each factor belongs to.
    """

    factors: np.ndarray
    n_levels: tuple
    parts: tuple

    @property
    def numbers(self):
        """For each column, the numbers of the effects of all its factor's levels."""
        numbers, start = {}, 0
        for factor, n_levels in enumerate(self.n_levels):
            members = np.flatnonzero(self.factors == factor)
            every = start + np.arange(n_levels * len(members)).reshape(n_levels, -1)
            numbers.update(zip(members, every.T))
            start += every.size
        return [numbers[j] for j in range(len(self.factors))]

    def blocks(self):
        """Return what goes together, as :class:`Blocks`."""
        size = sum(self.n_levels[f] for f in self.factors)
        column, level, part = (np.zeros(size, dtype=int) for _ in range(3))
        for j, (f, numbers) in enumerate(zip(self.factors, self.numbers)):
            column[numbers] = j
            level[numbers] = np.arange(len(numbers)) * len(self.n_levels) + f
            part[numbers] = self.parts[f]
        order = np.lexsort((np.arange(size), part))
        _, first, counts = np.unique(part[order], return_index=True, return_counts=True)
        members = [
            np.array([order[a : a + n] for a in first[counts == n]])
            for n in np.unique(counts)
        ]
        return Blocks(tuple(members), column, level)


@dataclass(frozen=True)
class Blocks:
    """Blocks of effects, those of one size together.

    Parameters
    ----------
    members : tuple of ndarray of int of shape (n_blocks, size)
        Numbers of the effects, for each size.
    column, level : ndarray of int of shape (n_numbers,)
        Of every effect.
    """

    members: tuple
    column: np.ndarray
    level: np.ndarray

    def places(self):
        """Return group, block and position of every effect."""
        places = np.zeros((3, len(self.column)), dtype=int)
        for group, numbers in enumerate(self.members):
            n_blocks, size = numbers.shape
            places[0, numbers] = group
            places[1, numbers] = np.arange(n_blocks)[:, None]
            places[2, numbers] = np.arange(size)
        return places

    def gather(self, entries):
        """Add entries of a symmetric matrix up, block by block.

        Parameters
        ----------
        entries : iterable of (ndarray of int, ndarray of int, ndarray)
            Row and column numbers, and values there.

        Returns
        -------
        matrices : list of ndarray of shape (n_blocks, size, size)
        """
        matrices = [np.zeros((*m.shape, m.shape[1])) for m in self.members]
        group, block, position = self.places()
        for rows, columns, values in entries:
            rows, columns, values = (
                np.ravel(a) for a in np.broadcast_arrays(rows, columns, values)
            )
            for g, matrix in enumerate(matrices):
                mine = group[rows] == g
                i, j = rows[mine], columns[mine]
                np.add.at(matrix, (block[i], position[i], position[j]), values[mine])
        return matrices

    def pick(self, matrices, numbers):
        """Return what belongs to some effects of each block's matrix.

        Parameters
        ----------
        matrices : list of ndarray of shape (n_blocks, size, size)
        numbers : ndarray of int of shape (n_cells, n_effects)
            Those in a row are in one block.

        Returns
        -------
        parts : ndarray of shape (n_cells, n_effects, n_effects)
        """
        group, block, position = (place[numbers] for place in self.places())
        parts = np.zeros((*numbers.shape, numbers.shape[1]))
        for g, matrix in enumerate(matrices):
            mine = group[:, 0] == g
            at = position[mine]
            parts[mine] = matrix[block[mine, :1, None], at[:, :, None], at[:, None, :]]
        return parts

    def solve(self, matrices, vector):
        """Solve the systems of all blocks; `vector` has an entry for every effect."""
        solved = np.zeros_like(vector)
        for members, matrix in zip(self.members, matrices):
            solved[members] = np.linalg.solve(matrix, vector[members][..., None])[
                ..., 0
            ]
        return solved

    def within_levels(self, matrices, n_effects):
        """Return the entries of every effect with those of its own level.

        Parameters
        ----------
        matrices : list of ndarray of shape (n_blocks, size, size)
        n_effects : int

        Returns
        -------
        entries : ndarray of shape (n_numbers, n_effects)
        """
        entries = np.zeros((len(self.column), n_effects))
        for members, matrix in zip(self.members, matrices):
            level, column = self.level[members], self.column[members]
            b, i, j = np.nonzero(level[:, :, None] == level[:, None, :])
            entries[members[b, i], column[b, j]] = matrix[b, i, j]
        return entries

    def sums(self, values):
        """Add the values of each block's effects up, at the first of them."""
        sums = np.zeros_like(values)
        for members in self.members:
            sums[members[:, 0]] = values[members].sum(axis=1)
        return sums

    def spread(self, matrix):
        """Repeat a matrix over columns for every level, in the shape of the blocks.

        Parameters
        ----------
        matrix : ndarray of shape (n_effects, n_effects)

        Returns
        -------
        matrices : list of ndarray of shape (n_blocks, size, size)
        """
        matrices = []
        for numbers in self.members:
            column, level = self.column[numbers], self.level[numbers]
            same = level[:, :, None] == level[:, None, :]
            matrices.append(same * matrix[column[:, :, None], column[:, None, :]])
        return matrices
