"""Collective learning between sites (Chen, Sivakumar and Kargupta, 2004).

Every site learns a network of its own columns. The first of them is the centre: it
learns the links between sites, either from some rows that the others send it or from
tables that they count together without showing rows, and tells them the result.
"""

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any, Literal

import numpy as np

from skprivbn.bayesian_network._base import MAX_STATES, check_states
from skprivbn.bayesian_network._dag import graph_of, parents_of
from skprivbn.crypto.shares import Conversation, bit_length_dtype
from skprivbn.crypto.shares._conversation import is_array
from skprivbn.exceptions import ProtocolError
from skprivbn.federation import Me, PartyRefusal, TooFewRows, converse, program
from skprivbn.federation.program import require
from skprivbn.programs._columns import compare, find_records, finish, start_talk
from skprivbn.structure._discrete_columns import LabelTerms, read_codes
from skprivbn.structure._scores import TableScores
from skprivbn.structure._search import complete
from skprivbn.structure._tables import HIDDEN, AskedTables
from skprivbn.structure.collective._site import (
    Site,
    common_lowest,
    n_lowest,
    row_weights,
)
from skprivbn.structure.collective._structure import (
    crossing,
    explaining_away,
    families_across,
    joining_graphs,
    largest_table,
    learning_structure,
    scores_of_rows,
)
from skprivbn.utils._memoise import asking_others


@dataclass(frozen=True)
class LocalModels:
    """What was learnt of columns before, if new rows are to be added.

    Parameters
    ----------
    parents : list of list of int
        Of every column, within its site.
    counts : list of ndarray
        Of every column with these.
    cuts : dict of str to (float or None)
        By site, the log-likelihood below which a row does not fit its own network.
    """

    parents: list[list[int]]
    counts: list[np.ndarray]
    cuts: dict[str, float | None]

    def check(self, owners: list[str]) -> None:
        """Raise ValueError unless these are models of the sites' own columns."""
        if not len(self.parents) == len(self.counts) == len(owners):
            raise ValueError("model: parents and counts of every column")
        for owner, parents in zip(owners, self.parents):
            if any(u not in range(len(owners)) or owners[u] != owner for u in parents):
                raise ValueError("model: parents are columns of the same site")

    @property
    def leaves_rows_out(self) -> bool:
        """Whether some site counts fitting rows only."""
        return any(cut is not None for cut in self.cuts.values())


@dataclass(frozen=True)
class CollectiveTerms(LabelTerms):
    """What sites learn by themselves, and how the centre learns the links.

    Parameters
    ----------
    parents : list of list of int or None
        Of every column, if the graph is known.
    model : LocalModels or None
    """

    names: list[str]
    parents: list[list[int]] | None
    ordering: list[int] | None
    method: str
    max_parents: int
    significance: float
    post_process: bool
    min_cell_count: int
    alpha: float
    disclosure: Literal["private_counts", "rows"]
    selection: str
    fraction: float
    n_std: float | None
    seed: bytes
    model: LocalModels | None

    def check(self):
        """Refuse lists that are not as long as there are columns, and made-up models.

        Tables with and without a few rows would tell these: rows are left out by a
        threshold only where rows may be shown.
        """
        for values in (self.names, self.states, self.parents, self.ordering):
            if values is not None and len(values) != len(self.owners):
                raise ValueError("names, states, parents: one for each column")
        for name, labels in zip(self.names, self.states or []):
            if len(labels or []) > MAX_STATES:
                raise ValueError(
                    f"column {name!r} has {len(labels)} states, more than "
                    f"{MAX_STATES}: merge some"
                )
        if self.shows_rows() and self.min_cell_count > 1:
            raise ValueError(
                "min_cell_count is about counts that are opened, and disclosure='rows' "
                "shows rows: choose disclosure='private_counts'"
            )
        if self.model is not None:
            self.model.check(self.owners)
            if self.model.leaves_rows_out and self.disclosure != "rows":
                raise ValueError("model: thresholds are for rows that are sent")

    def shows_rows(self):
        """Tell whether the centre gets to see rows."""
        return self.disclosure == "rows"

    def learning_structure(self, scores, ordering):
        """Search as all sides do."""
        return learning_structure(
            scores,
            ordering=ordering,
            method=self.method,
            max_parents=self.max_parents,
            significance=self.significance,
        )


#: what is found where there are no links to learn, or nothing to learn them from
NO_LINKS: dict[str, Any] = {
    "parents": None,
    "removed": [],
    "cross_counts": [],
    "cuts": {},
    "n_sent": 0,
    "n_hidden": 0,
}


@program(CollectiveTerms)
def collective(me: Me) -> Generator[Any, Any, dict]:
    """Learn the network of the own columns; then the links between sites, together.

    As in the paper: every site learns a network of its own columns; all choose rows
    that no site explains well (or none, and count together instead); the centre learns
    the links between sites, and adds them to the local networks.
    """
    if me.min_cell_count > 1 and me.terms.shows_rows():
        raise PartyRefusal("small-cells", "rows of several sites are shown")
    terms, talk = me.terms, start_talk(me)
    codes, states = read_codes(me, terms.names, terms.states)
    records = yield from find_records(me, talk)
    site = Site(me, talk, codes[records], records, states)
    told = yield from converse(
        compare(talk, site.learn_local()),
        "number of rows, labels, own network with its counts",
        "plaintext aggregate",
    )
    local = join_local(terms, told, len(records))
    if len(me.roster) == 1:
        alone = {
            "parents": local["local_parents"],
            "cross_counts": [None] * len(codes.T),
        }
        return local | NO_LINKS | alone
    site.n_states = [len(labels) for labels in local["states"]]
    sample = None
    if terms.disclosure == "rows":
        sample = yield from choose_rows(me, talk, site)
    if me.name == me.roster[0]:
        found = yield from be_centre(me, talk, site, local, sample)
    else:
        found = yield from follow_centre(me, talk, site, sample)
    yield from finish(talk, "public")
    return local | found


def join_local(terms: CollectiveTerms, told: dict[str, Any], n_samples: int) -> dict:
    """Put the sites' own networks side by side, or raise that one cannot be.

    Parameters
    ----------
    terms : CollectiveTerms
    told : dict of str to dict
        From ``Site.learn_local``, as each site tells it.
    n_samples : int
        Own number of records, which others must have, too.

    Returns
    -------
    local : dict
        ``n_samples``; of every column ``states``, ``local_parents`` and
        ``local_counts``, with parents ascending and the column itself last.
    """
    n_columns = len(terms.owners)
    states, parents, counts = {}, {}, {}
    for name, network in told.items():
        held = [v for v, owner in enumerate(terms.owners) if owner == name]
        try:
            if network["n_samples"] != n_samples:
                raise ValueError("other records")
            for v, labels in zip(held, network["states"], strict=True):
                if type(labels) is not list or len(labels) > MAX_STATES:
                    raise TypeError("no list of labels")
                states[v] = check_states(v, labels)
            for i, v in enumerate(held):
                parents[v] = [held[u] for u in network["parents"][i]]
                sizes = tuple(len(states[u]) for u in [*parents[v], v])
                counts[v] = network["counts"][i]
                if not is_array(counts[v], sizes, np.int64):
                    raise TypeError("no table")
        except (LookupError, TypeError, ValueError):
            raise ProtocolError("a site tells of a network that is none") from None
    columns = range(n_columns)
    return {
        "n_samples": n_samples,
        "states": [list(states[v]) for v in columns],
        "local_parents": [parents[v] for v in columns],
        "local_counts": [counts[v] for v in columns],
    }


def be_centre(
    me: Me, talk: Conversation, site: Site, local: dict, sample: Any
) -> Generator[Any, Any, dict]:
    """Learn the links between sites, and tell the others.

    Parameters
    ----------
    me : Me
    talk : Conversation
    site : Site
    local : dict
        From :func:`join_local`.
    sample : Sample or None
        The own rows that were chosen, if rows are sent.

    Returns
    -------
    found : dict
        ``parents`` of every column, ``removed`` local edges that were found false,
        ``cross_counts`` of columns with a parent at another site; ``n_sent`` rows, and
        below which log-likelihood at each site (``cuts``); ``n_hidden`` tables that
        have small counts, and were asked for.
    """
    if sample is None:
        n_samples = len(site.codes)
        tables = AskedTables(site.n_states, max_cells=largest_table(n_samples))
        steps = _learning_links(me.terms, local, TableScores(tables, n_samples, "bic"))
        answer = partial(count_on_shares, me, talk, site)
        try:
            links = yield from asking_others(steps, answer)
        except TooFewRows as few:
            # its own columns are those that a site can name
            own = [v for v in few.columns if v in site.variables]
            few.columns = tuple(map(site.variables.index, own))
            raise
        found = NO_LINKS | links | {"n_hidden": len(tables.hidden)}
    else:
        codes, cuts = yield from _receive_rows(me, talk, site, sample)
        found = NO_LINKS | {"cuts": cuts, "n_sent": len(codes)}
        if len(codes) or me.terms.model is not None:
            scores = scores_of_rows(codes, site.n_states, sample.weights)
            found |= complete(_learning_links(me.terms, local, scores))
    for peer in talk.peers:
        talk.send(peer, {"found": found})
    return found


def _learning_links(terms, local, scores):
    """Return the graph, local edges found false, and tables across sites."""
    removed = []
    if terms.parents is not None:
        graph = graph_of(terms.parents)
    else:
        found = yield from terms.learning_structure(scores, terms.ordering)
        links = crossing(found, terms.owners)
        own = graph_of(local["local_parents"])
        graph = joined = yield from joining_graphs(own, links, scores)
        if terms.post_process:
            graph = yield from explaining_away(joined, terms.owners, scores)
        removed = np.argwhere(own & ~graph).tolist()
    families, tables = families_across(graph, terms.owners), scores.tables
    yield from tables.asking(families.values())
    return {
        "parents": parents_of(graph),
        "removed": removed,
        "cross_counts": [
            tables.ordered(families[v]) if v in families else None
            for v in range(len(graph))
        ],
    }


def count_on_shares(
    me: Me, talk: Conversation, site: Site, question: Any
) -> Generator[Any, Any, np.ndarray]:
    """Have all sites count the tables that the centre's search lacks.

    Parameters
    ----------
    me : Me
    talk : Conversation
    site : Site
    question : Question

    Returns
    -------
    counts : ndarray of int64
        Those of all tables in a row, `HIDDEN` those of a table that has small counts:
        sites find that out on shares, and send none.
    """
    asked, owners = question.asked, me.terms.owners
    for peer in talk.peers:
        talk.send(peer, {"count": [list(variables) for variables in asked]})
    told = {me.name: (yield from converse(site.count(asked), "shares of counts"))}
    for peer in talk.peers:
        told[peer] = yield from converse(
            talk.receive(peer), "which tables to count", "public"
        )
        if type(told[peer]) is not list or len(told[peer]) != len(asked):
            raise ProtocolError("a site tells other shares than it was asked for")
    ring, counts = bit_length_dtype(len(site.codes).bit_length()), []
    for i, variables in enumerate(asked):
        shape = tuple(site.n_states[v] for v in variables)
        shares = [told[name][i] for name in {owners[v] for v in variables}]
        if all(share is None for share in shares):
            counts.append(np.full(shape, HIDDEN))
            continue
        if not all(is_array(share, shape, ring) for share in shares):
            raise ProtocolError("a share has another shape or type")
        counts.append(np.sum(shares, axis=0, dtype=ring).astype(np.int64))
        require(site.can_be_counts(variables, counts[-1]), "inconsistent")
    return np.concatenate([table.ravel() for table in counts])


@dataclass
class Sample:
    """Rows of this site that were chosen by all.

    Attributes
    ----------
    own : dict
        From ``Site.take_rows``.
    weights : ndarray of shape (n_rows,)
    """

    own: dict
    weights: np.ndarray


def choose_rows(me: Me, talk: Conversation, site: Site) -> Generator[Any, Any, Sample]:
    """Choose rows together: those that are unlikely at every site, or random ones.

    Parameters
    ----------
    me : Me
    talk : Conversation
    site : Site

    Returns
    -------
    sample : Sample
    """
    terms, n_samples = me.terms, len(site.codes)
    n_rows = ceil(terms.fraction * n_samples)
    n_unlikely = n_lowest(terms.selection, n_rows)

    def offer(n_rows):
        mine = site.offer(n_rows)
        told = yield from converse(
            compare(talk, np.packbits(mine)),
            "which rows are among its least likely ones",
            "public",
        )
        if not all(is_array(m, (-(-n_samples // 8),), np.uint8) for m in told.values()):
            raise ProtocolError("a site offers other rows than there are")
        return np.all(
            [np.unpackbits(m, count=n_samples) for m in told.values()], axis=0
        )

    by_threshold = terms.n_std is not None
    if terms.model is not None:
        by_threshold |= terms.model.leaves_rows_out
    unlikely = np.zeros(n_samples, dtype=bool)
    if n_unlikely and by_threshold:
        unlikely = yield from offer(0)
    elif n_unlikely:
        unlikely = yield from common_lowest(offer, n_samples, n_unlikely)
    n_random = 0
    if terms.selection != "low_likelihood":
        n_random = max(0, min(n_rows, n_samples) - int(unlikely.sum()))
    weights = row_weights(n_samples, int(unlikely.sum()), n_random)
    return Sample(site.take_rows(unlikely, n_random), weights)


def _receive_rows(me, talk, site, sample):
    """Return the rows of all sites side by side, and what was unlikely at each."""
    owners = np.array(me.terms.owners)
    codes = np.zeros((len(sample.weights), len(owners)), dtype=np.int64)
    cuts = {}
    for name in me.roster:
        told, held = sample.own, owners == name
        if name != me.name:
            told = yield from converse(talk.receive(name), "that it waits", "public")
        shape = len(codes), np.count_nonzero(held)
        if type(told) is not dict or not is_array(told.get("rows"), shape, np.uint8):
            raise ProtocolError("a site sends other rows than were chosen")
        codes[:, held], cuts[name] = told["rows"], told.get("cut")
    if np.any(codes >= site.n_states):
        raise ProtocolError("a site sends rows with other labels than it told")
    if any(type(cut) not in (float, type(None)) for cut in cuts.values()):
        raise ProtocolError("a site tells a log-likelihood that is none")
    return codes, cuts


def follow_centre(
    me: Me, talk: Conversation, site: Site, sample: Any
) -> Generator[Any, Any, dict]:
    """Send rows or count what the centre asks for; return its result.

    Parameters
    ----------
    me : Me
    talk : Conversation
    site : Site
    sample : Sample or None
        The own rows that were chosen, if rows are sent.

    Returns
    -------
    found : dict
        As of :func:`be_centre`.
    """
    centre = me.roster[0]
    if sample is not None:
        talk.send(centre, sample.own)
        question = yield from converse(
            talk.receive(centre), "rows that were chosen", "raw rows"
        )
    else:
        question = yield from converse(talk.receive(centre), "that it waits", "public")
    while True:
        match question:
            case {"found": found}:
                return found
            case {"count": list(asked)} if sample is None:
                tables = [tuple(variables) for variables in asked]
                shares = yield from converse(site.count(tables), "shares of counts")
                talk.send(centre, shares)
                question = yield from converse(
                    talk.receive(centre), "shares of tables that it asks for"
                )
            case _:
                raise PartyRefusal("refused")
