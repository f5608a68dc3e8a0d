"""Records of an audit log, as a person reads them."""


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
    >>> from skprivbn.federation.site._audit_words import format_record
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
