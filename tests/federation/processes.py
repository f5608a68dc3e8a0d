"""A transport for tests: every party in an operating-system process of its own.

Proves that protocols do not share memory by accident. Not part of the package: it
authenticates nobody and encrypts no link.
"""

import multiprocessing
import time
from importlib import import_module

from skprivbn.crypto import resolve_backend
from skprivbn.federation import Coordinator, HostPolicy, Runner
from skprivbn.partition import HorizontalPartition, VerticalPartition

# A fresh interpreter per party: nothing is inherited from the parent's memory.
_CONTEXT = multiprocessing.get_context("spawn")


def _find(path):
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def _serve(name, block, policy, pipe):
    runner = Runner(name, block, _find, resolve_backend, policy)
    while True:
        message = pipe.recv_bytes()
        if not message:
            return
        pipe.send_bytes(runner.handle(message))


class ProcessFederation(Coordinator):
    """Parties in processes, joined by pipes that carry bytes only."""

    authentication = "test transport: pipes between processes"

    def __init__(self, blocks, program, terms, backend, *, policy, **options):
        super().__init__(blocks, program, terms, backend, **options)
        self.processes, self._pipes = {}, {}
        for name, block in blocks.items():
            self._pipes[name], theirs = _CONTEXT.Pipe()
            self.processes[name] = _CONTEXT.Process(
                target=_serve, args=(name, block, policy, theirs), daemon=True
            )
            self.processes[name].start()
            theirs.close()

    def _exchange(self, requests, timeout):
        for name, message in requests.items():
            try:
                self._pipes[name].send_bytes(message)
            except OSError:
                pass  # a dead party: no answer will come
        deadline = None if timeout is None else time.monotonic() + timeout
        replies = {}
        for name in requests:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                answered = self._pipes[name].poll(left)
                replies[name] = self._pipes[name].recv_bytes() if answered else None
            except (EOFError, OSError):
                replies[name] = None
        return replies

    def _close(self):
        for name, process in self.processes.items():
            try:
                self._pipes[name].send_bytes(b"")
            except OSError:
                pass
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()


def in_processes(partition):
    """Return the same partition, opened with one process per party."""
    kind = {
        HorizontalPartition: _HorizontalInProcesses,
        VerticalPartition: _VerticalInProcesses,
    }[type(partition)]
    twin = kind.__new__(kind)
    twin.__dict__.update(partition.__dict__)
    return twin


class _InProcesses:
    def federate(self, program, terms, backend=None, *, min_rows=1, **options):
        options.pop("debug", None)
        return ProcessFederation(
            self._blocks,
            program,
            terms,
            backend,
            policy=HostPolicy(min_rows=min_rows),
            timeout=60,
            **options,
        )


class _HorizontalInProcesses(_InProcesses, HorizontalPartition):
    pass


class _VerticalInProcesses(_InProcesses, VerticalPartition):
    pass
