"""The wire format: what may leave a party, as bytes.

A message is a magic word, a version, the length of the body and a body of typed
values: none, booleans, 64-bit integers and floats, text, bytes, numeric arrays, and
lists and dicts of these. Nothing is executed while decoding, every length is checked
against the bytes that are there before anything is allocated, the number of values is
limited, and a value has one encoding only, so that hashes and signatures over encoded
values are well defined.
"""

import struct
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from skprivbn.exceptions import ProtocolError

MAGIC = b"SKPB"
VERSION = 2
MAX_MESSAGE_BYTES = 1 << 31
MAX_DEPTH = 8
MAX_DIMENSIONS = 8
#: values of one message, which take half a second. Many numbers are an array, which
#: counts as a few
MAX_VALUES = 1 << 18
_ARRAY_VALUES = 8

_HEADER = struct.Struct("<4sBQ")
_INT = struct.Struct("<q")
_FLOAT = struct.Struct("<d")
_LENGTH = struct.Struct("<I")

_DTYPES = [
    np.dtype(code)
    for code in "?,<i1,<i2,<i4,<i8,<u1,<u2,<u4,<u8,<f4,<f8,<c16".split(",")
]
_DTYPE_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}

_TAG_INT, _TAG_FLOAT, _TAG_TEXT, _TAG_BYTES, _TAG_ARRAY, _TAG_LIST, _TAG_DICT = (
    b"ifsbald"
)
_TAGS_CONSTANT = {ord("N"): None, ord("T"): True, ord("F"): False}


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


def decode(message: bytes, most_bytes: int = MAX_MESSAGE_BYTES) -> object:
    """Decode one message; anything but a well-formed one is a ProtocolError.

    Parameters
    ----------
    message : bytes-like
    most_bytes : int, default=MAX_MESSAGE_BYTES
        A longer message is refused before anything in it is looked at.

    Returns
    -------
    value : object
        As given to :func:`encode`; tuples come back as lists, NumPy scalars as
        Python numbers. Arrays are fresh copies.
    """
    if memoryview(message).nbytes > most_bytes:
        raise ProtocolError(f"a message is longer than {most_bytes} bytes")
    data = bytes(message)
    if len(data) < _HEADER.size:
        raise ProtocolError("message shorter than its header")
    magic, version, length = _HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise ProtocolError("not a message of this protocol version")
    if length > MAX_MESSAGE_BYTES or length != len(data) - _HEADER.size:
        raise ProtocolError("message length does not match its header")
    reader = _Reader(data, _HEADER.size)
    try:
        value = reader.value(0)
    except (IndexError, struct.error):
        raise ProtocolError("message ends in the middle of a value") from None
    except UnicodeDecodeError:
        raise ProtocolError("text is not valid UTF-8") from None
    if reader.position != len(data):
        raise ProtocolError("bytes left over after the message")
    return value


def _write(value, parts, depth):
    if depth > MAX_DEPTH:
        raise ProtocolError(f"values nest deeper than {MAX_DEPTH}")
    kind = type(value)
    if kind is dict:
        parts.append(b"d" + _LENGTH.pack(len(value)))
        for key, item in value.items():
            if not isinstance(key, str):
                raise ProtocolError(f"keys must be text, got {type(key).__name__}")
            parts.append(_text(key))
            _write(item, parts, depth + 1)
    elif kind is bytes:
        # apart from its length: to join them would copy what may be long
        parts += (b"b" + _LENGTH.pack(len(value)), value)
    elif kind is str:
        data = value.encode()
        parts.append(b"s" + _LENGTH.pack(len(data)) + data)
    elif kind is int:
        if not -(2**63) <= value < 2**63:
            raise ProtocolError("an integer does not fit in 64 bits")
        parts.append(b"i" + _INT.pack(value))
    elif kind is float:
        parts.append(b"f" + _FLOAT.pack(value))
    elif value is None:
        parts.append(b"N")
    elif kind is bool:
        parts.append(b"T" if value else b"F")
    elif kind is list or kind is tuple:
        if len(value) > MAX_VALUES:
            raise ProtocolError(f"a list of {len(value)} values is too long to be sent")
        parts.append(b"l" + _LENGTH.pack(len(value)))
        for item in value:
            _write(item, parts, depth + 1)
    elif isinstance(value, np.ndarray):
        _write_array(value, parts)
    else:
        _write(_plain(value), parts, depth)


def _plain(value):
    """Return the value of a plain type that one of another type stands for."""
    if isinstance(value, np.generic):
        return value.item()
    for kind in (bool, int, float, str, list, tuple, dict):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise ProtocolError(f"a {type(value).__name__} cannot be sent")


# A protocol uses the same few keys in every message.
@lru_cache(maxsize=1024)
def _text(key):
    data = key.encode()
    return _LENGTH.pack(len(data)) + data


def _write_array(array, parts):
    dtype = array.dtype.newbyteorder("<")
    if dtype not in _DTYPE_CODES:
        raise ProtocolError(f"an array of dtype {array.dtype} cannot be sent")
    if array.ndim > MAX_DIMENSIONS:
        raise ProtocolError(f"arrays have at most {MAX_DIMENSIONS} dimensions")
    parts.append(b"a" + bytes([_DTYPE_CODES[dtype], array.ndim]))
    parts.append(struct.pack(f"<{array.ndim}I", *array.shape))
    parts.append(np.ascontiguousarray(array, dtype=dtype).reshape(-1).view(np.uint8))


class _Reader:
    """Walks over a message body, never past its end.

    Past the end, indices and structs raise errors for which `decode` has the words.
    """

    def __init__(self, data, position):
        self.data, self.position, self.end = data, position, len(data)
        self.values_left = MAX_VALUES

    def number(self, form):
        start = self.position
        self.position = start + form.size
        return form.unpack_from(self.data, start)[0]

    def sized(self, n_bytes):
        """Read so many bytes."""
        start = self.position
        if n_bytes > self.end - start:
            raise ProtocolError("message ends in the middle of a value")
        self.position = end = start + n_bytes
        return self.data[start:end]

    def count(self, smallest):
        """Read a number of items, each of which takes at least `smallest` bytes."""
        count = self.number(_LENGTH)
        if count * smallest > self.end - self.position:
            raise ProtocolError("message announces more items than it can hold")
        self.spend(count)
        return count

    def spend(self, n_values):
        self.values_left -= n_values
        if self.values_left < 0:
            raise ProtocolError(f"a message has more than {MAX_VALUES} values")

    def value(self, depth):
        tag = self.data[self.position]
        self.position += 1
        if tag == _TAG_BYTES:
            return self.sized(self.number(_LENGTH))
        if tag == _TAG_DICT and depth < MAX_DEPTH:
            result = {}
            for _ in range(self.count(_LENGTH.size + 1)):
                key = str(self.sized(self.number(_LENGTH)), "utf-8")
                if key in result:
                    raise ProtocolError("a key appears twice")
                result[key] = self.value(depth + 1)
            return result
        if tag == _TAG_INT:
            return self.number(_INT)
        if tag == _TAG_TEXT:
            return str(self.sized(self.number(_LENGTH)), "utf-8")
        if tag == _TAG_ARRAY:
            return self.array()
        if tag == _TAG_FLOAT:
            return self.number(_FLOAT)
        if tag in _TAGS_CONSTANT:
            return _TAGS_CONSTANT[tag]
        if depth == MAX_DEPTH and tag in (_TAG_LIST, _TAG_DICT):
            # nothing fits inside, so that only empty ones are left
            if self.number(_LENGTH):
                raise ProtocolError(f"values nest deeper than {MAX_DEPTH}")
            return [] if tag == _TAG_LIST else {}
        if tag == _TAG_LIST:
            return [self.value(depth + 1) for _ in range(self.count(1))]
        raise ProtocolError("unknown type of value")

    def array(self):
        self.spend(_ARRAY_VALUES)
        code, ndim = self.sized(2)
        if code >= len(_DTYPES) or ndim > MAX_DIMENSIONS:
            raise ProtocolError("unknown type or rank of array")
        shape, dtype = struct.unpack(f"<{ndim}I", self.sized(4 * ndim)), _DTYPES[code]
        # Python integers: the product of hostile dimensions must not wrap.
        size, start = prod(shape), self.position
        self.position += size * dtype.itemsize
        if self.position > self.end:
            raise ProtocolError("message ends in the middle of a value")
        if size == 0 and max(shape) > MAX_MESSAGE_BYTES:
            raise ProtocolError("an empty array has an absurd shape")
        # without a copy in between; what is empty may begin at the very end
        array = np.frombuffer(self.data, dtype, size, min(start, self.end - 1))
        if code == 0 and np.any(array.view(np.uint8) > 1):
            raise ProtocolError("a boolean array holds other bytes than 0 and 1")
        return array.reshape(shape).copy()
