"""
==============================
A pipeline without pooled rows
==============================

Scale, project, cluster: a scikit-learn pipeline of three steps, each of which uses all
rows. Six clinics that may not pool voice recordings replace each step by one that needs
only sums, with the same result.
"""

# %%
# Two pipelines
# -------------
# ``party`` names the clinic of each recording, and reaches every step by scikit-learn's
# metadata routing.

import warnings

import matplotlib.pyplot as plt
import numpy as np
import sklearn
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skprivbn.datasets import load_parkinsons
from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import FederatedPCA, FederatedStandardScaler

# Few recordings and many totals: the fit warns of that, see its page in the guide.
warnings.simplefilter("ignore", PrivacyLeakWarning)
voices = load_parkinsons()
X = voices.data
people = np.unique(voices.subject, return_inverse=True)[1]
clinic = np.array([f"clinic {1 + number % 6}" for number in people])

options = {"n_init": 3, "tol": 1e-7, "max_iter": 500, "random_state": 0}
pooled = make_pipeline(StandardScaler(), PCA(2), GaussianMixture(2, **options)).fit(X)
federated = make_pipeline(
    FederatedStandardScaler(),
    FederatedPCA(2),
    PPEMGaussianMixture(2, backend="masking", **options),
)
with sklearn.config_context(enable_metadata_routing=True):
    federated.fit(X, party=clinic)

# %%
# The same groups
# ---------------
# Recordings in the plane of the first two components, coloured by the mixture's
# component. Components may come with another sign or number; the groups are the same.

Z, Z_federated = pooled[:-1].transform(X), federated[:-1].transform(X)
signs = np.sign((Z * Z_federated).sum(axis=0))
groups, groups_federated = pooled.predict(X), federated.predict(X)
if (groups != groups_federated).mean() > 0.5:
    groups_federated = 1 - groups_federated
print(f"largest difference of coordinates: {abs(Z - signs * Z_federated).max():.1e}")
print(f"recordings in another group: {(groups != groups_federated).sum()} of {len(X)}")

fig, axes = plt.subplots(
    1, 2, figsize=(10, 4.2), sharex=True, sharey=True, layout="constrained"
)
colours = np.array(["#0072B2", "#D55E00"])
for ax, points, found, title in (
    (axes[0], Z, groups, "scikit-learn, rows pooled"),
    (axes[1], signs * Z_federated, groups_federated, "six clinics, sums only"),
):
    for number, marker in enumerate("os"):
        ax.scatter(
            *points[found == number].T,
            c=colours[number],
            marker=marker,
            s=22,
            alpha=0.75,
            edgecolors="none",
            label=f"component {number + 1}",
        )
    ax.set(title=title, xlabel="first principal component")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("second principal component")
axes[1].legend(frameon=False)
plt.show()

# %%
# What was disclosed
# ------------------
# Means, variances and the covariance are results, too: the ledgers of the scaler and of
# the projection list them.

federated[0].ledger_.who_learns_what()

# %%
federated[1].ledger_.who_learns_what()
