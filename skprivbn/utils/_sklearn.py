"""What scikit-learn keeps to itself, or lacks.

Its private names, imported here and nowhere else; the version in pickles, which it
writes for its own estimators only; and parameters that have another name now, or that
users expect in vain.
"""

import warnings
from difflib import get_close_matches
from functools import cache, lru_cache, partial, wraps
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar, Self

from sklearn.base import _fit_context as _sklearn_fit_context
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
)
from sklearn.utils._param_validation import validate_params as _sklearn_validate_params
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
    "RenamedParameters",
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
    "moved_into",
    "settings_in",
    "validate_params",
]


#: what users write, and the arguments of ``fit`` that they may mean
_MEANT = {
    "parties": ("party",),
    "group": ("cluster", "party", "individual"),
    "groups": ("cluster", "party", "individual"),
    "weights": ("sample_weight",),
}
_VERSION_KEY = "_skprivbn_version"
#: pages of classes, in a checkout
_BUILT = Path(__file__).parents[2] / "doc/_build/html/api/generated"


#: our functions call no estimator whose parameters would need a check of their own
validate_params = partial(_sklearn_validate_params, prefer_skip_nested_validation=True)


def _fit_context(*, prefer_skip_nested_validation):
    """Check parameters as scikit-learn does, and say what an unknown argument means."""

    def decorate(fit):
        checked = _sklearn_fit_context(
            prefer_skip_nested_validation=prefer_skip_nested_validation
        )(fit)
        known = signature(fit).parameters

        @wraps(fit)
        def wrapper(estimator, *args, **kwargs):
            for name in kwargs:
                if name not in known:
                    _refuse_argument(estimator, fit.__name__, name, known)
            return checked(estimator, *args, **kwargs)

        return wrapper

    return decorate


def _refuse_argument(estimator, method, name, known):
    """Raise, with the class's own name and what the user may have meant."""
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return
    user, words = type(estimator).__name__, list(known)[1:]
    meant = [word for word in _MEANT.get(name, ()) if word in words]
    meant = meant or get_close_matches(name, words, n=1)
    own = get_close_matches(name, estimator._get_param_names(), n=1)
    if meant:
        hint = f"did you mean {' or '.join(f'{word}=' for word in meant)}?"
    elif own:
        hint = f"did you mean the parameter of the class, {user}({own[0]}=...)?"
    else:
        hint = f"it takes {', '.join(words)}"
    raise TypeError(f"{user}.{method}() has no argument {name!r}: {hint}")


class CachedParameterNames:
    """Look at the constructor of a class once, not for every clone and check."""

    @classmethod
    @cache
    def _get_param_names(cls):
        return super()._get_param_names()


class RenamedParameters:
    """Name the new word to whoever writes an old one.

    Subclasses say ``_renamed = {old: what to write instead}``, and of what others have
    but they do not, ``_absent = {name: why, and what to use instead}``.
    """

    _renamed: ClassVar[dict[str, str]] = {}
    _absent: ClassVar[dict[str, str]] = {}

    def __new__(cls, *args: Any, **parameters: Any) -> Self:
        """Make an estimator, unless a parameter has an old name."""
        cls._refuse_old(parameters)
        return super().__new__(cls)

    def set_params(self, **params: Any) -> Self:
        """Set parameters.

        Parameters
        ----------
        **params : dict
            Parameters of this estimator.

        Returns
        -------
        self : estimator instance
        """
        self._refuse_old(params)
        return super().set_params(**params)  # type: ignore[misc]

    @classmethod
    def _refuse_old(cls, parameters):
        for name in cls._renamed.keys() & parameters.keys():
            raise TypeError(
                f"{cls.__name__} has no parameter {name!r} any more: write "
                f"{cls._renamed[name]}"
            )
        for name in cls._absent.keys() & parameters.keys():
            raise TypeError(
                f"{cls.__name__} has no parameter {name!r}: {cls._absent[name]}"
            )


def moved_into(group, names):
    """Return what to write for parameters that have become settings of a group.

    Parameters
    ----------
    group : str
        Such as "search_params".
    names : iterable of str

    Returns
    -------
    renamed : dict of str to str
    """
    return {name: f"{group}={{{name!r}: ...}}" for name in names}


class SavedVersionMixin:
    """Puts the version into pickles, and links reprs to the guide that was built.

    Releases that differ in their last number store fitted attributes in the same way;
    reading those of another one warns.
    """

    def _get_doc_link(self) -> str:
        """Return the address of the class's page; "" unless ``make doc`` has run."""
        name = type(self).__name__
        pages = _BUILT.glob(f"skprivbn.*.{name}.html")
        return next((page.as_uri() for page in pages), "")

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
    kind = type(estimator)
    values = tuple(getattr(estimator, name) for name in kind._get_param_names())
    try:
        hash(values)
    except TypeError:  # a list among them
        estimator._validate_params()
    else:
        _check_values(kind, *values)


# every simulated party checks the same few parameters; 1 is not True
@lru_cache(typed=True)
def _check_values(kind, *values):
    params = dict(zip(kind._get_param_names(), values))
    constraints = kind._parameter_constraints
    validate_parameter_constraints(constraints, params, caller_name=kind.__name__)


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


def settings_in(name, given, known):
    """Return the same of settings whose defaults stand beside their constraints.

    Parameters
    ----------
    name : str
        Of the parameter, for errors.
    given : dict or None
    known : dict of str to (list, object)
        Constraints and default of every setting.

    Returns
    -------
    settings : dict
    """
    constraints, defaults = ({k: v[i] for k, v in known.items()} for i in (0, 1))
    return fill_params(name, given, constraints, **defaults)


def open_callbacks(estimator, max_subtasks):
    """Return the context in which callbacks of a fit are called."""
    return estimator._init_callback_context(max_subtasks=max_subtasks)
