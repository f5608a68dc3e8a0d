"""What parties answer: sums that can be read, and results that all know alike."""

from typing import Any, Self

import numpy as np

from skprivbn.crypto import HiddenVector
from skprivbn.exceptions import ProtocolError


class OpenSum(np.ndarray):
    """A sum that the coordinator can read, and the form that parties verify.

    An array like any other; what is computed from it is a plain array.

    Parameters
    ----------
    values : ndarray of shape (n_values,)
    hidden : HiddenVector
        The sum with its tag, which parties verify.
    """

    hidden: HiddenVector | None

    def __new__(cls, values: np.ndarray, hidden: HiddenVector | None = None) -> Self:
        total = np.asarray(values).view(cls)
        total.hidden = hidden
        return total

    def __array_finalize__(self, source):
        self.hidden = None

    def __array_wrap__(self, array, context=None, return_scalar=False):
        return array[()] if return_scalar else np.asarray(array)


def as_hidden(value: Any) -> Any:
    """Return an argument as it is sent: a sum in the form that parties verify."""
    if isinstance(value, OpenSum) and value.hidden is not None:
        return value.hidden.to_payload()
    return value


def read_go_on(reply):
    if type(reply["go_on"]) is not bool:
        raise ProtocolError("neither yes nor no")
    return reply["go_on"]


def check_same(replies: dict[str, dict], operation: str, rtol: float = 0.0) -> dict:
    """Return what all parties answered, a ProtocolError if they did not all.

    Parameters
    ----------
    replies : dict of str to dict
    operation : str
    rtol : float, default=0.0
        By how much numbers may differ, relative to the largest.

    Returns
    -------
    reply : dict
    """
    first, *others = replies.values()
    for other in others:
        if not _is_same(first, other, rtol):
            raise ProtocolError(f"parties disagree on the result of {operation}")
    return first


def _is_same(one, other, rtol):
    """Tell whether two answers are the same, numbers up to `rtol`."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            _is_same(value, other[key], rtol) for key, value in one.items()
        )
    if isinstance(one, list):
        return len(one) == len(other) and all(
            _is_same(*pair, rtol) for pair in zip(one, other)
        )
    if isinstance(one, float | np.ndarray):
        one, other = np.asarray(one), np.asarray(other)
        if one.shape != other.shape:
            return False
        # NaN stands for what is not told
        same = (one == other) | (one != one) & (other != other)
        if rtol == 0 or one.dtype.kind == "b":
            return bool(same.all())
        largest = np.max(np.abs(one), initial=0.0, where=np.isfinite(one))
        return bool(np.all(np.abs(one[~same] - other[~same]) <= rtol * largest))
    return one == other
