"""What stands for a value that is not there."""

from typing import Any

import numpy as np


def is_missing(value: Any) -> bool:
    """Whether a value stands for an unknown one: None, NaN, pandas' NA or NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(value != value)
