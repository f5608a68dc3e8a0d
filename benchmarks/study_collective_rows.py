"""Which rows to send: divergence of collective networks by selection and fraction.

Run with ``python benchmarks/study_collective_rows.py`` (a minute). Divergences are
from the pooled fit of the same structure, medians over seeds for Asia and ALARM. Where
Asia's structure is learnt, from 6,000 rows of two sites by BIC with a known ordering,
the shares of runs are kept that found both links across sites, and that found a false
one. ALARM has 15,000 rows at two, three and four sites.
"""

import argparse
import warnings

import numpy as np
import pandas as pd
from _record import record

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.datasets import load_alarm, load_asia, load_msnbc
from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.metrics import kl_divergence
from skprivbn.structure import CollectiveBayesianNetwork

SELECTIONS = ("random", "mixed", "low_likelihood")
SITES = {
    "clinic": ["asia", "tub", "either", "xray"],
    "registry": ["smoke", "lung", "bronc", "dysp"],
}
LINKS = {("lung", "either"), ("either", "dysp")}


def fit(X, sites, selection, fraction, seed, **known):
    return CollectiveBayesianNetwork(
        sites,
        disclosure="rows",
        selection=selection,
        fraction=fraction,
        random_state=seed,
        **known,
    ).fit(X)


def asia_rows(n_rows, n_seeds, fractions, structure_known):
    """Return one row per fraction: medians of divergence, shares of links found."""
    asia = load_asia(variant="noisy_or")
    known = {"states": asia.states}
    if structure_known:
        known["structure"] = asia.parents
    else:
        known["ordering"] = [asia.nodes[i] for i in asia.topological_order]
    samples = [
        pd.DataFrame(asia.sample(n_rows, random_state=seed), columns=asia.nodes)
        for seed in range(n_seeds)
    ]
    pooled = [
        BayesianNetwork.from_data(X, asia.parents, nodes=asia.nodes, states=asia.states)
        for X in samples
    ]
    for fraction in fractions:
        row = {"data": "Asia, structure known" if structure_known else "Asia"}
        row["fraction"] = fraction
        for selection in SELECTIONS:
            learners = [
                fit(X, SITES, selection, fraction, seed, **known)
                for seed, X in enumerate(samples)
            ]
            row[selection] = np.median(
                [kl_divergence(p, a.network_) for p, a in zip(pooled, learners)]
            )
            if not structure_known:
                found = [set(learner.cross_edges_) for learner in learners]
                row |= {
                    f"{selection}: both links": np.mean([f >= LINKS for f in found]),
                    f"{selection}: a false link": np.mean(
                        [bool(f - LINKS) for f in found]
                    ),
                }
        yield row


def alarm_rows(n_sites, n_seeds, fractions):
    """The paper's second network, its structure known, over some sites."""
    alarm = load_alarm()
    sites = {f"site {i}": list(alarm.nodes[i::n_sites]) for i in range(n_sites)}
    known = {"structure": alarm.parents, "states": alarm.states}
    samples = [
        pd.DataFrame(alarm.sample(15_000, random_state=seed), columns=alarm.nodes)
        for seed in range(n_seeds)
    ]
    pooled = [
        BayesianNetwork.from_data(
            X, alarm.parents, nodes=alarm.nodes, states=alarm.states
        )
        for X in samples
    ]
    for fraction in fractions:
        row = {"data": f"ALARM, {n_sites} sites, structure known", "fraction": fraction}
        for selection in SELECTIONS:
            row[selection] = np.median(
                [
                    kl_divergence(
                        p, fit(X, sites, selection, fraction, seed, **known).network_
                    )
                    for seed, (X, p) in enumerate(zip(samples, pooled))
                ]
            )
        yield row


def msnbc_rows(fractions):
    """The log of a web site, the structure learnt once from counts of all visits."""
    X = load_msnbc(as_frame=True).frame
    names = list(X.columns)
    servers = {"one": names[0::2], "two": names[1::2]}
    states = dict.fromkeys(names, [0, 1])
    pooled = CollectiveBayesianNetwork(
        servers, ordering=names, max_parents=2, states=states
    ).fit(X)
    known = {"structure": pooled.network_.parents, "states": states}
    for fraction in fractions:
        row = {"data": "MSNBC, structure known", "fraction": fraction}
        for selection in SELECTIONS:
            learner = fit(X, servers, selection, fraction, 0, **known)
            row[selection] = kl_divergence(pooled.network_, learner.network_)
        yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=6_000)
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    asia = (arguments.rows, arguments.seeds)
    rows = []
    for row in (
        *asia_rows(*asia, [0.05, 0.1, 0.5], structure_known=False),
        *asia_rows(*asia, [0.1, 0.5], structure_known=True),
        *alarm_rows(2, 5, [0.05, 0.1, 0.35]),
        *alarm_rows(3, 5, [0.05, 0.1, 0.35]),
        *alarm_rows(4, 5, [0.05, 0.1, 0.35]),
        *msnbc_rows([0.05, 0.1, 0.4]),
    ):
        print(row, flush=True)
        rows.append(row)
    record("collective_rows", rows, n=arguments.rows, seeds=arguments.seeds)


if __name__ == "__main__":
    main()
