import builtins
import sys
import warnings

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.patches import ArrowStyle
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from skprivbn.bayesian_network import GaussianBayesianNetwork
from skprivbn.datasets import load_alarm, load_asia
from skprivbn.inspection import DAGDisplay

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


class Learner(BaseEstimator):
    def __init__(self, parties=None):
        self.parties = parties

    def fit(self, X=None, y=None):
        self.network_ = load_asia()
        return self


def test_what_a_display_has():
    network = load_asia()
    display = DAGDisplay.from_network(network)
    assert display.ax_.figure is display.figure_
    assert set(display.arrows_) == set(network.edges)
    assert set(display.boxes_) == set(network.nodes)
    assert set(display.edge_kinds_.values()) == {"edge"}
    assert display.ax_.get_legend() is None
    _, ax = plt.subplots()
    assert display.plot(ax=ax) is display
    assert display.ax_ is ax


@pytest.mark.parametrize("figsize", [None, (4, 3)])
def test_labels_fit_their_boxes_and_boxes_do_not_overlap(figsize):
    ax = None if figsize is None else plt.subplots(figsize=figsize)[1]
    display = DAGDisplay.from_network(load_alarm(), ax=ax)
    display.figure_.canvas.draw()
    boxes = [box.get_window_extent() for box in display.boxes_.values()]
    for k, first in enumerate(boxes):
        assert not any(first.overlaps(second) for second in boxes[:k])
    texts = [
        patch.get_window_extent()
        for patch in display.ax_.patches
        if type(patch).__name__ == "PathPatch"
    ]
    assert len(texts) == 37
    for box, text in zip(boxes, texts):
        assert box.x0 < text.x0 < text.x1 < box.x1
        assert box.y0 < text.y0 < text.y1 < box.y1


def test_edges_against_the_truth():
    nodes = list("abcd")
    learnt = np.zeros((4, 4))
    learnt[0, 1] = learnt[1, 2] = learnt[0, 3] = 1
    truth = np.zeros((4, 4))
    truth[0, 1] = truth[2, 1] = truth[3, 2] = 1
    display = DAGDisplay(nodes, learnt, truth=truth).plot()
    assert display.edge_kinds_ == {
        ("a", "b"): "true edge",
        ("b", "c"): "reversed",
        ("a", "d"): "extra",
        ("d", "c"): "missing",
    }
    styles = {edge: arrow.get_linestyle() for edge, arrow in display.arrows_.items()}
    assert styles["a", "b"] == styles["a", "d"] == "-"
    assert styles["d", "c"] == ":"
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert labels == ["true edge", "extra", "reversed", "missing"]


def test_missing_edges_may_close_a_cycle_with_learnt_ones():
    learnt = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]])
    truth = np.array([[0, 0, 0], [0, 0, 0], [1, 0, 0]])
    display = DAGDisplay(list("abc"), learnt, truth=truth).plot()
    assert display.edge_kinds_["c", "a"] == "missing"
    # Drawn downwards like the others, with its head at the upper end.
    styles = {edge: arrow.get_arrowstyle() for edge, arrow in display.arrows_.items()}
    assert isinstance(styles["c", "a"], ArrowStyle.CurveFilledA)
    assert isinstance(styles["a", "b"], ArrowStyle.CurveFilledB)


def test_truth_is_matched_by_name():
    weights = np.diag([1.0, 1.0], 1)
    network = GaussianBayesianNetwork(["a", "b", "c"], weights)
    same = GaussianBayesianNetwork(["c", "b", "a"], weights.T)
    display = DAGDisplay.from_network(network, truth=same)
    assert set(display.edge_kinds_.values()) == {"true edge"}
    with pytest.raises(ValueError, match="same nodes"):
        DAGDisplay.from_network(network, truth=load_asia())


def test_larger_weights_are_wider():
    weights = np.zeros((3, 3))
    weights[0, 1:] = 0.5, -2.0
    network = GaussianBayesianNetwork(["a", "b", "c"], weights)
    arrows = DAGDisplay.from_network(network).arrows_
    assert arrows["a", "c"].get_linewidth() > 1.5 * arrows["a", "b"].get_linewidth()


def test_owners_have_colours_and_a_legend():
    parties = {"clinic": ["asia", "smoke"], "lab": ["xray"]}
    display = DAGDisplay.from_estimator(Learner(parties).fit())
    colour = {node: box.get_facecolor() for node, box in display.boxes_.items()}
    assert colour["asia"] == colour["smoke"]
    assert len({colour["asia"], colour["xray"], colour["lung"]}) == 3
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert labels == ["clinic", "lab"]


@pytest.mark.parametrize("parties", [None, {"a": [0, 1]}, {"a": slice(2)}])
def test_parties_that_name_no_columns_are_not_drawn(parties):
    display = DAGDisplay.from_estimator(Learner(parties).fit())
    assert display.ax_.get_legend() is None


def test_many_owners_can_be_told_apart():
    nodes = [f"x{i}" for i in range(12)]
    owners = {f"party {i}": [node] for i, node in enumerate(nodes)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        display = DAGDisplay(nodes, np.zeros((12, 12)), owners=owners).plot()
        display.figure_.canvas.draw()
    looks = {(b.get_facecolor(), b.get_hatch()) for b in display.boxes_.values()}
    assert len(looks) == 12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"owners": {"p": ["z"]}}, "it is no node"),
        ({"owners": {"p": ["a"], "q": ["a"]}}, "two owners"),
        ({"owners": {"p": "a"}}, "list of its nodes"),
        ({"truth": np.zeros((3, 3))}, "truth has 3 nodes, the network 2"),
        ({"truth": [[0, 1], [1, 0]]}, "cycle"),
        ({"adjacency": [[0, 1], [1, 0]]}, "cycle"),
        ({"adjacency": np.zeros((3, 3))}, "do not fit"),
    ],
)
def test_wrong_input_is_refused(change, message):
    fields = {"nodes": ["a", "b"], "adjacency": np.zeros((2, 2))} | change
    with pytest.raises(ValueError, match=message):
        DAGDisplay(**fields).plot()


def test_names_with_a_dollar_are_not_formulas():
    DAGDisplay(["$x", "y$^", " "], np.zeros((3, 3))).plot().figure_.canvas.draw()


def test_unfitted_estimators_are_refused():
    with pytest.raises(NotFittedError):
        DAGDisplay.from_estimator(Learner())


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"DAGDisplay needs .*skprivbn\[plot\]"):
        DAGDisplay.from_network(load_asia())
