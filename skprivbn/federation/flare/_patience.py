"""Waiting for others, but not for ever; and saying that one is still there."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

#: seconds between two signs of life
INTERVAL = 60.0


def within(seconds: float, what: str, call: Callable[[], Any]) -> Any:
    """Return what a call returns, or raise ConnectionError if it takes too long.

    The engine's own calls have limits that do not add up to one.

    Parameters
    ----------
    seconds : float
    what : str
        For the error.
    call : callable
        Without arguments. It goes on, in a thread that nobody waits for.

    Returns
    -------
    result : object
    """
    outcome: dict[str, Any] = {}

    def run():
        try:
            outcome["result"] = call()
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=run, daemon=True, name=f"skprivbn {what}")
    thread.start()
    thread.join(seconds)
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
