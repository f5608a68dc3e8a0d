"""What bootstrap samples of discrete and of continuous networks have in common."""

import numpy as np


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
