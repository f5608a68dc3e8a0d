"""Why something failed, for the people at the site and for nobody else.

Messages quote cells and name clusters. They go to a file of the site's own, not to the
loggers of the process, which an engine may ship elsewhere.
"""

import logging
import os
import traceback
from datetime import UTC, datetime
from pathlib import Path

from skprivbn.federation.program import PartyRefusal

#: name of the file, beside the audit log
ERROR_LOG = "skprivbn_errors.log"

logger = logging.getLogger("skprivbn.site")

#: characters of one message, which may quote what was received
MAX_TEXT = 1 << 10
#: bytes after which the file is put aside, and how many are kept
MAX_BYTES, N_KEPT = 1 << 20, 3


class ErrorLog:
    """A file of reasons that only its owner can read.

    Parameters
    ----------
    path : path-like
    """

    def __init__(self, path):
        self.path = Path(path)

    def write(self, asked, error, columns=()):
        """Write down what was asked, what came of it, and why.

        Parameters
        ----------
        asked : str
        error : Exception
        columns : sequence of str, default=()
            Which it is about.
        """
        of = f" (columns {', '.join(columns)})" if columns else ""
        text = "".join(map("    because of {}\n".format, _reasons(error)))
        now = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            self._rotate()
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            with open(os.open(self.path, flags, 0o600), "a", encoding="utf-8") as file:
                file.write(f"{now} {asked}{of}\n{text}")
        except OSError as problem:
            # A full disk must not change what the coordinator is told. The text of
            # such an error names a file and no cell.
            reason = (
                error.__cause__ if isinstance(error.__cause__, OSError) else problem
            )
            logger.error("cannot write %s: %s", self.path, reason)

    def _rotate(self):
        if not self.path.exists() or self.path.stat().st_size < MAX_BYTES:
            return
        for number in range(N_KEPT - 1, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{number}")
            if older.exists():
                older.replace(self.path.with_name(f"{self.path.name}.{number + 1}"))
        self.path.replace(self.path.with_name(f"{self.path.name}.1"))


def _reasons(error):
    """Yield an error in words, then those that it hides from the coordinator."""
    while error is not None:
        notes = " ".join(getattr(error, "__notes__", ()))
        words = f"{type(error).__name__}: {error} {notes}"
        if isinstance(error, PartyRefusal):
            words = f"{error.code}: {notes}"
        elif frames := traceback.extract_tb(error.__traceback__, limit=-1):
            words += f" ({frames[0].filename}:{frames[0].lineno})"
        yield " ".join(words.split())[:MAX_TEXT]
        error = error.__cause__ or error.__context__
