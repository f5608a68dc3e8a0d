"""
============================================
A private model of the census, and its price
============================================

The Adult census table has fifteen discrete columns.
:class:`~skprivbn.graphical_model.DPCGMLearner` releases a few of its contingency tables
with noise and learns a Markov random field from them. How much does privacy cost, and
which way of learning from noisy tables loses least?
"""

# %%
# A tree chosen privately
# -----------------------
# The states of all columns are public: they come with the data set's description, not
# from the rows. ``cliques="mst"`` spends a third of the budget on choosing which pairs
# of columns to measure. An accountant adds up what is spent.

import matplotlib.pyplot as plt
import numpy as np

from skprivbn.datasets import load_adult
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.inspection import PrivacyUtilityDisplay
from skprivbn.privacy import PrivacyAccountant

train, test = (load_adult(subset=part, discretized=True) for part in ("train", "test"))
X, X_test = (np.column_stack([part.data, part.target]) for part in (train, test))
names = list(train.categories)
domain = [len(states) for states in train.categories.values()]

accountant = PrivacyAccountant(epsilon=np.inf)
learner = DPCGMLearner("mst", epsilon=1.0, domain=domain, accountant=accountant).fit(X)
edges = [clique for clique in learner.cliques_ if len(clique) == 2]
for a, b in edges:
    print(f"{names[int(a[1:])]:>15} - {names[int(b[1:])]}")
print(f"records: about {learner.n_records_:.0f}; spent: {learner.privacy_spent_}")

# %%
# Synthetic rows
# --------------
# Drawing from the model costs no further privacy. One-way marginals of synthetic rows
# follow those of the census.

synthetic = learner.sample(len(X), random_state=0)
shown = ["age", "education", "marital_status", "income"]
fig, axes = plt.subplots(1, 4, figsize=(11, 2.6), layout="constrained")
for ax, name in zip(axes, shown):
    column = names.index(name)
    positions = np.arange(domain[column])
    for rows, label, shift, color in (
        (X, "census", -0.2, "0.6"),
        (synthetic, "synthetic", 0.2, "#0072B2"),
    ):
        share = np.bincount(rows[:, column], minlength=domain[column]) / len(rows)
        ax.bar(positions + shift, share, width=0.4, color=color, label=label)
    ax.set(title=name, xlabel="state", xticks=[])
axes[0].set_ylabel("share of rows")
axes[-1].legend(frameon=False)

# %%
# The price of privacy
# --------------------
# Mean log-likelihood of test rows against epsilon, for the same tree and several ways
# of learning, one fit each. "auto" loses least. Taking noisy tables for the truth
# ("naive", with a small penalty) fails where the noise is large, since it gives too
# little probability to what it believes absent. Private gradient descent, which needs
# delta > 0, is run for a few steps only and without tuning: a baseline that could be
# improved, at a price in privacy for every try.

tree = [tuple(int(v[1:]) for v in edge) for edge in edges]
methods = {
    "auto": {},
    "cgm": {"method": "cgm"},
    "naive": {"method": "naive", "regularization": 1e-6, "max_iter": 100},
    "psgd": {
        "method": "psgd",
        "delta": 1e-5,
        "psgd_params": {"n_steps": 30, "sampling_rate": 0.02},
    },
}
counted = PrivacyAccountant(epsilon=np.inf, delta=0.01)
rows = X_test[:5000]
curves = {}
for name, options in methods.items():
    # small epsilons take "cgm" many iterations
    epsilons = [0.3, 1.0] if name == "cgm" else [0.1, 0.3, 1.0]
    scores = [
        DPCGMLearner(
            tree, epsilon=epsilon, domain=domain, accountant=counted, **options
        )
        .fit(X)
        .score(rows)
        for epsilon in epsilons
    ]
    curves[name] = epsilons, scores, np.zeros(len(scores))

# %%
# The exact tables, for comparison. This is the only fit here that is not private.

import warnings

from skprivbn.exceptions import PrivacyLeakWarning

with warnings.catch_warnings():
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    exact = DPCGMLearner(tree, method="non_private", domain=domain, max_iter=200).fit(X)

display = PrivacyUtilityDisplay(
    curves,
    baselines={"non-private": exact.score(rows)},
    metric="mean log-likelihood of test rows",
).plot()
display.ax_.set_ylim(bottom=exact.score(rows) - 10)
plt.show()
