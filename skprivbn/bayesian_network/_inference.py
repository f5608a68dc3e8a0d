"""Exact inference by variable elimination, for many rows of evidence at once.

A factor is a pair ``(scope, table)``: the scope is an ascending tuple of variable
indices, the table has a leading axis for rows of evidence (of length 1 where the
rows do not matter) and then one axis per variable. Because scopes are sorted,
multiplying is a reshape and a broadcast, and one pass serves all rows that miss the
same entries. Every message is divided by its largest entry, row by row, and the
logarithm kept: long products cannot underflow.
"""

from functools import cached_property, lru_cache
from math import prod

import numpy as np

# One clique's table must fit in memory; 2**27 floats are one gigabyte.
MAX_TABLE = 2**27
CHUNK_ENTRIES = 2**22
#: cliques of up to so many entries are not worth a better order
_SMALL_TABLE = 2**12


def _multiply(factors, scope):
    """Return the product of factors as one table over the given sorted scope."""
    product = None
    for variables, table in factors:
        if variables != scope:
            sizes = dict(zip(variables, table.shape[1:]))
            table = table.reshape(len(table), *[sizes.get(v, 1) for v in scope])
        product = table if product is None else product * table
    return np.ones((1,) * (len(scope) + 1)) if product is None else product


def _marginalise(table, scope, keep):
    """Sum out everything but the variables to keep."""
    axes = tuple(i + 1 for i, variable in enumerate(scope) if variable not in keep)
    return table.sum(axis=axes) if axes else table


def _rescale(table):
    """Return the table over its largest entry per row, and the log of that entry."""
    largest = table.reshape(len(table), -1).max(axis=1)
    shape = (len(table), *(1,) * (table.ndim - 1))
    if largest.min() > 0:
        return table / largest.reshape(shape), np.log(largest)
    with np.errstate(divide="ignore"):
        log_largest = np.log(largest)
    return table / np.where(largest > 0, largest, 1.0).reshape(shape), log_largest


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
    for variable in order:
        bucket = [factor for factor in factors if variable in factor[0]]
        factors = [factor for factor in factors if variable not in factor[0]]
        scope = tuple(sorted({v for variables, _ in bucket for v in variables}))
        rest = tuple(v for v in scope if v != variable)
        table = _multiply(bucket, scope).sum(axis=1 + scope.index(variable))
        table, log_largest = _rescale(table)
        factors.append((rest, table))
        log_scale = log_scale + log_largest
    table, log_largest = _rescale(_multiply(factors, tuple(sorted(keep))))
    return table, log_scale + log_largest


class CliqueTree:
    """Factors along an elimination order, after messages have gone up its cliques.

    Parameters
    ----------
    factors : list of (tuple of int, ndarray)
    order : sequence of int
        Every variable of the factors; each factor has at least one.

    Attributes
    ----------
    log_scale : ndarray, shape (n_rows or 1,)
        Logarithm of the sum over all variables; minus infinity where evidence is
        impossible.
    """

    def __init__(self, factors, order):
        position = {variable: i for i, variable in enumerate(order)}
        self._order, self._scopes, self._up = order, {}, {}
        self._local = {variable: [] for variable in order}
        self._children = {variable: [] for variable in order}
        self.log_scale = np.zeros(1)
        for factor in factors:
            self._local[min(factor[0], key=position.get)].append(factor)
        for variable in order:
            bucket = self._local[variable] + self._below(variable)
            scope = tuple(sorted({variable, *(v for vs, _ in bucket for v in vs)}))
            rest = tuple(v for v in scope if v != variable)
            table = _marginalise(_multiply(bucket, scope), scope, rest)
            table, log_largest = _rescale(table)
            self._scopes[variable], self._up[variable] = scope, (rest, table)
            self.log_scale = self.log_scale + log_largest
            if rest:
                self._children[min(rest, key=position.get)].append(variable)

    def _below(self, variable, but=None):
        return [self._up[child] for child in self._children[variable] if child != but]

    def beliefs(self):
        """Send messages down; yield the product of all factors over each clique.

        Yields
        ------
        variable : int
            With which the clique is eliminated.
        scope : tuple of int
        belief : ndarray, shape (n_rows or 1, ...)
            Not normalised.
        """
        down = {}
        for variable in reversed(self._order):
            scope = self._scopes[variable]
            above = [down.pop(variable)] if variable in down else []
            product = _multiply(self._local[variable] + above, scope)
            for child in self._children[variable]:
                others = _multiply(self._below(variable, but=child), scope)
                rest = self._up[child][0]
                message = _marginalise(product * others, scope, rest)
                down[child] = rest, _rescale(message)[0]
            yield variable, scope, product * _multiply(self._below(variable), scope)


def calibrate(factors, order):
    """Return the posterior of every variable of `order`.

    Parameters
    ----------
    factors, order :
        As of :class:`CliqueTree`.

    Returns
    -------
    posteriors : dict of int to ndarray, shape (n_rows or 1, n_states)
        NaN where the evidence is impossible.
    """
    posteriors = {}
    for variable, scope, belief in CliqueTree(factors, order).beliefs():
        found = _marginalise(belief, scope, (variable,))
        total = found.sum(axis=1, keepdims=True)
        posteriors[variable] = found / np.where(total > 0, total, np.nan)
    return posteriors


class Inference:
    """What a discrete network says about rows with gaps.

    Parameters
    ----------
    tables : list of ndarray
        Conditional probability tables.
    families : list of list of int
        The axes of each table: the parents, then the node.
    sizes : sequence of int
        Number of states of every variable.
    """

    def __init__(self, tables, families, sizes):
        self.tables, self.families, self.sizes = tables, families, sizes
        # asked again with other values of the same evidence, a question costs less
        self._plan = lru_cache(maxsize=256)(self._make_plan)

    @cached_property
    def _rank(self):
        """Place of every variable in an elimination order of the whole network."""
        order = min_fill_order(self.families, range(len(self.sizes)))
        return {variable: i for i, variable in enumerate(order)}

    def _ancestors(self, nodes):
        found, todo = set(), list(nodes)
        while todo:
            node = todo.pop()
            if node not in found:
                found.add(node)
                todo += self.families[node][:-1]
        return found

    def _order(self, scopes, eliminated, keep=()):
        """Return an elimination order, and the entries of its largest table.

        That of the whole network will do for a part of it, unless tables are large.
        """
        order = sorted(eliminated, key=self._rank.__getitem__)
        largest = self._largest_table(scopes, order, keep)
        if largest > _SMALL_TABLE:
            again = min_fill_order(scopes, eliminated)
            smaller = self._largest_table(scopes, again, keep)
            if smaller < largest:
                order, largest = again, smaller
        if largest > MAX_TABLE:
            raise ValueError(
                "exact inference needs a table of "
                f"{largest:.3g} entries, because the network is too densely connected; "
                "condition on more nodes or learn a sparser network"
            )
        return order, largest

    def _largest_table(self, scopes, order, keep):
        largest, pending = 1, [set(scope) for scope in scopes]
        for variable in order:
            clique = {variable}.union(*(s for s in pending if variable in s))
            largest = max(largest, prod([self.sizes[v] for v in clique]))
            pending = [scope for scope in pending if variable not in scope]
            pending.append(clique - {variable})
        last = set(keep).union(*pending)
        return max(largest, prod([self.sizes[v] for v in last]))

    def _make_plan(self, keep, seen):
        """Return the nodes that matter for a question, and an elimination order."""
        # what nothing asked for or observed descends from sums to one
        relevant = self._ancestors(keep | seen)
        scopes = [relevant.intersection(self.families[i]) - seen for i in relevant]
        order, _ = self._order(scopes, relevant - seen - keep, keep)
        return sorted(relevant), order

    def joint(self, keep, evidence):
        """Return the joint table of some variables given others, up to a factor.

        Parameters
        ----------
        keep : sequence of int
            Variables of the result, none of them in the evidence.
        evidence : dict of int to int
            Observed codes.

        Returns
        -------
        table : ndarray
            Over the kept variables in ascending order; zeros if the evidence is
            impossible.
        """
        relevant, order = self._plan(frozenset(keep), frozenset(evidence))
        factors, scale = [], 1.0
        for i in relevant:
            family = self.families[i]
            table = self.tables[i][tuple(evidence.get(v, slice(None)) for v in family)]
            scope = [v for v in family if v not in evidence]
            if not scope:
                # told apart from zero only: products of many could underflow
                scale *= float(table > 0)
                continue
            ascending = sorted(scope)
            if ascending != scope:
                table = table.transpose([scope.index(v) for v in ascending])
            factors.append((tuple(ascending), table[np.newaxis]))
        return eliminate(factors, order, keep)[0][0] * scale

    def log_likelihood(self, codes):
        """Return each row's log-probability, with what is missing summed out.

        Parameters
        ----------
        codes : ndarray of int, shape (n_rows, n_variables)
            Negative where missing.

        Returns
        -------
        log_likelihood : ndarray, shape (n_rows,)
            Minus infinity where the evidence is impossible.
        """
        log_likelihood = np.zeros(len(codes))
        for hidden, rows in evidence_groups(codes):
            log_likelihood[rows] = self._log_evidence(codes[rows], hidden)
        return log_likelihood

    def _log_evidence(self, codes, hidden):
        # what nothing observed descends from sums to one
        relevant = self._ancestors(set(range(len(self.sizes))) - hidden)
        hidden = hidden & relevant
        log_probability, entangled = np.zeros(len(codes)), []
        with np.errstate(divide="ignore"):
            for i in sorted(relevant):
                family = self.families[i]
                if hidden.isdisjoint(family):
                    log_cpt = np.log(self.tables[i])
                    log_probability += log_cpt[tuple(codes[:, v] for v in family)]
                else:
                    entangled.append(i)
        if not entangled:
            return log_probability

        def summed_out(factors, order):
            return eliminate(factors, order)[1]

        return log_probability + self._by_row(summed_out, entangled, codes, hidden)

    def posteriors(self, codes):
        """Return the distribution of every entry, given the observed ones of its row.

        Only the families with a hidden member matter (the Markov blanket), so that an
        observed configuration of probability zero elsewhere does no harm.

        Parameters
        ----------
        codes : ndarray of int, shape (n_rows, n_variables)
            Negative where missing.

        Returns
        -------
        posteriors : list of ndarray, shape (n_rows, n_states)
            Certain where observed, NaN where the evidence is impossible.
        """
        result = [np.zeros((len(codes), size)) for size in self.sizes]
        for j, table in enumerate(result):
            seen = np.flatnonzero(codes[:, j] >= 0)
            table[seen, codes[seen, j]] = 1.0
        for hidden, rows in evidence_groups(codes):
            if hidden:
                found = self._posteriors(codes[rows], hidden)
                for j in hidden:
                    result[j][rows] = found[j]
        return result

    def _posteriors(self, codes, hidden):
        """Return the distributions of hidden variables, by number."""
        variables = sorted(hidden)
        sizes = [self.sizes[v] for v in variables]

        def side_by_side(factors, order):
            tables = calibrate(factors, order)
            n_rows = max(len(table) for table in tables.values())
            shapes = [(n_rows, size) for size in sizes]
            return np.hstack(
                [np.broadcast_to(tables[v], s) for v, s in zip(variables, shapes)]
            )

        entangled = [i for i, f in enumerate(self.families) if not hidden.isdisjoint(f)]
        stacked = self._by_row(side_by_side, entangled, codes, hidden)
        return dict(zip(variables, np.split(stacked, np.cumsum(sizes)[:-1], axis=1)))

    def _by_row(self, compute, entangled, codes, hidden):
        """Run ``compute(factors, order)`` once for each distinct row of evidence.

        `entangled` lists the nodes whose family has a hidden member; what else is
        observed has no influence.
        """
        seen = sorted({v for i in entangled for v in self.families[i]} - hidden)
        distinct, inverse = np.unique(codes[:, seen], axis=0, return_inverse=True)
        evidence = np.zeros((len(distinct), len(self.sizes)), dtype=np.intp)
        evidence[:, seen] = distinct
        scopes = [tuple(hidden.intersection(self.families[i])) for i in entangled]
        order, largest = self._order(scopes, hidden)
        results = []
        for rows in _row_chunks(len(distinct), largest):
            chunk = evidence[rows]
            result = compute(self.factors(entangled, chunk, hidden), order)
            results.append(np.broadcast_to(result, (len(chunk), *result.shape[1:])))
        return np.concatenate(results)[inverse.reshape(-1)]

    def factors(self, nodes, codes, hidden):
        """Return the tables of some nodes with the observed variables filled in.

        Parameters
        ----------
        nodes : iterable of int
        codes : ndarray of int, shape (n_rows, n_variables)
            Observed codes; those of hidden variables are not read.
        hidden : set of int
            Variables that are not observed.

        Returns
        -------
        factors : list of (tuple of int, ndarray)
        """
        found = []
        for i in nodes:
            family, table = self.families[i], self.tables[i]
            seen = [axis for axis, v in enumerate(family) if v not in hidden]
            scope = tuple(sorted(hidden.intersection(family)))
            table = table.transpose(seen + [family.index(v) for v in scope])
            rows = tuple(codes[:, family[axis]] for axis in seen)
            found.append((scope, table[rows] if seen else table[np.newaxis]))
        return found

    def expected_counts(self, codes, weights=None):
        """Return the expected counts of every family: the E-step of EM.

        All rows go through one tree of cliques, whatever they miss: an observed entry
        is a factor that is zero elsewhere.

        Parameters
        ----------
        codes : ndarray of int of shape (n_rows, n_variables)
            Negative where missing.
        weights : ndarray of shape (n_rows,), default=None
            How much each row counts; None counts it once.

        Returns
        -------
        counts : list of ndarray
            Shaped like the tables. Rows that are impossible count in none of them.
        log_likelihood : float
            Of all rows that are possible.
        n_impossible : int
        """
        counts = [np.zeros(table.shape) for table in self.tables]
        distinct, which = np.unique(codes, axis=0, return_inverse=True)
        weights = np.bincount(which.ravel(), weights=weights, minlength=len(distinct))
        order = list(self._rank)
        _, largest = self._order(self.families, order)
        members = {variable: [] for variable in order}
        for i, family in enumerate(self.families):
            members[min(family, key=self._rank.get)].append(i)
        log_likelihood, n_impossible = 0.0, 0
        for rows in _row_chunks(len(distinct), largest):
            tree = CliqueTree(self._observed(distinct[rows]), order)
            log_scale = np.broadcast_to(tree.log_scale, len(distinct[rows]))
            possible = np.isfinite(log_scale)
            n_impossible += int(weights[rows][~possible].sum())
            weight = np.where(possible, weights[rows], 0.0)
            log_likelihood += float((weight * np.where(possible, log_scale, 0.0)).sum())
            for variable, scope, belief in tree.beliefs():
                total = belief.sum(axis=tuple(range(1, belief.ndim)))
                share = weight / np.where(total > 0, total, 1.0)
                belief = np.broadcast_to(belief, (len(weight), *belief.shape[1:]))
                # over rows at once: a clique is small, and rows are many
                summed = np.tensordot(share, belief, axes=1)[np.newaxis]
                for i in members[variable]:
                    family = self.families[i]
                    table = _marginalise(summed, scope, family)[0]
                    axes = [sorted(family).index(v) for v in family]
                    counts[i] += table.transpose(axes)
        return counts, log_likelihood, n_impossible

    def _observed(self, codes):
        """Return all tables, and factors that are zero where rows differ."""
        every = range(len(self.sizes))
        factors = self.factors(every, codes, set(every))
        for variable, size in enumerate(self.sizes):
            column = codes[:, [variable]]
            seen = (column == np.arange(size)) | (column < 0)
            if not seen.all():
                factors.append(((variable,), seen.astype(float)))
        return factors


def _row_chunks(n_rows, largest):
    """Yield slices of rows so that the largest clique's table stays small."""
    step = max(1, CHUNK_ENTRIES // largest)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


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
