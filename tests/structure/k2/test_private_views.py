"""What a party sees can be made up from its own input and the result.

Views of real runs on very regular data are compared with views in which everything
but the opened results is replaced by uniform noise of the same public size. For every
message a classifier learns on the blocks of some runs and is tried on those of others;
that it does better than chance must have a probability of a billionth, for all messages
together. For every defence a twin without it must be told apart.
"""

import os

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.linear_model import Ridge

from skprivbn.crypto.shares import Conversation, joint_counts, run_together
from skprivbn.crypto.shares import _circuits as garbling
from skprivbn.crypto.shares import _gmw as gmw
from skprivbn.crypto.shares import _gmw as shared_noise
from skprivbn.crypto.shares import _lookup as lookup
from skprivbn.crypto.shares._circuits import Garbler
from skprivbn.crypto.shares._hash import TweakableHash, random_words
from skprivbn.crypto.shares._paillier_counts import PackedCounts
from skprivbn.structure.k2._program import find_parents
from skprivbn.structure.k2._shared_search import K2Plan, SharedK2
from skprivbn.structure.k2._shared_structure import SharedStructure
from tests.crypto.shares._sides import deal_links, messages_of

# 255 records: shares fill whole bytes, so that uniform means uniform bytes
N_SAMPLES = 255
CONSTANT, VARYING = np.zeros(N_SAMPLES, dtype=int), np.arange(N_SAMPLES) % 2
#: of a message, in a run
MAX_BLOCKS = 64
FALSE_ALARMS = 1e-9
TWO, THREE = ("alice", "bob"), ("alice", "bob", "carol")


def said(steps):
    """Messages of a program, unsealed."""
    received = None
    while True:
        try:
            tell = steps.send(received)
        except StopIteration as stop:
            return stop.value
        received = yield tell.messages


def whole_search(search):
    return said(find_parents(search))


def only_counts(search):
    search.start()
    return search._count(search.talk, search.searching())


def run_search(roster, links=None, column=CONSTANT, steps=whole_search, **options):
    """Messages that each party gets while all learn from columns that are the same."""
    session, views = os.urandom(16), {name: [] for name in roster}
    links = links or deal_links(roster, session)
    owners = tuple(roster[v % len(roster)] for v in range(len(roster) + 1))
    n = len(owners)
    n_steps = 2 if n == 3 else 1
    plan = K2Plan(owners, (2,) * n, tuple(range(n)), N_SAMPLES, n_steps, **options)
    kind = SharedK2 if plan.opens == "order" else SharedStructure

    def side(name):
        talk = Conversation(name, roster, session)
        columns = {v: column for v, owner in enumerate(owners) if owner == name}
        search = kind(talk, links[name], plan, columns, joint_counts, joint_counts)
        yield from steps(search)
        yield from talk.finish()

    def note(sender, receiver, payload):
        views[receiver].extend(messages_of(payload))

    run_together({name: side(name) for name in roster}, note)
    return views


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


def blocks(message):
    """Bits of every block of 16 bytes of every part, beside those of the one before."""
    for part in message.values() if isinstance(message, dict) else [message]:
        data = part if isinstance(part, bytes) else part.tobytes()
        data = np.frombuffer(data, dtype=np.uint8)
        data = np.pad(data, (0, -len(data) % 16)).reshape(-1, 16)[:MAX_BLOCKS]
        if len(data):
            repeated = data ^ np.roll(data, 1, axis=0)
            yield np.unpackbits(np.concatenate([data, repeated], axis=1), axis=1)


def told_apart(reader, runs):
    """Whether some classifier tells what `reader` got from what a simulator says."""
    real = [[m for m in views[reader] if not is_result(m)] for views in runs]
    simulated = [[made_up(m) for m in view] for view in real]
    found = []
    for kind in (real, simulated):
        of_runs = [[part for m in view for part in blocks(m)] for view in kind]
        found.append(list(zip(*of_runs, strict=True)))
    chances = []
    for one, other in zip(*found, strict=True):
        half = len(runs) // 2
        X, X_new = (
            np.concatenate([*one[rows], *other[rows]]).astype(np.float32) - 0.5
            for rows in (slice(half), slice(half, None))
        )
        y, y_new = (np.repeat([-1.0, 1.0], len(rows) // 2) for rows in (X, X_new))
        guessed = Ridge(alpha=100.0).fit(X, y).predict(X_new)
        # an undecided classifier guesses; half of its guesses are right
        n_right = int((guessed * y_new > 0).sum()) + int((guessed == 0).sum()) // 2
        chances.append(binom.sf(n_right - 1, len(y_new), 0.5))
    return min(chances) < FALSE_ALARMS / len(chances)


@pytest.fixture(scope="module")
def honest_runs():
    return [run_search(TWO) for _ in range(24)]


@pytest.mark.parametrize("reader", TWO)
def test_views_are_those_of_the_simulator(reader, honest_runs):
    assert not told_apart(reader, honest_runs)


@pytest.mark.slow
def test_views_among_three_are_those_of_the_simulator():
    runs = [run_search(THREE) for _ in range(12)]
    assert not any(told_apart(reader, runs) for reader in THREE)


def no_masks(self, x, first_tweak, n_blocks=1):
    return np.zeros((len(x), n_blocks, 2), dtype=np.uint64)


def no_words(shape, dtype=np.uint64):
    return np.zeros(shape, dtype=dtype)


def test_a_twin_without_masks_is_told_apart(monkeypatch):
    monkeypatch.setattr(TweakableHash, "__call__", no_masks)
    # without masks the circuits break too, so only the counts are run
    runs = [run_search(TWO, steps=only_counts) for _ in range(8)]
    assert told_apart("bob", runs)


def test_a_twin_without_labels_is_told_apart(monkeypatch):
    monkeypatch.setattr(
        Garbler, "fresh_wires", lambda self, shape: no_words((*shape, 2))
    )
    assert told_apart("bob", [run_search(TWO) for _ in range(8)])


@pytest.mark.slow
def test_a_twin_that_shares_bits_without_masks_is_told_apart(monkeypatch):
    monkeypatch.setattr(gmw, "random_words", no_words)
    # a few blocks only are shared bits: more runs, for so rare a false alarm
    assert told_apart("carol", [run_search(THREE) for _ in range(24)])


def deltas_of_a_session(monkeypatch):
    """Differences of labels of every circuit, and secrets of the transfers."""
    links, made = deal_links(TWO, os.urandom(16)), []
    found = [link.sender.secret for ends in links.values() for link in ends.values()]
    start = Garbler.__init__

    def spy(self, hash_):
        start(self, hash_)
        made.append(self.delta)

    with monkeypatch.context() as patch:
        patch.setattr(Garbler, "__init__", spy)
        run_search(TWO, links, VARYING)
    assert len(made) == 2  # a circuit for each step
    return {words.tobytes() for words in found + made}


def test_every_circuit_has_a_delta_of_its_own(monkeypatch):
    assert len(deltas_of_a_session(monkeypatch)) == 4
    # the twin that uses one delta again
    monkeypatch.setattr(garbling, "random_words", lambda shape: no_words(shape) + 2)
    monkeypatch.setattr(
        Garbler, "fresh_wires", lambda self, shape: random_words((*shape, 2))
    )
    assert len(deltas_of_a_session(monkeypatch)) == 3


def test_the_random_index_hides_the_counts(monkeypatch):
    def sums(n_runs):
        # alice's and bob's halves of what a lookup opens, of counts that are all 0
        tables, found = 8 * np.arange(256)[None], []
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
                for message in messages_of(payload):
                    if isinstance(message, np.ndarray) and message.shape == (32,):
                        opened.append(message)

            run_together({name: side(name) for name in TWO}, note)
            found.append(sum(opened))
        return np.concatenate(found)

    opened = sums(8)
    assert len(set(opened.tolist())) > 100
    # the twin whose index is always 0 opens the counts themselves
    monkeypatch.setattr(lookup, "random_words", no_words)
    assert set(sums(1).tolist()) == {0}


def test_paillier_shows_the_key_owner_masked_counts_only():
    # fields decrypt to a mask plus a count; the count is lost in 60 bits of mask
    codes = np.zeros(50, dtype=int)
    from skprivbn.crypto.shares import Indicators, JointTable

    seen = []
    for _ in range(3):
        counts = {name: PackedCounts(512) for name in TWO}

        def side(name, counts=counts):
            talk = Conversation(name, TWO, b"session")
            table = JointTable(TWO, Indicators([(codes, 6)]), [6, 6])
            (share,) = yield from counts[name](
                talk, None, [table], 50, np.dtype(np.uint8)
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
            yield from whole_search(search)
            noise = {"alice": 1000, "bob": 200, "carol": 30}[name]
            counts = yield from search.open_counts(
                noise=lambda shape: np.full(shape, noise)
            )
            yield from talk.finish()
            return counts

        def note(sender, receiver, payload):
            if receiver == "bob":
                got[sender].extend(messages_of(payload))

        results = run_together({name: side(name) for name in roster}, note)
        for counts in results.values():
            assert counts[0].tolist() == [N_SAMPLES + 1230] + [1230] * (n_states - 1)
        return {name: np.concatenate(messages) for name, messages in got.items()}

    # 64-bit numbers below 2**32 turn up by chance once in four billion
    assert all(numbers.min() > 2**32 for numbers in what_bob_gets().values())

    def unchanged(talk, group, shares):
        yield from ()
        return shares

    monkeypatch.setattr(shared_noise, "refresh_numbers", unchanged)
    seen = what_bob_gets()
    assert seen["carol"].tolist() == [30] * n_states
    assert seen["alice"].tolist() == [N_SAMPLES + 1000] + [1000] * (n_states - 1)
