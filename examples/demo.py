"""Three hospitals learn one Bayesian network, and nobody sees another's patients.

Run by ``make demo``. Each hospital counts its own patients; the counts are added under
masks, and the coordinator learns nothing but the totals.
"""

import numpy as np

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.datasets import load_asia, split_horizontal
from skprivbn.federation import Party, operation
from skprivbn.metrics import kl_divergence
from skprivbn.partition import HorizontalPartition

TRUTH = load_asia()


def family_counts(X):
    """Count every configuration of a node and its parents: one table per node."""
    codes = TRUTH.encode(X)
    tables = []
    for node in TRUTH.nodes:
        family = [TRUTH.nodes.index(name) for name in (*TRUTH.parents[node], node)]
        table = np.zeros(TRUTH.cpts[node].shape, dtype=int)
        np.add.at(table, tuple(codes[:, family].T), 1)
        tables.append(table)
    return tables


def fit(tables):
    return BayesianNetwork.from_counts(
        TRUTH.nodes, TRUTH.states, TRUTH.parents, tables, alpha=1.0
    )


class Hospital(Party):
    """A hospital's side: it answers one question, once."""

    def schedule(self):
        yield "count"

    @operation(tells="how many of its patients show each combination of findings")
    def count(self):
        tables = family_counts(self.block["X"])
        return {"vector": self.hide(np.concatenate([t.ravel() for t in tables]))}


def main():
    X = TRUTH.sample(6000, random_state=0)
    party = split_horizontal(X, n_parties=3, kind="dirichlet", alpha=2, random_state=0)
    hospitals = HorizontalPartition.from_rows(X, party)
    print(f"The data stay where they are: {hospitals}\n")

    with hospitals.federate(Hospital, {}, "masking") as federation:
        total = federation.secure_sum("count")
    shapes = [TRUTH.cpts[node].shape for node in TRUTH.nodes]
    cuts = np.cumsum([np.prod(shape) for shape in shapes])[:-1]
    together = fit([part.reshape(s) for part, s in zip(np.split(total, cuts), shapes)])

    pooled = fit(family_counts(X))
    print("Distance (Kullback-Leibler) from the true network")
    for name in hospitals.names:
        alone = fit(family_counts(X[party == name]))
        print(f"  {name} alone         {kl_divergence(TRUTH, alone):.5f}")
    print(f"  all three, under masks {kl_divergence(TRUTH, together):.5f}")
    print(f"  all rows pooled        {kl_divergence(TRUTH, pooled):.5f}")
    print(f"  same network as from pooled rows: {together == pooled}\n")

    probability = together.query("lung", {"xray": "yes", "dysp": "yes"})[0]
    print(f"P(lung cancer | positive x-ray, dyspnoea) = {probability:.3f}\n")

    print("Who learnt what, and at what cost")
    print(federation.ledger)


if __name__ == "__main__":
    main()
