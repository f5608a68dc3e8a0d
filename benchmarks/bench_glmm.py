"""What a mixed model over parties costs: rounds, bytes, time; and what it misses.

Run with ``python benchmarks/bench_glmm.py`` (two minutes). The peer is lme4's ``glmer``
on pooled rows with 25 quadrature nodes and ``rhoend=1e-9``, if R with lme4 is
installed; how long other settings of lme4 take is shown beside, also for 100,000 rows
in 100 clusters. Errors are against the peer: the largest of the slopes (of features
with variance one), intercept and scale of the random effects, log-likelihood, and the
relative error of the standard errors. The last line is the number of rounds that
Metropolis-Hastings would take with one proposal per round trip. Linear and Poisson
models follow, against the same model on pooled rows in lme4.
"""

import argparse
import shutil
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from _record import record

from skprivbn.mixed_model import PrivateGLMMClassifier, PrivateGLMMRegressor

CASES = {
    "quadrature, plaintext": {"backend": "plaintext"},
    "quadrature, masking": {},
    "quadrature, ckks": {"backend": "ckks"},
    "quadrature, paillier": {"backend": "paillier"},
    "metropolis, masking": {
        "method": "metropolis",
        "metropolis_params": {"random_state": 0},
    },
}

#: round trips before a step was one sum; the first release took 65 to 314
EARLIER = {
    "quadrature, plaintext": 46,
    "quadrature, masking": 46,
    "quadrature, ckks": 48,
    "quadrature, paillier": 48,
    "metropolis, masking": 544,
    "linear, slopes": 14,
    "poisson, slopes": 71,
}

#: the second of two calls counts: the first compiles
GLMER = """
suppressMessages(library(lme4))
all <- read.csv(commandArgs(TRUE)[1])
rows <- head(all, 500)
model <- {call}
rows <- all
spent <- system.time(model <- {call})
cat(sprintf("%.12g", c({values}sum(spent[c("user.self", "sys.self")]))))
"""
VALUES = """fixef(model), getME(model, "theta"), logLik(model),
    sqrt(diag(as.matrix(vcov(model)))), """
LOGISTIC = "glmer(y ~ x0 + x1 + x2 + (1 | cluster), data = rows, family = binomial{})"
STRICT = "nAGQ=25, bobyqa, rhoend=1e-9"
SETTINGS = {
    STRICT: """, nAGQ = 25, control = glmerControl(optimizer = "bobyqa",
    optCtrl = list(rhoend = 1e-9))""",
    "nAGQ=25": ", nAGQ = 25",
    "nAGQ=25, nloptwrap": """, nAGQ = 25,
    control = glmerControl(optimizer = "nloptwrap")""",
    "nAGQ=1, the default": "",
}


def simulate(n_rows, n_clusters, n_parties, seed=0):
    """Return features, classes, clusters and holders of rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    cluster = rng.integers(n_clusters, size=n_rows)
    effects = rng.normal(size=n_clusters)
    log_odds = X @ [0.8, -0.5, 0.3] - 0.5 + effects[cluster]
    y = (rng.random(n_rows) < 1 / (1 + np.exp(-log_odds))).astype(int)
    return X, y, cluster, rng.integers(n_parties, size=n_rows)


def run_lme4(call, X, y, cluster, values="logLik(model), "):
    """Return numbers of a model that R fits, and its CPU seconds; None without R."""
    if shutil.which("Rscript") is None:
        return None
    script = GLMER.replace("{call}", call).replace("{values}", values)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        table = np.column_stack([X, y, cluster])
        header = "x0,x1,x2,y,cluster"
        np.savetxt(path, table, "%.17g", ",", header=header, comments="")
        command = ["Rscript", "-e", script, str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return None
    return np.array(done.stdout.split(), dtype=float)


def fit_with_lme4(X, y, cluster, setting=STRICT):
    """Return estimates, standard errors and seconds of lme4; None without R."""
    call = LOGISTIC.format(SETTINGS[setting])
    values = run_lme4(call, X, y, cluster, VALUES)
    return None if values is None else (values[:6], values[6:10], values[10])


def fit_over_parties(options, X, y, cluster, party):
    """Return estimates, standard errors, seconds and the model."""
    model = PrivateGLMMClassifier(**options)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, cluster=cluster, party=party)
    seconds = time.process_time() - start
    estimates = [*model.intercept_, *model.coef_[0], model.random_effect_scale_]
    estimates = np.append(estimates, model.log_likelihood_)
    return estimates, np.append(model.intercept_std_, model.coef_std_), seconds, model


MODELS = {
    "linear, slopes": (
        "lmer(y ~ x0 + x1 + x2 + (x0 | cluster), data = rows)",
        {"slopes": [0]},
    ),
    "poisson, slopes": (
        "glmer(y ~ x0 + x1 + x2 + (x0 | cluster), data = rows, family = poisson)",
        {"family": "poisson", "slopes": [0]},
    ),
}


def simulate_targets(X, cluster):
    """Return targets with an intercept and a slope for each cluster, by family."""
    rng = np.random.default_rng(1)
    n_clusters = cluster.max() + 1
    eta = X @ [0.4, -0.3, 0.2] + 0.6 * rng.normal(size=n_clusters)[cluster]
    eta += 0.4 * rng.normal(size=n_clusters)[cluster] * X[:, 0]
    targets = {"gaussian": eta + rng.normal(size=len(X))}
    targets["poisson"] = rng.poisson(np.exp(eta)).astype(float)
    return targets


def compare_settings(sizes=((1500, 30), (100_000, 100)), n_parties=5):
    """Yield how long lme4 takes with other settings, and ours beside it."""
    for n_rows, n_clusters in sizes:
        X, y, cluster, party = simulate(n_rows, n_clusters, n_parties)
        for setting in SETTINGS:
            n_nodes = 1 if "nAGQ=1," in setting else 25
            options = {"quadrature_params": {"n_nodes": n_nodes}}
            seconds = [
                (
                    fit_over_parties(options, X, y, cluster, party)[2],
                    fit_with_lme4(X, y, cluster, setting)[2],
                )
                for _ in range(3 if n_rows < 10_000 else 1)
            ]
            ours, theirs = np.median(seconds, axis=0)
            row = {"setting": setting, "n": n_rows, "clusters": n_clusters}
            row |= {"CPU seconds": ours, "CPU seconds of lme4": theirs}
            print(row, flush=True)
            yield row | {"ratio to lme4": ours / theirs}


def compare_models(X, cluster, party):
    """Yield cost and log-likelihood of other models next to lme4's."""
    targets = simulate_targets(X, cluster)
    for case, (call, options) in MODELS.items():
        y = targets[options.get("family", "gaussian")]
        model, start = PrivateGLMMRegressor(**options), time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y, cluster=cluster, party=party)
        seconds = time.process_time() - start
        peer = run_lme4(call, X, y, cluster)
        row = {
            "case": case,
            "n": len(X),
            "clusters": len(np.unique(cluster)),
            "parties": len(model.ledger_.parties),
            "EM iterations": model.n_iter_,
            "rounds": model.ledger_.n_rounds,
            "rounds before": EARLIER[case],
            "MB": model.ledger_.total_bytes / 1e6,
            "CPU seconds": seconds,
        }
        if peer is not None:
            row["ratio to peer"] = float(seconds / peer[1])
            row["error of log-likelihood"] = abs(float(model.log_likelihood_ - peer[0]))
        yield row


def compare_spreads(X, y, cluster, party):
    """Return how much estimates depend on who holds which rows, at most."""
    spreads = [party, cluster % 5, np.where(cluster % 3 == 0, 0, party), 0 * party]
    fits = [fit_over_parties({}, X, y, cluster, spread) for spread in spreads]
    values = np.array([np.append(fit[0], fit[1]) for fit in fits])
    return float(np.ptp(values, axis=0).max())


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--clusters", type=int, default=30)
    parser.add_argument("--parties", type=int, default=5)
    arguments = parser.parse_args()
    data = simulate(arguments.rows, arguments.clusters, arguments.parties)
    peer = fit_with_lme4(*data[:3])
    name = f"lme4, pooled ({STRICT})"
    if peer is None:
        print("R with lme4 was not found: errors are against a plaintext fit")
        peer = fit_over_parties(CASES["quadrature, plaintext"], *data)
        name = "plaintext"
    print(f"{name}: {peer[2]:.2f} s")
    header = ("", "EM iter.", "rounds", "MB", "CPU s", "slopes", "intercept", "scale")
    header += ("log-lik.", "std. err.")
    print("{:26}{:>9}{:>8}{:>8}{:>8}{:>10}{:>10}{:>10}{:>10}{:>10}".format(*header))
    rows = []
    for case, options in CASES.items():
        estimates, errors, seconds, model = fit_over_parties(options, *data)
        away = np.abs(estimates - peer[0])
        ledger = model.ledger_
        print(
            f"{case:26}{model.n_iter_:9d}{ledger.n_rounds:8d}"
            f"{ledger.total_bytes / 1e6:8.2f}{seconds:8.2f}{away[1:4].max():10.1e}"
            f"{away[0]:10.1e}{away[4]:10.1e}{away[5]:10.1e}"
            f"{np.abs(errors / peer[1] - 1).max():10.1e}",
            flush=True,
        )
        rows.append(
            {
                "case": case,
                "n": arguments.rows,
                "clusters": arguments.clusters,
                "parties": arguments.parties,
                "EM iterations": model.n_iter_,
                "rounds": ledger.n_rounds,
                "rounds before": EARLIER[case],
                "MB": ledger.total_bytes / 1e6,
                "CPU seconds": seconds,
                "ratio to peer": seconds / peer[2],
                "error of slopes": away[1:4].max(),
                "error of intercept": away[0],
                "error of scale": away[4],
                "error of log-likelihood": away[5],
                "relative error of standard errors": np.abs(errors / peer[1] - 1).max(),
            }
        )
    for row in compare_models(data[0], data[2], data[3]):
        print({k: v for k, v in row.items() if k not in ("n", "clusters", "parties")})
        rows.append(row)
    if name != "plaintext":
        record("glmm_settings", compare_settings())
    chains = model._chains()
    n_steps = chains["n_draws"] + chains["n_burn_in"]
    saved = n_steps - -(-n_steps // chains["batch_size"])
    unbatched = ledger.n_rounds + model.n_iter_ * saved
    print(f"one proposal per round: {unbatched} rounds")
    record(
        "glmm",
        rows,
        peer=name,
        peer_seconds=float(peer[2]),
        largest_difference_between_spreads=compare_spreads(*data),
        rounds_without_batches=unbatched,
    )


if __name__ == "__main__":
    main()
