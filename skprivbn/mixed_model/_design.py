"""Which columns have fixed and which have random effects, and in which units.

Features are standardised within a fit. What is estimated then is translated back, here,
to features as they are.
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
        units = np.where(columns == INTERCEPT, 1.0, self.scale[columns])
        back, start = np.diag(1 / units), 0
        for _, members in self.random.terms:
            if INTERCEPT in members:
                i = start + members.index(INTERCEPT)
                for j, c in enumerate(members, start):
                    if c != INTERCEPT:
                        back[i, j] = -self.mean[c] / self.scale[c]
            start += len(members)
        return back
