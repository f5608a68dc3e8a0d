"""Exact inference in discrete random fields: bucket elimination, run backwards.

Variables are summed out one after the other. Tables are kept in linear space and
messages are rescaled to a maximum of one, so that eliminating a variable from a
product of tables is a matrix multiplication instead of a sum of exponentials over
the joint table of its bucket. The marginals of all cliques are the derivatives of
the log-partition function, found by going through the same steps in reverse.

Everything that depends only on the shape of the field (order, reshapes, which
tables are multiplied before the matrix product) is decided once, in
:class:`EliminationPlan`.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import prod

import numpy as np

#: messages below this are taken as zero going backwards: their inverse would overflow
_TINY = 1e-290
#: rough costs in nanoseconds that choose between matrix products and plain sums
_COST_CELL, _COST_FLOP, _COST_MATMUL = 1.0, 0.1, 300.0
#: most tables of a bucket of which every way to halve them is considered
_MAX_HALVED = 8


def elimination_order(cliques, sizes):
    """Order in which variables are summed out: greedy minimum fill-in.

    Ties go to the variable whose bucket has the fewest cells.

    Parameters
    ----------
    cliques : list of tuple of int
        Scopes of the tables.
    sizes : sequence of int
        Number of states of each variable.

    Returns
    -------
    order : list of int
        All variables, the first to be eliminated first.
    largest : int
        Number of cells of the largest bucket (all its variables together).
    """
    # bit j of closed[i]: variable i is j, or shares a table with it
    closed = [1 << i for i in range(len(sizes))]
    for clique in cliques:
        together = sum(1 << int(i) for i in clique)
        for i in clique:
            closed[i] |= together
    order, largest = _eliminate(tuple(closed), tuple(map(int, sizes)))
    return list(order), largest


@lru_cache(maxsize=1024)
def _eliminate(neighbours, sizes):
    """Remembered, since of many sets of tables that are tried some have one graph."""
    closed = list(neighbours)

    def cost(i):
        around, fill, cells = closed[i], 0, 1
        for j in _bits(around):
            # every ordered pair of neighbours that is not yet an edge would be added
            fill += (around & ~closed[j]).bit_count()
            cells *= sizes[j]
        return fill, cells

    costs = {i: cost(i) for i in range(len(sizes))}
    order, largest = [], 1
    while costs:
        i = min(costs, key=costs.__getitem__)
        fill, cells = costs.pop(i)
        largest = max(largest, cells)
        around = stale = closed[i] & ~(1 << i)
        for j in _bits(around):
            closed[j] = (closed[j] | around) & ~(1 << i)
            # without new edges nothing changes for the neighbours' neighbours
            stale |= closed[j] if fill else 0
        order.append(i)
        costs.update((j, cost(j)) for j in _bits(stale))
    return tuple(order), largest


def _bits(mask):
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _axes(scope, wanted):
    """Permutation, batch axis first, from the axes of `scope` to those `wanted`."""
    return (0, *(1 + scope.index(i) for i in wanted))


@dataclass(frozen=True)
class _Group:
    """Tables of one bucket that are multiplied cell by cell, the largest last.

    Smaller ones have fewer variables together: each link multiplies one more table, of
    the given shape, with the product so far, of a shape of its own, and knows their
    axes in the product.
    """

    links: tuple  # (table number, shape, axes, shape of the others, their axes)
    scope: tuple


@dataclass(frozen=True)
class _Fold:
    """Axes of a table in three groups, which make it a stack of matrices, and back."""

    to: tuple
    back: tuple
    folded: tuple
    unfolded: tuple

    def fold(self, table):
        return table.transpose(self.to).reshape(len(table), *self.folded)

    def unfold(self, stack):
        return stack.reshape(len(stack), *self.unfolded).transpose(self.back)


@dataclass(frozen=True)
class _Contraction:
    """Two groups contracted over the bucket's variable, as stacked matrix products.

    Left and right products become stacks of matrices (shared variables, variable,
    own variables); the result has axes (shared, left's own, right's own).
    """

    left: _Fold
    right: _Fold
    message: _Fold

    def multiply(self, left, right):
        a, b = self.left.fold(left), self.right.fold(right)
        return self.message.unfold(np.matmul(a.swapaxes(2, 3), b))

    def masses(self, left, right, adjoint):
        """Left and right products times their adjoints, axes as in the products."""
        a, b = self.left.fold(left), self.right.fold(right)
        g = self.message.fold(adjoint)
        return (
            self.left.unfold(a * np.matmul(b, g.swapaxes(2, 3))),
            self.right.unfold(b * np.matmul(a, g)),
        )


@dataclass(frozen=True)
class _Step:
    """Elimination of one variable: its tables are multiplied and summed over it."""

    left: _Group
    right: _Group | None  # None: sum the left product over the variable
    contraction: _Contraction | None
    message: int
    scope: tuple


def _multiply(group, store):
    product = None
    for number, shape, _, others, _ in group.links:
        table = store[number]
        table = table.reshape(len(table), *shape)
        if product is None:
            product = table
        else:
            product = product.reshape(len(product), *others) * table
    return product


def _spread(group, masses, store, mass, adjoint, n_cliques):
    """Sum a group's mass over to its members: marginals, or adjoints of messages."""
    for number, _, axes, _, others in group.links[::-1]:
        total = _sum_to(masses, axes)
        if number < n_cliques:
            mass[number] = total
        else:
            adjoint[number] = _divide(total, store[number])
        masses = _sum_to(masses, others)


def _sum_to(table, kept):
    """Sum over all axes but these; several times as fast as ``table.sum``."""
    if len(kept) == table.ndim:
        return table
    return np.einsum(table, range(table.ndim), kept)


def _divide(a, b):
    # where b is zero, or nearly, so is a
    return a / np.maximum(b, _TINY)


class EliminationPlan:
    """How to sum out the variables of a field, decided once for many potentials.

    Parameters
    ----------
    cliques : list of tuple of int
        Scope of each table; the axes of a table are in this order.
    sizes : sequence of int
        Number of states of each variable.

    Attributes
    ----------
    order : list of int
        Elimination order.
    n_cells : int
        Cells of the largest bucket, what time and (in part) memory grow with.
    converged : bool
        True: the answers are exact.
    """

    converged = True

    def __init__(self, cliques, sizes):
        self.cliques = [tuple(clique) for clique in cliques]
        self.sizes = tuple(int(size) for size in sizes)
        self.order, self.n_cells = elimination_order(self.cliques, self.sizes)
        self._rank = {variable: r for r, variable in enumerate(self.order)}
        # All tables keep their axes in elimination order, after a leading batch
        # axis: the variable of a bucket is then always the first of every scope.
        self._permutations = [
            (0, *(1 + np.argsort([self._rank[i] for i in clique])))
            for clique in self.cliques
        ]
        self._inverses = [tuple(np.argsort(p)) for p in self._permutations]
        scopes = [self._sorted(clique) for clique in self.cliques]
        self._absorbed = self._absorb(scopes)
        self._compile(scopes)

    def _sorted(self, variables):
        return tuple(sorted(variables, key=self._rank.__getitem__))

    def _cells(self, variables):
        return prod(self.sizes[i] for i in variables)

    def _absorb(self, scopes):
        """Tables whose variables another table has, too: they are multiplied into it.

        For each its number, that of the other table, its shape and axes there.
        """
        absorbed = []
        by_size = sorted(range(len(scopes)), key=lambda m: len(scopes[m]))
        for place, m in enumerate(by_size):
            larger = [k for k in by_size[place + 1 :] if {*scopes[m]} <= {*scopes[k]}]
            if scopes[m] and larger:
                host = min(larger, key=lambda k: self._cells(scopes[k]))
                absorbed.append((m, host, *self._place(scopes[m], scopes[host])))
        return absorbed

    def _compile(self, scopes):
        absorbed = {number for number, *_ in self._absorbed}
        buckets = {variable: [] for variable in self.order}
        self._constants = []  # tables without variables
        for number, scope in enumerate(scopes):
            if number not in absorbed:
                (buckets[scope[0]] if scope else self._constants).append(number)
        self._steps = []
        self._free = []  # variables in no clique: uniform
        for variable in self.order:
            members = buckets[variable]
            if not members:
                self._free.append(variable)
                continue
            step = self._plan_bucket(variable, members, scopes)
            self._steps.append(step)
            scopes.append(step.scope)
            where = buckets[step.scope[0]] if step.scope else self._constants
            where.append(step.message)
        self._n_tables = len(scopes)

    def _plan_bucket(self, variable, members, scopes):
        left, right = self._split(variable, members, scopes)
        union = self._sorted({i for m in members for i in scopes[m]})
        message, scope = len(scopes), union[1:]
        left = self._group(left, scopes)
        if not right:
            return _Step(left, None, None, message, scope)
        right = self._group(right, scopes)
        both = [i for i in left.scope[1:] if i in right.scope]
        only_left = [i for i in left.scope[1:] if i not in both]
        only_right = [i for i in right.scope[1:] if i not in both]
        contraction = _Contraction(
            self._fold(left.scope, both, [variable], only_left),
            self._fold(right.scope, both, [variable], only_right),
            self._fold(scope, both, only_left, only_right),
        )
        return _Step(left, right, contraction, message, scope)

    def _fold(self, scope, *groups):
        order = [i for group in groups for i in group]
        return _Fold(
            _axes(scope, order),
            _axes(order, scope),
            tuple(map(self._cells, groups)),
            tuple(self.sizes[i] for i in order),
        )

    def _split(self, variable, members, scopes):
        """Which tables go to the left and right of the matrix product."""
        everything = {i for m in members for i in scopes[m]}
        best = (_COST_CELL * self._cells(everything) * (len(members) + 1), members, [])
        for right in self._sides(members, scopes):
            left = [m for m in members if m not in right]
            on_left = {i for m in left for i in scopes[m]}
            on_right = {i for m in right for i in scopes[m]}
            n_products = self._cells((on_left & on_right) - {variable})
            cost = (
                _COST_CELL * len(left) * self._cells(on_left)
                + _COST_CELL * len(right) * self._cells(on_right)
                + _COST_FLOP * self._cells(everything)
                + _COST_MATMUL * n_products
            )
            if cost < best[0]:
                best = cost, left, right
        return best[1:]

    def _sides(self, members, scopes):
        """Candidates for the right side of the matrix product.

        All ways to halve few tables; of many, the right side grows by the table that
        adds the fewest cells to it.
        """
        if len(members) <= _MAX_HALVED:
            halves = range(1, len(members) // 2 + 1)
            return [side for size in halves for side in combinations(members, size)]
        return [side for m in members for side in self._grow(m, members, scopes)]

    def _grow(self, first, members, scopes):
        """Right sides of one table, two tables, ... up to all but one."""
        side, rest = [first], [m for m in members if m != first]
        while rest:
            yield tuple(side)
            covered = {i for m in side for i in scopes[m]}
            added = min(rest, key=lambda m: self._cells(covered.union(scopes[m])))
            side.append(added)
            rest.remove(added)

    def _group(self, members, scopes):
        links, scope = [], ()
        for m in sorted(members, key=lambda m: self._cells(scopes[m])):
            union = self._sorted({*scope, *scopes[m]})
            place = self._place(scopes[m], union) + self._place(scope, union)
            links.append((m, *place))
            scope = union
        return _Group(tuple(links), scope)

    def _place(self, scope, union):
        """Shape of a table in a product, and its axes there."""
        shape = tuple(self.sizes[i] if i in scope else 1 for i in union)
        return shape, _axes(union, scope)

    def forward(self, tables):
        """Sum out everything.

        Parameters
        ----------
        tables : list of ndarray of shape (n_batch or 1, *sizes of the clique)
            Non-negative potentials in linear space.

        Returns
        -------
        log_partition : ndarray of shape (n_batch,)
        tape : list
            What :meth:`backward` needs.
        """
        store = [t.transpose(p) for t, p in zip(tables, self._permutations)]
        for number, host, shape, _ in self._absorbed:
            table = store[number]
            store[host] = store[host] * table.reshape(len(table), *shape)
        store += [None] * (self._n_tables - len(store))
        n_batch = max((len(t) for t in tables), default=1)
        log_partition = np.full(n_batch, sum(np.log(self.sizes[i]) for i in self._free))
        products = []
        for step in self._steps:
            left = _multiply(step.left, store)
            if step.right is None:
                right, message = None, left.sum(axis=1)
            else:
                right = _multiply(step.right, store)
                message = step.contraction.multiply(left, right)
            axes = tuple(range(1, message.ndim))
            scale = message.max(axis=axes, keepdims=True) if axes else message
            # an impossible batch entry keeps its zeros and ends at log 0
            scale = np.where(scale > 0, scale, 1.0)
            log_partition = log_partition + np.log(scale.reshape(len(scale)))
            store[step.message] = message / scale
            products.append((left, right, scale))
        with np.errstate(divide="ignore"):
            for number in self._constants:
                log_partition = log_partition + np.log(store[number])
        return log_partition, (store, products)

    def backward(self, tape):
        """Marginals of all cliques, each in its own axis order."""
        store, products = tape
        n_cliques = len(self.cliques)
        mass, adjoint = [None] * n_cliques, [None] * self._n_tables
        for number in self._constants:
            if number < n_cliques:
                mass[number] = np.ones_like(store[number])
            else:
                adjoint[number] = _divide(1.0, store[number])
        for step, (left, right, scale) in zip(self._steps[::-1], products[::-1]):
            grad = adjoint[step.message] / scale
            if step.right is None:
                masses = left * grad[:, None]
                _spread(step.left, masses, store, mass, adjoint, n_cliques)
            else:
                on_left, on_right = step.contraction.masses(left, right, grad)
                _spread(step.left, on_left, store, mass, adjoint, n_cliques)
                _spread(step.right, on_right, store, mass, adjoint, n_cliques)
        for number, host, _, kept in self._absorbed[::-1]:
            mass[number] = _sum_to(mass[host], kept)
        return [table.transpose(p) for table, p in zip(mass, self._inverses)]

    def sample(self, tape, n_samples, rng, rounded=False):
        """Draw configurations, going backwards through the elimination order.

        Parameters
        ----------
        tape : tuple
            Of a forward pass with a single batch entry.
        n_samples : int
        rng : RandomState
        rounded : bool, default=False
            Whether to keep marginals, by :func:`draw_rounded`, instead of drawing each
            configuration by itself.

        Returns
        -------
        codes : ndarray of shape (n_samples, n_variables)
        """
        store, _ = tape
        codes = np.zeros((n_samples, len(self.sizes)), dtype=np.intp)
        draw = draw_rounded if rounded else _draw
        for variable in self._free:
            codes[:, variable] = rng.randint(self.sizes[variable], size=n_samples)
            if rounded:
                states = np.arange(n_samples) % self.sizes[variable]
                codes[:, variable] = rng.permutation(states)
        for step in self._steps[::-1]:
            variable = step.left.scope[0]
            weights = np.ones((n_samples, self.sizes[variable]))
            for group in (step.left, step.right):
                if group is not None:
                    product = np.moveaxis(_multiply(group, store)[0], 0, -1)
                    weights *= product[tuple(codes[:, i] for i in group.scope[1:])]
            given = np.zeros(n_samples, dtype=np.intp)
            for i in step.scope:
                given = given * self.sizes[i] + codes[:, i]
            codes[:, variable] = draw(weights, given, rng)
        return codes


def _draw(weights, given, rng):
    """Draw a state for each row by itself, with probabilities in proportion."""
    cumulative = weights.cumsum(axis=1)
    draw = rng.uniform(size=len(weights)) * cumulative[:, -1]
    return (draw[:, None] >= cumulative).sum(axis=1)


def draw_rounded(weights, given, rng):
    """Draw states such that those of like rows are as many as expected, but for one.

    Randomised rounding: rows with the same `given` have the same weights, and share
    out the states in whole numbers, each state the number that is expected of it,
    rounded up or down by systematic sampling. Offsets of neighbouring groups are spread
    evenly, by the golden ratio, so that roundings cancel out over groups. Each row has
    the probabilities that it has alone.

    Parameters
    ----------
    weights : ndarray of shape (n_samples, n_states)
    given : ndarray of int of shape (n_samples,)
    rng : RandomState

    Returns
    -------
    states : ndarray of int of shape (n_samples,)
    """
    _, first, group, sizes = np.unique(
        given, return_index=True, return_inverse=True, return_counts=True
    )
    ends = weights[first].cumsum(axis=1)
    ends *= sizes[:, None] / ends[:, -1:]
    ends[:, -1] = sizes
    offsets = (rng.uniform() + np.arange(len(sizes)) * (5**0.5 - 1) / 2) % 1
    ends = np.floor(ends + offsets[:, None]).astype(np.intp)
    counts = np.diff(ends, prepend=0, axis=1)
    states = np.repeat(np.tile(np.arange(weights.shape[1]), len(sizes)), counts.ravel())
    # who gets which of its group's states is up to chance
    order = np.lexsort([rng.uniform(size=len(group)), group])
    drawn = np.empty(len(group), dtype=np.intp)
    drawn[order] = states
    return drawn
