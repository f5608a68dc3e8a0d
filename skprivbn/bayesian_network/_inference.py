"""Exact inference by variable elimination, for many rows of evidence at once.

A factor is a pair ``(scope, table)``: the scope is an ascending tuple of variable
indices, the table has a leading axis for rows of evidence (of length 1 where the
rows do not matter) and then one axis per variable. Because scopes are sorted,
multiplying is a reshape and a broadcast, and one pass serves all rows that miss the
same entries. Every message is divided by its largest entry, row by row, and the
logarithm kept: long products cannot underflow.
"""

import numpy as np

from skprivbn.bayesian_network._dag import ancestors

# One clique's table must fit in memory; 2**27 floats are one gigabyte.
MAX_TABLE = 2**27
CHUNK_ENTRIES = 2**22


def conditional_factor(cpt, family, codes, hidden):
    """Return a node's conditional table with the observed variables filled in.

    Parameters
    ----------
    cpt : ndarray
        One axis per variable of the family.
    family : sequence of int
        The variables of the axes: the parents, then the node.
    codes : ndarray of int, shape (n_rows, n_variables)
        Observed codes; those of hidden variables are not read.
    hidden : set of int
        Variables that are not observed.

    Returns
    -------
    scope : tuple of int
    table : ndarray, shape (n_rows or 1, ...)
    """
    seen = [axis for axis, variable in enumerate(family) if variable not in hidden]
    scope = tuple(sorted(variable for variable in family if variable in hidden))
    table = cpt.transpose(seen + [family.index(variable) for variable in scope])
    if not seen:
        return scope, table[np.newaxis]
    return scope, table[tuple(codes[:, family[axis]] for axis in seen)]


def _multiply(factors, scope):
    """Return the product of factors as one table over the given sorted scope."""
    product = np.ones((1,) * (len(scope) + 1))
    for variables, table in factors:
        sizes = dict(zip(variables, table.shape[1:]))
        shape = [sizes.get(variable, 1) for variable in scope]
        product = product * table.reshape(len(table), *shape)
    return product


def _marginalise(table, scope, keep):
    """Sum out everything but the variables to keep."""
    axes = tuple(i + 1 for i, variable in enumerate(scope) if variable not in keep)
    return table.sum(axis=axes) if axes else table


def _rescale(table):
    """Return the table over its largest entry per row, and the log of that entry."""
    largest = table.max(axis=tuple(range(1, table.ndim)), keepdims=True)
    possible = largest > 0
    with np.errstate(divide="ignore"):
        log_largest = np.log(largest).reshape(len(table))
    return table / np.where(possible, largest, 1.0), log_largest


def min_fill_order(scopes, eliminated):
    """Return an elimination order that adds few edges, found greedily.

    Parameters
    ----------
    scopes : iterable of tuple of int
        Variables that share a factor.
    eliminated : iterable of int
        Variables to put in order.

    Returns
    -------
    order : list of int
    """
    neighbours = {}
    for scope in scopes:
        for variable in scope:
            neighbours.setdefault(variable, set()).update(scope)
    for variable, near in neighbours.items():
        near.discard(variable)

    def n_fill(variable):
        near = neighbours[variable]
        return sum(len(near - neighbours[other]) - 1 for other in near) // 2

    left = {variable for variable in eliminated if variable in neighbours}
    cost = {variable: n_fill(variable) for variable in left}
    order = []
    while left:
        best = min(left, key=lambda v: (cost[v], len(neighbours[v]), v))
        near = neighbours.pop(best)
        left.discard(best)
        order.append(best)
        touched = set(near)
        for other in near:
            neighbours[other].discard(best)
            neighbours[other] |= near - {other}
            touched |= neighbours[other]
        cost.update((variable, n_fill(variable)) for variable in touched & left)
    return order


def _bucket_scopes(scopes, order, keep=()):
    """Return, for each variable of the order, its clique when it is eliminated."""
    pending = [set(scope) for scope in scopes]
    cliques = []
    for variable in order:
        clique = {variable}.union(*(scope for scope in pending if variable in scope))
        pending = [scope for scope in pending if variable not in scope]
        pending.append(clique - {variable})
        cliques.append(tuple(sorted(clique)))
    last = set(keep).union(*pending)
    return cliques, tuple(sorted(last))


def row_chunks(n_rows, cliques, sizes):
    """Yield slices of rows so that the largest clique's table stays small.

    Parameters
    ----------
    n_rows : int
    cliques : iterable of tuple of int
    sizes : sequence of int
        Number of states of each variable.
    """
    largest = max(
        (int(np.prod([sizes[v] for v in c], dtype=object)) for c in cliques), default=1
    )
    if largest > MAX_TABLE:
        raise ValueError(
            "exact inference needs a table of "
            f"{largest:.3g} entries, because the network is too densely connected; "
            "condition on more nodes or learn a sparser network"
        )
    step = max(1, CHUNK_ENTRIES // largest)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def eliminate(factors, order, keep=()):
    """Sum out the variables of `order` from a product of factors.

    Parameters
    ----------
    factors : list of (tuple of int, ndarray)
    order : sequence of int
        Every variable of the factors that is not kept.
    keep : sequence of int
        Variables of the result.

    Returns
    -------
    table : ndarray, shape (n_rows or 1, ...)
        Over the kept variables in ascending order, each row's maximum being 1 (or 0
        where the evidence is impossible).
    log_scale : ndarray, shape (n_rows or 1,)
        What to add to the table's logarithm.
    """
    log_scale = np.zeros(1)
    factors = list(factors)
    for variable in order:
        bucket = [factor for factor in factors if variable in factor[0]]
        factors = [factor for factor in factors if variable not in factor[0]]
        scope = tuple(sorted({v for variables, _ in bucket for v in variables}))
        rest = tuple(v for v in scope if v != variable)
        table = _marginalise(_multiply(bucket, scope), scope, rest)
        table, log_largest = _rescale(table)
        factors.append((rest, table))
        log_scale = log_scale + log_largest
    table, log_largest = _rescale(_multiply(factors, tuple(sorted(keep))))
    return table, log_scale + log_largest


def calibrate(factors, order):
    """Return the posterior of every variable of `order`, in two passes.

    The cliques of an elimination order form a tree (the bucket tree). Messages go
    up it, as in :func:`eliminate`, and then down again.

    Parameters
    ----------
    factors : list of (tuple of int, ndarray)
    order : sequence of int
        Every variable of the factors; each factor has at least one.

    Returns
    -------
    posteriors : dict of int to ndarray, shape (n_rows or 1, n_states)
        NaN where the evidence is impossible.
    """
    position = {variable: i for i, variable in enumerate(order)}
    local = {variable: [] for variable in order}
    for factor in factors:
        local[min(factor[0], key=position.get)].append(factor)

    scopes, parent, up = {}, {}, {}
    children = {variable: [] for variable in order}
    for variable in order:
        bucket = local[variable] + [up[child] for child in children[variable]]
        scope = tuple(sorted({variable, *(v for vs, _ in bucket for v in vs)}))
        rest = tuple(v for v in scope if v != variable)
        message, _ = _rescale(_marginalise(_multiply(bucket, scope), scope, rest))
        scopes[variable], up[variable] = scope, (rest, message)
        parent[variable] = min(rest, key=position.get, default=None)
        if parent[variable] is not None:
            children[parent[variable]].append(variable)

    posteriors, down = {}, {}
    for variable in reversed(order):
        scope = scopes[variable]
        from_above = [down[variable]] if variable in down else []
        for child in children[variable]:
            others = [up[other] for other in children[variable] if other != child]
            table = _multiply(local[variable] + from_above + others, scope)
            rest = up[child][0]
            down[child] = rest, _rescale(_marginalise(table, scope, rest))[0]
        everything = local[variable] + [up[child] for child in children[variable]]
        table = _multiply(everything + from_above, scope)
        belief = _marginalise(table, scope, (variable,))
        total = belief.sum(axis=1, keepdims=True)
        posteriors[variable] = belief / np.where(total > 0, total, np.nan)
    return posteriors


def joint_marginal(cpts, families, sizes, adjacency, keep, evidence):
    """Return the unnormalised joint table of some variables, given others.

    Parameters
    ----------
    cpts : list of ndarray
    families : list of list of int
        The axes of each table: the parents, then the node.
    sizes : sequence of int
    adjacency : ndarray of bool
    keep : sequence of int
        Variables of the result, none of them in the evidence.
    evidence : dict of int to int
        Observed codes.

    Returns
    -------
    table : ndarray
        Over the kept variables in ascending order.
    log_scale : float
    """
    relevant = ancestors(adjacency, [*keep, *evidence])
    hidden = relevant - set(evidence)
    codes = np.zeros((1, len(sizes)), dtype=np.intp)
    codes[0, list(evidence)] = list(evidence.values())
    factors = [
        conditional_factor(cpts[i], families[i], codes, hidden)
        for i in sorted(relevant)
    ]
    scopes = [scope for scope, _ in factors]
    order = min_fill_order(scopes, hidden - set(keep))
    cliques, last = _bucket_scopes(scopes, order, keep)
    next(row_chunks(1, [*cliques, last], sizes))
    table, log_scale = eliminate(factors, order, keep)
    return table[0], float(log_scale[0])


def log_evidence(cpts, families, sizes, adjacency, codes, hidden):
    """Return each row's log-probability, the hidden variables summed out.

    Parameters
    ----------
    cpts, families, sizes, adjacency
        The network, as for :func:`joint_marginal`.
    codes : ndarray of int, shape (n_rows, n_variables)
    hidden : set of int
        Variables not observed in any of the rows.

    Returns
    -------
    log_probability : ndarray, shape (n_rows,)
        Minus infinity where the evidence is impossible.
    """
    # What nothing observed descends from sums to one.
    relevant = ancestors(adjacency, set(range(len(sizes))) - hidden)
    hidden = hidden & relevant
    log_probability = np.zeros(len(codes))
    entangled = []
    with np.errstate(divide="ignore"):
        for i in sorted(relevant):
            if hidden.isdisjoint(families[i]):
                log_cpt = np.log(cpts[i])
                log_probability += log_cpt[tuple(codes[:, v] for v in families[i])]
            else:
                entangled.append(i)
    if not entangled:
        return log_probability

    def summed_out(factors, order):
        return eliminate(factors, order)[1]

    return log_probability + _for_distinct_rows(
        summed_out, cpts, families, sizes, entangled, codes, hidden
    )


def posteriors(cpts, families, sizes, codes, hidden):
    """Return the distribution of every hidden variable, given each row's others.

    Only the families with a hidden member matter (the Markov blanket), so that an
    observed configuration of probability zero elsewhere does no harm.

    Parameters
    ----------
    cpts, families, sizes
        The network, as for :func:`joint_marginal`.
    codes : ndarray of int, shape (n_rows, n_variables)
    hidden : set of int
        Variables not observed in any of the rows.

    Returns
    -------
    posteriors : dict of int to ndarray, shape (n_rows, n_states)
        NaN where the evidence is impossible.
    """
    entangled = [i for i, f in enumerate(families) if not hidden.isdisjoint(f)]
    variables = sorted(hidden)

    def side_by_side(factors, order):
        tables = calibrate(factors, order)
        n_rows = max(len(table) for table in tables.values())
        shapes = [(n_rows, sizes[v]) for v in variables]
        return np.hstack(
            [np.broadcast_to(tables[v], shape) for v, shape in zip(variables, shapes)]
        )

    stacked = _for_distinct_rows(
        side_by_side, cpts, families, sizes, entangled, codes, hidden
    )
    ends = np.cumsum([sizes[v] for v in variables])
    return dict(zip(variables, np.split(stacked, ends[:-1], axis=1)))


def _for_distinct_rows(compute, cpts, families, sizes, entangled, codes, hidden):
    """Run ``compute(factors, order)`` once for each distinct row of evidence.

    `entangled` lists the nodes whose family has a hidden member; what else is
    observed has no influence.
    """
    seen = sorted({v for i in entangled for v in families[i]} - hidden)
    distinct, inverse = np.unique(codes[:, seen], axis=0, return_inverse=True)
    evidence = np.zeros((len(distinct), len(sizes)), dtype=np.intp)
    evidence[:, seen] = distinct
    scopes = [tuple(hidden.intersection(families[i])) for i in entangled]
    order = min_fill_order(scopes, hidden)
    cliques, _ = _bucket_scopes(scopes, order)
    results = []
    for rows in row_chunks(len(distinct), cliques, sizes):
        chunk = evidence[rows]
        factors = [
            conditional_factor(cpts[i], families[i], chunk, hidden) for i in entangled
        ]
        result = compute(factors, order)
        results.append(np.broadcast_to(result, (len(chunk), *result.shape[1:])))
    return np.concatenate(results)[inverse.reshape(-1)]


def evidence_groups(codes):
    """Yield the rows that miss the same entries together.

    Parameters
    ----------
    codes : ndarray of int, shape (n_rows, n_variables)
        Negative where missing.

    Yields
    ------
    hidden : set of int
        Variables missing in these rows.
    rows : ndarray of int
    """
    packed = np.packbits(codes < 0, axis=1)
    _, first, group = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    by_group = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group, minlength=len(first)))
    for representative, rows in zip(first, np.split(by_group, ends[:-1])):
        yield set(np.flatnonzero(codes[representative] < 0).tolist()), rows
