"""Clusters: rows and holders, which become one, and where their random effects stand.

Random effects that hang together are solved for together: effects of different clusters
are independent given the rest, unless some row belongs to both (wards of one hospital,
or a plate and a sample). Such sets are blocks of a block-diagonal system; blocks of one
size are worked on at once.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, compress

import numpy as np

from skprivbn.federation import RowWeights
from skprivbn.federation.gate import rows_by_group

#: label of the small clusters that are pooled
OTHER = "(other)"
# Weights of wild steps are no larger than that, in typical weights.
_LARGEST = 2.0**16


def merged_label(site):
    """Return the label of clusters of which a site has too few rows to name them."""
    return f"(other at {site})"


def merge_few(labels, min_count, other):
    """Merge labels of few rows into one label of enough rows.

    The next larger labels join it until its rows are enough. The column alone decides:
    clusters of two fits with other columns beside it never differ by just a few rows.

    Parameters
    ----------
    labels : list
        Of all rows.
    min_count : int
        How many rows are enough.
    other : str
        The label of those that are merged.

    Examples
    --------
    >>> merge_few(["a", "b", "b", "c", "c", "d", "d", "d"], 2, "(other)")
    ['(other)', '(other)', '(other)', 'c', 'c', 'd', 'd', 'd']
    """
    merged, n_rows = set(), 0
    by_size = sorted(Counter(labels).items(), key=lambda item: (item[1], str(item[0])))
    for label, count in by_size:
        if count >= min_count and (not merged or n_rows >= min_count):
            break
        merged.add(label)
        n_rows += count
    return [other if label in merged else label for label in labels]


@dataclass(frozen=True)
class Census:
    """Rows and holders of every level of every factor.

    Parameters
    ----------
    labels : list of list
        Labels of each factor; of a nested one, lists that end in its own label.
    n_rows, n_holders : list of ndarray of int of shape (n_levels,)
    nested : bool
    """

    labels: list
    n_rows: list
    n_holders: list
    nested: bool

    @property
    def n_factors(self):
        """Number of factors."""
        return len(self.labels)

    @property
    def paths(self):
        """For each factor, the outer labels of each level, then its own."""
        return [
            [tuple(v) if self.nested and factor else (v,) for v in labels]
            for factor, labels in enumerate(self.labels)
        ]

    @property
    def tops(self):
        """For each factor, the level of the first factor that a level is within."""
        if not self.nested:
            return [np.arange(len(labels)) for labels in self.labels]
        first = {path: i for i, path in enumerate(self.paths[0])}
        return [np.array([first[path[:1]] for path in paths]) for paths in self.paths]

    @property
    def parents(self):
        """For each nested factor, what each level of the last one is within."""
        parents = []
        for depth, paths in enumerate(self.paths, 1):
            place = {path: i for i, path in enumerate(paths)}
            parents.append(np.array([place[path[:depth]] for path in self.paths[-1]]))
        return parents

    def names(self, factor):
        """Return the labels of a factor as they are shown: "ward:bed" if nested."""
        if not self.nested or not factor:
            return self.labels[factor]
        return [":".join(map(str, path)) for path in self.paths[factor]]

    def too_small(self, min_parties, min_rows, opened):
        """Return masks of the levels whose sums must not be opened.

        Parameters
        ----------
        min_parties, min_rows : int
        opened : bool
            Whether levels with one holder are opened, too, and so need `min_rows`.
        """
        masks = []
        for factor, (rows, holders) in enumerate(zip(self.n_rows, self.n_holders)):
            few = (holders > 1) & ((holders < min_parties) | (rows < min_rows))
            shown = opened | self._in_shared(factor)
            masks.append(few | (shown & (rows < min_rows) & (rows > 0)))
        return masks

    def shown(self, factor):
        """Tell of the levels of a factor whether sums over their rows are opened."""
        return (self.n_holders[factor] > 1) | self._in_shared(factor)

    def _in_shared(self, factor):
        """Tell of the levels of a factor whether they are cells of a shared cluster.

        The sums of all cells of an outer cluster with several holders are opened.
        """
        if not self.nested or factor == 0:
            return np.zeros(len(self.labels[factor]), dtype=bool)
        return (self.n_holders[0] > 1)[self.tops[factor]]

    def pooled(self, min_parties, min_rows, opened):
        """Return the census with small levels as one, factor by factor, and where.

        Small levels of a nested factor become one within each outer level. Otherwise,
        if all of them are too small together, the smallest of the others joins them.

        Parameters
        ----------
        min_parties, min_rows, opened :
            As in :meth:`too_small`.

        Returns
        -------
        census : Census
        positions : list of ndarray of int of shape (n_levels,)
            New number of each level of each factor.
        """

        def small(census, factor, _):
            small = census.too_small(min_parties, min_rows, opened)[factor]
            if not np.any(small):
                return small
            return census._with_next(factor, small, min_parties, min_rows)

        return self._join_small(small)

    def joined(self, masks):
        """Return the census with some levels of each factor as one, and where.

        Parameters
        ----------
        masks : list of ndarray of bool of shape (n_levels,)

        Returns
        -------
        census, positions :
            As of :meth:`pooled`.
        """

        def small(census, factor, position):
            levels = np.arange(len(census.labels[factor]))
            return np.isin(levels, position[masks[factor]])

        return self._join_small(small)

    def _join_small(self, choose):
        """Join the levels that are chosen of one factor after the other."""
        census = self
        positions = [np.arange(len(labels)) for labels in self.labels]
        for factor in range(self.n_factors):
            small = choose(census, factor, positions[factor])
            if np.any(small):
                census, moved = census._join(factor, small)
                positions = [new[old] for new, old in zip(moved, positions)]
        return census, positions

    def _with_next(self, factor, small, min_parties, min_rows):
        """Return small levels with one more, if they are too few rows or holders."""
        rows, holders = self.n_rows[factor], self.n_holders[factor]
        # at least as many parties as hold any of them
        few = 1 < holders[small].max() < min_parties or rows[small].sum() < min_rows
        others = ~small & (rows >= min_rows) & (holders >= min_parties)
        if not few or not others.any() or (self.nested and factor):
            return small
        smallest = np.argmin(np.where(others, rows, np.inf))
        return small | (np.arange(len(rows)) == smallest)

    def _join(self, factor, small):
        """Return the census with small levels of one factor as one, and where."""
        depth = factor + 1 if self.nested else 1
        joined = set(compress(self.paths[factor], small))
        labels, rows, holders, positions = [], [], [], []
        for other, old in enumerate(self.paths):
            new = old
            if other == factor or (self.nested and other > factor):
                new = [
                    (*path[: depth - 1], OTHER, *path[depth:])
                    if path[:depth] in joined
                    else path
                    for path in old
                ]
            # those that stay come first
            distinct = dict.fromkeys(a for a, b in zip(new, old) if a == b)
            distinct |= dict.fromkeys(new)
            place = {label: i for i, label in enumerate(distinct)}
            position = np.array([place[label] for label in new], dtype=int)
            labels.append([v if len(v) > 1 else v[0] for v in distinct])
            rows.append(np.bincount(position, self.n_rows[other]).astype(int))
            # at least as many parties as hold any of them
            most = np.zeros(len(distinct), dtype=int)
            np.maximum.at(most, position, self.n_holders[other])
            holders.append(most)
            positions.append(position)
        return Census(labels, rows, holders, self.nested), positions


@dataclass(frozen=True)
class Blocks:
    """Blocks of effects, those of one size together.

    Effects are numbered by factor, level of the factor, and column.

    Parameters
    ----------
    members : tuple of ndarray of int of shape (n_blocks, size)
        Numbers of the effects, for each size.
    column, level : ndarray of int of shape (n_numbers,)
        Of every effect.
    numbers : list of ndarray of int of shape (n_levels,)
        For each column of random effects, the numbers of all its factor's levels.
    """

    members: tuple
    column: np.ndarray
    level: np.ndarray
    numbers: list

    @classmethod
    def of(cls, factors, parts):
        """Lay out the effects.

        Parameters
        ----------
        factors : ndarray of int of shape (n_effects,)
            Factor of each column of random effects.
        parts : sequence of ndarray of int of shape (n_levels,)
            Number of the block that each level of each factor belongs to.

        Returns
        -------
        blocks : Blocks
        """
        column, level, part, numbers, size = [], [], [], {}, 0
        for factor, of_level in enumerate(parts):
            members = np.flatnonzero(factors == factor)
            every = np.arange(len(of_level) * len(members)).reshape(len(of_level), -1)
            numbers.update(zip(members, size + every.T))
            size += every.size
            column.append(np.tile(members, len(of_level)))
            levels = np.arange(len(of_level)) * len(parts) + factor
            level.append(np.repeat(levels, len(members)))
            part.append(np.repeat(of_level, len(members)))
        column, level, part = (
            np.concatenate([np.zeros(0, dtype=int), *pieces])
            for pieces in (column, level, part)
        )
        order = np.argsort(part, kind="stable")
        _, first, counts = np.unique(part[order], return_index=True, return_counts=True)
        members = [
            np.array([order[a : a + n] for a in first[counts == n]])
            for n in np.unique(counts)
        ]
        numbers = [numbers[j] for j in range(len(factors))]
        return cls(tuple(members), column, level, numbers)

    @cached_property
    def places(self):
        """Group, block and position of every effect."""
        places = np.zeros((3, len(self.column)), dtype=int)
        for group, numbers in enumerate(self.members):
            n_blocks, size = numbers.shape
            places[0, numbers] = group
            places[1, numbers] = np.arange(n_blocks)[:, None]
            places[2, numbers] = np.arange(size)
        return places

    def gather(self, parts, numbers):
        """Add up what belongs to some effects in their block's matrix; see `pick`.

        Parameters
        ----------
        parts : ndarray of shape (n_cells, n_effects, n_effects)
        numbers : ndarray of int of shape (n_cells, n_effects)
            Those in a row are in one block.

        Returns
        -------
        matrices : list of ndarray of shape (n_blocks, size, size)
        """
        matrices = [np.zeros((*m.shape, m.shape[1])) for m in self.members]
        for mine, matrix, entries in self._entries(matrices, numbers):
            np.add.at(matrix, entries, parts[mine])
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
        parts = np.zeros((*numbers.shape, numbers.shape[1]))
        for mine, matrix, entries in self._entries(matrices, numbers):
            parts[mine] = matrix[entries]
        return parts

    def _entries(self, matrices, numbers):
        """Yield which cells are in the blocks of a size, and their entries there."""
        group, block, position = (place[numbers] for place in self.places)
        for g, matrix in enumerate(matrices):
            mine = group[:, 0] == g
            at = position[mine]
            yield mine, matrix, (block[mine, :1, None], at[:, :, None], at[:, None, :])

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
        matrix : ndarray of shape (..., n_effects, n_effects)

        Returns
        -------
        matrices : list of ndarray of shape (..., n_blocks, size, size)
        """
        matrices = []
        for numbers in self.members:
            column, level = self.column[numbers], self.level[numbers]
            same = level[:, :, None] == level[:, None, :]
            matrices.append(same * matrix[..., column[:, :, None], column[:, None, :]])
        return matrices


def weigh(columns, groups=()):
    """Return how much rows count in sums over all of them and over groups of them.

    Parameters
    ----------
    columns : list of (ndarray of shape (n_rows,), float)
        Weights, and what they are about on the average: squares of much smaller ones
        would be lost in the fixed point of the sums, those of larger ones too large.
    groups : iterable of (ndarray of int of shape (n_rows,), ndarray of bool)
        Group of each row, and for all groups whether sums over them are opened.

    Returns
    -------
    weights : RowWeights
    """
    totals, squares, groups = [], [], list(groups)
    for weights, typical in columns:
        weights = np.minimum(np.abs(weights) / (typical or 1.0), _LARGEST)
        for sums, values in ((totals, weights), (squares, weights**2)):
            sums.append([values.sum()])
            for group, opened in groups:
                sums.append(np.bincount(group, values, len(opened))[opened])
    return RowWeights(np.concatenate(totals), np.concatenate(squares))


def joined(*weights):
    """Return the weights of several parts of a vector together."""
    parts = [part for part in weights if part is not None]
    totals, squares, cells, _, sides = zip(*parts)
    named = [[], [], []]
    for part in parts:
        about = iter(part.columns)
        for names, of_kind in zip(named, (part.total, part.cells, part.sides[0])):
            names += [next(about, None) for _ in of_kind]
    pieces = map(np.concatenate, (totals, squares, cells))
    return RowWeights(*pieces, tuple(chain(*named)), np.hstack(sides))


def sides_by_group(deviations, weights, groups):
    """Return how many rows are on each side of a centre, group by group.

    Parameters
    ----------
    deviations : ndarray of shape (n_rows, n_columns)
    weights : ndarray of shape (n_rows,)
    groups : iterable of (ndarray of int of shape (n_rows,), ndarray of bool)
        As of :func:`weigh`.

    Returns
    -------
    sides : ndarray of shape (2, n_sides)
        As of :class:`RowWeights`.
    """
    weighted, found = deviations * weights[:, np.newaxis], [np.zeros((2, 0))]
    sides = np.hstack([weighted, -weighted])
    for group, opened in groups:
        counted = rows_by_group(sides, group, len(opened))
        counted = counted.reshape(2, -1, len(opened))[..., opened]
        found.append(counted.reshape(2, -1))
    return np.hstack(found)
