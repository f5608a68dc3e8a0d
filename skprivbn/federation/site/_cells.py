"""What the cells of a table mean, given what its columns are declared to hold."""

from collections.abc import Callable, Sequence

import numpy as np

#: what people often write where nothing is known
_OFTEN_MISSING = {"na", "n/a", "null", "none", "-", ".", "?", "missing", "unknown"}


class CellError(ValueError):
    """A cell does not hold what its column is declared to hold.

    The message names file, row and column, and quotes the cell: it is for the people
    at the site.
    """


def parse_cells(
    cells: Sequence,
    kind: str | list[str],
    missing: tuple[str, ...],
    where: Callable[[int], str],
) -> np.ndarray:
    """Return the values of cells of one column.

    Parameters
    ----------
    cells : sequence
        Text, Python's objects, or an array of numbers.
    kind : {"float", "int", "key"} or list of str
        What the column holds; a list is that of its categories.
    missing : tuple of str
        Cells that stand for nothing, beside empty ones and None.
    where : callable
        From the position of a cell to its file, row and column.

    Returns
    -------
    values : ndarray
        Floats, integers, text, or positions in the list of categories. With missing
        entries, which are NaN, these are floats.
    """
    read, word = _reader(kind)
    nothing = {None, "", *missing, *_numbers(missing)}
    try:
        if kind in ("float", "int") and isinstance(cells, np.ndarray):
            return _from_numbers(cells, kind, nothing)
        return _from_objects(cells, kind, read, nothing)
    except (ArithmeticError, KeyError, TypeError, ValueError):
        pass
    cells = cells.tolist() if isinstance(cells, np.ndarray) else cells
    for i, cell in enumerate(cells):
        try:
            _from_objects([cell], kind, read, nothing)
        except OverflowError:
            raise CellError(f"{where(i)}: {cell!r} is too large") from None
        except (ArithmeticError, KeyError, TypeError, ValueError):
            raise CellError(
                f"{where(i)}: {cell!r} is not {word}{_hint(cell, kind)}"
            ) from None
    raise CellError(f"{where(0)}: numbers are too large")


def _hint(cell, kind):
    """Return what to do about a cell that is often found."""
    if not isinstance(cell, str):
        return ""
    if cell.strip().lower() in _OFTEN_MISSING:
        return f'; if it stands for nothing, say missing = ["{cell}"]'
    if kind == "float" and cell.count(",") == 1:
        return '; if decimals follow a comma, say csv = {decimal = ","}'
    if isinstance(kind, list) and cell.strip().lower() in map(str.lower, kind):
        return " (spaces and capital letters count)"
    return ""


def _reader(kind):
    if isinstance(kind, list):
        codes = {label: code for code, label in enumerate(kind)}
        return (lambda cell: codes[str(cell)]), f"one of the categories {kind}"
    return {
        "float": (float, "a number"),
        "int": (_whole, "a whole number"),
        "key": (str, "a key"),
    }[kind]


def _whole(cell):
    number = int(cell)
    if not isinstance(cell, str) and number != cell:
        raise ValueError("not whole")
    return number


def _numbers(missing):
    """Return the numbers among the texts that stand for nothing."""
    for text in missing:
        try:
            yield float(text)
        except ValueError:
            pass


def _from_objects(cells, kind, read, nothing):
    if kind == "key":
        texts = ["" if _is_nothing(c, nothing) else str(c) for c in cells]
        return np.array(texts, dtype=str)
    if kind == "float" and nothing.isdisjoint(cells):
        return np.array(list(map(float, cells)))
    values = [np.nan if _is_nothing(c, nothing) else read(c) for c in cells]
    whole = kind != "float" and not any(isinstance(v, float) for v in values)
    return np.array(values, dtype=np.int64 if whole else np.float64)


def _is_nothing(cell, nothing):
    # NaN, as databases and frames have it, is not equal to itself
    return cell in nothing or cell != cell


def _from_numbers(cells, kind, nothing):
    """Do the same for an array of numbers."""
    absent = np.isin(cells, [n for n in nothing if isinstance(n, float)])
    if kind == "int" and cells.dtype.kind == "f":
        if np.any(np.isfinite(cells) & (cells != np.rint(cells))):
            raise ValueError("not whole")
        absent |= np.isnan(cells)
    if kind == "int" and not absent.any():
        if np.any(np.abs(cells) >= 2.0**63):
            raise ValueError("too large")
        return cells.astype(np.int64)
    return np.where(absent, np.nan, cells.astype(np.float64))
