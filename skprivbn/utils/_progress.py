"""What a user sees of a fit while it goes on."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import parent_process
from time import perf_counter
from typing import Any

from skprivbn.utils._sklearn import open_callbacks

#: fits that end sooner show no bar
SECONDS_BEFORE_BAR = 2


@contextmanager
def tell_progress(
    estimator: Any,
    X: object,
    y: object = None,
    *,
    step: str,
    max_steps: int | None = None,
    every: int = 10,
) -> Iterator:
    """Watch one fit: print if the estimator is verbose, call its callbacks.

    Where a person watches, a terminal or a notebook, tqdm (if installed) shows a bar
    of fits that take longer than a few seconds.

    Parameters
    ----------
    estimator : estimator
        With scikit-learn's ``CallbackSupportMixin`` and a parameter `verbose`.
    X, y : object
        What `fit` was given, for callbacks.
    step : str
        Name of a step, such as "round".
    max_steps : int, default=None
        Most steps there may be, if that is known.
    every : int, default=10
        Steps between two prints with ``verbose=1``.

    Yields
    ------
    progress : Progress
    """
    context = open_callbacks(estimator, max_subtasks=max_steps)
    context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)
    progress = Progress(estimator, context, step, every, max_steps)
    with progress.shown():
        yield progress
    progress.close()
    context.call_on_fit_task_end(
        estimator=estimator, X=X, y=y, reconstruction_attributes={}
    )


class Progress:
    """Steps of a fit as the coordinator sees them.

    Parameters
    ----------
    estimator : estimator
    context : CallbackContext
        Of the whole fit.
    name : str
        Name of a step.
    every : int
        Steps between two prints.
    max_steps : int or None
        Most steps there may be.
    """

    def __init__(self, estimator, context, name, every, max_steps=None):
        self.estimator = estimator
        self.context = context
        self.name = name
        self.every = every
        self.max_steps = max_steps
        self.n_steps = 0
        self.bar = None
        #: whether a callback wants the fit to end
        self.stop = False
        self.began = perf_counter()

    @contextmanager
    def shown(self):
        """Show a bar meanwhile, if somebody watches."""
        self.bar = None if self.estimator.verbose else _open_bar(self)
        try:
            yield
        finally:
            if self.bar is not None:
                self.bar.close()

    def _advance(self, numbers):
        self.n_steps += 1
        if self.bar is not None:
            self.bar.set_postfix(numbers, refresh=False)
            self.bar.update()

    @contextmanager
    def step(self):
        """Do one step; yield a function that takes numbers to print beside it."""
        numbers = {}
        with self._task():
            yield numbers.update
            self._advance(numbers)
            every = 1 if self.estimator.verbose >= 2 else self.every
            every = getattr(self.estimator, "verbose_interval", every)
            if self.estimator.verbose and self.n_steps % every == 0:
                known = "".join(
                    f", {key} {value:.3g}" for key, value in numbers.items()
                )
                self.say(f"{self.name} {self.n_steps}{known}")

    @contextmanager
    def part(self, step, max_steps=None):
        """Do one step that has steps of its own; yield their progress."""
        with self._task(max_subtasks=max_steps) as context:
            inner = Progress(self.estimator, context, step, self.every, max_steps)
            with inner.shown():
                yield inner
            inner.close()
            self._advance({})

    @contextmanager
    def _task(self, **options):
        context = self.context.subcontext(task_name=self.name, **options)
        context.call_on_fit_task_begin(estimator=self.estimator)
        yield context
        self.stop = bool(context.call_on_fit_task_end(estimator=self.estimator))

    def close(self):
        """Say how long it took."""
        if self.estimator.verbose:
            plural = "" if self.n_steps == 1 else "s"
            self.say(f"{self.n_steps} {self.name}{plural}")

    def say(self, text):
        """Print a line, and how long it took so far."""
        seconds = perf_counter() - self.began
        print(f"[{type(self.estimator).__name__}] {text}, {seconds:.1f} s")


def _open_bar(progress):
    """Return tqdm's bar, or None where nobody would see it."""
    is_watched = sys.stderr.isatty() or "ipykernel" in sys.modules
    # workers of a search would write over each other's bars
    if not is_watched or parent_process() is not None:
        return None
    try:
        tqdm = import_module("tqdm.auto")  # part of the extra plot
    except ImportError:
        return None
    return tqdm.tqdm(
        desc=f"{type(progress.estimator).__name__}: {progress.name}",
        total=progress.max_steps,
        delay=SECONDS_BEFORE_BAR,
        leave=False,
    )


class _NoProgress:
    """For solvers that nobody watches."""

    @contextmanager
    def step(self):
        yield dict


NO_PROGRESS = _NoProgress()
