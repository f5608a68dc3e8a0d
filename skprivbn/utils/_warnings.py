"""Warn where the user can do something about it."""

import contextlib
import functools
import sys
import warnings
from pathlib import Path

import joblib
import sklearn

from skprivbn.exceptions import PrivacyLeakWarning

#: code whose frames are passed over: ours, scikit-learn's, and what wraps calls
_INTERNAL = (
    str(Path(__file__).parents[1]),
    str(Path(sklearn.__file__).parent),
    str(Path(joblib.__file__).parent),
    contextlib.__file__,
    functools.__file__,
)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points at the first line of user code.

    Parameters
    ----------
    message : str
    category : type of Warning, default=UserWarning
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INTERNAL):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def warn_leak(message: str) -> None:
    """Issue a PrivacyLeakWarning, like :func:`warn_user`.

    Parameters
    ----------
    message : str
    """
    warn_user(message, PrivacyLeakWarning)
