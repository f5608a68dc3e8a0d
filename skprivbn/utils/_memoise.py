"""Public steps, answered; and memoised, as simulated parties repeat the same ones."""

from collections.abc import Callable, Generator
from dataclasses import fields, is_dataclass, replace
from functools import cache, wraps
from threading import Lock
from typing import Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import numpy as np

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def memoise(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Memoise the last call: simulated parties repeat the same deterministic step.

    On a machine of its own every party computes it, with numbers that it has verified.
    Arguments are the same if they are to the last bit. Errors are not kept.

    Parameters
    ----------
    function : callable
        Of numbers, texts, arrays and dataclasses of these. Its result, of the same
        kinds or a tuple, depends on them alone, and on nothing that is secret.

    Returns
    -------
    function : callable
        The same. Every caller gets arrays of its own.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.utils._memoise import memoise
    >>> @memoise
    ... def root(x):
    ...     print("working")
    ...     return np.sqrt(x)
    >>> root(np.array([4.0, 9.0]))
    working
    array([2., 3.])
    >>> root(np.array([4.0, 9.0]))
    array([2., 3.])
    """
    # one object, which is replaced as a whole: threads see either call, never half
    last: tuple[Any, Any] = (None, None)

    @wraps(function)
    def compute(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        nonlocal last
        key = _exact((*args, *kwargs.items()))
        known, result = last
        if known != key:
            result = function(*args, **kwargs)
            last = key, _copied(result)
            return result
        return _copied(result)

    return compute


def memoise_steps(make: Callable[_Arguments, Generator]) -> Callable[_Arguments, Any]:
    """Memoise a generator of public steps: simulated parties repeat them.

    Parties that are in one process go through the same steps, as long as they are
    answered the same, to the last bit. Nothing is kept once all of them have ended.

    Parameters
    ----------
    make : callable
        Of arguments as of :func:`memoise`. The generator it returns depends on
        them and on what it is sent alone, and on nothing that is secret. Nobody changes
        what it yields or returns.

    Returns
    -------
    make : callable

    Examples
    --------
    >>> from skprivbn.utils._memoise import memoise_steps
    >>> @memoise_steps
    ... def double(x):
    ...     while True:
    ...         print("working")
    ...         x = 2 * (yield x)
    >>> first, second = double(1), double(1)
    >>> next(first), next(second), first.send(5), second.send(5), second.send(6)
    working
    working
    working
    (1, 1, 10, 10, 12)
    """
    under_way: Any = WeakValueDictionary()

    @wraps(make)
    def repeat(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> Generator:
        key, steps, answers, answer = _exact((*args, *kwargs.items())), None, [], None
        while True:
            answers.append(answer)
            step = None if steps is None else steps.at(answers)
            if step is None:
                # none so far, or others were answered otherwise
                steps = under_way.get(key)
                step = None if steps is None else steps.after(answers)
            if step is None:
                steps = under_way[key] = _Steps(make(*args, **kwargs))
                step = steps.after(answers)
            is_last, value = step
            if is_last:
                return value
            answer = yield value

    return repeat


class _Steps:
    """A generator, and what it has yielded so far."""

    def __init__(self, generator):
        self.generator, self.answers, self.steps = generator, [], []
        self.lock = Lock()

    def after(self, answers):
        """Go through all answers; return what :meth:`at` does after the last."""
        step = None
        for n_answers in range(1, len(answers) + 1):
            step = self.at(answers[:n_answers])
            if step is None:
                break
        return step

    def at(self, answers):
        """Return (whether it ended, what came) after some answers, or None."""
        with self.lock:
            n_known, last = len(self.steps), _exact(answers[-1])
            if len(answers) <= n_known:
                same = self.answers[len(answers) - 1] == last
                return self.steps[len(answers) - 1] if same else None
            if len(answers) > n_known + 1:
                return None
            try:
                step = False, self.generator.send(answers[-1])
            except StopIteration as stop:
                step = True, stop.value
            self.answers.append(last)
            self.steps.append(step)
            return step


def _exact(value):
    """Return what is equal for values that are the same, to the last bit."""
    if isinstance(value, float):
        # tells zeros of either sign apart
        return value.hex()
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.hasobject:
            raise TypeError("an array of objects has no bytes to be told apart by")
        return value.dtype.str, value.shape, value.tobytes()
    if value is None or isinstance(value, int | str):
        return type(value), value
    if isinstance(value, tuple | list):
        return tuple(map(_exact, value))
    if isinstance(value, dict):
        return tuple(map(_exact, value.items()))
    names = _field_names(type(value))
    if not names:
        raise TypeError(f"a {type(value).__name__} cannot be told apart by its bytes")
    return type(value), *[_exact(getattr(value, name)) for name in names]


@cache
def _field_names(kind):
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def _copied(result):
    """Return a result that nobody who gets it can change for the others."""
    if isinstance(result, np.ndarray):
        return result.copy()
    if isinstance(result, tuple):
        return tuple(map(_copied, result))
    names = _field_names(type(result))
    if names:
        parts = {name: _copied(getattr(result, name)) for name in names}
        return replace(result, **parts)
    return result


def ask(steps, answer):
    """Go through public steps with answers at hand.

    Parameters
    ----------
    steps : generator
        Yields questions.
    answer : callable
        From a question to its answer.

    Returns
    -------
    found : object
        What the steps return.
    """
    told = None
    while True:
        try:
            question = steps.send(told)
        except StopIteration as stop:
            return stop.value
        told = answer(question)


def asking_others(steps, answer):
    """Go through public steps whose answers take rounds of a program.

    Parameters
    ----------
    steps : generator
        Yields questions.
    answer : callable
        From a question to a generator of rounds, which returns its answer.

    Returns
    -------
    found : object
        What the steps return.
    """
    told = None
    while True:
        try:
            question = steps.send(told)
        except StopIteration as stop:
            return stop.value
        told = yield from answer(question)
