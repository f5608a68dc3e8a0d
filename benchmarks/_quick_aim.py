"""OpenDP's AIM with less waiting: the same mechanism, computed by our inference.

Most of the half minute and more that a round of `opendp.extras.mbi.AIM` takes goes to
compiling: JAX compiles the estimation anew for every model, and every product behind
every marginal that no table of the model has; networkx builds a junction tree for each
candidate, and one measurement is put together for each step of a search for its noise.
Here marginals come from `TableLayout`, sizes of junction trees from bit masks, and a
measurement is made once; `mirror_descent` takes mbi's steps. Tables are chosen and
measured by OpenDP, with its noise and its budget, to a millionth of the noise's scale.

Marginals of a model are equal to 1e-15, a hundred steps of the estimation to 1e-10;
after a thousand, whether a step was taken may have depended on a rounding (tables of
eight Adult columns then differ by 0.0006, with an equal loss). So errors are AIM's, and
seconds much fewer than its own.
"""

from contextlib import contextmanager
from functools import cache
from itertools import combinations
from math import prod
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np

from skprivbn.graphical_model._elimination import EliminationPlan
from skprivbn.graphical_model._tables import TableLayout

#: columns of no more states are conditioned on, two at a time
FEW_STATES = 6


@contextmanager
def quick_choices():
    """Make AIM choose faster in this block."""
    import mbi
    from opendp import _internal
    from opendp.extras.mbi import _aim
    from opendp.mod import Transformation

    original, made, tables = _aim._make_aim_scores, [None, None], [None, None]
    sensitivities = Transformation.map

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

    def remembered(transformation, d_in):
        # of all tables, asked for twice a round with the very same list
        if not isinstance(d_in, list):
            return sensitivities(transformation, d_in)
        key = id(transformation), id(d_in)
        if key not in told:  # with both, whose ids nothing else may get
            told[key] = transformation, d_in, sensitivities(transformation, d_in)
        return told[key][2]

    told, searched = {}, _internal._binary_search

    def near_boundary(predicate, lower=None, upper=None, return_sign=False, T=None):
        """Stop the search for the least noise at a millionth, on the private side."""
        high = next((s for s in 2.0 ** np.arange(60) if predicate(float(s))), None)
        scales = (high or 1.0) * 0.5 ** np.arange(1, 60)
        low = next((s for s in scales if not predicate(float(s))), None)
        if high is None or low is None:  # it is no scale that is looked for
            return searched(predicate, lower, upper, return_sign, T)
        low, high = float(low), float(high)
        while high / low > 1 + 1e-6:
            middle = (low * high) ** 0.5
            low, high = (low, middle) if predicate(middle) else (middle, high)
        return high

    with (
        patch.object(_internal, "_binary_search", near_boundary),
        patch.object(Transformation, "map", remembered),
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


@cache
def cells(mask, sizes):
    """Number of cells of the table of these columns, a bit each."""
    return prod(size for i, size in enumerate(sizes) if mask >> i & 1)


def model_megabytes(domain, cliques):
    """Size of the junction tree of mbi's greedy order: cheapest variables first."""
    names, sizes = list(domain.attributes), domain.shape
    number = {name: i for i, name in enumerate(names)}
    near = [1 << i for i in range(len(names))]
    for clique in cliques:
        together = sum(1 << number[name] for name in clique)
        for name in clique:
            near[number[name]] |= together

    costs = {i: cells(mask, sizes) for i, mask in enumerate(near)}
    buckets = []
    while costs:
        i = min(costs, key=costs.__getitem__)
        del costs[i]
        bucket = near[i]
        buckets.append(bucket)
        for j in costs:
            if bucket >> j & 1:
                near[j] = (near[j] | bucket) & ~(1 << i)
                costs[j] = cells(near[j], sizes)
    maximal = [
        bucket
        for k, bucket in enumerate(buckets)
        if not any(bucket & ~other == 0 for other in buckets[:k])
    ]
    return sum(cells(mask, sizes) for mask in maximal) * 8 / 2**20


class Misfit:
    """Squared distances of measured tables to the marginals of a model's cliques.

    Several measurements of one table count as their weighted mean, which changes the
    loss by a constant.
    """

    def __init__(self, layout, measurements, names):
        self.layout = layout
        weighted = {}
        for measurement in measurements:
            scope = tuple(map(names.index, measurement.clique))
            weight = 1 / max(float(measurement.stddev), 1e-12) ** 2
            values = np.asarray(measurement.noisy_measurement, dtype=float)
            shape = [layout.sizes[i] for i in scope]
            total, sums = weighted.get(scope, (0.0, 0.0))
            weighted[scope] = total + weight, sums + weight * values.reshape(shape)
        self.terms = []
        for scope, (weight, sums) in weighted.items():
            host = next(k for k, c in enumerate(layout.cliques) if {*scope} <= {*c})
            axes = [layout.cliques[host].index(i) for i in scope]
            shape = enumerate(layout.shapes[host])
            inside = [size if k in axes else 1 for k, size in shape]
            target = (sums / weight).transpose(np.argsort(axes)).reshape(inside)
            summed = tuple(k for k in range(len(inside)) if k not in axes)
            self.terms.append((host, summed, weight, target))

    def __call__(self, marginals):
        """Return the loss and its gradient."""
        loss, gradient = 0.0, np.zeros_like(marginals)
        tables, slopes = self.layout.split(marginals), self.layout.split(gradient)
        for host, summed, weight, target in self.terms:
            gap = tables[host].sum(axis=summed, keepdims=True) - target
            loss += 0.5 * weight * np.vdot(gap, gap)
            slopes[host] += weight * gap
        return loss, gradient

    def lipschitz(self):
        """Largest curvature, by fifty power iterations as in mbi."""
        at_zero = self(np.zeros(self.layout.n_parameters))[1]
        v = np.ones(self.layout.n_parameters)
        v /= np.linalg.norm(v)
        for _ in range(50):
            curved = self(v)[1] - at_zero
            largest = np.linalg.norm(curved)
            v = curved / (largest + 1e-12)
        return largest


def mirror_descent(domain, measurements, *, potentials=None, iters=1000):
    """Run mbi's mirror descent, step by step, without compiling every model anew."""
    import mbi
    from mbi.clique_utils import maximal_subset
    from mbi.estimation import minimum_variance_unbiased_total

    names = list(domain.attributes)
    scopes = maximal_subset([m.clique for m in measurements])
    if potentials is None:
        potentials = mbi.CliqueVector.zeros(domain, scopes)
    if not all(potentials.supports(scope) for scope in scopes):
        potentials = potentials.expand(scopes)
    scopes = list(potentials.cliques)
    layout = TableLayout([tuple(map(names.index, s)) for s in scopes], domain.shape)
    theta = layout.flatten(np.asarray(potentials[s].values, float) for s in scopes)
    total = float(minimum_variance_unbiased_total(measurements))
    misfit = Misfit(layout, measurements, names)
    alpha = 2.0 / (misfit.lipschitz() * total)
    mu = total * layout.marginals(theta)[1]
    loss, slope = misfit(mu)
    for _ in range(iters):
        tried = theta - alpha * slope
        mu_tried = total * layout.marginals(tried)[1]
        loss_tried, slope_tried = misfit(mu_tried)
        if loss - loss_tried >= 0.5 * alpha * slope @ (mu - mu_tried):
            theta, mu, loss, slope = tried, mu_tried, loss_tried, slope_tried
            alpha *= 1.01
        else:
            alpha *= 0.5

    def vector(flat):
        tables = zip(scopes, layout.split(flat))
        arrays = {s: mbi.Factor(domain.project(s), table) for s, table in tables}
        return mbi.CliqueVector(domain, scopes, arrays)

    return mbi.MarkovRandomField(
        potentials=vector(theta), marginals=vector(mu), total=total
    )
