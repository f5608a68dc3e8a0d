"""The privacy report: two pages for the person who must sign."""

import re
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from math import ceil, floor, log10
from os import PathLike
from pathlib import Path
from platform import python_version
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.exceptions import NotFittedError

from skprivbn.federation._ledger import COORDINATOR
from skprivbn.inspection._message_diagram import draw_messages
from skprivbn.inspection._report_words import (
    EXACT,
    KIND_WORDS,
    LIMITS,
    NOTE_TOPICS,
    PERSON_LIMITS,
    PROTECTED,
    READABLE,
    SETTING_WORDS,
    glossary_of,
    plain,
    sentence,
    strength_of,
)
from skprivbn.inspection._style import Html, document, size, tag

_MARKS = {"good": "protected", "note": "mind this", "bad": "exposed"}
#: names of parties, and tables with an expected error, that are listed
MAX_NAMES, MAX_ERRORS = 30, 6


def privacy_report(
    estimator: Any, path: str | PathLike | None = None, *, title: str | None = None
) -> str | None:
    """Write a report of two pages for a data protection officer: who learnt what.

    The report is made from the fit's own record, `ledger_`. It answers five questions
    first: did anybody learn who is in another party's file, what did the researcher
    read, what did other parties read, who could break the protection, and what do the
    numbers mean for one person. A drawing of the messages, the full list of opened
    values, the protection, its limits and a hash of the transcript follow. The report
    is one HTML file without external resources, for a screen, a phone or paper. It
    holds no data, and no results except the expected errors of noisy tables, which
    were released; it does name the parties.

    Parameters
    ----------
    estimator : estimator instance
        Fitted, with an attribute `ledger_`. Of a pipeline or a search, all steps that
        learnt from parties are reported, one after the other.

    path : str or path-like, default=None
        File to write. None returns the page instead.

    title : str, default=None
        Name of the study, for the heading.

    Returns
    -------
    page : str or None
        The HTML text if `path` is None.

    See Also
    --------
    LedgerDisplay : Bytes by party and round, as a figure.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.inspection import privacy_report
    >>> from skprivbn.preprocessing import FederatedStandardScaler
    >>> X, party = np.arange(60.0).reshape(30, 2), ["north", "south", "west"] * 10
    >>> scaler = FederatedStandardScaler().fit(X, party=party)
    >>> page = privacy_report(scaler, title="A study of three hospitals")
    >>> "Did anybody learn who is in" in page
    True
    """
    learners = _find_learners(estimator)
    if not learners:
        name = type(estimator).__name__
        raise NotFittedError(f"{name} has no ledger_ to report on: fit it first")
    parts = []
    for number, learner in enumerate(learners, 1):
        above = f", part {number} of {len(learners)}" if len(learners) > 1 else ""
        report = _Report(learner, "" if number == 1 else str(number))
        further = _other_fits(estimator) + _all_parts(learners)
        header = report.header(title, f"Privacy report{above}", further)
        parts += [header, *report.sections()]
    text = " ".join(re.sub("<[^>]*>", " ", part) for part in parts)
    words = [tag("div", tag("dt", a), tag("dd", b)) for a, b in glossary_of(text)]
    glossary = tag("h2", "Words used here"), tag("dl", *words)
    signature = (tag("span", words) for words in ("Name", "Date", "Signature"))
    page = document(
        f"Privacy report: {title or type(estimator).__name__}",
        *parts,
        tag("section", *glossary, id="words"),
        tag("p", *signature, class_="sign"),
    )
    if path is None:
        return page
    Path(path).write_text(page, encoding="utf-8")
    return None


def _find_learners(estimator):
    """Return what learnt from parties: the estimator, or steps within it."""
    if hasattr(estimator, "ledger_"):
        return [estimator]
    if hasattr(estimator, "best_estimator_"):
        return _find_learners(estimator.best_estimator_)
    steps = [step for _, step in getattr(estimator, "steps", [])]
    return [found for step in steps for found in _find_learners(step)]


def _all_parts(learners):
    """Say what the parts of a page cost together, if one of them has noise."""
    spent = [getattr(learner, "privacy_spent_", None) for learner in learners]
    costs = [float("inf") if cost is None else cost.epsilon for cost in spent]
    if len(costs) == 1 or not any(0 < cost < float("inf") for cost in costs):
        return ""
    if max(costs) < float("inf"):
        return f" All {len(costs)} parts together have epsilon = {sum(costs):g}."
    exact = [str(i) for i, cost in enumerate(costs, 1) if cost == float("inf")]
    return (
        f" All {len(costs)} parts together have no finite epsilon: no noise was added "
        f"in part {', '.join(exact)}, so that the noise of other parts limits what "
        "these alone tell about a person, not what all of them do."
    )


def _other_fits(estimator):
    """Say how many fits of a search are not on the page, which are releases too."""
    if not hasattr(estimator, "cv_results_"):
        return ""
    n_fits = len(estimator.cv_results_["params"]) * estimator.n_splits_
    return (
        f" A search chose it after {n_fits} more calculations like this one, with "
        "other parameters and on parts of the rows. Each of them told as much; this "
        "page is about the last one only."
    )


def _facts(rows):
    """Return a table of labels and values."""
    lines = [tag("tr", tag("th", a, scope="row"), tag("td", b)) for a, b in rows]
    return tag("table", tag("tbody", *lines))


class _Report:
    """What the ledger and the estimator of one fit say, as parts of a page."""

    def __init__(self, estimator, suffix):
        self.estimator, self.suffix = estimator, suffix
        self.ledger = estimator.ledger_
        self.parties = self.ledger.parties
        self.facts = self.ledger.facts()
        self.cost = getattr(estimator, "privacy_spent_", None)
        self.has_noise = self.cost is not None and self.cost.epsilon < float("inf")
        self.has_sums = any(fact.is_total for fact in self.facts)

    def notes(self, *topics):
        """Return the texts of the ledger's notes on some topics."""
        return [note.text for note in self.ledger.notes_on(*topics)]

    def connected_by(self, connection):
        """Tell whether a session reached its parties in this way."""
        notes = self.ledger.notes_on("connection")
        return any(note.value == connection for note in notes)

    def readers(self, *kinds):
        """Name, in order, who read something of some kinds."""
        names = dict.fromkeys(fact.who for fact in self.facts if fact.kind in kinds)
        return self.names(names) if names else ""

    def names(self, names):
        """Write a list of names; those that parties gave themselves stay as they are.

        Brackets of direction keep a name from changing the text around it.
        """
        names = list(names)
        written = [
            tag("bdi", name)
            if name in self.parties
            else tag("span", "the coordinator" if name == COORDINATOR else name)
            for name in names[:MAX_NAMES]
        ]
        if len(names) > MAX_NAMES:
            written.append(tag("span", f"{len(names) - MAX_NAMES} more"))
        return Html(" and ".join(filter(None, (", ".join(written[:-1]), written[-1]))))

    @cached_property
    def protects(self):
        """Whom all noise hides; rows, if releases differ; None without noise."""
        found = {release.protects for release in self.ledger.releases}
        return (
            None if not self.has_noise else found.pop() if len(found) == 1 else "rows"
        )

    @property
    def tells_exact_values(self):
        """Whether somebody read values that the noise does not cover."""
        return any(fact.kind in EXACT for fact in self.facts)

    def section(self, name, heading, *parts):
        """Return a part of the page with a heading."""
        return tag("section", tag("h2", heading), *parts, id=name + self.suffix)

    def header(self, title, above, further):
        """Say what the report is about, whose data were used, and where."""
        name, now = type(self.estimator).__name__, datetime.now(UTC)
        words = (
            f"What was disclosed, and to whom, when the model {name} was learnt. "
            f"Written on {now.day} {now:%B %Y, %H:%M} UTC from the record of the "
            f"calculation.{further}"
        )
        # On a phone, long names of classes break before a capital.
        pieces = [title] if title else re.split("(?<=[a-z0-9])(?=[A-Z])", name)
        breaks = [part for piece in pieces for part in (Html("<wbr>"), piece)][1:]
        held = "Nobody's data were used."
        if self.parties:
            held = Html(f"Data held by {self.names(self.parties)}.")
        return tag(
            "header",
            tag("p", above, class_="soft"),
            tag("h1", *breaks),
            tag("p", words),
            tag("p", held),
            self._reality(),
            id="header" + self.suffix,
        )

    def _reality(self):
        if self.connected_by("simulation"):
            return tag(
                "p",
                tag("strong", "This was a simulation."),
                " One program held the data of all parties. The answers below are "
                "those of a run at separate sites, which sends the same messages.",
                class_="alert",
            )
        if not self.ledger.entries:
            return tag("p", "No message was sent.")
        connection = map(sentence, self.notes("connection"))
        said = " ".join(connection) or "The record does not say how sites were reached."
        return tag("p", said)

    def sections(self):
        """Yield the parts of the page, from the five answers to the evidence."""
        answers = {
            "Did anybody learn who is in the other's file?": self._membership(),
            "What did the researcher read?": self._researcher(),
            "What did other parties read?": self._other_parties(),
            "What could be broken, and by whom?": self._coalition(),
            "What does it mean for one person?": self._person(),
        }
        items = [
            tag(
                "li",
                tag("span", _MARKS[tone], class_="mark"),
                tag("h3", question),
                tag("p", *answer),
                class_=tone,
            )
            for question, (tone, *answer) in answers.items()
        ]
        yield tag(
            "section", tag("ul", *items, class_="answers"), id="short" + self.suffix
        )
        if self.ledger.entries:
            words = (
                "From top to bottom, each kind of message once. Green: unreadable to "
                "its receiver. Orange and red: readable."
            )
            drawing = tag("div", draw_messages(self.ledger), class_="messages")
            words = tag("p", words, class_="soft")
            yield self.section("messages", "Who sent what", words, drawing)
        yield self.section("learnt", "Who received what", self._received())
        yield self.section("how", "How it was hidden", _facts(self._protection()))
        if self.has_noise or self.notes("epsilon"):
            yield self.section("budget", "Privacy budget", *self._budget())
        if errors := getattr(self.estimator, "expected_error_", None):
            yield self.section("accuracy", "Accuracy to expect", _accuracy(errors))
        limits = PERSON_LIMITS[self.protects], *LIMITS
        items = [tag("li", tag("strong", head), " ", words) for head, words in limits]
        yield self.section("limits", "Limits of this report", tag("ul", *items))
        yield self.section("evidence", "Evidence", _facts(self._evidence()))

    def _membership(self):
        if self.cost is not None and self.cost.epsilon == 0:
            return "good", "No. No rows were used."
        if readers := self.readers("raw rows"):
            return "bad", "Yes: rows of data were read by ", readers, "."
        if self.readers("membership"):
            return (
                "bad",
                "Yes, of shared people: each party learnt which of its records "
                "all parties have. Nobody learnt of records that it does not hold.",
            )
        if any(fact.what.startswith("number of records") for fact in self.facts):
            return (
                "note",
                "It was known before: all parties hold columns of the same people, in "
                "the same order. No message named a person.",
            )
        if self.has_noise and not self.tells_exact_values and self.protects != "values":
            who = "person" if self.protects == "individuals" else "row"
            tone = strength_of(self.cost.epsilon)[0]
            beside = " Noise does not cover everything: see “Privacy budget” below."
            return (
                "note" if tone == "good" and self.notes("epsilon") else tone,
                "No message named a person, and noise hides from readers of the result "
                f"whether any one {who} was used: how well, the last answer says.",
                beside if self.notes("epsilon") else "",
            )
        return (
            "note",
            "No message named a person or carried a row. But exact results allow a "
            "membership test: somebody who knows a person's values, and nearly all "
            "other rows, can find out whether that person is among them.",
        )

    def _researcher(self):
        facts = [
            f
            for f in self.facts
            if COORDINATOR in f.who or f.who == "whoever sees the model"
        ]
        tone, *answer = self._read(facts, "Nothing readable was recorded.")
        unread = {f.kind for f in facts} & {"masked", "ciphertext"}
        if unread:
            answer.append(" Sums on their way were unreadable.")
        return tone, *answer

    def _other_parties(self):
        if len(self.parties) < 2:
            return "good", "Nothing: there was one party."
        facts = [f for f in self.facts if f.who in self.parties or "part" in f.who]
        settings = [f for f in facts if f.kind == "public" and f.source == COORDINATOR]
        # noisy totals are for everybody, and parties compute the result themselves
        facts += [
            f
            for f in self.facts
            if f not in facts and (f.what == "the result" or f.kind == "noisy release")
        ]
        facts = [fact for fact in facts if fact not in settings]
        return self._read(facts, "Nothing but the public settings of the calculation.")

    def _read(self, facts, nothing):
        """Say what can be read of some facts, the most revealing first."""
        told = {}
        for kind in READABLE:
            for fact in (fact for fact in facts if fact.kind == kind):
                # Parties send their own figures; what a party heard, its peers told.
                single = fact.source in ("each party", *self.parties)
                single = single or fact.who in self.parties
                apart = "raw rows", "membership", "noisy release"
                key = kind if kind in apart else "public"
                if kind == "plaintext aggregate":
                    key = "of one party" if single else kind
                told.setdefault(key, {})[fact.what] = fact
        if not told:
            return "good", nothing
        heads = {
            "raw rows": ("bad", "Rows of data: "),
            "membership": ("bad", "Who is known to others, too: "),
            "of one party": ("bad", "Exact figures of single parties: "),
            "plaintext aggregate": ("note", "Exact totals over all parties: "),
            "noisy release": (strength_of(self.cost.epsilon)[0], "With noise: ")
            if self.has_noise
            else ("note", "With noise: "),
            "public": (
                "good" if self.has_noise else "note",
                "Results and settings: " if len(told) > 1 else "",
            ),
        }
        tones = [heads[key][0] for key in told]
        answer = []
        for key in sorted(told, key=list(heads).index):
            model = "the finished model" + ", exact" * (not self.has_noise)
            items = [model if w == "the result" else plain(w) for w in told[key]]
            words = heads[key][1] + "; ".join(items)
            answer.append(f"{words[:1].upper()}{words[1:]}.")
        return max(tones, key=list(_MARKS).index), " ".join(answer)

    def _coalition(self):
        if self.readers("raw rows"):
            return "bad", "Rows of data were readable: for these nothing protects."
        if len(self.parties) < 2:
            return (
                "note",
                "Nothing was hidden from the one party, which holds all data.",
            )
        broken = self.notes("broken by")
        notes = [sentence(note) for note in self.notes("assumption", "coalition")]
        tone = "bad" if "the coordinator alone" in broken else "note"
        answer = [f"The sums of single parties can be read by {who}." for who in broken]
        if not answer and not self.notes("coalition"):
            answer.append("The record names no coalition; ask before you rely on it.")
        answer += notes
        if len(self.parties) == 2 and self.has_sums:
            answer.append(
                "With two parties no collusion is needed: whoever knows a total and "
                "its own part learns the other's part by subtracting."
            )
        elif self.has_sums:
            answer.append(
                "Parties that pool their data can subtract them from a total: what is "
                "left belongs to the others."
            )
        for note in self.ledger.notes_on("colluders"):
            left = [
                f"epsilon = {e:.3g} is left against {n}"
                if e <= 100
                else f"no protection is left against {n}"
                for n, e in enumerate(note.value)
                if n and (e <= 100 or note.value[n - 1] <= 100)
            ]
            if left:
                answer.append(f"Colluding parties know their noise: {', '.join(left)}.")
        return tone, " ".join(answer)

    def _person(self):
        if self.cost is not None and self.cost.epsilon == 0:
            return "good", "No rows were used, so nothing was added to what was known."
        if not self.has_noise:
            return (
                "note",
                "The result may tell something about a person: it carries no noise (no "
                "differential privacy), so a rare or extreme row may show in it.",
            )
        epsilon, delta = self.cost
        tone, strength = strength_of(epsilon)
        answer = f"Noise limits what the result tells: epsilon = {epsilon:g}"
        answer += f", delta = {delta:.1g}" if delta else ""
        answer += f", usually called {strength} protection. {_guess(epsilon, delta)}"
        if tone == "bad":
            answer += " An epsilon above 5 hides hardly anything: a smaller one would."
        if delta * np.max(getattr(self.estimator, "n_samples_", 1)) > 1:
            tone, allows = "bad", "lets a whole row be told: take it far below."
            answer += f" A delta above one over the number of rows {allows}"
        if self.tells_exact_values:
            answer += " But exact values were read as well, which no noise covers."
        elif self.notes("epsilon"):
            answer += " But not for everything: see “Privacy budget” below."
        if tone == "good" and (self.tells_exact_values or self.notes("epsilon")):
            tone = "note"
        return tone, answer

    def _received(self):
        """List all that participants got, the most revealing first."""
        told = {}
        for kind in KIND_WORDS:
            for who in dict.fromkeys(fact.who for fact in self.facts):
                facts = [f for f in self.facts if (f.who, f.kind) == (who, kind)]
                words = "; ".join(
                    plain(f.what, f.is_total)
                    + ("" if f.epsilon is None else f" (epsilon = {f.epsilon:g})")
                    for f in facts
                )
                if words and all(fact.is_total for fact in facts):
                    words = f"added up over all parties: {words}"
                # Parties that learnt the same share a line.
                one = "" if who in self.parties else who
                if words:
                    told.setdefault((one, words, kind), []).append(who)
        lines = []
        for (_, words, kind), names in told.items():
            who = Html(self.names(names) + (", each" if len(names) > 1 else ""))
            form, tone, *_ = KIND_WORDS[kind]
            cells = tag("td", words), tag("td", form, class_=tone)
            lines.append(tag("tr", tag("th", who, scope="row"), *cells))
        if not lines:
            return tag("p", "The record lists nothing that anybody learnt.")
        heads = [
            tag("th", head, scope="col") for head in ("Who", "What", "In what form")
        ]
        head = tag("thead", tag("tr", *heads))
        return tag("table", head, tag("tbody", *lines), class_="readers")

    def _protection(self):
        rows: dict[str, list] = {}
        for topic, label in NOTE_TOPICS.items():
            found = [sentence(note) for note in self.notes(topic)]
            rows.setdefault(label, []).extend(found)
        values = {n: getattr(self.estimator, n, None) for n in SETTING_WORDS}
        rows["Settings"] = [
            sentence(f"{words}: {values[name]}")
            for name, words in SETTING_WORDS.items()
            if isinstance(values[name], int | str) and values[name]
        ]
        found = [(label, " ".join(texts)) for label, texts in rows.items() if texts]
        return found or [("Recorded", "Nothing was hidden, and nothing was sent.")]

    def _budget(self):
        """Yield what was spent, on which release, and what is left."""
        rows = []
        if self.has_noise:
            epsilon, delta = self.cost
            words = f"epsilon = {epsilon:g}, delta = {delta:g}"
            rows.append(("This calculation", words))
        for release in self.ledger.releases:
            words = (
                f"{_mechanism(release.noise)}. Hidden: {PROTECTED[release.protects]}. "
                f"Epsilon at delta = 1e-06: {release.epsilon_at(1e-6):.3g}. Public: "
                "names of columns and parties, bounds or states, all parameters."
            )
            rows.append((sentence(release.what)[:-1], words))
        accountant = getattr(self.estimator, "accountant", None)
        if self.has_noise and accountant is not None:
            spent, left = accountant.spent(), accountant.remaining()
            words = (
                f"epsilon = {accountant.epsilon:g} for these data; spent so far "
                f"{spent.epsilon:g} in {len(accountant.history)} release(s); left "
                f"{left.epsilon:g}"
            )
            rows.append(("Budget", words))
        yield _facts(rows)
        yield from (tag("p", sentence(note)) for note in self.notes("epsilon"))

    def _evidence(self):
        ledger, entries = self.ledger, self.ledger.entries
        notes = ledger.notes_on("hidden by", "technique")
        backends = {note.value["name"] for note in notes if note.value is not None}
        packages = {
            "skprivbn": True,
            "scikit-learn": True,
            "numpy": True,
            "cryptography": entries,
            "PyNaCl": entries,
            "tenseal": "ckks" in backends,
            "phe": "paillier" in backends,
            "opendp": self.has_noise,
        }
        used = [
            f"{name} {version(name)}" for name, needed in packages.items() if needed
        ]
        return [
            (
                "Messages",
                f"{len(entries):,} in {ledger.n_rounds:,} rounds, "
                f"{size(ledger.total_bytes)} in all",
            ),
            (
                "Transcript hash",
                Html(
                    tag("code", ledger.transcript_hash)
                    + " (SHA-256 of all messages in their order: whoever kept them can "
                    "compute it again)"
                ),
            ),
            ("Software", ", ".join([*used, f"Python {python_version()}"])),
        ]


def _guess(epsilon, delta):
    """Say how often the best test between two neighbours succeeds, at even odds."""
    chance = min(expit(epsilon) + delta * expit(-epsilon), 1.0)
    # Rounded up, so that "at most" stays true, but not to certainty.
    missing = 100 * (1 - delta) * expit(-epsilon)
    digits = min(max(1, -floor(log10(max(missing, 1e-9)))), 9)
    percent = min(ceil(10**digits * 100 * chance) / 10**digits, 100.0)
    return (
        "Somebody who knows all other rows, and guesses whether this one was used, is "
        f"right at most {percent:.12g} % of the time, instead of 50 %."
    )


def _mechanism(noise):
    if noise.kind == "gumbel":
        each = f"{noise.n_choices} choices, each of epsilon {noise.epsilon_each:.4g}"
        return f"Gumbel noise on scores that nobody sees: {each}"
    name, word = {
        "laplace": ("Discrete Laplace", "scale"),
        "gaussian": ("Discrete Gaussian", "sigma"),
    }[noise.kind]
    return (
        f"{name}, {word} {noise.scale:.4g}, on every number; sensitivity "
        f"{noise.sensitivity:.4g}"
    )


def _accuracy(errors):
    """Say how far published tables may be off, where the estimator knows."""
    ranked = sorted(errors.items(), key=lambda item: -item[1])
    shown = [f"{', '.join(names)}: {100 * e:.1f} %" for names, e in ranked[:MAX_ERRORS]]
    if len(ranked) > MAX_ERRORS:
        shown.append(f"{len(ranked) - MAX_ERRORS} more have smaller shares")
    head = "Expected share of people in the wrong cell of a table of the model: "
    return tag("p", head, "; ".join(shown), ".")
