"""Contingency tables: which, what one person adds to them, counted, and noisy.

Counts are integers throughout: contributions that are fractions of a record are
rounded down to multiples of ``2 ** -FRACTION_BITS`` and counted in these units. Tables
of several cliques are one vector.
"""

from dataclasses import dataclass
from math import prod
from numbers import Integral

import numpy as np

from skprivbn.graphical_model._elimination import EliminationPlan, elimination_order
from skprivbn.graphical_model._loopy import LoopyPropagation, comes_to_rest
from skprivbn.utils import warn_user

#: most sets of variables asked for in one pass
_MAX_TOGETHER = 60
FRACTION_BITS = 10


def resolve_cliques(cliques, nodes):
    """Return cliques as tuples of column positions.

    Parameters
    ----------
    cliques : {"chain", "tree"} or sequence of sequences of str or int
        "chain" joins neighbouring columns, "tree" every column with the last one;
        otherwise the columns of each clique, by name or position.
    nodes : sequence of str
        Names of the columns.

    Returns
    -------
    cliques : list of tuple of int
    """
    n = len(nodes)
    if isinstance(cliques, str):
        if n == 1:
            return [(0,)]
        if cliques == "chain":
            return [(i, i + 1) for i in range(n - 1)]
        return [(i, n - 1) for i in range(n - 1)]
    resolved = []
    for clique in cliques:
        members = [clique] if isinstance(clique, str | int | np.integer) else clique
        positions = tuple(_position(member, nodes) for member in members)
        if not positions:
            raise ValueError("a clique in cliques is empty: name at least one column")
        if len(set(positions)) != len(positions):
            raise ValueError(f"clique {clique!r} names a column twice")
        if frozenset(positions) in map(frozenset, resolved):
            raise ValueError(
                f"clique {clique!r} is given twice; it would be counted, and paid for, "
                "twice"
            )
        resolved.append(positions)
    if not resolved:
        raise ValueError("cliques is empty: give at least one clique of columns")
    return resolved


def _position(member, nodes):
    if isinstance(member, int | np.integer) and -len(nodes) <= member < len(nodes):
        return int(member) % len(nodes)
    if isinstance(member, str) and member in nodes:
        return list(nodes).index(member)
    raise ValueError(
        f"a clique names {member!r}, which is no column of X; the columns are "
        f"{list(nodes)}"
    )


def resolve_ties(cliques, stationary):
    """Return cliques (perhaps with one more) and the number of each one's table.

    In a stationary field columns are time steps: cliques that are shifts of each other
    share a table, and the first time step gets a table of its own, so that the chain
    may start anywhere.
    """
    if not stationary:
        return cliques, np.arange(len(cliques))
    if (0,) not in cliques:
        cliques = [(0,), *cliques]
    numbers, ties = {}, []
    for clique in cliques:
        shape = tuple(i - clique[0] for i in clique)
        key = clique if len(clique) == 1 else shape
        ties.append(numbers.setdefault(key, len(numbers)))
    return cliques, np.array(ties)


@dataclass(frozen=True)
class Contribution:
    """How much one person may add to the tables.

    Parameters
    ----------
    kind : {"record", "normalize", "clip"}
        One row per person; or several rows, each person's rows adding up to one
        record per clique; or several rows of which at most `max_records` count.
    max_records : int, default=1
        See "clip". Public.
    max_weight : int, default=1
        Bound on sample weights. Public.
    null_codes : tuple of int or None, default=None
        Code of each column's null state, -1 for columns without one. Rows whose
        clique is all null add nothing.
    """

    kind: str = "record"
    max_records: int = 1
    max_weight: int = 1
    null_codes: tuple[int, ...] | None = None

    def __post_init__(self):
        # Settings come from the coordinator: with a kind that no rule below knows, or
        # a bound of nothing, a person's records would count beyond the noise.
        if self.kind not in ("record", "normalize", "clip"):
            raise ValueError(f"unknown kind of contribution {self.kind!r}")
        for bound in (self.max_records, self.max_weight):
            if not isinstance(bound, Integral) or bound < 1:
                raise ValueError("max_records, max_weight: integers of at least 1")
        if self.kind != "clip" and self.max_records != 1:
            raise ValueError("max_records is for contribution='clip' only")

    @property
    def unit(self):
        """Integer counts per record."""
        return 2**FRACTION_BITS if self.kind == "normalize" else 1

    @property
    def per_clique(self):
        """Most that one person adds to the table of one clique, in integer counts."""
        return self.unit * self.max_records * self.max_weight


def norms(changes):
    """Return L1 and L2 norm of the changes that one person makes.

    Parameters
    ----------
    changes : sequence of int

    Returns
    -------
    l1, l2 : int, float
    """
    changes = np.asarray(changes, dtype=np.int64)
    return int(changes.sum()), float(np.sqrt(np.sum(changes.astype(float) ** 2)))


def count_tables(codes, layout, contribution, individual=None, weight=None):
    """Count all tables.

    Parameters
    ----------
    codes : ndarray of int of shape (n_samples, n_columns)
        -1 is missing: the row is left out of the cliques that need the entry.
    layout : TableLayout
        Which tables.
    contribution : Contribution
        What one person may add.
    individual : ndarray of shape (n_samples,), default=None
        Who stands behind each row.
    weight : ndarray of int of shape (n_samples,), default=None
        Sample weights, at most ``contribution.max_weight``.

    Returns
    -------
    counts : ndarray of int64 of shape (n_parameters,)
        In units of ``1 / contribution.unit`` records.
    """
    if contribution.kind != "record":
        _, person = np.unique(individual, return_inverse=True)
    if contribution.kind == "clip":
        keep = _occurrence(person) < contribution.max_records
        codes, person = codes[keep], person[keep]
        weight = None if weight is None else weight[keep]
    counts = np.zeros(layout.n_parameters, dtype=np.int64)
    tables = layout.split(counts)
    columns, null_codes = np.ascontiguousarray(codes.T), contribution.null_codes
    partly = (columns < 0).any(axis=1) | (null_codes is not None)
    for clique, number in zip(layout.cliques, layout.ties):
        own, shape, counted = list(clique), tables[number].shape, slice(None)
        if partly[own].any():
            counted = (columns[own] >= 0).all(axis=0)
        if null_codes is not None:
            null = np.array(null_codes)[own, None]
            counted &= (columns[own] != null).any(axis=0)
        cells = columns[own[0]]
        for i, size in zip(own[1:], shape[1:]):
            cells = cells * size
            cells += columns[i]
        cells = cells[counted]
        if contribution.kind == "normalize":
            owners = person[counted]
            n_records = np.bincount(owners, minlength=person.max(initial=0) + 1)
            amount = contribution.unit // n_records[owners]
        elif weight is not None:
            amount = weight[counted]
        else:
            amount = None
        tables[number] += _integer_bincount(cells, amount, shape)
    return counts


def _integer_bincount(cells, amount, shape):
    n_cells = int(np.prod(shape))
    if amount is None:
        return np.bincount(cells, minlength=n_cells).reshape(shape)
    total = np.zeros(n_cells, dtype=np.int64)
    np.add.at(total, cells, amount)
    return total.reshape(shape)


def _occurrence(person):
    """For each row, how many earlier rows the same person, a number, has."""
    n_rows, rank = np.bincount(person), np.empty(len(person), dtype=np.intp)
    starts = np.repeat(np.cumsum(n_rows) - n_rows, n_rows)
    rank[np.argsort(person, kind="stable")] = np.arange(len(person)) - starts
    return rank


class TableLayout:
    """Where the cells of every table sit in a flat vector of parameters.

    One table of log-potentials per clique, or per group of tied cliques. The
    released contingency tables have the same layout: a tied table counts the sum
    over its cliques.

    Parameters
    ----------
    cliques : list of tuple of int
        Scopes.
    sizes : sequence of int
        Number of states of each variable.
    ties : sequence of int, default=None
        Number of the table of each clique; by default every clique has its own.
    support : bool or ndarray of bool of shape (n_parameters,), default=True
        False for structural zeros: configurations that cannot occur.
    inference : object, default=None
        Has ``forward(tables)`` and ``backward(tape)`` like :class:`EliminationPlan`,
        which is the default.
    """

    def __init__(self, cliques, sizes, ties=None, support=True, inference=None):
        self.cliques = [tuple(int(i) for i in clique) for clique in cliques]
        self.sizes = tuple(int(size) for size in sizes)
        self.ties = np.arange(len(cliques)) if ties is None else np.asarray(ties)
        self._inference = inference
        n_tables = self.ties.max(initial=-1) + 1
        self.shapes = [None] * n_tables
        for clique, table in zip(self.cliques, self.ties):
            self.shapes[table] = tuple(self.sizes[i] for i in clique)
        self.n_cells = np.array([prod(shape) for shape in self.shapes], dtype=int)
        #: number of cliques that each table sums over
        self.multiplicity = np.bincount(self.ties, minlength=n_tables)
        self.starts = np.concatenate([[0], np.cumsum(self.n_cells)])[:-1].astype(int)
        self.n_parameters = int(self.n_cells.sum())
        self.support = np.broadcast_to(support, self.n_parameters)
        self._slices = [
            slice(start, start + n) for start, n in zip(self.starts, self.n_cells)
        ]

    @property
    def inference(self):
        """What computes marginals; planned when first needed."""
        if self._inference is None:
            self._inference = EliminationPlan(self.cliques, self.sizes)
        return self._inference

    def split(self, vector):
        """Views of a flat vector as tables."""
        return [vector[s].reshape(shape) for s, shape in zip(self._slices, self.shapes)]

    def flatten(self, tables):
        """Flat vector from a list of tables."""
        return np.concatenate([np.ravel(table) for table in tables])

    def spread(self, per_table):
        """Repeat one number per table over its cells."""
        return np.repeat(per_table, self.n_cells)

    def potentials(self, theta):
        """Linear-space tables of all cliques (with a batch axis), and log scale."""
        peak = np.maximum.reduceat(theta, self.starts)
        linear = np.exp(theta - self.spread(peak)) * self.support
        tables = self.split(linear)
        return [tables[g][None] for g in self.ties], peak[self.ties].sum()

    def marginals(self, theta):
        """Log-partition function and its gradient.

        The gradient holds the marginal probabilities of every clique, summed over
        tied cliques.
        """
        tables, scale = self.potentials(theta)
        log_partition, tape = self.inference.forward(tables)
        gradient = np.zeros(self.n_parameters)
        views = self.split(gradient)
        for table, marginal in zip(self.ties, self.inference.backward(tape)):
            views[table] += marginal[0]
        return float(log_partition[0] + scale), gradient

    def query(self, theta, scopes, max_cells):
        """Model marginals of many sets of variables, cliques or not.

        Tables of ones for some of them are put beside the potentials, as many as keep
        the largest bucket below `max_cells`; their marginals come out together.

        Parameters
        ----------
        theta : ndarray of shape (n_parameters,)
        scopes : list of tuple of int
        max_cells : int
            A set that exceeds it on its own is computed all the same.

        Returns
        -------
        marginals : list of ndarray
        """
        tables, _ = self.potentials(theta)
        found, left = {}, list(dict.fromkeys(map(tuple, scopes)))
        while left:
            group, rest = left[:1], []
            for scope in left[1:]:
                together = self.cliques + group + [scope]
                fits = len(group) < _MAX_TOGETHER and (
                    elimination_order(together, self.sizes)[1] <= max_cells
                )
                (group if fits else rest).append(scope)
            plan = EliminationPlan(self.cliques + group, self.sizes)
            ones = [np.ones((1, *(self.sizes[i] for i in scope))) for scope in group]
            marginals = plan.backward(plan.forward(tables + ones)[1])
            found.update(zip(group, (m[0] for m in marginals[len(tables) :])))
            left = rest
        return [found[tuple(scope)] for scope in scopes]


def check_table_sizes(cliques, sizes, max_cells):
    """Raise if the tables together have more than `max_cells` cells."""
    n_cells = sum(prod(sizes[i] for i in clique) for clique in cliques)
    if n_cells > max_cells:
        raise ValueError(
            f"the tables have {n_cells:.3g} cells, more than max_cells={max_cells}: "
            "use smaller cliques or coarser states"
        )


def choose_inference(inference, cliques, sizes, max_cells):
    """Exact inference if its largest table has at most `max_cells` cells, else loopy.

    Parameters
    ----------
    inference : {"auto", "exact", "loopy", "nlbp"}
        "loopy" is always approximate; "exact" raises instead of falling back. The
        others raise where falling back would not work either.
    cliques : list of tuple of int
    sizes : sequence of int
    max_cells : int

    Returns
    -------
    engine : EliminationPlan or LoopyPropagation
    """
    if inference == "loopy":
        return LoopyPropagation(cliques, sizes, warm_start=True)
    _, largest = elimination_order(cliques, sizes)
    if largest <= max_cells:
        return EliminationPlan(cliques, sizes)
    message = (
        f"exact inference would need tables of {largest:.3g} cells, more than "
        f"max_cells={max_cells}"
    )
    if inference == "exact":
        raise ValueError(f"{message}: use fewer cliques, or inference='loopy'")
    if not comes_to_rest(cliques, sizes):
        raise ValueError(
            f"{message}, and loopy belief propagation does not converge on so dense a "
            "graph: use cliques='aim', which bounds the size of the model, fewer "
            "cliques, a larger max_cells, or inference='loopy' to try all the same"
        )
    warn_user(f"{message}; loopy belief propagation is used, which is approximate")
    return LoopyPropagation(cliques, sizes, warm_start=True)


def support_of(layout, structural_zeros, nodes):
    """Flat boolean vector, False for configurations that cannot occur."""
    support = np.ones(layout.n_parameters, dtype=bool)
    tables = layout.split(support)
    for clique, zeros in structural_zeros.items():
        (scope,) = resolve_cliques([clique], nodes)
        if scope not in layout.cliques:
            raise ValueError(
                f"structural_zeros names {clique!r}, which is none of the cliques"
            )
        table = tables[layout.ties[layout.cliques.index(scope)]]
        zeros = np.asarray(zeros, dtype=bool)
        if zeros.shape != table.shape or zeros.all():
            raise ValueError(
                f"structural_zeros of {clique!r} must be booleans of shape "
                f"{table.shape}, not all True"
            )
        table &= ~zeros
    return support


def layout_for(learner, states, cliques, ties=None):
    """Where the tables of cliques sit, and how a learner computes with the field.

    Parameters
    ----------
    learner : DPCGMLearner
        Says how, by its settings.
    states : dict of str to tuple
    cliques : list of tuple of int
    ties : sequence of int, default=None

    Returns
    -------
    layout : TableLayout
    """
    settings = learner._settings
    if settings.stationary and len(set(states.values())) > 1:
        raise ValueError(
            "stationary=True needs columns with the same states at every time step"
        )
    sizes, max_cells = [len(labels) for labels in states.values()], settings.max_cells
    check_table_sizes(cliques, sizes, max_cells)
    inference = choose_inference(settings.inference, cliques, sizes, max_cells)
    layout = TableLayout(cliques, sizes, ties, inference=inference)
    zeros = settings.structural_zeros or {}
    layout.support = support_of(layout, zeros, list(states))
    return layout


@dataclass(frozen=True)
class NoisyTables:
    """Contingency tables as released, and how noisy they are.

    Parameters
    ----------
    layout : TableLayout
        Which cliques the tables count.
    values : ndarray of shape (n_parameters,)
        Noisy counts, in records. May be negative.
    std : ndarray of shape (n_tables,)
        Standard deviation of the noise on the cells of each table, in records.
    kind : {"laplace", "gaussian", "none"}
        Distribution of the noise.
    """

    layout: TableLayout
    values: np.ndarray
    std: np.ndarray
    kind: str

    def __post_init__(self):
        # structural zeros are known to be zero: the noise on them says nothing
        object.__setattr__(self, "values", self.values * self.layout.support)

    @property
    def n_cells(self):
        """Number of cells that carry information."""
        return int(self.layout.support.sum())

    @property
    def variance(self):
        """Variance of the noise on every cell."""
        return self.layout.spread(self.std**2)

    @property
    def absolute_noise_ratio(self):
        """Mean absolute noise as a share of its standard deviation."""
        return np.sqrt(0.5) if self.kind == "laplace" else np.sqrt(2 / np.pi)

    @property
    def mean_absolute_noise(self):
        """Mean absolute noise on every cell: the scale, for Laplace noise."""
        return self.layout.spread(self.std * self.absolute_noise_ratio)

    @property
    def fourth_moment_excess(self):
        """E[(z^2 - 1)^2] of the standardised noise z."""
        return 5.0 if self.kind == "laplace" else 2.0

    def n_records(self):
        """Estimate the number of records: every table counts them all.

        Table totals are averaged with weights inverse to their noise variance. At
        least 1, whatever the noise.
        """
        weights = self._weights
        return max(float(self.totals @ weights / weights.sum()), 1.0)

    @property
    def totals(self):
        """Noisy number of records that each table counts."""
        sums = np.add.reduceat(self.values, self.layout.starts)
        return sums / self.layout.multiplicity

    @property
    def totals_variance(self):
        """Variance of the noise on each total."""
        return self.std**2 * self.layout.n_cells / self.layout.multiplicity**2

    @property
    def n_records_std(self):
        """Standard deviation of the noise on the number of records."""
        return float(self._weights.sum() ** -0.5)

    @property
    def _weights(self):
        variances = self.totals_variance
        return 1 / np.maximum(variances, 1e-12 * max(variances.max(), 1.0))

    def rescaled(self):
        """Scale every table to the same number of records.

        For tables that lack rows with missing entries, and so have different totals.
        """
        layout, n_records = self.layout, self.n_records()
        factors = n_records / np.maximum(self.totals, 1.0)
        values = self.values * layout.spread(factors)
        return NoisyTables(layout, values, self.std * factors, self.kind)

    def describe(self, field, n_records):
        """Return released marginals, their standard errors, and the error to expect.

        Total variation to expect between the field's marginals and the rows' tables is
        half the mean absolute noise of each cell; but a cell that noise drowns is
        estimated close to zero, and so wrong by no more than its count.

        Parameters
        ----------
        field : MarkovRandomField
            Fitted to the tables.
        n_records : float
            Number of records.

        Returns
        -------
        released, std : dict of tuple of str to ndarray
            Marginals as released, and their standard errors.
        errors : dict of tuple of str to float
            Total variation to expect.
        """
        layout, (released, std, errors) = self.layout, ({}, {}, {})
        values, ratio = layout.split(self.values), self.absolute_noise_ratio
        for (clique, fitted), table in zip(field.marginals().items(), layout.ties):
            total = layout.multiplicity[table] * n_records
            p, noise = np.clip(fitted, 0, 1), self.std[table] / total
            released[clique] = values[table] / total
            std[clique] = np.sqrt(p * (1 - p) / n_records + noise**2)
            errors[clique] = float(np.minimum(ratio * noise, fitted).sum() / 2)
        return released, std, errors


def project_to_simplex(vector, total=1.0):
    """Closest vector (Euclidean) with non-negative entries that sum to `total`.

    References
    ----------
    J. Duchi, S. Shalev-Shwartz, Y. Singer, T. Chandra (2008). Efficient projections
    onto the l1-ball for learning in high dimensions. ICML.
    """
    descending = np.sort(vector)[::-1]
    thresholds = (np.cumsum(descending) - total) / np.arange(1, vector.size + 1)
    threshold = thresholds[np.flatnonzero(descending > thresholds)[-1]]
    return np.maximum(vector - threshold, 0.0)
