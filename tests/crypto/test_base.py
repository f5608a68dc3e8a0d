"""What every additive backend must do, whatever it is made of."""

import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from skprivbn.crypto import (
    BACKENDS,
    CKKSBackend,
    HiddenVector,
    MaskingBackend,
    PaillierBackend,
    PlaintextBackend,
    RangeError,
    resolve_backend,
)
from skprivbn.crypto._numbers import FRACTION_BITS
from skprivbn.exceptions import ProtocolError
from tests.crypto.micro_federation import (
    Exchange,
    hide_all,
    make_contexts,
    secure_sum,
    start_sessions,
)
from tests.fuzz.profiles import fuzzed

TEST_PAILLIER = PaillierBackend(key_size=512, insecure_test_key=True)

ALL = [
    pytest.param(CKKSBackend(), id="ckks"),
    pytest.param(CKKSBackend(preset="fast"), id="ckks-fast"),
    pytest.param(CKKSBackend(preset="large"), id="ckks-large", marks=pytest.mark.slow),
    pytest.param(TEST_PAILLIER, id="paillier"),
    pytest.param(MaskingBackend(), id="masking"),
    pytest.param(MaskingBackend(recovery=True), id="recovery"),
    pytest.param(PlaintextBackend(), id="plaintext"),
]
HIDING = ALL[:-1]
KEY_HOLDERS = ALL[:4]

RNG = np.random.default_rng(0)


def stated_error(backend, vectors):
    """Absolute error that the backend's `describe` promises."""
    n_parties, largest = len(vectors), np.abs(np.sum(np.abs(vectors), axis=0)).max()
    rounding = 2 * n_parties * np.finfo(float).eps * largest
    grid = 2.0**-FRACTION_BITS
    return n_parties * grid / 2 + rounding


def agree_with_numpy(backend, n_parties, length, magnitude, seed):
    vectors = np.random.default_rng(seed).uniform(
        -magnitude, magnitude, (n_parties, length)
    )
    total = secure_sum(backend, vectors)
    assert total.dtype == np.float64
    np.testing.assert_allclose(
        total, vectors.sum(axis=0), rtol=0, atol=stated_error(backend, vectors)
    )


sums = given(
    n_parties=st.integers(1, 64),
    length=st.integers(1, 70),
    exponent=st.floats(-8, 8),
    seed=st.integers(0, 2**32),
)


@sums
@fuzzed(2.5)
@pytest.mark.parametrize("backend", [ALL[4], ALL[6]])
def test_sum_equals_numpys(backend, n_parties, length, exponent, seed):
    agree_with_numpy(backend, n_parties, length, 10.0**exponent, seed)


@sums
@fuzzed(0.25)
@pytest.mark.parametrize("backend", [ALL[2], ALL[3], ALL[5]])
def test_sum_equals_numpys_slow_backends(backend, n_parties, length, exponent, seed):
    if getattr(backend, "recovery", False):
        n_parties = 1 + n_parties // 4  # its work grows with the square
    agree_with_numpy(backend, n_parties, length, 10.0**exponent, seed)


@given(
    n_parties=st.integers(1, 16),
    length=st.integers(1, 5000),
    exponent=st.floats(-8, 14),
    seed=st.integers(0, 2**32),
)
@fuzzed(0.25)
@pytest.mark.parametrize("backend", ALL[:2])
def test_sum_equals_numpys_long_vectors(backend, n_parties, length, exponent, seed):
    agree_with_numpy(backend, n_parties, length, 10.0**exponent, seed)


@pytest.mark.parametrize("backend", ALL)
def test_vectors_that_fill_or_exceed_one_ciphertext(backend):
    slots = {"default": 2048, "fast": 2048, "large": 4096}
    n = slots[backend.preset] if isinstance(backend, CKKSBackend) else 4
    # A number of CKKS takes three slots, and two more numbers are the tag.
    third = n // 3
    lengths = {0, 1, third - 3, third - 2, third - 1, third, n - 2, n - 1, n}
    lengths |= {2 * n // 3 - 2, 2 * n // 3 - 1, 2 * n - 2, 2 * n - 1}
    for length in sorted(lengths - {-2, -1}):
        vectors = RNG.normal(size=(2, length))
        total = secure_sum(backend, vectors)
        error = stated_error(backend, vectors) if length else 0
        np.testing.assert_allclose(total, vectors.sum(axis=0), rtol=0, atol=error)


def exact_sums(vectors):
    """Return sums of values on the grid, by rational numbers."""
    return [
        sum(Fraction(round(Fraction(x) * 2**56), 2**56) for x in column)
        for column in vectors.T.tolist()
    ]


def numbers_of_all_sizes(n_parties):
    """Values from below the grid to the limit, both signs, ties, cancellation."""
    rng = np.random.default_rng(1)
    vectors = 10.0 ** rng.uniform(-19, 15, (n_parties, 40))
    vectors *= rng.choice([-1, 1], vectors.shape)
    largest = np.nextafter(2.0**55 / n_parties, 0)
    step = 2.0**-56
    ends = [largest, -largest, step, -step, step / 2, 1.5 * step, 0.0, -0.0, 2.0**44]
    vectors = np.hstack([vectors, np.tile(ends, (n_parties, 1))])
    vectors[-1, 40:42] *= -1  # the largest values cancel, all or some
    return vectors


@pytest.mark.parametrize("n_parties", [1, 2, 5])
def test_totals_are_the_same_to_the_last_bit_in_all_backends(n_parties):
    vectors = numbers_of_all_sizes(n_parties)
    counts = np.random.default_rng(2).integers(-(2**60), 2**60, (n_parties, 9))
    backends = [CKKSBackend(preset) for preset in ("default", "fast", "large")]
    backends += [TEST_PAILLIER, PlaintextBackend()]
    backends += [MaskingBackend(recovery=True), MaskingBackend(signed=True)]
    masked = secure_sum(MaskingBackend(), vectors)
    np.testing.assert_allclose(
        masked, np.array(exact_sums(vectors), dtype=float), rtol=4e-16, atol=0
    )
    for backend in backends:
        assert secure_sum(backend, vectors).tobytes() == masked.tobytes()
        np.testing.assert_array_equal(secure_sum(backend, counts), counts.sum(axis=0))


@pytest.mark.parametrize("backend", ALL)
def test_integers_are_summed_exactly(backend):
    vectors = RNG.integers(-(10**5), 10**5, (3, 40))
    total = secure_sum(backend, vectors)
    assert total.dtype == np.int64
    np.testing.assert_array_equal(total, vectors.sum(axis=0))


@pytest.mark.parametrize("backend", HIDING)
def test_same_vector_hidden_twice_looks_different(backend):
    sessions = start_sessions(backend, make_contexts(3))
    seen = []
    for _ in range(2):
        exchange = Exchange(sessions, np.ones((3, 5)))
        exchange.run(backend)
        seen += [said for said in exchange.received if "vector" in said["party 0"]]
    for name in sessions:
        ours, theirs = (said[name]["vector"][2:] for said in seen)
        # The public modulus of Paillier is the same in both, ciphertexts never.
        assert ours[-1] != theirs[-1]


@pytest.mark.parametrize("backend", HIDING[:5])
def test_size_depends_on_the_length_only(backend):
    sessions = start_sessions(backend, make_contexts(2))
    sizes = set()
    for vector in (np.zeros(30), np.full(30, 1e4), RNG.normal(size=30)) * 5:
        for hidden in hide_all(sessions, [vector, vector]):
            sizes.add(tuple(map(len, hidden.parts)))
    assert len(sizes) == 1


@pytest.mark.parametrize("backend", HIDING)
def test_out_of_range_is_an_error_not_a_wrapped_sum(backend):
    limit = backend.max_sum()
    sessions = start_sessions(backend, make_contexts(4))
    # A quarter of the limit fits alone but not four times.
    with pytest.raises(RangeError, match="sum over 4 parties may exceed"):
        Exchange(sessions, np.full((4, 3), limit / 4 * 1.001)).run(backend)
    safe = np.full((4, 3), -limit / 4 * 0.999)
    np.testing.assert_allclose(secure_sum(backend, safe), 4 * safe[0], rtol=1e-9)


@pytest.mark.parametrize("backend", ALL)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_no_numbers(backend, bad):
    sessions = start_sessions(backend, make_contexts(2))
    with pytest.raises(OverflowError, match="NaN or infinite"):
        Exchange(sessions, [np.array([bad])] * 2).run(backend)


@pytest.mark.parametrize("backend", [*KEY_HOLDERS, ALL[4]])
def test_mixed_up_sums_raise(backend):
    sessions = start_sessions(backend, make_contexts(3))
    ones = np.ones((3, 4))
    first = hide_all(sessions, ones)
    with pytest.raises(ProtocolError, match="2 of 3 parties"):
        sessions["party 0"].reveal(backend.add(first[:2]))
    # One party twice instead of all three: the count is right, the content is not.
    with pytest.raises(ProtocolError, match="not the sum of what|masks do not cancel"):
        sessions["party 1"].reveal(backend.add([first[0], first[1], first[1]]))
    # Whoever met such a total hides nothing any more.
    for name in ("party 0", "party 1"):
        with pytest.raises(ProtocolError, match="were erased"):
            sessions[name].hide(ones[0], "statistics")
    sessions = start_sessions(backend, make_contexts(3))
    first = hide_all(sessions, ones)
    second = hide_all(sessions, ones)
    with pytest.raises(ProtocolError, match="different kind, length, round or key"):
        backend.add([first[0], first[1], second[2]])
    with pytest.raises(ProtocolError, match="different kind, length, round or key"):
        backend.add([*hide_all(sessions, ones)[:2], *hide_all(sessions, ones[:1])])
    mixed = hide_all(sessions, [np.ones(4), np.ones(4), np.ones(4, dtype=int)])
    with pytest.raises(ProtocolError, match="different kind, length, round or key"):
        backend.add(mixed)


@pytest.mark.parametrize("backend", KEY_HOLDERS)
def test_key_holders_do_not_read_sums_of_earlier_rounds(backend):
    sessions = start_sessions(backend, make_contexts(3))
    totals = [backend.add(hide_all(sessions, np.ones((3, 4)))) for _ in range(2)]
    session = sessions["party 0"]
    np.testing.assert_allclose(session.reveal(totals[1]), 3.0, atol=1e-6)
    with pytest.raises(ProtocolError, match="has gone on"):
        session.reveal(totals[0])


def damage(part, seed):
    rng = np.random.default_rng(seed)
    damaged = bytearray(part)
    damaged[rng.integers(len(part))] ^= 1 << rng.integers(8)
    return bytes(damaged)


@pytest.mark.parametrize("backend", [*KEY_HOLDERS, ALL[4], ALL[6]])
def test_damaged_messages_raise(backend):
    sessions = start_sessions(backend, make_contexts(2))
    total = backend.add(hide_all(sessions, np.ones((2, 5))))
    for seed in range(20):
        parts = [*total.parts[:-1], damage(total.parts[-1], seed)]
        with pytest.raises(ProtocolError, match="damaged"):
            HiddenVector.from_payload([*total.to_payload()[:2], *parts])


@pytest.mark.parametrize("backend", KEY_HOLDERS)
def test_damaged_ciphertexts_raise(backend):
    """Even if the checksum of the message was made after the damage."""
    sessions = start_sessions(backend, make_contexts(2))
    session = sessions["party 0"]
    total = backend.add(hide_all(sessions, np.ones((2, 5))))
    np.testing.assert_allclose(session.reveal(total), 2)
    part = total.parts[-1]
    for wrong in (b"", part[:-1], part + b"\1", bytes(len(part))):
        with pytest.raises(ProtocolError):
            session.reveal(replace(total, parts=[*total.parts[:-1], wrong]))
    n_read = 0
    for seed in range(20):
        wrong = replace(total, parts=[*total.parts[:-1], damage(part, seed)])
        try:
            read = session.reveal(wrong)
        except ProtocolError:
            continue
        # Zstandard can write the same ciphertext with one bit changed, seldom
        np.testing.assert_allclose(read, 2)
        n_read += 1
    assert n_read <= 2


@pytest.mark.parametrize("backend", [*KEY_HOLDERS, ALL[4], ALL[6]])
def test_cut_or_stretched_messages_cannot_be_added(backend):
    sessions = start_sessions(backend, make_contexts(2))
    hidden = hide_all(sessions, np.ones((2, 5)))[0]
    part = hidden.parts[-1]
    for wrong in (b"", part[:-1], part + b"\1"):
        with pytest.raises(ProtocolError):
            backend.add([hidden, replace(hidden, parts=[*hidden.parts[:-1], wrong])])


@pytest.mark.parametrize("backend", KEY_HOLDERS)
def test_another_key_raises(backend):
    ours, theirs = (start_sessions(backend, make_contexts(2)) for _ in range(2))
    total = backend.add(hide_all(ours, np.ones((2, 5))))
    hide_all(theirs, np.ones((2, 5)))
    with pytest.raises(ProtocolError, match="another key"):
        theirs["party 0"].reveal(total)
    # And if somebody relabels the message, the tag does not fit.
    relabelled = theirs["party 1"]._last.key
    with pytest.raises(ProtocolError, match="limit|grid|not the sum|bits|Paillier"):
        theirs["party 1"].reveal(replace(total, key=relabelled))


@pytest.mark.parametrize("backend", KEY_HOLDERS)
def test_setup_refuses_what_is_no_key(backend):
    contexts = make_contexts(2)
    start_sessions(backend, contexts)
    for message in ({"key": b"nonsense"}, {"key": 3}, {}, {"key": b"", "more": 1}):
        setup = backend.setup(contexts["party 1"])
        next(setup)
        with pytest.raises(ProtocolError):
            setup.send({"party 0": message})


@pytest.mark.parametrize("backend", ALL)
def test_hidden_vector_survives_the_wire(backend):
    sessions = start_sessions(backend, make_contexts(2))
    total = Exchange(sessions, np.ones((2, 3))).run(backend)
    assert HiddenVector.from_payload(total.to_payload()) == total
    kind, head, *parts = total.to_payload()
    wrong = [[kind, b"short", *parts], [kind, head, "text"], [1.0, head, *parts]]
    wrong += [[], [kind], [kind, head, *parts, 1], {kind: head}, None]
    for payload in wrong:
        with pytest.raises(ProtocolError):
            HiddenVector.from_payload(payload)


@pytest.mark.parametrize("backend", HIDING)
def test_keys_do_not_pickle_and_backends_do(backend):
    for session in start_sessions(backend, make_contexts(2)).values():
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(session)
    copy = pickle.loads(pickle.dumps(clone(backend)))
    assert copy.get_params() == backend.get_params()


@pytest.mark.parametrize("backend", ALL)
def test_describe_says_it_all(backend):
    words = backend.describe(("north", "south", "west"))
    assert words.keys() == {"sum_known_to", "hidden_by", "broken_by", "precision"}
    assert all(isinstance(text, str) and text for text in words.values())


def test_resolve_backend():
    for name, backend_class in BACKENDS.items():
        assert type(resolve_backend(name)) is backend_class
    backend = CKKSBackend(preset="fast")
    resolved = resolve_backend(backend)
    assert resolved is not backend
    assert resolved.preset == "fast"
    with pytest.raises(ValueError, match="choose one of 'ckks', 'paillier', 'masking'"):
        resolve_backend("rot13")
    with pytest.raises(TypeError, match="an instance such as"):
        resolve_backend(CKKSBackend)
    with pytest.raises(ValueError, match="preset"):
        resolve_backend("ckks", preset="tiny")


def test_old_names_say_the_new_ones():
    for name in ("party-masking", "sparse-masking"):
        with pytest.raises(ValueError, match=f"'{name}' is now 'masking'"):
            resolve_backend(name)
    for name in ("PartyMaskingBackend", "SparseMaskingBackend"):
        with pytest.raises(ImportError, match=f"{name} is now MaskingBackend"):
            exec(f"from skprivbn.crypto import {name}")
    with pytest.raises(ImportError, match="cannot import name 'Rot13Backend'"):
        exec("from skprivbn.crypto import Rot13Backend")


def test_only_weak_choices_leak():
    assert "hides nothing" in PlaintextBackend().leaks()
    assert "can be factored" in TEST_PAILLIER.leaks()
    for backend in (CKKSBackend(), PaillierBackend(), MaskingBackend(recovery=True)):
        assert backend.leaks() is None
