"""A link that a test can slow down, freeze and cut: TCP, through a port of its own."""

import socket
import threading
import time
from contextlib import suppress


class Link:
    """Forwards connections to another port of this machine.

    Attributes
    ----------
    port : int
        Where to connect to.
    delay : float
        Seconds that every piece of data takes, in either direction.
    """

    def __init__(self, target):
        self._target, self.delay = target, 0.0
        self._flows = threading.Event()
        self._flows.set()
        self._is_cut = False
        self._ends = []
        self._listener = socket.create_server(("localhost", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze(self):
        """Lose nothing, and deliver nothing, until it is mended."""
        self._flows.clear()

    def cut(self):
        """Break all connections, and refuse new ones, until it is mended."""
        self._is_cut = True
        ends, self._ends = self._ends, []
        for end in ends:
            _close(end)

    def mend(self):
        """Forward as at first."""
        self.delay, self._is_cut = 0.0, False
        self._flows.set()

    def close(self):
        """End for good."""
        self.mend()
        self.cut()
        self._listener.close()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self._is_cut:
                    raise ConnectionRefusedError
                far = socket.create_connection(("localhost", self._target))
            except OSError:
                _close(near)
                continue
            self._ends += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(
                    target=self._forward, args=(one, other), daemon=True
                ).start()

    def _forward(self, source, sink):
        with suppress(OSError):
            while data := source.recv(1 << 16):
                time.sleep(self.delay)
                self._flows.wait()
                sink.sendall(data)
        _close(source)
        _close(sink)


def _close(end):
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
