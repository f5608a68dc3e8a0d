"""Private tables: what `DPCGMLearner` chooses, against AIM and MST of OpenDP.

Run with ``python benchmarks/bench_tables.py`` (some minutes). ``--data adult8 adult15
msnbc alarm`` names tables, ``--epsilon`` budgets (delta is 1e-6), ``--holders`` also
shares the rows of adult8. ``--peer aim`` or ``--peer mst`` adds a run of OpenDP's
mechanism, which needs ``pip install "opendp[mbi]"`` (best in an environment of its own)
and, for AIM, a quarter of an hour per budget. Each run adds to the record.

Errors are mean total variations between the model and the training rows over all
tables of two and of three columns (200 of these, drawn once, where there are more); the
likelihood is that of a row that was held out; seconds are of CPU. The settings of our
mechanism are not blind to adult8: see ``skprivbn/graphical_model/_adaptive.py``.
"""

import argparse
import time
import warnings
from itertools import combinations

import numpy as np
from _record import read, record

from skprivbn.datasets import load_adult, load_alarm, load_msnbc
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.privacy import PrivacyAccountant
from skprivbn.utils import import_optional

DELTA = 1e-6
EIGHT = [
    "age",
    "education",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "income",
]


def load(name):
    """Training rows, held-out rows (codes) and numbers of states."""
    if name.startswith("adult"):
        parts = [load_adult(subset=p, discretized=True) for p in ("train", "test")]
        tables = [np.column_stack([p.data, p.target]).astype(int) for p in parts]
        domain = parts[0].categories
        kept = [i for i, c in enumerate(domain) if name == "adult15" or c in EIGHT]
        sizes = [len(labels) for labels in domain.values()]
        return *(table[:, kept] for table in tables), [sizes[i] for i in kept]
    if name == "msnbc":
        X = load_msnbc().data.astype(int)
        X = X[np.random.default_rng(0).permutation(len(X))]
        return X[::2], X[1::2], [2] * X.shape[1]
    network = load_alarm()
    X = network.encode(network.sample(40_000, random_state=0))
    return X[::2], X[1::2], [len(network.states[node]) for node in network.nodes]


def scopes(n_columns):
    """All pairs, and at most 200 triples."""
    triples = list(combinations(range(n_columns), 3))
    if len(triples) > 200:
        drawn = np.random.default_rng(0).choice(len(triples), 200, replace=False)
        triples = [triples[i] for i in drawn]
    return list(combinations(range(n_columns), 2)), triples


def errors(train, sizes, marginal):
    """Mean total variation of pairs and of triples."""
    found = []
    for group in scopes(len(sizes)):
        gaps = []
        for columns in group:
            shape = [sizes[i] for i in columns]
            cells = np.ravel_multi_index(train[:, columns].T, shape)
            share = np.bincount(cells, minlength=np.prod(shape)) / len(train)
            gaps.append(np.abs(marginal(columns).ravel() - share).sum() / 2)
        found.append(np.mean(gaps))
    return dict(zip(("2-way error", "3-way error"), found))


def ours(train, test, sizes, epsilon, cliques, party=None):
    """One fit of `DPCGMLearner`."""
    accountant = PrivacyAccountant(epsilon=np.inf, delta=0.5)
    learner = DPCGMLearner(
        cliques, epsilon=epsilon, delta=DELTA, states=sizes, accountant=accountant
    )
    start = time.process_time()
    learner.fit(train, party=party)
    seconds = time.process_time() - start
    return {
        **errors(train, sizes, learner.marginal),
        "held-out likelihood": learner.score(test),
        "CPU seconds": seconds,
    }


def peer(train, test, sizes, epsilon, kind, iterations, max_size):
    """One release by OpenDP's AIM or MST, with the same zCDP budget as ours."""
    import opendp.prelude as dp
    from mbi.estimation import mirror_descent

    from skprivbn.graphical_model._selection import zcdp_budget

    def estimator(domain, loss_fn, *, potentials=None):
        return mirror_descent(domain, loss_fn, potentials=potentials, iters=iterations)

    # it comes with opendp[mbi], and only there is it needed
    polars = import_optional("polars", "--peer")
    dp.enable_features("contrib")
    names = [f"x{i:02}" for i in range(len(sizes))]
    frame = polars.DataFrame(dict(zip(names, train.T.astype(np.int64)))).lazy()
    options = {"estimator": estimator}
    if kind == "aim":
        options["max_size"] = max_size
    mechanism = {"aim": dp.mbi.AIM, "mst": dp.mbi.MST}[kind](**options)
    rho = zcdp_budget(epsilon, DELTA)
    for attempt in range(12):  # some budgets are refused for a rounding of their parts
        part, start = rho * (1 - 1e-6 * attempt), time.process_time()
        context = dp.Context.compositor(
            data=frame,
            privacy_unit=dp.unit_of(contributions=1),
            privacy_loss=dp.loss_of(rho=part),
        )
        keys = {name: list(range(size)) for name, size in zip(names, sizes)}
        try:
            table = (
                context.query(rho=part)
                .contingency_table(keys=keys, algorithm=mechanism)
                .release()
            )
            break
        except dp.OpenDPException as error:
            if "insufficient budget" not in str(error):
                raise
    seconds = time.process_time() - start

    def marginal(columns):
        values = table.model.project(tuple(names[i] for i in columns)).values
        # without the state that OpenDP adds for values that are none
        inner = np.asarray(values)[tuple(slice(sizes[i]) for i in columns)]
        return inner.astype(float) / inner.sum()

    found = {**errors(train, sizes, marginal), "CPU seconds": seconds}
    if np.prod(sizes) < 1e7:
        joint = marginal(tuple(range(len(sizes))))
        found["held-out likelihood"] = np.log(
            np.maximum(joint[tuple(test.T)], 1e-300)
        ).mean()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["adult8"])
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.1, 1.0, 10.0])
    parser.add_argument("--releases", type=int, default=5)
    parser.add_argument("--holders", type=int, default=0)
    parser.add_argument("--cliques", nargs="+", default=["aim"])
    parser.add_argument("--peer", nargs="+", choices=["aim", "mst"], default=[])
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--max-size", type=float, default=80.0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    old = read("tables")
    rows = old["rows"] if old else []

    def keep(row):
        print(row, flush=True)
        rows.append(row)
        record("tables", rows, delta=DELTA)

    for name in arguments.data:
        train, test, sizes = load(name)
        party = np.arange(len(train)) % max(arguments.holders, 1)
        for epsilon in arguments.epsilon:
            row = {"data": name, "epsilon": epsilon}
            if arguments.peer:
                for kind in arguments.peer:
                    how = {"iterations": arguments.iterations}
                    if kind == "aim":
                        how["max_size"] = arguments.max_size
                    found = peer(
                        train,
                        test,
                        sizes,
                        epsilon,
                        kind,
                        arguments.iterations,
                        arguments.max_size,
                    )
                    method = f"OpenDP {kind.upper()}"
                    keep({**row, "method": method, "releases": 1, **how, **found})
                continue
            for cliques in arguments.cliques:
                fits = [
                    ours(
                        train,
                        test,
                        sizes,
                        epsilon,
                        cliques,
                        party if arguments.holders else None,
                    )
                    for _ in range(arguments.releases)
                ]
                method = f'DPCGMLearner("{cliques}")'
                if arguments.holders:
                    method += f", {arguments.holders} holders"
                mean = {key: np.mean([fit[key] for fit in fits]) for key in fits[0]}
                keep({**row, "method": method, "releases": len(fits), **mean})


if __name__ == "__main__":
    main()
