"""The wire format: what may leave a party, as bytes.

A message is a magic word, a version, the length of the body and a body of typed
values: none, booleans, 64-bit integers and floats, text, bytes, numeric arrays, and
lists and dicts of these. Nothing is executed while decoding, every length is checked
against the bytes that are there before anything is allocated, and a value has one
encoding only, so that hashes and signatures over encoded values are well defined.
"""

import struct
from math import prod
from typing import Any

import numpy as np

from skprivbn.exceptions import ProtocolError

__all__ = ["MAX_MESSAGE_BYTES", "decode", "encode"]

MAGIC = b"SKPB"
VERSION = 1
MAX_MESSAGE_BYTES = 1 << 31
MAX_DEPTH = 8
MAX_DIMENSIONS = 8

_HEADER = struct.Struct("<4sBQ")
_INT = struct.Struct("<q")
_FLOAT = struct.Struct("<d")
_LENGTH = struct.Struct("<Q")

_DTYPES = [
    np.dtype(code)
    for code in "?,<i1,<i2,<i4,<i8,<u1,<u2,<u4,<u8,<f4,<f8,<c16".split(",")
]
_DTYPE_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}


def encode(value: Any) -> bytes:
    """Encode a value as one message.

    Parameters
    ----------
    value : None, bool, int, float, str, bytes, ndarray, list, tuple or dict
        Integers must fit in 64 bits; keys of dicts are text; arrays are numeric.

    Returns
    -------
    message : bytes
    """
    parts = [b""]
    _write(value, parts, 0)
    length = sum(map(len, parts))
    if length > MAX_MESSAGE_BYTES:
        raise ProtocolError(
            f"a message of {length} bytes exceeds the {MAX_MESSAGE_BYTES} allowed"
        )
    parts[0] = _HEADER.pack(MAGIC, VERSION, length)
    return b"".join(parts)


def decode(message: bytes) -> object:
    """Decode one message; anything but a well-formed one is a ProtocolError.

    Parameters
    ----------
    message : bytes-like

    Returns
    -------
    value : object
        As given to :func:`encode`; tuples come back as lists, NumPy scalars as
        Python numbers. Arrays are fresh copies.
    """
    view = memoryview(message).cast("B")
    if len(view) < _HEADER.size:
        raise ProtocolError("message shorter than its header")
    magic, version, length = _HEADER.unpack_from(view)
    if magic != MAGIC or version != VERSION:
        raise ProtocolError("not a message of this protocol version")
    if length > MAX_MESSAGE_BYTES or length != len(view) - _HEADER.size:
        raise ProtocolError("message length does not match its header")
    reader = _Reader(view[_HEADER.size :])
    value = reader.value(0)
    if reader.position != length:
        raise ProtocolError("bytes left over after the message")
    return value


def _write(value, parts, depth):
    if depth > MAX_DEPTH:
        raise ProtocolError(f"values nest deeper than {MAX_DEPTH}")
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        parts.append(b"N")
    elif isinstance(value, bool):
        parts.append(b"T" if value else b"F")
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ProtocolError("an integer does not fit in 64 bits")
        parts.append(b"i" + _INT.pack(value))
    elif isinstance(value, float):
        parts.append(b"f" + _FLOAT.pack(value))
    elif isinstance(value, str):
        parts.append(b"s" + _sized(value.encode()))
    elif isinstance(value, bytes | bytearray | memoryview):
        # apart from its length: to join them would copy what may be long
        data = bytes(value)
        parts += [b"b" + _LENGTH.pack(len(data)), data]
    elif isinstance(value, np.ndarray):
        _write_array(value, parts)
    elif isinstance(value, list | tuple):
        parts.append(b"l" + _LENGTH.pack(len(value)))
        for item in value:
            _write(item, parts, depth + 1)
    elif isinstance(value, dict):
        parts.append(b"d" + _LENGTH.pack(len(value)))
        for key, item in value.items():
            if not isinstance(key, str):
                raise ProtocolError(f"keys must be text, got {type(key).__name__}")
            parts.append(_sized(key.encode()))
            _write(item, parts, depth + 1)
    else:
        raise ProtocolError(f"a {type(value).__name__} cannot be sent")


def _sized(data):
    return _LENGTH.pack(len(data)) + data


def _write_array(array, parts):
    dtype = array.dtype.newbyteorder("<")
    if dtype not in _DTYPE_CODES:
        raise ProtocolError(f"an array of dtype {array.dtype} cannot be sent")
    if array.ndim > MAX_DIMENSIONS:
        raise ProtocolError(f"arrays have at most {MAX_DIMENSIONS} dimensions")
    parts.append(b"a" + bytes([_DTYPE_CODES[dtype], array.ndim]))
    parts.append(struct.pack(f"<{array.ndim}Q", *array.shape))
    parts.append(np.ascontiguousarray(array, dtype=dtype).reshape(-1).view(np.uint8))


class _Reader:
    """Walks over a message body, never past its end."""

    def __init__(self, view):
        self.view = view
        self.position = 0

    def take(self, n_bytes):
        if n_bytes > len(self.view) - self.position:
            raise ProtocolError("message ends in the middle of a value")
        start, self.position = self.position, self.position + n_bytes
        return self.view[start : self.position]

    def length(self):
        return _LENGTH.unpack(self.take(_LENGTH.size))[0]

    def count(self, smallest):
        """Read a number of items, each of which takes at least `smallest` bytes."""
        count = self.length()
        if count * smallest > len(self.view) - self.position:
            raise ProtocolError("message announces more items than it can hold")
        return count

    def text(self):
        try:
            return str(self.take(self.length()), "utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("text is not valid UTF-8") from None

    def value(self, depth):
        if depth > MAX_DEPTH:
            raise ProtocolError(f"values nest deeper than {MAX_DEPTH}")
        tag = bytes(self.take(1))
        if tag == b"N":
            return None
        if tag in (b"T", b"F"):
            return tag == b"T"
        if tag == b"i":
            return _INT.unpack(self.take(_INT.size))[0]
        if tag == b"f":
            return _FLOAT.unpack(self.take(_FLOAT.size))[0]
        if tag == b"s":
            return self.text()
        if tag == b"b":
            return bytes(self.take(self.length()))
        if tag == b"a":
            return self.array()
        if tag == b"l":
            return [self.value(depth + 1) for _ in range(self.count(1))]
        if tag == b"d":
            return self.mapping(depth)
        raise ProtocolError("unknown type of value")

    def mapping(self, depth):
        result = {}
        for _ in range(self.count(_LENGTH.size + 1)):
            key = self.text()
            if key in result:
                raise ProtocolError("a key appears twice")
            result[key] = self.value(depth + 1)
        return result

    def array(self):
        code, ndim = self.take(2)
        if code >= len(_DTYPES) or ndim > MAX_DIMENSIONS:
            raise ProtocolError("unknown type or rank of array")
        shape = struct.unpack(f"<{ndim}Q", self.take(8 * ndim))
        dtype = _DTYPES[code]
        # Python integers: the product of hostile dimensions must not wrap.
        buffer = self.take(prod(shape) * dtype.itemsize)
        if prod(shape) == 0 and max(shape) > MAX_MESSAGE_BYTES:
            raise ProtocolError("an empty array has an absurd shape")
        if code == 0 and np.any(np.frombuffer(buffer, np.uint8) > 1):
            raise ProtocolError("a boolean array holds other bytes than 0 and 1")
        return np.frombuffer(buffer, dtype).reshape(shape).copy()
