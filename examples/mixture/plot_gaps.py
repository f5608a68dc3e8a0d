"""
===========================
Laboratory values with gaps
===========================

Four clinics measure two values of their patients. The second is expensive: the lower
the first, the less often it is ordered, and one clinic has no device for it at all.
What do the groups of patients look like?
:class:`~skprivbn.mixture.PPEMGaussianMixture` takes every row for what is there.
"""

# %%
# Rows, and what is missing
# -------------------------
# Whether the second value is missing depends on the first, which is known: it is
# *missing at random*. That is all that ``missing="em"`` assumes.

import matplotlib.pyplot as plt
import numpy as np

from skprivbn.inspection import MixtureDisplay
from skprivbn.mixture import PPEMGaussianMixture

rng = np.random.default_rng(0)
groups = {"means": [[-3, -3], [0, 1], [3, 5]], "sizes": [500, 600, 400]}
spread = [[1.0, 0.8], [0.8, 1.2]]
X = np.vstack(
    [
        rng.multivariate_normal(mean, spread, size)
        for mean, size in zip(groups["means"], groups["sizes"])
    ]
)
clinic = np.array([f"clinic {i % 4}" for i in range(len(X))])
gaps = X.copy()
ordered = rng.random(len(X)) < 1 / (1 + np.exp(-X[:, 0] - 1.5))
gaps[~ordered | (clinic == "clinic 0"), 1] = np.nan
print(f"{np.isnan(gaps[:, 1]).mean():.0%} of the rows lack the second value")

# %%
# Three ways
# ----------
# Who completes gaps with the mean of a column draws components to it, and makes them
# flat. Who leaves incomplete rows out loses most of the first group, and with it what
# it weighs. All three fits are of rows at four clinics and start from the same mixture.

start = {
    "means_init": groups["means"],
    "weights_init": [1 / 3, 1 / 3, 1 / 3],
    "precisions_init": [np.eye(2)] * 3,
}
complete = ~np.isnan(gaps[:, 1])
filled = np.where(np.isnan(gaps), np.nanmean(gaps, axis=0), gaps)
fits = {
    "mean of the column": PPEMGaussianMixture(3, **start).fit(filled, party=clinic),
    "complete rows only": PPEMGaussianMixture(3, **start).fit(
        gaps[complete], party=clinic[complete]
    ),
    'missing="em"': PPEMGaussianMixture(3, missing="em", **start).fit(
        gaps, party=clinic
    ),
}
truth = PPEMGaussianMixture(3, **start).fit(X, party=clinic)

fig, axes = plt.subplots(
    1, 3, figsize=(11, 3.8), sharex=True, sharey=True, layout="constrained"
)
for ax, (name, mixture) in zip(axes, fits.items()):
    ax.scatter(*X.T, s=3, color="0.85", label="all values")
    MixtureDisplay.from_estimator(mixture, ax=ax)
    ax.scatter(*truth.means_.T, marker="x", color="black", label="without gaps")
    weights = ", ".join(f"{w:.2f}" for w in mixture.weights_)
    ax.set(title=f"{name}\nweights {weights}", xlabel="first value", ylabel="")
axes[0].set_ylabel("second value")
axes[0].legend(loc="lower right")
plt.show()

# %%
# Rows with gaps have a component, too
# ------------------------------------
# What is missing is integrated out. (In the fit, parties also added up how many rows of
# each component have an entry in each column; one with few would have ended it.)

mixture = fits['missing="em"']
for row in ([-3, np.nan], [1.5, np.nan], [1.5, 4.0], [np.nan, np.nan]):
    print(row, mixture.predict_proba([row])[0].round(2))
