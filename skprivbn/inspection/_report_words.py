"""What the privacy report says in plain words: its vocabulary, no layout."""

import re

#: what a message or fact of each kind is to its reader, from most to least revealing
KIND_WORDS = {
    "raw rows": "Rows of data, readable",
    "plaintext aggregate": "Totals over rows, readable and exact",
    "noisy release": "Values blurred by random noise, readable",
    "public": "Settings and results, course of the calculation, not hidden",
    "share": "Shares that look random, unreadable one by one",
    "masked": "Numbers under masks, unreadable one by one",
    "ciphertext": "Encrypted numbers, unreadable without the key",
    "sealed": "Sealed messages between two parties",
}
READABLE = ("raw rows", "plaintext aggregate")

#: how notes of a topic are labelled
NOTE_TOPICS = {
    "hidden by": "Hidden by",
    "sum known to": "Totals can be read by",
    "broken by": "Protection is undone by",
    "precision": "Accuracy of the totals",
    "technique": "Hidden by",
    "strength": "Strength",
    "lost": "Lost on the way",
    "also": "Also recorded",
}

#: how strong the means are that every backend relies on, where they were used
STRENGTH = {
    "masked": "Masks: AES-256 under keys that every two parties agree on (X25519), "
    "about 128-bit security",
    "sealed": "Messages between parties: sealed by ChaCha20-Poly1305 under keys that "
    "these two agree on (X25519), about 128-bit security",
}

#: parameters of estimators that a reader of the report may ask for
SETTING_WORDS = {
    "epsilon": "Epsilon asked for",
    "delta": "Delta asked for",
    "min_rows": "Smallest number of rows that may be reported on",
    "min_parties": "Smallest number of parties behind a total",
    "min_cell_count": "Counts below this are shown as zero",
    "disclosure": "What parties may disclose",
    "release_effects": "Effects that are released",
}

LIMITS = (
    (
        "Participants are assumed to follow the rules.",
        "The protection holds against participants who look at everything they receive "
        "but run the agreed program. At sites, a coordinator that changes a total or a "
        "sealed message on its way is found out. A party that changes its program is "
        "not, and nobody checks whether the data a party uses are true.",
    ),
    (
        "The software was not audited.",
        "No independent body has certified it.",
    ),
    (
        "Only this calculation is covered.",
        "Repeating it on changed data, or combining it with other results or with "
        "outside knowledge, tells more than this page says.",
    ),
    (
        "Names, sizes and times are not hidden.",
        "Whoever sees the traffic sees who takes part, how large messages are and when "
        "they are sent. Each party's own computers must be protected by that party.",
    ),
    (
        "The coordinator's program wrote this record.",
        "It lists the messages that the program handled. It is no proof that a "
        "participant did nothing else.",
    ),
)

#: in place of ``DP_LIMITS[True]``, where the noise protects persons
PERSON_LIMIT = (
    "The noise protects one person.",
    "All rows of a person count as one, if they are with one party and carry one name. "
    "A household is protected less. Facts about the group as a whole are not hidden: "
    "finding them is the purpose.",
)

DP_LIMITS = {
    True: (
        "The noise protects one row.",
        "A person with several rows, or a household, is protected less. Facts about "
        "the group as a whole are not hidden: finding them is the purpose.",
    ),
    False: (
        "The result itself may tell about a person.",
        "No noise was added to it. Hiding the calculation does not hide what the "
        "finished model says: a rare or extreme row may be recognised in it. Decide "
        "who may see the model as if it held personal data.",
    ),
}

#: pattern of a word as it appears on the page: its explanation
GLOSSARY = {
    "CKKS|Paillier": "Kinds of encryption under which encrypted numbers can be added "
    "without opening them. Paillier keys of 2048 bits give about 112 bits of security, "
    "of 3072 bits about 128.",
    "clusters?": "A group of similar rows.",
    "contingency tables?|counts": "How many rows have each combination of values.",
    "coordinator": "Runs the calculation and holds no data of its own.",
    "covariance|moments?": "Averages, spreads and joint spreads of columns.",
    "delta": "The small probability with which the promise of epsilon may fail.",
    "epsilon": "A measure of what a result can tell about one row: 0 is nothing. Below "
    "about 1 is usually called strong, above about 10 weak.",
    "garbled circuits?": "A way for two parties to compute a result without showing "
    "each other what they put in.",
    "gradients?|Hessian": "In which direction, and how fast, a fit would improve.",
    "hash calls?": "Steps of the protection; every doubling costs one bit of security.",
    "log-likelihoods?": "One number that says how well a model fits rows.",
    "masks?|masked": "Random numbers that are added to hide a value. They cancel when "
    "the numbers of all parties are added up.",
    "oblivious transfers?": "A way to pick one of two sealed values without the sender "
    "learning which.",
    "party|parties": "An organisation that holds data and keeps them.",
    "powers of two": "1, 2, 4, 8, ...: a coarse idea of how large numbers are.",
    "quantiles?": "The values below which given fractions of the rows lie.",
    "responsibilities": "To what degree each row belongs to each group.",
    "rounds?": "One question of the coordinator, answered by the parties.",
    "semi-honest": "Looks at everything it receives, but follows the rules.",
    "shares?": "Parts of a number; all parts together give it, fewer tell nothing.",
    "standard deviations?": "How widely values are spread about their mean.",
    r"\d+[- ]bits? security|bits of security|security of about": "Breaking it takes "
    "about 2 to the power of so many steps; 112 bits or more are out of reach today.",
}
_GLOSSARY_NAMES = {
    "CKKS|Paillier": "CKKS, Paillier",
    "contingency tables?|counts": "contingency table, counts",
    "covariance|moments?": "moments, covariance",
    "gradients?|Hessian": "gradient, Hessian",
    "masks?|masked": "mask",
    r"\d+[- ]bits? security|bits of security|security of about": "bits of security",
}


_FOLLOWING_RULES = (
    "semi-honest security: parties follow the protocol; all of them but one may pool "
    "what they see",
    "nobody who follows the rules (semi-honest) can undo it, even if all parties but "
    "one pool what they see",
)


def plain(text, is_total=False):
    """Say for a reader outside what the ledger notes in a programmer's shorthand."""
    if is_total:
        # Of a total nobody in particular is "its" owner.
        total = re.sub(r"\beach of its ", "each of the ", text)
        return "Added up over all parties: " + re.sub(r"\bits ", "", total)
    text = text.replace(*_FOLLOWING_RULES)
    text = text.replace("min_rows rows", "the agreed least number of rows")
    text = re.sub(r"2(?:\*\*|\^)-(\d+)", r"1/2^\1", text)
    text = text.replace("double precision", "full computer precision (16 digits)")
    return text[:1].upper() + text[1:]


def strength_of(epsilon):
    """Return (tone, word) for an epsilon; no law fixes these limits."""
    if epsilon <= 1:
        return "good", "strong"
    return ("note", "moderate") if epsilon <= 10 else ("bad", "weak")


def glossary_of(text):
    """Return (term, explanation) of the difficult words that occur in a text."""
    found = []
    for pattern, meaning in GLOSSARY.items():
        if re.search(rf"\b(?:{pattern})\b", text, re.IGNORECASE):
            name = _GLOSSARY_NAMES.get(pattern)
            name = name or pattern.replace("?", "").partition("|")[0]
            found.append((name, meaning))
    return sorted(found, key=lambda item: item[0].casefold())
