"""
========================================
A network from the rows of ten hospitals
========================================

Ten hospitals record the same eight variables about different patients. None has enough
patients to learn the network alone.
:class:`~skprivbn.structure.FederatedBayesianNetwork` searches for the graph with tables
that the hospitals sum without showing their own.
"""

# %%
# Alone and together
# ------------------
# 4,000 patients are drawn from the Asia network. Every hospital first learns alone.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skprivbn.datasets import load_adult, load_asia
from skprivbn.inspection import DAGDisplay
from skprivbn.metrics import structural_hamming_distance
from skprivbn.structure import FederatedBayesianNetwork

asia = load_asia()
states = {node: list(labels) for node, labels in asia.states.items()}
X = pd.DataFrame(asia.sample(4000, random_state=0), columns=asia.nodes)
hospital = np.array([f"hospital {i % 10}" for i in range(len(X))])

together = FederatedBayesianNetwork("ges", states=states).fit(X, party=hospital)
alone = [
    FederatedBayesianNetwork("ges", states=states).fit(X[hospital == name])
    for name in np.unique(hospital)
]

fig, axes = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
for ax, model, title in zip(axes, [alone[0], together], ["hospital 0", "all ten"]):
    DAGDisplay.from_estimator(model, truth=asia, ax=ax)
    distance = structural_hamming_distance(asia.to_cpdag(), model.cpdag_)
    ax.set_title(f"{title}: distance {distance}")
plt.show()

# %%
# This equals the network of the pooled rows, to the last digit.

pooled = FederatedBayesianNetwork("ges", states=states).fit(X)
print("the same network:", together.network_ == pooled.network_)
print(len(together.tables_), "tables became known, such as", together.tables_[-1])

# %%
# Missing values
# --------------
# Hospitals do not ask most smokers about bronchitis. Tables of complete rows then
# underestimate it. Expectation maximisation uses the other answers of these patients.

rng = np.random.default_rng(0)
shares = []
for part in np.linspace(0, 0.9, 7):
    gaps = X.copy()
    gaps.loc[X["smoke"].eq("yes") & (rng.random(len(X)) < part), "bronc"] = None
    row = {"share of smokers without an answer": part}
    for missing in ("skip", "em"):
        model = FederatedBayesianNetwork(
            structure=dict(asia.parents) | {"smoke": ["bronc"], "bronc": []},
            states=states,
            missing=missing,
        ).fit(gaps, party=hospital)
        row[missing] = model.network_.query("bronc")[states["bronc"].index("yes")]
    shares.append(row)

shares = pd.DataFrame(shares).set_index("share of smokers without an answer")
fig, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
shares.plot(marker="o", ax=ax, color=["#D55E00", "#0072B2"])
ax.axhline(
    X["bronc"].eq("yes").mean(), color="black", linestyle=":", label="complete data"
)
ax.set(ylabel="estimated share of bronchitis", ylim=(0.2, 0.6))
ax.set_title("Missing answers of smokers")
ax.legend(title="missing=")
plt.show()

# %%
# Mixed columns
# -------------
# In the census, age and weekly hours of work are numbers. Their means and variances
# depend on categories, and they depend linearly on each other.

adult = load_adult(as_frame=True).frame
columns = ["age", "hours_per_week", "education", "marital_status", "sex", "income"]
adult = adult[columns].head(10_000)
later = ["education", "marital_status", "hours_per_week", "income"]
census = FederatedBayesianNetwork(
    states={"age": "continuous", "hours_per_week": "continuous"},
    search_params={"tiers": [["age", "sex"], later]},
    max_parents=2,
).fit(adult, party=np.arange(len(adult)) % 10)

fig, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
DAGDisplay.from_estimator(census, ax=ax)
ax.set_title("Census: categories and numbers")
plt.show()

# %%
# Missing entries of a row are inferred exactly, categories and numbers alike.

for hours in (20, 40, 60):
    evidence = {"hours_per_week": hours, "sex": "Female"}
    income = dict(
        zip(
            census.network_.states["income"],
            census.network_.query("income", evidence).round(2).tolist(),
        )
    )
    print(f"{hours} hours a week:", income)
