"""What sites count together, send and refuse; and how they take in new rows."""

import numpy as np
import pandas as pd
import pytest

from skprivbn.bayesian_network import BayesianNetwork, CollectiveBayesianNetwork
from skprivbn.bayesian_network._collective_protocol import CollectiveParty
from skprivbn.crypto import PaillierBackend
from skprivbn.datasets import load_asia, load_child
from skprivbn.exceptions import PartyError, PrivacyLeakWarning
from skprivbn.federation import HostPolicy, InProcessFederation, PartyRefusal
from skprivbn.partition import VerticalPartition

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
        {site: X[held].to_numpy() for site, held in SITES.items()}, SITES, keys
    )
    transcript = Transcript(monkeypatch)
    fitted = CollectiveBayesianNetwork(structure=ASIA.parents).fit(partition)
    assert not any(transcript.holds(marker) for marker in markers)
    assert not transcript.holds(b"a long secret key")
    assert "raw rows" not in {entry.kind for entry in fitted.ledger_.entries}
    # the same scan finds rows where they are sent
    seen = Transcript(monkeypatch)
    rows_of(X[SITES["b"]], parties={"a": ["smoke"], "b": ["lung", "bronc"]}, fraction=1)
    assert any(seen.holds(marker) for marker in markers)


def test_a_share_alone_says_nothing():
    """Shares of one table, counted again and again, take all values equally often."""
    X = sample(ASIA, 200, 0)
    partition = VerticalPartition(
        {site: X[held].to_numpy() for site, held in SITES.items()}, SITES
    )
    estimator = CollectiveBayesianNetwork(SITES, states=ASIA.states)
    terms = estimator._terms(partition)
    shares = []
    with partition.federate(CollectiveParty, terms) as federation:
        federation.call("learn_local", {"model": None})
        names = terms.names
        table = [names.index("lung"), names.index("either")]
        for _ in range(4):
            payload = {"tables": [table] * 100, "n_states": [2] * 8}
            federation.converse("share_counts", payload)
            replies = federation.call("open_counts")
            mine, theirs = (np.stack(replies[site]["shares"]) for site in SITES)
            assert np.unique(mine + theirs, axis=0).shape == (1, 2, 2)
            shares.append(mine[:, 0, 0])
    shares = np.concatenate(shares).astype(float) / 256
    assert shares.min() >= 0 and shares.max() < 1
    histogram = np.histogram(shares, bins=8, range=(0, 1))[0]
    assert ((histogram - 50) ** 2 / 50).sum() < 30


def open_session(X, policy=None, **parameters):
    partition = VerticalPartition(
        {site: X[held].to_numpy() for site, held in SITES.items()}, SITES
    )
    terms = CollectiveBayesianNetwork(SITES, **parameters)._terms(partition)
    if policy is None:
        return partition.federate(CollectiveParty, terms)
    blocks = {site: {"X": X[held].to_numpy()} for site, held in SITES.items()}
    return InProcessFederation(blocks, CollectiveParty, terms, policy=policy)


SEND = {"unlikely": np.array([], dtype=int), "n_random": 5}


def test_rows_leave_only_sites_that_allow_it():
    X = sample(ASIA, 100, 0)
    for policy, allowed in ((HostPolicy(), False), (HostPolicy(allow_rows=True), True)):
        with open_session(X, policy, disclosure="rows") as federation:
            federation.call("learn_local", {"model": None})
            if allowed:
                assert federation.call("send_rows", SEND)["a"]["rows"].shape == (5, 5)
            else:
                with pytest.raises(PartyError, match="refuses"):
                    federation.call("send_rows", SEND)


@pytest.mark.parametrize(
    "payload",
    [
        {"unlikely": np.array([3]), "n_random": 0},
        {"unlikely": np.array([], dtype=int), "n_random": 50},
    ],
    ids=["not offered", "too many"],
)
def test_sites_send_no_other_rows_than_agreed(payload):
    X = sample(ASIA, 100, 0)
    with open_session(X, disclosure="rows", fraction=0.1) as federation:
        federation.call("learn_local", {"model": None})
        with pytest.raises(PartyError, match="refuses"):
            federation.call("send_rows", payload)


def rows_sent(unlikely, n_random, cut=None):
    """Return how many rows site a sends of 100 after it has offered all of them."""
    X = sample(ASIA, 100, 0)
    each = dict.fromkeys(SITES, {"model": None})
    if cut is not None:
        with open_session(X, disclosure="rows") as federation:
            learnt = federation.call("learn_local", each=each)
        each = {
            name: {
                "model": {"parents": r["parents"], "counts": r["counts"], "cut": cut}
            }
            for name, r in learnt.items()
        }
    with open_session(X, disclosure="rows", fraction=0.1) as federation:
        federation.call("learn_local", each=each)
        federation.call("offer", {"n_rows": 100})
        reply = federation.call(
            "send_rows", {"unlikely": unlikely, "n_random": n_random}
        )
        return len(reply["a"]["rows"])


@pytest.mark.parametrize(
    "unlikely, n_random, cut",
    [
        (np.arange(100), -90, None),
        (np.arange(100), -(10**6), None),
        (np.arange(100), 0, np.inf),
        (np.arange(5), 95, 0.0),
        (None, 0, None),
        (np.ones(100, dtype=bool), -90, None),
        (np.arange(-5, 0), 0, None),
        (np.arange(5), 1.5, None),
    ],
)
def test_attack_more_rows_than_the_fraction_that_was_signed(unlikely, n_random, cut):
    with pytest.raises(PartyError, match="refuses"):
        rows_sent(unlikely, n_random, cut)
    assert rows_sent(np.arange(5), 5) == 10
    assert rows_sent(np.arange(5), 0, cut=np.inf) == 5


def test_without_a_look_at_numbers_all_rows_are_sent(monkeypatch):
    """The twin: a negative number of random rows made room for all others."""

    def send_rows(self, unlikely, n_random):
        taken = np.zeros(len(self.codes), dtype=bool)
        taken[unlikely] = True
        if taken.sum() + n_random > 11 and self.cut is None:
            raise PartyRefusal("refused")
        return {"rows": self.codes[taken].astype(np.uint8), "cut": None}

    send_rows.operation = CollectiveParty.send_rows.operation
    monkeypatch.setattr(CollectiveParty, "send_rows", send_rows)
    assert rows_sent(np.arange(100), -90) == 100
    assert rows_sent(np.arange(100), 0, np.inf) == 100


@pytest.mark.parametrize(
    "change",
    [
        {"parents": [[-1], [], [], [], []]},
        {"parents": [[0]]},
        {"parents": [["a"], [], [], [], []]},
        {"cut": "low"},
    ],
)
def test_attack_a_model_of_other_columns(change):
    X = sample(ASIA, 100, 0)
    model = {"parents": [[]] * 5, "counts": [np.ones(2)] * 5, "cut": None}
    with open_session(X) as federation:
        with pytest.raises(PartyError, match="refuses"):
            federation.call("learn_local", {"model": model | change}, to="a")


@pytest.mark.parametrize("n_states", [[2] * 7, [0] * 8, [2] * 7 + [0.5], [-2] * 8])
def test_attack_numbers_of_states_that_are_none(n_states):
    X = sample(ASIA, 100, 0)
    with open_session(X) as federation:
        federation.call("learn_local", {"model": None})
        with pytest.raises(PartyError, match="refuses"):
            federation.converse(
                "share_counts", {"tables": [[0, 1]], "n_states": n_states}
            )


def test_sites_sign_that_a_threshold_sends_as_many_as_there_are():
    X = sample(ASIA, 100, 0)
    rows = {"disclosure": "rows", "selection": "low_likelihood", "fraction": 0.1}
    estimator = CollectiveBayesianNetwork(SITES, n_std=0.5, **rows)
    assert estimator._terms(VerticalPartition.from_columns(X, SITES)).fraction == 1
    estimator = CollectiveBayesianNetwork(SITES, **rows)
    assert estimator._terms(VerticalPartition.from_columns(X, SITES)).fraction == 0.1


def test_sites_do_not_count_tables_as_large_as_their_data():
    X = sample(ASIA, 100, 0)
    everything = {"tables": [list(range(8))], "n_states": [2] * 8}
    with open_session(X) as federation:
        federation.call("learn_local", {"model": None})
        with pytest.raises(PartyError, match="refuses"):
            federation.converse("share_counts", everything)
    with open_session(X) as federation:
        federation.call("learn_local", {"model": None})
        with pytest.raises(PartyError, match="refuses"):
            federation.call("send_rows", SEND)


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
