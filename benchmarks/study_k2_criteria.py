"""Wrong edges of K2 on Asia by its score: exact, Stirling's, and the paper's own.

Run with ``python benchmarks/study_k2_criteria.py`` (seconds). Private K2 learns what
:class:`~skprivbn.structure.K2StructureLearner` learns from the joined table, which is
what is fitted here; the ordering is the true one.
"""

import argparse

import numpy as np
import pandas as pd
from _record import record

from skprivbn.datasets import load_asia
from skprivbn.metrics import structural_hamming_distance
from skprivbn.structure import K2StructureLearner

CRITERIA = ("k2", "stirling", "wright_yang")


def main(n_samples):
    """Measure how far the graphs of the same samples are from the truth."""
    asia = load_asia()
    found = []
    for n in (100, 300, 1000, 3000):
        samples = [
            pd.DataFrame(asia.sample(n, random_state=seed), columns=asia.nodes)
            for seed in range(n_samples)
        ]
        for criterion in CRITERIA:
            learner = K2StructureLearner(
                ordering=asia.topological_order, criterion=criterion, states=asia.states
            )
            distances = [
                structural_hamming_distance(asia, learner.fit(sample).network_)
                for sample in samples
            ]
            found.append(
                {
                    "rows": n,
                    "criterion": criterion,
                    "samples": n_samples,
                    "wrong edges": np.mean(distances),
                }
            )
    record("k2_criteria", found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=20)
    main(parser.parse_args().samples)
