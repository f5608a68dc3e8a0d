"""What a user sees of a fit while it goes on."""

import math
from time import perf_counter

__all__ = ["Progress"]


class Progress:
    """Prints and calls back while a fit goes on; knows what the coordinator knows.

    Parameters
    ----------
    estimator : estimator
        With `verbose`, `verbose_interval` and `max_iter`.
    callback_context : CallbackContext
        Of the whole fit.
    """

    def __init__(self, estimator, callback_context):
        self.estimator = estimator
        self.fit_context = callback_context

    def begin_run(self, number):
        self.run_context = self.fit_context.subcontext(
            task_name="start", max_subtasks=self.estimator.max_iter
        )
        self.run_context.call_on_fit_task_begin(estimator=self.estimator)
        if self.estimator.verbose:
            print(f"Initialization {number}")
        self.run_began = self.last_print = perf_counter()
        self.bound = -math.inf

    def begin_iteration(self):
        self.context = self.run_context.subcontext(task_name="em-iteration")
        self.context.call_on_fit_task_begin(estimator=self.estimator)

    def end_iteration(self, n_iter, find_bound):
        """Return whether a callback wants to stop."""
        bound, verbose = find_bound(), self.estimator.verbose
        if verbose and n_iter % self.estimator.verbose_interval == 0:
            line = f"  Iteration {n_iter}"
            if verbose >= 2:
                now = perf_counter()
                line += f"\t time lapse {now - self.last_print:.5f}s"
                self.last_print = now
            if bound is not None:
                line += f"\t ll change {bound - self.bound:.5f}"
            print(line)
        if bound is not None:
            self.bound = bound
        return self.context.call_on_fit_task_end(estimator=self.estimator)

    def end_run(self, converged):
        verbose = self.estimator.verbose
        if verbose:
            line = f"Initialization {'converged' if converged else 'did not converge'}."
            if verbose >= 2:
                line += f" time lapse {perf_counter() - self.run_began:.5f}s"
            if self.bound > -math.inf:
                line += f"\t lower bound {self.bound:.5f}."
            print(line)
        self.run_context.call_on_fit_task_end(estimator=self.estimator)
