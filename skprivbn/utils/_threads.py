"""How many threads linear algebra uses."""

from collections.abc import Callable
from functools import lru_cache, wraps

from threadpoolctl import ThreadpoolController


@lru_cache(maxsize=1)
def _threads():
    return ThreadpoolController()


def single_threaded(function: Callable) -> Callable:
    """Run a function with one BLAS thread: its matrices are small, and many."""

    @wraps(function)
    def wrapped(*args, **kwargs):
        with _threads().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return wrapped
