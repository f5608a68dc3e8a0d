"""How often configurations are to be expected where entries of rows are missing."""

import numpy as np

from skprivbn.bayesian_network._inference import (
    _bucket_scopes,
    _marginalise,
    _multiply,
    _rescale,
    min_fill_order,
    row_chunks,
)


def expected_counts(cpts, families, sizes, codes, weights=None):
    """Return the expected counts of every family: the E-step of EM.

    All rows go through one tree of cliques, whatever they miss: an observed entry is
    a factor that is zero elsewhere.

    Parameters
    ----------
    cpts : list of ndarray
        Conditional tables of all nodes.
    families : list of list of int
        The axes of each table: the parents, then the node.
    sizes : sequence of int
        Number of states of each variable.
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
    counts = [np.zeros(cpt.shape) for cpt in cpts]
    distinct, which = np.unique(codes, axis=0, return_inverse=True)
    weights = np.bincount(which.ravel(), weights=weights, minlength=len(distinct))
    tree = _CliqueTree(families, sizes)
    log_likelihood, n_impossible = 0.0, 0
    for rows in row_chunks(len(distinct), tree.cliques, sizes):
        found = tree.count(cpts, distinct[rows], weights[rows], counts)
        log_likelihood += found[0]
        n_impossible += found[1]
    return counts, log_likelihood, n_impossible


class _CliqueTree:
    """Cliques of an elimination order, through which messages go up and down."""

    def __init__(self, families, sizes):
        self.families, self.sizes = families, sizes
        self.order = min_fill_order(families, range(len(sizes)))
        self.cliques, _ = _bucket_scopes(families, self.order)
        position = {variable: i for i, variable in enumerate(self.order)}
        first = [min(family, key=position.get) for family in families]
        self.members = {v: [] for v in self.order}
        for i, variable in enumerate(first):
            self.members[variable].append(i)
        self.scopes = dict(zip(self.order, self.cliques))
        self.parent, self.children = {}, {v: [] for v in self.order}
        for variable, scope in self.scopes.items():
            rest = [v for v in scope if v != variable]
            self.parent[variable] = min(rest, key=position.get, default=None)
            if rest:
                self.children[self.parent[variable]].append(variable)

    def count(self, cpts, codes, weights, counts):
        """Add the expected counts of some rows; return what is known of them."""
        local = self._factors(cpts, codes)
        up, log_scale = {}, np.zeros(1)
        for variable in self.order:
            scope = self.scopes[variable]
            bucket = local[variable] + [up[c] for c in self.children[variable]]
            rest = tuple(v for v in scope if v != variable)
            table = _marginalise(_multiply(bucket, scope), scope, rest)
            table, log_largest = _rescale(table)
            up[variable] = rest, table
            log_scale = log_scale + log_largest
        log_scale = np.broadcast_to(log_scale, len(codes))
        possible = np.isfinite(log_scale)
        down = {}
        for variable in reversed(self.order):
            scope = self.scopes[variable]
            below = [up[child] for child in self.children[variable]]
            above = [down[variable]] if variable in down else []
            product = _multiply(local[variable] + above, scope)
            for child in self.children[variable]:
                others = [up[c] for c in self.children[variable] if c != child]
                table = product * _multiply(others, scope)
                rest = up[child][0]
                down[child] = rest, _rescale(_marginalise(table, scope, rest))[0]
            belief = product * _multiply(below, scope)
            total = belief.sum(axis=tuple(range(1, belief.ndim)))
            share = np.where(possible, weights, 0.0) / np.where(total > 0, total, 1.0)
            belief = np.broadcast_to(belief, (len(codes), *belief.shape[1:]))
            # over rows at once: a clique is small, and rows are many
            summed = np.tensordot(share, belief, axes=1)[np.newaxis]
            for i in self.members[variable]:
                family = self.families[i]
                table = _marginalise(summed, scope, family)[0]
                counts[i] += table.transpose([sorted(family).index(v) for v in family])
        known = np.sum(weights * np.where(possible, log_scale, 0.0))
        return float(known), int(weights[~possible].sum())

    def _factors(self, cpts, codes):
        """Return tables and observed entries, where they are multiplied."""
        local = {}
        for variable, members in self.members.items():
            local[variable] = []
            for i in members:
                family = self.families[i]
                table = cpts[i].transpose([family.index(v) for v in sorted(family)])
                local[variable].append((tuple(sorted(family)), table[np.newaxis]))
            size, column = self.sizes[variable], codes[:, [variable]]
            seen = (column == np.arange(size)) | (column < 0)
            if not seen.all():
                local[variable].append(((variable,), seen.astype(float)))
        return local
