"""What stands for a value that is not there."""

import math
from typing import Any

import numpy as np


def is_missing(value: Any) -> bool:
    """Whether a value stands for an unknown one: None, NaN, pandas' NA or NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(value != value)


def float_or_nan(value: Any) -> float:
    """Return a value as a number, and NaN for what is none."""
    if isinstance(value, complex):  # numpy's lose a part, and warn
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
