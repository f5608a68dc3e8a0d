"""
=============================================
The accuracy of a private model of the census
=============================================

The Adult census table has fifteen discrete columns.
:class:`~skprivbn.graphical_model.DPCGMLearner` releases some of its contingency tables
with noise and learns a Markov random field from them. How much accuracy does privacy
cost, and which estimator loses least?
"""

# %%
# A privately chosen tree
# -----------------------
# The states of all columns are public: they come with the description of the data set.
# ``cliques="mst"`` spends a third of the budget on the choice of pairs of columns. An
# accountant adds up the cost.

import matplotlib.pyplot as plt
import numpy as np

from skprivbn.datasets import load_adult
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.inspection import PrivacyUtilityDisplay
from skprivbn.privacy import PrivacyAccountant

train, test = (load_adult(subset=part, discretized=True) for part in ("train", "test"))
X, X_test = (np.column_stack([part.data, part.target]) for part in (train, test))
names = list(train.categories)
states = [len(labels) for labels in train.categories.values()]

accountant = PrivacyAccountant(epsilon=np.inf)
learner = DPCGMLearner("mst", epsilon=1.0, states=states, accountant=accountant).fit(X)
edges = [clique for clique in learner.cliques_ if len(clique) == 2]
for a, b in edges:
    print(f"{names[int(a[1:])]:>15} - {names[int(b[1:])]}")
print(f"records: about {learner.n_samples_:.0f}; spent: {learner.privacy_spent_}")

# %%
# Synthetic rows
# --------------
# Sampling costs no further privacy. One-way marginals of synthetic rows are close to
# those of the census.

synthetic = learner.sample(len(X), random_state=0)
shown = ["age", "education", "marital_status", "income"]
fig, axes = plt.subplots(1, 4, figsize=(12, 4), layout="constrained")
for ax, name in zip(axes, shown):
    column = names.index(name)
    positions = np.arange(states[column])
    for rows, label, shift, color in (
        (X, "census", -0.2, "0.6"),
        (synthetic, "synthetic", 0.2, "#0072B2"),
    ):
        share = np.bincount(rows[:, column], minlength=states[column]) / len(rows)
        ax.barh(positions + shift, share, height=0.4, color=color, label=label)
    ax.set_yticks(positions, [str(label) for label in train.categories[name]])
    ax.set(title=name.replace("_", " "), xlabel="share of rows")
    ax.invert_yaxis()
    ax.spines[["top", "right"]].set_visible(False)
axes[-1].legend(frameon=False)

# %%
# Log-likelihood by epsilon
# -------------------------
# Mean log-likelihood of held-out rows by epsilon, for the same tree and several
# estimators, on the census and on MSNBC (which of 17 kinds of pages some 97,000
# visitors of a news site saw). The figure shows stored results of
# ``benchmarks/study_holdout_likelihood.py``. "auto", "cgm" and "naive" learn from the
# same noisy tables.
#
# On the census, whose tables are sparse, "auto" loses least when epsilon is small;
# with a large epsilon it hardly matters how one learns from the tables. "naive", with
# its default penalty of 1e-4, is better than "cgm" but for the smallest epsilon, other
# than in the paper. MSNBC has many rows and small tables: all are nearly as good as the
# exact tables everywhere. Private gradient descent comes close, but has a weaker
# guarantee (delta = 1e-6) and settings of its own: every other try would cost privacy
# again.

import json
from pathlib import Path

import skprivbn

# Stored results lie beside the package in a checkout. For a downloaded notebook, the
# guide's page "Figures and tables of the five papers" has the file: put it beside that.
stored = Path("holdout_likelihood.json")
if not stored.exists():
    root = Path(skprivbn.__file__).resolve().parents[1]
    stored = root / "benchmarks" / "results" / stored
rows = json.loads(stored.read_text())["rows"]
fig, axes = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
for ax, name in zip(axes, ("Adult", "MSNBC")):
    own = [row for row in rows if row["dataset"] == name.lower()]
    curves = {}
    for method in ("auto", "cgm", "naive", "psgd"):
        scores = {}
        for row in own:
            if row["method"] == method:
                scores.setdefault(row["epsilon"], []).append(row["score"])
        curves[method] = (
            list(scores),
            [np.mean(found) for found in scores.values()],
            [np.std(found) for found in scores.values()],
        )
    (exact,) = (row["score"] for row in own if row["method"] == "non-private")
    PrivacyUtilityDisplay(
        curves,
        baselines={"non-private": exact},
        metric="log-likelihood of a holdout row",
    ).plot(ax=ax)
    ax.set_title(name)
axes[0].get_legend().remove()
plt.show()
