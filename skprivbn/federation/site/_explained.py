"""The site file in plain words, entry by entry, for those who answer for it."""

import re
import tomllib

#: what each entry means, for people who have never seen one
ENTRIES = {
    "min_parties": "The fewest sites of a session, this one included. With two, each "
    "can subtract its own part of a sum and has the other's.",
    "peers": "The sites that this one takes part with. Sessions with others are "
    "refused.",
    "audit_log": "The file in which every question is written down.",
    "state": "The folder in which is counted what was asked and spent. Back it up; "
    "never put an older copy back.",
    "results": "The folder for predictions, which stay at this site.",
    "notify": "The command that is run, with the question as its input, when a "
    "question waits for a person.",
    "path": "The file with the rows, from the folder of this file unless it begins "
    "with /.",
    "sql": "The query whose rows are used. Nobody else can change it.",
    "csv": "How the CSV file is written.",
    "missing": "Cells that stand for nothing, beside empty ones.",
    "version": "The version of the data. Exact numbers are counted for each version.",
    "min_rows": "No number is told that is about fewer rows of all sites together; "
    "a site with fewer does not take part.",
    "min_cell_count": "Counts of exact tables below this are hidden.",
    "estimators": "What may be fitted. Anything else is refused.",
    "backends": "How sums may be hidden from everybody but the sites.",
    "presets": "Which parameters of the encryption may be chosen.",
    "max_exact_fits": "How many fits without noise one version of the data allows.",
    "max_exact_numbers": "How many numbers may be told without noise, for each row, "
    "over the life of a version of the data. Against a hostile researcher, only "
    "noise protects.",
    "round_results": "How many significant digits exact numbers have that a "
    "researcher gets. It blunts comparing two fits, and does not end it.",
    "max_refusals": "How many questions on one version of the data may end without an "
    "answer after data were read: a refusal, too, tells something.",
    "steps": "Transformers in front of exact questions that are taken though this site "
    "has not helped to fit them.",
    "max_rounds": "The most rounds of one fit.",
    "budget": "The privacy budget: epsilon bounds what all noisy answers together tell "
    "about one row or person. It is spent, and does not come back.",
    "individual": "The column that names the person behind each row. Noise then hides "
    "all rows of one person together.",
    "allow_rows": "Whether options of estimators that show single rows to others are "
    "allowed.",
    "researchers": "Who may ask, by the names in their certificates. Without it: "
    "everybody with a certificate of the project.",
    "approve": 'With "ask", every question waits until a person here approves it.',
}
_KINDS = {
    "float": "numbers",
    "int": "whole numbers",
    "key": "keys: used to find the same person, and never told",
}
_OF_COLUMN = {
    "kind": "What it holds: numbers, keys or these categories.",
    "from": "Its name in the file or query.",
    "map": "The category that each of these cells stands for.",
}
#: entries whose values are nobody's business
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
        return "Its columns. Those that are not listed do not exist for anybody else."
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
    return f"Holds {holds or 'what is said here'}" + (
        f", from the column {entry['from']!r} of the source." if renamed else "."
    )
