"""
========================================================
Voices of six clinics: a drop-in for ``GaussianMixture``
========================================================

Six clinics hold voice recordings of people with and without Parkinson's disease. They
want one mixture model of all recordings, without pooling them.
:class:`~skprivbn.mixture.PPEMGaussianMixture` finds the mixture that scikit-learn's
``GaussianMixture`` finds on the pooled recordings. The figures are those of the paper,
"PPEM using homomorphic encryption".
"""

# %%
# Recordings of six clinics
# -------------------------
# All recordings of a person are at the same clinic. We use only the 22 measures,
# without the diagnosis.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.mixture import GaussianMixture

from skprivbn.datasets import load_parkinsons
from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.inspection import MixtureDisplay
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import FederatedPCA

voices = load_parkinsons()
subjects = np.unique(voices.subject, return_inverse=True)[1]
clinic = np.array([f"clinic {1 + number % 6}" for number in subjects])

# %%
# We project to two principal components, as in the paper. scikit-learn's ``PCA`` would
# need all rows in one place; :class:`~skprivbn.preprocessing.FederatedPCA` needs only
# sums.

X = FederatedPCA(2).fit(voices.data, party=clinic).transform(voices.data)

# %%
# Pooled and encrypted fit
# ------------------------
# Both fits start from the same means, weights and precisions. With ``backend="ckks"``,
# as in the paper, the clinics encrypt their sums in every iteration under a key that
# the coordinator does not have. The default hides them by masks, at less cost.

start = {
    "n_components": 3,
    "means_init": np.random.RandomState(42).uniform(-100, 100, size=(3, 2)),
    "weights_init": np.full(3, 1 / 3),
    "precisions_init": np.tile(np.eye(2) / 50**2, (3, 1, 1)),
}
pooled = GaussianMixture(**start).fit(X)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", PrivacyLeakWarning)
    mixture = PPEMGaussianMixture(**start, backend="ckks").fit(X, party=clinic)

print(f"iterations: {pooled.n_iter_} pooled, {mixture.n_iter_} encrypted")
print(f"largest difference of means: {abs(pooled.means_ - mixture.means_).max():.1e}")

# %%
# The encrypted fit makes the same iterations as the pooled fit. So does the paper's
# "federated EM", which is ``backend="plaintext"``.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
MixtureDisplay.from_estimator(mixture, X, party=clinic, ax=left)
left.set(xlabel="first principal component", ylabel="second principal component")
left.set_title("Mixture of three components")
right.plot(pooled.lower_bounds_, label="pooled", linewidth=6, alpha=0.3)
right.plot(mixture.lower_bounds_, label="encrypted", color="black", marker=".")
right.set(xlabel="iteration", ylabel="lower bound", title="Convergence")
right.legend(frameon=False)
plt.show()

# %%
# Who learnt what
# ---------------
# The ledger counts every message and lists who learnt what.

mixture.ledger_.who_learns_what()

# %%
# Encryption hides the contribution of each clinic. It does not hide the totals from the
# clinics, and many totals about few recordings reveal a lot:

for warning in caught:
    print(warning.message)
