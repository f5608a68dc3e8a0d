"""
====================================
Describe the data of several parties
====================================

Three statistical offices hold confidential census records. Before anybody fits a model,
``describe`` summarises all records by secure sums and, with ``epsilon``, under
differential privacy.
"""

# %%
# Three offices
# -------------
# The Adult data in three parts, each with the public categories of its columns.

import warnings

import matplotlib.pyplot as plt
import numpy as np

from skprivbn.datasets import load_adult
from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.partition import HorizontalPartition

frame = load_adult(as_frame=True).frame
frame = frame[["age", "hours_per_week", "education", "marital_status"]]
north, south, west = (frame[i::3].reset_index(drop=True) for i in range(3))
census = HorizontalPartition({"north": north, "south": south, "west": west})

# %%
# An exact description
# --------------------
# The numbers equal those of the pooled records. A table with a count below
# ``min_cell_count`` is suppressed; minimum and maximum are never disclosed.

deciles = np.linspace(0.1, 0.9, 9).round(1)
pair = ("education", "marital_status")
exact = census.describe([pair], quantiles=deciles, min_cell_count=5)
print(exact["age"].mean, frame["age"].mean())
print("told" if exact[pair].counts is not None else "not told", "with small counts")

# %%
# A differentially private description
# ------------------------------------
# With ``epsilon`` the offices add noise to histograms and tables before the sum. Small
# counts need no suppression then, because all counts are noisy.

with warnings.catch_warnings():
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    noisy = census.describe(
        [pair],
        quantiles=deciles,
        epsilon=1.0,
        bounds=([0, 0, 0, 0], [100, 100, 20, 20]),
    )
print(noisy.privacy_spent)

# %%
# Left: nine quantiles of age and of hours worked. Right: the noisy table of marital
# status by education, in per cent of each education.

fig, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4.2), width_ratios=[1, 1.5], layout="constrained"
)
for place, (column, words) in enumerate(
    {"age": "age in years", "hours_per_week": "hours worked a week"}.items()
):
    color = ["#0072B2", "#D55E00"][place]
    told = exact[column].quantiles
    left.plot(deciles, list(told.values()), color=color, lw=5, alpha=0.3)
    told = noisy[column].quantiles
    left.plot(deciles, list(told.values()), ".", color=color, label=words)
left.plot([], [], color="0.6", lw=5, label="exact")
left.plot([], [], ".", color="0.3", label="with epsilon = 1")
left.set(title="Quantiles", xlabel="probability", ylabel="years, or hours")
left.legend(frameon=False, fontsize=9)

table = noisy[pair].to_frame().clip(lower=0)
table = 100 * table.div(table.sum(axis=1), axis=0)
order = ["Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th"]
order += ["HS-grad", "Some-college", "Assoc-voc", "Assoc-acdm", "Bachelors"]
order += ["Masters", "Prof-school", "Doctorate"]
image = right.imshow(table.loc[order], cmap="Blues", aspect="auto", vmin=0)
right.set_xticks(range(table.shape[1]), table.columns, rotation=30, ha="right")
right.set_yticks(range(table.shape[0]), order)
right.set(title="Marital status by education", ylabel="education, ascending")
fig.colorbar(image, ax=right, label="% of people with this education")
plt.show()

# %%
# At sites the call on a handle is the same, ``federation.rows(...).describe(...)``.
# Site files must permit ``"describe"`` (:ref:`data`).
