"""What scikit-learn keeps to itself.

Its private names, imported here and nowhere else, and the version in pickles, which it
writes for its own estimators only.
"""

import warnings
from functools import cache
from typing import Any

from sklearn.base import _fit_context
from sklearn.mixture._gaussian_mixture import (
    _check_means,
    _check_precisions,
    _check_weights,
)
from sklearn.utils._indexing import _get_column_indices, _safe_indexing
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    InvalidParameterError,
    Options,
    RealNotInt,
    StrOptions,
    validate_parameter_constraints,
    validate_params,
)
from sklearn.utils.validation import (
    _check_feature_names_in,
    _check_method_params,
    _num_samples,
)

from skprivbn import __version__
from skprivbn.exceptions import InconsistentVersionWarning

__all__ = [
    "CachedParameterNames",
    "HasMethods",
    "Interval",
    "InvalidParameterError",
    "Options",
    "RealNotInt",
    "SavedVersionMixin",
    "StrOptions",
    "_check_feature_names_in",
    "_check_means",
    "_check_method_params",
    "_check_precisions",
    "_check_weights",
    "_fit_context",
    "_get_column_indices",
    "_num_samples",
    "_safe_indexing",
    "check_parameters",
    "fill_params",
    "open_callbacks",
    "validate_params",
]


_VERSION_KEY = "_skprivbn_version"


class CachedParameterNames:
    """Look at the constructor of a class once, not for every clone and check."""

    @classmethod
    @cache
    def _get_param_names(cls):
        return super()._get_param_names()


class SavedVersionMixin:
    """Puts the version into pickles, and warns if another release reads them.

    Releases that differ in their last number store fitted attributes in the same way.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), _VERSION_KEY: __version__}  # type: ignore[dict-item]

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        # The first release did not write it.
        saved = state.pop(_VERSION_KEY, "0.1")
        if saved.split(".")[:2] != __version__.split(".")[:2]:
            warnings.warn(
                InconsistentVersionWarning(
                    estimator_name=type(self).__name__,
                    current_sklearn_version=__version__,
                    original_sklearn_version=saved,
                ),
                stacklevel=2,
            )
        super().__setstate__(state)  # type: ignore[misc]


def check_parameters(estimator):
    """Raise unless the parameters of an estimator meet its constraints."""
    estimator._validate_params()


def fill_params(name, given, constraints, **defaults):
    """Return the settings that a parameter such as ``admm_params`` holds.

    Parameters
    ----------
    name : str
        Of the parameter, for errors.
    given : dict or None
    constraints : dict
        Of each setting, as `_parameter_constraints`.
    **defaults
        Settings that are not given.

    Returns
    -------
    settings : dict
    """
    given = {} if given is None else given
    unknown = [key for key in given if key not in constraints]
    if unknown:
        raise ValueError(f"{name} takes {sorted(constraints)}, not {unknown}")
    validate_parameter_constraints(constraints, given, caller_name=name)
    return defaults | given


def open_callbacks(estimator, max_subtasks):
    """Return the context in which callbacks of a fit are called."""
    return estimator._init_callback_context(max_subtasks=max_subtasks)
