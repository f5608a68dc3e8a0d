"""A fitted estimator as plain data, and the comparison of two of those."""

import dataclasses
import warnings
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from unittest import mock

import numpy as np

from skprivbn.federation import Ledger
from skprivbn.federation._ledger import COORDINATOR
from skprivbn.graphical_model import _searches
from skprivbn.privacy import DistributedNoise, _mechanisms
from skprivbn.privacy._distributed import ChoiceNoise
from tests.golden.renamed import RENAMED

#: attributes that are the same whatever is chosen at random
NOISELESS = {"privacy_spent_", "noise_", "n_features_in_", "n_splits_", "classes_"}


@contextmanager
def silence():
    """Let all noise be zero, and the best candidate win."""

    def no_share(self, shape):
        return np.zeros(shape, dtype=np.int64)

    def no_gumbel(self, scales):
        return np.zeros(np.shape(scales), dtype=np.int64)

    def best(scores, scale, pure=True):
        return int(np.argmax(scores))

    with ExitStack() as patches:
        for owner, name, quiet in (
            (DistributedNoise, "share", no_share),
            (ChoiceNoise, "share", no_gumbel),
            (_mechanisms, "_release", lambda kind, counts, scale: np.array(counts)),
            (_searches, "noisy_max", best),
        ):
            patches.enter_context(mock.patch.object(owner, name, quiet))
        yield


def record(case):
    """Fit a case; return what it finds, answers, warns of and learns, and its cost."""
    with warnings.catch_warnings(record=True) as caught, ExitStack() as context:
        warnings.simplefilter("always")
        if case.noisy is True:
            context.enter_context(silence())
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
    if case.noisy == "shape":
        found = {
            kind: {
                name: value if name in NOISELESS else shape(value)
                for name, value in values.items()
            }
            for kind, values in found.items()
        }
    else:
        # kinds only: sentences may be said better
        found["warnings"] = sorted({warning.category.__name__ for warning in caught})
    if hasattr(estimator, "ledger_"):
        found["ledger"] = _plain_ledger(estimator.ledger_)
        found["costs"] = costs(estimator.ledger_)
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


def _plain_ledger(ledger):
    """Who takes part, what kinds of things each side learns, what noise covers.

    No words and no names of messages; :func:`costs` has rounds and bytes.
    """
    facts = [(fact.who.startswith(COORDINATOR), fact.kind) for fact in ledger.facts()]
    return {
        "parties": list(ledger.parties),
        "coordinator learns": sorted({kind for is_it, kind in facts if is_it}),
        "others learn": sorted({kind for is_it, kind in facts if not is_it}),
        "releases": sorted(
            [release.protects, plain(release.epsilon), plain(release.delta)]
            for release in ledger.releases
        ),
    }


def costs(ledger):
    """Return rounds and bytes of a fit and of what was asked after it."""
    return {"rounds": ledger.n_rounds, "bytes": ledger.total_bytes}


def excesses(expected, found):
    """List what costs more than it did, by more than is allowed."""
    limits = {"rounds": expected["rounds"] + 1, "bytes": 1.1 * expected["bytes"]}
    return [
        f"{found[what]} {what} instead of {expected[what]}"
        for what, limit in limits.items()
        if found[what] > limit
    ]


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
    """List where what was found is not what was expected, through the renames.

    What the coordinator learnt, the parties may learn in its place; nobody else may
    learn more than before.
    """
    if path == "/ledger":
        return _ledger_differences(expected, found)
    if isinstance(expected, dict):
        if not isinstance(found, dict):
            return [f"{path}: {found!r} instead of {expected!r}"]
        lines = []
        for old, value in expected.items():
            new = current_name(old, owner)
            if new is None:
                continue
            if new not in found:
                lines.append(f"{path}/{new} is missing")
            else:
                lines += differences(value, found[new], rtol, owner, f"{path}/{new}")
        return lines
    if _same(expected, found, rtol):
        return []
    return [f"{path}: {found!r} instead of {expected!r}"]


def _ledger_differences(expected, found):
    lines = [
        f"ledger: {what} {found[what]!r} instead of {expected[what]!r}"
        for what in ("parties", "releases")
        if found[what] != expected[what]
    ]
    known = set(expected["coordinator learns"])
    allowed = {"coordinator learns": known}
    allowed["others learn"] = known | set(expected["others learn"])
    for who, kinds in allowed.items():
        lines += [f"ledger: {who} {kind}" for kind in set(found[who]) - kinds]
    return lines


def _same(expected, found, rtol):
    if isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return False
        numbers = _numbers(expected), _numbers(found)
        if None not in numbers and any(isinstance(n, float) for n in numbers[0]):
            if len(numbers[0]) != len(numbers[1]):
                return False
            size = max((abs(x) for x in numbers[0] if np.isfinite(x)), default=0.0)
            return np.allclose(*numbers, rtol=rtol, atol=rtol * size, equal_nan=True)
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
