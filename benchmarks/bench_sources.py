"""Rows in blocks: time per row and peak memory of fits to Parquet files of any size.

Run with ``python benchmarks/bench_sources.py`` (ten minutes; needs 5 GB of disk,
pyarrow and duckdb). Three parties hold a third of the rows each, in files
of five columns. Every fit runs in a process of its own, whose peak of resident memory
is kept. Beside moments, DuckDB computes the same sums over the same columns with one
thread: counts, sums, and sums of products of all pairs. Times are of the processor.

``--files`` reads tables of a million rows and ten columns as a site does, beside pandas
(CSV) and pyarrow (Parquet), and fits to three such files (three minutes, 1.5 GB).
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _record import record

PARTIES = ("north", "south", "west")
N_COLUMNS = 5
CHUNK = 1 << 20
#: fits, and the most rows that they are tried with
FITS = {
    "moments": 10**8,
    "DuckDB": 10**8,
    "network": 10**7,
    "bins": 10**7,
    "tables": 10**7,
    "mixture": 10**7,
}


def write_rows(path, n_rows, seed):
    """Write correlated columns, two of which have few values."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(seed)
    mixing = np.eye(N_COLUMNS) + np.triu(np.full((N_COLUMNS, N_COLUMNS), 0.5), 1)
    names = [f"x{i}" for i in range(N_COLUMNS)]
    schema = pa.schema([(name, pa.float64()) for name in names])
    with parquet.ParquetWriter(path, schema, use_dictionary=False) as writer:
        for start in range(0, n_rows, CHUNK):
            n = min(CHUNK, n_rows - start)
            rows = rng.normal(size=(n, N_COLUMNS)) @ mixing
            rows += 3.0 * rng.integers(0, 2, size=(n, 1))
            writer.write_table(pa.table(list(rows.T), schema=schema))


def fit(name, paths):
    """Fit one estimator to the files and return its processor time."""
    from skprivbn.graphical_model import DPCGMLearner
    from skprivbn.mixture import PPEMGaussianMixture
    from skprivbn.partition import HorizontalPartition, RowSource
    from skprivbn.preprocessing import FederatedKBinsDiscretizer, FederatedPCA
    from skprivbn.structure import FederatedGaussianBayesianNetwork

    learner = {
        "moments": FederatedPCA(),
        "network": FederatedGaussianBayesianNetwork("bic"),
        "bins": FederatedKBinsDiscretizer(8),
        "mixture": PPEMGaussianMixture(
            2, covariance_type="diag", backend="masking", max_iter=5, random_state=0
        ),
        "tables": DPCGMLearner(
            "chain",
            bins={f"x{i}": np.linspace(-12, 18, 16) for i in range(N_COLUMNS)},
            epsilon=1.0,
        ),
    }[name]
    rows = {party: RowSource.from_parquet(path) for party, path in zip(PARTIES, paths)}
    partition = HorizontalPartition(rows)
    start = time.process_time()
    learner.fit(partition)
    return time.process_time() - start


def aggregate(paths):
    """Have DuckDB compute the sums behind all moments."""
    import duckdb

    names = [f"x{i}" for i in range(N_COLUMNS)]
    pairs = [f"sum({a} * {b})" for i, a in enumerate(names) for b in names[i:]]
    sums = ", ".join(["count(*)", *(f"sum({a})" for a in names), *pairs])
    connection = duckdb.connect(config={"threads": 1})
    start = time.process_time()
    connection.execute(f"SELECT {sums} FROM read_parquet(?)", [list(paths)]).fetchall()
    return time.process_time() - start


def peak_memory():
    """Return the peak of resident memory of this process, in MB."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


def measure(name, paths):
    """Run one case in this process: seconds, and the peak of memory in MB."""
    import warnings

    warnings.simplefilter("ignore")
    if name in ("read", "fit"):
        run = {"read": read_file, "fit": fit_files}[name]
        what, *paths = paths
        seconds = run(what, paths[0] if name == "read" else paths)
    else:
        seconds = aggregate(paths) if name == "DuckDB" else fit(name, paths)
    print(json.dumps([seconds, peak_memory()]))


LABELS = ["surgery", "medicine", "intensive care", "other"]
FILE_COLUMNS = [f"x{i}" for i in range(10)]


def write_files(folder, n_rows):
    """Write a CSV and a Parquet file of floats for each party, and of categories."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    def write(name, columns):
        table = pa.table(dict(zip(FILE_COLUMNS, columns)))
        csv.write_csv(table, folder / f"{name}.csv")
        parquet.write_table(table, folder / f"{name}.parquet")

    for seed, name in enumerate(PARTIES):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(n_rows, 10)) + 3.0 * rng.integers(0, 2, (n_rows, 1))
        write(name, rows.T)
    labels = rng.integers(len(LABELS), size=(10, n_rows))
    write("categories", [pa.array(LABELS).take(pa.array(row)) for row in labels])


def site_table(path):
    """Return a file as a site declares it."""
    from skprivbn.federation.site._sources import find_table
    from skprivbn.federation.site._table import Column

    path = Path(path)
    column = Column(LABELS if path.stem == "categories" else "float")
    columns = dict.fromkeys(FILE_COLUMNS, column)
    return find_table({"path": path.name}, columns, path.parent, "")


def read_file(reader, path):
    """Read a file once and return the processor time."""
    import pandas as pd
    import pyarrow.compute
    import pyarrow.csv  # noqa: F401
    from pyarrow import parquet

    table, is_category = site_table(path), "categories" in path
    read = {
        "site": lambda: list(map(len, table.values(FILE_COLUMNS))),
        "pandas": lambda: pd.read_csv(path),
        "pandas, category": lambda: pd.read_csv(path, dtype="category"),
        "pyarrow": lambda: parquet.read_table(
            path, read_dictionary=FILE_COLUMNS * is_category, use_threads=False
        ),
    }[reader]
    start = time.process_time()
    read()
    return time.process_time() - start


def fit_files(name, paths):
    """Fit one estimator to rows as sites read them; return the processor time."""
    from skprivbn.mixture import PPEMGaussianMixture
    from skprivbn.partition import HorizontalPartition
    from skprivbn.preprocessing import FederatedStandardScaler
    from skprivbn.structure import FederatedGaussianBayesianNetwork

    learner = {
        "scaler": FederatedStandardScaler(),
        "Gaussian network": FederatedGaussianBayesianNetwork("bic"),
        "mixture, 5 iterations": PPEMGaussianMixture(
            2, covariance_type="diag", backend="masking", max_iter=5, random_state=0
        ),
    }[name]
    start = time.process_time()
    rows = {
        party: site_table(path).read_rows(FILE_COLUMNS, [])[0]
        for party, path in zip(PARTIES, paths)
    }
    learner.fit(HorizontalPartition(rows))
    return time.process_time() - start


def measure_files(options):
    """Read and fit, each in a process of its own."""
    n_rows, rows = options.rows[0], []

    def run(what, name, *paths):
        command = [sys.executable, __file__, "--case", what, name, *map(str, paths)]
        done = subprocess.run(command, capture_output=True, check=True)
        seconds, peak = json.loads(done.stdout)
        kind = paths[0].suffix[1:] + ", categories" * ("categories" in paths[0].stem)
        row = {"file": kind, "what": f"{what}: {name}", "rows": n_rows * len(paths)}
        rows.append(row | {"seconds": seconds, "peak MB": peak})
        print(rows[-1], flush=True)

    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        folder = Path(folder)
        write_files(folder, n_rows)
        peers = {"csv": ["pandas", "pandas, category"], "parquet": ["pyarrow"]}
        for kind, known in peers.items():
            run("read", "site", folder / f"north.{kind}")
            run("read", known[0], folder / f"north.{kind}")
            for reader in ["site", *known]:
                run("read", reader, folder / f"categories.{kind}")
        for name in ("scaler", "Gaussian network", "mixture, 5 iterations"):
            for kind in peers:
                run("fit", name, *(folder / f"{party}.{kind}" for party in PARTIES))
    record("source_files", rows, title="Files as sites read them")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--fits", nargs="+", default=list(FITS), choices=list(FITS))
    parser.add_argument("--folder", default=None, help="where there is room")
    parser.add_argument("--files", action="store_true", help="read and fit to files")
    parser.add_argument("--case", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        measure(options.case[0], options.case[1:])
        return
    if options.files:
        measure_files(options)
        return
    rows = []
    for n_rows in options.rows:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            paths = [str(Path(folder) / f"{name}.parquet") for name in PARTIES]
            for seed, path in enumerate(paths):
                write_rows(path, n_rows // len(PARTIES), seed)
            for name in options.fits:
                if n_rows > FITS[name]:
                    continue
                command = [sys.executable, __file__, "--case", name, *paths]
                done = subprocess.run(command, capture_output=True, check=True)
                seconds, peak = json.loads(done.stdout)
                row = {"fit": name, "rows": n_rows, "seconds": seconds}
                row |= {"ns per row": seconds / n_rows * 1e9, "peak MB": peak}
                rows.append(row)
                print(row, flush=True)
    record("sources", rows, title="Fits to Parquet files, in blocks")


if __name__ == "__main__":
    main()
