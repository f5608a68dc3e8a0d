"""
===========================
Visitors of two web servers
===========================

Visitors of a news site look at pages of 17 categories. Suppose that each of two servers
knows for half of the categories whether a visitor has seen them. They want one network
of all categories.

The log is MSNBC's, in place of that of the paper, which is not public.
"""

# %%
# The log of one day
# ------------------

import warnings

import matplotlib.pyplot as plt

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.datasets import load_msnbc
from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.metrics import kl_divergence
from skprivbn.structure import CollectiveBayesianNetwork

X = load_msnbc(as_frame=True).frame.head(30_000)
names = list(X.columns)
servers = {"one": names[0::2], "two": names[1::2]}
states = dict.fromkeys(names, [0, 1])

# %%
# Structure from shared counts
# ----------------------------
# The servers find the structure together without disclosing a visit. The ledger lists
# what is learnt on the way.

learner = CollectiveBayesianNetwork(
    servers, ordering=names, max_parents=2, states=states
).fit(X)
structure = learner.network_.parents
print(
    f"{len(learner.network_.edges)} edges, {len(learner.cross_edges_)} across servers"
)
print(learner.ledger_.who_learns_what())

# %%
# Probabilities from some visits
# ------------------------------
# The paper's experiment: given the structure, how close to the pooled fit are
# probabilities from a fraction of the visits?

warnings.simplefilter("ignore", PrivacyLeakWarning)
pooled = BayesianNetwork.from_data(X, structure, states=states)
fractions = [0.02, 0.05, 0.1, 0.2, 0.4, 0.7]
fig, ax = plt.subplots(figsize=(5.5, 3.8), layout="constrained")
styles = {
    "low_likelihood": ("#D55E00", "s", "unlikely visits"),
    "mixed": ("#009E73", "^", "half unlikely, half random"),
    "random": ("#0072B2", "o", "random visits"),
}
for selection, (color, marker, label) in styles.items():
    divergence = [
        kl_divergence(
            pooled,
            CollectiveBayesianNetwork(
                servers,
                structure=structure,
                states=states,
                disclosure="rows",
                selection=selection,
                fraction=fraction,
                random_state=0,
            )
            .fit(X)
            .network_,
        )
        for fraction in fractions
    ]
    ax.semilogy(fractions, divergence, color=color, marker=marker, label=label)
ax.set(
    xlabel="fraction of visits sent",
    ylabel="KL divergence from the pooled fit",
    title="Probabilities, with the given structure",
)
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
plt.show()
