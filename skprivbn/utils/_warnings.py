"""Warn where the user can do something about it."""

import sys
import warnings
from pathlib import Path

import sklearn

from skprivbn.exceptions import PrivacyLeakWarning

__all__ = ["warn_leak"]

_INTERNAL = tuple(
    str(Path(path).parent) for path in (Path(__file__).parent, sklearn.__file__)
)


def warn_leak(message: str) -> None:
    """Issue a PrivacyLeakWarning that points at the first line of user code.

    Parameters
    ----------
    message : str
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INTERNAL):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, PrivacyLeakWarning, stacklevel=level)
