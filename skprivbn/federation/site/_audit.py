"""Logs of a site: who asked what, and what left; and why something failed.

Every line is a record in JSON that holds the hash of the line before it, so that a
record that was changed, taken out or put in between is noticed. Whoever can write the
file can cut off its end or make all of it anew: note the last hash elsewhere.

Messages of errors quote cells and name clusters. They go to a file of their own, not to
the loggers of the process, which an engine may ship elsewhere.
"""

import hashlib
import json
import logging
import os
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import numpy as np

from skprivbn.federation.program import PartyRefusal
from skprivbn.utils._locked_file import hold_lock

logger = logging.getLogger("skprivbn.site")

#: bytes after which a file is put aside
MAX_BYTES = 10 << 20
#: of a list in the terms, so many entries are written down
MAX_ITEMS = 20
#: of a table, so many
MAX_ENTRIES = 100
#: of a text, such as the purpose, so many characters
MAX_TEXT = 1000
#: name of the file of errors, beside the audit log
ERROR_LOG = "skprivbn_errors.log"
#: characters of one message, which may quote what was received
MAX_REASON = 1 << 10
#: bytes after which the file of errors is put aside, and how many are kept
MAX_ERROR_BYTES, N_KEPT = 1 << 20, 3
_START = "0" * 64
#: how what a program yields travels, and who reads it
SEEN_AS = {
    "Sum": "secure sum, read by the sites",
    "Release": "secure sum, read by the researcher and the server",
    "Noisy": "secure sum with noise, read by the researcher and the server",
    "Tell": "sealed, to peers",
    "Hear": "heard from the researcher",
    "result": "read by the researcher and the server",
}


class AuditLog:
    """A file of records that is only added to, and only its owner can read.

    Parameters
    ----------
    path : path-like
        A full file is put aside as ``<path>.0001``, ``<path>.0002``, ... and none is
        ever deleted.
    """

    def __init__(self, path):
        self.path = Path(path)

    def write(self, record):
        """Add a record and see it to the disk.

        Parameters
        ----------
        record : dict
        """
        with hold_lock(self.path):
            last = _last_line(self.path)
            previous = hashlib.sha256(last).hexdigest() if last else _START
            if last and self.path.stat().st_size > MAX_BYTES:
                self._put_aside()
            now = datetime.now(UTC).isoformat(timespec="seconds")
            line = json.dumps({"time": now, **record, "previous": previous})
            with open(self.path, "ab", buffering=0, opener=_for_owner) as file:
                # the power went in the middle of a line
                gap = b"\n" if file.tell() and not _is_whole(self.path) else b""
                _append(file, gap + line.encode() + b"\n")

    def _put_aside(self):
        number = 1 + len(_put_aside_before(self.path))
        aside = self.path.with_name(f"{self.path.name}.{number:04d}")
        self.path.replace(aside)
        aside.chmod(0o400)


def _for_owner(path, flags):
    return os.open(path, flags, 0o600)


def _append(file, line):
    """Write a line and see it to the disk; all of it, or none if the disk is full."""
    size = file.tell()
    try:
        while line:
            line = line[file.write(line) :]
        os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            file.truncate(size)
        raise


def _put_aside_before(path):
    return sorted(path.parent.glob(f"{path.name}.[0-9][0-9][0-9][0-9]"))


def _last_line(path):
    """Return the last line of the log, also of a file that was put aside."""
    for candidate in [path, *reversed(_put_aside_before(path))]:
        if candidate.exists() and candidate.stat().st_size:
            return _tail(candidate, 1 << 16)
    return b""


def _tail(path, n_bytes):
    """Return the last line of a file, looking further back while it goes on."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        file.seek(max(size - n_bytes, 0))
        _, found, line = file.read().rstrip(b"\n").rpartition(b"\n")
    return line if found or n_bytes >= size else _tail(path, 4 * n_bytes)


def _is_whole(path):
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def read_audit(path):
    """Read a log with all files that were put aside, and check its chain.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    records : list of dict
    problems : list of str
        Empty if every line follows from the one before.
    last : str
        Hash of the last line.
    """
    path, records, problems, previous = Path(path), [], [], _START
    for file in [*_put_aside_before(path), path]:
        for number, line in enumerate(file.read_bytes().splitlines(), start=1):
            where = f"{file.name}, line {number}"
            try:
                record = json.loads(line)
                follows = record["previous"] == previous
            except (ValueError, KeyError, TypeError):
                problems.append(f"{where} is not a record: cut off or damaged")
            else:
                if not follows:
                    problems.append(
                        f"{where} does not follow from the line before: something was "
                        "changed, taken out or put in between"
                    )
                records.append(record)
            previous = hashlib.sha256(line).hexdigest()
    return records, problems, previous


class QuestionLog:
    """Writes a record when a question is accepted or refused, and one when it ends.

    Parameters
    ----------
    log : AuditLog
    who : str
        The researcher.
    job : str
        The engine's name for the session.
    """

    def __init__(self, log, who, job):
        self._log, self.who, self._job = log, who, job
        self._open, self._is_finished = None, False

    def note(self, event, **details):
        """Write down anything else that happened in the job."""
        self._log.write({"event": event, "who": self.who, "job": self._job, **details})

    def begin(self, question):
        """Write down a question that the site has accepted, before data are read."""
        self.note("asked", **describe(question))
        self._is_finished = False
        self._open = {
            "question": question.agreement.session.hex()[:8],
            "rows": None,
            "left": {},
        }

    def remember(self, **details):
        """Remember what the record of the end will say, such as the number of rows."""
        if self._open is not None:
            self._open |= details

    def tells(self, kind, what):
        """Remember what a round of a program carries, in the words of the ledger.

        Parameters
        ----------
        kind : str
            Of the round, such as "Sum".
        what : str
        """
        if self._open is None:
            return
        key = f"{what} ({SEEN_AS[kind]})"
        self._open["left"][key] = self._open["left"].get(key, 0) + 1

    def finish(self):
        """Remember that the program has come to its end."""
        self._is_finished = True

    def end(self, outcome):
        """Write down how the question ended, if there is one.

        Parameters
        ----------
        outcome : str
            "done", which is "abandoned" if the program has not come to its end, or a
            code.
        """
        if self._open is None:
            return
        if outcome == "done" and not self._is_finished:
            outcome = "abandoned"
        ended, self._open = self._open, None
        self.note("ended", **ended, outcome=outcome)

    def refuse(self, code, question, details):
        """Write down a question that came to nothing, whenever that was."""
        if self._open is not None:
            self.end(code)
            return
        known = _shorten(details) if question is None else describe(question)
        self.note("refused", **known, outcome=code)


def describe(question):
    """Return what is asked, in plain words and without values of rows.

    Parameters
    ----------
    question : Question

    Returns
    -------
    words : dict
    """
    agreement, noise = question.agreement, question.noise
    return {
        "question": agreement.session.hex()[:8],
        "dataset": question.dataset.name,
        "version": question.dataset.version,
        "estimators": question.estimators,
        "columns": question.columns,
        "beside": _shorten(agreement.data["aligned"]),
        "steps": [step["estimator"] for step in agreement.data["steps"]],
        "models": [_shorten(step.get("fitted")) for step in agreement.data["steps"]],
        "roster": list(agreement.roster),
        "backend": None if agreement.backend is None else agreement.backend["name"],
        "purpose": _shorten(agreement.data["purpose"]),
        "epsilon": None if noise is None else noise.epsilon,
        "delta": None if noise is None else noise.delta,
        "exact": question.is_exact,
        "terms": _shorten(question.terms.to_payload()),
    }


def _shorten(value):
    """Return terms as JSON has them, without long lists."""
    if isinstance(value, dict):
        first = islice(value.items(), MAX_ENTRIES)
        return {_shorten(str(key)): _shorten(item) for key, item in first}
    if isinstance(value, list | tuple):
        more = [f"and {len(value) - MAX_ITEMS} more"] * (len(value) > MAX_ITEMS)
        return [_shorten(item) for item in value[:MAX_ITEMS]] + more
    if isinstance(value, np.ndarray):
        if value.size > MAX_ITEMS:
            return f"array of shape {value.shape}"
        return _shorten(value.tolist())
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}..."
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else str(value)
    return value if isinstance(value, bool | int | None) else _shorten(str(value))


def format_record(record):
    """Return a record in plain words.

    Parameters
    ----------
    record : dict

    Returns
    -------
    text : str

    Examples
    --------
    >>> from skprivbn.federation.site._audit import format_record
    >>> print(format_record({"time": "2026-11-17T01:00:00+00:00", "event": "ended",
    ...     "question": "5f", "rows": 60, "left": {"means (read by the sites)": 1},
    ...     "outcome": "done", "who": "ann@example.org"}))
    2026-11-17 01:00:00 UTC  question 5f of ann@example.org ended: done
        rows          60
        left          means (read by the sites), once
    """
    time = record.get("time", "").replace("T", " ").replace("+00:00", " UTC")
    lines = [f"{time}  {_headline(record)}"]
    lines += [f"    {name:<12}  {text}" for name, text in _details(record) if text]
    return "\n".join(map(plain, lines))


def plain(line):
    """Return a line that is one: who asks must not write lines of their own."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in line
    )


def _headline(record):
    event, who = record.get("event"), record.get("who", "somebody")
    asked = record.get("question")
    about = " or ".join(record.get("estimators", [])) or record.get("asked", "")
    if event == "connected":
        return f"{who} connected, with sites {', '.join(record.get('roster', []))}"
    if event == "ended":
        return f"question {asked} of {who} ended: {record.get('outcome')}"
    if event == "refused":
        return f"{who} asked for {about}: refused, {record.get('outcome')}"
    if event in ("waiting", "considered"):
        verb = "asks" if event == "waiting" else "asked in a dry run"
        return f"{who} {verb} for {about}"
    if event == "asked":
        return f"{who} asked for {about}: accepted as question {asked}"
    return f"{who}: {event}"


def _details(record):
    if record.get("event") == "connected":
        return
    yield "dataset", _dataset(record)
    yield "columns", _columns(record)
    yield "after", ", ".join(_steps(record))
    if record.get("event") != "ended":
        yield "sites", ", ".join(record.get("roster", []))
        yield "hidden by", record.get("backend")
        yield "noise", _noise(record)
        yield "purpose", record.get("purpose") or ("exact" in record and "not said")
        yield "terms", ", ".join(_terms(record))
    if record.get("rows") is not None:
        yield "rows", record["rows"]
    for what, times in record.get("left", {}).items():
        if record.get("event") == "waiting":
            yield "may leave", what
        else:
            yield "left", f"{what}, {_times(times)}"
    if record.get("event") == "ended" and not record.get("left"):
        yield "left", "nothing"
    yield "kept here", record.get("results")
    yield "spent so far", record.get("spent")


def _dataset(record):
    name, version = record.get("dataset"), record.get("version")
    return f"{name}, version {version}" if version else name


def _columns(record):
    columns = ", ".join(record.get("columns", []))
    beside = [f"{role}: {name}" for role, name in record.get("beside", {}).items()]
    return columns + (f" ({', '.join(beside)})" if beside else "")


def _steps(record):
    steps = record.get("steps", [])
    models = record.get("models") or [None] * len(steps)
    for name, model in zip(steps, models):
        told = ", ".join(f"{key}={value}" for key, value in (model or {}).items())
        yield f"{name}({told})"


def _terms(record):
    for name, value in record.get("terms", {}).items():
        if (name, value) == ("missing", "error") and record.get("epsilon") is not None:
            # an error would tell, without noise, that there is a gap
            value = "rows left out"
        if value is not None:
            yield f"{name}={value}"


def _noise(record):
    if record.get("epsilon") is not None:
        return f"epsilon {record['epsilon']:g}, delta {record['delta']:g}"
    if record.get("exact"):
        return "none: counted as an exact question"
    return None


def _times(number):
    return "once" if number == 1 else f"{number} times"


class ErrorLog:
    """A file of reasons that only its owner can read.

    Parameters
    ----------
    path : path-like
    """

    def __init__(self, path):
        self.path = Path(path)

    def write(self, asked, error, columns=()):
        """Write down what was asked, what came of it, and why.

        Parameters
        ----------
        asked : str
        error : Exception
        columns : sequence of str, default=()
            Which it is about.
        """
        of = f" (columns {', '.join(columns)})" if columns else ""
        text = "".join(map("    because of {}\n".format, _reasons(error)))
        now = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            self._rotate()
            with open(self.path, "a", encoding="utf-8", opener=_for_owner) as file:
                file.write(f"{now} {asked}{of}\n{text}")
        except OSError as problem:
            # A full disk must not change what the coordinator is told. The text of
            # such an error names a file and no cell.
            reason = (
                error.__cause__ if isinstance(error.__cause__, OSError) else problem
            )
            logger.error("cannot write %s: %s", self.path, reason)

    def _rotate(self):
        if not self.path.exists() or self.path.stat().st_size < MAX_ERROR_BYTES:
            return
        for number in range(N_KEPT - 1, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{number}")
            if older.exists():
                older.replace(self.path.with_name(f"{self.path.name}.{number + 1}"))
        self.path.replace(self.path.with_name(f"{self.path.name}.1"))


def _reasons(error):
    """Yield an error in words, then those that it hides from the coordinator."""
    while error is not None:
        notes = " ".join(getattr(error, "__notes__", ()))
        words = f"{type(error).__name__}: {error} {notes}"
        if isinstance(error, PartyRefusal):
            words = f"{error.code}: {notes}"
        elif frames := traceback.extract_tb(error.__traceback__, limit=-1):
            words += f" ({frames[0].filename}:{frames[0].lineno})"
        yield " ".join(words.split())[:MAX_REASON]
        error = error.__cause__ or error.__context__
