"""
=============================================
A genetic association study in three biobanks
=============================================

Three biobanks ask which of twelve variants are associated with a disease. A variant
that is frequent in regions with a high risk is confounded. A logistic mixed model with
an effect per region adjusts for it, the use for which appendix B of the paper on
private EM proposes mixed models. Genotypes are simulated.
"""

# %%
# Cases and controls
# ------------------
# Every person has 0, 1 or 2 copies of each variant. Variants 0 and 1 raise the risk.
# Variant 2 has no effect, but is more frequent in regions with a higher risk. People of
# a region are in all biobanks.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

from skprivbn.mixed_model import PrivateGLMMClassifier

rng = np.random.default_rng(3)
n_people, n_regions, n_variants = 3000, 20, 12
risk = 1.2 * rng.normal(size=n_regions)
region = rng.integers(n_regions, size=n_people)
frequency = np.tile(rng.uniform(0.2, 0.5, size=n_variants), (n_regions, 1))
frequency[:, 2] = 1.0 / (1.0 + np.exp(0.5 - 0.7 * risk))
genotypes = rng.binomial(2, frequency[region]).astype(float)
log_odds = 0.45 * genotypes[:, 0] - 0.4 * genotypes[:, 1] + risk[region] - 0.2
disease = rng.binomial(1, 1.0 / (1.0 + np.exp(-log_odds)))
biobank = rng.choice(["Oslo", "Tartu", "Uppsala"], size=n_people)

# %%
# Without regions
# ---------------
# Logistic regression on the pooled rows, which nobody could fit in practice, with Wald
# tests from its information matrix.

design = np.column_stack([np.ones(n_people), genotypes])
pooled = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-8).fit(
    design, disease
)
p = pooled.predict_proba(design)[:, 1]
information = design.T @ ((p * (1 - p))[:, None] * design)
errors = np.sqrt(np.diag(np.linalg.inv(information)))
without = 2 * norm.sf(np.abs(pooled.coef_[0] / errors))[1:]

# %%
# With an effect per region
# -------------------------
# Biobanks sum log-likelihoods, gradients and Hessians of their people under masks.

model = PrivateGLMMClassifier().fit(genotypes, disease, cluster=region, party=biobank)
summary = model.summary().to_frame()
print(summary.round(3))

# %%
# Significant variants
# --------------------
# The line is at 0.05 over twelve tests. Without regions, variant 2 has by far the
# strongest signal. With them, only the two causal variants are significant.

with_regions = summary["Pr(>|z|)"].to_numpy()[1 : 1 + n_variants].astype(float)
fig, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
places = np.arange(n_variants)
ax.bar(places - 0.2, -np.log10(without), 0.4, label="without regions", color="#D55E00")
ax.bar(places + 0.2, -np.log10(with_regions), 0.4, label="mixed model", color="#0072B2")
level = -np.log10(0.05 / n_variants)
ax.axhline(level, color="0.4", linestyle=":", label="0.05, twelve tests")
ax.set_xticks(places)
ax.set(xlabel="variant", ylabel="$-\\log_{10}$ of the p value")
ax.set_title("Wald tests of twelve variants")
ax.legend()

# %%
# The algorithm of the appendix
# -----------------------------
# Metropolis-Hastings draws the effects of regions, Newton's method estimates those of
# variants. The appendix starts with one standard deviation per region and continues
# with one; here it is one from the start. Draws are random, and the estimates are close
# to those above.

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it stops after a number of iterations
    sampled = PrivateGLMMClassifier(
        "metropolis",
        max_iter=10,
        metropolis_params={"n_draws": 300, "n_burn_in": 100, "random_state": 0},
    ).fit(genotypes, disease, cluster=region, party=biobank)
print("quadrature:", model.coef_[0, :3].round(2))
print("Metropolis:", sampled.coef_[0, :3].round(2))
