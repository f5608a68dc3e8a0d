"""Draw the picture of the README, from two fits: ``python doc/overview.py``."""

import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.patches import FancyArrowPatch
from matplotlib.transforms import Bbox
from sklearn.mixture import GaussianMixture

from skprivbn.datasets import load_asia, make_partitioned_blobs
from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.inspection import DAGDisplay, MixtureDisplay
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.structure import PrivateK2StructureLearner

TARGET = Path(__file__).parent / "_static" / "overview.png"
# A phone shows these parts of the picture one below the other: where each begins and
# ends, from left to right.
PARTS = {"sums": (0.0, 0.405), "mixture": (0.405, 0.685), "network": (0.695, 1.0)}
COLOURS = {"north": "#56B4E9", "south": "#E69F00", "west": "#009E73"}
ARROW = "#555555"


def learn_mixture():
    """Three hospitals hold rows; return them and their mixture under encryption."""
    X, _, party = make_partitioned_blobs(360, n_parties=3, random_state=3)
    hospital = np.array(list(COLOURS))[[int(label[-1]) for label in party]]
    mixture = PPEMGaussianMixture(3, tol=1e-8, backend="ckks", random_state=0)
    mixture.fit(X, party=hospital)
    pooled = GaussianMixture(3, tol=1e-8, random_state=0).fit(X)
    means = [np.sort(model.means_, axis=0) for model in (mixture, pooled)]
    return X, hospital, mixture, abs(means[0] - means[1]).max()


def learn_network():
    """A clinic and a lab hold columns; return the network of all of them."""
    asia = load_asia()
    X = asia.encode(asia.sample(20_000, random_state=0))
    parties = {
        "clinic": ["asia", "smoke", "bronc", "dysp"],
        "lab": ["tub", "lung", "either", "xray"],
    }
    return PrivateK2StructureLearner(parties, ordering=asia.topological_order).fit(
        pd.DataFrame(X, columns=asia.nodes)
    )


def draw():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        X, hospital, mixture, difference = learn_mixture()
    network = learn_network()
    fig = plt.figure(figsize=(11, 4.9), dpi=150, facecolor="white")
    draw_rows(fig, X, hospital)
    draw_messages(fig, mixture.ledger_)
    draw_mixture(fig, X, hospital, mixture, difference)
    ax = fig.add_axes([0.70, 0.08, 0.29, 0.74])
    DAGDisplay.from_estimator(network, ax=ax)
    heading(fig, 0.845, "Columns of a clinic and a lab", "one network, no joined table")
    fig.add_artist(plt.Line2D([0.69, 0.69], [0.06, 0.95], color="#dddddd"))
    fig.savefig(TARGET)
    width, height = fig.get_size_inches()
    for name, (left, right) in PARTS.items():
        part = Bbox([(left * width, 0), (right * width, height)])
        fig.savefig(TARGET.with_stem(f"overview_{name}"), bbox_inches=part)


def heading(fig, x, title, under):
    fig.text(x, 0.93, title, ha="center", fontsize=12, weight="bold")
    fig.text(x, 0.875, under, ha="center", fontsize=10, color="#444444")


def draw_rows(fig, X, hospital):
    """Draw each hospital's rows in a box of its own."""
    heading(fig, 0.112, "Rows of three hospitals", "stay where they are")
    for place, (name, colour) in enumerate(COLOURS.items()):
        ax = fig.add_axes([0.02, 0.59 - 0.27 * place, 0.17, 0.24])
        ax.scatter(*X[hospital == name].T, s=5, color=colour)
        ax.set(xlim=limits(X[:, 0]), ylim=limits(X[:, 1]), xticks=[], yticks=[])
        ax.text(0.04, 0.93, name, transform=ax.transAxes, va="top", weight="bold")
        for spine in ax.spines.values():
            spine.set(color=colour, linewidth=1.5)


def draw_messages(fig, ledger):
    """Draw arrows to the coordinator and back, with what the ledger counted."""
    assert "raw rows" not in ledger.bytes_by_kind()
    kilobytes = ledger.bytes_by_kind()["ciphertext"] / 1000
    for place in range(3):
        fig.add_artist(arrow((0.195, 0.71 - 0.27 * place), (0.275, 0.44), -0.1))
    fig.text(
        0.315,
        0.44,
        "adds what\nit cannot\nread",
        ha="center",
        va="center",
        fontsize=10,
        bbox={"boxstyle": "round,pad=0.5", "facecolor": "#f2f2f2", "edgecolor": ARROW},
    )
    fig.text(0.315, 0.57, "coordinator", ha="center", weight="bold")
    fig.add_artist(arrow((0.357, 0.44), (0.405, 0.44), 0.0))
    fig.text(
        0.315,
        0.25,
        f"{kilobytes:,.0f} kB encrypted,\n{ledger.n_rounds} rounds,\nno row sent",
        ha="center",
        va="center",
        fontsize=9,
        color="#444444",
    )


def arrow(start, end, bend):
    return FancyArrowPatch(
        start,
        end,
        arrowstyle="-|>",
        mutation_scale=14,
        color=ARROW,
        connectionstyle=f"arc3,rad={bend}",
    )


def draw_mixture(fig, X, hospital, mixture, difference):
    under = f"means within {difference:.0e} of the pooled fit"
    heading(fig, 0.545, "The same mixture", under)
    ax = fig.add_axes([0.415, 0.05, 0.26, 0.78])
    MixtureDisplay.from_estimator(mixture, X, party=hospital, ax=ax)
    ax.set(xlim=limits(X[:, 0]), ylim=limits(X[:, 1]), xticks=[], yticks=[])
    ax.set(xlabel="", ylabel="")
    if legend := ax.get_legend():
        legend.remove()


def limits(values):
    margin = 0.12 * np.ptp(values)
    return values.min() - margin, values.max() + margin


if __name__ == "__main__":
    draw()
