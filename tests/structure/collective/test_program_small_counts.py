"""Small counts are neither opened to the centre nor told: limits of collective fits."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from skprivbn.datasets import load_asia
from skprivbn.exceptions import PartyError
from skprivbn.federation import HostPolicy, InProcessFederation
from skprivbn.partition import VerticalPartition
from skprivbn.programs import _shared_tables
from skprivbn.programs._shared_tables import ColumnTables
from skprivbn.structure import CollectiveBayesianNetwork
from skprivbn.structure._search import complete
from skprivbn.structure._tables import AskedTables
from skprivbn.structure.collective import _program, _site
from skprivbn.structure.collective._program import collective
from skprivbn.structure.collective._structure import (
    choosing_again,
    crossing,
    explaining_away,
    joining_graphs,
    learning_structure,
    scores_of_rows,
)

ASIA = load_asia(variant="noisy_or")
SITES = {
    2: {
        "a": ["asia", "tub", "either", "xray", "dysp"],
        "b": ["smoke", "lung", "bronc"],
    },
    3: {
        "a": ["asia", "tub", "either", "xray"],
        "b": ["smoke", "lung"],
        "c": ["bronc", "dysp"],
    },
}
LEAST = 5


def pair(n_both, n_rows=200):
    """Return two columns whose table has one cell of so many rows."""
    counts = [60, 50, n_rows - 110 - n_both, n_both]
    x, y = np.repeat([[0, 0, 1, 1], [0, 1, 0, 1]], counts, axis=1)
    return pd.DataFrame({"x": x, "y": y})


def fit(X, sites=None, least=LEAST, **parameters):
    sites = sites or {"a": ["x"], "b": ["y"]}
    limit = {"search_params": {"min_cell_count": least}}
    return CollectiveBayesianNetwork(sites, **limit, **parameters).fit(X)


def overhear(monkeypatch):
    """Return all tables that the centre opens, by what is asked."""
    opened, count = {}, _program.count_on_shares

    def watched(me, talk, site, question):
        numbers = yield from count(me, talk, site, question)
        start = 0
        for variables in question.asked:
            shape = [site.n_states[v] for v in variables]
            opened[variables] = numbers[start : start + np.prod(shape)].reshape(shape)
            start += np.prod(shape)
        return numbers

    monkeypatch.setattr(_program, "count_on_shares", watched)
    return opened


def smallest(tables):
    """Return the smallest count, but none, of many tables."""
    found = [table[table > 0] for table in tables]
    return min(part.min() for part in found if part.size)


@pytest.mark.parametrize("n_parties", [2, 3])
@pytest.mark.parametrize(
    "method", ["bic", pytest.param("cheng_bell_liu", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("ordering", [None, ASIA.topological_order])
def test_the_network_is_that_of_tables_without_small_counts(
    n_parties, method, ordering, monkeypatch
):
    sites, names = SITES[n_parties], list(ASIA.nodes)
    codes = ASIA.encode(ASIA.sample(2000, random_state=0))
    X = pd.DataFrame(codes, columns=names)
    opened, search = overhear(monkeypatch), {"method": method}
    named = None if ordering is None else [names[v] for v in ordering]
    found = fit(X, sites, states=[2] * 8, ordering=named, **search)
    # the same, of all columns at one place
    local = np.zeros((8, 8), dtype=bool)
    for held in sites.values():
        own = [v for v, name in enumerate(names) if name in held]
        if ordering is not None:
            search["ordering"] = [own.index(v) for v in ordering if v in own]
        scores = scores_of_rows(codes[:, own], [2] * len(own), least=LEAST)
        graph = complete(learning_structure(scores, **search))
        graph = complete(choosing_again(graph, range(len(own)), scores))
        local[np.ix_(own, own)] = graph
    owners = [site for v in names for site, held in sites.items() if v in held]
    scores = scores_of_rows(codes, [2] * 8, least=LEAST)
    graph = complete(learning_structure(scores, method=method, ordering=ordering))
    graph = complete(joining_graphs(local, crossing(graph, owners), scores))
    graph = complete(explaining_away(graph, owners, scores))
    np.testing.assert_array_equal(found.adjacency_matrix_, graph)
    # the centre has opened these tables, and none that has small counts
    assert {frozenset(v) for v, t in opened.items() if t.min() < 0} == set(
        map(frozenset, scores.tables.hidden)
    )
    model = found._model
    told = [t for t in [*model.local_counts, *model.cross_counts] if t is not None]
    assert smallest([*opened.values(), *told]) >= LEAST
    (words,) = [f.what for f in found.ledger_.facts() if "small counts" in f.what]
    assert words.startswith(f"that {len(scores.tables.hidden)} of these tables")


@pytest.mark.parametrize("n_both, is_told", [(0, 1), (1, 0), (4, 0), (5, 1), (6, 1)])
def test_links_at_the_limit(n_both, is_told, monkeypatch):
    opened = overhear(monkeypatch)
    found = fit(pair(n_both))
    assert len(found.cross_edges_) == is_told
    (table,) = [t for v, t in opened.items() if len(v) == 2]
    assert np.array_equal(table == -1, np.full((2, 2), not is_told))
    if is_told:
        assert n_both in table
    # a structure that was given cannot do without
    known = {"structure": {"y": ["x"]}}
    if is_told:
        assert n_both in fit(pair(n_both), **known)._model.cross_counts[1]
    else:
        with pytest.raises(PartyError) as caught:
            fit(pair(n_both), **known)
        assert (caught.value.party, caught.value.code) == ("a", "too-few-rows")


@pytest.mark.parametrize("n_rare, is_told", [(0, 1), (1, 0), (4, 0), (5, 1), (6, 1)])
def test_own_columns_at_the_limit(n_rare, is_told):
    X = pair(20).assign(rare=np.arange(200) < n_rare)
    sites = {"a": ["x"], "b": ["y", "rare"]}
    if is_told:
        fit(X, sites, states=[2, 2, [False, True]])
    else:
        with pytest.raises(PartyError) as caught:
            fit(X, sites, states=[2, 2, [False, True]])
        assert (caught.value.party, caught.value.code) == ("b", "too-few-rows")


def test_new_rows_are_counted_if_they_are_enough():
    X, new = pair(20), pair(4)
    found = fit(X, states=[2, 2])
    assert found.cross_edges_
    found.partial_fit(pair(5))
    assert 25 in found._model.cross_counts[1]
    with pytest.raises(PartyError) as caught:
        found.partial_fit(new)
    assert caught.value.code == "too-few-rows"


def difference(opened):
    """Read the cell (1, 1) of two columns off all that the centre has opened.

    It knows its own column, and margins of other tables, which tell a cell that is
    left out alone.
    """
    for table in (t for v, t in opened.items() if len(v) == 2):
        known, margin = np.where(table < 0, 0, table), pair(3).x.value_counts()
        if table.min() >= 0 or (table < 0).sum() == 1:
            return margin[1] - known[:, 0][1] if table[1, 1] < 0 else table[1, 1]
    return None


def test_attack_a_small_count_read_off_what_is_opened(monkeypatch):
    opened = overhear(monkeypatch)
    fit(pair(3))
    assert difference(opened) is None


def test_without_a_look_on_shares_the_count_is_read(monkeypatch):
    def nothing(tables, asked, least):
        yield from ()
        return np.zeros(len(asked), dtype=bool)

    monkeypatch.setattr(ColumnTables, "are_few", nothing)
    opened = overhear(monkeypatch)
    fit(pair(3))
    assert difference(opened) == 3


def test_a_holder_that_shifts_the_bit_has_small_counts_opened(monkeypatch):
    """What the guide says a party that deviates can do."""
    honest = _shared_tables.open_numbers

    def shifted(talk, holders, shares):
        lie = shares.dtype.type(talk.name == "a")
        return (yield from honest(talk, holders, shares - lie))

    monkeypatch.setattr(_shared_tables, "open_numbers", shifted)
    opened = overhear(monkeypatch)
    fit(pair(3))
    assert difference(opened) == 3


def test_all_sites_see_which_tables_are_asked_for(monkeypatch):
    """The ledger says so: of links that are rejected, too."""
    seen, follow = [], _program.follow_centre

    def watched(me, talk, *arguments):
        receive = talk.receive

        def keep(peer):
            said = yield from receive(peer)
            if type(said) is dict and "count" in said:
                seen.extend(map(frozenset, said["count"]))
            return said

        talk.receive = keep
        return (yield from follow(me, talk, *arguments))

    monkeypatch.setattr(_program, "follow_centre", watched)
    opened = overhear(monkeypatch)
    # columns that have nothing to do with each other
    X = pd.DataFrame(list(np.ndindex(10, 2, 2, 5)), columns=[*"nxym"])[["x", "y"]]
    found = fit(X)
    assert not found.cross_edges_ and frozenset([0, 1]) in seen
    assert seen == list(map(frozenset, opened))
    facts = {(fact.who, fact.what) for fact in found.ledger_.facts()}
    assert ("all parties", "which tables the centre's search asks for") in facts


def test_were_cells_hidden_alone_the_count_would_follow(monkeypatch):
    """Why a table is told as a whole or not at all."""

    def nothing(tables, asked, least):
        yield from ()
        return np.zeros(len(asked), dtype=bool)

    monkeypatch.setattr(ColumnTables, "are_few", nothing)
    opened, hidden = overhear(monkeypatch), {}
    fit(pair(3))
    for variables, table in opened.items():
        hidden[variables] = np.where((table > 0) & (table < LEAST), -1, table)
    assert difference(hidden) == 3


def alike(n_other):
    """Columns of one site that differ in the first records, in which b has y = 0."""
    X = pair(20)[::-1].reset_index(drop=True).assign(y=lambda X: X.y * (X.index > 9))
    return X.assign(again=X.x * (X.index >= n_other))


ALIKE = {"a": ["x", "again"], "b": ["y"]}


@pytest.mark.parametrize("n_other, is_told", [(0, 1), (1, 0), (4, 0), (5, 1)])
def test_attack_tables_of_two_columns_that_differ_in_few_records(
    n_other, is_told, monkeypatch
):
    opened, X = overhear(monkeypatch), alike(n_other)[["x", "y", "again"]]
    if is_told:
        fit(X, ALIKE)
        return
    with pytest.raises(PartyError) as caught:
        fit(X, ALIKE)
    assert (caught.value.party, caught.value.code) == ("a", "too-detailed")
    assert not opened


def test_without_looking_for_alike_columns_a_record_is_read(monkeypatch):
    monkeypatch.setattr(_site, "check_unlike", lambda *arguments: None)
    opened, X = overhear(monkeypatch), alike(1)[["x", "y", "again"]]
    fit(X, ALIKE)
    pairs = {tuple(sorted(v)): t if v[0] < v[1] else t.T for v, t in opened.items()}
    of_x, of_again = pairs[0, 1], pairs[1, 2].T
    assert of_x.min() >= LEAST and of_again.min() >= LEAST
    np.testing.assert_array_equal((of_x - of_again)[1], [1, 0])


def run(X, **change):
    sites = {"a": ["x"], "b": ["y"]}
    partition = VerticalPartition.from_columns(X, sites)
    terms = CollectiveBayesianNetwork(sites, **change)._terms(partition)
    blocks = {site: {"X": X[held].to_numpy()} for site, held in sites.items()}
    policy = HostPolicy(allow_rows=True, min_cell_count=LEAST)
    with InProcessFederation(blocks, collective, terms, policy=policy) as federation:
        return federation.run()


def test_sites_have_their_limit_whatever_terms_say(monkeypatch):
    opened = overhear(monkeypatch)
    found = run(pair(4))
    assert (found["n_hidden"], found["cross_counts"]) == (1, [None, None])
    assert smallest(opened.values()) >= LEAST
    assert run(pair(5))["n_hidden"] == 0


def test_rows_are_not_shown_where_small_counts_are_not():
    with pytest.raises(PartyError) as caught:
        run(pair(50), disclosure="rows")
    assert caught.value.code == "small-cells"
    with pytest.raises(ValueError, match="choose disclosure='private_counts'"):
        fit(pair(50), disclosure="rows")


def test_tables_of_hidden_ones_are_not_asked_for():
    rng = np.random.default_rng(0)
    codes = (rng.random((300, 6)) < [0.5, 0.5, 0.1, 0.1, 0.05, 0.5]).astype(int)
    asked, counted = [], scores_of_rows(codes, [2] * 6).tables

    def count(tables):
        asked.extend(map(frozenset, tables))
        told = [counted(v).transpose(np.argsort(np.argsort(v))) for v in tables]
        few = [((t > 0) & (t < LEAST)).any() for t in told]
        parts = [np.where(f, -1, t.astype(int)).ravel() for f, t in zip(few, told)]
        return np.concatenate(parts)

    tables = AskedTables([2] * 6, count)
    for size in (2, 3, 4):
        complete(tables.asking(combinations(range(6), size)))
    hidden = [frozenset(v) for v in tables.hidden]
    assert len(hidden) > 2 and len(asked) == len(set(asked))
    for i, variables in enumerate(asked):
        before = [h for h in hidden if h in asked[:i] and h < variables]
        # of one batch, none is known before the others
        assert not [h for h in before if len(h) < len(variables)]
    fits = tables.fits([2])
    assert fits.tolist() == [not tables.hides([2, v]) for v in range(6)]
    np.testing.assert_array_equal(tables([0, 1]), counted([0, 1]))
