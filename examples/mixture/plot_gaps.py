"""
=========================================
A mixture of incomplete laboratory values
=========================================

Four clinics measure two values of their patients. The second is expensive: the lower
the first, the less often it is measured, and one clinic never measures it.
:class:`~skprivbn.mixture.PPEMGaussianMixture` finds the groups of patients from all
rows, complete or not.
"""

# %%
# Rows and missing values
# -----------------------
# The second value is *missing at random*: its missingness depends on the first value,
# which is observed. ``missing="em"`` assumes no more.

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
# Three methods
# -------------
# Imputing the mean of the column draws components towards it and flattens them.
# Dropping incomplete rows loses most of the first group and biases its weight. All
# three fits use the rows of four clinics and start from the same mixture.

start = {
    "means_init": groups["means"],
    "weights_init": [1 / 3, 1 / 3, 1 / 3],
    "precisions_init": [np.eye(2)] * 3,
}
complete = ~np.isnan(gaps[:, 1])
filled = np.where(np.isnan(gaps), np.nanmean(gaps, axis=0), gaps)
fits = {
    "imputed mean": PPEMGaussianMixture(3, **start).fit(filled, party=clinic),
    "complete rows": PPEMGaussianMixture(3, **start).fit(
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
    ax.scatter(*truth.means_.T, marker="x", color="black", label="mean, no gaps")
    weights = ", ".join(f"{w:.2f}" for w in mixture.weights_)
    ax.set(title=f"{name}\nweights {weights}", xlabel="first value", ylabel="")
axes[0].set_ylabel("second value")
axes[0].scatter([], [], marker="+", color="black", label="estimated mean")
axes[0].legend(loc="lower right")
plt.show()

# %%
# Predictions for incomplete rows
# -------------------------------
# ``predict_proba`` integrates over missing entries. (During the fit, parties also count
# the entries of each component in each column; too few would end the fit.)

mixture = fits['missing="em"']
for row in ([-3, np.nan], [1.5, np.nan], [1.5, 4.0], [np.nan, np.nan]):
    print(row, mixture.predict_proba([row])[0].round(2))
