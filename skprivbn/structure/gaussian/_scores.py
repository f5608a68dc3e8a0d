"""Gaussian scores of graphs, from moments alone.

Regressions are read off one covariance matrix of features. A variable may enter as
a parent through several features (itself, or basis functions of itself, so that sums
over rows can see curvature): the linear and the non-linear search are the same code.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import expit

from skprivbn.bayesian_network._dag import is_acyclic
from skprivbn.structure._search import (
    EdgeRules,
    LocalScores,
    climbing,
    complete,
    keeping_rules,
)

#: share of a feature's variance below which it is taken to be a function of others
COLLINEAR = 1e-9


@dataclass(frozen=True)
class FeatureMoments:
    """Covariance of features, and which of them belong to which variable.

    Parameters
    ----------
    covariance : ndarray of shape (q, q)
        Covariance of all features.
    n_rows : float
        Number of rows behind it.
    targets : ndarray of shape (d,)
        Feature that is the variable itself, as a child.
    features : ndarray of shape (d, g)
        Features through which each variable acts as a parent.
    """

    covariance: np.ndarray
    n_rows: float
    targets: np.ndarray
    features: np.ndarray

    @classmethod
    def linear(cls, covariance, n_rows):
        """Every variable is its own and only feature."""
        index = np.arange(len(covariance))
        return cls(np.asarray(covariance, dtype=float), n_rows, index, index[:, None])

    @property
    def n_variables(self):
        """Number of variables."""
        return len(self.targets)

    @property
    def n_features(self):
        """Number of features per variable."""
        return self.features.shape[1]

    @cached_property
    def _blocks(self):
        """Covariances of the features of each variable, of shape (d, g, g)."""
        return self.covariance[self.features[:, :, None], self.features[:, None, :]]

    def residuals(self, child, parents):
        """Return the child's residual variance, now and after each possible change.

        Parameters
        ----------
        child : int
            The variable to explain.
        parents : ndarray of int
            Its present parents.

        Returns
        -------
        now : float
            Residual variance given `parents`.
        added : ndarray of shape (d,)
            The same with one more parent; not meant at parents and the child itself.
        removed : ndarray of shape (d,)
            The same without one parent; infinite elsewhere.
        """
        S, target = self.covariance, self.targets[child]
        given = self.features[parents].ravel()
        F, own = self.features, self._blocks
        cross = S[F, target]
        now = floor = S[target, target]
        removed = np.full(self.n_variables, np.inf)
        if len(given):
            inverse = _inverse(S[np.ix_(given, given)])
            across = S[np.ix_(given, F.ravel())]
            explained = (inverse @ across).reshape(len(given), *F.shape)
            across = across.reshape(len(given), *F.shape)
            own = own - np.einsum("pvg,pvh->vgh", across, explained)
            coefficients = inverse @ S[given, target]
            now = now - coefficients @ S[given, target]
            cross = cross - np.einsum("p,pvg->vg", coefficients, across)
            removed[parents] = now + _rise(inverse, coefficients, F.shape[1])
        # features that others determine must not look like perfect predictors
        spread = np.arange(F.shape[1])
        scale, diagonal = self._blocks[:, spread, spread], own[:, spread, spread]
        usable = diagonal > COLLINEAR * np.maximum(scale, np.finfo(float).tiny)
        cross = np.where(usable, cross, 0.0)
        own = own.copy()
        own[:, spread, spread] = np.where(
            usable, diagonal + COLLINEAR * scale, np.maximum(scale, 1.0)
        )
        added = now - _explained(own, cross)
        floor = COLLINEAR * max(floor, np.finfo(float).tiny)
        return max(now, floor), np.maximum(added, floor), removed


def _inverse(matrix):
    """Invert a covariance that may be singular."""
    scale = np.sqrt(np.maximum(np.diag(matrix), np.finfo(float).tiny))
    correlation = matrix / np.outer(scale, scale)
    correlation[np.diag_indices_from(correlation)] += 0.01 * COLLINEAR
    return np.linalg.inv(correlation) / np.outer(scale, scale)


def _rise(inverse, coefficients, size):
    """Increase of the residual variance when a block of regressors is left out."""
    n_blocks = len(coefficients) // size
    blocks = inverse.reshape(n_blocks, size, n_blocks, size)
    blocks = blocks[np.arange(n_blocks), :, np.arange(n_blocks)]
    b = coefficients.reshape(n_blocks, size)
    return _explained(blocks, b)


def _explained(blocks, b):
    """Return ``b' A^-1 b`` for the matrices A of some blocks."""
    if b.shape[1] == 1:
        return b[:, 0] ** 2 / blocks[:, 0, 0]
    return np.vecdot(b, np.linalg.solve(blocks, b[:, :, None])[:, :, 0])


def edge_penalty(n_rows, n_variables, n_features=1):
    """Cost of one more edge: ``g log(n) / 2 + log(d)``.

    With one feature this is the extended BIC with gamma 1/2 of Foygel and Drton: half
    a logarithm of the rows per coefficient, and one of the candidates per edge.
    """
    return 0.5 * n_features * np.log(max(n_rows, 2.0)) + np.log(n_variables)


def graph_score(moments, adjacency, *, equal_variances=True, penalty=None):
    """Penalised Gaussian log-likelihood of a graph, up to a constant.

    Parameters
    ----------
    moments : FeatureMoments
        The data.
    adjacency : ndarray of bool of shape (d, d)
        The graph.
    equal_variances : bool, default=True
        Whether all variables share one noise variance.
    penalty : float, default=None
        Cost of an edge; :func:`edge_penalty` if None.

    Returns
    -------
    float
        Higher is better.
    """
    d = moments.n_variables
    rss = np.array(
        [moments.residuals(j, np.flatnonzero(adjacency[:, j]))[0] for j in range(d)]
    )
    penalty = _default_penalty(moments) if penalty is None else penalty
    n = moments.n_rows
    loss = d * np.log(rss.sum()) if equal_variances else np.log(rss).sum()
    return -0.5 * n * loss - penalty * adjacency.sum()


def hill_climb(moments, start=None, *, equal_variances=True, penalty=None, rules=None):
    """Climb from a graph to a local maximum of :func:`graph_score`.

    All single-edge changes are scored at once; after a change only the children it
    touches are scored again.

    Parameters
    ----------
    moments : FeatureMoments
        The data.
    start : ndarray of bool of shape (d, d), default=None
        Acyclic graph to start from; the empty one if None.
    equal_variances : bool, default=True
        Whether all variables share one noise variance, which is what makes the
        directions of all edges identifiable.
    penalty : float, default=None
        Cost of an edge; :func:`edge_penalty` if None.
    rules : EdgeRules, default=None
        None allows every edge. There are no more parents than rows can support.

    Returns
    -------
    adjacency : ndarray of bool of shape (d, d)
        The graph.
    score : float
        Its score.
    """
    d, n = moments.n_variables, moments.n_rows
    graph = np.zeros((d, d), dtype=bool) if start is None else start.astype(bool)
    if not is_acyclic(graph):
        raise ValueError("start has a cycle")
    penalty = _default_penalty(moments) if penalty is None else penalty
    supported = max(1, int((n - 2) // (2 * moments.n_features)))
    scores = ResidualScores(moments, equal_variances, penalty)
    if rules is None:
        rules = EdgeRules.free(d, supported)
    else:
        most = max(supported, rules.required.sum(axis=0).max())
        rules = replace(rules, max_parents=most)
        graph = complete(keeping_rules(graph, rules, scores))
    graph, total = complete(climbing(scores, graph, rules=rules))
    if equal_variances:
        total = -0.5 * n * d * np.log(total) - penalty * graph.sum()
    return graph, float(total)


class ResidualScores(LocalScores):
    """Penalised log-likelihoods of families, or residual variances that add up.

    Parameters
    ----------
    moments : FeatureMoments
    equal_variances : bool
        Whether all variables share one noise variance. Then scores are residual
        variances, whose sum the likelihood depends on; the lower, the better.
    penalty : float
        Cost of an edge.
    """

    def __init__(self, moments, equal_variances, penalty):
        self.moments, self.equal_variances = moments, equal_variances
        self.penalty, self._known = penalty, {}
        self.n_variables = moments.n_variables
        self.tolerance = 1e-9 * moments.n_rows

    def _scores(self, child, parents):
        """Return the score with these parents, one more and one less."""
        key = child, tuple(parents)
        if key not in self._known:
            if len(self._known) > 2 * self.n_variables:
                self._known.clear()  # searches keep what they go on to need
            values = self.moments.residuals(child, np.array(parents, dtype=int))
            if not self.equal_variances:
                n, k = self.moments.n_rows, len(parents)
                values = [
                    -0.5 * n * np.log(v) - self.penalty * n_parents
                    for v, n_parents in zip(values, (k, k + 1, k - 1))
                ]
            self._known[key] = values
        return self._known[key]

    def score(self, child, parents):
        """Return the score of a variable with some parents."""
        return self._scores(child, sorted(parents))[0]

    def added(self, child, parents, candidates):
        """Return the same with one more parent."""
        return self._scores(child, sorted(parents))[1][candidates]

    def removed(self, child, parents):
        """Return the same without one parent."""
        return self._scores(child, sorted(parents))[2][parents]

    def gain(self, change, now, n_edges):
        """Return how much the penalised log-likelihood rises, where it rises most."""
        if not self.equal_variances:
            return self._rounded(change)
        total = now.sum()
        gain = np.full(change.shape, -np.inf)
        best = np.flatnonzero(change <= change.min() + 1e-7 * total)
        share = np.maximum(change[best] / total, -1.0 + 1e-15)
        rise = -0.5 * self.moments.n_rows * self.n_variables * np.log1p(share)
        gain[best] = self._rounded(rise - n_edges * self.penalty)
        return gain

    def _rounded(self, gain):
        # an edge gains the same in both directions: its first end decides, not the last
        # digit, which depends on how rows are spread over parties
        return np.rint(gain / self.tolerance) * self.tolerance


def _default_penalty(moments):
    return edge_penalty(moments.n_rows, moments.n_variables, moments.n_features)


#: columns of a typical question of a search: two, and three to condition on
_ASKED_TOGETHER = 5


def effective_rows(moments):
    """Return the rows whose sampling error alone would be as large as error plus noise.

    A partial correlation has variance ``1 / n`` by sampling. Noise adds the square of
    :func:`noise_on_correlations`.
    """
    return moments.n_rows / (1.0 + moments.n_rows * noise_on_correlations(moments) ** 2)


def noise_on_correlations(moments):
    """Return the standard deviation of the noise on a partial correlation.

    Noise N on a covariance changes the precision K by K N K, to first order; between
    columns i and j, relative to their own precisions, by the product of what each of
    them magnifies noise by. The mean over columns is taken for every pair. A search
    asks for correlations given a few columns, which magnify noise less than all do: the
    median over sets of five columns is taken, at most 200 of them.
    """
    if not np.any(moments.noise):
        return 0.0
    scaled = moments.covariance / np.outer(moments.noise, moments.noise)
    n_columns = len(scaled)
    sets = [range(n_columns)]
    if n_columns > _ASKED_TOGETHER:
        draw = np.random.RandomState(0).permutation
        sets = [draw(n_columns)[:_ASKED_TOGETHER] for _ in range(200)]
    precision = np.linalg.inv([scaled[np.ix_(some, some)] for some in sets])
    magnified = (precision**2).sum(axis=1) / np.einsum("kii->ki", precision)
    return float(np.median(magnified.mean(axis=1)))


def nearest_covariance(matrix):
    """Raise negative eigenvalues to zero."""
    # signs of eigenvalues do not depend on units, but their rounding errors do
    scale = np.sqrt(np.maximum(np.diag(matrix), np.finfo(float).tiny))
    if np.linalg.eigvalsh(matrix / np.outer(scale, scale))[0] >= 0.0:
        return matrix
    eigenvalues, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T


#: centres of the sigmoids in "sigmoid", in standard deviations
_CENTRES = (-1.5, -0.5, 0.5, 1.5)


def _polynomial(z):
    return [z, z**2 - 1.0, z**3 - 3.0 * z, z**4 - 6.0 * z**2 + 3.0, z**5]


def _sigmoid(z):
    return [z, *(expit(3.0 * (z - centre)) for centre in _CENTRES)]


#: of each column
N_FUNCTIONS = 5
BASES = {"polynomial": _polynomial, "sigmoid": _sigmoid}


def expand(Z, basis):
    """Return the basis functions of standardised columns, five per column.

    Parameters
    ----------
    Z : ndarray of shape (n, d)
        Columns with mean 0 and variance 1, roughly. Beyond 4 standard deviations
        they are clipped, so that single rows do not rule the sums.
    basis : {"sigmoid", "polynomial"}
        Which functions; the first one is the column itself, not clipped.

    Returns
    -------
    ndarray of shape (n, 5 * d)
        The functions of the first column, then those of the second, ...
    """
    functions = BASES[basis](np.clip(Z, -4.0, 4.0))
    functions[0] = Z
    return np.stack(functions, axis=2).reshape(len(Z), -1)


def basis_features(covariance, n_rows, scale):
    """Describe the covariance of :func:`expand` as features, in the columns' units."""
    d = len(scale)
    features = np.arange(d * N_FUNCTIONS).reshape(d, N_FUNCTIONS)
    units = np.ones(d * N_FUNCTIONS)
    units[features[:, 0]] = scale
    covariance = covariance * np.outer(units, units)
    return FeatureMoments(covariance, n_rows, features[:, 0], features)
