"""Small helpers without a home of their own."""

from importlib import import_module
from types import ModuleType
from typing import Any

from skprivbn.utils._progress import tell_progress
from skprivbn.utils._sklearn import _check_feature_names_in
from skprivbn.utils._warnings import warn_leak, warn_user

__all__ = [
    "column_names",
    "import_optional",
    "tell_progress",
    "warn_leak",
    "warn_user",
]

_EXTRA_OF = {
    "matplotlib": "plot",
    "networkx": "plot",
    "nvflare": "nvflare",
    "psutil": "nvflare",
    "pyarrow": "parquet",
}


def column_names(estimator: Any) -> list[str]:
    """Return the names of the columns that an estimator has seen, or x0, x1, ...

    Parameters
    ----------
    estimator : estimator

    Returns
    -------
    names : list of str
    """
    return [str(name) for name in _check_feature_names_in(estimator)]


def import_optional(module: str, user: str) -> ModuleType:
    """Import a package that is not a core dependency, or say how to get it.

    Parameters
    ----------
    module : str
        Name of the module.
    user : str
        What needs it, for the message.

    Returns
    -------
    module : module
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        extra = _EXTRA_OF.get(package)
        command = f'"skprivbn[{extra}]"' if extra else package
        raise ImportError(f"{user} needs {package}: pip install {command}") from error
