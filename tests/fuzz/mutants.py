"""Messages that are almost right, made cheaply from right ones."""

import struct

import numpy as np

from skprivbn.federation import decode, encode

_HEADER = struct.calcsize("<4sBQ")
_TAGS = b"NTFifsbald"
_LENGTHS = [0, 1, 2, 255, 2**16, 2**24, 2**30, 2**31, 2**32 - 1]
_LENGTHS = [struct.pack("<I", n) for n in _LENGTHS]
#: what stands in the place of any value of a message
_VALUES = [
    *(None, True, -1, 0, 3, 2**31, 2**63 - 1, -(2**63)),
    *(0.5, 1e308, -1e-308, float("nan"), float("inf")),
    *("", "a", "session.join", "x" * 500, b"", b"\0" * 32, b"\xff" * 500),
    *([], {}, [[]] * 50, {"a": {}}, [None, 1, "x"], {"sealed": {}}),
    *(np.zeros(0), np.zeros((1, 1)), np.full(3, np.nan), np.zeros((0, 2**20))),
    *(np.full((50, 50), 1e300), np.arange(9), np.ones(200, bool), np.ones(3, "u1")),
]


class Mutator:
    """Makes mutants of one message, the same for the same random numbers.

    Parameters
    ----------
    message : bytes
        A message that a host would accept.
    others : list of bytes
        Messages of other operations, sessions and parties.
    random : random.Random
    """

    def __init__(self, message, others, random):
        self._message, self._others, self._random = message, others, random
        self._value = decode(message)
        self._kinds = [
            *[self._flip] * 3,
            *[self._cut, self._retag, self._insert, self._swap],
            *[self._relength] * 2,
            *[self._replace] * 4,
        ]

    def make(self):
        """Return another message."""
        return self._random.choice(self._kinds)()

    def make_valid(self):
        """Return another message that can be decoded."""
        return self._replace()

    def _flip(self):
        mutant = bytearray(self._message)
        for _ in range(self._random.randint(1, 3)):
            mutant[self._random.randrange(len(mutant))] ^= self._random.randint(1, 255)
        return bytes(mutant)

    def _cut(self):
        return self._with_header(self._message[_HEADER : self._place()])

    def _retag(self):
        mutant = bytearray(self._message)
        mutant[self._place()] = self._random.choice(_TAGS)
        return bytes(mutant)

    def _relength(self):
        place = self._place()
        return self._fit(place, self._random.choice(_LENGTHS), place + 4)

    def _insert(self):
        start, end = sorted((self._place(), self._place()))
        piece = self._message[start : min(end, start + 200)]
        place = self._place()
        return self._fit(place, piece, place)

    def _swap(self):
        return self._random.choice(self._others)

    def _place(self):
        return self._random.randrange(_HEADER, len(self._message))

    def _fit(self, start, piece, end):
        body = self._message[_HEADER:start] + piece + self._message[end:]
        return self._with_header(body)

    def _with_header(self, body):
        if self._random.random() < 0.1:
            return self._message[:_HEADER] + body
        return struct.pack("<4sBQ", b"SKPB", 2, len(body)) + body

    def _replace(self):
        """Change one value, or the names of a dict, in a message that stays valid."""
        return encode(self._changed(self._value))

    def _changed(self, value):
        deeper = isinstance(value, dict | list) and len(value) > 0
        if not deeper or self._random.random() < 0.08:
            return self._leaf(value)
        if isinstance(value, list):
            place, copy = self._random.randrange(len(value)), list(value)
        else:
            place, copy = self._random.choice(list(value)), dict(value)
            if value.get("payload") and self._random.random() < 0.7:
                place = "payload"
        if self._random.random() < 0.1:
            del copy[place]
        elif self._random.random() < 0.05:
            if isinstance(copy, dict):
                copy["other"] = copy[place]
            else:
                copy.append(copy[place])
        else:
            copy[place] = self._changed(copy[place])
        return copy

    def _leaf(self, value):
        chance = self._random.random()
        if type(value) is int and chance < 0.5:
            near = [value - 1, value + 1, -value, 10 * value, value << 20]
            return max(-(2**63), min(2**63 - 1, self._random.choice(near)))
        if type(value) is float and chance < 0.5:
            return value * self._random.choice([-1.0, 0.0, 1e9, 1e-9, float("nan")])
        if type(value) is bytes and value and chance < 0.7:
            place = self._random.randrange(len(value))
            return value[:place] + bytes([value[place] ^ 1]) + value[place + 1 :]
        if type(value) is np.ndarray and value.size and chance < 0.7:
            changes = [value[..., None], value.ravel()[:-1], value.astype(np.float32)]
            changes += [np.zeros_like(value), value[None], -value.astype(float)]
            return self._random.choice(changes)
        return self._random.choice(_VALUES)
