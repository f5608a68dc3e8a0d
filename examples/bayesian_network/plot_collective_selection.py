"""
===============================================
Which rows should sites send, if they send any?
===============================================

A clinic and a registry hold different columns about the same 6,000 patients. The paper
behind :class:`~skprivbn.bayesian_network.CollectiveBayesianNetwork` lets them send the
centre the rows that neither finds likely, since these tell most about links between
sites. That finds links. What it does to probabilities is another matter.
"""

# %%
# Patients, and who knows what about them
# ---------------------------------------

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skprivbn.bayesian_network import BayesianNetwork, CollectiveBayesianNetwork
from skprivbn.datasets import load_asia
from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.metrics import kl_divergence

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
print(f"links between sites: {private.cross_edges_}")

# %%
# With some rows
# --------------
# Sending rows is cheaper and shows them: a warning says so, which is silenced here
# because these patients are simulated.

warnings.simplefilter("ignore", PrivacyLeakWarning)
fractions = [0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75]
divergence = {}
for selection in ("low_likelihood", "mixed", "random"):
    divergence[selection] = [
        np.median(
            [
                kl_divergence(
                    central,
                    CollectiveBayesianNetwork(
                        sites,
                        structure=asia.parents,
                        states=asia.states,
                        disclosure="rows",
                        selection=selection,
                        fraction=fraction,
                        random_state=seed,
                    )
                    .fit(X)
                    .network_,
                )
                for seed in range(3)
            ]
        )
        for fraction in fractions
    ]

# %%
# The control
# -----------
# Tables of single nodes, all estimated from the rows that are unlikely at both sites.
# In the local nodes the bias is plain to see: the sites' own rows, all of them, are
# what a collective network uses for these. The nodes in the middle of the links suffer
# from the same bias, and have no other rows.

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
    by_node[label] = [
        kl_divergence(
            central,
            BayesianNetwork(
                asia.nodes,
                asia.states,
                asia.parents,
                {**central.cpts, node: learnt.cpts[node]},
            ),
        )
        for node in asia.nodes
    ]

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
colors = {"low_likelihood": "#D55E00", "mixed": "#009E73", "random": "#0072B2"}
for selection, values in divergence.items():
    left.semilogy(fractions, values, "o-", color=colors[selection], label=selection)
left.set(
    xlabel="fraction of rows sent",
    ylabel="KL divergence from the pooled fit",
    title="The collective network",
)
left.legend(frameon=False)
place = np.arange(len(asia.nodes))
for shift, (label, values), color in zip(
    (-0.2, 0.2), by_node.items(), ("#D55E00", "#0072B2")
):
    right.bar(place + shift, values, width=0.4, label=label, color=color)
right.set(
    yscale="log",
    ylim=(5e-5, 20),
    ylabel="KL divergence of one node's table",
    title=f"Tables from {unlikely.mean():.0%} of the rows",
)
right.set_xticks(place, asia.nodes, rotation=45, ha="right")
right.legend(frameon=False)
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Rows that were never candidates have inclusion probability zero, and no weight repairs
# that. Random rows are best here, and the default.
