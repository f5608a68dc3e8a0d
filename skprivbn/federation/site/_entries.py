"""Entries of a site file: what they mean, what they may be, and what to write."""

import math
import re
import tomllib
from difflib import get_close_matches

from skprivbn.exceptions import PartitionError
from skprivbn.federation._models import OURS, announced

#: how a site file names what another distribution than this one announces
_FROM = re.compile(r"(?P<name>\w+) from (?P<distribution>[\w.-]+)==(?P<version>\S+)")
#: significant digits that leave numbers of states, places and labels as they are
MIN_DIGITS = 3
_FINGERPRINT = re.compile(r"([0-9a-f]{64})?")
_DIGEST = re.compile(r"[0-9a-f]{64}")


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
        if not is_list_of_text(chosen):
            raise PartitionError(
                f"{where}: presets of {name!r} must be a list of names, got {chosen!r}"
            )
    return presets


def read_entry(entry, key, rule, where):
    """Return an entry of a table, or say what it must be.

    Parameters
    ----------
    entry : dict
    key : str
    rule : tuple
        The default, a test of values, and words for those that pass it.
    where : str
        For the message.

    Returns
    -------
    value : object
    """
    default, is_right, words = rule
    value = entry.get(key, default)
    if not is_right(value):
        raise PartitionError(f"{where}: {key} must be {words}, got {value!r}")
    return value


def at_least(least, default):
    """Return the rule of a count, which need not be given if the default is None."""

    def is_right(value):
        return value is default is None or (type(value) is int and value >= least)

    return default, is_right, f"an integer >= {least}"


def is_number(value):
    """Tell whether an entry is a number."""
    return type(value) in (int, float)


def is_list_of_text(value):
    """Tell whether an entry is a list of texts."""
    is_list = isinstance(value, list | tuple)
    return is_list and all(isinstance(text, str) for text in value)


def _is_version(value):
    return isinstance(value, str) and re.fullmatch(r"[\w-]+", value)


#: the command that tells people of a question that waits
NOTIFY = [], is_list_of_text, 'a list of texts, such as ["mail", "-s", "a question"]'

#: entries of a dataset that do not depend on others
DATASET_RULES = {
    "min_parties": at_least(1, None),
    "min_rows": at_least(1, 20),
    "min_cell_count": at_least(0, 5),
    "max_exact_fits": at_least(0, 0),
    "max_exact_numbers": (
        math.inf,
        lambda value: is_number(value) and value >= 0,
        "a number of at least 0, of exact numbers for each row",
    ),
    "round_results": at_least(MIN_DIGITS, None),
    "max_refusals": at_least(1, 20),
    "steps": (
        (),
        lambda value: is_list_of_text(value) and all(map(_DIGEST.fullmatch, value)),
        "a list of digests of 64 hexadecimal digits, from skprivbn_errors.log",
    ),
    "max_rounds": at_least(1, 2000),
    "version": (
        "1",
        _is_version,
        'text of letters, digits, - and _, such as "2026-11"',
    ),
    "researchers": (
        None,
        lambda value: value is None or is_list_of_text(value),
        "a list of names in certificates",
    ),
    "approve": ("always", ("always", "ask").__contains__, '"always" or "ask"'),
    "allow_rows": (False, lambda value: type(value) is bool, "true or false"),
}

#: entries of a budget
BUDGET_RULES = {
    "epsilon": (
        None,
        lambda value: is_number(value) and value > 0,
        "a number above 0",
    ),
    "delta": (
        0.0,
        lambda value: is_number(value) and 0 <= value < 1,
        "a number from 0 to below 1",
    ),
}


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
        if other and known[name].dist.version != other["version"]:
            raise PartitionError(
                f"{where}: {text!r} is not what is installed here, which is version "
                f"{known[name].dist.version}"
            )
        if name in found:
            raise PartitionError(f"{where}: {what} has {name!r} twice")
        found[name] = known[name]
    return found


def check_keys(table, known, needed, where):
    """Refuse a table with entries that nobody knows, or without those needed."""
    if not isinstance(table, dict):
        entries = sorted(known)
        raise PartitionError(f"{where}: expected a table of {entries}, got {table!r}")
    unknown, missing = sorted(set(table) - known), sorted(needed - set(table))
    meant = [name for word in unknown for name in get_close_matches(word, known, n=1)]
    said = [f"unknown entries {unknown}"] * bool(unknown)
    said += [f"is it {', '.join(meant)}?"] * bool(meant)
    said += [f"missing entries {missing}"] * bool(missing)
    if said:
        raise PartitionError(f"{where}: {'; '.join(said)}")


#: what each entry of a site file means, for people who have never seen one
OF_SITE = {
    "min_parties": "The fewest sites of a session, this one included. With two, each "
    "site can subtract its own part of a sum and read the other's.",
    "peers": "The sites that this one takes part with. Sessions with others are "
    "refused.",
    "audit_log": "The file that records every question.",
    "state": "The folder that records questions and costs. Back it up; never restore "
    "an older copy.",
    "results": "The folder for predictions, which stay at this site.",
    "notify": "The command that is run, with the question as its input, when a "
    "question waits for a person.",
}
#: the same of a dataset
OF_DATASET = {
    "min_parties": OF_SITE["min_parties"],
    "path": "The file with the rows, relative to the folder of this file unless it "
    "begins with /.",
    "sql": "The query whose rows are used. Only people at this site can change it.",
    "csv": "The format of the CSV file.",
    "missing": "Cells without a value, beside empty ones.",
    "version": "The version of the data. Exact numbers are counted for each version.",
    "min_rows": "Every number is about at least this many rows of all sites together. "
    "A site with fewer rows does not take part.",
    "min_cell_count": "Counts of exact tables below this are suppressed.",
    "estimators": "The estimators that may be fitted. Others are refused.",
    "backends": "The permitted ways to hide sums from everybody but the sites.",
    "presets": "The permitted parameters of the encryption.",
    "max_exact_fits": "The number of fits without noise to one version of the data.",
    "max_exact_numbers": "The most exact numbers that researchers get for each row, "
    "over the life of a version of the data. Only noise protects against a hostile "
    "researcher.",
    "round_results": "The significant digits of exact numbers for researchers. Fewer "
    "digits make the comparison of two fits less precise, but do not prevent it.",
    "max_refusals": "The number of questions on one version of the data that may end "
    "without an answer after data were read: a refusal reveals something, too.",
    "steps": "Preprocessing steps of exact questions, and networks that score columns, "
    "which are accepted although this site has not helped to fit them.",
    "max_rounds": "The most rounds of one fit.",
    "budget": "The privacy budget: epsilon bounds what all noisy answers together "
    "reveal about one row or person. Spent budget does not come back.",
    "individual": "The column that names the person of each row. Noise then hides "
    "all rows of one person together.",
    "allow_rows": "Whether estimators may use options that disclose single rows to "
    "others.",
    "researchers": "Those who may ask, by the names in their certificates. By default "
    "everybody with a certificate of the project.",
    "approve": 'With "ask", every question waits until a person here approves it.',
}
ENTRIES = OF_SITE | OF_DATASET
_KINDS = {
    "float": "numbers",
    "int": "whole numbers",
    "key": "keys: they identify records or persons, and are never disclosed",
}
_OF_COLUMN = {
    "kind": "Numbers, keys or these categories.",
    "from": "Its name in the file or query.",
    "map": "The category that each of these cells stands for.",
}
#: entries whose values are not shown
_SECRET = re.compile(r"""((?:password|passwd)["']?\s*=\s*)("[^"]*"|'[^']*')""", re.I)


def explain_lines(text):
    """Explain a site file line by line.

    Parameters
    ----------
    text : str
        Of the file.

    Yields
    ------
    line : str
        As it is in the file, without passwords.
    words : str
        What it means; nothing for comments and for lines that go on.
    """
    table = ()
    for line in text.splitlines():
        shown, words = _SECRET.sub(r'\1"..."', line), ""
        header = re.fullmatch(r"\s*\[([^\[\]]+)\]\s*(#.*)?", line)
        entry = re.match(r"""\s*("[^"]*"|'[^']*'|[\w-]+)\s*=""", line)
        if header:
            table = tuple(part.strip(" \"'") for part in header[1].split("."))
            words = _of_table(table)
        elif entry:
            words = _of_entry(table, entry[1].strip("\"'"), line)
        yield shown, words


def _of_table(table):
    if table[0] == "datasets" and len(table) == 2:
        return f"What follows is about the dataset {table[1]!r}."
    if table[2:] == ("columns",):
        return "Its columns. Columns that are not listed are invisible to others."
    if table[2:3] == ("columns",):
        return f"The column {table[3]!r}."
    return ENTRIES.get(table[-1], "")


def _of_entry(table, key, line):
    if table[2:] != ("columns",):
        known = _OF_COLUMN if table[2:3] == ("columns",) else ENTRIES
        return known.get(key, "")
    try:
        (entry,) = tomllib.loads(line).values()
    except (tomllib.TOMLDecodeError, ValueError):
        return f"The column {key!r}."
    kind = entry["kind"] if isinstance(entry, dict) and "kind" in entry else entry
    holds = _KINDS.get(kind) if isinstance(kind, str) else None
    if isinstance(kind, list):
        holds = f"one of {len(kind)} categories"
    renamed = isinstance(entry, dict) and "from" in entry
    return f"Holds {holds or 'the values declared here'}" + (
        f", from the column {entry['from']!r} of the source." if renamed else "."
    )
