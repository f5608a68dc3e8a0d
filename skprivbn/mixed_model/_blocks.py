"""Random effects that hang together are solved for together.

Effects of different clusters are independent given the rest, unless some row belongs to
both: wards of one hospital, or a plate and a sample. Such sets are blocks of a
block-diagonal system. Blocks of one size are worked on at once.
"""

from dataclasses import dataclass

import numpy as np


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

    def index(self, factor, column):
        """Return the numbers of the effects of all levels in one column."""
        members = np.flatnonzero(self.factors == factor)
        first = sum(
            n * np.count_nonzero(self.factors == f)
            for f, n in enumerate(self.n_levels[:factor])
        )
        place = int(np.flatnonzero(members == column)[0])
        return first + np.arange(self.n_levels[factor]) * len(members) + place

    @property
    def numbers(self):
        """For each column, the numbers of the effects of all its factor's levels."""
        return [self.index(f, j) for j, f in enumerate(self.factors)]

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
