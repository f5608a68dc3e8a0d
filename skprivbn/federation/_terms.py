"""What a protocol says about itself: its public parameters, and what follows from them.

A protocol's :class:`Terms` are a frozen value. The estimator makes them, they travel
as plain data, and every party makes them again from what it received: what is checked
when they are made is so checked on both sides.
"""

from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

import numpy as np

from skprivbn.exceptions import ProtocolError
from skprivbn.federation._wire import encode
from skprivbn.privacy import CountMechanism, DistributedNoise, distribute

#: fields that are limits, which a site raises to those of its site file
LIMITS = ("min_rows", "min_parties", "min_cell_count")


@dataclass(frozen=True)
class Terms:
    """Public parameters of a protocol, the same at every party.

    Subclasses are frozen dataclasses. Fields are numbers, text, booleans, arrays,
    other frozen dataclasses, or lists, tuples and dicts of these, of the annotated
    type; :meth:`check` adds further conditions. Invalid fields raise a ValueError when
    terms are created, and are refused by parties that receive them.

    Fields called as in :data:`LIMITS` are raised by a site to those of its site file.

    Attributes
    ----------
    protects : {"rows", "individuals"}
        Whom the noise hides, where there is noise: single rows, or all rows of one
        individual together, which the protocol then bounds.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from skprivbn.federation import Terms
    >>> @dataclass(frozen=True)
    ... class LloydTerms(Terms):
    ...     n_clusters: int
    ...     max_iter: int = 10
    ...
    ...     def check(self):
    ...         if self.n_clusters < 1:
    ...             raise ValueError("n_clusters must be at least 1")
    ...
    ...     def rounds(self, n_parties):
    ...         return 2 * self.max_iter
    >>> LloydTerms(3).to_payload()
    {'n_clusters': 3, 'max_iter': 10}
    >>> LloydTerms.from_payload({"n_clusters": 0.5, "max_iter": 10})
    Traceback (most recent call last):
        ...
    ValueError: n_clusters must be int, got 0.5
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in cls.__dict__.get("__annotations__", ()):
            if callable(getattr(Terms, name, None)):
                raise TypeError(f"a field of {cls.__name__} hides the method {name}")

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, hint in _hints_of(kind).items():
            value = _typed(name, getattr(self, name), hint)
            object.__setattr__(self, name, value)
            try:
                encode(_plain(value))
            except ProtocolError as error:
                raise ValueError(
                    f"{name} of {type(self).__name__} cannot travel to the parties: "
                    f"{error}; use numbers, text, arrays, lists or dicts of these"
                ) from None
        self.check()

    @property
    def protects(self) -> str:
        """Whom noise hides: "rows", or "individuals" if the protocol bounds them."""
        return "rows"

    def check(self) -> None:
        """Raise ValueError unless the fields, each of its type, make sense."""

    def to_payload(self) -> dict:
        """Return the fields as plain data, in a form that travels.

        Returns
        -------
        payload : dict
            Without fields that are None.
        """
        values = _plain(self).items()
        return {name: value for name, value in values if value is not None}

    @classmethod
    def from_payload(cls, payload: dict) -> Self:
        """Make terms of what was received, with every check.

        Parameters
        ----------
        payload : dict
            From :meth:`to_payload`, possibly forged.

        Returns
        -------
        terms : Terms
        """
        names = {f.name for f in fields(cls)}
        if not isinstance(payload, dict) or not payload.keys() <= names:
            raise ValueError(f"{cls.__name__} has the fields {sorted(names)}")
        # terms have one encoding only
        if any(value is None for value in payload.values()):
            raise ValueError("a field that is None is left out")
        return cls(**dict.fromkeys(names) | payload)

    def raised_to(self, limits: dict[str, int]) -> Self:
        """Return terms with limits at least as strict as these.

        Parameters
        ----------
        limits : dict of str to int
            Least values of ``min_rows``, ``min_parties`` and ``min_cell_count``, which
            noise makes needless.

        Returns
        -------
        terms : Terms
            The same object if nothing had to be raised.
        """
        if self.has_noise():
            limits = {k: v for k, v in limits.items() if k != "min_cell_count"}
        raised = {
            f.name: limits[f.name]
            for f in fields(self)
            if f.name in limits and getattr(self, f.name) < limits[f.name]
        }
        return replace(self, **raised) if raised else self

    def has_noise(self) -> bool:
        """Return whether everything that is disclosed has noise.

        Returns
        -------
        has_noise : bool
            Whether there is a field ``epsilon``, which is given.
        """
        return vars(self).get("epsilon") is not None

    def least_rows(self) -> int:
        """Return the least number of rows, of all parties, of an exact sum.

        Returns
        -------
        min_rows : int
            The field of this name, or 1.
        """
        return vars(self).get("min_rows", 1)

    def noise(self, n_features: int, n_parties: int) -> DistributedNoise | None:
        """Return the noise on everything that a session releases.

        Both sides calibrate it themselves; a site charges its cost to a budget before
        its data are touched.

        Parameters
        ----------
        n_features : int
            Columns of the party's block.
        n_parties : int

        Returns
        -------
        noise : DistributedNoise or None
            None means that the protocol releases exact results.
        """

    def shows_rows(self) -> bool:
        """Return whether a session discloses single rows.

        Returns
        -------
        shown : bool
        """
        return False

    def joins_columns(self) -> bool:
        """Return whether parties hold different columns of the same records.

        Where they hold rows, their sums are of the same columns. With another one at
        each party, such as one that is constant there, a sum would be one party's.

        Returns
        -------
        joins : bool
        """
        return False

    def for_tests_only(self) -> bool:
        """Return whether a session uses weak keys, as tests do.

        Returns
        -------
        weak : bool
        """
        return False

    def models(self) -> list[dict]:
        """Return the public models that a session applies to the parties' rows.

        Returns
        -------
        models : list of dict
        """
        return []

    def keeps_results(self) -> str | None:
        """Return the name of results that parties keep, if there are any.

        Such a session discloses nothing. A site writes them, the
        attribute ``kept`` of its party, to a folder of its own, and does not count
        the session as a fit.

        Returns
        -------
        name : str or None
            Such as ``"PPEMGaussianMixture.predict"``.
        """


@dataclass(frozen=True, kw_only=True)
class NoisyTerms(Terms):
    """Terms of integer sums that are released with noise, or exactly.

    Parameters
    ----------
    epsilon : float or None
        Privacy budget of the release; None for exact sums.
    delta : float
    min_honest : int or None
        How many parties are trusted to add their share of the noise; by default half
        of them, rounded up.
    protects : {"rows", "individuals"}
        Whom the noise hides: rows, or persons, all of whose rows count as one.
    """

    epsilon: float | None = None
    delta: float = 0.0
    min_honest: int | None = None
    protects: Literal["rows", "individuals"] = "rows"

    def mechanism(self, n_features: int) -> CountMechanism:
        """Return the noise that one curator would add."""
        raise NotImplementedError

    def noise(self, n_features: int, n_parties: int) -> DistributedNoise | None:
        """Return the noise of the one release."""
        if self.epsilon is None:
            return None
        return distribute(self.mechanism(n_features), n_parties, self.min_honest)


@cache
def _hints_of(cls: Any) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls)}


#: what stands for a value of a type, as numpy's and Python's numbers are mixed
_ACCEPTED: dict[Any, Any] = {
    bool: (bool, np.bool_),
    int: (int, np.integer),
    float: (float, int, np.floating, np.integer),
}


def _typed(name: str, value: Any, hint: Any) -> Any:
    """Bring a value to the annotated type, or refuse it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is Literal:
        if isinstance(value, str) and value in arguments:
            return value
        raise ValueError(f"{name} must be one of {list(arguments)}, got {value!r}")
    if origin in (Union, UnionType):
        for one in arguments:
            try:
                return _typed(name, value, one)
            except ValueError:
                pass
        raise ValueError(f"{name} must be {hint}, got {value!r}")
    if origin in (list, tuple):
        if not isinstance(value, list | tuple):
            raise ValueError(f"{name} must be a sequence, got {value!r}")
        return origin(_typed(name, item, arguments[0]) for item in value)
    if origin is dict:
        if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
            raise ValueError(f"{name} must be a dict with text as keys, got {value!r}")
        return {k: _typed(f"{name}[{k!r}]", v, arguments[1]) for k, v in value.items()}
    # True is an int for Python, and no number of components
    is_flag = hint is not bool and isinstance(value, bool | np.bool_)
    if not is_flag and isinstance(value, _ACCEPTED.get(hint, hint)):
        return hint(value) if hint in _ACCEPTED else value
    if is_dataclass(hint):
        make: Any = hint
        hints = _hints_of(make)
        if not isinstance(value, dict) or value.keys() != hints.keys():
            raise ValueError(f"{name} must have the fields {sorted(hints)}")
        return make(**{key: _typed(key, value[key], hints[key]) for key in hints})
    kind = {NoneType: "None", np.ndarray: "an array"}.get(hint, hint.__name__)
    raise ValueError(f"{name} must be {kind}, got {value!r}")


def _plain(value):
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
