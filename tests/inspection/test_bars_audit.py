"""Bars of what an audit proves."""

import pytest

from skprivbn.inspection import AuditDisplay
from skprivbn.privacy import AuditResult

pytest.importorskip("matplotlib").use("Agg")

BOUNDS = {"mean_[0]": 0.4, "scale_[0]": 1.7, "fit raises": 0.0}


def test_the_largest_bound_is_on_top_and_those_beyond_the_claim_stand_out():
    result = AuditResult(1.7, BOUNDS, 0.999, 500, (0, 0))
    display = AuditDisplay(result, claimed=1.0).plot()
    assert display.names_ == ["fit raises", "mean_[0]", "scale_[0]"]
    bars = display.ax_.patches
    assert [bar.get_width() for bar in bars] == [0.0, 0.4, 1.7]
    assert bars[0].get_facecolor() == bars[1].get_facecolor()
    assert bars[2].get_facecolor() != bars[1].get_facecolor()
    assert display.ax_.lines[0].get_xdata()[0] == 1.0
    assert AuditDisplay(result).plot(n_most=1).names_ == ["scale_[0]"]
