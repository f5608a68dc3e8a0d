"""Rows that need not fit into memory: read in blocks, whenever they are used.

A party whose sums run over rows takes them block by block with :func:`row_blocks` or
:func:`sum_over_rows`. An array that is in memory is one block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skprivbn.utils import import_optional

#: numbers in one block
BLOCK_SIZE = 1 << 19


def rows_per_block(n_columns: int) -> int:
    """Return how many rows are read at a time."""
    return max(BLOCK_SIZE // max(n_columns, 1), 1)


def open_parquet(path: str | Path, labels: Sequence[str] = ()) -> Any:
    """Open a Parquet file so that no more of it is in memory than is being read.

    Text of the columns `labels` is read as positions in a list of different texts.
    """
    parquet = import_optional("pyarrow.parquet", f"reading {path}")
    return parquet.ParquetFile(
        path, buffer_size=1 << 20, pre_buffer=False, read_dictionary=list(labels)
    )


class RowSource:
    """Rows of numbers that are read in blocks, anew each time they are used.

    Can be given as the rows of a party to
    :class:`~skprivbn.partition.HorizontalPartition`. Estimators whose parties only sum
    over rows (moments, tables, mixtures) then need memory for one block at a time;
    others read all rows when they start.

    Parameters
    ----------
    read : callable
        Without arguments; returns an iterator over arrays of shape
        (n, `n_columns`), the same rows in the same order every time.
    n_rows : int
        Rows of all blocks together.
    columns : sequence of str
        Names of the columns.

    Attributes
    ----------
    shape : tuple of int

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.partition import RowSource
    >>> def read():
    ...     for day in range(3):
    ...         yield np.full((2, 1), float(day))
    >>> rows = RowSource(read, 6, ["day"])
    >>> rows
    RowSource(6 rows; day)
    >>> np.asarray(rows).ravel()
    array([0., 0., 1., 1., 2., 2.])
    """

    ndim = 2

    def __init__(
        self, read: Callable[[], Iterator], n_rows: int, columns: Sequence[str]
    ) -> None:
        self._read = read
        self.columns = list(columns)
        self.shape = int(n_rows), len(self.columns)

    @classmethod
    def from_parquet(
        cls, path: str | Path, columns: Sequence[str] | None = None
    ) -> Self:
        """Return the rows of a Parquet file whose columns are numbers.

        Parameters
        ----------
        path : path-like
        columns : sequence of str, default=None
            Which to read, and in which order; all if None.

        Returns
        -------
        rows : RowSource
            Nulls are NaN.
        """
        with open_parquet(path) as file:
            n_rows, names = file.metadata.num_rows, file.schema_arrow.names
        names = names if columns is None else list(columns)

        def read():
            with open_parquet(path) as file:
                size = rows_per_block(len(names))
                for batch in file.iter_batches(size, columns=names):
                    yield np.column_stack(
                        [
                            batch.column(name).to_numpy(zero_copy_only=False)
                            for name in names
                        ]
                    ).astype(np.float64, copy=False)

        return cls(read, n_rows, names)

    @property
    def dtype(self) -> np.dtype:
        """Number type of the rows, as far as it is known before they are read."""
        return np.dtype(np.float64)

    def blocks(self) -> Iterator[np.ndarray]:
        """Read all rows once.

        Yields
        ------
        rows : ndarray of shape (n, n_columns)
            At least one block, which is empty if there are no rows: sums over blocks
            then have the length that they have everywhere.
        """
        n_read, is_empty = 0, True
        for rows in self._read():
            n_read, is_empty = n_read + len(rows), False
            yield rows
        if is_empty:
            yield np.empty((0, self.shape[1]))
        if n_read != len(self):
            raise ValueError(f"{n_read} rows were read, and there were {len(self)}")

    def map(self, function: Callable, columns: Sequence[str] | None = None) -> Self:
        """Return what a function makes of each block, whenever it is read.

        Parameters
        ----------
        function : callable
            From an array of rows to an array with as many rows.
        columns : sequence of str, default=None
            Names of the columns that come out; the same if None.

        Returns
        -------
        rows : RowSource
        """
        names = self.columns if columns is None else columns
        blocks = self.blocks
        return type(self)(lambda: map(function, blocks()), len(self), names)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, chosen):
        """Return some rows: those of a mask in blocks, any others in memory."""
        if not isinstance(chosen, np.ndarray) or chosen.dtype != bool:
            return np.asarray(self)[chosen]
        blocks = self.blocks

        def read():
            start = 0
            for rows in blocks():
                yield rows[chosen[start : start + len(rows)]]
                start += len(rows)

        return type(self)(read, chosen.sum(), self.columns)

    def __array__(self, dtype=None, copy=None):
        rows = np.concatenate(list(self.blocks()))
        return rows if dtype is None else rows.astype(dtype, copy=False)

    def __repr__(self):
        names = ", ".join(self.columns[:5]) + ", ..." * (len(self.columns) > 5)
        return f"RowSource({len(self)} rows; {names})"


def row_blocks(X: ArrayLike | RowSource) -> Iterator[np.ndarray]:
    """Return the blocks of rows: one if they are in memory.

    Parameters
    ----------
    X : array-like of shape (n_rows, n_columns) or RowSource

    Returns
    -------
    blocks : iterator of ndarray
    """
    return X.blocks() if isinstance(X, RowSource) else iter([np.asarray(X)])


def map_rows(
    X: ArrayLike | RowSource, function: Callable, columns: Sequence[str] | None = None
) -> Any:
    """Apply a function to rows: now if they are in memory, else when they are read.

    Parameters
    ----------
    X : array-like of shape (n_rows, n_columns) or RowSource
    function : callable
        From an array of rows to an array with as many rows.
    columns : sequence of str, default=None
        Names of the columns that come out; the same if None.

    Returns
    -------
    X : ndarray or RowSource
    """
    if isinstance(X, RowSource):
        return X.map(function, columns)
    return function(np.asarray(X))


def paired_blocks(X: ArrayLike | RowSource, values: np.ndarray | RowSource) -> Iterator:
    """Return blocks of rows, each with the values that go with them.

    Parameters
    ----------
    X : array-like of shape (n_rows, n_columns) or RowSource
    values : ndarray of shape (n_rows, ...) or RowSource
        A source must have the same blocks.

    Yields
    ------
    rows, values : ndarray
    """
    if isinstance(values, RowSource):
        yield from zip(row_blocks(X), values.blocks())
        return
    start = 0
    for rows in row_blocks(X):
        yield rows, values[start : start + len(rows)]
        start += len(rows)


def unit_of_squares(sizes: np.ndarray, n_rows: ArrayLike) -> np.ndarray:
    """Return units in which squares about a mean fit the fixed point of secure sums.

    Far below the typical size, since deviations from the mean may be, but not so far
    that squares of the typical size add up to more than 2**50 over more than a million
    rows; powers of two, so that scaling costs no digit.

    Parameters
    ----------
    sizes : ndarray of shape (n_columns,)
        Mean absolute values.
    n_rows : float or ndarray of shape (n_columns,)
        How many rows all parties add up.

    Returns
    -------
    units : ndarray of shape (n_columns,)
    """
    typical = np.where(sizes > 0, sizes, 1.0)
    beyond = np.maximum(np.log2(np.maximum(n_rows, 1)) - 20, 0)
    return np.exp2(np.round(np.log2(typical)) - 15 + np.ceil(beyond / 2))


def sum_over_rows(X: ArrayLike | RowSource, function: Callable) -> Any:
    """Add up what a function makes of each block.

    Parameters
    ----------
    X : array-like of shape (n_rows, n_columns) or RowSource
    function : callable
        From an array of rows to what is added: an array, or a number.

    Returns
    -------
    total : ndarray or number
    """
    return reduce(add, map(function, row_blocks(X)))
