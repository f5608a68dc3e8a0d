"""
======================================================
The figures of the collective study: links, divergence
======================================================

How many rows must a clinic and a registry send, so that a centre finds the links
between them? Chen, Sivakumar and Kargupta asked this of the Asia network, with the
columns split as here. They counted wrong edges and measured the divergence from the
pooled fit, against the fraction of rows sent.
"""

# %%
# Thirty studies, stored
# ----------------------
# ``benchmarks/bench_collective_asia.py`` simulates 6,000 patients thirty times, and
# lets :class:`~skprivbn.bayesian_network.CollectiveBayesianNetwork` learn structure
# and probabilities, by tests of independence, from rows chosen in three ways.

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import skprivbn

# In a checkout, results of benchmarks lie beside the package.
root = Path(skprivbn.__file__).resolve().parents[1]
stored = root / "benchmarks" / "results" / "collective_asia.json"
study = json.loads(stored.read_text())
print(f"{study['seeds']} studies of {study['n']} patients: {study['command']}")


def series(selection, column):
    chosen = [row for row in study["rows"] if row["selection"] == selection]
    return np.array([row[column] for row in chosen])


# %%
# Links and divergence
# --------------------
# The dotted line is the default, ``disclosure="private_counts"``: no row is sent, and
# the network is the one that pooled counts give. The edge that even it misses most
# often is the one from ``asia`` to ``tub``: few travel there, and fewer fall ill.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
styles = {
    "low_likelihood": ("#D55E00", "s", "unlikely rows, as in the paper"),
    "mixed": ("#009E73", "^", "half unlikely, half random, weighted"),
    "random": ("#0072B2", "o", "random rows"),
}
for selection, (colour, marker, label) in styles.items():
    fraction = series(selection, "fraction")
    left.errorbar(
        fraction,
        series(selection, "wrong edges"),
        series(selection, "standard error"),
        color=colour,
        marker=marker,
        capsize=3,
        label=label,
    )
    right.plot(fraction, series(selection, "divergence"), color=colour, marker=marker)
    right.fill_between(
        fraction,
        series(selection, "lower quartile"),
        series(selection, "upper quartile"),
        color=colour,
        alpha=0.15,
    )
for ax, column in ((left, "wrong edges"), (right, "divergence")):
    ax.axhline(
        series("private counts", column)[0],
        color="black",
        linestyle=":",
        label="no rows: private counts" if ax is left else None,
    )
    ax.spines[["top", "right"]].set_visible(False)
    ax.set(xlabel="fraction of rows sent", xlim=(0, 1.02))
left.set(ylabel="edges too many or too few", ylim=(0, None), title="Structure")
right.set(
    yscale="log",
    ylabel="KL divergence from the pooled fit",
    title="Probabilities (median, quartiles)",
)
fig.legend(loc="outside lower center", ncols=2, frameon=False)
plt.show()

# %%
# Rows that are unlikely at both sites show that there is a link, and make links where
# there are none: selection by likelihood ties columns to each other. With all rows sent
# the three ways are the same.
