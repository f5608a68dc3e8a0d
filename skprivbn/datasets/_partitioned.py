"""Spread rows or columns over parties, for simulations."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.datasets import make_blobs
from sklearn.utils import check_random_state, column_or_1d

from skprivbn.utils._sklearn import Interval, StrOptions, validate_params
from skprivbn.utils._typing import RandomStateLike

SPLIT_CONSTRAINTS = {
    "n_parties": [Interval(Integral, 1, None, closed="left")],
    "alpha": [Interval(Real, 0, None, closed="neither")],
    "min_rows": [Interval(Integral, 0, None, closed="left")],
    "random_state": ["random_state"],
}


@validate_params(
    {
        **SPLIT_CONSTRAINTS,
        "X": ["array-like", "sparse matrix"],
        "kind": [StrOptions({"iid", "dirichlet", "by_column"})],
        "y": ["array-like", None],
        "column": [Integral, str, None],
    }
)
def split_horizontal(
    X: Any,
    n_parties: int = 2,
    *,
    kind: str = "iid",
    y: ArrayLike | None = None,
    column: int | str | None = None,
    alpha: float = 0.5,
    min_rows: int = 1,
    random_state: RandomStateLike = None,
) -> np.ndarray:
    """Decide which party holds which row.

    Parameters
    ----------
    X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
        The rows.
    n_parties : int, default=2
        Number of parties.
    kind : {"iid", "dirichlet", "by_column"}, default="iid"
        How rows are spread:

        - "iid": at random, parties of equal size (to one row).
        - "dirichlet": unevenly. With ``y``, each class is spread in proportions
          of its own, so parties see different classes; without it, only the
          sizes of the parties differ.
        - "by_column": parties hold consecutive ranges of the values of
          ``column``, of equal size (to one row) but for equal values, which stay
          together; every party is a different population.
    y : array-like of shape (n_samples,), default=None
        Classes, for "dirichlet" only.
    column : int or str, default=None
        Position, or name if ``X`` is a dataframe, of the column that "by_column"
        splits on.
    alpha : float, default=0.5
        Concentration of the symmetric Dirichlet distribution the proportions come
        from. The smaller, the more uneven.
    min_rows : int, default=1
        Fewest rows a party may get; uneven proportions are drawn again until all
        have enough.
    random_state : int, RandomState instance or None, default=None
        Seed for reproducible output. "by_column" draws nothing.

    Returns
    -------
    party : ndarray of shape (n_samples,)
        Name of the party that holds each row: "party_0", "party_1", ... with
        leading zeros where needed, so that they sort in this order. This is what
        ``fit(X, party=party)`` takes.

    See Also
    --------
    split_vertical : Spread columns.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.datasets import split_horizontal
    >>> party = split_horizontal(np.zeros((6, 2)), n_parties=3, random_state=0)
    >>> print(np.unique_counts(party).counts)
    [2 2 2]
    """
    n_samples = X.shape[0] if hasattr(X, "shape") else len(X)
    if n_samples < n_parties * max(min_rows, 1) and min_rows > 0:
        raise ValueError(
            f"{n_samples} rows are too few for {n_parties} parties with at least "
            f"{min_rows} each."
        )
    rng = check_random_state(random_state)
    if kind == "by_column":
        owner = _consecutive_ranges(_column_values(X, column), n_parties)
        if min_rows and np.bincount(owner, minlength=n_parties).min() < min_rows:
            raise ValueError(
                f"column {column!r} has too few different values to give each of "
                f"{n_parties} parties at least {min_rows} rows."
            )
    elif kind == "dirichlet":
        classes = np.zeros(n_samples, dtype=int)
        if y is not None:
            classes = np.unique_inverse(column_or_1d(y)).inverse_indices
        if len(classes) != n_samples:
            raise ValueError(f"y has {len(classes)} entries for {n_samples} rows.")
        owner = _uneven(classes, n_parties, alpha, min_rows, rng)
    else:
        owner = rng.permutation(np.arange(n_samples) % n_parties)
    return np.array(party_names(n_parties))[owner]


@validate_params(
    {
        "columns": ["array-like", Interval(Integral, 1, None, closed="left")],
        "n_parties": [Interval(Integral, 1, None, closed="left")],
        "shuffle": ["boolean"],
        "random_state": ["random_state"],
    }
)
def split_vertical(
    columns: Any,
    n_parties: int = 2,
    *,
    shuffle: bool = True,
    random_state: RandomStateLike = None,
) -> dict[str, list]:
    """Decide which party holds which columns.

    Parameters
    ----------
    columns : int, array-like or dataframe
        Number of columns, names of the columns, or a dataframe that has them.
    n_parties : int, default=2
        Number of parties.
    shuffle : bool, default=True
        Whether columns are dealt at random; otherwise parties get consecutive
        columns.
    random_state : int, RandomState instance or None, default=None
        Seed for reproducible output.

    Returns
    -------
    parties : dict of str to list
        Names (or positions) of the columns of "party_0", "party_1", ..., in their
        original order, as many for each (to one column). This is what
        estimators of vertically split data take as ``parties``.

    See Also
    --------
    split_horizontal : Spread rows.

    Examples
    --------
    >>> from skprivbn.datasets import split_vertical
    >>> split_vertical(["age", "sex", "dose"], n_parties=2, shuffle=False)
    {'party_0': ['age', 'sex'], 'party_1': ['dose']}
    """
    if isinstance(columns, Integral):
        columns = range(columns)
    columns = list(getattr(columns, "columns", columns))
    if len(set(columns)) != len(columns):
        raise ValueError("columns must not repeat a name.")
    if len(columns) < n_parties:
        raise ValueError(
            f"{len(columns)} columns are too few for {n_parties} parties with at "
            "least one each."
        )
    positions = np.arange(len(columns))
    if shuffle:
        positions = check_random_state(random_state).permutation(positions)
    hands = np.array_split(positions, n_parties)
    return {
        name: [columns[position] for position in sorted(hand)]
        for name, hand in zip(party_names(n_parties), hands)
    }


@validate_params(
    {
        **SPLIT_CONSTRAINTS,
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "n_features": [Interval(Integral, 1, None, closed="left")],
        "centers": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "cluster_std": [Interval(Real, 0, None, closed="left"), "array-like"],
        "kind": [StrOptions({"iid", "dirichlet"})],
    }
)
def make_partitioned_blobs(
    n_samples: int = 100,
    n_features: int = 2,
    *,
    centers: ArrayLike = 3,
    cluster_std: ArrayLike = 1.0,
    n_parties: int = 3,
    kind: str = "iid",
    alpha: float = 0.5,
    min_rows: int = 1,
    random_state: RandomStateLike = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Generate Gaussian blobs whose rows are spread over parties.

    Parameters
    ----------
    n_samples : int, default=100
        Number of rows, shared out equally between the blobs.
    n_features : int, default=2
        Number of columns.
    centers : int or array-like of shape (n_centers, n_features), default=3
        Number of blobs, or their centres.
    cluster_std : float or array-like of shape (n_centers,), default=1.0
        Standard deviation of the blobs.
    n_parties : int, default=3
        Number of parties.
    kind : {"iid", "dirichlet"}, default="iid"
        Whether all parties see all blobs alike, or each blob is spread unevenly;
        see :func:`split_horizontal`.
    alpha : float, default=0.5
        Concentration for "dirichlet". The smaller, the more uneven.
    min_rows : int, default=1
        Fewest rows a party may get.
    random_state : int, RandomState instance or None, default=None
        Seed for reproducible output.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        The rows.
    y : ndarray of shape (n_samples,)
        The blob of each row.
    party : ndarray of shape (n_samples,)
        The party of each row.

    See Also
    --------
    sklearn.datasets.make_blobs : The blobs without parties.

    Examples
    --------
    >>> from skprivbn.datasets import make_partitioned_blobs
    >>> X, y, party = make_partitioned_blobs(60, n_parties=2, random_state=0)
    >>> X.shape, sorted(set(party.tolist()))
    ((60, 2), ['party_0', 'party_1'])
    """
    rng = check_random_state(random_state)
    X, y = make_blobs(
        n_samples,
        n_features,
        centers=centers,
        cluster_std=cluster_std,
        random_state=rng,
    )
    party = split_horizontal(
        X,
        n_parties,
        kind=kind,
        y=y if kind == "dirichlet" else None,
        alpha=alpha,
        min_rows=min_rows,
        random_state=rng,
    )
    return X, y, party


def party_names(n_parties):
    """Return "party_0", "party_1", ... so that sorting keeps the order."""
    width = len(str(n_parties - 1))
    return [f"party_{k:0{width}d}" for k in range(n_parties)]


def _column_values(X, column):
    if column is None:
        raise ValueError('kind="by_column" needs column=, a position or a name.')
    if isinstance(column, str):
        if column not in getattr(X, "columns", ()):
            raise ValueError(f"X is no dataframe with a column named {column!r}.")
        return np.asarray(X[column])
    if hasattr(X, "tocsc"):
        return X.tocsc()[:, [column]].toarray().ravel()
    if hasattr(X, "columns"):
        return np.asarray(X[X.columns[column]])
    return np.asarray(X)[:, column]


def _consecutive_ranges(values, n_parties):
    """Rank the values and cut the ranks in equal parts, never between equals."""
    counts = np.unique_counts(values).counts
    codes = np.unique_inverse(values).inverse_indices
    middles = np.cumsum(counts) - (counts + 1) / 2
    return (middles * n_parties / len(values)).astype(int)[codes]


def _uneven(classes, n_parties, alpha, min_rows, rng, max_draws=1000):
    """Spread each class over parties in proportions drawn from a Dirichlet."""
    for _ in range(max_draws):
        owner = np.empty(len(classes), dtype=int)
        for label in range(classes.max() + 1):
            rows = rng.permutation(np.flatnonzero(classes == label))
            shares = rng.dirichlet(np.full(n_parties, float(alpha)))
            cuts = np.rint(np.cumsum(shares)[:-1] * len(rows)).astype(int)
            for k, part in enumerate(np.split(rows, cuts)):
                owner[part] = k
        if np.bincount(owner, minlength=n_parties).min() >= min_rows:
            return owner
    raise ValueError(
        f"{max_draws} draws gave some of the {n_parties} parties fewer than {min_rows} "
        f"rows each time; raise alpha={alpha} or lower min_rows."
    )
