"""What sites count together, send and refuse; and how they take in new rows."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.crypto import PaillierBackend
from skprivbn.crypto.sealing import SealedChannel
from skprivbn.crypto.shares import Conversation
from skprivbn.datasets import load_asia, load_child
from skprivbn.exceptions import PartyError, PrivacyLeakWarning
from skprivbn.federation import HostPolicy, InProcessFederation
from skprivbn.partition import VerticalPartition
from skprivbn.programs._shared_tables import ColumnTables
from skprivbn.structure import CollectiveBayesianNetwork
from skprivbn.structure.collective._program import LocalModels, collective
from skprivbn.structure.collective._site import Site

ASIA = load_asia(variant="noisy_or")
ORDERING = [ASIA.nodes[i] for i in ASIA.topological_order]
SITES = {
    "a": ["asia", "tub", "either", "xray", "dysp"],
    "b": ["smoke", "lung", "bronc"],
}


def sample(network, n, seed):
    return pd.DataFrame(network.sample(n, random_state=seed), columns=network.nodes)


def rows_of(X, **parameters):
    estimator = CollectiveBayesianNetwork(disclosure="rows", **parameters)
    with pytest.warns(PrivacyLeakWarning, match="sends rows"):
        return estimator.fit(X)


def pooled(X, network, alpha=1.0):
    return BayesianNetwork.from_data(
        X, network.parents, nodes=network.nodes, states=network.states, alpha=alpha
    )


@pytest.mark.parametrize("method", ["bic", "cheng_bell_liu"])
@pytest.mark.parametrize("ordering", [ORDERING, None], ids=["ordered", "unordered"])
def test_shared_counts_give_the_network_of_all_rows(method, ordering):
    X = sample(ASIA, 1500, 0)
    parameters = {"parties": SITES, "method": method, "ordering": ordering}
    private = CollectiveBayesianNetwork(**parameters).fit(X)
    assert private.network_ == rows_of(X, fraction=1.0, **parameters).network_
    assert private.cross_edges_ and private.communicated_fraction_ == 0
    assert private.network_ == pooled(X, private.network_)


def test_three_sites_and_many_states():
    child = load_child()
    nodes = [v for v in child.nodes if v in {"Disease", "Sick", "Age"}]
    nodes += ["LungParench", "Grunting", "GruntingReport", "CO2", "HypoxiaInO2"]
    X = sample(child, 1500, 0)[nodes]
    ordering = [child.nodes[i] for i in child.topological_order]
    parameters = {
        "parties": {"a": nodes[0::3], "b": nodes[1::3], "c": nodes[2::3]},
        "ordering": [v for v in ordering if v in nodes],
        "max_parents": 2,
    }
    private = CollectiveBayesianNetwork(**parameters).fit(X)
    assert private.network_ == rows_of(X, fraction=1.0, **parameters).network_
    owners = {v: site for site, held in parameters["parties"].items() for v in held}
    held_by = [
        {owners[v] for v in (node, *parents)}
        for node, parents in private.network_.parents.items()
    ]
    assert max(map(len, held_by)) == 3
    assert max(len(labels) for labels in private.network_.states.values()) > 3


def test_paillier_counts_are_the_same():
    X = sample(ASIA, 60, 0)
    parameters = {"parties": SITES, "structure": ASIA.parents}
    backend = PaillierBackend(key_size=512, insecure_test_key=True)
    with pytest.warns(PrivacyLeakWarning, match="512 bits can be broken"):
        fitted = CollectiveBayesianNetwork(backend=backend, **parameters).fit(X)
    assert fitted.network_ == CollectiveBayesianNetwork(**parameters).fit(X).network_


def test_a_column_that_does_not_vary():
    X = sample(ASIA, 300, 0).assign(smoke="yes", tub="no")
    fitted = CollectiveBayesianNetwork(SITES, structure=ASIA.parents).fit(X)
    assert fitted.network_ == pooled(X, fitted.network_)


class Transcript:
    """Everything that passes the coordinator while an estimator is fitted."""

    def __init__(self, monkeypatch):
        self.messages = []
        exchange = InProcessFederation._exchange

        def recorded(federation, requests, timeout):
            replies = exchange(federation, requests, timeout)
            self.messages += [*requests.values(), *replies.values()]
            return replies

        monkeypatch.setattr(InProcessFederation, "_exchange", recorded)

    def holds(self, marker):
        return any(marker in message for message in self.messages)


def column_bytes(X):
    """Yield 128 consecutive values of a column in every way they could be written."""
    for name in X.columns:
        codes = (X[name] == "yes").to_numpy().astype(int)[:128]
        if 32 < codes.sum() < 96:
            for values in (codes, 1 - codes):
                yield np.packbits(values).tobytes()
                for kind in ("u1", "<u2", "<i4", "<i8"):
                    yield values.astype(kind).tobytes()


def test_no_row_is_in_a_message_of_private_counts(monkeypatch):
    X = sample(ASIA, 800, 0)
    markers = list(column_bytes(X))
    assert len(markers) > 8
    keys = {site: [f"a long secret key {i:06d}" for i in range(800)] for site in SITES}
    partition = VerticalPartition(
        {site: X[held].to_numpy() for site, held in SITES.items()},
        SITES,
        keys,
        reveal_membership=True,
    )
    transcript = Transcript(monkeypatch)
    fitted = CollectiveBayesianNetwork(structure=ASIA.parents).fit(partition)
    assert not any(transcript.holds(marker) for marker in markers)
    assert not transcript.holds(b"a long secret key")
    assert "raw rows" not in {entry.kind for entry in fitted.ledger_.entries}
    # where rows are sent, the same scan finds them in what is sealed, and only there
    seen, sealed, seal = Transcript(monkeypatch), [], SealedChannel.seal

    def watched(channel, words, message):
        sealed.append(message)
        return seal(channel, words, message)

    monkeypatch.setattr(SealedChannel, "seal", watched)
    rows_of(X[SITES["b"]], parties={"a": ["lung", "bronc"], "b": ["smoke"]}, fraction=1)
    assert not any(seen.holds(marker) for marker in markers)
    seen.messages = sealed
    assert any(seen.holds(marker) for marker in markers)


def test_a_share_alone_says_nothing(monkeypatch):
    """Shares of one table, counted again and again, take all values equally often."""
    X = sample(ASIA, 200, 0)
    shares, share = [], ColumnTables.share

    def watched(tables, asked):
        found = yield from share(tables, asked)
        shares.append(np.stack([found[0]]))
        return found

    monkeypatch.setattr(ColumnTables, "share", watched)
    structure = {"lung": [], "either": ["lung"]}
    estimator = CollectiveBayesianNetwork(
        {"a": ["either"], "b": ["lung"]}, structure=structure, states=[[*"yn"]] * 2
    )
    X = X[["either", "lung"]].replace({"yes": "y", "no": "n"})
    for _ in range(100):
        estimator.fit(X)
    mine, theirs = np.array(shares[::2]), np.array(shares[1::2])
    assert np.unique(mine + theirs, axis=0).shape[0] == 1
    cells = mine[:, 0, 0, 0].astype(float) / 256
    assert cells.min() >= 0 and cells.max() < 1
    histogram = np.histogram(cells, bins=4, range=(0, 1))[0]
    assert ((histogram - 25) ** 2 / 25).sum() < 30


def run(X, policy=None, change=dict, **parameters):
    """Run the program with some of its terms changed."""
    partition = VerticalPartition(
        {site: X[held].to_numpy() for site, held in SITES.items()}, SITES
    )
    terms = CollectiveBayesianNetwork(SITES, **parameters)._terms(partition)
    blocks = {site: {"X": X[held].to_numpy()} for site, held in SITES.items()}
    policy = policy or HostPolicy(allow_rows=True)
    with InProcessFederation(
        blocks, collective, replace(terms, **change()), policy=policy
    ) as federation:
        return federation.run()


def ask_otherwise(monkeypatch, **questions):
    """Let the centre ask for something else than its program would."""
    send = Conversation.send

    def changed(talk, peer, message):
        if talk.name == "a" and isinstance(message, dict):
            message = {
                step: questions.get(step, asked) for step, asked in message.items()
            }
        send(talk, peer, message)

    monkeypatch.setattr(Conversation, "send", changed)


def rows_sent(monkeypatch, marks=None):
    """Return how many of 100 rows the centre gets of the other site.

    Parameters
    ----------
    marks : callable, default=None
        What the centre says to be its least likely rows, when so many are asked for.
    """
    got, receive, offer = [], Conversation.receive, Site.offer

    def watched(talk, peer):
        message = yield from receive(talk, peer)
        if talk.name == "a" and isinstance(message, dict) and "rows" in message:
            got.append(len(message["rows"]))
        return message

    def lie(site, n_rows):
        return offer(site, n_rows) if site.me.name == "b" else marks(n_rows)

    with monkeypatch.context() as patched:
        patched.setattr(Conversation, "receive", watched)
        if marks is not None:
            patched.setattr(Site, "offer", lie)
        rows = {"disclosure": "rows", "selection": "low_likelihood", "fraction": 0.1}
        with pytest.MonkeyPatch.context() as relaxed:
            # what the centre refuses itself is no defence
            take_rows = Site.take_rows

            def careless(site, unlikely, n_random):
                if site.me.name == "b":
                    return take_rows(site, unlikely, n_random)
                rows = site.codes[unlikely].astype(np.uint8)
                return {"rows": rows, "cut": None}

            relaxed.setattr(Site, "take_rows", careless)
            run(sample(ASIA, 100, 0), structure=ASIA.parents, **rows)
    return got[0]


def all_if_many(n_rows):
    """Agree to many rows, then to none: the search for fewer comes to nothing."""
    return np.full(100, n_rows > 50)


def test_rows_of_the_fraction_that_was_signed_are_sent(monkeypatch):
    assert rows_sent(monkeypatch) in (10, 11)


def test_attack_more_rows_than_the_fraction_that_was_signed(monkeypatch):
    with pytest.raises(PartyError, match="'b'.*refuses"):
        rows_sent(monkeypatch, all_if_many)


def test_without_a_look_at_numbers_many_rows_are_sent(monkeypatch):
    def take_rows(site, unlikely, n_random):
        return {"rows": site.codes[unlikely].astype(np.uint8), "cut": None}

    monkeypatch.setattr(Site, "take_rows", take_rows)
    assert rows_sent(monkeypatch, all_if_many) > 50


def test_attack_rows_that_the_site_has_not_offered(monkeypatch):
    """Whatever the centre marks, a site sends the least likely of its rows only."""
    with pytest.raises(PartyError, match="not"):
        rows_sent(monkeypatch, lambda n_rows: np.ones(200, dtype=bool))
    assert rows_sent(monkeypatch, lambda n_rows: np.ones(100, dtype=bool)) == 10


def test_rows_leave_only_sites_that_allow_it():
    X, rows = sample(ASIA, 100, 0), {"disclosure": "rows", "structure": ASIA.parents}
    assert run(X, HostPolicy(allow_rows=True), **rows)["n_sent"] == 10
    with pytest.raises(PartyError, match="'b'.*refuses"):
        run(X, HostPolicy(), **rows)


@pytest.mark.parametrize(
    "question",
    [
        [list(range(8))],
        [[0, 0]],
        [[0, 8]],
        [[0, -1]],
        [["lung"]],
        [[]],
    ],
)
def test_attack_tables_that_are_none_or_as_large_as_the_data(monkeypatch, question):
    ask_otherwise(monkeypatch, count=question)
    with pytest.raises(PartyError, match="'b'.*refuses"):
        run(sample(ASIA, 100, 0))


@pytest.mark.parametrize(
    "disclosure, question",
    [
        ("private_counts", {"send": 5}),
        ("rows", {"count": [[0, 1]]}),
        ("rows", {"else": 1}),
        ("rows", "rows"),
    ],
)
def test_attack_questions_that_were_not_signed(monkeypatch, disclosure, question):
    send = Conversation.send

    def changed(talk, peer, message):
        if talk.name == "a" and isinstance(message, dict):
            message = question if message.keys() & {"count", "found"} else message
        send(talk, peer, message)

    monkeypatch.setattr(Conversation, "send", changed)
    with pytest.raises(PartyError, match="'b'.*refuses"):
        run(sample(ASIA, 100, 0), disclosure=disclosure)


def given(**change):
    """Return terms with a model that was learnt before, changed."""
    model = {
        "parents": [[] for _ in ASIA.nodes],
        "counts": [np.ones(2) for _ in ASIA.nodes],
        "cuts": {},
    }
    return {"model": LocalModels(**model | change)}


@pytest.mark.parametrize(
    "change",
    [
        {"parents": [[-1]] + [[]] * 7},
        {"parents": [[0]]},
        {"parents": [["a"]] + [[]] * 7},
        {"parents": [[7]] + [[]] * 7},
        {"cuts": {"a": "low"}},
        {"cuts": {"a": -2.0}},
    ],
)
def test_attack_a_model_that_is_none_of_the_sites_own_columns(change):
    X = sample(ASIA, 100, 0)
    known = {"states": ASIA.states}
    assert len(run(X, change=given, **known)["local_counts"]) == 8
    with pytest.raises(ValueError, match="model: |must be"):
        run(X, change=lambda: given(**change), **known)
    other_sizes = given(counts=[np.ones(3)] * 8)
    with pytest.raises(PartyError, match="refuses"):
        run(X, change=lambda: other_sizes, **known)


def test_networks_that_a_site_cannot_have_are_refused(monkeypatch):
    X, learn_local = sample(ASIA, 100, 0), Site.learn_local
    wrong = [
        ("n_samples", 1.5),
        ("states", [2] * 3),
        ("states", [["no", "no"]] * 3),
        ("parents", [[7]] * 3),
        ("counts", [np.ones(2)] * 3),
        ("counts", None),
    ]
    for word, value in wrong:
        with monkeypatch.context() as patched:

            def lie(site, word=word, value=value):
                told = learn_local(site)
                return told | {word: value} if site.me.name == "b" else told

            patched.setattr(Site, "learn_local", lie)
            with pytest.raises(PartyError) as caught:
                run(X, structure=ASIA.parents)
        assert (caught.value.party, caught.value.code) == ("a", "not-authentic"), word


def test_sites_sign_that_a_threshold_sends_as_many_as_there_are():
    X = sample(ASIA, 100, 0)
    rows = {"disclosure": "rows", "selection": "low_likelihood", "fraction": 0.1}
    estimator = CollectiveBayesianNetwork(SITES, n_std=0.5, **rows)
    assert estimator._terms(VerticalPartition.from_columns(X, SITES)).fraction == 1
    estimator = CollectiveBayesianNetwork(SITES, **rows)
    assert estimator._terms(VerticalPartition.from_columns(X, SITES)).fraction == 0.1


def test_new_rows_are_counted_across_sites():
    X, new = sample(ASIA, 500, 0), sample(ASIA, 300, 1)
    estimator = CollectiveBayesianNetwork(SITES, ordering=ORDERING, states=ASIA.states)
    estimator.fit(X)
    edges = estimator.network_.edges
    estimator.partial_fit(new)
    assert estimator.network_.edges == edges
    assert estimator.network_ == pooled(pd.concat([X, new]), estimator.network_)
    assert estimator.n_samples_ == 800


def test_the_first_partial_fit_is_a_fit():
    X = sample(ASIA, 300, 0)
    first = CollectiveBayesianNetwork(SITES, structure=ASIA.parents)
    again = CollectiveBayesianNetwork(SITES, structure=ASIA.parents)
    assert first.partial_fit(X).network_ == again.fit(X).network_
    with pytest.raises(ValueError, match="not one of its states"):
        first.partial_fit(X.assign(lung="perhaps"))


@pytest.mark.parametrize("selection", ["random", "mixed"])
def test_new_rows_update_local_tables_and_a_part_of_them_is_sent(selection):
    X, new = sample(ASIA, 1000, 0), sample(ASIA, 500, 1)
    estimator = rows_of(
        X,
        parties=SITES,
        structure=ASIA.parents,
        states=ASIA.states,
        selection=selection,
        fraction=0.2,
        random_state=0,
    )
    with pytest.warns(PrivacyLeakWarning):
        estimator.partial_fit(new)
    assert estimator.communicated_fraction_ == pytest.approx(0.2, abs=0.003)
    expected = pooled(pd.concat([X, new]), estimator.network_)
    for node in set(ASIA.nodes) - {"either", "dysp"}:
        np.testing.assert_allclose(estimator.network_.cpts[node], expected.cpts[node])


def test_new_rows_that_fit_no_site_go_to_the_centre_as_in_the_paper():
    X, new = sample(ASIA, 1000, 0), sample(ASIA, 500, 1)
    estimator = rows_of(
        X,
        parties=SITES,
        structure=ASIA.parents,
        states=ASIA.states,
        selection="low_likelihood",
        fraction=0.2,
    )
    n_sent = round(1000 * estimator.communicated_fraction_)
    cuts = estimator._model.cuts
    fits = {
        site: network.log_likelihood(new[SITES[site]]) > cuts[site] + 1e-9
        for site, network in estimator.local_networks_.items()
    }
    sent = ~fits["a"] & ~fits["b"]
    assert 0 < sent.sum() < 500
    with pytest.warns(PrivacyLeakWarning):
        estimator.partial_fit(new)
    assert estimator.communicated_fraction_ == (n_sent + sent.sum()) / 1500
    local = pooled(pd.concat([X, new[fits["b"]]]), estimator.network_)
    for node in SITES["b"]:
        np.testing.assert_allclose(estimator.network_.cpts[node], local.cpts[node])


@pytest.mark.parametrize("n_std", [None, -0.2])
def test_the_threshold_follows_rows_that_drift(n_std):
    X, many = sample(ASIA, 1000, 0), sample(ASIA, 8000, 1)
    estimator = rows_of(
        X,
        parties=SITES,
        structure=ASIA.parents,
        states=ASIA.states,
        selection="low_likelihood",
        fraction=0.3,
        n_std=n_std,
    )
    networks = estimator.local_networks_
    scores = {s: networks[s].log_likelihood(many[SITES[s]]) for s in SITES}
    # what was rare at both sites is all there is
    rare = np.all([s < np.quantile(s, 0.35) for s in scores.values()], axis=0)
    new, scores = many[rare], {site: s[rare] for site, s in scores.items()}
    n_sent = round(1000 * estimator.communicated_fraction_)
    with pytest.warns(PrivacyLeakWarning):
        estimator.partial_fit(new)
    n_new = round((1000 + len(new)) * estimator.communicated_fraction_) - n_sent
    if n_std is None:
        assert n_new == len(new)
        return
    thresholds = (np.exp(s) for s in scores.values())
    below = [p < p.mean() + n_std * p.std() for p in thresholds]
    assert n_new == np.all(below, axis=0).sum() < 0.6 * len(new)


def fit_with_a_liar(monkeypatch, shift):
    """Count together while the second site adds something to a cell of its shares."""
    count = Site.count

    def lie(site, tables):
        shares = yield from count(site, tables)
        if site.me.name == "b":
            for share in shares:
                if share is not None:
                    share.flat[0] += share.dtype.type(shift)
        return shares

    monkeypatch.setattr(Site, "count", lie)
    return CollectiveBayesianNetwork(SITES, ordering=ORDERING).fit(sample(ASIA, 500, 0))


def test_attack_tables_that_cannot_be_counts_end_the_fit(monkeypatch):
    with pytest.raises(PartyError, match="nobody can tell whose") as caught:
        fit_with_a_liar(monkeypatch, 1)
    assert caught.value.code == "inconsistent"


def test_without_a_look_at_them_wrong_tables_pass(monkeypatch):
    honest = fit_with_a_liar(monkeypatch, 0).network_
    monkeypatch.setattr(Site, "can_be_counts", lambda *_: True)
    # scores of more records than there are
    monkeypatch.setattr("skprivbn.structure._scores._MAX_LOOKUP", 0)
    assert fit_with_a_liar(monkeypatch, 1).network_ != honest
