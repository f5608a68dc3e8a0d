"""
===================================
Publish a synthetic table of people
===================================

A statistics office wants to publish a table of people whose rows can be analysed like
the original. Four offices hold the rows of a census; none may see another's, and the
published table must not reveal single people.
:class:`~skprivbn.graphical_model.DPCGMLearner` releases noisy tables, learns a
distribution from them and draws synthetic rows.
"""

# %%
# Public information
# ------------------
# The labels of each column and the edges for ages and hours are public. Ages outside of
# the edges go to the nearest bin.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skprivbn.datasets import load_adult
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.inspection import ExpectedErrorDisplay
from skprivbn.privacy import PrivacyAccountant

census = load_adult()
rows = pd.DataFrame(census.data, columns=census.feature_names)
rows = rows[["age", "marital_status", "sex", "hours_per_week"]].copy()
rows["income"] = census.target
rows = rows.astype({"age": int, "hours_per_week": int})
states = {name: census.categories[name] for name in ("marital_status", "sex", "income")}
bins = {
    "age": [17, 22, 27, 32, 37, 42, 47, 52, 57, 62, 67, 91],
    "hours_per_week": [1, 20, 35, 40, 41, 46, 51, 61, 100],
}

# %%
# The fit
# -------
# Every office counts its own rows and adds a share of the noise before anything leaves
# it. All tables together cost epsilon 1.

office = np.array(["north", "south", "east", "west"])[np.arange(len(rows)) % 4]
learner = DPCGMLearner(
    epsilon=1.0,
    delta=1e-6,
    states=states,
    bins=bins,
    accountant=PrivacyAccountant(epsilon=1.0, delta=1e-6),
).fit(rows, party=office)
print(f"{len(learner.noisy_tables_)} tables, {learner.privacy_spent_}")
print(f"largest table of the model: {learner.largest_clique_} cells")

# %%
# The published file
# ------------------
# Columns have the original names, and the types of their states and edges.

published = learner.sample(len(rows), random_state=0)
print(published.head())
print(published.dtypes)

# %%
# Expected errors
# ---------------
# ``expected_error_`` is computed from the noise and noisy distances, and may be
# published, too. The true errors are known only here, where we have the rows.

labels = learner.network_.states


def shares(table, columns):
    """Share of rows in each cell, numbers by their bins."""
    codes = []
    for name in columns:
        if name in bins:
            edges = np.array(bins[name][1:-1])
            codes.append(np.searchsorted(edges, table[name], side="right"))
        else:
            codes.append(table[name].map(labels[name].index).to_numpy())
    counts = np.zeros([len(labels[name]) for name in columns])
    np.add.at(counts, tuple(codes), 1)
    return counts / len(table)


fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
display = ExpectedErrorDisplay.from_estimator(learner, n_columns=2, ax=left)
actual = [
    50 * np.abs(learner.marginal(list(columns)) - shares(rows, columns)).sum()
    for columns in display.tables_
]
left.plot(actual, range(len(actual)), "o", color="#D55E00", label="true")
left.containers[0].set_label("expected")
left.legend(frameon=False, loc="lower right")
left.set(title="Errors of tables", xlabel="% of people in the wrong cell")
for table, label, colour in (
    (rows, "census", "0.6"),
    (published, "published", "#0072B2"),
):
    rich = table[table["income"] == states["income"][-1]]
    right.hist(
        rich["age"],
        bins=bins["age"],
        density=True,
        histtype="step",
        color=colour,
        lw=2,
        label=label,
    )
right.set(xlabel="age", title=f"Age of people with income {states['income'][-1]}")
right.set_yticks([])
right.set_ylabel("people, relative")
right.legend(frameon=False)

# %%
# State with the file that it is synthetic and drawn from noisy tables, that the tables
# above are accurate within their errors, and that rows of rare people are invented.
