"""OpenDP's AIM with less waiting: the same mechanism, its scores by our inference.

Of half a minute that a round of `opendp.extras.mbi.AIM` takes on MSNBC, three seconds
go to the estimation. The rest chooses a table: JAX compiles every product behind every
marginal that no table of the model has, networkx builds a junction tree for every
candidate, and the same measurement is put together for each step of a search for its
noise. Inside `quick_choices`, marginals come from `TableLayout`, sizes of junction
trees from bit masks, and a measurement is made once. What is chosen, measured and
estimated, and with which noise, stays OpenDP's: errors are AIM's, seconds are fewer.
"""

from contextlib import contextmanager
from itertools import combinations
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np

from skprivbn.graphical_model._elimination import EliminationPlan
from skprivbn.graphical_model._layout import TableLayout

#: columns of no more states are conditioned on, two at a time
FEW_STATES = 6


@contextmanager
def quick_choices():
    """Make AIM choose faster in this block."""
    import mbi
    from opendp.extras.mbi import _aim

    original, made, tables = _aim._make_aim_scores, [None, None], [None, None]

    def project(model, columns):
        columns = (columns,) if isinstance(columns, str) else tuple(columns)
        if model.marginals.supports(columns):
            return model.marginals.project(columns)
        if tables[0] is not model:
            tables[:] = model, marginals(model)
        names = list(model.domain.attributes)
        scope = tuple(names.index(name) for name in columns)
        ordered = tuple(sorted(scope))
        table = tables[1][ordered].transpose([ordered.index(i) for i in scope])
        return SimpleNamespace(values=table * float(model.total))

    def scores(input_domain, input_metric, queries, expectations, model):
        if made[0] is not queries:
            arguments = input_domain, input_metric, queries, expectations, model
            made[:] = queries, original(*arguments)
        return made[1]

    with (
        patch.object(mbi.MarkovRandomField, "project", project),
        patch.object(mbi.junction_tree, "hypothetical_model_size", model_megabytes),
        patch.object(_aim, "_make_aim_scores", scores),
    ):
        yield


def marginals(model):
    """Return the tables of all sets of two and three columns, as probabilities."""
    names, sizes = list(model.domain.attributes), model.domain.shape
    cliques = [tuple(map(names.index, clique)) for clique in model.potentials.cliques]
    layout = TableLayout(cliques, sizes)
    theta = layout.flatten(
        np.asarray(model.potentials[c].values, dtype=float)
        for c in model.potentials.cliques
    )
    if max(sizes) <= FEW_STATES:
        return conditioned(layout, theta)
    scopes = [s for k in (2, 3) for s in combinations(range(len(sizes)), k)]
    return dict(zip(scopes, layout.query(theta, scopes, 2**21)))


def conditioned(layout, theta):
    """Tables of pairs, and of each pair with every other column, by fixing the pair."""
    sizes = layout.sizes
    singles = [(i,) for i in range(len(sizes))]
    plan = EliminationPlan(layout.cliques + singles, sizes)
    potentials, _ = layout.potentials(theta)
    found = {}
    for a, b in combinations(range(len(sizes)), 2):
        n_cases = sizes[a] * sizes[b]
        fixed = [np.ones((n_cases, size)) for size in sizes]
        fixed[a] = np.repeat(np.eye(sizes[a]), sizes[b], axis=0)
        fixed[b] = np.tile(np.eye(sizes[b]), (sizes[a], 1))
        tables = [np.repeat(table, n_cases, axis=0) for table in potentials]
        log_mass, tape = plan.forward(tables + fixed)
        mass = np.exp(log_mass - np.max(log_mass))
        mass /= mass.sum()
        given = plan.backward(tape)[len(potentials) :]
        found[a, b] = mass.reshape(sizes[a], sizes[b])
        for c in range(b + 1, len(sizes)):
            found[a, b, c] = (mass[:, None] * given[c]).reshape(
                sizes[a], sizes[b], sizes[c]
            )
    return found


def model_megabytes(domain, cliques):
    """Size of the junction tree of mbi's greedy order: cheapest variables first."""
    names, sizes = list(domain.attributes), domain.shape
    number = {name: i for i, name in enumerate(names)}
    near = [1 << i for i in range(len(names))]
    for clique in cliques:
        together = sum(1 << number[name] for name in clique)
        for name in clique:
            near[number[name]] |= together

    def cells(mask):
        product = 1
        while mask:
            lowest = mask & -mask
            product *= sizes[lowest.bit_length() - 1]
            mask ^= lowest
        return product

    costs = {i: cells(mask) for i, mask in enumerate(near)}
    buckets = []
    while costs:
        i = min(costs, key=costs.__getitem__)
        del costs[i]
        bucket = near[i]
        buckets.append(bucket)
        for j in costs:
            if bucket >> j & 1:
                near[j] = (near[j] | bucket) & ~(1 << i)
                costs[j] = cells(near[j])
    maximal = [
        bucket
        for k, bucket in enumerate(buckets)
        if not any(bucket & ~other == 0 for other in buckets[:k])
    ]
    return sum(map(cells, maximal)) * 8 / 2**20
