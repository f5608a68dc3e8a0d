"""
===============================================
An interaction with age in a linear mixed model
===============================================

Three registries hold patients of 24 wards. A treatment shortens stays, less so for
older patients (an *interaction*), and wards differ. A linear mixed model estimates both
from sums: slopes with intervals, and a *caterpillar plot* of the wards' effects.
"""

# %%
# Three files
# -----------
# Each registry computes the product column itself. Age is in decades from 60, so that
# the effect of the treatment is that at 60.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skprivbn.mixed_model import PrivateGLMMRegressor
from skprivbn.partition import HorizontalPartition

rng = np.random.default_rng(4)
ward_effects = rng.normal(scale=1.0, size=24)


def registry(n_rows):
    ward = rng.integers(24, size=n_rows)
    decades = rng.normal(scale=1.2, size=n_rows)
    treated = rng.integers(2, size=n_rows)
    days = 9 + 0.8 * decades - 2.0 * treated + 0.7 * decades * treated
    days += ward_effects[ward] + rng.normal(scale=2.0, size=n_rows)
    frame = pd.DataFrame({"decades": decades, "treated": treated, "days": days})
    frame["treated x decades"] = frame["treated"] * frame["decades"]
    return frame.assign(ward=[f"ward {1 + number:02}" for number in ward])


files = {
    name: registry(n) for name, n in [("north", 500), ("south", 350), ("west", 250)]
}

# %%
# One model
# ---------

rows = HorizontalPartition(files)
model = PrivateGLMMRegressor().fit(rows, y="days", cluster="ward")
model.summary().to_frame(conf_int=True)

# %%
# The treatment saves two days at 60, and less with every decade: an interaction appears
# as lines that converge. Bands are 95 % intervals, from the covariance of the
# estimates. The right panel shows the wards by their effects; crosses are the true
# effects.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.8), layout="constrained")
at = np.linspace(-2.5, 2.5, 50)
effects = [model.intercept_, *model.coef_]
names = ["intercept", *model.feature_names_in_]
for treated, colour, label in [
    (0, "#999999", "not treated"),
    (1, "#0072B2", "treated"),
]:
    column = {"intercept": 1 + 0 * at, "decades": at, "treated": treated + 0 * at}
    column["treated x decades"] = treated * at
    design = np.column_stack([column[name] for name in names])
    mean = design @ effects
    error = 1.96 * np.sqrt(np.sum(design @ model.covariance_ * design, axis=1))
    left.fill_between(
        60 + 10 * at, mean - error, mean + error, color=colour, alpha=0.25
    )
    left.plot(60 + 10 * at, mean, color=colour, label=label)
left.set(xlabel="age in years", ylabel="days", title="Days in hospital, average ward")
left.legend(frameon=False)

order = np.argsort(model.random_effects_)
places = np.arange(len(order))
right.errorbar(
    model.random_effects_[order],
    places,
    xerr=1.96 * model.random_effects_std_[order],
    fmt="o",
    color="#0072B2",
    markersize=4,
    label="estimate, 95 % interval",
)
truth = ward_effects[[int(name[-2:]) - 1 for name in model.clusters_[order]]]
right.plot(truth, places, "x", color="#D55E00", label="true effect")
right.axvline(0, color="#999999", linewidth=1)
right.set(xlabel="days more than the average ward", title="Effects of 24 wards")
right.set_yticks(places, model.clusters_[order], fontsize=7)
right.legend(frameon=False, loc="lower right")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Who learnt what
# ---------------

model.ledger_.who_learns_what()
