"""
========================================
A network of columns at two institutions
========================================

A clinic knows travels, smoking and symptoms of patients, a laboratory knows the
findings. Neither may disclose its columns, and they want one network of all columns.
:class:`~skprivbn.structure.PrivateK2StructureLearner` runs the K2 search on secret
shares of the counts.
"""

# %%
# Columns of the same patients
# ----------------------------
# We draw 5,000 patients from the Asia network, so that the truth is known. In a real
# application each institution would load only its own columns.

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import skprivbn
from skprivbn.datasets import load_asia
from skprivbn.inspection import DAGDisplay
from skprivbn.metrics import structural_hamming_distance
from skprivbn.structure import K2StructureLearner, PrivateK2StructureLearner

asia = load_asia()
ordering = [asia.nodes[i] for i in asia.topological_order]
parties = {
    "clinic": ["asia", "smoke", "bronc", "dysp"],
    "laboratory": ["tub", "lung", "either", "xray"],
}


def draw(n_patients, seed=0):
    return pd.DataFrame(asia.sample(n_patients, random_state=seed), columns=asia.nodes)


X = draw(5000)
learner = PrivateK2StructureLearner(parties, ordering=ordering).fit(X)

fig, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
DAGDisplay.from_estimator(learner, truth=asia, owners=parties, ax=ax)
ax.set_title("Network of both institutions")
plt.show()

# %%
# K2 finds exactly the same network on the joined table, because scores are integers and
# shares of integers add up exactly. The dependence of tuberculosis on a trip to Asia is
# too rare to be found in 5,000 patients.

pooled = K2StructureLearner(ordering=ordering).fit(X)
print("the same network:", learner.network_ == pooled.network_)

# %%
# Who learnt what
# ---------------
# The ledger records the size and kind of every message. Messages between clinic and
# laboratory are shares, transfers and garbled circuits, sealed on their way through the
# coordinator.

learner.ledger_.who_learns_what()

# %%
# The tables of the final network are opened for its probabilities.
# ``fit_parameters=False`` opens only the structure, ``min_cell_count`` suppresses small
# cells, and ``epsilon`` adds noise to the choice of parents and to the tables. The
# states must then be declared, because the values that occur would reveal single
# patients.

protected = PrivateK2StructureLearner(
    parties,
    ordering=ordering,
    states=asia.states,
    criterion="total_variation",
    epsilon=2.0,
    delta=1e-6,
).fit(X)
found, exact = set(protected.network_.edges), set(learner.network_.edges)
print(f"{len(found & exact)} of {len(exact)} edges, {len(found - exact)} others")

# %%
# Cost
# ----
# Time and traffic of a fit are proportional to the number of patients;
# ``benchmarks/bench_k2.py`` measured up to a million of them. Memory beyond Python and
# its libraries is that of the columns, a byte per entry, and of the tables of
# logarithms, because records are processed in blocks.

# Stored results lie beside the package in a checkout. For a downloaded notebook, the
# guide's page "Figures and tables of the five papers" has the file: put it beside that.
stored = Path("k2.json")
if not stored.exists():
    root = Path(skprivbn.__file__).resolve().parents[1]
    stored = root / "benchmarks" / "results" / stored
stored = json.loads(stored.read_text())
rows = [row for row in stored["rows"] if row["series"] == "Asia"]
n_patients = np.array([row["n"] for row in rows])
costs = {
    "CPU seconds, both parties": [row["seconds"] for row in rows],
    "megabytes of messages": [row["MB"] for row in rows],
    "megabytes of memory": [row["memory of the fit MB"] for row in rows],
}

fig, axes = plt.subplots(1, 3, figsize=(9, 2.8), layout="constrained")
for ax, (label, values) in zip(axes, costs.items()):
    ax.plot(n_patients / 1000, values, "o-", color="#0072B2", markersize=4)
    ax.set(xlabel="thousand patients", title=label, xlim=(0, None), ylim=(0, None))
    ax.title.set_fontsize("medium")
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Exact scores, or Stirling's formula
# -----------------------------------
# The original protocol approximates logarithms of factorials by Stirling's formula.
# With lookups on shares the exact score costs the same, and is the default. Stirling's
# formula is accurate too, if it treats empty cells as ``max(count, 1)`` in every term.
# The figure shows wrong edges over 20 samples of each size; the network is sparse,
# which suits BIC and not BDeu with its default prior weight.

sizes = [100, 300, 1000, 3000]
errors = {
    criterion: [
        [
            structural_hamming_distance(
                asia.adjacency_matrix,
                K2StructureLearner(ordering=ordering, criterion=criterion)
                .fit(draw(n, seed))
                .adjacency_matrix_,
            )
            for seed in range(20)
        ]
        for n in sizes
    ]
    for criterion in ("k2", "stirling", "bdeu", "bic")
}

fig, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
colors = ["#0072B2", "#E69F00", "#009E73", "#CC79A7"]
for i, (criterion, values) in enumerate(errors.items()):
    mean, spread = np.mean(values, axis=1), np.std(values, axis=1) / np.sqrt(20)
    place = np.arange(len(sizes)) + 0.08 * (i - 1.5)
    ax.errorbar(place, mean, spread, fmt="o-", color=colors[i], label=criterion)
ax.set(
    xticks=range(len(sizes)),
    xticklabels=[f"{n:,}" for n in sizes],
    xlabel="patients",
    ylabel="wrong edges",
    ylim=(0, None),
)
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, title="criterion")
ax.set_title("Accuracy by score")
plt.show()
