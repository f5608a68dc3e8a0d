"""
===========================================
The cost of encryption by number of parties
===========================================

The same mixture is fitted with several backends. The ledger counts the bytes; the CPU
time shows the cost of encryption and how it grows with the number of parties.
"""

# %%
# The same fit with four backends
# -------------------------------
# All parties run in this process: CPU time is the sum over all of them. It includes the
# start, here random responsibilities.

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
PPEMGaussianMixture(5, max_iter=1).fit(X)  # what the first fit of a process loads
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
            if "each iteration" in entry.operation and entry.sender == "0"
        ]
        kilobytes[name].append(sum(sent) / n_iter / 1000)

# %%
# CPU time is shown as a multiple of that of sums in the clear, which depends less on
# the machine than seconds do; ``benchmarks/bench_ppem.py`` has larger models. The bytes
# that a party sends do not depend on the number of parties. Masks cost least, above all
# in bytes. The coordinator reads no total with masks or CKKS.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
colours = ["#999999", "#E69F00", "#56B4E9", "#0072B2"]
for (name, values), colour in zip(seconds.items(), colours):
    ratio = np.divide(values, seconds["plaintext"])
    # sums in the clear take about as many bytes as masked ones: a wide line
    width = 6 if name == "plaintext" else 1.5
    style = {"color": colour, "linewidth": width, "marker": "o"}
    left.plot(n_parties, ratio, label=name, **style)
    right.plot(n_parties, kilobytes[name], **style)
left.set(title="Time of all parties", xlabel="number of parties", ylim=(0, None))
left.set_ylabel("CPU time, sums in the clear = 1")
right.set(title="Messages of one party", xlabel="number of parties", yscale="log")
right.set_ylabel("kB sent per iteration")
for ax in (left, right):
    ax.set_xticks(n_parties)
    ax.spines[["top", "right"]].set_visible(False)
fig.legend(
    *left.get_legend_handles_labels(),
    loc="outside upper center",
    ncols=5,
    frameon=False,
)
plt.show()
