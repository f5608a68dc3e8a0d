"""
================================================
A privacy report for the data protection officer
================================================

A data protection officer asks what left the hospitals, and who could read it. The
ledger of the fit answers: as a diagram of messages, as bytes per round, and as a report
of two pages.
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
# Diagram of the messages
# -----------------------
# Green messages are unreadable for their recipient. Repeated messages are drawn once.

message_diagram(mixture)

# %%
# Bytes
# -----

display = LedgerDisplay.from_estimator(mixture)
display.ax_.set_title("Bytes sent by each participant")
plt.show()

# %%
# The report
# ----------
# ``privacy_report(mixture, "report.html")`` writes a file without external resources,
# which prints on two pages. It begins with five questions:


class Framed:
    def __init__(self, page):
        self.page = page

    def _repr_html_(self):
        style = "width:100%;height:56rem;border:1px solid #8a8f98;border-radius:.4rem"
        return f'<iframe srcdoc="{escape(self.page)}" style="{style}"></iframe>'


Framed(privacy_report(mixture, title="Blood values of three hospitals"))
