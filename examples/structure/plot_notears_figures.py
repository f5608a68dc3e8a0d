"""
==========================================
How far graphs of many parties are off
==========================================

Figures 1, 2, 4 and 5 of Ng and Zhang (2022), with the methods of this package: networks
with as many edges as variables, rows spread evenly over parties.
``benchmarks/study_notears_figures.py`` made the numbers, here they are only drawn.
(Figure 3 is in :ref:`sphx_glr_auto_examples_structure_plot_notears_sachs.py`.)
"""

# %%
# What is compared
# ----------------
# *Rounds* is :class:`~skprivbn.structure.FederatedNotearsADMM`, with its defaults and
# with the penalties of the authors' runs; *one sum* is
# :class:`~skprivbn.structure.FederatedGaussianBayesianNetwork`. *Voting* keeps edges
# that more than half of the parties find alone, *best alone* is the best of their
# graphs (which one it is, only the truth tells), *pooled* is one party with all rows.
# Alone, a party runs the same rounds with nobody else: in the paper it runs NOTEARS, as
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
    "TPR": "share of true edges found",
    "FDR": "share of found edges that are false",
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

# %%
# More parties
# ------------
# Figures 5 and 2: 256 rows, and 10, 20 or 50 variables. The more parties, the fewer
# rows each has. Votes fall apart; one sum is the same for any number of parties.

fig = plt.figure(figsize=(10, 10.5), layout="constrained")
for part, (figure, d) in zip(fig.subfigures(3), ((5, 10), (5, 20), (2, 50))):
    draw(part.subplots(1, 3), "K", figure=figure, d=d)
    part.suptitle(f"{d} variables")

# %%
# Networks as mechanisms
# ----------------------
# Figure 4: rounds, votes and pooled rows fit a small network to every variable, one sum
# adds up five sigmoids of each. The paper has 50 variables and 512 rows, too, and
# thirty graphs; here there are thirty with two parties, fourteen with more. With few
# parties the authors' penalties find more of the true edges and many more false ones.

fig, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
draw(axes, "K", figure=4)
stored = next(row for row in rows if row["figure"] == 4)
fig.suptitle(f"{stored['d']} variables, {stored['n']} rows")
