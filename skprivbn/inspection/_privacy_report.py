"""The privacy report: one page for the person who must sign."""

import re
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

from sklearn.exceptions import NotFittedError

from skprivbn.inspection import _report_sections as sections
from skprivbn.inspection._message_diagram import draw_messages
from skprivbn.inspection._report_html import Html, document, tag
from skprivbn.inspection._report_record import Record
from skprivbn.inspection._report_words import plain, strength_of

_MARKS = {"good": "protected", "note": "mind this", "bad": "exposed"}


def privacy_report(
    estimator: Any, path: str | PathLike | None = None, *, title: str | None = None
) -> str | None:
    """Write down, for people who do not program, what a fit told to whom.

    The page is made from the fit's own record, `ledger_`: a drawing of the messages,
    who took part, what each learnt, what was hidden and how, what a coalition could
    undo, the privacy budget, the traffic and a hash of all messages. It is one HTML
    file that loads nothing, for a screen, a phone or paper. It holds no data and
    nothing learnt from them, but for the errors to expect of noisy tables, which were
    released; it does name the parties.

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
    >>> "Who took part" in page
    True
    """
    learners = _find_learners(estimator)
    if not learners:
        name = type(estimator).__name__
        raise NotFittedError(f"{name} has no ledger_ to report on: fit it first")
    parts = []
    for number, learner in enumerate(learners, 1):
        part = f", part {number} of {len(learners)}" if len(learners) > 1 else ""
        found = _report(learner, title, f"Privacy report{part}", _other_fits(estimator))
        if parts:
            # a place in a page has a name once
            found = [Html(re.sub(r'(<section[^>]*) id="\w+"', r"\1", p)) for p in found]
        parts += found
    text = " ".join(re.sub("<[^>]*>", " ", part) for part in parts)
    signature = (tag("span", words) for words in ("Name", "Date", "Signature"))
    page = document(
        f"Privacy report: {title or type(estimator).__name__}",
        *parts,
        sections.glossary(text),
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


def _other_fits(estimator):
    """Say how many fits of a search are not on the page, which are releases too."""
    if not hasattr(estimator, "cv_results_"):
        return ""
    n_fits = len(estimator.cv_results_["params"]) * estimator.n_splits_
    return (
        f" It was chosen by a search, in which there were {n_fits} more calculations "
        "like this one, with other parameters and on parts of the rows. Each of them "
        "told as much; this page is about the last one only."
    )


def _report(estimator, title, above, further):
    record = Record(estimator)
    return (
        _header(record, title, above, further),
        _in_short(record),
        _messages(record),
        sections.who_took_part(record),
        sections.who_learnt_what(record),
        sections.how_hidden(record),
        sections.collusion(record),
        sections.privacy_budget(record),
        sections.accuracy(record),
        sections.limits(record),
        sections.traffic(record),
        sections.evidence(record),
    )


def _header(record, title, above, further):
    name = type(record.estimator).__name__
    now = datetime.now(UTC)
    words = (
        f"What was disclosed, and to whom, when the model {name} was learnt. Written "
        f"on {now.day} {now:%B %Y, %H:%M} UTC from the record of the calculation."
        f"{further}"
    )
    # On a phone, long names of classes break before a capital.
    pieces = [title] if title else re.split("(?<=[a-z0-9])(?=[A-Z])", name)
    breaks = [part for piece in pieces for part in (Html("<wbr>"), piece)][1:]
    above = tag("p", above, class_="soft")
    return tag("header", above, tag("h1", *breaks), tag("p", words))


def _in_short(record):
    """Answer the questions that a reader has first."""
    answers = {
        "Did rows of data leave their holder?": _rows(record),
        "Could anybody read exact totals over rows?": _totals(record),
        "Can the result give away a person?": _result(record),
        "Who could undo the protection?": _coalition(record),
        "Did separate organisations really run this?": _reality(record),
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
    return tag("section", tag("ul", *items, class_="answers"), id="short")


def _messages(record):
    """Draw the messages, which says at a glance who could read something."""
    if not record.ledger.entries:
        return Html("")
    words = (
        "From top to bottom, each kind of message once. Green is what its reader "
        "cannot make sense of, orange and red is what can be read."
    )
    drawing = tag("div", draw_messages(record.ledger), class_="messages")
    return sections.section("messages", "The messages", tag("p", words), drawing)


def _rows(record):
    readers = record.readers("raw rows")
    if readers:
        return "bad", "Yes. Read by: ", sections.names_of(record, readers), "."
    if not record.ledger.entries:
        return "good", "No. No message was sent."
    return "good", "No. No message of this calculation carried rows."


def _totals(record):
    readers = record.readers("plaintext aggregate")
    if not readers:
        return "good", "No. None was readable."
    who = sections.names_of(record, readers)
    single = any(
        record.is_of_one_party(fact)
        for fact in record.facts
        if fact.kind == "plaintext aggregate"
    )
    if single:
        return "bad", "Yes, some of them of single parties. Read by: ", who, "."
    return "note", "Yes. Read by: ", who, ". They are listed below."


def _result(record):
    if record.cost is not None and record.cost.epsilon == 0:
        return "good", "No rows were used, so nothing was added to what was known."
    if not record.has_noise:
        return (
            "note",
            "It may. No noise was added (no differential privacy), so a rare or "
            "extreme row may show in the finished model.",
        )
    epsilon, delta = record.cost
    tone, strength = strength_of(epsilon)
    answer = f"Random noise limits this: epsilon = {epsilon:g}"
    answer += f", delta = {delta:.1g}" if delta else ""
    answer += f", usually called {strength} protection. "
    if record.tells_exact_values:
        answer += "But exact values were readable as well, without noise."
    elif record.notes("epsilon"):
        answer += "But not for everything: see “Privacy budget” below."
    if tone == "good" and (record.tells_exact_values or record.notes("epsilon")):
        tone = "note"
    return tone, answer


def _coalition(record):
    if record.readers("raw rows"):
        return "bad", "Rows of data were readable: for these there is nothing to undo."
    if breakers := record.notes("broken by"):
        tone = "bad" if "the coordinator alone" in breakers else "note"
        return tone, " ".join(f"{plain(who)}." for who in breakers)
    if len(record.parties) < 2:
        return "note", "One holder has all the data: nothing was hidden from it."
    notes = [f"{plain(note)}. " for note in record.notes("assumption", "coalition")]
    if record.notes("coalition"):
        return "note", *notes
    return "note", "The record names no coalition; ask before you rely on it. ", *notes


def _reality(record):
    if record.is_simulation:
        return (
            "note",
            "No. It was a simulation: one computer program held the data of all "
            "parties. The messages are those that a real run would send.",
        )
    if not record.ledger.entries:
        return "note", "No. No messages were exchanged."
    connection = record.notes("connection")
    if not connection:
        return "note", "The record does not say."
    known = record.connected_by("authenticated")
    notes = (f"{plain(note)}. " for note in connection)
    return "good" if known else "note", "Yes, by the record. ", *notes
