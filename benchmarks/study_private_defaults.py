"""What defaults with `epsilon` are worth, beside diffprivlib, MST and no noise at all.

``python benchmarks/study_private_defaults.py tables`` trains classifiers on synthetic
rows, ours and those of OpenDP's MST at the same delta, in minutes. It needs ``pip
install "opendp[mbi]" statsmodels``, best in an environment of its own. MST chooses and
measures by itself and estimates by our inference (``_quick_aim.py``), which is faster
and no less exact. Each seed splits the rows anew: one half to learn from, the other to
test on.

``python benchmarks/study_private_defaults.py numbers``, the default, fits mixtures,
Gaussian networks, scalers and PCA. ``DIFFPRIVLIB=<the Python of an environment that has
it>`` fits diffprivlib's estimators to the same rows, with the same bounds: it does not
import with the scikit-learn of today. Its KMeans stands beside our mixture.

Defaults are those of the classes; only epsilon, delta and public bounds are given.
"""

import argparse
import os
import subprocess
import tempfile
import warnings
from pathlib import Path

import bench_tables
import numpy as np
import study_private_mixture_defaults
from _record import record
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score, roc_auc_score
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skprivbn.datasets import load_msnbc, make_linear_sem
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import FederatedPCA, FederatedStandardScaler
from skprivbn.structure import FederatedGaussianBayesianNetwork

DELTA = 1e-6
SEEDS = range(5)
# the fewer rows, the more the area varies from split to split
SPLITS = {"fair": range(20)}


def load_fair():
    """Codes of 6,366 answers of a survey; last, whether there were affairs."""
    import statsmodels.api

    frame = statsmodels.api.datasets.fair.load_pandas().data
    target = (frame.pop("affairs") > 0).to_numpy()
    states = [sorted(set(frame[name])) for name in frame]
    codes = [np.searchsorted(labels, frame[n]) for n, labels in zip(frame, states)]
    return np.column_stack([*codes, target]), [*map(len, states), 2]


def load_randhie():
    """Codes of 20,190 persons of a health insurance experiment; last, if any visits."""
    import statsmodels.api

    frame = statsmodels.api.datasets.randhie.load_pandas().data
    target = (frame.pop("mdvis") > 0).to_numpy()
    edges = {"lncoins": [0.1, 3.5, 4, 4.4], "lpi": [0.1, 5, 6, 6.5, 7]}
    edges |= {"fmde": [0.1, 5, 6, 7], "disea": [2, 5, 10, 15, 20, 30]}
    columns = [np.digitize(frame[name], edges.get(name, [0.5])) for name in frame]
    sizes = [len(edges.get(name, [0.5])) + 1 for name in frame]
    return np.column_stack([*columns, target]), [*sizes, 2]


def load_pages():
    """Which of 17 kinds of pages 97,108 visitors saw; last, if the front page."""
    codes = np.roll(load_msnbc().data.astype(int), -1, axis=1)
    return codes, [2] * codes.shape[1]


def area(train, test, sizes):
    """Area under the ROC curve of a logistic regression on indicators."""
    if len(set(train[:, -1])) < 2:
        return 0.5
    encoder = OneHotEncoder(categories=[range(size) for size in sizes[:-1]])
    model = make_pipeline(encoder, LogisticRegression(max_iter=500))
    model.fit(train[:, :-1], train[:, -1])
    return roc_auc_score(test[:, -1], model.predict_proba(test[:, :-1])[:, 1])


def synthetic(train, sizes, epsilon, delta, seed):
    """As many rows as there are, drawn from our private field; and if it warned."""
    learner = DPCGMLearner(epsilon=epsilon, delta=delta, states=sizes).fit(train)
    rows = learner.sample(len(train), random_state=seed).astype(int)
    return rows, bool(learner.noise_report_.warnings)


def tables(epsilons):
    """Train on synthetic rows, test on real ones."""
    loaders = {"fair": load_fair, "randhie": load_randhie, "msnbc": load_pages}
    for name, load in loaders.items():
        (codes, sizes), seeds = load(), SPLITS.get(name, SEEDS)
        orders = [np.random.default_rng(s).permutation(len(codes)) for s in seeds]
        halves = [np.array_split(codes[order], 2) for order in orders]
        real = [area(train, test, sizes) for train, test in halves]
        for epsilon in epsilons:
            found = {"MST": [], "ours": [], "ours with delta 0": []}
            warned = 0
            for seed, (train, test) in zip(seeds, halves):
                field, _ = bench_tables.release(
                    train, sizes, epsilon, "mst", 1000, quick=True
                )
                rows = field.sample(len(train), random_state=seed).astype(int)
                found["MST"].append(area(rows, test, sizes))
                for key, delta in (("ours", DELTA), ("ours with delta 0", 0.0)):
                    rows, said = synthetic(train, sizes, epsilon, delta, seed)
                    found[key].append(area(rows, test, sizes))
                    warned += said and delta == 0
            row = {"data": name, "rows": len(codes) // 2, "epsilon": epsilon}
            row |= {"seeds": len(seeds), "real": np.mean(real)}
            row |= {key: np.mean(values) for key, values in found.items()}
            gaps = np.subtract(found["ours"], found["MST"])
            row["standard error of ours - MST"] = gaps.std(ddof=1) / len(gaps) ** 0.5
            yield row | {"warnings at delta 0": warned}


#: fits diffprivlib's estimators to the arrays of a file, and writes what they find
PEER = """
import sys, warnings
import numpy as np
from diffprivlib import models
warnings.simplefilter("ignore")
given, found = np.load(sys.argv[1]), {}
X, epsilon, bounds = given["X"], float(given["epsilon"]), (given["low"], given["high"])
kind = sys.argv[3]
if kind == "mixture":
    model = models.KMeans(3, epsilon=epsilon, bounds=bounds).fit(X)
    found["labels"] = model.predict(X)
elif kind == "scaler":
    model = models.StandardScaler(epsilon=epsilon, bounds=bounds).fit(X)
    found |= {"mean": model.mean_, "scale": model.scale_}
else:
    norm = float(np.linalg.norm((bounds[1] - bounds[0]) / 2))
    model = models.PCA(2, epsilon=epsilon, bounds=bounds, data_norm=norm).fit(X)
    found["components"] = model.components_
np.savez(sys.argv[2], **found)
"""


def diffprivlib(kind, X, epsilon, bounds):
    """What diffprivlib finds in the same rows; nothing if it is not at hand."""
    if "DIFFPRIVLIB" not in os.environ:
        return None
    with tempfile.TemporaryDirectory() as folder:
        given, found = (str(Path(folder, name)) for name in ("given.npz", "found.npz"))
        low, high = np.full((2, X.shape[1]), np.reshape(bounds, (2, 1)))
        np.savez(given, X=X, epsilon=epsilon, low=low, high=high)
        command = [os.environ["DIFFPRIVLIB"], "-c", PEER, given, found, kind]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        subprocess.run(command, check=True, env=environment)
        return dict(np.load(found))


def mixture_case(seed, epsilon, delta, n_rows):
    """Adjusted Rand index of three separated components in two dimensions."""
    X, truth = study_private_mixture_defaults.draw(3, 2, seed + 200)
    box = (-15.0, 15.0)
    ours = PPEMGaussianMixture(
        3, epsilon=epsilon, delta=delta, bounds=box, random_state=seed
    ).fit(X)
    theirs = delta == 0 and diffprivlib("mixture", X, epsilon, box)
    exact = GaussianMixture(3, random_state=seed).fit_predict(X)
    return (
        adjusted_rand_score(truth, ours.predict(X)),
        adjusted_rand_score(truth, theirs["labels"]) if theirs else None,
        adjusted_rand_score(truth, exact),
        ours,
    )


def network_case(seed, epsilon, delta, n_rows):
    """Missing and superfluous edges, of eight in the skeleton of eight columns."""
    X, weights = make_linear_sem(n_rows, 8, random_state=seed)
    X = X / X.std(axis=0)

    def errors(model):
        skeletons = (weights != 0) | (weights != 0).T, model.adjacency_matrix_
        found = skeletons[1] | skeletons[1].T
        return int(np.triu(skeletons[0] != found).sum())

    model = FederatedGaussianBayesianNetwork
    ours = model(epsilon=epsilon, delta=delta, bounds=(-6.0, 6.0)).fit(X)
    return errors(ours), None, errors(model().fit(X)), ours


def scaler_case(seed, epsilon, delta, n_rows):
    """Largest error of means and standard deviations, in standard deviations."""
    X = make_linear_sem(n_rows, 8, random_state=seed)[0]
    X, box = X / X.std(axis=0), (-6.0, 6.0)

    def error(mean, scale):
        return max(np.abs(mean - X.mean(axis=0)).max(), np.abs(scale - 1).max())

    ours = FederatedStandardScaler(epsilon=epsilon, delta=delta, bounds=box).fit(X)
    theirs = delta == 0 and diffprivlib("scaler", X, epsilon, box)
    theirs = error(**theirs) if theirs else None
    return error(ours.mean_, ours.scale_), theirs, 0.0, ours


def pca_case(seed, epsilon, delta, n_rows):
    """Share of variance in the plane of the first two components."""
    X = make_linear_sem(n_rows, 8, random_state=seed)[0]
    X, box = X / X.std(axis=0), (-6.0, 6.0)

    def share(components):
        return X.dot(components.T).var(axis=0).sum() / 8

    ours = FederatedPCA(2, epsilon=epsilon, delta=delta, bounds=box).fit(X)
    theirs = delta == 0 and diffprivlib("PCA", X, epsilon, box)
    theirs = share(theirs["components"]) if theirs else None
    return share(ours.components_), theirs, share(PCA(2).fit(X).components_), ours


CASES = {
    ("mixture", "adjusted Rand index", 10_000): mixture_case,
    ("Gaussian network", "skeleton errors", 10_000): network_case,
    ("Gaussian network", "skeleton errors", 50_000): network_case,
    ("scaler", "largest error", 10_000): scaler_case,
    ("PCA", "share of variance", 10_000): pca_case,
}


def numbers(epsilons):
    """Mixtures, networks and transformers, with and without delta."""
    for (name, measure, n_rows), case in CASES.items():
        for epsilon in epsilons:
            for delta in (0.0, DELTA):
                fits = [case(seed, epsilon, delta, n_rows) for seed in SEEDS]
                ours, theirs, exact, models = zip(*fits)
                worst = min if "error" not in measure else max
                row = {"estimator": name, "rows": n_rows, "measure": measure}
                row |= {"epsilon": epsilon, "delta": delta, "ours": np.mean(ours)}
                row |= {"worst of 5": worst(ours)}
                row["diffprivlib"] = None if None in theirs else np.mean(theirs)
                row["without noise"] = np.mean(exact)
                row["fits that warned"] = sum(
                    bool(model.noise_report_.warnings) for model in models
                )
                yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    studies = ["tables", "numbers"]
    parser.add_argument("names", nargs="*", choices=[*studies, []])
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.5, 1.0, 5.0])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in arguments.names or ["numbers"]:
        rows = []
        for row in globals()[name](arguments.epsilon):
            rows.append(row)
            print(row, flush=True)
        record(f"private_defaults_{name}", rows, delta=DELTA)


if __name__ == "__main__":
    main()
