"""
===============================================
Which rows should sites send, if they send any?
===============================================

A clinic and a registry hold different columns about the same 6,000 patients. The paper
behind :class:`~skprivbn.structure.CollectiveBayesianNetwork` lets them send the
centre the rows that neither finds likely, since these tell most about links between
sites. That finds links. What it does to probabilities is another matter.
"""

# %%
# Patients, and who knows what about them
# ---------------------------------------

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.datasets import load_asia
from skprivbn.metrics import conditional_kl_divergence, kl_divergence
from skprivbn.structure import CollectiveBayesianNetwork

asia = load_asia(variant="noisy_or")
X = pd.DataFrame(asia.sample(6000, random_state=0), columns=asia.nodes)
sites = {
    "clinic": ["asia", "tub", "either", "xray", "dysp"],
    "registry": ["smoke", "lung", "bronc"],
}
central = BayesianNetwork.from_data(
    X, asia.parents, nodes=asia.nodes, states=asia.states
)

# %%
# Without any row
# ---------------
# By default sites count together, on secret shares, and no row leaves them. The result
# is that of the pooled table.

private = CollectiveBayesianNetwork(
    sites, structure=asia.parents, states=asia.states
).fit(X)
print(f"divergence from the pooled fit: {kl_divergence(central, private.network_):.1e}")
links = private.cross_edges_
print(f"links between sites: {links}")

# %%
# What unlikely rows do to probabilities
# --------------------------------------
# Every table of the network, estimated once from the rows that are unlikely at both
# sites, once from as many random rows. A collective network takes the tables of nodes
# whose parents are all at their own site from all rows of that site, so that only
# ``either`` and ``dysp``, at the ends of the links, would suffer. The others are the
# paper's control: they show the bias of the selection by itself.

unlikely = np.ones(len(X), dtype=bool)
for site, network in private.local_networks_.items():
    likelihood = np.exp(network.log_likelihood(X[sites[site]]))
    unlikely &= likelihood < likelihood.mean() - 0.3 * likelihood.std()
some = np.random.default_rng(0).permutation(unlikely)
by_node = {}
for label, rows in (("unlikely rows", unlikely), ("as many random rows", some)):
    learnt = BayesianNetwork.from_data(
        X[rows], asia.parents, nodes=asia.nodes, states=asia.states
    )
    divergences = conditional_kl_divergence(central, learnt)
    by_node[label] = [divergences[node] for node in asia.nodes]

fig, ax = plt.subplots(figsize=(8, 3.8), layout="constrained")
place = np.arange(len(asia.nodes))
for shift, (label, values), color in zip(
    (-0.2, 0.2), by_node.items(), ("#D55E00", "#0072B2")
):
    ax.bar(place + shift, values, width=0.4, label=label, color=color)
ax.set(
    yscale="log",
    ylim=(5e-5, 20),
    ylabel="KL divergence of one node's table",
    title=f"Tables from {unlikely.mean():.0%} of the rows",
)
ax.set_xticks(place, asia.nodes)
for tick, node in zip(ax.get_xticklabels(), asia.nodes):
    tick.set_weight("bold" if any(node == end for _, end in links) else "normal")
ax.legend(frameon=False, ncols=2, loc="upper left")
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Rows that were never candidates have inclusion probability zero, and no weight repairs
# that. Random rows are the default. How both do against the number of rows sent is in
# :ref:`sphx_glr_auto_examples_bayesian_network_plot_collective_fraction.py`.
