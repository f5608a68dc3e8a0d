"""
===================================
A page for the person who must sign
===================================

A data-protection officer asks what left the hospitals, and who could read it. The
answer is in the ledger of the fit: as a drawing of its messages, as bytes per round,
and as two pages in plain words.
"""

# %%
# A study of three hospitals
# --------------------------

from html import escape

import matplotlib.pyplot as plt

from skprivbn.datasets import make_partitioned_blobs
from skprivbn.inspection import LedgerDisplay, message_diagram, privacy_report
from skprivbn.mixture import PPEMGaussianMixture

X, _, party = make_partitioned_blobs(600, n_parties=3, random_state=0)
names = {"party_0": "St Anne", "party_1": "City Hospital", "party_2": "Lakeside"}
hospital = [names[label] for label in party]
mixture = PPEMGaussianMixture(3, backend="ckks", random_state=0)
mixture.fit(X, party=hospital)

# %%
# How the messages went
# ---------------------
# Green is what its reader cannot make sense of. What repeats is drawn once.

message_diagram(mixture)

# %%
# How many bytes
# --------------

display = LedgerDisplay.from_estimator(mixture)
display.ax_.set_title("Bytes that each side sends")
plt.show()

# %%
# In words, on two pages
# -----------------------
# ``privacy_report(mixture, "report.html")`` writes a file that loads nothing from
# anywhere and prints on two pages. Five questions come first. Here it is, in a frame:


class Framed:
    def __init__(self, page):
        self.page = page

    def _repr_html_(self):
        style = "width:100%;height:56rem;border:1px solid #8a8f98;border-radius:.4rem"
        return f'<iframe srcdoc="{escape(self.page)}" style="{style}"></iframe>'


Framed(privacy_report(mixture, title="Blood values of three hospitals"))
