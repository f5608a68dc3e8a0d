"""Small helpers without a home of their own."""

import contextlib
import functools
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from html import escape
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import joblib
import sklearn

from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.utils._progress import tell_progress
from skprivbn.utils._sklearn import _check_feature_names_in

__all__ = [
    "LazyModule",
    "by_column",
    "column_names",
    "html_table",
    "import_optional",
    "tell_progress",
    "warn_leak",
    "warn_user",
]

#: what to do where columns are given by name, and have none
_LOST_NAMES = (
    ": an array has no names, and in a pipeline scikit-learn's transformers return "
    "arrays unless pipeline.set_output(transform='pandas')"
)
#: code whose frames are passed over: ours, scikit-learn's, and what wraps calls
_INTERNAL = (
    str(Path(__file__).parents[1]),
    str(Path(sklearn.__file__).parent),
    str(Path(joblib.__file__).parent),
    contextlib.__file__,
    functools.__file__,
)

_EXTRA_OF = {
    "flask": "console",
    "matplotlib": "plot",
    "networkx": "plot",
    "nvflare": "nvflare",
    "psutil": "nvflare",
    "pyarrow": "parquet",
    "werkzeug": "console",
}


class LazyModule:
    """A module that is imported when something of it is used for the first time.

    Parameters
    ----------
    name : str

    Examples
    --------
    >>> from skprivbn.utils import LazyModule
    >>> statistics = LazyModule("statistics")
    >>> statistics.median([1, 2, 9])
    2
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


def html_table(columns: Sequence, rows: Iterable[Sequence]) -> str:
    """Return a table as HTML, with cells escaped.

    Parameters
    ----------
    columns : sequence
        Their names.
    rows : iterable of sequence

    Returns
    -------
    html : str

    Examples
    --------
    >>> from skprivbn.utils import html_table
    >>> "a &lt; b" in html_table(["test", "result"], [("a < b", True)])
    True
    """
    head = "".join(f"<th>{escape(str(name))}</th>" for name in columns)
    lines = [
        "".join(f'<td style="text-align:left">{escape(str(cell))}</td>' for cell in row)
        for row in rows
    ]
    body = "".join(f"<tr>{cells}</tr>" for cells in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


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


def by_column(
    parameter: str, given: Mapping, names: Sequence[str], *, complete: bool = False
) -> list:
    """Return what a parameter says of each column by its name, in their order.

    Parameters
    ----------
    parameter : str
        Its name, for errors.
    given : mapping of str to object
    names : sequence of str
        Of the columns.
    complete : bool, default=False
        Whether every column must be given.

    Returns
    -------
    values : list
        None for columns that are not given.
    """
    for name in given:
        if name not in names:
            near = get_close_matches(str(name), names, n=1)
            raise ValueError(
                f"{parameter} names {name!r}, and the columns are {list(names)}"
                + (f": did you mean {near[0]!r}?" if near else "")
                + _LOST_NAMES * (list(names) == [f"x{i}" for i in range(len(names))])
            )
    lacking = [name for name in names if name not in given]
    if complete and lacking:
        raise ValueError(f"{parameter} lacks columns {lacking}: give them, too")
    return [given.get(name) for name in names]


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
