"""
================================
Confidence of edges by bootstrap
================================

Some edges of a learnt graph are certain, others are due to chance. A bootstrap
distinguishes them: repeat the search on resampled data and count.
:class:`~skprivbn.structure.FederatedBayesianNetwork` resamples the tables that
hospitals have summed, so that they need not disclose more about their rows.
"""

# %%
# One search, and a hundred samples
# ---------------------------------
# Five hospitals have 1,000 patients in total. The searches on samples need some tables
# that the first one did not.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skprivbn.datasets import load_asia
from skprivbn.inspection import DAGDisplay
from skprivbn.structure import FederatedBayesianNetwork

asia = load_asia()
X = pd.DataFrame(asia.sample(1000, random_state=1), columns=asia.nodes)
hospital = np.array([f"hospital {i % 5}" for i in range(len(X))])
states = {node: list(labels) for node, labels in asia.states.items()}

once = FederatedBayesianNetwork("ges", states=states).fit(X, party=hospital)
samples = {"n_bootstrap": 100}
model = FederatedBayesianNetwork(
    "ges", states=states, search_params=samples, random_state=0
)
model.fit(X, party=hospital)
print(f"{once.ledger_.n_rounds} rounds for one search")
print(f"{model.ledger_.n_rounds} rounds for that and a hundred samples")

# %%
# Wider edges are more certain
# ----------------------------
# The learnt edges are compared with those of the network from which the patients were
# drawn.

fig, axes = plt.subplots(
    1, 2, figsize=(11, 4.5), layout="constrained", width_ratios=[1.2, 1]
)
DAGDisplay.from_estimator(model, truth=asia, ax=axes[0])
axes[0].set_title("Learnt network")

sure = model.edge_confidence_ + model.edge_confidence_.T
joined = asia.adjacency_matrix | asia.adjacency_matrix.T
pairs = [
    (f"{asia.nodes[i]} - {asia.nodes[j]}", sure[i, j], bool(joined[i, j]))
    for i, j in zip(*np.triu_indices(len(asia.nodes), 1))
    if sure[i, j] > 0.1 or joined[i, j]
]
names, shares, is_true = zip(*sorted(pairs, key=lambda pair: pair[1]))
names, shares, is_true = np.array(names), np.array(shares), np.array(is_true)
axes[1].barh(names, np.where(is_true, shares, 0), color="#333333", label="true edge")
axes[1].barh(names, np.where(is_true, 0, shares), color="#D55E00", label="no true edge")
axes[1].set(xlabel="share of bootstrap samples", xlim=(0, 1))
axes[1].set_title("Confidence of adjacent pairs")
axes[1].legend(loc="lower right")
plt.show()

# %%
# What the samples disclose
# -------------------------
# Only the tables from which they are drawn, which the ledger lists.

print(f"{len(once.tables_)} tables for one search")
print(f"{len(model.tables_)} tables for that and a hundred samples")
for note in model.ledger_.notes:
    print("-", note)
