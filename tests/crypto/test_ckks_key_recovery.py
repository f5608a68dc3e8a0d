"""A CKKS decryption at full precision gives the key away; a rounded one does not.

Li and Micciancio (Eurocrypt 2021): a ciphertext (c0, c1) and its decryption m, noise
included, satisfy c0 + c1 s = m modulo q, which is linear in the secret s. TenSEAL
shows the real parts of the slots only, that is m + conj(m), so it takes two sums.
"""

import numpy as np
import pytest
import tenseal.sealapi as seal

from skprivbn.crypto import CKKSBackend
from tests.crypto.micro_federation import hide_all, make_contexts, start_sessions


def protobuf_field(message, field):
    """Return the first value of a length-delimited field."""
    position = 0

    def varint():
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while position < len(message):
        number, wire_type = divmod(varint(), 8)
        if wire_type == 2:
            size = varint()
            if number == field:
                return message[position : position + size]
            position += size
        elif wire_type == 1:
            position += 8
        else:
            varint()
    raise AssertionError("no such field")


class Attacker:
    """Knows the public parameters, the summed ciphertexts and what was published."""

    def __init__(self, backend, folder):
        self.degree, bits, scale_bits = backend._parameters
        self.scale = 2.0**scale_bits
        parameters = seal.EncryptionParameters(seal.SCHEME_TYPE.CKKS)
        parameters.set_poly_modulus_degree(self.degree)
        moduli = seal.CoeffModulus.Create(self.degree, list(bits))
        parameters.set_coeff_modulus(moduli)
        self.prime = moduli[0].value()
        level = seal.SEC_LEVEL_TYPE.TC128
        self.context = seal.SEALContext(parameters, True, level)
        self.folder = folder

    def load(self, thing, data):
        path = self.folder / "seal"
        path.write_bytes(data)
        thing.load(self.context, str(path))
        return thing

    def ciphertext(self, part):
        """Return c0 and c1 modulo the first prime, evaluated at the NTT points."""
        size = int.from_bytes(part[:4], "little")
        data = protobuf_field(part[4 : 4 + size], 2)
        loaded = self.load(seal.Ciphertext(), data)
        stride = self.degree * loaded.coeff_modulus_size()
        return [
            [loaded[poly * stride + i] for i in range(self.degree)] for poly in (0, 1)
        ]

    def encode(self, slots):
        """Return m + conj(m) modulo the first prime, at the NTT points."""
        plaintext = seal.Plaintext()
        seal.CKKSEncoder(self.context).encode(
            list(2 * np.asarray(slots, dtype=float)), self.scale, plaintext
        )
        return [plaintext[i] for i in range(self.degree)]

    def recover_key(self, sums):
        """Solve for the secret key, given two (ciphertext, published slots)."""
        rows = [(*self.ciphertext(part), self.encode(slots)) for part, slots in sums]
        key, p = [None] * self.degree, self.prime
        for i in range(self.degree // 2):
            # Complex conjugation reverses the order of the NTT points.
            j = self.degree - 1 - i
            (a, b, e), (c, d, f) = (
                (c1[i], c1[j], published[i] - c0[i] - c0[j])
                for c0, c1, published in rows
            )
            inverse = pow(a * d - b * c, -1, p)
            key[i] = (e * d - b * f) * inverse % p
            key[j] = (a * f - e * c) * inverse % p
        return key

    def true_key(self, secret):
        private = protobuf_field(secret, 3)
        loaded = self.load(seal.SecretKey(), protobuf_field(private, 1))
        return [loaded.data()[i] for i in range(self.degree)]


def sums_and_key(backend, vectors_of_sums, monkeypatch):
    """Run two secure sums; return (ciphertext, all slots) of each, and the key."""
    secret = []
    make_key = type(backend)._make_key

    def spy(self):
        secret.append(make_key(self))
        return secret[0]

    monkeypatch.setattr(type(backend), "_make_key", spy)
    sessions = start_sessions(backend, make_contexts(2))
    sums = []
    for vectors in vectors_of_sums:
        # the ciphertext of the lowest digits, without tags or empty slots
        part, *_ = backend.add(hide_all(sessions, vectors)).parts
        sums.append((part, sessions["party 0"]._decrypt(part, 2048)))
    return sums, secret[0]


def small_integers():
    """Return vectors of two sums by two parties, more than a ciphertext holds.

    Double precision keeps all of the noise of small slots, and not of large ones.
    """
    return np.random.default_rng(0).integers(0, 1000, (2, 2, 2100))


@pytest.mark.parametrize("preset", ["default", "fast"])
def test_full_precision_sums_reveal_the_key(preset, tmp_path, monkeypatch):
    backend = CKKSBackend(preset=preset)
    vectors = small_integers()
    sums, secret = sums_and_key(backend, vectors, monkeypatch)
    attacker = Attacker(backend, tmp_path)
    assert attacker.recover_key(sums) == attacker.true_key(secret)


@pytest.mark.parametrize("preset", ["default", "fast"])
def test_rounded_sums_do_not(preset, tmp_path, monkeypatch):
    backend = CKKSBackend(preset=preset)
    vectors = small_integers()
    sums, secret = sums_and_key(backend, vectors, monkeypatch)
    attacker = Attacker(backend, tmp_path)
    # The attacker gets more than parties ever tell: not only the sums but the sums of
    # every digit, on the grid of the slots.
    grid = 2.0 ** -backend.digits(2).fraction_bits
    published = [(part, np.rint(slots / grid) * grid) for part, slots in sums]
    guess, truth = attacker.recover_key(published), attacker.true_key(secret)
    assert sum(a == b for a, b in zip(guess, truth)) < 5
    # The same attacker on the same sums before rounding succeeds.
    assert attacker.recover_key(sums) == truth
