import numpy as np
import pytest
from phe import PaillierPrivateKey

from skprivbn.crypto import PaillierBackend
from skprivbn.crypto._paillier import _encrypt_as_owner, _read_key
from skprivbn.exceptions import ProtocolError
from tests.crypto.micro_federation import (
    hide_all,
    make_contexts,
    secure_sum,
    start_sessions,
)

BACKEND = PaillierBackend(key_size=512, insecure_test_key=True)


@pytest.fixture(scope="module")
def private():
    return _read_key(BACKEND._make_key(), 512)


def test_short_keys_need_a_name():
    with pytest.raises(ValueError, match="insecure_test_key=True"):
        PaillierBackend(key_size=1024).validate()
    with pytest.raises(ValueError, match="insecure_test_key=True"):
        next(PaillierBackend(key_size=1024).setup(make_contexts(2)["party 0"]))
    with pytest.raises(ValueError, match="multiple of 8"):
        PaillierBackend(key_size=2050).validate()
    PaillierBackend(key_size=3072).validate()


def test_real_key_size():
    vectors = np.random.default_rng(0).normal(size=(2, 25)) * 1e4
    backend = PaillierBackend()
    sessions = start_sessions(backend, make_contexts(2))
    modulus, *ciphertexts = hide_all(sessions, vectors)[0].parts
    # 18 values or parts of the tag in a ciphertext of twice the key size
    assert [len(modulus), *map(len, ciphertexts)] == [256, 512, 512]
    np.testing.assert_allclose(
        secure_sum(backend, vectors, sessions), vectors.sum(axis=0), rtol=4e-16
    )


def test_owners_encryption_is_paillier(private):
    """phe decrypts it, and every obfuscator is an n-th residue."""
    n, square = private.public_key.n, private.public_key.nsquare
    totient = (private.p - 1) * (private.q - 1)
    seen = set()
    for plaintext in (0, 1, 12345, n - 1):
        ciphertext = _encrypt_as_owner(private, plaintext)
        assert private.raw_decrypt(ciphertext) == plaintext
        obfuscator = ciphertext * pow(1 + n * plaintext, -1, square) % square
        # The n-th residues are exactly the elements whose order divides phi(n).
        assert pow(obfuscator, totient, square) == 1
        assert obfuscator != 1
        seen.add(obfuscator)
    assert len(seen) == 4


def test_obfuscators_cover_all_residues():
    """With tiny primes: every n-th residue is hit, about equally often."""
    from phe import PaillierPublicKey

    private = PaillierPrivateKey(PaillierPublicKey(5 * 7), 5, 7)
    residues = {pow(r, 35, 35**2) for r in range(35) if r % 5 and r % 7}
    drawn = [_encrypt_as_owner(private, 0) for _ in range(2400)]
    assert set(drawn) == residues
    counts = [drawn.count(r) for r in residues]
    assert len(counts) == 24
    # Mean 100, standard deviation about 10.
    assert min(counts) > 40
    assert max(counts) < 160


def test_missing_obfuscator_would_show_the_plaintext(private):
    """The broken twin: without its obfuscator a ciphertext is 1 + n m."""
    n = private.public_key.n

    def read_without_key(ciphertext):
        return (ciphertext - 1) // n if ciphertext % n == 1 else None

    nude = private.public_key.raw_encrypt(777, r_value=1)
    assert read_without_key(nude) == 777
    assert read_without_key(_encrypt_as_owner(private, 777)) is None


def test_extreme_values_do_not_spill_into_neighbouring_fields():
    n_parties = 3
    largest = np.nextafter(2.0**55 / n_parties, 0)
    pattern = np.array([largest, -largest, 0.0, -(2.0**-56), 2.0**-56] * 2)
    vectors = np.tile(pattern, (n_parties, 1))
    np.testing.assert_array_equal(secure_sum(BACKEND, vectors), n_parties * pattern)
    largest = (2**63 - 1) // n_parties
    integers = np.array([largest, -largest, -1, 1, 0, 2**55])
    vectors = np.tile(integers, (n_parties, 1))
    np.testing.assert_array_equal(secure_sum(BACKEND, vectors), n_parties * integers)


def test_parallel_encryption_gives_the_same_sums():
    backend = PaillierBackend(key_size=512, insecure_test_key=True, n_jobs=2)
    vectors = np.random.default_rng(0).normal(size=(2, 30))
    np.testing.assert_allclose(
        secure_sum(backend, vectors), vectors.sum(axis=0), rtol=0, atol=4e-16
    )


@pytest.mark.parametrize(
    "spoil",
    [
        lambda secret: secret[:-1],
        lambda secret: bytes(len(secret)),
        lambda secret: secret[:64] * 2,
        lambda secret: secret[:-1] + bytes([secret[-1] ^ 2]),
    ],
)
def test_spoilt_keys_are_refused(spoil):
    with pytest.raises(ProtocolError, match="not a Paillier key"):
        _read_key(spoil(BACKEND._make_key()), 512)


def test_ciphertexts_of_different_keys_cannot_be_added():
    ours, theirs = (
        hide_all(start_sessions(BACKEND, make_contexts(2)), np.ones((2, 3)))
        for _ in range(2)
    )
    forged = [ours[0], type(ours[1])(**{**vars(theirs[1]), "key": ours[0].key})]
    with pytest.raises(ProtocolError, match="different keys"):
        BACKEND.add(forged)


def test_server_receives_the_modulus_and_no_factor(private):
    sessions = start_sessions(BACKEND, make_contexts(2))
    key = sessions["party 0"]._private
    received = b"".join(
        part for h in hide_all(sessions, np.ones((2, 9))) for part in h.parts
    )
    assert key.public_key.n.to_bytes(64, "big") in received
    for factor in (key.p, key.q):
        assert int(factor).to_bytes(32, "big") not in received
