"""
===========================================
A multi-centre trial that nobody may pool
===========================================

Twenty-four centres recruited patients for a trial, and sent them to five hospitals
for treatment. Each hospital keeps its patients' records. Whether a patient recovers
depends on treatment, age and severity, and on the centre: some recruit healthier
patients than others. A logistic mixed model accounts for the centres by random
effects; :class:`~skprivbn.mixed_model.PrivateGLMM` fits it to rows that stay in the
hospitals.
"""

# %%
# The trial
# ---------
# The rows of a centre lie in several hospitals.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skprivbn.mixed_model import PrivateGLMM

rng = np.random.default_rng(7)
n_patients, n_centres = 1500, 24
patients = pd.DataFrame(
    {
        "treated": rng.integers(2, size=n_patients),
        "age (decades)": rng.normal(6.2, 1.1, size=n_patients),
        "severity": rng.gamma(2.0, 1.0, size=n_patients),
    }
)
weights = rng.dirichlet(np.full(n_centres, 2.0))
centre = rng.choice(n_centres, p=weights, size=n_patients)
hospital = rng.choice(["East", "North", "South", "St. Mary", "West"], size=n_patients)
true_effects = 0.9 * rng.normal(size=n_centres)
log_odds = patients @ [0.7, -0.3, -0.4] + 2.2 + true_effects[centre]
recovered = np.where(rng.random(n_patients) < 1 / (1 + np.exp(-log_odds)), "yes", "no")
pd.crosstab(centre, hospital, rownames=["centre"], colnames=["hospital"]).head()

# %%
# The fit
# -------
# Hospitals send log-likelihoods, gradients and Hessians of their rows under masks;
# only sums over all hospitals become known.

model = PrivateGLMM().fit(patients, recovered, cluster=centre, party=hospital)
print(model.summary())

# %%
# On a log-odds scale the treatment is worth more than two decades of age. Its odds
# ratio, with a 95% confidence interval:

estimate = np.exp(model.coef_[0, 0])
low, high = np.exp(model.summary().conf_int()[1])
print(f"odds ratio {estimate:.2f} ({low:.2f} to {high:.2f})")

# %%
# The centres
# -----------
# Estimated effects are drawn towards zero, the more so the fewer patients a centre
# recruited. Dots are estimates with 95% intervals, crosses the effects with which the
# trial was simulated.

order = np.argsort(model.random_effects_)
effects, spread = model.random_effects_[order], model.random_effects_std_[order]
sizes = np.bincount(centre)[order]
height = np.arange(n_centres)

fig, ax = plt.subplots(figsize=(7, 6.5), layout="constrained")
ax.axvline(0, color="0.8", lw=1)
ax.hlines(
    height, effects - 1.96 * spread, effects + 1.96 * spread, color="#0072B2", lw=1.5
)
ax.scatter(effects, height, s=10 + sizes, color="#0072B2", zorder=3, label="estimate")
ax.scatter(
    true_effects[order], height, marker="x", color="#D55E00", zorder=4, label="truth"
)
labels = [f"centre {i + 1} ({n})" for i, n in zip(model.clusters_[order], sizes)]
ax.set_yticks(height, labels)
ax.set(xlabel="effect on the log-odds of recovery", title="Random effects (patients)")
ax.tick_params(axis="y", length=0)
ax.spines[["top", "right", "left"]].set_visible(False)
ax.legend(loc="lower right", frameon=False)
plt.show()

# %%
# Who learnt what
# ---------------
# The ledger lists every message. Under masks, the coordinator sees sums over all
# hospitals and nothing of a single one.

model.ledger_.who_learns_what()
