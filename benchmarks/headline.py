"""The measured numbers of the README, from ``benchmarks/results``.

``python benchmarks/headline.py`` writes them between the two marks in the README, and
a test compares both. No number is typed by hand. A line whose results are not stored
is left out.
"""

import json
from pathlib import Path
from statistics import mean

RESULTS = Path(__file__).parent / "results"
README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- headline numbers -->\n", "<!-- end of headline numbers -->\n"


def mixture(results):
    rows = {row["backend"]: row for row in results["ppem"]["rows"] if row["d"] == 20}
    row = rows["ckks"]
    return (
        f"Gaussian mixture under CKKS, {row['parties']} parties, {row['n']:,} rows, "
        f"k={row['k']}, d={row['d']}",
        f"parameters within {row['largest difference']:.0e} of `GaussianMixture`; CPU "
        f"of an iteration {row['ratio to plaintext']:.1f} times that of sums in the "
        f"clear, {rows['masking']['ratio to plaintext']:.1f} times under the "
        "default's masks",
        "bench_ppem.py",
    )


def packing(results):
    rows = [row for row in results["backends"]["rows"] if "k=3" in row["series"]]
    cost = {row["backend"]: row["ms per sum"] for row in rows}
    ratio = cost["phe naive"] / cost["paillier 2048"]
    return (
        f"Secure sum of {rows[0]['values']} numbers under Paillier",
        f"{ratio:.0f} times faster than one `phe` ciphertext per number, keys of 2,048 "
        "bits",
        "bench_backends.py",
    )


def tables(results):
    rows = [r for r in results["holdout_likelihood"]["rows"] if r["dataset"] == "adult"]

    def score(method, epsilon=None):
        found = [r for r in rows if r["method"] == method]
        return mean(r["score"] for r in found if r.get("epsilon") == epsilon)

    return (
        f"Adult census, {rows[0]['records']:,} people, one release with epsilon = 1",
        f"log-likelihood of a held-out person {score('auto', 1.0):.2f}, "
        f"{score('non-private'):.2f} without noise, {score('uniform'):.2f} knowing "
        "nothing",
        "study_holdout_likelihood.py",
    )


def random_fields(results):
    rows = [
        row
        for row in results["random_fields"]["rows"]
        if row["experiment"] == "learning"
        and (row["graph"], row["epsilon"]) == ("chain", 1.0)
        and "mbi 1000" in row
    ]
    ours, theirs = (mean(row[name] for row in rows) for name in ("auto", "mbi 1000"))
    share = mean(row["auto seconds"] / row["mbi 1000 seconds"] for row in rows)
    return (
        f"Random chains of 10 variables, {rows[0]['records']:,} rows, epsilon = 1",
        f"divergence {ours:.2f} untuned; {theirs:.2f} by `mbi` with 1,000 steps. Takes "
        f"{share:.2f} of its time ({len(rows)} chains)",
        "bench_graphical_model.py",
    )


def collective(results):
    rows = {
        (row["selection"], row["fraction"]): row
        for row in results["collective_asia"]["rows"]
    }
    none, tenth = rows["private counts", 0.0], rows["random", 0.1]
    return (
        f"Asia at two sites, {results['collective_asia']['n']:,} records",
        f"{none['wrong links']:.1f} wrong links on average, as when all rows are sent "
        f"({rows['random', 1.0]['wrong links']:.1f}), by counts on secret shares; "
        f"{tenth['wrong links']:.1f} from a tenth of the rows",
        "study_collective_asia.py",
    )


def networks(results):
    rows = results["notears"]["rows"]
    d, parties = ([row[name] for row in rows] for name in ("d", "K"))
    distance = {
        name: mean(row[f"{name} SHD"] for row in rows)
        for name in ("masked one sum", "masked rounds", "torch", "DAGMA")
    }
    ratios = [row["ratio"] for row in rows]
    times = [row["rounds seconds"] / row["DAGMA seconds"] for row in rows]
    return (
        f"Linear networks, {min(d)} to {max(d)} variables, {min(parties)} to "
        f"{max(parties)} parties, {len(rows)} graphs",
        f"structural Hamming distance {distance['masked one sum']:.1f} by one masked "
        f"sum, {distance['masked rounds']:.1f} by masked rounds, "
        f"{distance['torch']:.1f} by the paper's rounds in torch, which take "
        f"{min(ratios):.0f} to {max(ratios):.0f} times the CPU of ours in the clear; "
        f"{distance['DAGMA']:.1f} by DAGMA on pooled rows, of whose CPU ours take "
        f"{min(times):.1f} to {max(times):.1f} times",
        "bench_notears.py",
    )


def mixed_model(results):
    stored = results["glmm"]
    row = next(r for r in stored["rows"] if r["case"] == "quadrature, masking")
    ratio = {
        (r["setting"], r["n"]): r["ratio to lme4"]
        for r in results["glmm_settings"]["rows"]
    }
    many = max(n for _, n in ratio)

    def times(setting):
        return f"{ratio[setting, row['n']]:.1f} ({ratio[setting, many]:.1f})"

    strict = "nAGQ=25, bobyqa, rhoend=1e-9"
    return (
        f"Logistic mixed model, 25 nodes, {row['n']:,} rows in {row['clusters']} "
        f"clusters ({many:,} in 100) at {row['parties']} parties, under masks",
        f"coefficients within {row['error of slopes']:.0e} of lme4 ({strict}) on "
        f"pooled rows, in {row['rounds']} rounds; CPU relative to lme4's "
        f"{times(strict)}, with its default optimiser {times('nAGQ=25')}, with "
        f"nloptwrap {times('nAGQ=25, nloptwrap')}; both with nAGQ=1, lme4's default, "
        f"{times('nAGQ=1, the default')}",
        "bench_glmm.py",
    )


def private_k2(results):
    rows = results["k2"]["rows"]
    row = next(r for r in rows if r["series"] == "Asia" and r["n"] == 100_000)
    same = "the network of" if row["same as pooled K2"] else "another network than"
    return (
        f"Private K2 on Asia, at most {row['max_parents']} parents, no noise, columns "
        f"at two parties, {row['n']:,} records",
        f"{same} K2 on the joined table, in {row['seconds']:.1f} s of CPU and "
        f"{row['MB']:.0f} MB of messages",
        "bench_k2.py",
    )


LINES = {
    "ppem": mixture,
    "notears": networks,
    "k2": private_k2,
    "glmm": mixed_model,
    "backends": packing,
    "holdout_likelihood": tables,
    "random_fields": random_fields,
    "collective_asia": collective,
}


def table():
    """Return the table in Markdown."""
    results = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in RESULTS.glob("*.json")
    }
    lines = ["| what | measured | by `python benchmarks/...` |", "|---|---|---|"]
    for name, line in LINES.items():
        if name in results:
            what, measured, command = line(results)
            lines.append(f"| {what} | {measured} | `{command}` |")
    return "\n".join(lines) + "\n"


def parts(text):
    """Return the README before, between and after the marks."""
    before, found, rest = text.partition(BEGIN)
    between, also, after = rest.partition(END)
    assert found and also, "the README has lost its marks"
    return before, between, after


def main():
    before, _, after = parts(README.read_text(encoding="utf-8"))
    README.write_text(before + BEGIN + table() + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
