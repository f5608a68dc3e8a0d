"""
===========================================
A multi-centre trial that nobody may pool
===========================================

Twenty-four centres recruited patients for a trial, and sent them to five hospitals
for treatment. Each hospital keeps its patients' records. Whether a patient recovers
depends on treatment, age and severity, and on the centre: some recruit healthier
patients than others, and in some the treatment works better. From reading the data to
the table in the paper, with rows that stay in the hospitals.
"""

# %%
# The trial
# ---------
# The rows of a centre lie in several hospitals.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skprivbn.inspection import RandomEffectsDisplay, ResidualsDisplay
from skprivbn.mixed_model import (
    PrivateGLMMClassifier,
    PrivateGLMMRegressor,
    likelihood_ratio_test,
)

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
effects = 0.9 * rng.normal(size=n_centres)
log_odds = patients @ [0.7, -0.3, -0.4] + 2.2 + effects[centre]
recovered = np.where(rng.random(n_patients) < 1 / (1 + np.exp(-log_odds)), "yes", "no")
pd.crosstab(centre, hospital, rownames=["centre"], colnames=["hospital"]).head()

# %%
# Recovery
# --------
# Hospitals send log-likelihoods, gradients and Hessians of their rows under masks;
# only sums over all hospitals become known. Small centres that several hospitals
# share are pooled: sums over a handful of patients would tell about them.

options = {"small_clusters": "pool"}
rows = {"cluster": centre, "party": hospital}
model = PrivateGLMMClassifier(**options).fit(patients, recovered, **rows)
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
# recruited.

RandomEffectsDisplay.from_estimator(model)
plt.show()

# %%
# Days in hospital
# ----------------
# Does the treatment work differently in different centres? Days in hospital are
# counts, and each patient was observed for a time of her own. A model with a random
# slope of the treatment is compared with one without.

exposure = rng.uniform(0.5, 2.0, size=n_patients)
benefit = 0.35 * rng.normal(size=n_centres)[centre]
rate = 1.0 + 0.3 * effects[centre] + (benefit - 0.3) * patients["treated"]
days = rng.poisson(exposure * np.exp(rate))
observed = rows | {"offset": np.log(exposure)}

same = PrivateGLMMRegressor("poisson", n_quadrature=1, **options)
same.fit(patients, days, **observed)
varying = PrivateGLMMRegressor("poisson", slopes=["treated"], **options)
varying.fit(patients, days, **observed)
print(likelihood_ratio_test(same, varying))
print(varying.variance_components())

# %%
# The table in the paper
# ----------------------
# Rate ratios, with 95% confidence intervals and p values.

summary = varying.summary()
table = summary.to_frame()
low, high = np.exp(summary.conf_int()).T
pd.DataFrame(
    {
        "rate ratio": np.exp(table["Estimate"]).round(2),
        "95% interval": [f"{a:.2f} to {b:.2f}" for a, b in zip(low, high)],
        "p": table["Pr(>|z|)"].map("{:.3f}".format),
    }
)

# %%
# Every hospital looks at the residuals of its own patients.

here = hospital == "North"
ResidualsDisplay.from_estimator(
    varying,
    patients[here],
    days[here],
    cluster=centre[here],
    offset=np.log(exposure[here]),
)
plt.show()

# %%
# Who learnt what
# ---------------
# The ledger lists every message. Under masks, the coordinator sees sums over all
# hospitals and nothing of a single one.

varying.ledger_.who_learns_what()
