"""Half-gates against truth tables, SHA-256 and a slow version."""

import hashlib

import numpy as np
import pytest

from skprivbn.crypto.shares._circuits import Evaluator, Garbler, add, is_greater
from skprivbn.crypto.shares._hash import TweakableHash, random_words
from skprivbn.exceptions import ProtocolError


def finish(generator):
    """Result of a circuit whose engine needs no messages."""
    try:
        next(generator)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the engine wants to talk")


class PlainBits:
    """The engine that hides nothing: the oracle."""

    def invert(self, a):
        return a ^ 1

    def conjunction(self, a, b, of=None):
        yield from ()
        return (a if of is None else a[of]) & b


def garbled(circuit, *inputs):
    """Values of a circuit on garbled inputs (arrays of bits)."""
    hashes = [TweakableHash(b"session", b"garbling") for _ in range(2)]
    garbler = Garbler(hashes[0])
    wires = [garbler.fresh_wires(bits.shape) for bits in inputs]
    out = finish(circuit(garbler, *wires))
    tables = np.concatenate(garbler.tables, axis=1)
    evaluator = Evaluator(hashes[1], tables)
    labels = [garbler.labels(w, bits) for w, bits in zip(wires, inputs)]
    found = finish(circuit(evaluator, *labels))
    valid = (found == out).all(-1) | (found == (out ^ garbler.delta)).all(-1)
    assert valid.all()
    assert evaluator._used == tables.shape[1]
    return (found[..., 0] & np.uint64(1)).astype(np.uint8) ^ garbler.decoding_bits(out)


def to_bits(numbers, width):
    return ((np.asarray(numbers)[None] >> np.arange(width)[:, None]) & 1).astype("u1")


def test_truth_tables():
    a, b = np.array([[0, 0, 1, 1]], "u1"), np.array([[0, 1, 0, 1]], "u1")

    def circuit(engine, a, b):
        both = yield from engine.conjunction(a, b)
        return np.concatenate([both, engine.invert(both), a ^ b])

    expected = [[0, 0, 0, 1], [1, 1, 1, 0], [0, 1, 1, 0]]
    np.testing.assert_array_equal(garbled(circuit, a, b), expected)


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 33])
@pytest.mark.parametrize("run", [garbled, lambda c, *i: finish(c(PlainBits(), *i))])
def test_adding_and_comparing(width, run):
    rng = np.random.default_rng(width)
    half = 1 << (width - 1)
    a, b = rng.integers(-half, half, (2, 200))
    a[:20] = b[:20]
    bits = to_bits(a, width), to_bits(b, width)
    np.testing.assert_array_equal(run(add, *bits), to_bits(a + b, width))
    np.testing.assert_array_equal(run(is_greater, *bits), [a > b])


def sha256_circuit(engine, message):
    """Compress one padded block: wires (32, 16), bits lowest first."""
    primes = [p for p in range(2, 312) if all(p % d for d in range(2, p))]

    def fraction(root, p):
        # the first 32 bits of the fractional part of a root, in integers
        low, high = 0, p << 32
        while high - low > 1:
            middle = (low + high) // 2
            if middle**root <= p << (32 * root):
                low = middle
            else:
                high = middle
        return low & 0xFFFFFFFF

    zero = message[:, :1] ^ message[:, :1]

    def constant(number):
        bits = zero.copy()
        for i in range(32):
            if number >> i & 1:
                bits[i] = engine.invert(bits[i])
        return bits

    def rotate(x, n):
        return np.roll(x, -n, axis=0)

    def shift(x, n):
        return np.concatenate([x[n:], zero[:n]])

    def total(first, *others):
        for other in others:
            first = yield from add(engine, first, other)
        return first

    words = [message[:, i : i + 1] for i in range(16)]
    for t in range(16, 64):
        x, y = words[t - 15], words[t - 2]
        small = rotate(x, 7) ^ rotate(x, 18) ^ shift(x, 3)
        large = rotate(y, 17) ^ rotate(y, 19) ^ shift(y, 10)
        words.append((yield from total(large, words[t - 7], small, words[t - 16])))
    start = [constant(fraction(2, p)) for p in primes[:8]]
    a, b, c, d, e, f, g, h = start
    for t in range(64):
        choice = g ^ (yield from engine.conjunction(e, f ^ g))
        large = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)
        key = constant(fraction(3, primes[t]))
        one = yield from total(h, large, choice, key, words[t])
        majority = a ^ (yield from engine.conjunction(a ^ b, a ^ c))
        large = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)
        two = yield from total(large, majority)
        moved = yield from add(engine, d, one)
        a, b, c, d, e, f, g, h = (
            (yield from add(engine, one, two)),
            a,
            b,
            c,
            moved,
            e,
            f,
            g,
        )
    state = []
    for old, new in zip(start, (a, b, c, d, e, f, g, h)):
        state.append((yield from add(engine, old, new)))
    return np.concatenate(state, axis=1)


@pytest.mark.slow
def test_garbled_sha256_is_the_standard():
    text = b"the parties learn this digest and nothing else"
    padded = text + b"\x80" + bytes(55 - len(text)) + (8 * len(text)).to_bytes(8, "big")
    words = np.frombuffer(padded, dtype=">u4").astype(np.int64)
    bits = garbled(sha256_circuit, to_bits(words, 32)).astype(np.int64)
    digest = (bits << np.arange(32)[:, None]).sum(axis=0)
    assert digest.astype(">u4").tobytes() == hashlib.sha256(text).digest()


def test_one_gate_by_hand():
    garbler = Garbler(TweakableHash(b"s", b"d"))
    a, b = garbler.fresh_wires((1,)), garbler.fresh_wires((1,))
    finish(garbler.conjunction(a, b))
    hash_ = TweakableHash(b"s", b"d")

    def h(x, tweak):
        return hash_(x.reshape(1, 2), tweak)[0, 0]

    a0, b0, delta = a[0], b[0], garbler.delta
    generator_half = h(a0, 0) ^ h(a0 ^ delta, 0) ^ (delta * (b0[0] & np.uint64(1)))
    evaluator_half = h(b0, 1) ^ h(b0 ^ delta, 1) ^ a0
    np.testing.assert_array_equal(
        garbler.tables[0][:, 0], [generator_half, evaluator_half]
    )


def test_delta_is_fresh_and_odd():
    hash_ = TweakableHash(b"s", b"d")
    deltas = [Garbler(hash_).delta for _ in range(20)]
    assert all(delta[0] & np.uint64(1) for delta in deltas)
    assert len({delta.tobytes() for delta in deltas}) == 20


def test_tweaks_go_on_from_circuit_to_circuit():
    hash_ = TweakableHash(b"s", b"d")
    for expected in (0, 20):
        garbler = Garbler(hash_)
        assert hash_.n_calls == expected
        wires = garbler.fresh_wires((10,))
        finish(garbler.conjunction(wires, wires))


def test_missing_tables_are_an_error():
    evaluator = Evaluator(TweakableHash(b"s", b"d"), np.zeros((2, 1, 2), np.uint64))
    wires = random_words((2, 2))
    with pytest.raises(ProtocolError, match="too few tables"):
        finish(evaluator.conjunction(wires, wires))
