"""Small fields and tables that several tests use."""

import numpy as np

from skprivbn.graphical_model._tables import (
    Contribution,
    NoisyTables,
    TableLayout,
    count_tables,
)


def random_field(n_nodes=5, n_states=4, seed=0, spread=1.0):
    """A second-order chain: layout and potentials."""
    cliques = [
        (i, j) for i in range(n_nodes) for j in range(i + 1, min(i + 3, n_nodes))
    ]
    layout = TableLayout(cliques, [n_states] * n_nodes)
    theta = spread * np.random.default_rng(seed).normal(size=layout.n_parameters)
    return layout, theta


def draw(layout, theta, n_rows, seed=0):
    """Rows of a field, as codes."""
    tables, _ = layout.potentials(theta)
    _, tape = layout.inference.forward(tables)
    return layout.inference.sample(tape, n_rows, np.random.RandomState(seed))


def noisy_tables(layout, theta, n_rows, scale, kind="laplace", seed=0):
    """Tables of rows drawn from the field, with noise (seeded: these are tests)."""
    counts = count_tables(draw(layout, theta, n_rows, seed), layout, Contribution())
    rng = np.random.default_rng(seed)
    noise = getattr(rng, {"gaussian": "normal"}.get(kind, kind))
    std = scale * (np.sqrt(2) if kind == "laplace" else 1)
    values = counts + np.rint(noise(scale=scale, size=counts.size))
    return NoisyTables(layout, values, np.full(len(layout.cliques), std), kind)


def divergence(layout, truth, theta):
    """Kullback-Leibler divergence between two fields of the same layout."""
    log_partition, marginals = layout.marginals(truth)
    energy = (truth - theta) @ marginals
    return energy - log_partition + layout.marginals(theta)[0]
