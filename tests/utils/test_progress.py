import io
import sys

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.callback import CallbackSupportMixin

from skprivbn.structure import CollectiveBayesianNetwork, PrivateK2StructureLearner
from skprivbn.utils import _progress, tell_progress
from skprivbn.utils._sklearn import _fit_context


class Counter(CallbackSupportMixin, BaseEstimator):
    _parameter_constraints = {"n": [int], "verbose": ["verbose"]}

    def __init__(self, n=3, verbose=0):
        self.n = n
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        with tell_progress(self, X, y, step="round", max_steps=100) as progress:
            for number in range(self.n):
                with progress.step() as tell:
                    tell(gap=1 / (number + 1))
                    if X == "fails":
                        raise ValueError("a party was lost")
        return self


class Recorder:
    def __init__(self):
        self.seen = []

    def setup(self, estimator, context):
        self.seen.append("setup")

    def on_fit_task_begin(self, estimator, context):
        self.seen.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context):
        self.seen.append(f"end {context.task_name}")

    def teardown(self, estimator, context):
        self.seen.append("teardown")


@pytest.mark.parametrize("verbose, expected", [(0, 0), (1, 2 + 1), (2, 21 + 1)])
def test_verbose_decides_how_often_is_printed(capsys, verbose, expected):
    Counter(21, verbose=verbose).fit("rows")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == expected
    assert all(line.startswith("[Counter] ") for line in lines)


def test_a_line_holds_the_numbers_of_its_step(capsys):
    Counter(2, verbose=2).fit("rows")
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith("[Counter] round 1, gap 1, ")
    assert second.startswith("[Counter] round 2, gap 0.5, ")
    assert last.startswith("[Counter] 2 rounds, ")


def test_callbacks_see_every_step():
    recorder = Recorder()
    Counter(2).set_callbacks(recorder).fit("rows")
    rounds = ["begin round", "end round"] * 2
    assert recorder.seen == ["setup", "begin fit", *rounds, "end fit", "teardown"]


def test_a_failed_fit_ends_no_step(capsys):
    recorder = Recorder()
    with pytest.raises(ValueError, match="lost"):
        Counter(2, verbose=2).set_callbacks(recorder).fit("fails")
    assert recorder.seen == ["setup", "begin fit", "begin round", "teardown"]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "learner", [PrivateK2StructureLearner, CollectiveBayesianNetwork]
)
def test_conversations_of_column_holders_are_counted_in_turns(learner, capsys):
    X = np.random.default_rng(0).integers(2, size=(50, 4))
    learner({"a": [0, 1], "b": [2, 3]}, verbose=2).fit(X)
    *turns, last = capsys.readouterr().out.splitlines()
    assert turns[0].startswith(f"[{learner.__name__}] turn 1, ")
    assert last.startswith(f"[{learner.__name__}] {len(turns)} turns, ")


class Screen(io.StringIO):
    def __init__(self, is_terminal):
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self):
        return self.is_terminal


@pytest.mark.parametrize(
    "is_terminal, wait, verbose, shows",
    [
        (True, 0, 0, True),
        (False, 0, 0, False),
        (True, 60, 0, False),
        (True, 0, 1, False),
    ],
)
def test_long_fits_show_a_bar_to_people(monkeypatch, is_terminal, wait, verbose, shows):
    pytest.importorskip("tqdm")
    screen = Screen(is_terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(_progress, "SECONDS_BEFORE_BAR", wait)
    Counter(40, verbose=verbose).fit("rows")
    assert ("Counter: round" in screen.getvalue()) == shows
    assert ("/100" in screen.getvalue()) == shows


def test_a_failed_fit_leaves_no_bar(monkeypatch):
    tqdm = pytest.importorskip("tqdm").tqdm
    monkeypatch.setattr(sys, "stderr", Screen(True))
    with pytest.raises(ValueError, match="lost"):
        Counter(2).fit("fails")
    assert not list(getattr(tqdm, "_instances", ()))
