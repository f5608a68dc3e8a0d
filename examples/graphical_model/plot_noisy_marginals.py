"""
==========================
Learning from noisy tables
==========================

Tables with private noise have negative counts and contradict each other. Here the true
field is known, so that we can compare the marginal probabilities of several estimators
with it.
"""

# %%
# A random field and noisy tables of its rows
# -------------------------------------------
# Six variables with eight states each, joined in a chain of second order; 20,000 rows.
# (Figure 3(a) of the paper has a random graph of ten variables with twenty states.)

import matplotlib.pyplot as plt
import numpy as np

from skprivbn.datasets import make_markov_random_field
from skprivbn.graphical_model import DPCGMLearner, MarkovRandomField
from skprivbn.privacy import PrivacyAccountant

potentials = make_markov_random_field(6, 8, order=2, random_state=4)
nodes = [f"x{i}" for i in range(6)]
truth = MarkovRandomField(
    nodes,
    {node: range(8) for node in nodes},
    {(f"x{i}", f"x{j}"): table for (i, j), table in potentials.items()},
)
X = truth.sample(20_000, random_state=0)

accountant = PrivacyAccountant(epsilon=np.inf)
released = DPCGMLearner(
    list(potentials), epsilon=0.1, states=[8] * 6, accountant=accountant
).fit(X)

# %%
# The tables are released once. ``fit_marginals`` learns from them repeatedly, at no
# further cost.

tables = {
    tuple(int(v[1:]) for v in clique): table
    for clique, table in released.noisy_tables_.items()
}
learners = {
    "naive": DPCGMLearner(
        method="naive",
        method_params={"regularization": 1e-7, "max_iter": 200},
    ),
    "cgm": DPCGMLearner(method="cgm"),
    "auto": DPCGMLearner(method="auto"),
}
for learner in learners.values():
    learner.set_params(states=[8] * 6).fit_marginals(tables, released.noise_.std)

# %%
# True against estimated marginals
# --------------------------------
# Axes are logarithmic, because the Kullback-Leibler divergence compares ratios; crosses
# at the bottom are noisy counts that are zero or negative. A learnt field pools the
# tables, but the naive one fits the noise with probabilities close to zero, which makes
# its divergence large. "cgm" stops before that; "auto" knows the variance of the noise.

true = np.concatenate([table.ravel() for table in truth.marginals().values()])
noisy = np.concatenate([released.noisy_marginals_[c].ravel() for c in truth.cliques])
panels = {"noisy tables": (noisy, None)}
for name, learner in learners.items():
    found = learner.network_.marginals()
    values = np.concatenate([found[clique].ravel() for clique in truth.cliques])
    panels[name] = values, truth.kl_divergence(learner.network_)

fig, axes = plt.subplots(
    1, 4, figsize=(11, 3.2), sharex=True, sharey=True, layout="constrained"
)
colors = ["0.5", "#E69F00", "#009E73", "#0072B2"]
floor, ends = 1e-6, [true.min(), true.max()]
for ax, (name, (values, divergence)), color in zip(axes, panels.items(), colors):
    seen = values > floor
    ax.loglog(ends, ends, color="0.7", zorder=0)
    ax.scatter(true[seen], values[seen], s=6, color=color, linewidths=0)
    ax.scatter(
        true[~seen], np.full((~seen).sum(), floor), s=12, marker="x", color=color
    )
    kl = "" if divergence is None else f"\nKL = {divergence:.2f}"
    ax.set(title=f"{name}{kl}", xlabel="true marginal")
axes[0].set_ylabel("estimated marginal")
plt.show()
