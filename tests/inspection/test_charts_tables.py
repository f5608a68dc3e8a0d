"""Bars of errors to expect."""

import numpy as np
import pytest

from skprivbn.graphical_model import DPCGMLearner
from skprivbn.inspection import ExpectedErrorDisplay

pytest.importorskip("matplotlib").use("Agg")

ERRORS = {("a",): 0.001, ("a", "b"): 0.02, ("a", "c"): 0.04, ("b", "c"): 0.01}


def widths(display):
    return [bar.get_width() for bar in display.ax_.patches]


def test_the_largest_errors_are_on_top_and_the_rest_is_left_out():
    display = ExpectedErrorDisplay(ERRORS).plot(n_most=3)
    assert display.tables_ == [("b", "c"), ("a", "b"), ("a", "c")]
    assert widths(display) == pytest.approx([1.0, 2.0, 4.0])


def test_tables_of_some_size_only():
    assert len(ExpectedErrorDisplay(ERRORS).plot(n_columns=2).tables_) == 3
    with pytest.raises(ValueError, match="n_columns=5"):
        ExpectedErrorDisplay(ERRORS).plot(n_columns=5)


def test_a_learner_shows_what_it_released():
    learner = DPCGMLearner("chain", epsilon=1.0, states=[2, 2, 2])
    learner.fit(np.arange(300).reshape(100, 3) % 2)
    display = ExpectedErrorDisplay.from_estimator(learner)
    assert set(display.tables_) == set(learner.expected_error_)
