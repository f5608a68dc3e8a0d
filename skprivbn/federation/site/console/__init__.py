"""A page for the steward of one site: what is asked, what was spent, what happened.

It is served to the machine it runs on, to whoever has the address with its token. It
shows what was asked and told, and never a value of the data.
"""

import hmac
import math
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from skprivbn.exceptions import PartitionError
from skprivbn.federation.flare._health import approvals_of, look_at_kit
from skprivbn.federation.flare._policy import SITE_FILE
from skprivbn.federation.site._account import spent_epsilon
from skprivbn.federation.site._audit import format_record, plain, read_audit
from skprivbn.federation.site._entries import explain_lines
from skprivbn.federation.site._file import SiteFile
from skprivbn.federation.site._state import SiteState
from skprivbn.utils import import_optional

__all__ = ["make_app", "serve"]

#: bars of a chart
MAX_BARS = 40
#: size of a chart, in pixels
WIDTH, HEIGHT = 640, 120


def read_questions(kit):
    """Return the questions that wait, by number."""
    return _plain(approvals_of(kit).waiting())


def _plain(value):
    """Return what somebody else wrote without marks that turn text around."""
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(_plain, value))
    return plain(value) if isinstance(value, str) else value


def read_log(kit):
    """Return records, the last first, problems of the chain, and the last hash."""
    path = SiteFile.load(kit / "local" / SITE_FILE).audit_log
    if not path.exists():
        return [], [], None
    records, problems, last = read_audit(path)
    return records[::-1], problems, last


def read_site_file(kit):
    """Return lines of the site file and what they mean."""
    text = (kit / "local" / SITE_FILE).read_text(encoding="utf-8-sig")
    return list(explain_lines(text))


@dataclass
class Chart:
    """What was spent or told so far, a bar after each answer.

    Attributes
    ----------
    title : str
    total, limit : float
        Spent so far, and at most; `limit` is infinite if there is none.
    bars : list of (x, y, width, height, title)
        In pixels.
    share : int
        Percent of the limit that is spent.
    """

    title: str
    total: float
    limit: float
    bars: list
    share: int

    @property
    def has_limit(self):
        """Whether there is a limit."""
        return math.isfinite(self.limit)

    @property
    def summary(self):
        """The total in words."""
        most = f" of {self.limit:g}" if math.isfinite(self.limit) else ""
        return f"{self.total:.3g}{most}"


def draw(title, steps, limit):
    """Draw totals over time.

    Parameters
    ----------
    title : str
    steps : list of (str, float, str)
        Time, total after it, and words.
    limit : float

    Returns
    -------
    chart : Chart
    """
    steps = steps[-MAX_BARS:]
    total = steps[-1][1] if steps else 0.0
    top = limit if math.isfinite(limit) else max(total, 1.0)
    width = WIDTH / max(len(steps), 12)
    bars = []
    for i, (at, value, words) in enumerate(steps):
        height = max(HEIGHT * min(value / top, 1.0), 1.0)
        when = datetime.fromisoformat(at).strftime("%Y-%m-%d %H:%M")
        place = round(i * width, 1), round(HEIGHT - height, 1)
        size = round(0.8 * width, 1), round(height, 1)
        bars.append((*place, *size, f"{when}: {value:.3g} after {words}"))
    share = round(100 * min(total / top, 1.0)) if math.isfinite(limit) else 0
    return Chart(title, total, limit, bars, share)


def read_budgets(kit):
    """Return the charts of each dataset, by name."""
    site_file = SiteFile.load(kit / "local" / SITE_FILE)
    return {
        name: list(_charts(dataset)) for name, dataset in site_file.datasets.items()
    }


def _charts(dataset):
    with SiteState.copy_for(dataset) as state:
        noisy, exact = (
            [c for c in state.charges(dataset.account, kind) if c["is_charged"]]
            for kind in ("noisy", "exact")
        )
        _, contents = state.contents(dataset.account)
    if dataset.budget is not None:
        totals = [
            (charge["at"], spent_epsilon(dataset, noisy[: i + 1]), _what(charge))
            for i, charge in enumerate(noisy)
        ]
        yield draw("epsilon spent", totals, dataset.budget[0])
    told, steps = 0, []
    for charge in exact:
        if charge["version"] == dataset.version:
            told += charge["numbers"]
            steps.append((charge["at"], told, _what(charge)))
    n_rows = [
        content["sketch"]["n_rows"]
        for content in contents
        if content["version"] == dataset.version
    ]
    # rows are counted with the first exact question
    most = math.floor(dataset.max_exact_numbers * max(n_rows)) if n_rows else math.inf
    yield draw(f"exact numbers disclosed, version {dataset.version}", steps, most)


def _what(charge):
    return charge["what"].rpartition(":")[2].replace("_", " ").strip()


#: names by which a browser on the same machine may call it: another one has been led
#: here by a page of somebody else's
_HOSTS = ("127.0.0.1", "localhost", "[::1]")
#: nothing but what this server itself sends
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
#: records of the audit log on a page
PER_PAGE = 50


def make_app(kit: Path, token: str):
    """Return the console of a site as an application of Flask.

    Parameters
    ----------
    kit : Path
        Of the site.
    token : str
        Whoever has it may look and decide.

    Returns
    -------
    app : flask.Flask
    """
    flask = import_optional("flask", "the console")
    app, kit = flask.Flask(__name__), Path(kit)
    # of a form that this server made, which no other page can read
    form_token = hmac.new(token.encode(), b"form", "sha256").hexdigest()
    app.jinja_env.globals.update(form_token=form_token, site=kit.resolve().name)

    @app.before_request
    def check():
        request = flask.request
        if re.sub(r":\d+$", "", request.host) not in _HOSTS:
            flask.abort(403)
        given = request.args.get("token")
        if given is not None and _is_same(given, token):
            # not in the history, nor in the address that a shoulder sees
            answer = flask.redirect(request.path)
            answer.set_cookie(_cookie(request), token, httponly=True, samesite="Strict")
            return answer
        if not _is_same(request.cookies.get(_cookie(request), ""), token):
            flask.abort(401)
        if request.method == "POST":
            if not _is_same(request.form.get("form_token", ""), form_token):
                flask.abort(403)
            if request.headers.get("Origin", f"http://{request.host}") != (
                f"http://{request.host}"
            ):
                flask.abort(403)
        return None

    @app.after_request
    def guard(answer):
        answer.headers["Content-Security-Policy"] = _POLICY
        answer.headers["X-Content-Type-Options"] = "nosniff"
        # with "no-referrer", a browser does not say where a form comes from
        answer.headers["Referrer-Policy"] = "same-origin"
        answer.headers["Cache-Control"] = "no-store"
        return answer

    def show(template, **values):
        return flask.render_template(template, **values)

    def explain(title, words, code):
        return show("error.html", title=title, words=words), code

    @app.errorhandler(401)
    def no_token(_):
        words = "Open the address that the command printed: it holds the token."
        return explain("Not for everybody", words, 401)

    @app.errorhandler(403)
    def not_from_here(_):
        words = "This request did not come from a page of this console."
        return explain("Refused", words, 403)

    @app.errorhandler(404)
    def no_page(_):
        return explain("Nothing here", "There is no such page or question.", 404)

    @app.errorhandler(PartitionError)
    @app.errorhandler(OSError)
    def cannot_read(error):
        return show("health.html", health=look_at_kit(kit), problem=error), 500

    @app.get("/")
    def home():
        return show(
            "home.html",
            questions=read_questions(kit),
            health=look_at_kit(kit),
            budgets=read_budgets(kit),
            refresh=20,
        )

    @app.get("/question/<number>")
    def question(number):
        found = read_questions(kit).get(number)
        if found is None:
            flask.abort(404)
        return show("question.html", number=number, question=found)

    @app.post("/question/<number>")
    def answer(number):
        said = {"approve": "approved", "refuse": "denied"}.get(flask.request.form["do"])
        if said is None or number not in read_questions(kit):
            flask.abort(404)
        reason = flask.request.form.get("reason", "").strip()
        approvals_of(kit).answer(number, said, reason)
        return flask.redirect(flask.url_for("home"), 303)

    @app.get("/budget")
    def budget():
        return show("budget.html", budgets=read_budgets(kit))

    @app.get("/log")
    def log():
        records, problems, last = read_log(kit)
        page = max(flask.request.args.get("page", 1, int), 1)
        start = (page - 1) * PER_PAGE
        return show(
            "log.html",
            records=[format_record(r) for r in records[start : start + PER_PAGE]],
            n_records=len(records),
            problems=problems,
            last=last,
            page=page,
            has_more=len(records) > start + PER_PAGE,
        )

    @app.get("/health")
    def health():
        return show("health.html", health=look_at_kit(kit))

    @app.get("/site-file")
    def site_file():
        return show("site_file.html", lines=read_site_file(kit))

    return app


def _is_same(given, wanted):
    return hmac.compare_digest(given.encode(), wanted.encode())


def _cookie(request):
    """Cookies do not know ports: two consoles have two names."""
    return f"skprivbn-{request.host.rpartition(':')[2]}"


def serve(kit: Path, port: int = 0, say=print) -> None:
    """Serve the console of a site on this machine, until it is interrupted.

    Parameters
    ----------
    kit : Path
    port : int, default=0
        0 is any that is free.
    say : callable, default=print
        Told the address.
    """
    serving = import_optional("werkzeug.serving", "the console")
    token = secrets.token_urlsafe(32)
    app = make_app(kit, token)

    # no address with a token in a log
    silent = {"log_request": lambda self, *arguments: None}
    handler = type("Handler", (serving.WSGIRequestHandler,), silent)
    server = serving.make_server(
        "127.0.0.1", port, app, threaded=True, request_handler=handler
    )
    say(f"http://127.0.0.1:{server.server_port}/?token={token}")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
