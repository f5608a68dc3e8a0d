"""Files that several processes change, one at a time and never by half."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file as a whole: a crash or power cut leaves the old or new one.

    Parameters
    ----------
    path : Path
        A new file is the owner's alone.
    content : bytes
    """
    descriptor, temporary = tempfile.mkstemp(
        dir=path.parent, prefix=path.name, suffix=".new"
    )
    try:
        with open(descriptor, "wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        if path.exists():
            os.chmod(temporary, path.stat().st_mode)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
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
