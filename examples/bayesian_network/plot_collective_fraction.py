"""
======================================================
Collective learning: links and divergence by rows sent
======================================================

How many rows must a clinic and a registry send, so that a centre finds the links
between them? Chen, Sivakumar and Kargupta studied this on the Asia network, with the
same columns per site. They counted wrong edges and measured the divergence from the
pooled fit, by the fraction of rows sent.
"""

# %%
# Thirty stored studies
# ---------------------
# ``benchmarks/study_collective_asia.py`` simulates 6,000 patients thirty times;
# :class:`~skprivbn.structure.CollectiveBayesianNetwork` learns the structure by tests
# of independence from rows selected in several ways. As in the paper, no ordering of
# the columns is known, and edges within sites stay as the sites found them
# (``search_params={"post_process": False}``).

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import skprivbn

# Stored results lie beside the package in a checkout. For a downloaded notebook, the
# guide's page "Figures and tables of the five papers" has the file: put it beside that.
stored = Path("collective_asia.json")
if not stored.exists():
    root = Path(skprivbn.__file__).resolve().parents[1]
    stored = root / "benchmarks" / "results" / stored
study = json.loads(stored.read_text())
print(f"{study['seeds']} studies of {study['n']} patients: {study['command']}")


def series(selection, column):
    chosen = [row for row in study["rows"] if row["selection"] == selection]
    return np.array([row[column] for row in chosen])


# %%
# Links
# -----
# The dotted line is the default, ``disclosure="private_counts"``: no row is sent, and
# the network is that of pooled counts. It most often misses the link from ``asia`` to
# ``tub``, because few travel there, and fewer fall ill. Unlikely rows, selected as in
# the paper, find the links between sites from a twentieth of the rows and make about
# one mistake more than the pooled table; random rows make none. With a known ordering
# and post-processing, which drops local edges explained by a variable elsewhere,
# unlikely rows do much worse: they were selected because they are unusual at both
# sites, which looks like dependence.

fig, ax = plt.subplots(figsize=(8.4, 4.6), layout="constrained")
styles = {
    "low_likelihood": ("#D55E00", "s", "-", "unlikely rows, as in the paper"),
    "low_likelihood, ordered": (
        "#D55E00",
        "s",
        "--",
        "unlikely rows, ordered and post-processed",
    ),
    "mixed": ("#009E73", "^", "-", "half unlikely, half random, weighted"),
    "random": ("#0072B2", "o", "-", "random rows"),
}
for selection, (colour, marker, line, label) in styles.items():
    ax.errorbar(
        series(selection, "fraction"),
        series(selection, "wrong links"),
        series(selection, "standard error"),
        color=colour,
        marker=marker,
        linestyle=line,
        capsize=3,
        label=label,
    )
ax.axhline(
    series("private counts", "wrong links")[0],
    color="black",
    linestyle=":",
    label="no rows: private counts",
)
ax.spines[["top", "right"]].set_visible(False)
ax.set(
    xlabel="fraction of rows sent",
    xlim=(0, 1.02),
    ylabel="wrong or missing links",
    ylim=(0, None),
    title="Links between sites",
)
fig.legend(loc="outside lower center", ncols=2, frameon=False)
plt.show()

# %%
# Probabilities
# -------------
# With a given structure, the table of a node with a parent at the other site is
# estimated from the rows sent. These are ``either`` and ``dysp``: medians and quartiles
# of the divergence from the pooled fit
# (:func:`~skprivbn.metrics.conditional_kl_divergence`).

fig, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
for ax, node in zip(axes, ("either", "dysp")):
    for selection in ("low_likelihood", "mixed", "random"):
        colour, marker, line, label = styles[selection]
        # all rows sent: the pooled fit itself, which a logarithm cannot draw
        fraction = series(selection, "fraction")[:-1]
        ax.plot(
            fraction,
            series(selection, f"{node}: divergence")[:-1],
            color=colour,
            marker=marker,
            label=label,
        )
        ax.fill_between(
            fraction,
            series(selection, f"{node}: lower quartile")[:-1],
            series(selection, f"{node}: upper quartile")[:-1],
            color=colour,
            alpha=0.15,
        )
    ax.spines[["top", "right"]].set_visible(False)
    ax.set(xlabel="fraction of rows sent", xlim=(0, 1.02), yscale="log")
    ax.set_title(f"Table of {node}")
axes[0].set_ylabel("KL divergence from the pooled table")
fig.legend(
    *axes[0].get_legend_handles_labels(),
    loc="outside lower center",
    ncols=3,
    frameon=False,
)
plt.show()

# %%
# Random rows find the same links and estimate probabilities ten to a hundred times
# better. No rows are needed if sites can count together.
