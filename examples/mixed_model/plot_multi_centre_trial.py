"""
======================================
A multi-centre trial at five hospitals
======================================

Twenty-four centres recruited patients for a trial, and sent them to five hospitals for
treatment. Each hospital keeps its patients' records. Recovery depends on treatment, age
and severity, and on the centre: some recruit healthier patients, and in some the
treatment works better. This example goes from the files to the table in the paper; rows
stay in the hospitals.
"""

# %%
# The trial
# ---------
# The rows of a centre are at several hospitals. Each hospital has a file with one row
# per patient: the centre, recovery, and days in hospital over some months of
# observation.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skprivbn.inspection import RandomEffectsDisplay, ResidualsDisplay
from skprivbn.mixed_model import (
    PrivateGLMMClassifier,
    PrivateGLMMRegressor,
    likelihood_ratio_test,
)
from skprivbn.partition import HorizontalPartition

rng = np.random.default_rng(7)
n_patients, n_centres = 1500, 24
patients = pd.DataFrame(
    {
        "treated": rng.integers(2, size=n_patients),
        "age (decades)": rng.normal(6.2, 1.1, size=n_patients),
        "severity": rng.gamma(2.0, 1.0, size=n_patients),
    }
)
features = list(patients)
weights = rng.dirichlet(np.full(n_centres, 2.0))
centre = rng.choice(n_centres, p=weights, size=n_patients)
hospital = rng.choice(["East", "North", "South", "St. Mary", "West"], size=n_patients)
effects = 0.9 * rng.normal(size=n_centres)
log_odds = patients @ [0.7, -0.3, -0.4] + 2.2 + effects[centre]
recovered = rng.random(n_patients) < 1 / (1 + np.exp(-log_odds))
months = rng.uniform(0.5, 2.0, size=n_patients)
benefit = 0.35 * rng.normal(size=n_centres)[centre]
rate = 1.0 + 0.3 * effects[centre] + (benefit - 0.3) * patients["treated"]
patients["centre"] = centre
patients["recovered"] = np.where(recovered, "yes", "no")
patients["days"], patients["months"] = rng.poisson(months * np.exp(rate)), months

folder = Path(tempfile.mkdtemp())
for name, mine in patients.groupby(hospital):
    mine.to_csv(folder / f"{name}.csv", index=False)

# %%
# Reading the data
# ----------------
# Every hospital reads its own file. Here all of them run in one process; between sites,
# ``fit`` takes a handle on their rows and names of columns (:ref:`flare`).

files = {path.stem: pd.read_csv(path) for path in sorted(folder.glob("*.csv"))}
print(files["North"].head().round(2).to_string(index=False))


def rows_with(**columns):
    """Return the hospitals' rows, with some columns in their parts."""
    beside = {
        part: {name: table[column] for name, table in files.items()}
        for part, column in columns.items()
    }
    return HorizontalPartition(
        {name: table[features] for name, table in files.items()}, **beside
    )


# %%
# Recovery
# --------
# Hospitals sum log-likelihoods, gradients and Hessians of their rows under masks. Small
# centres that several hospitals share are pooled, because sums over a handful of
# patients would reveal them.

model = PrivateGLMMClassifier(small_clusters="pool")
model.fit(rows_with(y="recovered", cluster="centre"))
print(model.summary())

# %%
# On the log-odds scale the treatment has a larger effect than two decades of age. Its
# odds ratio, with a 95% confidence interval:

estimate = np.exp(model.coef_[0, 0])
low, high = model.summary().conf_int(exponentiate=True)["treated"]
print(f"odds ratio {estimate:.2f} ({low:.2f} to {high:.2f})")

# %%
# The centres
# -----------
# Estimated effects are shrunk towards zero, more for centres with fewer patients.

display = RandomEffectsDisplay.from_estimator(model)
display.ax_.set(ylabel="centre", title="Effects of centres on the log-odds")
plt.show()

# %%
# Days in hospital
# ----------------
# Does the effect of the treatment differ between centres? Days in hospital are counts,
# with an observation time per patient. We compare models with and without a random
# slope of the treatment.

for table in files.values():
    table["exposure"] = np.log(table["months"])
observed = rows_with(y="days", cluster="centre", offset="exposure")
laplace = {"n_nodes": 1}
same = PrivateGLMMRegressor("poisson", quadrature_params=laplace, small_clusters="pool")
same.fit(observed)
varying = PrivateGLMMRegressor("poisson", slopes=["treated"], small_clusters="pool")
varying.fit(observed)
print(likelihood_ratio_test(same, varying))
print(varying.variance_components())

# %%
# The table in the paper
# ----------------------
# Rate ratios with 95% confidence intervals and p values; the frame's own ``to_latex()``
# makes a table of them.

varying.summary().to_frame(exponentiate=True, conf_int=True, digits=2)

# %%
# Every hospital inspects the residuals of its own patients.

own = files["North"]
display = ResidualsDisplay.from_estimator(
    varying,
    own[features],
    own["days"],
    cluster=own["centre"],
    offset=own["exposure"],
)
display.ax_.set_title("Residuals of one hospital")
plt.show()

# %%
# Who learnt what
# ---------------
# The ledger lists who learnt what. Parties read sums over all hospitals, never those of
# a single one.

varying.ledger_.who_learns_what()
