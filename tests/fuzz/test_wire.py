"""Any value survives the wire, and no bytes do more than be refused."""

import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from skprivbn.exceptions import ProtocolError
from skprivbn.federation import decode, encode
from tests.fuzz.profiles import fuzzed

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c16"]
arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(
        dtype, hnp.array_shapes(min_dims=0, max_dims=3, max_side=4)
    )
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=8),
    arrays,
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner)
    ),
    max_leaves=8,
)
# Bytes that mean something to the decoder come up too rarely by chance.
lengths = st.one_of(
    st.integers(0, 20), st.integers(2**20, 2**32 - 1), st.just(2**31)
).map(lambda n: struct.pack("<I", n))
pieces = st.lists(
    st.one_of(
        st.sampled_from([b"N", b"T", b"i", b"f", b"s", b"b", b"a", b"l", b"d"]),
        lengths,
        st.binary(max_size=9),
        st.tuples(st.integers(0, 13), st.integers(0, 9)).map(lambda p: b"a" + bytes(p)),
    ),
    max_size=12,
).map(b"".join)


def with_header(body):
    return struct.pack("<4sBQ", b"SKPB", 2, len(body)) + body


def same(a, b):
    if isinstance(a, np.ndarray):
        return (
            isinstance(b, np.ndarray)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.tobytes() == b.tobytes()
        )
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return isinstance(b, float) and struct.pack("d", a) == struct.pack("d", b)
    return type(a) is type(b) and a == b


def decode_or_refuse(message):
    """Decode; a message that is accepted must be the only one of its value."""
    try:
        value = decode(message)
    except ProtocolError:
        return  # the only way to fail
    assert encode(value) == message


@fuzzed(4)
@given(values)
def test_round_trip(value):
    message = encode(value)
    assert same(value, decode(message))
    assert encode(decode(message)) == message


@fuzzed(4)
@given(values, st.data())
def test_damaged_messages_never_crash(value, data):
    message = bytearray(encode(value))
    position = data.draw(st.integers(0, len(message) - 1))
    message[position] ^= data.draw(st.integers(1, 255))
    decode_or_refuse(bytes(message))


@fuzzed(2)
@given(values, st.data())
def test_truncated_and_prolonged_messages_are_refused(value, data):
    message = encode(value)
    body = message[struct.calcsize("<4sBQ") :]
    end = data.draw(st.integers(0, len(body) - 1))
    more = data.draw(st.binary(min_size=1, max_size=9))
    for wrong in (
        message[:end],
        message + more,
        with_header(body[:end]),
        with_header(body + more),
    ):
        with pytest.raises(ProtocolError):
            decode(wrong)


@fuzzed(8)
@given(st.one_of(st.binary(max_size=200), pieces))
def test_any_bytes_behind_a_valid_header_never_crash(body):
    decode_or_refuse(with_header(body))


@fuzzed(4)
@given(st.sampled_from([b"s", b"b", b"l", b"d", b"a\x0a\x01", b"a\x00\x02"]), st.data())
def test_announced_lengths_reserve_no_memory(tag, data):
    announced = data.draw(st.integers(2**20, 2**32 - 1))
    sizes = struct.pack("<I", announced) * (2 if tag == b"a\x00\x02" else 1)
    message = with_header(tag + sizes + data.draw(st.binary(max_size=64)))
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decode(message)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**18
