"""Bytes between the coordinator and the sites of one job, through the server."""

import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any

from skprivbn.federation._wire import encode

#: seconds between two signs of life
INTERVAL = 60.0
#: whoever is to answer and to whom no connection leads so many times in a row, looked
#: at so often (seconds), is lost
MAX_MISSED, LOOK_INTERVAL = 3, 2.0


def within(
    seconds: float,
    what: str,
    call: Callable[[], Any],
    is_there: Callable[[], bool] = lambda: True,
) -> Any:
    """Return what a call returns, or raise ConnectionError if it takes too long.

    The engine's own calls have limits that do not add up to one, and wait for a
    server that was killed.

    Parameters
    ----------
    seconds : float
    what : str
        For the error.
    call : callable
        Without arguments. It goes on, in a thread that nobody waits for.
    is_there : callable, default=always
        Tells whether the server is connected now.

    Returns
    -------
    result : object
    """
    outcome: dict[str, Any] = {}
    context = copy_context()  # such as numpy's error state

    def run():
        try:
            outcome["result"] = context.run(call)
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=run, daemon=True, name=f"skprivbn {what}")
    thread.start()
    deadline, n_missed = time.monotonic() + seconds, 0
    while thread.is_alive() and (left := deadline - time.monotonic()) > 0:
        thread.join(min(left, LOOK_INTERVAL))
        n_missed = n_missed + 1 if thread.is_alive() and not is_there() else 0
        if n_missed == MAX_MISSED:
            raise ConnectionError(f"{what}: there is no connection to the server")
    if "error" in outcome:
        raise outcome["error"]
    if "result" not in outcome:
        raise ConnectionError(
            f"{what} took longer than {seconds:g} seconds: is the server reachable?"
        )
    return outcome["result"]


class Heartbeat:
    """Tells the server from time to time that the researcher is still there.

    A job whose researcher was killed ends by itself some minutes later.

    Parameters
    ----------
    beat : callable
        Without arguments; what goes wrong in it is found out by the next fit.
    interval : float, default=INTERVAL
        Seconds.
    """

    def __init__(self, beat: Callable[[], Any], interval: float = INTERVAL) -> None:
        self._beat, self._interval = beat, interval
        self._ended = threading.Event()
        thread = threading.Thread(target=self._run, daemon=True, name="skprivbn beat")
        thread.start()

    def _run(self):
        while not self._ended.wait(self._interval):
            with suppress(Exception):
                self._beat()

    def end(self) -> None:
        """Stop."""
        self._ended.set()


#: seconds that the server gets to pass an answer on
RELAY_TIME = 10.0
#: seconds without progress after which one command to the server's job has failed
COMMAND_TIME = 7.0
_COMMAND = "skprivbn"
#: the engine's words for a job that no longer runs
_ENDED = ("FINISHED", "FAILED", "ABORTED", "ABANDONED")
#: what is read of a site to which the server has no connection
LOST = encode({"ok": False, "code": "lost"})


class Relay:
    """One job at the server, which carries messages to its sites.

    Parameters
    ----------
    session : nvflare.fuel.flare_api.flare_api.Session
        Connection to the server.
    job_id : str or None
        The engine's name for the job; None before it is submitted.
    """

    def __init__(self, session: Any, job_id: str | None) -> None:
        self.session, self.job_id = session, job_id
        self._lock, self._number = threading.Lock(), 0

    def ask(
        self, topic: str, messages: dict[str, bytes], timeout: float
    ) -> dict[str, bytes]:
        """Return what sites answer, within so many seconds, to a message each.

        Parameters
        ----------
        topic : str
        messages : dict of str to bytes
            By the name of the site.
        timeout : float

        Returns
        -------
        replies : dict of str to bytes
            Without the sites that did not answer in time; those to which the server
            has no connection have the code "lost".
        """
        # Sites are mostly told the same, which then travels to the server once.
        bodies = list(dict.fromkeys(messages.values()))
        data = {
            "topic": topic,
            "timeout": timeout,
            "bodies": [b64encode(body).decode() for body in bodies],
            "sites": {name: bodies.index(body) for name, body in messages.items()},
        }
        try:
            with self._lock:
                self._number += 1
                data["number"] = self._number
                answer = self._command(data, timeout + 2 * RELAY_TIME)
                replies = dict.fromkeys(answer["lost"], LOST)
        except Exception as error:
            if type(error).__name__ == "AuthorizationError":
                raise PermissionError(
                    "the server does not let this user talk to a job: was site-policy "
                    "run on the server's kit?"
                ) from error
            raise ConnectionError(
                "the connection to the federation was lost "
                f"({type(error).__name__}): connect again"
            ) from error
        replies |= {name: b64decode(text) for name, text in answer["replies"].items()}
        return {name: replies[name] for name in messages if name in replies}

    def _command(self, data, seconds):
        """Hand a message over, and come back for the answers until they are there.

        The engine does not say that the server's job was killed: a command to it gets
        no answer, and the next one fails at once.
        """
        waiting = {"number": data["number"]}
        deadline, n_missed = time.monotonic() + seconds, 0
        while (begun := time.monotonic()) < deadline:
            command = partial(self.session.do_app_command, self.job_id, _COMMAND, data)
            data = waiting
            self.session.set_timeout(COMMAND_TIME)
            try:
                answer = within(seconds, "the message", command, self._is_there)
            except ConnectionError:
                raise
            except Exception:
                n_missed += 1
                is_late = time.monotonic() - begun > COMMAND_TIME / 2
                if not is_late or n_missed == MAX_MISSED:
                    raise
            else:
                if answer != waiting:
                    return answer
                n_missed = 0
        raise ConnectionError(f"there was no answer within {seconds:g} seconds")

    def _is_there(self):
        return self.session.api.get_cell().is_cell_connected("server")

    def has_ended(self) -> str:
        """Return the engine's word for how the job ended, empty if it has not."""
        status = self.session.get_job_status(self.job_id) or ""
        return status if any(word in status for word in _ENDED) else ""

    def say_here(self) -> None:
        """Tell the server that the coordinator is still there."""
        # whoever talks, is there
        if self._lock.acquire(blocking=False):
            try:
                self.session.do_app_command(self.job_id, _COMMAND, {"here": True})
            finally:
                self._lock.release()

    def close(self) -> None:
        """End the job, and the connection; a lost one takes seconds, not minutes."""
        if self.job_id is not None:
            try:
                self.session.set_timeout(RELAY_TIME)
                self.session.do_app_command(self.job_id, _COMMAND, {"end": True})
            except Exception:
                with suppress(Exception):
                    self.session.abort_job(self.job_id)
        with suppress(Exception):
            self.session.close()
