"""What a user sees of a fit while it goes on."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from skprivbn.utils._sklearn import open_callbacks


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
    progress = Progress(estimator, context, step, every)
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
    """

    def __init__(self, estimator, context, name, every):
        self.estimator = estimator
        self.context = context
        self.name = name
        self.every = every
        self.n_steps = 0
        #: whether a callback wants the fit to end
        self.stop = False
        self.began = perf_counter()

    @contextmanager
    def step(self):
        """Do one step; yield a function that takes numbers to print beside it."""
        numbers = {}
        with self._task():
            yield numbers.update
            self.n_steps += 1
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
            inner = Progress(self.estimator, context, step, self.every)
            yield inner
            inner.close()
            self.n_steps += 1

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


class _NoProgress:
    """For solvers that nobody watches."""

    @contextmanager
    def step(self):
        yield dict


NO_PROGRESS = _NoProgress()
