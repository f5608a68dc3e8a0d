import re
import resource
import subprocess
import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import tenseal as ts

from skprivbn.crypto import CKKSBackend, HiddenVector, _ckks
from skprivbn.crypto._authentication import GroupKey, TagSecrets
from skprivbn.exceptions import ProtocolError
from tests.crypto.micro_federation import (
    Exchange,
    hide_all,
    make_contexts,
    secure_sum,
    start_sessions,
)


@pytest.mark.parametrize("preset", list(_ckks.PRESETS))
def test_presets_are_secure(preset):
    backend = CKKSBackend(preset=preset)
    backend.validate()
    degree, primes, _ = backend._parameters
    # SEAL's own opinion, at 128 bits: creating the context would raise otherwise.
    ts.context(ts.SCHEME_TYPE.CKKS, degree, coeff_mod_bit_sizes=list(primes))


def test_a_preset_that_does_not_exist_is_named():
    # A party checks as well: the coordinator may not weaken the parameters.
    context = make_contexts(2)["party 0"]
    for check in (CKKSBackend.validate, lambda b: next(b.setup(context))):
        with pytest.raises(ValueError, match="preset"):
            check(CKKSBackend("huge"))


@pytest.mark.parametrize("preset", list(_ckks.PRESETS))
def test_error_is_below_the_bound_and_not_far_below(preset):
    """A bound a hundred times too large would hide a loss of precision."""
    backend = CKKSBackend(preset=preset)
    n_slots, digits = backend._parameters[0] // 2, backend.digits(4)
    rng, step = np.random.default_rng(0), 2.0**-digits.fraction_bits
    # So many values that the first ciphertext has their lowest digits and no others.
    for most in (4, 2**digits.n_bits):
        vectors = rng.integers(0, most, (4, n_slots))
        sessions = start_sessions(backend, make_contexts(4))
        part, *_ = backend.add(hide_all(sessions, vectors)).parts
        slots = sessions["party 0"]._decrypt(part, n_slots)
        error = np.abs(slots - vectors.sum(axis=0) * step).max()
        bound = backend.error_bound(4, most * 4 * step)
        assert bound / 500 < error < bound
        assert bound <= step / 4


def most_parties(preset, n_digits):
    """Return for how many parties a number takes so many slots."""
    backend = CKKSBackend(preset=preset)
    return max(n for n in range(1, 1000) if backend.digits(n).n_digits == n_digits)


@pytest.mark.parametrize("preset", list(_ckks.PRESETS))
def test_documented_number_of_parties_for_three_slots(preset):
    words = " ".join(CKKSBackend.__doc__.split())
    text = words[words.index(f'- ``"{preset}"``') :]
    n_parties = int(re.search(r"three slots a number with up to (\d+)", text)[1])
    assert most_parties(preset, 3) == n_parties


def test_digits_of_all_parties_fit_into_slots():
    for preset in _ckks.PRESETS:
        backend = CKKSBackend(preset=preset)
        for n_parties in (1, 2, 3, 31, 32, 64, 250, 251, 1000, 4014, 4015, 10**5):
            digits = backend.digits(n_parties)
            most = n_parties * 2**digits.n_bits
            assert most <= digits.limit * 2**digits.fraction_bits < 2**53
            assert digits.n_bits * digits.n_digits >= 112
            # what a slot is off at most, and what is accepted as a multiple
            step = 2.0**-digits.fraction_bits
            assert backend.error_bound(n_parties, digits.limit) <= step / 4


def largest_numbers(n_parties, n_bits):
    """Return integers of which digits, or sums of all parties, are at their limits."""
    most = (2**111 - 1) // n_parties
    full = [2 ** (n_bits * i) - 1 for i in (1, 2) if 2 ** (n_bits * i) <= most]
    return [most, -most, 0, 1, -1, *full, *(-x - 1 for x in full), 2**96 - 1]


@pytest.mark.parametrize(
    ("preset", "more"),
    [
        ("fast", 0),
        ("fast", 1),
        ("default", 0),
        pytest.param("default", 1, marks=pytest.mark.slow),
        pytest.param("large", 0, marks=pytest.mark.slow),
        pytest.param("large", 1, marks=pytest.mark.slow),
    ],
)
def test_largest_digits_of_as_many_parties_as_three_slots_are_for(preset, more):
    """Exact where the next party would need a slot more, and with that party."""
    n_parties = most_parties(preset, 3) + more
    backend = CKKSBackend(preset=preset)
    digits = backend.digits(n_parties)
    assert digits.n_digits == 3 + more
    context = make_contexts(n_parties)["party 0"]
    context.group = GroupKey(bytes(32))
    session = backend._open_session(context, backend._make_key())
    numbers = largest_numbers(n_parties, digits.n_bits)
    rows = [[x >> 64 * i & 2**64 - 1 for x in numbers] for i in (0, 1)]
    integers = np.array(rows, dtype=np.uint64)
    parts = [session.hide_integers(integers, i, b"") for i in range(n_parties)]
    added = backend.add_parts([list(column) for column in zip(*parts)])
    total = HiddenVector("ciphertext", len(numbers), 1, b"", added, n_parties)
    low, high = session.reveal_integers(total, len(numbers))
    found = [int(a) + (int(b) << 64) for a, b in zip(low, high.view(np.int64))]
    assert found == [n_parties * x for x in numbers]


class OpenTotal:
    """A CKKS sum of small integers, whose slots a coordinator adds to without a key."""

    def __init__(self, preset="default"):
        self.backend = CKKSBackend(preset=preset)
        self.vectors = np.arange(1, 16).reshape(3, 5)
        self.sessions = start_sessions(self.backend, make_contexts(3))
        self.total = self.backend.add(hide_all(self.sessions, self.vectors))
        self.digits = self.backend.digits(3)

    def reveal_shifted(self, steps):
        """Return what a party reads after so many steps were added to digits."""
        parameters = self.backend._parameters
        server = _ckks._keyless_context(parameters)
        encrypted = _ckks._load(self.total.parts[0], parameters, server)
        n_integers = self.total.length + 2
        shift = np.zeros((self.digits.n_digits, n_integers))
        for place, amount in steps.items():
            shift[place] = amount * 2.0**-self.digits.fraction_bits
        encrypted += shift.ravel().tolist()
        part = _ckks._frame(encrypted.serialize(), parameters)
        return self.sessions["party 0"].reveal(replace(self.total, parts=[part]))


@pytest.mark.parametrize("preset", ["default", "large"])
def test_other_digits_of_the_same_integers_are_harmless(preset):
    n_bits = OpenTotal(preset).digits.n_bits
    for steps in (
        {(0, 1): 2**n_bits, (1, 1): -1},
        {(1, 4): -(2**n_bits), (2, 4): 1},
        {(2, 0): 2 ** (128 - 2 * n_bits)},  # integers are those modulo 2**128
        {(0, 2): 0.1},  # as noise may
    ):
        total = OpenTotal(preset)
        np.testing.assert_array_equal(
            total.reveal_shifted(steps), total.vectors.sum(axis=0)
        )


def forged_slots(n_bits):
    return [
        ({(0, 1): 0.5}, "not on the grid"),
        ({(2, 3): -0.4}, "not on the grid"),
        ({(0, 6): 0.4}, "not on the grid"),
        ({(0, 1): 1}, "not the sum"),
        ({(0, 1): 2**n_bits}, "not the sum"),
        ({(0, 1): 2**n_bits, (1, 1): -2}, "not the sum"),
        ({(0, 1): 2**n_bits, (1, 2): -1}, "not the sum"),
        ({(2, 0): 2 ** (112 - 2 * n_bits)}, "not the sum"),  # modulo 2**112
        ({(2, 0): 2 ** (127 - 2 * n_bits)}, "not the sum"),
        ({(0, 5): 1}, "not the sum"),  # in the tag
        ({(2, 6): -1}, "not the sum"),
    ]


@pytest.mark.parametrize("case", range(11))
def test_attack_forged_slots(case):
    total = OpenTotal()
    steps, message = forged_slots(total.digits.n_bits)[case]
    with pytest.raises(ProtocolError, match=message):
        total.reveal_shifted(steps)


def test_attack_slots_beyond_the_limit():
    """This preset has room for them in its modulus: nothing wraps around."""
    for steps in (2.0**47, -(2.0**47), 2.0**60):
        total = OpenTotal("large")
        assert steps**2 > (total.digits.limit * 2.0**total.digits.fraction_bits) ** 2
        with pytest.raises(ProtocolError, match="beyond the limit"):
            total.reveal_shifted({(1, 2): steps})


def test_without_tags_forged_slots_are_read(monkeypatch):
    """The twin: what is on the grid passes; the grid is no check of its own."""
    monkeypatch.setattr(TagSecrets, "check", lambda self, values, tag, parties: None)
    total = OpenTotal()
    found = total.reveal_shifted({(0, 1): 7})
    np.testing.assert_array_equal(found - total.vectors.sum(axis=0), [0, 7, 0, 0, 0])


@pytest.mark.parametrize("preset", ["default", "fast"])
def test_changes_of_any_slot_are_refused_or_harmless(preset, monkeypatch):
    """Two thousand of them, beyond encryption: the slots themselves are replaced."""
    total = OpenTotal(preset)
    session, digits = total.sessions["party 0"], total.digits
    n_slots = digits.n_digits * (total.total.length + 2)
    slots = session._decrypt(total.total.parts[0], n_slots)
    honest = session._verified(total.total)
    rng, n_refused = np.random.default_rng(0), 0
    for _ in range(2000):
        forged = slots.copy()
        for place in rng.integers(n_slots, size=rng.integers(1, 4)):
            steps = rng.choice([-1, 1]) * 2.0 ** rng.integers(-4, 48)
            forged[place] += steps * 2.0**-digits.fraction_bits
        monkeypatch.setattr(session, "_decrypt", lambda part, size, now=forged: now)
        try:
            read = session._verified(total.total)
        except ProtocolError:
            n_refused += 1
        else:
            np.testing.assert_array_equal(read, honest)
    assert n_refused > 1500


def test_long_vectors_take_no_more_than_their_ciphertexts():
    """Memory in proportion to the ciphertexts, and three slots for each value."""
    backend = CKKSBackend()
    length = 60_000
    sessions = start_sessions(backend, make_contexts(2))
    vectors = np.random.default_rng(0).normal(size=(2, length))
    tracemalloc.start()
    total = secure_sum(backend, vectors, sessions)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    hidden = sessions["party 0"].hide(vectors[0], "statistics")
    n_bytes = sum(map(len, hidden.parts))
    assert len(hidden.parts) == -(-3 * (length + 2) // 2048)
    # vectors of two parties, on the wire and off it, and their sum
    assert peak < 8 * n_bytes
    np.testing.assert_allclose(total, vectors.sum(axis=0), rtol=0, atol=1e-14)


def test_ciphertexts_that_parties_do_not_make_are_refused():
    """Another scale, another number of slots, other parameters."""
    backend = CKKSBackend()
    parameters = backend._parameters
    sessions = start_sessions(backend, make_contexts(2))
    session = sessions["party 0"]

    def refuses(encrypted, match):
        part = _ckks._frame(encrypted.serialize(), parameters)
        with pytest.raises(ProtocolError, match=match):
            session._decrypt(part, 7)

    refuses(ts.ckks_vector(session._context, [1.0] * 7, 2.0**40), "as parties make")
    refuses(ts.ckks_vector(session._context, [1.0] * 8), "too many or too few")
    refuses(ts.ckks_vector(session._context, [1.0] * 3), "too many or too few")


def made_by_multiplying(how):
    """Return a session and what a coordinator can make of a party's ciphertext."""
    backend = CKKSBackend()
    session = start_sessions(backend, make_contexts(2))["party 0"]
    # TenSEAL multiplies by factors of the same scale, for which there must be room
    encrypted = ts.ckks_vector(session._context, [0.5] * 7, 2.0**35)
    session._context.auto_rescale = how == "another level"
    product = (encrypted * 2.0).serialize()
    # a frame of the size of parties', which is another check
    size, _ = _ckks._frame_sizes(backend._parameters)
    return session, len(product).to_bytes(4, "little") + product.ljust(size, b"\0")


@pytest.mark.parametrize("how", ["another scale", "another level"])
def test_attack_ciphertext_multiplied_by_the_coordinator(how):
    session, part = made_by_multiplying(how)
    with pytest.raises(ProtocolError, match="as parties make"):
        session._decrypt(part, 7)


# TenSEAL takes the scale after a change of level for that before, half of it here
@pytest.mark.parametrize("how, read", [("another scale", 1), ("another level", 0.5)])
def test_without_the_look_at_ciphertexts_others_are_read(how, read, monkeypatch):
    session, part = made_by_multiplying(how)

    def load(part, parameters, context, size):
        size = int.from_bytes(part[:4], "little")
        return ts.ckks_vector_from(context, part[4 : 4 + size])

    monkeypatch.setattr(_ckks, "_load", load)
    np.testing.assert_allclose(session._decrypt(part, 7), read, atol=1e-3)


def reveal_wrapped(n_read, is_checked):
    """Print what a party makes of a total that declares two numbers of values.

    In 32 bits they add up to the right one. A coordinator needs no key for that.
    """
    backend = CKKSBackend()
    session, _ = start_sessions(backend, make_contexts(2)).values()
    (part,) = session.hide(np.ones(3), "statistics").parts
    data = part[4:][: int.from_bytes(part[:4], "little")]
    tag, _, n_values = data[:3]
    declared = _ckks._varint(n_read) + _ckks._varint(2**32 - n_read + n_values)
    data = bytes([tag, len(declared)]) + declared + data[3:]
    if not is_checked:
        _ckks._check_serialised = lambda data, parameters, size: None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        print(len(session._decrypt(_ckks._frame(data, backend._parameters), 15)))
    except ProtocolError as error:
        print(error)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(grown // 1024, "MiB")


def reveal_elsewhere(n_read, is_checked):
    """Return what :func:`reveal_wrapped` prints, in a process that may crash."""
    code = "from tests.crypto.test_ckks import reveal_wrapped; "
    code += f"reveal_wrapped({n_read}, {is_checked})"

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))

    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, preexec_fn=limit
    )


# beyond the slots; beyond the memory; so many that TenSEAL did not come back
@pytest.mark.parametrize("n_read", [3000, 10**8, 2**31])
def test_attack_numbers_of_values_that_wrap_around(n_read):
    done = reveal_elsewhere(n_read, is_checked=True)
    said, grown = done.stdout.splitlines()
    assert "too many or too few values" in said
    assert grown == "0 MiB"


def test_without_the_look_at_the_framing_memory_is_read():
    """2,048 slots are what a ciphertext has; the others are whatever is behind them."""
    n_read = 100_000
    done = reveal_elsewhere(n_read, is_checked=False)
    if done.returncode >= 0:  # memory that is not there ends the process
        n_values, _ = done.stdout.splitlines()
        assert int(n_values) == n_read


def test_the_framing_has_one_form():
    """Numbers in more bytes than needed, fields twice, in another order, or more."""
    backend = CKKSBackend()
    session = start_sessions(backend, make_contexts(2))["party 0"]
    (part,) = session.hide(np.ones(3), "statistics").parts
    data = part[4:][: int.from_bytes(part[:4], "little")]
    sizes, scale = data[:3], data[-9:]
    middle = data[3:-9]
    at = middle.index(b"\x5e\xa1")
    longer = middle[: at - 1] + bytes([middle[at - 1] | 0x80, 0]) + middle[at:]
    other_version = middle.replace(b"\x5e\xa1\x10\x04", b"\x5e\xa1\x10\x03", 1)
    _ckks._check_serialised(sizes + middle + scale, backend._parameters, 15)
    for changed in (
        [b"\x0a\x02\x8f\x00", middle, scale],
        [sizes, longer, scale],
        [sizes, other_version, scale],
        [sizes, sizes, middle, scale],
        [sizes, middle, middle, scale],
        [sizes, middle, scale, scale],
        [middle, sizes, scale],
        [sizes, scale, middle],
        [sizes, middle, scale, b"\x20\x01"],
        [sizes, middle],
        [],
    ):
        with pytest.raises(ProtocolError, match="too many|as parties make"):
            _ckks._check_serialised(b"".join(changed), backend._parameters, 15)


def test_fields_inside_the_ciphertext_are_looked_at():
    """This preset compresses nothing, so that a coordinator can write to them."""
    backend = CKKSBackend(preset="fast")
    session = start_sessions(backend, make_contexts(2))["party 0"]
    (part,) = session.hide(np.ones(3), "statistics").parts
    scale = np.array(2.0**40).tobytes()
    assert part.count(scale) == 2
    place = part.index(scale)
    other = part[:place] + np.array(2.0**39).tobytes() + part[place + 8 :]
    with pytest.raises(ProtocolError, match="as parties make"):
        session._decrypt(other, 15)
    assert len(session._decrypt(part, 15)) == 15


@pytest.mark.parametrize("preset", list(_ckks.PRESETS))
def test_server_context_holds_no_key(preset):
    backend = CKKSBackend(preset=preset)
    server = _ckks._keyless_context(backend._parameters)
    assert not server.has_secret_key()
    assert not server.has_galois_keys()
    assert not server.has_relin_keys()
    with pytest.raises(ValueError, match="public_key"):
        server.has_public_key()  # there is no such thing in symmetric encryption
    # The broken twin, a context as TenSEAL makes it, would fail the lines above.
    twin = _ckks._new_context(backend._parameters)
    assert twin.has_secret_key()
    assert twin.has_relin_keys()
    # Parameters only: shorter than any key.
    assert len(_ckks._serialise(server, secret=False)) < 200
    sessions = start_sessions(backend, make_contexts(2))
    part = hide_all(sessions, np.ones((2, 3)))[0].parts[0]
    with pytest.raises(ValueError, match="hold a secret_key"):
        _ckks._load(part, backend._parameters, server).decrypt()


def test_party_context_holds_no_needless_keys():
    sessions = start_sessions(CKKSBackend(), make_contexts(2))
    for session in sessions.values():
        assert session._context.has_secret_key()
        assert not session._context.has_galois_keys()
        assert not session._context.has_relin_keys()


def test_no_key_in_what_the_server_receives():
    """Scan for 32-byte pieces of the secret context, which has no long zero runs."""
    contexts = make_contexts(2)
    backend = CKKSBackend()
    start_sessions(backend, contexts)  # for a group key
    secret = backend._make_key()
    sessions = {
        name: backend._open_session(context, secret)
        for name, context in contexts.items()
    }
    exchange = Exchange(sessions, np.ones((2, 3)))
    exchange.run(backend)
    received = b"".join(
        part
        for said in exchange.received
        for reply in said.values()
        for part in reply["vector"][2:]
    )

    def leaks(data):
        return any(
            secret[i : i + 32] in data for i in range(200, len(secret) - 32, 997)
        )

    assert not leaks(received)
    assert leaks(received + secret)  # the scan can fail


def test_key_of_other_parameters_is_refused():
    contexts = make_contexts(2)
    start_sessions(CKKSBackend(), contexts)
    secret = CKKSBackend(preset="fast")._make_key()
    with pytest.raises(ProtocolError, match="parameters agreed on"):
        CKKSBackend()._open_session(contexts["party 1"], secret)
    # Without its secret key a context is no use to a key holder.
    server = _ckks._keyless_context(CKKSBackend()._parameters)
    keyless = _ckks._serialise(server, secret=False)
    with pytest.raises(ProtocolError, match="parameters agreed on"):
        CKKSBackend()._open_session(contexts["party 1"], keyless)


def test_keys_are_fresh_for_every_session():
    assert CKKSBackend()._make_key() != CKKSBackend()._make_key()


def test_frames_have_one_size():
    """TenSEAL compresses ciphertexts to lengths that vary by chance."""
    backend = CKKSBackend()
    session = start_sessions(backend, make_contexts(1))["party 0"]
    rng = np.random.default_rng(0)
    sizes, raw_sizes = set(), set()
    for _ in range(60):
        (part,) = session.hide(rng.normal(size=rng.integers(1, 681)), "op").parts
        sizes.add(len(part))
        raw_sizes.add(int.from_bytes(part[:4], "little"))
    assert len(raw_sizes) > 10
    assert len(sizes) == 1
    assert sizes.pop() < 1.1 * max(raw_sizes)
