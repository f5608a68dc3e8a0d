"""Collective networks: the paper's bound on the error beside the measured one.

Run with ``python benchmarks/study_collective_bound.py`` (a second), after
``study_collective_asia.py``, whose measured divergences it reads.

The paper takes Dasgupta's upper bound on the rows that Boolean networks of known
structure need, n nodes with at most k parents: with probability 1 - delta the
divergence exceeds the best possible one by at most error, once there are

    288 n^2 2^k / error^2  ln(1 + 3 n / error)^2
        ln(18 n^2 2^k ln(1 + 3 n / error) / (error delta))

rows. Each node has an n-th part of the error. Nodes with all parents at their own site
are learnt from all m rows, the n_c others from the m_c rows that were sent, so that the
bound is (1 - n_c / n) error(m) + n_c / n error(m_c): n_c / n (error(m_c) - error(m))
more than that of pooled rows, which is zero once all rows are sent.

The text that we have of the paper has lost its formulas and all digits. Legible are
whose bound it is, what n, k and delta are, the split of the nodes, and both properties
of the difference. The constants are those with which Dasgupta's theorem is quoted, not
read in print.
"""

import numpy as np
from _record import read, record
from scipy.optimize import brentq
from study_collective_asia import ENDS

from skprivbn.datasets import load_asia

DELTA = 0.05


def rows_needed(error, n, k, delta=DELTA):
    """Rows after which the error is below a bound, with probability 1 - delta."""
    logarithm = np.log1p(3 * n / error)
    inner = 18 * n**2 * 2**k * logarithm / (error * delta)
    return 288 * n**2 * 2**k / error**2 * logarithm**2 * np.log(inner)


def error_after(rows, n, k, delta=DELTA):
    """Return the bound on the error after a number of rows."""
    found = brentq(lambda e: np.log(rows_needed(np.exp(e), n, k, delta) / rows), -12, 6)
    return float(np.exp(found))


def main():
    asia = load_asia(variant="noisy_or")
    n, k = len(asia.nodes), max(len(parents) for parents in asia.parents.values())
    stored = read("collective_asia")
    m, share = stored["n"], len(ENDS) / n
    pooled, rows = error_after(m, n, k), []
    for row in stored["rows"]:
        if row["selection"] != "random":
            continue
        sent = error_after(row["fraction"] * m, n, k)
        rows.append(
            {
                "fraction": row["fraction"],
                "rows sent": round(row["fraction"] * m),
                "bound": (1 - share) * pooled + share * sent,
                "bound beyond pooled rows": share * (sent - pooled),
                "measured divergence": sum(row[f"{e}: divergence"] for e in ENDS),
            }
        )
        print(rows[-1])
    uniform = n * np.log(2)
    needed = {e: rows_needed(e, n, k) for e in (1.0, 0.1, 0.01)}
    print(f"states of one row: {uniform:.2f} nats; rows needed: {needed}")
    record("collective_bound", rows, delta=DELTA, nodes=n, parents=k)


if __name__ == "__main__":
    main()
