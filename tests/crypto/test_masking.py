import hashlib
import secrets
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHAKE256, Hash
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score

from skprivbn.crypto import MaskingBackend, _derive, _masking
from skprivbn.crypto._authentication import GroupKey
from skprivbn.crypto._derive import KeyStream
from skprivbn.crypto._masking import MaskingSession, read_limbs
from skprivbn.crypto._numbers import (
    decode_fixed_point,
    encode_fixed_point,
    wrap_limbs,
)
from skprivbn.exceptions import ProtocolError
from tests.crypto.micro_federation import (
    hide_all,
    make_contexts,
    secure_sum,
    start_sessions,
)

BACKEND = MaskingBackend()


def read(hidden):
    """Return the 128-bit numbers of a masked vector as Python integers."""
    low, high = read_limbs(hidden)
    return [int(a) + (int(b) << 64) for a, b in zip(low, high)]


def differences(first, second):
    """Read two masked vectors as if their masks were the same."""
    limbs = read_limbs(first).copy()
    _masking.subtract_limbs(limbs, read_limbs(second))
    return decode_fixed_point(limbs, np.dtype(float))[:-3]


def test_sum_does_not_depend_on_the_order():
    rng = np.random.default_rng(0)
    vectors = 10.0 ** rng.uniform(-8, 8, (7, 50)) * rng.choice([-1, 1], (7, 50))
    sessions = start_sessions(BACKEND, make_contexts(7), "all")
    hidden = hide_all(sessions, vectors)
    total, _ = BACKEND.publish(BACKEND.add(hidden))
    other, _ = BACKEND.publish(BACKEND.add(hidden[::-1]))
    np.testing.assert_array_equal(total, other)


def test_large_integers_are_exact():
    vectors = np.array([[2**60 + 1, -(2**61)], [-3, 2**61 + 1], [2**60, 5]])
    np.testing.assert_array_equal(secure_sum(BACKEND, vectors), vectors.sum(axis=0))


def slow_piece(key, name, n_bytes):
    """The mask of the first sum, by another library."""
    data = key + (1).to_bytes(4, "big") + n_bytes.to_bytes(8, "big") + name
    long = n_bytes > _derive._SHORT
    derive = Hash(SHAKE256(32 if long else n_bytes))
    derive.update(data)
    piece = derive.finalize()
    if long:
        blocks = [i.to_bytes(16, "big") for i in range(-(-n_bytes // 16))]
        encryptor = Cipher(algorithms.AES(piece), modes.ECB()).encryptor()
        piece = encryptor.update(b"".join(blocks))[:n_bytes]
    return piece


@pytest.mark.parametrize("n_bytes", [1, 80, 2048, 2049, 5000])
def test_pieces_are_those_of_an_independent_slow_version(n_bytes):
    key, name = secrets.token_bytes(32), b"a sum"
    found = _derive.KeyStream(key).piece(1, name, n_bytes)
    assert found == slow_piece(key, name, n_bytes)


def test_masked_values_are_those_of_an_independent_slow_version():
    """Python integers, and masks from another library."""
    contexts = make_contexts(3)
    vectors = np.array([[1.5, -2.25], [0.0, 3.0], [-1.0, 0.5]])
    sessions = start_sessions(BACKEND, contexts, "all")
    hidden = hide_all(sessions, vectors, "statistics")

    def fields(*values):
        return b"".join(len(v).to_bytes(4, "big") + v for v in values)

    def number(value):
        return value.to_bytes(8, "big")

    for place, (name, context) in enumerate(contexts.items()):
        binding = hashlib.sha256(
            fields(b"skprivbn session", context.session, context.roster_hash)
        ).digest()
        binding = hashlib.sha256(
            fields(b"sums", binding, number(1), b"masking")
        ).digest()
        nothing_verified = bytes(32)
        info = fields(b"sum", binding, nothing_verified, number(1), b"statistics")
        info += fields(number(2), b"<f8", repr((56, 2**55)).encode())
        expected = [int(x * 2**56) for x in vectors[place]]
        for other, peer in enumerate(contexts):
            if peer == name:
                continue
            name_of_sum = b"\0" + hashlib.sha256(info).digest()
            pair_key = context.pair_key(peer, b"masking " + context.keys_hash + binding)
            stream = slow_piece(pair_key, name_of_sum, 80)
            words = [
                int.from_bytes(stream[i : i + 8], "little") for i in range(0, 80, 8)
            ]
            sign = 1 if place < other else -1
            for i in range(2):
                expected[i] += sign * (words[i] + (words[i + 5] << 64))
        sent = [value % 2**112 for value in read(hidden[place])[:2]]
        assert sent == [value % 2**112 for value in expected]


def test_masks_look_uniform():
    """Every bit of every limb is a fair coin, to within seven standard deviations."""
    sessions = start_sessions(BACKEND, make_contexts(3))
    limbs = read_limbs(hide_all(sessions, np.zeros((3, 20_000)))[1])
    bits = np.unpackbits(limbs.view(np.uint8).reshape(2, -1, 8), axis=2)
    # the last two bytes of the high limbs are not sent: copies of the sign
    frequency = bits.mean(axis=1)
    assert np.abs(frequency - 0.5).max() < 7 * 0.5 / np.sqrt(20_000)


def coordinators_view(backend, mutate=lambda session: None):
    """Return the masked vectors of two parties and the sum, as bits."""
    sessions = start_sessions(backend, make_contexts(3), "all")
    for session in sessions.values():
        mutate(session)
    hidden = hide_all(sessions, np.array([[1.0, -2.0], [3.0, 4.0], [0.5, 0.25]]))
    total = read_limbs(backend.add(hidden))
    # tags and check values are in other tests
    views = [read_limbs(h)[:, :-3] for h in hidden[:2]] + [total[:, :-3]]
    return np.unpackbits(np.stack(views).view(np.uint8))


def simulated_view():
    """The same from the sum alone: uniform numbers for all parties but one."""
    noise = np.frombuffer(bytearray(secrets.token_bytes(64)), np.uint64)
    noise = noise.reshape(2, 2, 2)
    for limbs in noise:
        wrap_limbs(limbs, 14)
    total = encode_fixed_point(np.array([4.5, 2.25]))
    return np.unpackbits(np.concatenate([noise, total[None]]).view(np.uint8))


def accuracy_of_a_distinguisher(mutate=lambda session: None, n=300):
    real = [coordinators_view(BACKEND, mutate) for _ in range(n)]
    views = np.array(real + [simulated_view() for _ in range(n)])
    labels = np.repeat([1, 0], n)
    classifier = RandomForestClassifier(50, random_state=0)
    return cross_val_score(classifier, views, labels, cv=3).mean()


@pytest.mark.slow
def test_coordinators_view_can_be_simulated_from_the_sum():
    # Chance is 1/2 with a standard deviation of 0.02.
    assert accuracy_of_a_distinguisher() < 0.66


def test_distinguisher_catches_a_missing_mask():
    assert accuracy_of_a_distinguisher(lambda s: s._masks.clear(), n=50) > 0.9


def test_rounds_operations_and_lengths_have_masks_of_their_own():
    sessions = start_sessions(BACKEND, make_contexts(2))
    zeros = np.zeros((2, 4))
    seen = [read(hide_all(sessions, zeros, "a")[0])]
    seen += [read(hide_all(sessions, zeros, "a")[0])]
    other = start_sessions(BACKEND, make_contexts(2))
    seen += [read(hide_all(other, zeros, "b")[0])]
    first = [numbers[0] for numbers in seen]
    assert len(set(first)) == len(first)
    contexts = make_contexts(2)
    start_sessions(BACKEND, contexts)
    masks = set()
    for operation, length in [("a", 4), ("b", 4), ("a", 5)]:
        session = repeated_mask_set(contexts["party 0"])
        masks.add(read(session.hide(np.zeros(length), operation))[0])
    assert len(masks) == 3


def repeated_mask_set(context):
    """A broken twin that forgets to count its mask sets."""
    context.group._n_epochs = 0
    return MaskingSession(context, BACKEND)


def test_pieces_of_different_sums_never_meet():
    """The number of the sum keeps key streams apart, of short vectors and long ones."""
    stream, blocks = KeyStream(bytes(range(32))), set()
    for number in range(1, 40):
        for n_bytes in (800, 8000):
            mask = stream.piece(number, b"the same", n_bytes)
            blocks |= {mask[i : i + 16] for i in range(0, len(mask), 16)}
    assert len(blocks) == 39 * 550


def test_masks_add_up_in_batches(monkeypatch):
    """Many masks are added some at a time; carries cross all digits."""
    vectors = np.array([[2**60, -1], [-(2**60), 1], [3, -(2**60)], [1, 2**60]])
    expected = secure_sum(BACKEND, vectors)
    for n_bytes in (1, 100, 2**20):
        monkeypatch.setattr(_masking, "_BATCH_BYTES", n_bytes)
        np.testing.assert_array_equal(secure_sum(BACKEND, vectors), expected)
    np.testing.assert_array_equal(expected, vectors.sum(axis=0))


def test_attack_replayed_round_reads_a_difference():
    """Asking one round twice cancels the masks. The party counts rounds itself."""
    vectors = [np.array([1.0, 2.0]), np.array([5.0, -3.0])]
    session = start_sessions(BACKEND, make_contexts(2))["party 0"]
    first = session.hide(vectors[0], "statistics")
    second = session.hide(vectors[1], "statistics")
    assert np.abs(differences(second, first) - [4.0, -5.0]).min() > 1
    # The broken twin, whose round is set by whoever asks, tells everything.
    session._round = 0
    first = session.hide(vectors[0], "statistics")
    session._round = 0
    second = session.hide(vectors[1], "statistics")
    np.testing.assert_allclose(differences(second, first), [4.0, -5.0])


def test_new_keys_on_request_do_not_repeat_masks():
    """A second mask set over the same pair keys starts at round one again."""
    contexts = make_contexts(2)
    start_sessions(BACKEND, contexts)
    context = contexts["party 0"]
    first, second = MaskingSession(context, BACKEND), MaskingSession(context, BACKEND)
    x, y = np.array([1.0, 2.0]), np.array([5.0, -3.0])
    difference = differences(second.hide(y, "op"), first.hide(x, "op"))
    assert np.abs(difference - [4.0, -5.0]).min() > 1
    # The broken twin that forgets to count its mask sets is caught by this test.
    first, second = repeated_mask_set(context), repeated_mask_set(context)
    difference = differences(second.hide(y, "op"), first.hide(x, "op"))
    np.testing.assert_allclose(difference, [4.0, -5.0])


def test_parties_with_different_rosters_do_not_cancel():
    """A coordinator that tells parties different rosters learns nothing."""
    contexts = make_contexts(3)
    contexts["party 2"].roster_hash = b"another roster".ljust(32)
    with pytest.raises(ProtocolError, match="do not hold the same key"):
        start_sessions(BACKEND, contexts)
    # Nor do masks cancel between parties that do not compare keys.
    for context in contexts.values():
        context.group = GroupKey(bytes(32))
    hidden = hide_all(start_sessions(BACKEND, contexts), np.ones((3, 4)))
    with pytest.raises(ProtocolError, match="different kind, length, round or key"):
        BACKEND.add(hidden)
    forged = [replace(h, key=hidden[0].key) for h in hidden]
    with pytest.raises(ProtocolError, match="masks do not cancel"):
        BACKEND.publish(BACKEND.add(forged))
    # Even the raw numbers are noise.
    assert abs(read(BACKEND.add(forged))[0] - 3 * 2**64) > 2**80


def test_missing_party_or_mask_is_noticed():
    sessions = start_sessions(BACKEND, make_contexts(3))
    hidden = hide_all(sessions, np.ones((3, 4)))
    with pytest.raises(ProtocolError, match="masks do not cancel"):
        BACKEND.publish(BACKEND.add(hidden[:2]))
    sessions["party 1"]._masks.pop()
    with pytest.raises(ProtocolError, match="masks do not cancel"):
        BACKEND.publish(BACKEND.add(hide_all(sessions, np.ones((3, 4)))))


def test_party_out_of_step_is_noticed():
    sessions = start_sessions(BACKEND, make_contexts(3))
    sessions["party 1"].hide(np.ones(4), "statistics")
    with pytest.raises(ProtocolError, match="round"):
        BACKEND.add(hide_all(sessions, np.ones((3, 4))))


def test_party_refuses_a_sum_that_is_not_over_all():
    sessions = start_sessions(BACKEND, make_contexts(3))
    total = BACKEND.add(hide_all(sessions, np.ones((3, 4))))
    np.testing.assert_array_equal(sessions["party 0"].reveal(total), np.full(4, 3.0))
    with pytest.raises(ProtocolError, match="2 of 3"):
        sessions["party 0"].reveal(replace(total, addends=2))


@pytest.mark.parametrize("key", [b"", b"\7" + bytes(16), bytes(5)])
def test_malformed_totals(key):
    sessions = start_sessions(BACKEND, make_contexts(2))
    total = BACKEND.add(hide_all(sessions, np.ones((2, 4))))
    with pytest.raises(ProtocolError):
        BACKEND.publish(replace(total, key=key))
    with pytest.raises(ProtocolError):
        BACKEND.publish(replace(total, kind="plaintext"))
    with pytest.raises(ProtocolError):
        BACKEND.publish(replace(total, length=3))


def test_threshold_needs_recovery():
    with pytest.raises(ValueError, match="recovery=True only"):
        MaskingBackend(threshold=3).validate()


@pytest.mark.parametrize(
    ("n_parties", "needed", "colluders"), [(3, 3, 2), (4, 3, 2), (10, 7, 4)]
)
def test_recovery_needs_more_than_two_thirds(n_parties, needed, colluders):
    backend = MaskingBackend(recovery=True)
    assert backend.n_needed(n_parties) == needed
    assert MaskingBackend().n_needed(n_parties) == n_parties
    words = backend.describe([f"p{i}" for i in range(n_parties)])
    assert f"with {colluders} of the {n_parties}" in words["broken_by"]
    with pytest.raises(ValueError, match="more than two thirds"):
        MaskingBackend(recovery=True, threshold=needed - 1).n_needed(n_parties)
    with pytest.raises(ValueError, match="more than two thirds"):
        MaskingBackend(recovery=True, threshold=n_parties + 1).n_needed(n_parties)
