"""Files that several processes change, one at a time and never by half."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def hold_lock(path: str | os.PathLike, mode: int = 0o600) -> Iterator[None]:
    """Hold the lock of a file, another file beside it with the suffix ``.lock``.

    Parameters
    ----------
    path : str or path-like
        What is locked.
    mode : int, default=0o600
        Who may use the lock, as far as the process allows others anything.

    Yields
    ------
    None
    """
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, mode)
    with open(descriptor, "a+b") as handle:
        _lock(handle)
        try:
            yield
        finally:
            _unlock(handle)


def replace_json(path: Path, content: Any, *, must_last: bool = True) -> None:
    """Replace a file as a whole: a crash leaves the old or the new one.

    Parameters
    ----------
    path : Path
        A new file is the owner's alone.
    content : object
        What JSON can hold.
    must_last : bool, default=True
        Whether it must outlast a power cut, for which writing waits for the disk.
    """
    descriptor, temporary = tempfile.mkstemp(
        dir=path.parent, prefix=path.name, suffix=".new"
    )
    try:
        with open(descriptor, "w", encoding="utf-8") as handle:
            json.dump(content, handle, indent=1)
            handle.flush()
            if must_last:
                os.fsync(handle.fileno())
        if path.exists():
            os.chmod(temporary, path.stat().st_mode)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    if must_last:
        _sync_directory(path.parent)


def _sync_directory(directory):
    if os.name == "nt":  # a directory cannot be opened there; replace() is journalled
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


try:
    import fcntl
except ImportError:
    import msvcrt
    import time

    def _lock(handle):
        while True:
            handle.seek(0)
            try:
                return msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
            except OSError:
                time.sleep(0.01)

    def _unlock(handle):
        handle.seek(0)
        msvcrt.locking(handle.fileno(), msvcrt.LK_UNLCK, 1)

else:

    def _lock(handle):
        fcntl.flock(handle, fcntl.LOCK_EX)

    def _unlock(handle):
        fcntl.flock(handle, fcntl.LOCK_UN)
