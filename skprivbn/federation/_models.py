"""What others sent, checked before anything is computed from it: arrays, models.

A fitted model travels as what an estimator has learnt, and its name.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skprivbn.federation._announced import PROTOCOLS, announced
from skprivbn.federation.program import refuse_malformed, require
from skprivbn.privacy._options import check_bounds

#: what the ledger says of a score
SCORED_MODEL = (
    "the parties were told the parameters of the model: parameters made up to fit one "
    "row would tell whether somebody holds it"
)

#: estimators that this process has described itself; a site describes none
_described: dict[str, type] = {}


def describe_model(estimator):
    """Return a fitted estimator as a public model, in a form that travels.

    Parameters
    ----------
    estimator : estimator
        With a method ``_public_model`` that returns numbers, arrays and names, and a
        class method ``_from_public_model(model, n_features)`` that checks them all.

    Returns
    -------
    model : dict
    """
    estimator_class = type(estimator)
    name = estimator_class.__name__
    if not hasattr(estimator_class, "_from_public_model"):
        raise ValueError(
            f"parties cannot apply a {name}: it has no _public_model and "
            "_from_public_model"
        )
    _described[name] = estimator_class
    return {"estimator": name, "fitted": estimator._public_model()}


def rebuild_model(model, n_features):
    """Make a fitted estimator of a public model; refuses whatever is not one.

    Parameters
    ----------
    model : dict
        From :func:`describe_model`, or from a coordinator that pretends so.
    n_features : int
        Of the rows that it will be applied to.

    Returns
    -------
    estimator : estimator
    """
    with refuse_malformed():
        estimator = _class_of(model)._from_public_model(model["fitted"], n_features)
    estimator.n_features_in_ = n_features
    return estimator


def kept_labels(model, names, labels):
    """Return the declared labels of columns that a transformer does not change.

    Parameters
    ----------
    model : dict
        From :func:`describe_model`.
    names : list of str
        Of the columns that come out.
    labels : dict of str to list
        Of columns that go in, as far as they are declared.

    Returns
    -------
    labels : dict of str to list
        What an estimator says with a static method ``_kept_labels``; none without.
    """
    keep = getattr(_class_of(model), "_kept_labels", None)
    return {} if keep is None else keep(model["fitted"], names, labels)


def _class_of(model):
    name = model["estimator"]
    return _described.get(name) or announced(PROTOCOLS)[name].load()


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
    require(isinstance(value, np.ndarray) and value.shape == shape)
    require(np.all(np.isfinite(value)))
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
    with refuse_malformed():
        require(np.shape(bounds) == (2, n_features))
        check_bounds(bounds, n_features)


def check_like(value: Any, mine: dict) -> None:
    """Refuse what a peer sent unless it has the form of what this party sent.

    Parameters
    ----------
    value : object
    mine : dict
        Arrays and numbers.
    """
    require(isinstance(value, dict) and value.keys() == mine.keys())
    for key, own in mine.items():
        require(type(value[key]) is type(own))
        check_received(np.asarray(value[key]), np.shape(own))
