"""What a party sees can be made up from its own input and the result.

Views of real runs on very regular data are compared with views in which everything
but the opened results is replaced by uniform noise. A classifier must stay at chance;
for every defence a twin without it must be told apart.
"""

import os

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skprivbn.crypto.two_party import Conversation, joint_counts, run_together
from skprivbn.crypto.two_party import _gmw as gmw
from skprivbn.crypto.two_party import _lookup as lookup
from skprivbn.crypto.two_party._garbling import Garbler
from skprivbn.crypto.two_party._hash import TweakableHash, random_words
from skprivbn.crypto.two_party._paillier_counts import PackedCounts
from skprivbn.structure import _private_k2_protocol as protocol
from skprivbn.structure._private_k2_protocol import K2Plan, SharedK2
from tests.crypto.two_party._sides import deal_links

N_RUNS = 20
# 255 records: shares fill whole bytes, so that uniform means uniform bytes
N_SAMPLES = 255


def view_of(reader, roster, make_counts=lambda: joint_counts):
    """Messages that one party gets while all learn from constant columns."""
    session, view = os.urandom(16), []
    links = deal_links(roster, session)
    owners = tuple(roster[v % len(roster)] for v in range(len(roster) + 1))
    n = len(owners)
    n_steps = 2 if n == 3 else 1
    plan = K2Plan(owners, (2,) * n, tuple(range(n)), N_SAMPLES, n_steps)
    zeros = np.zeros(N_SAMPLES, dtype=int)

    def side(name):
        talk = Conversation(name, roster, session)
        columns = {v: zeros for v, owner in enumerate(owners) if owner == name}
        search = SharedK2(talk, links[name], plan, columns, make_counts(), joint_counts)
        yield from search.learn()
        yield from talk.finish()

    def note(sender, receiver, payload):
        if receiver == reader:
            view.extend(payload["messages"])

    run_together({name: side(name) for name in roster}, note)
    return view


def made_up(message):
    """The simulator: noise of the same shape; single bits stay single bits."""
    if isinstance(message, dict):
        return {
            name: random_words(part.shape, np.uint8) & 1
            if name == "decoding"
            else made_up(part)
            for name, part in message.items()
        }
    if isinstance(message, bytes):
        return os.urandom(len(message))
    return random_words(message.shape, message.dtype)


def is_result(message):
    """Opened winners are results: a few bits, as they are or packed."""
    return isinstance(message, np.ndarray) and message.size <= 8


def features(view):
    """Of every message, the share of ones and of repeated words."""
    found = []
    for message in view:
        if is_result(message):
            continue
        parts = message.values() if isinstance(message, dict) else [message]
        for part in parts:
            data = part if isinstance(part, bytes) else part.tobytes()
            if not data:
                continue
            bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))
            words = np.frombuffer(data[: len(data) // 8 * 8], dtype=np.uint64)
            repeated = 1 - len(set(words.tolist())) / max(1, len(words))
            found += [bits.mean() * np.sqrt(bits.size), repeated]
    return found


def told_apart(*arguments):
    """Accuracy of a classifier between real and made-up views."""
    real = [view_of(*arguments) for _ in range(N_RUNS)]
    simulated = [
        [m if is_result(m) else made_up(m) for m in view_of(*arguments)]
        for _ in range(N_RUNS)
    ]
    X = np.array([features(view) for view in real + simulated])
    y = np.repeat([1, 0], N_RUNS)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01))
    return cross_val_score(model, X, y, cv=4).mean()


TWO, THREE = ("alice", "bob"), ("alice", "bob", "carol")


@pytest.mark.parametrize(
    "reader, roster",
    [
        ("alice", TWO),
        ("bob", TWO),
        pytest.param("carol", THREE, marks=pytest.mark.slow),
    ],
)
def test_views_are_those_of_the_simulator(reader, roster):
    # 40 views at chance: four standard deviations are 0.32
    assert told_apart(reader, roster) < 0.5 + 0.32


def no_masks(self, x, first_tweak, n_blocks=1):
    return np.zeros((len(x), n_blocks, 2), dtype=np.uint64)


@pytest.mark.parametrize("reader", TWO)
def test_a_twin_without_masks_is_told_apart(reader, monkeypatch):
    monkeypatch.setattr(TweakableHash, "__call__", no_masks)
    # without masks the circuits break too, so only the counts are run
    monkeypatch.setattr(SharedK2, "_step", lambda self, *_: iter(()))
    assert told_apart(reader, TWO) > 0.9


def test_a_twin_with_one_delta_and_no_labels_is_told_apart(monkeypatch):
    monkeypatch.setattr(
        Garbler, "fresh_wires", lambda self, shape: np.zeros((*shape, 2), np.uint64)
    )
    assert told_apart("bob", TWO) > 0.9


@pytest.mark.slow
def test_a_twin_that_shares_bits_without_masks_is_told_apart(monkeypatch):
    monkeypatch.setattr(
        gmw, "random_words", lambda shape, dtype: np.zeros(shape, dtype=dtype)
    )
    assert told_apart("carol", THREE) > 0.9


def test_the_random_index_hides_the_counts(monkeypatch):
    def sums(n_runs):
        # alice's and bob's halves of what a lookup opens, of counts that are all 0
        tables, found = np.arange(256)[None], []
        for _ in range(n_runs):
            session = os.urandom(16)
            links = deal_links(TWO, session)
            opened = []

            def side(name, links=links, session=session):
                talk = Conversation(name, TWO, session)
                shares = np.zeros(32, dtype=np.uint8)
                which = np.zeros(32, dtype=int)
                yield from lookup.shared_lookup(
                    talk, links[name], TWO, shares, tables, which
                )
                yield from talk.finish()

            def note(sender, receiver, payload, opened=opened):
                for message in payload["messages"]:
                    if isinstance(message, np.ndarray) and message.shape == (32,):
                        opened.append(message)

            run_together({name: side(name) for name in TWO}, note)
            found.append(sum(opened))
        return np.concatenate(found)

    opened = sums(8)
    assert len(set(opened.tolist())) > 100
    # the twin whose index is always 0 opens the counts themselves
    monkeypatch.setattr(
        lookup, "random_words", lambda shape, dtype: np.zeros(shape, dtype=dtype)
    )
    assert set(sums(1).tolist()) == {0}


def test_paillier_shows_the_key_owner_masked_counts_only():
    # fields decrypt to a mask plus a count; the count is lost in 60 bits of mask
    codes = np.zeros(50, dtype=int)
    from skprivbn.crypto.two_party import Indicators

    seen = []
    for _ in range(3):
        counts = {name: PackedCounts(512) for name in TWO}

        def side(name, counts=counts):
            talk = Conversation(name, TWO, b"session")
            share = yield from counts[name](
                talk,
                None,
                TWO,
                Indicators([(codes, 6)]),
                [6, 6],
                50,
                np.dtype(np.uint8),
            )
            yield from talk.finish()
            return share

        seen.append(run_together({name: side(name) for name in TWO})["alice"])
    values = np.concatenate([share.ravel() for share in seen])
    assert len(set(values.tolist())) > 50


def test_noise_of_one_party_cannot_be_taken_away(monkeypatch):
    # Of a table whose columns one party holds, the others know only their own noise.
    # Seen apart, it would protect nobody: half of the parties would be too few.
    roster, n_states = ("alice", "bob", "carol"), 4

    def what_bob_gets():
        plan = K2Plan(("alice",), (n_states,), (0,), N_SAMPLES, 1)
        session, got = os.urandom(16), {"alice": [], "carol": []}
        links = deal_links(roster, session)

        def side(name):
            talk = Conversation(name, roster, session)
            columns = {0: np.zeros(N_SAMPLES, dtype=int)} if name == "alice" else {}
            search = SharedK2(talk, links[name], plan, columns, None, None)
            yield from search.learn()
            noise = {"alice": 1000, "bob": 200, "carol": 30}[name]
            counts = yield from search.open_counts(
                noise=lambda shape: np.full(shape, noise)
            )
            yield from talk.finish()
            return counts

        def note(sender, receiver, payload):
            if receiver == "bob":
                got[sender].extend(payload["messages"])

        results = run_together({name: side(name) for name in roster}, note)
        for counts in results.values():
            assert counts[0].tolist() == [N_SAMPLES + 1230] + [1230] * (n_states - 1)
        return {name: np.concatenate(messages) for name, messages in got.items()}

    # 64-bit numbers below 2**40 turn up by chance once in ten million
    assert all(numbers.min() > 2**40 for numbers in what_bob_gets().values())

    def unchanged(talk, group, shares):
        yield from ()
        return shares

    monkeypatch.setattr(protocol, "refresh_numbers", unchanged)
    seen = what_bob_gets()
    assert seen["carol"].tolist() == [30] * n_states
    assert seen["alice"].tolist() == [N_SAMPLES + 1000] + [1000] * (n_states - 1)
