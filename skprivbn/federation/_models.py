"""What others sent, checked before anything is computed from it: arrays, models.

A fitted model travels as what an estimator has learnt, and its name. A distribution
announces its estimators in the entry-point group ``skprivbn.protocols`` and its
backends in ``skprivbn.backends``; this package's own are entered like anybody's.
Nothing that is not installed here can run here, and a site file says which of it may.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skprivbn.federation.program import refuse_malformed, require
from skprivbn.privacy._options import apply_step, check_bounds

PROTOCOLS = "skprivbn.protocols"
BACKENDS = "skprivbn.backends"
#: whose names stand for themselves, without their distribution
OURS = "skprivbn"

#: what the ledger says of a score
SCORED_MODEL = (
    "the parties were told the parameters of the model: parameters made up to fit one "
    "row would tell whether somebody holds it"
)

#: estimators that this process has described itself; a site describes none
_described: dict[str, type] = {}


@cache
def _all_announced(group):
    """Return pairs of a distribution's name, which is parsed at each use, and an entry.

    Ours come last.
    """
    known = [(e.dist.name, e) for e in entry_points(group=group) if e.dist is not None]
    return sorted(known, key=lambda pair: pair[0] == OURS)


def announced(group: str, distribution: str | None = None) -> dict[str, EntryPoint]:
    """Return what is announced, by name; ours goes before others of the same name.

    Parameters
    ----------
    group : str
        :data:`PROTOCOLS` or :data:`BACKENDS`.
    distribution : str, default=None
        Only what this one announces.

    Returns
    -------
    found : dict of str to EntryPoint
    """
    known = _all_announced(group)
    return {e.name: e for owner, e in known if distribution in (None, owner)}


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
    inner = getattr(estimator, "_on_columns", None)
    if inner is None:
        return {"estimator": name, "fitted": estimator._public_model()}
    model = select_columns(estimator, estimator._places)
    others = set(range(estimator.n_features_in_)) - set(model["columns"])
    return model | {"fitted": inner._public_model(), "rest": sorted(others)}


def select_columns(estimator, places):
    """Return a step that keeps some columns, for an estimator to be fitted to them.

    Parameters
    ----------
    estimator : estimator
    places : sequence of int

    Returns
    -------
    model : dict
    """
    name = type(estimator).__name__
    _described[name] = type(estimator)
    return {"estimator": name, "columns": list(map(int, places)), "rest": []}


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
        if "columns" in model:
            return SomeColumns(model, n_features)
        estimator = _class_of(model)._from_public_model(model["fitted"], n_features)
    estimator.n_features_in_ = n_features
    return estimator


class SomeColumns:
    """A fitted transformer of some columns, beside which others stay as they are.

    Without a transformer it only chooses columns.

    Parameters
    ----------
    model : dict
        With the positions of `columns`, which come first in the result, and of the
        `rest`, which follows; and ``fitted``, if columns are transformed.
    n_features : int
        Of the rows that it will be applied to.
    """

    def __init__(self, model, n_features):
        self.columns, self.rest = model["columns"], model["rest"]
        chosen = [*self.columns, *self.rest]
        require(all(type(place) is int for place in chosen))
        # one column under many thresholds would be told value by value
        require(len(set(chosen)) == len(chosen) and self.columns)
        require(min(chosen) >= 0 and max(chosen) < n_features)
        self.n_features_in_, self.step = n_features, None
        #: the step that its transformer was fitted after
        self.chosen = {"estimator": model["estimator"], "columns": self.columns}
        self.chosen |= {"rest": []}
        if "fitted" in model:
            inner = {"estimator": model["estimator"], "fitted": model["fitted"]}
            self.step = rebuild_model(inner, len(self.columns))

    def transform(self, X):
        """Return rows with the columns transformed, then the others."""
        return self._join(X, lambda part: self.step.transform(part))

    def _transform_all(self, X):
        return self._join(X, lambda part: apply_step(self.step, part))

    def _join(self, X, function):
        X = np.asarray(X)
        part = X[:, self.columns]
        part = part if self.step is None else np.asarray(function(part))
        return np.hstack([part, X[:, self.rest]]) if self.rest else part

    def get_feature_names_out(self, names=None):
        """Return the names of the columns that come out."""
        if names is None:
            names = [f"x{i}" for i in range(self.n_features_in_)]
        return self._name(names, "get_feature_names_out")

    def _columns_behind(self, names):
        has = hasattr(self.step, "_columns_behind")
        return self._name(names, "_columns_behind" if has else "get_feature_names_out")

    def _name(self, names, how):
        names = np.asarray(names, dtype=object)
        part = names[self.columns]
        part = part if self.step is None else getattr(self.step, how)(part)
        return np.append(part, names[self.rest])

    def _is_declared(self, labels):
        part = [labels[place] for place in self.columns]
        return self.step is None or self.step._is_declared(part)

    def _was_found(self, found):
        return self.step._was_found(found)


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
    n_kept = len(model.get("rest", ()))
    made = names[: len(names) - n_kept]
    stays = {v: labels[v] for v in names[len(made) :] if v in labels}
    if "fitted" not in model:
        return {v: labels[v] for v in names if v in labels}
    keep = getattr(_class_of(model), "_kept_labels", None)
    return stays | ({} if keep is None else keep(model["fitted"], made, labels))


def _class_of(model):
    name = model["estimator"]
    return _described.get(name) or announced(PROTOCOLS)[name].load()


def check_received(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array that the coordinator sent, if it has the shape it must have.

    NumPy would broadcast any other shape: an array with an entry for each of a party's
    rows could cancel all of them in a sum but one.

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

    Rows are put on a grid between the bounds. Where these have no width, some rows
    would become NaN, which no noise hides.

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
