"""Forged totals are refused, honest ones never; the checks and what they rest on."""

import hashlib
import os
import pickle
import secrets
from dataclasses import replace

import numpy as np
import pytest

from skprivbn.crypto import (
    CKKSBackend,
    MaskingBackend,
    PaillierBackend,
    PlaintextBackend,
    _authentication,
)
from skprivbn.crypto._authentication import GroupKey, TagRing, agree_on_group_key
from skprivbn.crypto._derive import KeyStream
from skprivbn.crypto._masking import add_masked, read_limbs
from skprivbn.crypto._masking_rounds import SignedMaskingSession
from skprivbn.crypto._numbers import add_limbs
from skprivbn.exceptions import ProtocolError
from tests.crypto.micro_federation import (
    Exchange,
    converse,
    hide_all,
    make_contexts,
    secure_sum,
    start_sessions,
)
from tests.federation.hostile import forge

RINGS = {
    "masking": (MaskingBackend.ring, 2, 128),
    "paillier": (PaillierBackend.ring, 2, 113),
    "ckks": (CKKSBackend.ring, 2, 113),
}
TINY = TagRing(251, coefficient_bits=8, digit_bits=4)
BACKENDS = {
    "masking": MaskingBackend(),
    "recovery": MaskingBackend(recovery=True),
    "signed": MaskingBackend(signed=True),
    "masking for all": MaskingBackend(),
    "signed for all": MaskingBackend(signed=True),
    "recovery for all": MaskingBackend(recovery=True),
    "plaintext": PlaintextBackend(),
    "paillier": PaillierBackend(key_size=512, insecure_test_key=True),
    "ckks": CKKSBackend(),
    "ckks fast": CKKSBackend(preset="fast"),
}


def to_limbs(numbers, n_limbs):
    rows = [[n >> 64 * i & 2**64 - 1 for n in numbers] for i in range(n_limbs)]
    return np.array(rows, dtype=np.uint64)


def fresh_secrets(ring, length, parties=("p",)):
    stream = KeyStream(secrets.token_bytes(32))
    return ring.secrets(stream, 1, b"a sum", length, parties)


def random_integers(rng, n, bits):
    """Signed integers below 2**(bits - 1), of all sizes."""
    return [
        int(rng.integers(-1, 2))
        * (secrets.randbits(bits - 1) >> int(rng.integers(bits)))
        for _ in range(n)
    ]


@pytest.mark.parametrize("short", [0, 64])
@pytest.mark.parametrize("name", RINGS)
def test_inner_product_is_that_of_python_integers(name, short, monkeypatch):
    monkeypatch.setattr(_authentication, "_SHORT", short)
    ring, n_limbs, bits = RINGS[name]
    rng = np.random.default_rng(0)
    for length, chunk in [(0, 8), (1, 8), (7, 8), (8, 8), (61, 8), (300, 2**13)]:
        monkeypatch.setattr(_authentication, "_CHUNK", chunk)
        most = 2 ** (min(bits, 64 * n_limbs) - 1) - 1
        numbers = [*random_integers(rng, length, bits), -most, most, -1][-length or 0 :]
        numbers = numbers[:length]
        tags = fresh_secrets(ring, length)
        mask = 2**ring.coefficient_bits - 1
        coefficients = [
            int.from_bytes(digits.tobytes(), "little") & mask for digits in tags.digits
        ]
        product = ring.inner_product(tags.digits, to_limbs(numbers, n_limbs))
        assert product == sum(map(int.__mul__, coefficients, numbers)) % ring.modulus


def test_sums_of_long_vectors_stay_exact():
    """All digits as large as can be, over many chunks."""
    length = 3 * 2**13 + 5
    digits = np.full((length, 4), 0xFFFF, dtype="<u2")
    for number in (2**127 - 1, -1, -(2**127)):
        integers = np.repeat(to_limbs([number], 2), length, axis=1)
        product = MaskingBackend.ring.inner_product(digits, integers)
        assert product == length * (2**64 - 1) * number % 2**192


@pytest.mark.parametrize("name", RINGS)
@pytest.mark.parametrize("n_parties", [1, 3, 64])
def test_tags_of_parties_add_up(name, n_parties):
    """Digits are added as integers by the backend, and put together afterwards."""
    ring, n_limbs, bits = RINGS[name]
    rng = np.random.default_rng(1)
    parties = [f"p{i}" for i in range(n_parties)]
    for length in (0, 1, 20):
        tags = fresh_secrets(ring, length, parties)
        each = [random_integers(rng, length, bits - 7) for _ in parties]
        digits = [tags.tag(to_limbs(x, n_limbs), p) for x, p in zip(each, parties)]
        total = to_limbs([sum(column) for column in zip(*each)], n_limbs)
        columns = [
            sum(int.from_bytes(d[:, i].tobytes(), "little") for d in digits)
            for i in range(ring.n_digits)
        ]
        assert max(columns) < 2 ** (64 * n_limbs - 1)
        tags.check(total, to_limbs(columns, n_limbs), parties)
        if n_parties > 1:
            with pytest.raises(ProtocolError, match="not the sum"):
                tags.check(total, to_limbs(columns, n_limbs), parties[1:])


def count_refused(name, n_parties, n_trials):
    """Return how many honest totals are refused, of values as large as they can be."""
    ring, n_limbs, bits = RINGS[name]
    rng, parties = np.random.default_rng(3), [f"p{i}" for i in range(n_parties)]
    # so much that the sum of all just fits
    largest = (2 ** (bits - 1) - 1) // n_parties
    n_refused = 0
    for _ in range(n_trials):
        tags = fresh_secrets(ring, 4, parties)
        each = [
            [largest, -largest, *random_integers(rng, 2, bits - 7)] for _ in parties
        ]
        digits = [tags.tag(to_limbs(x, n_limbs), p) for x, p in zip(each, parties)]
        total = to_limbs([sum(column) for column in zip(*each)], n_limbs)
        columns = [
            sum(int.from_bytes(d[:, i].tobytes(), "little") for d in digits)
            for i in range(ring.n_digits)
        ]
        try:
            tags.check(total, to_limbs(columns, n_limbs), parties)
        except ProtocolError:
            n_refused += 1
    return n_refused


@pytest.mark.parametrize("name", RINGS)
@pytest.mark.parametrize(
    ("n_parties", "n_trials"),
    [(3, 500), pytest.param(64, 10_000, marks=pytest.mark.slow)],
)
def test_honest_totals_are_never_refused(name, n_parties, n_trials):
    assert count_refused(name, n_parties, n_trials) == 0


def structured_changes(ring, bits):
    """Differences that a careless check would miss."""
    powers = [2**i for i in range(bits)]
    multiples = [k * (2**61 - 1) for k in (1, 2, 8)] + [2**61, 2**64, 2**96]
    some = powers + [k for k in multiples if k < 2**bits] + [2**bits - 1]
    return [sign * k for k in some for sign in (1, -1)]


def accepted(ring, n_limbs, tags, numbers, tag, change, parties):
    """Tell whether a total passes after the forger's change of values and tag."""
    values, digits = change
    forged = [(x + d) for x, d in zip(numbers, values)]
    limbs = to_limbs([(t + d) for t, d in zip(tag, digits)], n_limbs)
    try:
        tags.check(to_limbs(forged, n_limbs), limbs, parties)
    except ProtocolError:
        return False
    return True


def count_accepted(ring, n_limbs, bits, n_trials):
    rng = np.random.default_rng(2)
    structured = structured_changes(ring, bits - 1)
    n_accepted = 0
    for trial in range(n_trials):
        numbers = random_integers(rng, 4, bits - 3)
        tags = fresh_secrets(ring, 4)
        tag = tags.tag(to_limbs(numbers, n_limbs), "p")
        tag = [int.from_bytes(column.tobytes(), "little") for column in tag.T]
        values = [0, 0, 0, 0]
        if trial % 2:
            values[trial % 4] = structured[trial // 2 % len(structured)]
        else:
            values = random_integers(rng, 4, bits - 3)
            values[0] = values[0] or 1
        # the best a forger can do about the tag is to guess
        guess = secrets.randbelow(ring.modulus) if trial % 3 else 0
        digits = [guess & 2**ring.digit_bits - 1, guess >> ring.digit_bits]
        n_accepted += accepted(
            ring, n_limbs, tags, numbers, tag, (values, digits), ["p"]
        )
    return n_accepted


@pytest.mark.parametrize("name", RINGS)
def test_ten_thousand_forgeries_are_refused(name):
    ring, n_limbs, bits = RINGS[name]
    assert count_accepted(ring, n_limbs, bits, 10_000) == 0


def test_the_same_forgeries_pass_over_a_tiny_field_at_its_rate():
    """So the trials above can succeed: 10,000 of them at a chance of 1/251."""
    found = count_accepted(TINY, 1, 47, 10_000)
    # 40 expected, standard deviation 6
    assert 12 < found < 75


def test_values_in_a_field_too_small_for_them_are_forged_at_once():
    """128-bit integers modulo a 61-bit prime: adding the prime changes nothing."""
    ring = TagRing(2**61 - 1, coefficient_bits=61, digit_bits=31)
    numbers = [5 << 64, -3]
    tags = fresh_secrets(ring, 2)
    tag = [
        int.from_bytes(c.tobytes(), "little")
        for c in tags.tag(to_limbs(numbers, 2), "p").T
    ]
    shift = 8 * (2**61 - 1)
    assert accepted(ring, 2, tags, numbers, tag, ([shift, 0], [0, 0]), ["p"])
    ring = MaskingBackend.ring
    tags = fresh_secrets(ring, 2)
    tag = [
        int.from_bytes(c.tobytes(), "little")
        for c in tags.tag(to_limbs(numbers, 2), "p").T
    ]
    assert not accepted(ring, 2, tags, numbers, tag, ([shift, 0], [0, 0]), ["p"])


def test_tags_tell_nothing_of_the_values():
    """Each is padded once: its bits are fair coins, whatever the values."""
    for ring, n_limbs, _ in RINGS.values():
        tags = [
            fresh_secrets(ring, 2).tag(to_limbs([1, 2], n_limbs), "p")
            for _ in range(2000)
        ]
        low = np.array([tag[0, 0] for tag in tags], dtype=np.uint64)
        bits = np.unpackbits(low.view(np.uint8).reshape(-1, 8), axis=1)
        n_bits = min(ring.digit_bits, 56) // 8 * 8
        assert np.abs(bits[:, :n_bits].mean(axis=0) - 0.5).max() < 6 * 0.5 / 2000**0.5


def run_sum(backend, vectors, readers="parties"):
    """Return sessions and the total as the coordinator hands it back."""
    sessions = start_sessions(backend, make_contexts(len(vectors)), readers)
    total = Exchange(sessions, vectors).run(backend)
    if readers == "all":
        _, total = backend.publish(total)
    return sessions, total


def readers_of(name):
    return "all" if name.endswith("for all") else "parties"


@pytest.mark.parametrize("name", BACKENDS)
def test_honest_sums_are_accepted_by_all_and_twice(name):
    backend = BACKENDS[name]
    vectors = np.random.default_rng(0).normal(size=(4, 9)) * 1000
    sessions, total = run_sum(backend, vectors, readers_of(name))
    for session in sessions.values():
        for _ in range(2):
            np.testing.assert_allclose(
                session.reveal(total), vectors.sum(axis=0), rtol=0, atol=1e-11
            )


@pytest.mark.parametrize("name", [n for n in BACKENDS if n != "ckks fast"])
def test_extreme_values_of_64_parties_are_accepted(name):
    backend = BACKENDS[name]
    largest, grid = np.nextafter(2.0**55 / 64, 0), 2.0**-56
    pattern = np.array([largest, -largest, grid, -grid, 0.0, grid / 2, 1.0])
    sessions, total = run_sum(backend, np.tile(pattern, (64, 1)), readers_of(name))
    revealed = sessions["party 0"].reveal(total)
    # half a step of the grid is rounded to the even one
    expected = 64 * np.where(pattern == grid / 2, 0.0, pattern)
    np.testing.assert_array_equal(revealed, expected)


#: what to add to a number: multiples of moduli, the ends of all ranges, one unit
STRUCTURED = [
    *(
        sign << bits
        for bits in (0, 1, 55, 56, 63, 64, 96, 111, 112, 127)
        for sign in (1, -1)
    ),
    *(k * (2**61 - 1) for k in (1, -1, 8)),
    *(2**111 - 1, 2**127 - 1, -(2**127), 2**192, 251),
]


def masked_forgery(total, rng):
    """Change what masks hide, as it travels: any byte, or a number by some amount."""
    parts = [bytearray(part) for part in total.parts]
    which = int(rng.integers(len(parts)))
    part, kind = parts[which], rng.integers(4)
    if kind == 0:
        # how long numbers are, and how far they are shifted
        part[int(rng.integers(2))] ^= int(rng.integers(1, 256))
    elif kind == 1 or len(parts) > 1:
        part[int(rng.integers(len(part)))] ^= int(rng.integers(1, 256))
    else:
        amount = STRUCTURED[rng.integers(len(STRUCTURED))] % 2**128
        place, shift = rng.integers(total.length), to_limbs([amount], 2)

        def change(limbs):
            add_limbs(limbs[:, place : place + 1], shift)

        return forge(total, change)
    return replace(total, parts=[bytes(part) for part in parts])


def additions(backend, total, rng):
    """Forge without a key: add a plaintext to what is there, or replace it."""
    if "masking" in backend.name or backend.name == "plaintext":
        return masked_forgery(total, rng)
    if backend.name == "paillier":
        modulus, *parts = total.parts
        n = int.from_bytes(modulus, "big")
        which = rng.integers(len(parts))
        shift = int(rng.integers(1, 2**62)) << int(rng.integers(0, 400))
        number = int.from_bytes(parts[which], "big") * (1 + shift * n) % n**2
        parts[which] = number.to_bytes(len(parts[which]), "big")
        return replace(total, parts=[modulus, *parts])
    from skprivbn.crypto import _ckks

    parameters = backend._parameters
    server = _ckks._keyless_context(parameters)
    encrypted = _ckks._load(total.parts[0], parameters, server)
    digits = backend.digits(3)
    shift = np.zeros(digits.n_digits * (total.length + 2))
    # from a fraction of a step to more than a slot holds
    exponent = -digits.fraction_bits - 3 + rng.integers(0, 50)
    shift[rng.integers(len(shift))] = 2.0**exponent * rng.choice([-1, 1])
    encrypted += shift.tolist()
    return replace(total, parts=[_ckks._frame(encrypted.serialize(), parameters)])


def end_to_end(name, n_forgeries):
    """Return how many forged totals an honest party accepts with another value."""
    backend = BACKENDS[name]
    rng = np.random.default_rng(0)
    n_wrong = 0
    for _ in range(n_forgeries):
        vectors = rng.normal(size=(3, 5))
        sessions, total = run_sum(backend, vectors, readers_of(name))
        honest = sessions["party 0"].reveal(total)
        try:
            forged = sessions["party 1"].reveal(additions(backend, total, rng))
        except ProtocolError:
            continue
        n_wrong += not np.array_equal(forged, honest)
    return n_wrong


@pytest.mark.parametrize("name", BACKENDS)
def test_forged_totals_are_refused_end_to_end(name):
    assert end_to_end(name, 20) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", BACKENDS)
def test_200_forged_totals_are_refused_end_to_end(name):
    assert end_to_end(name, 200) == 0


@pytest.mark.parametrize("name", BACKENDS)
def test_without_the_check_forged_totals_pass(name, monkeypatch):
    """The twin: every backend takes what a coordinator without any key makes up."""
    monkeypatch.setattr(
        _authentication.TagSecrets, "check", lambda self, values, tag, parties: None
    )
    if "signed" in name:
        # these have two checks, each of which is enough
        assert end_to_end(name, 12) == 0
        monkeypatch.setattr(SignedMaskingSession, "reveal_integers", add_unseen)
    assert end_to_end(name, 12) > 0


def add_unseen(session, total, n_integers):
    """Add what the coordinator hands over, whoever has signed it."""
    added = replace(total, parts=add_masked([total.parts]))
    parent = super(SignedMaskingSession, session)
    return parent.reveal_integers(added, n_integers)


@pytest.mark.parametrize("name", ["masking", "masking for all", "plaintext"])
def test_forged_totals_pass_end_to_end_over_a_field_of_seven_at_its_rate(
    name, monkeypatch
):
    """So none of the forgeries above is refused for another reason only."""
    ring = TagRing(7, coefficient_bits=3, digit_bits=2)
    monkeypatch.setattr(type(BACKENDS[name]), "ring", ring)
    # One in seven where masks spread a forgery over the ring; without masks a changed
    # byte is often a multiple of seven, and one in four passes (40 of 150, spread 6).
    assert 3 < end_to_end(name, 150) < 75


@pytest.mark.parametrize("name", ["masking", "plaintext", "paillier", "ckks"])
def test_scaled_dropped_and_repeated_contributions_are_refused(name):
    backend = BACKENDS[name]
    vectors = np.arange(12.0).reshape(3, 4)

    def forge(combine):
        sessions = start_sessions(backend, make_contexts(3))
        first, second = hide_all(sessions, vectors), None
        total = replace(combine(first, second), addends=3, key=first[0].key)
        with pytest.raises(ProtocolError):
            sessions["party 0"].reveal(total)

    forge(lambda h, _: backend.add(h[:2]))
    forge(lambda h, _: h[1])
    forge(lambda h, _: backend.add([h[0], h[0], h[0]]))
    forge(lambda h, _: backend.add([*h, h[1]]))


@pytest.mark.parametrize("name", ["masking", "plaintext", "paillier", "ckks"])
def test_total_of_the_sum_before_is_refused(name):
    backend = BACKENDS[name]
    sessions = start_sessions(backend, make_contexts(3))
    vectors = np.ones((3, 4))
    old = backend.add(hide_all(sessions, vectors))
    new = backend.add(hide_all(sessions, 2 * vectors))
    relabelled = replace(old, key=new.key, round=new.round)
    with pytest.raises(ProtocolError):
        sessions["party 0"].reveal(relabelled)
    np.testing.assert_allclose(sessions["party 1"].reveal(new), 6.0)


def test_verified_totals_bind_what_comes_next():
    """Parties that accepted different totals have no further sum in common."""
    sessions = start_sessions(MaskingBackend(), make_contexts(3))
    vectors = np.ones((3, 4))
    total = MaskingBackend().add(hide_all(sessions, vectors))
    for name in ("party 0", "party 1"):
        sessions[name].reveal(total)
    keys = [hidden.key for hidden in hide_all(sessions, vectors)]
    assert keys[0] == keys[1] != keys[2]


def test_without_the_transcript_different_totals_stay_unnoticed(monkeypatch):
    monkeypatch.setattr(GroupKey, "add_verified", lambda self, name, total: None)
    sessions = start_sessions(MaskingBackend(), make_contexts(3))
    total = MaskingBackend().add(hide_all(sessions, np.ones((3, 4))))
    sessions["party 0"].reveal(total)
    keys = {hidden.key for hidden in hide_all(sessions, np.ones((3, 4)))}
    assert len(keys) == 1


def guesses_until_one_passes(monkeypatch):
    """Return whether a forger who may try again and again has success at last."""
    ring = TagRing(7, coefficient_bits=3, digit_bits=2)
    monkeypatch.setattr(PlaintextBackend, "ring", ring)
    sessions, total = run_sum(PlaintextBackend(), np.ones((2, 3)))
    for guess in range(1, 50):
        limbs = np.frombuffer(bytearray(total.parts[0]), np.uint64).reshape(2, -1)
        limbs[0, 0] += np.uint64(guess)
        try:
            sessions["party 0"].reveal(replace(total, parts=[limbs.tobytes()]))
        except ProtocolError:
            continue
        return True
    return False


def test_attack_a_second_guess_is_not_heard(monkeypatch):
    """Most first guesses fail, and then nothing passes any more."""
    found = [guesses_until_one_passes(monkeypatch) for _ in range(40)]
    assert sum(found) < 20


def test_without_erased_keys_some_guess_passes(monkeypatch):
    monkeypatch.setattr(GroupKey, "erase", lambda self: None)
    assert all(guesses_until_one_passes(monkeypatch) for _ in range(40))


def test_second_total_must_be_the_first():
    """Even one with a right tag: a sum has one total."""
    backend = PlaintextBackend()
    sessions, total = run_sum(backend, np.ones((2, 3)))
    session = sessions["party 0"]
    session.reveal(total)
    session._last.accepted = hashlib.sha256(b"another").digest()
    with pytest.raises(ProtocolError, match="another total"):
        session.reveal(total)


def test_first_failure_erases_the_keys():
    backend = PlaintextBackend()
    sessions, total = run_sum(backend, np.ones((2, 3)))
    session = sessions["party 0"]
    limbs = np.frombuffer(bytearray(total.parts[0]), np.uint64).reshape(2, -1)
    limbs[1, 0] += np.uint64(1)
    with pytest.raises(ProtocolError, match="not the sum"):
        session.reveal(replace(total, parts=[limbs.tobytes()]))
    assert session._group._key is None
    for attempt in (lambda: session.hide(np.ones(3), "more"),):
        with pytest.raises(ProtocolError, match="erased"):
            attempt()


def derived_by_a_child(group):
    """Return what a forked process says when it is to use the key."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover -- another process
        try:
            os.write(write_end, group.derive("pads"))
        except ProtocolError:
            os.write(write_end, b"refused")
        os._exit(0)
    os.waitpid(child, 0)
    said = os.read(read_end, 100)
    os.close(read_end)
    os.close(write_end)
    return said


def test_forked_process_refuses(monkeypatch):
    group = GroupKey(bytes(32))
    assert derived_by_a_child(group) == b"refused"
    mine = group.derive("pads")
    # the twin: two processes have the same pads, which serve once
    monkeypatch.setattr(GroupKey, "_alive", lambda self: self._key)
    assert derived_by_a_child(group) == mine
    monkeypatch.undo()
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(group)


def test_all_parties_have_the_same_key_and_confirm_it():
    contexts = make_contexts(4)
    keys = converse({n: agree_on_group_key(c, c.roster) for n, c in contexts.items()})
    assert len({group.derive("x") for group in keys.values()}) == 1
    again = converse({n: agree_on_group_key(c, c.roster) for n, c in contexts.items()})
    assert again["party 0"].derive("x") != keys["party 0"].derive("x")


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"party 1": {"contribution": bytes(32)}},
        dict.fromkeys(("party 1", "party 2"), {"contribution": bytes(31)}),
        dict.fromkeys(("party 1", "party 2"), {"contribution": 3}),
        dict.fromkeys(("party 1", "party 2"), {"confirmation": bytes(32)}),
    ],
)
def test_malformed_contributions(answer):
    agreement = agree_on_group_key(
        (context := make_contexts(3)["party 0"]), context.roster
    )
    next(agreement)
    with pytest.raises(ProtocolError, match="expected (the )?contribution"):
        agreement.send(answer)


def test_parties_told_different_contributions_notice():
    agreement = agree_on_group_key(
        (context := make_contexts(2)["party 0"]), context.roster
    )
    next(agreement)
    agreement.send({"party 1": {"contribution": bytes(32)}})
    with pytest.raises(ProtocolError, match="same key"):
        agreement.send({"party 1": {"confirmation": bytes(32)}})


@pytest.mark.parametrize("readers", ["parties", "all"])
def test_coordinator_adds_up_noise_for_parties_only(readers):
    """Without the cover it reads the sum: the twin is masks for all."""
    backend = MaskingBackend()
    sessions = start_sessions(backend, make_contexts(3), readers)
    total = backend.add(hide_all(sessions, np.zeros((3, 2000))))
    sent = np.frombuffer(total.parts[0], np.uint8, 8 * 2000, offset=1)
    bits = np.unpackbits(sent.reshape(-1, 8), axis=1)
    fair = np.abs(bits.mean(axis=0) - 0.5).max() < 6 * 0.5 / 2000**0.5
    assert fair == (readers == "parties")
    for session in sessions.values():
        np.testing.assert_array_equal(session.reveal(total), 0)


def test_covers_are_not_used_twice():
    backend = MaskingBackend()
    sessions = start_sessions(backend, make_contexts(2))
    totals = [backend.add(hide_all(sessions, np.zeros((2, 4)))) for _ in range(2)]
    first, second = (read_limbs(total)[:, :6] for total in totals)
    assert not np.any(first == second)


def test_one_party_alone():
    total = secure_sum(MaskingBackend(), np.ones((1, 3)))
    np.testing.assert_array_equal(total, 1.0)
