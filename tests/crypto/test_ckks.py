import numpy as np
import pytest
import tenseal as ts

from skprivbn.crypto import CKKSBackend, _ckks
from skprivbn.exceptions import ProtocolError
from tests.crypto.micro_federation import (
    MicroFederation,
    hide_all,
    make_contexts,
    secure_sum,
    start_sessions,
)


@pytest.mark.parametrize("preset", list(_ckks.PRESETS))
def test_presets_are_secure(preset):
    backend = CKKSBackend(preset=preset)
    backend.validate()
    degree, primes, _ = backend._parameters()
    # SEAL's own opinion, at 128 bits: creating the context would raise otherwise.
    ts.context(ts.SCHEME_TYPE.CKKS, degree, coeff_mod_bit_sizes=list(primes))


def test_security_table_is_seals():
    import tenseal.sealapi as seal

    level = seal.SEC_LEVEL_TYPE.TC128
    assert {
        degree: seal.CoeffModulus.MaxBitCount(degree, level)
        for degree in _ckks.MAX_MODULUS_BITS
    } == _ckks.MAX_MODULUS_BITS


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"coeff_mod_bit_sizes": [60, 60]}, "below 128-bit security.*at most 109"),
        ({"poly_modulus_degree": 2048}, "below 128-bit security"),
        ({"poly_modulus_degree": 5000}, "must be one of"),
        ({"coeff_mod_bit_sizes": [60]}, "at least two primes"),
        ({"coeff_mod_bit_sizes": [61, 40]}, "20 to 60 bits"),
        ({"scale_bits": 71}, "leaves no room"),
        ({"preset": "huge"}, "preset"),
        ({"poly_modulus_degree": "big"}, "poly_modulus_degree"),
    ],
)
def test_bad_parameters_say_what_to_do(parameters, message):
    with pytest.raises(ValueError, match=message):
        CKKSBackend(**parameters).validate()
    # A party checks as well: the coordinator may not weaken the parameters.
    context = make_contexts(2)["party 0"]
    with pytest.raises(ValueError, match=message):
        next(CKKSBackend(**parameters).setup(context))


def test_parameters_override_the_preset():
    backend = CKKSBackend(
        poly_modulus_degree=8192, coeff_mod_bit_sizes=[60, 60], scale_bits=35
    )
    vectors = np.random.default_rng(0).normal(size=(3, 4100)) * 100
    total = secure_sum(backend, vectors)
    grid = backend.numbers(3, 4100).grid
    np.testing.assert_allclose(total, vectors.sum(axis=0), atol=1.5 * grid)


@pytest.mark.parametrize("preset", list(_ckks.PRESETS))
def test_error_is_below_the_bound_and_not_far_below(preset):
    """A bound a hundred times too large would hide a loss of precision."""
    backend = CKKSBackend(preset=preset)
    limit, n_slots = backend.max_sum(), backend._parameters()[0] // 2
    for largest in (4.0, limit):
        vectors = np.random.default_rng(0).uniform(-1, 1, (4, 2000)) * largest / 4
        vectors = np.hstack([vectors, np.zeros((4, n_slots - 2002))])
        sessions = start_sessions(backend, make_contexts(4))
        (part,) = backend.add(hide_all(sessions, vectors)).parts
        slots = sessions["party 0"]._decrypt(part, n_slots)[:-2]
        grid = backend.numbers(4, n_slots - 2).grid
        error = np.abs(slots - (np.rint(vectors / grid) * grid).sum(axis=0)).max()
        # tags are in other slots, and as large as 4 * 2**31 steps of the grid
        bound = backend.error_bound(4, max(largest, grid * 2**33))
        assert bound / 500 < error < bound
        assert bound <= grid / 4


def test_bits_kept_on_the_grid():
    for n_parties in (2, 10, 64):
        for preset in _ckks.PRESETS:
            backend = CKKSBackend(preset=preset)
            numbers = backend.numbers(n_parties, 5000)
            assert np.log2(numbers.limit / numbers.grid) > 42.9
            numbers = backend.numbers(n_parties, 1000)
            assert np.log2(numbers.limit / numbers.grid) > 42.9 + 34


def test_statistics_of_a_mixture_are_exact_to_nine_digits():
    rng = np.random.default_rng(0)
    vectors = 10.0 ** rng.uniform(0, 4, (10, 2500))
    np.testing.assert_allclose(
        secure_sum(CKKSBackend(), vectors), vectors.sum(axis=0), rtol=1e-9
    )


def test_ciphertexts_that_parties_do_not_make_are_refused():
    """Another scale, another number of slots, other parameters."""
    backend = CKKSBackend()
    parameters = backend._parameters()
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
    size, _ = _ckks._frame_sizes(backend._parameters())
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

    def load(part, parameters, context):
        size = int.from_bytes(part[:4], "little")
        return ts.ckks_vector_from(context, part[4 : 4 + size])

    monkeypatch.setattr(_ckks, "_load", load)
    np.testing.assert_allclose(session._decrypt(part, 7), read, atol=1e-3)


@pytest.mark.parametrize(
    "parameters, name",
    [
        ({}, "default"),
        ({"preset": "fast"}, "fast"),
        ({"scale_bits": 45}, None),
        ({"poly_modulus_degree": 8192}, None),
        ({"coeff_mod_bit_sizes": (36, 36, 37)}, None),
    ],
)
def test_only_presets_have_names(parameters, name):
    assert CKKSBackend(**parameters).preset_name() == name


@pytest.mark.parametrize("preset", list(_ckks.PRESETS))
def test_server_context_holds_no_key(preset):
    backend = CKKSBackend(preset=preset)
    server = _ckks._keyless_context(backend._parameters())
    assert not server.has_secret_key()
    assert not server.has_galois_keys()
    assert not server.has_relin_keys()
    with pytest.raises(ValueError, match="public_key"):
        server.has_public_key()  # there is no such thing in symmetric encryption
    # The broken twin, a context as TenSEAL makes it, would fail the lines above.
    twin = _ckks._new_context(backend._parameters())
    assert twin.has_secret_key()
    assert twin.has_relin_keys()
    # Parameters only: shorter than any key.
    assert len(_ckks._serialise(server, secret=False)) < 200
    sessions = start_sessions(backend, make_contexts(2))
    part = hide_all(sessions, np.ones((2, 3)))[0].parts[0]
    with pytest.raises(ValueError, match="hold a secret_key"):
        _ckks._load(part, backend._parameters(), server).decrypt()


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
    federation = MicroFederation(sessions, np.ones((2, 3)))
    backend.secure_sum(federation, "statistics")
    received = b"".join(
        part for reply in federation.sent for part in reply["vector"]["parts"]
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
    server = _ckks._keyless_context(CKKSBackend()._parameters())
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
        (part,) = session.hide(rng.normal(size=rng.integers(1, 2000)), "op").parts
        sizes.add(len(part))
        raw_sizes.add(int.from_bytes(part[:4], "little"))
    assert len(raw_sizes) > 10
    assert len(sizes) == 1
    assert sizes.pop() < 1.1 * max(raw_sizes)
