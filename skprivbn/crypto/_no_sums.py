"""For protocols in which parties talk to each other and nothing is summed."""

import math

from skprivbn.crypto._base import AdditiveBackend
from skprivbn.exceptions import ProtocolError

__all__ = ["NoSumsBackend"]


class NoSumsBackend(AdditiveBackend):
    """A backend for sessions without secure sums; asking for one is an error."""

    name = "no sums"
    kind = "masked"
    sum_known_to = "coordinator"
    _parameter_constraints = {}

    def setup(self, context):
        """Return no session: there is nothing to hide sums with."""
        return None
        yield  # makes this a generator, as every backend's setup is

    def add_parts(self, columns):
        """Refuse."""
        raise ProtocolError("this protocol has no secure sums")

    def max_sum(self):
        """Return the largest absolute value that a sum may have."""
        return math.inf

    def describe(self, roster):
        """Return no words: the protocol says itself what is hidden how."""
        return {}
