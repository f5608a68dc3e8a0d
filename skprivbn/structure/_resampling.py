"""Bootstrap samples, drawn from tables and moments, and how sure an edge is.

A bootstrap sample of rows would give, of each table, as many rows drawn from its cells.
These draws need the table alone, so nobody looks at rows or weights of them. Drawn
for each table anew, they say nothing about who is in two tables; therefore gains are
only compared within a table, as where rows have gaps.
"""

import numpy as np

from skprivbn.bayesian_network._dag import graph_of, to_cpdag
from skprivbn.utils._linalg import root_of


def wishart_root(rng, degrees, size):
    """Return lower triangles whose squares have Wishart distributions (Bartlett).

    Parameters
    ----------
    rng : numpy.random.Generator
    degrees : ndarray
        Degrees of freedom, of any shape.
    size : int
        Of each triangle.

    Returns
    -------
    root : ndarray of shape (*degrees.shape, size, size)
    """
    below = np.tril(rng.standard_normal((*degrees.shape, size, size)), -1)
    left = np.maximum(degrees[..., None] - np.arange(size), 0)
    # fewer rows than columns leave the last columns of the triangle empty
    root = below * (left > 0)[..., None, :]
    root[..., np.arange(size), np.arange(size)] = np.sqrt(
        2 * rng.standard_gamma(left / 2)
    )
    return root


def drawn_covariances(seed, covariance, n_rows, n_samples):
    """Draw covariances as those of as many normal rows vary.

    Parameters
    ----------
    seed : int
    covariance : ndarray of shape (n_variables, n_variables)
    n_rows : float
        Rounded.
    n_samples : int

    Yields
    ------
    covariance : ndarray of shape (n_variables, n_variables)
    """
    rng, root, n_rows = np.random.default_rng(seed), root_of(covariance), round(n_rows)
    for _ in range(n_samples):
        drawn = root @ wishart_root(rng, np.array(n_rows - 1), len(root))
        yield drawn @ drawn.T / n_rows


def share_of_edges(graphs):
    """Return in what share of some graphs there is an edge.

    Parameters
    ----------
    graphs : list of ndarray of bool of shape (n_variables, n_variables)
        Edges without direction are there both ways, and count half in each.

    Returns
    -------
    shares : ndarray of shape (n_variables, n_variables)
    """
    return np.mean([np.where(graph & graph.T, 0.5, graph) for graph in graphs], axis=0)


def share_of_marks(graphs):
    """Return in what share of some partial ancestral graphs an edge has a mark.

    Parameters
    ----------
    graphs : list of ndarray of int of shape (n_variables, n_variables)

    Returns
    -------
    shares : ndarray of shape (n_variables, n_variables, 4)
        The last axis is no edge, circle, arrow, tail.
    """
    return np.mean([graph[..., None] == np.arange(4) for graph in graphs], axis=0)


class Resampled:
    """Tables or moments of as many rows as others are about, drawn anew from each.

    Parameters
    ----------
    source : AskedTables or AskedMoments
    rng : numpy.random.Generator
    """

    consistent = False

    def __init__(self, source, rng):
        self._source, self._rng, self._drawn = source, rng, {}

    def __getattr__(self, name):
        # what is asked for, how large it is and what is hidden, is as in the source
        return getattr(self._source, name)

    def __call__(self, variables):
        """Return what is drawn for some variables, one axis each, ascending."""
        key = tuple(sorted(variables))
        if key not in self._drawn:
            draw = _draw_rows if self.kind == "tables" else _draw_moments
            self._drawn[key] = draw(self._rng, self._source(key))
        return self._drawn[key]


def _draw_rows(rng, counts):
    """Return a table of as many rows, drawn from the cells of another."""
    shares = counts.ravel() / max(counts.sum(dtype=np.int64), 1)
    drawn = rng.multinomial(counts.sum(dtype=np.int64), shares)
    return drawn.reshape(counts.shape)


def _draw_moments(rng, moments):
    """Return count, sums and products of normal rows like those of other moments."""
    n_rows = np.rint(moments[..., 0, 0]).astype(np.int64)
    drawn = _draw_rows(rng, n_rows)
    means = moments[..., 0, 1:] / np.maximum(n_rows, 1)[..., None]
    second = moments[..., 1:, 1:] / np.maximum(n_rows, 1)[..., None, None]
    root = root_of(second - means[..., None] * means[..., None, :])
    some = np.maximum(drawn, 1)[..., None]
    errors = rng.standard_normal(means.shape) / np.sqrt(some)
    means = means + np.einsum("...ij,...j->...i", root, errors)
    spread = root @ wishart_root(rng, drawn - 1, means.shape[-1])
    found = np.empty_like(moments)
    found[..., 0, 0] = drawn
    found[..., 0, 1:] = found[..., 1:, 0] = drawn[..., None] * means
    found[..., 1:, 1:] = spread @ spread.swapaxes(-1, -2)
    found[..., 1:, 1:] += found[..., 0, 1:, None] * means[..., None, :]
    return found * (drawn > 0)[..., None, None]


def edge_confidence(found, is_directed):
    """Return in what share of the samples there is an edge.

    Parameters
    ----------
    found : list of dict of int to list of int
        The parents of every variable in each sample.
    is_directed : bool
        Whether all directions mean something. Otherwise edges that could point either
        way, in graphs that imply the same independences, count half in both directions.

    Returns
    -------
    confidence : ndarray of shape (n_variables, n_variables)
    """
    graphs = [graph_of([parents[v] for v in sorted(parents)]) for parents in found]
    return share_of_edges(graphs if is_directed else list(map(to_cpdag, graphs)))
