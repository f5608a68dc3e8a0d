"""Private scikit-learn names, imported here and nowhere else."""

from functools import cache

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
    validate_params,
)
from sklearn.utils.validation import (
    _check_feature_names_in,
    _check_method_params,
    _num_samples,
)

__all__ = [
    "CachedParameterNames",
    "HasMethods",
    "Interval",
    "InvalidParameterError",
    "Options",
    "RealNotInt",
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
    "open_callbacks",
    "validate_params",
]


class CachedParameterNames:
    """Look at the constructor of a class once, not for every clone and check."""

    @classmethod
    @cache
    def _get_param_names(cls):
        return super()._get_param_names()


def check_parameters(estimator):
    """Raise unless the parameters of an estimator meet its constraints."""
    estimator._validate_params()


def open_callbacks(estimator, max_subtasks):
    """Return the context in which callbacks of a fit are called."""
    return estimator._init_callback_context(max_subtasks=max_subtasks)
