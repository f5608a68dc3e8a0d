"""Private tables: what `DPCGMLearner` chooses, against AIM and MST of OpenDP.

Run with ``python benchmarks/bench_tables.py`` (some minutes). ``--data adult8 adult15
msnbc alarm`` names tables, ``--epsilon`` budgets (delta is 1e-6), ``--holders`` also
shares the rows of adult8. ``--max-model-cells 10485760`` lets ours be as large as
AIM's, which has 80 MB. ``--peer aim`` or ``--peer mst`` runs OpenDP's mechanism
instead, which needs ``pip install "opendp[mbi]"`` (in an environment of its own: its
mbi and polars are older than those of ``skprivbn[bench]``)
and, for AIM, a quarter of an hour and more for each release, on many columns hours;
with ``--quick`` it computes by our inference, and its seconds are not its own (see
``_quick_aim.py``). The record keeps means: every release adds to that of its case.
Remove ``results/tables.json`` to start again.

Errors are mean total variations between the model and the training rows over all
tables of two and of three columns (200 of these, drawn once, where there are more); the
likelihood is that of a row that was held out; seconds are of CPU. The settings of our
mechanism are not blind to adult8: see ``skprivbn/graphical_model/_adaptive.py``.
"""

import argparse
import time
import warnings
from contextlib import nullcontext
from importlib import import_module
from importlib.metadata import version
from itertools import combinations

import _quick_aim
import numpy as np
from _record import machine, read, record

from skprivbn.datasets import load_adult, load_alarm, load_msnbc
from skprivbn.graphical_model import DPCGMLearner, MarkovRandomField
from skprivbn.privacy import PrivacyAccountant
from skprivbn.utils import import_optional

DELTA = 1e-6
MEASURED = ("2-way error", "3-way error", "held-out likelihood", "CPU seconds")
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


def ours(train, test, sizes, epsilon, cliques, party=None, **options):
    """One fit of `DPCGMLearner`."""
    options["accountant"] = PrivacyAccountant(epsilon=np.inf, delta=0.5)
    learner = DPCGMLearner(
        cliques, epsilon=epsilon, delta=DELTA, states=sizes, **options
    )
    start = time.process_time()
    learner.fit(train, party=party)
    seconds = time.process_time() - start
    return {
        **errors(train, sizes, learner.marginal),
        "held-out likelihood": learner.score(test),
        "CPU seconds": seconds,
    }


def release(train, sizes, epsilon, kind, iterations, max_size=None, quick=False):
    """The field of one release by OpenDP's AIM or MST, and its seconds.

    With the same zCDP budget as ours; its nodes are named in the order of columns.
    """
    import mbi.estimation
    import opendp.prelude as dp

    from skprivbn.privacy._composition import zcdp_budget

    def estimator(domain, loss_fn, *, potentials=None):
        descend = (_quick_aim if quick else mbi.estimation).mirror_descent
        return descend(domain, loss_fn, potentials=potentials, iters=iterations)

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

    def prior(budget):
        # OpenDP rounds sums of budgets up, and then refuses them: leave a billionth
        return budget * (1 - 1e-9) if budget > 1e-6 * rho else 0.0

    for part in ("_table", "_aim", "_mst"):
        import_module(f"opendp.extras.mbi.{part}").prior = prior
    start = time.process_time()
    context = dp.Context.compositor(
        data=frame,
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=rho),
    )
    keys = {name: list(range(size)) for name, size in zip(names, sizes)}
    with _quick_aim.quick_choices() if quick else nullcontext():
        table = (
            context.query(rho=rho)
            .contingency_table(keys=keys, algorithm=mechanism)
            .release()
        )
    seconds = time.process_time() - start

    # our field of the same potentials answers faster; without the states that OpenDP
    # adds for values that are none
    potentials = {
        clique: np.asarray(table.model.potentials[clique].values, dtype=float)[
            tuple(slice(sizes[names.index(name)]) for name in clique)
        ]
        for clique in table.model.potentials.cliques
    }
    states = {name: range(size) for name, size in zip(names, sizes)}
    return MarkovRandomField(names, states, potentials), seconds


def peer(train, test, sizes, epsilon, kind, iterations, **how):
    """One release by a mechanism of OpenDP, and how good it is."""
    field, seconds = release(train, sizes, epsilon, kind, iterations, **how)
    names = field.nodes
    return {
        **errors(train, sizes, lambda c: field.query([names[i] for i in c])),
        "held-out likelihood": field.log_likelihood(test).mean(),
        "CPU seconds": seconds,
    }


def keep(row):
    """Add a release to the record: those of one case become their mean."""
    print(row, flush=True)
    old = read("tables") or {"rows": []}
    rows = old["rows"]
    case = {key: row[key] for key in row if key not in MEASURED}
    for known in rows:
        if {k: known[k] for k in known if k not in (*MEASURED, "releases")} == case:
            n = known["releases"]
            known |= {key: (n * known[key] + row[key]) / (n + 1) for key in MEASURED}
            known["releases"] = n + 1
            break
    else:
        rows.append({**case, "releases": 1, **{key: row[key] for key in MEASURED}})
    rows.sort(key=lambda row: (row["data"], row["epsilon"], row["method"]))
    told = {"delta": DELTA, "command": "python benchmarks/bench_tables.py"}
    told |= {key: old[key] for key in ("peers", "machine") if key in old}
    if row["method"].startswith("OpenDP"):
        told["peers"] = f"opendp {version('opendp')} with mbi {version('mbi')}, in an "
        told["peers"] += "environment of their own"
    else:
        told["machine"] = machine()
    record("tables", rows, **told)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["adult8"])
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.1, 1.0, 10.0])
    parser.add_argument("--releases", type=int, default=5)
    parser.add_argument("--holders", type=int, default=0)
    parser.add_argument("--cliques", nargs="+", default=["aim"])
    parser.add_argument("--max-model-cells", type=int, help="cells of a table, of ours")
    parser.add_argument("--peer", nargs="+", choices=["aim", "mst"], default=[])
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--max-size", type=float, default=80.0)
    parser.add_argument("--quick", action="store_true", help="AIM by our inference")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in arguments.data:
        train, test, sizes = load(name)
        party = np.arange(len(train)) % arguments.holders if arguments.holders else None
        together = f", {arguments.holders} holders" if arguments.holders else ""
        for epsilon in arguments.epsilon * arguments.releases:
            row = {"data": name, "epsilon": epsilon}
            for kind in arguments.peer:
                how = {"iterations": arguments.iterations}
                if kind == "aim":
                    how["max_size"] = arguments.max_size
                quick = kind == "aim" and arguments.quick
                found = peer(train, test, sizes, epsilon, kind, quick=quick, **how)
                method = f"OpenDP {kind.upper()}" + ", by our inference" * quick
                keep({**row, "method": method, **how, **found})
            for cliques in () if arguments.peer else arguments.cliques:
                options, said = {}, f'"{cliques}"'
                if arguments.max_model_cells is not None:
                    options["clique_params"] = {
                        "max_model_cells": arguments.max_model_cells
                    }
                    said += f", max_model_cells={arguments.max_model_cells}"
                found = ours(train, test, sizes, epsilon, cliques, party, **options)
                method = f"DPCGMLearner({said}){together}"
                keep({**row, "method": method, **found})


if __name__ == "__main__":
    main()
