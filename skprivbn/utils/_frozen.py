"""A mapping that cannot be changed, and can be copied, pickled and cloned."""

from collections.abc import Iterator, Mapping
from typing import Any


class FrozenMapping(Mapping):
    """A read-only mapping.

    Like ``types.MappingProxyType``, which neither copies nor pickles, and so cannot be
    a parameter of an estimator.

    Parameters
    ----------
    values : mapping

    Examples
    --------
    >>> from skprivbn.utils._frozen import FrozenMapping
    >>> FrozenMapping({"smoker": ("no", "yes")})
    {'smoker': ('no', 'yes')}
    """

    def __init__(self, values: Mapping) -> None:
        self._values = dict(values)

    def __getitem__(self, key: Any) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __or__(self, other: Mapping) -> dict:
        return self._values | dict(other)

    def __ror__(self, other: Mapping) -> dict:
        return dict(other) | self._values

    def __deepcopy__(self, memo: dict) -> "FrozenMapping":
        # as for a tuple of numbers: what cannot change need not be copied
        return self

    def __repr__(self) -> str:
        return repr(self._values)
