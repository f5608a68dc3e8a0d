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
_NUMBERS = {_TAG_INT: _INT, _TAG_FLOAT: _FLOAT}
_SIZED = frozenset([_TAG_BYTES, _TAG_TEXT])
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
    try:
        value, end = _read(data, _HEADER.size, 0, [MAX_VALUES])
    except (IndexError, struct.error):
        raise ProtocolError("message ends in the middle of a value") from None
    except UnicodeDecodeError:
        raise ProtocolError("text is not valid UTF-8") from None
    if end != len(data):
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


# What is past the end of the data raises errors for which `decode` has the words; a
# slice past it would not, and so is looked at.
def _read(data, at, depth, left):
    """Return the value that begins at a position, and the position after it.

    Parameters
    ----------
    data : bytes
    at : int
    depth : int
        Of lists and dicts around it.
    left : list of int
        One number: how many values the message may still have.
    """
    tag = data[at]
    at += 1
    if tag in _NUMBERS:
        return _NUMBERS[tag].unpack_from(data, at)[0], at + 8
    if tag in _TAGS_CONSTANT:
        return _TAGS_CONSTANT[tag], at
    if tag == _TAG_ARRAY:
        _spend(_ARRAY_VALUES, left)
        return _read_array(data, at)
    size, start = _LENGTH.unpack_from(data, at)[0], at + 4
    if tag in _SIZED:
        end = start + size
        if end > len(data):
            raise ProtocolError("message ends in the middle of a value")
        part = data[start:end]
        return part if tag == _TAG_BYTES else str(part, "utf-8"), end
    if tag not in (_TAG_DICT, _TAG_LIST):
        raise ProtocolError("unknown type of value")
    if size and depth == MAX_DEPTH:
        raise ProtocolError(f"values nest deeper than {MAX_DEPTH}")
    # what a value takes, and a key
    if size * (5 if tag == _TAG_DICT else 1) > len(data) - start:
        raise ProtocolError("message announces more items than it can hold")
    _spend(size, left)
    if tag == _TAG_LIST:
        items = []
        for _ in range(size):
            item, start = _read(data, start, depth + 1, left)
            items.append(item)
        return items, start
    result: dict = {}
    for _ in range(size):
        end = start + 4 + _LENGTH.unpack_from(data, start)[0]
        key = str(data[start + 4 : end], "utf-8")
        if key in result:
            raise ProtocolError("a key appears twice")
        # fails if the key has ended with the data
        result[key], start = _read(data, end, depth + 1, left)
    return result, start


def _spend(n_values, left):
    left[0] -= n_values
    if left[0] < 0:
        raise ProtocolError(f"a message has more than {MAX_VALUES} values")


def _read_array(data, at):
    """Return an array of its own, and the position after it."""
    code, ndim = data[at], data[at + 1]
    if code >= len(_DTYPES) or ndim > MAX_DIMENSIONS:
        raise ProtocolError("unknown type or rank of array")
    shape, dtype = struct.unpack_from(f"<{ndim}I", data, at + 2), _DTYPES[code]
    # Python integers: the product of hostile dimensions must not wrap.
    size, start = prod(shape), at + 2 + 4 * ndim
    end = start + size * dtype.itemsize
    if end > len(data):
        raise ProtocolError("message ends in the middle of a value")
    if size == 0 and max(shape) > MAX_MESSAGE_BYTES:
        raise ProtocolError("an empty array has an absurd shape")
    # without a copy in between; what is empty may begin at the very end
    array = np.frombuffer(data, dtype, size, min(start, len(data) - 1))
    if code == 0 and np.any(array.view(np.uint8) > 1):
        raise ProtocolError("a boolean array holds other bytes than 0 and 1")
    return array.reshape(shape).copy(), end


def has_types(value: Any, types: dict[str, type]) -> bool:
    """Tell whether a received value is a dict with exactly these keys and types.

    Parameters
    ----------
    value : object
    types : dict of str to type

    Returns
    -------
    has_types : bool
    """
    return isinstance(value, dict) and types == {k: type(v) for k, v in value.items()}


#: significant digits that tell a number apart from all others
ALL_DIGITS = 17


def round_numbers(value: Any, n_digits: int) -> Any:
    """Return a result whose numbers have so many significant digits.

    Parameters
    ----------
    value : object
        As it travels.
    n_digits : int

    Returns
    -------
    rounded : object
        With numbers of the same types; text, bytes and flags are as they were.

    Examples
    --------
    >>> round_numbers({"mean": 63.14159, "n_rows": 123456, "name": "age"}, 4)
    {'mean': 63.14, 'n_rows': 123500, 'name': 'age'}
    """
    if n_digits >= ALL_DIGITS:
        return value
    if isinstance(value, dict):
        return {key: round_numbers(item, n_digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [round_numbers(item, n_digits) for item in value]
    if isinstance(value, bool | str | bytes | None) or np.asarray(value).dtype == bool:
        return value
    if isinstance(value, int | float):
        return type(value)(float(f"{value:.{n_digits - 1}e}"))
    # by decimal digits, which are the same on every processor
    rounded = [round_numbers(item, n_digits) for item in np.ravel(value).tolist()]
    return np.array(rounded, dtype=np.asarray(value).dtype).reshape(np.shape(value))


def count_numbers(value: Any) -> int:
    """Return how many numbers a result holds.

    Parameters
    ----------
    value : object
        As it travels.

    Returns
    -------
    n_numbers : int
    """
    if isinstance(value, dict):
        return sum(map(count_numbers, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(count_numbers, value))
    if isinstance(value, bytes):
        return -(-len(value) // 8)
    if isinstance(value, bool | np.bool_ | str | None):
        return 0
    return int(np.size(value))
