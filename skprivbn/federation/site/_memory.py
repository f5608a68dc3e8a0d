"""How much memory a session may take at a site, counted where it is taken.

Parameters come from the coordinator: a small message may ask for a million components.
"""

from contextlib import contextmanager
from pathlib import Path

try:
    import resource
except ImportError:  # Windows counts otherwise
    resource = None  # type: ignore[assignment]

#: bytes that a session may take beside what the process has
MAX_BYTES = 1 << 32
#: where Linux says how many pages of private data a process has
_PAGES = Path("/proc/self/statm")


@contextmanager
def limited_memory(n_bytes=MAX_BYTES):
    """Let this process take so much memory more; else it gets a MemoryError.

    Of Linux, where sites run: others do not count private memory, and there is no
    limit.

    Parameters
    ----------
    n_bytes : int, default=MAX_BYTES
    """
    if resource is None or not _PAGES.exists():
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    n_pages = int(_PAGES.read_text(encoding="ascii").split()[5])
    wanted = n_pages * resource.getpagesize() + n_bytes
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([wanted, *known]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
