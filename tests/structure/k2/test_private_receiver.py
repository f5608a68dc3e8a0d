"""Attack: the laboratory chooses inconsistently in transfers, to read a column.

In table j it tells other choices for record k of tree 4j + k than for the other trees.
What the hospital computes of this record then depends on a digit of its secret, and so
do the counts that are opened at the end: sixteen possible errors for each digit, of
which only the right ones leave counts that can be. With the secret all trees of masks
can be grown, and the hospital's masked numbers are read.
"""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from skprivbn.crypto.shares import _argmax as argmax
from skprivbn.crypto.shares import _ot_extension as extension
from skprivbn.crypto.shares import _tree_counts as trees
from skprivbn.crypto.shares._ot_extension import N_HIDING
from skprivbn.exceptions import PartyError
from skprivbn.structure import PrivateK2StructureLearner
from skprivbn.structure.k2._shared_search import SharedK2

N_SAMPLES, N_STATES, N_TABLES, PER_TABLE = 100, 16, 8, 4
COLUMNS = [f"test {j}" for j in range(N_TABLES)]


class OtherChoices:
    """Streams of which some sums are wrong in one bit, and so are choices."""

    def __init__(self, streams):
        self._streams = streams

    def next_rows(self, n_bytes):
        total, t = self._streams.next_rows(n_bytes)
        total = total.copy()
        for table, k in product(range(N_TABLES), range(PER_TABLE)):
            byte, bit = divmod(N_SAMPLES * table + k, 8)
            total[PER_TABLE * table + k, N_HIDING + byte] ^= np.uint8(1 << bit)
        return total, t


class Laboratory:
    """What the deviating party does and keeps."""

    def __init__(self, monkeypatch):
        self.found, self.answers, self.opened = [], [], None
        self.secrets, self.hash = [], None
        self._patch = monkeypatch.setattr
        self._spy_on_the_secret()
        self._choose_inconsistently()
        self._keep_answers()
        self._tell_that_the_first_candidate_wins()
        self._keep_opened_tables()

    def _spy_on_the_secret(self):
        """To compare with: no part of the attack."""
        start = extension.OTSender.__init__

        def spy(sender, leaves, places, hash_):
            start(sender, leaves, places, hash_)
            if b"'hospital' 'lab'" in hash_._origin[1]:
                self.secrets.append(sender.secret.copy())

        self._patch(extension.OTSender, "__init__", spy)

    def _choose_inconsistently(self):
        honest = extension.OTReceiver.rows

        def rows(receiver, choices):
            domain = receiver.hash._origin[1]
            if not (b"'hospital' 'lab'" in domain and b"pairs" in domain):
                return honest(receiver, choices)
            streams, self.hash = receiver._streams, receiver.hash
            receiver._streams = OtherChoices(streams)
            message, t = honest(receiver, choices)
            receiver._streams = streams
            of_tables = np.split(np.array(choices), N_TABLES), np.split(t, N_TABLES)
            self.found += zip(*of_tables)
            return message, t.copy()

        self._patch(extension.OTReceiver, "rows", rows)

    def _keep_answers(self):
        honest = trees._use_answers

        def use_answers(talk, link, peer, pieces, chosen):
            receive = talk.receive

            def keep(peer):
                answer = yield from receive(peer)
                self.answers.append(answer["numbers"].copy())
                return answer

            talk.receive = keep
            yield from honest(talk, link, peer, pieces, chosen)
            talk.receive = receive

        self._patch(trees, "_use_answers", use_answers)

    def _tell_that_the_first_candidate_wins(self):
        """So that all tables are opened, wrong as they are."""
        honest = argmax._as_evaluator

        def lie(talk, *arguments):
            send, told = talk.send, []

            def other(peer, message):
                if isinstance(message, np.ndarray) and message.dtype == np.uint8:
                    message = np.zeros_like(message)
                    message[0] = 1
                    told.append(message)
                send(peer, message)

            talk.send = other
            yield from honest(talk, *arguments)
            talk.send = send
            return told[0]

        self._patch(argmax, "_as_evaluator", lie)

    def _keep_opened_tables(self):
        honest = SharedK2.open_counts

        def keep(search, *arguments):
            opened = yield from honest(search, *arguments)
            if search.talk.name == "lab":
                self.opened = opened
            return opened

        self._patch(SharedK2, "open_counts", keep)

    def masks(self, table, leaf, record, rows):
        """Masks of a leaf of a record's tree, if these are the rows of transfers."""
        tweak = (2 * table + int(leaf)) * N_SAMPLES + record
        hashed = [self.hash(row[None], tweak).ravel() for row in np.atleast_2d(rows)]
        return np.array(hashed).view(np.uint8)[:, : N_STATES - 1]

    def find_secret(self):
        """Try all digits of four trees at a time on each opened table."""
        digits = []
        for table, (choices, t) in enumerate(self.found):
            errors = []
            for record in range(PER_TABLE):
                tree, leaf = PER_TABLE * table + record, choices[record]
                rows = np.repeat(t[record][None], 16, axis=0)
                shifts = np.arange(16, dtype=np.uint64) << np.uint64(4 * (tree % 16))
                rows[:, tree // 16] ^= shifts
                masks = self.masks(table, leaf, record, rows)
                # what its own shares are off by: of the leaf, or of the other one
                off = masks[0] - masks
                errors.append(off if leaf == 0 else -off)
            seen = self.opened[1 + table][0, : N_STATES - 1].astype(np.uint8)
            most = self.opened[1 + table].sum(axis=0)[: N_STATES - 1].astype(np.uint8)
            tried = np.array(list(product(range(16), repeat=PER_TABLE)))
            off = sum(of[tried[:, k]] for k, of in enumerate(errors))
            possible = tried[(seen - off.astype(np.uint8) <= most).all(axis=1)]
            if len(possible) != 1:
                return None
            digits.append(possible[0])
        bits = np.concatenate(digits)[:, None] >> np.arange(4) & 1
        return np.packbits(bits.astype(np.uint8).ravel(), bitorder="little").view("u8")

    def read_column(self, secret):
        """Grow the trees of the last table whole; return the hospital's column."""
        table, (choices, t) = N_TABLES - 1, self.found[-1]
        codes = []
        for record in range(N_SAMPLES):
            leaf, row = choices[record], t[record].copy()
            if record < PER_TABLE:
                tree = PER_TABLE * table + record
                digit = np.uint64(15) << np.uint64(4 * (tree % 16))
                row[tree // 16] ^= secret[tree // 16] & digit
            known = self.masks(table, leaf, record, row)
            other = self.masks(table, 1 - leaf, record, row ^ secret)
            row = (self.answers[table][record] - known - other)[0]
            codes.append(int(row.argmax()) if row.any() else N_STATES - 1)
        return codes


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.integers(0, 2, (N_SAMPLES, N_TABLES)), columns=COLUMNS)
    X.insert(0, "diagnosis", rng.integers(0, N_STATES, N_SAMPLES))
    return X


def fit(X):
    return PrivateK2StructureLearner(
        {"hospital": ["diagnosis"], "lab": COLUMNS},
        ordering=list(X.columns),
        states=[N_STATES, *[2] * N_TABLES],
        max_parents=1,
    ).fit(X)


def test_a_receiver_that_chooses_inconsistently_learns_nothing(monkeypatch, data):
    lab = Laboratory(monkeypatch)
    with pytest.raises(PartyError) as refused:
        fit(data)
    assert refused.value.party == "hospital"
    assert refused.value.code == "not-authentic"
    # the hospital has answered no transfer
    assert len(lab.found) == N_TABLES and not lab.answers and lab.opened is None


def test_the_twin_without_a_check_gives_the_column_away(monkeypatch, data):
    lab = Laboratory(monkeypatch)
    monkeypatch.setattr(extension, "is_proved", lambda *arguments: True)
    # tables are found to be wrong, too late
    with pytest.raises(PartyError) as refused:
        fit(data)
    assert refused.value.code == "inconsistent"
    secret = lab.find_secret()
    assert secret.tobytes() == lab.secrets[0].tobytes()
    assert lab.read_column(secret) == data["diagnosis"].tolist()
