"""
===============================================
Grid search over components and CKKS parameters
===============================================

The number of components, the shape of the covariances, the backend and its parameters
are all parameters of the estimator. scikit-learn's grid search varies them; the fit of
each fold is federated.
"""

# %%
# Rows of four parties
# --------------------

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn import set_config
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV

from skprivbn.crypto import CKKSBackend
from skprivbn.mixture import PPEMGaussianMixture

set_config(enable_metadata_routing=True)  # hands `party` to every fit
warnings.simplefilter("ignore")

X, _ = make_blobs(300, centers=3, cluster_std=1.3, random_state=1)
party = np.array(["north", "east", "south", "west"])[np.arange(300) % 4]

# %%
# Number of components and shape of covariances
# ---------------------------------------------
# The criterion is the mean log-likelihood of held-out rows.

search = GridSearchCV(
    PPEMGaussianMixture(random_state=0, backend="masking"),
    {"n_components": [1, 2, 3, 4, 5], "covariance_type": ["spherical", "full"]},
    cv=2,
).fit(X, party=party)
print(search.best_params_)

# %%
# CKKS parameters
# ---------------
# A preset fixes the ring degree and the bits of CKKS ciphertexts: ``"fast"`` has degree
# 4,096 and 40 fractional bits, ``"default"`` 4,096 and 50, ``"large"`` 8,192 and 60.
# Fewer bits are smaller, faster and less precise. The scores show that every preset is
# precise enough; all have 128-bit security.

encryption = GridSearchCV(
    PPEMGaussianMixture(3, covariance_type="spherical", random_state=0),
    {
        "backend": [CKKSBackend()],
        "backend__preset": ["fast", "default", "large"],
    },
    cv=2,
).fit(X, party=party)
presets = [
    parameters["backend__preset"] for parameters in encryption.cv_results_["params"]
]
scores = encryption.cv_results_["mean_test_score"]
sent = []
for preset in presets:
    mixture = clone(encryption.best_estimator_).set_params(backend__preset=preset)
    ledger = mixture.fit(X, party=party).ledger_
    sent.append(ledger.total_bytes / 1e6)

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
for kind, colour in [("spherical", "#0072B2"), ("full", "#D55E00")]:
    chosen = search.cv_results_["param_covariance_type"] == kind
    left.errorbar(
        search.cv_results_["param_n_components"][chosen].astype(int),
        search.cv_results_["mean_test_score"][chosen],
        search.cv_results_["std_test_score"][chosen],
        color=colour,
        marker="o",
        capsize=3,
        label=kind,
    )
left.set(
    title="Number of components",
    xlabel="components",
    ylabel="mean log-likelihood",
    xticks=range(1, 6),
)
left.legend(title="covariances", frameon=False)
labels = {"fast": "4,096; 40 bits", "default": "4,096; 50", "large": "8,192; 60"}
right.barh([f"{name}\n({labels[name]})" for name in presets], sent, color="#999999")
for place, (score, megabytes) in enumerate(zip(scores, sent)):
    right.text(megabytes, place, f" score {score:.9f}", va="center", fontsize="small")
right.set(
    title="CKKS parameters",
    ylabel="preset (ring degree; bits)",
    xlabel="MB sent in a fit",
    xlim=(0, 1.6 * max(sent)),
)
right.invert_yaxis()
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()
set_config(enable_metadata_routing=False)
