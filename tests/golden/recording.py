"""A fitted estimator as plain data, and the comparison of two of those."""

import dataclasses
import warnings
from collections import Counter
from collections.abc import Mapping
from importlib import import_module

import numpy as np

from skprivbn.federation import Ledger
from tests.golden.renamed import OTHER_SIZES, RENAMED

#: attributes that are the same in every fit under noise
NOISELESS = {"privacy_spent_", "noise_", "n_features_in_", "n_splits_", "classes_"}


def record(case):
    """Fit a case; return its parameters, answers, warnings and ledger."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator = case.make(current_name, import_module)
        estimator.fit(*case.data.rows, **case.data.metadata)
        answers = {name: case.answer(estimator, name) for name in case.methods}
    attributes = {
        name: value
        for name, value in vars(estimator).items()
        if name.endswith("_") and not name.startswith("_") and name != "ledger_"
    }
    found = {
        "attributes": {name: plain(attributes[name]) for name in sorted(attributes)},
        "answers": {name: plain(answer) for name, answer in answers.items()},
    }
    if case.noisy:
        found = {
            kind: {
                name: value if name in NOISELESS else shape(value)
                for name, value in values.items()
            }
            for kind, values in found.items()
        }
    else:
        texts = {f"{w.category.__name__}: {w.message}" for w in caught}
        found["warnings"] = sorted(texts)
    if hasattr(estimator, "ledger_"):
        found["ledger"] = _plain_ledger(estimator.ledger_, case.noisy)
    return found


def plain(value):
    """Return a value as JSON can hold it."""
    if isinstance(value, Ledger):
        return _plain_ledger(value)
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        # numbers of JSON are finite
        return float(f"{value:.12g}") if np.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {_key(key): plain(member) for key, member in value.items()}
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value)]
        members = {name: getattr(value, name) for name in fields if name[0] != "_"}
        return plain(members)
    if hasattr(value, "get_params"):
        return plain(value.get_params(deep=False))
    return [plain(member) for member in value]


def _key(key):
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _plain_ledger(ledger, noisy=False):
    """Words, rounds, and messages and bytes of every operation.

    An opened sum is as long as its largest number: under noise, not always the same.
    """
    messages, n_bytes = Counter(), Counter()
    for entry in ledger.entries:
        messages[entry.operation] += 1
        if not noisy or entry.sender in ledger.parties:
            n_bytes[entry.operation] += entry.n_bytes
    return {
        "parties": list(ledger.parties),
        "rounds": ledger.n_rounds,
        "learns": sorted([*map(str, row[:5])] for row in ledger.who_learns_what()),
        "notes": sorted(ledger.notes),
        "messages": dict(messages),
        "bytes": dict(n_bytes),
    }


def shape(value):
    """Return what noise cannot change: kind and length."""
    if isinstance(value, dict):
        return f"{len(value)} entries"
    if isinstance(value, list):
        inner = {shape(member) for member in value}
        return f"{len(value)} of {inner.pop() if len(inner) == 1 else 'several kinds'}"
    return type(value).__name__


def current_name(old, owner=""):
    """Return what a thing that was called so is called today; None if it is gone."""
    return RENAMED.get(f"{owner}.{old}", RENAMED.get(old, old))


def differences(expected, found, rtol, owner, path=""):
    """List where what was found is not what was expected, through the renames."""
    if isinstance(expected, dict):
        if not isinstance(found, dict):
            return [f"{path}: {found!r} instead of {expected!r}"]
        lines = []
        for old, value in expected.items():
            new = current_name(old, owner)
            if new is None or (path.endswith("/bytes") and new in OTHER_SIZES):
                continue
            if new not in found:
                lines.append(f"{path}/{new} is missing")
            else:
                lines += differences(value, found[new], rtol, owner, f"{path}/{new}")
        return lines
    expected = _renamed(expected)
    if _same(expected, found, rtol):
        return []
    return [f"{path}: {found!r} instead of {expected!r}"]


def _renamed(value):
    """Texts, and lists of texts from which some are gone, as they are today."""
    if isinstance(value, str):
        return current_name(value)
    if isinstance(value, list):
        values = [_renamed(member) for member in value]
        gone = [
            new is None and old is not None
            for new, old in zip(values, value, strict=True)
        ]
        return [new for new, is_gone in zip(values, gone, strict=True) if not is_gone]
    return value


def _same(expected, found, rtol):
    if isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return False
        numbers = _numbers(expected), _numbers(found)
        if None not in numbers and len(numbers[0]) == len(numbers[1]):
            size = max((abs(x) for x in numbers[0] if np.isfinite(x)), default=0.0)
            return np.allclose(*numbers, rtol=rtol, atol=rtol * size, equal_nan=True)
        if all(isinstance(member, str | list) for member in expected):
            # words in any order: a renamed one may sort elsewhere
            return sorted(map(str, expected)) == sorted(map(str, found))
        return all(_same(*pair, rtol) for pair in zip(expected, found, strict=True))
    if isinstance(expected, float) and isinstance(found, int | float):
        return bool(np.isclose(found, expected, rtol=rtol, atol=rtol))
    return expected == found


def _numbers(nested):
    """Flatten nested lists of numbers; None if there is anything else."""
    if isinstance(nested, list):
        parts = [_numbers(member) for member in nested]
        return None if None in parts else [number for p in parts for number in p]
    if nested == "nan":
        return [float("nan")]
    is_number = isinstance(nested, int | float) and not isinstance(nested, bool)
    return [nested] if is_number else None
