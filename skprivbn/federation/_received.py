"""Checks of what others sent, before anything is computed from it."""

import numpy as np
from numpy.typing import ArrayLike

from skprivbn.federation.program import PartyRefusal
from skprivbn.privacy._options import check_bounds


def check_received(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array that the coordinator sent, if it has the shape it must have.

    NumPy would stretch any other: an array with a row for each of a party's rows, for
    instance, could make all of them vanish from a sum but one.

    Parameters
    ----------
    value : ndarray
    shape : tuple of int

    Returns
    -------
    value : ndarray
    """
    if not isinstance(value, np.ndarray) or value.shape != shape:
        raise PartyRefusal("refused")
    if not np.all(np.isfinite(value)):
        raise PartyRefusal("refused")
    return value


def check_received_bounds(bounds: ArrayLike, n_features: int) -> None:
    """Refuse bounds that were received and would make noise hide too little.

    Rows are put on a grid between the bounds. Bounds without a proper width would make
    numbers of some rows that are none, which no noise hides.

    Parameters
    ----------
    bounds : array-like of shape (2, n_features)
    n_features : int
    """
    if np.shape(bounds) != (2, n_features):
        raise PartyRefusal("refused")
    try:
        check_bounds(bounds, n_features)
    except ValueError:
        raise PartyRefusal("refused") from None


def check_like(value: object, mine: dict) -> None:
    """Refuse what a peer sent unless it has the form of what this party sent.

    Parameters
    ----------
    value : object
    mine : dict
        Arrays and numbers.
    """
    if not isinstance(value, dict) or value.keys() != mine.keys():
        raise PartyRefusal("refused")
    for key, own in mine.items():
        if type(value[key]) is not type(own):
            raise PartyRefusal("refused")
        check_received(np.asarray(value[key]), np.shape(own))
