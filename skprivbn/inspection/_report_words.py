"""What the privacy report and its diagram say in plain words: a vocabulary."""

import re

#: what a message or fact of each kind is to its reader, its tone, a word and a colour,
#: the most revealing first. Colours can be told apart on white and on black
KIND_WORDS = {
    "raw rows": ("rows of data, readable", "bad", "readable rows", "#D5004B"),
    "membership": ("which own records others have", "bad", "who is shared", "#D5004B"),
    "plaintext aggregate": (
        "exact totals, readable",
        "bad",
        "readable sums",
        "#D55E00",
    ),
    "noisy release": ("values with random noise, readable", "note", "noisy", "#c98500"),
    "public": ("settings and results", "", "public", "#8a8f98"),
    "share": ("secret shares, unreadable one by one", "good", "shares", "#009E73"),
    "masked": ("masked numbers, unreadable", "good", "masked", "#009E73"),
    "ciphertext": ("encrypted numbers, unreadable", "good", "encrypted", "#009E73"),
    "sealed": ("sealed messages, unreadable in between", "good", "sealed", "#009E73"),
}

#: exact values of rows
EXACT = ("raw rows", "membership", "plaintext aggregate")
READABLE = (*EXACT, "noisy release", "public")

#: how notes of a topic are labelled in the section on protection
NOTE_TOPICS = {
    "hidden by": "Hidden by",
    "technique": "Hidden by",
    "sum known to": "Totals are read by",
    "strength": "Strength",
    "precision": "Rounding",
    "lost": "Dropout",
    "also": "Also recorded",
}

#: parameters of estimators that a reader of the report may ask for
SETTING_WORDS = {
    "min_rows": "fewest rows behind a total",
    "min_parties": "fewest parties behind a total",
    "min_cell_count": "smallest count that is not shown as zero",
    "disclosure": "what parties disclose",
    "release_effects": "effects released",
}

LIMITS = (
    (
        "Participants are assumed to follow the protocol.",
        "A coordinator that changes a total or a sealed message is detected at sites. "
        "A party that changes its program, or uses false data, is not.",
    ),
    (
        "This calculation only.",
        "The same calculation on changed data, other results and outside knowledge "
        "tell more than this page says.",
    ),
    (
        "Names, sizes and times of messages are visible",
        "to anybody who observes the network. Each party protects its own computers.",
    ),
    (
        "The software was not audited.",
        "The coordinator's program wrote this record; it proves nothing about what "
        "participants did outside the program.",
    ),
)

#: what the result may tell, by what noise protects
PERSON_LIMITS = {
    "individuals": (
        "The noise protects one person.",
        "All rows of a person count as one, if one party holds them under one name. A "
        "household is protected less. Facts about the whole group are the purpose.",
    ),
    "rows": (
        "The noise protects one row.",
        "A person with several rows, or a household, is protected less. Facts about "
        "the whole group are the purpose.",
    ),
    "values": (
        "The noise protects the values of one record.",
        "That the record exists is known to all parties. Facts about the whole group "
        "are the purpose.",
    ),
    None: (
        "The result itself may tell about a person.",
        "It carries no noise: a rare or extreme row may be recognised in it. Decide "
        "who may see the model as if it held personal data.",
    ),
}

#: whom noise hides
PROTECTED = {
    "rows": "one row, added or removed",
    "individuals": "one person with all their rows, added or removed",
    "values": "the values of one record, exchanged for others",
}

#: words of the page, also as the beginning of a word, and what they mean
GLOSSARY = {
    "CKKS, Paillier": "encryption under which numbers are added without decryption",
    "coordinator": "the researcher's computer, which runs the calculation without data",
    "covariance, moments": "averages, spreads and joint spreads of columns",
    "delta": "the small probability with which the limit epsilon may fail",
    "epsilon": "limit of what a result can tell about one row; 0 is nothing, below 1 "
    "is usually called strong, above 5 weak",
    "gradient, Hessian": "in which direction, and how fast, a fit would improve",
    "hash call": "a step of the protection; each doubling costs one bit of security",
    "log-likelihood": "how well a model fits the rows",
    "mask": "random number that hides a value, and cancels in the total of all parties",
    "oblivious transfer": "one of two sealed values is picked, and the sender does not "
    "learn which",
    "party, parties": "an organisation that holds data and keeps them",
    "quantile": "value below which a given fraction of the rows lies",
    "responsibilities": "degrees to which rows belong to groups",
    "security (in bits)": "breaking it takes about 2 to the power of so many steps; "
    "112 bits are out of reach today",
    "semi-honest": "looks at everything it receives, but follows the protocol",
    "shares": "parts of a number that tell nothing until all are together",
}

_FOLLOWING_RULES = (
    "semi-honest security: parties follow the protocol; all of them but one may pool "
    "what they see",
    "nobody who follows the protocol (semi-honest) can undo it, even if all parties "
    "but one pool what they see",
)


def plain(text, is_total=False):
    """Say for a reader outside what the ledger notes in a programmer's shorthand."""
    if is_total:
        # Of a total nobody in particular is "its" owner.
        total = re.sub(r"\beach of its ", "each of the ", text)
        return re.sub(r"\bits ", "", total)
    text = text.replace(*_FOLLOWING_RULES)
    text = text.replace("min_rows rows", "the agreed least number of rows")
    return re.sub(r"2(?:\*\*|\^)-(\d+)", r"1/2^\1", text)


def sentence(text):
    """Return a note of the ledger as a sentence."""
    text = plain(text)
    return f"{text[:1].upper()}{text[1:]}."


def strength_of(epsilon):
    """Return (tone, word) for an epsilon; no law fixes these limits."""
    if epsilon <= 1:
        return "good", "strong"
    return ("note", "moderate") if epsilon <= 5 else ("bad", "weak")


def glossary_of(text):
    """Return (term, explanation) of the difficult words that occur in a text."""
    patterns = {t: t.partition(" (")[0].replace(", ", "|") for t in GLOSSARY}
    return [
        (term, meaning)
        for term, meaning in GLOSSARY.items()
        if re.search(rf"\b({patterns[term]})", text, re.IGNORECASE)
    ]
