"""
======================================
The privacy cost of a parameter search
======================================

Which columns should share a table? A search on private rows costs privacy.
:class:`~skprivbn.privacy.PrivateSearchCV` selects by noisy scores and charges them to
the accountant.
"""

# %%
# Three candidates
# ----------------
# Visits to eight kinds of pages of a web site, one row per visitor. Tables of
# neighbouring kinds, tables of each kind with the last, or single kinds only?

import matplotlib.pyplot as plt
import numpy as np

from skprivbn.datasets import load_msnbc
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.privacy import PrivacyAccountant, PrivateSearchCV

X = load_msnbc().data[:, :8]
candidates = {
    "neighbours": "chain",
    "with the last": "tree",
    "single": [(i,) for i in range(8)],
}
accountant = PrivacyAccountant(epsilon=2.0)
search = PrivateSearchCV(
    DPCGMLearner(epsilon=0.25, states=[2] * 8),
    {"cliques": list(candidates.values())},
    score_bounds=(-8.0, 0.0),
    epsilon=0.25,
    accountant=accountant,
).fit(X)
for spend in accountant.history:
    print(f"epsilon {spend.epsilon:.2f}  {spend.what}")
print(f"left: {accountant.remaining().epsilon:.2f} of {accountant.epsilon}")

# %%
# Scores and cost
# ---------------
# Scores are noisy; their error bars are two standard deviations of the noise. They may
# be published. The bars on the right show the cost of each step.

means = search.cv_results_["mean_test_score"]
noise = search.cv_results_["std_test_score"]
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
place = np.arange(len(candidates))
best = place == search.best_index_
colours = np.where(best, "#D55E00", "#0072B2")
left.errorbar(means, place, xerr=2 * noise, fmt="none", ecolor="black", capsize=5)
left.scatter(means, place, c=colours, s=60, zorder=3)
left.set_yticks(place, candidates)
left.set(
    xlabel="log-likelihood of held-out rows, ± 2 sd of the noise",
    ylim=(-0.6, 2.6),
)
left.invert_yaxis()
left.locator_params(axis="x", nbins=5)
left.set(title="Scores (winner in orange)", ylabel="cliques")
steps = ["choice", *(f"fit: {name}" for name in candidates), "last fit, all rows"]
costs = [spend.epsilon for spend in accountant.history]
start = np.concatenate([[0], np.cumsum(costs)[:-1]])
right.barh(steps, costs, left=start, color=["#D55E00", *["#0072B2"] * 3, "#009E73"])
right.axvline(accountant.epsilon, color="black", linestyle=":")
right.text(accountant.epsilon, -0.45, "budget ", ha="right", va="center")
right.invert_yaxis()
right.set(xlabel="epsilon spent, cumulative", xlim=(0, 2.1), title="Cost")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Losing candidates cost as much as the winner. The best noise reduction is to search
# less, or on public data.
