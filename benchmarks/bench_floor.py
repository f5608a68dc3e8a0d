"""How far what is slow is from its floor: each work beside a peer, or sums in numpy.

Run as ``python benchmarks/bench_floor.py [WORK ...] [--growth]``; all works but those
with d=1,000, and growth (a quarter of an hour), by default. CPU seconds, ours and the
peer's in turn, medians, then profiles of the three works that are furthest from their
bars. The peers are pandas, pyarrow, scikit-learn, pyAgrum and R with lme4; a work whose
peer is missing is left out and named. What is not measured again is kept.

"before" is release 0.2's, measured for the list of works that this script repeats.
"ratio" is to the peer or, where there is none, to the floor that "arithmetic" adds up.
"""

import argparse
import cProfile
import os
import pstats
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import bench_glmm
import bench_k2
import bench_ppem
import bench_sources
import numpy as np
import pandas as pd
from _record import read, record
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

from skprivbn.crypto import MaskingBackend
from skprivbn.datasets import (
    load_alarm,
    make_discrete_bayesian_network,
    make_linear_sem,
)
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.metrics import structural_hamming_distance
from skprivbn.mixed_model import PrivateGLMMClassifier, PrivateGLMMRegressor
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import FederatedStandardScaler
from skprivbn.structure import (
    FederatedBayesianNetwork,
    FederatedGaussianBayesianNetwork,
    K2StructureLearner,
)
from skprivbn.utils import import_optional

MILLION = 10**6


@dataclass(frozen=True)
class Work:
    """One line of the table: what it took in release 0.2, and the bars."""

    measure: object
    before: float
    peer: str
    peer_before: float
    #: the most that the ratio may be, and the seconds
    ratio: float = np.nan
    seconds: float = np.nan
    repeats: int = 3


def seconds_of(function):
    """Return a function that runs another and returns its CPU seconds."""
    return partial(bench_ppem.cpu_of, function)


def seconds_per_call(function, repeats=200):
    """Return CPU seconds of one of many calls."""
    return bench_ppem.cpu_of(lambda: [function() for _ in range(repeats)]) / repeats


def spread(X, n_parties):
    """Return the options of a fit that spread rows over parties."""
    return {"party": np.arange(len(X)) % n_parties}


# -- every work returns ours, the peer's (functions to CPU seconds) and the floor


def normal(n, d):
    return np.random.default_rng(0).normal(size=(n, d))


def fit_scaler(n_parties, n, d):
    X = normal(n, d)
    return seconds_of(lambda: FederatedStandardScaler().fit(X, **spread(X, n_parties)))


def scaler(n_parties):
    mine, theirs = (X25519PrivateKey.generate() for _ in range(2))
    public = theirs.public_key()
    each = seconds_per_call(lambda: mine.exchange(public))
    exchanges = n_parties * MaskingBackend().n_neighbours(n_parties)
    floor = exchanges * each
    said = f"{exchanges} key exchanges of {1e6 * each:.0f} us: {floor:.2g} s"
    return fit_scaler(n_parties, 1000 * n_parties, 10), lambda: floor, said


def scaler_rows():
    X = normal(MILLION, 10)
    sums = bench_ppem.cpu_of(lambda: (X.sum(axis=0), np.einsum("ij,ij->j", X, X)))
    pooled = seconds_of(lambda: StandardScaler().fit(X))
    said = f"two sums over 10,000,000 numbers: {sums:.2g} s"
    return fit_scaler(3, MILLION, 10), pooled, said


def file(kind, reader, folder):
    if not any(folder.iterdir()):
        bench_sources.write_files(folder, MILLION)
    name, suffix = kind.split(".")
    path = folder / f"{'north' if name == 'floats' else name}.{suffix}"
    rate = path.stat().st_size / 1e6
    return (
        lambda: bench_sources.read_file("site", str(path)),
        lambda: bench_sources.read_file(reader, str(path)),
        f"{rate:.0f} MB of {suffix}, 10,000,000 cells",
    )


def fit_mixture(n_components, d, n, n_parties, **options):
    X, start = bench_ppem.make_problem(n_components, d, n)
    model = PPEMGaussianMixture(n_components, tol=0, min_rows=1, **start, **options)
    return partial(bench_ppem.per_iteration, model, 1, X, **spread(X, n_parties))


def mixture(backend):
    X, start = bench_ppem.make_problem(3, 2, 5000)
    pooled = GaussianMixture(3, tol=0, **start)
    densities = seconds_per_call(lambda: np.exp(X @ X[:3].T))
    said = f"15,000 densities and exponentials: {1e3 * densities:.2g} ms"
    theirs = partial(bench_ppem.per_iteration, pooled, 1, X)
    return fit_mixture(3, 2, 5000, 3, backend=backend), theirs, said


def k2(name, n_parties, n):
    network = bench_k2.NETWORKS[name]()
    X = network.encode(network.sample(n, random_state=0))
    learner = K2StructureLearner(ordering=network.topological_order, max_parents=3)
    sizes = []

    def ours():
        row = bench_k2.fit_here("floor", name, n_parties, n)
        sizes.append(row["MB"])
        return row["seconds"]

    def arithmetic():
        aes = Cipher(algorithms.AES(bytes(16)), modes.CTR(bytes(16))).encryptor()
        text = bytes(10 * MILLION)
        floor = 2 * sizes[-1] * seconds_per_call(lambda: aes.update(text), 10) / 10
        return f"{sizes[-1]:.0f} MB, of AES at both ends: {floor:.2g} s"

    return ours, seconds_of(lambda: learner.fit(X)), arithmetic


def fit_chain(n_parties, n, d):
    codes = np.random.default_rng(0).integers(0, 4, size=(n, d))
    learner = DPCGMLearner("chain", epsilon=1.0, states=[4] * d)
    return seconds_of(lambda: learner.fit(codes, **spread(codes, n_parties)))


def chain():
    codes = np.random.default_rng(0).integers(0, 4, size=(MILLION, 10))
    pairs = [(4 * a + b) for a, b in zip(codes.T[:-1], codes.T[1:])]

    def count():
        return [np.bincount(pair, minlength=16) for pair in pairs]

    said = f"nine calls of bincount on pairs at hand: {bench_ppem.cpu_of(count):.2g} s"

    def pair_and_count():
        for a, b in zip(codes.T[:-1], codes.T[1:]):
            np.bincount(4 * a + b, minlength=16)

    return fit_chain(3, MILLION, 10), seconds_of(pair_and_count), said


def fit_gaussian(method, n_parties, n, d):
    X, _ = make_linear_sem(n, d, random_state=0)
    model = FederatedGaussianBayesianNetwork(method)
    return seconds_of(lambda: model.fit(X, **spread(X, n_parties)))


def gaussian(method, d):
    X, _ = make_linear_sem(5000, d, random_state=0)
    said = f"{5000 * d**2 / 1e9:.2g} G multiplications of a covariance"
    return fit_gaussian(method, 3, 5000, d), seconds_of(lambda: np.cov(X.T)), said


def as_agrum(network):
    gum = import_optional("pyagrum", "bench_floor.py")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.bif"
        network.to_bif(path)
        return gum, gum.loadBN(str(path))


def queries(network, n_questions=40):
    """Ask for one node given two others, never the same twice."""
    gum, theirs = as_agrum(network)
    rng = np.random.default_rng(0)
    questions = []
    for _ in range(n_questions):
        node, *given = rng.choice(network.nodes, 3, replace=False).tolist()
        labels = [
            network.states[g][rng.integers(len(network.states[g]))] for g in given
        ]
        questions.append((node, dict(zip(given, labels))))

    def ask():
        return [network.query(*question) for question in questions]

    def ask_agrum():
        found = []
        for node, evidence in questions:
            inference = gum.LazyPropagation(theirs)
            inference.setEvidence(evidence)
            inference.addTarget(node)
            inference.makeInference()
            found.append(inference.posterior(node).toarray())
        return found

    for ours, other in zip(ask(), ask_agrum()):
        np.testing.assert_allclose(ours, other, atol=1e-8)
    network._inference._plan.cache_clear()
    return (
        lambda: bench_ppem.cpu_of(ask) / n_questions,
        lambda: bench_ppem.cpu_of(ask_agrum) / n_questions,
        f"{n_questions} questions with other nodes each, orders are new to both",
    )


def mixed_model(case):
    X, y, cluster, party = bench_glmm.simulate(1500, 30, 5)
    if case == "logistic":
        call = bench_glmm.LOGISTIC.format("")
        model = PrivateGLMMClassifier(quadrature_params={"n_nodes": 1})
    else:
        call, options = bench_glmm.MODELS[case]
        y = bench_glmm.simulate_targets(X, cluster)[options.get("family", "gaussian")]
        model = PrivateGLMMRegressor(**options)
    expected = bench_glmm.run_lme4(call, X, y, cluster)
    if expected is None:
        raise ImportError("R with lme4 was not found")
    model.fit(X, y, cluster=cluster, party=party)
    assert abs(model.log_likelihood_ - expected[0]) < 1e-4 * abs(expected[0])
    said = f"{model.ledger_.n_rounds} rounds; lme4 with its defaults, second call"
    ours = seconds_of(lambda: model.fit(X, y, cluster=cluster, party=party))
    return ours, lambda: bench_glmm.run_lme4(call, X, y, cluster)[-1], said


def hill_climbing():
    network = load_alarm()
    gum, _ = as_agrum(network)
    X = pd.DataFrame(network.sample(5000, random_state=0), columns=network.nodes)
    model = FederatedBayesianNetwork("hill_climbing")

    def climb():
        learner = gum.BNLearner(X)
        learner.useGreedyHillClimbing()
        learner.useScoreBIC()
        return learner.learnDAG()

    names = {i: gum.BNLearner(X).nameFromId(i) for i in range(len(X.columns))}
    theirs = np.zeros((37, 37), dtype=bool)
    for parent, child in climb().arcs():
        theirs[
            network.nodes.index(names[parent]), network.nodes.index(names[child])
        ] = 1
    away = [
        structural_hamming_distance(network.adjacency_matrix, graph)
        for graph in (model.fit(X, **spread(X, 3)).adjacency_matrix_, theirs)
    ]
    said = "from labels; distances to ALARM: ours {}, pyAgrum's {}".format(*away)
    return seconds_of(lambda: model.fit(X, **spread(X, 3))), seconds_of(climb), said


def import_in_a_process(name):
    # compiled, as pip leaves packages, by the first of several runs
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", f"import {name}"]

    def run():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return run


def modules():
    ask = "import sys, {}; print(len(sys.modules))"
    counts = [
        subprocess.check_output([sys.executable, "-c", ask.format(name)], text=True)
        for name in ("skprivbn.mixture", "sklearn.mixture")
    ]
    said = "{} modules against {}".format(*map(str.strip, counts))
    names = ("skprivbn.mixture", "sklearn.mixture")
    return *map(import_in_a_process, names), said


def network_of(n_nodes):
    return make_discrete_bayesian_network(
        n_nodes, n_edges=3 * n_nodes // 2, max_parents=3, random_state=0
    )


WORKS = {
    "scaler, 3 parties x 1,000 x 10": Work(
        partial(scaler, 3), 0.0128, "key exchanges", 0.001, seconds=0.005, repeats=51
    ),
    "scaler, 30 parties": Work(
        partial(scaler, 30), 0.257, "key exchanges", 0.044, repeats=5
    ),
    "scaler, 100 parties": Work(
        partial(scaler, 100), 2.62, "key exchanges", 0.44, seconds=0.6
    ),
    "scaler, 1,000,000 x 10 at 3 parties": Work(
        scaler_rows, 0.83, "scikit-learn", 0.146, repeats=7
    ),
    "CSV, floats": Work(
        partial(file, "floats.csv", "pandas"), 20.8, "pandas", 0.71, 2.0
    ),
    "CSV, categories": Work(
        partial(file, "categories.csv", "pandas"), 15.4, "pandas", 0.28, 2.0
    ),
    "Parquet, categories": Work(
        partial(file, "categories.parquet", "pyarrow"),
        4.43,
        "pyarrow",
        0.06,
        3.0,
        repeats=9,
    ),
    "mixture iteration, masks": Work(
        partial(mixture, "masking"), 0.013, "scikit-learn", 0.0024, 3.0, repeats=7
    ),
    "mixture iteration, CKKS": Work(
        partial(mixture, "ckks"), 0.074, "scikit-learn", 0.0024, 15.0
    ),
    "K2 ALARM 10,000, 2 parties": Work(
        partial(k2, "ALARM", 2, 10_000), 10.2, "pooled K2", 0.6, seconds=3.0, repeats=1
    ),
    "K2 ALARM 10,000, 3 parties": Work(
        partial(k2, "ALARM", 3, 10_000), 25, "pooled K2", 0.6, seconds=8.0, repeats=1
    ),
    "K2 Asia 1,000,000": Work(
        partial(k2, "Asia", 2, MILLION), 16.6, "pooled K2", 2.7, seconds=4.0, repeats=1
    ),
    "tables, chain, 1,000,000 x 10 codes": Work(
        chain, 0.64, "bincount", 0.113, repeats=7
    ),
    "Gaussian network, default, d=300": Work(
        partial(gaussian, "auto", 300), 7.7, "covariance", 0.022, seconds=1.5
    ),
    'Gaussian network, "bic", d=300': Work(
        partial(gaussian, "bic", 300), 96, "covariance", 0.022, seconds=6.0
    ),
    "Gaussian network, default, d=1,000": Work(
        partial(gaussian, "auto", 1000),
        np.nan,
        "covariance",
        np.nan,
        seconds=120.0,
        repeats=1,
    ),
    'Gaussian network, "bic", d=1,000': Work(
        partial(gaussian, "bic", 1000),
        np.nan,
        "covariance",
        np.nan,
        seconds=120.0,
        repeats=1,
    ),
    "query, ALARM": Work(
        lambda: queries(load_alarm()), 0.002, "pyAgrum", 0.00085, 1.0, repeats=9
    ),
    "query, 100 nodes": Work(
        lambda: queries(network_of(100)), 0.002, "pyAgrum", 0.00105, 1.0, repeats=9
    ),
    "linear mixed model, 1,500 rows": Work(
        partial(mixed_model, "linear, slopes"), 0.46, "lme4", 0.12, 1.0, repeats=5
    ),
    "Poisson mixed model, 1,500 rows": Work(
        partial(mixed_model, "poisson, slopes"), 1.56, "lme4", 0.65, 1.0, repeats=5
    ),
    "logistic mixed model, nAGQ=1, 1,500 rows": Work(
        partial(mixed_model, "logistic"), np.nan, "lme4", np.nan, 1.0, repeats=5
    ),
    "hill climbing, ALARM 5,000": Work(
        hill_climbing, 0.82, "pyAgrum", 0.30, 1.0, repeats=5
    ),
    "import": Work(modules, 3.0, "sklearn.mixture", 2.4, 1.1, repeats=7),
}

#: a fit by size, and three sizes or more of parties, rows and columns
GROWTH = {
    "scaler": (
        fit_scaler,
        (10, 10_000, 10),
        ((10, 30, 100), (100_000, 300_000, MILLION), (10, 30, 100)),
    ),
    "mixture iteration": (
        lambda k, n, d: fit_mixture(3, d, n, k),
        (3, 5000, 2),
        ((3, 10, 30), (5000, 20_000, 80_000), (2, 5, 10, 20)),
    ),
    "K2": (
        lambda k, n, d: seconds_of(
            partial(bench_k2.fit_here, "floor", "ALARM", k, n, 2, d)
        ),
        (2, 2000, 20),
        ((2, 3, 5), (2000, 6000, 18_000), (9, 18, 37)),
    ),
    "tables": (
        fit_chain,
        (3, 100_000, 10),
        ((3, 10, 30), (100_000, 300_000, MILLION), (5, 10, 20, 40)),
    ),
    "Gaussian search": (
        partial(fit_gaussian, "auto"),
        (3, 5000, 50),
        ((3, 10, 30), (5000, 50_000, 500_000), (50, 100, 200)),
    ),
}


def measure(name, work):
    """Return the line of one work, and what runs it."""
    ours, peer, arithmetic = work.measure()
    found = np.array([(ours(), peer()) for _ in range(work.repeats)])
    now, theirs = np.median(found, axis=0)
    bar = f"{work.seconds:g} s" if work.seconds > 0 else f"{work.ratio:g} times"
    of_bar = np.fmax(now / work.seconds, now / theirs / work.ratio)
    row = {
        "series": "table",
        "work": name,
        "seconds": now,
        "seconds before": work.before,
        "peer or floor": work.peer,
        "its seconds": theirs,
        "ratio": now / theirs,
        "ratio before": work.before / work.peer_before,
        "bar": bar if of_bar > 0 else "none",
        "of bar": of_bar,
        "arithmetic": arithmetic() if callable(arithmetic) else arithmetic,
    }
    print(row, flush=True)
    return row, ours


def grow(name):
    """Yield exponents of CPU time, by log-log slopes over all sizes and the last."""
    fit, base, sizes = GROWTH[name]
    for axis, (what, some) in enumerate(zip(("parties", "rows", "columns"), sizes)):
        seconds = []
        for size in some:
            run = fit(*(size if i == axis else b for i, b in enumerate(base)))
            first = run()
            more = 3 if first < 2 else 0
            seconds.append(median([run() for _ in range(more)] or [first]))
        x, y = np.log(some), np.log(seconds)
        row = {"series": "growth", "work": name, "of": what}
        row |= {"from": some[0], "to": some[-1], "exponent": np.polyfit(x, y, 1)[0]}
        row["exponent of the last two"] = np.diff(y)[-1] / np.diff(x)[-1]
        row |= {"seconds at first": seconds[0], "seconds at last": seconds[-1]}
        print(row, flush=True)
        yield row


def profile(name, run, n_lines=6):
    """Yield the functions in which most of the time of one work goes."""
    profiler = cProfile.Profile(time.process_time)
    profiler.runcall(run)
    stats = pstats.Stats(profiler)
    lines = sorted(stats.stats.items(), key=lambda item: -item[1][2])
    for (path, _, function), (_, calls, own, _, _) in lines[:n_lines]:
        where = f"{Path(path).stem}.{function}" if path != "~" else function
        row = {"series": "profile", "work": name, "function": where}
        yield row | {"calls": calls, "share": own / stats.total_tt}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("works", nargs="*", help="parts of names; all by default")
    parser.add_argument("--growth", action="store_true", help="only growth")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    chosen = {
        name: work
        for name, work in WORKS.items()
        if any(part in name for part in options.works)
        or not (options.works or "d=1,000" in name)
    }
    rows, runs = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for name, work in () if options.growth else chosen.items():
            if "CSV" in name or "Parquet" in name:
                work.measure.keywords["folder"] = Path(folder)
            try:
                row, runs[name] = measure(name, work)
            except ImportError as missing:
                print(f"left out: {name}: {missing}")
                continue
            rows.append(row)
            keep(rows[-1:])
        worst = sorted(rows, key=lambda row: -np.nan_to_num(row["of bar"]))[:3]
        for row in worst if not options.works else ():
            rows += profile(row["work"], runs[row["work"]])
    if not options.works and not options.growth:
        keep(rows, ["table", "profile"])
    for name in GROWTH if options.growth or not options.works else ():
        keep(list(grow(name)))


def keep(rows, whole=()):
    """Add rows to those that are kept, in place of the same; replace whole series."""
    new = {(row["series"], row["work"]) for row in rows}
    rows = rows + [
        row
        for row in (read("floor") or {"rows": []})["rows"]
        if (row["series"], row["work"]) not in new
        and (row["series"] not in whole or "d=1,000" in row["work"])
    ]
    order = [*WORKS, *GROWTH]
    series = ["table", "profile", "growth"]
    rows.sort(key=lambda row: (series.index(row["series"]), order.index(row["work"])))
    record("floor", rows)


if __name__ == "__main__":
    main()
