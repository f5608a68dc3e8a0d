"""
=======================================
What hiding costs, by number of parties
=======================================

Encryption costs time and bytes. How much, and how does it grow with the number of
parties? We fit the same mixture with several backends and look at the ledger.
"""

# %%
# The same fit, hidden in different ways
# --------------------------------------
# All parties run in this process, so that CPU time is the sum over all of them. It
# includes the start, here random responsibilities.

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np

from skprivbn.crypto import CKKSBackend
from skprivbn.mixture import PPEMGaussianMixture

warnings.simplefilter("ignore")

rng = np.random.default_rng(0)
centres = rng.normal(0, 4, size=(5, 4))
X = centres[rng.integers(5, size=2000)] + rng.normal(size=(2000, 4))
backends = {
    "plaintext": "plaintext",
    "masking": "masking",
    "CKKS, fast": CKKSBackend(preset="fast"),
    "CKKS, default": CKKSBackend(),
}
n_parties = [3, 5, 10]
n_iter = 5
seconds = {name: [] for name in backends}
kilobytes = {name: [] for name in backends}
for name, backend in backends.items():
    for n in n_parties:
        mixture = PPEMGaussianMixture(
            5, init_params="random", tol=0, max_iter=n_iter, backend=backend
        )
        begin = time.process_time()
        mixture.fit(X, party=np.arange(len(X)) % n)
        seconds[name].append((time.process_time() - begin) / n_iter)
        sent = [
            entry.n_bytes
            for entry in mixture.ledger_.entries
            if entry.operation == "statistics" and entry.sender == "0"
        ]
        kilobytes[name].append(sum(sent) / n_iter / 1000)

# %%
# Time grows with the number of parties, because each encrypts its own sums and decrypts
# the total; a party's own time and bytes do not. Masking costs hardly more than nothing
# and lets the coordinator see the totals; CKKS keeps them from it.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
colours = ["#999999", "#009E73", "#56B4E9", "#0072B2"]
for (name, values), colour in zip(seconds.items(), colours):
    per_party = 1e3 * np.array(values) / n_parties
    left.plot(n_parties, per_party, "o-", color=colour, label=name)
    right.plot(n_parties, kilobytes[name], "o-", color=colour)
left.set(xlabel="parties", ylabel="CPU ms per party and iteration", ylim=(0, None))
right.set(xlabel="parties", ylabel="kB sent per party and iteration", yscale="log")
for ax in (left, right):
    ax.set_xticks(n_parties)
    ax.spines[["top", "right"]].set_visible(False)
fig.legend(
    *left.get_legend_handles_labels(),
    loc="outside upper center",
    ncols=4,
    frameon=False,
)
plt.show()
