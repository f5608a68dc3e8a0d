"""A private tree over census data of one holder, and of several who trust nobody.

Run with ``python benchmarks/study_shared_tree.py`` (a minute). ``cliques="mst"`` on
Adult with epsilon 1, Laplace noise and Gaussian noise (delta 1e-6). The score is the
mean log-likelihood of a row of the test set, the median over releases.
"""

import argparse
import warnings

import numpy as np
from _record import record

from skprivbn.datasets import load_adult
from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.graphical_model import DPCGMLearner


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--releases", type=int, default=3)
    parser.add_argument("--holders", type=int, default=4)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    parts = [load_adult(subset=part, discretized=True) for part in ("train", "test")]
    train, test = (np.column_stack([part.data, part.target]) for part in parts)
    domain = [len(states) for states in parts[0].categories.values()]
    rows = []
    for holders in (1, arguments.holders):
        row = {"holders": holders}
        party = None if holders == 1 else np.arange(len(train)) % holders
        for noise, delta in (("Laplace noise", 0.0), ("Gaussian noise", 1e-6)):
            scores = [
                DPCGMLearner("mst", epsilon=1.0, delta=delta, states=domain)
                .fit(train, party=party)
                .score(test)
                for _ in range(arguments.releases)
            ]
            row[noise] = np.median(scores)
            row[f"{noise}, spread"] = max(scores) - min(scores)
        print(row, flush=True)
        rows.append(row)
    record("shared_tree", rows, epsilon=1.0, releases=arguments.releases)


if __name__ == "__main__":
    main()
