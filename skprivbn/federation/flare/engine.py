"""The two classes that NVIDIA FLARE instantiates, by class path, in its own processes.

Nothing in the package imports this module: it is the only one that needs ``nvflare``
to be imported. Neither class takes an argument, since a job's arguments come from
whoever submits it.
"""

import logging
import threading
import time
from base64 import b64decode, b64encode
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.impl.controller import Controller
from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.shareable import Shareable, make_reply

from skprivbn.federation._wire import encode
from skprivbn.federation.flare._policy import SITE_FILE, check_kit
from skprivbn.federation.flare._relay import LOOK_INTERVAL, MAX_MISSED
from skprivbn.federation.site._audit import ERROR_LOG, ErrorLog
from skprivbn.federation.site._file import SiteFile
from skprivbn.federation.site._site import TOPICS, Site

__all__ = ["PartyExecutor", "RelayController"]

logger = logging.getLogger("skprivbn.flare")

#: command of the admin session that asks the server to relay messages
COMMAND = "skprivbn"
#: question of the server to a site whether its job runs
HERE = "skprivbn.here"
#: a job whose coordinator is silent for so long (seconds) ends; one that is alive but
#: asks nothing says so more often
MAX_SILENCE = 240.0
#: sites that are asked at the same time
MAX_SITES = 64


class PartyExecutor(Executor):
    """Runs at a site: hands messages to the site's party and its answers back."""

    def __init__(self):
        super().__init__()
        self._site = None

    def handle_event(self, event_type, fl_ctx):
        """Begin and end with the job."""
        if event_type == EventType.START_RUN:
            self._start(fl_ctx)
        elif event_type == EventType.END_RUN and self._site is not None:
            self._site.close()

    def _start(self, fl_ctx):
        workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
        root = Path(workspace.get_root_dir())
        problems = check_kit(root)
        if problems:
            # Without the policy, a log that holds data could leave the site.
            for problem in problems:
                logger.error("no data are loaded: %s", problem)
        else:
            self._site = self._open_site(root, fl_ctx)
        for topic in TOPICS:
            fl_ctx.get_engine().register_aux_message_handler(topic, self._answer)
        fl_ctx.get_engine().register_aux_message_handler(HERE, self._say_here)

    def _open_site(self, root, fl_ctx):
        meta = fl_ctx.get_prop(FLContextKey.JOB_META) or {}
        try:
            return Site(
                fl_ctx.get_identity_name(),
                SiteFile.load(root / "local" / SITE_FILE),
                root / "startup",
                fl_ctx.get_job_id(),
                str(meta.get(JobMetaKey.SUBMITTER_NAME.value, "unknown")),
            )
        except Exception as error:
            # logs stay here, but a message may quote a cell: all of it is in a file
            # that only the owner can read
            ErrorLog(root / "local" / ERROR_LOG).write("start of a job", error)
            logger.error(
                "the site file cannot be used (%s): see local/%s",
                type(error).__name__,
                ERROR_LOG,
            )
            return None

    def _answer(self, topic, request, fl_ctx):
        if self._site is None:
            message = encode({"ok": False, "code": "not-ready"})
        else:
            message = self._site.answer(topic, request["message"])
        reply = make_reply(ReturnCode.OK)
        reply["message"] = message
        return reply

    def _say_here(self, topic, request, fl_ctx):
        return make_reply(ReturnCode.OK)

    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        """Refuse: rounds are messages, not tasks, which are polled for."""
        return make_reply(ReturnCode.TASK_UNKNOWN)


class RelayController(Controller):
    """Runs at the server: carries bytes between the coordinator and the sites."""

    def __init__(self):
        super().__init__()
        self._ended = threading.Event()
        self._senders = ThreadPoolExecutor(MAX_SITES)
        self._asking = ThreadPoolExecutor()
        self._last_heard = time.monotonic()
        #: number of the last message, and what sites answered to it
        self._told = None, None

    def start_controller(self, fl_ctx):
        """Listen to the coordinator."""
        fl_ctx.get_engine().register_app_command(COMMAND, self._relay)

    def stop_controller(self, fl_ctx):
        """Stop listening."""
        self._ended.set()
        self._asking.shutdown(wait=False)
        self._senders.shutdown(wait=False)

    def control_flow(self, abort_signal, fl_ctx):
        """Keep the job alive until the coordinator ends it or falls silent."""
        while not self._ended.wait(0.2) and not abort_signal.triggered:
            if time.monotonic() - self._last_heard > MAX_SILENCE:
                logger.warning("the coordinator was silent for too long")
                return

    def _relay(self, command, data, fl_ctx):
        """Take a message, or tell what sites have answered to the last one.

        Whoever asks comes back for answers that take long: it learns within seconds
        that this process is gone, of which the engine says nothing.
        """
        self._last_heard = time.monotonic()
        if data.get("end"):
            self._ended.set()
        if "sites" in data:
            self._told = data["number"], self._asking.submit(self._ask, data, fl_ctx)
        number, answer = self._told
        if answer is None or number != data.get("number"):
            return {}
        wait([answer], LOOK_INTERVAL)
        return answer.result() if answer.done() else {"number": number}

    def _ask(self, data, fl_ctx):
        bodies = [b64decode(body) for body in data["bodies"]]
        timeout = float(data["timeout"])
        send = partial(self._send, data["topic"], timeout, fl_ctx)
        deadline = time.monotonic() + timeout
        asked = {
            site: self._senders.submit(send, [site], bodies[number])
            for site, number in data["sites"].items()
        }
        lost = self._wait_for(asked, fl_ctx)
        is_early = time.monotonic() < deadline
        replies = {}
        for site in asked.keys() - lost:
            reply = asked[site].result().get(site)
            if _code(reply) == ReturnCode.OK and "message" in reply:
                replies[site] = b64encode(reply["message"]).decode()
            elif is_early or _code(reply) == ReturnCode.COMMUNICATION_ERROR:
                lost.add(site)  # the engine gave up before the site's time was over
        return {"replies": replies, "lost": sorted(lost)}

    def _send(self, topic, timeout, fl_ctx, sites, message=b""):
        request = Shareable()
        request["message"] = message
        engine = fl_ctx.get_engine()
        replies = engine.send_aux_request(
            sites, topic, request, timeout, fl_ctx, optional=True
        )
        return replies or {}

    def _wait_for(self, asked, fl_ctx):
        """Wait until all have answered; return those to whom no connection leads.

        A site that is busy or frozen still has a connection, and time to answer.
        """
        n_missed, lost = dict.fromkeys(asked, 0), set()
        while waiting := [s for s in asked if s not in lost and not asked[s].done()]:
            done, _ = wait([asked[site] for site in waiting], LOOK_INTERVAL)
            if len(done) == len(waiting):
                break
            heard = self._send(HERE, LOOK_INTERVAL, fl_ctx, waiting)
            for site in waiting:
                is_gone = _code(heard.get(site)) == ReturnCode.COMMUNICATION_ERROR
                n_missed[site] = n_missed[site] + 1 if is_gone else 0
                if n_missed[site] == MAX_MISSED:
                    logger.warning("there is no connection to site %s any more", site)
                    lost.add(site)
        return lost


def _code(reply):
    return None if reply is None else reply.get_return_code()
