"""
=======================================================
Attack: rounds of federated learning reveal covariances
=======================================================

In NOTEARS-ADMM parties exchange only model parameters. Still, one message in the clear
reveals the party's covariance matrix exactly. A secure sum prevents this, but the sums
of many rounds can be solved for the covariances of a few parties.
:class:`~skprivbn.structure.FederatedNotearsADMM` therefore warns, and one sum is better
than many.
"""

# %%
# Three parties
# -------------
# Each party has a secret covariance matrix. We run the rounds by hand, with the
# functions of the estimator, and keep the messages: the parties' proposals, and their
# sums.

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
# The party solved a linear system with its covariance. We know the solution and the
# rest of the system, and solve for the covariance. With ``backend="plaintext"`` the
# first message suffices.


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
# With masks nobody sees a proposal. Parties read the sum of the three in each round;
# the coordinator reads only the result, unless it colludes with a party. Fifteen rounds
# are 135 equations for 18 unknowns, and least squares solves them. A reader without a
# covariance of its own cannot assign them to parties.

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
# The single sum of :class:`~skprivbn.structure.FederatedGaussianBayesianNetwork` has 6
# equations for the same 18 unknowns: it reveals only the average covariance.

one_sum = np.broadcast_to(secrets.mean(axis=0), secrets.shape)

# %%
# Reconstructed covariances
# -------------------------

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
axes[0].set_ylabel("reconstructed covariance")
axes[0].legend()
fig.tight_layout()

# %%
# Points on the line are reconstructed exactly. More parties add unknowns and more
# rounds add equations, and rounds are cheap: the estimator warns whenever there are at
# least as many equations as unknowns. Only differential privacy (``epsilon=``) protects
# without counting equations.
