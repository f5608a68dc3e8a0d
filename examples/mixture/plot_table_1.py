"""
===================================================
Table 1: the same mixture for any number of parties
===================================================

The paper on PPEM fits mixtures to random data with 2, 6 and 10 clients and always gets
the same log-likelihood after the same number of iterations. We repeat some rows of its
Table 1 with its update rule, start and stopping rule.
"""

# %%
# The paper's experiment
# ----------------------
# The paper's covariance update takes moments about the means *before* the update
# (``covariance_update="paper"``); the default takes them about the new means, which
# maximises the likelihood. The paper's tolerance applies to the total log-likelihood,
# scikit-learn's and ours to its mean over the rows.

import warnings

import matplotlib.pyplot as plt
import numpy as np

from skprivbn.inspection import MixtureDisplay
from skprivbn.mixture import PPEMGaussianMixture

warnings.simplefilter("ignore")  # two parties hide nothing from each other


def make_rows(n, k):
    R = np.random.RandomState(42)
    return np.vstack([R.randn(n // k, 2) + 5 * i for i in range(k)])


def fit(n, k, n_parties, backend, covariance_update="paper"):
    X = make_rows(n, k)
    mixture = PPEMGaussianMixture(
        k,
        init_params="paper",
        random_state=42,
        covariance_update=covariance_update,
        tol=1e-5 / len(X),
        max_iter=501,
        reg_covar=0,
        backend=backend,
    )
    return mixture.fit(X, party=np.arange(len(X)) % n_parties)


# %%
# The paper evaluates the log-likelihood after the update, so its number of iterations
# is one less than ``n_iter_``.

rows = [
    (200, 2, 2, "ckks"),
    (200, 2, 6, "masking"),
    (1100, 3, 2, "masking"),
    (1100, 3, 6, "masking"),
    (2000, 2, 2, "masking"),
]
print(f"{'identifier':14}{'backend':10}{'log-likelihood':>16}{'iterations':>12}")
for n, k, n_parties, backend in rows:
    mixture = fit(n, k, n_parties, backend)
    total = mixture.lower_bound_ * (n // k * k)
    print(
        f"{f'n{n}_k{k}_c{n_parties}':14}{backend:10}{total:16.3f}"
        f"{mixture.n_iter_ - 1:12d}"
    )

# %%
# The two update rules
# --------------------
# Both update rules have the same limit, because the means no longer move there. On the
# way the paper's covariances are a little larger, and the iterations differ.

fig, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
fits = {update: fit(1100, 3, 3, "masking", update) for update in ("exact", "paper")}
best = max(mixture.lower_bound_ for mixture in fits.values())
for (update, mixture), colour in zip(fits.items(), ["#0072B2", "#D55E00"]):
    gap = best - np.array(mixture.lower_bounds_[:-1])
    axes[0].plot(gap, color=colour, label=f"{update}: {mixture.n_iter_} iterations")
axes[0].set(
    xlabel="iteration", ylabel="log-likelihood below the best, per row", yscale="log"
)
axes[0].legend(frameon=False)
axes[0].spines[["top", "right"]].set_visible(False)
X = make_rows(1100, 3)
party = np.arange(len(X)) % 3
display = MixtureDisplay.from_estimator(fits["paper"], X, party=party, ax=axes[1])
for rows in display.scatters_.values():
    rows.set(sizes=[6], alpha=0.5)
axes[0].set_title("Two update rules, one limit")
axes[1].set_title("Rows of three parties")
plt.show()
