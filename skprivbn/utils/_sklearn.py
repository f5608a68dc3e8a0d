"""Private scikit-learn names, imported here and nowhere else."""

from sklearn.base import _fit_context
from sklearn.utils._indexing import _get_column_indices
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    InvalidParameterError,
    Options,
    StrOptions,
    validate_params,
)

__all__ = [
    "HasMethods",
    "Interval",
    "InvalidParameterError",
    "Options",
    "StrOptions",
    "_fit_context",
    "_get_column_indices",
    "validate_params",
]
