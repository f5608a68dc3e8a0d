"""Write benchmarks/REPORT.md and its plots from what the benchmarks stored.

Run with ``python benchmarks/report.py``; ``make bench`` does, after all benchmarks.
Every number is read from ``benchmarks/results/*.json``, none is typed here.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from _record import RESULTS, read

HERE = Path(__file__).parent
REPORT, PLOTS = HERE / "REPORT.md", HERE / "plots"

#: columns that say which case a row is, beside all columns that hold text
CASE = ["k", "d", "n", "K", "parties", "sites", "clusters", "values", "epsilon"]
CASE += ["fraction", "bytes_to_each_site", "max_parents", "nodes", "states"]
CASE += ["records", "rows", "variables", "holders", "penalty", "figure", "repeat"]
CASE += ["fits"]


@dataclass(frozen=True)
class Curve:
    """One picture: a line for each value of `by`."""

    x: str
    y: str
    by: str
    where: dict = field(default_factory=dict)
    log: bool = True


@dataclass(frozen=True)
class Section:
    """What to say about one file of results."""

    title: str
    text: str = ""
    ratios: dict = field(default_factory=dict)
    reference: dict = field(default_factory=dict)
    curves: tuple = ()


SECTIONS = {
    "ppem": Section(
        "Gaussian mixtures: `PPEMGaussianMixture`",
        "CPU time of one EM iteration of all parties and the coordinator, by backend.",
    ),
    "ppem_table_1": Section("The paper's Table 1: `PPEMGaussianMixture`"),
    "backends": Section(
        "Secure sums",
        "CPU time of one sum, all parties and the coordinator together. "
        "*phe naive* encrypts every number on its own.",
        reference={"backend": "phe naive", "measure": "ms per sum"},
        curves=(
            Curve("parties", "ms per sum", "backend", {"series": "parties"}),
            Curve("values", "ms per sum", "backend", {"series": "values"}),
        ),
    ),
    "floor": Section(
        "Near the floor: works of all rooms beside peers",
        "CPU seconds now and in release 0.2, beside a peer or, where there is none, a "
        "floor; how much of its bar each work takes (above 1 misses it). Then where "
        "the time of the three worst goes, and how times grow: exponents of log-log "
        "slopes. The machine was idle.",
    ),
    "first_release_fits": Section(
        "Small fits, against release 0.2",
        "CPU time and bytes of whole fits, 600 rows at three parties. Since then only "
        "parties read sums, count the rows behind them, and take the steps between "
        "them, and all compare what they verified before the result is told.",
    ),
    "field_times": Section("Random fields: run times of methods, as in the paper"),
    "glmm": Section("Mixed models: `PrivateGLMMClassifier`"),
    "glmm_settings": Section(
        "Mixed models beside settings of lme4: `PrivateGLMMClassifier`",
        "CPU seconds of ours, with as many nodes, over five parties under masks; "
        "medians of three of 1,500 rows, one run of 100,000.",
    ),
    "glmm_studies": Section("Mixed models: three hundred simulated studies"),
    "audits": Section(
        "Audits of differential privacy",
        "What attackers prove of every path with epsilon, and of its twin without a "
        "defence. `study_audits.py` says what the columns are.",
    ),
    "collective": Section(
        "Known structure, columns at several sites: `CollectiveBayesianNetwork`"
    ),
    "collective_asia": Section(
        "Unknown structure: `CollectiveBayesianNetwork` on Asia",
        curves=(Curve("fraction", "wrong links", "selection", log=False),),
    ),
    "collective_limits": Section(
        "Small counts that are not opened: `CollectiveBayesianNetwork`",
        "Links missed and made up on Asia, whatever their direction, and divergence "
        "from the network that records were drawn from.",
    ),
    "collective_rows": Section(
        "Which rows to send: `CollectiveBayesianNetwork`",
        "Kullback-Leibler divergences from the pooled fit, by the fraction of rows "
        "sent and how they are chosen. Shares of runs that found both links across "
        "sites of Asia, and that found a false one.",
    ),
    "k2": Section(
        "Columns of two holders: `PrivateK2StructureLearner`",
        ratios={
            "CPU time, ratio to pooled K2": ("seconds", "seconds of pooled K2"),
            "CPU time, ratio to phe one by one": (
                "seconds",
                "phe seconds, extrapolated",
            ),
        },
        curves=(
            Curve("n", "seconds", "series", {"series": "Asia"}),
            Curve("n", "MB", "series", {"series": "Asia"}),
        ),
    ),
    "k2_criteria": Section(
        "Scores of K2 on Asia: `K2StructureLearner`",
        "Wrong edges, means over samples.",
    ),
    "private_k2": Section(
        "Columns with epsilon: `PrivateK2StructureLearner`",
        "Wrong edges and held-out log-likelihood of networks with at most two parents, "
        "next to PrivBayes of one curator.",
    ),
    "notears": Section(
        "Rows, NOTEARS: `FederatedNotearsADMM`",
        ratios={
            "CPU time, ratio to the paper's rounds in torch": (
                "rounds seconds",
                "torch seconds",
            ),
            "CPU time, ratio to DAGMA on pooled rows": (
                "rounds seconds",
                "DAGMA seconds",
            ),
        },
    ),
    "notears_growth": Section(
        "Growth of `FederatedNotearsADMM` with variables and parties",
        curves=(
            Curve("d", "masked round seconds", "K", {"K": 8}),
            Curve("K", "masked round seconds", "d", {"d": 20}),
        ),
    ),
    "notears_authors": Section(
        "NOTEARS by ADMM: the code of its authors, beside `FederatedNotearsADMM`"
    ),
    "structure_assumptions": Section(
        "Scaled columns and curved effects: learners of linear structure",
        "Mean structural Hamming distances.",
    ),
    "private_mixture": Section(
        "Differentially private mixtures: `PPEMGaussianMixture`",
        "Mean log-likelihood of a row.",
    ),
    "private_mixture_defaults": Section(
        "Defaults of private mixtures: `PPEMGaussianMixture`",
        "Adjusted Rand indices with true components, log-likelihoods of a row.",
    ),
    "private_defaults_numbers": Section(
        "Defaults with epsilon, beside diffprivlib and no noise",
        "Means over five seeds, in units of the measure.",
    ),
    "private_defaults_tables": Section(
        "Classifiers trained on synthetic rows: `DPCGMLearner` beside MST",
        "Areas under the ROC curve on real rows, delta=1e-6 where nothing is said.",
    ),
    "private_intervals_moments": Section(
        "Intervals of private means and covariances: `FederatedPCA.conf_int`",
        "Share of 95 % intervals that cover the truth.",
    ),
    "private_intervals_weights": Section(
        "Intervals of private weights: `FederatedGaussianBayesianNetwork.conf_int`",
        "Share of 95 % intervals that cover the truth, where the graph is right.",
    ),
    "private_intervals_mixed": Section(
        "Private linear mixed models: `PrivateGLMMRegressor(epsilon=...)`",
        "Share of 95 % intervals that cover the truth, root mean square errors.",
    ),
    "private_intervals_tables": Section(
        "Intervals of private marginals: `DPCGMLearner.conf_int`",
        "Share of 95 % intervals that cover the truth.",
    ),
    "private_intervals_mixture": Section(
        "Intervals of private mixtures: `PPEMGaussianMixture.conf_int`",
        "Share of 95 % intervals that cover the truth.",
    ),
    "tables": Section(
        "Private tables against AIM and MST of OpenDP: `DPCGMLearner`",
        "Mean total variation between the model and the training rows over all tables "
        "of two and three columns, mean log-likelihood of a held-out row, CPU seconds.",
    ),
    "random_fields": Section(
        "Differentially private random fields: `DPCGMLearner`",
        "Kullback-Leibler divergences from the true field, and CPU seconds. Medians "
        "over random fields.",
        ratios={
            f"{what}, ratio to mbi after {n} iterations": (
                f"auto{unit}",
                f"mbi {n}{unit}",
            )
            for n in (300, 1000, 4000)
            for what, unit in (("divergence", ""), ("CPU time", " seconds"))
        }
        | {
            "CPU time, ratio to a textbook junction tree": (
                "ours milliseconds",
                "textbook milliseconds",
            )
        },
    ),
    "sources": Section(
        "Rows in blocks: fits to Parquet files, and DuckDB's sums behind the moments",
        "Processor seconds on a loaded machine, one run, and peaks of resident memory. "
        "100 million rows are from an earlier run.",
    ),
    "site_questions": Section(
        "Which questions of an honest study three hospitals answer",
        "With the recommended site file; `study_site_questions.py` says what the "
        "columns are.",
    ),
    "pairs_of_fits": Section(
        "What permitted fits tell a hostile researcher",
        "Pairs of fits that differ by one patient, three hospitals of 400; "
        "`study_pairs_of_fits.py` says what the columns are.",
    ),
    "source_files": Section(
        "Files of a million rows and ten columns, as sites read them",
        "Processor seconds on an idle machine, one run, and peaks of resident memory.",
    ),
    "flare": Section(
        "NVIDIA FLARE against one process",
        "Elapsed seconds.",
        ratios={"seconds, ratio to one process": ("seconds", "seconds_in_process")},
    ),
    "engine": Section(
        "A round on NVIDIA FLARE",
        "Where its time goes, by number of sites on one machine.",
    ),
    "many_parties": Section(
        "Sessions of many parties",
        "Seconds of CPU of all parties and the coordinator.",
    ),
    "alignment": Section("Records aligned by keys of three parties"),
}


def is_case(name, rows):
    """Tell whether a column says which case a row is, rather than a measurement."""
    return name in CASE or any(isinstance(row.get(name), str) for row in rows)


def add_ratios(rows, ratios):
    """Return rows with further columns, quotients of two."""
    for name, (above, below) in ratios.items():
        rows = [
            {**row, name: row[above] / row[below]}
            if row.get(above) is not None and row.get(below)
            else row
            for row in rows
        ]
    return rows


def add_reference(rows, backend, measure):
    """Return rows with the ratio to the row of one backend that is else the same."""
    case = [name for name in rows[0] if is_case(name, rows) and name != "backend"]
    base = {
        tuple(row[name] for name in case): row[measure]
        for row in rows
        if row["backend"] == backend
    }
    return [
        {**row, f"ratio to {backend}": row[measure] / base[key]}
        if (key := tuple(row[name] for name in case)) in base
        and row["backend"] != backend
        else row
        for row in rows
    ]


def over_seeds(rows):
    """Return medians over the seeds of each case; rows without a seed as they are.

    What was measured with some of the seeds only is a line of its own.
    """
    alone = [row for row in rows if "seed" not in row]
    rows = [row for row in rows if "seed" in row]
    names = [n for n in dict.fromkeys(n for row in rows for n in row) if n != "seed"]
    case = [name for name in names if is_case(name, rows)]
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in case), []).append(row)
    summary = []
    for key, group in groups.items():
        seeds = [row["seed"] for row in group]
        if len(set(seeds)) < len(seeds):
            raise ValueError(
                f"rows of one case, {dict(zip(case, key))}, have the same seed: add to "
                "CASE what tells them apart"
            )
        lines = {}
        for name in names:
            of = tuple(row["seed"] for row in group if row.get(name) is not None)
            if name not in case and of:
                line = {**dict(zip(case, key)), "seeds": len(of)}
                values = [row[name] for row in group if row["seed"] in of]
                lines.setdefault(of, line)[name] = median(values)
        summary += lines.values()
    return [*alone, *summary]


def words(value):
    """Return a value as a table shows it: three digits."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"
    return str(value)


def tables(rows):
    """Return Markdown tables, one for all rows that were measured alike."""
    groups = {}
    for row in rows:
        filled = {key: value for key, value in row.items() if value is not None}
        groups.setdefault(tuple(sorted(filled)), []).append(filled)
    return "\n\n".join(table(group) for group in groups.values())


def table(rows):
    """Return a Markdown table; numbers are aligned to the right."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = [any(isinstance(row.get(n), str) for row in rows) for n in names]
    lines = [names, [":--" if left else "--:" for left in text]]
    lines += [[words(row.get(name)) for name in names] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def against_peers(results, peers):
    """Return the rows of the first table: every stored ratio, with its case."""
    found = []
    for name, rows in results.items():
        peer = peers.get(name, "peer")
        for row in rows:
            case = [
                f"{row[key]}" if isinstance(row[key], str) else f"{key}={row[key]}"
                for key in row
                if is_case(key, rows) and row[key] is not None
            ]
            found += [
                {
                    "benchmark": name,
                    "case": ", ".join(case),
                    "what": key.replace("to peer", f"to {peer}"),
                    "ratio": value,
                }
                for key, value in row.items()
                if "ratio to " in key
                and key != "ratio to plaintext"  # ours, not a peer
                and value is not None
            ]
    check_told_apart([tuple(row.values())[:3] for row in found], "the first table")
    return found


def check_told_apart(labels, where):
    """Refuse two numbers with one label: what tells them apart is missing in CASE."""
    twice = [label for i, label in enumerate(labels) if label in labels[:i]]
    if twice:
        raise ValueError(f"{where} has {twice[0]} twice: add what differs to CASE")


def short(number):
    """Return a number as an axis shows it, such as 30k."""
    for size, letter in ((10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"


def draw(name, number, rows, curve):
    """Draw one picture and return its path."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    chosen = [
        row
        for row in rows
        if all(row.get(k) == v for k, v in curve.where.items())
        and None not in (row.get(curve.x), row.get(curve.y))
    ]
    if not chosen:
        return None
    figure, ax = plt.subplots(figsize=(5.5, 3.4), layout="constrained")
    for label in dict.fromkeys(row[curve.by] for row in chosen):
        line = sorted(
            (row[curve.x], row[curve.y]) for row in chosen if row[curve.by] == label
        )
        check_told_apart([x for x, _ in line], f"line {label!r} of plot {name}")
        name_of_line = label if isinstance(label, str) else f"{curve.by} = {label}"
        ax.plot(*zip(*line), marker="o", markersize=4, label=name_of_line)
    if curve.log:
        ax.set(xscale="log", yscale="log")
        ticks = sorted({row[curve.x] for row in chosen})
        ax.set_xticks(ticks, [short(tick) for tick in ticks], minor=False)
        ax.minorticks_off()
    ax.set(xlabel=curve.x, ylabel=curve.y)
    ax.grid(alpha=0.3)
    figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    PLOTS.mkdir(exist_ok=True)
    path = PLOTS / f"{name}_{number}.png"
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
    return path


def describe(machine):
    """Return the machine in one line."""
    threads = machine["threads"] or "any number of"
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
    return (
        f"{machine['processor']}, {machine['cores']} cores, {threads} thread(s) in "
        f"numpy, {machine['system']}, Python {machine['python']}, {versions}"
    )


def section(name, stored, rows):
    """Return the part of the report about one file."""
    words_of = SECTIONS.get(name, Section(f"`{name}`"))
    parts = [f"## {words_of.title}", words_of.text]
    if "peer" in stored:
        parts.append(f"Peer: {stored['peer']}.")
    parts.append(f"`{stored['command']}` on {describe(stored['machine'])}.")
    more = {
        key.replace("_", " "): words(value)
        for key, value in stored.items()
        if key not in ("machine", "command", "rows", "peer")
        and isinstance(value, (int, float, str))
    }
    if more:
        parts.append("; ".join(f"{key}: {value}" for key, value in more.items()) + ".")
    parts.append(tables(rows))
    for number, curve in enumerate(words_of.curves):
        path = draw(name, number, rows, curve)
        if path is not None:
            alt = f"{curve.y} against {curve.x}, by {curve.by}"
            parts.append(f"![{alt}](plots/{path.name})")
    return "\n\n".join(part for part in parts if part)


def report():
    """Return the report and the names of the results that it is about."""
    names = sorted(path.stem for path in RESULTS.glob("*.json"))
    order = [*SECTIONS, *names]
    names.sort(key=order.index)
    stored = {name: read(name) for name in names}
    wrong = [name for name in names if "rows" not in stored[name]]
    if wrong:
        print("left out, not written by benchmarks/_record.py:", ", ".join(wrong))
    results = {}
    for name in set(names) - set(wrong):
        known = SECTIONS.get(name, Section(name))
        rows = add_ratios(stored[name]["rows"], known.ratios)
        if known.reference:
            rows = add_reference(rows, **known.reference)
        results[name] = over_seeds(rows)
    results = {name: results[name] for name in names if name in results}
    peers = {name: stored[name]["peer"] for name in results if "peer" in stored[name]}
    parts = [
        "# Benchmarks",
        "Made by `make bench` from `benchmarks/results/`; every part names the command "
        "and the machine of its numbers. Times are CPU times unless said otherwise, "
        "with all parties on one core.",
        "## Against peers",
        "Below 1 is better than the peer.",
        table(against_peers(results, peers)),
        *(section(name, stored[name], rows) for name, rows in results.items()),
    ]
    return "\n\n".join(parts) + "\n", sorted(results)


def main():
    text, names = report()
    REPORT.write_text(text)
    print("written:", json.dumps(names), REPORT.name)


if __name__ == "__main__":
    main()
