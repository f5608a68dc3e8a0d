"""Shares of how many records have one configuration here and another one there.

Each holder of columns knows, for every record, which of its own configurations the
record has. The count of a joint configuration is the sum over records of a product of
indicators, one per holder, and ends as additive shares among the holders.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from skprivbn.crypto.shares._conversation import together
from skprivbn.crypto.shares._ot_extension import branch_links
from skprivbn.crypto.shares._tree_counts import TreeProducts, tree_counts

#: of one table, and of all that are counted at a time
_CHUNK_BYTES = 1 << 22
_TOTAL_BYTES = 1 << 26


class Indicators:
    """One holder's configurations of every record, as one or more one-hot blocks.

    Parameters
    ----------
    blocks : list of (codes, n_columns)
        Column c of a block is 1 where the code is c; other codes have no column.
        `codes` is an array, or a function of a slice of records that computes them.
    """

    def __init__(self, blocks):
        self._blocks = blocks

    def codes(self, rows):
        """Return the blocks of some records: a list of (codes, n_columns)."""
        return [
            (codes(rows) if callable(codes) else codes[rows], n)
            for codes, n in self._blocks
        ]

    def single(self, rows):
        """Return the codes of some records, of a holder with a single block."""
        ((codes, _),) = self.codes(rows)
        return codes

    def columns(self, rows, dtype):
        """Return the indicators of some records: (m, n_columns)."""
        return np.concatenate(
            [codes[:, None] == np.arange(n) for codes, n in self.codes(rows)], axis=1
        ).astype(dtype)


@dataclass(frozen=True)
class JointTable:
    """A table of counts to share, as one of its holders sees it.

    Attributes
    ----------
    holders : sequence of str
        Two or more, this party among them.
    indicators : Indicators
        This party's own.
    n_columns : sequence of int
        Of every holder.
    """

    holders: Sequence
    indicators: Indicators
    n_columns: Sequence


def label_tables(talk, tables):
    """Return {label: table}, with labels that all holders of a table give it."""
    seen, labelled = Counter(), {}
    for table in tables:
        holders = " ".join(str(talk.roster.index(name)) for name in table.holders)
        labelled[f"{holders} {seen[holders]}"] = table
        seen[holders] += 1
    return labelled


def joint_counts(talk, links, tables, n_samples, dtype):
    """Share the counts of all combinations of holders' columns, by transfers.

    Trees of masks serve two holders. With more, the first holder's indicators are
    multiplied by the second's, record by record; of the products, both have shares, and
    with each of them the third has a tree; and so on. The last products are added up.
    Safe as long as one holder does not collude. Tables share rounds, as many as fit
    into memory.

    Parameters
    ----------
    talk, links : Conversation and dict of Link
    tables : list of JointTable
        Those of this party; in an order on which everybody agrees.
    n_samples : int
    dtype : unsigned dtype
        The ring of the shares: modulo two to its number of bits.

    Returns
    -------
    shares : list of ndarray
        Of the shapes `n_columns` of the tables.
    """
    pairs = [table for table in tables if len(table.holders) == 2]
    labelled = label_tables(talk, tables)
    more = {label: table for label, table in labelled.items() if len(table.holders) > 2}
    found = yield from together(
        talk,
        {
            "pairs": lambda branch: tree_counts(branch, links, pairs, n_samples, dtype),
            "more": lambda branch: _count_more(branch, links, more, n_samples, dtype),
        },
    )
    of_pairs = iter(found["pairs"])
    return [
        found["more"][label] if label in more else next(of_pairs) for label in labelled
    ]


def _count_more(talk, links, labelled, n_samples, dtype):
    """Share tables of more than two holders, side by side: {label: shares}."""
    sides, costs = {}, {}
    for label, table in labelled.items():
        peers = [name for name in table.holders if name != talk.name]
        sides[label] = partial(
            _count_records,
            links=branch_links(links, f"counts {label}", peers),
            table=table,
            n_samples=n_samples,
            dtype=dtype,
        )
        per_record = _record_bytes(table.n_columns, dtype)
        costs[label] = min(_CHUNK_BYTES, n_samples * per_record)
    return (yield from together(talk, sides, costs, _TOTAL_BYTES))


def _record_bytes(n_columns, dtype):
    """What a record takes: products before the last, masks, a row for each choice."""
    n_products = prod(n_columns[:-1]) * np.dtype(dtype).itemsize
    n_levels = sum(n.bit_length() for n in n_columns[1:])
    return 3 * n_products + 32 * n_levels * len(n_columns)


def _count_records(talk, links, table, n_samples, dtype):
    """Share the counts of more than two holders, some records at a time."""
    # the first holder may have several blocks; of the rest, few columns come first
    order = sorted(range(1, len(table.holders)), key=lambda i: table.n_columns[i])
    first, *others = [(table.holders[i], table.n_columns[i]) for i in (0, *order)]
    n_columns = [first[1], *(n for _, n in others)]
    held = {first[0]: np.ones(first[1], dtype=bool)}
    is_first, total = talk.name == first[0], np.zeros(prod(n_columns), dtype=dtype)
    step = max(1, _CHUNK_BYTES // max(1, _record_bytes(n_columns, dtype)))
    for start in range(0, n_samples if total.size else 0, step):
        rows = slice(start, min(n_samples, start + step))
        share = table.indicators.columns(rows, dtype) if is_first else None
        codes = None if is_first else table.indicators.single(rows)
        total += yield from _multiply(
            talk, links, held, share, others, codes, rows.stop - start, dtype
        )
    return total.reshape(n_columns).transpose(np.argsort([0, *order]))


@dataclass(frozen=True)
class SharedNumbers:
    """Numbers of every record that parties have shares of, and a party's own shares.

    Attributes
    ----------
    held : dict of str to ndarray of bool of shape (n_numbers,)
        By party: the numbers of which it has a share. Public.
    shares : ndarray of shape (n_records, n_held), unsigned
        Own shares of these; they add up modulo two to the number of their bits.
    """

    held: dict
    shares: np.ndarray


def joint_sums(talk, links, numbers, asked):
    """Share the sums of numbers over the records of every joint configuration.

    One holder after another multiplies all shares by the indicators of its own
    configurations, as counts of more than two holders are made.

    Parameters
    ----------
    talk, links : Conversation and dict of Link
    numbers : SharedNumbers
    asked : list of (holders, codes)
        Of every list of sums: who has configurations and how many, [(name, number)],
        and the own one of every record, if there is one.

    Returns
    -------
    sums : list of ndarray of shape (n_numbers, n_configurations)
        Own shares; configurations in the order of the holders, the last fastest.
    """
    width, (n_records, _) = len(next(iter(numbers.held.values()))), numbers.shares.shape
    dtype, sides, costs = numbers.shares.dtype, {}, {}
    for place, (holders, codes) in enumerate(asked):
        label = f"sums {place}"
        per_record = _record_bytes([width, *(n for _, n in holders)], dtype)
        step = max(1, _CHUNK_BYTES // per_record)
        sides[label] = partial(
            _sum_records,
            links=branch_links(links, label),
            numbers=numbers,
            holders=holders,
            codes=codes,
            step=step,
        )
        costs[label] = min(step, n_records) * per_record
    found = yield from together(talk, sides, costs, _TOTAL_BYTES)
    return [total.reshape(width, -1) for total in found.values()]


def _sum_records(talk, links, numbers, holders, codes, step):
    """Share one list of sums, some records at a time."""
    total = 0
    for start in range(0, len(numbers.shares), step):
        share = numbers.shares[start : start + step]
        own = None if codes is None else codes[start : start + step]
        total = total + (
            yield from _multiply(
                talk, links, numbers.held, share, holders, own, len(share), share.dtype
            )
        )
    return total


def _multiply(talk, links, held, share, holders, codes, n_records, dtype):
    """Multiply shares by the indicators of one holder after another, and add up.

    Parameters
    ----------
    talk, links : Conversation and dict of Link
    held : dict of str to ndarray of bool of shape (width,)
        Numbers of which each party has a share in the beginning.
    share : ndarray of shape (n_records, n_held)
        Own shares, if this party has any.
    holders : list of (name, n_columns)
        Each once.
    codes : ndarray of int of shape (n_records,)
        If this party is one of the holders: its own configurations.
    n_records : int
    dtype : unsigned dtype

    Returns
    -------
    share : ndarray of shape (width * product of all n_columns,)
    """
    width, held, n_cells, steps = len(next(iter(held.values()))), dict(held), 1, []
    mine = held.get(talk.name, np.zeros(width, dtype=bool))
    for name, n_columns in holders:
        others = {peer: mask for peer, mask in held.items() if peer != name}
        steps.append((name, n_columns, n_cells, others))
        held[name], n_cells = np.ones(width, dtype=bool), n_cells * n_columns

    def products(step, peer):
        _, n_columns, n_before, others = step
        n_numbers = int(np.count_nonzero(others[peer])) * n_before
        last = step is steps[-1]
        return TreeProducts(n_numbers, n_columns, n_records, dtype, last)

    found = {}

    def ask(step):
        for peer in step[3]:
            found[peer] = products(step, peer)
            found[peer].ask(talk, links[peer], peer, codes)

    # All choices are known from the start: they leave in one round, but for those of
    # parties that are asked themselves before, whose answers come first.
    for step in steps:
        if step[0] == talk.name and not mine.any():
            ask(step)
    for step in steps:
        name, n_columns, n_before, others = step
        if name == talk.name:
            if mine.any():
                ask(step)
            # of peers that have no share of a number, the product is the own one
            n_after, last = n_before * n_columns, step is steps[-1]
            wide = np.zeros((1 if last else n_records, width * n_after), dtype=dtype)
            if mine.any():
                chosen = np.repeat(mine, n_after)
                wide[:, chosen] = _by_configuration(share, codes, n_columns, last)
            for peer, of_peer in found.items():
                part = yield from of_peer.use_answer(talk, links[peer], peer)
                wide[:, np.repeat(others[peer], n_after)] += part
            share, mine = wide, held[name]
        elif talk.name in others:
            answer = products(step, talk.name).answer(talk, links[name], name, share)
            share = yield from answer
    total = np.zeros(width * n_cells, dtype=dtype)
    if mine.any():
        total[np.repeat(mine, n_cells)] = share.sum(axis=0, dtype=dtype)
    return total


def _by_configuration(share, codes, n_columns, added_up):
    """Own products with own indicators: of every record, or added up."""
    indicators = (codes[:, None] == np.arange(n_columns)).astype(share.dtype)
    if added_up:
        return (share.T @ indicators).reshape(1, -1)
    return (share[:, :, None] * indicators[:, None]).reshape(len(share), -1)
