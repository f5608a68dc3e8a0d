"""Waiting for others, but not for ever; and saying that one is still there."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any

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
