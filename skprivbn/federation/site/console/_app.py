"""The pages of the console, and who may see them."""

import hmac
import re
import secrets
from pathlib import Path

from skprivbn.exceptions import PartitionError
from skprivbn.federation.flare._health import approvals_of
from skprivbn.federation.site._audit import format_record
from skprivbn.federation.site.console._pages import (
    read_budgets,
    read_health,
    read_log,
    read_questions,
    read_site_file,
)
from skprivbn.utils import import_optional

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
        return explain("Cannot be read", str(error), 500)

    @app.get("/")
    def home():
        return show(
            "home.html",
            questions=read_questions(kit),
            health=read_health(kit),
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
        return show("health.html", health=read_health(kit))

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
