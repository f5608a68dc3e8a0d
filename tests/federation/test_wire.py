import struct

import numpy as np
import pytest

from skprivbn.exceptions import ProtocolError
from skprivbn.federation import decode, encode
from skprivbn.federation._wire import count_numbers


def test_every_truncation_is_refused():
    message = encode({"a": np.arange(5), "b": [1, 2.0, "x", b"y", None, True]})
    for end in range(len(message)):
        with pytest.raises(ProtocolError):
            decode(message[:end])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"?",
        b"NN",
        b"s" + struct.pack("<I", 2**31) + b"x",
        b"b" + struct.pack("<I", 2**32 - 1),
        b"l" + struct.pack("<I", 2**30),
        b"d" + struct.pack("<I", 2**30),
        b"s" + struct.pack("<I", 1) + b"\xff",
        b"a\x04\x01" + struct.pack("<I", 2**30),
        b"a\x04\x02" + struct.pack("<2Q", 2**32, 2**32),
        b"a\x04\x02" + struct.pack("<2Q", 0, 2**63),
        b"a\x63\x01" + struct.pack("<I", 0),
        b"a\x04\x63",
        b"a\x00\x01" + struct.pack("<I", 1) + b"\x02",
        b"l" + struct.pack("<I", 1) + (b"l" + struct.pack("<I", 1)) * 20 + b"N",
        b"d" + struct.pack("<I", 2) + (struct.pack("<I", 1) + b"kN") * 2,
    ],
)
def test_hostile_bodies_are_refused(body):
    with pytest.raises(ProtocolError):
        decode(struct.pack("<4sBQ", b"SKPB", 2, len(body)) + body)


@pytest.mark.parametrize(
    "header",
    [
        struct.pack("<4sBQ", b"PICK", 2, 1),
        struct.pack("<4sBQ", b"SKPB", 1, 1),
        struct.pack("<4sBQ", b"SKPB", 2, 0),
        struct.pack("<4sBQ", b"SKPB", 2, 2**63),
    ],
)
def test_wrong_headers_are_refused(header):
    with pytest.raises(ProtocolError):
        decode(header + b"N")


@pytest.mark.parametrize(
    "value",
    [2**63, object(), {1: 2}, np.array(["a"]), np.array([None]), {"f": print}, {1, 2}],
)
def test_what_cannot_be_sent_is_said(value):
    with pytest.raises(ProtocolError):
        encode(value)


def test_arrays_arrive_as_fresh_writable_copies():
    array = np.arange(4.0)
    received = decode(encode(array))
    received[0] = 9.0
    assert array[0] == 0.0


def test_non_contiguous_and_big_endian_arrays():
    array = np.arange(12, dtype=">i4").reshape(3, 4)[:, ::2]
    np.testing.assert_array_equal(decode(encode(array)), array)


def test_numbers_of_a_result_are_counted_however_they_are_told():
    assert count_numbers({"n": 3, "mean": np.float64(0.5)}) == 2
    assert count_numbers({"table": np.zeros((4, 5)), "rows": [[1, 2.5], (3,)]}) == 23
    assert count_numbers({"raw": bytes(33)}) == 5
    assert count_numbers({"converged": True, "how": "halve", "nothing": None}) == 0
    assert count_numbers(None) == 0
