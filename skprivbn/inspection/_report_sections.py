"""The sections of the privacy report, each made from a `Record`."""

from importlib.metadata import version
from math import ceil
from platform import python_version

from scipy.special import expit

from skprivbn.federation._ledger import COORDINATOR
from skprivbn.inspection._report_html import Html, bars, columns, scale, size, tag
from skprivbn.inspection._report_words import (
    DP_LIMITS,
    KIND_WORDS,
    LIMITS,
    NOTE_TOPICS,
    PERSON_LIMIT,
    READABLE,
    STRENGTH,
    glossary_of,
    plain,
)

_NUMBER = {"class_": "number"}
#: tables whose expected error is listed
MAX_ERRORS = 20


def section(name, heading, *parts):
    """Return a part of the page with a heading."""
    return tag("section", tag("h2", heading), *parts, id=name)


def facts_table(rows):
    """Return a table of labels and values."""
    lines = [tag("tr", tag("th", a, scope="row"), tag("td", b)) for a, b in rows]
    return tag("table", tag("tbody", *lines), class_="facts")


def _table(head, lines, *above, **attributes):
    """Return a table, given its headings with their attributes, and its lines."""
    headings = (tag("th", words, scope="col", **given) for words, given in head.items())
    body = tag("thead", tag("tr", *headings)), tag("tbody", *lines)
    return tag("table", *above, *body, **attributes)


def sentence(note):
    """Return a note of the ledger as a paragraph."""
    return tag("p", plain(note) + ".")


def names_of(record, readers):
    """Write a list of names; those that parties gave themselves stay as they are."""
    names = [
        tag("bdi", name)
        if name in record.parties
        else tag("span", "the coordinator" if name == COORDINATOR else name)
        for name in readers
    ]
    *most, last = names
    return Html(", ".join(most) + (" and " if most else "") + last)


def who_took_part(record):
    """Name the participants."""
    sent, received = record.n_messages()
    lines = []
    for name in (*record.parties, *([COORDINATOR] if record.ledger.entries else [])):
        shown, role = tag("bdi", name), "holds data"
        if name == COORDINATOR:
            shown, role = "Coordinator", "runs the calculation, holds no data"
        elif record.was_lost(name):
            role += "; was lost on the way"
        lines.append(
            tag(
                "tr",
                tag("th", shown, scope="row"),
                tag("td", role),
                tag("td", f"{sent[name]:,}", **_NUMBER),
                tag("td", f"{received[name]:,}", **_NUMBER),
            )
        )
    head = {
        "Participant": {},
        "Role": {},
        "Messages sent": _NUMBER,
        "received": _NUMBER,
    }
    content = _table(head, lines, class_="roster")
    if not lines:
        content = tag("p", "Nobody: the model was made from values given to it.")
    return section("part", "Who took part", content)


def who_learnt_what(record):
    """List, for every participant, all that it got to see."""
    groups = {}
    for fact in record.facts:
        groups.setdefault(fact.who, []).append(fact)
    # Parties that learnt the same share a card.
    cards = {}
    for who, facts in groups.items():
        key = tuple(fact[1:] for fact in facts) if who in record.parties else who
        cards.setdefault(key, ([], facts))[0].append(who)
    intro = "For each reader, the most revealing comes first."
    if not cards:
        intro = "The record lists nothing that anybody learnt."
    parts = [_card(record, names, facts) for names, facts in cards.values()]
    return section("learnt", "What each participant learnt", tag("p", intro), *parts)


def _card(record, names, facts):
    each = ", each" if len(names) > 1 else ""
    parts = [tag("h3", names_of(record, names), each)]
    for kind, words in KIND_WORDS.items():
        items = [_item(fact) for fact in facts if fact.kind == kind]
        tone = "bad" if kind in READABLE else "good"
        tone = {"public": "", "noisy release": "note"}.get(kind, tone)
        if items:
            parts += [tag("h4", words, class_=tone), tag("ul", *items)]
    return tag("div", *parts, class_="card")


def _item(fact):
    source = "" if fact.epsilon is None else f"epsilon = {fact.epsilon:g}"
    if fact.n_messages is not None:
        messages = "message" if fact.n_messages == 1 else "messages"
        sender = fact.source.replace(COORDINATOR, "the coordinator")
        source = f"from {sender}, {fact.n_messages:,} {messages}"
    below = [tag("span", source, class_="from")] if source else []
    return tag("li", plain(fact.what, fact.is_total), *below)


def how_hidden(record):
    """Say what hid the values, with its parameters and strength."""
    topics = "hidden by", "sum known to", "precision", "technique", "strength"
    rows = [
        (NOTE_TOPICS[topic], plain(note))
        for topic in (*topics, "lost", "also")
        for note in record.notes(topic)
    ]
    used = record.ledger.bytes_by_kind()
    rows += [("Strength", words) for kind, words in STRENGTH.items() if kind in used]
    method = record.method()
    rows += [] if method is None else [("Method", method)]
    rows += [("Connection", plain(note)) for note in record.notes("connection")]
    rows += record.settings()
    if not rows:
        rows = [("Recorded", "Nothing was hidden, and nothing was sent.")]
    return section("how", "What was hidden, and how", facts_table(rows))


def collusion(record):
    """Say which coalition learns what."""
    parts = []
    for breakers in record.notes("broken by"):
        words = f"{NOTE_TOPICS['broken by']}: {breakers}."
        parts.append(tag("p", tag("strong", words)))
    parts += [sentence(note) for note in record.notes("assumption", "coalition")]
    if len(record.parties) == 2 and record.has_sums:
        words = (
            "With two parties no collusion is needed: whoever knows a total and its "
            "own part learns the other's part by subtracting."
        )
        parts.append(tag("p", tag("strong", words)))
    parts += [_colluders(note.value) for note in record.ledger.notes_on("colluders")]
    words = (
        "Parties that work together know their own data, of course. Subtracting these "
        "from a total narrows down what the remaining parties hold; if only one "
        "remains, its part is known."
    )
    if not record.has_sums:
        words = "Parties that work together know their own data, of course."
    if len(record.parties) < 2:
        words = "One holder had all data, so there was nobody to collude."
    return section("collusion", "What collusion would break", *parts, tag("p", words))


def _colluders(epsilons):
    """Show what epsilon is left when parties take their own noise away."""
    rows = [
        tag(
            "tr",
            tag("td", number),
            tag("td", f"{epsilon:g}" if epsilon <= 100 else "no useful protection"),
        )
        for number, epsilon in enumerate(epsilons)
    ]
    caption = "The parties make the noise together; those who collude know their part"
    head = {"Parties that collude": {}, "Epsilon left": {}}
    return _table(head, rows, tag("caption", caption))


def privacy_budget(record):
    """Explain the epsilon that was spent."""
    heading = ("budget", "Privacy budget")
    notes = [sentence(note) for note in record.notes("epsilon")]
    if not record.has_noise:
        words = (
            "None was spent: the result carries no noise, and no mathematical limit "
            "(epsilon) holds for what it tells about one row."
        )
        return section(*heading, tag("p", words), *notes)
    epsilon, delta = record.cost
    rows = [("Epsilon of this fit", f"{epsilon:g}"), ("Delta", f"{delta:g}")]
    accountant = getattr(record.estimator, "accountant", None)
    if accountant is not None:
        spent, left = accountant.spent(), accountant.remaining()
        n_releases = len(accountant.history)
        rows += [
            ("Budget for these data", f"epsilon = {accountant.epsilon:g}"),
            ("Spent so far", f"epsilon = {spent.epsilon:g}, {n_releases} release(s)"),
            ("Left", f"epsilon = {left.epsilon:g}"),
        ]
    parts = [_release(release) for release in record.releases]
    # The best test between two neighbours, at even odds, succeeds no more often.
    chance = min(expit(epsilon) + delta * expit(-epsilon), 1.0)
    # Rounded up, so that "at most" stays true.
    percent = ceil(1000 * chance) / 10
    words = (
        "What it means: somebody knows all other rows and wants to find out whether "
        "one particular row was used. Without the released values that is a guess, "
        f"right half of the time. With them it is right at most {percent:g} % of the "
        "time."
    )
    chart = scale(chance, label=f"Chance of guessing right: at most {percent:g} %")
    return section(*heading, facts_table(rows), *parts, *notes, tag("p", words), chart)


def _mechanism(noise):
    if noise.kind == "gumbel":
        words = f"{noise.n_choices} choices, each of epsilon {noise.epsilon_each:.4g}"
        return [("Gumbel noise on scores that nobody sees", words)]
    name, word = {
        "laplace": ("discrete Laplace", "scale"),
        "gaussian": ("discrete Gaussian", "sigma"),
    }[noise.kind]
    return [
        ("Noise on every number", f"{name}, {word} {noise.scale:.4g}"),
        ("One of them changes these by at most", f"{noise.sensitivity:.4g}"),
    ]


def _release(release):
    """Say by which noise something is covered, whom it hides, and how well."""
    noise = release.noise
    unit = {
        "rows": "one row, added or removed",
        "individuals": "one person with all their rows, added or removed",
        "values": "the values of one record, exchanged for others",
    }[release.protects]
    rows = [
        ("Released with noise", release.what),
        *_mechanism(noise),
        ("What is hidden", unit),
        *(
            (f"Epsilon at delta = {delta:g}", f"{release.epsilon_at(delta):.3g}")
            for delta in (1e-9, 1e-6, 1e-3)
        ),
        (
            "Taken to be public",
            "names of columns and parties, bounds or states, and all parameters",
        ),
    ]
    return facts_table(rows)


def accuracy(record):
    """List how far published tables may be off, where the estimator knows."""
    errors = getattr(record.estimator, "expected_error_", None)
    if not errors:
        return Html("")
    words = (
        "Share of people in the wrong cell of each table of the model, as far as noise "
        "lets it be known; the largest first."
    )
    ranked = sorted(errors.items(), key=lambda item: -item[1])
    chart = bars(
        [(", ".join(columns), share) for columns, share in ranked[:MAX_ERRORS]],
        label="Expected errors of tables",
        n_most=MAX_ERRORS,
        write=lambda share: f"{100 * share:.1f} %",
    )
    more = len(ranked) - MAX_ERRORS
    rest = [tag("p", f"And {more} more with smaller shares.")] if more > 0 else []
    heading = "accuracy", "Accuracy to expect"
    return section(*heading, tag("p", words), chart, *rest)


def limits(record):
    """Say what the page does not promise."""
    of_persons = record.has_noise and record.protects_persons
    items = [PERSON_LIMIT if of_persons else DP_LIMITS[record.has_noise], *LIMITS]
    if record.is_simulation:
        words = (
            "All parties lived in one program, which could read everything. For real "
            "data, each party must run its own site."
        )
        items.insert(0, ("This was a simulation.", words))
    items = [tag("li", tag("strong", head), " ", words) for head, words in items]
    return section("limits", "Limits", tag("ul", *items))


def traffic(record):
    """Draw who sent how much, when, and in what form."""
    ledger = record.ledger
    if not ledger.entries:
        return section("traffic", "Traffic", tag("p", "No message was sent."))
    summary = (
        f"{len(ledger.entries):,} messages in {ledger.n_rounds:,} rounds, "
        f"{size(ledger.total_bytes)} in all."
    )
    forms = {kind: words.partition(",")[0] for kind, words in KIND_WORDS.items()}
    kinds = [(forms[kind], n) for kind, n in ledger.bytes_by_kind().items()]
    sent = [
        ("Coordinator" if name == COORDINATOR else name, n)
        for name, (n, _) in ledger.bytes_by_party().items()
    ]
    return section(
        "traffic",
        "Traffic",
        tag("p", summary),
        bars(kinds, label="In what form"),
        bars(sent, label="Sent by each participant"),
        columns(record.bytes_by_round(), label="Round by round"),
    )


def evidence(record):
    """Give the fingerprint of the messages, and versions."""
    packages = {
        "skprivbn": True,
        "scikit-learn": True,
        "numpy": True,
        "cryptography": record.ledger.entries,
        "PyNaCl": record.ledger.entries,
        "tenseal": "ckks" in record.backends,
        "phe": "paillier" in record.backends,
        "opendp": record.has_noise,
    }
    versions = [f"{name} {version(name)}" for name, used in packages.items() if used]
    fingerprint = tag("code", record.ledger.transcript_hash)
    rows = [
        ("Transcript hash", Html(f"{fingerprint} (SHA-256)")),
        ("Software", ", ".join([*versions, f"Python {python_version()}"])),
    ]
    words = (
        "The hash is a fingerprint of all messages in their order. Whoever kept the "
        "messages can compute it again; if one byte differs, so does the hash. The "
        "versions are those in use when this page was written."
    )
    return section(
        "evidence", "Evidence and versions", facts_table(rows), tag("p", words)
    )


def glossary(text):
    """Explain the difficult words of a text."""
    terms = [
        tag("div", tag("dt", term), tag("dd", meaning))
        for term, meaning in glossary_of(text)
    ]
    return section("words", "Words used here", tag("dl", *terms))
