"""Families whose columns have several holders: what is counted, and what follows.

The counts of ``F + candidate`` are a table. Of what is known already, each of these
leaves one entry less of an axis to be computed on shares:

- the counts of F, kept from the step before: the candidate's last state;
- those of ``F + candidate`` without the newest member of F, which was a candidate in
  the step before, too: the newest member's last state;
- the counts of the newest member and the candidate by themselves, since the first step
  has counted all pairs: the last configuration of all other members, if these have one
  holder;
- otherwise, if all but the holder of candidate and newest member are one, the former's
  own counts: the last configuration of the latter.

All of these are shares already, or counts of one holder. What follows is a sum of
shares, so nobody learns more than from the table itself.
"""

from math import prod

import numpy as np

from skprivbn.crypto.shares import Indicators, JointTable

_CHUNK = 1 << 16


def _signed(n):
    """Return the smallest type of numbers from -1 to n: records are many."""
    return np.min_scalar_type(-1 - n)


class OwnColumns:
    """The columns of this party.

    Parameters
    ----------
    columns : dict of int to ndarray
        The code of every record, by variable.
    n_states : tuple of int
        Of all variables.
    n_samples : int
    """

    def __init__(self, columns, n_states, n_samples):
        self._columns, self._n_states = columns, n_states
        self._n_samples = n_samples

    def counts(self, variables):
        """Count the configurations of some variables."""
        shape = [self._n_states[v] for v in variables]
        counts = 0
        for start in range(0, self._n_samples, _CHUNK):
            codes = self.codes(variables, slice(start, start + _CHUNK))
            counts += np.bincount(codes, minlength=prod(shape))
        return counts.reshape(shape)

    def codes(self, variables, rows):
        """Number the configurations of some variables, the last fastest."""
        n_cells = prod(self._n_states[v] for v in variables)
        joint = np.zeros(len(range(self._n_samples)[rows]), dtype=_signed(n_cells))
        for v in variables:
            joint *= joint.dtype.type(self._n_states[v])
            joint += self._columns[v][rows].astype(joint.dtype)
        return joint


class Crossing:
    """Families of a node and candidates of one owner that cross parties; public.

    Parameters
    ----------
    plan : K2Plan
    family : list of int
        The node and its parents so far, the newest last.
    chosen : list of int
        Candidates, all of the first holder.
    holders : list of str
        Of family and candidates, the candidates' owner first.
    """

    def __init__(self, plan, family, chosen, holders):
        self.family, self.chosen, self.holders = tuple(family), chosen, holders
        self._n_states = plan.n_codes
        self._newest = family[-1] if len(family) > 1 else None
        self._held, self._others = {}, {}
        for name in holders:
            held = [v for v in family if plan.owners[v] == name]
            self._held[name] = held
            self._others[name] = [v for v in held if v != self._newest]
        with_others = [name for name in holders if self._others[name]]
        owner, *rest = holders
        self._by_pairs = len(with_others) == 1
        if self._by_pairs:
            (self._follows,) = with_others
        elif len(rest) == 1 and self._newest in self._held[owner]:
            (self._follows,) = rest
        else:
            self._follows = None
        self.n_columns = [
            sum(self._n_cells(candidate) for candidate in chosen),
            *(prod(self._kept(name)) for name in rest),
        ]

    def _kept(self, name):
        """Configurations of a holder that are counted: of others, of the newest."""
        n_others = prod(self._n_states[v] for v in self._others[name])
        n_newest = 1
        if self._newest in self._held[name]:
            n_newest = self._n_states[self._newest] - 1
        return n_others - (name == self._follows), n_newest

    def _n_cells(self, candidate):
        return prod(self._kept(self.holders[0])) * (self._n_states[candidate] - 1)

    def table(self, name, own):
        """Return what has to be counted together, as one of the holders sees it."""
        if name == self.holders[0]:
            blocks = [self._block(name, own, candidate) for candidate in self.chosen]
        else:
            blocks = [self._block(name, own)]
        return JointTable(self.holders, Indicators(blocks), self.n_columns)

    def _block(self, name, own, candidate=None):
        """Own configurations that are counted, each with a candidate's states."""
        axes = [(self._others[name], self._kept(name)[0])]
        if self._newest in self._held[name]:
            axes.append(([self._newest], self._kept(name)[1]))
        if candidate is not None:
            axes.append(([candidate], self._n_states[candidate] - 1))

        n_columns = prod(n_kept for _, n_kept in axes)
        dtype = _signed(prod(self._n_states[v] for held, _ in axes for v in held))

        def codes(rows):
            joint, counted = dtype.type(0), True
            for variables, n_kept in axes:
                code = own.codes(variables, rows).astype(dtype)
                joint = joint * dtype.type(n_kept) + code
                counted = counted & (code < n_kept)
            return np.where(counted, joint, dtype.type(-1))

        return codes, n_columns

    def complete(self, name, own, products, known):
        """Yield (family, own shares of its counts), with what follows.

        Parameters
        ----------
        name : str
            Of this party, one of the holders.
        own : OwnColumns
        products : ndarray of shape `n_columns`
            Own shares of what was counted.
        known : callable
            Own shares of the counts of a family; None if this party has none.

        Yields
        ------
        family : tuple of int
        counts : ndarray
        """
        start = 0
        for candidate in self.chosen:
            stop = start + self._n_cells(candidate)
            part = self._add_last_configuration(
                name, own, products[start:stop], candidate, known
            )
            axes = [*self._held[self.holders[0]], candidate]
            axes += [v for other in self.holders[1:] for v in self._held[other]]
            shape = [self._n_states[v] - (v in (self._newest, candidate)) for v in axes]
            family = (*self.family, candidate)
            part = part.reshape(shape).transpose([axes.index(v) for v in family])
            if self._newest is not None:
                before = known((*self.family[:-1], candidate))
                if before is not None:
                    before = before[..., None, :-1]
                part = _add_last(part, -2, before)
            before = known(self.family)
            if before is not None:
                before = before[..., None]
            yield family, _add_last(part, -1, before)
            start = stop

    def _add_last_configuration(self, name, own, part, candidate, known):
        """Complete the axis of the holder whose last configuration was left out."""
        if self._follows is None:
            return part
        owner, *rest = self.holders
        shape = [*self._kept(owner), self._n_states[candidate] - 1]
        for other in rest:
            shape += self._kept(other)
        # two axes for every holder, and that of the candidate after its owner's
        place = self.holders.index(self._follows)
        axis = 2 * place + (place > 0)
        margin = self._margin(name, own, candidate, known)
        if margin is not None:
            shape_of_margin = list(shape)
            shape_of_margin[axis] = 1
            margin = margin.reshape(shape_of_margin)
        return _add_last(part.reshape(shape), axis, margin)

    def _margin(self, name, own, candidate, known):
        """Own shares of the sum over an axis: of what is counted, all but last states.

        Axes are in the order of the holders.
        """
        owner, newest = self.holders[0], self._newest
        if self._by_pairs and newest is not None:
            pair = known((newest, candidate))
            if pair is None:
                pair = known((candidate, newest))
                pair = None if pair is None else pair.T
            if pair is None:
                return None
            pair = pair[:-1, :-1]
            return pair if newest in self._held[owner] else pair.T
        if name != owner:
            return None
        margin = own.counts([*self._held[owner], candidate])[..., :-1]
        return margin if newest is None else margin[..., :-1, :]


def _add_last(part, axis, total):
    """Complete an axis, given own shares of the sum over it, if there are any."""
    last = -part.sum(axis=axis, keepdims=True, dtype=part.dtype)
    if total is not None:
        last += total.astype(part.dtype)
    return np.concatenate([part, last], axis=axis)
