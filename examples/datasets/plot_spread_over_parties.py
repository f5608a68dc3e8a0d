"""
=====================================
Three ways to split rows over parties
=====================================

The difference between a federated and a pooled fit depends on how rows are split.
:func:`~skprivbn.datasets.split_horizontal` simulates common situations: homogeneous
parties, parties with different proportions of the classes, and parties with different
populations.
"""

# %%
# The same rows, split in three ways
# ----------------------------------
# Three blobs of 200 rows each, spread over four parties.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from skprivbn.datasets import split_horizontal

X, y = make_blobs(600, centers=3, cluster_std=1.6, random_state=3)
parties = {
    "homogeneous (iid)": split_horizontal(X, 4, random_state=0),
    "by class (dirichlet, alpha=0.5)": split_horizontal(
        X, 4, kind="dirichlet", y=y, alpha=0.5, random_state=11
    ),
    "by value (by_column)": split_horizontal(X, 4, kind="by_column", column=0),
}

# %%
# Homogeneous parties are the easy case. With few rows of a class, a party can learn
# little about it alone; with a range of values of its own, it never sees those of other
# parties.

names = np.unique(parties["homogeneous (iid)"])
colors = ["#0072B2", "#E69F00", "#009E73", "#CC79A7"]
fig, axes = plt.subplots(
    2, 3, figsize=(9, 5.5), height_ratios=[3, 1.3], layout="constrained"
)
for (title, party), top, bottom in zip(parties.items(), *axes):
    for name, color in zip(names, colors):
        mine = party == name
        top.scatter(*X[mine].T, s=9, color=color, linewidths=0, label=name)
    top.set(title=title, xticks=[], yticks=[])
    counts = np.array([np.bincount(y[party == name], minlength=3) for name in names])
    left = np.zeros(len(names))
    for blob, shade in enumerate(["0.25", "0.55", "0.8"]):
        bottom.barh(names, counts[:, blob], left=left, color=shade)
        left += counts[:, blob]
    bottom.invert_yaxis()
    bottom.spines[["top", "right"]].set_visible(False)
    bottom.set(xlim=(0, 240), xlabel="rows, shaded by blob")
for bottom in axes[1, 1:]:
    bottom.set_yticklabels([])
fig.legend(
    *axes[0, 0].get_legend_handles_labels(),
    loc="outside upper center",
    ncols=4,
    markerscale=2,
    frameon=False,
)
plt.show()

# %%
# Estimators take these labels as ``fit(X, party=party)``.
