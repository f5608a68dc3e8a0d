"""Small files in which a site remembers what it must not forget."""

import json
from contextlib import contextmanager
from pathlib import Path

from skprivbn.federation.program import PartyRefusal
from skprivbn.utils._locked_file import hold_lock, replace_json


class StateFile:
    """A JSON file of the owner's, changed as a whole and under a lock.

    Parameters
    ----------
    path : path-like
    empty : dict
        What is in it before anything was written.
    must_last : bool, default=True
        Whether it must outlast a power cut, for which writing waits for the disk.
    """

    def __init__(self, path, empty, must_last=True):
        self.path, self._empty, self._must_last = Path(path), empty, must_last

    def locked(self):
        """Hold the lock that every reader and writer takes."""
        return hold_lock(self.path)

    def read(self):
        """Return the content; a damaged file is never taken for an empty one."""
        try:
            return json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return json.loads(json.dumps(self._empty))

    def write(self, content):
        """Replace the file as a whole: a crash leaves the old or the new one."""
        replace_json(self.path, content, must_last=self._must_last)


@contextmanager
def recording():
    """Refuse, with a code that is true, what the site cannot write down.

    A full disk, a folder without permission, a damaged file: nothing that is not
    written down is done.
    """
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PartyRefusal("cannot-record") from error
