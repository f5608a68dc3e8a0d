"""
===================================================
Attack: a server reads rows from plain federated EM
===================================================

Federated EM keeps rows at the clients and sends only sums. Section 3.2 of the paper
behind :class:`~skprivbn.mixture.PPEMGaussianMixture` shows that this is no protection:
the server reconstructs the rows from the sums. We play the server.
"""

# %%
# A client with one row
# ---------------------
# In every iteration a client sends, for each component, the sum of its
# responsibilities, of its weighted rows, and of their weighted products. The current
# mixture is known to all.

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import least_squares
from scipy.stats import multivariate_normal

rng = np.random.default_rng(0)
means = np.array([[0.0, 0.0], [4.0, 1.0], [1.0, 4.0]])
covariances = np.array([np.eye(2), 2 * np.eye(2), [[1.5, 0.5], [0.5, 1.0]]])


def message(rows):
    density = np.column_stack(
        [multivariate_normal(m, C).pdf(rows) for m, C in zip(means, covariances)]
    )
    shares = density / density.sum(axis=1, keepdims=True)
    products = rows[:, [0, 0, 1]] * rows[:, [0, 1, 1]]
    return np.concatenate(
        [shares.sum(axis=0), *(shares.T @ rows), *(shares.T @ products)]
    )


# %%
# The client sends a weight, and the weight times the row. The server divides. This is
# equation (7) of the paper.

clients = [rng.normal(means[i % 3], 1.0, size=(1, 2)) for i in range(60)]
read = []
for rows in clients:
    sums = message(rows)
    weights, weighted = sums[:3], sums[3:9].reshape(3, 2)
    j = weights.argmax()
    read.append(weighted[j] / weights[j])
truth = np.vstack(clients)
print(f"largest error of 60 rows: {np.abs(np.array(read) - truth).max():.1e}")

# %%
# Clients with several rows
# -------------------------
# With m rows there are 2 m unknowns, and one message has 18 equations. A server that
# tries a few starts finds rows that explain the message; if there are few, they are the
# client's own.


def rows_behind(sums, m, n_starts=4):
    def misfit(flat):
        return message(flat.reshape(m, 2)) - sums

    centre = sums[3:9].reshape(3, 2).sum(axis=0) / m
    fits = [
        least_squares(misfit, (centre + rng.normal(0, 2, size=(m, 2))).ravel())
        for _ in range(n_starts)
    ]
    return min(fits, key=lambda fit: fit.cost).x.reshape(m, 2)


fig, axes = plt.subplots(
    1, 3, figsize=(10, 3.6), sharex=True, sharey=True, layout="constrained"
)
for ax, m in zip(axes, (1, 4, 30)):
    rows = rng.normal(means[rng.integers(3, size=m)], 1.0)
    guess = rows_behind(message(rows), m)
    ax.scatter(*rows.T, s=90, facecolor="none", edgecolor="#0072B2", label="rows")
    ax.scatter(*guess.T, s=35, marker="x", color="#D55E00", label="reconstructed")
    ax.set(title=f"a client with {m} row{'s' * (m > 1)}", xlabel="first feature")
    ax.spines[["top", "right"]].set_visible(False)
    nearest = np.sqrt(((rows[:, None] - guess) ** 2).sum(axis=2)).min(axis=1)
    print(f"{m:2d} rows: {(nearest < 1e-3).sum()} read exactly")
axes[0].set_ylabel("second feature")
axes[0].legend(frameon=False, loc="upper left")
plt.show()

# %%
# For many rows one message does not suffice, but EM sends one in every iteration.
# :class:`~skprivbn.mixture.PPEMGaussianMixture` hides the sums of each party. The
# ledger lists the totals over all parties, which remain readable:

from skprivbn.datasets import make_partitioned_blobs
from skprivbn.mixture import PPEMGaussianMixture

X, _, hospital = make_partitioned_blobs(300, n_parties=3, random_state=0)
mixture = PPEMGaussianMixture(3, random_state=0).fit(X, party=hospital)
print(mixture.ledger_.who_learns_what())
