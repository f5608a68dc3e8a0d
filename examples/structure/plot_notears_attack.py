"""
=============================================
What the rounds of federated learning reveal
=============================================

"Only model parameters are exchanged" sounds harmless. In NOTEARS-ADMM it is not: one
message of a party, sent in the clear, gives its covariance matrix away exactly. A
secure sum stops that. The sums of many rounds together can still be solved for the
covariances of a few parties, which is why
:class:`~skprivbn.structure.FederatedNotearsADMM` warns, and why one sum is better than
many.
"""

# %%
# Three parties
# -------------
# Each party has a covariance matrix that it wants to keep to itself. We run the rounds
# by hand, with the functions the estimator uses, and keep what travels: the parties'
# proposals, and their sums.

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import least_squares

from skprivbn.datasets import make_linear_sem
from skprivbn.structure.admm._steps import ConsensusProblem, LinearProblem

X, _ = make_linear_sem(60, 3, random_state=3)
blocks = [X[k::3] - X[k::3].mean(axis=0) for k in range(3)]
secrets = np.array([rows.T @ rows / len(X) for rows in blocks])

parties = [LinearProblem(S) for S in secrets]
common = ConsensusProblem(n_variables=3, lambda1=0.02)
consensus, duals = [np.zeros(9)], [np.zeros(9) for _ in parties]
alpha, rho1, rho2 = 0.0, 0.001, 0.05
first_messages, sums, rhos = [], [], []
for _ in range(15):
    local = [p.solve(consensus[-1], dual, rho2) for p, dual in zip(parties, duals)]
    proposals = np.array([B + dual / rho2 for B, dual in zip(local, duals)])
    first_messages = first_messages or list(proposals)
    sums.append(proposals.sum(axis=0))
    rhos.append(rho2)
    W, cycles = common.step(
        proposals.mean(axis=0), consensus[-1], weight=3 * rho2, alpha=alpha, rho1=rho1
    )
    duals = [dual + rho2 * (B - W) for B, dual in zip(local, duals)]
    alpha += rho1 * cycles
    rho1, rho2 = 1.75 * rho1, 1.3 * rho2
    consensus.append(W)

# %%
# One message in the clear
# ------------------------
# The party solved a linear system with its covariance; knowing the solution and
# everything else in the system, so can we. With ``backend="plaintext"`` the first
# message is all it takes.


def covariance_from_message(B, rho):
    """Solve ``(S + rho I) B = S``, the party's first step from zero, for S."""
    return np.linalg.solve((B - np.eye(3)).T, -rho * B.T).T


from_message = np.array(
    [
        covariance_from_message(message.reshape(3, 3), rhos[0])
        for message in first_messages
    ]
)
print("largest error:", np.abs(from_message - secrets).max())

# %%
# Only sums
# ---------
# Under masking nobody sees a proposal. Parties read the sum of the three, round after
# round; the coordinator reads the result only, unless a party tells it the sums.
# Fifteen rounds are 135 equations for 18 unknowns, and least squares solves them. Which
# covariance is whose remains open to all who hold none of them.

upper = np.triu_indices(3)


def covariances(x):
    """Three covariance matrices of 18 numbers: squares of triangles."""
    F = np.zeros((3, 3, 3))
    F[:, upper[0], upper[1]] = x.reshape(3, 6)
    return np.swapaxes(F, 1, 2) @ F


def misfit(x):
    """What these covariances would have added in all rounds, less what was added."""
    S, dual, rest = covariances(x), np.zeros((3, 3, 3)), []
    known = np.reshape(consensus, (-1, 3, 3))
    for before, after, rho, total in zip(known, known[1:], rhos, sums):
        B = np.linalg.solve(S + rho * np.eye(3), rho * before - dual + S)
        rest.append((B + dual / rho).sum(axis=0).ravel() - total)
        dual = dual + rho * (B - after)
    return np.concatenate(rest)


rng, exactly = np.random.default_rng(0), {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}
starts = (rng.standard_normal(18) for _ in range(10))
tries = (least_squares(misfit, x, max_nfev=300, **exactly) for x in starts)
solved = next(one for one in tries if np.abs(one.fun).max() < 1e-9)
from_sums = covariances(solved.x)
order = [np.abs(from_sums - S).max(axis=(1, 2)).argmin() for S in secrets]
from_sums = from_sums[order]
print("largest error:", np.abs(from_sums - secrets).max())

# %%
# One sum, as :class:`~skprivbn.structure.FederatedGaussianBayesianNetwork` takes, has 6
# equations for the same 18 unknowns: it tells the average covariance and no more.

one_sum = np.broadcast_to(secrets.mean(axis=0), secrets.shape)

# %%
# The errors, entry by entry
# --------------------------

COLOURS = ("#0072B2", "#E69F00", "#009E73")
fig, axes = plt.subplots(1, 3, figsize=(10, 3.6), sharex=True, sharey=True)
for ax, (title, guess) in zip(
    axes,
    {
        "one message in the clear": from_message,
        "sums of 15 rounds": from_sums,
        "one sum of moments": one_sum,
    }.items(),
):
    ax.axline((0, 0), slope=1, color="0.7", zorder=0)
    for k, (marker, name, color) in enumerate(zip("os^", "ABC", COLOURS)):
        ax.scatter(
            secrets[k][upper],
            guess[k][upper],
            marker=marker,
            color=color,
            s=45,
            alpha=0.8,
            label=f"party {name}",
        )
    ax.set_title(title)
    ax.set_xlabel("true covariance")
axes[0].set_ylabel("what a reader infers")
axes[0].legend()
fig.tight_layout()

# %%
# Points on the line are given away. The number of unknowns grows with the number of
# parties and the number of equations with the number of rounds, so more parties make
# the problem harder, but rounds are cheap: the estimator warns whenever equations are
# not fewer than unknowns. Differentially private noise (``epsilon=``) is the only
# protection that does not depend on counting equations.
