"""
=================================================
Accuracy of NOTEARS-ADMM by variables and parties
=================================================

Figures 1, 2, 4 and 5 of Ng and Zhang (2022), with the methods of this package: networks
with as many edges as variables, rows spread evenly over parties. The figures show
stored results of ``benchmarks/study_notears_figures.py``. (Figure 3 is in
:ref:`sphx_glr_auto_examples_structure_plot_notears_sachs.py`.)
"""

# %%
# The methods
# -----------
# *Rounds* is :class:`~skprivbn.structure.FederatedNotearsADMM`, with its defaults and
# with the penalties of the authors' runs. *One sum* is
# :class:`~skprivbn.structure.FederatedGaussianBayesianNetwork`. *Voting* keeps edges
# that more than half of the parties find alone. *Best alone* is the best of their
# graphs, chosen with the truth. *Pooled* is one party with all rows. A single party
# runs the same rounds; in the paper it runs NOTEARS, as
# :class:`~skprivbn.structure.VotingStructureLearner` does by default.

import json
from pathlib import Path

import matplotlib.pyplot as plt

import skprivbn

# Stored results lie beside the package in a checkout. For a downloaded notebook, the
# guide's page "Figures and tables of the five papers" has the file: put it beside that.
stored = Path("notears_figures.json")
if not stored.exists():
    root = Path(skprivbn.__file__).resolve().parents[1]
    stored = root / "benchmarks" / "results" / stored
rows = json.loads(stored.read_text())["rows"]

STYLES = {
    "rounds": ("#0072B2", "o-", "rounds"),
    "authors": ("#56B4E9", "s--", "rounds, authors' penalties"),
    "one sum": ("#009E73", "D-", "one sum"),
    "pooled": ("0.4", ":", "pooled rows"),
    "voting": ("#D55E00", "^-", "voting"),
    "best alone": ("#CC79A7", "v-", "best alone"),
}
LABELS = {"d": "variables", "K": "parties"}
MEASURES = {
    "SHD": "structural Hamming distance",
    "TPR": "true positive rate",
    "FDR": "false discovery rate",
}


def draw(axes, x, **wanted):
    """One row of panels: distance, true positives, false discoveries."""
    for ax, measure in zip(axes, MEASURES):
        for method, (color, style, label) in STYLES.items():
            case = {**wanted, "method": method}
            found = [row for row in rows if case.items() <= row.items()]
            if not found:
                continue
            found.sort(key=lambda row: row[x])
            ax.errorbar(
                [row[x] for row in found],
                [row[measure] for row in found],
                [row[f"{measure} error"] or 0.0 for row in found],
                fmt=style,
                color=color,
                markersize=4,
                label=label,
            )
        ax.set_xscale("log", base=2 if x == "K" else 10)
        ticks = sorted({row[x] for row in found})
        ax.set_xticks(ticks, [str(tick) for tick in ticks])
        ax.minorticks_off()
        ax.set(xlabel=LABELS[x], ylabel=MEASURES[measure])
    handles = axes[0].get_legend_handles_labels()
    axes[0].figure.legend(*handles, loc="outside lower center", ncols=6)
    print("graphs:", min(row["graphs"] for row in found))


# %%
# More variables
# --------------
# Figure 1: ten parties, three rows per variable in total.

fig, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
draw(axes, "d", figure=1)
fig.suptitle("Figure 1: 10 parties, 3 rows per variable")

# %%
# More parties
# ------------
# Figures 5 and 2: 256 rows, and 10, 20 or 50 variables. With more parties each has
# fewer rows. Votes fail; one sum gives the same result for any number of parties.

fig = plt.figure(figsize=(10, 10.5), layout="constrained")
for part, (figure, d) in zip(fig.subfigures(3), ((5, 10), (5, 20), (2, 50))):
    draw(part.subplots(1, 3), "K", figure=figure, d=d)
    part.suptitle(f"Figure {figure}: {d} variables, 256 rows")

# %%
# Nonlinear mechanisms
# --------------------
# Figure 4: rounds, votes and pooled rows fit a small neural network to every variable;
# one sum uses five sigmoids of each. As in the paper, 50 variables and 512 rows; thirty
# graphs with two parties, fourteen with more (the paper: thirty). With few parties the
# authors' penalties find more of the true edges and many more false ones.

fig, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
draw(axes, "K", figure=4)
stored = next(row for row in rows if row["figure"] == 4)
fig.suptitle(f"Figure 4: {stored['d']} variables, {stored['n']} rows")
