"""Parameters that have another name now, or that users expect in vain."""

from typing import Any, ClassVar, Self


class RenamedParameters:
    """Name the new word to whoever writes an old one.

    Subclasses say ``_renamed = {old: what to write instead}``, and of what others have
    but they do not, ``_absent = {name: why, and what to use instead}``.
    """

    _renamed: ClassVar[dict[str, str]] = {}
    _absent: ClassVar[dict[str, str]] = {}

    def __new__(cls, *args: Any, **parameters: Any) -> Self:
        """Make an estimator, unless a parameter has an old name."""
        for name in cls._renamed.keys() & parameters.keys():
            raise TypeError(
                f"{cls.__name__} has no parameter {name!r} any more: write "
                f"{cls._renamed[name]}"
            )
        for name in cls._absent.keys() & parameters.keys():
            raise TypeError(
                f"{cls.__name__} has no parameter {name!r}: {cls._absent[name]}"
            )
        return super().__new__(cls)
