"""What a dataframe says of the labels that its columns may hold."""

from typing import Any


def declared_categories(X: Any) -> list[list | None]:
    """Return the labels that each column of a dataframe may hold, if it says so.

    Parameters
    ----------
    X : array-like or dataframe
        Columns of pandas' categories and of polars' Enum declare their labels.

    Returns
    -------
    categories : list of (list or None)
        Empty for arrays; None for columns that declare nothing.
    """
    if not hasattr(X, "columns") or not hasattr(X, "dtypes"):
        return []
    return [declared_labels(dtype) for dtype in X.dtypes]


def declared_labels(dtype: Any) -> list | None:
    """Return the labels that a type of a column declares, if it does."""
    # a polars Categorical grows with the data: what it has seen, it does not declare
    if type(dtype).__name__ == "CategoricalDtype":
        return dtype.categories.tolist()
    if type(dtype).__name__ == "Enum":
        return dtype.categories.to_list()
    return None
