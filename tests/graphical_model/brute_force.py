"""Inference by listing every configuration: slow, and obviously right."""

import numpy as np


def joint(cliques, sizes, potentials):
    """Unnormalised joint table from linear-space potentials."""
    table = np.ones(sizes)
    for clique, potential in zip(cliques, potentials):
        aligned = np.transpose(potential, np.argsort(clique))
        shape = [size if i in clique else 1 for i, size in enumerate(sizes)]
        table = table * aligned.reshape(shape)
    return table


def marginal(table, clique):
    """Marginal of a joint table, axes in the clique's order."""
    others = tuple(i for i in range(table.ndim) if i not in clique)
    return table.sum(axis=others).transpose(np.argsort(np.argsort(clique)))


SHAPES = {
    "tree": [(0, 1), (1, 2), (1, 3), (4, 3)],
    "cycle": [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)],
    "disconnected": [(0, 1), (3, 2)],
    "single clique": [(2, 0, 1, 3, 4)],
    "higher order": [(0, 1, 2), (2, 3, 4), (1, 4), (3,)],
    "third-order chain": [
        (i, j) for i in range(5) for j in range(i + 1, min(i + 4, 5))
    ],
    "complete": [(i, j) for i in range(5) for j in range(i)],
    "repeated scopes": [(0, 1), (1, 0), (0,), (0, 1)],
    "no clique": [],
    "constant": [(), (0, 1)],
}
SIZES = (3, 2, 4, 1, 3)
