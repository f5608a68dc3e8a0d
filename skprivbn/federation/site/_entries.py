"""Entries of a site file: what they may be, and errors that say what to write."""

import re

from skprivbn.exceptions import PartitionError
from skprivbn.federation._announced import OURS, announced

#: how a site file names what another distribution than this one announces
_FROM = re.compile(r"(?P<name>\w+) from (?P<distribution>[\w.-]+)==(?P<version>\S+)")
_FINGERPRINT = re.compile(r"([0-9a-f]{64})?")


def read_peers(entry, where):
    """Return the fingerprint, or None, of every peer that a site file names."""
    if isinstance(entry, list):
        entry = dict.fromkeys(map(str, entry), "")
    if not isinstance(entry, dict) or not all(
        isinstance(p, str) for p in entry.values()
    ):
        raise PartitionError(
            f"{where}: peers must be a list of names of sites, or a table of names and "
            f"SHA-256 fingerprints of their certificates, got {entry!r}"
        )
    prints = {name: text.replace(":", "").lower() for name, text in entry.items()}
    wrong = [name for name, text in prints.items() if not _FINGERPRINT.fullmatch(text)]
    if wrong:
        raise PartitionError(
            f"{where}: peers {wrong} need SHA-256 fingerprints of 64 hexadecimal "
            "digits, or none at all"
        )
    return {name: text or None for name, text in prints.items()}


def read_presets(entry, backends, where):
    """Return the presets that a site file allows, by backend."""
    presets = entry.get("presets", {})
    check_keys(presets, set(backends), set(), f"{where}: presets")
    for name, chosen in presets.items():
        if not isinstance(chosen, list) or not all(isinstance(c, str) for c in chosen):
            raise PartitionError(
                f"{where}: presets of {name!r} must be a list of names, got {chosen!r}"
            )
    return presets


def read_researchers(entry, where):
    """Return the names of who may use a dataset, or None for everybody."""
    names = entry.get("researchers")
    if names is not None and not (
        isinstance(names, list) and all(isinstance(n, str) for n in names)
    ):
        raise PartitionError(
            f"{where}: researchers must be a list of names in certificates, got "
            f"{names!r}"
        )
    return None if names is None else tuple(names)


def read_approve(entry, where):
    """Return whether a person approves questions."""
    approve = entry.get("approve", "always")
    if approve not in ("always", "ask"):
        raise PartitionError(
            f'{where}: approve must be "always" or "ask", got {approve!r}'
        )
    return approve


def read_share(entry, where):
    """Return how many parameters a row allows."""
    share = entry.get("max_parameters_per_row", 1 / 3)
    if type(share) not in (int, float) or not share > 0:
        raise PartitionError(
            f"{where}: max_parameters_per_row must be a positive number, got {share!r}"
        )
    return float(share)


def read_version(entry, where):
    """Return the declared version of the data."""
    version = entry.get("version", "1")
    if not isinstance(version, str) or not re.fullmatch(r"[\w-]+", version):
        raise PartitionError(
            f"{where}: version must be text of letters, digits, - and _, such as "
            f'"2026-11", got {version!r}'
        )
    return version


def find_announced(names, group, what, where):
    """Return what a site file names, if it is installed here as the file says."""
    if not isinstance(names, list | tuple) or not all(
        isinstance(n, str) for n in names
    ):
        raise PartitionError(f"{where}: {what} must be a list of names, got {names!r}")
    found = {}
    for text in names:
        other = _FROM.fullmatch(text)
        name = other["name"] if other else text
        known = announced(group, other["distribution"] if other else OURS)
        if name not in known:
            raise PartitionError(
                f"{where}: no such {what}: {text!r}; installed here are "
                f"{sorted(known)}. What another distribution announces is named "
                "'Name from distribution==version'"
            )
        if other and known[name].version != other["version"]:
            raise PartitionError(
                f"{where}: {text!r} is not what is installed here, which is version "
                f"{known[name].version}"
            )
        if name in found:
            raise PartitionError(f"{where}: {what} has {name!r} twice")
        found[name] = known[name]
    return found


def check_keys(table, known, needed, where):
    """Refuse a table with entries that nobody knows, or without those needed."""
    if not isinstance(table, dict):
        raise PartitionError(f"{where}: expected a table, got {table!r}")
    unknown, missing = sorted(set(table) - known), sorted(needed - set(table))
    if unknown or missing:
        raise PartitionError(
            f"{where}: "
            + "; ".join(
                [f"unknown entries {unknown}"] * bool(unknown)
                + [f"missing entries {missing}"] * bool(missing)
            )
        )


def check_count(value, what, least):
    """Refuse what is not an integer of at least so much."""
    if type(value) is not int or value < least:
        raise PartitionError(f"{what} must be an integer >= {least}, got {value!r}")
