"""Whatever a coordinator sends as a total: a party reads the sum, or refuses."""

import struct
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skprivbn.crypto import (
    CKKSBackend,
    HiddenVector,
    MaskingBackend,
    PaillierBackend,
    _ckks,
)
from skprivbn.exceptions import ProtocolError
from tests.crypto.micro_federation import hide_all, make_contexts, start_sessions
from tests.fuzz.profiles import fuzzed
from tests.fuzz.test_hosts import MOST_BYTES, MOST_SECONDS, limited_memory, no_hang

BACKENDS = {
    "masking": MaskingBackend(),
    "paillier": PaillierBackend(key_size=512, insecure_test_key=True),
    # compressed, and as it is: there the parser's own fields can be reached
    "ckks": CKKSBackend(),
    "ckks fast": CKKSBackend(preset="fast"),
}
VECTORS = np.array([[1.0, -2.0, 3.5], [0.25, 4.0, 1.0]])
#: bytes of a part in which lengths, types and versions stand
HEAD = 160
LENGTHS = [0, 1, 7, 8, 127, 128, 2048, 2**16, 2**31, 2**32 - 1, 2**32, 2**63]


def varint(value):
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def packed(values):
    """Return a field of protobuf that has several numbers."""
    values = b"".join(map(varint, values))
    return b"\x0a" + varint(len(values)) + values


numbers = st.sampled_from(LENGTHS) | st.integers(0, 2**64 - 1)
pieces = st.one_of(
    st.binary(min_size=1, max_size=20),
    numbers.map(varint),
    numbers.map(lambda value: struct.pack("<Q", value)),
    numbers.map(lambda value: struct.pack("<I", value % 2**32)),
    st.lists(numbers, max_size=4).map(packed),
)


@st.composite
def changes(draw):
    """Return a function that puts other bytes in the place of some."""
    start = draw(st.integers(0, HEAD) | st.integers(0, 2**17))
    piece, n_replaced = draw(pieces), draw(st.integers(0, 20) | st.none())
    fits, at_end = draw(st.booleans()), draw(st.booleans())

    def change(data):
        place = start % (len(data) + 1)
        place = len(data) - place if at_end else place
        end = place + (len(piece) if n_replaced is None else n_replaced)
        changed = data[:place] + piece + data[end:]
        return changed[: len(data)].ljust(len(data), b"\0") if fits else changed

    return change


@st.composite
def resized(draw):
    """Return a function that declares other numbers of values in a ciphertext."""
    some = draw(st.lists(numbers, min_size=1, max_size=3))

    def change(data):
        n_values, n_bytes = 15, 3
        assert data[:n_bytes] == packed([n_values])
        # in 32 bits they add up to the right number
        last = (n_values - sum(some)) % 2**32
        return packed([*some, last]) + data[n_bytes:]

    return change


def sum_of_two(name):
    """Return a party that hid a vector, and the total that it should be told."""
    backend = BACKENDS[name]
    sessions = start_sessions(backend, make_contexts(2))
    total = backend.add(hide_all(sessions, VECTORS))
    session = sessions["party 1"]
    # a session ends with the first total that is refused, and many are tried
    session._group.erase = lambda: None
    return session, total


def read_or_refuse(session, total):
    total = HiddenVector.from_payload(total.to_payload())
    with no_hang(MOST_SECONDS, total.parts[0][:HEAD]), limited_memory(MOST_BYTES):
        try:
            read = session.reveal(total)
        except ProtocolError:
            return
    np.testing.assert_allclose(read, VECTORS.sum(axis=0), atol=1e-9)


@pytest.mark.parametrize("name", BACKENDS)
def test_totals_are_read_or_refused(name):
    session, total = sum_of_two(name)

    @fuzzed(10)
    @given(st.lists(changes(), min_size=1, max_size=3), st.booleans())
    def check(made, is_longer):
        first, *others = total.parts
        for change in made:
            first = change(first)
        parts = [first, *others, *[first] * is_longer]
        read_or_refuse(session, replace(total, parts=parts))

    check()
    np.testing.assert_allclose(session.reveal(total), VECTORS.sum(axis=0), atol=1e-9)


@pytest.mark.parametrize("name", ["ckks", "ckks fast"])
def test_the_parser_of_ciphertexts_sees_its_own_framing_only(name):
    """Changes are made inside the frame, whose length is then right."""
    session, total = sum_of_two(name)
    (part,) = total.parts
    parameters = BACKENDS[name]._parameters
    data = part[4:][: int.from_bytes(part[:4], "little")]
    # before SEAL's header, and behind the ciphertext
    n_before, n_behind = data.index(b"\x5e\xa1\x10"), 9
    parse, seen = _ckks.ts.ckks_vector_from, []

    def watch(context, changed):
        seen.append(changed)
        return parse(context, changed)

    @fuzzed(10)
    @given(st.lists(changes(), max_size=3), st.none() | resized())
    def check(made, sizes):
        changed = data
        for change in [sizes] * (sizes is not None) + made:
            changed = change(changed)
        try:
            parts = [_ckks._frame(changed, parameters)]
        except StopIteration:  # longer than any ciphertext
            return
        read_or_refuse(session, replace(total, parts=parts))
        # a ciphertext of another length, in three bytes, is the parser's to refuse
        for changed in seen:
            assert changed[: n_before - 3] == data[: n_before - 3]
            assert changed[-n_behind:] == data[-n_behind:]

    with patch.object(_ckks.ts, "ckks_vector_from", watch):
        check()
        session.reveal(total)
    assert len(seen) > 1
