"""Why something failed, for the people at the site and for nobody else.

Tracebacks quote values. They go to a file of the site's own, not to the loggers of the
process, which an engine may ship elsewhere.
"""

import logging
import os
import traceback
from datetime import UTC, datetime
from pathlib import Path

#: name of the file, beside the audit log
ERROR_LOG = "skprivbn_errors.log"

logger = logging.getLogger("skprivbn.site")

#: characters of a traceback
MAX_TEXT = 1 << 16
#: bytes after which the file is put aside, and how many are kept
MAX_BYTES, N_KEPT = 1 << 20, 3


class ErrorLog:
    """A file of tracebacks that only its owner can read.

    Parameters
    ----------
    path : path-like
    """

    def __init__(self, path):
        self.path = Path(path)

    def write(self, asked, error):
        """Write down what was asked and what came of it, with its cause.

        Parameters
        ----------
        asked : str
        error : Exception
        """
        # What a refusal hides from the coordinator is what the site wants to know.
        error.__suppress_context__ = False
        # the end has what went wrong; what a message quotes may be as long as it
        text = "".join(traceback.format_exception(error))[-MAX_TEXT:]
        now = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            self._rotate()
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            with open(os.open(self.path, flags, 0o600), "a", encoding="utf-8") as file:
                file.write(f"{now} {asked}\n{text}\n")
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
