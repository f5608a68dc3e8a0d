"""Three hundred simulated studies by the logistic mixed model: does anything go wrong?

Run with ``python benchmarks/study_glmm.py`` (some minutes of CPU). With ``--state
FILE``, FILE keeps what was done, one study a line, so that a run can be cut off and
taken up again: ``--most N`` does N more. Sizes are 200 to 100,000 rows, prevalences 0.5
to 50 %, scales of the effects 0 to 3, 2 to 500 clusters, mixed over parties, one
party's each, or unevenly spread. A study goes wrong if a coefficient is beyond 20 and
nothing warns, or if the log-likelihood is below that of the logistic regression, of any
scale on a dense grid, or of lme4 by more than 1e-4, or if it is not what adaptive
quadrature on pooled rows gives at the same parameters. lme4 is asked about thirty
(``--lme4``, with R and lme4 installed); its answers are stored for the tests.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _record import record

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
ANSWERS = ROOT / "tests" / "mixed_model" / "lme4" / "studies.json"

from tests.mixed_model.studies import (  # noqa: E402 -- beside the package
    SCALES,
    draw,
    fit,
    marginal,
    without_effects,
)

N_STUDIES, N_COMPARED = 300, 30
SIZES = (1_000, 3_000, 20_000, 100_000)


def look_at(seed):
    """Return what came of one study, and how much better anything else is."""
    X, y, cluster, party = draw(seed)
    start = time.process_time()
    model = fit(X, y, cluster, party)
    seconds = time.process_time() - start
    beta, scale = model.coef_[0], float(model.random_effect_scale_)
    predictor = X @ beta + model.intercept_
    others = [marginal(s, predictor, y, cluster) for s in (scale, *SCALES)]
    value = model.log_likelihood_
    warned = bool(np.isnan(model.coef_std_).any())
    return {
        "seed": seed,
        "n": len(y),
        "clusters": len(model.clusters_),
        "events": int(y.sum()),
        "scale": scale,
        "singular": bool(model.singular_),
        "converged": bool(model.converged_),
        "warned": warned,
        "diverged": not warned and bool(np.abs(beta).max() > 20 or scale > 20),
        "log-likelihood": float(value),
        "without effects": float(without_effects(X, y) - value),
        "grid over the scale": float(max(others[1:]) - value),
        "same by pooled quadrature": float(abs(others[0] - value)),
        "rounds": model.ledger_.n_rounds,
        "seconds": seconds,
    }


def ask_lme4():
    """Store lme4's answers to the first studies that are not large."""
    seeds = [s for s in range(N_STUDIES) if len(draw(s)[1]) < 6_000][:N_COMPARED]
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            X, y, cluster, _ = draw(seed)
            np.savetxt(
                Path(folder) / f"{seed}.csv",
                np.column_stack([y, X, cluster]),
                "%.17g",
                ",",
                header="y,x0,x1,cluster",
                comments="",
            )
        command = ["Rscript", str(ANSWERS.with_suffix(".R")), folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = (line.split() for line in done.stdout.splitlines())
    answers = {
        seed: {
            "log_likelihood": float(value),
            "scale": float(scale),
            "singular": singular == "TRUE",
            "seconds": float(seconds),
        }
        for seed, value, scale, singular, seconds in lines
    }
    answers = dict(sorted(answers.items(), key=lambda item: int(item[0])))
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in answers.items())
    ANSWERS.write_text("{\n" + lines + "\n}\n")


def summarise(studies):
    """Yield one row for each class of sizes, and one for all."""
    answers = json.loads(ANSWERS.read_text())
    classes = [(0, 10**9), *zip((0, *SIZES), SIZES)]
    for low, high in classes:
        chosen = [s for s in studies if low < s["n"] <= high]
        if not chosen:
            continue
        compared = [
            (s, answers[str(s["seed"])]) for s in chosen if str(s["seed"]) in answers
        ]
        yield {
            "rows": "all" if high == 10**9 else f"{low + 1:,} to {high:,}",
            "studies": len(chosen),
            "diverged": sum(s["diverged"] for s in chosen),
            "below the model without effects": sum(
                s["without effects"] > 1e-4 for s in chosen
            ),
            "below the grid": sum(s["grid over the scale"] > 1e-4 for s in chosen),
            "off pooled quadrature": sum(
                s["same by pooled quadrature"] > 1e-4 for s in chosen
            ),
            "not converged, said": sum(not s["converged"] for s in chosen),
            "separated, said": sum(s["warned"] for s in chosen),
            "boundary fits": sum(s["singular"] for s in chosen),
            "compared with lme4": len(compared),
            "below lme4": sum(
                s["log-likelihood"] < a["log_likelihood"] - 1e-4 for s, a in compared
            ),
            "boundary fits of lme4": sum(a["singular"] for _, a in compared),
            "of these not ours": sum(
                a["singular"] and not s["singular"] for s, a in compared
            ),
            "median of rounds": float(np.median([s["rounds"] for s in chosen])),
            "over 20 rounds": sum(s["rounds"] > 20 for s in chosen),
            "most rounds": max(s["rounds"] for s in chosen),
            "CPU seconds": sum(s["seconds"] for s in chosen),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--state", type=Path)
    parser.add_argument("--most", type=int, default=N_STUDIES)
    parser.add_argument("--lme4", action="store_true")
    arguments = parser.parse_args()
    if arguments.lme4:
        ask_lme4()
    studies = []
    if arguments.state and arguments.state.exists():
        studies = [
            json.loads(line) for line in arguments.state.read_text().splitlines()
        ]
    done = {study["seed"] for study in studies}
    missing = [seed for seed in range(N_STUDIES) if seed not in done]
    for seed in missing[: arguments.most]:
        studies.append(look_at(seed))
        if arguments.state:
            with arguments.state.open("a") as file:
                file.write(json.dumps(studies[-1]) + "\n")
    if len(studies) == N_STUDIES:
        record("glmm_studies", summarise(studies))


if __name__ == "__main__":
    main()
