"""
===============================
Selection bias of unlikely rows
===============================

A clinic and a registry hold different columns about the same 6,000 patients. The paper
behind :class:`~skprivbn.structure.CollectiveBayesianNetwork` sends the centre the rows
that are unlikely at both sites, because they are most informative about links between
sites. This finds links, but biases probabilities.
"""

# %%
# Two sites
# ---------

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
# Without sending rows
# --------------------
# By default sites count together, on secret shares, and send no row. The result equals
# that of the pooled table.

private = CollectiveBayesianNetwork(
    sites, structure=asia.parents, states=asia.states
).fit(X)
print(f"divergence from the pooled fit: {kl_divergence(central, private.network_):.1e}")
links = private.cross_edges_
print(f"links between sites: {links}")

# %%
# Bias of probabilities
# ---------------------
# Every table of the network is estimated from the rows that are unlikely at both sites,
# and from as many random rows. A collective network estimates the tables of nodes with
# parents at their own site from all rows of that site, so that only ``either`` and
# ``dysp``, at the ends of the links, would be biased. The others are the paper's
# control, and show the bias of the selection itself.

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
# Likely rows have inclusion probability zero, so weights cannot correct the bias.
# Random rows are the default.
# :ref:`sphx_glr_auto_examples_bayesian_network_plot_collective_fraction.py` shows both
# by the number of rows sent.
