"""Processes that are killed before a statement of their sqlite connections."""

import os
import signal
import sqlite3
import traceback
import warnings

import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes")


def kill_at(number):
    """Kill this process before the statement with this number, counted from one."""
    left, connect = number, sqlite3.connect

    def count(statement):
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    def connect_and_count(*arguments, **options):
        connection = connect(*arguments, **options)
        connection.set_trace_callback(count)
        return connection

    sqlite3.connect = connect_and_count


def run_killed(number, function, *arguments):
    """Call a function in a process of its own; return whether it was killed.

    Parameters
    ----------
    number : int
        Of the statement before which it is killed; 0 to let it live.
    function : callable
    *arguments
        Of the function.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        code = 1
        try:
            kill_at(number)
            function(*arguments)
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False
