"""
========================================
Hospitals with different treatment rules
========================================

Six hospitals prescribe a drug by their own rules: some to older patients, some to
severely ill ones. The effect of the drug is the same everywhere. A network with the
same mechanisms at all hospitals confuses these rules; ``site_effects="mechanisms"``
finds which mechanisms differ.
"""

# %%
# Simulated hospitals
# -------------------
# The dose depends on age and severity differently at each hospital. Severity and
# response do not.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skprivbn.inspection import DAGDisplay
from skprivbn.metrics import structural_hamming_distance
from skprivbn.partition import HorizontalPartition
from skprivbn.structure import FederatedGaussianBayesianNetwork

names = ["age", "severity", "dose", "response", "days"]
truth = np.zeros((5, 5), dtype=bool)
for cause, effect in [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (3, 4)]:
    truth[cause, effect] = True

rng, rows, rules = np.random.default_rng(0), {}, []
for k in range(6):
    age, *noise = rng.normal(size=(5, 200))
    severity = 0.8 * age + noise[0]
    rules.append(rng.uniform(-2, 2, size=2))
    dose = rules[-1] @ [age, severity] + rng.uniform(0.5, 1.5) * noise[1]
    response = dose - 0.9 * severity + noise[2]
    days = 12 - 4 * response + 3 * noise[3]
    # in years, points, milligrams
    columns = [60 + 15 * age, 3 + severity, 20 + 8 * dose, 50 + 10 * response, days]
    rows[f"hospital {k + 1}"] = pd.DataFrame(dict(zip(names, columns)))
partition = HorizontalPartition(rows)

# %%
# One mechanism for all, or one per hospital
# ------------------------------------------
# Hospitals sum moments, and then the log-likelihoods of their own regressions, which
# only they read. The mechanisms of age and severity are the same everywhere, so the
# data do not identify their direction: that edge may be reversed.

plain = FederatedGaussianBayesianNetwork().fit(partition)
model = FederatedGaussianBayesianNetwork(site_effects="mechanisms").fit(partition)
for title, fitted in (("one mechanism", plain), ("mechanisms by site", model)):
    distance = structural_hamming_distance(truth, fitted.adjacency_matrix_)
    kilobytes = fitted.ledger_.total_bytes / 1e3
    print(f"{title}: {distance} wrong edges, {fitted.n_iter_} sums, {kilobytes:.0f} kB")

# %%
# Which mechanisms differ
# -----------------------
# A test for each variable compares one mechanism for all hospitals with one per
# hospital. Only the dose differs; the last panel shows its true rules, which no
# hospital discloses.

fig, axes = plt.subplots(
    2, 2, figsize=(9, 8.5), layout="constrained", height_ratios=[1.3, 1]
)
axes = axes.ravel()
for ax, title, fitted in (
    (axes[0], "One mechanism for all", plain),
    (axes[1], "Mechanisms may differ", model),
):
    DAGDisplay.from_estimator(fitted, truth=truth, ax=ax)
    ax.set_title(title)
strength = np.minimum(-np.log10(np.maximum(model.change_pvalues_, 1e-40)), 40)
colours = np.where(model.changing_mechanisms_, "#D55E00", "#333333")
axes[2].barh(names, strength, color=colours)
axes[2].invert_yaxis()
axes[2].set(
    xlabel="$-\\log_{10}$ p (up to 40)",
    title="Test of equal mechanisms",
    xlim=(0, 42),
)
axes[3].axhline(0, color="#BBBBBB", linewidth=1)
axes[3].axvline(0, color="#BBBBBB", linewidth=1)
axes[3].scatter(*np.transpose(rules), color="#D55E00")
for k, (x, y) in enumerate(rules):
    axes[3].annotate(
        str(k + 1), (x, y), xytext=(5, 4), textcoords="offset points", fontsize=9
    )
axes[3].margins(0.15)
axes[3].set(
    xlabel="effect of age on dose",
    ylabel="effect of severity on dose",
    title="True rules of the hospitals",
)
plt.show()

# %%
# Who learnt what
# ---------------

print(model.ledger_.who_learns_what())
