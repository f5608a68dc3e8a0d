"""What the columns of tables are called, and in which order they come."""

from collections.abc import Mapping, Sequence
from typing import Any

from skprivbn.exceptions import PartitionError


def column_labels(X: Any) -> list | None:
    """Return the labels of a dataframe's columns; None for arrays.

    Columns that are numbered 0, 1, ... have no labels: it is what a dataframe made of
    an array has.
    """
    # pyarrow has the columns themselves under the name of the labels
    labels = getattr(X, "column_names", getattr(X, "columns", None))
    if labels is None or list(labels) == list(range(len(labels))):
        return None
    return list(labels)


def names_of(labels: Sequence | None) -> list[str] | None:
    """Return labels as names of features, which are text; else there are none."""
    if labels is None or not all(isinstance(label, str) for label in labels):
        return None
    return list(labels)


def find_columns(labels: Sequence, wanted: Sequence, holder: str) -> list[int]:
    """Return where the wanted columns are; refuses tables with other columns.

    Parameters
    ----------
    labels : sequence
        Of the columns that there are.
    wanted : sequence
        The same labels, in the order in which they are wanted.
    holder : str
        Whose columns these are, for the message.

    Returns
    -------
    places : list of int
    """
    labels = list(labels)
    twice = [label for i, label in enumerate(labels) if label in labels[:i]]
    if twice:
        raise PartitionError(f"{holder} has two columns called {twice[0]!r}")
    lacking = [label for label in wanted if label not in labels]
    further = [label for label in labels if label not in wanted]
    if lacking or further:
        raise PartitionError(
            f"{holder} has other columns than expected: it lacks {lacking} and has "
            f"{further}; columns are {list(wanted)}"
        )
    return [labels.index(label) for label in wanted]


def check_is_mapping(values: Any, name: str, of: str) -> None:
    """Say what to write in the place of a list, which names no party."""
    if not isinstance(values, Mapping):
        raise PartitionError(
            f"{name} must be a dict of the names of parties to {of}, as in "
            f"{{'north': ..., 'south': ...}}; got {type(values).__name__}"
        )
