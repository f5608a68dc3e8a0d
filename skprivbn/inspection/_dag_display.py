"""A picture of a network: whose nodes, which edges, right or wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skprivbn.bayesian_network._base import BaseNetwork, check_names
from skprivbn.bayesian_network._dag import check_dag, topological_order
from skprivbn.inspection._layout import layered_layout
from skprivbn.inspection._style import check_fitted, colours_of, get_axes
from skprivbn.utils import import_optional

# Sizes in inches at full scale.
FONT_SIZE = 10
BOX_HEIGHT = 0.32
LAYER_HEIGHT = 0.85
LARGEST_FIGURE = (14.0, 10.0)

EDGE_STYLES = {
    "edge": {"color": "#333333", "linestyle": "-"},
    "true edge": {"color": "#333333", "linestyle": "-"},
    "extra": {"color": "#D55E00", "linestyle": "-"},
    "reversed": {"color": "#D55E00", "linestyle": "-."},
    "missing": {"color": "#B0B0B0", "linestyle": ":"},
}


@dataclass(eq=False, repr=False)
class DAGDisplay:
    """Drawing of a directed acyclic graph.

    Use :meth:`from_network` or :meth:`from_estimator` to make one.

    Parameters
    ----------
    nodes : sequence of str
        Names of the nodes.

    adjacency : array-like of shape (n_nodes, n_nodes)
        Non-zero at [i, j] for an edge i -> j. Numbers other than 0 and 1 are weights,
        and edges are drawn as wide as their weights are large.

    truth : array-like of shape (n_nodes, n_nodes), default=None
        The true graph. Edges are then drawn as true, extra, reversed or missing.

    owners : mapping of str to sequence of str, default=None
        The nodes of each party, which get the party's colour.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the drawing.

    figure_ : matplotlib Figure
        Figure containing the drawing.

    positions_ : dict of str to ndarray of shape (2,)
        Centres of the nodes, in data coordinates.

    boxes_ : dict of str to matplotlib patch
        The nodes.

    arrows_ : dict of (str, str) to matplotlib patch
        The edges, missing ones included.

    edge_kinds_ : dict of (str, str) to str
        What each edge is: "edge", or with a truth "true edge", "extra", "reversed" or
        "missing".

    Examples
    --------
    >>> from skprivbn.datasets import load_asia
    >>> from skprivbn.inspection import DAGDisplay
    >>> display = DAGDisplay.from_network(load_asia())
    >>> display.edge_kinds_["smoke", "lung"]
    'edge'
    """

    nodes: Sequence[str]
    adjacency: ArrayLike
    _: KW_ONLY
    truth: ArrayLike | None = None
    owners: Mapping[str, Sequence[str]] | None = None

    @classmethod
    def from_network(
        cls,
        network: Any,
        *,
        truth: Any = None,
        owners: Mapping[str, Sequence[str]] | None = None,
        ax: Any = None,
    ) -> Self:
        """Draw a network.

        Parameters
        ----------
        network : BayesianNetwork or GaussianBayesianNetwork
            What to draw.

        truth : network or array-like of shape (n_nodes, n_nodes), default=None
            The true graph, for comparison. A network is matched by the names of its
            nodes.

        owners : mapping of str to sequence of str, default=None
            The nodes of each party.

        ax : matplotlib Axes, default=None
            Where to draw; by default a new figure, large enough for the graph.

        Returns
        -------
        display : DAGDisplay
        """
        return cls._of_network(network, truth, owners).plot(ax=ax)

    @classmethod
    def _of_network(cls, network, truth, owners):
        if isinstance(truth, BaseNetwork):
            if set(truth.nodes) != set(network.nodes):
                raise ValueError("truth must have the same nodes as the network")
            order = [truth.nodes.index(node) for node in network.nodes]
            truth = truth.adjacency_matrix[np.ix_(order, order)]
        # a mixed network has weights by configuration, none of an edge
        adjacency = getattr(network, "weights", None)
        if not isinstance(adjacency, np.ndarray):
            adjacency = network.adjacency_matrix
        return cls(network.nodes, adjacency, truth=truth, owners=owners)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        truth: Any = None,
        owners: Mapping[str, Sequence[str]] | None = None,
        ax: Any = None,
    ) -> Self:
        """Draw the network that an estimator learnt.

        Edges are the wider, the surer they are, if it has an `edge_confidence_`.

        Parameters
        ----------
        estimator : estimator instance
            Fitted, with an attribute `network_`.

        truth : network or array-like of shape (n_nodes, n_nodes), default=None
            The true graph, for comparison.

        owners : mapping of str to sequence of str, default=None
            The nodes of each party. By default the estimator's parameter `parties`,
            if it has one that maps parties to names of columns.

        ax : matplotlib Axes, default=None
            Where to draw.

        Returns
        -------
        display : DAGDisplay
        """
        estimator = check_fitted(estimator, "network_")
        if owners is None:
            owners = _owners_of(estimator)
        network = estimator.network_
        display = cls._of_network(network, truth, owners)
        sure = getattr(estimator, "edge_confidence_", None)
        if sure is not None:
            # an edge of all rows that no sample has is an edge, too
            least = np.finfo(float).tiny
            display.adjacency = network.adjacency_matrix * (sure + sure.T + least)
        return display.plot(ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; by default a new figure, large enough for the graph.

        Returns
        -------
        display : DAGDisplay
            With the attributes that end with an underscore.
        """
        import_optional("matplotlib", "DAGDisplay")
        nodes = check_names(self.nodes)
        weights = np.asarray(self.adjacency, dtype=float)
        learnt = check_dag(weights, nodes)
        if len(learnt) != len(nodes):
            raise ValueError(
                f"{len(nodes)} nodes do not fit an adjacency matrix of {len(learnt)}"
            )
        kinds = _edge_kinds(learnt, self.truth, nodes)
        owner = _check_owners(self.owners, nodes)

        glyphs = {node: _text_path(node) for node in nodes}
        widths = [_width(glyphs[node]) + 0.24 for node in nodes]
        positions, routes = layered_layout(
            _drawing_order(learnt, kinds), widths, height=LAYER_HEIGHT
        )
        self.positions_ = dict(zip(nodes, positions))
        self.figure_, self.ax_ = get_axes(
            ax, "DAGDisplay", _figure_size(positions, widths, routes)
        )
        scale = self._set_limits(positions, widths, routes)
        self.boxes_ = self._draw_boxes(glyphs, dict(zip(nodes, widths)), owner, scale)
        self.edge_kinds_ = {
            (nodes[i], nodes[j]): kind for (i, j), kind in kinds.items()
        }
        self.arrows_ = self._draw_edges(kinds, routes, weights, widths, scale)
        self._draw_legend(owner)
        return self

    def _set_limits(self, positions, widths, routes):
        """Set the axes up; return how large an inch of the layout appears."""
        low = positions.min(axis=0)
        high = positions.max(axis=0)
        left, right = _sides(positions, widths, routes)
        margin = BOX_HEIGHT / 2 + 0.12
        self.ax_.set(
            xlim=(left - 0.12, right + 0.12), ylim=(low[1] - margin, high[1] + margin)
        )
        self.ax_.set_aspect("equal")
        self.ax_.set_axis_off()
        width, height = _inches(self.ax_)
        return min(
            1.0, width / (right - left + 0.24), height / (high[1] - low[1] + 2 * margin)
        )

    def _draw_boxes(self, glyphs, widths, owner, scale):
        patches = import_optional("matplotlib.patches", "DAGDisplay")
        styles = colours_of(dict.fromkeys(owner.values()))
        boxes = {}
        for node, (x, y) in self.positions_.items():
            style = styles.get(owner.get(node), {"facecolor": "#F2F2F2"})
            box = patches.FancyBboxPatch(
                (x - widths[node] / 2, y - BOX_HEIGHT / 2),
                widths[node],
                BOX_HEIGHT,
                boxstyle=f"round,pad=0,rounding_size={BOX_HEIGHT / 2.5}",
                edgecolor="#333333",
                linewidth=0.8 * scale,
                zorder=2,
                **style,
            )
            boxes[node] = self.ax_.add_patch(box)
            # Glyphs in data coordinates grow and shrink with their box.
            glyph = _centred(glyphs[node], x, y)
            dark = _is_dark(style["facecolor"])
            self.ax_.add_patch(
                patches.PathPatch(
                    glyph, color="white" if dark else "black", linewidth=0, zorder=4
                )
            )
        return boxes

    def _draw_edges(self, kinds, routes, weights, widths, scale):
        patches = import_optional("matplotlib.patches", "DAGDisplay")
        ports = _ports(routes, widths)
        sizes = np.abs(weights)
        weighted = len(np.unique(sizes[sizes > 0])) > 1
        arrows = {}
        for (i, j), kind in kinds.items():
            drawn = (i, j) if (i, j) in routes else (j, i)
            path = _edge_path(routes[drawn], *ports[drawn])
            width = 0.8 if kind == "missing" else 1.2
            if weighted and sizes[i, j]:
                width = 0.6 + 2.6 * sizes[i, j] / sizes.max()
            arrow = patches.FancyArrowPatch(
                path=path,
                # An edge of the truth may point upwards in the learnt graph's layers.
                arrowstyle="-|>" if drawn == (i, j) else "<|-",
                mutation_scale=(7 + 1.5 * width) * scale,
                linewidth=width * scale,
                zorder=3,
                **EDGE_STYLES[kind],
            )
            arrows[self.nodes[i], self.nodes[j]] = self.ax_.add_patch(arrow)
        return arrows

    def _draw_legend(self, owner):
        patches = import_optional("matplotlib.patches", "DAGDisplay")
        lines = import_optional("matplotlib.lines", "DAGDisplay")
        styles = colours_of(dict.fromkeys(owner.values()))
        handles = [
            patches.Patch(label=party, edgecolor="#333333", linewidth=0.8, **style)
            for party, style in styles.items()
        ]
        if self.truth is not None:
            present = set(self.edge_kinds_.values())
            handles += [
                lines.Line2D([], [], label=kind, linewidth=1.4, **style)
                for kind, style in EDGE_STYLES.items()
                if kind in present
            ]
        if handles:
            widest = max(_width(_text_path(handle.get_label())) for handle in handles)
            self.ax_.legend(
                handles=handles,
                loc="upper center",
                bbox_to_anchor=(0.5, 0.0),
                ncols=int(np.clip(_inches(self.ax_)[0] // (widest + 0.6), 1, 4)),
                fontsize=FONT_SIZE - 1,
                frameon=False,
            )


def _inches(ax):
    """Return the width and height of axes in inches."""
    extent = ax.get_window_extent()
    return extent.width / ax.figure.dpi, extent.height / ax.figure.dpi


def _owners_of(estimator):
    parties = getattr(estimator, "parties", None)
    if not isinstance(parties, Mapping):
        return None
    lists = [v for v in parties.values() if isinstance(v, list | tuple | np.ndarray)]
    if len(lists) < len(parties):
        return None
    nodes = estimator.network_.nodes
    named = all(name in nodes for columns in lists for name in columns)
    return parties if named else None


def _check_owners(owners, nodes):
    """Return {node: party}."""
    owner = {}
    for party, columns in (owners or {}).items():
        if isinstance(columns, str):
            raise ValueError(
                "owners must map each party to a list of its nodes, got "
                f"{columns!r} for {party!r}"
            )
        for name in columns:
            if name not in nodes:
                raise ValueError(f"owners gives {name!r} to {party!r}: it is no node")
            if name in owner:
                raise ValueError(f"node {name!r} has two owners")
            owner[name] = party
    return owner


def _edge_kinds(learnt, truth, nodes):
    """Return what each edge to draw is, as {(i, j): kind}."""
    edges = [tuple(edge) for edge in np.argwhere(learnt).tolist()]
    if truth is None:
        return dict.fromkeys(edges, "edge")
    truth = check_dag(truth, nodes)
    if truth.shape != learnt.shape:
        raise ValueError(f"truth has {len(truth)} nodes, the network {len(learnt)}")
    kinds = {}
    for i, j in edges:
        right, turned = truth[i, j], truth[j, i]
        kinds[i, j] = "true edge" if right else "reversed" if turned else "extra"
    missing = truth & ~learnt & ~learnt.T
    absent = [tuple(edge) for edge in np.argwhere(missing).tolist()]
    return kinds | dict.fromkeys(absent, "missing")


def _drawing_order(learnt, kinds):
    """Return a DAG with all edges to draw; missing ones follow the learnt order."""
    place = np.argsort(topological_order(learnt))
    graph = learnt.copy()
    for i, j in kinds:
        if not graph[i, j]:
            graph[(i, j) if place[i] < place[j] else (j, i)] = True
    return graph


def _text_path(text):
    """Return the outline of a name; a blank one is shown in quotes."""
    TextPath = import_optional("matplotlib.textpath", "DAGDisplay").TextPath
    text = (text if text.strip() else repr(text)).replace("$", r"\$")
    return TextPath((0, 0), text, size=FONT_SIZE / 72)


def _width(glyph):
    return float(np.ptp(glyph.vertices[:, 0]))


def _centred(glyph, x, y):
    """Return the text's outline centred at x, on a common baseline below y."""
    Affine2D = import_optional("matplotlib.transforms", "DAGDisplay").Affine2D
    middle = (glyph.vertices[:, 0].max() + glyph.vertices[:, 0].min()) / 2
    baseline = 0.36 * FONT_SIZE / 72
    return Affine2D().translate(x - middle, y - baseline).transform_path(glyph)


def _is_dark(colour):
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue < 95


def _sides(positions, widths, routes):
    """Return how far boxes and edges reach to the left and to the right."""
    half = np.array(widths) / 2
    passed = [points[:, 0] for points in routes.values()]
    across = np.concatenate([positions[:, 0] - half, positions[:, 0] + half, *passed])
    return across.min(), across.max()


def _figure_size(positions, widths, routes):
    left, right = _sides(positions, widths, routes)
    height = np.ptp(positions[:, 1]) + BOX_HEIGHT
    return (
        float(np.clip(right - left + 0.5, 4.0, LARGEST_FIGURE[0])),
        float(np.clip(height + 1.0, 2.5, LARGEST_FIGURE[1])),
    )


def _ports(routes, widths):
    """Return where each edge leaves and enters its boxes, spread out, left to right."""
    leaving, entering = {}, {}
    for (i, j), points in routes.items():
        leaving.setdefault(i, []).append((points[1, 0], (i, j)))
        entering.setdefault(j, []).append((points[-2, 0], (i, j)))
    offsets = {edge: [0.0, 0.0] for edge in routes}
    for end, sides in enumerate((leaving, entering)):
        for node, edges in sides.items():
            room = min(0.6 * widths[node], 0.22 * (len(edges) - 1))
            spread = np.linspace(-room / 2, room / 2, len(edges))
            for offset, (_, edge) in zip(spread, sorted(edges)):
                offsets[edge][end] = offset if len(edges) > 1 else 0.0
    return offsets


def _edge_path(points, leave, enter):
    """Return a smooth path from the bottom of one box to the top of another.

    Where it passes a layer it is steep enough to stay clear of the boxes there.
    """
    Path = import_optional("matplotlib.path", "DAGDisplay").Path
    points = points.copy()
    points[0] += leave, -BOX_HEIGHT / 2
    points[-1] += enter, BOX_HEIGHT / 2
    step = np.diff(points, axis=0)
    slope = step[:, 0] / step[:, 1]
    # Harmonic means, as in monotone interpolation: no overshooting, no wiggles.
    same = slope[1:] * slope[:-1] > 0
    total = np.where(same, slope[1:] + slope[:-1], 1.0)
    inner = np.where(same, 2 * slope[1:] * slope[:-1] / total, 0.0)
    tangent = np.concatenate([[0.0], np.clip(inner, -1.2, 1.2), [0.0]])
    reach = np.full(len(points), 1 / 3)
    reach[[0, -1]] = 1 / 2
    vertices, codes = [points[0]], [Path.MOVETO]
    for k, (_, height) in enumerate(step):
        away, towards = reach[k] * height, -reach[k + 1] * height
        vertices += [
            points[k] + (tangent[k] * away, away),
            points[k + 1] + (tangent[k + 1] * towards, towards),
            points[k + 1],
        ]
        codes += [Path.CURVE4] * 3
    return Path(vertices, codes)
